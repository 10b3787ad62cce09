/* The ring of the engine of io_uring: made, restricted to what the engine needs, and tried. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fetch/fetch_uring.h"

enum { ENTRIES_MIN = 8 };

struct io_uring_sqe *fetch_uring_sqe(struct fetch_uring *uring)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    while (!sqe) {
        io_uring_submit(&uring->ring);
        sqe = io_uring_get_sqe(&uring->ring);
    }
    return sqe;
}

static int start_ring(struct fetch_uring *uring, struct err *reterr)
{
    static const unsigned ways[] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
                                        IORING_SETUP_TASKRUN_FLAG,
                                    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, 0};
    unsigned entries = ENTRIES_MIN;
    while (entries < 2 * uring->port.depth + 2) /* a close for each read, too */
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
                                     IORING_OP_CLOSE, IORING_OP_ASYNC_CANCEL};
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
    fetch_uring_set_threads(uring);
    return 0;
}

void fetch_uring_set_threads(struct fetch_uring *uring)
{
    unsigned wanted = atomic_load(&uring->threads_wanted.value);
    unsigned bounds[2] = {wanted, wanted};
    io_uring_register_iowq_max_workers(&uring->ring, bounds); /* before 5.15 there is no bound */
    bool more = uring->threads > 0;
    uring->threads = wanted;
    if (!more)
        return;
    /* The kernel starts a thread when something comes: cancels what is not there. */
    struct io_uring_sqe *sqe = fetch_uring_sqe(uring);
    io_uring_prep_cancel64(sqe, UINT64_MAX - 3, 0);
    io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
    io_uring_sqe_set_data64(sqe, FETCH_URING_CANCEL);
    io_uring_submit(&uring->ring);
}

/* Sends one request and takes its answer: a seccomp filter can allow a ring to be made and refuse
 * its use. Cancelling what is not there is an operation that the ring takes and that does nothing.
 */
static int try_ring(struct fetch_uring *uring, struct err *reterr)
{
    enum { TRIES = 8 }; /* of waits that are interrupted */
    struct io_uring_cqe *cqe = NULL;
    io_uring_prep_cancel64(fetch_uring_sqe(uring), UINT64_MAX, 0);
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

int fetch_uring_ring_open(struct fetch_uring *uring, struct err *reterr)
{
    int rc = start_ring(uring, reterr);
    if (rc < 0)
        return rc;
    rc = restrict_ring(uring, reterr);
    if (rc == 0)
        rc = try_ring(uring, reterr);
    if (rc < 0)
        io_uring_queue_exit(&uring->ring);
    return rc;
}
