/* Fields: whether their parts go together, the form of a row, and the canonical text for the plan
 * id. In: what the configuration says. Out: dims, row_bytes, text. Pure, no allocation, any thread.
 */
#include "item/field.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "item/field_value.h"

enum { FIELD_SIDE_MAX = 16384 }; /* of a row's picture, pixels */

static const uint64_t field_row_bytes_max = UINT64_C(1) << 30;
static const uint64_t field_max_pixels_default = UINT64_C(128) << 20;
static const double field_norm_max = 1e6;     /* of mean and std */
static const double field_ratio_max = 1024.0; /* of width / height, either way round */

const char *field_dtype_name(uint32_t dtype)
{
    switch ((enum field_dtype)dtype) {
    case FIELD_DTYPE_UINT8:
        return "uint8";
    case FIELD_DTYPE_INT64:
        return "int64";
    case FIELD_DTYPE_FLOAT32:
        return "float32";
    case FIELD_DTYPE_FLOAT16:
        return "float16";
    case FIELD_DTYPE_BFLOAT16:
        return "bfloat16";
    }
    return NULL;
}

size_t field_dtype_bytes(uint32_t dtype)
{
    switch ((enum field_dtype)dtype) {
    case FIELD_DTYPE_UINT8:
        return 1;
    case FIELD_DTYPE_INT64:
        return 8;
    case FIELD_DTYPE_FLOAT32:
        return 4;
    case FIELD_DTYPE_FLOAT16:
    case FIELD_DTYPE_BFLOAT16:
        return 2;
    }
    return 0;
}

const char *field_layout_name(uint32_t layout)
{
    switch ((enum field_layout)layout) {
    case FIELD_LAYOUT_NHWC:
        return "nhwc";
    case FIELD_LAYOUT_NCHW:
        return "nchw";
    }
    return NULL;
}

const char *field_filter_name(uint32_t filter)
{
    switch ((enum field_filter)filter) {
    case FIELD_FILTER_BILINEAR:
        return "bilinear";
    case FIELD_FILTER_BICUBIC:
        return "bicubic";
    }
    return NULL;
}

const char *op_name(uint32_t kind)
{
    switch ((enum op_kind)kind) {
    case OP_RESIZE:
        return "resize";
    case OP_CENTER_CROP:
        return "center_crop";
    case OP_RANDOM_RESIZED_CROP:
        return "random_resized_crop";
    case OP_RANDOM_CROP:
        return "random_crop";
    case OP_RANDOM_FLIP:
        return "random_flip";
    case OP_VERTICAL_FLIP:
        return "vertical_flip";
    case OP_KIND_COUNT:
        break;
    }
    return NULL;
}

/* A name that can stand in a file's name and in the canonical text: letters, digits, '_', '-' and
 * '.', not empty, not beginning with '.'. */
static bool field_is_name(const char *name, size_t capacity)
{
    const char *end = memchr(name, '\0', capacity);
    if (!end || end == name || name[0] == '.')
        return false;
    for (const char *c = name; c < end; c++) {
        bool is_letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        bool is_digit = *c >= '0' && *c <= '9';
        if (!is_letter && !is_digit && *c != '_' && *c != '-' && *c != '.')
            return false;
    }
    return true;
}

/* Both bounds in [low, high] and in order. Not-a-number is in no range. */
static bool field_is_range(const double range[2], double low, double high)
{
    return range[0] >= low && range[0] <= range[1] && range[1] <= high;
}

/* What any decoder needs: names, parts, lists within their limits. */
static int field_check_common(const struct field_spec *field, struct err *reterr)
{
    if (!field_is_name(field->name, sizeof field->name))
        return err_set(reterr, -EINVAL,
                       "field '%.*s': a name has 1 to %d letters, digits, '_', '-' and '.', and "
                       "does not begin with '.'",
                       FIELD_NAME_BYTES - 1, field->name, FIELD_NAME_BYTES - 1);
    if (!memchr(field->decoder, '\0', sizeof field->decoder))
        return err_set(reterr, -EINVAL, "field '%s': the decoder's name is too long", field->name);
    if (field->from_count == 0)
        return err_set(reterr, -EINVAL,
                       "field '%s': from is empty; name the part that it is made from, such as "
                       "from: jpg",
                       field->name);
    if (field->from_count > FIELD_FROM_MAX)
        return err_set(reterr, -EINVAL,
                       "field '%s': from names %" PRIu32 " parts and may name at most %d",
                       field->name, field->from_count, (int)FIELD_FROM_MAX);
    for (uint32_t i = 0; i < field->from_count; i++)
        if (!field_is_name(field->from[i], sizeof field->from[i]))
            return err_set(reterr, -EINVAL,
                           "field '%s': '%.*s' in from is no part's name; a part's name has 1 to "
                           "%d letters, digits, '_', '-' and '.'",
                           field->name, FIELD_PART_BYTES - 1, field->from[i], FIELD_PART_BYTES - 1);
    if (field->op_count > FIELD_OPS_MAX)
        return err_set(reterr, -EINVAL,
                       "field '%s': %" PRIu32 " operations are more than the limit of %d",
                       field->name, field->op_count, (int)FIELD_OPS_MAX);
    return 0;
}

