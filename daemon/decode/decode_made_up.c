/* Bytes that are made up from a sample's id: what a synthetic sample consists of.
 *
 * Definition (format version 1; frozen). All arithmetic is modulo 2^64.
 *   mix(z):  z = (z xor (z >> 30)) * 0xbf58476d1ce4e5b9
 *            z = (z xor (z >> 27)) * 0x94d049bb133111eb
 *            z xor (z >> 31)
 *   step   = 0x9e3779b97f4a7c15
 *   key    = mix(id + step)
 *   word i = mix(key + i * step), i = 0, 1, 2, ...
 * The bytes are the words one behind the other, each with its low byte first; the last word is cut
 * to the bytes that are asked for. */
#include "decode/decode.h"

#include <string.h>

static const uint64_t step = UINT64_C(0x9e3779b97f4a7c15);

static inline uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t low_byte_first(uint64_t word)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

void decode_made_up(uint64_t id, uint64_t bytes, uint8_t *row)
{
    uint64_t at = mix(id + step);
    uint64_t whole = bytes / 8;
    for (uint64_t i = 0; i < whole; i++, at += step) {
        uint64_t word = low_byte_first(mix(at));
        memcpy(row + 8 * i, &word, 8);
    }
    if (bytes % 8 != 0) {
        uint64_t word = low_byte_first(mix(at));
        memcpy(row + 8 * whole, &word, bytes % 8);
    }
}
