/* Dtypes, layouts and normalisation: see transform_emit.h. */
#include "transform/transform_emit.h"

#include <string.h>

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Nearest bfloat16, halves to even. Values are finite. */
static uint16_t to_bfloat16(float value)
{
    uint32_t bits = bits_of(value);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* Nearest float16, halves to even; beyond its range infinity. Values are finite. */
static uint16_t to_float16(float value)
{
    const uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000;
    const int32_t exponent = (int32_t)(bits >> 23 & 0xFF) - 127 + 15;
    uint32_t mantissa = (bits & 0x7FFFFF) | 0x800000;
    if (exponent >= 31)
        return (uint16_t)(sign | 0x7C00);
    if (exponent < -10)
        return (uint16_t)sign;
    uint32_t shift = exponent <= 0 ? 14 - (uint32_t)exponent : 13;
    uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1),
             half = 1u << (shift - 1);
    if (rest > half || (rest == half && (kept & 1)))
        kept++;
    uint32_t base = exponent <= 0 ? 0 : (uint32_t)exponent << 10;
    return (uint16_t)(sign | (exponent <= 0 ? kept : base + (kept - 0x400)));
}

size_t transform_emit_value_bytes(uint32_t dtype)
{
    switch (dtype) {
    case FIELD_DTYPE_UINT8:
        return 1;
    case FIELD_DTYPE_FLOAT16:
    case FIELD_DTYPE_BFLOAT16:
        return 2;
    case FIELD_DTYPE_FLOAT32:
        return 4;
    default: /* a number from the configuration, not an enum */
        return 0;
    }
}

bool transform_emit_is_plain(const struct emit *emit)
{
    return emit->dtype == FIELD_DTYPE_UINT8 && emit->layout == FIELD_LAYOUT_NHWC;
}

/* True when the tables are those of the field. */
static bool is_made_for(const struct emit *emit, const struct field_spec *field)
{
    if (!emit->ready || emit->dtype != field->dtype || emit->layout != field->layout ||
        emit->normalize != field->normalize)
        return false;
    for (int c = 0; c < EMIT_CHANNELS && field->normalize; c++) {
        if (emit->mean[c] != field->mean[c] || emit->std[c] != field->std[c])
            return false;
    }
    return true;
}

/* What each value of a byte becomes. */
static void tables_make(struct emit *emit)
{
    if (emit->dtype == FIELD_DTYPE_UINT8)
        return;
    for (int c = 0; c < EMIT_CHANNELS; c++) {
        for (int v = 0; v < 256; v++) {
            double exact = emit->normalize ? (v / 255.0 - emit->mean[c]) / emit->std[c] : v;
            float value = (float)exact;
            if (emit->dtype == FIELD_DTYPE_FLOAT32)
                emit->table.f32[c][v] = value;
            else if (emit->dtype == FIELD_DTYPE_FLOAT16)
                emit->table.f16[c][v] = to_float16(value);
            else
                emit->table.f16[c][v] = to_bfloat16(value);
        }
    }
}

void transform_emit_prepare(struct emit *emit, const struct field_spec *field)
{
    if (is_made_for(emit, field))
        return;
    emit->dtype = field->dtype;
    emit->layout = field->layout;
    emit->normalize = field->normalize;
    memcpy(emit->mean, field->mean, sizeof emit->mean);
    memcpy(emit->std, field->std, sizeof emit->std);
    emit->ready = true;
    if (!emit->kernels)
        emit->kernels = transform_emit_choice(0);
    tables_make(emit);
    if (emit->kernels->prepare)
        emit->kernels->prepare(emit);
}

static void line_u8(const uint8_t *rgb, size_t width, size_t plane, uint8_t *out)
{
    for (size_t x = 0; x < width; x++, rgb += EMIT_CHANNELS) {
        out[x] = rgb[0];
        out[x + plane] = rgb[1];
        out[x + 2 * plane] = rgb[2];
    }
}

/* Both layouts: values of a channel are `step` apart, channels `plane`. */
static void line_f32(const struct emit *emit, const uint8_t *rgb, size_t width, size_t step,
                     size_t plane, float *out)
{
    for (size_t x = 0; x < width; x++, rgb += EMIT_CHANNELS, out += step) {
        out[0] = emit->table.f32[0][rgb[0]];
        out[plane] = emit->table.f32[1][rgb[1]];
        out[2 * plane] = emit->table.f32[2][rgb[2]];
    }
}

static void line_f16(const struct emit *emit, const uint8_t *rgb, size_t width, size_t step,
                     size_t plane, uint16_t *out)
{
    for (size_t x = 0; x < width; x++, rgb += EMIT_CHANNELS, out += step) {
        out[0] = emit->table.f16[0][rgb[0]];
        out[plane] = emit->table.f16[1][rgb[1]];
        out[2 * plane] = emit->table.f16[2][rgb[2]];
    }
}

static void line(const struct emit *emit, const uint8_t *rgb, size_t width, size_t plane,
                 uint8_t *out)
{
    const bool planes = emit->layout == FIELD_LAYOUT_NCHW;
    const size_t step = planes ? 1 : EMIT_CHANNELS;
    const size_t apart = planes ? plane : 1;
    if (emit->dtype == FIELD_DTYPE_UINT8 && planes)
        line_u8(rgb, width, apart, out);
    else if (emit->dtype == FIELD_DTYPE_UINT8)
        memcpy(out, rgb, EMIT_CHANNELS * width);
    else if (emit->dtype == FIELD_DTYPE_FLOAT32)
        line_f32(emit, rgb, width, step, apart, (float *)(void *)out);
    else
        line_f16(emit, rgb, width, step, apart, (uint16_t *)(void *)out);
}

const struct emit_kernels transform_emit_portable = {.name = "portable", .line = line};

const struct emit_kernels *transform_emit_choice(unsigned index)
{
    const struct emit_kernels *list[3] = {0};
    unsigned count = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vbmi"))
        list[count++] = &transform_emit_avx512;
#endif
    list[count++] = &transform_emit_portable;
    return index < count ? list[index] : NULL;
}

void transform_emit_line(const struct emit *emit, const uint8_t *rgb, int32_t width, int32_t height,
                         int32_t y, uint8_t *row)
{
    const size_t w = (size_t)width;
    const size_t step = emit->layout == FIELD_LAYOUT_NCHW ? 1 : EMIT_CHANNELS;
    uint8_t *out = row + transform_emit_value_bytes(emit->dtype) * w * (size_t)y * step;
    emit->kernels->line(emit, rgb, w, w * (size_t)height, out);
}
