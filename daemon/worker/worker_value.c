/* Fields that are no pictures: see worker_value.h. */
#include "worker/worker_value.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"

static enum spdl_class fault_set(struct decode_fault *fault, enum spdl_class class_number,
                                 const char *message)
{
    fault->class_number = class_number;
    fault->byte_offset = UINT64_MAX;
    snprintf(fault->message, sizeof fault->message, "%s", message);
    return class_number;
}

static enum spdl_class run_integer(const struct worker_value *value, struct decode_fault *fault)
{
    int64_t number = 0;
    switch ((enum spdl_work_part_kind)value->part->kind) {
    case SPDL_WORK_PART_INTEGER:
        number = (int64_t)value->part->value;
        break;
    case SPDL_WORK_PART_BLOB: {
        enum spdl_class class_number = decode_class_text(&value->packet, &number, fault);
        if (class_number != SPDL_CLASS_OK)
            return class_number;
        break;
    }
    case SPDL_WORK_PART_MADE_UP:
        return fault_set(fault, SPDL_CLASS_BAD_FORMAT, "made-up bytes are no number");
    }
    memcpy(value->to, &number, sizeof number);
    return SPDL_CLASS_OK;
}

static enum spdl_class run_float(const struct worker_value *value, struct decode_fault *fault)
{
    float number = 0;
    switch ((enum spdl_work_part_kind)value->part->kind) {
    case SPDL_WORK_PART_INTEGER:
        number = (float)(int64_t)value->part->value;
        break;
    case SPDL_WORK_PART_BLOB: {
        enum spdl_class class_number = decode_float_text(&value->packet, &number, fault);
        if (class_number != SPDL_CLASS_OK)
            return class_number;
        break;
    }
    case SPDL_WORK_PART_MADE_UP:
        return fault_set(fault, SPDL_CLASS_BAD_FORMAT, "made-up bytes are no number");
    }
    memcpy(value->to, &number, sizeof number);
    return SPDL_CLASS_OK;
}

/* Raw bytes of one size. */
static enum spdl_class run_sized(const struct worker_value *value, struct decode_fault *fault)
{
    const struct spdl_work_part *part = value->part;
    uint64_t row_bytes = value->field->row_bytes;
    if (part->kind == SPDL_WORK_PART_BLOB)
        return decode_raw(&value->packet, row_bytes, value->to, fault);
    if (part->bytes != row_bytes)
        return fault_set(fault, part->bytes < row_bytes ? SPDL_CLASS_SHORT : SPDL_CLASS_LIMIT,
                         "a sample's made-up bytes are not as many as a row has");
    decode_made_up(part->value, row_bytes, value->to);
    return SPDL_CLASS_OK;
}

/* Bytes whose number differs from row to row. */
static enum spdl_class run_bytes(const struct worker_value *value, uint32_t *ret_bytes,
                                 struct decode_fault *fault)
{
    const struct spdl_work_part *part = value->part;
    uint64_t room = value->field->row_bytes;
    enum spdl_class class_number = SPDL_CLASS_OK;
    if (part->kind == SPDL_WORK_PART_MADE_UP && part->bytes > room)
        class_number = fault_set(fault, SPDL_CLASS_LIMIT,
                                 "a sample's made-up bytes are more than a row has room for");
    else if (part->kind == SPDL_WORK_PART_MADE_UP)
        decode_made_up(part->value, part->bytes, value->to);
    else
        class_number = decode_bytes(&value->packet, room, value->to, fault);
    if (class_number != SPDL_CLASS_OK)
        return class_number;
    if (value->field->ragged)
        *ret_bytes = (uint32_t)part->bytes;
    else
        memset(value->to + part->bytes, 0, room - part->bytes);
    return SPDL_CLASS_OK;
}

enum spdl_class worker_value_run(const struct worker_value *value, uint32_t *ret_bytes,
                                 struct decode_fault *ret_fault)
{
    enum spdl_class class_number = SPDL_CLASS_OK;
    *ret_bytes = 0;
    switch (value->decoder) {
    case WORKER_DECODER_IMAGE:
        break;
    case WORKER_DECODER_INTEGER:
        return run_integer(value, ret_fault);
    case WORKER_DECODER_FLOAT:
        return run_float(value, ret_fault);
    case WORKER_DECODER_RAW:
    case WORKER_DECODER_TEXT:
    case WORKER_DECODER_JSON:
        if (value->part->kind == SPDL_WORK_PART_INTEGER)
            return fault_set(ret_fault, SPDL_CLASS_BAD_FORMAT,
                             "it is a number; decode it as int, class or float");
        if (value->decoder == WORKER_DECODER_JSON && value->part->kind == SPDL_WORK_PART_MADE_UP)
            return fault_set(ret_fault, SPDL_CLASS_BAD_FORMAT, "made-up bytes are no JSON");
        if (value->field->bytes != 0)
            return run_sized(value, ret_fault);
        if (value->decoder == WORKER_DECODER_JSON)
            class_number = decode_json_check(&value->packet, ret_fault);
        return class_number == SPDL_CLASS_OK ? run_bytes(value, ret_bytes, ret_fault)
                                             : class_number;
    }
    ASSERT(false);
    return SPDL_CLASS_UNSUPPORTED;
}
