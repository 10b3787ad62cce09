/* The engine of io_uring: one thread, the fetcher, which owns a ring. The one file that names
 * liburing.
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
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "fetch/fetch.h"
#include "fetch/fetch_fetcher.h"
#include "fetch/fetch_file.h"
#include "fetch/fetch_local.h"
#include "fetch/fetch_port.h"
#include "item/class.h"

extern const struct fetch_ops fetch_uring_ops;

enum {
    ENTRIES_MIN = 8,
    /* Without a bound the kernel starts as many threads as the user may have processes. */
    KERNEL_THREADS_MAX = 32,
    /* Results after which the conductor is told; of the rest it hears when there is nothing to
       start. */
    SIGNAL_EVERY = 8,
    TRIES_MAX = 16,
    /* Of a read by a plain call: between two the fetcher looks whether it is to stop. */
    PIECE_BYTES = 256 << 10,
    READ_BYTES_MAX = 1 << 30,
    /* How long operations in flight are waited for at the end; then they are given up. */
    DRAIN_MS = 700
};
#define USER_WAKE UINT64_MAX
#define USER_CANCEL (UINT64_MAX - 1)

enum task_step { STEP_NONE = 0, STEP_OPEN, STEP_LOOK, STEP_READ, STEP_LOOK_AGAIN };

/* Of the request in the port's slot of the same number. Fetcher only. */
struct task {
    enum task_step step; /* what is in the ring; STEP_NONE: nothing */
    enum fetch_place place;
    int fd;
    uint32_t tries;
    bool cut; /* it ended before its size */
    uint64_t done;
    struct statx look;
};

struct fetch_uring {
    struct fetch fetch;
    struct fetch_port port;
    struct fetch_fetcher fetcher;

    /* Fetcher only. */
    struct io_uring ring;
    struct task *tasks;
    struct fetch_local local;
    struct open_how how;
    uint64_t wake_value;
    bool wake_armed;
    uint32_t in_ring;
    uint32_t unsignalled;
};

static void unref(struct fetch_uring *uring, bool is_fetcher)
{
    if (!fetch_fetcher_unref(&uring->fetcher, is_fetcher))
        return;
    fetch_fetcher_fini(&uring->fetcher);
    fetch_port_fini(&uring->port);
    free(uring->tasks);
    free(uring);
}

static bool stopped(struct fetch_uring *uring)
{
    return fetch_fetcher_stopped(&uring->fetcher);
}

static struct io_uring_sqe *next_sqe(struct fetch_uring *uring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    while (!sqe) {
        io_uring_submit(&uring->ring);
        sqe = io_uring_get_sqe(&uring->ring);
    }
    return sqe;
}

static void put_in_ring(struct fetch_uring *uring, struct io_uring_sqe *sqe, uint32_t slot,
                        enum task_step step)
{
    struct task *task = &uring->tasks[slot];
    io_uring_sqe_set_data64(sqe, slot);
    /* An open must not be tried by the fetcher itself: that may hang before the kernel finds that
     * it should not wait. */
    if (step != STEP_READ || task->place == FETCH_PLACE_REMOTE)
        io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
    task->step = step;
    uring->in_ring++;
}

static void finish(struct fetch_uring *uring, uint32_t slot, uint32_t class_number, int code)
{
    struct task *task = &uring->tasks[slot];
    if (task->fd >= 0)
        close(task->fd);
    task->fd = -1;
    task->step = STEP_NONE;
    fetch_port_finish(&uring->port, slot, class_number, code);
    if (++uring->unsignalled >= SIGNAL_EVERY) {
        uring->unsignalled = 0;
        fetch_port_signal(&uring->port);
    }
}

static void fail(struct fetch_uring *uring, uint32_t slot, int code)
{
    finish(uring, slot, fetch_file_class(code), code);
}

