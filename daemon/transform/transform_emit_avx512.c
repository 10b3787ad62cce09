/* Dtypes and layouts with AVX-512VBMI: see transform_emit.h.
 *
 * A byte is looked up in a table of 256 by two permutations of registers, once for each byte of its
 * value, so that the values are those of the tables and not worked out anew. 64 pixels a step:
 * their bytes are put in an order from which the bytes of the values come out side by side. */
#include "transform/transform_emit.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vbmi")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { STEP = EMIT_STEP }; /* pixels, and bytes of a register */

_Static_assert(EMIT_STEP == 64 && EMIT_CHANNELS == 3, "three registers hold 64 pixels");

/* Three registers with the bytes of up to 64 pixels. */
struct pixels {
    __m512i part[EMIT_CHANNELS];
};

static __mmask64 first_bytes(size_t count)
{
    return count >= STEP ? ~(__mmask64)0 : ((__mmask64)1 << count) - 1;
}

/* Which of 64 values belongs at byte p of the register from which values of so many bytes are made,
 * so that the interleaving of its 16-byte lanes brings them into order. */
static size_t value_at(size_t p, size_t value_bytes)
{
    const size_t lane = p / 16, q = p % 16;
    if (value_bytes == 4)
        return 16 * (q / 4) + 4 * lane + q % 4;
    if (value_bytes == 2)
        return 32 * (q / 8) + 8 * lane + q % 8;
    return p;
}

static void prepare(struct emit *emit)
{
    const size_t value_bytes = transform_emit_value_bytes(emit->dtype);
    struct emit_wide *wide = &emit->wide;
    memset(wide, 0, sizeof *wide);
    for (size_t c = 0; c < EMIT_CHANNELS; c++) {
        for (size_t v = 0; v < 256; v++) {
            uint8_t bytes[4] = {(uint8_t)v};
            if (value_bytes == 4)
                memcpy(bytes, &emit->table.f32[c][v], 4);
            else if (value_bytes == 2)
                memcpy(bytes, &emit->table.f16[c][v], 2);
            for (size_t b = 0; b < value_bytes; b++)
                wide->bytes[c][b][v] = bytes[b];
        }
        for (size_t p = 0; p < STEP; p++) {
            const size_t value = value_at(p, value_bytes), from = EMIT_CHANNELS * value + c;
            wide->order[p] = (uint8_t)value;
            /* Planes: from the first two registers, or from the third. */
            wide->pick[c][p] = (uint8_t)(from % (2 * STEP));
            wide->is_third[c] |= (uint64_t)(from >= 2 * STEP) << p;
            /* Interleaved: register c holds the bytes 64 c … 64 c + 63. */
            wide->is_channel[c][(STEP * c + value) % EMIT_CHANNELS] |= (uint64_t)1 << p;
        }
    }
}

INLINE struct pixels load(const uint8_t *rgb, size_t bytes)
{
    struct pixels pixels;
    for (size_t i = 0; i < EMIT_CHANNELS; i++) {
        const size_t left = bytes > STEP * i ? bytes - STEP * i : 0;
        pixels.part[i] = _mm512_maskz_loadu_epi8(first_bytes(left), rgb + STEP * i);
    }
    return pixels;
}

INLINE __m512i channel_of(const struct emit_wide *wide, struct pixels pixels, size_t c)
{
    const __m512i pick = _mm512_loadu_si512(wide->pick[c]);
    const __m512i both = _mm512_permutex2var_epi8(pixels.part[0], pick, pixels.part[1]);
    return _mm512_mask_permutexvar_epi8(both, wide->is_third[c], pick, pixels.part[2]);
}

INLINE __m512i look_up(const uint8_t table[256], __m512i index)
{
    const __m512i low = _mm512_permutex2var_epi8(_mm512_loadu_si512(table), index,
                                                 _mm512_loadu_si512(table + STEP));
    const __m512i high = _mm512_permutex2var_epi8(_mm512_loadu_si512(table + 2 * STEP), index,
                                                  _mm512_loadu_si512(table + 3 * STEP));
    return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high);
}

