/* Streams: from a request to a ring, and back to nothing. Opening goes through the dataset's list,
 * the plan and the segments; the slow ones of these are chores, and a rank may leave at any point
 * between. Conductor role. */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "pipeline/pipeline_state.h"
#include "shm/shm_failpoint.h"

void pipeline_stream_free(struct pipeline_stream *stream)
{
    free(stream->planned);
    plan_sequence_close(stream->sequence);
    pipeline_dataset_leave(stream->dataset);
    free(stream);
}

/* The end of a stream that never was: the owner is told unless it has left. */
static void refuse(struct pipeline_stream *stream, const struct err *error,
                   enum spdl_class class_number)
{
    if (!stream->closed)
        stream->owner->refused(stream->context, error, class_number);
    pipeline_stream_free(stream);
}

/* --- the plan --- */

static int place_from_state(struct pipeline_stream *stream, struct err *reterr)
{
    const struct plan_state *state = &stream->state;
    if (state->plan_id.high != stream->plan_id.high || state->plan_id.low != stream->plan_id.low) {
        char theirs[PLAN_ID_TEXT_BYTES];
        plan_id_text(state->plan_id, theirs);
        return err_set(reterr, -ESTALE,
                       "the state is of another plan (%s) than this one (%s): the dataset's files, "
                       "its order, `last` or its "
                       "fields are not those it was saved with",
                       theirs, stream->plan_id_text);
    }
    if (stream->has_seed && stream->seed != state->seed)
        return err_set(reterr, -EINVAL,
                       "seed %" PRIu64 " contradicts the state, which has seed %" PRIu64,
                       stream->seed, state->seed);
    if (stream->schedule.lanes > 1 && state->batch != stream->batch)
        return err_set(reterr, -EINVAL,
                       "the state was saved with a global batch of %" PRIu64
                       " and this stream asks for %" PRIu64
                       ": a plan with %u lanes goes on with the same batch only",
                       state->batch, stream->batch, stream->schedule.lanes);
    stream->seed = state->seed;
    stream->schedule.start_epoch = state->epoch;
    stream->schedule.start_position = state->position;
    stream->schedule.start_step = state->step;
    if (state->decode_version != PLAN_DECODE_VERSION)
        snprintf(
            stream->warning, sizeof stream->warning,
            "the state was saved with decode version %u, this daemon has %d: pixels may differ",
            state->decode_version, PLAN_DECODE_VERSION);
    return 0;
}

static int place_from_step(struct pipeline_stream *stream, struct err *reterr)
{
    uint64_t steps = plan_steps(stream->schedule.samples, stream->batch, stream->schedule.last);
    if (steps > 0 && stream->step >= steps)
        return err_set(reterr, -ERANGE,
                       "step %" PRIu64 " is beyond the epoch: it has %" PRIu64
                       " steps, 0 … %" PRIu64,
                       stream->step, steps, steps - 1);
    stream->schedule.start_epoch = stream->epoch;
    stream->schedule.start_step = stream->step;
    stream->schedule.start_position = steps > 0 ? stream->step * stream->batch : 0;
    return 0;
}

static void warn_of_few_shards(struct pipeline_stream *stream,
                               const struct plan_sequence_params *params)
{
    if (params->spec.shuffle != PLAN_SHUFFLE_BLOCK || params->shard_count > 1 ||
        params->spec.block_samples >= params->samples || stream->warning[0])
        return;
    snprintf(stream->warning, sizeof stream->warning,
             "shuffle: block mixes samples inside windows of %" PRIu64
             " only, and this dataset is one shard of %" PRIu64
             ", whose windows always come in the same order: use global, or larger block_samples",
             params->spec.block_samples, params->samples);
}

static int sequence_make(struct pipeline_stream *stream, const struct plan_spec *spec,
                         struct err *reterr)
{
    const struct source *source = stream->dataset->source;
    const struct source_counts *counts = source_counts(source);
    const struct plan_sequence_params params = {.spec = *spec,
                                                .seed = stream->seed,
                                                .samples = counts->samples,
                                                .batch = stream->batch,
                                                .shards = source_shards(source),
                                                .shard_count = counts->shards};
    stream->sequence_bytes = plan_sequence_bytes(&params);
    warn_of_few_shards(stream, &params);
    return plan_sequence_open(&params, &stream->sequence, reterr);
}

