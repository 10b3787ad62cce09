/* The loops of a resize with AVX2: see transform_resize.h. Rows are mixed 8 pixels a step; columns
 * in groups of 8 outputs, four taps of two outputs to a vector. */
#include "transform/transform_resize.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx2")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { STEP = 8, GROUP = 8 };

INLINE __m256i load(const void *p)
{
    return _mm256_loadu_si256((const __m256i_u *)p);
}

INLINE void store(void *p, __m256i v)
{
    _mm256_storeu_si256((__m256i_u *)p, v);
}

struct sums {
    __m256i even, odd;
};

INLINE struct sums add_row(struct sums sums, const uint8_t *source, __m256i weight)
{
    const __m256i high = _mm256_set1_epi16((short)0xFF00);
    __m256i pixels = load(source);
    __m256i even = _mm256_mulhi_epu16(_mm256_slli_epi16(pixels, 8), weight);
    __m256i odd = _mm256_mulhi_epu16(_mm256_and_si256(pixels, high), weight);
    sums.even = _mm256_add_epi16(sums.even, even);
    sums.odd = _mm256_add_epi16(sums.odd, odd);
    return sums;
}

/* Up to four rows with the number known to the compiler. */
INLINE void mix_few(const struct resize_lines *lines, const uint32_t *weights, int taps,
                    struct resize_planes planes)
{
    const __m256i bias = _mm256_set1_epi16((short)(taps / 2));
    const __m256i w0 = _mm256_set1_epi32((int)weights[0]);
    const __m256i w1 = _mm256_set1_epi32((int)weights[taps > 1 ? 1 : 0]);
    const __m256i w2 = _mm256_set1_epi32((int)weights[taps > 2 ? 2 : 0]);
    const __m256i w3 = _mm256_set1_epi32((int)weights[taps > 3 ? 3 : 0]);
    const size_t stride = lines->stride;
    const uint8_t *p = lines->source;
    for (int32_t x = 0; x < lines->pixels; x += STEP, p += 4 * STEP) {
        struct sums sums = add_row((struct sums){bias, bias}, p, w0);
        if (taps > 1)
            sums = add_row(sums, p + stride, w1);
        if (taps > 2)
            sums = add_row(sums, p + 2 * stride, w2);
        if (taps > 3)
            sums = add_row(sums, p + 3 * stride, w3);
        store(planes.even + x, sums.even);
        store(planes.odd + x, sums.odd);
    }
}

