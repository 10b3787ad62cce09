/* What happens in the simulator's world: work is finished in any order, ranks take and give back,
 * workers and ranks come and die. Each event is fed to the core and its effect on the world noted.
 */
#include <errno.h>

#include "tests/pipeline/sim.h"

void sim_feed(struct sim *sim, const struct pipeline_event *event, int wanted,
              struct pipeline_row_ref *ret_ref)
{
    sim_trace(sim, "<- event %d stream %u worker %u ticket %llx sequence %llu class %d",
              (int)event->kind, event->stream, event->worker, (unsigned long long)event->ticket,
              (unsigned long long)event->sequence, (int)event->class_number);
    int rc = pipeline_core_feed(sim->core, event, ret_ref);
    if (rc != wanted)
        sim_fail(sim, "event %d gave %d and not %d", (int)event->kind, rc, wanted);
}

void sim_feed_stream(struct sim *sim, enum pipeline_event_kind kind, uint32_t stream)
{
    struct pipeline_event event = {.kind = kind, .stream = stream};
    sim_feed(sim, &event, 0, NULL);
}

uint32_t sim_stream_choose(struct sim *sim,
                           bool (*wanted)(const struct sim *, const struct sim_stream *))
{
    uint32_t first = (uint32_t)sim_below(sim, SIM_STREAMS_MAX);
    for (uint32_t i = 0; i < SIM_STREAMS_MAX; i++) {
        uint32_t number = (first + i) % SIM_STREAMS_MAX;
        if (sim->streams[number].used && wanted(sim, &sim->streams[number]))
            return number;
    }
    return SIM_NOWHERE;
}

/* --- reads and decodes --- */

static struct sim_op op_remove(struct sim *sim, uint32_t index)
{
    struct sim_op op = sim->ops[index];
    sim->ops[index] = sim->ops[--sim->op_count];
    sim->stale[sim->stale_count++ % SIM_STALE_MAX] = op;
    return op;
}

static uint32_t op_choose(struct sim *sim, bool fetch)
{
    if (sim->op_count == 0)
        return UINT32_MAX;
    uint32_t first = (uint32_t)sim_below(sim, sim->op_count);
    for (uint32_t i = 0; i < sim->op_count; i++) {
        uint32_t index = (first + i) % sim->op_count;
        const struct sim_op *op = &sim->ops[index];
        if (op->fetch == fetch && (fetch ? sim->streams[op->stream].job != sim->hung_job
                                         : op->worker != sim->frozen_worker))
            return index;
    }
    return UINT32_MAX;
}

static void ref_check(struct sim *sim, const struct sim_op *op, const struct pipeline_row_ref *ref)
{
    if (ref->stream != op->stream || ref->slot != op->slot || ref->row != op->row ||
        ref->orphan != op->orphan ||
        (!op->orphan && (ref->id != op->id || ref->attempt != op->attempt)))
        sim_fail(sim, "a ticket leads elsewhere");
}

static struct sim_row *row_of(struct sim *sim, const struct sim_op *op)
{
    return &sim->streams[op->stream].slots[op->slot].rows[op->row];
}

static void row_write(struct sim *sim, const struct sim_op *op, uint64_t stamp)
{
    if (sim->streams[op->stream].slots[op->slot].held)
        sim_fail(sim, "slot %u is written while it is the rank's", op->slot);
    row_of(sim, op)->stamp = stamp;
}

/* The row's sample is made, or failed: then the next substitute is the row's. */
static void row_ends(struct sim *sim, const struct sim_op *op, enum spdl_class class_number)
{
    const struct sim_stream *stream = &sim->streams[op->stream];
    struct sim_row *row = row_of(sim, op);
    row->state = SIM_ROW_DONE;
    if (class_number == SPDL_CLASS_OK || stream->policy != PIPELINE_POLICY_SUBSTITUTE ||
        row->attempt == sim->jobs[stream->job].max_consecutive)
        return;
    row->state = SIM_ROW_NONE;
    row->attempt++;
    row->crashes = 0;
}

