/* Transform: from a decoded region of a picture to the finished row. A field's operations are folded into one geometry (crop, resize, window,
 * flips), which a single pass over the pixels then carries out: crop, resize, flip, normalise, layout and dtype in one go, straight into
 * the row. Pure: no I/O, no allocation after transform_create. */
#ifndef SPDLD_TRANSFORM_H
#define SPDLD_TRANSFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "item/class.h"
#include "item/field.h"
#include "transform/transform_law.h"

enum { TRANSFORM_SIDE_MAX = 65535 }; /* of a picture, pixels */

/* What the operations of a field come to for one picture. */
struct transform_geometry {
    struct law_box box;     /* region of the picture as shown that is needed; inside it, never empty */
    int32_t width, height;  /* size that the box is resized to; the box's own where there is no resize */
    struct law_box window;  /* of the resized picture that is delivered; parts outside it are 0 (torchvision's padding) */
    uint32_t filter;        /* enum field_filter */
    bool hflip, vflip;      /* of the delivered window */
    bool has_draws;         /* an operation drew something */
};

/* Folds the operations for a picture of width x height as shown. draws: seed, position, epoch (field and operation are filled in here).
 * Returns a class: OK, or OUT_OF_RANGE (a random crop larger than the picture), LIMIT. */
enum spdl_class transform_fold(const struct field_spec *field, uint32_t field_number, const struct law_draws *draws,
                               int32_t width, int32_t height, struct transform_geometry *ret_geometry);

/* Checks at configuration time that the operations can be folded (one resize at most, and what comes before and after it). 0 or -EINVAL. */
int transform_check(const struct field_spec *field, struct err *reterr);

/* Decoded pixels: 4 bytes each (R, G, B, unused), rows `stride` bytes apart. They hold the geometry's box, whose first pixel is at
 * (box_x, box_y) in the buffer. At least 64 readable bytes follow the last pixel of the buffer. */
struct transform_pixels {
    const uint8_t *base;
    size_t stride;
    int32_t box_x, box_y;
};

struct transform; /* scratch of one thread; grows to the largest picture seen, then allocates no more */
struct transform *transform_create(void); /* returned owned; NULL: no memory */
void transform_destroy(struct transform *transform);

/* Carries the geometry out and writes the row (field->row_bytes bytes at `row`, 16-byte aligned at least, dtype and layout of the field). Within 1 of Pillow for 8
 * bits: horizontal pass first, rounded and clipped to 8 bits between the passes. The same bytes on every CPU. -ENOMEM. */
int transform_run(struct transform *transform, const struct field_spec *field, const struct transform_geometry *geometry,
                  const struct transform_pixels *pixels, uint8_t *row);

#endif
