/* A field's mapping into a struct field_spec. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config/config_dataset.h"

const struct config_choice config_dtypes[] = {
    {"uint8", FIELD_DTYPE_UINT8},       {"float16", FIELD_DTYPE_FLOAT16},
    {"bfloat16", FIELD_DTYPE_BFLOAT16}, {"float32", FIELD_DTYPE_FLOAT32},
    {"int64", FIELD_DTYPE_INT64},       {NULL, 0}};
const struct config_choice config_modes[] = {{"rgb", 3}, {"gray", 1}, {NULL, 0}};
const struct config_choice config_layouts[] = {
    {"nhwc", FIELD_LAYOUT_NHWC}, {"nchw", FIELD_LAYOUT_NCHW}, {NULL, 0}};

enum {
    DECODER_IMAGE = 1,
    DECODER_CLASS,
    DECODER_RAW,
    DECODER_TEXT,
    DECODER_JSON,
    DECODER_INT,
    DECODER_FLOAT
};
static const struct config_choice decoders[] = {{"image", DECODER_IMAGE},
                                                {"class", DECODER_CLASS},
                                                {"raw", DECODER_RAW},
                                                {"text", DECODER_TEXT},
                                                {"json", DECODER_JSON},
                                                {"int", DECODER_INT},
                                                {"float", DECODER_FLOAT},
                                                {"video", 0},
                                                {"audio", 0},
                                                {"npy", 0},
                                                {"npz", 0},
                                                {"tokens", 0},
                                                {NULL, 0}};
const struct config_choice config_missings[] = {
    {"drop", CONFIG_MISSING_DROP}, {"empty", CONFIG_MISSING_EMPTY}, {NULL, 0}};
static const struct config_choice pads[] = {
    {"true", FIELD_PAD_YES}, {"false", FIELD_PAD_NO}, {NULL, 0}};

enum {
    KEY_FROM,
    KEY_DECODE,
    KEY_OPS,
    KEY_NORMALIZE,
    KEY_DTYPE,
    KEY_LAYOUT,
    KEY_BYTES,
    KEY_ORIENTATION,
    KEY_MAX_BYTES,
    KEY_PAD,
    KEY_VIEWS,
    KEY_MODE,
    KEY_MISSING,
    KEY_COUNT
};
static const struct config_key field_keys[KEY_COUNT + 1] = {
    [KEY_FROM] = {"from", false},
    [KEY_DECODE] = {"decode", false},
    [KEY_OPS] = {"ops", false},
    [KEY_NORMALIZE] = {"normalize", false},
    [KEY_DTYPE] = {"dtype", false},
    [KEY_LAYOUT] = {"layout", false},
    [KEY_BYTES] = {"bytes", false},
    [KEY_ORIENTATION] = {"orientation", false},
    [KEY_MAX_BYTES] = {"max_bytes", false},
    [KEY_PAD] = {"pad", false},
    [KEY_VIEWS] = {"views", false},
    [KEY_MODE] = {"mode", false},
    [KEY_MISSING] = {"missing", false},
};

/* What goes with a decoder. */
static const struct decoder_row {
    uint32_t dtype, layout, channels;
    uint32_t keys; /* besides from, decode and dtype: bits 1 << KEY_… */
} decoder_rows[] = {
    [DECODER_IMAGE] = {FIELD_DTYPE_UINT8, FIELD_LAYOUT_NHWC, 3,
                       1u << KEY_OPS | 1u << KEY_NORMALIZE | 1u << KEY_LAYOUT |
                           1u << KEY_ORIENTATION | 1u << KEY_VIEWS | 1u << KEY_MODE},
    [DECODER_CLASS] = {FIELD_DTYPE_INT64, 0, 0, 0},
    [DECODER_RAW] = {FIELD_DTYPE_UINT8, 0, 0,
                     1u << KEY_BYTES | 1u << KEY_MISSING | 1u << KEY_MAX_BYTES | 1u << KEY_PAD},
    [DECODER_TEXT] = {FIELD_DTYPE_UINT8, 0, 0,
                      1u << KEY_MISSING | 1u << KEY_MAX_BYTES | 1u << KEY_PAD},
    [DECODER_JSON] = {FIELD_DTYPE_UINT8, 0, 0,
                      1u << KEY_MISSING | 1u << KEY_MAX_BYTES | 1u << KEY_PAD},
    [DECODER_INT] = {FIELD_DTYPE_INT64, 0, 0, 0},
    [DECODER_FLOAT] = {FIELD_DTYPE_FLOAT32, 0, 0, 0},
};

const char *config_choice_name(const struct config_choice *choices, uint32_t value)
{
    for (const struct config_choice *choice = choices; choice->name; choice++) {
        if (choice->value == value && value != 0)
            return choice->name;
    }
    return NULL;
}

