/* Datasets: sources, presets, order and policy, each right and wrong; differences. */
#include <errno.h>

#include "tests/unit/config/config_case.h"

/* A dataset whose lines stand two levels deep, so that a complaint's line is the text's plus 2. */
#define DATASET "datasets:\n  d:\n    source: {folder: /f}\n"

static const struct config_dataset *only(const struct config *config)
{
    assert_int_equal(config->dataset_count, 1);
    return &config->datasets[0];
}

static void test_sources(void **state)
{
    (void)state;
    struct config *config =
        case_good("datasets:\n"
                  "  a: {source: {folder: /data/photos}}\n"
                  "  b.1-x_Y: {source: {folder: rel/path with blank}}\n"
                  "  c: {source: {synthetic: {samples: 1000000000, bytes: 1KiB}}}\n"
                  "  t: {source: {tar: \"/s/{00..17}.tar\"}}\n"
                  "  u: {source: {tar: [/s/a.tar, \"/s/b #*.tar\"]}}\n"
                  "  v: {source: {list: /s/l.csv, root: /s, label_column: what}}\n",
                  NULL);
    assert_int_equal(config->dataset_count, 6);
    const struct config_dataset *dataset = config_dataset_find(config, "a");
    assert_string_equal(dataset->source.kind, "folder");
    assert_string_equal(dataset->source.path, "/data/photos");
    assert_int_equal(dataset->field_count, 0);
    assert_int_equal(dataset->shuffle, CONFIG_SHUFFLE_NONE);
    assert_int_equal(dataset->last, CONFIG_LAST_PARTIAL);
    assert_int_equal(dataset->on_error.policy, CONFIG_POLICY_SUBSTITUTE); /* nothing is said */
    assert_int_equal(dataset->on_error.max_rate, CONFIG_RATE_UNIT / 100);
    assert_int_equal(dataset->on_error.max_consecutive, 100);
    assert_int_equal(dataset->seed, 0);
    dataset = config_dataset_find(config, "b.1-x_Y");
    assert_string_equal(dataset->source.path, "rel/path with blank");
    dataset = config_dataset_find(config, "c");
    assert_string_equal(dataset->source.kind, "synthetic");
    assert_int_equal(dataset->source.samples, 1000000000);
    assert_int_equal(dataset->source.bytes, 1024);
    dataset = config_dataset_find(config, "t");
    assert_string_equal(dataset->source.kind, "tar");
    assert_string_equal(dataset->source.path, "/s/{00..17}.tar");
    dataset = config_dataset_find(config, "u");
    assert_string_equal(dataset->source.path, "/s/a.tar\n/s/b #*.tar");
    char *printed = config_print(config, 1);
    assert_non_null(printed);
    assert_non_null(strstr(printed, "source: {tar: [/s/a.tar, \"/s/b #*.tar\"]}\n"));
    assert_non_null(strstr(printed, "source: {list: /s/l.csv, root: /s, label_column: what}\n"));
    free(printed);
    assert_null(config_dataset_find(config, "d"));
    struct err err = {0};
    assert_int_equal(config_dataset_unknown(config, "b.1-xY", &err), -ENOENT);
    assert_non_null(strstr(err.text, "there is no dataset 'b.1-xY' (there are "));
    assert_non_null(strstr(err.text, "did you mean 'b.1-x_Y'?"));
    config_dataset_unknown(config, "photos", &err);
    assert_null(strstr(err.text, "did you mean"));
    config_destroy(config);
}

