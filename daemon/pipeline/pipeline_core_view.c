/* What the conductor's core says of itself: slots, rows, streams, and why a stream waits. Pure. */
#include "pipeline/pipeline_core_state.h"

void pipeline_core_slot(const struct pipeline_core *core, uint32_t stream, uint32_t slot,
                        struct pipeline_slot_view *ret_view)
{
    const struct core_slot *s = &core->streams[stream]->slots[slot];
    *ret_view = (struct pipeline_slot_view){.sequence = s->sequence, .batch = s->batch};
}

void pipeline_core_row(const struct pipeline_core *core, uint32_t stream, uint32_t slot,
                       uint32_t row, struct pipeline_row_view *ret_view)
{
    const struct core_stream *st = core->streams[stream];
    const struct core_slot *s = &st->slots[slot];
    uint64_t position = s->batch.first_position + row;
    bool failed = s->row[row].class_number != SPDL_CLASS_OK;
    *ret_view =
        (struct pipeline_row_view){.id = s->row[row].id,
                                   .failed_id = failed ? s->row[row].failed_id : s->row[row].id,
                                   .position = position,
                                   .attempt = s->row[row].attempt,
                                   .class_number = (enum spdl_class)s->row[row].class_number,
                                   .masked = s->row[row].masked,
                                   .padded = position >= st->params.schedule.samples};
}

enum pipeline_reason pipeline_core_reason(const struct pipeline_core *core, uint32_t number)
{
    const struct core_stream *stream = core->streams[number];
    if (stream->ended || stream->closing)
        return PIPELINE_REASON_NONE;
    if (stream->next_publish == stream->next_sequence || stream->published - stream->released >= 2)
        return PIPELINE_REASON_RANK;
    const struct core_slot *slot =
        &stream->slots[stream->slot_of[stream->next_publish % PIPELINE_SLOTS_MAX]];
    if (stream->attach != ATTACH_DONE)
        return PIPELINE_REASON_OPENING;
    bool is_read = slot->fetching > 0 && slot->queue_count == 0 && slot->decoding == 0;
    if (is_read && slot->placed == slot->rows) /* nothing but that holds it up */
        return PIPELINE_REASON_READS;
    if (core->workers[stream->params.worker].decodes >= core->params.threads)
        return PIPELINE_REASON_DECODE;
    if (stream->memory_wait)
        return PIPELINE_REASON_MEMORY;
    if (slot->fetching > 0 || slot->placed < slot->rows || slot->again_count > 0)
        return PIPELINE_REASON_READS;
    return PIPELINE_REASON_DECODE;
}

void pipeline_core_stream(const struct pipeline_core *core, uint32_t number,
                          struct pipeline_stream_view *ret_view)
{
    const struct core_stream *stream = core->streams[number];
    *ret_view = (struct pipeline_stream_view){.published = stream->published,
                                              .released = stream->released,
                                              .next_sequence = stream->next_sequence,
                                              .reason = pipeline_core_reason(core, number),
                                              .samples = stream->samples,
                                              .counted_rows = stream->counted_rows,
                                              .failed_rows = stream->failed_rows,
                                              .consecutive_rows = stream->consecutive_rows,
                                              .most_class = pipeline_core_most_class(stream),
                                              .memory_bytes = stream->params.memory_bytes,
                                              .ended = stream->ended};
    for (uint32_t i = 0; i < stream->params.slot_count; i++) {
        ret_view->free_slots += stream->slots[i].state == SLOT_FREE;
        ret_view->held_slots += stream->slots[i].state == SLOT_HELD;
    }
    plan_batch_at(&stream->params.schedule, stream->next_publish, &ret_view->next_batch);
    for (uint32_t i = 0; i < SPDL_CLASS_COUNT; i++)
        ret_view->failures[i] = stream->failures[i];
    ret_view->most_rows = stream->failed_classes[ret_view->most_class];
}

uint64_t pipeline_core_memory_used(const struct pipeline_core *core)
{
    return core->memory_used;
}

uint64_t pipeline_core_arena_used(const struct pipeline_core *core, uint32_t worker)
{
    return core->workers[worker].arena.used_bytes;
}

uint32_t pipeline_core_fetching(const struct pipeline_core *core, uint32_t worker)
{
    return core->workers[worker].fetching;
}

uint32_t pipeline_core_decoding(const struct pipeline_core *core, uint32_t worker)
{
    return core->workers[worker].decodes;
}

uint32_t pipeline_core_cost_ns(const struct pipeline_core *core, uint32_t worker)
{
    return (uint32_t)core->workers[worker].cost_ns;
}
