/* Whether bytes are one JSON text (RFC 8259) and nothing else. The bytes are only looked at.
 *
 * Classes: EMPTY when there is nothing but white space, BAD_FORMAT when the first byte begins no
 * JSON value, TRUNCATED when it ends before its value does, LIMIT when it is nested too deep,
 * CORRUPT for all else. */
#include "decode/decode.h"

#include <stdio.h>

#include "base/json.h"

static enum spdl_class fail(struct decode_fault *fault, enum spdl_class class_number, size_t at,
                            const char *message)
{
    fault->class_number = class_number;
    fault->byte_offset = at;
    snprintf(fault->message, sizeof fault->message, "%s", message);
    return class_number;
}

static enum spdl_class class_of(enum json_fault fault)
{
    switch (fault) {
    case JSON_ENDS:
        return SPDL_CLASS_TRUNCATED;
    case JSON_DEEP:
        return SPDL_CLASS_LIMIT;
    case JSON_WRONG:
        break;
    }
    return SPDL_CLASS_CORRUPT;
}

enum spdl_class decode_json_check(const struct decode_packet *packet,
                                  struct decode_fault *ret_fault)
{
    struct json_scan scan;
    scan.data = packet->data;
    scan.at = 0;
    scan.end = packet->bytes;
    json_space(&scan);
    size_t first = scan.at;
    if (scan.at == scan.end)
        return fail(ret_fault, SPDL_CLASS_EMPTY, scan.at, "there is no JSON in it");
    if (!json_value(&scan)) {
        enum spdl_class class_number = class_of(scan.fault);
        if (scan.at == first && class_number == SPDL_CLASS_CORRUPT)
            class_number = SPDL_CLASS_BAD_FORMAT;
        return fail(ret_fault, class_number, scan.at, scan.message);
    }
    json_space(&scan);
    if (scan.at < scan.end)
        return fail(ret_fault, SPDL_CLASS_CORRUPT, scan.at, "there is more behind the value");
    return SPDL_CLASS_OK;
}
