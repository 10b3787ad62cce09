/* Pictures as they are stored and as they are shown: EXIF orientations 1 … 8. */
#ifndef SPDLD_WORKER_ORIENT_H
#define SPDLD_WORKER_ORIENT_H

#include <stddef.h>
#include <stdint.h>

#include "decode/decode.h"
#include "transform/transform_law.h"

/* Size of a picture as shown. */
void worker_orient_size(int32_t orientation, int32_t width, int32_t height, int32_t *ret_width,
                        int32_t *ret_height);

/* The region as stored of a box as shown. width and height are of the picture as stored. */
struct decode_region worker_orient_region(int32_t orientation, int32_t width, int32_t height,
                                          const struct law_box *box);

/* Copies decoded pixels (4 bytes each) of a region as stored into rows as shown, `stride` bytes
 * apart. */
void worker_orient_copy(int32_t orientation, const struct decode_pixels *pixels,
                        const struct decode_region *region, uint8_t *to, size_t stride);

#endif
