/* Slots and rings between the conductor and an engine: see fetch_port.h. */
#include "fetch/fetch_port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "item/class.h"

enum { SHOW_EVERY = 16 }; /* requests that the engine need not wait for fetch_port_show for */
static const uint64_t LATE_NS = 250000000;

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int fetch_port_init(struct fetch_port *port, uint32_t depth, struct err *reterr)
{
    memset(port, 0, sizeof *port);
    port->event_fd = -1;
    if (depth < 1 || depth > FETCH_DEPTH_MAX)
        return err_set(reterr, -EINVAL, "fetch: depth %u is outside 1 to %d", depth,
                       FETCH_DEPTH_MAX);
    uint32_t cells = 1;
    while (cells < depth)
        cells *= 2;
    port->depth = depth;
    port->mask = cells - 1;
    port->slots = calloc(depth, sizeof *port->slots);
    port->spare = calloc(depth, sizeof *port->spare);
    port->submitted = calloc(cells, sizeof *port->submitted);
    port->finished = calloc(cells, sizeof *port->finished);
    if (!port->slots || !port->spare || !port->submitted || !port->finished) {
        fetch_port_fini(port);
        return err_set(reterr, -ENOMEM, "fetch: no memory for %u reads in flight", depth);
    }
    port->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (port->event_fd < 0) {
        int rc = -errno;
        fetch_port_fini(port);
        return err_set(reterr, rc, "fetch: eventfd: %s", strerror(-rc));
    }
    for (uint32_t i = 0; i < depth; i++)
        port->spare[i] = depth - 1 - i;
    port->spare_count = depth;
    return 0;
}

void fetch_port_fini(struct fetch_port *port)
{
    if (port->slots && port->event_fd >= 0)
        close(port->event_fd);
    free(port->slots);
    free(port->spare);
    free(port->submitted);
    free(port->finished);
    memset(port, 0, sizeof *port);
    port->event_fd = -1;
}

int fetch_port_submit(struct fetch_port *port, const struct fetch_request *request)
{
    if (request->offset > request->file_bytes ||
        request->bytes > request->file_bytes - request->offset)
        return -EINVAL;
    if (port->spare_count == 0)
        return -EAGAIN;
    uint32_t number = port->spare[--port->spare_count];
    port->slots[number].request = *request;
    port->slots[number].since_ns = now_ns(CLOCK_MONOTONIC_COARSE); /* a little before */
    port->submitted[port->submit_next++ & port->mask] = number;
    if (port->submit_next - atomic_load_explicit(&port->submit_tail.value, memory_order_relaxed) >=
        SHOW_EVERY)
        fetch_port_show(port);
    return 0;
}

void fetch_port_show(struct fetch_port *port)
{
    /* Partner: fetch_port_take and fetch_port_waiting. Sequentially consistent, so that an engine
     * that says it sleeps and then looks here, and a conductor that stores here and then looks
     * whether it sleeps, cannot miss each other. */
    atomic_store(&port->submit_tail.value, port->submit_next);
}

bool fetch_port_peek(struct fetch_port *port, uint32_t *ret_slot)
{
    uint32_t head = atomic_load_explicit(&port->submit_head.value, memory_order_relaxed);
    if (atomic_load_explicit(&port->submit_tail.value, memory_order_acquire) == head)
        return false;
    *ret_slot = port->submitted[head & port->mask];
    return true;
}

bool fetch_port_take(struct fetch_port *port, uint32_t *ret_slot)
{
    if (!fetch_port_peek(port, ret_slot))
        return false;
    uint32_t head = atomic_load_explicit(&port->submit_head.value, memory_order_relaxed);
    atomic_store_explicit(&port->submit_head.value, head + 1, memory_order_relaxed);
    return true;
}

uint32_t fetch_port_waiting(struct fetch_port *port)
{
    return atomic_load(&port->submit_tail.value) -
           atomic_load_explicit(&port->submit_head.value, memory_order_relaxed);
}

void fetch_port_finish(struct fetch_port *port, uint32_t slot, uint32_t class_number, int code)
{
    port->slots[slot].result = (struct fetch_result){
        .ticket = port->slots[slot].request.ticket, .class_number = class_number, .code = code};
    port->finished[port->finish_next++ & port->mask] = slot;
}

static void signal_fd(struct fetch_port *port)
{
    if (atomic_exchange(&port->signalled.value, 1) == 0) {
        uint64_t one = 1;
        ssize_t written = write(port->event_fd, &one, sizeof one);
        ASSERT(written == sizeof one);
    }
}

void fetch_port_signal(struct fetch_port *port)
{
    /* Partner: drain; order with `signalled` matters too. */
    atomic_store(&port->finish_tail.value, port->finish_next);
    signal_fd(port);
}

void fetch_port_joined(struct fetch_port *port, uint64_t count)
{
    if (count > 0)
        atomic_fetch_add_explicit(&port->joined, count, memory_order_relaxed);
}

static uint32_t drain(struct fetch_port *port, struct fetch_result *results, uint32_t max)
{
    uint32_t count = 0;
    uint32_t tail = atomic_load(&port->finish_tail.value);
    while (count < max && port->finish_head != tail) {
        uint32_t number = port->finished[port->finish_head++ & port->mask];
        struct fetch_slot *slot = &port->slots[number];
        results[count++] = slot->result;
        port->reads++;
        if (slot->result.class_number == SPDL_CLASS_OK)
            port->bytes += slot->request.bytes;
        else
            port->failures++;
        slot->since_ns = 0;
        port->spare[port->spare_count++] = number;
    }
    return count;
}

uint32_t fetch_port_reap(struct fetch_port *port, struct fetch_result *results, uint32_t max)
{
    uint32_t count = drain(port, results, max);
    if (count == max)
        return count; /* there may be more: the eventfd stays readable */
    if (atomic_load(&port->signalled.value)) {
        uint64_t times;
        ssize_t got = read(port->event_fd, &times, sizeof times);
        (void)got; /* the engine may be between setting the flag and writing: then it wakes us once
                      too often */
        atomic_store(&port->signalled.value, 0);
        /* What was finished before the flag was cleared was not announced again: look once more. */
        count += drain(port, results + count, max - count);
        if (count == max)
            signal_fd(port);
    }
    return count;
}

uint32_t fetch_port_late(const struct fetch_port *port)
{
    uint64_t now = now_ns(CLOCK_MONOTONIC);
    uint32_t count = 0;
    for (uint32_t i = 0; i < port->depth; i++)
        count += port->slots[i].since_ns != 0 && now - port->slots[i].since_ns > LATE_NS;
    return count;
}

void fetch_port_stats(const struct fetch_port *port, struct fetch_stats *ret_stats)
{
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = 0; i < port->depth; i++)
        if (port->slots[i].since_ns != 0 && port->slots[i].since_ns < oldest)
            oldest = port->slots[i].since_ns;
    *ret_stats =
        (struct fetch_stats){.reads = port->reads,
                             .bytes = port->bytes,
                             .failures = port->failures,
                             .joined = atomic_load_explicit(&port->joined, memory_order_relaxed),
                             .in_flight = port->depth - port->spare_count};
    if (oldest != UINT64_MAX)
        ret_stats->longest_wait_ns = now_ns(CLOCK_MONOTONIC) - oldest;
}
