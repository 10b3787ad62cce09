/* The conductor's core and what each worker has for itself: an arena for the blobs of its streams,
 * places for what is in flight, and the shares that its streams have of both. So a worker that does
 * not get on, or reads that never end, hold up nobody else. Pure. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/assert.h"
#include "pipeline/pipeline_core_state.h"

enum {
    BLOBS_EXTRA = 64, /* blobs fetched and not decoded, beyond twice the depth */
    FETCHES_LEAST = 4 /* of a stream, whatever the others have */
};

_Static_assert(PIPELINE_DEPTH_MAX + PIPELINE_DEPTH_MAX / 3 + 1 + PIPELINE_READS_EXTRA +
                       PIPELINE_QUEUE_MAX <=
                   PIPELINE_OPS_MAX,
               "reads leave the decodes their places");

/* --- seats --- */

static int ops_make(struct core_worker *worker)
{
    worker->ops = calloc(PIPELINE_OPS_MAX, sizeof *worker->ops);
    if (!worker->ops)
        return -ENOMEM;
    for (uint32_t i = 0; i < PIPELINE_OPS_MAX; i++)
        worker->ops[i].next_free = i + 1 < PIPELINE_OPS_MAX ? i + 1 : CORE_NO_OP;
    return 0;
}

int pipeline_core_seat_open(struct pipeline_core *core, uint32_t number, uint64_t arena_bytes,
                            uint64_t memory_bytes, uint64_t *ret_free_bytes)
{
    if (number >= PIPELINE_WORKERS_MAX || core->workers[number].open)
        return -EINVAL;
    struct core_worker *worker = &core->workers[number];
    *ret_free_bytes = core->memory_used < core->params.memory_bytes
                          ? core->params.memory_bytes - core->memory_used
                          : 0;
    if (memory_bytes > *ret_free_bytes)
        return -ENOSPC;
    if ((!worker->ops && ops_make(worker) < 0) ||
        pipeline_arena_init(&worker->arena, arena_bytes) < 0)
        return -ENOMEM;
    worker->open = true;
    worker->memory_bytes = memory_bytes;
    core->memory_used += memory_bytes;
    return 0;
}

void pipeline_core_seat_close(struct pipeline_core *core, uint32_t number)
{
    struct core_worker *worker = &core->workers[number];
    ASSERT(worker->open && worker->streams == 0 && worker->arena.count == 0);
    struct core_op *ops = worker->ops; /* stay: their tickets never come again */
    uint32_t free_op = worker->free_op;
    core->memory_used -= DEFECT(30) ? 0 : worker->memory_bytes;
    pipeline_arena_fini(&worker->arena);
    *worker = (struct core_worker){.ops = ops, .free_op = free_op};
    if (DEFECT(31))
        ops[free_op].generation--;
}

/* --- what is in flight --- */

struct core_op *pipeline_core_op_take(struct pipeline_core *core, uint32_t number)
{
    struct core_worker *worker = &core->workers[number];
    ASSERT(worker->free_op != CORE_NO_OP);
    struct core_op *op = &worker->ops[worker->free_op];
    worker->free_op = op->next_free;
    op->worker = number;
    if (++op->generation == 0)
        op->generation = 1;
    return op;
}

void pipeline_core_op_give(struct pipeline_core *core, struct core_op *op)
{
    struct core_worker *worker = &core->workers[op->worker];
    op->kind = CORE_OP_FREE;
    op->next_free = worker->free_op;
    worker->free_op = (uint32_t)(op - worker->ops);
}

uint64_t pipeline_core_ticket(const struct pipeline_core *core, const struct core_op *op)
{
    uint64_t index = (uint64_t)(op - core->workers[op->worker].ops);
    return (uint64_t)op->generation << 32 | (uint64_t)op->worker * PIPELINE_OPS_MAX | index;
}

struct core_op *pipeline_core_op_find(const struct pipeline_core *core, uint64_t ticket)
{
    uint32_t number = (uint32_t)ticket / PIPELINE_OPS_MAX;
    if (number >= PIPELINE_WORKERS_MAX || !core->workers[number].ops)
        return NULL;
    struct core_op *op = &core->workers[number].ops[(uint32_t)ticket % PIPELINE_OPS_MAX];
    bool is_its = op->generation == ticket >> 32 || DEFECT(8);
    return op->kind != CORE_OP_FREE && is_its ? op : NULL;
}

/* --- blobs and shares --- */

int pipeline_core_blob_take(struct pipeline_core *core, struct core_stream *stream, uint64_t bytes,
                            uint64_t *ret_offset)
{
    struct core_worker *worker = &core->workers[stream->params.worker];
    uint64_t taken = pipeline_arena_taken(bytes), free = worker->arena.bytes;
    free -= worker->arena.used_bytes;
    /* What it has and never gives back leaves a quarter of the rest to each that comes after it. */
    bool beyond = stream->blob_bytes > 0 && !DEFECT(29) &&
                  (taken > free || stream->blob_bytes + taken > 3 * (free - taken));
    if (beyond || pipeline_arena_take(&worker->arena, bytes, ret_offset) < 0) {
        stream->memory_wait = true;
        stream->wait_gives = worker->gives;
        return -EAGAIN;
    }
    stream->memory_wait = false;
    stream->blob_bytes += taken;
    return 0;
}

void pipeline_core_blob_give(struct pipeline_core *core, struct core_stream *stream,
                             uint64_t offset, uint64_t bytes)
{
    struct core_worker *worker = &core->workers[stream->params.worker];
    pipeline_arena_give(&worker->arena, offset);
    worker->gives++;
    stream->blob_bytes -= pipeline_arena_taken(bytes);
}

bool pipeline_core_may_fetch(const struct pipeline_core *core, const struct core_stream *stream)
{
    const struct core_worker *worker = &core->workers[stream->params.worker];
    uint32_t depth = core->params.fetch_depth;
    uint32_t most = pipeline_core_reads_max(depth) - PIPELINE_READS_EXTRA;
    if (worker->arena.count >= 2 * depth + BLOBS_EXTRA)
        return false;
    /* It has something, and nothing was given back since it found no room for more. */
    if (stream->memory_wait && stream->blob_bytes > 0 && stream->wait_gives == worker->gives)
        return false;
    if (DEFECT(28))
        return worker->fetching < depth;
    if (stream->fetches < FETCHES_LEAST && stream->fetches < depth)
        return worker->fetching < most + PIPELINE_READS_EXTRA;
    return stream->fetches < depth && worker->fetching < most &&
           stream->fetches <= 3 * (most - worker->fetching - 1);
}
