/* Transform: from a decoded region of a picture to the finished row. A field's operations are
 * folded into one geometry (crop, resize, window, flips), which a single pass over the pixels then
 * carries out: crop, resize, flip, normalise, layout and dtype in one go, straight into the row.
 * Pure: no I/O, no allocation once the scratch has grown to the largest picture. */
#ifndef SPDLD_TRANSFORM_H
#define SPDLD_TRANSFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "item/class.h"
#include "item/field.h"
#include "transform/transform_law.h"

enum { TRANSFORM_SIDE_MAX = 65535 }; /* of a picture, pixels */

/* What the operations of a field come to for one picture. All boxes before the flips. */
struct transform_geometry {
    struct law_box box; /* region of the picture as shown that is needed; inside it, never empty */
    struct law_box frame;  /* region that is resized, in the picture as shown. It may stick out of
                              the  picture (torchvision's padding; read as 0) and out of the box
                              (parts  that no delivered pixel needs) */
    int32_t width, height; /* size that the frame is resized to; its own where there is no resize */
    struct law_box window; /* of the resized frame that is delivered; it may stick out */
    struct law_box
        live;          /* part of the window that shows the picture; the rest is 0. May be empty */
    uint32_t filter;   /* enum field_filter; 0: no resize */
    bool hflip, vflip; /* of the delivered window */
    bool has_draws;    /* an operation drew something */
};

/* Folds the operations for a picture of width x height as shown. draws: seed, position, epoch,
 * operation: number of the first operation, a multiple of FIELD_OPS_MAX, which tells the views of a
 * field apart (field_number and each operation's number are filled in here). The field has passed
 * transform_check. With random_resized_crop (or random_crop before a resize) the box is that crop's
 * box; else it is the smallest one that the delivered pixels need. Returns a class: OK,
 * OUT_OF_RANGE (a random crop larger than the picture) or LIMIT (a side beyond TRANSFORM_SIDE_MAX).
 */
enum spdl_class transform_fold(const struct field_spec *field, uint32_t field_number,
                               const struct law_draws *draws, int32_t width, int32_t height,
                               struct transform_geometry *ret_geometry);

/* Checks at configuration time that the field can be made: its operations can be folded (one resize
 * at most), their numbers make sense, its dtype, layout and channels are served. 0 or -EINVAL. */
int transform_check(const struct field_spec *field, struct err *reterr);

/* Decoded pixels as shown: 4 bytes each (R, G, B, unused), rows `stride` bytes apart. They hold the
 * geometry's box, whose first pixel is at (box_x, box_y) in the buffer. At least 64 readable bytes
 * follow the last pixel of the buffer. Borrowed. */
struct transform_pixels {
    const uint8_t *base;
    size_t stride;
    int32_t box_x, box_y;
};

/* Makes a picture (4 bytes a pixel) gray in its place: R = G = B = the luma of ITU-R 601, as
 * Pillow's mode L. A field of one channel is made from such pixels. */
void transform_gray(uint8_t *pixels, size_t stride, int32_t width, int32_t height);

struct transform; /* scratch of one thread; grows to the largest picture seen, then allocates no
                     more */
struct transform *transform_create(void);            /* returned owned; NULL: no memory */
void transform_destroy(struct transform *transform); /* taken; NULL does nothing */

/* Carries the geometry out and writes the row, or one view of it: its bytes at `row`, in the
 * field's dtype and layout; 4-byte aligned for float32. Pixels are within 1 of Pillow's for 8 bits
 * (bicubic: equal) and the same bytes on every CPU. 0; -ENOMEM; -EINVAL when the geometry's window
 * is not the field's size. */
int transform_run(struct transform *transform, const struct field_spec *field,
                  const struct transform_geometry *geometry, const struct transform_pixels *pixels,
                  uint8_t *row);

#endif
