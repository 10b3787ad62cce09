/* The conductor's core, first half: streams come and go, events are checked against what is
 * outstanding and change the state. Pure. Owner of everything here: the conductor. */
#include "pipeline/pipeline_core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "pipeline/pipeline_core_state.h"

struct pipeline_core *pipeline_core_create(const struct pipeline_core_params *params)
{
    struct pipeline_core *core = calloc(1, sizeof *core);
    if (!core)
        return NULL;
    core->params = *params;
    return core;
}

static void stream_fini(struct core_stream *stream)
{
    for (uint32_t i = 0; i < stream->params.slot_count; i++) {
        free(stream->slots[i].queue);
        free(stream->slots[i].again);
        free(stream->slots[i].row);
    }
    *stream = (struct core_stream){.dirty = stream->dirty}; /* it may stand in the ring once more */
}

void pipeline_core_destroy(struct pipeline_core *core)
{
    if (!core)
        return;
    for (uint32_t i = 0; i < PIPELINE_STREAMS_MAX; i++) {
        if (core->streams[i])
            stream_fini(core->streams[i]);
        free(core->streams[i]);
    }
    for (uint32_t i = 0; i < PIPELINE_WORKERS_MAX; i++) {
        pipeline_arena_fini(&core->workers[i].arena);
        free(core->workers[i].ops);
    }
    free(core);
}

void pipeline_core_touch(struct pipeline_core *core, uint32_t stream)
{
    if (core->streams[stream]->dirty)
        return;
    core->streams[stream]->dirty = true;
    core->dirty[(core->dirty_head + core->dirty_count++) % PIPELINE_STREAMS_MAX] = stream;
}

static int stream_init(struct core_stream *stream, const struct pipeline_stream_params *params)
{
    *stream = (struct core_stream){.params = *params, .dirty = stream->dirty};
    stream->row_room = (uint32_t)(params->schedule.batch / params->schedule.world);
    for (uint32_t i = 0; i < params->slot_count; i++) {
        stream->slots[i].queue = calloc(stream->row_room, sizeof *stream->slots[i].queue);
        stream->slots[i].again = calloc(stream->row_room, sizeof *stream->slots[i].again);
        stream->slots[i].row = calloc(stream->row_room, sizeof *stream->slots[i].row);
        if (!stream->slots[i].queue || !stream->slots[i].again || !stream->slots[i].row) {
            stream_fini(stream);
            return -ENOMEM;
        }
    }
    stream->used = true;
    return 0;
}

uint64_t pipeline_core_stream_bytes(uint32_t slot_count, uint64_t rows)
{
    const struct core_slot *slot = NULL;
    uint64_t row_bytes = sizeof *slot->row + sizeof *slot->queue + sizeof *slot->again;
    return slot_count * rows * row_bytes + sizeof(struct core_stream);
}

int pipeline_core_open(struct pipeline_core *core, const struct pipeline_stream_params *params,
                       uint32_t *ret_stream, uint64_t *ret_free_bytes)
{
    if (params->slot_count < 2 || params->slot_count > PIPELINE_SLOTS_MAX ||
        params->worker >= PIPELINE_WORKERS_MAX || !core->workers[params->worker].open ||
        params->max_consecutive == 0 || params->schedule.world == 0 ||
        params->schedule.batch / params->schedule.world > PIPELINE_ROWS_MAX ||
        params->schedule.batch % params->schedule.world != 0 || params->schedule.batch == 0)
        return -EINVAL;
    *ret_free_bytes = core->memory_used < core->params.memory_bytes
                          ? core->params.memory_bytes - core->memory_used
                          : 0;
    if (params->memory_bytes > *ret_free_bytes)
        return -ENOSPC;
    uint32_t number = 0;
    while (number < PIPELINE_STREAMS_MAX && core->streams[number] && core->streams[number]->used)
        number++;
    if (number == PIPELINE_STREAMS_MAX)
        return -EMFILE;
    if (!core->streams[number])
        core->streams[number] = calloc(1, sizeof **core->streams);
    if (!core->streams[number] || stream_init(core->streams[number], params) < 0)
        return -ENOMEM;
    core->memory_used += params->memory_bytes;
    core->workers[params->worker].streams++;
    core->active[core->active_count++] = number;
    pipeline_core_touch(core, number);
    *ret_stream = number;
    return 0;
}

