/* Dtypes and layouts: every byte value in every channel, against float arithmetic and the bit
 * patterns of the half-precision forms; and a whole run in each form against the plain bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "transform/transform.h"
#include "transform/transform_emit.h"

enum { WIDTH = 256, HEIGHT = 2 };

static uint8_t rgb[WIDTH * 3];
static uint8_t row[WIDTH * HEIGHT * 3 * 4] __attribute__((aligned(16)));

static struct field_spec field_of(uint32_t dtype, uint32_t layout, uint32_t normalize)
{
    struct field_spec field = {.dtype = dtype,
                               .layout = layout,
                               .channels = 3,
                               .normalize = normalize,
                               .mean = {0.485, 0.456, 0.406},
                               .std = {0.229, 0.224, 0.225}};
    return field;
}

static void emit(const struct field_spec *field)
{
    static struct emit state; /* reused, as a thread does */
    for (int x = 0; x < WIDTH; x++) {
        rgb[3 * x] = (uint8_t)x;
        rgb[3 * x + 1] = (uint8_t)(255 - x);
        rgb[3 * x + 2] = (uint8_t)(x ^ 0x55);
    }
    memset(row, 0xEE, sizeof row);
    transform_emit_prepare(&state, field);
    transform_emit_line(&state, rgb, WIDTH, HEIGHT, 1, row);
}

static size_t place(uint32_t layout, size_t x, size_t c)
{
    if (layout == FIELD_LAYOUT_NCHW)
        return (c * HEIGHT + 1) * WIDTH + x;
    return (WIDTH + x) * 3 + c;
}

static void test_uint8(void **state)
{
    (void)state;
    for (uint32_t layout = FIELD_LAYOUT_NHWC; layout <= FIELD_LAYOUT_NCHW; layout++) {
        struct field_spec field = field_of(FIELD_DTYPE_UINT8, layout, 0);
        emit(&field);
        for (size_t x = 0; x < WIDTH; x++) {
            for (size_t c = 0; c < 3; c++)
                assert_int_equal(row[place(layout, x, c)], rgb[3 * x + c]);
        }
    }
}

static void test_float32(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t layout = FIELD_LAYOUT_NHWC + i % 2;
        struct field_spec field = field_of(FIELD_DTYPE_FLOAT32, layout, i / 2);
        emit(&field);
        for (size_t x = 0; x < WIDTH; x++) {
            for (size_t c = 0; c < 3; c++) {
                double v = rgb[3 * x + c];
                float value, want = (float)(i / 2 ? (v / 255 - field.mean[c]) / field.std[c] : v);
                memcpy(&value, row + 4 * place(layout, x, c), 4);
                assert_true(value == want);
            }
        }
    }
}

static double value_of_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    double value = exponent ? 1024 + (bits & 1023) : bits & 1023;
    for (int e = exponent ? exponent : 1; e < 25; e++)
        value /= 2;
    for (int e = 25; e < exponent; e++)
        value *= 2;
    return bits & 0x8000 ? -value : value;
}

static double value_of_brain(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return (double)value;
}

/* The nearest: neither neighbour is nearer, and on a tie the last bit is 0. */
static void nearest(double (*value_of)(uint16_t), uint16_t bits, double want)
{
    double own = value_of(bits) - want;
    double up = value_of((uint16_t)(bits + 1)) - want, down = value_of((uint16_t)(bits - 1)) - want;
    own = own < 0 ? -own : own;
    up = up < 0 ? -up : up;
    down = down < 0 ? -down : down;
    assert_true(own <= up && (own <= down || (bits & 0x7FFF) == 0));
    if (own > 0 && (own == up || own == down))
        assert_int_equal(bits & 1, 0);
}

static void test_halves(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t layout = FIELD_LAYOUT_NHWC + i % 2;
        uint32_t dtype = i & 2 ? FIELD_DTYPE_FLOAT16 : FIELD_DTYPE_BFLOAT16;
        struct field_spec field = field_of(dtype, layout, i / 4);
        if (i % 2)
            field.std[2] = 50000; /* float16 numbers below the normal ones */
        emit(&field);
        for (size_t x = 0; x < WIDTH; x++) {
            for (size_t c = 0; c < 3; c++) {
                double v = rgb[3 * x + c];
                double want = field.normalize ? (v / 255 - field.mean[c]) / field.std[c] : v;
                uint16_t bits;
                memcpy(&bits, row + 2 * place(layout, x, c), 2);
                nearest(i & 2 ? value_of_half : value_of_brain, bits, (double)(float)want);
            }
        }
    }
}

