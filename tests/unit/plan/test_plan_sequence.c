/* The order by shards, windows and lanes: the vectors, that it is a permutation for any table of
 * shards and any way through it, what stays near what, chance, cost and refusals. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/philox.h"
#include "plan/plan.h"
#include "tests/lib/vectors.h"

enum { SHARDS_MAX = 64, SAMPLES_MAX = 4096 };

static struct plan_sequence *open_good(const struct plan_sequence_params *params)
{
    struct plan_sequence *sequence = NULL;
    struct err err = {0};
    if (plan_sequence_open(params, &sequence, &err) != 0)
        fail_msg("%s", err.text);
    return sequence;
}

static uint32_t shuffle_of(const char *name)
{
    return strcmp(name, "block") == 0 ? PLAN_SHUFFLE_BLOCK : PLAN_SHUFFLE_NONE;
}

/* First samples of the shards whose sizes stand between commas; returns how many samples. */
static uint64_t read_shards(const char *text, uint64_t *firsts, uint32_t *ret_count)
{
    uint64_t samples = 0;
    uint32_t count = 0;
    for (;;) {
        char *end;
        assert_true(count < SHARDS_MAX);
        firsts[count++] = samples;
        samples += strtoull(text, &end, 10);
        if (*end != ',')
            break;
        text = end + 1;
    }
    *ret_count = count;
    return samples;
}

static void test_vectors_of_whole_epochs(void **state)
{
    (void)state;
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "block", 8); rows++) {
        uint64_t firsts[SHARDS_MAX];
        struct plan_sequence_params params = {.spec = {.shuffle = shuffle_of(vectors.words[1]),
                                                       .last = PLAN_LAST_DROP,
                                                       .block_samples = vectors_u64(&vectors, 4),
                                                       .lanes = vectors_u32(&vectors, 5)},
                                              .seed = vectors_u64(&vectors, 2),
                                              .batch = vectors_u64(&vectors, 6),
                                              .shards = firsts};
        const uint32_t epoch = vectors_u32(&vectors, 3);
        params.samples = read_shards(vectors.words[7], firsts, &params.shard_count);
        struct plan_sequence *sequence = open_good(&params);
        const char *at = vectors.words[8];
        for (uint64_t position = 0; position < params.samples; position++) {
            char *end;
            assert_true(plan_sequence_at(sequence, epoch, position) == strtoull(at, &end, 10));
            at = end + 1;
        }
        plan_sequence_close(sequence);
    }
    vectors_close(&vectors);
    assert_true(rows >= 108);
}

static void test_vectors_of_large_epochs(void **state)
{
    (void)state;
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "block_large", 9); rows++) {
        const uint32_t count = vectors_u32(&vectors, 6);
        const uint64_t size = vectors_u64(&vectors, 7);
        uint64_t *firsts = malloc(count * sizeof *firsts);
        assert_non_null(firsts);
        for (uint32_t i = 0; i < count; i++)
            firsts[i] = i * size;
        struct plan_sequence *sequence = open_good(
            &(struct plan_sequence_params){.spec = {.shuffle = PLAN_SHUFFLE_BLOCK,
                                                    .last = PLAN_LAST_PAD,
                                                    .block_samples = vectors_u64(&vectors, 3),
                                                    .lanes = vectors_u32(&vectors, 4)},
                                           .seed = vectors_u64(&vectors, 1),
                                           .samples = count * size,
                                           .batch = vectors_u64(&vectors, 5),
                                           .shards = count > 1 ? firsts : NULL,
                                           .shard_count = count});
        assert_true(plan_sequence_at(sequence, vectors_u32(&vectors, 2),
                                     vectors_u64(&vectors, 8)) == vectors_u64(&vectors, 9));
        plan_sequence_close(sequence);
        free(firsts);
    }
    vectors_close(&vectors);
    assert_true(rows >= 64);
}