static void test_wrong_sources(void **state)
{
    (void)state;
    BAD("datasets:\n  d: {}", "c.yaml:2:6: the dataset needs a source");
    BAD("datasets:\n  d:", "c.yaml:2:5: the dataset needs a source");
    BAD("datasets:\n  d: 3", "c.yaml:2:6: the dataset is a mapping of source preset fields order "
                             "on_error last normalize dtype layout allow, not '3'");
    BAD("datasets:\n  d: {source: /x}",
        "c.yaml:2:15: source is a mapping of folder synthetic tar list "
        "root path_column label_column, not '/x'");
    BAD("datasets:\n  d: {source: {}}",
        "c.yaml:2:15: source is {folder: PATH}, {tar: PATTERN}, {list: FILE} or {synthetic: "
        "{samples: N, bytes: B}}");
    BAD("datasets:\n  d: {source: {folder: [a, b]}}",
        "c.yaml:2:24: a list of folders is not supported in this version: give one folder");
    BAD("datasets:\n  d: {source: {folder: \"s3://b/c\"}}",
        "c.yaml:2:24: a folder that is not local is not supported in this version");
    BAD("datasets:\n  d: {source: {folder: }}", "c.yaml:2:24: folder is a text, not nothing");
    BAD("datasets:\n  d: {source: {tar: [a, \"s3://b/*.tar\"]}}",
        "c.yaml:2:25: a tar that is not local is not supported in this version");
    BAD("datasets:\n  d: {source: {tar: \"http://h/x.tar\"}}",
        "c.yaml:2:21: a tar that is not local is not supported in this version");
    BAD("datasets:\n  d: {source: {tar: []}}", "c.yaml:2:21: tar: the list of paths is empty");
    BAD("datasets:\n  d: {source: {tar: [a, [b]]}}", "c.yaml:2:25: tar is a text, not a list");
    BAD("datasets:\n  d: {source: {tar: \"a\\nb\"}}", "c.yaml:2:21: tar holds a control character");
    BAD("datasets:\n  d: {source: {mds: x, fodler: y}}",
        "c.yaml:2:16: mds is not supported in this version",
        "c.yaml:2:24: unknown key 'fodler' in source; did you mean 'folder'?");
    BAD("datasets:\n  d: {source: {folder: x, synthetic: {samples: 1, bytes: 1}}}",
        "c.yaml:2:15: a source is one kind: folder, tar, list or synthetic");
    BAD("datasets:\n  d: {source: {list: a, tar: b}}",
        "c.yaml:2:15: a source is one kind: folder, tar, list or synthetic");
    BAD("datasets:\n  d: {source: {tar: a, root: /b}}", "c.yaml:2:24: root goes with a list");
    BAD("datasets:\n  d: {source: {list: a, label_column: [b]}}",
        "c.yaml:2:39: label_column is a text, not a list");
    BAD("datasets:\n  d: {source: {list: \"s3://b/l.csv\"}}",
        "c.yaml:2:22: a list that is not local is not supported in this version");
    BAD("datasets:\n  d: {source: {synthetic: {samples: 0}}}", "c.yaml:2:27: synthetic needs bytes",
        "c.yaml:2:37: samples: '0' is outside 1 to 281474976710656");
    BAD("datasets:\n  d: {source: {synthetic: {bytes: 2GiB}}}",
        "c.yaml:2:27: synthetic needs samples", "c.yaml:2:35: bytes: '2GiB' is outside 1 to 1GiB");
    BAD(DATASET "    allow: {}", "c.yaml:4:12: allow names nobody: it is {users: [NAME], groups: "
                                 "[NAME]}; without allow everybody who may use the socket may use "
                                 "the dataset");
    BAD(DATASET "    allow: {users: root}", "c.yaml:4:20: users is a list of names, not 'root'");
    BAD(DATASET "    allow: {user: [root]}",
        "c.yaml:4:13: unknown key 'user' in allow; did you mean 'users'?");
    BAD(DATASET "  d: {source: {folder: y}}",
        "c.yaml:4:3: dataset d is given twice, first at c.yaml:2");
}

static void test_names(void **state)
{
    (void)state;
    BAD("datasets:\n  a b: {}",
        "c.yaml:2:3: the name of a dataset is of letters, digits, - _ and ., not 'a b'");
    BAD("datasets:\n  .a: {}",
        "c.yaml:2:3: the name of a dataset is of letters, digits, - _ and ., not '.a'");
    BAD("datasets:\n  \"\": {}", "c.yaml:2:3: the name of a dataset is empty");
    BAD("datasets:\n  a/b: {}",
        "c.yaml:2:3: the name of a dataset is of letters, digits, - _ and ., not 'a/b'");
    char text[256];
    char name[CONFIG_NAME_BYTES + 1];
    memset(name, 'n', sizeof name);
    name[CONFIG_NAME_BYTES] = '\0';
    snprintf(text, sizeof text, "datasets: {%s: {source: {folder: x}}}", name);
    BAD(text, "c.yaml:1:12: the name of a dataset is longer than 63 bytes");
    snprintf(text, sizeof text, "datasets: {%s: {source: {folder: x}}}", name + 1);
    config_destroy(case_good(text, NULL));
}

