/* Several ranges by one call: see fetch_join.h. */
#include "fetch/fetch_join.h"

#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { RANGES_MAX = 32, PARTS_MAX = 2 * RANGES_MAX - 1 };

/* Where gaps are read to; written by each thread for itself and read by nobody. */
static _Thread_local uint8_t gap_space[FETCH_JOIN_GAP_BYTES];

struct run {
    uint32_t count; /* ranges */
    uint32_t part_count;
    uint64_t bytes;
    struct iovec parts[PARTS_MAX];
};

static const struct fetch_request *request_of(const struct fetch_port *port, uint32_t slot)
{
    return &port->slots[slot].request;
}

static bool before(const struct fetch_request *a, const struct fetch_request *b)
{
    if (a->owner != b->owner)
        return (uintptr_t)a->owner < (uintptr_t)b->owner;
    return a->file != b->file ? a->file < b->file : a->offset < b->offset;
}

void fetch_join_sort(const struct fetch_port *port, uint32_t *slots, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        uint32_t moved = slots[i], at = i;
        for (; at > 0 && before(request_of(port, moved), request_of(port, slots[at - 1])); at--)
            slots[at] = slots[at - 1];
        slots[at] = moved;
    }
}

static void add_part(struct run *run, uint8_t *into, uint64_t bytes)
{
    run->parts[run->part_count++] = (struct iovec){.iov_base = into, .iov_len = bytes};
    run->bytes += bytes;
}

/* The longest run that begins with the batch's range `first`. */
static void make_run(const struct fetch_port *port, const struct fetch_batch *batch, uint32_t first,
                     struct run *run)
{
    const struct fetch_request *request = request_of(port, batch->slots[first]);
    uint64_t end = request->offset + request->bytes;
    run->count = 1;
    run->part_count = 0;
    run->bytes = 0;
    add_part(run, request->into, request->bytes);
    for (uint32_t i = first + 1; i < batch->count && run->count < RANGES_MAX; i++) {
        request = request_of(port, batch->slots[i]);
        if (request->offset < end || request->offset - end > FETCH_JOIN_GAP_BYTES)
            return; /* overlapping ranges are read apart */
        uint64_t gap_bytes = request->offset - end;
        if (run->bytes + gap_bytes > FETCH_JOIN_BYTES ||
            request->bytes > FETCH_JOIN_BYTES - run->bytes - gap_bytes)
            return;
        if (gap_bytes > 0)
            add_part(run, gap_space, gap_bytes);
        add_part(run, request->into, request->bytes);
        end = request->offset + request->bytes;
        run->count++;
    }
}

/* As preadv2, which is a point where a thread may be cancelled: looking out for that costs as much
 * as a tenth of a small read. */
static ssize_t read_parts(int fd, const struct run *run, uint64_t offset, int flags)
{
    return syscall(SYS_preadv2, fd, run->parts, (unsigned long)run->part_count,
                   (unsigned long)offset, (unsigned long)(offset >> 32), flags);
}

void fetch_join_read(const struct fetch_port *port, struct fetch_batch *batch, int fd, int flags,
                     const _Atomic uint32_t *stop)
{
    struct run run;
    memset(batch->full, 0, batch->count * sizeof batch->full[0]);
    batch->joined = 0;
    for (uint32_t first = 0; first < batch->count; first += run.count) {
        const struct fetch_request *request = request_of(port, batch->slots[first]);
        make_run(port, batch, first, &run);
        /* Partner: the conductor that closes the engine; afterwards the memory may be others'. */
        if (atomic_load_explicit(stop, memory_order_relaxed))
            return;
        if (run.bytes > FETCH_JOIN_BYTES)
            continue;
        ssize_t got = run.bytes > 0 ? read_parts(fd, &run, request->offset, flags) : 0;
        if (got < 0 || (uint64_t)got < run.bytes)
            continue;
        for (uint32_t i = 0; i < run.count; i++)
            batch->full[first + i] = true;
        batch->joined += run.count - 1;
    }
}
