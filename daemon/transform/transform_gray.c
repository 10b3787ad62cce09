/* Pictures of one channel: see transform_gray.h. */
#include "transform/transform_gray.h"

#include "transform/transform.h"

void transform_gray(uint8_t *pixels, size_t stride, int32_t width, int32_t height)
{
    for (int32_t y = 0; y < height; y++) {
        uint8_t *pixel = pixels + (size_t)y * stride;
        for (int32_t x = 0; x < width; x++, pixel += 4) {
            uint32_t sum = pixel[0] * 19595u + pixel[1] * 38470u + pixel[2] * 7471u + 0x8000u;
            pixel[0] = pixel[1] = pixel[2] = (uint8_t)(sum >> 16);
        }
    }
}

void transform_gray_line(const struct emit *emit, const uint8_t *rgb, int32_t width, int32_t y,
                         uint8_t *row)
{
    const size_t w = (size_t)width;
    uint8_t *out = row + transform_emit_value_bytes(emit->dtype) * w * (size_t)y;
    float *floats = (float *)(void *)out;
    uint16_t *halves = (uint16_t *)(void *)out;
    for (size_t x = 0; x < w; x++, rgb += EMIT_CHANNELS) {
        if (emit->dtype == FIELD_DTYPE_UINT8)
            out[x] = rgb[0];
        else if (emit->dtype == FIELD_DTYPE_FLOAT32)
            floats[x] = emit->table.f32[0][rgb[0]];
        else
            halves[x] = emit->table.f16[0][rgb[0]];
    }
}