static void ring_open(struct fetch_uring *uring, uint32_t slot)
{
    const struct fetch_request *request = &uring->port.slots[slot].request;
    struct io_uring_sqe *sqe = next_sqe(uring);
    io_uring_prep_openat2(sqe, request->root_fd, request->path, &uring->how);
    put_in_ring(uring, sqe, slot, STEP_OPEN);
}

static void ring_look(struct fetch_uring *uring, uint32_t slot, enum task_step step)
{
    struct task *task = &uring->tasks[slot];
    struct io_uring_sqe *sqe = next_sqe(uring);
    io_uring_prep_statx(sqe, task->fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE | STATX_MTIME,
                        &task->look);
    put_in_ring(uring, sqe, slot, step);
}

static void ring_read(struct fetch_uring *uring, uint32_t slot)
{
    const struct fetch_request *request = &uring->port.slots[slot].request;
    struct task *task = &uring->tasks[slot];
    uint64_t rest = request->bytes - task->done;
    struct io_uring_sqe *sqe = next_sqe(uring);
    io_uring_prep_read(sqe, task->fd, request->into + task->done,
                       rest < READ_BYTES_MAX ? (unsigned)rest : (unsigned)READ_BYTES_MAX,
                       request->offset + task->done);
    put_in_ring(uring, sqe, slot, STEP_READ);
}

/* The last step: is it still the file that it was before the read? */
static void judge_again(struct fetch_uring *uring, uint32_t slot, uint32_t class_number, int code)
{
    if (class_number == SPDL_CLASS_OK && uring->tasks[slot].cut)
        fail(uring, slot, -EIO); /* of the right size, and yet it ends early */
    else
        finish(uring, slot, class_number, code);
}

static void look_again(struct fetch_uring *uring, uint32_t slot)
{
    struct task *task = &uring->tasks[slot];
    if (task->place == FETCH_PLACE_REMOTE) {
        ring_look(uring, slot, STEP_LOOK_AGAIN);
        return;
    }
    int code;
    uint32_t class_number = fetch_file_judge_fd(&uring->port.slots[slot].request, task->fd, &code);
    judge_again(uring, slot, class_number, code);
}

/* Reads on: at once what needs no waiting, the rest by the ring. */
static void read_on(struct fetch_uring *uring, uint32_t slot)
{
    const struct fetch_request *request = &uring->port.slots[slot].request;
    struct task *task = &uring->tasks[slot];
    while (task->done < request->bytes) {
        if (stopped(uring)) {
            fail(uring, slot, -ECANCELED);
            return;
        }
        if (task->place == FETCH_PLACE_REMOTE) {
            ring_read(uring, slot);
            return;
        }
        uint64_t rest = request->bytes - task->done;
        struct iovec part = {.iov_base = request->into + task->done,
                             .iov_len = rest < PIECE_BYTES ? rest : PIECE_BYTES};
        ssize_t got = preadv2(task->fd, &part, 1, (off_t)(request->offset + task->done),
                              task->place == FETCH_PLACE_MEMORY ? 0 : RWF_NOWAIT);
        if (got > 0) {
            task->done += (uint64_t)got;
        } else if (got == 0) {
            task->cut = true;
            break;
        } else if (errno == EAGAIN || errno == EOPNOTSUPP) {
            ring_read(uring, slot);
            return;
        } else if (errno != EINTR) {
            fail(uring, slot, -errno);
            return;
        }
    }
    look_again(uring, slot);
}

static void judge_first(struct fetch_uring *uring, uint32_t slot, uint32_t class_number, int code)
{
    if (class_number == SPDL_CLASS_OK)
        read_on(uring, slot);
    else
        finish(uring, slot, class_number, code);
}

static void opened(struct fetch_uring *uring, uint32_t slot, int fd)
{
    struct task *task = &uring->tasks[slot];
    task->fd = fd;
    if (task->place == FETCH_PLACE_REMOTE) {
        ring_look(uring, slot, STEP_LOOK);
        return;
    }
    int code;
    uint32_t class_number = fetch_file_judge_fd(&uring->port.slots[slot].request, fd, &code);
    judge_first(uring, slot, class_number, code);
}

