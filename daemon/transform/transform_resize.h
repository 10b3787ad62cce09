/* The inner loops of a resize, one table for each kind of CPU. All tables give the same bytes.
 *
 * Fast form (bilinear, ratios up to AXIS_FAST_SCALE_MAX): rows are mixed first, then columns.
 * Values between the passes keep eight binary places, so that only the last step rounds: the result
 * is within 1 of Pillow's, which rounds twice. A sample v with weight w (of 65,536) counts v * 256
 * * w / 65,536 rounded down; the bias of half a unit a tap makes up for the rounding. A mixed row
 * lies in two planes of one word a pixel: even = R + B * 65,536, odd = G + X * 65,536.
 *
 * Exact form (bicubic, and bilinear beyond): Pillow's arithmetic. Columns are mixed first and
 * rounded and clipped to 8 bits, then rows; weights have 22 binary places. */
#ifndef SPDLD_TRANSFORM_RESIZE_H
#define SPDLD_TRANSFORM_RESIZE_H

#include <stddef.h>
#include <stdint.h>

#include "transform/transform_axis.h"

enum {
    RESIZE_LINE_SLACK = 96, /* words behind the last pixel of a plane: readable, and written over */
    RESIZE_BYTE_SLACK = 64 /* bytes behind the last of a row of bytes: readable, and written over */
};

/* Source rows of the fast form. 64 bytes behind the last pixel of a row may be read. */
struct resize_lines {
    const uint8_t *source; /* the first pixel of the first row that is mixed */
    size_t stride;
    int32_t pixels; /* of a row */
};

/* The two planes of a mixed row, 64-byte aligned. */
struct resize_planes {
    uint32_t *even, *odd;
};

struct resize_kernels {
    const char *name;

    /* Fast: mixes `taps` rows. */
    void (*mix_rows)(const struct resize_lines *lines, const uint32_t *weights, int32_t taps,
                     struct resize_planes planes);
    /* Fast: size of the kernel's own table for these columns, and filling it (64-byte aligned). */
    size_t (*columns_bytes)(const struct resize_axis *axis);
    void (*columns_prepare)(const struct resize_axis *axis, void *table);
    /* Fast: writes 3 * axis->outputs bytes (R, G, B). */
    void (*mix_columns)(const struct resize_axis *axis, const void *table,
                        struct resize_planes planes, uint8_t *out);

    /* Exact: as above, from a row of 4-byte pixels; out has RESIZE_BYTE_SLACK. */
    size_t (*exact_bytes)(const struct resize_axis *axis);
    void (*exact_prepare)(const struct resize_axis *axis, void *table);
    void (*exact_columns)(const struct resize_axis *axis, const void *table, const uint8_t *row,
                          uint8_t *out);
    /* Exact: mixes `taps` rows of `bytes` bytes with RESIZE_BYTE_SLACK behind them; writes just
     * `bytes` bytes. */
    void (*exact_rows)(const uint8_t *const *rows, const uint32_t *weights, int32_t taps,
                       size_t bytes, uint8_t *out);
};

extern const struct resize_kernels transform_resize_portable;
#if defined(__x86_64__)
extern const struct resize_kernels transform_resize_avx2;
extern const struct resize_kernels transform_resize_avx512;

/* Shared by the two tables for x86. */
size_t transform_resize_exact_bytes(const struct resize_axis *axis);
void transform_resize_exact_prepare(const struct resize_axis *axis, void *table);
void transform_resize_exact_columns(const struct resize_axis *axis, const void *table,
                                    const uint8_t *row, uint8_t *out);
#endif

/* The tables that this CPU can run, the best first; NULL behind the last. */
const struct resize_kernels *transform_resize_choice(unsigned index);

#endif
