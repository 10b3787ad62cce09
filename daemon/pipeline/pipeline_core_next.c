/* The conductor's core, second half: what to do next. First what streams owe (attach, publish, end,
 * detach, forget), then the next row to fetch, then the next row to decode. The stream whose rank
 * is closest to starving goes first, its oldest batch first. Pure. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "pipeline/pipeline_core_state.h"

enum {
    QUEUE_TIME_NS = 4000000, /* work handed to a worker ahead of its threads */
    QUEUE_FIRST = 4          /* rows for each thread while the cost is not known */
};

/* --- what streams owe --- */

static void slots_begin(struct pipeline_core *core, struct core_stream *stream)
{
    uint64_t limit =
        stream->params.limit ? stream->params.limit + (DEFECT(11) ? 1 : 0) : UINT64_MAX;
    for (uint32_t i = 0; i < stream->params.slot_count && stream->next_sequence < limit; i++) {
        struct core_slot *slot = &stream->slots[i];
        if (slot->state != SLOT_FREE && !(DEFECT(10) && slot->state == SLOT_HELD))
            continue;
        slot->state = SLOT_FILLING;
        slot->sequence = stream->next_sequence++;
        plan_batch_at(&stream->params.schedule, slot->sequence, &slot->batch);
        slot->rows = slot->batch.rows;
        slot->placed = slot->done = slot->fetching = slot->decoding = 0;
        slot->queue_head = slot->queue_count = slot->again_head = slot->again_count = 0;
        memset(slot->failures, 0, sizeof slot->failures);
        stream->slot_of[slot->sequence % PIPELINE_SLOTS_MAX] = (uint8_t)i;
        for (uint32_t r = 0; r < slot->rows; r++)
            slot->row[r] = (struct core_row){0};
    }
    (void)core;
}

static bool publish(struct pipeline_core *core, uint32_t number, struct pipeline_command *command)
{
    struct core_stream *stream = core->streams[number];
    if (stream->ended || stream->next_publish == stream->next_sequence)
        return false;
    uint32_t index = stream->slot_of[stream->next_publish % PIPELINE_SLOTS_MAX];
    struct core_slot *slot = &stream->slots[index];
    if (DEFECT(4) && slot->done < slot->rows && stream->next_publish + 1 < stream->next_sequence) {
        index = stream->slot_of[(stream->next_publish + 1) % PIPELINE_SLOTS_MAX];
        slot = &stream->slots[index];
    }
    if (slot->state != SLOT_FILLING || slot->done < slot->rows)
        return false;
    if (!pipeline_core_count_batch(core, number, index))
        return false;
    if (core->params.ready && !core->params.ready(core->params.context, number, index)) {
        pipeline_core_end(core, number, -ESTALE, SPDL_CLASS_CHANGED);
        return false;
    }
    slot->state = SLOT_HELD;
    if (!(DEFECT(2) && slot->sequence % 5 == 4 && stream->published == stream->next_publish))
        stream->next_publish++;
    else
        slot->state = SLOT_FILLING;
    stream->published++;
    stream->samples += slot->rows;
    *command = (struct pipeline_command){
        .kind = PIPELINE_COMMAND_PUBLISH, .stream = number, .slot = index};
    return true;
}

static bool closing_next(struct pipeline_core *core, uint32_t number,
                         struct pipeline_command *command)
{
    struct core_stream *stream = core->streams[number];
    if (stream->decodes > 0)
        return false;
    if (stream->attach == ATTACH_SENT || stream->attach == ATTACH_DONE) {
        stream->attach = ATTACH_DETACHING;
        *command = (struct pipeline_command){
            .kind = PIPELINE_COMMAND_DETACH, .stream = number, .worker = stream->params.worker};
        return true;
    }
    if (stream->attach == ATTACH_DETACHING && !DEFECT(12))
        return false;
    if (!stream->unmapped || stream->fetches > 0)
        return false;
    pipeline_core_forget(core, number);
    *command = (struct pipeline_command){.kind = PIPELINE_COMMAND_FORGET, .stream = number};
    return true;
}

