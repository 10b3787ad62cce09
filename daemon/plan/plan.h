/* Order, slices, states and ids. Everything here is a pure function; docs/order.md says the same in
 * words, with test vectors. */
#ifndef SPDLD_PLAN_H
#define SPDLD_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "item/field.h"

enum {
    PLAN_ORDER_VERSION = 1,      /* of the permutation; part of the plan id */
    PLAN_STATE_FORMAT = 1,       /* of a state's text */
    PLAN_DECODE_VERSION = 1,     /* of the decoding policy; part of the state */
    PLAN_STATE_TEXT_BYTES = 256, /* a state as text, with its final 0 */
    PLAN_LANES_MAX = 65536,
    PLAN_ID_TEXT_BYTES = 33 /* 128 bits as 32 hexadecimal digits, with the final 0 */
};

enum plan_shuffle {
    PLAN_SHUFFLE_NONE = 1,
    PLAN_SHUFFLE_GLOBAL = 2,
    PLAN_SHUFFLE_BLOCK = 3 /* shards, then samples inside windows */
};
enum plan_last { PLAN_LAST_DROP = 1, PLAN_LAST_PAD = 2, PLAN_LAST_PARTIAL = 3 };

struct plan_id {
    uint64_t high, low; /* XXH3-128 of the canonical text */
};

/* What of a plan decides where a sample stands. */
struct plan_spec {
    uint32_t shuffle;       /* enum plan_shuffle */
    uint32_t last;          /* enum plan_last */
    uint64_t block_samples; /* block: places of a window, from 1 to 2^48; unused otherwise */
    uint32_t lanes;         /* up to PLAN_LANES_MAX; 0 is 1; above 1 not with global */
};

/* -EINVAL with a sentence for what no order has. */
int plan_spec_check(const struct plan_spec *spec, struct err *reterr);

/* Names as in the configuration; NULL outside. */
const char *plan_shuffle_name(uint32_t shuffle);
const char *plan_last_name(uint32_t last);

/* The order of an epoch: position -> sample, a bijection on [0, samples). samples from 1 to 2^63,
 * position < samples; none or global, which need no more than this. O(1), no memory. */
uint64_t plan_order(uint32_t shuffle, uint64_t seed, uint32_t epoch, uint64_t samples,
                    uint64_t position);

/* The same with its keys worked out once per epoch, for loops. */
struct plan_permutation {
    uint64_t samples, a, b;
    uint64_t keys[8];
    uint32_t shuffle;
};
void plan_permutation_init(struct plan_permutation *permutation, uint32_t shuffle, uint64_t seed,
                           uint32_t epoch, uint64_t samples);
uint64_t plan_permutation_at(const struct plan_permutation *permutation, uint64_t position);

/* The sample shown at a position whose own sample, and the substitutes of the attempts before this
 * one, cannot be shown. attempt >= 1. For each attempt a bijection on [0, samples), whatever the
 * shuffle; else as plan_order. */
uint64_t plan_substitute(uint64_t seed, uint32_t epoch, uint64_t samples, uint64_t position,
                         uint32_t attempt);

/* The order of a stream's epochs: none, global or block, with lanes. Keys and tables of two epochs
 * are kept, so that lookups in rising order of epoch and position are fast. One thread at a time.
 */
struct plan_sequence_params {
    struct plan_spec spec;
    uint64_t seed;
    uint64_t samples;       /* N, from 1 to 2^62 */
    uint64_t batch;         /* G, which the lanes divide; unused without lanes */
    const uint64_t *shards; /* first sample of each shard, from 0 on and never falling; borrowed as
                               long as the sequence lives; NULL: one shard */
    uint32_t shard_count;   /* of `shards` */
};
struct plan_sequence;

/* Returned owned: plan_sequence_close. -EINVAL: a spec or a shard table that cannot be; -ENOMEM. */
int plan_sequence_open(const struct plan_sequence_params *params, struct plan_sequence **ret,
                       struct err *reterr);
