/* Blocks: samples of many kinds in one shard come back as they were found, by shapes and without
 * them; which of them lack a part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "item/class.h"
#include "source/source_block.h"
#include "tests/lib/chance.h"

static void add(struct source_builder *builder, const char *path, uint64_t unit, uint64_t bytes)
{
    struct source_builder_member member = {.path = path,
                                           .path_bytes = (uint32_t)strlen(path),
                                           .data_offset = unit * 512,
                                           .bytes = bytes};
    assert_int_equal(source_builder_member(builder, &member), 0);
}

static struct source_block *finish(struct source_builder *builder)
{
    struct source_block *block = source_builder_finish(builder);
    assert_non_null(block);
    assert_true(source_block_check(block, block->bytes));
    source_builder_destroy(builder);
    return block;
}

static void expect(const struct source_block *block, uint32_t number, const char *key,
                   const char *parts)
{
    char text[1024] = "";
    struct source_sample sample;
    source_block_sample(block, number, &sample);
    assert_int_equal(sample.key_bytes, strlen(key));
    assert_memory_equal(sample.key, key, strlen(key));
    for (uint32_t i = 0; i < sample.part_count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s %llu %llu", i ? ", " : "",
                 sample.parts[i].name, (unsigned long long)sample.parts[i].offset / 512,
                 (unsigned long long)sample.parts[i].bytes);
    assert_string_equal(text, parts);
}

static void expect_lacking(const struct source_block *block, const uint32_t *has, uint32_t all,
                           uint32_t count, const uint32_t *wanted)
{
    uint32_t *numbers = NULL;
    assert_int_equal(source_block_lacking(block, has, all, &numbers), count);
    if (count > 0)
        assert_memory_equal(numbers, wanted, count * sizeof *wanted);
    else
        assert_null(numbers);
    free(numbers);
}

static struct source_builder *mixed(uint64_t large)
{
    struct source_builder *builder = source_builder_create();
    assert_non_null(builder);
    add(builder, "a.jpg", 1, 10);
    add(builder, "a.cls", 3, 20);
    add(builder, "b.cls", 5, 30); /* the other way round */
    add(builder, "b.jpg", 7, large);
    add(builder, "c.jpg", 20000000, 0); /* one alone */
    add(builder, "d.jpg", 20000001, 1); /* as the first, with its parts apart */
    add(builder, "e.txt", 20000003, 2); /* another */
    add(builder, "d.cls", UINT32_MAX, 3);
    return builder;
}

static void test_shapes(void **state)
{
    (void)state;
    static const uint32_t jpg = 1, cls = 2, has[3] = {jpg, cls, 4}; /* jpg, cls, txt as found */
    for (int wide = 0; wide < 2; wide++) {
        struct source_block *block = finish(mixed(wide ? UINT64_C(1) << 32 : UINT32_MAX));
        assert_int_equal(block->is_wide, wide);
        assert_int_equal(block->shape_count, wide ? 0 : 4);
        expect(block, 0, "a", "jpg 1 10, cls 3 20");
        expect(block, 1, "b", wide ? "cls 5 30, jpg 7 4294967296" : "cls 5 30, jpg 7 4294967295");
        expect(block, 2, "c", "jpg 20000000 0");
        expect(block, 3, "d", "jpg 20000001 1, cls 4294967295 3");
        expect(block, 4, "e", "txt 20000003 2");
        expect(block, 5, "", "");
        assert_int_equal(block->largest_bytes, wide ? UINT64_C(1) << 32 : UINT32_MAX);
        expect_lacking(block, has, jpg | cls, 2, (const uint32_t[]){2, 4});
        expect_lacking(block, has, jpg, 1, (const uint32_t[]){4});
        expect_lacking(block, has, 8, 5, (const uint32_t[]){0, 1, 2, 3, 4});
        expect_lacking(block, (const uint32_t[]){1, 1, 1}, 1, 0, NULL);
        free(block);
    }
}

