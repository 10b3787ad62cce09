/* Folds a field's operations into one geometry: see transform.h. The state is the frame (before a
 * resize) or the window (after it) that the operations so far have left, and the flips that lie
 * over it; what acts on a flipped picture is mirrored into the unflipped one. */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "transform/transform.h"
#include "transform/transform_axis.h"
#include "transform/transform_emit.h"

enum { FOLD_SIDE_MAX = 16384 }; /* of what an operation asks for */

struct fold {
    struct transform_geometry geometry;
    struct law_draws draws;
    int32_t width, height; /* of the picture */
    struct law_box real;   /* part of the picture that no crop so far has cut off */
    bool resized;          /* the window counts, not the frame */
    bool drawn_box;        /* the frame was drawn: it is reported as it is */
};

/* What the next operation sees. */
static struct law_box *view_of(struct fold *fold)
{
    return fold->resized ? &fold->geometry.window : &fold->geometry.frame;
}

/* What both have in common; sizes of 0 where that is nothing. */
static struct law_box common(const struct law_box *a, const struct law_box *b)
{
    int64_t x = a->x > b->x ? a->x : b->x;
    int64_t y = a->y > b->y ? a->y : b->y;
    int64_t right_a = (int64_t)a->x + a->width, right_b = (int64_t)b->x + b->width;
    int64_t low_a = (int64_t)a->y + a->height, low_b = (int64_t)b->y + b->height;
    int64_t width = (right_a < right_b ? right_a : right_b) - x;
    int64_t height = (low_a < low_b ? low_a : low_b) - y;
    if (width <= 0 || height <= 0)
        return (struct law_box){0, 0, 0, 0};
    return (struct law_box){(int32_t)x, (int32_t)y, (int32_t)width, (int32_t)height};
}

/* What lies outside the view has been cut off: a later crop that reaches there finds padding. */
static void settle(struct fold *fold)
{
    struct transform_geometry *g = &fold->geometry;
    if (fold->resized)
        g->live = common(&g->live, &g->window);
    else
        fold->real = common(&fold->real, &g->frame);
}

/* Cuts a box of the picture as flipped so far out of the view. */
static void cut(struct fold *fold, const struct law_box *box)
{
    struct law_box *view = view_of(fold);
    settle(fold);
    view->x += fold->geometry.hflip ? view->width - box->x - box->width : box->x;
    view->y += fold->geometry.vflip ? view->height - box->y - box->height : box->y;
    view->width = box->width;
    view->height = box->height;
}

static void resize_to(struct fold *fold, int32_t width, int32_t height, uint32_t filter)
{
    settle(fold);
    fold->geometry.width = width;
    fold->geometry.height = height;
    fold->geometry.filter = filter;
    fold->geometry.window = (struct law_box){0, 0, width, height};
    fold->geometry.live = fold->geometry.window;
    fold->resized = true;
}

static void resize(struct fold *fold, const struct op_spec *op)
{
    const struct law_box *view = view_of(fold);
    int32_t width = op->width, height = op->height;
    if (width == 0) {
        int64_t side = op->height;
        if (view->width <= view->height) {
            width = op->height;
            height = (int32_t)(side * view->height / view->width);
        } else {
            width = (int32_t)(side * view->width / view->height);
        }
    }
    resize_to(fold, width, height, op->filter);
}

/* torchvision's offset of a centre crop; below 0 where the picture is padded. */
static int32_t centre_offset(int32_t side, int32_t crop)
{
    return crop > side ? -((crop - side) / 2) : law_half_even(side - crop);
}

static void center_crop(struct fold *fold, const struct op_spec *op)
{
    const struct law_box *view = view_of(fold);
    int32_t width = op->width != 0 ? op->width : op->height;
    struct law_box box = {centre_offset(view->width, width),
                          centre_offset(view->height, op->height), width, op->height};
    cut(fold, &box);
}