/* What is none of block's business goes through unchanged. */
static void test_none_and_global_are_as_ever(void **state)
{
    (void)state;
    static const uint32_t shuffles[] = {PLAN_SHUFFLE_NONE, PLAN_SHUFFLE_GLOBAL};
    for (size_t i = 0; i < 2; i++) {
        const struct plan_sequence_params params = {
            .spec = {.shuffle = shuffles[i], .last = PLAN_LAST_DROP}, .seed = 77, .samples = 1234};
        struct plan_sequence *sequence = open_good(&params);
        assert_int_equal(plan_sequence_bytes(&params), 0);
        static const uint32_t epochs[] = {0, 1, 2, 1, UINT32_MAX - 1, UINT32_MAX, 0};
        for (size_t e = 0; e < sizeof epochs / sizeof epochs[0]; e++)
            for (uint64_t position = 0; position < params.samples; position += 7)
                assert_true(plan_sequence_at(sequence, epochs[e], position) ==
                            plan_order(shuffles[i], 77, epochs[e], 1234, position));
        plan_sequence_close(sequence);
    }
}

static uint32_t pick(uint32_t number, uint32_t draw, uint32_t below)
{
    const uint32_t counter[4] = {number, draw, 0, 0};
    const uint32_t key[2] = {2026, 12};
    uint32_t words[4];
    philox4x32(counter, key, words);
    return words[0] % below;
}

/* A table of shards, a window, lanes and a batch, made from a number. */
static void make_case(uint32_t number, uint64_t *firsts, struct plan_sequence_params *ret_params)
{
    static const uint32_t sizes[] = {1, 2, 3, 20, 90};
    static const uint32_t lanes[] = {1, 1, 2, 3, 4, 8};
    const uint32_t count = 1 + pick(number, 0, pick(number, 1, 4) == 0 ? 3 : SHARDS_MAX - 1);
    const uint32_t largest = sizes[pick(number, 2, 5)];
    uint64_t samples = 0;
    for (uint32_t i = 0; i < count; i++) {
        firsts[i] = samples;
        samples += pick(number, 100 + i, largest + 1); /* some are empty */
    }
    const uint32_t lane_count = lanes[pick(number, 3, 6)];
    *ret_params = (struct plan_sequence_params){
        .spec = {.shuffle = pick(number, 4, 5) == 0 ? PLAN_SHUFFLE_NONE : PLAN_SHUFFLE_BLOCK,
                 .last = PLAN_LAST_PARTIAL,
                 .block_samples = 1 + pick(number, 5, pick(number, 6, 2) ? 20 : 3000),
                 .lanes = lane_count},
        .seed = number,
        .samples = samples > 0 ? samples : 1,
        .batch = lane_count * (uint64_t)(1 + pick(number, 7, 12)),
        .shards = firsts,
        .shard_count = count};
}

static void test_any_table_is_permuted(void **state)
{
    (void)state;
    for (uint32_t number = 0; number < 600; number++) {
        uint64_t firsts[SHARDS_MAX];
        struct plan_sequence_params params;
        make_case(number, firsts, &params);
        assert_true(params.samples <= SAMPLES_MAX * 2);
        struct plan_sequence *sequence = open_good(&params);
        for (uint32_t epoch = 0; epoch < 3; epoch++) {
            unsigned char seen[SAMPLES_MAX * 2] = {0};
            for (uint64_t position = 0; position < params.samples; position++) {
                uint64_t sample = plan_sequence_at(sequence, epoch, position);
                assert_true(sample < params.samples);
                assert_int_equal(seen[sample], 0);
                seen[sample] = 1;
            }
        }
        plan_sequence_close(sequence);
    }
}

/* What was looked up before changes nothing: any position of any epoch, in any turn. */
static void test_any_way_through_gives_the_same(void **state)
{
    (void)state;
    for (uint32_t number = 0; number < 100; number++) {
        uint64_t firsts[SHARDS_MAX];
        struct plan_sequence_params params;
        make_case(number, firsts, &params);
        struct plan_sequence *sequence = open_good(&params);
        for (uint32_t i = 0; i < 200; i++) {
            const uint32_t epoch = pick(number, 1000 + i, 4);
            const uint64_t position = pick(number, 2000 + i, (uint32_t)params.samples);
            struct plan_sequence *fresh = open_good(&params);
            if (i % 2 == 0)
                plan_sequence_prepare(fresh, epoch);
            assert_true(plan_sequence_at(fresh, epoch, position) ==
                        plan_sequence_at(sequence, epoch, position));
            plan_sequence_close(fresh);
        }
        plan_sequence_close(sequence);
    }
}

enum { EQUAL_SHARDS = 400, EQUAL_SIZE = 100 };

