/* The order of an epoch: the vectors, that it is a permutation, and that it looks like a random
 * one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/plan.h"
#include "tests/lib/vectors.h"

static void test_vectors_of_round_keys(void **state)
{
    (void)state;
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "round_keys", 10); rows++) {
        struct plan_permutation permutation;
        plan_permutation_init(&permutation, PLAN_SHUFFLE_GLOBAL, vectors_u64(&vectors, 1),
                              vectors_u32(&vectors, 2), 100);
        for (uint32_t i = 0; i < 8; i++)
            assert_true(permutation.keys[i] == vectors_u64(&vectors, 3 + i));
    }
    vectors_close(&vectors);
    assert_true(rows >= 12);
}

static void test_vectors_of_whole_permutations(void **state)
{
    (void)state;
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "permutation", 4); rows++) {
        const uint64_t samples = vectors_u64(&vectors, 3);
        struct plan_permutation permutation;
        plan_permutation_init(&permutation, PLAN_SHUFFLE_GLOBAL, vectors_u64(&vectors, 1),
                              vectors_u32(&vectors, 2), samples);
        const char *at = vectors.words[4];
        for (uint64_t position = 0; position < samples; position++) {
            char *end;
            assert_true(plan_permutation_at(&permutation, position) == strtoull(at, &end, 10));
            assert_int_equal(*end, position + 1 < samples ? ',' : '\0');
            at = end + 1;
        }
    }
    vectors_close(&vectors);
    assert_true(rows >= 78);
}

static void test_vectors_of_single_positions(void **state)
{
    (void)state;
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "order", 6); rows++) {
        uint32_t shuffle =
            strcmp(vectors.words[1], "none") == 0 ? PLAN_SHUFFLE_NONE : PLAN_SHUFFLE_GLOBAL;
        uint64_t sample = plan_order(shuffle, vectors_u64(&vectors, 2), vectors_u32(&vectors, 3),
                                     vectors_u64(&vectors, 4), vectors_u64(&vectors, 5));
        assert_true(sample == vectors_u64(&vectors, 6));
    }
    vectors_close(&vectors);
    assert_true(rows >= 117);
}

static void test_vectors_of_substitutes(void **state)
{
    (void)state;
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "substitute", 6); rows++) {
        uint64_t sample = plan_substitute(vectors_u64(&vectors, 1), vectors_u32(&vectors, 2),
                                          vectors_u64(&vectors, 3), vectors_u64(&vectors, 4),
                                          vectors_u32(&vectors, 5));
        assert_true(sample == vectors_u64(&vectors, 6));
    }
    vectors_close(&vectors);
    assert_int_equal(rows, 50);
}

/* Each attempt permutes all samples, and not as another attempt or the order does. */
static void test_substitutes_are_permutations(void **state)
{
    (void)state;
    enum { SAMPLES = 500, ATTEMPTS = 8 };
    uint32_t equal = 0;
    for (uint32_t attempt = 1; attempt <= ATTEMPTS; attempt++) {
        unsigned char seen[SAMPLES] = {0};
        for (uint64_t p = 0; p < SAMPLES; p++) {
            uint64_t sample = plan_substitute(3, 4, SAMPLES, p, attempt);
            assert_true(sample < SAMPLES);
            assert_int_equal(seen[sample]++, 0);
            equal += sample == plan_order(PLAN_SHUFFLE_GLOBAL, 3, 4, SAMPLES, p);
            equal += sample == plan_substitute(3, 4, SAMPLES, p, attempt + 1);
        }
    }
    assert_true(equal < 60); /* of 16 pairs of permutations about one place each is equal */
}

static void test_every_size_is_permuted(void **state)
{
    (void)state;
    unsigned char seen[2000];
    for (uint64_t samples = 1; samples <= 2000; samples++) {
        struct plan_permutation permutation;
        plan_permutation_init(&permutation, PLAN_SHUFFLE_GLOBAL, samples * 7919, 3, samples);
        assert_true(permutation.a * permutation.b >= samples);
        assert_true((permutation.a - 1) * (permutation.a - 1) < samples);
        memset(seen, 0, sizeof seen);
        for (uint64_t position = 0; position < samples; position++) {
            uint64_t sample = plan_permutation_at(&permutation, position);
            assert_true(sample < samples);
            assert_int_equal(seen[sample], 0);
            seen[sample] = 1;
        }
    }
}