void plan_sequence_close(struct plan_sequence *sequence); /* accepts NULL */
/* Makes the epoch's table, so that the first lookup need not. */
void plan_sequence_prepare(struct plan_sequence *sequence, uint32_t epoch);
/* Memory of the tables: nothing but for block, and then by the number of shards. */
uint64_t plan_sequence_bytes(const struct plan_sequence_params *params);
/* Sample at a position < samples. O(log shards); an epoch that does not follow on the last one
 * costs its table, O(shards), which is otherwise made little by little while the epoch before runs.
 */
uint64_t plan_sequence_at(struct plan_sequence *sequence, uint32_t epoch, uint64_t position);

/* The plan id: canonical text "spdl-plan 1\n…" over dataset id, order version, spec and fields
 * after field_finish. Not seed, batch or world size. -EINVAL: what this version does not have;
 * -ENOMEM. Allocates, and gives it back. */
int plan_id_make(struct plan_id dataset_id, const struct plan_spec *spec,
                 const struct field_spec *fields, uint32_t field_count, struct plan_id *ret_id,
                 struct err *reterr);
void plan_id_text(struct plan_id id, char text[PLAN_ID_TEXT_BYTES]);

/* A place in a job: what a trainer saves. */
struct plan_state {
    uint32_t format;         /* PLAN_STATE_FORMAT */
    uint32_t decode_version; /* PLAN_DECODE_VERSION */
    struct plan_id plan_id;
    uint64_t seed;
    uint32_t epoch;
    uint64_t position; /* of the next global batch's first sample */
    uint64_t step;     /* of the next batch in its epoch */
    uint64_t batch;    /* G it was saved with */
};

/* Text of a state: "spdl1." and base64url without padding of the little-endian fields and a
 * checksum. Under PLAN_STATE_TEXT_BYTES. */
void plan_state_encode(const struct plan_state *state, char text[PLAN_STATE_TEXT_BYTES]);
/* Returns 0; -EINVAL: not a state, or damaged; -ENOTSUP: a later format. The sentence says which.
 * ret_state is touched on success alone. */
int plan_state_decode(const char *text, size_t bytes, struct plan_state *ret_state,
                      struct err *reterr);

/* A stream's batches: rank `rank` of `world` from a starting place on, without end, epoch after
 * epoch. */
struct plan_schedule {
    uint64_t samples; /* N */
    uint64_t batch;   /* G */
    uint32_t world;   /* W; divides G */
    uint32_t rank;
    uint32_t last;        /* enum plan_last */
    uint32_t lanes;       /* divides G; 0 is 1 */
    uint32_t start_epoch; /* where batch 0 is: the place as given, also at an epoch's end */
    uint64_t start_position;
    uint64_t start_step;
};

struct plan_batch {
    uint32_t epoch;
    uint64_t step;
    uint64_t position;       /* of the global batch */
    uint64_t first_position; /* of the rank's first row; row i is first_position + i, >= samples
                                only with pad */
    uint32_t rows;           /* of the rank; 0 … G/W */
    uint32_t next_epoch;     /* the place behind it: an epoch's end is (epoch + 1, 0, 0) */
    uint64_t next_position;
    uint64_t next_step;
};

/* Steps of a whole epoch of `samples` in batches of `batch`. */
uint64_t plan_steps(uint64_t samples, uint64_t batch, uint32_t last);

/* Checks a schedule, which may come from a rank: N and G from 1 to 2^62, W divides G, rank < W, an
 * epoch has at least one step, the place is in the epoch (step <= position <= N; with lanes at a
 * multiple of G), the epoch has one behind it. Returns 0 or -EINVAL; the sentence has both numbers
 * of what does not fit. */
int plan_schedule_check(const struct plan_schedule *schedule, struct err *reterr);

/* Batch k of the stream, k = 0, 1, … up to 2^63; O(1) for any k. For a schedule that was checked.
 * The epoch's number never wraps: it stays at 2^32 - 1. */
void plan_batch_at(const struct plan_schedule *schedule, uint64_t k, struct plan_batch *ret_batch);

#endif
