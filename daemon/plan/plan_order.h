/* The keyed permutation beneath every order. For the files of this room alone. */
#ifndef SPDLD_PLAN_ORDER_H
#define SPDLD_PLAN_ORDER_H

#include "plan/plan.h"

/* What is permuted: bits 16 … 23 of the last word of the counters that round keys are from, so that
 * no two kinds share a key. */
enum plan_order_kind {
    PLAN_ORDER_EPOCH = 0,  /* all samples of an epoch; number 0, or attempt * 2^30: substitutes */
    PLAN_ORDER_SHARDS = 1, /* the shards of an epoch */
    PLAN_ORDER_WINDOW = 2  /* the places of a window; its number is that of its first place */
};

struct plan_order_name {
    uint64_t seed;
    uint64_t number; /* of the permutation among those of its kind; below 2^62 */
    uint32_t epoch;
};

/* Fills the permutation of [0, n) of that kind and name, 1 <= n <= 2^63. */
void plan_order_keys(struct plan_permutation *permutation, enum plan_order_kind kind,
                     const struct plan_order_name *name, uint64_t n);

#endif