static void equal_shards(uint64_t *firsts)
{
    for (uint64_t i = 0; i < EQUAL_SHARDS; i++)
        firsts[i] = i * EQUAL_SIZE;
}

/* Any window's positions lie on ceil(B / size) + 1 shards at most, and each shard is left for
 * good. */
static void test_few_shards_are_open_at_a_time(void **state)
{
    (void)state;
    static const uint32_t blocks[] = {1, 50, 100, 250, 1000};
    uint64_t firsts[EQUAL_SHARDS];
    equal_shards(firsts);
    for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
        struct plan_sequence *sequence =
            open_good(&(struct plan_sequence_params){.spec = {.shuffle = PLAN_SHUFFLE_BLOCK,
                                                              .last = PLAN_LAST_DROP,
                                                              .block_samples = blocks[b]},
                                                     .seed = 3,
                                                     .samples = EQUAL_SHARDS * EQUAL_SIZE,
                                                     .shards = firsts,
                                                     .shard_count = EQUAL_SHARDS});
        uint64_t last_window[EQUAL_SHARDS] = {0}; /* + 1; of the last read of a shard */
        for (uint64_t window = 0; window * blocks[b] < EQUAL_SHARDS * EQUAL_SIZE; window++) {
            uint32_t open = 0;
            for (uint64_t i = 0; i < blocks[b]; i++) {
                uint64_t position = window * blocks[b] + i;
                if (position >= EQUAL_SHARDS * EQUAL_SIZE)
                    break;
                uint64_t shard = plan_sequence_at(sequence, 5, position) / EQUAL_SIZE;
                if (last_window[shard] == window + 1)
                    continue;
                assert_true(last_window[shard] == 0 || last_window[shard] == window);
                last_window[shard] = window + 1;
                open++;
            }
            assert_true(open <= (blocks[b] + EQUAL_SIZE - 1) / EQUAL_SIZE + 1);
        }
        plan_sequence_close(sequence);
    }
}

/* With W dividing L, ranks read different shards but for those at the lanes' ends, and with `none`
 * exactly their own part of the samples. */
static void test_ranks_keep_to_their_lanes(void **state)
{
    (void)state;
    enum { LANES = 8, BATCH = 64, WORLD = 4, STEPS = EQUAL_SHARDS * EQUAL_SIZE / BATCH };
    uint64_t firsts[EQUAL_SHARDS];
    equal_shards(firsts);
    struct plan_sequence_params params = {.spec = {.shuffle = PLAN_SHUFFLE_BLOCK,
                                                   .last = PLAN_LAST_DROP,
                                                   .block_samples = 300,
                                                   .lanes = LANES},
                                          .seed = 3,
                                          .samples = EQUAL_SHARDS * EQUAL_SIZE,
                                          .batch = BATCH,
                                          .shards = firsts,
                                          .shard_count = EQUAL_SHARDS};
    struct plan_sequence *block = open_good(&params);
    params.spec.shuffle = PLAN_SHUFFLE_NONE;
    struct plan_sequence *none = open_good(&params);
    unsigned char readers[EQUAL_SHARDS] = {0};
    for (uint64_t step = 0; step < STEPS; step++)
        for (uint64_t row = 0; row < BATCH; row++) {
            const uint64_t rank = row / (BATCH / WORLD);
            const uint64_t part = EQUAL_SHARDS * EQUAL_SIZE / WORLD;
            uint64_t sample = plan_sequence_at(none, 1, step * BATCH + row);
            assert_in_range(sample, rank * part, (rank + 1) * part - 1);
            sample = plan_sequence_at(block, 1, step * BATCH + row);
            readers[sample / EQUAL_SIZE] |= (unsigned char)(1 << rank);
        }
    uint32_t shared = 0;
    for (size_t i = 0; i < EQUAL_SHARDS; i++)
        shared += (readers[i] & (readers[i] - 1)) != 0;
    assert_in_range(shared, 0, WORLD - 1);
    plan_sequence_close(block);
    plan_sequence_close(none);
}

/* Chi-square of `cells` counts that should all be `expected`, against 5 standard deviations. */
static void check_even(const uint32_t *counts, size_t cells, double expected, double freedom)
{
    double chi = 0;
    for (size_t i = 0; i < cells; i++) {
        double off = (double)counts[i] - expected;
        chi += off * off / expected;
    }
    double off = chi - freedom;
    assert_true(off * off < 25 * 2 * freedom);
}