static void check_pictures(const struct field_spec *field)
{
    static const char *const parts[] = {"jpg",  "jpeg", "png", "webp", "bmp",  "gif", "tif",
                                        "tiff", "ppm",  "pgm", "pnm",  "avif", "heic"};
    assert_string_equal(field->name, "image");
    assert_string_equal(field->decoder, "image");
    assert_int_equal(field->from_count, 13);
    for (uint32_t i = 0; i < 13; i++)
        assert_string_equal(field->from[i], parts[i]);
    assert_int_equal(field->channels, 3);
    assert_int_equal(field->ignore_orientation, 0);
    assert_int_equal(field->max_pixels, 134217728);
    assert_int_equal(field->dim_count, 3);
}

static void check_label(const struct field_spec *field)
{
    assert_string_equal(field->name, "label");
    assert_string_equal(field->decoder, "class");
    assert_int_equal(field->from_count, 1);
    assert_string_equal(field->from[0], "cls");
    assert_int_equal(field->dtype, FIELD_DTYPE_INT64);
    assert_int_equal(field->row_bytes, 8);
}

static void check_crop(const struct op_spec *op, uint32_t filter, double area)
{
    assert_int_equal(op->kind, OP_RANDOM_RESIZED_CROP);
    assert_int_equal(op->height, 224);
    assert_int_equal(op->width, 224);
    assert_int_equal(op->filter, filter);
    assert_true(op->scale[0] == area && op->scale[1] == 1.0);
    assert_true(op->ratio[0] == 0.75 && op->ratio[1] == 4.0 / 3.0);
}

static void test_imagenet(void **state)
{
    (void)state;
    struct config *config = case_good(DATASET "    preset: imagenet-train", NULL);
    const struct config_dataset *dataset = only(config);
    assert_int_equal(dataset->shuffle, CONFIG_SHUFFLE_GLOBAL);
    assert_int_equal(dataset->last, CONFIG_LAST_DROP);
    assert_int_equal(dataset->field_count, 2);
    const struct field_spec *image = &dataset->fields[0];
    check_pictures(image);
    check_label(&dataset->fields[1]);
    assert_int_equal(image->dtype, FIELD_DTYPE_UINT8);
    assert_int_equal(image->layout, FIELD_LAYOUT_NHWC);
    assert_int_equal(image->normalize, 0);
    assert_int_equal(image->row_bytes, 224 * 224 * 3);
    assert_int_equal(image->op_count, 2);
    check_crop(&image->ops[0], FIELD_FILTER_BILINEAR, 0.08);
    assert_int_equal(image->ops[1].kind, OP_RANDOM_FLIP);
    assert_true(image->ops[1].p == 0.5);
    config_destroy(config);

    config = case_good(DATASET "    preset: imagenet-eval", NULL);
    dataset = only(config);
    image = &dataset->fields[0];
    check_pictures(image);
    check_label(&dataset->fields[1]);
    assert_int_equal(dataset->shuffle, CONFIG_SHUFFLE_NONE);
    assert_int_equal(dataset->last, CONFIG_LAST_PARTIAL);
    assert_int_equal(image->dtype, FIELD_DTYPE_UINT8);
    assert_int_equal(image->op_count, 2);
    assert_int_equal(image->ops[0].kind, OP_RESIZE);
    assert_int_equal(image->ops[0].height, 256);
    assert_int_equal(image->ops[0].width, 0);
    assert_int_equal(image->ops[0].filter, FIELD_FILTER_BILINEAR);
    assert_int_equal(image->ops[1].kind, OP_CENTER_CROP);
    assert_int_equal(image->ops[1].height, 224);
    assert_int_equal(image->ops[1].width, 224);
    config_destroy(config);
}

