/* A class label that is stored as decimal text: "17", " -3\n". White space around it and one sign
 * are allowed, nothing else. */
#include "decode/decode.h"

#include <stdio.h>
#include <string.h>

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static enum spdl_class fail(struct decode_fault *fault, enum spdl_class class_number, size_t offset,
                            const char *message)
{
    fault->class_number = class_number;
    fault->byte_offset = offset;
    snprintf(fault->message, sizeof fault->message, "%s", message);
    return class_number;
}

enum spdl_class decode_class_text(const struct decode_packet *packet, int64_t *ret_value,
                                  struct decode_fault *ret_fault)
{
    const uint8_t *data = packet->data;
    size_t at = 0, end = packet->bytes;
    while (at < end && is_space(data[at]))
        at++;
    while (end > at && is_space(data[end - 1]))
        end--;
    if (at == end)
        return fail(ret_fault, SPDL_CLASS_EMPTY, 0, "there is no number in it");
    bool negative = data[at] == '-';
    if (negative || data[at] == '+')
        at++;
    if (at == end)
        return fail(ret_fault, SPDL_CLASS_BAD_FORMAT, at, "a sign without a number");
    int64_t value = 0; /* kept negative: the range of negative numbers is the larger one */
    for (; at < end; at++) {
        if (data[at] < '0' || data[at] > '9')
            return fail(ret_fault, SPDL_CLASS_BAD_FORMAT, at, "it is not a decimal number");
        if (__builtin_mul_overflow(value, (int64_t)10, &value) ||
            __builtin_sub_overflow(value, (int64_t)(data[at] - '0'), &value))
            return fail(ret_fault, SPDL_CLASS_LIMIT, at, "the number does not fit in 64 bits");
    }
    if (!negative && __builtin_sub_overflow((int64_t)0, value, &value))
        return fail(ret_fault, SPDL_CLASS_LIMIT, at, "the number does not fit in 64 bits");
    *ret_value = value;
    return SPDL_CLASS_OK;
}
