/* The conductor's shell: carries out what the core commands and tells it what happened. Conductor
 * role. */
#include "pipeline/pipeline.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "pipeline/pipeline_state.h"

enum {
    FETCH_DEPTH_AUTO = 256,
    CHORE_THREADS = 2,
    LISTER_THREADS = 32, /* so many folders that do not answer keep the others from being listed */
    TEND_MS = 200,
    TICK_MS = 250,
    RATE_ROWS = 1000,
    STOP_WAIT_MS = 1000
};
static const uint64_t ARENA_AUTO_BYTES = UINT64_C(256) << 20;
static const uint64_t ARENA_LEAST_BYTES = UINT64_C(64) << 10;
static const uint64_t NS_PER_MS = 1000000;

static const char *engine_name(uint32_t engine)
{
    static const char *const names[] = {"auto", "auto", "uring", "pool"};
    return engine < 4 ? names[engine] : "auto";
}

/* --- life --- */

static uint64_t memory_of(const struct config *config)
{
    return config->memory_bytes ? config->memory_bytes : limits_memory_bytes() / 4;
}

static int memory_plan(struct pipeline *pipeline, struct err *reterr)
{
    const struct config *config = pipeline->params.config;
    uint64_t memory = memory_of(config);
    uint64_t arena = config->arena_bytes;
    if (arena == 0)
        arena = memory / 4 < ARENA_AUTO_BYTES ? memory / 4 : ARENA_AUTO_BYTES;
    if (arena < ARENA_LEAST_BYTES || arena > memory / 2)
        return err_set(reterr, -ENOSPC,
                       "memory is short: `memory` is %" PRIu64 " bytes and fetch.memory %" PRIu64
                       "; fetch.memory is at least %" PRIu64 " and at most half of `memory`",
                       memory, arena, ARENA_LEAST_BYTES);
    pipeline->memory_limit = memory;
    pipeline->arena_bytes = (arena + 4095) & ~UINT64_C(4095);
    return 0;
}

static void on_chores(void *context, uint32_t events)
{
    (void)events;
    chores_reap(context);
}

static int make_core(struct pipeline *pipeline, struct err *reterr)
{
    int rc = memory_plan(pipeline, reterr);
    if (rc < 0)
        return rc;
    struct pipeline_core_params params = {.memory_bytes = pipeline->memory_limit,
                                          .fetch_depth = pipeline->fetch_depth,
                                          .threads = pipeline->threads,
                                          .rate_rows = RATE_ROWS,
                                          .lookup = pipeline_row_lookup,
                                          .ready = pipeline_row_ready,
                                          .context = pipeline};
    pipeline->core = pipeline_core_create(&params);
    return pipeline->core ? 0 : err_set(reterr, -ENOMEM, "no memory for the conductor");
}

int pipeline_engine_open(const struct pipeline *pipeline, struct fetch **ret_fetch, char note[256],
                         struct err *reterr)
{
    const struct config *config = pipeline->params.config;
    /* The core keeps to fetch.depth, which may change. */
    struct fetch_params params = {.depth = FETCH_DEPTH_MAX};
    memcpy(params.faulty, config->fetch_faulty, sizeof params.faulty);
    return fetch_open(engine_name(config->fetch_engine), &params, ret_fetch, note, reterr);
}

/* The first engine is opened at the start, so that one that is refused is told of at once. */
static int make_engines(struct pipeline *pipeline, struct err *reterr)
{
    int rc = pipeline_engine_open(pipeline, &pipeline->spare_fetch, pipeline->engine_note, reterr);
    if (rc < 0)
        return rc;
    snprintf(pipeline->engine_name, sizeof pipeline->engine_name, "%s",
             fetch_engine(pipeline->spare_fetch));
    if (pipeline->engine_note[0])
        log_line(LOG_LEVEL_WARNING, "reads go by %s: %s", pipeline->engine_name,
                 pipeline->engine_note);
    pipeline->chores = chores_create(CHORE_THREADS);
    pipeline->listers = chores_create(LISTER_THREADS);
    if (!pipeline->chores || !pipeline->listers)
        return err_set(reterr, -ENOMEM, "no thread for slow work");
    rc = loop_add(pipeline->params.loop, chores_fd(pipeline->chores), EPOLLIN, on_chores,
                  pipeline->chores, &pipeline->chores_source);
    if (rc == 0)
        rc = loop_add(pipeline->params.loop, chores_fd(pipeline->listers), EPOLLIN, on_chores,
                      pipeline->listers, &pipeline->listers_source);
    return rc < 0 ? err_set(reterr, rc, "no watch on slow work: %s", strerror(-rc)) : 0;
}