/* Padding is the value 0, normalised like any other; a run gives in every form what the table says
 * of the bytes that the plain run gives. */
static void test_runs_agree(void **state)
{
    (void)state;
    const struct op_spec ops[] = {
        {.kind = OP_RESIZE, .filter = FIELD_FILTER_BILINEAR, .height = 6, .width = 5},
        {.kind = OP_CENTER_CROP, .height = 9, .width = 8}};
    uint8_t source[7 * 4 * 4 + 64], plain[9 * 8 * 3];
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = (uint8_t)(i * 37 + 11);
    const struct transform_pixels pixels = {source, 7 * 4, 0, 0};
    struct transform *transform = transform_create();
    assert_non_null(transform);
    for (uint32_t i = 0; i < 2; i++) {
        struct field_spec field = field_of(i ? FIELD_DTYPE_FLOAT32 : FIELD_DTYPE_UINT8,
                                           i ? FIELD_LAYOUT_NCHW : FIELD_LAYOUT_NHWC, i);
        field.op_count = 2;
        memcpy(field.ops, ops, sizeof ops);
        field.row_bytes = i ? 9 * 8 * 3 * 4 : 9 * 8 * 3;
        const struct law_draws draws = {.seed = 1};
        struct transform_geometry g;
        assert_int_equal(transform_fold(&field, 0, &draws, 7, 4, &g), SPDL_CLASS_OK);
        assert_int_equal(transform_run(transform, &field, &g, &pixels, i ? row : plain), 0);
        for (size_t p = 0; i && p < 9 * 8; p++) {
            for (size_t c = 0; c < 3; c++) {
                float value;
                memcpy(&value, row + 4 * (c * 9 * 8 + p), 4);
                assert_true(value ==
                            (float)((plain[3 * p + c] / 255.0 - field.mean[c]) / field.std[c]));
            }
        }
    }
    assert_int_equal(plain[0], 0);
    assert_int_not_equal(plain[3 * (8 + 1)], 0);
    transform_destroy(transform);
}

/* All ways that this CPU has write the bytes of the portable one and not one more: every width from
 * 1 to 200, the line alone in the middle of its picture. */
static void test_kernels_agree(void **state)
{
    (void)state;
    enum { MOST = 200, ROOM = MOST * HEIGHT * 3 * 4 };
    static uint8_t source[3 * MOST], got[ROOM], want[ROOM];
    static struct emit wide, portable;
    static const uint32_t dtypes[] = {FIELD_DTYPE_UINT8, FIELD_DTYPE_FLOAT32, FIELD_DTYPE_FLOAT16,
                                      FIELD_DTYPE_BFLOAT16};
    for (size_t i = 0; i < sizeof source; i++)
        source[i] = (uint8_t)(i * 2654435761u >> 13);
    portable.kernels = &transform_emit_portable;
    for (unsigned k = 0; (wide.kernels = transform_emit_choice(k)) != NULL; k++) {
        for (uint32_t i = 0; i < 16; i++) {
            struct field_spec field =
                field_of(dtypes[i % 4], FIELD_LAYOUT_NHWC + i / 4 % 2, i % 4 ? i / 8 : 0);
            wide.ready = false;
            transform_emit_prepare(&wide, &field);
            transform_emit_prepare(&portable, &field);
            for (int32_t width = 1; width <= MOST; width++) {
                memset(got, 0xEE, sizeof got);
                memset(want, 0xEE, sizeof want);
                const uint8_t *from =
                    source + (i + (uint32_t)width) % (3 * (MOST - (uint32_t)width) + 1);
                transform_emit_line(&wide, from, width, HEIGHT, (int32_t)i % HEIGHT, got);
                transform_emit_line(&portable, from, width, HEIGHT, (int32_t)i % HEIGHT, want);
                if (memcmp(got, want, sizeof got) != 0)
                    fail_msg("%s: dtype %u layout %u width %d", wide.kernels->name, field.dtype,
                             field.layout, width);
            }
        }
        print_message("%s\n", wide.kernels->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uint8), cmocka_unit_test(test_float32), cmocka_unit_test(test_halves),
        cmocka_unit_test(test_runs_agree), cmocka_unit_test(test_kernels_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