static void test_clip(void **state)
{
    (void)state;
    struct config *config = case_good(DATASET "    preset: clip-train", NULL);
    const struct config_dataset *dataset = only(config);
    const struct field_spec *image = &dataset->fields[0];
    check_pictures(image);
    check_label(&dataset->fields[1]);
    assert_int_equal(dataset->shuffle, CONFIG_SHUFFLE_GLOBAL);
    assert_int_equal(dataset->last, CONFIG_LAST_DROP);
    assert_int_equal(image->dtype, FIELD_DTYPE_FLOAT32);
    assert_int_equal(image->layout, FIELD_LAYOUT_NCHW);
    assert_int_equal(image->dims[0], 3);
    assert_int_equal(image->normalize, 1);
    assert_true(image->mean[0] == 0.48145466 && image->mean[1] == 0.4578275 &&
                image->mean[2] == 0.40821073);
    assert_true(image->std[0] == 0.26862954 && image->std[1] == 0.26130258 &&
                image->std[2] == 0.27577711);
    assert_int_equal(image->op_count, 1);
    check_crop(&image->ops[0], FIELD_FILTER_BICUBIC, 0.9);
    config_destroy(config);

    config = case_good(DATASET "    preset: clip-eval", NULL);
    image = &only(config)->fields[0];
    assert_int_equal(only(config)->shuffle, CONFIG_SHUFFLE_NONE);
    assert_int_equal(only(config)->last, CONFIG_LAST_PARTIAL);
    assert_int_equal(image->op_count, 2);
    assert_int_equal(image->ops[0].kind, OP_RESIZE);
    assert_int_equal(image->ops[0].height, 224);
    assert_int_equal(image->ops[0].width, 0);
    assert_int_equal(image->ops[0].filter, FIELD_FILTER_BICUBIC);
    assert_int_equal(image->ops[1].kind, OP_CENTER_CROP);
    assert_int_equal(image->normalize, 1);
    config_destroy(config);
}

static void test_beside_preset(void **state)
{
    (void)state;
    struct config *config = case_good("datasets:\n  d:\n"
                                      "    layout: nchw\n"
                                      "    normalize: imagenet\n"
                                      "    last: pad\n"
                                      "    order: {shuffle: none, seed: 18446744073709551615}\n"
                                      "    on_error: {max_consecutive: 7, policy: fail, max_rate: "
                                      "0.25}\n"
                                      "    fields:\n"
                                      "      label: {from: [txt, cls], decode: class}\n"
                                      "      bytes: {from: bin, decode: raw, bytes: 2KiB}\n"
                                      "    dtype: float16\n"
                                      "    preset: imagenet-train\n"
                                      "    source: {folder: x}\n",
                                      NULL);
    const struct config_dataset *dataset = only(config);
    assert_int_equal(dataset->shuffle, CONFIG_SHUFFLE_NONE);
    assert_true(dataset->seed == UINT64_MAX);
    assert_int_equal(dataset->last, CONFIG_LAST_PAD);
    assert_int_equal(dataset->on_error.policy, CONFIG_POLICY_FAIL);
    assert_int_equal(dataset->on_error.max_rate, 250000);
    assert_int_equal(dataset->on_error.max_consecutive, 7);
    assert_int_equal(dataset->field_count, 3);
    const struct field_spec *image = &dataset->fields[0];
    assert_int_equal(image->dtype, FIELD_DTYPE_FLOAT16);
    assert_int_equal(image->layout, FIELD_LAYOUT_NCHW);
    assert_true(image->normalize && image->mean[0] == 0.485 && image->std[2] == 0.225);
    assert_int_equal(image->row_bytes, 224 * 224 * 3 * 2);
    assert_string_equal(dataset->fields[1].name, "label");
    assert_string_equal(dataset->fields[1].from[0], "txt");
    assert_string_equal(dataset->fields[2].name, "bytes");
    assert_int_equal(dataset->fields[2].row_bytes, 2048);
    assert_int_equal(dataset->fields[2].dtype, FIELD_DTYPE_UINT8);
    config_destroy(config);

    config =
        case_good(DATASET "    preset: clip-train\n    normalize: none\n    dtype: uint8\n", NULL);
    assert_int_equal(only(config)->fields[0].normalize, 0);
    assert_true(only(config)->fields[0].mean[0] == 0.0);
    config_destroy(config);

    BAD(DATASET "    preset: imagenet-tarin",
        "c.yaml:4:13: preset is one of imagenet-train imagenet-eval clip-train clip-eval, not "
        "'imagenet-tarin'; did you mean 'imagenet-train'?");
    BAD(DATASET "    normalize: clip\n    dtype: float32",
        "c.yaml:4:5: normalize goes into a field, or beside a preset",
        "c.yaml:5:5: dtype goes into a field, or beside a preset");
    BAD(DATASET "    preset: imagenet-train\n    layout: nchw\n"
                "    fields: {image: {from: jpg, decode: image, ops: [{center_crop: 8}]}}",
        "c.yaml:5:5: layout has no effect: fields replaces the preset's image");
    BAD(DATASET "    preset: imagenet-train\n    normalize: clip",
        "c.yaml:4:13: field 'image': normalize needs a dtype with fractions and this one is uint8; "
        "use dtype: float32, float16 or bfloat16, or leave normalize out");
    BAD(DATASET
        "    preset: imagenet-train\n    dtype: flaot32\n    layout: x\n    normalize: clpi",
        "c.yaml:5:12: dtype is one of uint8 float16 bfloat16 float32 int64, not 'flaot32'; did you "
        "mean 'float32'?",
        "c.yaml:6:13: layout is one of nhwc nchw, not 'x'",
        "c.yaml:7:16: normalize is clip, imagenet, none or {mean: [...], std: [...]}, not 'clpi'; "
        "did you mean 'clip'?");
}

