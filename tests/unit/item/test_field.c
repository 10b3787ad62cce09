/* Fields: the form of a row, defaults, and every refusal with the words that a user needs. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "item/field.h"

static struct field_spec image_field(void)
{
    return (struct field_spec){
        .name = "image",
        .decoder = "image",
        .from = {"jpg", "jpeg"},
        .from_count = 2,
        .op_count = 2,
        .ops = {{.kind = OP_RESIZE, .filter = FIELD_FILTER_BILINEAR, .height = 256},
                {.kind = OP_CENTER_CROP, .height = 224, .width = 200}},
    };
}

static struct field_spec crop_field(void)
{
    struct field_spec field = image_field();
    field.op_count = 1;
    field.ops[0] = (struct op_spec){.kind = OP_RANDOM_RESIZED_CROP,
                                    .filter = FIELD_FILTER_BICUBIC,
                                    .height = 32,
                                    .width = 48,
                                    .scale = {0.08, 1.0},
                                    .ratio = {0.75, 4.0 / 3.0}};
    return field;
}

static struct field_spec plain_field(const char *decoder)
{
    struct field_spec field = {.name = "f", .from = {"bin"}, .from_count = 1};
    memcpy(field.decoder, decoder, strlen(decoder) + 1);
    return field;
}

static void check_row(struct field_spec field, uint32_t dim_count, const uint64_t *dims,
                      uint64_t row_bytes)
{
    struct err err = {0};
    if (field_finish(&field, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(field.dim_count, dim_count);
    for (uint32_t i = 0; i < FIELD_DIMS_MAX; i++)
        assert_int_equal(field.dims[i], i < dim_count ? dims[i] : 0);
    assert_int_equal(field.row_bytes, row_bytes);
    struct field_spec again = field; /* a finished field stays as it is */
    assert_int_equal(field_finish(&again, NULL), 0);
    assert_memory_equal(&again, &field, sizeof field);
}

static void test_form_of_pictures(void **state)
{
    (void)state;
    struct field_spec field = image_field();
    check_row(field, 3, (const uint64_t[]){224, 200, 3}, 224 * 200 * 3);
    field.views = 16;
    check_row(field, 4, (const uint64_t[]){16, 224, 200, 3}, 16 * 224 * 200 * 3);
    field.views = 1;
    check_row(field, 4, (const uint64_t[]){1, 224, 200, 3}, 224 * 200 * 3);
    field.views = 0;
    field.channels = 1;
    field.layout = FIELD_LAYOUT_NCHW;
    check_row(field, 3, (const uint64_t[]){1, 224, 200}, 224 * 200);
    field.channels = 3;
    field.layout = FIELD_LAYOUT_NHWC;
    field.layout = FIELD_LAYOUT_NCHW;
    field.dtype = FIELD_DTYPE_FLOAT32;
    check_row(field, 3, (const uint64_t[]){3, 224, 200}, 224 * 200 * 12);
    field.dtype = FIELD_DTYPE_FLOAT16;
    check_row(field, 3, (const uint64_t[]){3, 224, 200}, 224 * 200 * 6);
    field.dtype = FIELD_DTYPE_BFLOAT16;
    field.normalize = 1;
    for (size_t i = 0; i < 3; i++)
        field.std[i] = 0.25;
    check_row(field, 3, (const uint64_t[]){3, 224, 200}, 224 * 200 * 6);
    check_row(crop_field(), 3, (const uint64_t[]){32, 48, 3}, 32 * 48 * 3);
}

/* The size is that of the last operation which fixes it. */
static void test_last_size_counts(void **state)
{
    (void)state;
    struct field_spec field = image_field();
    field.op_count = 4;
    field.ops[2] = (struct op_spec){.kind = OP_RANDOM_CROP, .height = 16384, .width = 1};
    field.ops[3] = (struct op_spec){.kind = OP_VERTICAL_FLIP, .p = 1};
    check_row(field, 3, (const uint64_t[]){16384, 1, 3}, 16384 * 3);
    field.op_count = 1;
    field.ops[0].width = 10;
    check_row(field, 3, (const uint64_t[]){256, 10, 3}, 256 * 10 * 3);
}

