/* The order of an epoch: a keyed permutation of [0, samples) by a Feistel network on Z_a x Z_b with
 * cycle walking. In: seed, epoch, number of samples, position. Out: a sample. Nothing is stored per
 * sample. Any thread. The law in words, with vectors: docs/order.md. */
#include <stddef.h>

#include "base/assert.h"
#include "base/philox.h"
#include "plan/plan_order.h"

enum {
    ORDER_ROUNDS = 8,
    ORDER_ATTEMPT_SHIFT = 30 /* a substitute's attempt is word 1 of its counters */
};

/* Word 3 of the counter of a random draw is below 2^30, so no draw of any seed shares a block with
 * a round key. Its bits 16 to 23 say what is permuted. */
static const uint32_t order_domain = UINT32_C(0x80000000) + PLAN_ORDER_VERSION;

static const uint64_t order_samples_max = UINT64_C(1) << 63;

const char *plan_shuffle_name(uint32_t shuffle)
{
    switch ((enum plan_shuffle)shuffle) {
    case PLAN_SHUFFLE_NONE:
        return "none";
    case PLAN_SHUFFLE_GLOBAL:
        return "global";
    case PLAN_SHUFFLE_BLOCK:
        return "block";
    }
    return NULL;
}

/* Smallest r with r * r >= n, for n up to 2^63. */
static uint64_t order_root_up(uint64_t n)
{
    uint64_t root = 0; /* largest with root * root < n */
    for (uint64_t bit = UINT64_C(1) << 31; bit != 0; bit >>= 1) {
        uint64_t next = root + bit;
        if (next * next < n)
            root = next;
    }
    return root + 1;
}

/* SplitMix64's output function (Steele, Lea, Flood 2014, with Stafford's constants): a bijection of
 * 64 bits, each output bit of which depends on all input bits. */
static uint64_t order_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* floor(h * m / 2^64) for m below 2^32. */
static uint64_t order_reduce(uint64_t h, uint64_t m)
{
    return ((h >> 32) * m + (((h & UINT32_MAX) * m) >> 32)) >> 32;
}

static uint64_t order_add(uint64_t x, uint64_t y, uint64_t m)
{
    uint64_t sum = x + y;
    return sum >= m ? sum - m : sum;
}

void plan_order_keys(struct plan_permutation *permutation, enum plan_order_kind kind,
                     const struct plan_order_name *name, uint64_t n)
{
    ASSERT(n >= 1 && n <= order_samples_max);
    *permutation = (struct plan_permutation){.samples = n, .shuffle = PLAN_SHUFFLE_GLOBAL};
    permutation->a = order_root_up(n);
    permutation->b = (n - 1) / permutation->a + 1;
    const uint32_t key[2] = {(uint32_t)name->seed, (uint32_t)(name->seed >> 32)};
    const uint32_t domain = order_domain + ((uint32_t)kind << 16);
    for (uint32_t block = 0; block < ORDER_ROUNDS / 2; block++) {
        const uint64_t low = name->number * (ORDER_ROUNDS / 2) + block;
        const uint32_t counter[4] = {(uint32_t)low, (uint32_t)(low >> 32), name->epoch, domain};
        uint32_t words[4];
        philox4x32(counter, key, words);
        permutation->keys[2 * block] = words[0] | (uint64_t)words[1] << 32;
        permutation->keys[2 * block + 1] = words[2] | (uint64_t)words[3] << 32;
    }
}

void plan_permutation_init(struct plan_permutation *permutation, uint32_t shuffle, uint64_t seed,
                           uint32_t epoch, uint64_t samples)
{
    ASSERT(samples >= 1 && samples <= order_samples_max);
    ASSERT(shuffle == PLAN_SHUFFLE_NONE || shuffle == PLAN_SHUFFLE_GLOBAL);
    const struct plan_order_name name = {.seed = seed, .epoch = epoch};
    if (shuffle == PLAN_SHUFFLE_GLOBAL)
        plan_order_keys(permutation, PLAN_ORDER_EPOCH, &name, samples);
    else
        *permutation = (struct plan_permutation){.samples = samples, .shuffle = shuffle};
}

uint64_t plan_permutation_at(const struct plan_permutation *permutation, uint64_t position)
{
    ASSERT(position < permutation->samples);
    if (permutation->shuffle == PLAN_SHUFFLE_NONE)
        return position;
    const uint64_t a = permutation->a;
    const uint64_t b = permutation->b;
    const uint64_t *keys = permutation->keys;
    uint64_t x = position;
    do { /* ends: the walk is on a cycle that holds `position` itself, which is below samples */
        uint64_t left = x / b;
        uint64_t right = x % b;
        for (size_t round = 0; round < ORDER_ROUNDS; round += 2) {
            left = order_add(left, order_reduce(order_mix(right ^ keys[round]), a), a);
            right = order_add(right, order_reduce(order_mix(left ^ keys[round + 1]), b), b);
        }
        x = left * b + right;
    } while (x >= permutation->samples);
    return x;
}

uint64_t plan_order(uint32_t shuffle, uint64_t seed, uint32_t epoch, uint64_t samples,
                    uint64_t position)
{
    struct plan_permutation permutation;
    plan_permutation_init(&permutation, shuffle, seed, epoch, samples);
    return plan_permutation_at(&permutation, position);
}

uint64_t plan_substitute(uint64_t seed, uint32_t epoch, uint64_t samples, uint64_t position,
                         uint32_t attempt)
{
    ASSERT(attempt >= 1);
    const struct plan_order_name name = {
        .seed = seed, .number = (uint64_t)attempt << ORDER_ATTEMPT_SHIFT, .epoch = epoch};
    struct plan_permutation permutation;
    plan_order_keys(&permutation, PLAN_ORDER_EPOCH, &name, samples);
    return plan_permutation_at(&permutation, position);
}
