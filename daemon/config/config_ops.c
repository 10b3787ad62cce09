/* Operations on pictures as the configuration knows them: names, parameters, defaults
 * (torchvision's) and ranges. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "config/config_dataset.h"

enum { SIDE_MAX = 16384 };

const struct config_choice config_filters[] = {
    {"bilinear", FIELD_FILTER_BILINEAR}, {"bicubic", FIELD_FILTER_BICUBIC}, {NULL, 0}};

const struct config_op config_ops[] = {
    {"resize",
     OP_RESIZE,
     CONFIG_OP_SIZE | CONFIG_OP_FILTER | CONFIG_OP_SHORT_SIDE,
     {.filter = FIELD_FILTER_BILINEAR}},
    {"center_crop", OP_CENTER_CROP, CONFIG_OP_SIZE, {.kind = 0}},
    {"random_resized_crop",
     OP_RANDOM_RESIZED_CROP,
     CONFIG_OP_SIZE | CONFIG_OP_SCALE | CONFIG_OP_RATIO | CONFIG_OP_FILTER,
     {.filter = FIELD_FILTER_BILINEAR, .scale = {0.08, 1.0}, .ratio = {3.0 / 4.0, 4.0 / 3.0}}},
    {"random_crop", OP_RANDOM_CROP, CONFIG_OP_SIZE, {.kind = 0}},
    {"random_flip", OP_RANDOM_FLIP, CONFIG_OP_P, {.p = 0.5}},
    {"vertical_flip", OP_VERTICAL_FLIP, CONFIG_OP_P, {.p = 0.5}},
    {.name = "color_jitter"},
    {.name = "grayscale"},
    {.name = "gaussian_blur"},
    {.name = "rotate"},
    {.name = "affine"},
    {.name = "random_erasing"},
    {.name = "randaugment"},
    {.name = "trivialaugment"},
    {.name = "augmix"},
    {.name = "pad"},
    {.name = "solarize"},
    {.name = "posterize"},
    {.name = "equalize"},
    {.name = "autocontrast"},
    {.name = "invert"},
    {.name = "mixup"},
    {.name = "cutmix"},
    {.name = NULL},
};

enum { KEY_SIZE, KEY_FILTER, KEY_SCALE, KEY_RATIO, KEY_P, KEY_COUNT };

static const struct {
    const char *name;
    uint32_t param;
} op_keys[KEY_COUNT] = {
    [KEY_SIZE] = {"size", CONFIG_OP_SIZE},
    [KEY_FILTER] = {"filter", CONFIG_OP_FILTER},
    [KEY_SCALE] = {"scale", CONFIG_OP_SCALE},
    [KEY_RATIO] = {"ratio", CONFIG_OP_RATIO},
    [KEY_P] = {"p", CONFIG_OP_P},
};

const struct config_op *config_op_find(uint32_t kind)
{
    for (const struct config_op *op = config_ops; op->name; op++) {
        if (op->kind == kind && kind != 0)
            return op;
    }
    return NULL;
}

static int side_take(struct config_reader *reader, const struct config_node *node,
                     int32_t *ret_side)
{
    uint64_t side = 0;
    int rc = config_read_count(reader, node, "size", 1, SIDE_MAX, &side);
    if (rc == 0)
        *ret_side = (int32_t)side;
    return rc;
}

/* A number, or [height, width]. */
static int size_take(struct config_reader *reader, const struct config_node *node, uint32_t params,
                     struct op_spec *op)
{
    if (node->kind == CONFIG_NODE_SCALAR) {
        int rc = side_take(reader, node, &op->height);
        op->width = params & CONFIG_OP_SHORT_SIDE ? 0 : op->height;
        return rc;
    }
    if (node->kind != CONFIG_NODE_SEQUENCE || node->count != 2)
        return config_complain(reader, node, "size is a number or [height, width]");
    int rc = side_take(reader, node->first->value, &op->height);
    int rc_width = side_take(reader, node->first->next->value, &op->width);
    return rc < 0 ? rc : rc_width;
}

static int pair_take(struct config_reader *reader, const struct config_node *node, const char *name,
                     double *pair)
{
    double values[2] = {0};
    int rc = config_read_doubles(reader, node, name, 2, values);
    if (rc < 0)
        return rc;
    if (!(values[0] > 0) || !(values[1] >= values[0]))
        return config_complain(reader, node, "%s is two numbers above 0, the smaller first", name);
    pair[0] = values[0];
    pair[1] = values[1];
    return 0;
}

