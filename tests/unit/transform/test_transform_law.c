/* The law of crops and flips: its bounds for any picture, its averages over many draws, its
 * fallback, and that a draw is named by its numbers alone. The exact boxes are frozen by the
 * order's vectors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/exact.h"
#include "base/philox.h"
#include "transform/transform_law.h"

static const double usual_scale[2] = {0.08, 1.0}, usual_ratio[2] = {3.0 / 4, 4.0 / 3};

static struct law_draws draws_at(uint64_t position)
{
    return (struct law_draws){
        .seed = 0x123456789ABCDEF0u, .position = position, .epoch = 3, .field = 2};
}

static void test_keys_and_counters(void **state)
{
    (void)state;
    const struct law_draws draws = {.seed = 0x1122334455667788u,
                                    .position = 0x99AABBCCDDEEFF00u,
                                    .epoch = 7,
                                    .field = 2,
                                    .operation = 5};
    const uint32_t key[2] = {0x55667788u, 0x11223344u ^ (0x9E3779B9u * 517u)};
    const uint32_t counter[4] = {0xDDEEFF00u, 0x99AABBCCu, 7, 2};
    uint32_t words[4];
    philox4x32(counter, key, words);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(law_bits(&draws, 8 + i), words[i]);
        assert_true(law_uniform(&draws, 8 + i) == (double)(words[i] >> 8) / 16777216.0);
        assert_int_equal(law_below(&draws, 8 + i, 1000), (uint64_t)words[i] * 1000 >> 32);
    }
    assert_int_equal(law_below(&draws, 0, 0), 0);
    assert_int_equal(law_below(&draws, 0, 1), 0);
}

static void test_averages(void **state)
{
    (void)state;
    enum { COUNT = 20000, WIDTH = 1000, HEIGHT = 1000 };
    double area = 0, log_ratio = 0, x = 0, smallest = 1, largest = 0;
    for (uint64_t p = 0; p < COUNT; p++) {
        const struct law_draws draws = draws_at(p);
        struct law_box box =
            law_random_resized_crop(&draws, WIDTH, HEIGHT, usual_scale, usual_ratio);
        double part = (double)box.width * box.height / ((double)WIDTH * HEIGHT);
        double ratio = (double)box.width / box.height;
        assert_true(part > 0.078 && part <= 1.0);
        assert_true(ratio > 0.745 && ratio < 1.342);
        assert_true(box.x >= 0 && box.y >= 0);
        assert_true(box.x + box.width <= WIDTH && box.y + box.height <= HEIGHT);
        smallest = part < smallest ? part : smallest;
        largest = part > largest ? part : largest;
        area += part;
        log_ratio += exact_log(ratio);
        if (box.width < WIDTH)
            x += (double)box.x / (WIDTH - box.width);
    }
    assert_true(smallest < 0.085 && largest > 0.95);
    /* Large areas are refused more often: 0.478 by a simulation of the law with other draws. */
    assert_true(area / COUNT > 0.471 && area / COUNT < 0.485);
    assert_true(log_ratio / COUNT > -0.02 && log_ratio / COUNT < 0.02);
    assert_true(x / COUNT > 0.48 && x / COUNT < 0.52);
}

static void test_every_box_is_inside(void **state)
{
    (void)state;
    static const int32_t sides[] = {1, 2, 3, 7, 224, 2000, 65535};
    static const double ratios[][2] = {
        {0.75, 4.0 / 3}, {0.75, 0.75}, {1e-3, 1e-3}, {1e3, 1e3}, {1e-3, 1e3}};
    static const double scales[][2] = {{0.08, 1}, {1, 1}, {0, 1e-9}, {0.9, 1}};
    uint64_t p = 0;
    for (size_t w = 0; w < 7; w++) {
        for (size_t h = 0; h < 7; h++) {
            for (size_t i = 0; i < 20 * 20; i++) {
                const struct law_draws draws = draws_at(p++);
                struct law_box box = law_random_resized_crop(&draws, sides[w], sides[h],
                                                             scales[i % 4], ratios[i / 4 % 5]);
                assert_true(box.x >= 0 && box.y >= 0 && box.width >= 1 && box.height >= 1);
                assert_true(box.x + box.width <= sides[w] && box.y + box.height <= sides[h]);
            }
        }
    }
}

