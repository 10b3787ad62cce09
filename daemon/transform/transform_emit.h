/* The last step of a row of pixels: from R, G, B bytes to the field's dtype and layout, normalised
 * when asked for. What a byte becomes is worked out once for all 256 values of each channel, in
 * doubles and rounded once to float32, so that it is exact. */
#ifndef SPDLD_TRANSFORM_EMIT_H
#define SPDLD_TRANSFORM_EMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "item/field.h"

enum { EMIT_CHANNELS = 3, EMIT_STEP = 64 };

struct emit;

/* One way to write a line. All give the same bytes. */
struct emit_kernels {
    const char *name;
    void (*prepare)(struct emit *emit); /* behind the tables; optional */
    /* Channels of planes lie `plane` values apart. */
    void (*line)(const struct emit *emit, const uint8_t *rgb, size_t width, size_t plane,
                 uint8_t *out);
};
extern const struct emit_kernels transform_emit_portable;
#if defined(__x86_64__)
extern const struct emit_kernels transform_emit_avx512;
#endif

/* Those that this CPU can run, the best first; NULL behind the last. */
const struct emit_kernels *transform_emit_choice(unsigned index);

/* What transform_emit_avx512 makes of the tables. */
struct emit_wide {
    uint8_t bytes[EMIT_CHANNELS][4][256]; /* each byte of the values */
    uint8_t pick[EMIT_CHANNELS][EMIT_STEP];
    uint8_t order[EMIT_STEP];
    uint64_t is_third[EMIT_CHANNELS];
    uint64_t is_channel[EMIT_CHANNELS][EMIT_CHANNELS];
};

struct emit {
    /* The settings that the tables were made for. */
    uint32_t dtype, layout, normalize;
    double mean[EMIT_CHANNELS], std[EMIT_CHANNELS];
    bool ready;
    const struct emit_kernels *kernels; /* NULL: the best are taken */
    union {
        float f32[EMIT_CHANNELS][256];
        uint16_t f16[EMIT_CHANNELS][256]; /* float16 or bfloat16 */
    } table;
    struct emit_wide wide;
};

/* Makes the tables for the field unless they are there already. */
void transform_emit_prepare(struct emit *emit, const struct field_spec *field);

/* True when the bytes are the row as they stand: uint8, nhwc. */
bool transform_emit_is_plain(const struct emit *emit);

/* Bytes of one value; 0 when the dtype is not served. */
size_t transform_emit_value_bytes(uint32_t dtype);

/* Writes line y of a picture of width x height pixels from its 3 * width bytes to its place in row.
 */
void transform_emit_line(const struct emit *emit, const uint8_t *rgb, int32_t width, int32_t height,
                         int32_t y, uint8_t *row);

#endif