static bool op_has_filter(uint32_t kind)
{
    return kind == OP_RESIZE || kind == OP_RANDOM_RESIZED_CROP;
}

static bool op_is_flip(uint32_t kind)
{
    return kind == OP_RANDOM_FLIP || kind == OP_VERTICAL_FLIP;
}

static int field_check_op(const struct field_spec *field, const struct op_spec *op,
                          struct err *reterr)
{
    const char *name = op_name(op->kind);
    if (!name)
        return err_set(reterr, -EINVAL, "field '%s': there is no operation number %" PRIu32,
                       field->name, op->kind);
    if (op_is_flip(op->kind)) {
        if (!(op->p >= 0.0 && op->p <= 1.0))
            return err_set(reterr, -EINVAL, "field '%s': p of %s is %g and must be 0 to 1",
                           field->name, name, op->p);
        return 0;
    }
    const int32_t width_min = op->kind == OP_RESIZE ? 0 : 1;
    if (op->height < 1 || op->height > FIELD_SIDE_MAX || op->width < width_min ||
        op->width > FIELD_SIDE_MAX)
        return err_set(reterr, -EINVAL,
                       "field '%s': size of %s is %" PRId32 " x %" PRId32
                       " and each side must be 1 to %d pixels",
                       field->name, name, op->height, op->width, FIELD_SIDE_MAX);
    if (op_has_filter(op->kind) && !field_filter_name(op->filter))
        return err_set(reterr, -EINVAL,
                       "field '%s': filter of %s is number %" PRIu32
                       " and must be bilinear or bicubic",
                       field->name, name, op->filter);
    if (op->kind != OP_RANDOM_RESIZED_CROP)
        return 0;
    if (!field_is_range(op->scale, DBL_MIN, 1.0))
        return err_set(reterr, -EINVAL,
                       "field '%s': scale of %s is [%g, %g] and must be two numbers in order, "
                       "above 0 and at most 1",
                       field->name, name, op->scale[0], op->scale[1]);
    if (!field_is_range(op->ratio, 1.0 / field_ratio_max, field_ratio_max))
        return err_set(reterr, -EINVAL,
                       "field '%s': ratio of %s is [%g, %g] and must be two numbers in order, "
                       "from 1/%g to %g",
                       field->name, name, op->ratio[0], op->ratio[1], field_ratio_max,
                       field_ratio_max);
    return 0;
}

/* Checks the operations and finds the size that every row has after them. */
static int field_check_ops(const struct field_spec *field, uint64_t *ret_height,
                           uint64_t *ret_width, struct err *reterr)
{
    uint64_t height = 0;
    uint64_t width = 0;
    for (uint32_t i = 0; i < field->op_count; i++) {
        const struct op_spec *op = &field->ops[i];
        int rc = field_check_op(field, op, reterr);
        if (rc < 0)
            return rc;
        if (op_is_flip(op->kind))
            continue;
        height = (uint64_t)op->height;
        width = (uint64_t)op->width; /* 0: it differs from picture to picture */
    }
    if (width == 0)
        return err_set(reterr, -EINVAL,
                       "field '%s': its rows would differ in size from picture to picture; end "
                       "its ops with resize: [h, w], center_crop, random_crop or "
                       "random_resized_crop",
                       field->name);
    *ret_height = height;
    *ret_width = width;
    return 0;
}