int config_name_check(struct config_reader *reader, const struct config_node *key, const char *what,
                      bool dots)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
    char show[CONFIG_SHOW_BYTES];
    const char *name = key->text;
    if (key->bytes == 0)
        return config_complain(reader, key, "the name of a %s is empty", what);
    if (key->bytes >= CONFIG_NAME_BYTES)
        return config_complain(reader, key, "the name of a %s is longer than %d bytes", what,
                               CONFIG_NAME_BYTES - 1);
    bool wrong = name[0] == '-' || name[0] == '.' || name[strspn(name, letters)] != '\0' ||
                 (!dots && strchr(name, '.'));
    if (wrong)
        return config_complain(reader, key, "the name of a %s is of letters, digits, - _%s, not %s",
                               what, dots ? " and ." : "", config_show(key, show));
    return 0;
}

static int part_take(struct config_reader *reader, const struct config_node *node,
                     struct field_spec *field)
{
    char part[FIELD_PART_BYTES] = "";
    int rc = config_read_text(reader, node, "from", part, sizeof part);
    if (rc < 0)
        return rc;
    for (const char *at = part; *at; at++) {
        if (*at >= 'A' && *at <= 'Z')
            return config_complain(reader, node, "names of parts are lower case: '%s'", part);
        if (*at == '/')
            return config_complain(reader, node, "the name of a part has no /: '%s'", part);
    }
    if (part[0] == '.')
        return config_complain(reader, node, "the name of a part has no dot in front: '%s'",
                               part + 1);
    for (uint32_t i = 0; i < field->from_count; i++) {
        if (strcmp(field->from[i], part) == 0)
            return config_complain(reader, node, "part '%s' is given twice", part);
    }
    memcpy(field->from[field->from_count++], part, sizeof part);
    return 0;
}

static void from_take(struct config_reader *reader, const struct config_node *node,
                      struct field_spec *field)
{
    if (node->kind != CONFIG_NODE_SEQUENCE) {
        part_take(reader, node, field);
        return;
    }
    if (node->count == 0 || node->count > FIELD_FROM_MAX) {
        config_complain(reader, node, "from is a part or a list of 1 to %d parts", FIELD_FROM_MAX);
        return;
    }
    for (const struct config_item *item = node->first; item; item = item->next)
        part_take(reader, item->value, field);
}

static void ops_take(struct config_reader *reader, const struct config_node *node,
                     struct field_spec *field)
{
    if (config_node_is_empty(node))
        return;
    if (node->kind != CONFIG_NODE_SEQUENCE) {
        config_complain(reader, node, "ops is a list of operations");
        return;
    }
    if (node->count > FIELD_OPS_MAX) {
        config_complain(reader, node, "ops has %u operations, above %d", node->count,
                        FIELD_OPS_MAX);
        return;
    }
    for (const struct config_item *item = node->first; item; item = item->next) {
        if (config_op_take(reader, item->value, &field->ops[field->op_count]) == 0)
            field->op_count++;
    }
}

void config_normalize_take(struct config_reader *reader, const struct config_node *node,
                           struct field_spec *field)
{
    static const struct config_key keys[] = {{"mean", false}, {"std", false}, {NULL, false}};
    const struct config_node *values[2] = {NULL};
    const uint32_t count = field->channels == 1 ? 1 : 3;
    double mean[3] = {0}, std[3] = {1, 1, 1};
    char show[CONFIG_SHOW_BYTES], hint[CONFIG_SHOW_BYTES];
    if (node->kind == CONFIG_NODE_MAPPING) {
        if (config_keys_take(reader, node, "normalize", keys, values) < 0)
            return;
        if (!values[0] || !values[1]) {
            config_complain(reader, node, "normalize needs %s", values[0] ? "std" : "mean");
            return;
        }
        int rc = config_read_doubles(reader, values[0], "mean", count, mean);
        if (config_read_doubles(reader, values[1], "std", count, std) < 0 || rc < 0)
            return;
        if (!(std[0] > 0 && std[1] > 0 && std[2] > 0)) {
            config_complain(reader, values[1], "std is %s above 0",
                            count == 1 ? "a number" : "three numbers");
            return;
        }
        struct config_normalization own = {.name = NULL};
        memcpy(own.mean, mean, sizeof own.mean);
        memcpy(own.std, std, sizeof own.std);
        config_normalize_set(&own, field);
        return;
    }
    struct config_nearest nearest;
    config_nearest_init(&nearest, node->kind == CONFIG_NODE_SCALAR ? node->text : "");
    config_nearest_try(&nearest, "none");
    for (const struct config_normalization *row = config_normalizations; row->name; row++) {
        config_nearest_try(&nearest, row->name);
        if (config_node_is(node, row->name) && count == 1) {
            config_complain(reader, node,
                            "normalize: %s is of three channels; mode: gray takes {mean: [M], std: "
                            "[S]}",
                            row->name);
            return;
        }
        if (config_node_is(node, row->name)) {
            config_normalize_set(row, field);
            return;
        }
    }
    if (!config_node_is(node, "none")) {
        config_complain(reader, node,
                        "normalize is clip, imagenet, none or {mean: [...], std: [...]}, not %s%s",
                        config_show(node, show), config_nearest_hint(&nearest, hint));
        return;
    }
    field->normalize = 0;
    memset(field->mean, 0, sizeof field->mean);
    memset(field->std, 0, sizeof field->std);
}