static enum spdl_class random_crop(struct fold *fold, const struct op_spec *op)
{
    const struct law_box *view = view_of(fold);
    struct law_box box;
    int32_t width = op->width != 0 ? op->width : op->height;
    if (!law_random_crop(&fold->draws, view->width, view->height, width, op->height, &box))
        return SPDL_CLASS_OUT_OF_RANGE;
    cut(fold, &box);
    fold->geometry.has_draws = true;
    fold->drawn_box = fold->drawn_box || !fold->resized;
    return SPDL_CLASS_OK;
}

static void random_resized_crop(struct fold *fold, const struct op_spec *op)
{
    const struct law_box *view = view_of(fold);
    struct law_box box =
        law_random_resized_crop(&fold->draws, view->width, view->height, op->scale, op->ratio);
    cut(fold, &box);
    resize_to(fold, op->width != 0 ? op->width : op->height, op->height, op->filter);
    fold->geometry.has_draws = true;
    fold->drawn_box = true;
}

static enum spdl_class apply(struct fold *fold, const struct op_spec *op)
{
    switch (op->kind) {
    case OP_RESIZE:
        resize(fold, op);
        break;
    case OP_CENTER_CROP:
        center_crop(fold, op);
        break;
    case OP_RANDOM_RESIZED_CROP:
        random_resized_crop(fold, op);
        break;
    case OP_RANDOM_CROP:
        return random_crop(fold, op);
    case OP_RANDOM_FLIP:
        fold->geometry.hflip ^= law_flip(&fold->draws, op->p);
        fold->geometry.has_draws = true;
        break;
    case OP_VERTICAL_FLIP:
        fold->geometry.vflip ^= law_flip(&fold->draws, op->p);
        fold->geometry.has_draws = true;
        break;
    default: /* a number from the configuration; transform_check refuses it */
        return SPDL_CLASS_UNSUPPORTED;
    }
    return SPDL_CLASS_OK;
}

struct range {
    int32_t from, to;
};

/* Which pixels of the frame's side the outputs [from, from + count) need; count is at least 1. */
static struct range needed(int32_t frame_size, int32_t size, int32_t from, int32_t count,
                           uint32_t filter)
{
    struct range low = {from, from + 1}, high = {from + count - 1, from + count};
    if (filter != 0 && frame_size != size) {
        struct axis_request request = {.in_size = frame_size, .out_size = size, .filter = filter};
        transform_axis_span(&request, low.from, &low.from, &low.to);
        transform_axis_span(&request, high.from, &high.from, &high.to);
    }
    return (struct range){low.from, high.to};
}

/* The box: what the live part of the window needs, or all of a drawn frame, as far as it exists.
 * Where there is nothing to show it is any one pixel, and nothing is live. */
static void find_box(struct fold *fold)
{
    struct transform_geometry *g = &fold->geometry;
    settle(fold);
    struct law_box want = g->frame;
    if (!fold->drawn_box && g->live.width > 0) {
        struct range x = needed(g->frame.width, g->width, g->live.x, g->live.width, g->filter);
        struct range y = needed(g->frame.height, g->height, g->live.y, g->live.height, g->filter);
        want = (struct law_box){g->frame.x + x.from, g->frame.y + y.from, x.to - x.from,
                                y.to - y.from};
    }
    g->box = common(&want, &fold->real);
    if (g->box.width == 0) {
        g->box = (struct law_box){0, 0, 1, 1};
        g->live = (struct law_box){0, 0, 0, 0};
    }
}

enum spdl_class transform_fold(const struct field_spec *field, uint32_t field_number,
                               const struct law_draws *draws, int32_t width, int32_t height,
                               struct transform_geometry *ret_geometry)
{
    if (width < 1 || height < 1 || width > TRANSFORM_SIDE_MAX || height > TRANSFORM_SIDE_MAX)
        return SPDL_CLASS_LIMIT;
    struct fold fold = {.draws = *draws, .width = width, .height = height};
    fold.draws.field = field_number;
    fold.geometry.frame = fold.real = (struct law_box){0, 0, width, height};
    for (uint32_t i = 0; i < field->op_count; i++) {
        fold.draws.operation = draws->operation + i;
        enum spdl_class class_number = apply(&fold, &field->ops[i]);
        if (class_number != SPDL_CLASS_OK)
            return class_number;
    }
    if (!fold.resized)
        resize_to(&fold, fold.geometry.frame.width, fold.geometry.frame.height, 0);
    find_box(&fold);
    *ret_geometry = fold.geometry;
    return SPDL_CLASS_OK;
}

