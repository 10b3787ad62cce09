/* The world of the simulator: how a seed makes it, what is true in it, and how one schedule runs.
 */
#include "tests/pipeline/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALM_STEPS_MAX = 200000 };

/* --- chance and words --- */

uint64_t sim_mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u ^ (b + 0x7f4a7c15u) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t sim_below(struct sim *sim, uint64_t n)
{
    sim->random = sim_mix(sim->random, 1);
    return sim->random % n;
}

bool sim_chance(struct sim *sim, uint32_t of_1000)
{
    return sim_below(sim, 1000) < of_1000;
}

void sim_fail(struct sim *sim, const char *format, ...)
{
    if (sim->failed)
        return;
    sim->failed = true;
    int bytes =
        snprintf(sim->failure, sizeof sim->failure, "step %llu: ", (unsigned long long)sim->step);
    va_list list;
    va_start(list, format);
    vsnprintf(sim->failure + bytes, sizeof sim->failure - (size_t)bytes, format, list);
    va_end(list);
    sim_trace(sim, "FAILED %s", sim->failure);
}

void sim_trace(const struct sim *sim, const char *format, ...)
{
    if (!sim->trace)
        return;
    printf("%6llu  ", (unsigned long long)sim->step);
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
    fflush(stdout); /* what comes next may be an assertion */
}

/* --- what is true --- */

enum sim_fate sim_fate_of(const struct sim *sim, uint64_t id)
{
    uint64_t at = sim_mix(sim->salt, id) % 1000;
    if (at < sim->bad_lookup)
        return SIM_BAD_LOOKUP;
    at -= sim->bad_lookup;
    if (at < sim->bad_fetch && sim_blob_bytes_of(sim, id) > 0)
        return SIM_BAD_FETCH;
    if (sim_is_in_place(sim, id))
        return SIM_GOOD;
    if (at < sim->bad_fetch + sim->bad_decode)
        return SIM_BAD_DECODE;
    at -= sim->bad_fetch + sim->bad_decode;
    return at < sim->poison ? SIM_POISON : SIM_GOOD;
}

enum spdl_class sim_class_of(const struct sim *sim, uint64_t id)
{
    switch (sim_fate_of(sim, id)) {
    case SIM_BAD_LOOKUP:
        return SPDL_CLASS_LIMIT;
    case SIM_BAD_FETCH:
        return id % 2 ? SPDL_CLASS_IO_ERROR : SPDL_CLASS_CHANGED;
    case SIM_BAD_DECODE:
        return id % 2 ? SPDL_CLASS_TRUNCATED : SPDL_CLASS_CORRUPT;
    case SIM_POISON:
        return SPDL_CLASS_CRASH;
    case SIM_GOOD:
        break;
    }
    return SPDL_CLASS_OK;
}

uint64_t sim_blob_bytes_of(const struct sim *sim, uint64_t id)
{
    uint64_t bits = sim_mix(sim->salt + 1, id);
    if (bits % 16 == 0)
        return 0;
    return 1 + (bits >> 8) % (sim->blob_pages_max * (uint64_t)PIPELINE_ARENA_ALIGN);
}

bool sim_is_in_place(const struct sim *sim, uint64_t id)
{
    return sim_blob_bytes_of(sim, id) > 0 && sim_mix(sim->salt + 2, id) % 1000 < sim->in_place;
}

uint64_t sim_stamp_of(uint64_t id, uint32_t epoch, uint64_t position)
{
    return sim_mix(sim_mix(id, epoch), position) | 1;
}

/* --- the arena and the slots --- */

static uint64_t pages_of(uint64_t bytes)
{
    return (bytes + PIPELINE_ARENA_ALIGN - 1) / PIPELINE_ARENA_ALIGN;
}

void sim_pages_take(struct sim *sim, uint32_t number, uint64_t offset, uint64_t bytes)
{
    struct sim_worker *worker = &sim->workers[number];
    if (!worker->seat_open || offset % PIPELINE_ARENA_ALIGN || bytes > sim->arena_bytes ||
        offset > sim->arena_bytes - bytes) {
        sim_fail(sim, "a blob outside the arena");
        return;
    }
    for (uint64_t i = 0; i < pages_of(bytes); i++) {
        uint64_t at = offset / PIPELINE_ARENA_ALIGN + i;
        if (worker->page_used[at])
            sim_fail(sim, "a blob over another one, page %llu", (unsigned long long)at);
        worker->page_used[at] = true;
        worker->page[at] = 0;
    }
    worker->pages_used += pages_of(bytes);
}

