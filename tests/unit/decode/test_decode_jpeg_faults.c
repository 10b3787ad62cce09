/* JPEG files that are cut, damaged, too large or of a kind that is not decoded: the right class
 * each, whatever the region; and files that only look damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decode/decode.h"
#include "tests/lib/chance.h"
#include "tests/lib/jpeg_maker.h"

enum { PIXELS_MAX = 1 << 20 };

static void *ctx;
static const struct decode_ops *ops;

static int open_codec(void **state)
{
    (void)state;
    ops = decode_table[0];
    size_t bytes = (ops->ctx_bytes + 63) & ~(size_t)63;
    ctx = aligned_alloc(64, bytes);
    if (ctx == NULL)
        return -1;
    memset(ctx, 0, bytes);
    return ops->open(ctx);
}

static int close_codec(void **state)
{
    (void)state;
    ops->close(ctx);
    free(ctx);
    return 0;
}

/* A copy that ends where its memory ends, so that a step too far is seen. */
static enum spdl_class decode_copy(const uint8_t *file, size_t bytes, int corner,
                                   struct decode_fault *ret_fault)
{
    uint8_t *copy = malloc(bytes == 0 ? 1 : bytes);
    memcpy(copy, file, bytes);
    struct decode_packet packet = {copy, bytes};
    struct decode_head head;
    struct decode_pixels pixels;
    ret_fault->message[0] = '\0';
    enum spdl_class class_number = ops->head(ctx, &packet, PIXELS_MAX, &head, ret_fault);
    if (class_number == SPDL_CLASS_OK) {
        int32_t width = (head.width + 2) / 3, height = (head.height + 2) / 3;
        struct decode_region region = {corner % 2 == 0 ? 0 : head.width - width,
                                       corner / 2 == 0 ? 0 : head.height - height, width, height};
        class_number = ops->decode(ctx, &packet, &region, false, &pixels, ret_fault);
    }
    if (class_number != SPDL_CLASS_OK) {
        assert_int_equal(ret_fault->class_number, class_number);
        assert_true(ret_fault->message[0] != '\0');
        assert_true(ret_fault->byte_offset <= bytes);
    }
    free(copy);
    return class_number;
}

/* The class, which must be the same for the four corners. */
static enum spdl_class class_of(const uint8_t *file, size_t bytes)
{
    struct decode_fault fault, other;
    enum spdl_class class_number = decode_copy(file, bytes, 0, &fault);
    for (int corner = 1; corner < 4; corner++) {
        assert_int_equal(decode_copy(file, bytes, corner, &other), class_number);
        assert_string_equal(other.message, fault.message);
    }
    return class_number;
}

static const struct jpeg_recipe recipes[] = {
    {.width = 50, .height = 37, .h = {2}, .v = {2}, .quality = 60},
    {.width = 50, .height = 37, .h = {2}, .v = {1}, .quality = 60, .restart = 2},
    {.width = 40, .height = 37, .h = {2}, .v = {2}, .quality = 50, .progressive = true},
    {.width = 40, .height = 31, .quality = 50, .plain_progression = true},
    {.width = 40, .height = 37, .h = {2}, .v = {2}, .quality = 50, .separate_scans = true},
    {.width = 40, .height = 37, .quality = 50, .colour = JPEG_MAKER_GREY},
    {.width = 24, .height = 17, .quality = 50, .colour = JPEG_MAKER_YCCK},
    {.width = 40, .height = 37, .quality = 50, .progressive = true, .restart = 3},
};

enum { RECIPES = sizeof recipes / sizeof recipes[0] };

static void test_cut_at_every_length(void **state)
{
    (void)state;
    for (size_t i = 0; i < RECIPES; i++) {
        size_t bytes;
        uint8_t *file = jpeg_make(&recipes[i], &bytes);
        assert_non_null(file);
        for (size_t n = 2; n <= bytes; n++) {
            /* Only the end marker may be missing. */
            enum spdl_class expected = n + 2 >= bytes ? SPDL_CLASS_OK : SPDL_CLASS_TRUNCATED;
            if (class_of(file, n) != expected)
                fail_msg("recipe %zu cut at %zu of %zu", i, n, bytes);
        }
        free(file);
    }
}

