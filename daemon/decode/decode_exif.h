/* The orientation in the EXIF part of a picture: a tiny, bounded reader of TIFF's first directory.
 */
#ifndef SPDLD_DECODE_EXIF_H
#define SPDLD_DECODE_EXIF_H

#include <stddef.h>
#include <stdint.h>

/* tiff: what follows "Exif\0\0"; any bytes at all. Returns 1 … 8; 1 where there is no orientation
 * or it makes no sense. Pure. */
int32_t decode_exif_orientation(const uint8_t *tiff, size_t bytes);

/* The same where "Exif\0\0" may come first: formats whose part has a name of its own need none, and
 * some writers put it there. */
int32_t decode_exif_orientation_named(const uint8_t *data, size_t bytes);

#endif