static bool act_fetched(struct sim *sim)
{
    uint32_t index = op_choose(sim, true);
    if (index == UINT32_MAX)
        return false;
    struct sim_op op = op_remove(sim, index);
    struct pipeline_event event = {.kind = PIPELINE_EVENT_FETCHED, .ticket = op.ticket};
    if (sim_fate_of(sim, op.id) == SIM_BAD_FETCH)
        event.class_number = sim_class_of(sim, op.id);
    else if (op.orphan && sim_chance(sim, 500))
        event.class_number = SPDL_CLASS_IO_ERROR; /* it was cancelled */
    bool good = event.class_number == SPDL_CLASS_OK;
    for (uint64_t at = 0; good && at < op.blob_bytes; at += PIPELINE_ARENA_ALIGN)
        sim->workers[op.worker].page[(op.blob_offset + at) / PIPELINE_ARENA_ALIGN] = op.id;
    if (op.in_place)
        row_write(sim, &op, good ? sim_stamp_of(op.id, op.epoch, op.position) : 4);
    sim->workers[op.worker].fetching--;
    struct pipeline_row_ref ref = {0};
    sim_feed(sim, &event, 0, &ref);
    ref_check(sim, &op, &ref);
    if (!op.in_place && (op.orphan || !good))
        sim_pages_give(sim, op.worker, op.blob_offset, op.blob_bytes);
    if (op.orphan)
        return true;
    sim->totals->in_place += op.in_place;
    if (good && !op.in_place)
        row_of(sim, &op)->state = SIM_ROW_FETCHED;
    else
        row_ends(sim, &op, event.class_number);
    return true;
}

/* The sample that the bytes of the blob are of. */
static uint64_t blob_read(const struct sim *sim, const struct sim_op *op)
{
    const uint64_t *page = sim->workers[op->worker].page;
    uint64_t first = page[op->blob_offset / PIPELINE_ARENA_ALIGN];
    for (uint64_t at = 0; at < op->blob_bytes; at += PIPELINE_ARENA_ALIGN)
        if (page[(op->blob_offset + at) / PIPELINE_ARENA_ALIGN] != first)
            return UINT64_MAX;
    return first;
}

void sim_worker_down(struct sim *sim, uint32_t worker, bool crashed, const uint64_t *suspects,
                     uint32_t suspect_count)
{
    struct pipeline_event event = {.kind = PIPELINE_EVENT_WORKER_DOWN,
                                   .worker = worker,
                                   .crashed = crashed,
                                   .suspects = suspects,
                                   .suspect_count = suspect_count};
    for (uint32_t i = sim->op_count; i-- > 0;) {
        if (sim->ops[i].fetch || sim->ops[i].worker != worker)
            continue;
        struct sim_op op = op_remove(sim, i);
        struct sim_row *row = row_of(sim, &op);
        bool blamed = false;
        for (uint32_t s = 0; s < suspect_count; s++)
            blamed = blamed || (crashed && suspects[s] == op.ticket);
        if (sim_chance(sim, 500))
            row_write(sim, &op, 3); /* it was in the middle of it */
        if (!op.orphan)
            row->crashes += blamed;
        bool over = row->crashes >= PIPELINE_CRASHES_MAX;
        if (op.blob_bytes > 0 && (op.orphan || over))
            sim_pages_give(sim, op.worker, op.blob_offset, op.blob_bytes);
        if (!op.orphan)
            row->state = op.blob_bytes > 0 ? SIM_ROW_FETCHED : SIM_ROW_NONE;
        if (!op.orphan && over) {
            row_ends(sim, &op, SPDL_CLASS_CRASH);
            sim->totals->classed_crash++;
        }
    }
    struct sim_worker *down = &sim->workers[worker];
    down->decoding = 0;
    down->up = false;
    down->deaths++;
    sim_feed(sim, &event, 0, NULL);
    bool served = false;
    for (uint32_t i = 0; i < SIM_STREAMS_MAX; i++) {
        if (!sim->streams[i].used || sim->streams[i].worker != worker)
            continue;
        served = true;
        sim->streams[i].attach = SIM_ATTACH_NONE;
        if (down->deaths >= PIPELINE_DEATHS_MAX && !sim->streams[i].ended) {
            sim_stream_end(sim, i, -ECHILD, SPDL_CLASS_CRASH);
            sim->totals->death_ends++;
        }
    }
    if (!served)
        down->deaths = 0;
}

/* The codec dies on that sample; other threads were at work too. */
static void crash(struct sim *sim, uint32_t index)
{
    uint64_t suspects[16] = {sim->ops[index].ticket};
    uint32_t worker = sim->ops[index].worker, count = 1;
    for (uint32_t i = 0; i < sim->op_count && count < sim->params.threads && count < 14; i++)
        if (i != index && !sim->ops[i].fetch && sim->ops[i].worker == worker &&
            sim_chance(sim, 500))
            suspects[count++] = sim->ops[i].ticket;
    if (sim->stale_count > 0) /* finished, but its thread had not said so */
        suspects[count++] = sim->stale[0].ticket;
    sim->totals->crashes++;
    sim_worker_down(sim, worker, true, suspects, count);
}