/* Arithmetic coding cannot tell its end, so that the end marker belongs to the data. */
static void test_cut_arithmetic(void **state)
{
    (void)state;
    for (int progressive = 0; progressive < 2; progressive++) {
        struct jpeg_recipe recipe = {
            .width = 40, .height = 37, .arithmetic = true, .progressive = progressive == 1};
        size_t bytes;
        uint8_t *file = jpeg_make(&recipe, &bytes);
        for (size_t n = 2; n + 2 < bytes; n++)
            assert_int_equal(class_of(file, n), SPDL_CLASS_TRUNCATED);
        assert_int_equal(class_of(file, bytes), SPDL_CLASS_OK);
        free(file);
    }
}

static void test_bytes_behind_the_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < RECIPES; i++) {
        size_t bytes, more;
        uint8_t *file = jpeg_make(&recipes[i], &bytes);
        uint8_t *second = jpeg_make(&recipes[(i + 1) % RECIPES], &more);
        uint8_t *both = calloc(1, bytes + 65536 + more);
        memcpy(both, file, bytes);
        assert_int_equal(class_of(both, bytes + 65536), SPDL_CLASS_OK);
        memcpy(both + bytes, second, more);
        assert_int_equal(class_of(both, bytes + more), SPDL_CLASS_OK);
        free(both);
        free(second);
        free(file);
    }
}

/* Place of the n-th marker of a kind, 1 …; it must be there. */
static size_t find_marker(const uint8_t *file, size_t bytes, uint8_t marker, int nth)
{
    for (size_t i = 0; i + 1 < bytes; i++)
        if (file[i] == 0xFF && file[i + 1] == marker && --nth == 0)
            return i;
    fail_msg("there is no marker %02x", marker);
    return 0;
}

static void test_damaged_heads(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *file = jpeg_make(&recipes[0], &bytes), *copy = malloc(bytes);
    size_t sof = find_marker(file, bytes, 0xC0, 1), dht = find_marker(file, bytes, 0xC4, 1);
    static const struct {
        int offset; /* behind SOF's marker */
        uint8_t value;
        enum spdl_class class_number;
    } cases[] = {{4, 12, SPDL_CLASS_UNSUPPORTED},   /* 12 bits */
                 {4, 200, SPDL_CLASS_CORRUPT},      /* 200 bits */
                 {1, 0xC3, SPDL_CLASS_UNSUPPORTED}, /* lossless */
                 {1, 0xCB, SPDL_CLASS_UNSUPPORTED}, /* lossless, arithmetic */
                 {1, 0xC5, SPDL_CLASS_UNSUPPORTED}, /* hierarchical */
                 {11, 0x50, SPDL_CLASS_CORRUPT},    /* a sampling factor of 5 and one of 0 */
                 {9, 7, SPDL_CLASS_CORRUPT},        /* seven components in room for three */
                 {12, 9, SPDL_CLASS_CORRUPT},       /* a quantisation table that cannot be */
                 {12, 3, SPDL_CLASS_CORRUPT}};      /* one that is not there */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(copy, file, bytes);
        copy[sof + (size_t)cases[i].offset] = cases[i].value;
        if (class_of(copy, bytes) != cases[i].class_number)
            fail_msg("case %zu", i);
        assert_int_equal(class_of(file, bytes), SPDL_CLASS_OK);
    }
    memcpy(copy, file, bytes);
    memset(copy + dht + 5, 0xFF, 3);
    assert_int_equal(class_of(copy, bytes), SPDL_CLASS_CORRUPT);
    memcpy(copy, file, bytes);
    copy[sof + 5] = copy[sof + 6] = 0; /* no height */
    assert_int_equal(class_of(copy, bytes), SPDL_CLASS_CORRUPT);
    assert_int_equal(class_of(file, 200), SPDL_CLASS_TRUNCATED);
    assert_int_equal(class_of((const uint8_t *)"\xff\xd8\xff\xd9", 4), SPDL_CLASS_CORRUPT);
    free(copy);
    free(file);
}

static void test_two_components(void **state)
{
    (void)state;
    struct jpeg_recipe recipe = {.width = 20, .height = 10, .colour = JPEG_MAKER_TWO};
    size_t bytes;
    uint8_t *file = jpeg_make(&recipe, &bytes);
    assert_int_equal(class_of(file, bytes), SPDL_CLASS_UNSUPPORTED);
    free(file);
}

