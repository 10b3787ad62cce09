/* The loops of a resize with AVX-512BW: see transform_resize.h.
 *
 * Rows: 16 pixels a step; the even bytes are shifted up and the odd ones masked, which makes 16-bit
 * samples with eight binary places without any shuffle.
 * Columns: 16 outputs a group. All source pixels that a group needs mostly lie within 32 pixels,
 * from which a two-register permutation takes tap k of all 16 outputs at once. */
#include "transform/transform_resize.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx2")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { GROUP = 16, WINDOW = 32 };

struct sums {
    __m512i even, odd;
};

INLINE struct sums add_row(struct sums sums, const uint8_t *source, __m512i weight)
{
    const __m512i high = _mm512_set1_epi16((short)0xFF00);
    __m512i pixels = _mm512_loadu_si512(source);
    __m512i even = _mm512_mulhi_epu16(_mm512_slli_epi16(pixels, 8), weight);
    __m512i odd = _mm512_mulhi_epu16(_mm512_and_si512(pixels, high), weight);
    sums.even = _mm512_add_epi16(sums.even, even);
    sums.odd = _mm512_add_epi16(sums.odd, odd);
    return sums;
}

/* Up to four rows with the number known to the compiler. */
INLINE void mix_few(const struct resize_lines *lines, const uint32_t *weights, int taps,
                    struct resize_planes planes)
{
    const __m512i bias = _mm512_set1_epi16((short)(taps / 2));
    const __m512i w0 = _mm512_set1_epi32((int)weights[0]);
    const __m512i w1 = _mm512_set1_epi32((int)weights[taps > 1 ? 1 : 0]);
    const __m512i w2 = _mm512_set1_epi32((int)weights[taps > 2 ? 2 : 0]);
    const __m512i w3 = _mm512_set1_epi32((int)weights[taps > 3 ? 3 : 0]);
    const size_t stride = lines->stride;
    const uint8_t *p = lines->source;
    for (int32_t x = 0; x < lines->pixels; x += GROUP, p += 4 * GROUP) {
        struct sums sums = add_row((struct sums){bias, bias}, p, w0);
        if (taps > 1)
            sums = add_row(sums, p + stride, w1);
        if (taps > 2)
            sums = add_row(sums, p + 2 * stride, w2);
        if (taps > 3)
            sums = add_row(sums, p + 3 * stride, w3);
        _mm512_store_si512(planes.even + x, sums.even);
        _mm512_store_si512(planes.odd + x, sums.odd);
    }
}

INLINE void mix_many(const struct resize_lines *lines, const uint32_t *weights, int32_t taps,
                     struct resize_planes planes)
{
    const __m512i bias = _mm512_set1_epi16((short)(taps / 2));
    const size_t stride = lines->stride;
    for (int32_t x = 0; x < lines->pixels; x += GROUP) {
        const uint8_t *p = lines->source + 4 * (size_t)x;
        struct sums sums = {bias, bias};
        for (int32_t k = 0; k < taps; k++, p += stride)
            sums = add_row(sums, p, _mm512_set1_epi32((int)weights[k]));
        _mm512_store_si512(planes.even + x, sums.even);
        _mm512_store_si512(planes.odd + x, sums.odd);
    }
}

TARGET static void mix_rows(const struct resize_lines *lines, const uint32_t *weights, int32_t taps,
                            struct resize_planes planes)
{
    switch (taps) {
    case 1:
        mix_few(lines, weights, 1, planes);
        break;
    case 2:
        mix_few(lines, weights, 2, planes);
        break;
    case 3:
        mix_few(lines, weights, 3, planes);
        break;
    case 4:
        mix_few(lines, weights, 4, planes);
        break;
    default:
        mix_many(lines, weights, taps, planes);
    }
}

/* How a group gets at its pixels. */
enum group_way {
    WAY_WINDOW,  /* one window holds all taps of all outputs */
    WAY_SLIDING, /* it holds one tap of all outputs; it moves with the tap */
    WAY_STRIPS   /* outputs are too far apart: four taps of four outputs at a time */
};

