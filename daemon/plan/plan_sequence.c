/* The order of a stream, epoch after epoch: lanes, shards, windows. In: a spec, a seed, the table
 * of shards. Out: the sample at a position. The shards of an epoch stand permuted in a table;
 * behind it lie the places of the epoch, 0 … N - 1, and a window of them is permuted by a
 * permutation of its own. docs/order.md has the law, with vectors. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/assert.h"
#include "plan/plan_order.h"

enum {
    SEQUENCE_CURSORS = 8,      /* lanes whose window is kept */
    SEQUENCE_SHARDS_AHEAD = 16 /* that a lookup adds to the table of the epoch behind */
};

static const uint64_t sequence_samples_max = UINT64_C(1) << 62;
static const uint64_t sequence_block_max = UINT64_C(1) << 48;

/* An epoch's keys and, for block, its shards in their order: starts[i] is the place of the first
 * sample of the i-th shard that has any, firsts[i] the number of that sample. */
struct sequence_epoch {
    bool begun;
    uint32_t epoch;
    uint32_t filled;                     /* shards that were looked at */
    uint32_t used;                       /* entries of the table */
    uint64_t places;                     /* of those */
    struct plan_permutation permutation; /* of all samples, or of the shards */
    uint64_t *starts, *firsts;
};

/* The window that a lane is in, and which entries of the table it lies on. */
struct sequence_cursor {
    bool known;
    uint32_t epoch;
    uint64_t first, end; /* places */
    uint32_t low, high;  /* entries of its first and of its last place */
    struct plan_permutation permutation;
};

struct plan_sequence {
    struct plan_sequence_params params;
    uint64_t lane_samples, longer_lanes; /* N / L and N % L: so many lanes have one more */
    uint64_t lane_share;                 /* G / L: of a batch */
    uint64_t lane_whole;                 /* of a lane: what the whole batches take */
    struct sequence_epoch epochs[2];     /* even and odd */
    struct sequence_cursor cursors[SEQUENCE_CURSORS];
};

int plan_spec_check(const struct plan_spec *spec, struct err *reterr)
{
    if (!plan_shuffle_name(spec->shuffle))
        return err_set(reterr, -EINVAL, "shuffle: %" PRIu32 " is none of none, global and block",
                       spec->shuffle);
    if (!plan_last_name(spec->last))
        return err_set(reterr, -EINVAL, "last: %" PRIu32 " is none of drop, pad and partial",
                       spec->last);
    if (spec->shuffle == PLAN_SHUFFLE_BLOCK &&
        (spec->block_samples < 1 || spec->block_samples > sequence_block_max))
        return err_set(reterr, -EINVAL, "block_samples: %" PRIu64 " is not from 1 to %" PRIu64,
                       spec->block_samples, sequence_block_max);
    if (spec->lanes > PLAN_LANES_MAX)
        return err_set(reterr, -EINVAL, "%" PRIu32 " lanes are more than the limit of %d",
                       spec->lanes, (int)PLAN_LANES_MAX);
    if (spec->lanes > 1 && spec->shuffle == PLAN_SHUFFLE_GLOBAL)
        return err_set(reterr, -EINVAL,
                       "%" PRIu32 " lanes with shuffle: global would keep no rank to its own "
                       "shards; use shuffle: block or none",
                       spec->lanes);
    return 0;
}

static bool is_block(const struct plan_sequence *sequence)
{
    return sequence->params.spec.shuffle == PLAN_SHUFFLE_BLOCK;
}

static uint32_t shards_of(const struct plan_sequence_params *params)
{
    return params->shards ? params->shard_count : 1;
}

uint64_t plan_sequence_bytes(const struct plan_sequence_params *params)
{
    if (params->spec.shuffle != PLAN_SHUFFLE_BLOCK)
        return 0;
    return shards_of(params) * (uint64_t)(4 * sizeof(uint64_t));
}

static int params_check(const struct plan_sequence_params *params, struct err *reterr)
{
    int rc = plan_spec_check(&params->spec, reterr);
    if (rc < 0)
        return rc;
    if (params->samples < 1 || params->samples > sequence_samples_max)
        return err_set(reterr, -EINVAL,
                       "an epoch must have 1 to %" PRIu64 " samples, this one has %" PRIu64,
                       sequence_samples_max, params->samples);
    if (params->spec.lanes > 1 && (params->batch < 1 || params->batch % params->spec.lanes != 0))
        return err_set(reterr, -EINVAL,
                       "the global batch of %" PRIu64 " cannot be divided among %" PRIu32 " lanes",
                       params->batch, params->spec.lanes);
    if (!params->shards)
        return 0;
    bool is_right = params->shard_count > 0 && params->shards[0] == 0;
    for (uint32_t i = 1; is_right && i < params->shard_count; i++)
        is_right = params->shards[i - 1] <= params->shards[i];
    if (!is_right || params->shards[params->shard_count - 1] > params->samples)
        return err_set(reterr, -EINVAL,
                       "the table of %" PRIu32 " shards does not cover %" PRIu64
                       " samples in rising order",
                       params->shard_count, params->samples);
    return 0;
}

