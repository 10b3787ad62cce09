/* What ranks do in the simulator's world: they open streams, take batches and give them back, die
 * and come back at the place that they had. Each event is fed to the core. */
#include <errno.h>

#include "tests/pipeline/sim.h"

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
    uint32_t number = sim_stream_choose(sim, can_take);
    if (number == SIM_NOWHERE)
        return false;
    struct sim_stream *stream = &sim->streams[number];
    struct sim_job *job = &sim->jobs[stream->job];
    for (uint32_t i = 0; i < stream->slot_count; i++) {
        struct sim_slot *slot = &stream->slots[i];
        if (!slot->held || slot->sequence != stream->taken)
            continue;
        const unsigned long long sees = stream->base + slot->sequence, wants = job->seen;
        if (sees != wants)
            sim_fail(sim, "a rank sees batch %llu and wants %llu", sees, wants);
        slot->taken = true;
        stream->taken++;
        job->seen++;
        sim_trace(sim, "job %u takes batch %llu", stream->job, (unsigned long long)(job->seen - 1));
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
    uint32_t number = sim_stream_choose(sim, can_release);
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

static bool has_stream(const struct sim *sim, uint32_t worker)
{
    for (uint32_t i = 0; i < SIM_STREAMS_MAX; i++)
        if (sim->streams[i].used && sim->streams[i].worker == worker)
            return true;
    return false;
}

static bool act_seat_close(struct sim *sim)
{
    uint32_t first = (uint32_t)sim_below(sim, SIM_WORKERS);
    for (uint32_t i = 0; i < SIM_WORKERS; i++) {
        uint32_t worker = (first + i) % SIM_WORKERS;
        if (!sim->workers[worker].seat_open || has_stream(sim, worker))
            continue;
        sim_trace(sim, "seat %u is closed", worker);
        sim_worker_down(sim, worker, false, NULL, 0);
        pipeline_core_seat_close(sim->core, worker);
        sim->workers[worker].seat_open = false;
        return true;
    }
    return false;
}

/* The seat of the job's user. Those that nobody needs give way to it. */
static bool seat_open(struct sim *sim, uint32_t worker)
{
    if (sim->workers[worker].seat_open)
        return true;
    uint64_t free_bytes = UINT64_MAX;
    int rc;
    do {
        rc = pipeline_core_seat_open(sim->core, worker, sim->arena_bytes, SIM_SEAT_BYTES,
                                     &free_bytes);
    } while (rc == -ENOSPC && act_seat_close(sim));
    uint64_t room = sim->params.memory_bytes - pipeline_core_memory_used(sim->core);
    sim_trace(sim, "seat %u opens: %d", worker, rc);
    if (rc != 0 && (rc != -ENOSPC || room >= SIM_SEAT_BYTES || free_bytes != room))
        sim_fail(sim, "a seat gave %d with %llu bytes free", rc, (unsigned long long)free_bytes);
    if (rc == 0 && pipeline_core_seat_open(sim->core, worker, 4096, 0, &free_bytes) != -EINVAL)
        sim_fail(sim, "a seat opens twice");
    sim->workers[worker].seat_open = rc == 0;
    sim->totals->seats += rc == 0;
    sim->totals->refused_seats += rc != 0;
    return rc == 0;
}

static void job_open(struct sim *sim, uint32_t number)
{
    struct sim_job *job = &sim->jobs[number];
    struct pipeline_stream_params params = {.schedule = schedule_from(job),
                                            .slot_count = job->slot_count,
                                            .worker = job->worker,
                                            .policy = job->policy,
                                            .max_rate = job->max_rate,
                                            .max_consecutive = job->max_consecutive,
                                            .limit = job->has_limit ? job->target - job->seen : 0,
                                            .memory_bytes = job->slot_count * 1000 - 7};
    uint64_t free_bytes = UINT64_MAX;
    uint32_t stream = SIM_NOWHERE;
    if (!seat_open(sim, job->worker))
        return;
    uint64_t room = sim->params.memory_bytes - pipeline_core_memory_used(sim->core);
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
    uint32_t stream = sim_stream_choose(sim, waits_for_start);
    if (stream == SIM_NOWHERE)
        return false;
    sim->streams[stream].started = true;
    sim_feed_stream(sim, PIPELINE_EVENT_START, stream);
    return true;
}

/* The rank's end, first half: the stream is closed, or unmapped at once (which says both). */
static void close_stream(struct sim *sim, uint32_t number)
{
    struct sim_stream *stream = &sim->streams[number];
    bool both = sim_chance(sim, 300);
    sim->jobs[stream->job].stream = SIM_NOWHERE;
    sim_stream_end(sim, number, 0, SPDL_CLASS_OK);
    stream->closing = true;
    stream->unmapped = both;
    sim_feed_stream(sim, both ? PIPELINE_EVENT_UNMAPPED : PIPELINE_EVENT_CLOSE, number);
}

static bool waits_for_unmap(const struct sim *sim, const struct sim_stream *stream)
{
    (void)sim;
    return stream->closing && !stream->unmapped;
}

static bool act_unmap(struct sim *sim)
{
    uint32_t stream = sim_stream_choose(sim, waits_for_unmap);
    if (stream == SIM_NOWHERE)
        return false;
    sim->streams[stream].unmapped = true;
    sim_feed_stream(sim, PIPELINE_EVENT_UNMAPPED, stream);
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
    uint32_t number = sim_stream_choose(sim, is_over);
    if (number == SIM_NOWHERE)
        return false;
    const struct sim_stream *stream = &sim->streams[number];
    struct sim_job *job = &sim->jobs[stream->job];
    if (stream->end_seen && stream->end_code == 0 && job->seen != job->target)
        sim_fail(sim, "stream %u ends %llu batches early", number,
                 (unsigned long long)(job->target - job->seen));
    /* After an outage it is asked for again; a sample that fails would fail again. */
    job->over = job->seen >= job->target || stream->end_code == -EBADMSG ||
                stream->end_code == -ENOSPC || stream->end_code == -ECHILD || sim_chance(sim, 500);
    close_stream(sim, number);
    return true;
}

static bool act_kill_rank(struct sim *sim)
{
    uint32_t number = sim_stream_choose(sim, is_current);
    if (number == SIM_NOWHERE)
        return false;
    struct sim_job *job = &sim->jobs[sim->streams[number].job];
    close_stream(sim, number);
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
    uint32_t number = sim_stream_choose(sim, can_fail);
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

bool sim_rank_act(struct sim *sim, enum sim_act act)
{
    static bool (*const acts[SIM_ACT_COUNT])(struct sim *) = {[SIM_ACT_TAKE] = act_take,
                                                              [SIM_ACT_RELEASE] = act_release,
                                                              [SIM_ACT_START] = act_start,
                                                              [SIM_ACT_UNMAP] = act_unmap,
                                                              [SIM_ACT_OPEN] = act_open,
                                                              [SIM_ACT_CLOSE_OVER] = act_close_over,
                                                              [SIM_ACT_KILL_RANK] = act_kill_rank,
                                                              [SIM_ACT_FAIL] = act_fail,
                                                              [SIM_ACT_SEAT_CLOSE] =
                                                                  act_seat_close};
    return acts[act](sim);
}