/* Every key, whatever the decoder: so that all that is wrong is said at once. */
static void values_take(struct config_reader *reader, const struct config_node *const *values,
                        struct field_spec *field)
{
    static const struct config_choice orientations[] = {{"exif", 1}, {"ignore", 2}, {NULL, 0}};
    uint32_t orientation = 1, missing = CONFIG_MISSING_DROP;
    if (values[KEY_FROM])
        from_take(reader, values[KEY_FROM], field);
    if (values[KEY_OPS])
        ops_take(reader, values[KEY_OPS], field);
    if (values[KEY_MODE])
        config_read_choice(reader, values[KEY_MODE], "mode", config_modes, &field->channels);
    if (values[KEY_NORMALIZE])
        config_normalize_take(reader, values[KEY_NORMALIZE], field);
    if (values[KEY_DTYPE])
        config_read_choice(reader, values[KEY_DTYPE], "dtype", config_dtypes, &field->dtype);
    if (values[KEY_LAYOUT])
        config_read_choice(reader, values[KEY_LAYOUT], "layout", config_layouts, &field->layout);
    if (values[KEY_BYTES])
        config_read_size(reader, values[KEY_BYTES], "bytes", 1, 1ull << 30, &field->bytes);
    if (values[KEY_ORIENTATION])
        config_read_choice(reader, values[KEY_ORIENTATION], "orientation", orientations,
                           &orientation);
    field->ignore_orientation = orientation == 2;
    if (values[KEY_MAX_BYTES])
        config_read_size(reader, values[KEY_MAX_BYTES], "max_bytes", 1, FIELD_MAX_BYTES_LIMIT,
                         &field->max_bytes);
    uint64_t views = 0;
    if (values[KEY_VIEWS])
        config_read_count(reader, values[KEY_VIEWS], "views", 1, FIELD_VIEWS_MAX, &views);
    field->views = (uint32_t)views;
    if (values[KEY_PAD])
        config_read_choice(reader, values[KEY_PAD], "pad", pads, &field->pad);
    if (values[KEY_MISSING])
        config_read_choice(reader, values[KEY_MISSING], "missing", config_missings, &missing);
    field->missing_empty = missing == CONFIG_MISSING_EMPTY;
}

void config_field_take(struct config_reader *reader, const struct config_item *item,
                       uint64_t max_pixels, struct field_spec *ret_field)
{
    static const struct field_spec none;
    const struct config_node *values[KEY_COUNT] = {NULL};
    struct field_spec *field = ret_field;
    uint32_t complaints_before = reader->complaints->count;
    uint32_t decoder = 0;
    *field = none;
    if (config_name_check(reader, item->key, "field", false) < 0)
        return;
    memcpy(field->name, item->key->text, item->key->bytes + 1);
    if (config_keys_take(reader, item->value, field->name, field_keys, values) < 0)
        return;
    field->max_pixels = max_pixels;
    values_take(reader, values, field);
    if (!values[KEY_FROM])
        config_complain(reader, item->key, "field %s needs `from`: the name of a part, or a list",
                        field->name);
    if (!values[KEY_DECODE])
        config_complain(reader, item->key,
                        "field %s needs `decode`: image, class, raw, text, json, int or float",
                        field->name);
    else
        config_read_choice(reader, values[KEY_DECODE], "decode", decoders, &decoder);
    if (decoder == 0)
        return;
    const struct decoder_row *row = &decoder_rows[decoder];
    snprintf(field->decoder, sizeof field->decoder, "%s", config_choice_name(decoders, decoder));
    field->dtype = field->dtype ? field->dtype : row->dtype;
    field->layout = field->layout ? field->layout : row->layout;
    field->channels = field->channels ? field->channels : row->channels;
    for (uint32_t i = KEY_OPS; i < KEY_COUNT; i++) {
        if (values[i] && i != KEY_DTYPE && !(row->keys & 1u << i))
            config_complain(reader, config_key_node(item->value, field_keys[i].name),
                            "%s does not go with decode: %s", field_keys[i].name, field->decoder);
    }
    struct err err = {0};
    if (reader->complaints->count == complaints_before && field_finish(field, &err) < 0)
        config_complain(reader, item->key, "%s", err.text);
}
