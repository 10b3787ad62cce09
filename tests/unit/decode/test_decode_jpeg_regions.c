/* JPEG regions: each has the bytes of the same window of the whole picture, for every sampling and
 * every kind of file; and the colours. */
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

struct picture {
    uint8_t *file, *pixels; /* pixels: 4 bytes each, of a plain decode */
    size_t bytes;
    int width, height;
};

static bool picture_try(const struct jpeg_recipe *recipe, struct picture *ret)
{
    *ret = (struct picture){0};
    ret->file = jpeg_make(recipe, &ret->bytes);
    if (ret->file == NULL)
        return false;
    ret->pixels = jpeg_decode_plainly(ret->file, ret->bytes, &ret->width, &ret->height);
    if (ret->pixels != NULL)
        return true;
    free(ret->file);
    return false;
}

static struct picture picture_make(const struct jpeg_recipe *recipe)
{
    struct picture picture;
    if (!picture_try(recipe, &picture))
        abort();
    return picture;
}

static void picture_free(struct picture *picture)
{
    free(picture->file);
    free(picture->pixels);
}

static struct decode_pixels decode_whole(const struct picture *picture)
{
    struct decode_packet packet = {picture->file, picture->bytes};
    struct decode_head head = {0};
    struct decode_fault fault;
    struct decode_pixels pixels = {0};
    assert_int_equal(ops->head(ctx, &packet, UINT64_MAX, &head, &fault), SPDL_CLASS_OK);
    assert_int_equal(head.width, picture->width);
    assert_int_equal(head.height, picture->height);
    struct decode_region region = {0, 0, head.width, head.height};
    assert_int_equal(ops->decode(ctx, &packet, &region, false, &pixels, &fault), SPDL_CLASS_OK);
    return pixels;
}

static const uint8_t *pixel_at(const struct decode_pixels *pixels, int x, int y)
{
    return pixels->base + (size_t)(pixels->region_y + y) * pixels->stride +
           (size_t)(pixels->region_x + x) * 4;
}

static void check_region(const struct picture *picture, const struct decode_region *region,
                         bool may_stop_early)
{
    struct decode_packet packet = {picture->file, picture->bytes};
    struct decode_head head;
    struct decode_fault fault;
    struct decode_pixels pixels = {0};
    if (ops->head(ctx, &packet, UINT64_MAX, &head, &fault) != SPDL_CLASS_OK ||
        ops->decode(ctx, &packet, region, may_stop_early, &pixels, &fault) != SPDL_CLASS_OK)
        fail_msg("%s", fault.message);
    for (int y = 0; y < region->height; y++)
        for (int x = 0; x < region->width; x++) {
            const uint8_t *whole =
                picture->pixels +
                ((size_t)(region->y + y) * (size_t)picture->width + (size_t)(region->x + x)) * 4;
            if (memcmp(pixel_at(&pixels, x, y), whole, 3) != 0)
                fail_msg("region %d,%d %dx%d of %dx%d differs at %d,%d", region->x, region->y,
                         region->width, region->height, picture->width, picture->height, x, y);
        }
    (void)*(const volatile uint8_t *)(pixel_at(&pixels, region->width - 1, region->height - 1) +
                                      67); /* 64 bytes behind the last pixel may be read */
}

static int clipped(int size, int start, int whole)
{
    return size == 0 || start + size > whole ? whole - start : size;
}

/* Every place of the list in both directions, with several sizes. */
static void check_places(const struct picture *picture)
{
    static const int places[] = {0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 47, 63};
    static const int sizes[][2] = {{1, 1}, {16, 16}, {0, 5}, {6, 0}, {0, 0}};
    const size_t count = sizeof places / sizeof places[0];
    for (size_t i = 0; i < count * count; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            struct decode_region region = {places[i % count], places[i / count], 0, 0};
            if (region.x >= picture->width || region.y >= picture->height)
                continue;
            region.width = clipped(sizes[k][0], region.x, picture->width);
            region.height = clipped(sizes[k][1], region.y, picture->height);
            check_region(picture, &region, (i + k) % 2 == 0);
        }
}

static void set_kind(struct jpeg_recipe *recipe, int kind)
{
    recipe->progressive = kind == 1;
    recipe->restart = kind == 2 ? 3 : 0;
    recipe->separate_scans = kind == 3;
    recipe->arithmetic = kind == 4;
}