static void test_a_large_size_is_permuted(void **state)
{
    (void)state;
    const uint64_t samples = 3000017;
    unsigned char *seen = calloc(samples, 1);
    assert_non_null(seen);
    struct plan_permutation permutation;
    plan_permutation_init(&permutation, PLAN_SHUFFLE_GLOBAL, 1, 0, samples);
    for (uint64_t position = 0; position < samples; position++) {
        uint64_t sample = plan_permutation_at(&permutation, position);
        assert_true(sample < samples && seen[sample] == 0);
        seen[sample] = 1;
    }
    free(seen);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x;
    uint64_t y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static void test_huge_sizes_never_repeat(void **state)
{
    (void)state;
    enum { COUNT = 50000 };
    static const uint64_t sizes[] = {UINT64_C(1) << 40, (UINT64_C(1) << 62) + 12345,
                                     (UINT64_C(1) << 63) - 1, UINT64_C(1) << 63};
    uint64_t *samples = malloc(COUNT * sizeof *samples);
    assert_non_null(samples);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        struct plan_permutation permutation;
        plan_permutation_init(&permutation, PLAN_SHUFFLE_GLOBAL, 5, 6, sizes[s]);
        for (uint64_t i = 0; i < COUNT; i++) {
            samples[i] = plan_permutation_at(&permutation, i < COUNT / 2 ? i : sizes[s] - 1 - i);
            assert_true(samples[i] < sizes[s]);
        }
        qsort(samples, COUNT, sizeof *samples, compare_u64);
        for (size_t i = 1; i < COUNT; i++)
            assert_true(samples[i - 1] < samples[i]);
    }
    free(samples);
}

static void test_none_is_the_identity(void **state)
{
    (void)state;
    const uint64_t samples = UINT64_C(1) << 63;
    for (uint64_t position = 0; position < 1000; position++)
        assert_true(plan_order(PLAN_SHUFFLE_NONE, position, 7, 1000, position) == position);
    assert_true(plan_order(PLAN_SHUFFLE_NONE, 1, 1, samples, samples - 1) == samples - 1);
}

/* Chi-square of `cells` counts that should all be `expected`. */
static double chi_square(const uint32_t *counts, size_t cells, double expected)
{
    double sum = 0;
    for (size_t i = 0; i < cells; i++) {
        double off = (double)counts[i] - expected;
        sum += off * off / expected;
    }
    return sum;
}

/* Four samples: all 24 orders come up, and about equally often. Off by more than 8 % would be 10
 * standard deviations. */
static void test_all_orders_of_four_are_as_likely(void **state)
{
    (void)state;
    enum { SEEDS = 24 * 16000 };
    uint32_t counts[256] = {0};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        uint32_t order = 0;
        for (uint64_t position = 0; position < 4; position++)
            order = order * 4 + (uint32_t)plan_order(PLAN_SHUFFLE_GLOBAL, seed, 0, 4, position);
        counts[order]++;
    }
    uint32_t orders = 0;
    for (size_t i = 0; i < 256; i++) {
        if (counts[i] == 0)
            continue;
        orders++;
        assert_in_range(counts[i], 16000 * 92 / 100, 16000 * 108 / 100);
    }
    assert_int_equal(orders, 24);
}

/* Where each position's sample falls, over seeds and over epochs: no cell of the table stands out.
 * The bound is 5 standard deviations above the mean of chi-square. */