static void test_block_and_lanes(void **state)
{
    (void)state;
    struct config *config = case_good(
        DATASET "    order: {shuffle: block, lanes: 8, block_samples: 1000, seed: 3}", NULL);
    const struct config_dataset *dataset = only(config);
    assert_int_equal(dataset->shuffle, CONFIG_SHUFFLE_BLOCK);
    assert_int_equal(dataset->block_samples, 1000);
    assert_int_equal(dataset->lanes, 8);
    char *text = config_print(config, 0);
    assert_non_null(text);
    assert_non_null(strstr(text, "block_samples: 1000\n"));
    assert_non_null(strstr(text, "lanes: 8\n"));

    struct config *other = case_good(DATASET "    order: {shuffle: block, seed: 3}", NULL);
    assert_int_equal(only(other)->block_samples, 65536);
    assert_int_equal(only(other)->lanes, 1);
    char *difference = config_diff(config, other);
    assert_string_equal(difference, "datasets.d.order.block_samples: running 1000, asked 65536\n"
                                    "datasets.d.order.lanes: running 8, asked 1\n");
    free(difference);
    config_destroy(other);
    free(text);
    config_destroy(config);

    config = case_good(DATASET "    order: {lanes: 4}", NULL);
    text = config_print(config, 0);
    assert_int_equal(only(config)->lanes, 4);
    assert_null(strstr(text, "block_samples"));
    free(text);
    config_destroy(config);
}

static void test_order_and_policy(void **state)
{
    (void)state;
    BAD(DATASET "    order: {shuffle: block, lanes: 0, block_samples: 0, sed: 1, seed: -1}",
        "c.yaml:4:36: lanes: '0' is outside 1 to 65536",
        "c.yaml:4:54: block_samples: '0' is outside 1 to 281474976710656",
        "c.yaml:4:57: unknown key 'sed' in order; did you mean 'seed'?",
        "c.yaml:4:71: seed is a whole number, not '-1'");
    BAD(DATASET "    order: global\n    last: parital",
        "c.yaml:4:12: order is a mapping of shuffle seed block_samples lanes, not 'global'",
        "c.yaml:5:11: last is one of drop pad partial, not 'parital'; did you mean 'partial'?");
    BAD(DATASET "    order: {shuffle: none, block_samples: 3}",
        "c.yaml:4:28: block_samples has no effect: it goes with shuffle: block");
    BAD(DATASET "    order: {lanes: 3, shuffle: global}",
        "c.yaml:4:13: lanes with shuffle: global would keep no rank to its own shards; use "
        "shuffle: block or none");
    BAD(DATASET "    preset: imagenet-train\n    order: {lanes: 3}",
        "c.yaml:5:13: lanes with shuffle: global would keep no rank to its own shards; use "
        "shuffle: block or none");
    BAD(DATASET "    order: {shuffle: blokc, block_samples: 3, lanes: 65537}",
        "c.yaml:4:22: shuffle is one of none global block, not 'blokc'; did you mean 'block'?",
        "c.yaml:4:54: lanes: '65537' is outside 1 to 65536");
    BAD(DATASET "    on_error: {policy: msak, max_rate: 1.5, max_consecutive: 0, max_rat: 3}",
        "c.yaml:4:24: policy is one of substitute mask fail, not 'msak'; did you mean 'mask'?",
        "c.yaml:4:40: max_rate: '1.5' is outside 0 to 1",
        "c.yaml:4:62: max_consecutive: '0' is outside 1 to 10000",
        "c.yaml:4:65: unknown key 'max_rat' in on_error; did you mean 'max_rate'?");
}

