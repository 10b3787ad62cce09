/* The conductor's core and failed samples: which row is placed again with a substitute, what is
 * counted, and which limit ends a stream. Pure. */
#include <errno.h>
#include <stddef.h>

#include "pipeline/pipeline_core_state.h"

/* --- rows that end --- */

bool pipeline_core_row_is_lost(const struct core_stream *stream, const struct core_slot *slot,
                               uint32_t row)
{
    return stream->lost && (slot->sequence > stream->lost_sequence ||
                            (slot->sequence == stream->lost_sequence && row > stream->lost_row));
}

/* The sample of the row failed: true when the next substitute is to be tried. */
static bool goes_again(struct core_stream *stream, const struct core_slot *slot, uint32_t number)
{
    const struct core_row *row = &slot->row[number];
    if (stream->params.policy != PIPELINE_POLICY_SUBSTITUTE ||
        pipeline_core_row_is_lost(stream, slot, number))
        return false;
    if (row->attempt < stream->params.max_consecutive - (DEFECT(17) ? 1 : 0))
        return true;
    stream->lost = true;
    stream->lost_sequence = slot->sequence;
    stream->lost_row = number;
    return false;
}

static void place_again(struct core_stream *stream, struct core_slot *slot, uint32_t number)
{
    struct core_row *row = &slot->row[number];
    row->attempt++;
    row->state = ROW_IDLE;
    if (!DEFECT(18))
        row->crashes = 0;
    slot->again[(slot->again_head + slot->again_count++) % slot->rows] = number;
    if (stream->place_sequence > slot->sequence && !DEFECT(19))
        stream->place_sequence = slot->sequence;
}

void pipeline_core_row_done(struct pipeline_core *core, uint32_t number, struct core_slot *slot,
                            uint32_t row_number, enum spdl_class class_number)
{
    struct core_stream *stream = core->streams[number];
    struct core_row *row = &slot->row[row_number];
    pipeline_core_blob_drop(core, stream, row);
    if (class_number != SPDL_CLASS_OK) {
        slot->failures[class_number] += DEFECT(20) && row->attempt == 1 ? 2 : 1;
        if (row->attempt == 0 || DEFECT(21)) {
            row->failed_id = row->id;
            row->class_number = (uint8_t)class_number;
        }
        if (pipeline_is_content(class_number) && goes_again(stream, slot, row_number)) {
            place_again(stream, slot, row_number);
            return;
        }
        row->masked = true;
    }
    row->state = ROW_DONE;
    slot->done++;
    if (slot->done == slot->rows)
        pipeline_core_touch(core, number);
}

uint32_t pipeline_core_row_take(struct core_slot *slot)
{
    if (slot->again_count == 0)
        return slot->placed++;
    uint32_t row = slot->again[slot->again_head];
    slot->again_head = (slot->again_head + 1) % slot->rows;
    slot->again_count--;
    return row;
}

uint32_t pipeline_core_row_next(const struct core_slot *slot)
{
    return slot->again_count > 0 ? slot->again[slot->again_head] : slot->placed;
}

/* --- limits --- */

/* Counts one more row for the limits. Returns the limit that is passed by it. */
static enum pipeline_limit row_count(struct core_stream *stream, const struct core_row *row)
{
    const struct pipeline_stream_params *params = &stream->params;
    bool failed = row->class_number != SPDL_CLASS_OK;
    stream->counted_rows++;
    stream->shown_rows += !row->masked;
    stream->consecutive_rows = failed ? stream->consecutive_rows + 1 : 0;
    if (!failed)
        return PIPELINE_LIMIT_NONE;
    stream->failed_rows++;
    stream->failed_classes[row->class_number]++;
    if (params->policy == PIPELINE_POLICY_FAIL)
        return PIPELINE_LIMIT_FIRST;
    if (params->policy == PIPELINE_POLICY_SUBSTITUTE && row->masked)
        return PIPELINE_LIMIT_ATTEMPTS;
    if (stream->consecutive_rows > params->max_consecutive + (DEFECT(22) ? 1 : 0))
        return PIPELINE_LIMIT_CONSECUTIVE;
    return PIPELINE_LIMIT_NONE;
}

static bool rate_is_passed(const struct pipeline_core *core, const struct core_stream *stream)
{
    return stream->counted_rows + (DEFECT(23) ? 1 : 0) >= core->params.rate_rows &&
           stream->failed_rows * PIPELINE_RATE_UNIT + (DEFECT(26) ? 1 : 0) >
               stream->params.max_rate * stream->counted_rows;
}

enum spdl_class pipeline_core_most_class(const struct core_stream *stream)
{
    uint32_t most = 0;
    for (uint32_t i = 1; i < SPDL_CLASS_COUNT; i++)
        if (stream->failed_classes[i] > stream->failed_classes[most])
            most = i;
    return (enum spdl_class)most;
}

bool pipeline_core_count_batch(struct pipeline_core *core, uint32_t number, uint32_t index)
{
    struct core_stream *stream = core->streams[number];
    const struct core_slot *slot = &stream->slots[index];
    for (uint32_t i = 0; i < SPDL_CLASS_COUNT; i++)
        stream->failures[i] += slot->failures[i];
    for (uint32_t r = 0; r < slot->rows; r++) {
        enum pipeline_limit limit = row_count(stream, &slot->row[r]);
        if (limit == PIPELINE_LIMIT_NONE && rate_is_passed(core, stream))
            limit = PIPELINE_LIMIT_RATE;
        if (limit == PIPELINE_LIMIT_NONE)
            continue;
        enum spdl_class class_number = pipeline_core_most_class(stream);
        if (limit == PIPELINE_LIMIT_FIRST)
            class_number = (enum spdl_class)slot->row[r].class_number;
        else if (limit == PIPELINE_LIMIT_ATTEMPTS || stream->shown_rows == 0)
            class_number = SPDL_CLASS_ALL_FAILED;
        stream->end_limit = limit;
        stream->end_has_row = true;
        stream->end_slot = index;
        stream->end_row = r;
        pipeline_core_end(core, number, -EBADMSG, class_number);
        return false;
    }
    return true;
}
