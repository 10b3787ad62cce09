/* The steps of one read in the engine of io_uring: open, look, read, look again. Each is done at
 * once where the kernel need not wait for it, else by the ring; the requests of one kept file that
 * wait together are read together. Fetcher only. */
#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "fetch/fetch_file.h"
#include "fetch/fetch_join.h"
#include "fetch/fetch_uring.h"
#include "item/class.h"

enum {
    TRIES_MAX = 16,
    /* Of a read by a plain call: between two the fetcher looks whether it is to stop. */
    PIECE_BYTES = 256 << 10,
    READ_BYTES_MAX = 1 << 30
};

static bool stopped(struct fetch_uring *uring)
{
    return fetch_fetcher_stopped(&uring->fetcher);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now); /* of ages of a second */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void put_in_ring(struct fetch_uring *uring, struct io_uring_sqe *sqe, uint32_t slot,
                        enum fetch_uring_step step)
{
    struct fetch_uring_task *task = &uring->tasks[slot];
    io_uring_sqe_set_data64(sqe, slot);
    /* An open must not be tried by the fetcher itself: that may hang before the kernel finds that
     * it should not wait. */
    if (step != STEP_READ || task->place == FETCH_PLACE_REMOTE)
        io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
    task->step = step;
    uring->in_ring++;
}

void fetch_uring_task_close(struct fetch_uring *uring, int fd)
{
    if (fd < 0)
        return;
    /* Not marked for a thread of the kernel: the ring itself sends there what may wait. */
    struct io_uring_sqe *sqe = fetch_uring_sqe(uring);
    io_uring_prep_close(sqe, fd);
    io_uring_sqe_set_data64(sqe, FETCH_URING_CLOSE);
    uring->in_ring++;
}

/* Lets go of the task's file. */
static void leave_file(struct fetch_uring *uring, struct fetch_uring_task *task, bool changed)
{
    if (task->kept)
        fetch_uring_task_close(uring, fetch_keep_release(&uring->keep, task->kept, changed));
    else if (task->place == FETCH_PLACE_REMOTE)
        fetch_uring_task_close(uring, task->fd);
    else if (task->fd >= 0)
        close(task->fd);
    task->kept = NULL;
    task->fd = -1;
}

static void tell(struct fetch_uring *uring, uint32_t slot, uint32_t class_number, int code)
{
    fetch_port_finish(&uring->port, slot, class_number, code);
    uring->unsignalled++;
    uring->unsignalled_bytes += uring->port.slots[slot].request.bytes;
}

static void finish(struct fetch_uring *uring, uint32_t slot, uint32_t class_number, int code)
{
    struct fetch_uring_task *task = &uring->tasks[slot];
    leave_file(uring, task, class_number == SPDL_CLASS_CHANGED);
    task->step = STEP_NONE;
    tell(uring, slot, class_number, code);
}

static void fail(struct fetch_uring *uring, uint32_t slot, int code)
{
    finish(uring, slot, fetch_file_class(code), code);
}

static void ring_open(struct fetch_uring *uring, uint32_t slot)
{
    const struct fetch_request *request = &uring->port.slots[slot].request;
    struct io_uring_sqe *sqe = fetch_uring_sqe(uring);
    io_uring_prep_openat2(sqe, request->root_fd, request->path, &uring->how);
    put_in_ring(uring, sqe, slot, STEP_OPEN);
}

static void ring_look(struct fetch_uring *uring, uint32_t slot, enum fetch_uring_step step)
{
    struct fetch_uring_task *task = &uring->tasks[slot];
    struct io_uring_sqe *sqe = fetch_uring_sqe(uring);
    io_uring_prep_statx(sqe, task->fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE | STATX_MTIME,
                        &task->look);
    put_in_ring(uring, sqe, slot, step);
}