/* Threads and reads in flight, as the settings say. */
static void counts_take(struct pipeline *pipeline)
{
    const struct config *config = pipeline->params.config;
    uint32_t threads = config->decode_threads ? config->decode_threads : limits_cpu_count();
    pipeline->threads = threads < SPDL_WORK_THREADS_MAX ? threads : SPDL_WORK_THREADS_MAX;
    pipeline->fetch_depth = config->fetch_depth ? config->fetch_depth : FETCH_DEPTH_AUTO;
}

int pipeline_create(const struct pipeline_params *params, struct pipeline **ret_pipeline,
                    struct err *reterr)
{
    struct pipeline *pipeline = calloc(1, sizeof *pipeline);
    if (!pipeline)
        return err_set(reterr, -ENOMEM, "no memory for the conductor");
    pipeline->params = *params;
    counts_take(pipeline);
    int rc = getrandom(&pipeline->generation, sizeof pipeline->generation, 0) ==
                     sizeof pipeline->generation
                 ? 0
                 : err_set(reterr, -EIO, "no random bytes");
    if (rc == 0)
        rc = make_core(pipeline, reterr);
    if (rc == 0)
        rc = make_engines(pipeline, reterr);
    if (rc < 0) {
        pipeline_destroy(pipeline);
        return rc;
    }
    pipeline_keep_load_all(pipeline);
    *ret_pipeline = pipeline;
    return 0;
}

/* All are asked to leave before the first is waited for. */
static void stop_workers(struct pipeline *pipeline)
{
    for (uint32_t i = 0; i < PIPELINE_WORKERS_MAX; i++)
        if (pipeline->seats[i].worker)
            pipeline_worker_leave(pipeline->seats[i].worker);
    uint64_t until_ns = loop_now_ns() + STOP_WAIT_MS * NS_PER_MS;
    for (uint32_t i = 0; i < PIPELINE_WORKERS_MAX; i++) {
        uint64_t now_ns = loop_now_ns();
        uint32_t wait_ms = now_ns < until_ns ? (uint32_t)((until_ns - now_ns) / NS_PER_MS) + 1 : 0;
        pipeline_worker_stop(pipeline->seats[i].worker, wait_ms);
        pipeline->seats[i].worker = NULL;
    }
}

/* all: those of seats that are being made too. */
static void close_engines(struct pipeline *pipeline, bool all)
{
    for (uint32_t i = 0; i < PIPELINE_WORKERS_MAX; i++)
        if (pipeline->seats[i].phase == SEAT_OPEN)
            fetch_leave(pipeline->seats[i].fetch);
    for (uint32_t i = 0; i < PIPELINE_WORKERS_MAX; i++) {
        if (pipeline->seats[i].phase == SEAT_FREE ||
            (pipeline->seats[i].phase != SEAT_OPEN && !all))
            continue;
        loop_remove(pipeline->params.loop, pipeline->seats[i].fetch_source);
        fetch_close(pipeline->seats[i].fetch);
        pipeline->seats[i].fetch = NULL;
    }
    fetch_close(pipeline->spare_fetch);
    pipeline->spare_fetch = NULL;
}

void pipeline_destroy(struct pipeline *pipeline)
{
    if (!pipeline)
        return;
    stop_workers(pipeline);
    loop_remove(pipeline->params.loop, pipeline->chores_source);
    loop_remove(pipeline->params.loop, pipeline->listers_source);
    if (pipeline->chores)
        pipeline_keep_finish(pipeline);
    bool made = chores_destroy(pipeline->chores);
    bool listed = chores_destroy(pipeline->listers);
    close_engines(pipeline, made);
    if (!made || !listed)
        return; /* a folder is listed that does not answer: it ends with the process */
    for (uint32_t i = 0; i < PIPELINE_STREAMS_MAX; i++)
        if (pipeline->streams[i]) {
            sink_destroy(pipeline->streams[i]->sink);
            plan_sequence_close(pipeline->streams[i]->sequence);
            free(pipeline->streams[i]);
        }
    while (pipeline->leaving) {
        struct pipeline_stream *stream = pipeline->leaving;
        pipeline->leaving = stream->next_waiting;
        sink_destroy(stream->sink);
        plan_sequence_close(stream->sequence);
        free(stream->planned);
        free(stream);
    }
    pipeline_index_free_all(pipeline);
    pipeline_dataset_free_all(pipeline);
    pipeline_core_destroy(pipeline->core);
    pipeline_seat_free_all(pipeline);
    free(pipeline);
}