static void start(struct fetch_uring *uring, uint32_t slot, enum fetch_place place)
{
    const struct fetch_request *request = &uring->port.slots[slot].request;
    struct task *task = &uring->tasks[slot];
    task->step = STEP_NONE;
    task->place = place;
    task->fd = -1;
    task->tries = 0;
    task->cut = false;
    task->done = 0;
    int fd =
        place == FETCH_PLACE_REMOTE ? -EAGAIN : fetch_file_open(request->root_fd, request->path, 1);
    if (fd >= 0)
        opened(uring, slot, fd);
    else if (fd == -EAGAIN || fd == -EINVAL) /* not cached, or a kernel that cannot tell */
        ring_open(uring, slot);
    else
        fail(uring, slot, fd);
}

static void read_ended(struct fetch_uring *uring, uint32_t slot, int result)
{
    struct task *task = &uring->tasks[slot];
    if (result > 0) {
        task->done += (uint64_t)result;
        read_on(uring, slot);
    } else if (result == 0) {
        task->cut = true;
        look_again(uring, slot);
    } else {
        fail(uring, slot, result);
    }
}

static void step_ended(struct fetch_uring *uring, uint32_t slot, int result)
{
    struct task *task = &uring->tasks[slot];
    const struct fetch_request *request = &uring->port.slots[slot].request;
    enum task_step step = task->step;
    task->step = STEP_NONE;
    if (stopped(uring)) { /* nobody waits for it, and its memory may soon belong to others: no
                             further step */
        if (step == STEP_OPEN && result >= 0)
            close(result);
        if (task->fd >= 0)
            close(task->fd);
        task->fd = -1;
        return;
    }
    if ((result == -EINTR || result == -EAGAIN) && ++task->tries < TRIES_MAX) {
        if (step == STEP_OPEN)
            ring_open(uring, slot);
        else if (step == STEP_READ)
            ring_read(uring, slot);
        else
            ring_look(uring, slot, step);
        return;
    }
    if (result < 0) {
        fail(uring, slot, result);
        return;
    }
    int code = 0;
    uint32_t class_number = SPDL_CLASS_OK;
    if (step == STEP_LOOK || step == STEP_LOOK_AGAIN)
        class_number = fetch_file_judge(
            request, task->look.stx_mode, task->look.stx_size,
            fetch_file_time_ns(task->look.stx_mtime.tv_sec, task->look.stx_mtime.tv_nsec), &code);
    switch (step) {
    case STEP_OPEN:
        opened(uring, slot, result);
        break;
    case STEP_LOOK:
        judge_first(uring, slot, class_number, code);
        break;
    case STEP_READ:
        read_ended(uring, slot, result);
        break;
    case STEP_LOOK_AGAIN:
        judge_again(uring, slot, class_number, code);
        break;
    case STEP_NONE:
        ASSERT(step != STEP_NONE);
    }
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
        if (user == USER_WAKE) {
            uring->wake_armed = false;
        } else if (user != USER_CANCEL) {
            uring->in_ring--;
            step_ended(uring, (uint32_t)user, result);
        }
    }
    return count;
}

/* Starts up to 32 of the requests that wait, so that the ring is looked at now and then. */
static uint32_t start_some(struct fetch_uring *uring)
{
    uint32_t count = 0, slot;
    int root_fd = -1;
    enum fetch_place place = FETCH_PLACE_REMOTE;
    while (count < 32 && !stopped(uring) && fetch_port_take(&uring->port, &slot)) {
        int wanted = uring->port.slots[slot].request.root_fd;
        if (count == 0 || wanted != root_fd) {
            root_fd = wanted;
            place = fetch_local_find(&uring->local, root_fd);
        }
        start(uring, slot, place);
        count++;
    }
    return count;
}