static bool act_decoded(struct sim *sim)
{
    uint32_t index = op_choose(sim, false);
    if (index == UINT32_MAX)
        return false;
    if (sim_fate_of(sim, sim->ops[index].id) == SIM_POISON) {
        crash(sim, index);
        return true;
    }
    struct sim_op op = op_remove(sim, index);
    struct pipeline_event event = {.kind = PIPELINE_EVENT_DECODED,
                                   .worker = op.worker,
                                   .ticket = op.ticket,
                                   .class_number = sim_class_of(sim, op.id),
                                   .cost_ns = sim->cost_ns};
    uint64_t id = op.blob_bytes > 0 ? blob_read(sim, &op) : op.id;
    row_write(sim, &op, sim_stamp_of(id, op.epoch, op.position));
    sim->workers[op.worker].decoding--;
    sim->workers[op.worker].deaths = 0;
    struct pipeline_row_ref ref = {0};
    sim_feed(sim, &event, 0, &ref);
    ref_check(sim, &op, &ref);
    if (op.blob_bytes > 0)
        sim_pages_give(sim, op.worker, op.blob_offset, op.blob_bytes);
    if (op.orphan)
        return true;
    row_ends(sim, &op, event.class_number);
    return true;
}

/* --- workers --- */

static bool act_worker_up(struct sim *sim)
{
    uint32_t first = (uint32_t)sim_below(sim, SIM_WORKERS);
    for (uint32_t i = 0; i < SIM_WORKERS; i++) {
        uint32_t worker = (first + i) % SIM_WORKERS;
        if (sim->workers[worker].up || !sim->workers[worker].seat_open)
            continue;
        struct pipeline_event event = {.kind = PIPELINE_EVENT_WORKER_UP, .worker = worker};
        sim->workers[worker].up = true;
        sim_feed(sim, &event, 0, NULL);
        return true;
    }
    return false;
}

static bool act_kill_worker(struct sim *sim)
{
    uint32_t worker = (uint32_t)sim_below(sim, SIM_WORKERS), count = 0;
    uint64_t suspects[16];
    for (uint32_t i = 0; i < sim->op_count && count < 16; i++)
        if (!sim->ops[i].fetch && sim->ops[i].worker == worker)
            suspects[count++] = sim->ops[i].ticket;
    sim->totals->kills++;
    if (sim_chance(sim, 300))
        sim_worker_down(sim, worker, true, NULL, 0); /* it crashed while it did nothing */
    else
        sim_worker_down(sim, worker, false, suspects, count);
    return true;
}

static bool waits_for_attached(const struct sim *sim, const struct sim_stream *stream)
{
    return stream->attach == SIM_ATTACH_SENT && stream->worker != sim->frozen_worker;
}

static bool act_attached(struct sim *sim)
{
    uint32_t stream = sim_stream_choose(sim, waits_for_attached);
    if (stream == SIM_NOWHERE)
        return false;
    sim->streams[stream].attach = SIM_ATTACH_DONE;
    sim_feed_stream(sim, PIPELINE_EVENT_ATTACHED, stream);
    return true;
}

static bool waits_for_detached(const struct sim *sim, const struct sim_stream *stream)
{
    return stream->attach == SIM_ATTACH_DETACHING && stream->worker != sim->frozen_worker;
}

static bool act_detached(struct sim *sim)
{
    uint32_t stream = sim_stream_choose(sim, waits_for_detached);
    if (stream == SIM_NOWHERE)
        return false;
    sim->streams[stream].attach = SIM_ATTACH_NONE;
    sim_feed_stream(sim, PIPELINE_EVENT_DETACHED, stream);
    return true;
}

static bool act_threads(struct sim *sim)
{
    sim->params.threads = 1 + (uint32_t)sim_below(sim, 8);
    pipeline_core_set_threads(sim->core, sim->params.threads);
    return true;
}

bool sim_act(struct sim *sim, enum sim_act act)
{
    static bool (*const acts[SIM_ACT_COUNT])(struct sim *) = {
        [SIM_ACT_FETCHED] = act_fetched,     [SIM_ACT_DECODED] = act_decoded,
        [SIM_ACT_WORKER_UP] = act_worker_up, [SIM_ACT_ATTACHED] = act_attached,
        [SIM_ACT_DETACHED] = act_detached,   [SIM_ACT_KILL_WORKER] = act_kill_worker,
        [SIM_ACT_THREADS] = act_threads,     [SIM_ACT_BOGUS] = sim_bogus};
    return acts[act] ? acts[act](sim) : sim_rank_act(sim, act);
}
