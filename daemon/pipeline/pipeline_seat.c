/* The workers in the seats, one for each user whose ranks have streams: starts them, buries the
 * dead, starts them again, and takes what they report. Conductor role. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "pipeline/pipeline_state.h"

enum { FIRST_PAUSE_MS = 100, PAUSE_DOUBLINGS_MAX = 5, FAULTS_LOGGED_MAX = 20 };
static const uint64_t NS_PER_MS = 1000000;

/* --- what workers report --- */

/* Said once for each worker: an operator who has another kernel than he thinks shall know. */
static void log_lock(const struct worker_lock *lock)
{
    if (lock->flags & WORKER_LOCK_RELAXED)
        log_line(LOG_LEVEL_WARNING,
                 "the worker is built with a sanitizer: its sandbox is not the whole one");
    else if (lock->flags != 0 && !(lock->flags & WORKER_LOCK_SECCOMP))
        log_line(LOG_LEVEL_WARNING,
                 "the worker runs without a filter of system calls: this kernel has no seccomp");
}

static void on_ready(void *context, uint32_t worker, const struct worker_lock *lock)
{
    struct pipeline *pipeline = context;
    pipeline->seats[worker].lock = *lock;
    log_lock(lock);
    struct pipeline_event event = {.kind = PIPELINE_EVENT_WORKER_UP, .worker = worker};
    pipeline->seats[worker].was_ready = true;
    pipeline->seats[worker].failed_starts = 0;
    pipeline_core_feed(pipeline->core, &event, NULL);
}

static void feed_stream(struct pipeline *pipeline, uint32_t worker, uint32_t stream,
                        enum pipeline_event_kind kind)
{
    struct pipeline_event event = {.kind = kind, .stream = stream};
    if (stream >= PIPELINE_STREAMS_MAX || !pipeline->streams[stream] ||
        pipeline->streams[stream]->worker != worker ||
        pipeline_core_feed(pipeline->core, &event, NULL) < 0)
        log_line(LOG_LEVEL_WARNING, "a worker spoke of stream %u, which is not in question",
                 stream);
}

static void on_attached(void *context, uint32_t worker, uint32_t stream)
{
    feed_stream(context, worker, stream, PIPELINE_EVENT_ATTACHED);
}

static void on_detached(void *context, uint32_t worker, uint32_t stream)
{
    feed_stream(context, worker, stream, PIPELINE_EVENT_DETACHED);
}

static void on_threads(void *context, uint32_t worker, uint32_t count)
{
    const struct pipeline *pipeline = context;
    if (count < pipeline->threads)
        log_line(LOG_LEVEL_WARNING,
                 "worker %u runs %u decoding threads and not %u: memory or threads are short",
                 worker, count, pipeline->threads);
}

void pipeline_seat_set_threads(struct pipeline *pipeline)
{
    for (uint32_t i = 0; i < PIPELINE_WORKERS_MAX; i++) {
        const struct pipeline_seat *seat = &pipeline->seats[i];
        if (seat->worker && !seat->dead &&
            pipeline_worker_set_threads(seat->worker, pipeline->threads) < 0)
            log_line(LOG_LEVEL_WARNING, "no memory to tell worker %u of its threads", i);
    }
}

static void log_fault(struct pipeline_stream *stream, const struct pipeline_row_ref *ref,
                      const struct sink_note *note)
{
    if (stream->faults_logged++ >= FAULTS_LOGGED_MAX)
        return;
    struct source_sample sample;
    source_sample(stream->dataset->source, ref->id, &sample);
    const struct log_field fields[] = {{LOG_ID, LOG_ID_SAMPLE_FAILED},
                                       {"SPDL_DATASET", stream->dataset->config.name},
                                       {"SPDL_CLASS", spdl_class_name(note->class_number)},
                                       {"SPDL_JOB", stream->job},
                                       {NULL, NULL}};
    log_event(LOG_LEVEL_WARNING, fields, "dataset %s: %.*s: %s: %s", stream->dataset->title,
              (int)sample.key_bytes, sample.key, spdl_class_name(note->class_number),
              note->message);
}

