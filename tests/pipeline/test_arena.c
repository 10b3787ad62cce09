/* The book of the blob arena: its edges, and a million takes and gives against a map of pages. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "pipeline/pipeline_arena.h"

enum { PAGE = PIPELINE_ARENA_ALIGN, MODEL_PAGES = 64 };

static void test_edges(void **state)
{
    (void)state;
    struct pipeline_arena arena;
    uint64_t offset = 77;
    assert_int_equal(pipeline_arena_init(&arena, 3 * PAGE + 100), 0);
    assert_int_equal(arena.bytes, 3 * PAGE); /* what is no page is not used */
    assert_int_equal(pipeline_arena_take(&arena, 3 * PAGE + 1, &offset), -EAGAIN);
    assert_int_equal(pipeline_arena_take(&arena, UINT64_MAX, &offset), -EAGAIN);
    assert_int_equal(offset, 77);
    assert_int_equal(pipeline_arena_take(&arena, 3 * PAGE, &offset), 0);
    assert_int_equal(offset, 0);
    assert_int_equal(arena.used_bytes, 3 * PAGE);
    assert_int_equal(pipeline_arena_take(&arena, 1, &offset), -EAGAIN);
    pipeline_arena_give(&arena, 0);
    assert_int_equal(arena.used_bytes, 0);
    assert_int_equal(arena.count, 0);
    pipeline_arena_fini(&arena);

    assert_int_equal(pipeline_arena_init(&arena, PAGE - 1), 0);
    assert_int_equal(pipeline_arena_take(&arena, 1, &offset), -EAGAIN);
    pipeline_arena_fini(&arena);
}

static void test_first_fit(void **state)
{
    (void)state;
    struct pipeline_arena arena;
    uint64_t at[4], offset;
    assert_int_equal(pipeline_arena_init(&arena, 8 * PAGE), 0);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(pipeline_arena_take(&arena, PAGE + 1, &at[i]), 0);
        assert_int_equal(at[i], 2 * PAGE * i);
    }
    pipeline_arena_give(&arena, at[3]);
    pipeline_arena_give(&arena, at[1]);
    assert_int_equal(pipeline_arena_take(&arena, PAGE, &offset), 0);
    assert_int_equal(offset, 2 * PAGE); /* the lowest hole that is large enough */
    assert_int_equal(pipeline_arena_take(&arena, 2 * PAGE, &offset), 0);
    assert_int_equal(offset, 6 * PAGE);
    assert_int_equal(pipeline_arena_take(&arena, 2 * PAGE, &offset), -EAGAIN);
    assert_int_equal(pipeline_arena_take(&arena, 1, &offset), 0);
    assert_int_equal(offset, 3 * PAGE);
    assert_int_equal(arena.used_bytes, 8 * PAGE);
    pipeline_arena_fini(&arena);
}

static void test_extents_max(void **state)
{
    (void)state;
    struct pipeline_arena arena;
    uint64_t offset;
    assert_int_equal(pipeline_arena_init(&arena, (PIPELINE_ARENA_EXTENTS_MAX + 9ull) * PAGE), 0);
    for (uint64_t i = 0; i < PIPELINE_ARENA_EXTENTS_MAX; i++) {
        assert_int_equal(pipeline_arena_take(&arena, 1, &offset), 0);
        assert_int_equal(offset, i * PAGE);
    }
    assert_int_equal(pipeline_arena_take(&arena, 1, &offset), -EAGAIN);
    pipeline_arena_give(&arena, 17 * PAGE);
    assert_int_equal(pipeline_arena_take(&arena, 1, &offset), 0);
    assert_int_equal(offset, 17 * PAGE);
    pipeline_arena_fini(&arena);
}

/* The lowest place in the map where `pages` are free; MODEL_PAGES: none. */
static uint32_t model_place(const uint8_t *map, uint32_t pages)
{
    for (uint32_t at = 0; at + pages <= MODEL_PAGES; at++)
        if (memchr(map + at, 1, pages) == NULL)
            return at;
    return MODEL_PAGES;
}

static void test_against_map(void **state)
{
    (void)state;
    struct pipeline_arena arena;
    uint8_t map[MODEL_PAGES] = {0};
    struct {
        uint32_t at, pages;
    } taken[MODEL_PAGES];
    uint32_t count = 0, used = 0;
    uint64_t random = 42;
    assert_int_equal(pipeline_arena_init(&arena, (uint64_t)MODEL_PAGES * PAGE), 0);
    for (uint32_t step = 0; step < 1000000; step++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint32_t draw = (uint32_t)(random >> 40);
        if (draw % 16 < 9) {
            uint64_t bytes = 1 + (draw >> 4) % (9 * PAGE), offset = 0;
            uint32_t pages = (uint32_t)((bytes + PAGE - 1) / PAGE);
            uint32_t at = model_place(map, pages);
            int rc = pipeline_arena_take(&arena, bytes, &offset);
            assert_int_equal(rc, at == MODEL_PAGES ? -EAGAIN : 0);
            if (rc < 0)
                continue;
            assert_int_equal(offset, (uint64_t)at * PAGE);
            memset(map + at, 1, pages);
            taken[count].at = at;
            taken[count++].pages = pages;
            used += pages;
        } else if (count > 0) {
            uint32_t i = (draw >> 4) % count;
            pipeline_arena_give(&arena, (uint64_t)taken[i].at * PAGE);
            memset(map + taken[i].at, 0, taken[i].pages);
            used -= taken[i].pages;
            taken[i] = taken[--count];
        }
        assert_int_equal(arena.used_bytes, (uint64_t)used * PAGE);
        assert_int_equal(arena.count, count);
    }
    pipeline_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges), cmocka_unit_test(test_first_fit),
        cmocka_unit_test(test_extents_max), cmocka_unit_test(test_against_map)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
