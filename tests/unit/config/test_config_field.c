/* Fields and their operations, each right and wrong. */
#include "tests/unit/config/config_case.h"

/* A dataset whose lines stand two levels deep, so that a complaint's line is the text's plus 2. */
#define DATASET "datasets:\n  d:\n    source: {folder: /f}\n"

static const struct config_dataset *only(const struct config *config)
{
    assert_int_equal(config->dataset_count, 1);
    return &config->datasets[0];
}

/* One image field with the given operations (the text of a YAML list). */
static struct config *with_ops(const char *ops)
{
    char text[1024];
    snprintf(text, sizeof text, DATASET "    fields: {x: {from: jpg, decode: image, ops: %s}}",
             ops);
    return case_good(text, NULL);
}

static void bad_ops(const char *ops, const char *const *expected)
{
    char text[1024];
    snprintf(text, sizeof text,
             DATASET "    fields:\n      x:\n        from: jpg\n"
                     "        decode: image\n        ops: %s",
             ops);
    case_bad(text, NULL, expected);
}

static void test_ops(void **state)
{
    (void)state;
    struct config *config = with_ops(
        "[{resize: 256}, {resize: {size: [30, 40], filter: bicubic}}, {resize: [5, 6]}, "
        "{random_crop: {size: [7, 8]}}, random_flip, {random_flip: }, {random_flip: 0.25}, "
        "{vertical_flip: {p: 1}}, {vertical_flip: {}}, {random_resized_crop: {size: 9, "
        "scale: [0.9, 1.0], ratio: [0.5, 2], filter: bicubic}}, {random_resized_crop: "
        "[10, 11]}, {center_crop: 12}, {center_crop: [13, 14]}]");
    static const struct op_spec expected[] = {
        {.kind = OP_RESIZE, .filter = FIELD_FILTER_BILINEAR, .height = 256},
        {.kind = OP_RESIZE, .filter = FIELD_FILTER_BICUBIC, .height = 30, .width = 40},
        {.kind = OP_RESIZE, .filter = FIELD_FILTER_BILINEAR, .height = 5, .width = 6},
        {.kind = OP_RANDOM_CROP, .height = 7, .width = 8},
        {.kind = OP_RANDOM_FLIP, .p = 0.5},
        {.kind = OP_RANDOM_FLIP, .p = 0.5},
        {.kind = OP_RANDOM_FLIP, .p = 0.25},
        {.kind = OP_VERTICAL_FLIP, .p = 1},
        {.kind = OP_VERTICAL_FLIP, .p = 0.5},
        {.kind = OP_RANDOM_RESIZED_CROP,
         .filter = FIELD_FILTER_BICUBIC,
         .height = 9,
         .width = 9,
         .scale = {0.9, 1.0},
         .ratio = {0.5, 2}},
        {.kind = OP_RANDOM_RESIZED_CROP,
         .filter = FIELD_FILTER_BILINEAR,
         .height = 10,
         .width = 11,
         .scale = {0.08, 1.0},
         .ratio = {0.75, 4.0 / 3.0}},
        {.kind = OP_CENTER_CROP, .height = 12, .width = 12},
        {.kind = OP_CENTER_CROP, .height = 13, .width = 14},
    };
    const struct field_spec *field = &only(config)->fields[0];
    assert_int_equal(field->op_count, sizeof expected / sizeof expected[0]);
    for (uint32_t i = 0; i < field->op_count; i++)
        assert_memory_equal(&field->ops[i], &expected[i], sizeof expected[i]);
    assert_int_equal(field->dims[0], 13);
    assert_int_equal(field->dims[1], 14);
    config_destroy(config);
}

