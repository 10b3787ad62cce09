/* The engine of io_uring: one thread, the fetcher, which owns a ring. Its files, fetch_uring*, are
 * the ones that name liburing.
 *
 * What the kernel can answer at once costs least by a plain call: the fetcher opens with
 * RESOLVE_CACHED and reads with RWF_NOWAIT, and only what would wait goes through the ring. On file
 * systems that can hang every step goes through the ring, on a thread of the kernel, so that a hung
 * open, stat or read holds up nobody else.
 *
 * The fetcher sleeps on a futex while the ring is empty and in the ring otherwise, where a read of
 * an eventfd lies ready; the conductor sees from `state` which of the two wakes it. The engine's
 * memory goes with the last of its two owners, since a fetcher with a hung operation outlives
 * fetch_close. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fetch/fetch.h"
#include "fetch/fetch_file.h"
#include "fetch/fetch_join.h"
#include "fetch/fetch_uring.h"

extern const struct fetch_ops fetch_uring_ops;

enum {
    /* The conductor is told of so many results with so many bytes, or of half of what can be in
       flight; of the rest it hears when there is nothing to start. Waking it costs as much as some
       reads of a kilobyte. */
    SIGNAL_EVERY = 8,
    SIGNAL_BYTES = 256 << 10,
    /* Of the kernel. Without a bound it starts as many as the user may have processes. */
    THREADS_USUAL = 32,
    /* How long operations in flight are waited for at the end; then they are given up. */
    DRAIN_MS = 700
};

static void unref(struct fetch_uring *uring, bool is_fetcher)
{
    if (!fetch_fetcher_unref(&uring->fetcher, is_fetcher))
        return;
    fetch_fetcher_fini(&uring->fetcher);
    fetch_port_fini(&uring->port);
    fetch_keep_fini(&uring->keep);
    free(uring->tasks);
    free(uring);
}

static bool stopped(struct fetch_uring *uring)
{
    return fetch_fetcher_stopped(&uring->fetcher);
}

/* Takes what the ring has finished. Returns how many. */
static uint32_t take_cqes(struct fetch_uring *uring)
{
    struct io_uring_cqe *cqes[64];
    uint32_t count = io_uring_peek_batch_cqe(&uring->ring, cqes, 64);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t user = cqes[i]->user_data;
        int result = cqes[i]->res;
        io_uring_cqe_seen(&uring->ring, cqes[i]);
        if (user == FETCH_URING_WAKE) {
            uring->wake_armed = false;
        } else if (user == FETCH_URING_CLOSE) {
            uring->in_ring--;
        } else if (user != FETCH_URING_CANCEL) {
            uring->in_ring--;
            fetch_uring_task_ended(uring, (uint32_t)user, result);
        }
    }
    return count;
}

static void tell_conductor(struct fetch_uring *uring)
{
    if (uring->unsignalled == 0)
        return;
    uring->unsignalled = 0;
    uring->unsignalled_bytes = 0;
    fetch_port_signal(&uring->port);
}

static void tell_of_enough(struct fetch_uring *uring)
{
    if (uring->unsignalled >= SIGNAL_EVERY &&
        (uring->unsignalled_bytes >= SIGNAL_BYTES || uring->unsignalled >= uring->port.depth / 2))
        tell_conductor(uring);
}

/* Starts some of the requests that wait, so that the ring is looked at now and then. */
static uint32_t start_some(struct fetch_uring *uring)
{
    uint32_t kept[FETCH_BATCH_MAX], kept_count = 0, count = 0, slot;
    int root_fd = -1;
    enum fetch_place place = FETCH_PLACE_REMOTE, kept_place = FETCH_PLACE_REMOTE;
    while (count < FETCH_BATCH_MAX && !stopped(uring) && fetch_port_take(&uring->port, &slot)) {
        const struct fetch_request *request = &uring->port.slots[slot].request;
        if (count++ == 0 || request->root_fd != root_fd) {
            root_fd = request->root_fd;
            place = fetch_local_find(&uring->local, root_fd);
        }
        if (place == FETCH_PLACE_REMOTE || !fetch_file_keeps(request)) {
            fetch_uring_task_start(uring, slot, place);
            tell_of_enough(uring);
            continue;
        }
        if (kept_count > 0 && place != kept_place) {
            fetch_uring_task_start_kept(uring, kept, kept_count, kept_place);
            kept_count = 0;
        }
        kept_place = place;
        kept[kept_count++] = slot;
    }
    if (kept_count > 0)
        fetch_uring_task_start_kept(uring, kept, kept_count, kept_place);
    for (int fd; (fd = fetch_keep_take(&uring->keep)) >= 0;)
        fetch_uring_task_close(uring, fd);
    tell_of_enough(uring);
    return count;
}

