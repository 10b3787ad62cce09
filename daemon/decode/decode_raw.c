/* Raw bytes of a fixed size: copied into the row as they are. */
#include "decode/decode.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum spdl_class decode_raw(const struct decode_packet *packet, uint64_t bytes, uint8_t *row,
                           struct decode_fault *ret_fault)
{
    if (packet->bytes == bytes) {
        if (bytes != 0)
            memcpy(row, packet->data, bytes);
        return SPDL_CLASS_OK;
    }
    enum spdl_class class_number = packet->bytes == 0      ? SPDL_CLASS_EMPTY
                                   : packet->bytes < bytes ? SPDL_CLASS_SHORT
                                                           : SPDL_CLASS_LIMIT;
    ret_fault->class_number = class_number;
    ret_fault->byte_offset = packet->bytes < bytes ? packet->bytes : bytes;
    snprintf(ret_fault->message, sizeof ret_fault->message, "it has %zu bytes, a row has %" PRIu64,
             packet->bytes, bytes);
    return class_number;
}
