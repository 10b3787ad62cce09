/* PNG from made-up bytes: as they are, and with the checksums of all chunks put right, without
 * which nothing behind them would be reached. */
#include "decode/decode_png.h"
#include "tests/fuzz/fuzz_picture.h"

enum { SIGNATURE_BYTES = 8, CHUNK_EXTRA_BYTES = 12 };

static uint32_t checksum(const uint8_t *data, size_t bytes)
{
    uint32_t sum = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        sum ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            sum = (sum & 1) != 0 ? sum >> 1 ^ UINT32_C(0xEDB88320) : sum >> 1;
    }
    return ~sum;
}

static void repair(uint8_t *data, size_t bytes)
{
    for (size_t at = SIGNATURE_BYTES; bytes - at >= CHUNK_EXTRA_BYTES;) {
        size_t length = (size_t)data[at] << 24 | (size_t)data[at + 1] << 16 |
                        (size_t)data[at + 2] << 8 | data[at + 3];
        if (length > bytes - at - CHUNK_EXTRA_BYTES)
            return;
        uint32_t sum = checksum(data + at + 4, length + 4);
        for (size_t i = 0; i < 4; i++)
            data[at + 8 + length + i] = (uint8_t)(sum >> (24 - 8 * i));
        at += CHUNK_EXTRA_BYTES + length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_picture(&decode_png_ops, data, bytes);
    if (bytes < SIGNATURE_BYTES)
        return 0;
    uint8_t *copy = malloc(bytes);
    if (copy == NULL)
        abort();
    memcpy(copy, data, bytes);
    repair(copy, bytes);
    fuzz_picture(&decode_png_ops, copy, bytes);
    free(copy);
    return 0;
}