static void test_usual_samplings(void **state)
{
    (void)state;
    static const int samplings[][2] = {{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}};
    static const int sizes[][2] = {{67, 59}, {18, 50}, {65, 17}, {1, 33}, {33, 1}};
    for (size_t s = 0; s < sizeof samplings / sizeof samplings[0]; s++)
        for (int kind = 0; kind < 5; kind++)
            for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
                struct jpeg_recipe recipe = {.width = sizes[k][0],
                                             .height = sizes[k][1],
                                             .h = {samplings[s][0]},
                                             .v = {samplings[s][1]},
                                             .seed = (uint32_t)(s + k)};
                set_kind(&recipe, kind);
                struct picture picture = picture_make(&recipe);
                check_places(&picture);
                picture_free(&picture);
            }
}

/* All factors from 1 to 4 for luma and for chroma, finer or coarser, where libjpeg can write and
 * read them. */
static void test_unusual_samplings(void **state)
{
    (void)state;
    int made = 0;
    for (int code = 0; code < 256; code++) {
        int h0 = 1 + code % 4, v0 = 1 + code / 4 % 4, h1 = 1 + code / 16 % 4, v1 = 1 + code / 64;
        struct jpeg_recipe recipe = {.width = 67,
                                     .height = 43,
                                     .h = {h0, h1, code % 3 == 0 ? 1 : h1},
                                     .v = {v0, v1, code % 5 == 0 ? 1 : v1},
                                     .seed = (uint32_t)code};
        set_kind(&recipe, code % 2 == 0 ? 3 : code % 5);
        struct picture picture;
        if (!picture_try(&recipe, &picture))
            continue;
        made++;
        check_places(&picture);
        picture_free(&picture);
    }
    assert_true(made > 50);
}

static void test_random_regions(void **state)
{
    (void)state;
    uint64_t luck = 5;
    for (int round = 0; round < 60; round++) {
        struct jpeg_recipe recipe = {.width = 1 + chance_next(&luck) % 400,
                                     .height = 1 + chance_next(&luck) % 300,
                                     .h = {1 + chance_next(&luck) % 2},
                                     .v = {1 + chance_next(&luck) % 2},
                                     .colour = round % 7 == 0 ? JPEG_MAKER_GREY : JPEG_MAKER_YCBCR,
                                     .seed = (uint32_t)round};
        set_kind(&recipe, round % 5);
        struct picture picture = picture_make(&recipe);
        for (int i = 0; i < 40; i++) {
            struct decode_region region = {chance_next(&luck) % picture.width,
                                           chance_next(&luck) % picture.height, 0, 0};
            region.width = 1 + chance_next(&luck) % (picture.width - region.x);
            region.height = 1 + chance_next(&luck) % (picture.height - region.y);
            check_region(&picture, &region, i % 2 == 0);
        }
        picture_free(&picture);
    }
}

/* A progressive picture that ends properly before its last scans: libjpeg guesses what it did not
 * get. */
static void test_unfinished_progressive(void **state)
{
    (void)state;
    struct jpeg_recipe recipe = {
        .width = 90, .height = 70, .h = {2}, .v = {2}, .progressive = true, .seed = 4};
    struct picture picture = picture_make(&recipe);
    size_t scans = 0;
    for (size_t i = 0; i + 1 < picture.bytes && scans < 3; i++) {
        if (picture.file[i] != 0xFF || picture.file[i + 1] != 0xDA || ++scans < 3)
            continue;
        picture.file[i + 1] = 0xD9; /* the third scan becomes the end */
        picture.bytes = i + 2;
    }
    free(picture.pixels);
    picture.pixels =
        jpeg_decode_plainly(picture.file, picture.bytes, &picture.width, &picture.height);
    assert_non_null(picture.pixels);
    check_places(&picture);
    picture_free(&picture);
}

static void check_fill(const struct jpeg_recipe *recipe, const int rgb[3], int tolerance)
{
    struct picture picture = picture_make(recipe);
    struct decode_pixels pixels = decode_whole(&picture);
    for (int y = 0; y < picture.height; y++)
        for (int x = 0; x < picture.width; x++)
            for (int c = 0; c < 3; c++)
                assert_in_range(pixel_at(&pixels, x, y)[c] + 10, rgb[c] + 10 - tolerance,
                                rgb[c] + 10 + tolerance);
    picture_free(&picture);
}