void sim_pages_give(struct sim *sim, uint32_t number, uint64_t offset, uint64_t bytes)
{
    struct sim_worker *worker = &sim->workers[number];
    for (uint64_t i = 0; i < pages_of(bytes); i++)
        worker->page_used[offset / PIPELINE_ARENA_ALIGN + i] = false;
    worker->pages_used -= pages_of(bytes);
}

uint64_t sim_slot_sum(const struct sim_stream *stream, const struct sim_slot *slot)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < stream->rows; r++)
        sum = sim_mix(sum, slot->rows[r].stamp);
    return sum;
}

void sim_stream_end(struct sim *sim, uint32_t number, int code, enum spdl_class class_number)
{
    struct sim_stream *stream = &sim->streams[number];
    if (stream->ended)
        return;
    stream->ended = true;
    stream->end_code = code;
    stream->end_class = class_number;
    for (uint32_t i = 0; i < sim->op_count; i++)
        if (sim->ops[i].stream == number) {
            sim->ops[i].orphan = true;
            sim->totals->orphans++;
        }
    for (uint32_t i = 0; i < stream->slot_count; i++)
        for (uint32_t r = 0; r < stream->rows; r++) {
            struct sim_row *row = &stream->slots[i].rows[r];
            if (row->state == SIM_ROW_FETCHED)
                sim_pages_give(sim, stream->worker, row->blob_offset, row->blob_bytes);
            if (row->state == SIM_ROW_FETCHED)
                row->state = SIM_ROW_NONE;
        }
}

/* --- how a seed makes a world --- */

static uint32_t pick(struct sim *sim, uint32_t often, uint32_t often_of_1000, uint32_t below)
{
    return sim_chance(sim, often_of_1000) ? often : (uint32_t)sim_below(sim, below);
}

static void job_init(struct sim *sim, struct sim_job *job)
{
    struct plan_schedule *schedule = &job->schedule;
    schedule->world = 1 + (uint32_t)sim_below(sim, 3);
    schedule->batch = schedule->world * (1 + sim_below(sim, SIM_ROWS_MAX / schedule->world));
    schedule->rank = (uint32_t)sim_below(sim, schedule->world);
    schedule->last = PLAN_LAST_DROP + (uint32_t)sim_below(sim, 3);
    schedule->samples = 1 + sim_below(sim, 40);
    if (schedule->last == PLAN_LAST_DROP && schedule->samples < schedule->batch)
        schedule->samples = schedule->batch + sim_below(sim, 3);
    schedule->start_epoch = (uint32_t)sim_below(sim, 3);
    if (sim_chance(sim, 300)) {
        schedule->start_position = sim_below(sim, schedule->samples + 1);
        schedule->start_step = sim_below(sim, schedule->start_position + 1);
    }
    job->seed = sim_below(sim, UINT64_MAX);
    job->shuffle = sim_chance(sim, 500) ? PLAN_SHUFFLE_GLOBAL : PLAN_SHUFFLE_NONE;
    job->worker = (uint32_t)sim_below(sim, SIM_WORKERS);
    job->policy = PIPELINE_POLICY_MASK;
    if (sim_chance(sim, 150))
        job->policy = PIPELINE_POLICY_FAIL;
    else if (sim_chance(sim, 600))
        job->policy = PIPELINE_POLICY_SUBSTITUTE;
    job->max_consecutive = sim_chance(sim, 300) ? 1 + (uint32_t)sim_below(sim, 4) : 100;
    job->max_rate = sim_chance(sim, 200) ? (uint32_t)sim_below(sim, 12) * (PIPELINE_RATE_UNIT / 40)
                                         : PIPELINE_RATE_UNIT;
    job->slot_count = 2 + (uint32_t)sim_below(sim, SIM_SLOTS_MAX - 1);
    job->target = 1 + sim_below(sim, 16);
    job->has_limit = sim_chance(sim, 600);
    job->stream = SIM_NOWHERE;
}