/* A group of 16 outputs in the table: this, then weights. Window and sliding: one vector a tap.
 * Strips: for every four taps, four vectors of four outputs by four taps. */
struct group {
    int32_t base; /* pixel at which the window begins */
    int32_t taps; /* vectors of weights; strips: taps rounded up to four */
    int32_t way;
    int32_t reserved[13];
    int32_t index[GROUP]; /* of an output's first pixel, in the window; strips: in the plane */
    uint32_t bias[GROUP];
    uint32_t weights[];
};

static size_t group_words(const struct resize_axis *axis)
{
    return 3 * GROUP + GROUP * (((size_t)axis->most + 3) & ~(size_t)3);
}

static size_t columns_bytes(const struct resize_axis *axis)
{
    size_t groups = ((size_t)axis->outputs + GROUP - 1) / GROUP;
    return groups * group_words(axis) * sizeof(uint32_t);
}

static void prepare_strips(const struct resize_axis *axis, int32_t from, int32_t count,
                           struct group *group)
{
    group->way = WAY_STRIPS;
    group->taps = (group->taps + 3) & ~3;
    memset(group->weights, 0, (size_t)group->taps * GROUP * sizeof(uint32_t));
    for (int32_t i = 0; i < count; i++) {
        const uint32_t *weights = axis->weight + (size_t)(from + i) * (size_t)axis->taps;
        for (int32_t k = 0; k < axis->count[from + i];
             k++) /* output i is in lane i / 4 of vector i % 4 */
            group->weights[((k / 4 * 4 + i % 4) * 4 + i / 4) * 4 + k % 4] = weights[k];
        group->index[i] += group->base;
    }
    for (int32_t i = count; i < GROUP; i++)
        group->index[i] = group->base;
}

static void prepare_group(const struct resize_axis *axis, int32_t from, struct group *group)
{
    int32_t count = axis->outputs - from < GROUP ? axis->outputs - from : GROUP;
    int32_t low = INT32_MAX, high = 0, taps = 1;
    for (int32_t i = from; i < from + count; i++) {
        low = axis->first[i] < low ? axis->first[i] : low;
        high = axis->first[i] > high ? axis->first[i] : high;
        taps = axis->count[i] > taps ? axis->count[i] : taps;
    }
    group->base = low;
    group->taps = taps;
    for (int32_t i = 0; i < GROUP; i++) {
        group->index[i] = i < count ? axis->first[from + i] - low : 0;
        group->bias[i] = i < count ? (128 + (uint32_t)axis->count[from + i] / 2) * 0x10001u : 0;
    }
    if (high - low >= WINDOW) {
        prepare_strips(axis, from, count, group);
        return;
    }
    group->way = high - low + taps <= WINDOW ? WAY_WINDOW : WAY_SLIDING;
    for (int32_t k = 0; k < taps; k++) {
        for (int32_t i = 0; i < GROUP; i++)
            group->weights[k * GROUP + i] =
                i < count ? axis->weight[(size_t)(from + i) * (size_t)axis->taps + (size_t)k] : 0;
    }
}

static void columns_prepare(const struct resize_axis *axis, void *table)
{
    uint32_t *words = table;
    for (int32_t from = 0; from < axis->outputs; from += GROUP) {
        prepare_group(axis, from, (struct group *)(void *)words);
        words += group_words(axis);
    }
}

INLINE struct sums add_column(struct sums sums, __m512i even, __m512i odd, __m512i weight)
{
    sums.even = _mm512_add_epi16(sums.even, _mm512_mulhi_epu16(even, weight));
    sums.odd = _mm512_add_epi16(sums.odd, _mm512_mulhi_epu16(odd, weight));
    return sums;
}

