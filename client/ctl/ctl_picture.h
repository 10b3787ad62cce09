/* A field of a batch as pictures: where its numbers lie and how they become bytes to look at. */
#ifndef SPDL_CTL_PICTURE_H
#define SPDL_CTL_PICTURE_H

#include <stddef.h>
#include <stdint.h>

#include "spdl/client.h"

/* A field of pictures: how its numbers become bytes. */
struct ctl_picture {
    struct spdl_tensor tensor;
    uint32_t rows, height, width, channels;
    size_t row_step, y_step, x_step, channel_step; /* in elements */
    float low[4], high[4]; /* of each channel over the batch; uint8: 0 and 255 */
};

/* Understands the tensor as pictures: [rows, h, w, c] or [rows, c, h, w] with 1, 3 or 4 channels.
 * -ENOTSUP: it is none. */
int ctl_picture_init(struct ctl_picture *picture, const struct spdl_tensor *tensor);

/* The mean of the dots [x0, x1) by [y0, y1) (span: x0, y0, x1, y1; at least one dot is taken) of a
 * row's picture, as red, green and blue. */
void ctl_picture_sample(const struct ctl_picture *picture, uint32_t row, const uint32_t span[4],
                        uint8_t rgb[3]);

#endif