static int field_check_normalize(const struct field_spec *field, struct err *reterr)
{
    if (!field->normalize)
        return 0;
    if (field->dtype == FIELD_DTYPE_UINT8)
        return err_set(reterr, -EINVAL,
                       "field '%s': normalize needs a dtype with fractions and this one is uint8; "
                       "use dtype: float32, float16 or bfloat16, or leave normalize out",
                       field->name);
    for (uint32_t i = 0; i < field->channels; i++) {
        bool is_mean = field->mean[i] >= -field_norm_max && field->mean[i] <= field_norm_max;
        bool is_std = field->std[i] >= 1.0 / field_norm_max && field->std[i] <= field_norm_max;
        if (!is_mean || !is_std)
            return err_set(reterr, -EINVAL,
                           "field '%s': normalize has mean %g and std %g for channel %" PRIu32
                           "; mean must be -%g to %g and std %g to %g",
                           field->name, field->mean[i], field->std[i], i, field_norm_max,
                           field_norm_max, 1.0 / field_norm_max, field_norm_max);
    }
    return 0;
}

static int field_check_image_form(struct field_spec *field, struct err *reterr)
{
    if (field->channels == 0)
        field->channels = 3;
    if (field->channels != 3 && field->channels != 1)
        return err_set(reterr, -EINVAL,
                       "field '%s': %" PRIu32 " channels%s are not in this version; use 3 (rgb) or "
                       "1 (gray)",
                       field->name, field->channels, field->channels == 4 ? " (rgba)" : "");
    if (field->layout == 0)
        field->layout = FIELD_LAYOUT_NHWC;
    if (!field_layout_name(field->layout))
        return err_set(reterr, -EINVAL,
                       "field '%s': layout is number %" PRIu32 " and must be nhwc or nchw",
                       field->name, field->layout);
    if (field->dtype == 0)
        field->dtype = FIELD_DTYPE_UINT8;
    const char *dtype = field_dtype_name(field->dtype);
    if (!dtype || field->dtype == FIELD_DTYPE_INT64)
        return err_set(reterr, -EINVAL,
                       "field '%s': decode: image cannot give dtype %s; use uint8, float32, "
                       "float16 or bfloat16",
                       field->name, dtype ? dtype : "unknown");
    return 0;
}

static int field_finish_image(struct field_spec *field, struct err *reterr)
{
    uint64_t height = 0;
    uint64_t width = 0;
    int rc = field_value_check_none(field, reterr);
    if (rc == 0)
        rc = field_check_image_form(field, reterr);
    if (rc == 0)
        rc = field_check_normalize(field, reterr);
    if (rc == 0)
        rc = field_check_ops(field, &height, &width, reterr);
    if (rc < 0)
        return rc;
    if (field->views > FIELD_VIEWS_MAX)
        return err_set(reterr, -EINVAL, "field '%s': views is %" PRIu32 " and may be at most %d",
                       field->name, field->views, (int)FIELD_VIEWS_MAX);
    const bool is_nchw = field->layout == FIELD_LAYOUT_NCHW;
    uint64_t *dims = field->dims;
    if (field->views > 0)
        *dims++ = field->views;
    field->dim_count = field->views > 0 ? 4 : 3;
    dims[0] = is_nchw ? field->channels : height;
    dims[1] = is_nchw ? height : width;
    dims[2] = is_nchw ? width : field->channels;
    if (field->max_pixels == 0)
        field->max_pixels = field_max_pixels_default;
    return 0;
}

/* Overflow-safe product of the dims and the size of an element. */
static int field_size_row(struct field_spec *field, struct err *reterr)
{
    uint64_t bytes = field_dtype_bytes(field->dtype);
    for (uint32_t i = 0; i < field->dim_count; i++) {
        ASSERT(bytes >= 1); /* dtype and dims were checked */
        if (field->dims[i] > field_row_bytes_max / bytes)
            return err_set(reterr, -EINVAL,
                           "field '%s': a row would take more than the limit of %" PRIu64
                           " bytes; make its size smaller",
                           field->name, field_row_bytes_max);
        bytes *= field->dims[i];
    }
    field->row_bytes = bytes;
    return 0;
}

int field_finish(struct field_spec *field, struct err *reterr)
{
    int rc = field_check_common(field, reterr);
    if (rc < 0)
        return rc;
    field->dim_count = 0;
    field->ragged = 0;
    memset(field->dims, 0, sizeof field->dims);
    rc = strcmp(field->decoder, "image") == 0 ? field_finish_image(field, reterr)
                                              : field_value_finish(field, reterr);
    if (rc < 0)
        return rc;
    if (!field->ragged)
        return field_size_row(field, reterr);
    field->row_bytes = field_value_room(field);
    return 0;
}

