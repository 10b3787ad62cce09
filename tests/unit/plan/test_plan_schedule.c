/* Schedules: the vectors, a slow model, what must hold for every world, and refusals with their
 * numbers. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan/plan.h"
#include "tests/lib/vectors.h"

static uint32_t last_of(const char *name)
{
    for (uint32_t last = PLAN_LAST_DROP; last <= PLAN_LAST_PARTIAL; last++)
        if (strcmp(plan_last_name(last), name) == 0)
            return last;
    fail_msg("no such last: %s", name);
    return 0;
}

static void test_vectors_of_steps(void **state)
{
    (void)state;
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "steps", 4); rows++)
        assert_true(plan_steps(vectors_u64(&vectors, 1), vectors_u64(&vectors, 2),
                               last_of(vectors.words[3])) == vectors_u64(&vectors, 4));
    vectors_close(&vectors);
    assert_true(rows >= 27);
}

static void test_vectors_of_batches(void **state)
{
    (void)state;
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "batch", 17); rows++) {
        const struct plan_schedule schedule = {
            .samples = vectors_u64(&vectors, 1),
            .batch = vectors_u64(&vectors, 2),
            .world = vectors_u32(&vectors, 3),
            .rank = vectors_u32(&vectors, 4),
            .last = last_of(vectors.words[5]),
            .start_epoch = vectors_u32(&vectors, 6),
            .start_position = vectors_u64(&vectors, 7),
            .start_step = vectors_u64(&vectors, 8),
        };
        assert_int_equal(plan_schedule_check(&schedule, NULL), 0);
        struct plan_batch batch;
        plan_batch_at(&schedule, vectors_u64(&vectors, 9), &batch);
        assert_int_equal(batch.epoch, vectors_u32(&vectors, 10));
        assert_int_equal(batch.step, vectors_u64(&vectors, 11));
        assert_int_equal(batch.position, vectors_u64(&vectors, 12));
        assert_int_equal(batch.first_position, vectors_u64(&vectors, 13));
        assert_int_equal(batch.rows, vectors_u32(&vectors, 14));
        assert_int_equal(batch.next_epoch, vectors_u32(&vectors, 15));
        assert_int_equal(batch.next_position, vectors_u64(&vectors, 16));
        assert_int_equal(batch.next_step, vectors_u64(&vectors, 17));
    }
    vectors_close(&vectors);
    assert_true(rows >= 400);
}

static void check_same(const struct plan_batch *found, const struct plan_batch *expected)
{
    assert_int_equal(found->epoch, expected->epoch);
    assert_int_equal(found->step, expected->step);
    assert_int_equal(found->position, expected->position);
    assert_int_equal(found->first_position, expected->first_position);
    assert_int_equal(found->rows, expected->rows);
    assert_int_equal(found->next_epoch, expected->next_epoch);
    assert_int_equal(found->next_position, expected->next_position);
    assert_int_equal(found->next_step, expected->next_step);
}

/* Opened at the place behind batch k, by the state's rule, a stream's batch 0 is batch k + 1 of the
 * stream before. */
static void test_any_place_goes_on_alike(void **state)
{
    (void)state;
    for (uint32_t last = PLAN_LAST_DROP; last <= PLAN_LAST_PARTIAL; last++) {
        for (uint64_t samples = 6; samples < 30; samples++) {
            const struct plan_schedule whole = {
                .samples = samples, .batch = 6, .world = 3, .rank = 2, .last = last};
            struct plan_batch batch;
            for (uint64_t k = 0; k < 20; k++) {
                plan_batch_at(&whole, k, &batch);
                struct plan_schedule later = whole;
                later.start_epoch = batch.next_epoch;
                later.start_position = batch.next_position;
                later.start_step = batch.next_step;
                assert_int_equal(plan_schedule_check(&later, NULL), 0);
                struct plan_batch expected;
                struct plan_batch found;
                plan_batch_at(&whole, k + 1, &expected);
                plan_batch_at(&later, 0, &found);
                check_same(&found, &expected);
            }
        }
    }
}

/* The ranks of any world, put together, have the global batch: each position once, in order. */
static void test_any_world_has_the_same_batches(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 4, 6, 12};
    for (uint32_t last = PLAN_LAST_DROP; last <= PLAN_LAST_PARTIAL; last++) {
        for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++) {
            for (uint64_t k = 0; k < 12; k++) {
                struct plan_schedule schedule = {
                    .samples = 31, .batch = 12, .world = worlds[w], .last = last};
                uint64_t next = 0;
                uint64_t total = 0;
                for (uint32_t rank = 0; rank < worlds[w]; rank++) {
                    struct plan_batch batch;
                    schedule.rank = rank;
                    plan_batch_at(&schedule, k, &batch);
                    if (rank == 0)
                        next = batch.position;
                    if (batch.rows > 0)
                        assert_int_equal(batch.first_position, next);
                    next += batch.rows;
                    total += batch.rows;
                }
                uint64_t step = last == PLAN_LAST_DROP ? k % 2 : k % 3;
                assert_int_equal(total, last == PLAN_LAST_PARTIAL && step == 2 ? 7 : 12);
            }
        }
    }
}

static const struct plan_schedule good = {
    .samples = 100, .batch = 10, .world = 2, .rank = 1, .last = PLAN_LAST_DROP};

