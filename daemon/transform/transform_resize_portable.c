/* The loops of a resize in plain C: see transform_resize.h. What the other tables are tested
 * against. */
#include "transform/transform_resize.h"

static void mix_rows(const struct resize_lines *lines, const uint32_t *weights, int32_t taps,
                     struct resize_planes planes)
{
    for (int32_t x = 0; x < lines->pixels; x++) {
        uint32_t sum[4];
        for (int c = 0; c < 4; c++)
            sum[c] = (uint32_t)taps / 2;
        for (int32_t k = 0; k < taps; k++) {
            const uint8_t *pixel = lines->source + (size_t)k * lines->stride + 4 * (size_t)x;
            uint32_t weight = weights[k] & 0xFFFF;
            for (int c = 0; c < 4; c++)
                sum[c] += (uint32_t)pixel[c] * weight >> 8;
        }
        planes.even[x] = sum[0] | sum[2] << 16;
        planes.odd[x] = sum[1] | sum[3] << 16;
    }
}

static size_t columns_bytes(const struct resize_axis *axis)
{
    (void)axis;
    return 0;
}

static void columns_prepare(const struct resize_axis *axis, void *table)
{
    (void)axis;
    (void)table;
}

static void mix_columns(const struct resize_axis *axis, const void *table,
                        struct resize_planes planes, uint8_t *out)
{
    (void)table;
    for (int32_t i = 0; i < axis->outputs; i++) {
        const uint32_t *weights = axis->weight + (size_t)i * (size_t)axis->taps;
        uint32_t red, green, blue;
        red = green = blue = 128 + (uint32_t)axis->count[i] / 2;
        for (int32_t k = 0; k < axis->count[i]; k++) {
            uint32_t even = planes.even[axis->first[i] + k];
            uint32_t odd = planes.odd[axis->first[i] + k];
            uint32_t weight = weights[k] & 0xFFFF;
            red += (even & 0xFFFF) * weight >> 16;
            green += (odd & 0xFFFF) * weight >> 16;
            blue += (even >> 16) * weight >> 16;
        }
        out[3 * i] = (uint8_t)(red >> 8);
        out[3 * i + 1] = (uint8_t)(green >> 8);
        out[3 * i + 2] = (uint8_t)(blue >> 8);
    }
}

static uint8_t clip(int64_t sum)
{
    int64_t value = (sum + (1 << (AXIS_EXACT_SHIFT - 1))) >> AXIS_EXACT_SHIFT;
    return value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value;
}

static void exact_columns(const struct resize_axis *axis, const void *table, const uint8_t *row,
                          uint8_t *out)
{
    (void)table;
    for (int32_t i = 0; i < axis->outputs; i++) {
        const uint32_t *weights = axis->weight + (size_t)i * (size_t)axis->taps;
        const uint8_t *pixel = row + 4 * (size_t)axis->first[i];
        int64_t sum[3] = {0, 0, 0};
        for (int32_t k = 0; k < axis->count[i]; k++, pixel += 4) {
            for (int c = 0; c < 3; c++)
                sum[c] += (int64_t)(int32_t)weights[k] * pixel[c];
        }
        for (int c = 0; c < 3; c++)
            out[3 * i + c] = clip(sum[c]);
    }
}

static void exact_rows(const uint8_t *const *rows, const uint32_t *weights, int32_t taps,
                       size_t bytes, uint8_t *out)
{
    for (size_t x = 0; x < bytes; x++) {
        int64_t sum = 0;
        for (int32_t k = 0; k < taps; k++)
            sum += (int64_t)(int32_t)weights[k] * rows[k][x];
        out[x] = clip(sum);
    }
}

const struct resize_kernels transform_resize_portable = {
    .name = "portable",
    .mix_rows = mix_rows,
    .columns_bytes = columns_bytes,
    .columns_prepare = columns_prepare,
    .mix_columns = mix_columns,
    .exact_bytes = columns_bytes,
    .exact_prepare = columns_prepare,
    .exact_columns = exact_columns,
    .exact_rows = exact_rows,
};