/* The worker is short of memory: that says nothing about the sample, so the stream ends with the
 * cause. */
static void fail_short(struct pipeline *pipeline, const struct spdl_work_completion *completion)
{
    struct pipeline_row_ref ref;
    if (pipeline_core_ticket_ref(pipeline->core, completion->ticket, &ref) < 0 || ref.orphan)
        return;
    struct pipeline_stream *stream = pipeline->streams[ref.stream];
    snprintf(stream->end_message, sizeof stream->end_message, "the worker is short of memory: %s",
             completion->message);
    struct pipeline_event event = {.kind = PIPELINE_EVENT_FAIL,
                                   .stream = ref.stream,
                                   .code = -ENOMEM,
                                   .class_number = SPDL_CLASS_RESOURCE};
    pipeline_core_feed(pipeline->core, &event, NULL);
}

/* A ragged row cannot have more bytes than room: what the worker says of it is not taken. */
static bool row_fits(struct pipeline *pipeline, const struct spdl_work_completion *completion)
{
    struct pipeline_row_ref ref;
    if (completion->class_number != SPDL_CLASS_OK ||
        pipeline_core_ticket_ref(pipeline->core, completion->ticket, &ref) < 0 || ref.orphan)
        return true;
    const struct pipeline_dataset *dataset = pipeline->streams[ref.stream]->dataset;
    for (uint32_t f = 0; f < dataset->field_count; f++)
        if (dataset->fields[f].ragged && completion->field_bytes[f] > dataset->fields[f].row_bytes)
            return false;
    return true;
}

static void on_finished(void *context, uint32_t worker,
                        const struct spdl_work_completion *completion)
{
    struct pipeline *pipeline = context;
    struct pipeline_event event = {.kind = PIPELINE_EVENT_DECODED,
                                   .worker = worker,
                                   .ticket = completion->ticket,
                                   .class_number = (enum spdl_class)completion->class_number,
                                   .cost_ns = completion->cost_ns};
    struct pipeline_row_ref ref;
    const char *message = completion->message;
    if (!row_fits(pipeline, completion)) {
        event.class_number = SPDL_CLASS_CRASH;
        message = "the worker tells of more bytes than the row has room for";
    }
    if (!pipeline_is_content(event.class_number))
        fail_short(pipeline, completion);
    if (pipeline_core_feed(pipeline->core, &event, &ref) < 0) {
        log_line(LOG_LEVEL_WARNING, "a worker finished a row that it was not given");
        return;
    }
    if (ref.orphan)
        return;
    struct pipeline_stream *stream = pipeline->streams[ref.stream];
    struct sink_note note = {.class_number = event.class_number,
                             .is_substitute = ref.attempt > 0,
                             .has_draws = (completion->flags & SPDL_WORK_DRAWS) != 0,
                             .hflip = (completion->flags & SPDL_WORK_HFLIP) != 0,
                             .vflip = (completion->flags & SPDL_WORK_VFLIP) != 0,
                             .message = message,
                             .field_bytes = completion->field_bytes};
    memcpy(note.crop, completion->crop, sizeof note.crop);
    char words[SPDL_WORK_MESSAGE_BYTES + 40];
    if (note.class_number != SPDL_CLASS_OK && completion->byte_offset != UINT64_MAX) {
        snprintf(words, sizeof words, "%s, at byte %llu", message,
                 (unsigned long long)completion->byte_offset);
        note.message = words;
    }
    sink_note(stream->sink, ref.slot, ref.row, &note);
    if (note.class_number != SPDL_CLASS_OK) {
        pipeline_dataset_failed(stream->dataset, ref.id, note.class_number, completion->byte_offset,
                                completion->message);
        log_fault(stream, &ref, &note);
    } else if (completion->flags & SPDL_WORK_SEEN_WHOLE)
        pipeline_seen_note(stream->dataset->seen, ref.id);
}