static void test_wrong_ops(void **state)
{
    (void)state;
    bad_ops("[color_jitter, {randaugment: {n: 2}}, {mixup: 1}]",
            SETS("c.yaml:8:15: operation color_jitter is not supported in this version",
                 "c.yaml:8:30: operation randaugment is not supported in this version",
                 "c.yaml:8:53: operation mixup is not supported in this version"));
    bad_ops("[centre_crop, {xyz: 3}, 7]",
            SETS("c.yaml:8:15: unknown operation 'centre_crop'; did you mean 'center_crop'?",
                 "c.yaml:8:29: unknown operation 'xyz'", "c.yaml:8:38: unknown operation '7'"));
    bad_ops("[resize, {resize: }, {resize: {filter: bilinear}}]",
            SETS("c.yaml:8:15: resize needs a size", "c.yaml:8:24: resize needs a size",
                 "c.yaml:8:44: resize needs a size"));
    bad_ops("[{resize: 0}, {resize: 16385}, {resize: [1]}, {resize: {size: [1, 2, 3]}}, "
            "{resize: {size: {}}}]",
            SETS("c.yaml:8:24: size: '0' is outside 1 to 16384",
                 "c.yaml:8:37: size: '16385' is outside 1 to 16384",
                 "c.yaml:8:54: size is a number or [height, width]",
                 "c.yaml:8:76: size is a number or [height, width]",
                 "c.yaml:8:105: size is a number or [height, width]"));
    bad_ops("[{resize: {size: 1, fliter: bicubic}}, {resize: {size: 1, filter: bicubci}}, "
            "{resize: {size: 1, size: 2}}]",
            SETS("c.yaml:8:34: unknown key 'fliter' in resize; did you mean 'filter'?",
                 "c.yaml:8:80: filter is one of bilinear bicubic, not 'bicubci'; did you mean "
                 "'bicubic'?",
                 "c.yaml:8:110: size is given twice in resize"));
    bad_ops("[{random_flip: 1.5}, {random_flip: {p: -0.1}}, {random_flip: {p: nan}}]",
            SETS("c.yaml:8:29: p: '1.5' is outside 0 to 1",
                 "c.yaml:8:53: p: '-0.1' is outside 0 to 1",
                 "c.yaml:8:79: p is a number, not 'nan'"));
    bad_ops("[{random_resized_crop: {size: 1, scale: [1, 0.5]}}, {random_resized_crop: {size: 1, "
            "ratio: [0, 1]}}, {random_resized_crop: {size: 1, scale: 3}}, "
            "{random_resized_crop: {size: 1, scale: [1]}}]",
            SETS("c.yaml:8:54: scale is two numbers above 0, the smaller first",
                 "c.yaml:8:105: ratio is two numbers above 0, the smaller first",
                 "c.yaml:8:154: scale is a list of 2 numbers, not '3'",
                 "c.yaml:8:198: scale is a list of 2 numbers, not of 1"));
    bad_ops("[{random_flip: 1, center_crop: 3}, [a], ~]",
            SETS("c.yaml:8:15: an operation is NAME, {NAME: VALUE} or {NAME: {PARAMETER: VALUE}}",
                 "c.yaml:8:49: an operation is NAME, {NAME: VALUE} or {NAME: {PARAMETER: VALUE}}",
                 "c.yaml:8:54: an operation is NAME, {NAME: VALUE} or {NAME: {PARAMETER: VALUE}}"));
    bad_ops("center_crop", SETS("c.yaml:8:14: ops is a list of operations"));
    bad_ops("[random_flip]",
            SETS("c.yaml:5:7: field 'x': its rows would differ in size from picture to picture; "
                 "end its ops with resize: [h, w], center_crop, random_crop or "
                 "random_resized_crop"));
    bad_ops("[a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a]",
            SETS("c.yaml:8:14: ops has 17 operations, above 16"));
}

