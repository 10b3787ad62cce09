/* What operations come to: torchvision's sizes and offsets, crops in flipped pictures, the box that
 * is reported and decoded, refusals; and that a decoder needs no more than the box. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "transform/transform.h"

static struct field_spec field_of(uint32_t count, const struct op_spec *ops)
{
    struct field_spec field = {.name = "image",
                               .dtype = FIELD_DTYPE_UINT8,
                               .layout = FIELD_LAYOUT_NHWC,
                               .channels = 3,
                               .op_count = count};
    memcpy(field.ops, ops, count * sizeof *ops);
    return field;
}

static struct transform_geometry fold(const struct field_spec *field, int32_t width, int32_t height)
{
    struct transform_geometry g;
    const struct law_draws draws = {.seed = 5, .position = 11};
    assert_int_equal(transform_fold(field, 1, &draws, width, height, &g), SPDL_CLASS_OK);
    return g;
}

static void expect_box(const struct law_box *box, int32_t x, int32_t y, int32_t width,
                       int32_t height)
{
    assert_int_equal(box->x, x);
    assert_int_equal(box->y, y);
    assert_int_equal(box->width, width);
    assert_int_equal(box->height, height);
}

static void test_eval_recipe(void **state)
{
    (void)state;
    const struct op_spec ops[] = {
        {.kind = OP_RESIZE, .filter = FIELD_FILTER_BILINEAR, .height = 256},
        {.kind = OP_CENTER_CROP, .height = 224, .width = 224}};
    struct field_spec field = field_of(2, ops);
    struct transform_geometry g = fold(&field, 500, 375);
    assert_int_equal(g.width, 341); /* int(256 * 500 / 375) */
    assert_int_equal(g.height, 256);
    expect_box(&g.window, 58, 16, 224, 224); /* round(58.5) and 16 */
    assert_false(g.has_draws);
    /* Only what the 224 columns and rows are mixed from, a little more than the middle 328 by 328.
     */
    assert_true(g.box.width >= 328 && g.box.width <= 333);
    assert_true(g.box.height >= 328 && g.box.height <= 332);
    expect_box(&g.frame, 0, 0, 500, 375);
    g = fold(&field, 375, 500);
    assert_int_equal(g.width, 256);
    assert_int_equal(g.height, 341);
    g = fold(&field, 1, 65535);
    assert_int_equal(g.height, 256 * 65535);
    assert_int_equal(g.box.width, 1);
}

static void test_train_recipe(void **state)
{
    (void)state;
    const struct op_spec ops[] = {{.kind = OP_RANDOM_RESIZED_CROP,
                                   .filter = FIELD_FILTER_BILINEAR,
                                   .height = 224,
                                   .width = 224,
                                   .scale = {0.08, 1},
                                   .ratio = {0.75, 4.0 / 3}},
                                  {.kind = OP_RANDOM_FLIP, .p = 1}};
    struct field_spec field = field_of(2, ops);
    for (uint64_t p = 0; p < 200; p++) {
        struct transform_geometry g;
        struct law_draws draws = {.seed = 5, .position = p, .epoch = 2};
        assert_int_equal(transform_fold(&field, 4, &draws, 500, 375, &g), SPDL_CLASS_OK);
        draws.field = 4;
        struct law_box box = law_random_resized_crop(&draws, 500, 375, ops[0].scale, ops[0].ratio);
        expect_box(&g.box, box.x, box.y, box.width, box.height);
        expect_box(&g.frame, box.x, box.y, box.width, box.height);
        assert_true(g.hflip && !g.vflip && g.has_draws);
    }
}

static void test_crop_of_flipped(void **state)
{
    (void)state;
    const struct op_spec ops[] = {{.kind = OP_RANDOM_FLIP, .p = 1},
                                  {.kind = OP_VERTICAL_FLIP, .p = 1},
                                  {.kind = OP_RANDOM_CROP, .height = 10, .width = 20}};
    struct field_spec field = field_of(3, ops);
    struct transform_geometry g = fold(&field, 100, 80);
    const struct law_draws draws = {.seed = 5, .position = 11, .field = 1, .operation = 2};
    struct law_box box;
    assert_true(law_random_crop(&draws, 100, 80, 20, 10, &box));
    expect_box(&g.box, 80 - box.x, 70 - box.y, 20, 10);
    assert_true(g.hflip && g.vflip);
}

static void test_padding(void **state)
{
    (void)state;
    const struct op_spec ops[] = {{.kind = OP_CENTER_CROP, .height = 9, .width = 10}};
    struct field_spec field = field_of(1, ops);
    struct transform_geometry g =
        fold(&field, 5, 4); /* 5 more columns and 5 more rows: 2 before, 3 after */
    expect_box(&g.frame, -2, -2, 10, 9);
    expect_box(&g.box, 0, 0, 5, 4);
    g = fold(&field, 13, 12); /* round(1.5) is 2 */
    expect_box(&g.box, 2, 2, 10, 9);
    g = fold(&field, 15, 14); /* round(2.5) is 2 */
    expect_box(&g.box, 2, 2, 10, 9);
}

