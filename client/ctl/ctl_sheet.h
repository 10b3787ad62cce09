/* A contact sheet: a title, and tiles with a picture and two lines of text each, drawn into memory
 * and written as PNG. */
#ifndef SPDL_CTL_SHEET_H
#define SPDL_CTL_SHEET_H

#include <stddef.h>
#include <stdint.h>

#include "client/ctl/ctl_picture.h"

struct ctl_sheet {
    uint8_t *pixels; /* owned; RGB */
    uint32_t width, height;
    uint32_t columns, tile_width, tile_height; /* of the pictures */
};

/* Room for `tiles` tiles of pictures of this size and a title. -ENOMEM; -EFBIG: more than 256 MiB.
 */
int ctl_sheet_create(struct ctl_sheet *sheet, uint32_t tiles, uint32_t picture_width,
                     uint32_t picture_height);
void ctl_sheet_destroy(struct ctl_sheet *sheet);

void ctl_sheet_title(struct ctl_sheet *sheet, const char *title);
void ctl_sheet_picture(struct ctl_sheet *sheet, uint32_t tile, const struct ctl_picture *picture,
                       uint32_t row);
/* Instead of a picture: a cross, and why there is none in a word. */
void ctl_sheet_missing(struct ctl_sheet *sheet, uint32_t tile, const char *word);
/* Two lines under the tile; keys longer than the tile lose their beginning. */
void ctl_sheet_text(struct ctl_sheet *sheet, uint32_t tile, const char *key, const char *label);

/* Writes the PNG under a temporary name beside `path` and renames it. A negative errno; -EIO:
 * libpng failed. */
int ctl_sheet_write(const struct ctl_sheet *sheet, const char *path);

#endif
