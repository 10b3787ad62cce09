/* Seats come and go. A seat is one user's: an arena for blobs that no other user's worker maps, an
 * engine for reads, a worker. It is made when the user's first stream opens, by a chore, since
 * shared memory that is reserved takes its time, and given up when it was idle for a while, or at
 * once when its memory is wanted. Conductor role. */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "pipeline/pipeline_state.h"

static const uint64_t IDLE_NS =
    1000000000; /* a trainer's next stream comes sooner, or much later */

/* Blobs, and the rings between the conductor and the worker. */
static uint64_t seat_bytes(const struct pipeline *pipeline)
{
    return pipeline->arena_bytes + sizeof(struct spdl_work_command_segment) +
           sizeof(struct spdl_work_completion_segment);
}

/* --- the end of a seat --- */

static bool is_idle(const struct pipeline_seat *seat)
{
    return seat->phase == SEAT_OPEN && seat->streams == 0;
}

/* Its engine serves the next one, or ends. No read is in flight. */
static void engine_leave(struct pipeline *pipeline, struct pipeline_seat *seat)
{
    loop_remove(pipeline->params.loop, seat->fetch_source);
    if (pipeline->spare_fetch) {
        struct fetch_stats reads;
        fetch_stats(seat->fetch, &reads);
        pipeline->ended_reads += reads.reads;
        pipeline->ended_read_bytes += reads.bytes;
        fetch_close(seat->fetch);
    } else {
        pipeline->spare_fetch = seat->fetch;
    }
    seat->fetch = NULL;
}

static void seat_end(struct pipeline *pipeline, uint32_t number)
{
    struct pipeline_seat *seat = &pipeline->seats[number];
    struct pipeline_event event = {.kind = PIPELINE_EVENT_WORKER_DOWN, .worker = number};
    pipeline_worker_stop(seat->worker, 0); /* it has nothing to finish */
    pipeline_core_feed(pipeline->core, &event, NULL);
    engine_leave(pipeline, seat);
    spdl_shm_segment_destroy(&seat->arena);
    pipeline_core_seat_close(pipeline->core, number);
    free(seat->requests);
    *seat = (struct pipeline_seat){0};
}

bool pipeline_seat_evict(struct pipeline *pipeline, uint32_t but)
{
    for (uint32_t i = 0; i < PIPELINE_WORKERS_MAX; i++)
        if (i != but && is_idle(&pipeline->seats[i])) {
            seat_end(pipeline, i);
            return true;
        }
    return false;
}

int64_t pipeline_seat_idle(struct pipeline *pipeline, uint64_t now_ns)
{
    int64_t wait_ns = -1;
    for (uint32_t i = 0; i < PIPELINE_WORKERS_MAX; i++) {
        struct pipeline_seat *seat = &pipeline->seats[i];
        if (!is_idle(seat)) {
            seat->idle_ns = 0;
            continue;
        }
        if (seat->idle_ns == 0)
            seat->idle_ns = now_ns;
        int64_t left_ns = (int64_t)(seat->idle_ns + IDLE_NS - now_ns);
        if (left_ns <= 0)
            seat_end(pipeline, i);
        else if (wait_ns < 0 || left_ns < wait_ns)
            wait_ns = left_ns;
    }
    return wait_ns;
}

void pipeline_seat_free_all(struct pipeline *pipeline)
{
    for (uint32_t i = 0; i < PIPELINE_WORKERS_MAX; i++) {
        struct pipeline_seat *seat = &pipeline->seats[i];
        while (seat->waiting) {
            struct pipeline_stream *stream = seat->waiting;
            seat->waiting = stream->next_waiting;
            plan_sequence_close(stream->sequence);
            free(stream);
        }
        if (seat->phase != SEAT_FREE)
            spdl_shm_segment_destroy(&seat->arena);
        free(seat->requests);
    }
}

/* --- its beginning --- */

static void make_arena(struct pipeline_seat *seat)
{
    enum spdl_shm_kind kind = (enum spdl_shm_kind)seat->pipeline->params.config->shm;
    uint64_t bytes = seat->pipeline->arena_bytes, free_bytes = UINT64_MAX;
    char room[96] = "";
    seat->make_rc = spdl_shm_segment_create(&seat->arena, kind, SPDL_SHM_READ_BY_OTHERS, bytes,
                                            kind == SPDL_SHM_POSIX, &free_bytes);
    if (seat->make_rc == 0)
        return;
    if (seat->make_rc == -ENOSPC && free_bytes != UINT64_MAX)
        snprintf(room, sizeof room,
                 ", /dev/shm has %" PRIu64 " bytes free; lower fetch.memory, or "
                 "use shm: memfd",
                 free_bytes);
    else if (seat->make_rc == -ENOTSUP && kind == SPDL_SHM_MEMFD)
        snprintf(room, sizeof room, "; /proc is not mounted, which shm: memfd needs");
    err_set(&seat->make_error, seat->make_rc,
            "memory for blobs in flight (%" PRIu64 " bytes) could not be had: %s%s", bytes,
            strerror(-seat->make_rc), room);
}

static void make_work(struct chore *chore)
{
    struct pipeline_seat *seat =
        (struct pipeline_seat *)(void *)((char *)chore - offsetof(struct pipeline_seat, chore));
    make_arena(seat);
    if (seat->make_rc == 0 && !seat->fetch)
        seat->make_rc = pipeline_engine_open(seat->pipeline, &seat->fetch, seat->engine_note,
                                             &seat->make_error);
}