/* The words of --on-error: what is not named stays as it was. */
static void test_on_error_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        struct config_on_error is;
    } good[] = {{"mask", {CONFIG_POLICY_MASK, 20000, 30}},
                {"fail", {CONFIG_POLICY_FAIL, 20000, 30}},
                {"substitute", {CONFIG_POLICY_SUBSTITUTE, 20000, 30}},
                {"substitute,max_rate=1", {CONFIG_POLICY_SUBSTITUTE, 1000000, 30}},
                {"substitute,max_rate=0.29", {CONFIG_POLICY_SUBSTITUTE, 290000, 30}},
                {"mask,max_rate=0", {CONFIG_POLICY_MASK, 0, 30}},
                {"mask,max_consecutive=10000", {CONFIG_POLICY_MASK, 20000, 10000}},
                {"substitute,max_consecutive=1,max_rate=1e-6", {CONFIG_POLICY_SUBSTITUTE, 1, 1}}};
    struct err err = {0};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct config_on_error read = {CONFIG_POLICY_MASK, 20000, 30};
        assert_int_equal(config_on_error_read(good[i].text, &read, &err), 0);
        assert_int_equal(read.policy, good[i].is.policy);
        assert_int_equal(read.max_rate, good[i].is.max_rate);
        assert_int_equal(read.max_consecutive, good[i].is.max_consecutive);
    }
    static const char *const wrong[][2] = {
        {"", "'' is not a policy: use substitute, mask or fail"},
        {"masks", "'masks' is not a policy: use substitute, mask or fail; did you mean 'mask'?"},
        {"mask,", "'' behind the policy is not max_rate=x or max_consecutive=n"},
        {"mask,,max_rate=1", "'' behind the policy is not max_rate=x or max_consecutive=n"},
        {"mask,foo=1", "'foo=1' behind the policy is not max_rate=x or max_consecutive=n"},
        {"mask,max_rate=", "max_rate is a number from 0 to 1, not ''"},
        {"mask,max_rate=nan", "max_rate is a number from 0 to 1, not 'nan'"},
        {"mask,max_rate=1.01", "max_rate is a number from 0 to 1, not '1.01'"},
        {"mask,max_consecutive=0", "max_consecutive is a whole number from 1 to 10000, not '0'"},
        {"mask,max_consecutive=-1", "max_consecutive is a whole number from 1 to 10000, not '-1'"},
        {"mask,max_consecutive=9x", "max_consecutive is a whole number from 1 to 10000, not '9x'"},
        {"mask,max_rate=1,max_consecutive=99999999999999999999",
         "max_consecutive is a whole number from 1 to 10000, not '99999999999999999999'"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct config_on_error read = {CONFIG_POLICY_FAIL, 5, 6};
        assert_int_equal(config_on_error_read(wrong[i][0], &read, &err), -EINVAL);
        assert_string_equal(err.text, wrong[i][1]);
        assert_true(read.policy == CONFIG_POLICY_FAIL && read.max_rate == 5 &&
                    read.max_consecutive == 6);
    }
}

static void test_dataset_read(void **state)
{
    (void)state;
    struct config *config = case_good("limits: {pixels: 5000}", NULL);
    struct config_dataset *dataset = calloc(1, sizeof *dataset);
    struct config_complaints complaints;
    assert_non_null(dataset);
    static const char good[] = "{source: {folder: \"/a b\"}, preset: imagenet-eval}";
    assert_int_equal(config_dataset_read(good, strlen(good), "open", config, dataset, &complaints),
                     0);
    assert_string_equal(dataset->source.path, "/a b");
    assert_int_equal(dataset->field_count, 2);
    assert_int_equal(dataset->fields[0].max_pixels, 5000);
    assert_string_equal(dataset->name, "");
    static const char wrong[] = "source: {folder: /a}\npreset: imagenet\n";
    dataset->seed = 99;
    assert_int_equal(
        config_dataset_read(wrong, strlen(wrong), "open", config, dataset, &complaints), -EINVAL);
    assert_int_equal(complaints.count, 1);
    assert_string_equal(complaints.lines[0],
                        "open:2:9: preset is one of imagenet-train imagenet-eval clip-train "
                        "clip-eval, not 'imagenet'");
    assert_int_equal(dataset->seed, 99);
    assert_int_equal(config_dataset_read("", 0, "open", config, dataset, &complaints), -EINVAL);
    assert_string_equal(complaints.lines[0], "open: the dataset is empty");
    char *large = calloc(1, CONFIG_DATASET_BYTES_MAX + 1);
    assert_non_null(large);
    memset(large, '\n', CONFIG_DATASET_BYTES_MAX + 1);
    memcpy(large, good, strlen(good));
    assert_int_equal(
        config_dataset_read(large, CONFIG_DATASET_BYTES_MAX, "open", config, dataset, &complaints),
        0);
    assert_int_equal(config_dataset_read(large, CONFIG_DATASET_BYTES_MAX + 1, "open", config,
                                         dataset, &complaints),
                     -EINVAL);
    assert_string_equal(complaints.lines[0], "open: a dataset's text is larger than 64 KiB");
    free(large);
    free(dataset);
    config_destroy(config);
}