static void test_fields(void **state)
{
    (void)state;
    struct config *config =
        case_good(DATASET "    fields:\n"
                          "      image:\n"
                          "        from: [jpg, seg.png]\n"
                          "        decode: image\n"
                          "        ops: [{center_crop: 16}]\n"
                          "        normalize: {mean: [0.5, 0, -1], std: [1, 2, 1e-3]}\n"
                          "        dtype: bfloat16\n"
                          "        layout: nchw\n"
                          "        orientation: ignore\n"
                          "      label: {from: cls, decode: class, dtype: int64}\n"
                          "      same: {from: cls, decode: class}\n",
                  SETS("limits.pixels=4096"));
    const struct config_dataset *dataset = only(config);
    const struct field_spec *image = &dataset->fields[0];
    assert_int_equal(dataset->field_count, 3);
    assert_int_equal(image->from_count, 2);
    assert_string_equal(image->from[1], "seg.png");
    assert_int_equal(image->dtype, FIELD_DTYPE_BFLOAT16);
    assert_int_equal(image->layout, FIELD_LAYOUT_NCHW);
    assert_int_equal(image->ignore_orientation, 1);
    assert_true(image->mean[2] == -1.0 && image->std[1] == 2.0 && image->std[2] == 1e-3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(dataset->fields[i].max_pixels, 4096);
    assert_int_equal(dataset->fields[1].layout, 0);
    config_destroy(config);
}

static void test_bytes(void **state)
{
    (void)state;
    struct config *config =
        case_good(DATASET "    fields:\n"
                          "      raw: {from: bin, decode: raw}\n"
                          "      most: {from: bin, decode: raw, max_bytes: 64MiB}\n"
                          "      sized: {from: bin, decode: raw, bytes: 8}\n"
                          "      text: {from: txt, decode: text, max_bytes: 512}\n"
                          "      free: {from: txt, decode: text, max_bytes: 512, pad: false, "
                          "missing: empty}\n"
                          "      json: {from: json, decode: json, max_bytes: 1KiB, pad: true}\n"
                          "      number: {from: n, decode: int}\n"
                          "      part: {from: n, decode: float, dtype: float32}\n",
                  NULL);
    static const struct {
        uint64_t ragged, row_bytes, max_bytes, dim, dtype;
    } rows[] = {{1, 0, 0, 0, FIELD_DTYPE_UINT8},     {1, 64 << 20, 64 << 20, 0, FIELD_DTYPE_UINT8},
                {0, 8, 0, 8, FIELD_DTYPE_UINT8},     {0, 512, 512, 512, FIELD_DTYPE_UINT8},
                {1, 512, 512, 0, FIELD_DTYPE_UINT8}, {0, 1024, 1024, 1024, FIELD_DTYPE_UINT8},
                {0, 8, 0, 0, FIELD_DTYPE_INT64},     {0, 4, 0, 0, FIELD_DTYPE_FLOAT32}};
    for (uint32_t i = 0; i < 8; i++) {
        const struct field_spec *field = &only(config)->fields[i];
        assert_int_equal(field->ragged, rows[i].ragged);
        assert_int_equal(field->row_bytes, rows[i].row_bytes);
        assert_int_equal(field->max_bytes, rows[i].max_bytes);
        assert_int_equal(field->dims[0], rows[i].dim);
        assert_int_equal(field->dtype, rows[i].dtype);
        assert_int_equal(field->missing_empty, i == 4);
    }
    char *text = config_print(config, 0);
    assert_non_null(text);
    assert_non_null(strstr(text, "decode: text\n        dtype: uint8\n        max_bytes: 512\n"
                                 "        pad: true\n"));
    assert_non_null(strstr(text, "max_bytes: 512\n        pad: false\n        missing: empty\n"));
    free(text);
    config_destroy(config);
    BAD(DATASET
        "    fields: {x: {from: a, decode: text, bytes: 3, pad: maybe}, y: {from: a, decode: "
        "json, max_bytes: 65MiB}, z: {from: a, decode: class, max_bytes: 3, pad: true}, w: {from: "
        "a, decode: json, missing: none}, v: {from: a, decode: int, missing: empty}}",
        "c.yaml:4:41: bytes does not go with decode: text",
        "c.yaml:4:56: pad is one of true false, not 'maybe'",
        "c.yaml:4:102: max_bytes: '65MiB' is outside 1 to 64MiB",
        "c.yaml:4:138: max_bytes does not go with decode: class",
        "c.yaml:4:152: pad does not go with decode: class",
        "c.yaml:4:200: missing is one of drop empty, not 'none'",
        "c.yaml:4:233: missing does not go with decode: int");
    BAD(DATASET "    fields: {x: {from: a, decode: text, pad: true}}",
        "c.yaml:4:14: field 'x': pad needs max_bytes: the size that rows are filled up to");
    BAD(DATASET "    fields: {x: {from: a, decode: raw, bytes: 3, max_bytes: 3}}",
        "c.yaml:4:14: field 'x': bytes gives every row its size, so max_bytes has no effect; leave "
        "one of them out");
}

static void test_wrong_fields(void **state)
{
    (void)state;
    BAD(DATASET "    fields: 3", "c.yaml:4:13: fields is a mapping of names to fields, not '3'");
    BAD(DATASET "    fields: {x: }",
        "c.yaml:4:14: field x needs `from`: the name of a part, or a list",
        "c.yaml:4:14: field x needs `decode`: image, class, raw, text, json, int or float");
    BAD(DATASET "    fields: {x.y: {}}",
        "c.yaml:4:14: the name of a field is of letters, digits, - _, not 'x.y'");
    BAD(DATASET "    fields: {x: {from: a, decode: video}}",
        "c.yaml:4:35: decode: video is not supported in this version");
    BAD(DATASET "    fields: {x: {from: a, decode: jpeg}}",
        "c.yaml:4:35: decode is one of image class raw text json int float, not 'jpeg'");
    BAD(DATASET "    fields: {x: {from: [a, a], decode: class}, y: {from: [], decode: class}, z: "
                "{from: JPG, decode: class}, w: {from: .cls, decode: class}, v: {from: "
                "abcdefghijklmnop, decode: class}, u: {from: a/b, decode: class}}",
        "c.yaml:4:28: part 'a' is given twice",
        "c.yaml:4:58: from is a part or a list of 1 to 16 parts",
        "c.yaml:4:88: names of parts are lower case: 'JPG'",
        "c.yaml:4:119: the name of a part has no dot in front: 'cls'",
        "c.yaml:4:151: from is longer than 15 bytes",
        "c.yaml:4:195: the name of a part has no /: 'a/b'");
    BAD(DATASET "    fields: {x: {from: a, decode: class, ops: [], layout: nchw, bytes: 3}}",
        "c.yaml:4:42: ops does not go with decode: class",
        "c.yaml:4:51: layout does not go with decode: class",
        "c.yaml:4:65: bytes does not go with decode: class");
    BAD(DATASET "    fields: {x: {from: a, decode: class, dtype: uint8}}",
        "c.yaml:4:14: field 'x': decode: class gives int64, and the dtype asked for is uint8");
    BAD(DATASET "    fields: {x: {from: a, decode: class}, x: {from: b, decode: class}}",
        "c.yaml:4:43: field x is given twice");
    BAD(DATASET "    preset: imagenet-eval\n"
                "    fields: {label: {from: a, decode: class}, label: {from: b, decode: class}}",
        "c.yaml:5:47: field label is given twice");
    BAD(DATASET "    fields: {x: {from: a, decode: image, ops: [{resize: [1,1]}], dtype: float32, "
                "normalize: {mean: [0, 0], std: [1, 1, 1]}}, y: {from: a, decode: image, ops: "
                "[{resize: [1,1]}], dtype: float32, normalize: {mean: [0, 0, 0], std: [1, 0, 1]}}, "
                "z: {from: a, decode: image, ops: [{resize: [1,1]}], normalize: {mean: [0, x, 0], "
                "sdt: 3}}}",
        "c.yaml:4:100: mean is a list of 3 numbers, not of 2",
        "c.yaml:4:228: std is three numbers above 0", "c.yaml:4:304: normalize needs std",
        "c.yaml:4:322: unknown key 'sdt' in normalize; did you mean 'std'?");
    char text[4096];
    size_t used = (size_t)snprintf(text, sizeof text, DATASET "    fields:\n");
    for (int i = 0; i < 16; i++)
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "      f%d: {from: a, decode: class}\n", i);
    config_destroy(case_good(text, NULL));
    snprintf(text + used, sizeof text - used, "      f16: {from: a, decode: class}\n");
    BAD(text, "c.yaml:21:7: more than 16 fields");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops),          cmocka_unit_test(test_wrong_ops),
        cmocka_unit_test(test_fields),       cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_wrong_fields),
    };
    return cmocka_run_group_tests(tests, NULL, case_clean);
}