static int plan_make(struct pipeline_stream *stream, struct err *reterr)
{
    const struct pipeline_dataset *dataset = stream->dataset;
    const struct plan_spec spec = {.shuffle = dataset->config.shuffle,
                                   .last = dataset->config.last,
                                   .block_samples = dataset->config.block_samples,
                                   .lanes = dataset->config.lanes};
    struct plan_id dataset_id;
    source_id(dataset->source, &dataset_id.high, &dataset_id.low);
    int rc = plan_id_make(dataset_id, &spec, dataset->fields, dataset->field_count,
                          &stream->plan_id, reterr);
    if (rc < 0)
        return rc;
    plan_id_text(stream->plan_id, stream->plan_id_text);
    stream->schedule = (struct plan_schedule){.samples = source_counts(dataset->source)->samples,
                                              .batch = stream->batch,
                                              .world = stream->world,
                                              .rank = stream->rank,
                                              .last = spec.last,
                                              .lanes = spec.lanes};
    if (!stream->has_seed && !stream->has_state)
        stream->seed = dataset->config.seed;
    rc = stream->has_state ? place_from_state(stream, reterr) : place_from_step(stream, reterr);
    if (rc < 0)
        return rc;
    rc = plan_schedule_check(&stream->schedule, reterr);
    if (rc < 0)
        return rc;
    if (stream->batch / stream->world > PIPELINE_ROWS_MAX)
        return err_set(reterr, -EINVAL,
                       "%" PRIu64 " rows for a rank are more than %d: use a smaller batch",
                       stream->batch / stream->world, PIPELINE_ROWS_MAX);
    return sequence_make(stream, &spec, reterr);
}

/* --- the segments --- */

static void sink_work(struct chore *chore)
{
    struct pipeline_stream *stream =
        (struct pipeline_stream *)(void *)((char *)chore - offsetof(struct pipeline_stream, chore));
    stream->sink_rc = sink_create(&stream->sink_params, &stream->sink, &stream->sink_error);
    plan_sequence_prepare(stream->sequence, stream->schedule.start_epoch);
}

static void answer(struct pipeline_stream *stream)
{
    struct plan_batch first;
    plan_batch_at(&stream->schedule, 0, &first);
    struct pipeline_opened opened = {
        .number = stream->number + 1,
        .control_bytes = sink_control_bytes(stream->sink),
        .data_bytes = sink_data_bytes(stream->sink),
        .samples = stream->schedule.samples,
        .steps_per_epoch =
            plan_steps(stream->schedule.samples, stream->batch, stream->schedule.last),
        .epoch = first.epoch,
        .step = first.step,
        .plan_id = stream->plan_id_text,
        .seed = stream->seed,
        .warning = stream->warning};
    sink_rank_fds(stream->sink, opened.fds);
    stream->owner->opened(stream->context, &opened);
}

static void sink_done(struct chore *chore)
{
    struct pipeline_stream *stream =
        (struct pipeline_stream *)(void *)((char *)chore - offsetof(struct pipeline_stream, chore));
    struct pipeline *pipeline = stream->pipeline;
    struct pipeline_event event = {.stream = stream->number};
    SPDL_FAILPOINT("daemon.open.segments-made");
    stream->phase = STREAM_OPEN;
    if (stream->sink_rc < 0 && !stream->closed) {
        stream->owner->refused(stream->context, &stream->sink_error, SPDL_CLASS_RESOURCE);
        stream->closed = stream->unmapped = true;
    }
    if (stream->closed) { /* the core forgets it, then so do we */
        event.kind = stream->unmapped ? PIPELINE_EVENT_UNMAPPED : PIPELINE_EVENT_CLOSE;
        pipeline_core_feed(pipeline->core, &event, NULL);
        return;
    }
    event.kind = PIPELINE_EVENT_START;
    pipeline_core_feed(pipeline->core, &event, NULL);
    SPDL_FAILPOINT("daemon.open.before-reply");
    answer(stream);
    SPDL_FAILPOINT("daemon.open.after-reply");
    if (!stream->closed)
        sink_rank_fds_sent(stream->sink);
}