static void sleep_until_woken(struct fetch_uring *uring)
{
    enum fetch_fetcher_state state =
        uring->in_ring > 0 ? FETCH_FETCHER_ON_FD : FETCH_FETCHER_ON_FUTEX;
    if (state == FETCH_FETCHER_ON_FD && !uring->wake_armed) {
        struct io_uring_sqe *sqe = fetch_uring_sqe(uring);
        io_uring_prep_read(sqe, uring->fetcher.wake_fd, &uring->wake_value,
                           sizeof uring->wake_value, 0);
        io_uring_sqe_set_data64(sqe, FETCH_URING_WAKE);
        uring->wake_armed = true;
    }
    atomic_store(&uring->fetcher.state.value, (uint32_t)state);
    /* Partner: uring_kick and fetch_fetcher_stop, which store and then look at `state`. */
    if (fetch_port_waiting(&uring->port) == 0 && !fetch_keep_dead(&uring->keep) &&
        atomic_load(&uring->threads_wanted.value) == uring->threads && !stopped(uring)) {
        if (state == FETCH_FETCHER_ON_FD)
            io_uring_submit_and_wait(&uring->ring, 1);
        else
            fetch_fetcher_sleep_on_futex(&uring->fetcher);
    }
    atomic_store(&uring->fetcher.state.value, FETCH_FETCHER_AWAKE);
}