static const uint32_t weights[SIM_ACT_COUNT] = {
    [SIM_ACT_FETCHED] = 40,    [SIM_ACT_DECODED] = 40,   [SIM_ACT_TAKE] = 20,
    [SIM_ACT_RELEASE] = 20,    [SIM_ACT_WORKER_UP] = 10, [SIM_ACT_ATTACHED] = 15,
    [SIM_ACT_DETACHED] = 10,   [SIM_ACT_START] = 15,     [SIM_ACT_UNMAP] = 5,
    [SIM_ACT_OPEN] = 10,       [SIM_ACT_CLOSE_OVER] = 5, [SIM_ACT_SEAT_CLOSE] = 2,
    [SIM_ACT_KILL_WORKER] = 2, [SIM_ACT_KILL_RANK] = 1,  [SIM_ACT_FAIL] = 1,
    [SIM_ACT_THREADS] = 1,     [SIM_ACT_BOGUS] = 8};

/* In some worlds a worker is stopped, or the reads of one job hang: all others must come to their
 * end without them, and with the memory that they leave. */
static void standstill_init(struct sim *sim)
{
    sim->frozen_worker = sim->hung_job = SIM_NOWHERE;
    if (sim_chance(sim, 150))
        sim->frozen_worker = (uint32_t)sim_below(sim, SIM_WORKERS);
    else if (sim_chance(sim, 200))
        sim->hung_job = (uint32_t)sim_below(sim, sim->job_count);
    if (sim->frozen_worker == SIM_NOWHERE && sim->hung_job == SIM_NOWHERE)
        return;
    sim->params.memory_bytes = 1000000;
    sim->totals->worlds_frozen += sim->frozen_worker != SIM_NOWHERE;
    sim->totals->worlds_hung += sim->hung_job != SIM_NOWHERE;
    if (sim->hung_job == SIM_NOWHERE)
        return;
    sim->blob_pages_max = 1;
    sim->arena_bytes = (12 + sim_below(sim, 16)) * PIPELINE_ARENA_ALIGN;
    sim->weights[SIM_ACT_KILL_RANK] = sim->weights[SIM_ACT_FAIL] = 0; /* it has one stream */
}

static void sim_init(struct sim *sim, uint64_t seed)
{
    sim->random = sim_mix(seed, 0x5eed);
    sim->salt = sim_mix(seed, 0x5a17);
    if (sim_chance(sim, 600)) {
        sim->bad_lookup = pick(sim, 0, 500, 80);
        sim->bad_fetch = pick(sim, 0, 500, 80);
        sim->bad_decode = pick(sim, 0, 500, 80);
        sim->poison = pick(sim, 0, 600, 60);
    }
    if (sim_chance(sim, 50))
        sim->bad_lookup = sim->bad_fetch = sim->bad_decode = 334; /* not one is good */
    if (sim_chance(sim, 400))
        sim->in_place = pick(sim, 1000, 300, 1000);
    sim->blob_pages_max = 1 + (uint32_t)sim_below(sim, 4);
    uint64_t pages = sim->blob_pages_max + sim_below(sim, sim_chance(sim, 500) ? 5 : 400);
    if (sim->blob_pages_max > 1 && sim_chance(sim, 20))
        pages = sim->blob_pages_max - 1; /* some fit in no arena */
    sim->held_max = 1 + (uint32_t)sim_below(sim, SIM_SLOTS_MAX);
    sim->cost_ns = sim_chance(sim, 300) ? 0 : (uint32_t)sim_below(sim, 3000000);
    for (uint32_t i = 0; i < SIM_ACT_COUNT; i++) { /* who is slow in this one */
        sim->weights[i] = weights[i];
        if (i < SIM_ACT_HELPFUL)
            sim->weights[i] = weights[i] * (1 + (uint32_t)sim_below(sim, 8)) / 4 + 1;
        else if (i != SIM_ACT_BOGUS && sim_chance(sim, 400))
            sim->weights[i] = 0;
    }
    if (sim_chance(sim, 20))
        sim->weights[SIM_ACT_KILL_WORKER] = 150; /* it dies and dies */
    sim->job_count = 1 + (uint32_t)sim_below(sim, SIM_JOBS_MAX);
    for (uint32_t i = 0; i < sim->job_count; i++)
        job_init(sim, &sim->jobs[i]);
    sim->arena_bytes = pages * PIPELINE_ARENA_ALIGN + sim_below(sim, 100);
    sim->params = (struct pipeline_core_params){.memory_bytes =
                                                    1000 * (SIM_SLOTS_MAX + 1 + sim_below(sim, 30)),
                                                .fetch_depth = 1 + pick(sim, 63, 200, 8),
                                                .threads = 1 + pick(sim, 99, 50, 6),
                                                .rate_rows = 10 + (uint32_t)sim_below(sim, 30),
                                                .lookup = sim_lookup,
                                                .context = sim};
    standstill_init(sim);
}