/* Where the memory of ragged fields comes from, since it hangs on the largest part and not on most:
 * the field with the largest rows. "" when there is none. */
static void ragged_words(const struct pipeline_dataset *dataset, char *text, size_t bytes)
{
    const struct field_spec *largest = NULL;
    text[0] = 0;
    for (uint32_t f = 0; f < dataset->field_count; f++) {
        const struct field_spec *field = &dataset->fields[f];
        if (field->ragged && (!largest || field->row_bytes > largest->row_bytes))
            largest = field;
    }
    if (largest)
        snprintf(text, bytes,
                 "; field %s differs in length and has room for %" PRIu64
                 " bytes in every row: its max_bytes says how many are wanted",
                 largest->name, largest->row_bytes);
}

/* What its segments will be and take. */
static void memory_make(struct pipeline_stream *stream)
{
    struct pipeline *pipeline = stream->pipeline;
    const struct pipeline_dataset *dataset = stream->dataset;
    const struct source_counts *counts = source_counts(dataset->source);
    stream->sink_params =
        (struct sink_params){.fields = dataset->fields,
                             .field_count = dataset->field_count,
                             .slot_count = stream->slots,
                             .row_count = (uint32_t)(stream->batch / stream->world),
                             .key_bytes = counts->longest_key_bytes,
                             .has_substitutes = stream->on_error.policy == CONFIG_POLICY_SUBSTITUTE,
                             .generation = pipeline->generation,
                             .shm_kind = pipeline->params.config->shm};
    uint64_t bytes = sink_memory_bytes(&stream->sink_params);
    uint64_t beside = stream->sequence_bytes + sizeof *stream +
                      pipeline_core_stream_bytes(stream->slots, stream->sink_params.row_count);
    stream->memory_bytes = bytes > UINT64_MAX - beside ? UINT64_MAX : bytes + beside;
}

/* One user's streams, those that are closing too: their memory is not free yet. */
static int quota_check(const struct pipeline_stream *stream, struct err *reterr)
{
    const struct pipeline *pipeline = stream->pipeline;
    const struct config *config = pipeline->params.config;
    uint32_t streams = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < PIPELINE_STREAMS_MAX; i++)
        if (pipeline->streams[i] && pipeline->streams[i]->uid == stream->uid) {
            streams++;
            bytes += pipeline->streams[i]->memory_bytes;
        }
    if (config->quota_streams > 0 && streams >= config->quota_streams)
        return err_set(reterr, -EMFILE,
                       "user %u has %u streams, which is all that quota.streams allows: close some "
                       "first",
                       (unsigned)stream->uid, streams);
    if (config->quota_bytes > 0 && bytes + stream->memory_bytes > config->quota_bytes)
        return err_set(reterr, -ENOSPC,
                       "the stream needs %" PRIu64
                       " bytes, and the streams of user %u have %" PRIu64 " of the %" PRIu64
                       " that quota.memory allows: ask for fewer slots or a smaller batch",
                       stream->memory_bytes, (unsigned)stream->uid, bytes, config->quota_bytes);
    return 0;
}

