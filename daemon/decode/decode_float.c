/* A number that is stored as decimal text: "0.25", " -3\n", "1e-7". White space around it, one
 * sign, a point and an exponent are allowed, nothing else: no hexadecimal, no infinity, no name of
 * a number that is none. Rounded once, to the nearest float. The worker sets no locale, so the
 * point is a point. */
#include "decode/decode.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 1024 }; /* of a number, with all that is in it */

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

static size_t skip_digits(const char *text, size_t at)
{
    while (text[at] >= '0' && text[at] <= '9')
        at++;
    return at;
}

/* Where the number that begins the text ends; 0: none begins it. The text ends with 0. */
static size_t number_end(const char *text)
{
    size_t at = text[0] == '-' || text[0] == '+' ? 1 : 0;
    size_t whole = skip_digits(text, at);
    size_t digits = whole - at;
    at = whole;
    if (text[at] == '.') {
        size_t fraction = skip_digits(text, at + 1);
        digits += fraction - (at + 1);
        at = fraction;
    }
    if (digits == 0)
        return 0;
    if (text[at] == 'e' || text[at] == 'E') {
        size_t sign = text[at + 1] == '-' || text[at + 1] == '+' ? 1 : 0;
        size_t end = skip_digits(text, at + 1 + sign);
        if (end > at + 1 + sign)
            at = end;
    }
    return at;
}

enum spdl_class decode_float_text(const struct decode_packet *packet, float *ret_value,
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
    char text[DIGITS_MAX + 1];
    if (end - at > DIGITS_MAX)
        return fail(ret_fault, SPDL_CLASS_LIMIT, at, "the number has more than 1024 characters");
    memcpy(text, data + at, end - at);
    text[end - at] = '\0';
    size_t length = number_end(text);
    if (length != end - at)
        return fail(ret_fault, SPDL_CLASS_BAD_FORMAT, at + length, "it is not a decimal number");
    float value = strtof(text, NULL);
    if (!(value >= -FLT_MAX && value <= FLT_MAX))
        return fail(ret_fault, SPDL_CLASS_LIMIT, at, "the number does not fit in a float32");
    *ret_value = value;
    return SPDL_CLASS_OK;
}