/* A crop into nothing but padding still names a pixel to decode, and shows none. */
static void test_nothing_to_show(void **state)
{
    (void)state;
    const struct op_spec ops[] = {
        {.kind = OP_CENTER_CROP, .height = 400, .width = 400},
        {.kind = OP_RANDOM_CROP, .height = 3, .width = 3},
        {.kind = OP_RESIZE, .filter = FIELD_FILTER_BILINEAR, .height = 6, .width = 6}};
    struct field_spec field = field_of(3, ops);
    field.row_bytes = 6 * 6 * 3;
    struct transform_geometry g = fold(&field, 2, 2);
    assert_int_equal(g.live.width, 0);
    expect_box(&g.box, 0, 0, 1, 1);
    uint8_t source[128], row[6 * 6 * 3];
    memset(source, 255, sizeof source);
    memset(row, 255, sizeof row);
    struct transform *transform = transform_create();
    assert_non_null(transform);
    const struct transform_pixels pixels = {source, 4, 0, 0};
    assert_int_equal(transform_run(transform, &field, &g, &pixels, row), 0);
    for (size_t i = 0; i < sizeof row; i++)
        assert_int_equal(row[i], 0);
    field.row_bytes++;
    assert_int_equal(transform_run(transform, &field, &g, &pixels, row), -22);
    transform_destroy(transform);
}

static void test_classes(void **state)
{
    (void)state;
    const struct op_spec crop = {.kind = OP_RANDOM_CROP, .height = 32, .width = 32};
    struct field_spec field = field_of(1, &crop);
    struct transform_geometry g;
    const struct law_draws draws = {.seed = 1};
    assert_int_equal(transform_fold(&field, 0, &draws, 31, 32, &g), SPDL_CLASS_OUT_OF_RANGE);
    assert_int_equal(transform_fold(&field, 0, &draws, 32, 31, &g), SPDL_CLASS_OUT_OF_RANGE);
    assert_int_equal(transform_fold(&field, 0, &draws, 32, 32, &g), SPDL_CLASS_OK);
    assert_int_equal(transform_fold(&field, 0, &draws, 65536, 32, &g), SPDL_CLASS_LIMIT);
    assert_int_equal(transform_fold(&field, 0, &draws, 0, 32, &g), SPDL_CLASS_LIMIT);
}

static void refused(struct op_spec op, const char *words)
{
    struct err err = {0};
    const struct op_spec ops[2] = {
        {.kind = OP_RESIZE, .filter = FIELD_FILTER_BICUBIC, .height = 8, .width = 8}, op};
    struct field_spec field = field_of(2, ops);
    if (op.kind != OP_RESIZE)
        field = field_of(1, &op);
    assert_int_equal(transform_check(&field, &err), -22);
    assert_non_null(strstr(err.text, words));
    assert_non_null(strstr(err.text, "image"));
}

static void test_check(void **state)
{
    (void)state;
    const struct op_spec good[] = {{.kind = OP_RANDOM_RESIZED_CROP,
                                    .filter = FIELD_FILTER_BICUBIC,
                                    .height = 224,
                                    .width = 224,
                                    .scale = {0.9, 1},
                                    .ratio = {0.75, 0.75}},
                                   {.kind = OP_RANDOM_FLIP, .p = 0.5}};
    struct err err = {0};
    struct field_spec field = field_of(2, good);
    assert_int_equal(transform_check(&field, &err), 0);
    refused((struct op_spec){.kind = OP_RESIZE, .filter = 1, .height = 4, .width = 4},
            "second resize");
    refused((struct op_spec){.kind = 99}, "unknown");
    refused((struct op_spec){.kind = OP_RANDOM_FLIP, .p = 1.5}, "p must");
    refused((struct op_spec){.kind = OP_CENTER_CROP, .height = 0, .width = 5}, "size");
    refused((struct op_spec){.kind = OP_RANDOM_RESIZED_CROP, .height = 5, .width = 5, .filter = 3},
            "filter");
    struct op_spec bad = good[0];
    bad.scale[0] = 2;
    refused(bad, "scale");
    bad = good[0];
    bad.ratio[0] = 0;
    refused(bad, "ratio");
    field.channels = 1;
    assert_int_equal(transform_check(&field, &err), 0);
    field.channels = 4;
    assert_int_equal(transform_check(&field, &err), -22);
    assert_non_null(strstr(err.text, "channels"));
    field.channels = 3;
    field.dtype = FIELD_DTYPE_INT64;
    assert_int_equal(transform_check(&field, &err), -22);
    field.dtype = FIELD_DTYPE_UINT8;
    field.normalize = 1;
    assert_int_equal(transform_check(&field, &err), -22);
    assert_non_null(strstr(err.text, "normalize"));
    field.dtype = FIELD_DTYPE_FLOAT32;
    assert_int_equal(transform_check(&field, &err), -22); /* std is 0 */
    field.std[0] = field.std[1] = field.std[2] = 1;
    assert_int_equal(transform_check(&field, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_eval_recipe),
                                       cmocka_unit_test(test_train_recipe),
                                       cmocka_unit_test(test_crop_of_flipped),
                                       cmocka_unit_test(test_padding),
                                       cmocka_unit_test(test_nothing_to_show),
                                       cmocka_unit_test(test_classes),
                                       cmocka_unit_test(test_check)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