/* Of the rows that a dead worker was at: those whose sample it died on once too often. */
static void note_crashed(struct pipeline *pipeline, const struct pipeline_row_ref *refs,
                         uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct pipeline_row_view row;
        if (refs[i].orphan)
            continue;
        pipeline_core_row(pipeline->core, refs[i].stream, refs[i].slot, refs[i].row, &row);
        if (row.attempt == refs[i].attempt && !row.masked)
            continue; /* it is tried once more */
        pipeline_dataset_failed(pipeline->streams[refs[i].stream]->dataset, refs[i].id,
                                SPDL_CLASS_CRASH, UINT64_MAX,
                                pipeline_row_message(SPDL_CLASS_CRASH));
    }
}

static void on_died(void *context, uint32_t worker, bool crashed, const uint64_t *suspects,
                    uint32_t suspect_count, const char *how)
{
    struct pipeline *pipeline = context;
    struct pipeline_seat *seat = &pipeline->seats[worker];
    struct pipeline_event event = {.kind = PIPELINE_EVENT_WORKER_DOWN,
                                   .worker = worker,
                                   .crashed = crashed,
                                   .suspects = suspects,
                                   .suspect_count = suspect_count};
    seat->dead = true;
    snprintf(seat->note, sizeof seat->note, "%s", how);
    char rows[16];
    snprintf(rows, sizeof rows, "%u", suspect_count);
    const struct log_field fields[] = {
        {LOG_ID, LOG_ID_WORKER_DIED}, {"SPDL_HOW", how}, {"SPDL_ROWS", rows}, {NULL, NULL}};
    log_event(LOG_LEVEL_WARNING, fields, "a worker is gone: %s; %u rows were at work", how,
              suspect_count);
    struct pipeline_row_ref refs[SPDL_WORK_THREADS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; crashed && i < suspect_count && count < SPDL_WORK_THREADS_MAX; i++)
        if (pipeline_core_ticket_ref(pipeline->core, suspects[i], &refs[count]) == 0)
            count++;
    pipeline_core_feed(pipeline->core, &event, NULL);
    note_crashed(pipeline, refs, count);
}

static const struct pipeline_worker_ops worker_ops = {.ready = on_ready,
                                                      .attached = on_attached,
                                                      .detached = on_detached,
                                                      .threads = on_threads,
                                                      .finished = on_finished,
                                                      .died = on_died};

/* --- starting and burying --- */

static void later(struct pipeline_seat *seat, uint64_t now_ns)
{
    uint32_t doublings =
        seat->failed_starts < PAUSE_DOUBLINGS_MAX ? seat->failed_starts : PAUSE_DOUBLINGS_MAX;
    seat->start_ns = now_ns + ((uint64_t)FIRST_PAUSE_MS << doublings) * NS_PER_MS;
    seat->failed_starts++;
}

/* Codecs are bounded by limits.pixels; this bounds a codec that has a defect. */
uint64_t pipeline_seat_memory_bytes(const struct pipeline *pipeline)
{
    uint64_t bytes = pipeline->params.config->worker_bytes;
    return bytes ? bytes : limits_memory_bytes() / 2;
}

static void fail_streams(struct pipeline *pipeline, uint32_t number, const struct err *error)
{
    for (uint32_t i = 0; i < PIPELINE_STREAMS_MAX; i++) {
        struct pipeline_stream *stream = pipeline->streams[i];
        if (!stream || stream->worker != number || stream->phase != STREAM_OPEN)
            continue;
        snprintf(stream->end_message, sizeof stream->end_message, "%.500s", error->text);
        struct pipeline_event event = {.kind = PIPELINE_EVENT_FAIL,
                                       .stream = i,
                                       .code = error->code,
                                       .class_number = SPDL_CLASS_RESOURCE};
        pipeline_core_feed(pipeline->core, &event, NULL);
    }
}

