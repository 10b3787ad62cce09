/* What happens in the simulator's world: work is finished in any order, ranks take and give back,
 * workers and ranks come and die. Each event is fed to the core and its effect on the world noted.
 */
#include <errno.h>

#include "tests/pipeline/sim.h"

enum { PLACES = 64 };

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

static void feed_stream(struct sim *sim, enum pipeline_event_kind kind, uint32_t stream)
{
    struct pipeline_event event = {.kind = kind, .stream = stream};
    sim_feed(sim, &event, 0, NULL);
}

/* A stream that `wanted` says yes to, by chance; SIM_NOWHERE: none. */
static uint32_t stream_choose(struct sim *sim,
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
        if (sim->ops[index].fetch == fetch)
            return index;
    }
    return UINT32_MAX;
}

static void ref_check(struct sim *sim, const struct sim_op *op, const struct pipeline_row_ref *ref)
{
    if (ref->stream != op->stream || ref->slot != op->slot || ref->row != op->row ||
        ref->orphan != op->orphan)
        sim_fail(sim, "a ticket leads elsewhere");
}

static struct sim_row *row_of(struct sim *sim, const struct sim_op *op)
{
    return &sim->streams[op->stream].slots[op->slot].rows[op->row];
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
        sim->page[(op.blob_offset + at) / PIPELINE_ARENA_ALIGN] = op.id;
    sim->fetching--;
    struct pipeline_row_ref ref = {0};
    sim_feed(sim, &event, 0, &ref);
    ref_check(sim, &op, &ref);
    if (op.orphan || !good)
        sim_pages_give(sim, op.blob_offset, op.blob_bytes);
    if (op.orphan)
        return true;
    row_of(sim, &op)->state = good ? SIM_ROW_FETCHED : SIM_ROW_DONE;
    row_of(sim, &op)->class_number = event.class_number;
    return true;
}

/* The sample that the bytes of the blob are of. */
static uint64_t blob_read(const struct sim *sim, const struct sim_op *op)
{
    uint64_t first = sim->page[op->blob_offset / PIPELINE_ARENA_ALIGN];
    for (uint64_t at = 0; at < op->blob_bytes; at += PIPELINE_ARENA_ALIGN)
        if (sim->page[(op->blob_offset + at) / PIPELINE_ARENA_ALIGN] != first)
            return UINT64_MAX;
    return first;
}

static void row_write(struct sim *sim, const struct sim_op *op, uint64_t stamp)
{
    if (sim->streams[op->stream].slots[op->slot].held)
        sim_fail(sim, "slot %u is written while it is the rank's", op->slot);
    row_of(sim, op)->stamp = stamp;
}

/* The worker is gone, with all that it worked on. `suspects` may name tickets of anything. */
static void worker_down(struct sim *sim, uint32_t worker, bool crashed, const uint64_t *suspects,
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
            sim_pages_give(sim, op.blob_offset, op.blob_bytes);
        if (!op.orphan)
            row->state = over ? SIM_ROW_DONE : op.blob_bytes > 0 ? SIM_ROW_FETCHED : SIM_ROW_NONE;
        if (!op.orphan && over)
            sim->totals->classed_crash++;
    }
    sim->decoding[worker] = 0;
    sim->worker_up[worker] = false;
    sim->deaths[worker]++;
    sim_feed(sim, &event, 0, NULL);
    bool served = false;
    for (uint32_t i = 0; i < SIM_STREAMS_MAX; i++) {
        if (!sim->streams[i].used || sim->streams[i].worker != worker)
            continue;
        served = true;
        sim->streams[i].attach = SIM_ATTACH_NONE;
        if (sim->deaths[worker] >= PIPELINE_DEATHS_MAX && !sim->streams[i].ended) {
            sim_stream_end(sim, i, -ECHILD, SPDL_CLASS_CRASH);
            sim->totals->death_ends++;
        }
    }
    if (!served)
        sim->deaths[worker] = 0;
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
    worker_down(sim, worker, true, suspects, count);
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
    sim->decoding[op.worker]--;
    sim->deaths[op.worker] = 0;
    struct pipeline_row_ref ref = {0};
    sim_feed(sim, &event, 0, &ref);
    ref_check(sim, &op, &ref);
    if (op.blob_bytes > 0)
        sim_pages_give(sim, op.blob_offset, op.blob_bytes);
    if (op.orphan)
        return true;
    row_of(sim, &op)->state = SIM_ROW_DONE;
    row_of(sim, &op)->class_number = event.class_number;
    return true;
}