/* --- one schedule --- */

static enum sim_act act_choose(struct sim *sim)
{
    uint32_t all = 0;
    for (uint32_t i = 0; i < SIM_ACT_COUNT; i++)
        all += sim->weights[i];
    uint32_t at = (uint32_t)sim_below(sim, all);
    uint32_t act = 0;
    while (at >= sim->weights[act])
        at -= sim->weights[act++];
    return (enum sim_act)act;
}

static void trouble(struct sim *sim)
{
    uint64_t steps = 50 + sim_below(sim, 700);
    for (uint64_t i = 0; i < steps && !sim->failed; i++) {
        sim->step++;
        sim_act(sim, act_choose(sim));
        /* Usually all that is wanted is carried out before the next event; not always. */
        bool all = sim_chance(sim, 900);
        sim_carry_out(sim, all ? UINT32_MAX : (uint32_t)sim_below(sim, 4));
        sim_compare(sim, all);
    }
}

static bool stands_still(const struct sim *sim, uint32_t job)
{
    return job == sim->hung_job || sim->jobs[job].worker == sim->frozen_worker;
}

/* All that do not stand still. */
static bool all_over(const struct sim *sim)
{
    for (uint32_t i = 0; i < sim->job_count; i++)
        if (!sim->jobs[i].over && !stands_still(sim, i))
            return false;
    for (uint32_t i = 0; i < SIM_STREAMS_MAX; i++)
        if (sim->streams[i].used && !stands_still(sim, sim->streams[i].job))
            return false;
    return true;
}

static void stalled(struct sim *sim, const char *how)
{
    for (uint32_t i = 0; i < SIM_STREAMS_MAX; i++) {
        const struct sim_stream *stream = &sim->streams[i];
        if (stream->used)
            sim_trace(sim, "stream %u job %u published %llu released %llu attach %d reason %d", i,
                      stream->job, (unsigned long long)stream->published,
                      (unsigned long long)stream->released, (int)stream->attach,
                      (int)pipeline_core_reason(sim->core, i));
    }
    sim_fail(sim, "%s: %u operations are outstanding%s%s", how, sim->op_count,
             sim->frozen_worker != SIM_NOWHERE ? ", a worker is stopped" : "",
             sim->hung_job != SIM_NOWHERE ? ", reads hang" : "");
}

/* From here on everybody else does what he should: all jobs must come to their end. */
static void calm(struct sim *sim)
{
    sim->calm = true;
    for (uint32_t steps = 0; !sim->failed && !all_over(sim); steps++) {
        sim->step++;
        sim_carry_out(sim, UINT32_MAX);
        sim_compare(sim, true);
        uint32_t first = (uint32_t)sim_below(sim, SIM_ACT_HELPFUL), i = 0;
        while (i < SIM_ACT_HELPFUL && !sim_act(sim, (first + i) % SIM_ACT_HELPFUL))
            i++;
        if (i == SIM_ACT_HELPFUL && sim_carry_out(sim, UINT32_MAX) == 0 && !all_over(sim))
            stalled(sim, "nothing goes on");
        else if (steps == CALM_STEPS_MAX)
            stalled(sim, "there is no end");
    }
    sim_carry_out(sim, UINT32_MAX);
    sim_compare(sim, true);
}

static void end(struct sim *sim)
{
    calm(sim);
    for (uint32_t i = 0; i < sim->op_count; i++)
        sim->totals->hung_reads += sim->ops[i].fetch;
    sim->frozen_worker = sim->hung_job = SIM_NOWHERE; /* they go on at last */
    calm(sim);
    while (!sim->failed && sim_act(sim, SIM_ACT_SEAT_CLOSE))
        continue;
    if (!sim->failed && (pipeline_core_memory_used(sim->core) > 0 || sim->op_count > 0))
        sim_fail(sim, "all is over and something is still in use");
}

int sim_run(struct sim *sim, uint64_t seed, bool trace, struct sim_totals *totals)
{
    memset(sim, 0, sizeof *sim);
    sim->trace = trace;
    sim->totals = totals;
    sim_init(sim, seed);
    sim->core = pipeline_core_create(&sim->params);
    if (!sim->core) {
        sim_fail(sim, "no memory");
        return -1;
    }
    trouble(sim);
    if (!sim->failed)
        end(sim);
    pipeline_core_destroy(sim->core);
    totals->schedules++;
    totals->steps += sim->step;
    return sim->failed ? -1 : 0;
}