static void set_size(uint8_t *file, size_t bytes, unsigned width, unsigned height)
{
    size_t sof = find_marker(file, bytes, 0xC0, 1);
    file[sof + 5] = (uint8_t)(height >> 8);
    file[sof + 6] = (uint8_t)height;
    file[sof + 7] = (uint8_t)(width >> 8);
    file[sof + 8] = (uint8_t)width;
}

static void test_too_many_pixels(void **state)
{
    (void)state;
    size_t bytes;
    struct jpeg_recipe small = {.width = 16, .height = 16};
    uint8_t *file = jpeg_make(&small, &bytes);
    set_size(file, bytes, 65500, 65500);
    assert_int_equal(class_of(file, bytes), SPDL_CLASS_LIMIT);
    set_size(file, bytes, 65535, 65535);
    assert_int_equal(class_of(file, bytes), SPDL_CLASS_LIMIT);
    set_size(file, bytes, 1024, 1025);
    assert_int_equal(class_of(file, bytes), SPDL_CLASS_LIMIT);
    free(file);
    struct jpeg_recipe exact = {.width = 1024, .height = 1024, .quality = 5};
    file = jpeg_make(&exact, &bytes);
    assert_int_equal(class_of(file, bytes), SPDL_CLASS_OK);
    free(file);
}

/* The last scan `repeats` times more; free it. */
static uint8_t *repeat_last_scan(const struct jpeg_recipe *recipe, int repeats, size_t *ret_bytes)
{
    size_t bytes;
    uint8_t *file = jpeg_make(recipe, &bytes);
    size_t scan = find_marker(file, bytes, 0xDA, 4), scan_bytes = bytes - 2 - scan;
    *ret_bytes = bytes + (size_t)repeats * scan_bytes;
    uint8_t *many = malloc(*ret_bytes);
    memcpy(many, file, bytes - 2);
    for (int i = 0; i < repeats; i++)
        memcpy(many + bytes - 2 + (size_t)i * scan_bytes, file + scan, scan_bytes);
    memcpy(many + *ret_bytes - 2, "\xff\xd9", 2);
    free(file);
    return many;
}

static void test_too_many_scans(void **state)
{
    (void)state;
    struct jpeg_recipe small = {.width = 16, .height = 16, .plain_progression = true};
    struct jpeg_recipe large = {.width = 1024,
                                .height = 1024,
                                .h = {2},
                                .v = {2},
                                .plain_progression = true,
                                .fill = (const uint8_t[]){9, 9, 9}};
    static const struct {
        int scans;
        bool is_large;
        enum spdl_class class_number;
    } cases[] = {{499, false, SPDL_CLASS_OK},    {500, false, SPDL_CLASS_OK},
                 {501, false, SPDL_CLASS_LIMIT}, {32, true, SPDL_CLASS_OK},
                 {256, true, SPDL_CLASS_OK},     {257, true, SPDL_CLASS_LIMIT}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t bytes;
        uint8_t *many =
            repeat_last_scan(cases[i].is_large ? &large : &small, cases[i].scans - 4, &bytes);
        struct decode_fault fault;
        if (decode_copy(many, bytes, 0, &fault) != cases[i].class_number)
            fail_msg("%d scans", cases[i].scans);
        free(many);
    }
}

/* A scan that is not there although the file ends properly: of a whole colour component, and of
 * refinement only. */
static void test_missing_scans(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *file = jpeg_make(&recipes[4], &bytes);
    size_t last = find_marker(file, bytes, 0xDA, 3);
    file[last + 1] = 0xD9;
    assert_int_equal(class_of(file, last + 2), SPDL_CLASS_CORRUPT);
    assert_int_equal(class_of(file, last), SPDL_CLASS_TRUNCATED);
    free(file);
    file = jpeg_make(&recipes[2], &bytes);
    last = find_marker(file, bytes, 0xDA, 10);
    file[last + 1] = 0xD9;
    assert_int_equal(class_of(file, last + 2), SPDL_CLASS_OK); /* its writer wanted it so */
    assert_int_equal(class_of(file, last), SPDL_CLASS_TRUNCATED);
    free(file);
}

/* Removes a marker's part: its bytes become a comment. */
static void hide(uint8_t *file, size_t bytes, uint8_t marker)
{
    for (size_t i = 2; i + 3 < bytes && file[i + 1] != 0xDA;
         i += 2 + ((size_t)file[i + 2] << 8 | file[i + 3]))
        if (file[i + 1] == marker)
            file[i + 1] = 0xFE;
}