INLINE struct sums mix_window(const struct group *group, struct resize_planes planes)
{
    const __m512i one = _mm512_set1_epi32(1);
    const __m512i e0 = _mm512_loadu_si512(planes.even + group->base);
    const __m512i e1 = _mm512_loadu_si512(planes.even + group->base + GROUP);
    const __m512i o0 = _mm512_loadu_si512(planes.odd + group->base);
    const __m512i o1 = _mm512_loadu_si512(planes.odd + group->base + GROUP);
    __m512i index = _mm512_load_si512(group->index);
    struct sums sums = {_mm512_load_si512(group->bias), _mm512_load_si512(group->bias)};
    const uint32_t *weights = group->weights;
    for (int32_t k = 0; k < group->taps; k++, weights += GROUP) {
        sums = add_column(sums, _mm512_permutex2var_epi32(e0, index, e1),
                          _mm512_permutex2var_epi32(o0, index, o1), _mm512_load_si512(weights));
        index = _mm512_add_epi32(index, one);
    }
    return sums;
}

INLINE struct sums mix_sliding(const struct group *group, struct resize_planes planes)
{
    const __m512i index = _mm512_load_si512(group->index);
    struct sums sums = {_mm512_load_si512(group->bias), _mm512_load_si512(group->bias)};
    const uint32_t *even = planes.even + group->base, *odd = planes.odd + group->base;
    for (int32_t k = 0; k < group->taps; k++, even++, odd++) {
        __m512i e = _mm512_permutex2var_epi32(_mm512_loadu_si512(even), index,
                                              _mm512_loadu_si512(even + GROUP));
        __m512i o = _mm512_permutex2var_epi32(_mm512_loadu_si512(odd), index,
                                              _mm512_loadu_si512(odd + GROUP));
        sums = add_column(sums, e, o, _mm512_load_si512(group->weights + k * GROUP));
    }
    return sums;
}

/* Four taps of the outputs index[0], index[4], index[8] and index[12], one in each lane. */
INLINE __m512i load_strips(const uint32_t *plane, const int32_t *index)
{
    __m512i v = _mm512_castsi128_si512(
        _mm_loadu_si128((const __m128i_u *)(const void *)(plane + index[0])));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i_u *)(const void *)(plane + index[4])),
                           1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i_u *)(const void *)(plane + index[8])),
                           2);
    return _mm512_inserti32x4(
        v, _mm_loadu_si128((const __m128i_u *)(const void *)(plane + index[12])), 3);
}

/* Sums the four words of each lane of a, b, c and d: lane l gets those of a, b, c, d in this order.
 */