/* --- live settings --- */

int pipeline_settings_check(const struct pipeline *pipeline, const struct config *next,
                            struct err *reterr)
{
    uint64_t memory = memory_of(next);
    if (memory / 2 >= pipeline->arena_bytes)
        return 0;
    return err_set(reterr, -ENOSPC,
                   "memory %" PRIu64 " bytes is too little: %" PRIu64
                   " of it are for blobs in flight (fetch.memory, which needs a restart), and that "
                   "is at most half",
                   memory, pipeline->arena_bytes);
}

void pipeline_settings_changed(struct pipeline *pipeline)
{
    uint32_t threads = pipeline->threads;
    counts_take(pipeline);
    pipeline->memory_limit = memory_of(pipeline->params.config);
    pipeline_core_set_memory(pipeline->core, pipeline->memory_limit);
    pipeline_core_set_fetch_depth(pipeline->core, pipeline->fetch_depth);
    if (threads != pipeline->threads) {
        pipeline_core_set_threads(pipeline->core, pipeline->threads);
        pipeline_seat_set_threads(pipeline);
    }
    pipeline_dataset_review(pipeline);
}

/* --- the step --- */

/* By failed samples: which limit is passed, with the numbers, and the sample that did it. */
static void limit_words(struct pipeline_stream *stream, const struct pipeline_command *command,
                        const struct pipeline_stream_view *view)
{
    struct pipeline_row_view row;
    struct source_sample sample;
    char last[320], most[80];
    pipeline_core_row(stream->pipeline->core, command->stream, command->slot, command->row, &row);
    source_sample(stream->dataset->source, row.failed_id, &sample);
    snprintf(last, sizeof last, "sample %.*s is %s",
             sample.key_bytes < 200 ? (int)sample.key_bytes : 200, sample.key,
             spdl_class_name(row.class_number));
    snprintf(most, sizeof most, "most are %s (%" PRIu64 ")", spdl_class_name(view->most_class),
             view->most_rows);
    char *text = stream->end_message;
    size_t bytes = sizeof stream->end_message;
    switch (command->limit) {
    case PIPELINE_LIMIT_NONE:
        break;
    case PIPELINE_LIMIT_FIRST:
        snprintf(text, bytes,
                 "batch %" PRIu64 ": %s, and on_error is fail; repair it, or use on_error "
                 "substitute or mask",
                 view->published, last);
        break;
    case PIPELINE_LIMIT_ATTEMPTS:
        snprintf(text, bytes,
                 "batch %" PRIu64 ": %s, and each of the %u substitutes that max_consecutive "
                 "allows failed too; of %" PRIu64 " samples %" PRIu64 " failed, %s",
                 view->published, last, stream->on_error.max_consecutive, view->counted_rows,
                 view->failed_rows, most);
        break;
    case PIPELINE_LIMIT_CONSECUTIVE:
        snprintf(text, bytes,
                 "batch %" PRIu64 ": %u samples failed one after another, more than "
                 "max_consecutive %u; of %" PRIu64 " samples %" PRIu64 " failed, %s; %s",
                 view->published, view->consecutive_rows, stream->on_error.max_consecutive,
                 view->counted_rows, view->failed_rows, most, last);
        break;
    case PIPELINE_LIMIT_RATE:
        snprintf(text, bytes,
                 "batch %" PRIu64 ": of %" PRIu64 " samples %" PRIu64 " failed, which is more than "
                 "max_rate %g, %s",
                 view->published, view->counted_rows, view->failed_rows,
                 (double)stream->on_error.max_rate / CONFIG_RATE_UNIT, most);
        break;
    }
}