/* What the thread decoded before must not help: tables stay with their picture. Without Huffman
 * tables the standard's are meant. */
static void test_nothing_is_left_behind(void **state)
{
    (void)state;
    size_t bytes, other_bytes;
    uint8_t *file = jpeg_make(&recipes[0], &bytes), *copy = malloc(bytes);
    struct jpeg_recipe other = {.width = 30, .height = 20, .progressive = true, .quality = 20};
    uint8_t *own_tables = jpeg_make(&other, &other_bytes);
    memcpy(copy, file, bytes);
    hide(copy, bytes, 0xDB);
    assert_int_equal(class_of(file, bytes), SPDL_CLASS_OK);
    assert_int_equal(class_of(copy, bytes), SPDL_CLASS_CORRUPT);
    memcpy(copy, file, bytes);
    hide(copy, bytes, 0xC4);
    assert_int_equal(class_of(own_tables, other_bytes), SPDL_CLASS_OK);
    assert_int_equal(class_of(copy, bytes), SPDL_CLASS_OK);
    free(own_tables);
    free(copy);
    free(file);
}

/* Bytes between the data and the end marker: what fills up is harmless, other data was meant for
 * the picture. */
static void test_bytes_before_the_end(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t count;
        enum spdl_class class_number;
    } cases[] = {
        {"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20, SPDL_CLASS_OK},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16, SPDL_CLASS_OK},
        {"\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0", 18, SPDL_CLASS_OK},
        {"0123456789abcdefghijklmnop", 26, SPDL_CLASS_CORRUPT},
        {"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 20, SPDL_CLASS_CORRUPT}};
    for (size_t i = 0; i < RECIPES; i++) {
        size_t bytes;
        uint8_t *file = jpeg_make(&recipes[i], &bytes), *copy = malloc(bytes + 40);
        for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
            memcpy(copy, file, bytes - 2);
            memcpy(copy + bytes - 2, cases[k].bytes, cases[k].count);
            memcpy(copy + bytes - 2 + cases[k].count, "\xff\xd9", 2);
            if (class_of(copy, bytes + cases[k].count) != cases[k].class_number)
                fail_msg("recipe %zu, case %zu", i, k);
        }
        free(copy);
        free(file);
    }
}

/* Room was made for the file, and its end was never written: zeros or ones to the end, without an
 * end marker. */
static void test_ends_that_were_not_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < RECIPES; i++) {
        size_t bytes;
        uint8_t *file = jpeg_make(&recipes[i], &bytes), *copy = malloc(bytes + 100);
        size_t scan = find_marker(file, bytes, 0xDA, 1);
        for (size_t n = scan + 20; n + 20 < bytes; n += 3)
            for (int filling = 0; filling < 256; filling += 255) {
                memcpy(copy, file, n);
                memset(copy + n, filling, bytes + 100 - n);
                enum spdl_class class_number = class_of(copy, bytes + 100);
                /* Zeros may also be read as a Huffman code that does not exist. */
                if (class_number != SPDL_CLASS_TRUNCATED && class_number != SPDL_CLASS_CORRUPT)
                    fail_msg("recipe %zu, filled with %d from %zu", i, filling, n);
            }
        memcpy(copy, file, bytes - 2); /* what is left is whole, and an odd byte */
        copy[bytes - 2] = 0xFF;
        assert_int_equal(class_of(copy, bytes - 1), SPDL_CLASS_OK);
        free(copy);
        free(file);
    }
}

/* A scan that names Huffman tables which the file does not have, although it has others. */
static void test_tables_that_are_missing(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        size_t bytes;
        uint8_t *file = jpeg_make(&recipes[i], &bytes);
        size_t scan = find_marker(file, bytes, 0xDA, 1);
        for (uint8_t tables = 0x02; tables != 0; tables = tables == 0x02 ? 0x30 : 0) {
            uint8_t before = file[scan + 6];
            file[scan + 6] = tables;                /* of the first colour component */
            bool unused = i == 2 && tables == 0x02; /* a scan without AC coefficients */
            assert_int_equal(class_of(file, bytes), unused ? SPDL_CLASS_OK : SPDL_CLASS_CORRUPT);
            file[scan + 6] = before;
        }
        free(file);
    }
    size_t bytes;
    uint8_t *file = jpeg_make(&recipes[0], &bytes);
    size_t second = find_marker(file, bytes, 0xC4, 2); /* the luma's AC table */
    file[second + 1] = 0xFE;
    assert_int_equal(class_of(file, bytes), SPDL_CLASS_CORRUPT);
    free(file);
}

