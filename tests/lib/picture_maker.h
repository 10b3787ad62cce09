/* Makes picture files of every format that is decoded, from a picture that is computed; and PNG and
 * BMP files out of given parts. */
#ifndef SPDL_TESTS_PICTURE_MAKER_H
#define SPDL_TESTS_PICTURE_MAKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file that grows; data NULL at first. Free data. */
struct file {
    uint8_t *data;
    size_t bytes;
};

void file_add(struct file *file, const void *data, size_t bytes);
void file_add_32_be(struct file *file, uint32_t value);
void file_add_32_le(struct file *file, uint32_t value);
void file_add_16_le(struct file *file, uint32_t value);

/* PNG, part by part. The pixels are stored, not packed: rows of `row_bytes` bytes, without filter.
 */
void png_begin(struct file *file, uint32_t width, uint32_t height, int depth, int colour_type);
void png_chunk(struct file *file, const char *name, const void *data, size_t bytes);
void png_pixels(struct file *file, const uint8_t *rows, size_t row_bytes, size_t row_count);
void png_end(struct file *file);

/* BMP of Windows 3: head, masks, palette (4 bytes a colour) and pixels as given. */
struct bmp_recipe {
    int32_t width, height;
    uint32_t bits, packing;
    const void *masks, *palette, *pixels;
    size_t masks_bytes, palette_bytes, pixels_bytes;
};
struct file bmp_make(const struct bmp_recipe *recipe);

/* One intact picture of each kind. */
struct picture_kind {
    const char *name;  /* of the kind */
    const char *codec; /* of decode_table */
    size_t spare;      /* bytes at the end without which it is whole all the same; for width 37 */
    bool exact;        /* its pixels are the computed ones */
    struct file (*make)(const struct picture_kind *kind, int32_t width, int32_t height,
                        uint32_t seed);
    int option; /* of make */
};
extern const struct picture_kind picture_kinds[];
extern const size_t picture_kind_count;

/* The computed picture: 3 bytes a pixel; free it. Grey pictures take its green. */
uint8_t *picture_pixels(int32_t width, int32_t height, uint32_t seed);

#endif