/* What narrow and wide blocks hold has one digest. */
static void test_digests(void **state)
{
    (void)state;
    struct source_builder *builder = mixed(5);
    add(builder, "z.0", 9, UINT64_C(1) << 33);
    struct source_block *wide = finish(builder);
    builder = mixed(5);
    struct source_block *narrow = finish(builder);
    assert_true(wide->is_wide && !narrow->is_wide);
    assert_true(wide->digest_low != narrow->digest_low);
    struct source_block *again = finish(mixed(5));
    assert_true(again->digest_low == narrow->digest_low &&
                again->digest_high == narrow->digest_high);
    /* docs/order.md, by its reference: sample/key NUL 1\n jpg NUL 512 7\n */
    builder = source_builder_create();
    add(builder, "sample/key.jpg", 1, 7);
    struct source_block *one = finish(builder);
    assert_true(one->digest_high == UINT64_C(0xff61e3d0fc7ad24a) &&
                one->digest_low == UINT64_C(0x3ac92e75a4da6fbe));
    free(one);
    free(again);
    free(wide);
    free(narrow);
}

/* More shapes than a block has numbers for. */
static void test_many_shapes(void **state)
{
    (void)state;
    for (uint32_t extra = 0; extra < 2; extra++) {
        struct source_builder *builder = source_builder_create();
        const uint32_t count = SOURCE_BLOCK_SHAPES_MAX + extra;
        char path[32], parts[32];
        for (uint32_t i = 0; i < count; i++) {
            snprintf(path, sizeof path, "%u.p%u", i, i);
            add(builder, path, i, i);
        }
        struct source_block *block = finish(builder);
        assert_int_equal(block->is_wide, extra);
        assert_int_equal(block->sample_count, count);
        for (uint32_t i = 0; i < count; i += 997) {
            snprintf(path, sizeof path, "%u", i);
            snprintf(parts, sizeof parts, "p%u %u %u", i, i, i);
            expect(block, i, path, parts);
        }
        uint32_t *has = calloc(count, sizeof *has);
        assert_non_null(has);
        memset(has, 0xff, count * sizeof *has);
        has[3] = has[65000] = 0;
        expect_lacking(block, has, 1, 2, (const uint32_t[]){3, 65000});
        free(has);
        free(block);
    }
}

/* Whatever stands in a block, no look-up leaves it. */
static void test_damage(void **state)
{
    (void)state;
    uint64_t chance = 8;
    for (int wide = 0; wide < 2; wide++) {
        struct source_block *block = finish(mixed(wide ? UINT64_C(1) << 32 : 5));
        uint8_t *copy = malloc(block->bytes);
        struct source_block *spoilt = (void *)copy;
        static const uint32_t has[64] = {1, 2, 4};
        assert_non_null(copy);
        for (int round = 0; round < 20000; round++) {
            memcpy(copy, block, block->bytes);
            for (int n = chance_below(&chance, 5); n >= 0; n--) {
                int at = chance_below(&chance, (int)block->bytes);
                copy[at] = (uint8_t)chance_next(&chance);
            }
            if (!source_block_check(spoilt, block->bytes) || spoilt->name_count > 64)
                continue;
            uint32_t *numbers = NULL;
            assert_true(source_block_lacking(spoilt, has, 3, &numbers) <= spoilt->sample_count);
            free(numbers);
            for (uint32_t i = 0; i < spoilt->sample_count; i++) {
                struct source_sample sample;
                source_block_sample(spoilt, i, &sample);
                source_block_warm(spoilt, i, round % 2);
                assert_true(sample.part_count <= SOURCE_PARTS_MAX);
                for (uint32_t p = 0; p < sample.part_count; p++)
                    assert_true(strlen(sample.parts[p].name) < block->bytes);
            }
        }
        free(copy);
        free(block);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_digests),
        cmocka_unit_test(test_many_shapes), cmocka_unit_test(test_damage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