static void check_table(uint64_t samples, uint32_t tries, int by_epoch)
{
    uint32_t *counts = calloc(samples * samples, sizeof *counts);
    assert_non_null(counts);
    for (uint32_t t = 0; t < tries; t++) {
        struct plan_permutation permutation;
        plan_permutation_init(&permutation, PLAN_SHUFFLE_GLOBAL, by_epoch ? 9 : t, by_epoch ? t : 0,
                              samples);
        for (uint64_t position = 0; position < samples; position++)
            counts[position * samples + plan_permutation_at(&permutation, position)]++;
    }
    double expected = (double)tries / (double)samples;
    double freedom = (double)((samples - 1) * (samples - 1));
    double chi = chi_square(counts, samples * samples, expected);
    free(counts);
    double off = chi - freedom;
    assert_true(off * off < 25 * 2 * freedom);
}

static void test_each_sample_falls_anywhere(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {5, 7, 10, 16, 29, 50, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check_table(sizes[i], 20000, 0);
        check_table(sizes[i], 20000, 1);
    }
}

/* The samples at positions 0 and 1 together: each of the ordered pairs as often. */
static void test_neighbours_are_independent(void **state)
{
    (void)state;
    enum { SAMPLES = 20, SEEDS = 76000 };
    uint32_t counts[SAMPLES * SAMPLES] = {0};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct plan_permutation permutation;
        plan_permutation_init(&permutation, PLAN_SHUFFLE_GLOBAL, seed, 0, SAMPLES);
        uint64_t first = plan_permutation_at(&permutation, 0);
        uint64_t second = plan_permutation_at(&permutation, 1);
        counts[first * SAMPLES + second]++;
    }
    uint32_t pairs[SAMPLES * (SAMPLES - 1)];
    size_t used = 0;
    for (size_t i = 0; i < SAMPLES * SAMPLES; i++) {
        if (i % (SAMPLES + 1) == 0)
            assert_int_equal(counts[i], 0);
        else
            pairs[used++] = counts[i];
    }
    double freedom = SAMPLES * (SAMPLES - 1) - 1;
    double off = chi_square(pairs, used, (double)SEEDS / (SAMPLES * (SAMPLES - 1))) - freedom;
    assert_true(off * off < 25 * 2 * freedom);
}

/* Another seed or epoch is another order: about one position in `samples` agrees by chance. */
static void test_seeds_and_epochs_differ(void **state)
{
    (void)state;
    enum { SAMPLES = 1000 };
    static const struct {
        uint64_t seed;
        uint32_t epoch;
    } others[] = {{1, 0}, {0, 1}, {UINT64_C(1) << 32, 0}, {UINT64_C(1) << 63, 0}, {0, UINT32_MAX}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        uint32_t same = 0;
        for (uint64_t position = 0; position < SAMPLES; position++)
            same +=
                plan_order(PLAN_SHUFFLE_GLOBAL, 0, 0, SAMPLES, position) ==
                plan_order(PLAN_SHUFFLE_GLOBAL, others[i].seed, others[i].epoch, SAMPLES, position);
        assert_true(same < 12);
    }
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(plan_shuffle_name(PLAN_SHUFFLE_NONE), "none");
    assert_string_equal(plan_shuffle_name(PLAN_SHUFFLE_GLOBAL), "global");
    assert_string_equal(plan_shuffle_name(PLAN_SHUFFLE_BLOCK), "block");
    assert_null(plan_shuffle_name(0));
    assert_null(plan_shuffle_name(4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_of_round_keys),
        cmocka_unit_test(test_vectors_of_whole_permutations),
        cmocka_unit_test(test_vectors_of_single_positions),
        cmocka_unit_test(test_vectors_of_substitutes),
        cmocka_unit_test(test_substitutes_are_permutations),
        cmocka_unit_test(test_every_size_is_permuted),
        cmocka_unit_test(test_a_large_size_is_permuted),
        cmocka_unit_test(test_huge_sizes_never_repeat),
        cmocka_unit_test(test_none_is_the_identity),
        cmocka_unit_test(test_all_orders_of_four_are_as_likely),
        cmocka_unit_test(test_each_sample_falls_anywhere),
        cmocka_unit_test(test_neighbours_are_independent),
        cmocka_unit_test(test_seeds_and_epochs_differ),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