int plan_sequence_open(const struct plan_sequence_params *params, struct plan_sequence **ret,
                       struct err *reterr)
{
    int rc = params_check(params, reterr);
    if (rc < 0)
        return rc;
    struct plan_sequence *sequence = calloc(1, sizeof *sequence);
    if (!sequence)
        return err_set(reterr, -ENOMEM, "no memory for an order");
    sequence->params = *params;
    const uint32_t lanes = params->spec.lanes > 1 ? params->spec.lanes : 1;
    sequence->lane_samples = params->samples / lanes;
    sequence->longer_lanes = params->samples % lanes;
    if (lanes > 1) {
        sequence->lane_share = params->batch / lanes;
        sequence->lane_whole = params->samples / params->batch * sequence->lane_share;
    }
    for (uint32_t i = 0; i < 2 && is_block(sequence); i++) {
        struct sequence_epoch *half = &sequence->epochs[i];
        half->starts = calloc(shards_of(params) + (size_t)1, sizeof *half->starts);
        half->firsts = calloc(shards_of(params) + (size_t)1, sizeof *half->firsts);
        if (!half->starts || !half->firsts) {
            plan_sequence_close(sequence);
            return err_set(reterr, -ENOMEM,
                           "no memory for the tables of %" PRIu32 " shards, %" PRIu64 " bytes",
                           shards_of(params), plan_sequence_bytes(params));
        }
    }
    *ret = sequence;
    return 0;
}

void plan_sequence_close(struct plan_sequence *sequence)
{
    for (uint32_t i = 0; sequence && i < 2; i++) {
        free(sequence->epochs[i].starts);
        free(sequence->epochs[i].firsts);
    }
    free(sequence);
}

/* --- an epoch's keys and table --- */

static void epoch_begin(const struct plan_sequence *sequence, struct sequence_epoch *half,
                        uint32_t epoch)
{
    const struct plan_order_name name = {.seed = sequence->params.seed, .epoch = epoch};
    half->begun = true;
    half->epoch = epoch;
    half->filled = half->used = 0;
    half->places = 0;
    switch ((enum plan_shuffle)sequence->params.spec.shuffle) {
    case PLAN_SHUFFLE_NONE:
        break;
    case PLAN_SHUFFLE_GLOBAL:
        plan_order_keys(&half->permutation, PLAN_ORDER_EPOCH, &name, sequence->params.samples);
        break;
    case PLAN_SHUFFLE_BLOCK:
        plan_order_keys(&half->permutation, PLAN_ORDER_SHARDS, &name, shards_of(&sequence->params));
        break;
    }
}

/* Adds the next shards of the epoch to its table, so many at most. */
static void epoch_fill(const struct plan_sequence *sequence, struct sequence_epoch *half,
                       uint32_t count)
{
    const uint64_t *shards = sequence->params.shards;
    const uint32_t shard_count = shards_of(&sequence->params);
    for (; count > 0 && half->filled < shard_count; count--, half->filled++) {
        uint64_t shard = plan_permutation_at(&half->permutation, half->filled);
        uint64_t first = shards ? shards[shard] : 0;
        uint64_t end = shard + 1 < shard_count ? shards[shard + 1] : sequence->params.samples;
        if (first == end)
            continue;
        half->starts[half->used] = half->places;
        half->firsts[half->used] = first;
        half->used++;
        half->places += end - first;
    }
}

/* The epoch, ready; the one behind it is brought forward a little. */
static const struct sequence_epoch *epoch_get(struct plan_sequence *sequence, uint32_t epoch)
{
    struct sequence_epoch *half = &sequence->epochs[epoch & 1];
    if (!half->begun || half->epoch != epoch)
        epoch_begin(sequence, half, epoch);
    if (!is_block(sequence))
        return half;
    const uint32_t shard_count = shards_of(&sequence->params);
    if (half->filled < shard_count)
        epoch_fill(sequence, half, shard_count);
    if (epoch == UINT32_MAX)
        return half;
    struct sequence_epoch *next = &sequence->epochs[(epoch + 1) & 1];
    if (!next->begun || next->epoch != epoch + 1)
        epoch_begin(sequence, next, epoch + 1);
    if (next->filled < shard_count)
        epoch_fill(sequence, next, SEQUENCE_SHARDS_AHEAD);
    return half;
}

