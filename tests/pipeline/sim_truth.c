/* What is true in the simulator's world: which sample each row must show, and where the limits of
 * failures end a stream. Written apart from the core, from docs/order.md and the rules alone. */
#include "tests/pipeline/sim.h"

static uint64_t sample_at(const struct sim_job *job, uint32_t epoch, uint64_t position,
                          uint32_t attempt)
{
    uint64_t samples = job->schedule.samples;
    if (attempt == 0)
        return plan_order(job->shuffle, job->seed, epoch, samples, position % samples);
    return plan_substitute(job->seed, epoch, samples, position % samples, attempt);
}

uint64_t sim_id_of(const struct sim_job *job, uint64_t k, uint32_t row, uint32_t attempt)
{
    struct plan_batch batch;
    plan_batch_at(&job->schedule, k, &batch);
    return sample_at(job, batch.epoch, batch.first_position + row, attempt);
}

/* What each rank must see, whatever happens. */
struct sim_truth sim_truth_of(const struct sim *sim, const struct sim_job *job, uint64_t k,
                              uint32_t row)
{
    struct plan_batch batch;
    plan_batch_at(&job->schedule, k, &batch);
    struct sim_truth truth = {.position = batch.first_position + row, .epoch = batch.epoch};
    truth.padded = truth.position >= job->schedule.samples;
    truth.failed_id = truth.id = sample_at(job, truth.epoch, truth.position, 0);
    truth.class_number = sim_class_of(sim, truth.id);
    enum spdl_class class_number = truth.class_number;
    while (class_number != SPDL_CLASS_OK && job->policy == PIPELINE_POLICY_SUBSTITUTE &&
           truth.attempt < job->max_consecutive) {
        truth.id = sample_at(job, truth.epoch, truth.position, ++truth.attempt);
        class_number = sim_class_of(sim, truth.id);
    }
    truth.masked = class_number != SPDL_CLASS_OK;
    return truth;
}

enum spdl_class sim_most_class(const struct sim_counts *counts)
{
    enum spdl_class most = SPDL_CLASS_OK;
    for (uint32_t i = 0; i < SPDL_CLASS_COUNT; i++)
        if (counts->classes[i] > counts->classes[most])
            most = (enum spdl_class)i;
    return most;
}

enum pipeline_limit sim_count_batch(const struct sim *sim, const struct sim_job *job, uint64_t k,
                                    struct sim_counts *counts, uint32_t *ret_row)
{
    struct plan_batch batch;
    plan_batch_at(&job->schedule, k, &batch);
    for (uint32_t row = 0; row < batch.rows; row++) {
        struct sim_truth truth = sim_truth_of(sim, job, k, row);
        *ret_row = row;
        counts->rows++;
        counts->shown += !truth.masked;
        uint32_t failures = truth.attempt + truth.masked;
        for (uint32_t a = 0; a < failures; a++)
            counts->failures[sim_class_of(sim, sim_id_of(job, k, row, a))]++;
        if (failures > 0) {
            counts->failed++;
            counts->consecutive++;
            counts->classes[truth.class_number]++;
            if (job->policy == PIPELINE_POLICY_FAIL)
                return PIPELINE_LIMIT_FIRST;
            if (job->policy == PIPELINE_POLICY_SUBSTITUTE && truth.masked)
                return PIPELINE_LIMIT_ATTEMPTS;
            if (counts->consecutive > job->max_consecutive)
                return PIPELINE_LIMIT_CONSECUTIVE;
        } else {
            counts->consecutive = 0;
        }
        if (counts->rows >= sim->params.rate_rows &&
            (double)counts->failed / (double)counts->rows >
                (double)job->max_rate / PIPELINE_RATE_UNIT + 1e-12)
            return PIPELINE_LIMIT_RATE;
    }
    return PIPELINE_LIMIT_NONE;
}

void sim_lookup(void *context, uint32_t stream, const struct pipeline_place *place,
                struct pipeline_sample *ret_sample)
{
    struct sim *sim = context;
    *ret_sample = (struct pipeline_sample){0};
    if (stream >= SIM_STREAMS_MAX || !sim->streams[stream].used) {
        sim_fail(sim, "lookup for stream %u, which is not there", stream);
        return;
    }
    const struct sim_job *job = &sim->jobs[sim->streams[stream].job];
    if (place->position >= job->schedule.samples || place->attempt > job->max_consecutive) {
        sim_fail(sim, "lookup behind the last sample, or of attempt %u", place->attempt);
        return;
    }
    uint64_t id = sample_at(job, place->epoch, place->position, place->attempt);
    ret_sample->id = id;
    ret_sample->blob_bytes = sim_blob_bytes_of(sim, id);
    ret_sample->in_place = sim_is_in_place(sim, id);
    if (sim_fate_of(sim, id) == SIM_BAD_LOOKUP)
        ret_sample->class_number = sim_class_of(sim, id);
}
