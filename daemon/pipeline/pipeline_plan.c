/* Plans without a stream: what would be read, in which order, with how much memory. A stream that
 * is a plan only comes here when its dataset is listed and its order is known; a chore looks at the
 * samples, the owner is told, and it is gone. Conductor role, but for the chore. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/pipeline_state.h"

enum {
    PLAN_SAMPLES_MAX = 1 << 20, /* that are looked at one by one */
    DAEMON_BYTES = 256 << 20    /* ample for the daemon itself: 20 to 60 MiB are seen */
};

static uint64_t bytes_of(const struct pipeline_stream *stream, const struct source_sample *sample)
{
    struct pipeline_recipe recipe;
    pipeline_recipe_make(stream, sample, &recipe);
    return recipe.class_number == SPDL_CLASS_OK ? recipe.blob_bytes : 0;
}

static void rows_make(struct pipeline_stream *stream, struct pipeline_planned *planned)
{
    struct plan_batch batch;
    plan_batch_at(&stream->schedule, 0, &batch);
    planned->epoch = batch.epoch;
    planned->step = batch.step;
    planned->row_count = batch.rows < PIPELINE_PLAN_ROWS ? batch.rows : PIPELINE_PLAN_ROWS;
    for (uint32_t r = 0; r < planned->row_count; r++) {
        struct source_sample sample;
        struct pipeline_plan_row *row = &planned->rows[r];
        row->position = batch.first_position + r;
        row->id = plan_sequence_at(stream->sequence, batch.epoch,
                                   row->position % stream->schedule.samples);
        source_sample(stream->dataset->source, row->id, &sample);
        row->bytes = bytes_of(stream, &sample);
        row->key_bytes = sample.key_bytes < sizeof row->key ? sample.key_bytes : sizeof row->key;
        memcpy(row->key, sample.key, row->key_bytes);
    }
}

/* Bytes of an epoch: of every sample, or of a million that lie evenly among them. */
static void bytes_make(const struct pipeline_stream *stream, struct pipeline_planned *planned)
{
    const uint64_t samples = stream->schedule.samples;
    const uint64_t count = samples < PLAN_SAMPLES_MAX ? samples : PLAN_SAMPLES_MAX;
    const uint64_t stride = samples / count;
    for (uint64_t i = 0; i < count; i++) {
        struct source_sample sample;
        source_sample(stream->dataset->source, i * stride, &sample);
        uint64_t bytes = bytes_of(stream, &sample);
        planned->epoch_bytes += bytes;
        if (bytes > planned->largest_bytes)
            planned->largest_bytes = bytes;
    }
    planned->is_estimate = count < samples;
    if (planned->is_estimate)
        planned->epoch_bytes =
            (uint64_t)((double)planned->epoch_bytes / (double)count * (double)samples);
}

/* Shards that are open at a time: of block those under a window, of none the one that is read, by
 * each lane; global reads all of them all the time. */
static void shards_make(const struct pipeline_stream *stream, struct pipeline_planned *planned)
{
    const struct config_dataset *config = &stream->dataset->config;
    const uint32_t shards = source_counts(stream->dataset->source)->shards;
    const uint64_t lanes = config->lanes > 1 ? config->lanes : 1;
    planned->shards = shards > 0 ? shards : 1;
    uint64_t open = planned->shards;
    if (config->shuffle == PLAN_SHUFFLE_NONE)
        open = lanes;
    if (config->shuffle == PLAN_SHUFFLE_BLOCK) {
        double mean = (double)stream->schedule.samples / planned->shards;
        uint64_t of_window = (uint64_t)((double)config->block_samples / mean);
        of_window += (double)of_window * mean < (double)config->block_samples ? 2 : 1;
        open = of_window < planned->shards ? of_window * lanes : planned->shards;
    }
    planned->shards_open = open < planned->shards ? (uint32_t)open : planned->shards;
}

static void plan_work(struct chore *chore)
{
    struct pipeline_stream *stream =
        (struct pipeline_stream *)(void *)((char *)chore - offsetof(struct pipeline_stream, chore));
    rows_make(stream, stream->planned);
    bytes_make(stream, stream->planned);
    shards_make(stream, stream->planned);
}

static void planned_fill(const struct pipeline_stream *stream, struct pipeline_planned *planned)
{
    const struct config_dataset *config = &stream->dataset->config;
    struct pipeline_status status;
    pipeline_status(stream->pipeline, &status);
    planned->dataset = config;
    planned->shuffle = plan_shuffle_name(config->shuffle);
    planned->last = plan_last_name(config->last);
    pipeline_dataset_source_text(&config->source, planned->source, sizeof planned->source);
    planned->plan_id = stream->plan_id_text;
    planned->warning = stream->warning;
    planned->seed = stream->seed;
    planned->batch = stream->batch;
    planned->rank = stream->rank;
    planned->world = stream->world;
    planned->slots = stream->slots;
    planned->samples = stream->schedule.samples;
    planned->steps_per_epoch =
        plan_steps(stream->schedule.samples, stream->batch, stream->schedule.last);
    planned->stream_bytes = stream->memory_bytes;
    planned->table_bytes = stream->sequence_bytes;
    planned->slot_bytes = (stream->memory_bytes - stream->sequence_bytes) / stream->slots;
    planned->memory_limit = status.memory_limit;
    planned->memory_used = status.memory_used;
    planned->unit_bytes =
        status.memory_limit + pipeline_seat_memory_bytes(stream->pipeline) + DAEMON_BYTES;
}

static void plan_done(struct chore *chore)
{
    struct pipeline_stream *stream =
        (struct pipeline_stream *)(void *)((char *)chore - offsetof(struct pipeline_stream, chore));
    struct pipeline_stream **at = &stream->pipeline->leaving;
    while (*at != stream)
        at = &(*at)->next_waiting;
    *at = stream->next_waiting;
    planned_fill(stream, stream->planned);
    if (!stream->closed)
        stream->owner->planned(stream->context, stream->planned);
    pipeline_stream_free(stream);
}

int pipeline_plan_begin(struct pipeline_stream *stream, struct err *reterr)
{
    stream->planned = calloc(1, sizeof *stream->planned);
    if (!stream->planned)
        return err_set(reterr, -ENOMEM, "no memory for a plan");
    stream->chore.work = plan_work;
    stream->chore.done = plan_done;
    stream->next_waiting = stream->pipeline->leaving;
    stream->pipeline->leaving = stream;
    chores_add(stream->pipeline->listers, &stream->chore);
    return 0;
}