void pipeline_core_forget(struct pipeline_core *core, uint32_t number)
{
    struct core_stream *stream = core->streams[number];
    core->memory_used -= stream->params.memory_bytes;
    core->workers[stream->params.worker].streams--;
    for (uint32_t i = 0; i < core->active_count; i++)
        if (core->active[i] == number) {
            core->active[i] = core->active[--core->active_count];
            break;
        }
    stream_fini(stream);
}

static struct pipeline_row_ref op_ref(const struct pipeline_core *core, const struct core_op *op)
{
    struct pipeline_row_ref ref = {
        .stream = op->stream, .slot = op->slot, .row = op->row, .orphan = op->orphan};
    if (!op->orphan) {
        const struct core_row *row = &core->streams[op->stream]->slots[op->slot].row[op->row];
        ref.attempt = row->attempt;
        ref.id = row->id;
    }
    return ref;
}

int pipeline_core_ticket_ref(const struct pipeline_core *core, uint64_t ticket,
                             struct pipeline_row_ref *ret_ref)
{
    const struct core_op *op = pipeline_core_op_find(core, ticket);
    if (!op)
        return -EPROTO;
    *ret_ref = op_ref(core, op);
    return 0;
}

void pipeline_core_blob_drop(struct pipeline_core *core, struct core_stream *stream,
                             struct core_row *row)
{
    if (row->blob_bytes > 0)
        pipeline_core_blob_give(core, stream, row->blob_offset, row->blob_bytes);
    row->blob_bytes = 0;
}

void pipeline_core_row_ready(struct core_slot *slot, uint32_t row)
{
    slot->row[row].state = ROW_READY;
    slot->queue[(slot->queue_head + slot->queue_count++) % slot->rows] = row;
}

/* Nothing more is made of the stream: what is in flight becomes an orphan, what only waits is
 * dropped. */
static void stream_cancel(struct pipeline_core *core, uint32_t number)
{
    struct core_stream *stream = core->streams[number];
    for (uint32_t i = 0; i < PIPELINE_OPS_MAX && stream->fetches + stream->decodes > 0; i++) {
        struct core_op *op = &core->workers[stream->params.worker].ops[i];
        if (op->kind == CORE_OP_FREE || op->stream != number)
            continue;
        struct core_row *row = &stream->slots[op->slot].row[op->row];
        op->orphan = true;
        op->blob_offset = row->blob_offset;
        op->blob_bytes = row->blob_bytes;
        row->blob_bytes = 0; /* the operation owns it now */
    }
    for (uint32_t i = 0; i < stream->params.slot_count; i++)
        for (uint32_t r = 0; stream->slots[i].state == SLOT_FILLING && r < stream->slots[i].rows;
             r++)
            pipeline_core_blob_drop(core, stream, &stream->slots[i].row[r]);
}

void pipeline_core_end(struct pipeline_core *core, uint32_t number, int code,
                       enum spdl_class class_number)
{
    struct core_stream *stream = core->streams[number];
    if (stream->ended)
        return;
    stream->ended = true;
    stream->end_code = code;
    stream->end_class = class_number;
    stream_cancel(core, number);
    pipeline_core_touch(core, number);
}

static int feed_fetched(struct pipeline_core *core, const struct pipeline_event *event,
                        struct pipeline_row_ref *ref)
{
    struct core_op *op = pipeline_core_op_find(core, event->ticket);
    if (!op || op->kind != CORE_OP_FETCH || (unsigned)event->class_number >= SPDL_CLASS_COUNT)
        return -EPROTO;
    struct core_stream *stream = core->streams[op->stream];
    *ref = op_ref(core, op);
    core->workers[op->worker].fetching--;
    stream->fetches--;
    if (op->orphan) {
        if (op->blob_bytes > 0 && !DEFECT(6))
            pipeline_core_blob_give(core, stream, op->blob_offset, op->blob_bytes);
        pipeline_core_touch(core, op->stream);
    } else {
        struct core_slot *slot = &stream->slots[op->slot];
        slot->fetching--;
        if (event->class_number == SPDL_CLASS_OK && !(op->in_place && !DEFECT(27)))
            pipeline_core_row_ready(slot, op->row);
        else
            pipeline_core_row_done(core, op->stream, slot, op->row, event->class_number);
    }
    pipeline_core_op_give(core, op);
    return 0;
}