static void end_words(struct pipeline *pipeline, const struct pipeline_command *command,
                      const struct pipeline_stream_view *view)
{
    struct pipeline_stream *stream = pipeline->streams[command->stream];
    if (command->limit != PIPELINE_LIMIT_NONE) {
        limit_words(stream, command, view);
    } else if (command->has_row) {
        struct pipeline_row_view row;
        struct source_sample sample;
        pipeline_core_row(pipeline->core, command->stream, command->slot, command->row, &row);
        source_sample(stream->dataset->source, row.id, &sample);
        snprintf(stream->end_message, sizeof stream->end_message,
                 "batch %" PRIu64 ": sample %.*s is larger than fetch.memory (%" PRIu64
                 " bytes): raise it",
                 view->published, sample.key_bytes < 200 ? (int)sample.key_bytes : 200, sample.key,
                 pipeline->arena_bytes);
    } else {
        snprintf(stream->end_message, sizeof stream->end_message,
                 "after batch %" PRIu64
                 ": its worker died or could not be started again and again; %s",
                 view->published, pipeline->seats[stream->worker].note);
    }
}

static bool is_shortage(int code)
{
    return code == -EMFILE || code == -ENFILE || code == -ENOMEM || code == -EAGAIN ||
           code == -ENOSPC;
}

static void end_stream(struct pipeline *pipeline, const struct pipeline_command *command)
{
    struct pipeline_stream *stream = pipeline->streams[command->stream];
    struct pipeline_stream_view view;
    if (stream->closed)
        return;
    pipeline_core_stream(pipeline->core, command->stream, &view);
    if (command->code != 0 && !stream->end_message[0])
        end_words(pipeline, command, &view);
    int code = command->code;
    enum spdl_class class_number = command->class_number;
    if (code == -ECHILD && is_shortage(pipeline->seats[stream->worker].start_code)) {
        code = pipeline->seats[stream->worker].start_code;
        class_number = SPDL_CLASS_RESOURCE;
    }
    stream->owner->ended(stream->context, view.published, code, class_number, stream->end_message);
}

static void carry_out(struct pipeline *pipeline, const struct pipeline_command *command)
{
    struct pipeline_stream *stream = pipeline->streams[command->stream];
    struct spdl_work_command work;
    switch (command->kind) {
    case PIPELINE_COMMAND_ATTACH:
        pipeline_seat_attach(pipeline, stream);
        break;
    case PIPELINE_COMMAND_FETCH:
        pipeline_fetch_start(pipeline, command);
        break;
    case PIPELINE_COMMAND_DECODE:
        pipeline_row_command(stream, command, &work);
        pipeline_worker_push(pipeline->seats[command->worker].worker, &work);
        break;
    case PIPELINE_COMMAND_PUBLISH:
        sink_publish_end(stream->sink, command->slot);
        break;
    case PIPELINE_COMMAND_END:
        end_stream(pipeline, command);
        break;
    case PIPELINE_COMMAND_DETACH:
        pipeline_worker_drop(pipeline->seats[command->worker].worker, command->stream);
        break;
    case PIPELINE_COMMAND_FORGET:
        pipeline_stream_forget(stream);
        break;
    }
}

static void run_core(struct pipeline *pipeline)
{
    struct pipeline_command command;
    while (pipeline_core_next(pipeline->core, &command))
        carry_out(pipeline, &command);
    for (uint32_t i = 0; i < PIPELINE_WORKERS_MAX; i++) {
        const struct pipeline_seat *seat = &pipeline->seats[i];
        if (seat->phase == SEAT_OPEN && seat->fetch)
            fetch_kick(seat->fetch);
        if (seat->worker)
            pipeline_worker_kick(seat->worker, pipeline_core_cost_ns(pipeline->core, i));
    }
}

static uint32_t drain(struct pipeline *pipeline, bool waiting, uint64_t now_ns)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PIPELINE_WORKERS_MAX; i++) {
        struct pipeline_seat *seat = &pipeline->seats[i];
        if (!seat->worker || seat->dead)
            continue;
        pipeline_worker_waiting(seat->worker, waiting);
        uint32_t finished = pipeline_worker_drain(seat->worker);
        if (finished > 0 || pipeline_core_decoding(pipeline->core, i) == 0)
            seat->moved_ns = now_ns;
        count += finished;
    }
    return count;
}

static int64_t shorter(int64_t a, int64_t b)
{
    return a < 0 ? b : b < 0 || a < b ? a : b;
}