/* The schedule is refused, and the sentence has each of the words (NULL ends). */
static void check_refused(struct plan_schedule schedule, const char *one, const char *two)
{
    struct err err = {0};
    assert_int_equal(plan_schedule_check(&schedule, &err), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_non_null(strstr(err.text, one));
    assert_non_null(strstr(err.text, two));
    assert_int_equal(plan_schedule_check(&schedule, NULL), -EINVAL);
}

#define REFUSED(one, two, ...)                                                                     \
    do {                                                                                           \
        struct plan_schedule bad = good;                                                           \
        __VA_ARGS__;                                                                               \
        check_refused(bad, one, two);                                                              \
    } while (0)

static void test_refusals(void **state)
{
    (void)state;
    assert_int_equal(plan_schedule_check(&good, NULL), 0);
    REFUSED("last: 0", "partial", bad.last = 0);
    REFUSED("last: 4", "partial", bad.last = 4);
    REFUSED("has 0", "4611686018427387904", bad.samples = 0);
    REFUSED("4611686018427387905", "4611686018427387904", bad.samples = (UINT64_C(1) << 62) + 1);
    REFUSED("is 0", "4611686018427387904", bad.batch = 0);
    REFUSED("4611686018427387906", "4611686018427387904", bad.batch = (UINT64_C(1) << 62) + 2);
    REFUSED("world", "0", bad.world = 0, bad.rank = 0);
    REFUSED("rank 2", "world of 2", bad.rank = 2);
    REFUSED("batch of 10", "3 ranks", bad.world = 3);
    REFUSED("batch of 10", "4 lanes", bad.lanes = 4);
    REFUSED("position 15", "batch of 10", bad.lanes = 5, bad.start_position = 15);
    REFUSED("4294967296", "4294967295", bad.batch = UINT64_C(1) << 33, bad.last = PLAN_LAST_PAD);
    REFUSED("100 samples", "batch of 102", bad.batch = 102);
    REFUSED("epoch 4294967295", "4294967294", bad.start_epoch = UINT32_MAX);
    REFUSED("position 101", "100 samples", bad.start_position = 101);
    REFUSED("step 8", "position 7", bad.start_position = 7, bad.start_step = 8);
}

static void test_limits_are_accepted(void **state)
{
    (void)state;
    struct plan_schedule schedule = good;
    schedule.batch = 102;
    schedule.last = PLAN_LAST_PAD;
    assert_int_equal(plan_schedule_check(&schedule, NULL), 0);
    schedule.last = PLAN_LAST_PARTIAL;
    assert_int_equal(plan_schedule_check(&schedule, NULL), 0);
    schedule = good;
    schedule.lanes = 5;
    schedule.start_position = 20;
    assert_int_equal(plan_schedule_check(&schedule, NULL), 0);
    schedule.lanes = 1;
    schedule.start_position = 15;
    assert_int_equal(plan_schedule_check(&schedule, NULL), 0);
    schedule = good;
    schedule.batch = 100;
    schedule.start_position = 100;
    schedule.start_step = 100;
    schedule.start_epoch = UINT32_MAX - 1;
    assert_int_equal(plan_schedule_check(&schedule, NULL), 0);
    schedule = (struct plan_schedule){.samples = UINT64_C(1) << 62,
                                      .batch = UINT32_MAX,
                                      .world = 1,
                                      .last = PLAN_LAST_PARTIAL,
                                      .start_position = UINT64_C(1) << 62};
    assert_int_equal(plan_schedule_check(&schedule, NULL), 0);
}

/* Epochs end at the last number there is, and nothing overflows on the way. */
static void test_far_away_nothing_wraps(void **state)
{
    (void)state;
    struct plan_schedule schedule = {.samples = 1, .batch = 1, .world = 1, .last = PLAN_LAST_DROP};
    struct plan_batch batch;
    plan_batch_at(&schedule, UINT32_MAX - 1, &batch);
    assert_int_equal(batch.epoch, UINT32_MAX - 1);
    assert_int_equal(batch.next_epoch, UINT32_MAX);
    plan_batch_at(&schedule, UINT64_C(1) << 63, &batch);
    assert_int_equal(batch.epoch, UINT32_MAX);
    assert_int_equal(batch.next_epoch, UINT32_MAX);
    schedule.samples = UINT64_C(1) << 62;
    plan_batch_at(&schedule, UINT64_C(1) << 63, &batch);
    assert_int_equal(batch.epoch, 2);
    assert_int_equal(batch.position, 0);
    plan_batch_at(&schedule, (UINT64_C(1) << 63) - 1, &batch);
    assert_int_equal(batch.epoch, 1);
    assert_int_equal(batch.position, (UINT64_C(1) << 62) - 1);
    assert_int_equal(batch.next_epoch, 2);
    schedule = (struct plan_schedule){.samples = UINT64_C(1) << 62,
                                      .batch = UINT64_C(1) << 62,
                                      .world = UINT32_C(1) << 31,
                                      .rank = (UINT32_C(1) << 31) - 1,
                                      .last = PLAN_LAST_PAD,
                                      .start_position = (UINT64_C(1) << 62) - 1};
    assert_int_equal(plan_schedule_check(&schedule, NULL), 0);
    plan_batch_at(&schedule, 0, &batch);
    assert_int_equal(batch.rows, UINT32_C(1) << 31);
    assert_true(batch.first_position == (UINT64_C(1) << 63) - 1 - (UINT64_C(1) << 31));
    assert_int_equal(batch.next_epoch, 1);
}

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(plan_last_name(PLAN_LAST_DROP), "drop");
    assert_string_equal(plan_last_name(PLAN_LAST_PAD), "pad");
    assert_string_equal(plan_last_name(PLAN_LAST_PARTIAL), "partial");
    assert_null(plan_last_name(0));
    assert_null(plan_last_name(4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_of_steps),
        cmocka_unit_test(test_vectors_of_batches),
        cmocka_unit_test(test_any_place_goes_on_alike),
        cmocka_unit_test(test_any_world_has_the_same_batches),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limits_are_accepted),
        cmocka_unit_test(test_far_away_nothing_wraps),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