/* Over seeds and over epochs: a window over everything puts each sample anywhere; windows of one
 * shard's size put each shard anywhere, and each of its samples anywhere in it. */
enum { CHANCE_SHARDS = 6, CHANCE_SIZE = 6, CHANCE_SAMPLES = 36, CHANCE_TRIES = 7200 };
struct chance {
    uint32_t places[CHANCE_SAMPLES * CHANCE_SAMPLES]; /* position and sample */
    uint32_t shards[CHANCE_SHARDS * CHANCE_SHARDS];   /* turn and shard */
    uint32_t inside[CHANCE_SIZE * CHANCE_SIZE];       /* position and sample within their sixes */
};

static void count_chance(uint64_t block, int by_epoch, struct chance *ret_chance)
{
    static const uint64_t firsts[CHANCE_SHARDS] = {0, 6, 12, 18, 24, 30};
    struct plan_sequence_params params = {
        .spec = {.shuffle = PLAN_SHUFFLE_BLOCK, .last = PLAN_LAST_DROP, .block_samples = block},
        .seed = 9,
        .samples = CHANCE_SAMPLES,
        .shards = firsts,
        .shard_count = CHANCE_SHARDS};
    struct plan_sequence *one = open_good(&params);
    *ret_chance = (struct chance){0};
    for (uint32_t t = 0; t < CHANCE_TRIES; t++) {
        params.seed = by_epoch ? 9 : t;
        struct plan_sequence *sequence = by_epoch ? one : open_good(&params);
        for (uint64_t position = 0; position < CHANCE_SAMPLES; position++) {
            uint64_t sample = plan_sequence_at(sequence, by_epoch ? t : 0, position);
            ret_chance->places[position * CHANCE_SAMPLES + sample]++;
            if (position % CHANCE_SIZE == 0)
                ret_chance->shards[position + sample / CHANCE_SIZE]++;
            ret_chance->inside[position % CHANCE_SIZE * CHANCE_SIZE + sample % CHANCE_SIZE]++;
        }
        if (!by_epoch)
            plan_sequence_close(sequence);
    }
    plan_sequence_close(one);
}

static void test_chance(void **state)
{
    (void)state;
    static struct chance chance;
    for (int by_epoch = 0; by_epoch < 2; by_epoch++) {
        count_chance(CHANCE_SAMPLES, by_epoch, &chance);
        check_even(chance.places, 36 * 36, 200, 35 * 35);
        count_chance(CHANCE_SIZE, by_epoch, &chance);
        check_even(chance.places, 36 * 36, 200, 35 * 35);
        check_even(chance.shards, 6 * 6, 1200, 5 * 5);
        check_even(chance.inside, 6 * 6, 7200, 5 * 5);
    }
}

/* Windows of one epoch are permuted each in its own way. */
static void test_windows_differ(void **state)
{
    (void)state;
    enum { BLOCK = 1000, WINDOWS = 20 };
    struct plan_sequence *sequence = open_good(&(struct plan_sequence_params){
        .spec = {.shuffle = PLAN_SHUFFLE_BLOCK, .last = PLAN_LAST_DROP, .block_samples = BLOCK},
        .samples = BLOCK * WINDOWS});
    for (uint64_t window = 1; window < WINDOWS; window++) {
        uint32_t same = 0;
        for (uint64_t i = 0; i < BLOCK; i++)
            same += plan_sequence_at(sequence, 0, i) + window * BLOCK ==
                    plan_sequence_at(sequence, 0, window * BLOCK + i);
        assert_true(same < 12);
    }
    plan_sequence_close(sequence);
}

static double cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* CPU time of 10,000 shards: a table at most 1 ms, a lookup in rising order at most 150 ns; best of
 * many, since others use the machine too. Sanitizers pay more and are not held to it. */