INLINE __m512i sum_lanes(__m512i a, __m512i b, __m512i c, __m512i d)
{
    __m512i ab = _mm512_add_epi16(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    __m512i cd = _mm512_add_epi16(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    return _mm512_add_epi16(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

INLINE __m512i mix_strips(const struct group *group, const uint32_t *plane)
{
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    const uint32_t *w = group->weights;
    for (int32_t k = 0; k < group->taps; k += 4, w += 4 * GROUP) {
        const uint32_t *p = plane + k;
        const int32_t *i = group->index;
        a = _mm512_add_epi16(a, _mm512_mulhi_epu16(load_strips(p, i), _mm512_load_si512(w)));
        b = _mm512_add_epi16(
            b, _mm512_mulhi_epu16(load_strips(p, i + 1), _mm512_load_si512(w + GROUP)));
        c = _mm512_add_epi16(
            c, _mm512_mulhi_epu16(load_strips(p, i + 2), _mm512_load_si512(w + 2 * GROUP)));
        d = _mm512_add_epi16(
            d, _mm512_mulhi_epu16(load_strips(p, i + 3), _mm512_load_si512(w + 3 * GROUP)));
    }
    return _mm512_add_epi16(sum_lanes(a, b, c, d), _mm512_load_si512(group->bias));
}

/* 16 pixels R G B X as 48 bytes R G B. */
INLINE __m512i pack_pixels(struct sums sums)
{
    const __m512i high = _mm512_set1_epi16((short)0xFF00);
    const __m512i drop = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    const __m512i close = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15);
    __m512i pixels = _mm512_srli_epi16(sums.even, 8);
    pixels = _mm512_ternarylogic_epi32(pixels, sums.odd, high, 0xF8); /* a | (b & c) */
    return _mm512_permutexvar_epi32(close, _mm512_shuffle_epi8(pixels, drop));
}

TARGET static void mix_columns(const struct resize_axis *axis, const void *table,
                               struct resize_planes planes, uint8_t *out)
{
    const uint32_t *words = table;
    const size_t step = group_words(axis);
    for (int32_t left = axis->outputs; left > 0; left -= GROUP, words += step, out += 3 * GROUP) {
        const struct group *group = (const struct group *)(const void *)words;
        struct sums sums;
        if (group->way == WAY_WINDOW)
            sums = mix_window(group, planes);
        else if (group->way == WAY_SLIDING)
            sums = mix_sliding(group, planes);
        else
            sums = (struct sums){mix_strips(group, planes.even), mix_strips(group, planes.odd)};
        int bytes = 3 * (left < GROUP ? left : GROUP);
        _mm512_mask_storeu_epi8(out, ((uint64_t)1 << bytes) - 1, pack_pixels(sums));
    }
}

/* Rows of the exact form, 64 bytes a step: pairs of rows go through one multiply-add, once with the
 * upper and once with the lower eight bits of the weights. */
INLINE __m512i join(__m512i high, __m512i low)
{
    const __m512i half = _mm512_set1_epi32(1 << (AXIS_EXACT_SHIFT - 1));
    __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high, 8), _mm512_add_epi32(low, half));
    return _mm512_srai_epi32(sum, AXIS_EXACT_SHIFT);
}

INLINE __m512i exact_step(const uint8_t *const *rows, const uint32_t *weights, int32_t taps,
                          size_t x)
{
    const __m512i zero = _mm512_setzero_si512();
    __m512i high[4] = {zero, zero, zero, zero}, low[4] = {zero, zero, zero, zero};
    for (int32_t k = 0; k < taps; k += 2) {
        const uint32_t second = k + 1 < taps ? weights[k + 1] : 0;
        const __m512i p = _mm512_loadu_si512(rows[k] + x);
        const __m512i q = k + 1 < taps ? _mm512_loadu_si512(rows[k + 1] + x) : zero;
        const __m512i wide =
            _mm512_set1_epi32((int)((uint32_t)((int32_t)weights[k] >> 8) & 0xFFFF) |
                              (int)((uint32_t)((int32_t)second >> 8) << 16));
        const __m512i fine = _mm512_set1_epi32((int)((weights[k] & 0xFF) | (second & 0xFF) << 16));
        const __m512i lo = _mm512_unpacklo_epi8(p, q), hi = _mm512_unpackhi_epi8(p, q);
        const __m512i part[4] = {_mm512_unpacklo_epi8(lo, zero), _mm512_unpackhi_epi8(lo, zero),
                                 _mm512_unpacklo_epi8(hi, zero), _mm512_unpackhi_epi8(hi, zero)};
        for (int i = 0; i < 4; i++) {
            high[i] = _mm512_add_epi32(high[i], _mm512_madd_epi16(part[i], wide));
            low[i] = _mm512_add_epi32(low[i], _mm512_madd_epi16(part[i], fine));
        }
    }
    return _mm512_packus_epi16(_mm512_packs_epi32(join(high[0], low[0]), join(high[1], low[1])),
                               _mm512_packs_epi32(join(high[2], low[2]), join(high[3], low[3])));
}

TARGET static void exact_rows(const uint8_t *const *rows, const uint32_t *weights, int32_t taps,
                              size_t bytes, uint8_t *out)
{
    for (size_t x = 0; x < bytes; x += 64) {
        __mmask64 mask = bytes - x >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (bytes - x)) - 1;
        _mm512_mask_storeu_epi8(out + x, mask, exact_step(rows, weights, taps, x));
    }
}

const struct resize_kernels transform_resize_avx512 = {
    .name = "avx512",
    .mix_rows = mix_rows,
    .columns_bytes = columns_bytes,
    .columns_prepare = columns_prepare,
    .mix_columns = mix_columns,
    .exact_bytes = transform_resize_exact_bytes,
    .exact_prepare = transform_resize_exact_prepare,
    .exact_columns = transform_resize_exact_columns,
    .exact_rows = exact_rows,
};
#endif
