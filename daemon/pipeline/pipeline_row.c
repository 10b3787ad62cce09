/* Rows: which sample stands at a position, what it is made from, what the worker and the rank are
 * told about it. Conductor role; no allocation. */
#include <stdio.h>
#include <string.h>

#include "pipeline/pipeline_state.h"

enum { MESSAGE_BYTES = 256 };

const char *pipeline_row_message(enum spdl_class class_number)
{
    if (class_number == SPDL_CLASS_LIMIT)
        return "the file is larger than limits.sample";
    if (class_number == SPDL_CLASS_CRASH)
        return "the decoder died on it twice";
    return "";
}

/* The same for a row that cannot be made, as its recipe says; `space` is for a sentence. */
static const char *recipe_message(const struct pipeline_dataset *dataset,
                                  const struct pipeline_recipe *recipe, char space[MESSAGE_BYTES])
{
    if (recipe->class_number != SPDL_CLASS_INCOMPLETE)
        return pipeline_row_message(recipe->class_number);
    field_missing_text(&dataset->fields[recipe->missing_field], space, MESSAGE_BYTES);
    return space;
}

/* The sample at the position; those that follow are made ready where the source can do that: they
 * lie anywhere in an index that is larger than any cache. */
static uint64_t sample_at_ahead(struct pipeline_stream *stream, uint32_t epoch, uint64_t position)
{
    const struct source *source = stream->dataset->source;
    struct stream_ahead *ahead = &stream->ahead[position % PIPELINE_AHEAD];
    uint64_t id = ahead->known && ahead->position == position && ahead->epoch == epoch
                      ? ahead->id
                      : plan_sequence_at(stream->sequence, epoch, position);
    uint64_t far = position + PIPELINE_AHEAD;
    if (far < stream->schedule.samples) {
        *ahead = (struct stream_ahead){.position = far,
                                       .id = plan_sequence_at(stream->sequence, epoch, far),
                                       .epoch = epoch,
                                       .known = true};
        source_warm(source, ahead->id, SOURCE_FAR);
    }
    ahead = &stream->ahead[(position + PIPELINE_AHEAD / 2) % PIPELINE_AHEAD];
    if (ahead->known && ahead->position == position + PIPELINE_AHEAD / 2 && ahead->epoch == epoch)
        source_warm(source, ahead->id, SOURCE_NEAR);
    return id;
}

const struct pipeline_looked *pipeline_row_look(struct pipeline_stream *stream, uint64_t id)
{
    struct pipeline_looked *looked = &stream->pipeline->looked;
    if (looked->dataset == stream->dataset && looked->id == id)
        return looked;
    looked->dataset = stream->dataset;
    looked->id = id;
    source_sample(stream->dataset->source, id, &looked->sample);
    pipeline_recipe_make(stream, &looked->sample, &looked->recipe);
    return looked;
}

void pipeline_row_lookup(void *context, uint32_t number, const struct pipeline_place *place,
                         struct pipeline_sample *ret_sample)
{
    struct pipeline *pipeline = context;
    struct pipeline_stream *stream = pipeline->streams[number];
    uint64_t id;
    if (place->attempt > 0)
        id = plan_substitute(stream->seed, place->epoch, stream->schedule.samples, place->position,
                             place->attempt);
    else if (source_warms(stream->dataset->source))
        id = sample_at_ahead(stream, place->epoch, place->position);
    else
        id = plan_sequence_at(stream->sequence, place->epoch, place->position);
    const struct pipeline_recipe *recipe = &pipeline_row_look(stream, id)->recipe;
    *ret_sample = (struct pipeline_sample){.id = id,
                                           .blob_bytes = recipe->blob_bytes,
                                           .in_place = recipe->in_place,
                                           .class_number = recipe->class_number};
    char space[MESSAGE_BYTES];
    if (recipe->class_number != SPDL_CLASS_OK) /* such a row is looked up once */
        pipeline_dataset_failed(stream->dataset, id, recipe->class_number, UINT64_MAX,
                                recipe_message(stream->dataset, recipe, space));
}