static void ring_read(struct fetch_uring *uring, uint32_t slot)
{
    const struct fetch_request *request = &uring->port.slots[slot].request;
    struct fetch_uring_task *task = &uring->tasks[slot];
    uint64_t rest = request->bytes - task->done;
    struct io_uring_sqe *sqe = fetch_uring_sqe(uring);
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
    struct fetch_uring_task *task = &uring->tasks[slot];
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
    struct fetch_uring_task *task = &uring->tasks[slot];
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

/* Gives the task's open file, which is what its request says, to the table. */
static void keep_file(struct fetch_uring *uring, uint32_t slot)
{
    const struct fetch_request *request = &uring->port.slots[slot].request;
    struct fetch_uring_task *task = &uring->tasks[slot];
    if (task->kept || !fetch_file_keeps(request))
        return;
    int other;
    const struct fetch_kept open = {
        .fd = task->fd, .place = task->place, .owner = request->owner, .file = request->file};
    task->kept = fetch_keep_add(&uring->keep, &open, now_ns(), &other);
    if (task->kept)
        task->fd = task->kept->fd;
    fetch_uring_task_close(uring, other);
}

static void judge_first(struct fetch_uring *uring, uint32_t slot, uint32_t class_number, int code)
{
    if (class_number != SPDL_CLASS_OK) {
        finish(uring, slot, class_number, code);
        return;
    }
    keep_file(uring, slot);
    read_on(uring, slot);
}

static void opened(struct fetch_uring *uring, uint32_t slot, int fd)
{
    struct fetch_uring_task *task = &uring->tasks[slot];
    task->fd = fd;
    if (task->place == FETCH_PLACE_REMOTE) {
        ring_look(uring, slot, STEP_LOOK);
        return;
    }
    int code;
    uint32_t class_number = fetch_file_judge_fd(&uring->port.slots[slot].request, fd, &code);
    judge_first(uring, slot, class_number, code);
}

static void begin(struct fetch_uring *uring, uint32_t slot, enum fetch_place place)
{
    struct fetch_uring_task *task = &uring->tasks[slot];
    task->step = STEP_NONE;
    task->place = place;
    task->fd = -1;
    task->kept = NULL;
    task->tries = 0;
    task->cut = false;
    task->done = 0;
}

void fetch_uring_task_start(struct fetch_uring *uring, uint32_t slot, enum fetch_place place)
{
    const struct fetch_request *request = &uring->port.slots[slot].request;
    struct fetch_uring_task *task = &uring->tasks[slot];
    begin(uring, slot, place);
    if (fetch_file_keeps(request))
        task->kept = fetch_keep_find(&uring->keep, request->owner, request->file, now_ns());
    if (task->kept) {
        task->place = (enum fetch_place)task->kept->place;
        task->fd = task->kept->fd;
        read_on(uring, slot);
        return;
    }
    int fd =
        place == FETCH_PLACE_REMOTE ? -EAGAIN : fetch_file_open(request->root_fd, request->path, 1);
    if (fd >= 0)
        opened(uring, slot, fd);
    else if (fd == -EAGAIN || fd == -EINVAL || fd == -EXDEV)
        ring_open(uring, slot); /* not cached, a kernel that cannot tell, another mount */
    else
        fail(uring, slot, fd);
}

/* Ends the requests that were read whole, by one look at the file behind all their reads. Returns
 * whether it changed. */
static bool end_batch(struct fetch_uring *uring, const struct fetch_batch *batch, int fd)
{
    struct stat st;
    bool changed = false;
    int rc = fstat(fd, &st) < 0 ? -errno : 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        int code = rc;
        if (!batch->full[i])
            continue;
        uint32_t class_number =
            rc < 0 ? fetch_file_class(rc)
                   : fetch_file_judge_stat(&uring->port.slots[batch->slots[i]].request, &st, &code);
        changed |= class_number == SPDL_CLASS_CHANGED;
        tell(uring, batch->slots[i], class_number, code);
    }
    return changed;
}

static void start_batch(struct fetch_uring *uring, struct fetch_batch *batch,
                        struct fetch_kept *kept)
{
    enum fetch_place place = (enum fetch_place)kept->place;
    fetch_join_read(&uring->port, batch, kept->fd, place == FETCH_PLACE_MEMORY ? 0 : RWF_NOWAIT,
                    &uring->fetcher.stop.value);
    fetch_port_joined(&uring->port, batch->joined);
    bool changed = end_batch(uring, batch, kept->fd);
    for (uint32_t i = 0; i < batch->count; i++) {
        if (batch->full[i])
            continue;
        uint32_t slot = batch->slots[i];
        begin(uring, slot, place);
        fetch_keep_hold(&uring->keep, kept);
        uring->tasks[slot].kept = kept;
        uring->tasks[slot].fd = kept->fd;
        read_on(uring, slot);
    }
    fetch_uring_task_close(uring, fetch_keep_release(&uring->keep, kept, changed));
}

void fetch_uring_task_start_kept(struct fetch_uring *uring, uint32_t *slots, uint32_t count,
                                 enum fetch_place place)
{
    struct fetch_batch batch;
    uint64_t now = now_ns();
    fetch_join_sort(&uring->port, slots, count);
    for (uint32_t first = 0; first < count; first += batch.count) {
        const struct fetch_request *request = &uring->port.slots[slots[first]].request;
        struct fetch_kept *kept = fetch_keep_find(&uring->keep, request->owner, request->file, now);
        batch.count = 0;
        if (!kept || kept->place == FETCH_PLACE_REMOTE) {
            if (kept)
                fetch_uring_task_close(uring, fetch_keep_release(&uring->keep, kept, false));
            fetch_uring_task_start(uring, slots[first++], place); /* keeps it for those behind */
            continue;
        }
        while (first + batch.count < count && batch.count < FETCH_BATCH_MAX &&
               fetch_file_same(request, &uring->port.slots[slots[first + batch.count]].request)) {
            batch.slots[batch.count] = slots[first + batch.count];
            batch.count++;
        }
        start_batch(uring, &batch, kept);
    }
}

static void read_ended(struct fetch_uring *uring, uint32_t slot, int result)
{
    struct fetch_uring_task *task = &uring->tasks[slot];
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

void fetch_uring_task_ended(struct fetch_uring *uring, uint32_t slot, int result)
{
    struct fetch_uring_task *task = &uring->tasks[slot];
    const struct fetch_request *request = &uring->port.slots[slot].request;
    enum fetch_uring_step step = task->step;
    task->step = STEP_NONE;
    if (stopped(uring)) { /* nobody waits for it, and its memory may soon belong to others: no
                             further step */
        if (step == STEP_OPEN && result >= 0)
            fetch_uring_task_close(uring, result);
        leave_file(uring, task, false);
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
        task->place = fetch_local_find(&uring->local, result); /* not always that of its root */
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