/* Writes `count` values, whose bytes number b are in bytes[b], in the order of value_at. */
INLINE void store(const __m512i bytes[4], size_t value_bytes, size_t count, uint8_t *out)
{
    if (value_bytes == 1) {
        _mm512_mask_storeu_epi8(out, first_bytes(count), bytes[0]);
        return;
    }
    __m512i words[4] = {_mm512_unpacklo_epi8(bytes[0], bytes[1]),
                        _mm512_unpackhi_epi8(bytes[0], bytes[1])};
    if (value_bytes == 4) {
        const __m512i low = _mm512_unpacklo_epi8(bytes[2], bytes[3]),
                      high = _mm512_unpackhi_epi8(bytes[2], bytes[3]);
        words[3] = _mm512_unpackhi_epi16(words[1], high);
        words[2] = _mm512_unpacklo_epi16(words[1], high);
        words[1] = _mm512_unpackhi_epi16(words[0], low);
        words[0] = _mm512_unpacklo_epi16(words[0], low);
    }
    const size_t total = value_bytes * count;
    for (size_t i = 0; i < value_bytes && STEP * i < total; i++)
        _mm512_mask_storeu_epi8(out + STEP * i, first_bytes(total - STEP * i), words[i]);
}

INLINE void planes(const struct emit *emit, const uint8_t *rgb, size_t width, size_t plane,
                   uint8_t *out, const size_t value_bytes)
{
    for (size_t x = 0; x < width; x += STEP) {
        const size_t count = width - x < STEP ? width - x : STEP;
        const struct pixels pixels = load(rgb + EMIT_CHANNELS * x, EMIT_CHANNELS * count);
        for (size_t c = 0; c < EMIT_CHANNELS; c++) {
            __m512i bytes[4] = {channel_of(&emit->wide, pixels, c)};
            const __m512i index = bytes[0];
            for (size_t b = 0; b < value_bytes && value_bytes > 1; b++)
                bytes[b] = look_up(emit->wide.bytes[c][b], index);
            store(bytes, value_bytes, count, out + value_bytes * (x + c * plane));
        }
    }
}

INLINE void interleaved(const struct emit *emit, const uint8_t *rgb, size_t width, uint8_t *out,
                        const size_t value_bytes)
{
    const struct emit_wide *wide = &emit->wide;
    const __m512i order = _mm512_loadu_si512(wide->order);
    const size_t values = EMIT_CHANNELS * width;
    for (size_t x = 0; x < values; x += STEP) {
        const size_t count = values - x < STEP ? values - x : STEP, part = x / STEP % EMIT_CHANNELS;
        const __m512i index =
            _mm512_permutexvar_epi8(order, _mm512_maskz_loadu_epi8(first_bytes(count), rgb + x));
        __m512i bytes[4];
        for (size_t b = 0; b < value_bytes; b++) {
            bytes[b] = look_up(wide->bytes[0][b], index);
            for (size_t c = 1; c < EMIT_CHANNELS; c++)
                bytes[b] = _mm512_mask_mov_epi8(bytes[b], wide->is_channel[part][c],
                                                look_up(wide->bytes[c][b], index));
        }
        store(bytes, value_bytes, count, out + value_bytes * x);
    }
}

TARGET static void line(const struct emit *emit, const uint8_t *rgb, size_t width, size_t plane,
                        uint8_t *out)
{
    const bool is_planes = emit->layout == FIELD_LAYOUT_NCHW;
    const size_t value_bytes = transform_emit_value_bytes(emit->dtype);
    if (value_bytes == 1 && is_planes)
        planes(emit, rgb, width, plane, out, 1);
    else if (value_bytes == 1)
        memcpy(out, rgb, EMIT_CHANNELS * width);
    else if (value_bytes == 2 && is_planes)
        planes(emit, rgb, width, plane, out, 2);
    else if (value_bytes == 2)
        interleaved(emit, rgb, width, out, 2);
    else if (is_planes)
        planes(emit, rgb, width, plane, out, 4);
    else
        interleaved(emit, rgb, width, out, 4);
}

const struct emit_kernels transform_emit_avx512 = {
    .name = "avx512", .prepare = prepare, .line = line};
#endif
