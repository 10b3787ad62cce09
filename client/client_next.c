/* The next batch. One caller at a time takes or waits; with a batch ready there is no system call:
 * one load of the order ring, a copy of the slot's descriptor, and uncontended locks. */
#include "client/client_internal.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/* Waits for the turn of this caller. */
static int enter(struct spdl_stream *stream, double timeout_s)
{
    int64_t deadline_ns = SPDL_CLIENT_NEVER_NS;
    while (stream->busy) {
        if (timeout_s == 0.0)
            return -EAGAIN;
        int rc = 0;
        if (timeout_s < 0.0) {
            rc = pthread_cond_wait(&stream->idle, &stream->lock);
        } else {
            if (deadline_ns == SPDL_CLIENT_NEVER_NS)
                deadline_ns = spdl_client_deadline_ns(spdl_client_now_ns(), timeout_s);
            struct timespec until = {.tv_sec = (time_t)(deadline_ns / SPDL_CLIENT_SECOND_NS),
                                     .tv_nsec = (long)(deadline_ns % SPDL_CLIENT_SECOND_NS)};
            rc = pthread_cond_timedwait(&stream->idle, &stream->lock, &until);
        }
        if (rc == ETIMEDOUT)
            return -ETIMEDOUT;
    }
    stream->busy = 1;
    return 0;
}

static void leave(struct spdl_stream *stream)
{
    stream->busy = 0;
    pthread_cond_signal(&stream->idle);
    pthread_mutex_unlock(&stream->lock);
}

/* What the daemon published is not what it should be: the stream is of no use any more. */
static int broken_slot(struct spdl_stream *stream, uint64_t k)
{
    stream->ring->end = k;
    stream->failed_code = spdl_client_fail(&stream->failed, -EPROTO, 0,
                                           "batch %llu of the daemon's ring is not what it "
                                           "should be",
                                           (unsigned long long)k);
    stream->error = stream->failed;
    return stream->failed_code;
}

/* Gives out batch k of the current ring, which is in `number`. */
static int take(struct spdl_stream *stream, uint64_t k, uint32_t number, int64_t since_ns,
                struct spdl_batch **ret_batch)
{
    struct spdl_client_ring *ring = stream->ring;
    if (number >= ring->header.slot_count || ring->batches[number].is_taken)
        return broken_slot(stream, k);
    struct spdl_batch *batch = &ring->batches[number];
    batch->number = number;
    if (spdl_client_ring_slot(ring, k, number, &batch->slot) < 0 ||
        spdl_client_ring_ragged(ring, batch) < 0)
        return broken_slot(stream, k);
    batch->sequence = ring->base + k;
    batch->wait_ns = since_ns > 0 ? (uint64_t)(spdl_client_now_ns() - since_ns) : 0;
    batch->is_taken = 1;
    atomic_store_explicit(&batch->refs, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&stream->refs, 1, memory_order_relaxed);
    memcpy(stream->last_state, batch->slot.state, (size_t)batch->slot.state_bytes + 1);
    stream->given++;
    ring->held++;
    ring->next = k + 1;
    if (stream->state == SPDL_CLIENT_UP)
        spdl_client_attach_good(stream);
    *ret_batch = batch;
    return 0;
}

/* What can be said without waiting: a batch (0), an end, a failure, or -EAGAIN. */
static int try_take(struct spdl_stream *stream, int64_t since_ns, struct spdl_batch **ret_batch)
{
    struct spdl_client_ring *ring = stream->ring;
    uint32_t number;
    uint64_t k = ring->next;
    if (stream->asked.limit > 0 && stream->given >= stream->asked.limit)
        return spdl_client_fail(&stream->error, -ENODATA, 0,
                                "all %llu batches that were asked for were given out",
                                (unsigned long long)stream->asked.limit);
    if (spdl_client_ring_ready(ring, k, &number))
        return take(stream, k, number, since_ns, ret_batch);
    if (stream->failed_code != 0) {
        stream->error = stream->failed;
        return stream->failed_code;
    }
    if (stream->is_ended && k >= stream->end_sequences) {
        stream->error = stream->end;
        return stream->end_code;
    }
    if (ring->end == UINT64_MAX && ring->held >= ring->header.slot_count)
        return spdl_client_fail(&stream->error, -ENOBUFS, SPDL_CLASS_RESOURCE,
                                "all %u slots of the stream are held: drop a batch "
                                "(spdl_batch_unref) before asking for another",
                                ring->header.slot_count);
    return -EAGAIN;
}

static int timed_out(struct spdl_stream *stream, double timeout_s)
{
    if (timeout_s == 0.0)
        return -EAGAIN; /* asked often: no sentence */
    if (stream->state == SPDL_CLIENT_UP || stream->state == SPDL_CLIENT_OPENING)
        return spdl_client_fail(&stream->error, -ETIMEDOUT, SPDL_CLASS_TIMEOUT,
                                "no batch came within %.3g s", timeout_s);
    return spdl_client_fail(&stream->error, -ETIMEDOUT, SPDL_CLASS_TIMEOUT,
                            "no batch came within %.3g s: the daemon is gone (%s)", timeout_s,
                            stream->cause.text);
}

/* Waits for a batch: polls, drains the pipe, reads the socket, looks again; finds a lost daemon
 * again. */
static int wait_take(struct spdl_stream *stream, double timeout_s, struct spdl_batch **ret_batch)
{
    int64_t since_ns = spdl_client_now_ns();
    int64_t deadline_ns = spdl_client_deadline_ns(since_ns, timeout_s);
    int64_t now_ns = since_ns;
    for (;;) {
        int rc = spdl_client_attach_step(stream, now_ns);
        if (rc < 0)
            return rc;
        int64_t until_ns = deadline_ns;
        struct pollfd fds[SPDL_CLIENT_POLL_MAX];
        uint32_t count = spdl_client_attach_poll(stream, fds, &until_ns);
        pthread_mutex_unlock(&stream->lock);
        rc = spdl_client_poll(fds, count, until_ns);
        pthread_mutex_lock(&stream->lock);
        if (rc == -EINTR)
            return spdl_client_fail(&stream->error, rc, 0, "interrupted by a signal");
        if (rc < 0)
            return spdl_client_fail(&stream->error, rc, SPDL_CLASS_RESOURCE,
                                    "the daemon cannot be waited for");
        if (rc > 0)
            spdl_client_attach_handle(stream, fds, count);
        rc = try_take(stream, since_ns, ret_batch);
        if (rc != -EAGAIN)
            return rc;
        now_ns = spdl_client_now_ns();
        if (now_ns >= deadline_ns)
            return timed_out(stream, timeout_s);
    }
}

int spdl_next(struct spdl_stream *stream, double timeout_s, struct spdl_batch **ret_batch)
{
    if (!ret_batch)
        return -EINVAL;
    *ret_batch = NULL;
    if (!stream || timeout_s != timeout_s)
        return -EINVAL;
    if (spdl_client_guard_forked(&stream->target->guard))
        return -ESTALE;
    pthread_mutex_lock(&stream->lock);
    int rc = enter(stream, timeout_s);
    if (rc < 0) {
        pthread_mutex_unlock(&stream->lock);
        return rc;
    }
    if (stream->state == SPDL_CLIENT_UP && stream->link.out.bytes > 0)
        spdl_proto_flush(stream->link.fd, &stream->link.out);
    rc = try_take(stream, 0, ret_batch);
    if (rc == -EAGAIN)
        rc = wait_take(stream, timeout_s, ret_batch);
    leave(stream);
    return rc;
}