/* --- workers --- */

static bool act_worker_up(struct sim *sim)
{
    uint32_t first = (uint32_t)sim_below(sim, SIM_WORKERS);
    for (uint32_t i = 0; i < SIM_WORKERS; i++) {
        uint32_t worker = (first + i) % SIM_WORKERS;
        if (sim->worker_up[worker])
            continue;
        struct pipeline_event event = {.kind = PIPELINE_EVENT_WORKER_UP, .worker = worker};
        sim->worker_up[worker] = true;
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
        worker_down(sim, worker, true, NULL, 0); /* it crashed while it did nothing */
    else
        worker_down(sim, worker, false, suspects, count);
    return true;
}

static bool waits_for_attached(const struct sim *sim, const struct sim_stream *stream)
{
    (void)sim;
    return stream->attach == SIM_ATTACH_SENT;
}

static bool act_attached(struct sim *sim)
{
    uint32_t stream = stream_choose(sim, waits_for_attached);
    if (stream == SIM_NOWHERE)
        return false;
    sim->streams[stream].attach = SIM_ATTACH_DONE;
    feed_stream(sim, PIPELINE_EVENT_ATTACHED, stream);
    return true;
}

static bool waits_for_detached(const struct sim *sim, const struct sim_stream *stream)
{
    (void)sim;
    return stream->attach == SIM_ATTACH_DETACHING;
}

static bool act_detached(struct sim *sim)
{
    uint32_t stream = stream_choose(sim, waits_for_detached);
    if (stream == SIM_NOWHERE)
        return false;
    sim->streams[stream].attach = SIM_ATTACH_NONE;
    feed_stream(sim, PIPELINE_EVENT_DETACHED, stream);
    return true;
}

/* --- ranks --- */

static bool is_current(const struct sim *sim, const struct sim_stream *stream)
{
    return stream->used && !stream->closing &&
           sim->jobs[stream->job].stream == (uint32_t)(stream - sim->streams);
}

static uint32_t taken_count(const struct sim_stream *stream)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < stream->slot_count; i++)
        count += stream->slots[i].held && stream->slots[i].taken;
    return count;
}

static bool can_take(const struct sim *sim, const struct sim_stream *stream)
{
    uint32_t hold = sim->held_max < stream->slot_count ? sim->held_max : stream->slot_count;
    return is_current(sim, stream) && stream->taken < stream->published &&
           (taken_count(stream) < hold) && !sim->jobs[stream->job].over;
}

/* The rank's next: the oldest batch that it has not seen. */
static bool act_take(struct sim *sim)
{
    uint32_t number = stream_choose(sim, can_take);
    if (number == SIM_NOWHERE)
        return false;
    struct sim_stream *stream = &sim->streams[number];
    struct sim_job *job = &sim->jobs[stream->job];
    for (uint32_t i = 0; i < stream->slot_count; i++) {
        struct sim_slot *slot = &stream->slots[i];
        if (!slot->held || slot->sequence != stream->taken)
            continue;
        if (job->seen != stream->base + slot->sequence)
            sim_fail(sim, "a rank sees batch %llu and wants %llu",
                     (unsigned long long)(stream->base + slot->sequence),
                     (unsigned long long)job->seen);
        slot->taken = true;
        stream->taken++;
        job->seen++;
        sim_trace(sim, "job %u takes batch %llu", stream->job, (unsigned long long)job->seen - 1);
        return true;
    }
    sim_fail(sim, "the next batch of stream %u is lost", number);
    return true;
}

static bool can_release(const struct sim *sim, const struct sim_stream *stream)
{
    (void)sim;
    return !stream->unmapped && taken_count(stream) > 0;
}