static void on_fetch(void *context, uint32_t events)
{
    (void)events;
    pipeline_fetch_take(context);
}

static void make_failed(struct pipeline *pipeline, struct pipeline_seat *seat)
{
    uint32_t number = (uint32_t)(seat - pipeline->seats);
    spdl_shm_segment_destroy(&seat->arena);
    if (seat->fetch)
        engine_leave(pipeline, seat);
    pipeline_core_seat_close(pipeline->core, number);
    free(seat->requests);
    *seat = (struct pipeline_seat){0};
}

static void make_done(struct chore *chore)
{
    struct pipeline_seat *seat =
        (struct pipeline_seat *)(void *)((char *)chore - offsetof(struct pipeline_seat, chore));
    struct pipeline *pipeline = seat->pipeline;
    struct pipeline_stream *waiting = seat->waiting;
    int rc = seat->make_rc;
    if (rc == 0) {
        rc = loop_add(pipeline->params.loop, fetch_fd(seat->fetch), EPOLLIN, on_fetch, seat,
                      &seat->fetch_source);
        if (rc < 0)
            err_set(&seat->make_error, rc, "no watch on reads: %s", strerror(-rc));
    }
    if (rc == 0 && seat->engine_note[0] && !pipeline->engine_note[0])
        log_line(LOG_LEVEL_WARNING, "reads of user %u go by %s: %s", (unsigned)seat->uid,
                 fetch_engine(seat->fetch), seat->engine_note);
    struct err error = seat->make_error;
    seat->waiting = NULL;
    seat->phase = SEAT_OPEN;
    if (rc < 0)
        make_failed(pipeline, seat);
    while (waiting) {
        struct pipeline_stream *stream = waiting;
        waiting = stream->next_waiting;
        pipeline_stream_seated(stream, rc < 0 ? &error : NULL);
    }
}

static int no_memory(const struct pipeline *pipeline, struct err *reterr)
{
    uint64_t used = pipeline_core_memory_used(pipeline->core);
    return err_set(reterr, -ENOSPC,
                   "memory is short: the first stream of a user needs %" PRIu64
                   " bytes beside its own, %" PRIu64
                   " of them for blobs in flight (fetch.memory); %" PRIu64
                   " of the limit of %" PRIu64
                   " are used: lower fetch.memory, or raise `memory`, or close streams of others",
                   seat_bytes(pipeline), pipeline->arena_bytes, used, pipeline->memory_limit);
}

/* A seat that is free, or that nobody needs; PIPELINE_WORKERS_MAX: there is none. */
static uint32_t place_find(struct pipeline *pipeline)
{
    uint32_t number;
    do {
        number = 0;
        while (number < PIPELINE_WORKERS_MAX && pipeline->seats[number].phase != SEAT_FREE)
            number++;
    } while (number == PIPELINE_WORKERS_MAX && pipeline_seat_evict(pipeline, UINT32_MAX));
    return number;
}

static int seat_begin(struct pipeline *pipeline, uid_t uid, uint32_t *ret_number,
                      struct err *reterr)
{
    uint32_t number = *ret_number = place_find(pipeline);
    uint64_t free_bytes;
    int rc;
    if (number == PIPELINE_WORKERS_MAX)
        return err_set(reterr, -EMFILE, "%d users have streams, more are not served",
                       PIPELINE_WORKERS_MAX);
    struct pipeline_request *requests = calloc(PIPELINE_OPS_MAX, sizeof *requests);
    if (!requests)
        return err_set(reterr, -ENOMEM, "no memory for a user's place");
    do {
        rc = pipeline_core_seat_open(pipeline->core, number, pipeline->arena_bytes,
                                     seat_bytes(pipeline), &free_bytes);
    } while (rc == -ENOSPC && pipeline_seat_evict(pipeline, UINT32_MAX));
    if (rc < 0) {
        free(requests);
        return rc == -ENOSPC ? no_memory(pipeline, reterr)
                             : err_set(reterr, rc, "no memory for a user's place");
    }
    struct pipeline_seat *seat = &pipeline->seats[number];
    *seat = (struct pipeline_seat){.phase = SEAT_MAKING,
                                   .pipeline = pipeline,
                                   .uid = uid,
                                   .fetch = pipeline->spare_fetch,
                                   .requests = requests,
                                   .arena = {.fd = -1, .read_only_fd = -1}};
    pipeline->spare_fetch = NULL;
    seat->chore.work = make_work;
    seat->chore.done = make_done;
    chores_add(pipeline->chores, &seat->chore);
    return 0;
}

int pipeline_seat_join(struct pipeline_stream *stream, struct err *reterr)
{
    struct pipeline *pipeline = stream->pipeline;
    uint32_t number = 0;
    while (number < PIPELINE_WORKERS_MAX && (pipeline->seats[number].phase == SEAT_FREE ||
                                             pipeline->seats[number].uid != stream->uid))
        number++;
    if (number == PIPELINE_WORKERS_MAX) {
        int rc = seat_begin(pipeline, stream->uid, &number, reterr);
        if (rc < 0)
            return rc;
    }
    struct pipeline_seat *seat = &pipeline->seats[number];
    stream->worker = number;
    stream->phase = STREAM_SEAT;
    if (seat->phase == SEAT_OPEN) {
        pipeline_stream_seated(stream, NULL);
        return 0;
    }
    stream->next_waiting = seat->waiting;
    seat->waiting = stream;
    return 0;
}