static void start(struct pipeline *pipeline, uint32_t number, uint64_t now_ns)
{
    struct pipeline_seat *seat = &pipeline->seats[number];
    struct pipeline_worker_params params = {.number = number,
                                            .thread_count = pipeline->threads,
                                            .memory_bytes = pipeline_seat_memory_bytes(pipeline),
                                            .shm_kind =
                                                (enum spdl_shm_kind)pipeline->params.config->shm,
                                            .arena = &seat->arena,
                                            .loop = pipeline->params.loop,
                                            .launcher = pipeline->params.launcher,
                                            .ops = &worker_ops,
                                            .context = pipeline};
    struct err error;
    seat->was_ready = false;
    seat->dead = false;
    seat->start_code = 0;
    if (pipeline_worker_start(&params, &seat->worker, &error) < 0) {
        seat->worker = NULL;
        seat->start_code = error.code;
        snprintf(seat->note, sizeof seat->note, "%.150s", error.text);
        log_line(LOG_LEVEL_ERROR, "a worker could not be started: %s", error.text);
        later(seat, now_ns);
        if (error.code == -ENOSPC) /* what is full stays full */
            fail_streams(pipeline, number, &error);
        struct pipeline_event event = {.kind = PIPELINE_EVENT_WORKER_DOWN, .worker = number};
        pipeline_core_feed(pipeline->core, &event, NULL); /* as a death: there is an end to it */
    }
}

static void bury(struct pipeline *pipeline, struct pipeline_seat *seat, uint64_t now_ns)
{
    pipeline_worker_stop(seat->worker, 0);
    seat->worker = NULL;
    seat->dead = false;
    pipeline->worker_restarts++;
    if (seat->was_ready)
        seat->start_ns = now_ns;
    else
        later(seat, now_ns);
}

int64_t pipeline_seat_step(struct pipeline *pipeline, uint64_t now_ns)
{
    int64_t wait_ns = -1;
    for (uint32_t i = 0; i < PIPELINE_WORKERS_MAX; i++) {
        struct pipeline_seat *seat = &pipeline->seats[i];
        if (seat->dead)
            bury(pipeline, seat, now_ns);
        if (seat->phase != SEAT_OPEN || seat->worker || seat->streams == 0)
            continue;
        if (seat->start_ns <= now_ns)
            start(pipeline, i, now_ns);
        if (!seat->worker) {
            int64_t left = (int64_t)(seat->start_ns - now_ns);
            wait_ns = wait_ns < 0 || left < wait_ns ? left : wait_ns;
        }
    }
    return wait_ns;
}

void pipeline_seat_attach(struct pipeline *pipeline, struct pipeline_stream *stream)
{
    const struct pipeline_dataset *dataset = stream->dataset;
    static struct worker_add message; /* large; the conductor alone uses it */
    message = (struct worker_add){.head = {.kind = WORKER_ADD, .stream = stream->number},
                                  .seed = stream->seed,
                                  .data_bytes = sink_data_bytes(stream->sink),
                                  .slot_bytes = sink_slot_bytes(stream->sink),
                                  .slot_count = stream->slots,
                                  .row_count = (uint32_t)(stream->batch / stream->world),
                                  .field_count = dataset->field_count};
    for (uint32_t f = 0; f < dataset->field_count; f++) {
        message.field_offset[f] = sink_field_offset(stream->sink, f);
        message.fields[f] = dataset->fields[f];
    }
    int rc = pipeline_worker_add(pipeline->seats[stream->worker].worker, &message,
                                 sink_worker_fd(stream->sink));
    if (rc == 0)
        return;
    snprintf(stream->end_message, sizeof stream->end_message,
             "its segment could not be given to the worker: %s", strerror(-rc));
    struct pipeline_event event = {.kind = PIPELINE_EVENT_FAIL,
                                   .stream = stream->number,
                                   .code = rc,
                                   .class_number = SPDL_CLASS_RESOURCE};
    pipeline_core_feed(pipeline->core, &event, NULL);
}