static bool act_release(struct sim *sim)
{
    uint32_t number = stream_choose(sim, can_release);
    if (number == SIM_NOWHERE)
        return false;
    struct sim_stream *stream = &sim->streams[number];
    uint32_t i = (uint32_t)sim_below(sim, stream->slot_count);
    while (!stream->slots[i].held || !stream->slots[i].taken)
        i = (i + 1) % stream->slot_count;
    struct pipeline_event event = {
        .kind = PIPELINE_EVENT_RELEASE, .stream = number, .sequence = stream->slots[i].sequence};
    struct pipeline_row_ref ref = {0};
    sim_feed(sim, &event, 0, &ref);
    if (ref.stream != number || ref.slot != i)
        sim_fail(sim, "slot %u was given back and slot %u is freed", i, ref.slot);
    stream->slots[i] = (struct sim_slot){0};
    stream->released++;
    return true;
}

/* A rank asks for its stream again at the place that it had. */
static struct plan_schedule schedule_from(const struct sim_job *job)
{
    struct plan_schedule schedule = job->schedule;
    if (job->seen > 0) {
        struct plan_batch batch;
        plan_batch_at(&job->schedule, job->seen - 1, &batch);
        schedule.start_epoch = batch.next_epoch;
        schedule.start_position = batch.next_position;
        schedule.start_step = batch.next_step;
    }
    return schedule;
}

static void job_open(struct sim *sim, uint32_t number)
{
    struct sim_job *job = &sim->jobs[number];
    struct pipeline_stream_params params = {.schedule = schedule_from(job),
                                            .slot_count = job->slot_count,
                                            .worker = job->worker,
                                            .policy = job->policy,
                                            .limit = job->has_limit ? job->target - job->seen : 0,
                                            .memory_bytes = job->slot_count * 1000 - 7};
    uint64_t free_bytes = UINT64_MAX;
    uint64_t room = sim->params.memory_bytes - pipeline_core_memory_used(sim->core);
    uint32_t stream = SIM_NOWHERE;
    int rc = pipeline_core_open(sim->core, &params, &stream, &free_bytes);
    sim_trace(sim, "job %u opens at %llu: %d, stream %u", number, (unsigned long long)job->seen, rc,
              stream);
    if (free_bytes != room || rc != (params.memory_bytes > room ? -ENOSPC : 0))
        sim_fail(sim, "open gave %d with %llu bytes free", rc, (unsigned long long)free_bytes);
    sim->totals->refused_opens += rc != 0;
    if (rc != 0 || sim->failed)
        return;
    if (stream >= SIM_STREAMS_MAX || sim->streams[stream].used) {
        sim_fail(sim, "an opened stream has number %u", stream);
        return;
    }
    job->stream = stream;
    sim->totals->reopened += job->seen > 0;
    sim->streams[stream] =
        (struct sim_stream){.used = true,
                            .job = number,
                            .worker = job->worker,
                            .policy = job->policy,
                            .slot_count = job->slot_count,
                            .rows = (uint32_t)(job->schedule.batch / job->schedule.world),
                            .base = job->seen,
                            .limit = params.limit,
                            .memory_bytes = params.memory_bytes};
}

static bool act_open(struct sim *sim)
{
    uint32_t used = 0, first = (uint32_t)sim_below(sim, sim->job_count);
    for (uint32_t i = 0; i < SIM_STREAMS_MAX; i++)
        used += sim->streams[i].used;
    if (used == SIM_STREAMS_MAX)
        return false;
    for (uint32_t i = 0; i < sim->job_count; i++) {
        uint32_t number = (first + i) % sim->job_count;
        struct sim_job *job = &sim->jobs[number];
        if (job->over || job->stream != SIM_NOWHERE)
            continue;
        job_open(sim, number);
        if (job->stream != SIM_NOWHERE)
            return true;
    }
    return false;
}

static bool waits_for_start(const struct sim *sim, const struct sim_stream *stream)
{
    (void)sim;
    return !stream->started && !stream->closing;
}

static bool act_start(struct sim *sim)
{
    uint32_t stream = stream_choose(sim, waits_for_start);
    if (stream == SIM_NOWHERE)
        return false;
    sim->streams[stream].started = true;
    feed_stream(sim, PIPELINE_EVENT_START, stream);
    return true;
}

/* The rank's end, first half: the stream is closed, or unmapped at once (which says both). */
void sim_close(struct sim *sim, uint32_t number)
{
    struct sim_stream *stream = &sim->streams[number];
    bool both = sim_chance(sim, 300);
    sim->jobs[stream->job].stream = SIM_NOWHERE;
    sim_stream_end(sim, number, 0, SPDL_CLASS_OK);
    stream->closing = true;
    stream->unmapped = both;
    feed_stream(sim, both ? PIPELINE_EVENT_UNMAPPED : PIPELINE_EVENT_CLOSE, number);
}