static void sleep_until_woken(struct fetch_uring *uring)
{
    enum fetch_fetcher_state state =
        uring->in_ring > 0 ? FETCH_FETCHER_ON_FD : FETCH_FETCHER_ON_FUTEX;
    if (state == FETCH_FETCHER_ON_FD && !uring->wake_armed) {
        struct io_uring_sqe *sqe = next_sqe(uring);
        io_uring_prep_read(sqe, uring->fetcher.wake_fd, &uring->wake_value,
                           sizeof uring->wake_value, 0);
        io_uring_sqe_set_data64(sqe, USER_WAKE);
        uring->wake_armed = true;
    }
    atomic_store(&uring->fetcher.state.value, (uint32_t)state);
    /* Partner: uring_kick and fetch_fetcher_stop, which store and then look at `state`. */
    if (fetch_port_waiting(&uring->port) == 0 && !stopped(uring)) {
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
        uint32_t moved = start_some(uring);
        if (io_uring_sq_ready(&uring->ring) > 0)
            io_uring_submit(&uring->ring);
        moved += take_cqes(uring);
        if (moved > 0)
            continue;
        if (uring->unsignalled > 0) {
            uring->unsignalled = 0;
            fetch_port_signal(&uring->port);
        }
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
    for (uint32_t i = 0; i < uring->port.depth; i++) {
        if (uring->tasks[i].step == STEP_NONE)
            continue;
        struct io_uring_sqe *sqe = next_sqe(uring);
        io_uring_prep_cancel64(sqe, i, 0);
        io_uring_sqe_set_data64(sqe, USER_CANCEL);
    }
    if (uring->wake_armed) {
        struct io_uring_sqe *sqe = next_sqe(uring);
        io_uring_prep_cancel64(sqe, USER_WAKE, 0);
        io_uring_sqe_set_data64(sqe, USER_CANCEL);
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
    }
}

static int start_ring(struct fetch_uring *uring, struct err *reterr)
{
    static const unsigned ways[] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                        IORING_SETUP_TASKRUN_FLAG,
                                    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, 0};
    unsigned entries = ENTRIES_MIN;
    while (entries < uring->port.depth + 2)
        entries *= 2;
    int rc = -EINVAL;
    for (unsigned i = 0; i < sizeof ways / sizeof ways[0] && rc == -EINVAL; i++) {
        struct io_uring_params params = {.flags = ways[i] | IORING_SETUP_R_DISABLED};
        rc = io_uring_queue_init_params(entries, &uring->ring, &params);
        while (rc == -ENOMEM && entries > ENTRIES_MIN) { /* the ring counts as locked memory */
            entries /= 2;
            params = (struct io_uring_params){.flags = ways[i] | IORING_SETUP_R_DISABLED};
            rc = io_uring_queue_init_params(entries, &uring->ring, &params);
        }
    }
    if (rc < 0)
        return err_set(reterr, rc, "io_uring_setup: %s (see kernel.io_uring_disabled and seccomp)",
                       strerror(-rc));
    return 0;
}

static int register_in_ring(struct fetch_uring *uring, unsigned operation, void *items,
                            unsigned count)
{
    long rc = syscall(SYS_io_uring_register, uring->ring.ring_fd, operation, items, count);
    return rc < 0 ? -errno : 0;
}

/* Takes from the ring all that the engine does not need, so that nobody who gets hold of it can use
 * it to go around seccomp. */
