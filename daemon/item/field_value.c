/* Fields that are no pictures: whether their parts go together, and the form of a row. Bytes have
 * one size, or are filled up with zeroes, or are ragged; numbers are one a row. Pure. */
#include "item/field_value.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

enum { FIELD_SUFFIX_BYTES = sizeof ".offsets" - 1 }; /* behind the name of a ragged field */

struct field_value {
    const char *decoder;
    uint32_t dtype;
    bool is_bytes;   /* takes max_bytes and pad */
    bool takes_size; /* takes bytes */
    uint32_t pad;    /* what max_bytes means when nothing is said */
};

static const struct field_value field_values[] = {
    {"class", FIELD_DTYPE_INT64, false, false, FIELD_PAD_AUTO},
    {"int", FIELD_DTYPE_INT64, false, false, FIELD_PAD_AUTO},
    {"float", FIELD_DTYPE_FLOAT32, false, false, FIELD_PAD_AUTO},
    {"raw", FIELD_DTYPE_UINT8, true, true, FIELD_PAD_NO},
    {"text", FIELD_DTYPE_UINT8, true, false, FIELD_PAD_YES},
    {"json", FIELD_DTYPE_UINT8, true, false, FIELD_PAD_YES},
};

/* What only pictures have is refused elsewhere, so that nobody believes that it does something. */
static int field_check_no_image(const struct field_spec *field, struct err *reterr)
{
    const char *what = NULL;
    if (field->op_count > 0)
        what = "ops";
    else if (field->normalize)
        what = "normalize";
    else if (field->layout != 0)
        what = "layout";
    else if (field->channels != 0)
        what = "channels";
    else if (field->views != 0)
        what = "views";
    if (!what)
        return 0;
    return err_set(reterr, -EINVAL,
                   "field '%s': %s goes with decode: image and this is decode: %s; leave it out",
                   field->name, what, field->decoder);
}

static int field_check_no_size(const struct field_spec *field, struct err *reterr)
{
    if (field->bytes == 0)
        return 0;
    return err_set(reterr, -EINVAL,
                   "field '%s': bytes goes with decode: raw and this is decode: %s; leave it out",
                   field->name, field->decoder);
}

int field_value_check_none(const struct field_spec *field, struct err *reterr)
{
    int rc = field_check_no_size(field, reterr);
    if (rc < 0 || (field->max_bytes == 0 && field->pad == FIELD_PAD_AUTO))
        return rc;
    return err_set(reterr, -EINVAL,
                   "field '%s': %s goes with decode: raw, text or json and this is decode: %s; "
                   "leave it out",
                   field->name, field->max_bytes != 0 ? "max_bytes" : "pad", field->decoder);
}

static int field_check_dtype(struct field_spec *field, uint32_t wanted, struct err *reterr)
{
    if (field->dtype == 0)
        field->dtype = wanted;
    if (field->dtype == wanted)
        return 0;
    const char *name = field_dtype_name(field->dtype);
    return err_set(reterr, -EINVAL,
                   "field '%s': decode: %s gives %s, and the dtype asked for is %s", field->name,
                   field->decoder, field_dtype_name(wanted), name ? name : "an unknown one");
}

static int field_finish_sized(struct field_spec *field, struct err *reterr)
{
    if (field->max_bytes != 0 || field->pad != FIELD_PAD_AUTO)
        return err_set(reterr, -EINVAL,
                       "field '%s': bytes gives every row its size, so %s has no effect; leave one "
                       "of them out",
                       field->name, field->max_bytes != 0 ? "max_bytes" : "pad");
    field->dim_count = 1;
    field->dims[0] = field->bytes;
    return 0;
}

static int field_finish_bytes(struct field_spec *field, const struct field_value *value,
                              struct err *reterr)
{
    if (field->max_bytes > FIELD_MAX_BYTES_LIMIT)
        return err_set(reterr, -EINVAL,
                       "field '%s': max_bytes is %" PRIu64 " and may be at most %d", field->name,
                       field->max_bytes, FIELD_MAX_BYTES_LIMIT);
    if (field->pad == FIELD_PAD_AUTO)
        field->pad = field->max_bytes != 0 ? value->pad : (uint32_t)FIELD_PAD_NO;
    if (field->pad != FIELD_PAD_YES && field->pad != FIELD_PAD_NO)
        return err_set(reterr, -EINVAL, "field '%s': pad is number %" PRIu32, field->name,
                       field->pad);
    if (field->pad == FIELD_PAD_YES && field->max_bytes == 0)
        return err_set(reterr, -EINVAL,
                       "field '%s': pad needs max_bytes: the size that rows are filled up to",
                       field->name);
    if (field->pad == FIELD_PAD_YES) {
        field->dim_count = 1;
        field->dims[0] = field->max_bytes;
        return 0;
    }
    if (strlen(field->name) + FIELD_SUFFIX_BYTES >= sizeof field->name)
        return err_set(reterr, -EINVAL,
                       "field '%s': its rows differ in length, so it comes as NAME.values and "
                       "NAME.offsets, and its name may have at most %d letters",
                       field->name, FIELD_NAME_BYTES - 1 - FIELD_SUFFIX_BYTES);
    field->ragged = 1;
    return 0;
}

uint64_t field_value_room(const struct field_spec *field)
{
    uint64_t most = field->max_bytes != 0 ? field->max_bytes : FIELD_MAX_BYTES_LIMIT;
    if (field->largest_bytes == 0)
        return field->max_bytes;
    return field->largest_bytes < most ? field->largest_bytes : most;
}

int field_value_finish(struct field_spec *field, struct err *reterr)
{
    const struct field_value *value = NULL;
    for (size_t i = 0; i < sizeof field_values / sizeof field_values[0]; i++)
        if (strcmp(field->decoder, field_values[i].decoder) == 0)
            value = &field_values[i];
    if (!value)
        return err_set(reterr, -EINVAL,
                       "field '%s': there is no decoder '%s' in this version; decode is one of "
                       "image, class, raw, text, json, int and float",
                       field->name, field->decoder);
    int rc = field_check_no_image(field, reterr);
    if (rc == 0 && !value->takes_size)
        rc = field_check_no_size(field, reterr);
    if (rc == 0 && !value->is_bytes)
        rc = field_value_check_none(field, reterr);
    if (rc == 0)
        rc = field_check_dtype(field, value->dtype, reterr);
    if (rc < 0 || !value->is_bytes)
        return rc;
    return field->bytes != 0 ? field_finish_sized(field, reterr)
                             : field_finish_bytes(field, value, reterr);
}