static void test_equal_ratios(void **state)
{
    (void)state;
    const double ratio[2] = {0.75, 0.75}, scale[2] = {0.25, 0.25};
    for (uint64_t p = 0; p < 1000; p++) {
        const struct law_draws draws = draws_at(p);
        struct law_box box = law_random_resized_crop(&draws, 1200, 1600, scale, ratio);
        assert_int_equal(box.width,
                         600); /* a quarter of the area of a picture of just this ratio */
        assert_int_equal(box.height, 800);
    }
}

static void test_fallback(void **state)
{
    (void)state;
    const double whole[2] = {1, 1};
    const struct law_draws draws = draws_at(1);
    /* Too high: full width, height of the smallest ratio; centred. */
    struct law_box box = law_random_resized_crop(&draws, 1, 2000, whole, usual_ratio);
    assert_int_equal(box.width, 1);
    assert_int_equal(box.height, 1);
    assert_int_equal(box.y, 999);
    box = law_random_resized_crop(&draws, 300, 3000, whole, usual_ratio);
    assert_int_equal(box.width, 300);
    assert_int_equal(box.height, 400);
    assert_int_equal(box.x, 0);
    assert_int_equal(box.y, 1300);
    /* Too wide: full height, width of the largest ratio. */
    box = law_random_resized_crop(&draws, 3001, 300, whole, usual_ratio);
    assert_int_equal(box.width, 400);
    assert_int_equal(box.height, 300);
    assert_int_equal(box.x, 1300);
    /* No ratio fits and the picture's own is in range: all of it. */
    const double narrow[2] = {1, 1};
    box = law_random_resized_crop(&draws, 3, 3, narrow, narrow);
    assert_int_equal(box.width, 3);
}

static void test_random_crop(void **state)
{
    (void)state;
    double x = 0, y = 0;
    struct law_box box;
    for (uint64_t p = 0; p < 20000; p++) {
        const struct law_draws draws = draws_at(p);
        assert_true(law_random_crop(&draws, 110, 221, 10, 21, &box));
        assert_true(box.x >= 0 && box.x <= 100 && box.y >= 0 && box.y <= 200);
        assert_int_equal(box.y, law_below(&draws, 0, 201));
        assert_int_equal(box.x, law_below(&draws, 1, 101));
        x += box.x;
        y += box.y;
    }
    assert_true(x / 20000 > 49 && x / 20000 < 51);
    assert_true(y / 20000 > 98 && y / 20000 < 102);
    const struct law_draws draws = draws_at(0);
    assert_true(law_random_crop(&draws, 10, 21, 10, 21, &box));
    assert_true(box.x == 0 && box.y == 0);
    assert_false(law_random_crop(&draws, 9, 21, 10, 21, &box));
    assert_false(law_random_crop(&draws, 10, 20, 10, 21, &box));
}

static void test_flip(void **state)
{
    (void)state;
    int flips = 0;
    for (uint64_t p = 0; p < 20000; p++) {
        const struct law_draws draws = draws_at(p);
        flips += law_flip(&draws, 0.25);
        assert_false(law_flip(&draws, 0));
        assert_true(law_flip(&draws, 1));
    }
    assert_true(flips > 4800 && flips < 5200);
}

static void test_half_even(void **state)
{
    (void)state;
    static const int32_t pairs[][2] = {{0, 0},   {1, 0},   {2, 1},   {3, 2},     {4, 2},
                                       {5, 2},   {6, 3},   {7, 4},   {-1, 0},    {-2, -1},
                                       {-3, -2}, {-5, -2}, {-7, -4}, {255, 128}, {253, 126}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        assert_int_equal(law_half_even(pairs[i][0]), pairs[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_keys_and_counters),
                                       cmocka_unit_test(test_averages),
                                       cmocka_unit_test(test_every_box_is_inside),
                                       cmocka_unit_test(test_equal_ratios),
                                       cmocka_unit_test(test_fallback),
                                       cmocka_unit_test(test_random_crop),
                                       cmocka_unit_test(test_flip),
                                       cmocka_unit_test(test_half_even)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