static int segments_begin(struct pipeline_stream *stream, struct err *reterr)
{
    struct pipeline *pipeline = stream->pipeline;
    memory_make(stream);
    struct pipeline_stream_params params = {.schedule = stream->schedule,
                                            .slot_count = stream->slots,
                                            .worker = stream->worker,
                                            .policy = stream->on_error.policy,
                                            .max_rate = stream->on_error.max_rate,
                                            .max_consecutive = stream->on_error.max_consecutive,
                                            .limit = stream->limit,
                                            .memory_bytes = stream->memory_bytes};
    uint64_t free_bytes = 0;
    int rc = quota_check(stream, reterr);
    if (rc < 0)
        return rc;
    do {
        rc = pipeline_core_open(pipeline->core, &params, &stream->number, &free_bytes);
    } while (rc == -ENOSPC && pipeline_seat_evict(pipeline, stream->worker));
    if (rc == -ENOSPC) {
        char ragged[256];
        ragged_words(stream->dataset, ragged, sizeof ragged);
        return err_set(reterr, rc,
                       "memory is short: the stream needs %" PRIu64 " bytes (%u slots of %" PRIu64
                       "), %" PRIu64 " of the limit of %" PRIu64
                       " are free; ask for fewer slots or a smaller batch, or raise `memory`%s",
                       stream->memory_bytes, stream->slots,
                       (stream->memory_bytes - stream->sequence_bytes) / stream->slots, free_bytes,
                       pipeline->memory_limit, ragged);
    }
    if (rc == -EMFILE)
        return err_set(reterr, rc, "%d streams are open, more are not served",
                       PIPELINE_STREAMS_MAX);
    if (rc < 0)
        return err_set(reterr, rc, "the stream could not be opened: %s", strerror(-rc));
    stream->sink_params.stream_id = stream->number + 1; /* as in status */
    stream->phase = STREAM_SEGMENTS;
    pipeline->streams[stream->number] = stream;
    pipeline->stream_count++;
    pipeline->seats[stream->worker].streams++;
    stream->chore.work = sink_work;
    stream->chore.done = sink_done;
    chores_add(pipeline->chores, &stream->chore);
    return 0;
}

static bool is_shortage(int rc)
{
    return rc == -ENOSPC || rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE || rc == -EAGAIN;
}

void pipeline_stream_seated(struct pipeline_stream *stream, const struct err *error)
{
    struct err own = {0};
    if (stream->closed) {
        pipeline_stream_free(stream);
        return;
    }
    int rc = error ? error->code : segments_begin(stream, &own);
    if (rc < 0)
        refuse(stream, error ? error : &own, is_shortage(rc) ? SPDL_CLASS_RESOURCE : SPDL_CLASS_OK);
}

void pipeline_stream_listed(struct pipeline_stream *stream)
{
    struct err error = {0};
    if (stream->closed) {
        pipeline_stream_free(stream);
        return;
    }
    if (!stream->dataset->source) {
        error = stream->dataset->list_error;
        bool is_short = error.code == -ENOMEM || error.code == -EMFILE || error.code == -ENFILE;
        refuse(stream, &error, is_short ? SPDL_CLASS_RESOURCE : SPDL_CLASS_IO_ERROR);
        return;
    }
    int rc = plan_make(stream, &error);
    if (rc == 0 && stream->is_plan_only) {
        memory_make(stream);
        rc = pipeline_plan_begin(stream, &error);
        if (rc == 0)
            return;
    }
    if (rc == 0)
        rc = pipeline_seat_join(stream, &error);
    if (rc < 0)
        refuse(stream, &error, is_shortage(rc) ? SPDL_CLASS_RESOURCE : SPDL_CLASS_OK);
}

/* --- what control calls --- */

static int check_open(const struct pipeline_open *open, struct err *reterr)
{
    uint32_t world = open->world > 0 ? open->world : 1;
    if (open->batch == 0)
        return err_set(reterr, -EINVAL, "a batch of 0 samples is none: ask for at least 1");
    if (open->batch % world != 0)
        return err_set(reterr, -EINVAL, "batch %" PRIu64 " is not divisible by world %u",
                       open->batch, world);
    if (open->rank >= world)
        return err_set(reterr, -EINVAL, "rank %u is not below world %u", open->rank, world);
    if (open->slots != 0 && (open->slots < 2 || open->slots > PIPELINE_SLOTS_MAX))
        return err_set(reterr, -EINVAL, "%u slots: 2 … %d are possible", open->slots,
                       PIPELINE_SLOTS_MAX);
    return 0;
}