static void test_cost(void **state)
{
    (void)state;
    enum { SHARDS = 10000, SIZE = 1281, LOOKUPS = 20000 };
    uint64_t *firsts = malloc(SHARDS * sizeof *firsts);
    assert_non_null(firsts);
    for (uint64_t i = 0; i < SHARDS; i++)
        firsts[i] = i * SIZE;
    const struct plan_sequence_params params = {
        .spec = {.shuffle = PLAN_SHUFFLE_BLOCK, .last = PLAN_LAST_DROP, .block_samples = 65536},
        .samples = SHARDS * SIZE,
        .shards = firsts,
        .shard_count = SHARDS};
    assert_int_equal(plan_sequence_bytes(&params), SHARDS * 32);
    struct plan_sequence *sequence = open_good(&params);
    double table_ns = 1e12;
    double lookup_ns = 1e12;
    uint64_t sum = 0;
    for (uint32_t try = 0; try < 30; try++) {
        double begin = cpu_ns();
        plan_sequence_prepare(sequence, 2 * try);
        double ready = cpu_ns();
        for (uint64_t position = 0; position < LOOKUPS; position++)
            sum += plan_sequence_at(sequence, 2 * try, try * UINT64_C(100000) + position);
        double end = cpu_ns();
        table_ns = ready - begin < table_ns ? ready - begin : table_ns;
        lookup_ns = end - ready < lookup_ns ? end - ready : lookup_ns;
    }
    plan_sequence_close(sequence);
    free(firsts);
    assert_true(sum > 0);
    print_message("a table of %d shards %.0f us, a lookup %.0f ns\n", SHARDS, table_ns / 1e3,
                  lookup_ns / LOOKUPS);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__OPTIMIZE__) &&    \
    !defined(__clang__)
    assert_true(table_ns <= 1e6);
    assert_true(lookup_ns / LOOKUPS <= 150);
#endif
}

static void check_refused(const struct plan_sequence_params *params, const char *words)
{
    struct err err = {0};
    struct plan_sequence *sequence = NULL;
    assert_int_equal(plan_sequence_open(params, &sequence, &err), -EINVAL);
    assert_null(sequence);
    if (!strstr(err.text, words))
        fail_msg("'%s' is not in: %s", words, err.text);
}

#define REFUSED(words, ...)                                                                        \
    do {                                                                                           \
        struct plan_sequence_params bad = good;                                                    \
        __VA_ARGS__;                                                                               \
        check_refused(&bad, words);                                                                \
    } while (0)

static void test_refusals(void **state)
{
    (void)state;
    static const uint64_t firsts[] = {0, 4, 4, 9};
    static const uint64_t falling[] = {0, 4, 3, 9};
    static const uint64_t late[] = {1, 4, 4, 9};
    const struct plan_sequence_params good = {.spec = {.shuffle = PLAN_SHUFFLE_BLOCK,
                                                       .last = PLAN_LAST_DROP,
                                                       .block_samples = 3,
                                                       .lanes = 2},
                                              .samples = 9,
                                              .batch = 4,
                                              .shards = firsts,
                                              .shard_count = 4};
    plan_sequence_close(open_good(&good));
    plan_sequence_close(NULL);
    REFUSED("batch of 5 cannot be divided among 2 lanes", bad.batch = 5);
    REFUSED("batch of 0 cannot be divided among 2 lanes", bad.batch = 0);
    REFUSED("has 0", bad.samples = 0);
    REFUSED("has 4611686018427387905", bad.samples = (UINT64_C(1) << 62) + 1);
    REFUSED("table of 4 shards does not cover 8 samples", bad.samples = 8);
    REFUSED("table of 4 shards does not cover 9 samples", bad.shards = falling);
    REFUSED("table of 4 shards does not cover 9 samples", bad.shards = late);
    REFUSED("table of 0 shards", bad.shard_count = 0);
    REFUSED("block_samples: 0", bad.spec.block_samples = 0);
    REFUSED("2 lanes with shuffle: global", bad.spec.shuffle = PLAN_SHUFFLE_GLOBAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_of_whole_epochs),
        cmocka_unit_test(test_vectors_of_large_epochs),
        cmocka_unit_test(test_none_and_global_are_as_ever),
        cmocka_unit_test(test_any_table_is_permuted),
        cmocka_unit_test(test_any_way_through_gives_the_same),
        cmocka_unit_test(test_few_shards_are_open_at_a_time),
        cmocka_unit_test(test_ranks_keep_to_their_lanes),
        cmocka_unit_test(test_chance),
        cmocka_unit_test(test_windows_differ),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
