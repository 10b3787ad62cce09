/* A field of a batch as pictures. */
#include "client/ctl/ctl_picture.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* A half as a float: sign, 5 bits of exponent, 10 of fraction. */
static float picture_half(uint16_t bits)
{
    float sign = bits >> 15 ? -1.0F : 1.0F;
    int exponent = bits >> 10 & 31;
    float fraction = (float)(bits & 1023) / 1024.0F;
    if (exponent == 31)
        return NAN;
    if (exponent == 0)
        return sign * fraction / 16384.0F;
    float power = exponent >= 15 ? (float)(1U << (unsigned)(exponent - 15))
                                 : 1.0F / (float)(1U << (unsigned)(15 - exponent));
    return sign * (1.0F + fraction) * power;
}

static float picture_value(const struct spdl_tensor *tensor, size_t index)
{
    const char *base = tensor->data;
    uint16_t half;
    uint32_t word;
    float value;
    switch (tensor->dtype) {
    case SPDL_UINT8:
        return (float)(uint8_t)base[index];
    case SPDL_FLOAT32:
        memcpy(&value, base + index * sizeof value, sizeof value);
        return value;
    case SPDL_FLOAT16:
        memcpy(&half, base + index * sizeof half, sizeof half);
        return picture_half(half);
    case SPDL_BFLOAT16:
        memcpy(&half, base + index * sizeof half, sizeof half);
        word = (uint32_t)half << 16;
        memcpy(&value, &word, sizeof value);
        return value;
    case SPDL_INT64:
        break;
    }
    return 0;
}

/* Lowest and highest value of each channel over the batch: what undoes a normalisation well enough
 * to look at. */
static void picture_range(struct ctl_picture *picture)
{
    for (uint32_t c = 0; c < picture->channels; c++) {
        float low = INFINITY, high = -INFINITY;
        for (size_t row = 0; row < picture->rows; row++) {
            for (size_t y = 0; y < picture->height; y++) {
                size_t at = row * picture->row_step + y * picture->y_step +
                            c * (size_t)picture->channel_step;
                for (size_t x = 0; x < picture->width; x++, at += picture->x_step) {
                    float value = picture_value(&picture->tensor, at);
                    low = value < low ? value : low;
                    high = value > high ? value : high;
                }
            }
        }
        picture->low[c] = low < high ? low : 0.0F;
        picture->high[c] = low < high ? high : 1.0F;
    }
}

static bool picture_channels(uint64_t count)
{
    return count == 1 || count == 3 || count == 4;
}

int ctl_picture_init(struct ctl_picture *picture, const struct spdl_tensor *tensor)
{
    memset(picture, 0, sizeof *picture);
    const uint64_t *shape = tensor->shape;
    if (tensor->dims != 4 || tensor->dtype == SPDL_INT64)
        return -ENOTSUP;
    bool last = picture_channels(shape[3]);
    if (!last && !picture_channels(shape[1]))
        return -ENOTSUP;
    uint64_t height = last ? shape[1] : shape[2], width = last ? shape[2] : shape[3];
    if (shape[0] > UINT32_MAX || height - 1 >= 65536 || width - 1 >= 65536)
        return -ENOTSUP;
    picture->tensor = *tensor;
    picture->rows = (uint32_t)shape[0];
    picture->height = (uint32_t)height;
    picture->width = (uint32_t)width;
    picture->channels = (uint32_t)(last ? shape[3] : shape[1]);
    picture->row_step = (size_t)height * width * picture->channels;
    picture->x_step = last ? picture->channels : 1;
    picture->y_step = picture->x_step * width;
    picture->channel_step = last ? 1 : (size_t)height * width;
    if (tensor->dtype != SPDL_UINT8) {
        picture_range(picture);
        return 0;
    }
    for (uint32_t c = 0; c < 4; c++)
        picture->high[c] = 255.0F;
    return 0;
}

static double picture_mean(const struct ctl_picture *picture, size_t base, const uint32_t span[4])
{
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t y = span[1]; y < span[3] || y == span[1]; y++) {
        size_t at = base + y * picture->y_step + span[0] * picture->x_step;
        for (uint32_t x = span[0]; x < span[2] || x == span[0]; x++, at += picture->x_step) {
            sum += (double)picture_value(&picture->tensor, at);
            count++;
        }
    }
    return sum / count;
}

void ctl_picture_sample(const struct ctl_picture *picture, uint32_t row, const uint32_t span[4],
                        uint8_t rgb[3])
{
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t channel = picture->channels < 3 ? 0 : i;
        size_t base = row * picture->row_step + channel * picture->channel_step;
        double low = (double)picture->low[channel], high = (double)picture->high[channel];
        double value = (picture_mean(picture, base, span) - low) / (high - low) * 255.0 + 0.5;
        rgb[i] = value >= 255 ? 255 : value > 0 ? (uint8_t)value : 0;
    }
}