INLINE void mix_many(const struct resize_lines *lines, const uint32_t *weights, int32_t taps,
                     struct resize_planes planes)
{
    const __m256i bias = _mm256_set1_epi16((short)(taps / 2));
    const size_t stride = lines->stride;
    for (int32_t x = 0; x < lines->pixels; x += STEP) {
        const uint8_t *p = lines->source + 4 * (size_t)x;
        struct sums sums = {bias, bias};
        for (int32_t k = 0; k < taps; k++, p += stride)
            sums = add_row(sums, p, _mm256_set1_epi32((int)weights[k]));
        store(planes.even + x, sums.even);
        store(planes.odd + x, sums.odd);
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

/* A group of 8 outputs in the table: this, then for every four taps four vectors; vector j has four
 * taps of output j in its lower and of output j + 4 in its upper half. */
struct group {
    int32_t index[GROUP]; /* of an output's first pixel */
    uint32_t bias[GROUP];
    int32_t taps; /* rounded up to four */
    int32_t reserved[7];
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

static void prepare_group(const struct resize_axis *axis, int32_t from, struct group *group)
{
    int32_t count = axis->outputs - from < GROUP ? axis->outputs - from : GROUP;
    int32_t taps = 1;
    for (int32_t i = from; i < from + count; i++)
        taps = axis->count[i] > taps ? axis->count[i] : taps;
    group->taps = (taps + 3) & ~3;
    memset(group->weights, 0, (size_t)group->taps * GROUP * sizeof(uint32_t));
    for (int32_t i = 0; i < GROUP; i++) {
        int32_t out = from + (i < count ? i : 0);
        group->index[i] = axis->first[out];
        group->bias[i] = (128 + (uint32_t)axis->count[out] / 2) * 0x10001u;
        const uint32_t *weights = axis->weight + (size_t)out * (size_t)axis->taps;
        for (int32_t k = 0; k < axis->count[out]; k++)
            group->weights[((k / 4 * 4 + i % 4) * 2 + i / 4) * 4 + k % 4] = weights[k];
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

/* Four taps of two outputs. */
INLINE __m256i load_pair(const uint32_t *plane, const int32_t *index)
{
    __m128i low = _mm_loadu_si128((const __m128i_u *)(const void *)(plane + index[0]));
    __m128i high = _mm_loadu_si128((const __m128i_u *)(const void *)(plane + index[4]));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

INLINE __m256i mix_group(const struct group *group, const uint32_t *plane)
{
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    const uint32_t *w = group->weights;
    const int32_t *i = group->index;
    for (int32_t k = 0; k < group->taps; k += 4, w += 4 * GROUP, plane += 4) {
        a = _mm256_add_epi16(a, _mm256_mulhi_epu16(load_pair(plane, i), load(w)));
        b = _mm256_add_epi16(b, _mm256_mulhi_epu16(load_pair(plane, i + 1), load(w + 8)));
        c = _mm256_add_epi16(c, _mm256_mulhi_epu16(load_pair(plane, i + 2), load(w + 16)));
        d = _mm256_add_epi16(d, _mm256_mulhi_epu16(load_pair(plane, i + 3), load(w + 24)));
    }
    __m256i ab = _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    __m256i cd = _mm256_add_epi16(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    __m256i sum = _mm256_add_epi16(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    return _mm256_add_epi16(sum, load(group->bias));
}

/* 8 pixels R G B X as 24 bytes R G B. */
INLINE __m256i pack_pixels(__m256i even, __m256i odd)
{
    const __m256i high = _mm256_set1_epi16((short)0xFF00);
    const __m256i drop = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    __m256i pixels = _mm256_or_si256(_mm256_srli_epi16(even, 8), _mm256_and_si256(odd, high));
    return _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(pixels, drop),
                                       _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7));
}

TARGET static void mix_columns(const struct resize_axis *axis, const void *table,
                               struct resize_planes planes, uint8_t *out)
{
    const uint32_t *words = table;
    const size_t step = group_words(axis);
    for (int32_t left = axis->outputs; left > 0; left -= GROUP, words += step, out += 3 * GROUP) {
        const struct group *group = (const struct group *)(const void *)words;
        __m256i pixels = pack_pixels(mix_group(group, planes.even), mix_group(group, planes.odd));
        if (3 * (size_t)left >= 32) {
            store(out, pixels);
        } else {
            uint8_t last[32];
            store(last, pixels);
            memcpy(out, last, 3 * (size_t)(left < GROUP ? left : GROUP));
        }
    }
}

/* Exact form. A table entry has the weights of four taps of one output: for the taps 0 and 1 in the
 * lower and 2 and 3 in the upper half, a pair of 16-bit numbers four times over; first the upper
 * bits of the weights, then the lower eight. */
enum { EXACT_WORDS = 16 };

size_t transform_resize_exact_bytes(const struct resize_axis *axis)
{
    return (size_t)axis->outputs * (((size_t)axis->most + 3) / 4) * EXACT_WORDS * sizeof(uint32_t);
}

void transform_resize_exact_prepare(const struct resize_axis *axis, void *table)
{
    uint32_t *entry = table;
    for (int32_t i = 0; i < axis->outputs; i++) {
        const uint32_t *weights = axis->weight + (size_t)i * (size_t)axis->taps;
        for (int32_t k = 0; k < axis->most; k += 4, entry += EXACT_WORDS) {
            uint32_t w[4] = {0, 0, 0, 0};
            for (int32_t t = 0; t < 4 && k + t < axis->most; t++)
                w[t] = weights[k + t];
            for (int half = 0; half < 2; half++) {
                uint32_t first = w[2 * half], second = w[2 * half + 1];
                uint32_t wide = ((uint32_t)((int32_t)first >> 8) & 0xFFFF) |
                                (uint32_t)((int32_t)second >> 8) << 16;
                uint32_t fine = (first & 0xFF) | (second & 0xFF) << 16;
                for (int c = 0; c < 4; c++) {
                    entry[4 * half + c] = wide;
                    entry[8 + 4 * half + c] = fine;
                }
            }
        }
    }
}

TARGET void transform_resize_exact_columns(const struct resize_axis *axis, const void *table,
                                           const uint8_t *row, uint8_t *out)
{
    const __m256i pairs =
        _mm256_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1, 8, -1, 12, -1, 9,
                         -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1);
    const uint32_t *entry = table;
    const size_t step = (((size_t)axis->most + 3) / 4) * EXACT_WORDS;
    for (int32_t i = 0; i < axis->outputs; i++, entry += step) {
        const uint8_t *pixel = row + 4 * (size_t)axis->first[i];
        const uint32_t *next = entry;
        __m256i high = _mm256_setzero_si256(), low = high;
        for (int32_t k = 0; k < axis->count[i]; k += 4, next += EXACT_WORDS, pixel += 16) {
            __m128i four = _mm_loadu_si128((const __m128i_u *)(const void *)pixel);
            __m256i taps = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(four), pairs);
            high = _mm256_add_epi32(high, _mm256_madd_epi16(taps, load(next)));
            low = _mm256_add_epi32(low, _mm256_madd_epi16(taps, load(next + 8)));
        }
        __m256i both = _mm256_add_epi32(_mm256_slli_epi32(high, 8), low);
        __m128i sum =
            _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
        sum = _mm_add_epi32(sum, _mm_set1_epi32(1 << (AXIS_EXACT_SHIFT - 1)));
        sum = _mm_srai_epi32(sum, AXIS_EXACT_SHIFT);
        sum = _mm_packus_epi16(_mm_packs_epi32(sum, sum), sum);
        int32_t rgb = _mm_cvtsi128_si32(sum);
        memcpy(out + 3 * (size_t)i, &rgb,
               sizeof rgb); /* the fourth byte is written over or slack */
    }
}

/* Rows, 32 bytes a step. */
INLINE __m256i join(__m256i high, __m256i low)
{
    const __m256i half = _mm256_set1_epi32(1 << (AXIS_EXACT_SHIFT - 1));
    __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, 8), _mm256_add_epi32(low, half));
    return _mm256_srai_epi32(sum, AXIS_EXACT_SHIFT);
}

INLINE __m256i exact_step(const uint8_t *const *rows, const uint32_t *weights, int32_t taps,
                          size_t x)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i high[4] = {zero, zero, zero, zero}, low[4] = {zero, zero, zero, zero};
    for (int32_t k = 0; k < taps; k += 2) {
        const uint32_t second = k + 1 < taps ? weights[k + 1] : 0;
        const __m256i p = load(rows[k] + x);
        const __m256i q = k + 1 < taps ? load(rows[k + 1] + x) : zero;
        const __m256i wide =
            _mm256_set1_epi32((int)(((uint32_t)((int32_t)weights[k] >> 8) & 0xFFFF) |
                                    (uint32_t)((int32_t)second >> 8) << 16));
        const __m256i fine = _mm256_set1_epi32((int)((weights[k] & 0xFF) | (second & 0xFF) << 16));
        const __m256i lo = _mm256_unpacklo_epi8(p, q), hi = _mm256_unpackhi_epi8(p, q);
        const __m256i part[4] = {_mm256_unpacklo_epi8(lo, zero), _mm256_unpackhi_epi8(lo, zero),
                                 _mm256_unpacklo_epi8(hi, zero), _mm256_unpackhi_epi8(hi, zero)};
        for (int i = 0; i < 4; i++) {
            high[i] = _mm256_add_epi32(high[i], _mm256_madd_epi16(part[i], wide));
            low[i] = _mm256_add_epi32(low[i], _mm256_madd_epi16(part[i], fine));
        }
    }
    return _mm256_packus_epi16(_mm256_packs_epi32(join(high[0], low[0]), join(high[1], low[1])),
                               _mm256_packs_epi32(join(high[2], low[2]), join(high[3], low[3])));
}

TARGET static void exact_rows(const uint8_t *const *rows, const uint32_t *weights, int32_t taps,
                              size_t bytes, uint8_t *out)
{
    size_t x = 0;
    for (; x + 32 <= bytes; x += 32)
        store(out + x, exact_step(rows, weights, taps, x));
    if (x < bytes) {
        uint8_t last[32];
        store(last, exact_step(rows, weights, taps, x));
        memcpy(out + x, last, bytes - x);
    }
}

const struct resize_kernels transform_resize_avx2 = {
    .name = "avx2",
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