static void test_harmless_oddities(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *file = jpeg_make(&recipes[0], &bytes), *copy = calloc(1, bytes + 10);
    memcpy(copy, file, bytes - 2);
    memcpy(copy + bytes + 8, "\xff\xd9", 2); /* ten bytes before the end marker */
    assert_int_equal(class_of(copy, bytes + 10), SPDL_CLASS_OK);
    memcpy(copy, file, bytes);
    size_t jfif = find_marker(copy, bytes, 0xE0, 1);
    copy[jfif + 9] = 9; /* a version of JFIF that does not exist */
    assert_int_equal(class_of(copy, bytes), SPDL_CLASS_OK);
    free(copy);
    free(file);
}

static void damage(uint8_t *file, size_t bytes, int round, uint64_t *luck)
{
    size_t span = round % 3 == 0 && bytes > 700 ? 700 : bytes;
    for (int changes = 1 + chance_next(luck) % 6; changes > 0; changes--)
        file[2 + (size_t)chance_next(luck) % (span - 2)] ^=
            (uint8_t)(round % 2 == 0 ? 1 << chance_next(luck) % 8 : chance_next(luck));
    if (round % 5 == 0)
        memmove(file + 2 + (size_t)chance_next(luck) % (span - 10),
                file + 2 + (size_t)chance_next(luck) % (span - 10), 8);
}

/* Damage at random: any class, the same for every region, and the next picture is right. */
static void test_random_damage(void **state)
{
    (void)state;
    uint64_t luck = 17;
    int seen[SPDL_CLASS_COUNT] = {0};
    for (int recipe_number = 0; recipe_number < 40; recipe_number++) {
        struct jpeg_recipe recipe = recipes[recipe_number % RECIPES];
        recipe.arithmetic = recipe_number % 7 == 0;
        recipe.seed = (uint32_t)recipe_number;
        size_t bytes;
        uint8_t *file = jpeg_make(&recipe, &bytes), *copy = malloc(bytes);
        for (int round = 0; round < 100; round++) {
            memcpy(copy, file, bytes);
            damage(copy, bytes, round, &luck);
            enum spdl_class class_number =
                class_of(copy, bytes - (size_t)(chance_next(&luck) % 4 == 0 ? 9 : 0));
            assert_in_range(class_number, SPDL_CLASS_OK, SPDL_CLASS_LIMIT);
            seen[class_number]++;
            assert_int_equal(class_of(file, bytes), SPDL_CLASS_OK);
        }
        free(copy);
        free(file);
    }
    assert_true(seen[SPDL_CLASS_CORRUPT] > 100 && seen[SPDL_CLASS_TRUNCATED] > 100 &&
                seen[SPDL_CLASS_UNSUPPORTED] > 0 && seen[SPDL_CLASS_LIMIT] > 0);
}

static void test_garbage(void **state)
{
    (void)state;
    uint64_t luck = 19;
    for (int round = 0; round < 3000; round++) {
        uint8_t data[2000] = {0xFF, 0xD8, 0xFF};
        size_t bytes = 3 + (size_t)chance_next(&luck) % (sizeof data - 3);
        for (size_t i = 3; i < bytes; i++)
            data[i] = chance_next(&luck) % 4 == 0 ? 0xFF : (uint8_t)chance_next(&luck);
        assert_int_not_equal(class_of(data, bytes), SPDL_CLASS_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_at_every_length),
        cmocka_unit_test(test_cut_arithmetic),
        cmocka_unit_test(test_bytes_behind_the_end),
        cmocka_unit_test(test_damaged_heads),
        cmocka_unit_test(test_two_components),
        cmocka_unit_test(test_too_many_pixels),
        cmocka_unit_test(test_too_many_scans),
        cmocka_unit_test(test_missing_scans),
        cmocka_unit_test(test_ends_that_were_not_written),
        cmocka_unit_test(test_bytes_before_the_end),
        cmocka_unit_test(test_tables_that_are_missing),
        cmocka_unit_test(test_nothing_is_left_behind),
        cmocka_unit_test(test_harmless_oddities),
        cmocka_unit_test(test_random_damage),
        cmocka_unit_test(test_garbage),
    };
    return cmocka_run_group_tests(tests, open_codec, close_codec);
}