static int feed_decoded(struct pipeline_core *core, const struct pipeline_event *event,
                        struct pipeline_row_ref *ref)
{
    struct core_op *op = pipeline_core_op_find(core, event->ticket);
    if (!op || op->kind != CORE_OP_DECODE || op->worker != event->worker ||
        (unsigned)event->class_number >= SPDL_CLASS_COUNT)
        return -EPROTO;
    struct core_worker *worker = &core->workers[op->worker];
    struct core_stream *stream = core->streams[op->stream];
    *ref = op_ref(core, op);
    worker->decodes--;
    worker->alone = false;
    worker->deaths = 0;
    worker->cost_ns =
        worker->cost_ns ? (worker->cost_ns * 15 + event->cost_ns) / 16 : event->cost_ns;
    stream->decodes--;
    if (op->orphan) {
        if (op->blob_bytes > 0)
            pipeline_core_blob_give(core, stream, op->blob_offset, op->blob_bytes);
        pipeline_core_touch(core, op->stream);
    } else {
        struct core_slot *slot = &stream->slots[op->slot];
        slot->decoding--;
        pipeline_core_row_done(core, op->stream, slot, op->row, event->class_number);
    }
    pipeline_core_op_give(core, op);
    return 0;
}

static int feed_release(struct pipeline_core *core, const struct pipeline_event *event,
                        struct pipeline_row_ref *ref)
{
    struct core_stream *stream = core->streams[event->stream];
    for (uint32_t i = 0; i < stream->params.slot_count; i++) {
        struct core_slot *slot = &stream->slots[i];
        if (slot->state != SLOT_HELD || (slot->sequence != event->sequence && !DEFECT(3)))
            continue;
        stream->released++;
        *ref = (struct pipeline_row_ref){.stream = event->stream, .slot = i};
        if (!(DEFECT(1) && event->sequence % 7 == 3))
            slot->state = SLOT_FREE;
        pipeline_core_touch(core, event->stream);
        return 0;
    }
    return -EPROTO;
}

/* The rank wants no more of it, or is dead. */
static void stream_close(struct pipeline_core *core, uint32_t number)
{
    struct core_stream *stream = core->streams[number];
    if (stream->closing)
        return;
    pipeline_core_end(core, number, 0, SPDL_CLASS_OK);
    stream->closing = true;
    stream->end_sent = true;
    pipeline_core_touch(core, number);
}

static bool is_suspect(const struct pipeline_event *event, uint64_t ticket)
{
    for (uint32_t i = 0; i < event->suspect_count; i++)
        if (event->suspects[i] == ticket)
            return true;
    return false;
}

/* One decode that the dead worker had: given out again, or blamed. */
static void op_return(struct pipeline_core *core, struct core_op *op,
                      const struct pipeline_event *event)
{
    struct core_stream *stream = core->streams[op->stream];
    uint64_t ticket = pipeline_core_ticket(core, op);
    stream->decodes--;
    core->workers[op->worker].decodes--;
    if (op->orphan) {
        if (op->blob_bytes > 0)
            pipeline_core_blob_give(core, stream, op->blob_offset, op->blob_bytes);
    } else {
        struct core_slot *slot = &stream->slots[op->slot];
        struct core_row *row = &slot->row[op->row];
        slot->decoding--;
        if ((event->crashed || DEFECT(9)) && is_suspect(event, ticket))
            row->crashes++;
        if (row->crashes >= PIPELINE_CRASHES_MAX)
            pipeline_core_row_done(core, op->stream, slot, op->row, SPDL_CLASS_CRASH);
        else if (DEFECT(5))
            pipeline_core_row_done(core, op->stream, slot, op->row, SPDL_CLASS_OK);
        else if (!DEFECT(15))
            pipeline_core_row_ready(slot, op->row);
    }
    pipeline_core_op_give(core, op);
}

static int feed_worker_down(struct pipeline_core *core, const struct pipeline_event *event)
{
    struct core_worker *worker = &core->workers[event->worker];
    for (uint32_t i = 0; i < PIPELINE_OPS_MAX && worker->decodes > 0; i++)
        if (worker->ops[i].kind == CORE_OP_DECODE)
            op_return(core, &worker->ops[i], event);
    worker->up = false;
    worker->alone = false;
    worker->deaths++;
    bool served = false;
    for (uint32_t i = 0; i < core->active_count; i++) {
        struct core_stream *stream = core->streams[core->active[i]];
        if (stream->params.worker != event->worker)
            continue;
        served = true;
        if (!DEFECT(16))
            stream->attach = ATTACH_NONE;
        pipeline_core_touch(core, core->active[i]);
        if (worker->deaths >= PIPELINE_DEATHS_MAX)
            pipeline_core_end(core, core->active[i], -ECHILD, SPDL_CLASS_CRASH);
    }
    if (!served) /* stopped when nobody needed it: nothing is held against the next stream */
        worker->deaths = 0;
    return 0;
}