void field_set_largest(struct field_spec *field, uint64_t largest_bytes)
{
    field->largest_bytes = largest_bytes;
    if (field->ragged)
        field->row_bytes = field_value_room(field);
}

/* Text that grows until it no longer fits; then `used` stays above capacity. */
struct field_text {
    char *text;
    size_t capacity;
    size_t used;
};

static void field_put(struct field_text *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void field_put(struct field_text *out, const char *format, ...)
{
    if (out->used >= out->capacity) {
        out->used = SIZE_MAX;
        return;
    }
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out->text + out->used, out->capacity - out->used, format, args);
    va_end(args);
    out->used = n < 0 ? SIZE_MAX : out->used + (size_t)n;
}

/* A double as the 16 hexadecimal digits of its bits; -0 is written as 0, which it equals. */
static void field_put_double(struct field_text *out, double value)
{
    double positive = value == 0.0 ? 0.0 : value;
    uint64_t bits;
    memcpy(&bits, &positive, sizeof bits);
    field_put(out, " %016" PRIx64, bits);
}

/* An operation with the parameters that it has, and no other. */
static void field_put_op(struct field_text *out, const struct op_spec *op)
{
    field_put(out, "op %s", op_name(op->kind));
    if (op_is_flip(op->kind)) {
        field_put_double(out, op->p);
    } else {
        field_put(out, " %" PRId32 " %" PRId32, op->height, op->width);
        if (op_has_filter(op->kind))
            field_put(out, " %s", field_filter_name(op->filter));
        if (op->kind == OP_RANDOM_RESIZED_CROP) {
            field_put_double(out, op->scale[0]);
            field_put_double(out, op->scale[1]);
            field_put_double(out, op->ratio[0]);
            field_put_double(out, op->ratio[1]);
        }
    }
    field_put(out, "\n");
}

static void field_put_image(struct field_text *out, const struct field_spec *field)
{
    field_put(out, "layout %s\nchannels %" PRIu32 "\norientation %s\nmax_pixels %" PRIu64 "\n",
              field_layout_name(field->layout), field->channels,
              field->ignore_orientation ? "ignored" : "applied", field->max_pixels);
    if (field->views > 0)
        field_put(out, "views %" PRIu32 "\n", field->views);
    if (field->normalize) {
        field_put(out, "mean");
        for (uint32_t i = 0; i < field->channels; i++)
            field_put_double(out, field->mean[i]);
        field_put(out, "\nstd");
        for (uint32_t i = 0; i < field->channels; i++)
            field_put_double(out, field->std[i]);
        field_put(out, "\n");
    }
    for (uint32_t i = 0; i < field->op_count; i++)
        field_put_op(out, &field->ops[i]);
}

int field_canonical(const struct field_spec *field, char *text, size_t capacity)
{
    struct field_text out = {.text = text, .capacity = capacity};
    field_put(&out, "field %s\ndecode %s\nfrom", field->name, field->decoder);
    for (uint32_t i = 0; i < field->from_count; i++)
        field_put(&out, " %s", field->from[i]);
    field_put(&out, "\ndtype %s\ndims%s", field_dtype_name(field->dtype),
              field->ragged ? " ragged" : "");
    for (uint32_t i = 0; i < field->dim_count; i++)
        field_put(&out, " %" PRIu64, field->dims[i]);
    field_put(&out, "\n");
    if (field->ragged && field->max_bytes != 0)
        field_put(&out, "max_bytes %" PRIu64 "\n", field->max_bytes);
    if (field->missing_empty)
        field_put(&out, "missing empty\n");
    if (strcmp(field->decoder, "image") == 0)
        field_put_image(&out, field);
    field_put(&out, "end\n");
    return out.used >= out.capacity ? -ENOSPC : (int)out.used;
}

void field_missing_text(const struct field_spec *field, char *text, size_t room)
{
    size_t used =
        (size_t)snprintf(text, room, "no part for the field %s, which is made from", field->name);
    for (uint32_t n = 0; n < field->from_count; n++) {
        bool is_last = n + 1 == field->from_count;
        size_t name_bytes = strnlen(field->from[n], FIELD_PART_BYTES);
        if (used + 4 + name_bytes + (is_last ? 1 : 8) > room) { /* " or " or " or ... or ..." */
            if (used + 8 <= room)
                snprintf(text + used, room - used, n ? " or ..." : " ...");
            return;
        }
        used += (size_t)snprintf(text + used, room - used, "%s %s", n ? " or" : "", field->from[n]);
    }
}