/* Ink is stored inverted: 255 minus (64, 128, 32, 16), and full cyan. */
static void test_ink(void **state)
{
    (void)state;
    static const uint8_t mixed[4] = {191, 127, 223, 239}, cyan[4] = {0, 255, 255, 255};
    for (int kind = 0; kind < 2; kind++) {
        struct jpeg_recipe recipe = {.width = 32,
                                     .height = 32,
                                     .quality = 100,
                                     .colour = kind == 0 ? JPEG_MAKER_CMYK : JPEG_MAKER_YCCK,
                                     .fill = mixed};
        check_fill(&recipe, (const int[3]){179, 119, 209}, 2);
        recipe.fill = cyan;
        check_fill(&recipe, (const int[3]){0, 255, 255}, 2);
    }
}

static void test_ink_regions(void **state)
{
    (void)state;
    struct jpeg_recipe recipe = {
        .width = 67, .height = 50, .h = {2, 1, 1, 2}, .v = {2, 1, 1, 2}, .colour = JPEG_MAKER_YCCK};
    struct picture picture = picture_make(&recipe);
    for (size_t i = 0; i < (size_t)picture.width * (size_t)picture.height; i++) {
        uint8_t *p = picture.pixels + 4 * i;
        for (int c = 0; c < 3; c++) { /* Pillow: ink = 255 - stored; light = white - ink * white */
            int product = (255 - p[c]) * p[3] + 128;
            p[c] = (uint8_t)(p[3] - ((product + (product >> 8)) >> 8));
        }
    }
    check_places(&picture);
    picture_free(&picture);
}

static void test_stored_as_rgb(void **state)
{
    (void)state;
    static const uint8_t fill[3] = {200, 30, 60};
    struct jpeg_recipe recipe = {
        .width = 64, .height = 48, .quality = 100, .colour = JPEG_MAKER_RGB, .fill = fill};
    check_fill(&recipe, (const int[3]){200, 30, 60}, 1);
}

static void test_grey(void **state)
{
    (void)state;
    struct jpeg_recipe recipe = {.width = 50, .height = 40, .colour = JPEG_MAKER_GREY};
    for (int factor = 1; factor <= 2; factor++) { /* one component may have any factor */
        recipe.h[0] = recipe.v[0] = factor;
        struct picture picture = picture_make(&recipe);
        struct decode_pixels pixels = decode_whole(&picture);
        for (int i = 0; i < 50 * 40; i++) {
            const uint8_t *p = pixel_at(&pixels, i % 50, i / 50);
            assert_true(p[0] == p[1] && p[1] == p[2]);
        }
        check_places(&picture);
        picture_free(&picture);
    }
}

static void test_head(void **state)
{
    (void)state;
    for (int orientation = 0; orientation <= 9; orientation++) {
        struct jpeg_recipe recipe = {.width = 21, .height = 13, .orientation = orientation};
        size_t bytes;
        uint8_t *file = jpeg_make(&recipe, &bytes);
        struct decode_packet packet = {file, bytes};
        struct decode_head head;
        struct decode_fault fault;
        assert_int_equal(ops->head(ctx, &packet, 21 * 13, &head, &fault), SPDL_CLASS_OK);
        assert_int_equal(head.width, 21);
        assert_int_equal(head.height, 13);
        assert_int_equal(head.channels, 3);
        assert_int_equal(head.orientation, orientation >= 1 && orientation <= 8 ? orientation : 1);
        assert_int_equal(ops->head(ctx, &packet, 21 * 13 - 1, &head, &fault), SPDL_CLASS_LIMIT);
        free(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usual_samplings),
        cmocka_unit_test(test_unusual_samplings),
        cmocka_unit_test(test_random_regions),
        cmocka_unit_test(test_unfinished_progressive),
        cmocka_unit_test(test_ink),
        cmocka_unit_test(test_ink_regions),
        cmocka_unit_test(test_stored_as_rgb),
        cmocka_unit_test(test_grey),
        cmocka_unit_test(test_head),
    };
    return cmocka_run_group_tests(tests, open_codec, close_codec);
}