void plan_sequence_prepare(struct plan_sequence *sequence, uint32_t epoch)
{
    epoch_get(sequence, epoch);
}

/* --- lanes and windows --- */

static uint64_t lane_start(const struct plan_sequence *sequence, uint64_t lane)
{
    uint64_t longer = lane < sequence->longer_lanes ? lane : sequence->longer_lanes;
    return lane * sequence->lane_samples + longer;
}

/* Which lane a position reads, and how far along it: in a whole batch each lane has its share, one
 * behind the other; what the whole batches leave over comes lane by lane. */
static uint64_t lane_of(const struct plan_sequence *sequence, uint64_t position,
                        uint64_t *ret_offset)
{
    const uint64_t batch = sequence->params.batch;
    const uint64_t step = position / batch;
    uint64_t index = position % batch;
    if (step * sequence->lane_share < sequence->lane_whole) {
        *ret_offset = step * sequence->lane_share + index % sequence->lane_share;
        return index / sequence->lane_share;
    }
    const uint64_t left = sequence->lane_samples - sequence->lane_whole; /* of a shorter lane */
    const uint64_t of_longer = sequence->longer_lanes * (left + 1);
    uint64_t lane = 0;
    if (index < of_longer) {
        lane = index / (left + 1);
        index %= left + 1;
    } else {
        lane = sequence->longer_lanes + (index - of_longer) / left;
        index = (index - of_longer) % left;
    }
    *ret_offset = sequence->lane_whole + index;
    return lane;
}

/* The entry among low … high that a place is on. */
static uint32_t entry_of(const struct sequence_epoch *half, uint32_t low, uint32_t high,
                         uint64_t place)
{
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (half->starts[middle] <= place)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static void cursor_move(const struct plan_sequence *sequence, const struct sequence_epoch *half,
                        uint64_t first, uint64_t end, struct sequence_cursor *cursor)
{
    const struct plan_order_name name = {
        .seed = sequence->params.seed, .number = first, .epoch = half->epoch};
    cursor->known = true;
    cursor->epoch = half->epoch;
    cursor->first = first;
    cursor->end = end;
    cursor->low = entry_of(half, 0, half->used - 1, first);
    cursor->high = entry_of(half, cursor->low, half->used - 1, end - 1);
    plan_order_keys(&cursor->permutation, PLAN_ORDER_WINDOW, &name, end - first);
}

static uint64_t block_at(struct plan_sequence *sequence, const struct sequence_epoch *half,
                         uint64_t lane, uint64_t offset)
{
    const uint64_t begin = lane_start(sequence, lane);
    const uint64_t place = begin + offset;
    struct sequence_cursor *cursor = &sequence->cursors[lane % SEQUENCE_CURSORS];
    if (!cursor->known || cursor->epoch != half->epoch || place < cursor->first ||
        place >= cursor->end) {
        const uint64_t block = sequence->params.spec.block_samples;
        const uint64_t first = begin + offset / block * block;
        const uint64_t lane_end = lane_start(sequence, lane + 1);
        const uint64_t end = lane_end - first > block ? first + block : lane_end;
        cursor_move(sequence, half, first, end, cursor);
    }
    const uint64_t there =
        cursor->first + plan_permutation_at(&cursor->permutation, place - cursor->first);
    const uint32_t entry = entry_of(half, cursor->low, cursor->high, there);
    return half->firsts[entry] + (there - half->starts[entry]);
}

uint64_t plan_sequence_at(struct plan_sequence *sequence, uint32_t epoch, uint64_t position)
{
    ASSERT(position < sequence->params.samples);
    const struct sequence_epoch *half = epoch_get(sequence, epoch);
    uint64_t offset = position;
    uint64_t lane = 0;
    if (sequence->params.spec.lanes > 1)
        lane = lane_of(sequence, position, &offset);
    switch ((enum plan_shuffle)sequence->params.spec.shuffle) {
    case PLAN_SHUFFLE_NONE:
        return lane_start(sequence, lane) + offset;
    case PLAN_SHUFFLE_GLOBAL:
        return plan_permutation_at(&half->permutation, position);
    case PLAN_SHUFFLE_BLOCK:
        return block_at(sequence, half, lane, offset);
    }
    return position;
}