/* Reads that are late shall not keep others from being done. */
static void tend(struct pipeline *pipeline, uint64_t now_ns)
{
    if (now_ns - pipeline->tended_ns < TEND_MS * NS_PER_MS)
        return;
    pipeline->tended_ns = now_ns;
    for (uint32_t i = 0; i < PIPELINE_WORKERS_MAX; i++)
        if (pipeline->seats[i].phase == SEAT_OPEN && pipeline_core_fetching(pipeline->core, i) > 0)
            fetch_tend(pipeline->seats[i].fetch);
}

int64_t pipeline_step(struct pipeline *pipeline)
{
    uint64_t now_ns = loop_now_ns();
    int64_t wait_ns;
    pipeline->now_ns = now_ns;
    drain(pipeline, false, now_ns);
    do {
        wait_ns = pipeline_seat_step(pipeline, now_ns);
        run_core(pipeline);
        /* Says that we sleep, then looks once more: what was finished between would wake nobody. */
    } while (drain(pipeline, true, now_ns) > 0);
    pipeline_why_count(pipeline, now_ns);
    pipeline_keep_step(pipeline, now_ns);
    tend(pipeline, now_ns);
    wait_ns = shorter(wait_ns, pipeline_fetch_again(pipeline, now_ns));
    wait_ns = shorter(wait_ns, pipeline_seat_idle(pipeline, now_ns));
    if (pipeline->stream_count > 0)
        wait_ns = shorter(wait_ns, (int64_t)(TICK_MS * NS_PER_MS));
    return wait_ns;
}

/* --- views --- */

_Static_assert((int)PIPELINE_WORKERS_MAX <= (int)PIPELINE_STATUS_WORKERS_MAX, "room for all");

static void count_reads(const struct fetch *fetch, struct pipeline_status *status)
{
    struct fetch_stats reads;
    if (!fetch)
        return;
    fetch_stats(fetch, &reads);
    status->reads += reads.reads;
    status->read_bytes += reads.bytes;
}

void pipeline_status(const struct pipeline *pipeline, struct pipeline_status *ret_status)
{
    *ret_status = (struct pipeline_status){.engine = pipeline->engine_name,
                                           .engine_note = pipeline->engine_note,
                                           .memory_limit = pipeline->memory_limit,
                                           .memory_used = pipeline_core_memory_used(pipeline->core),
                                           .reads = pipeline->ended_reads,
                                           .read_bytes = pipeline->ended_read_bytes,
                                           .worker_restarts = pipeline->worker_restarts,
                                           .decode_threads = pipeline->threads};
    count_reads(pipeline->spare_fetch, ret_status);
    for (uint32_t i = 0; i < PIPELINE_WORKERS_MAX; i++) {
        const struct pipeline_seat *seat = &pipeline->seats[i];
        if (seat->phase != SEAT_OPEN)
            continue;
        count_reads(seat->fetch, ret_status);
        ret_status->arena_used += pipeline_core_arena_used(pipeline->core, i);
        ret_status->arena_bytes += seat->arena.bytes;
        if (seat->worker)
            ret_status->workers[ret_status->worker_count++] = (struct pipeline_worker_status){
                .pid = pipeline_worker_pid(seat->worker), .uid = seat->uid, .lock = seat->lock};
    }
}

/* One that waits for its dataset's list, from `stream` on, or of `dataset` and those
 * behind it. */
static struct pipeline_stream *waiting_next(const struct pipeline_dataset *dataset,
                                            struct pipeline_stream *stream)
{
    for (;;) {
        for (; stream; stream = stream->next_waiting)
            if (!stream->closed && !stream->is_plan_only)
                return stream;
        if (!dataset)
            return NULL;
        stream = dataset->waiting;
        dataset = dataset->next;
    }
}

struct pipeline_stream *pipeline_stream_next(const struct pipeline *pipeline,
                                             const struct pipeline_stream *after)
{
    if (after && after->phase == STREAM_LISTING)
        return waiting_next(after->dataset->next, after->next_waiting);
    for (uint32_t i = after ? after->number + 1 : 0; i < PIPELINE_STREAMS_MAX; i++)
        if (pipeline->streams[i] && !pipeline->streams[i]->closed)
            return pipeline->streams[i];
    return waiting_next(pipeline->datasets, NULL);
}