static int params_take(struct config_reader *reader, const struct config_node *node,
                       const struct config_op *row, struct op_spec *op)
{
    struct config_key keys[KEY_COUNT + 1] = {{NULL, false}};
    const struct config_node *values[KEY_COUNT] = {NULL};
    const struct config_node *by_key[KEY_COUNT] = {NULL};
    uint32_t count = 0;
    for (uint32_t i = 0; i < KEY_COUNT; i++) {
        if (row->params & op_keys[i].param)
            keys[count++].name = op_keys[i].name;
    }
    int rc = config_keys_take(reader, node, row->name, keys, values);
    count = 0;
    for (uint32_t i = 0; i < KEY_COUNT; i++) {
        if (row->params & op_keys[i].param)
            by_key[i] = values[count++];
    }
    if (rc == 0 && by_key[KEY_SIZE])
        rc = size_take(reader, by_key[KEY_SIZE], row->params, op);
    if (rc == 0 && by_key[KEY_FILTER])
        rc = config_read_choice(reader, by_key[KEY_FILTER], "filter", config_filters, &op->filter);
    if (rc == 0 && by_key[KEY_SCALE])
        rc = pair_take(reader, by_key[KEY_SCALE], "scale", op->scale);
    if (rc == 0 && by_key[KEY_RATIO])
        rc = pair_take(reader, by_key[KEY_RATIO], "ratio", op->ratio);
    if (rc == 0 && by_key[KEY_P])
        rc = config_read_double(reader, by_key[KEY_P], "p", 0, 1, &op->p);
    if (rc == 0 && (row->params & CONFIG_OP_SIZE) && !by_key[KEY_SIZE])
        rc = config_complain(reader, node, "%s needs a size", row->name);
    return rc;
}

/* Only a value instead of parameters: the size, or the chance. */
static int short_take(struct config_reader *reader, const struct config_node *node,
                      const struct config_op *row, struct op_spec *op)
{
    if (row->params & CONFIG_OP_SIZE)
        return size_take(reader, node, row->params, op);
    return config_read_double(reader, node, "p", 0, 1, &op->p);
}

static const struct config_op *row_find(struct config_reader *reader,
                                        const struct config_node *name)
{
    char show[CONFIG_SHOW_BYTES], hint[CONFIG_SHOW_BYTES];
    struct config_nearest nearest;
    config_nearest_init(&nearest, name->text);
    for (const struct config_op *row = config_ops; row->name; row++) {
        if (strcmp(row->name, name->text) == 0 && row->kind)
            return row;
        if (strcmp(row->name, name->text) == 0) {
            config_complain(reader, name, "operation %s is not supported in this version",
                            row->name);
            return NULL;
        }
        if (row->kind)
            config_nearest_try(&nearest, row->name);
    }
    config_complain(reader, name, "unknown operation %s%s", config_show(name, show),
                    config_nearest_hint(&nearest, hint));
    return NULL;
}

int config_op_take(struct config_reader *reader, const struct config_node *node,
                   struct op_spec *ret_op)
{
    const struct config_node *name = node;
    const struct config_node *value = NULL;
    if (node->kind == CONFIG_NODE_MAPPING && node->count == 1) {
        name = node->first->key;
        value = node->first->value;
    } else if (node->kind != CONFIG_NODE_SCALAR || config_node_is_empty(node)) {
        return config_complain(reader, node,
                               "an operation is NAME, {NAME: VALUE} or {NAME: {PARAMETER: VALUE}}");
    }
    const struct config_op *row = row_find(reader, name);
    if (!row)
        return -EINVAL;
    struct op_spec op = row->initial;
    op.kind = row->kind;
    int rc = 0;
    if (!value || config_node_is_empty(value)) {
        if (row->params & CONFIG_OP_SIZE)
            rc = config_complain(reader, name, "%s needs a size", row->name);
    } else if (value->kind == CONFIG_NODE_MAPPING) {
        rc = params_take(reader, value, row, &op);
    } else {
        rc = short_take(reader, value, row, &op);
    }
    if (rc == 0)
        *ret_op = op;
    return rc;
}
