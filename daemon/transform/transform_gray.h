/* Pictures of one channel. They go through a resize as R = G = B, and one of the three is written.
 */
#ifndef SPDLD_TRANSFORM_GRAY_H
#define SPDLD_TRANSFORM_GRAY_H

#include <stddef.h>
#include <stdint.h>

#include "transform/transform_emit.h"

/* Writes line y of a gray picture that is `width` pixels wide from its 3 * width bytes. */
void transform_gray_line(const struct emit *emit, const uint8_t *rgb, int32_t width, int32_t y,
                         uint8_t *row);

#endif