static bool stream_next(struct pipeline_core *core, uint32_t number,
                        struct pipeline_command *command)
{
    struct core_stream *stream = core->streams[number];
    if (!stream->used)
        return false;
    if (stream->closing)
        return closing_next(core, number, command);
    if (!stream->started)
        return false;
    if (stream->attach == ATTACH_NONE && core->workers[stream->params.worker].up &&
        !stream->end_sent) {
        stream->attach = ATTACH_SENT;
        *command = (struct pipeline_command){
            .kind = PIPELINE_COMMAND_ATTACH, .stream = number, .worker = stream->params.worker};
        return true;
    }
    if (publish(core, number, command))
        return true;
    if (!stream->ended && stream->params.limit && stream->published == stream->params.limit)
        pipeline_core_end(core, number, 0, SPDL_CLASS_OK);
    if (stream->ended && !stream->end_sent) {
        stream->end_sent = true;
        *command = (struct pipeline_command){.kind = PIPELINE_COMMAND_END,
                                             .stream = number,
                                             .has_row = stream->end_has_row,
                                             .slot = stream->end_slot,
                                             .row = stream->end_row,
                                             .code = stream->end_code,
                                             .limit = stream->end_limit,
                                             .class_number = stream->end_class};
        return true;
    }
    if (!stream->ended)
        slots_begin(core, stream);
    return publish(core, number, command); /* a batch of no rows is done when it is begun */
}

/* --- which stream --- */

static bool before(const struct core_stream *a, const struct core_stream *b)
{
    uint64_t ready_a = a->published - a->released, ready_b = b->published - b->released;
    return ready_a != ready_b ? ready_a < ready_b : a->served < b->served;
}

static bool may_work(const struct core_stream *stream)
{
    return stream->started && !stream->ended && !stream->closing;
}

/* --- fetch --- */

_Static_assert(PIPELINE_WORKERS_MAX <= 32, "a bit for each worker");

static struct core_slot *slot_to_place(struct core_stream *stream)
{
    while (stream->place_sequence < stream->next_sequence) {
        if (stream->place_sequence >= stream->next_publish) {
            struct core_slot *slot =
                &stream->slots[stream->slot_of[stream->place_sequence % PIPELINE_SLOTS_MAX]];
            if (slot->placed < slot->rows || slot->again_count > 0)
                return slot;
        }
        stream->place_sequence++;
    }
    return NULL;
}

static void lookup(const struct pipeline_core *core, uint32_t number, const struct core_slot *slot,
                   uint32_t row, struct pipeline_sample *ret_sample)
{
    const struct plan_schedule *schedule = &core->streams[number]->params.schedule;
    struct pipeline_place place = {
        .epoch = slot->batch.epoch,
        .attempt = slot->row[row].attempt + (DEFECT(24) && slot->row[row].attempt > 0 ? 1u : 0u),
        .position = (slot->batch.first_position + row) % schedule->samples};
    core->params.lookup(core->params.context, number, &place, ret_sample);
}

/* Places rows that need no fetch, up to one that does. Returns that slot, whose next row is to be
 * fetched, with its sample. */
static struct core_slot *place_easy(struct pipeline_core *core, uint32_t number,
                                    struct pipeline_sample *ret_sample)
{
    struct core_stream *stream = core->streams[number];
    struct core_slot *slot;
    while ((slot = slot_to_place(stream)) != NULL) {
        uint32_t row = pipeline_core_row_next(slot);
        if (pipeline_core_row_is_lost(stream, slot, row)) {
            row = pipeline_core_row_take(slot);
            slot->row[row].masked = true;
            pipeline_core_row_done(core, number, slot, row, SPDL_CLASS_OK);
            continue;
        }
        lookup(core, number, slot, row, ret_sample);
        slot->row[row].id = ret_sample->id;
        if (ret_sample->class_number == SPDL_CLASS_OK && ret_sample->blob_bytes > 0)
            return slot;
        row = pipeline_core_row_take(slot);
        if (ret_sample->class_number != SPDL_CLASS_OK)
            pipeline_core_row_done(core, number, slot, row, ret_sample->class_number);
        else
            pipeline_core_row_ready(slot, row);
    }
    return NULL;
}

