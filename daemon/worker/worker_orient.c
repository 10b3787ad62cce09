/* Pictures as they are stored and as they are shown. An orientation is a transposition or none,
 * followed by a swap of left and right, a swap of top and bottom, both or none. Pure. */
#include "worker/worker_orient.h"

#include <stdbool.h>
#include <string.h>

enum { TILE = 16 }; /* pixels: so many rows of both sides stay in the first cache */

/* How to find the stored pixel of a shown one. */
struct turn {
    bool transpose;  /* columns as shown are rows as stored */
    bool from_right; /* the shown picture's first column is the stored one's last (row, when
                        transposed) */
    bool from_bottom;
};

static struct turn turn_of(int32_t orientation)
{
    switch (orientation) {
    case 2:
        return (struct turn){false, true, false};
    case 3:
        return (struct turn){false, true, true};
    case 4:
        return (struct turn){false, false, true};
    case 5:
        return (struct turn){true, false, false};
    case 6:
        return (struct turn){true, true, false};
    case 7:
        return (struct turn){true, true, true};
    case 8:
        return (struct turn){true, false, true};
    default:
        return (struct turn){false, false, false};
    }
}

void worker_orient_size(int32_t orientation, int32_t width, int32_t height, int32_t *ret_width,
                        int32_t *ret_height)
{
    bool transpose = turn_of(orientation).transpose;
    *ret_width = transpose ? height : width;
    *ret_height = transpose ? width : height;
}

struct decode_region worker_orient_region(int32_t orientation, int32_t width, int32_t height,
                                          const struct law_box *box)
{
    struct turn turn = turn_of(orientation);
    int32_t shown_width, shown_height;
    worker_orient_size(orientation, width, height, &shown_width, &shown_height);
    int32_t x = turn.from_right ? shown_width - box->x - box->width : box->x;
    int32_t y = turn.from_bottom ? shown_height - box->y - box->height : box->y;
    if (turn.transpose)
        return (struct decode_region){y, x, box->height, box->width};
    return (struct decode_region){x, y, box->width, box->height};
}

/* Copies a tile of the shown picture; steps are in bytes and may be negative. */
static void copy_tile(const uint8_t *from, ptrdiff_t step_x, ptrdiff_t step_y, uint8_t *to,
                      size_t stride, const int32_t size[2])
{
    for (int32_t y = 0; y < size[1]; y++) {
        const uint8_t *pixel = from + y * step_y;
        uint8_t *out = to + (size_t)y * stride;
        for (int32_t x = 0; x < size[0]; x++, pixel += step_x, out += 4)
            memcpy(out, pixel, 4);
    }
}

void worker_orient_copy(int32_t orientation, const struct decode_pixels *pixels,
                        const struct decode_region *region, uint8_t *to, size_t stride)
{
    struct turn turn = turn_of(orientation);
    int32_t width, height;
    worker_orient_size(orientation, region->width, region->height, &width, &height);
    ptrdiff_t line = (ptrdiff_t)pixels->stride;
    ptrdiff_t step_x = turn.transpose ? line : 4, step_y = turn.transpose ? 4 : line;
    const uint8_t *first = pixels->base + pixels->region_y * line + pixels->region_x * 4;
    if (turn.from_right) {
        first += (width - 1) * step_x;
        step_x = -step_x;
    }
    if (turn.from_bottom) {
        first += (height - 1) * step_y;
        step_y = -step_y;
    }
    for (int32_t y = 0; y < height; y += TILE)
        for (int32_t x = 0; x < width; x += TILE) {
            int32_t size[2] = {width - x < TILE ? width - x : TILE,
                               height - y < TILE ? height - y : TILE};
            copy_tile(first + x * step_x + y * step_y, step_x, step_y,
                      to + (size_t)y * stride + (size_t)x * 4, stride, size);
        }
}