static int restrict_ring(struct fetch_uring *uring, struct err *reterr)
{
    static const uint8_t needed[] = {IORING_OP_OPENAT2, IORING_OP_STATX, IORING_OP_READ,
                                     IORING_OP_ASYNC_CANCEL};
    enum { NEEDED = sizeof needed };
    struct io_uring_probe *probe = io_uring_get_probe_ring(&uring->ring);
    bool all = probe != NULL;
    struct io_uring_restriction rules[NEEDED + 2] = {0};
    for (unsigned i = 0; i < NEEDED && all; i++) {
        all = io_uring_opcode_supported(probe, needed[i]);
        rules[i].opcode = IORING_RESTRICTION_SQE_OP;
        rules[i].sqe_op = needed[i];
    }
    io_uring_free_probe(probe);
    if (!all)
        return err_set(reterr, -ENOTSUP, "io_uring: this kernel's has not all that it takes");
    rules[NEEDED].opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED;
    rules[NEEDED].sqe_flags = IOSQE_ASYNC;
    rules[NEEDED + 1].opcode = IORING_RESTRICTION_REGISTER_OP;
    rules[NEEDED + 1].register_op = IORING_REGISTER_IOWQ_MAX_WORKERS;
    /* Version 2.3 of the library declares calls for these two and does not export them. */
    int rc = register_in_ring(uring, IORING_REGISTER_RESTRICTIONS, rules, NEEDED + 2);
    if (rc == 0)
        rc = register_in_ring(uring, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
    if (rc < 0)
        return err_set(reterr, rc, "io_uring_register: %s", strerror(-rc));
    unsigned workers =
        uring->port.depth < KERNEL_THREADS_MAX ? uring->port.depth : KERNEL_THREADS_MAX;
    unsigned bounds[2] = {workers, workers};
    io_uring_register_iowq_max_workers(&uring->ring, bounds); /* before 5.15 there is no bound */
    return 0;
}

/* Sends one request and takes its answer: a seccomp filter can allow a ring to be made and refuse
 * its use. Cancelling what is not there is an operation that the ring takes and that does nothing.
 */
static int try_ring(struct fetch_uring *uring, struct err *reterr)
{
    enum { TRIES = 8 }; /* of waits that are interrupted */
    struct io_uring_cqe *cqe = NULL;
    io_uring_prep_cancel64(next_sqe(uring), UINT64_MAX, 0);
    int rc = -EINTR;
    for (int i = 0; i < TRIES && rc == -EINTR; i++)
        rc = io_uring_submit_and_wait(&uring->ring, 1);
    if (rc >= 0)
        rc = io_uring_peek_cqe(&uring->ring, &cqe);
    if (rc < 0)
        return err_set(reterr, rc, "io_uring_enter: %s (see seccomp)", strerror(-rc));
    io_uring_cqe_seen(&uring->ring, cqe);
    return 0;
}

static void *uring_thread(void *argument)
{
    struct fetch_uring *uring = argument;
    pthread_setname_np(pthread_self(), "spdld-fetch");
    struct err err = {0};
    int rc = start_ring(uring, &err);
    bool ring = rc == 0;
    if (ring)
        rc = restrict_ring(uring, &err);
    if (rc == 0)
        rc = try_ring(uring, &err);
    fetch_fetcher_started(&uring->fetcher, rc, &err);
    if (rc == 0) {
        fetch_until_stopped(uring);
        drain(uring);
    }
    if (ring)
        io_uring_queue_exit(&uring->ring);
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
    if (fetch_port_waiting(&uring->port) > 0)
        fetch_fetcher_wake(&uring->fetcher);
}

static uint32_t uring_reap(struct fetch *fetch, struct fetch_result *results, uint32_t max)
{
    return fetch_port_reap(&uring_of(fetch)->port, results, max);
}

static void uring_stats(const struct fetch *fetch, struct fetch_stats *ret_stats)
{
    fetch_port_stats(&((const struct fetch_uring *)fetch)->port, ret_stats);
}

const struct fetch_ops fetch_uring_ops = {.name = "uring",
                                          .open = uring_open,
                                          .close = uring_close,
                                          .fd = uring_fd,
                                          .submit = uring_submit,
                                          .kick = uring_kick,
                                          .reap = uring_reap,
                                          .stats = uring_stats};