static int feed_worker_up(struct pipeline_core *core, const struct pipeline_event *event)
{
    core->workers[event->worker].up = true;
    for (uint32_t i = 0; i < core->active_count; i++)
        if (core->streams[core->active[i]]->params.worker == event->worker)
            pipeline_core_touch(core, core->active[i]);
    return 0;
}

static int feed_stream(struct pipeline_core *core, const struct pipeline_event *event,
                       struct pipeline_row_ref *ref)
{
    struct core_stream *stream = core->streams[event->stream];
    switch (event->kind) {
    case PIPELINE_EVENT_START:
        stream->started = true;
        break;
    case PIPELINE_EVENT_ATTACHED:
        if (stream->attach == ATTACH_SENT)
            stream->attach = ATTACH_DONE;
        else if (stream->attach != ATTACH_DETACHING)
            return -EPROTO;
        break;
    case PIPELINE_EVENT_DETACHED:
        if (stream->attach != ATTACH_DETACHING)
            return -EPROTO;
        stream->attach = ATTACH_NONE;
        break;
    case PIPELINE_EVENT_RELEASE:
        return feed_release(core, event, ref);
    case PIPELINE_EVENT_UNMAPPED:
        stream->unmapped = true;
        stream_close(core, event->stream);
        break;
    case PIPELINE_EVENT_CLOSE:
        stream_close(core, event->stream);
        break;
    case PIPELINE_EVENT_FAIL:
        pipeline_core_end(core, event->stream, event->code, event->class_number);
        break;
    case PIPELINE_EVENT_FETCHED:
    case PIPELINE_EVENT_DECODED:
    case PIPELINE_EVENT_WORKER_UP:
    case PIPELINE_EVENT_WORKER_DOWN:
        return -EPROTO;
    }
    pipeline_core_touch(core, event->stream);
    return 0;
}

int pipeline_core_feed(struct pipeline_core *core, const struct pipeline_event *event,
                       struct pipeline_row_ref *ret_ref)
{
    struct pipeline_row_ref ref = {0};
    int rc;
    switch (event->kind) {
    case PIPELINE_EVENT_FETCHED:
        rc = feed_fetched(core, event, &ref);
        break;
    case PIPELINE_EVENT_DECODED:
        rc = event->worker < PIPELINE_WORKERS_MAX ? feed_decoded(core, event, &ref) : -EPROTO;
        break;
    case PIPELINE_EVENT_WORKER_UP:
        return event->worker < PIPELINE_WORKERS_MAX ? feed_worker_up(core, event) : -EPROTO;
    case PIPELINE_EVENT_WORKER_DOWN:
        return event->worker < PIPELINE_WORKERS_MAX ? feed_worker_down(core, event) : -EPROTO;
    case PIPELINE_EVENT_START:
    case PIPELINE_EVENT_ATTACHED:
    case PIPELINE_EVENT_RELEASE:
    case PIPELINE_EVENT_CLOSE:
    case PIPELINE_EVENT_UNMAPPED:
    case PIPELINE_EVENT_DETACHED:
    case PIPELINE_EVENT_FAIL:
        if (event->stream >= PIPELINE_STREAMS_MAX || !core->streams[event->stream] ||
            !core->streams[event->stream]->used)
            return -EPROTO;
        rc = feed_stream(core, event, &ref);
        break;
    default: /* a number that is no kind */
        return -EPROTO;
    }
    if (rc == 0 && ret_ref)
        *ret_ref = ref;
    return rc;
}

void pipeline_core_set_threads(struct pipeline_core *core, uint32_t threads)
{
    core->params.threads = threads;
}

void pipeline_core_set_fetch_depth(struct pipeline_core *core, uint32_t depth)
{
    core->params.fetch_depth = depth;
}

void pipeline_core_set_memory(struct pipeline_core *core, uint64_t bytes)
{
    core->params.memory_bytes = bytes;
}