static bool fetch_of(struct pipeline_core *core, uint32_t number, struct pipeline_command *command)
{
    struct core_stream *stream = core->streams[number];
    struct pipeline_sample sample;
    struct core_slot *slot = place_easy(core, number, &sample);
    if (!slot) {
        stream->memory_wait = false;
        return false;
    }
    struct core_worker *worker = &core->workers[stream->params.worker];
    uint64_t offset = 0, blob_bytes = sample.in_place ? 0 : sample.blob_bytes;
    /* Not the sample's fault: it fits into the memory of another daemon. */
    if (blob_bytes > worker->arena.bytes) {
        stream->end_has_row = true;
        stream->end_slot = (uint32_t)(slot - stream->slots);
        stream->end_row = pipeline_core_row_next(slot);
        pipeline_core_end(core, number, -ENOSPC, SPDL_CLASS_RESOURCE);
        return false;
    }
    stream->memory_wait = false;
    if (blob_bytes > 0 && pipeline_core_blob_take(core, stream, blob_bytes, &offset) < 0)
        return false;
    struct core_op *op = pipeline_core_op_take(core, stream->params.worker);
    uint32_t row = pipeline_core_row_take(slot);
    slot->fetching++;
    slot->row[row].state = ROW_FETCHING;
    slot->row[row].blob_offset = offset;
    slot->row[row].blob_bytes = blob_bytes;
    op->kind = CORE_OP_FETCH;
    op->orphan = false;
    op->stream = number;
    op->slot = (uint32_t)(slot - stream->slots);
    op->row = row;
    op->blob_offset = offset;
    op->blob_bytes = blob_bytes;
    op->in_place = sample.in_place;
    worker->fetching++;
    stream->fetches++;
    stream->served = ++core->turn;
    *command = (struct pipeline_command){.kind = PIPELINE_COMMAND_FETCH,
                                         .stream = number,
                                         .slot = op->slot,
                                         .row = row,
                                         .ticket = pipeline_core_ticket(core, op),
                                         .id = sample.id,
                                         .epoch = slot->batch.epoch,
                                         .position = slot->batch.first_position + row,
                                         .blob_offset = offset,
                                         .blob_bytes = blob_bytes,
                                         .in_place = sample.in_place};
    return true;
}

/* The most urgent stream that has a row to place and a share left. blocked: workers whose most
 * urgent stream waits for memory. */
static struct core_stream *fetch_best(const struct pipeline_core *core, uint32_t blocked,
                                      uint32_t *ret_number)
{
    struct core_stream *best = NULL;
    for (uint32_t i = 0; i < core->active_count; i++) {
        struct core_stream *stream = core->streams[core->active[i]];
        if (!may_work(stream) || (blocked >> stream->params.worker & 1) ||
            !pipeline_core_may_fetch(core, stream) || !slot_to_place(stream) ||
            (best && !before(stream, best)))
            continue;
        best = stream;
        *ret_number = core->active[i];
    }
    return best;
}

static bool fetch_next(struct pipeline_core *core, struct pipeline_command *command)
{
    uint32_t blocked = 0, number = 0;
    struct core_stream *best;
    while ((best = fetch_best(core, blocked, &number)) != NULL) {
        if (fetch_of(core, number, command))
            return true;
        if (best->ended) /* that is said first, before its room is given to another */
            return false;
        /* One that has nothing in memory keeps its place at the door; one that has its share lets
         * the others pass. Where neither is so its rows needed no fetch and are placed now. */
        if (best->memory_wait && best->blob_bytes == 0)
            blocked |= DEFECT(32) ? UINT32_MAX : 1u << best->params.worker;
    }
    return false;
}

/* --- decode --- */

static uint32_t queue_room(const struct pipeline_core *core, const struct core_worker *worker)
{
    uint64_t threads = core->params.threads;
    uint64_t depth =
        worker->cost_ns ? threads * (QUEUE_TIME_NS / worker->cost_ns) : threads * QUEUE_FIRST;
    if (depth < 2 * threads)
        depth = 2 * threads;
    if (depth > PIPELINE_QUEUE_MAX)
        depth = PIPELINE_QUEUE_MAX;
    return depth > worker->decodes ? (uint32_t)depth - worker->decodes : 0;
}