void pipeline_row_command(const struct pipeline_stream *stream,
                          const struct pipeline_command *command,
                          struct spdl_work_command *ret_work)
{
    struct source_sample sample;
    struct pipeline_recipe recipe;
    bool may_stop = pipeline_seen_is(stream->dataset->seen, command->id);
    stream->dataset->short_rows += may_stop;
    source_sample(stream->dataset->source, command->id, &sample);
    pipeline_recipe_make(stream, &sample, &recipe);
    if (recipe.class_number != SPDL_CLASS_OK || recipe.blob_bytes != command->blob_bytes)
        recipe.part_count = 0; /* other than for its read: the list is damaged */
    *ret_work = (struct spdl_work_command){.ticket = command->ticket,
                                           .position = command->position,
                                           .epoch = command->epoch,
                                           .flags = may_stop ? SPDL_WORK_MAY_STOP_EARLY : 0,
                                           .dest_count = 1,
                                           .part_count = (uint8_t)recipe.part_count};
    ret_work->dests[0] = (struct spdl_work_dest){
        .stream = stream->number, .slot = command->slot, .row = command->row};
    for (uint32_t p = 0; p < recipe.part_count; p++) {
        const struct source_part *from = recipe.parts[p];
        struct spdl_work_part *to = &ret_work->parts[p];
        switch ((enum source_part_kind)from->kind) {
        case SOURCE_PART_FILE:
            *to = (struct spdl_work_part){SPDL_WORK_PART_BLOB, from->escape,
                                          command->blob_offset + recipe.blob_at[p], from->bytes};
            break;
        case SOURCE_PART_INTEGER:
            *to = (struct spdl_work_part){SPDL_WORK_PART_INTEGER, 0, (uint64_t)from->value, 0};
            break;
        case SOURCE_PART_MADE_UP:
            *to = (struct spdl_work_part){SPDL_WORK_PART_MADE_UP, 0, command->id, from->bytes};
            break;
        }
    }
    memset(ret_work->field_part, SPDL_WORK_NO_PART, sizeof ret_work->field_part);
    if (recipe.part_count > 0)
        memcpy(ret_work->field_part, recipe.field_part, stream->dataset->field_count);
}

static void state_text(const struct pipeline_stream *stream, const struct plan_batch *batch,
                       char text[PLAN_STATE_TEXT_BYTES])
{
    struct plan_state state = {.format = PLAN_STATE_FORMAT,
                               .decode_version = PLAN_DECODE_VERSION,
                               .plan_id = stream->plan_id,
                               .seed = stream->seed,
                               .epoch = batch->next_epoch,
                               .position = batch->next_position,
                               .step = batch->next_step,
                               .batch = stream->batch};
    plan_state_encode(&state, text);
}

bool pipeline_row_ready(void *context, uint32_t number, uint32_t slot)
{
    struct pipeline *pipeline = context;
    struct pipeline_stream *stream = pipeline->streams[number];
    struct pipeline_slot_view view;
    pipeline_core_slot(stream->pipeline->core, stream->number, slot, &view);
    state_text(stream, &view.batch, stream->last_state);
    struct sink_batch batch = {.sequence = view.sequence,
                               .epoch = view.batch.epoch,
                               .next_epoch = view.batch.next_epoch,
                               .step = view.batch.step,
                               .position = view.batch.position,
                               .next_step = view.batch.next_step,
                               .next_position = view.batch.next_position,
                               .rows = view.batch.rows,
                               .state = stream->last_state};
    sink_publish_begin(stream->sink, slot, &batch);
    for (uint32_t r = 0; r < batch.rows; r++) {
        struct pipeline_row_view row;
        struct source_sample sample, failed;
        pipeline_core_row(stream->pipeline->core, stream->number, slot, r, &row);
        source_sample(stream->dataset->source, row.id, &sample);
        failed.key = NULL;
        failed.key_bytes = 0;
        if (row.attempt > 0)
            source_sample(stream->dataset->source, row.failed_id, &failed);
        const char *message = pipeline_row_message(row.class_number);
        char space[MESSAGE_BYTES];
        if (row.class_number == SPDL_CLASS_INCOMPLETE) {
            struct pipeline_recipe recipe;
            pipeline_recipe_make(stream, row.attempt > 0 ? &failed : &sample, &recipe);
            message = recipe_message(stream->dataset, &recipe, space);
        }
        struct sink_row shown = {.id = row.id,
                                 .key = sample.key,
                                 .key_bytes = sample.key_bytes,
                                 .failed_id = row.failed_id,
                                 .failed_key = failed.key,
                                 .failed_key_bytes = failed.key_bytes,
                                 .class_number = row.class_number,
                                 .attempt = row.attempt,
                                 .masked = row.masked,
                                 .padded = row.padded,
                                 .message = message};
        sink_publish_row(stream->sink, slot, r, &shown);
    }
    /* Asked behind the last look at the list for this batch. */
    const char *damaged = pipeline_dataset_damaged(stream->dataset);
    if (damaged)
        snprintf(stream->end_message, sizeof stream->end_message,
                 "the index file %.300s was cut or written over while it was in use; open the "
                 "stream again: it is then made anew",
                 damaged);
    return !damaged;
}