static int stream_fill(struct pipeline_stream *stream, const struct pipeline_open *open,
                       struct err *reterr)
{
    stream->batch = open->batch;
    stream->rank = open->rank;
    stream->world = open->world > 0 ? open->world : 1;
    stream->is_plan_only = open->is_plan_only;
    stream->has_seed = open->has_seed;
    stream->seed = open->seed;
    stream->epoch = open->epoch;
    stream->step = open->step;
    stream->limit = open->limit;
    stream->slots = open->slots > 0 ? open->slots : stream->pipeline->params.config->slots;
    stream->pid = open->pid;
    stream->uid = open->uid;
    snprintf(stream->job, sizeof stream->job, "%s", open->job);
    stream->on_error = stream->dataset->config.on_error;
    if (open->on_error[0] && config_on_error_read(open->on_error, &stream->on_error, reterr) < 0)
        return -EINVAL;
    stream->has_state = open->state[0] != 0;
    if (stream->has_state)
        return plan_state_decode(open->state, strlen(open->state), &stream->state, reterr);
    return 0;
}

int pipeline_open(struct pipeline *pipeline, const struct pipeline_open *open,
                  const struct pipeline_owner *owner, void *context,
                  struct pipeline_stream **ret_stream, struct err *reterr)
{
    int rc = check_open(open, reterr);
    if (rc < 0)
        return rc;
    struct pipeline_dataset *dataset = pipeline_dataset_get(pipeline, open, reterr);
    if (!dataset)
        return reterr->code;
    struct pipeline_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return err_set(reterr, -ENOMEM, "no memory for a stream");
    stream->pipeline = pipeline;
    stream->dataset = dataset;
    stream->owner = owner;
    stream->context = context;
    rc = stream_fill(stream, open, reterr);
    if (rc < 0) {
        free(stream);
        return rc;
    }
    *ret_stream = stream;
    pipeline_dataset_join(dataset, stream);
    return 0;
}

int pipeline_release(struct pipeline_stream *stream, uint64_t sequence)
{
    if (stream->phase != STREAM_OPEN || stream->closed)
        return -EPROTO;
    struct pipeline_event event = {
        .kind = PIPELINE_EVENT_RELEASE, .stream = stream->number, .sequence = sequence};
    struct pipeline_row_ref ref;
    SPDL_FAILPOINT("daemon.release.before");
    int rc = pipeline_core_feed(stream->pipeline->core, &event, &ref);
    SPDL_FAILPOINT("daemon.release.after");
    if (rc == 0)
        sink_reset(stream->sink, ref.slot);
    return rc;
}

static void tell_core(struct pipeline_stream *stream, enum pipeline_event_kind kind)
{
    if (stream->phase != STREAM_OPEN) /* its chore or its list sees that it is closed */
        return;
    struct pipeline_event event = {.kind = kind, .stream = stream->number};
    pipeline_core_feed(stream->pipeline->core, &event, NULL);
}

void pipeline_close(struct pipeline_stream *stream)
{
    if (stream->closed)
        return;
    stream->closed = true;
    tell_core(stream, PIPELINE_EVENT_CLOSE);
}

void pipeline_unmapped(struct pipeline_stream *stream)
{
    stream->closed = stream->unmapped = true;
    tell_core(stream, PIPELINE_EVENT_UNMAPPED);
}

/* --- the end --- */

static void destroy_work(struct chore *chore)
{
    struct pipeline_stream *stream =
        (struct pipeline_stream *)(void *)((char *)chore - offsetof(struct pipeline_stream, chore));
    sink_destroy(stream->sink);
    stream->sink = NULL;
}

static void destroy_done(struct chore *chore)
{
    struct pipeline_stream *stream =
        (struct pipeline_stream *)(void *)((char *)chore - offsetof(struct pipeline_stream, chore));
    struct pipeline_stream **at = &stream->pipeline->leaving;
    while (*at != stream)
        at = &(*at)->next_waiting;
    *at = stream->next_waiting;
    pipeline_stream_free(stream);
}

void pipeline_stream_forget(struct pipeline_stream *stream)
{
    struct pipeline *pipeline = stream->pipeline;
    pipeline->streams[stream->number] = NULL;
    pipeline->stream_count--;
    pipeline->seats[stream->worker].streams--;
    stream->chore.work = destroy_work;
    stream->chore.done = destroy_done;
    stream->next_waiting = pipeline->leaving;
    pipeline->leaving = stream;
    chores_add(pipeline->chores, &stream->chore);
}