static struct core_slot *slot_to_decode(struct core_stream *stream)
{
    for (uint64_t k = stream->next_publish; k < stream->next_sequence; k++) {
        struct core_slot *slot = &stream->slots[stream->slot_of[k % PIPELINE_SLOTS_MAX]];
        if (slot->queue_count > 0)
            return slot;
    }
    return NULL;
}

/* A suspect waits until its worker has nothing else, and nothing else is handed over until it is
 * done. */
static bool must_wait(const struct core_worker *worker, const struct core_row *row)
{
    return worker->alone || (row->crashes > 0 && worker->decodes > 0 && !DEFECT(13));
}

static void decode_of(struct pipeline_core *core, uint32_t number, struct core_slot *slot,
                      struct pipeline_command *command)
{
    struct core_stream *stream = core->streams[number];
    struct core_worker *worker = &core->workers[stream->params.worker];
    uint32_t row = slot->queue[slot->queue_head];
    slot->queue_head = (slot->queue_head + 1) % slot->rows;
    slot->queue_count--;
    struct core_op *op = pipeline_core_op_take(core, stream->params.worker);
    slot->row[row].state = ROW_DECODING;
    slot->decoding++;
    op->kind = CORE_OP_DECODE;
    op->orphan = false;
    op->stream = number;
    op->slot = (uint32_t)(slot - stream->slots);
    op->row = row;
    worker->alone = slot->row[row].crashes > 0;
    worker->decodes++;
    stream->decodes++;
    stream->served = ++core->turn;
    *command = (struct pipeline_command){.kind = PIPELINE_COMMAND_DECODE,
                                         .stream = number,
                                         .slot = op->slot,
                                         .row = row,
                                         .worker = op->worker,
                                         .ticket = pipeline_core_ticket(core, op),
                                         .id = slot->row[row].id,
                                         .epoch = slot->batch.epoch,
                                         .position = slot->batch.first_position + row +
                                                     (DEFECT(25) ? slot->row[row].attempt : 0),
                                         .blob_offset = slot->row[row].blob_offset,
                                         .blob_bytes = slot->row[row].blob_bytes};
    if (DEFECT(7))
        pipeline_core_blob_drop(core, stream, &slot->row[row]);
}

/* The most urgent stream that has a row to decode and whose worker takes one. blocked: workers
 * that take none now. */
static struct core_slot *decode_best(struct pipeline_core *core, uint32_t blocked,
                                     uint32_t *ret_number)
{
    struct core_slot *best = NULL;
    for (uint32_t i = 0; i < core->active_count; i++) {
        struct core_stream *stream = core->streams[core->active[i]];
        uint32_t worker = stream->params.worker;
        if (!may_work(stream) || stream->attach != ATTACH_DONE || (blocked >> worker & 1) ||
            queue_room(core, &core->workers[worker]) == 0)
            continue;
        if (best && !before(stream, core->streams[*ret_number]))
            continue;
        struct core_slot *slot = slot_to_decode(stream);
        if (!slot)
            continue;
        best = slot;
        *ret_number = core->active[i];
    }
    return best;
}

static bool decode_next(struct pipeline_core *core, struct pipeline_command *command)
{
    uint32_t blocked = 0, number = 0;
    struct core_slot *slot;
    while ((slot = decode_best(core, blocked, &number)) != NULL) {
        uint32_t worker = core->streams[number]->params.worker;
        if (!must_wait(&core->workers[worker], &slot->row[slot->queue[slot->queue_head]])) {
            decode_of(core, number, slot, command);
            return true;
        }
        if (DEFECT(14))
            return false;
        blocked |= 1u << worker; /* it empties itself for a suspect; the others go on */
    }
    return false;
}

bool pipeline_core_next(struct pipeline_core *core, struct pipeline_command *ret_command)
{
    for (;;) {
        while (core->dirty_count > 0) {
            uint32_t number = core->dirty[core->dirty_head];
            if (stream_next(core, number, ret_command))
                return true;
            core->streams[number]->dirty = false;
            core->dirty_head = (core->dirty_head + 1) % PIPELINE_STREAMS_MAX;
            core->dirty_count--;
        }
        if (fetch_next(core, ret_command))
            return true;
        if (core->dirty_count > 0) /* placing rows may have finished a batch */
            continue;
        return decode_next(core, ret_command);
    }
}
