/* Rows: which sample stands at a position, what it is made from, what the worker and the rank are
 * told about it. Conductor role; no allocation. */
#include <string.h>

#include "base/assert.h"
#include "pipeline/pipeline_state.h"

static uint64_t sample_at(struct pipeline_stream *stream, uint32_t epoch, uint64_t position)
{
    uint32_t half = epoch & 1;
    if (!stream->permutation_known[half] || stream->permutation_epoch[half] != epoch) {
        plan_permutation_init(&stream->permutation[half], stream->dataset->config.shuffle,
                              stream->seed, epoch, stream->schedule.samples);
        stream->permutation_epoch[half] = epoch;
        stream->permutation_known[half] = true;
    }
    return plan_permutation_at(&stream->permutation[half], position);
}

/* The part that a field is made from: the first name of `from` that the sample has; part_count when
 * it has none. */
static uint32_t part_of(const struct field_spec *field, const struct source_sample *sample)
{
    for (uint32_t n = 0; n < field->from_count; n++)
        for (uint32_t p = 0; p < sample->part_count; p++)
            if (strcmp(field->from[n], sample->parts[p].name) == 0)
                return p;
    return sample->part_count;
}

uint32_t pipeline_row_file(const struct pipeline_stream *stream, const struct source_sample *sample)
{
    for (uint32_t f = 0; f < stream->dataset->field_count; f++) {
        uint32_t part = part_of(&stream->dataset->fields[f], sample);
        if (part < sample->part_count && sample->parts[part].kind == SOURCE_PART_FILE)
            return part;
    }
    return UINT32_MAX;
}

void pipeline_row_lookup(void *context, uint32_t number, uint32_t epoch, uint64_t position,
                         struct pipeline_sample *ret_sample)
{
    struct pipeline *pipeline = context;
    struct pipeline_stream *stream = pipeline->streams[number];
    struct source_sample sample;
    *ret_sample = (struct pipeline_sample){.id = sample_at(stream, epoch, position)};
    source_sample(stream->dataset->source, ret_sample->id, &sample);
    for (uint32_t f = 0; f < stream->dataset->field_count; f++) {
        uint32_t part = part_of(&stream->dataset->fields[f], &sample);
        if (part == sample.part_count) {
            ret_sample->class_number = SPDL_CLASS_INCOMPLETE;
            return;
        }
        if (sample.parts[part].kind != SOURCE_PART_FILE)
            continue;
        uint64_t bytes = sample.parts[part].bytes;
        if (bytes > pipeline->params.config->max_sample_bytes) {
            ret_sample->class_number = SPDL_CLASS_LIMIT;
            return;
        }
        ret_sample->blob_bytes =
            bytes > 0 ? bytes
                      : 1; /* an empty file is opened too: it may be missing or filled by now */
    }
}

void pipeline_row_command(const struct pipeline_stream *stream,
                          const struct pipeline_command *command,
                          struct spdl_work_command *ret_work)
{
    struct source_sample sample;
    source_sample(stream->dataset->source, command->id, &sample);
    *ret_work = (struct spdl_work_command){.ticket = command->ticket,
                                           .position = command->position,
                                           .epoch = command->epoch,
                                           .dest_count = 1,
                                           .part_count = (uint8_t)sample.part_count};
    ASSERT(sample.part_count <= SPDL_WORK_PARTS_MAX);
    ret_work->dests[0] = (struct spdl_work_dest){
        .stream = stream->number, .slot = command->slot, .row = command->row};
    for (uint32_t p = 0; p < sample.part_count; p++) {
        struct spdl_work_part *to = &ret_work->parts[p];
        switch ((enum source_part_kind)sample.parts[p].kind) {
        case SOURCE_PART_FILE:
            *to = (struct spdl_work_part){SPDL_WORK_PART_BLOB, 0, command->blob_offset,
                                          command->blob_bytes};
            break;
        case SOURCE_PART_INTEGER:
            *to = (struct spdl_work_part){SPDL_WORK_PART_INTEGER, 0,
                                          (uint64_t)sample.parts[p].value, 0};
            break;
        case SOURCE_PART_MADE_UP:
            *to = (struct spdl_work_part){SPDL_WORK_PART_MADE_UP, 0, command->id,
                                          sample.parts[p].bytes};
            break;
        }
    }
    memset(ret_work->field_part, SPDL_WORK_NO_PART, sizeof ret_work->field_part);
    for (uint32_t f = 0; f < stream->dataset->field_count; f++)
        ret_work->field_part[f] = (uint8_t)part_of(&stream->dataset->fields[f], &sample);
}

/* Words for a failure that was seen before anything was read. */
static const char *message_for(enum spdl_class class_number)
{
    if (class_number == SPDL_CLASS_LIMIT)
        return "the file is larger than limits.sample";
    if (class_number == SPDL_CLASS_INCOMPLETE)
        return "the sample has no part that the field is made from";
    if (class_number == SPDL_CLASS_CRASH)
        return "the decoder died on it twice";
    return "";
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

void pipeline_row_publish(struct pipeline_stream *stream, uint32_t slot)
{
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
        struct source_sample sample;
        pipeline_core_row(stream->pipeline->core, stream->number, slot, r, &row);
        source_sample(stream->dataset->source, row.id, &sample);
        struct sink_row shown = {.id = row.id,
                                 .key = sample.key,
                                 .key_bytes = sample.key_bytes,
                                 .class_number = row.class_number,
                                 .padded = row.padded,
                                 .message = message_for(row.class_number)};
        sink_publish_row(stream->sink, slot, r, &shown);
    }
    sink_publish_end(stream->sink, slot);
}