static int refuse(const struct field_spec *field, uint32_t i, const char *what, struct err *reterr)
{
    return err_set(reterr, -EINVAL, "field %.*s: operation %u: %s", FIELD_NAME_BYTES, field->name,
                   i + 1, what);
}

static bool in_order(const double pair[2], double low, double high)
{
    return pair[0] >= low && pair[0] <= pair[1] && pair[1] <= high;
}

static const char *fault_of(const struct op_spec *op)
{
    const bool flip = op->kind == OP_RANDOM_FLIP || op->kind == OP_VERTICAL_FLIP;
    if (op->kind < OP_RESIZE || op->kind >= OP_KIND_COUNT)
        return "is unknown";
    if (flip)
        return op->p >= 0 && op->p <= 1 ? NULL : "p must be a number from 0 to 1";
    if (op->height < 1 || op->height > FOLD_SIDE_MAX || op->width < 0 || op->width > FOLD_SIDE_MAX)
        return "size must be from 1 to 16384";
    if ((op->kind == OP_RESIZE || op->kind == OP_RANDOM_RESIZED_CROP) &&
        op->filter != FIELD_FILTER_BILINEAR && op->filter != FIELD_FILTER_BICUBIC)
        return "filter must be bilinear or bicubic";
    if (op->kind == OP_RANDOM_RESIZED_CROP && (!in_order(op->scale, 0, 1) || op->scale[1] <= 0))
        return "scale must be two numbers from 0 to 1, the smaller one first";
    if (op->kind == OP_RANDOM_RESIZED_CROP && !in_order(op->ratio, 1e-3, 1e3))
        return "ratio must be two numbers from 0.001 to 1000, the smaller one first";
    return NULL;
}

int transform_check(const struct field_spec *field, struct err *reterr)
{
    uint32_t resizes = 0;
    if (field->op_count > FIELD_OPS_MAX)
        return err_set(reterr, -EINVAL, "field %.*s: at most %d operations", FIELD_NAME_BYTES,
                       field->name, FIELD_OPS_MAX);
    for (uint32_t i = 0; i < field->op_count; i++) {
        const struct op_spec *op = &field->ops[i];
        const char *fault = fault_of(op);
        if (fault)
            return refuse(field, i, fault, reterr);
        resizes += op->kind == OP_RESIZE || op->kind == OP_RANDOM_RESIZED_CROP;
        if (resizes > 1)
            return refuse(field, i,
                          "a second resize cannot be folded into the first; leave one out", reterr);
    }
    if (field->channels != EMIT_CHANNELS && field->channels != 1)
        return err_set(reterr, -EINVAL, "field %.*s: channels must be 1 or 3 for a picture",
                       FIELD_NAME_BYTES, field->name);
    if (transform_emit_value_bytes(field->dtype) == 0)
        return err_set(
            reterr, -EINVAL,
            "field %.*s: dtype must be uint8, float32, float16 or bfloat16 for a picture",
            FIELD_NAME_BYTES, field->name);
    if (field->layout != FIELD_LAYOUT_NHWC && field->layout != FIELD_LAYOUT_NCHW)
        return err_set(reterr, -EINVAL, "field %.*s: layout must be nhwc or nchw for a picture",
                       FIELD_NAME_BYTES, field->name);
    if (!field->normalize)
        return 0;
    if (field->dtype == FIELD_DTYPE_UINT8)
        return err_set(reterr, -EINVAL, "field %.*s: normalize needs a floating dtype",
                       FIELD_NAME_BYTES, field->name);
    for (uint32_t c = 0; c < field->channels; c++) {
        if (!(field->std[c] > 0 && field->std[c] < 1e6 && field->mean[c] > -1e6 &&
              field->mean[c] < 1e6))
            return err_set(reterr, -EINVAL, "field %.*s: normalize: std must be above 0",
                           FIELD_NAME_BYTES, field->name);
    }
    return 0;
}
