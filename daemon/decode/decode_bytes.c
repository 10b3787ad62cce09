/* Bytes as they are, in rows that have room for more than most need: text, raw parts, JSON. */
#include "decode/decode.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum spdl_class decode_bytes(const struct decode_packet *packet, uint64_t room_bytes, uint8_t *row,
                             struct decode_fault *ret_fault)
{
    if (packet->bytes > room_bytes) {
        ret_fault->class_number = SPDL_CLASS_LIMIT;
        ret_fault->byte_offset = room_bytes;
        snprintf(ret_fault->message, sizeof ret_fault->message,
                 "it has %zu bytes, a row has room for %" PRIu64, packet->bytes, room_bytes);
        return SPDL_CLASS_LIMIT;
    }
    if (packet->bytes != 0)
        memcpy(row, packet->data, packet->bytes);
    return SPDL_CLASS_OK;
}
