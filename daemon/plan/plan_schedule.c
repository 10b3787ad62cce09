/* Schedules: which rows a rank gets in the k-th batch of its stream. In: a starting place, the
 * sizes, k. Out: epoch, step, positions and the place behind. Pure integers, O(1), any thread. */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>

#include "base/assert.h"
#include "plan/plan.h"

/* N and G: so that no sum of positions comes near 2^64. */
static const uint64_t schedule_max = UINT64_C(1) << 62;

const char *plan_last_name(uint32_t last)
{
    switch ((enum plan_last)last) {
    case PLAN_LAST_DROP:
        return "drop";
    case PLAN_LAST_PAD:
        return "pad";
    case PLAN_LAST_PARTIAL:
        return "partial";
    }
    return NULL;
}

uint64_t plan_steps(uint64_t samples, uint64_t batch, uint32_t last)
{
    ASSERT(batch >= 1);
    uint64_t whole = samples / batch;
    return last == PLAN_LAST_DROP || samples % batch == 0 ? whole : whole + 1;
}

static int schedule_check_sizes(const struct plan_schedule *schedule, struct err *reterr)
{
    const uint64_t samples = schedule->samples;
    const uint64_t batch = schedule->batch;
    if (!plan_last_name(schedule->last))
        return err_set(reterr, -EINVAL, "last: %" PRIu32 " is none of drop, pad and partial",
                       schedule->last);
    if (samples < 1 || samples > schedule_max)
        return err_set(reterr, -EINVAL,
                       "an epoch must have 1 to %" PRIu64 " samples, this one has %" PRIu64,
                       schedule_max, samples);
    if (batch < 1 || batch > schedule_max)
        return err_set(reterr, -EINVAL,
                       "the global batch must be 1 to %" PRIu64 " samples, asked for is %" PRIu64,
                       schedule_max, batch);
    if (schedule->world < 1)
        return err_set(reterr, -EINVAL, "the world must have at least 1 rank, it has 0");
    if (schedule->rank >= schedule->world)
        return err_set(reterr, -EINVAL,
                       "rank %" PRIu32 " is outside a world of %" PRIu32 " (ranks count from 0)",
                       schedule->rank, schedule->world);
    if (batch % schedule->world != 0)
        return err_set(reterr, -EINVAL,
                       "the global batch of %" PRIu64 " cannot be divided among %" PRIu32
                       " ranks; make it a multiple of %" PRIu32,
                       batch, schedule->world, schedule->world);
    if (schedule->lanes > 1 && batch % schedule->lanes != 0)
        return err_set(reterr, -EINVAL,
                       "the global batch of %" PRIu64 " cannot be divided among %" PRIu32
                       " lanes; make it a multiple of %" PRIu32,
                       batch, schedule->lanes, schedule->lanes);
    if (batch / schedule->world > UINT32_MAX)
        return err_set(reterr, -EINVAL,
                       "a rank's batch of %" PRIu64 " rows is above the limit of %" PRIu32,
                       batch / schedule->world, UINT32_MAX);
    if (plan_steps(samples, batch, schedule->last) < 1)
        return err_set(reterr, -EINVAL,
                       "an epoch would have no step: its %" PRIu64
                       " samples are fewer than the global batch of %" PRIu64
                       " and last: drop leaves an incomplete batch out; make the batch smaller, "
                       "or say last: pad or last: partial in the dataset's configuration",
                       samples, batch);
    return 0;
}

int plan_schedule_check(const struct plan_schedule *schedule, struct err *reterr)
{
    int rc = schedule_check_sizes(schedule, reterr);
    if (rc < 0)
        return rc;
    if (schedule->start_epoch == UINT32_MAX)
        return err_set(reterr, -EINVAL, "epoch %" PRIu32 " is above the limit of %" PRIu32,
                       schedule->start_epoch, UINT32_MAX - 1);
    if (schedule->start_position > schedule->samples)
        return err_set(reterr, -EINVAL,
                       "position %" PRIu64 " is beyond the epoch, which has %" PRIu64 " samples",
                       schedule->start_position, schedule->samples);
    if (schedule->lanes > 1 && schedule->start_position % schedule->batch != 0)
        return err_set(reterr, -EINVAL,
                       "position %" PRIu64 " is no multiple of the global batch of %" PRIu64
                       ": with %" PRIu32 " lanes a stream begins where a batch does",
                       schedule->start_position, schedule->batch, schedule->lanes);
    if (schedule->start_step > schedule->start_position)
        return err_set(reterr, -EINVAL,
                       "step %" PRIu64 " cannot be at position %" PRIu64
                       ": each step before it took at least one sample",
                       schedule->start_step, schedule->start_position);
    return 0;
}

/* The epoch `steps` whole epochs behind `epoch`; stays at the last number there is. */
static uint32_t schedule_epoch_add(uint32_t epoch, uint64_t epochs)
{
    return epochs > UINT32_MAX - epoch ? UINT32_MAX : epoch + (uint32_t)epochs;
}

void plan_batch_at(const struct plan_schedule *schedule, uint64_t k, struct plan_batch *ret_batch)
{
    const uint64_t samples = schedule->samples;
    const uint64_t batch = schedule->batch;
    ASSERT(schedule->start_position <= samples && schedule->rank < schedule->world);
    const uint64_t left = samples - schedule->start_position;
    uint64_t epoch_steps = plan_steps(left, batch, schedule->last); /* that are left */
    uint64_t index = k;                                             /* of the batch among those */
    struct plan_batch b = {.epoch = schedule->start_epoch,
                           .step = schedule->start_step,
                           .position = schedule->start_position};
    if (index >= epoch_steps) {
        index -= epoch_steps;
        epoch_steps = plan_steps(samples, batch, schedule->last);
        ASSERT(epoch_steps >= 1);
        b.epoch = schedule_epoch_add(schedule->start_epoch, 1);
        b.epoch = schedule_epoch_add(b.epoch, index / epoch_steps);
        index %= epoch_steps;
        b.step = 0;
        b.position = 0;
    }
    b.step += index;
    b.position += index * batch;
    if (index + 1 == epoch_steps) {
        b.next_epoch = schedule_epoch_add(b.epoch, 1);
    } else {
        b.next_epoch = b.epoch;
        b.next_position = b.position + batch;
        b.next_step = b.step + 1;
    }
    const uint64_t share = batch / schedule->world;
    const uint64_t offset = schedule->rank * share;
    b.first_position = b.position + offset;
    const uint64_t there = samples - b.position; /* rows of the global batch that exist */
    uint64_t rows = share;
    if (schedule->last == PLAN_LAST_PARTIAL && offset + share > there)
        rows = offset < there ? there - offset : 0;
    b.rows = (uint32_t)rows;
    *ret_batch = b;
}
