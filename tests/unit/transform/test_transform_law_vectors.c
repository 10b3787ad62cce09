/* The generator, the exact functions, draws, crops and flips against the vectors of the order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/exact.h"
#include "base/philox.h"
#include "tests/lib/vectors.h"
#include "transform/transform_law.h"

static void test_philox(void **state)
{
    (void)state;
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "philox", 10); rows++) {
        uint32_t in[6];
        uint32_t out[4];
        for (uint32_t i = 0; i < 6; i++)
            in[i] = vectors_u32(&vectors, 1 + i);
        philox4x32(in, in + 4, out);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(out[i], vectors_u32(&vectors, 7 + i));
    }
    vectors_close(&vectors);
    assert_true(rows >= 16);
}

/* Equal bits, so that the sign of 0 counts too. */
static void check_double(double found, double expected)
{
    assert_memory_equal(&found, &expected, sizeof found);
}

static void check_function(const char *kind, double (*function)(double))
{
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, kind, 2); rows++)
        check_double(function(vectors_double(&vectors, 1)), vectors_double(&vectors, 2));
    vectors_close(&vectors);
    assert_true(rows >= 90);
}

static void test_exact_functions(void **state)
{
    (void)state;
    check_function("exp", exact_exp);
    check_function("log", exact_log);
    check_function("sqrt", exact_sqrt);
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "round", 2); rows++)
        assert_true(exact_round(vectors_double(&vectors, 1)) == vectors_i64(&vectors, 2));
    vectors_close(&vectors);
    assert_true(rows >= 90);
}

static void test_half_even(void **state)
{
    (void)state;
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "half_even", 2); rows++)
        assert_int_equal(law_half_even((int32_t)vectors_i64(&vectors, 1)),
                         vectors_i64(&vectors, 2));
    vectors_close(&vectors);
    assert_true(rows >= 24);
}

/* The first five values of a row. */
static struct law_draws draws_of(const struct vectors *vectors)
{
    return (struct law_draws){.seed = vectors_u64(vectors, 1),
                              .position = vectors_u64(vectors, 2),
                              .epoch = vectors_u32(vectors, 3),
                              .field = vectors_u32(vectors, 4),
                              .operation = vectors_u32(vectors, 5)};
}

static void test_draws(void **state)
{
    (void)state;
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "draw", 10); rows++) {
        const struct law_draws draws = draws_of(&vectors);
        const uint32_t draw = vectors_u32(&vectors, 6);
        assert_int_equal(law_bits(&draws, draw), vectors_u32(&vectors, 7));
        check_double(law_uniform(&draws, draw), vectors_double(&vectors, 8));
        assert_int_equal(law_below(&draws, draw, vectors_u32(&vectors, 9)),
                         vectors_u32(&vectors, 10));
    }
    vectors_close(&vectors);
    assert_true(rows >= 48);
}

static int32_t side_of(const struct vectors *vectors, uint32_t i)
{
    return (int32_t)vectors_i64(vectors, i);
}

static void test_random_resized_crops(void **state)
{
    (void)state;
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "random_resized_crop", 15); rows++) {
        const struct law_draws draws = draws_of(&vectors);
        const double scale[2] = {vectors_double(&vectors, 8), vectors_double(&vectors, 9)};
        const double ratio[2] = {vectors_double(&vectors, 10), vectors_double(&vectors, 11)};
        struct law_box box = law_random_resized_crop(&draws, side_of(&vectors, 6),
                                                     side_of(&vectors, 7), scale, ratio);
        assert_int_equal(box.x, side_of(&vectors, 12));
        assert_int_equal(box.y, side_of(&vectors, 13));
        assert_int_equal(box.width, side_of(&vectors, 14));
        assert_int_equal(box.height, side_of(&vectors, 15));
    }
    vectors_close(&vectors);
    assert_true(rows >= 240);
}

static void test_random_crops(void **state)
{
    (void)state;
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "random_crop", 12); rows++) {
        const struct law_draws draws = draws_of(&vectors);
        struct law_box box = {0};
        bool fits = law_random_crop(&draws, side_of(&vectors, 6), side_of(&vectors, 7),
                                    side_of(&vectors, 8), side_of(&vectors, 9), &box);
        assert_int_equal(fits, vectors_u32(&vectors, 10));
        if (!fits)
            continue;
        assert_int_equal(box.x, side_of(&vectors, 11));
        assert_int_equal(box.y, side_of(&vectors, 12));
        assert_int_equal(box.width, side_of(&vectors, 8));
        assert_int_equal(box.height, side_of(&vectors, 9));
    }
    vectors_close(&vectors);
    assert_true(rows >= 48);
}

static void test_flips(void **state)
{
    (void)state;
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "flip", 7); rows++) {
        const struct law_draws draws = draws_of(&vectors);
        assert_int_equal(law_flip(&draws, vectors_double(&vectors, 6)), vectors_u32(&vectors, 7));
    }
    vectors_close(&vectors);
    assert_true(rows >= 48);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_exact_functions),
        cmocka_unit_test(test_half_even),
        cmocka_unit_test(test_draws),
        cmocka_unit_test(test_random_resized_crops),
        cmocka_unit_test(test_random_crops),
        cmocka_unit_test(test_flips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
