/* Decoding threads: claim commands, make rows, report completions. Decoder role.
 *
 * A thread takes one command at a time, or a few when commands are so short that taking them and
 * waking spdld would cost more than they do; never more than its share of those that wait. Each
 * completion is shown at once; spdld is woken once behind the last of them. */
#include "worker/worker_state.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "shm/shm_failpoint.h"
#include "worker/worker_row.h"

enum {
    CLAIM_MAX = 16,
    CLAIM_NS = 20000,     /* so much work may be claimed together */
    END_POLL_NS = 200000, /* between two attempts to wake sleeping threads at the end */
    STACK_BYTES = 1024 * 1024
};

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* The word is in memory that is mapped read-only here, which is enough to wait on it. */
static long futex(const _Atomic uint32_t *word, int operation, uint32_t value)
{
    return syscall(SYS_futex, (uintptr_t)word, operation, value, NULL, NULL, 0);
}

/* A thread that is one too many sleeps until it is not. It may have been woken for a command that
 * another one waits for, so it hands that on. */
static void park(struct worker *worker, uint32_t active)
{
    futex(&worker->commands->published, FUTEX_WAKE, 1);
    futex(&worker->active, FUTEX_WAIT, active);
}

/* Takes up to `most` commands. Waits until there is one; 0 when the worker ends. */
static uint32_t claim(const struct worker_thread *thread, uint32_t most, uint32_t *ret_first)
{
    struct worker *worker = thread->worker;
    for (;;) {
        if (atomic_load_explicit(&worker->stop, memory_order_acquire))
            return 0;
        uint32_t active = atomic_load_explicit(&worker->active, memory_order_seq_cst);
        if (thread->number >= active) {
            park(worker, active);
            continue;
        }
        uint32_t claimed = atomic_load_explicit(&worker->claimed, memory_order_relaxed);
        /* Partner: spdld's release behind the cells. */
        uint32_t published =
            atomic_load_explicit(&worker->commands->published, memory_order_acquire);
        uint32_t waiting = published - claimed;
        if (waiting == 0) {
            futex(&worker->commands->published, FUTEX_WAIT, published);
            continue;
        }
        if (waiting > SPDL_WORK_CELLS) /* `claimed` is older than `published`: look again */
            continue;
        uint32_t share = (waiting + active - 1) / active;
        uint32_t count = share < most ? share : most;
        if (atomic_compare_exchange_weak_explicit(&worker->claimed, &claimed, claimed + count,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            *ret_first = claimed;
            return count;
        }
    }
}

/* Tells the socket thread, which ends the worker. */
static void give_up(struct worker *worker)
{
    atomic_store_explicit(&worker->broken, true, memory_order_release);
    shutdown(worker->socket_fd, SHUT_RDWR);
}

static void complete(struct worker *worker, const struct spdl_work_completion *record)
{
    /* Release: whoever is given this row's slot or stream next sees the row finished (the acquire
     * in run_command). */
    uint64_t number = atomic_fetch_add_explicit(&worker->completed, 1, memory_order_acq_rel);
    struct spdl_work_completion_cell *cell = &worker->completions->cells[number % SPDL_WORK_CELLS];
    /* The cell's last completion was taken before this command was given out. Acquire: its writer
     * may be another thread. */
    uint64_t last = number < SPDL_WORK_CELLS ? 0 : number + 1 - SPDL_WORK_CELLS;
    if (atomic_load_explicit(&cell->turn, memory_order_acquire) != last)
        give_up(worker);
    cell->record = *record;
    SPDL_FAILPOINT("worker.completion.before");
    /* Partner: spdld's acquire. seq_cst, because `waiting` is read behind it: either spdld sees
     * this, or we see it sleep. */
    atomic_store_explicit(&cell->turn, number + 1, memory_order_seq_cst);
}

static void wake_daemon(const struct worker *worker)
{
    if (atomic_load_explicit(&worker->commands->waiting, memory_order_seq_cst) == 0)
        return;
    const uint64_t one = 1;
    ssize_t ignored = write(worker->event_fd, &one, sizeof one); /* full: it is awake already */
    (void)ignored;
}

static bool run_command(struct worker_thread *thread, uint32_t number, uint64_t *at_ns)
{
    struct worker *worker = thread->worker;
    struct spdl_work_command command = worker->commands->cells[number % SPDL_WORK_CELLS];
    struct spdl_work_completion record;
    struct worker_job job = {
        .command = &command, .arena = worker->arena, .arena_bytes = worker->arena_bytes};
    /* Partner: the release in complete, of the thread that wrote to these rows before. */
    atomic_load_explicit(&worker->completed, memory_order_acquire);
    for (uint32_t d = 0; d < command.dest_count && d < SPDL_WORK_DESTS_MAX; d++)
        job.streams[d] = worker_streams_look(&worker->streams, command.dests[d].stream);
    if (!worker_row_fits(&job)) {
        give_up(worker);
        return false;
    }
    _Atomic uint64_t *working = &worker->completions->working[thread->number];
    atomic_store_explicit(working, command.ticket, memory_order_relaxed);
    SPDL_FAILPOINT("worker.row.before");
    worker_row_run(thread->row, &job, &record);
    SPDL_FAILPOINT("worker.row.made");
    uint64_t end_ns = now_ns(), cost_ns = end_ns - *at_ns;
    record.cost_ns = cost_ns > UINT32_MAX ? UINT32_MAX : (uint32_t)cost_ns;
    *at_ns = end_ns;
    complete(worker, &record);
    SPDL_FAILPOINT("worker.completion.after");
    atomic_store_explicit(working, 0, memory_order_relaxed);
    return true;
}

/* How many commands to take, when the last ones took cost_ns each. */
static uint32_t claim_size(uint64_t cost_ns)
{
    if (cost_ns == 0)
        return 1;
    uint64_t count = CLAIM_NS / cost_ns;
    return count == 0 ? 1 : count > CLAIM_MAX ? CLAIM_MAX : (uint32_t)count;
}

static void *run_thread(void *argument)
{
    struct worker_thread *thread = argument;
    struct worker *worker = thread->worker;
    char name[16];
    snprintf(name, sizeof name, "spdl-dec-%u", thread->number);
    pthread_setname_np(pthread_self(), name);
    uint64_t cost_ns = 0;
    uint32_t first = 0, count;
    bool fits = true;
    while (fits && (count = claim(thread, claim_size(cost_ns), &first)) != 0) {
        uint64_t start_ns = now_ns(), at_ns = start_ns;
        for (uint32_t i = 0; fits && i < count; i++)
            fits = run_command(thread, first + i, &at_ns);
        cost_ns = (at_ns - start_ns) / count;
        wake_daemon(worker);
    }
    /* Release: what this thread did is before the end of the worker. */
    atomic_fetch_sub_explicit(&worker->running, 1, memory_order_release);
    return NULL;
}

static int start_thread(struct worker_thread *thread)
{
    pthread_attr_t attributes;
    int rc = pthread_attr_init(&attributes);
    if (rc != 0)
        return -rc;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    atomic_fetch_add_explicit(&thread->worker->running, 1, memory_order_relaxed);
    rc = pthread_create(&thread->handle, &attributes, run_thread, thread);
    pthread_attr_destroy(&attributes);
    if (rc != 0)
        atomic_fetch_sub_explicit(&thread->worker->running, 1, memory_order_relaxed);
    return -rc;
}

/* A thread of that number, unless it runs already. */
static int make_thread(struct worker *worker, uint32_t number)
{
    struct worker_thread *thread = &worker->threads[number];
    if (thread->started)
        return 0;
    thread->worker = worker;
    thread->number = number;
    if (thread->row == NULL)
        thread->row = worker_row_create();
    int rc = thread->row == NULL ? -ENOMEM : start_thread(thread);
    thread->started = rc == 0;
    return rc;
}

int worker_threads_set(struct worker *worker, uint32_t count)
{
    ASSERT(count >= 1 && count <= SPDL_WORK_THREADS_MAX);
    uint32_t made = 0;
    int rc = 0;
    while (made < count && (rc = make_thread(worker, made)) == 0)
        made++;
    if (made == 0)
        return rc;
    atomic_store_explicit(&worker->active, made, memory_order_seq_cst);
    futex(&worker->active, FUTEX_WAKE, INT_MAX);
    /* Those that are too many now and sleep must not be the ones that are woken for a command. */
    futex(&worker->commands->published, FUTEX_WAKE, INT_MAX);
    return (int)made;
}

void worker_threads_end(struct worker *worker)
{
    atomic_store_explicit(&worker->stop, true, memory_order_release);
    /* A thread may be between its look at `stop` and its sleep, and the word it sleeps on cannot be
     * changed from here: it is woken until it has ended. */
    while (atomic_load_explicit(&worker->running, memory_order_acquire) != 0) {
        futex(&worker->active, FUTEX_WAKE, INT_MAX);
        futex(&worker->commands->published, FUTEX_WAKE, INT_MAX);
        nanosleep(&(struct timespec){.tv_nsec = END_POLL_NS}, NULL);
    }
    for (uint32_t i = 0; i < SPDL_WORK_THREADS_MAX; i++) {
        struct worker_thread *thread = &worker->threads[i];
        if (thread->started)
            pthread_join(thread->handle, NULL);
        worker_row_destroy(thread->row);
        *thread = (struct worker_thread){0};
    }
}