static bool waits_for_unmap(const struct sim *sim, const struct sim_stream *stream)
{
    (void)sim;
    return stream->closing && !stream->unmapped;
}

static bool act_unmap(struct sim *sim)
{
    uint32_t stream = stream_choose(sim, waits_for_unmap);
    if (stream == SIM_NOWHERE)
        return false;
    sim->streams[stream].unmapped = true;
    feed_stream(sim, PIPELINE_EVENT_UNMAPPED, stream);
    return true;
}

/* Nothing more is to be had from it: all that was wanted is seen, or it ended. */
static bool is_over(const struct sim *sim, const struct sim_stream *stream)
{
    const struct sim_job *job = &sim->jobs[stream->job];
    if (!is_current(sim, stream))
        return false;
    if (job->seen >= job->target)
        return !job->has_limit || stream->end_seen;
    return stream->end_seen && stream->taken == stream->published;
}

static bool act_close_over(struct sim *sim)
{
    uint32_t number = stream_choose(sim, is_over);
    if (number == SIM_NOWHERE)
        return false;
    const struct sim_stream *stream = &sim->streams[number];
    struct sim_job *job = &sim->jobs[stream->job];
    if (stream->end_seen && stream->end_code == 0 && job->seen != job->target)
        sim_fail(sim, "stream %u ends %llu batches early", number,
                 (unsigned long long)(job->target - job->seen));
    /* After an outage it is asked for again; a sample that fails would fail again. */
    job->over = job->seen >= job->target || stream->end_code == -EBADMSG ||
                stream->end_code == -ECHILD || sim_chance(sim, 500);
    sim_close(sim, number);
    return true;
}

static bool act_kill_rank(struct sim *sim)
{
    uint32_t number = stream_choose(sim, is_current);
    if (number == SIM_NOWHERE)
        return false;
    struct sim_job *job = &sim->jobs[sim->streams[number].job];
    sim_close(sim, number);
    /* It comes back from what it saved, which may be a little old. */
    uint64_t back = sim_below(sim, 3);
    job->seen -= back < job->seen ? back : job->seen;
    job->over = job->over || job->seen >= job->target || sim_chance(sim, 100);
    sim->totals->ranks_lost++;
    return true;
}

static bool can_fail(const struct sim *sim, const struct sim_stream *stream)
{
    return is_current(sim, stream) && !stream->ended;
}

static bool act_fail(struct sim *sim)
{
    uint32_t number = stream_choose(sim, can_fail);
    if (number == SIM_NOWHERE)
        return false;
    struct pipeline_event event = {.kind = PIPELINE_EVENT_FAIL,
                                   .stream = number,
                                   .code = -EIO,
                                   .class_number = SPDL_CLASS_RESOURCE};
    sim_stream_end(sim, number, -EIO, SPDL_CLASS_RESOURCE);
    sim_feed(sim, &event, 0, NULL);
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
    static bool (*const acts[SIM_ACT_COUNT])(struct sim *) = {[SIM_ACT_FETCHED] = act_fetched,
                                                              [SIM_ACT_DECODED] = act_decoded,
                                                              [SIM_ACT_TAKE] = act_take,
                                                              [SIM_ACT_RELEASE] = act_release,
                                                              [SIM_ACT_WORKER_UP] = act_worker_up,
                                                              [SIM_ACT_ATTACHED] = act_attached,
                                                              [SIM_ACT_DETACHED] = act_detached,
                                                              [SIM_ACT_START] = act_start,
                                                              [SIM_ACT_UNMAP] = act_unmap,
                                                              [SIM_ACT_OPEN] = act_open,
                                                              [SIM_ACT_CLOSE_OVER] = act_close_over,
                                                              [SIM_ACT_KILL_WORKER] =
                                                                  act_kill_worker,
                                                              [SIM_ACT_KILL_RANK] = act_kill_rank,
                                                              [SIM_ACT_FAIL] = act_fail,
                                                              [SIM_ACT_THREADS] = act_threads,
                                                              [SIM_ACT_BOGUS] = sim_bogus};
    return acts[act](sim);
}
