/* SHA-256 by its definition (FIPS 180-4). The constants are the fractions of the roots of the first
 * primes; they are worked out in place of being written down. */
#include "tests/lib/sha256.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint32_t turn(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

__extension__ typedef unsigned __int128 wide;

/* The first 32 bits behind the point of the root of n. */
static uint32_t root_fraction(uint64_t n, int degree)
{
    uint64_t root = 0;
    for (int bit = 36; bit >= 0; bit--) {
        wide trial = root | UINT64_C(1) << bit;
        wide power = degree == 2 ? trial * trial : trial * trial * trial;
        if (power <= (wide)n << 32 * degree)
            root = (uint64_t)trial;
    }
    return (uint32_t)root;
}

static void constants(uint32_t start[8], uint32_t round[64])
{
    int found = 0;
    for (int n = 2; found < 64; n++) {
        int prime = 1;
        for (int d = 2; d * d <= n; d++)
            prime = prime && n % d;
        if (!prime)
            continue;
        if (found < 8)
            start[found] = root_fraction((uint64_t)n, 2);
        round[found++] = root_fraction((uint64_t)n, 3);
    }
}

static void block_take(uint32_t state[8], const uint32_t constant[64], const uint8_t block[64])
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
               (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t e = v[4], a = v[0];
        uint32_t one = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) +
                       ((e & v[5]) ^ (~e & v[6])) + constant[i] + w[i];
        uint32_t two =
            (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

void sha256_text(const void *data, size_t bytes, char ret_text[65])
{
    uint32_t state[8], constant[64];
    uint8_t tail[128] = {0};
    const uint8_t *at = data;
    size_t left = bytes, tail_bytes;
    constants(state, constant);
    for (; left >= 64; at += 64, left -= 64)
        block_take(state, constant, at);
    if (left > 0)
        memcpy(tail, at, left);
    tail[left] = 0x80;
    tail_bytes = left < 56 ? 64 : 128;
    for (int i = 0; i < 8; i++)
        tail[tail_bytes - 1 - (size_t)i] = (uint8_t)((uint64_t)bytes * 8 >> 8 * i);
    for (size_t i = 0; i < tail_bytes; i += 64)
        block_take(state, constant, tail + i);
    for (int i = 0; i < 8; i++)
        snprintf(ret_text + 8 * i, 9, "%08x", state[i]);
}