static void test_diff_and_round_trip(void **state)
{
    (void)state;
    struct config *mine = case_good(
        "datasets:\n"
        "  gone: {source: {folder: /g}}\n"
        "  a:\n"
        "    source: {folder: \"/a #1\"}\n"
        "    preset: clip-train\n"
        "    fields: {own: {from: [x, y], decode: raw, bytes: 3000}, flip: {from: jpg, decode: "
        "image, ops: [{resize: 7}, {random_crop: [3, 5]}, {vertical_flip: 0.1}], dtype: float32, "
        "normalize: {mean: [0.1, 0.2, 0.3], std: [1, 2, 3]}, orientation: ignore}}\n"
        "  s: {source: {synthetic: {samples: 5, bytes: 1000}}, order: {seed: 7}}\n",
        NULL);
    char *text = config_print(mine, 0);
    struct config *back = case_good(text, NULL);
    char *diff = config_diff(mine, back);
    assert_string_equal(diff, "");
    assert_int_equal(back->dataset_count, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_memory_equal(&mine->datasets[i], &back->datasets[i], sizeof mine->datasets[i]);
    free(diff);
    free(text);
    config_destroy(back);
    struct config *other =
        case_good("datasets:\n"
                  "  a:\n"
                  "    source: {folder: /b}\n"
                  "    preset: clip-train\n"
                  "    normalize: imagenet\n"
                  "    last: pad\n"
                  "    fields: {label: {from: [x, y], decode: raw, bytes: 3000}}\n"
                  "  s: {source: {synthetic: {samples: 6, bytes: 1000}}, on_error: {policy: fail, "
                  "max_rate: 0.5}}\n"
                  "  fresh: {source: {folder: /g}}\n",
                  NULL);
    diff = config_diff(mine, other);
    assert_string_equal(
        diff, "datasets.gone: only in the running configuration\n"
              "datasets.a.source: running {folder: \"/a #1\"}, asked {folder: /b}\n"
              "datasets.a.last: running drop, asked pad\n"
              "datasets.a.fields: running [image, label, own, flip], asked [image, label]\n"
              "datasets.a.fields.image.normalize: running clip, asked imagenet\n"
              "datasets.a.fields.label.from: running [cls], asked [x, y]\n"
              "datasets.a.fields.label.decode: running class, asked raw\n"
              "datasets.a.fields.label.dtype: running int64, asked uint8\n"
              "datasets.a.fields.label.bytes: running none, asked 3KB\n"
              "datasets.s.source: running {synthetic: {samples: 5, bytes: 1KB}}, asked {synthetic: "
              "{samples: 6, bytes: 1KB}}\n"
              "datasets.s.order.seed: running 7, asked 0\n"
              "datasets.s.on_error.policy: running substitute, asked fail\n"
              "datasets.s.on_error.max_rate: running 0.01, asked 0.5\n"
              "datasets.fresh: only in the asked configuration\n");
    free(diff);
    config_destroy(mine);
    config_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_wrong_sources),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_imagenet),
        cmocka_unit_test(test_clip),
        cmocka_unit_test(test_beside_preset),
        cmocka_unit_test(test_block_and_lanes),
        cmocka_unit_test(test_order_and_policy),
        cmocka_unit_test(test_on_error_read),
        cmocka_unit_test(test_dataset_read),
        cmocka_unit_test(test_diff_and_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, case_clean);
}