static void test_defaults(void **state)
{
    (void)state;
    struct field_spec field = image_field();
    assert_int_equal(field_finish(&field, NULL), 0);
    assert_int_equal(field.channels, 3);
    assert_int_equal(field.dtype, FIELD_DTYPE_UINT8);
    assert_int_equal(field.layout, FIELD_LAYOUT_NHWC);
    assert_int_equal(field.max_pixels, 128 * 1024 * 1024);
    field = image_field();
    field.max_pixels = 5;
    assert_int_equal(field_finish(&field, NULL), 0);
    assert_int_equal(field.max_pixels, 5);
}

static void test_form_of_classes_and_raw(void **state)
{
    (void)state;
    struct field_spec field = plain_field("class");
    check_row(field, 0, NULL, 8);
    field.dtype = FIELD_DTYPE_INT64;
    check_row(field, 0, NULL, 8);
    field = plain_field("raw");
    field.bytes = 1000;
    check_row(field, 1, (const uint64_t[]){1000}, 1000);
    field.dtype = FIELD_DTYPE_UINT8;
    field.bytes = UINT64_C(1) << 30;
    check_row(field, 1, (const uint64_t[]){UINT64_C(1) << 30}, UINT64_C(1) << 30);
}

/* The sentence names the field and has the words. */
static void check_refused(struct field_spec field, const char *words)
{
    struct err err = {0};
    assert_int_equal(field_finish(&field, &err), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_non_null(strstr(err.text, "field '"));
    if (!strstr(err.text, words))
        fail_msg("\"%s\" has no \"%s\"", err.text, words);
    assert_int_equal(field_finish(&field, NULL), -EINVAL);
}

#define REFUSED(made, words, ...)                                                                  \
    do {                                                                                           \
        struct field_spec f = made;                                                                \
        __VA_ARGS__;                                                                               \
        check_refused(f, words);                                                                   \
    } while (0)

static void test_names_and_lists(void **state)
{
    (void)state;
    REFUSED(image_field(), "a name has 1 to 63", f.name[0] = '\0');
    REFUSED(image_field(), "a name has 1 to 63", f.name[0] = '.');
    REFUSED(image_field(), "a name has 1 to 63", f.name[2] = '/');
    REFUSED(image_field(), "a name has 1 to 63", f.name[2] = '\n');
    REFUSED(image_field(), "a name has 1 to 63", f.name[2] = (char)0xC3);
    REFUSED(image_field(), "a name has 1 to 63", memset(f.name, 'a', sizeof f.name));
    REFUSED(image_field(), "decoder's name", memset(f.decoder, 'a', sizeof f.decoder));
    REFUSED(image_field(), "from is empty", f.from_count = 0);
    REFUSED(image_field(), "from names 17", f.from_count = FIELD_FROM_MAX + 1);
    REFUSED(image_field(), "'j g' in from", f.from[0][1] = ' ');
    REFUSED(image_field(), "'' in from", f.from_count = 3);
    REFUSED(image_field(), "17 operations", f.op_count = FIELD_OPS_MAX + 1);
    REFUSED(plain_field("video"),
            "no decoder 'video' in this version; decode is one of image, class, raw", f.bytes = 1);
    REFUSED(plain_field(""), "no decoder ''", f.bytes = 1);
    struct field_spec field = image_field();
    memcpy(field.name, "aZ09_-.b", 9);
    assert_int_equal(field_finish(&field, NULL), 0);
}

static void test_operations(void **state)
{
    (void)state;
    REFUSED(image_field(), "operation number 0", f.ops[0].kind = 0);
    REFUSED(image_field(), "operation number 7", f.ops[0].kind = OP_KIND_COUNT);
    REFUSED(image_field(), "operation number 4294967295", f.ops[0].kind = UINT32_MAX);
    REFUSED(image_field(), "size of resize is 0 x 0", f.ops[0].height = 0);
    REFUSED(image_field(), "size of resize is 16385 x 0", f.ops[0].height = 16385);
    REFUSED(image_field(), "size of resize is 256 x -1", f.ops[0].width = -1);
    REFUSED(image_field(), "size of resize is 256 x 16385", f.ops[0].width = 16385);
    REFUSED(image_field(), "size of center_crop is 224 x 0", f.ops[1].width = 0);
    REFUSED(image_field(), "filter of resize is number 0", f.ops[0].filter = 0);
    REFUSED(crop_field(), "filter of random_resized_crop is number 3", f.ops[0].filter = 3);
    REFUSED(image_field(), "p of random_flip is 1.5",
            f.ops[0] = (struct op_spec){.kind = OP_RANDOM_FLIP, .p = 1.5});
    REFUSED(image_field(), "p of vertical_flip is -0.5",
            f.ops[0] = (struct op_spec){.kind = OP_VERTICAL_FLIP, .p = -0.5});
    REFUSED(image_field(), "p of random_flip is ",
            f.ops[0] = (struct op_spec){.kind = OP_RANDOM_FLIP, .p = (double)NAN});
    REFUSED(crop_field(), "scale of random_resized_crop", f.ops[0].scale[0] = 0);
    REFUSED(crop_field(), "scale of random_resized_crop", f.ops[0].scale[1] = 1.01);
    REFUSED(crop_field(), "scale of random_resized_crop", f.ops[0].scale[1] = 0.07);
    REFUSED(crop_field(), "scale of random_resized_crop", f.ops[0].scale[0] = (double)NAN);
    REFUSED(crop_field(), "ratio of random_resized_crop", f.ops[0].ratio[0] = 0.0005);
    REFUSED(crop_field(), "ratio of random_resized_crop", f.ops[0].ratio[1] = 1025);
    REFUSED(crop_field(), "ratio of random_resized_crop", f.ops[0].ratio[0] = 2);
    REFUSED(crop_field(), "ratio of random_resized_crop", f.ops[0].ratio[1] = (double)INFINITY);
}

static void test_size_must_be_fixed(void **state)
{
    (void)state;
    REFUSED(image_field(), "differ in size", f.op_count = 0);
    REFUSED(image_field(), "differ in size", f.op_count = 1);
    REFUSED(image_field(), "differ in size", f.op_count = 3; f.ops[2] = f.ops[0]);
}

static void test_form_of_pictures_refused(void **state)
{
    (void)state;
    REFUSED(image_field(), "4 channels (rgba)", f.channels = 4);
    REFUSED(image_field(), "2 channels are", f.channels = 2);
    REFUSED(image_field(), "layout is number 3", f.layout = 3);
    REFUSED(image_field(), "cannot give dtype int64", f.dtype = FIELD_DTYPE_INT64);
    REFUSED(image_field(), "cannot give dtype unknown", f.dtype = 6);
    REFUSED(image_field(), "bytes goes with decode: raw", f.bytes = 1);
    REFUSED(image_field(), "views is 17 and may be at most 16", f.views = 17);
    REFUSED(plain_field("class"), "views goes with decode: image", f.views = 1);
    REFUSED(image_field(), "normalize needs a dtype with fractions", f.normalize = 1);
    REFUSED(image_field(), "std 0 for channel 0", f.normalize = 1; f.dtype = FIELD_DTYPE_FLOAT32);
    REFUSED(image_field(), "mean inf", f.normalize = 1; f.dtype = FIELD_DTYPE_FLOAT32; f.std[0] = 1;
            f.mean[0] = (double)INFINITY);
    REFUSED(image_field(), "for channel 0", f.normalize = 1; f.dtype = FIELD_DTYPE_FLOAT32;
            f.std[0] = (double)NAN);
    REFUSED(image_field(), "for channel 1", f.normalize = 1; f.dtype = FIELD_DTYPE_FLOAT32;
            f.std[0] = 1; f.std[1] = 1e7);
    REFUSED(image_field(), "for channel 0", f.normalize = 1; f.dtype = FIELD_DTYPE_FLOAT32;
            f.std[0] = 1; f.mean[0] = -1e7);
}

static void test_rows_have_a_limit(void **state)
{
    (void)state;
    REFUSED(image_field(), "limit of 1073741824", f.dtype = FIELD_DTYPE_FLOAT32;
            f.ops[1].height = 16384; f.ops[1].width = 16384);
    REFUSED(plain_field("raw"), "limit of 1073741824", f.bytes = (UINT64_C(1) << 30) + 1);
    REFUSED(plain_field("raw"), "limit of 1073741824", f.bytes = UINT64_MAX);
    struct field_spec field = image_field();
    field.ops[1].height = field.ops[1].width = 16384; /* 768 MiB of uint8 */
    assert_int_equal(field_finish(&field, NULL), 0);
    assert_int_equal(field.row_bytes, 3 << 28);
}

static void test_others_refuse_what_is_for_pictures(void **state)
{
    (void)state;
    REFUSED(plain_field("class"), "ops goes with decode: image", f.op_count = 1);
    REFUSED(plain_field("class"), "normalize goes with decode: image", f.normalize = 1);
    REFUSED(plain_field("class"), "layout goes with decode: image", f.layout = FIELD_LAYOUT_NHWC);
    REFUSED(plain_field("raw"), "channels goes with decode: image", f.channels = 3);
    REFUSED(plain_field("class"), "bytes goes with decode: raw", f.bytes = 3);
    REFUSED(plain_field("class"), "gives int64, and the dtype asked for is float32",
            f.dtype = FIELD_DTYPE_FLOAT32);
    REFUSED(plain_field("class"), "an unknown one", f.dtype = 77);
    REFUSED(plain_field("raw"), "gives uint8, and the dtype asked for is int64", f.bytes = 8;
            f.dtype = FIELD_DTYPE_INT64);
    REFUSED(plain_field("text"), "bytes goes with decode: raw", f.bytes = 3);
    REFUSED(plain_field("json"), "ops goes with decode: image", f.op_count = 1);
    REFUSED(plain_field("int"), "max_bytes goes with decode: raw, text or json", f.max_bytes = 1);
    REFUSED(plain_field("float"), "pad goes with decode: raw, text or json", f.pad = FIELD_PAD_NO);
    REFUSED(image_field(), "max_bytes goes with decode: raw, text or json", f.max_bytes = 1);
    REFUSED(plain_field("float"), "gives float32, and the dtype asked for is float16",
            f.dtype = FIELD_DTYPE_FLOAT16);
    REFUSED(plain_field("text"), "gives uint8, and the dtype asked for is int64",
            f.dtype = FIELD_DTYPE_INT64);
}

static void test_bytes_of_any_length(void **state)
{
    (void)state;
    static const char *const decoders[] = {"raw", "text", "json"};
    for (size_t i = 0; i < 3; i++) {
        struct field_spec field = plain_field(decoders[i]);
        check_row(field, 0, NULL, 0); /* its room is not known yet */
        assert_int_equal(field_finish(&field, NULL), 0);
        assert_int_equal(field.ragged, 1);
        assert_int_equal(field.pad, FIELD_PAD_NO);
        field_set_largest(&field, 1234);
        assert_int_equal(field.row_bytes, 1234);
        check_row(field, 0, NULL, 1234);
        field_set_largest(&field, UINT64_C(1) << 40); /* larger parts are of class LIMIT */
        assert_int_equal(field.row_bytes, FIELD_MAX_BYTES_LIMIT);

        field = plain_field(decoders[i]);
        field.max_bytes = 500;
        field.pad = FIELD_PAD_NO;
        check_row(field, 0, NULL, 500);
        assert_int_equal(field_finish(&field, NULL), 0);
        field_set_largest(&field, 300); /* no row can have more */
        assert_int_equal(field.row_bytes, 300);
        field_set_largest(&field, 501);
        assert_int_equal(field.row_bytes, 500);
        field.pad = FIELD_PAD_YES;
        check_row(field, 1, (const uint64_t[]){500}, 500);
        field_set_largest(&field, 300); /* rows of one size stay as they are */
        assert_int_equal(field_finish(&field, NULL), 0);
        assert_int_equal(field.row_bytes, 500);
    }
    /* What max_bytes means when nothing more is said. */
    struct field_spec text = plain_field("text"), raw = plain_field("raw");
    text.max_bytes = raw.max_bytes = 512;
    check_row(text, 1, (const uint64_t[]){512}, 512);
    check_row(raw, 0, NULL, 512);
    check_row(plain_field("int"), 0, NULL, 8);
    check_row(plain_field("float"), 0, NULL, 4);
}

static void test_bytes_of_any_length_refused(void **state)
{
    (void)state;
    REFUSED(plain_field("text"), "max_bytes is 67108865 and may be at most 67108864",
            f.max_bytes = FIELD_MAX_BYTES_LIMIT + 1);
    REFUSED(plain_field("text"), "pad needs max_bytes", f.pad = FIELD_PAD_YES);
    REFUSED(plain_field("raw"), "pad is number 3", f.pad = 3);
    REFUSED(plain_field("raw"), "bytes gives every row its size, so max_bytes has no effect",
            f.bytes = 4;
            f.max_bytes = 4);
    REFUSED(plain_field("raw"), "bytes gives every row its size, so pad has no effect", f.bytes = 4;
            f.pad = FIELD_PAD_YES);
    /* ".offsets" and the final 0 must fit behind the name. */
    REFUSED(plain_field("raw"), "its name may have at most 55 letters", memset(f.name, 'n', 56);
            f.name[56] = 0);
    struct field_spec field = plain_field("raw");
    memset(field.name, 'n', 55);
    field.name[55] = 0;
    assert_int_equal(field_finish(&field, NULL), 0);
}

static void check_text(struct field_spec field, const char *expected)
{
    char text[1024];
    assert_int_equal(field_finish(&field, NULL), 0);
    field_set_largest(&field, 77); /* where the bytes lie is no part of the text */
    assert_int_equal(field_canonical(&field, text, sizeof text), strlen(expected));
    assert_string_equal(text, expected);
}

static void test_canonical_text_of_bytes(void **state)
{
    (void)state;
    struct field_spec field = plain_field("text");
    check_text(field, "field f\ndecode text\nfrom bin\ndtype uint8\ndims ragged\nend\n");
    field.max_bytes = 512;
    check_text(field, "field f\ndecode text\nfrom bin\ndtype uint8\ndims 512\nend\n");
    field.pad = FIELD_PAD_NO;
    check_text(field, "field f\ndecode text\nfrom bin\ndtype uint8\ndims ragged\nmax_bytes 512\n"
                      "end\n");
    check_text(plain_field("float"), "field f\ndecode float\nfrom bin\ndtype float32\ndims\nend\n");
}

static void test_canonical_text(void **state)
{
    (void)state;
    struct field_spec field = crop_field();
    field.dtype = FIELD_DTYPE_FLOAT32;
    field.normalize = 1;
    field.mean[1] = -0.0;
    for (size_t i = 0; i < 3; i++)
        field.std[i] = 0.5;
    assert_int_equal(field_finish(&field, NULL), 0);
    static const char expected[] =
        "field image\ndecode image\nfrom jpg jpeg\ndtype float32\ndims 32 48 3\nlayout nhwc\n"
        "channels 3\norientation applied\nmax_pixels 134217728\n"
        "mean 0000000000000000 0000000000000000 0000000000000000\n"
        "std 3fe0000000000000 3fe0000000000000 3fe0000000000000\n"
        "op random_resized_crop 32 48 bicubic 3fb47ae147ae147b 3ff0000000000000 3fe8000000000000 "
        "3ff5555555555555\nend\n";
    char text[1024];
    assert_int_equal(field_canonical(&field, text, sizeof text), sizeof expected - 1);
    assert_string_equal(text, expected);
    /* Too little room, down to none, is said and never overrun. */
    for (size_t capacity = 0; capacity <= sizeof expected; capacity++) {
        char *exact = malloc(capacity > 0 ? capacity : 1);
        assert_non_null(exact);
        int rc = field_canonical(&field, exact, capacity);
        assert_int_equal(rc, capacity < sizeof expected ? -ENOSPC : (int)sizeof expected - 1);
        free(exact);
    }
}

static void test_names_of_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *(*name_of)(uint32_t);
        const char *names[8]; /* of the numbers from 0; NULL outside */
    } rows[] = {
        {field_dtype_name, {NULL, "uint8", "int64", "float32", "float16", "bfloat16"}},
        {field_layout_name, {NULL, "nhwc", "nchw"}},
        {field_filter_name, {NULL, "bilinear", "bicubic"}},
        {op_name,
         {NULL, "resize", "center_crop", "random_resized_crop", "random_crop", "random_flip",
          "vertical_flip"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (uint32_t number = 0; number < 8; number++) {
            const char *name = rows[i].name_of(number);
            if (rows[i].names[number])
                assert_string_equal(name, rows[i].names[number]);
            else
                assert_null(name);
        }
    }
    static const size_t bytes[] = {0, 1, 8, 4, 2, 2, 0};
    for (uint32_t dtype = 0; dtype < sizeof bytes / sizeof bytes[0]; dtype++)
        assert_int_equal(field_dtype_bytes(dtype), bytes[dtype]);
}

/* What is wrong with a sample, in whole words however little room there is. */
static void test_missing_text(void **state)
{
    (void)state;
    struct field_spec field = {.name = "image", .from = {"jpg", "jpeg", "png"}, .from_count = 3};
    char text[512];
    field_missing_text(&field, text, sizeof text);
    assert_string_equal(text, "no part for the field image, which is made from jpg or jpeg or png");
    field.from_count = FIELD_FROM_MAX;
    for (uint32_t n = 0; n < FIELD_FROM_MAX; n++)
        memcpy(field.from[n], "abcdefgh", 9);
    for (size_t room = 96; room < sizeof text; room++) {
        char *exact = malloc(room);
        assert_non_null(exact);
        field_missing_text(&field, exact, room);
        size_t bytes = strlen(exact);
        assert_true(bytes < room);
        assert_true(strcmp(exact + bytes - 4, " ...") == 0 ||
                    strcmp(exact + bytes - 9, " abcdefgh") == 0);
        free(exact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form_of_pictures),
        cmocka_unit_test(test_last_size_counts),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_form_of_classes_and_raw),
        cmocka_unit_test(test_names_and_lists),
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_size_must_be_fixed),
        cmocka_unit_test(test_form_of_pictures_refused),
        cmocka_unit_test(test_rows_have_a_limit),
        cmocka_unit_test(test_others_refuse_what_is_for_pictures),
        cmocka_unit_test(test_bytes_of_any_length),
        cmocka_unit_test(test_bytes_of_any_length_refused),
        cmocka_unit_test(test_canonical_text),
        cmocka_unit_test(test_canonical_text_of_bytes),
        cmocka_unit_test(test_names_of_numbers),
        cmocka_unit_test(test_missing_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
