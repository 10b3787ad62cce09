/* All loops that this CPU can run give the bytes of the portable ones: on every width from 1 to 70,
 * on many ratios, both filters, flips and padding; and they write nothing but the row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "transform/transform_scratch.h"

enum { GUARD_BYTES = 128, KERNELS_MAX = 4 };

static struct transform *scratch[KERNELS_MAX];
static unsigned kernel_count;

static uint32_t draw(uint32_t *state, uint32_t n)
{
    const uint32_t counter[4] = {(*state)++, 1, 0, 0}, key[2] = {77, 1};
    uint32_t words[4];
    philox4x32(counter, key, words);
    return (uint32_t)((uint64_t)words[0] * n >> 32);
}

/* Runs the geometry with all loops on one picture of noise and compares. */
static void compare(const struct transform_geometry *geometry, uint32_t *state)
{
    struct field_spec field = {
        .dtype = FIELD_DTYPE_UINT8, .layout = FIELD_LAYOUT_NHWC, .channels = 3};
    field.row_bytes = 3 * (uint64_t)geometry->window.width * (uint64_t)geometry->window.height;
    const size_t stride = 4 * (size_t)geometry->box.width + 4 * draw(state, 3);
    const size_t bytes = stride * (size_t)geometry->box.height + 64;
    uint8_t *source = malloc(bytes);
    uint8_t *rows[KERNELS_MAX] = {0};
    assert_non_null(source);
    uint32_t noise = draw(state, UINT32_MAX), loud = draw(state, 3);
    for (size_t i = 0; i < bytes; i++) {
        noise = noise * 1664525 + 1013904223;
        source[i] = (uint8_t)(loud == 0 ? (noise >> 31) * 255 : noise >> 24);
    }
    const struct transform_pixels pixels = {source, stride, 0, 0};
    for (unsigned k = 0; k < kernel_count; k++) {
        rows[k] = malloc(field.row_bytes + 2 * GUARD_BYTES);
        assert_non_null(rows[k]);
        memset(rows[k], 0xC3, field.row_bytes + 2 * GUARD_BYTES);
        assert_int_equal(
            transform_run(scratch[k], &field, geometry, &pixels, rows[k] + GUARD_BYTES), 0);
        for (size_t i = 0; i < GUARD_BYTES; i++) {
            assert_int_equal(rows[k][i], 0xC3);
            assert_int_equal(rows[k][GUARD_BYTES + field.row_bytes + i], 0xC3);
        }
        if (k > 0 && memcmp(rows[k], rows[0], field.row_bytes + 2 * GUARD_BYTES) != 0)
            fail_msg("%s differs from %s: %dx%d to %dx%d, filter %u",
                     transform_resize_choice(k)->name, transform_resize_choice(0)->name,
                     geometry->frame.width, geometry->frame.height, geometry->width,
                     geometry->height, geometry->filter);
    }
    for (unsigned k = 0; k < kernel_count; k++)
        free(rows[k]);
    free(source);
}

static struct transform_geometry resize_of(int32_t in_width, int32_t in_height, int32_t width,
                                           int32_t height)
{
    struct transform_geometry g = {.width = width, .height = height};
    g.box = g.frame = (struct law_box){0, 0, in_width, in_height};
    g.window = g.live = (struct law_box){0, 0, width, height};
    g.filter = FIELD_FILTER_BILINEAR;
    return g;
}

static void test_all_widths(void **state)
{
    (void)state;
    uint32_t random = 0;
    for (int32_t in = 1; in <= 70; in++) {
        for (int32_t out = 1; out <= 70; out++) {
            int32_t high = 1 + (int32_t)draw(&random, 9), to = 1 + (int32_t)draw(&random, 5);
            struct transform_geometry g = resize_of(in, high, out, to);
            g.hflip = draw(&random, 2);
            g.vflip = draw(&random, 2);
            g.filter = draw(&random, 2) ? FIELD_FILTER_BICUBIC : FIELD_FILTER_BILINEAR;
            compare(&g, &random);
        }
    }
}

