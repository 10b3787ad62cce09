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

enum { GROUP = 16, WINDOW = 32, PLAIN_TAPS = 4 };

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
    WAY_WINDOW, /* one window of 32 pixels has all taps of all outputs */
    WAY_HALVES, /* two windows have those of eight outputs each */
    WAY_STRIPS  /* outputs are too far apart: four taps of four outputs at a time */
};

/* A group of 16 outputs in the table: this, then weights. Window and halves: one vector a tap, and
 * as many as the axis has taps at most. Strips: for every four taps, four vectors of four outputs
 * by four taps. */
struct group {
    int32_t base[2]; /* pixels at which the windows begin */
    int32_t taps;    /* vectors of weights; strips: taps rounded up to four */
    int32_t way;
    int32_t plain; /* of the first group: all are windows with at most PLAIN_TAPS taps */
    int32_t reserved[11];
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

/* Pixels [low, high) that the outputs [from, to) need. */
static void reach_of(const struct resize_axis *axis, int32_t from, int32_t to, int32_t *ret_low,
                     int32_t *ret_high)
{
    int32_t low = axis->first[from], high = 0;
    for (int32_t i = from; i < to; i++) {
        int32_t end = axis->first[i] + axis->count[i];
        low = axis->first[i] < low ? axis->first[i] : low;
        high = end > high ? end : high;
    }
    *ret_low = low;
    *ret_high = high;
}

static int32_t way_of(const struct resize_axis *axis, int32_t from, int32_t to, int32_t base[2])
{
    int32_t high, low, middle = from + GROUP / 2;
    reach_of(axis, from, to, &base[0], &high);
    base[1] = base[0];
    if (high - base[0] <= WINDOW) {
        const int32_t aligned = base[0] & ~(GROUP - 1);
        base[0] = base[1] = high - aligned <= WINDOW ? aligned : base[0];
        return WAY_WINDOW;
    }
    if (middle >= to)
        return WAY_STRIPS;
    reach_of(axis, from, middle, &low, &high);
    base[0] = low;
    if (high - low > WINDOW)
        return WAY_STRIPS;
    reach_of(axis, middle, to, &low, &high);
    base[1] = low;
    return high - low > WINDOW ? WAY_STRIPS : WAY_HALVES;
}

static void prepare_strips(const struct resize_axis *axis, int32_t from, int32_t count,
                           struct group *group)
{
    group->taps = (axis->most + 3) & ~3;
    memset(group->weights, 0, (size_t)group->taps * GROUP * sizeof(uint32_t));
    for (int32_t i = 0; i < GROUP; i++)
        group->index[i] = axis->first[from + (i < count ? i : 0)];
    for (int32_t i = 0; i < count; i++) { /* output i is in lane i / 4 of vector i % 4 */
        const uint32_t *weights = axis->weight + (size_t)(from + i) * (size_t)axis->taps;
        for (int32_t k = 0; k < axis->count[from + i]; k++)
            group->weights[((k / 4 * 4 + i % 4) * 4 + i / 4) * 4 + k % 4] = weights[k];
    }
}

static void prepare_group(const struct resize_axis *axis, int32_t from, struct group *group)
{
    const int32_t count = axis->outputs - from < GROUP ? axis->outputs - from : GROUP;
    group->way = way_of(axis, from, from + count, group->base);
    for (int32_t i = 0; i < GROUP; i++)
        group->bias[i] = i < count ? (128 + (uint32_t)axis->count[from + i] / 2) * 0x10001u : 0;
    if (group->way == WAY_STRIPS) {
        prepare_strips(axis, from, count, group);
        return;
    }
    group->taps = axis->most;
    if (axis->most == 1) /* it may be mixed as two */
        memset(group->weights + GROUP, 0, GROUP * sizeof(uint32_t));
    for (int32_t i = 0; i < count; i++) {
        const uint32_t *weights = axis->weight + (size_t)(from + i) * (size_t)axis->taps;
        group->index[i] = axis->first[from + i] - group->base[i / (GROUP / 2)];
        for (int32_t k = 0; k < axis->most; k++)
            group->weights[k * GROUP + i] = weights[k];
    }
    for (int32_t i = count; i < GROUP; i++) {
        group->index[i] = 0;
        for (int32_t k = 0; k < axis->most; k++)
            group->weights[k * GROUP + i] = 0;
    }
}

static void columns_prepare(const struct resize_axis *axis, void *table)
{
    struct group *first = table;
    uint32_t *words = table;
    int32_t plain = axis->most <= PLAIN_TAPS;
    for (int32_t from = 0; from < axis->outputs; from += GROUP, words += group_words(axis)) {
        struct group *group = (struct group *)(void *)words;
        prepare_group(axis, from, group);
        plain = plain && group->way == WAY_WINDOW;
    }
    first->plain = plain;
}

INLINE struct sums add_column(struct sums sums, __m512i even, __m512i odd, const uint32_t *weights)
{
    const __m512i weight = _mm512_load_si512(weights);
    sums.even = _mm512_add_epi16(sums.even, _mm512_mulhi_epu16(even, weight));
    sums.odd = _mm512_add_epi16(sums.odd, _mm512_mulhi_epu16(odd, weight));
    return sums;
}

/* 32 pixels of both planes. */
struct window {
    __m512i even[2], odd[2];
};

INLINE struct window load_window(struct resize_planes planes, int32_t base)
{
    struct window w;
    w.even[0] = _mm512_loadu_si512(planes.even + base);
    w.even[1] = _mm512_loadu_si512(planes.even + base + GROUP);
    w.odd[0] = _mm512_loadu_si512(planes.odd + base);
    w.odd[1] = _mm512_loadu_si512(planes.odd + base + GROUP);
    return w;
}

/* Tap k of all outputs, which beyond an output's own taps is any pixel with weight 0. */
INLINE struct sums add_tap(struct sums sums, const struct window *w, const struct group *group,
                           int k)
{
    const __m512i index = _mm512_add_epi32(_mm512_load_si512(group->index), _mm512_set1_epi32(k));
    return add_column(sums, _mm512_permutex2var_epi32(w->even[0], index, w->even[1]),
                      _mm512_permutex2var_epi32(w->odd[0], index, w->odd[1]),
                      group->weights + k * GROUP);
}

INLINE struct sums mix_window(const struct group *group, struct resize_planes planes, int32_t taps)
{
    const struct window w = load_window(planes, group->base[0]);
    const __m512i bias = _mm512_load_si512(group->bias);
    struct sums sums = add_tap((struct sums){bias, bias}, &w, group, 0);
    if (taps > 1)
        sums = add_tap(sums, &w, group, 1);
    if (taps > 2)
        sums = add_tap(sums, &w, group, 2);
    if (taps > 3)
        sums = add_tap(sums, &w, group, 3);
    for (int32_t k = PLAIN_TAPS; k < taps; k++)
        sums = add_tap(sums, &w, group, k);
    return sums;
}

/* The lower eight lanes from window a, the upper eight from window b. The masked form leaves the
 * index where it takes nothing, so that the second permutation finds it there. */
INLINE __m512i take(const __m512i a[2], const __m512i b[2], __m512i index)
{
    __m512i half = _mm512_mask2_permutex2var_epi32(a[0], index, 0x00FF, a[1]);
    return _mm512_mask2_permutex2var_epi32(b[0], half, 0xFF00, b[1]);
}

INLINE struct sums mix_halves(const struct group *group, struct resize_planes planes)
{
    const struct window a = load_window(planes, group->base[0]);
    const struct window b = load_window(planes, group->base[1]);
    const __m512i one = _mm512_set1_epi32(1);
    __m512i index = _mm512_load_si512(group->index);
    struct sums sums = {_mm512_load_si512(group->bias), _mm512_load_si512(group->bias)};
    for (int32_t k = 0; k < group->taps; k++) {
        sums = add_column(sums, take(a.even, b.even, index), take(a.odd, b.odd, index),
                          group->weights + k * GROUP);
        index = _mm512_add_epi32(index, one);
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

/* Writes a group's pixels; `left` outputs from the first of them on are still to be written. */
INLINE void put_pixels(struct sums sums, int32_t left, uint8_t *out)
{
    const __m512i pixels = pack_pixels(sums);
    const int32_t bytes = 3 * (left < GROUP ? left : GROUP);
    if (3 * left >= (int32_t)sizeof pixels) /* what is too much is written over by the next group */
        _mm512_storeu_si512(out, pixels);
    else
        _mm512_mask_storeu_epi8(out, ((uint64_t)1 << bytes) - 1, pixels);
}

/* All groups are windows and the number of taps is known to the compiler. */
INLINE void mix_plain(const struct resize_axis *axis, const uint32_t *words,
                      struct resize_planes planes, uint8_t *out, const int taps)
{
    const size_t step = group_words(axis);
    for (int32_t left = axis->outputs; left > 0; left -= GROUP, words += step, out += 3 * GROUP) {
        const struct group *group = (const struct group *)(const void *)words;
        put_pixels(mix_window(group, planes, taps), left, out);
    }
}

TARGET static void mix_any(const struct resize_axis *axis, const uint32_t *words,
                           struct resize_planes planes, uint8_t *out)
{
    const size_t step = group_words(axis);
    for (int32_t left = axis->outputs; left > 0; left -= GROUP, words += step, out += 3 * GROUP) {
        const struct group *group = (const struct group *)(const void *)words;
        struct sums sums;
        if (group->way == WAY_WINDOW)
            sums = mix_window(group, planes, group->taps);
        else if (group->way == WAY_HALVES)
            sums = mix_halves(group, planes);
        else
            sums = (struct sums){mix_strips(group, planes.even), mix_strips(group, planes.odd)};
        put_pixels(sums, left, out);
    }
}

TARGET static void mix_columns(const struct resize_axis *axis, const void *table,
                               struct resize_planes planes, uint8_t *out)
{
    const struct group *first = table;
    const int32_t taps = first->plain ? axis->most : 0;
    switch (taps) {
    case 1:
    case 2:
        mix_plain(axis, table, planes, out, 2);
        break;
    case 3:
        mix_plain(axis, table, planes, out, 3);
        break;
    case PLAIN_TAPS:
        mix_plain(axis, table, planes, out, PLAIN_TAPS);
        break;
    default:
        mix_any(axis, table, planes, out);
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