static void fetch_until_stopped(struct fetch_uring *uring)
{
    while (!stopped(uring)) {
        if (atomic_load(&uring->threads_wanted.value) != uring->threads)
            fetch_uring_set_threads(uring);
        uint32_t moved = start_some(uring);
        if (io_uring_sq_ready(&uring->ring) > 0)
            io_uring_submit(&uring->ring);
        moved += take_cqes(uring);
        tell_of_enough(uring);
        if (moved > 0)
            continue;
        tell_conductor(uring);
        sleep_until_woken(uring);
    }
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Cancels what is in the ring and waits for it: a while as the conductor waits too, then for as
 * long as it takes. */
static void drain(struct fetch_uring *uring)
{
    fetch_keep_forget(&uring->keep, NULL);
    for (int fd; (fd = fetch_keep_take(&uring->keep)) >= 0;)
        fetch_uring_task_close(uring, fd);
    for (uint32_t i = 0; i < uring->port.depth; i++) {
        if (uring->tasks[i].step == STEP_NONE)
            continue;
        struct io_uring_sqe *sqe = fetch_uring_sqe(uring);
        io_uring_prep_cancel64(sqe, i, 0);
        io_uring_sqe_set_data64(sqe, FETCH_URING_CANCEL);
    }
    if (uring->wake_armed) {
        struct io_uring_sqe *sqe = fetch_uring_sqe(uring);
        io_uring_prep_cancel64(sqe, FETCH_URING_WAKE, 0);
        io_uring_sqe_set_data64(sqe, FETCH_URING_CANCEL);
    }
    io_uring_submit(&uring->ring);
    uint64_t until = now_ms() + DRAIN_MS;
    while (uring->in_ring > 0 || uring->wake_armed) {
        struct io_uring_cqe *cqe;
        struct __kernel_timespec step = {.tv_nsec = 50000000};
        bool patient = now_ms() < until;
        if (!patient)
            fetch_fetcher_give_up(&uring->fetcher);
        io_uring_wait_cqe_timeout(&uring->ring, &cqe, patient ? &step : NULL);
        take_cqes(uring);
        io_uring_submit(&uring->ring); /* closes of what came back */
    }
}

static void *uring_thread(void *argument)
{
    struct fetch_uring *uring = argument;
    pthread_setname_np(pthread_self(), "spdld-fetch");
    struct err err = {0};
    int rc = fetch_uring_ring_open(uring, &err);
    fetch_fetcher_started(&uring->fetcher, rc, &err);
    if (rc == 0) {
        fetch_until_stopped(uring);
        drain(uring);
        io_uring_queue_exit(&uring->ring);
    }
    unref(uring, true);
    return NULL;
}

static int uring_open(const struct fetch_params *params, struct fetch **ret_fetch,
                      struct err *reterr)
{
    struct fetch_uring *uring = calloc(1, sizeof *uring);
    if (!uring)
        return err_set(reterr, -ENOMEM, "fetch: no memory for the fetcher");
    int rc = fetch_port_init(&uring->port, params->depth, reterr);
    if (rc < 0) {
        free(uring);
        return rc;
    }
    uring->fetch.ops = &fetch_uring_ops;
    uring->how = FETCH_FILE_HOW;
    rc = fetch_fetcher_init(&uring->fetcher, reterr);
    if (rc < 0) {
        fetch_port_fini(&uring->port);
        free(uring);
        return rc;
    }
    fetch_keep_init(&uring->keep);
    atomic_store(&uring->threads_wanted.value,
                 params->depth < THREADS_USUAL ? params->depth : THREADS_USUAL);
    uring->tasks = calloc(params->depth, sizeof *uring->tasks);
    rc = uring->tasks ? fetch_fetcher_start(&uring->fetcher, uring_thread, uring, reterr)
                      : err_set(reterr, -ENOMEM, "fetch: no memory for %u reads", params->depth);
    if (rc < 0) {
        unref(uring, false);
        return rc;
    }
    *ret_fetch = &uring->fetch;
    return 0;
}

static struct fetch_uring *uring_of(struct fetch *fetch)
{
    return (struct fetch_uring *)fetch;
}

/* A thread for each read that is late, besides those that there are for the others. */
static void uring_tend(struct fetch *fetch)
{
    struct fetch_uring *uring = uring_of(fetch);
    uint32_t wanted = THREADS_USUAL + fetch_port_late(&uring->port);
    wanted = wanted < uring->port.depth ? wanted : uring->port.depth;
    if (wanted <= atomic_load(&uring->threads_wanted.value))
        return;
    atomic_store(&uring->threads_wanted.value, wanted);
    fetch_fetcher_wake(&uring->fetcher);
}

static void uring_leave(struct fetch *fetch)
{
    fetch_fetcher_leave(&uring_of(fetch)->fetcher);
}

static void uring_close(struct fetch *fetch)
{
    struct fetch_uring *uring = uring_of(fetch);
    fetch_fetcher_stop(&uring->fetcher);
    unref(uring, false);
}

static int uring_fd(const struct fetch *fetch)
{
    return ((const struct fetch_uring *)fetch)->port.event_fd;
}

static int uring_submit(struct fetch *fetch, const struct fetch_request *request)
{
    return fetch_port_submit(&uring_of(fetch)->port, request);
}

static void uring_kick(struct fetch *fetch)
{
    struct fetch_uring *uring = uring_of(fetch);
    fetch_port_show(&uring->port);
    if (fetch_port_waiting(&uring->port) > 0)
        fetch_fetcher_wake(&uring->fetcher);
}

static uint32_t uring_reap(struct fetch *fetch, struct fetch_result *results, uint32_t max)
{
    return fetch_port_reap(&uring_of(fetch)->port, results, max);
}

static void uring_forget(struct fetch *fetch, const void *owner)
{
    struct fetch_uring *uring = uring_of(fetch);
    if (fetch_keep_forget(&uring->keep, owner))
        fetch_fetcher_wake(&uring->fetcher);
}

static void uring_stats(const struct fetch *fetch, struct fetch_stats *ret_stats)
{
    fetch_port_stats(&((const struct fetch_uring *)fetch)->port, ret_stats);
}

const struct fetch_ops fetch_uring_ops = {.name = "uring",
                                          .open = uring_open,
                                          .tend = uring_tend,
                                          .leave = uring_leave,
                                          .close = uring_close,
                                          .fd = uring_fd,
                                          .submit = uring_submit,
                                          .kick = uring_kick,
                                          .reap = uring_reap,
                                          .forget = uring_forget,
                                          .stats = uring_stats};