/* Every number of taps of the fast form, in both directions, and the change to the exact one. */
static void test_all_ratios(void **state)
{
    (void)state;
    uint32_t random = 5000;
    for (int32_t tenth = 3; tenth <= 140; tenth++) {
        int32_t out = 20 + (int32_t)draw(&random, 60), other = 10 + (int32_t)draw(&random, 20);
        struct transform_geometry g = resize_of(out * tenth / 10, other + 3, out, other);
        g.hflip = draw(&random, 2);
        compare(&g, &random);
        g = resize_of(other + 3, out * tenth / 10, other, out);
        g.vflip = draw(&random, 2);
        compare(&g, &random);
    }
}

static void test_windows(void **state)
{
    (void)state;
    uint32_t random = 9000;
    for (int i = 0; i < 400; i++) {
        int32_t side[4];
        for (int s = 0; s < 4; s++)
            side[s] = 20 + (int32_t)draw(&random, 90);
        struct transform_geometry g = resize_of(side[0], side[1], side[2], side[3]);
        g.window.x = (int32_t)draw(&random, 30) - 15;
        g.window.y = (int32_t)draw(&random, 30) - 15;
        g.live = g.window;
        g.live.x = g.window.x < 0 ? 0 : g.window.x;
        g.live.y = g.window.y < 0 ? 0 : g.window.y;
        int32_t right = g.window.x + g.width, low = g.window.y + g.height;
        g.live.width = (right > g.width ? g.width : right) - g.live.x;
        g.live.height = (low > g.height ? g.height : low) - g.live.y;
        g.hflip = draw(&random, 2);
        g.filter = draw(&random, 2) ? FIELD_FILTER_BICUBIC : FIELD_FILTER_BILINEAR;
        compare(&g, &random);
    }
}

/* A flat picture stays flat, to the last bit, whatever the ratio. */
static void test_flat(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1, 5, 100, 223, 224, 225, 333, 500, 1111, 2700};
    uint8_t *row = malloc(3 * 224 * 4);
    assert_non_null(row);
    const struct field_spec field = {.dtype = FIELD_DTYPE_UINT8,
                                     .layout = FIELD_LAYOUT_NHWC,
                                     .channels = 3,
                                     .row_bytes = 3 * 224 * 4};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int value = 0; value < 256; value += 5) {
            const size_t stride = 4 * (size_t)sizes[i];
            uint8_t *source = malloc(stride * 90 + 64);
            assert_non_null(source);
            memset(source, value, stride * 90 + 64);
            const struct transform_pixels pixels = {source, stride, 0, 0};
            struct transform_geometry g = resize_of(sizes[i], (int32_t)(1 + i * 9), 224, 4);
            g.filter = value % 2 ? FIELD_FILTER_BICUBIC : FIELD_FILTER_BILINEAR;
            for (unsigned k = 0; k < kernel_count; k++) {
                assert_int_equal(transform_run(scratch[k], &field, &g, &pixels, row), 0);
                for (size_t b = 0; b < 3 * 224 * 4; b++)
                    assert_int_equal(row[b], value);
            }
            free(source);
        }
    }
    free(row);
}

static int begin(void **state)
{
    (void)state;
    for (; transform_resize_choice(kernel_count); kernel_count++) {
        scratch[kernel_count] = transform_create();
        if (!scratch[kernel_count])
            return -1;
        transform_use(scratch[kernel_count], transform_resize_choice(kernel_count));
    }
    return 0;
}

static int end(void **state)
{
    (void)state;
    for (unsigned k = 0; k < kernel_count; k++)
        transform_destroy(scratch[k]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_widths),
                                       cmocka_unit_test(test_all_ratios),
                                       cmocka_unit_test(test_windows), cmocka_unit_test(test_flat)};
    return cmocka_run_group_tests(tests, begin, end);
}
