/* What the codecs share: the memory for decoded rows, and how a fault is filled. */
#ifndef SPDLD_DECODE_BUFFER_H
#define SPDLD_DECODE_BUFFER_H

#include "decode/decode.h"

/* Grows, and is given back by the trim after an unusually large picture. */
struct decode_buffer {
    uint8_t *base;
    size_t bytes;
};

/* Bytes from one row of `width` pixels to the next: rows begin at multiples of 64. */
size_t decode_stride(int32_t width);

/* Room for the rows and the bytes behind them that may be read; what was in it is lost. Returns
 * false when there is no memory. */
bool decode_buffer_reserve(struct decode_buffer *buffer, size_t stride, size_t rows);
void decode_buffer_trim(struct decode_buffer *buffer);
void decode_buffer_free(struct decode_buffer *buffer);

/* Fills the fault; returns the class. */
enum spdl_class decode_fault_set(struct decode_fault *fault, enum spdl_class class_number,
                                 uint64_t byte_offset, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The size that a head tells, as every codec judges it: none is CORRUPT, too many pixels or a side
 * that no region can have is LIMIT. */
enum spdl_class decode_size_check(uint64_t width, uint64_t height, uint64_t max_pixels,
                                  uint64_t byte_offset, struct decode_fault *fault);

static inline bool decode_region_fits(const struct decode_region *region, uint32_t width,
                                      uint32_t height)
{
    return region->x >= 0 && region->y >= 0 && region->width > 0 && region->height > 0 &&
           (int64_t)region->x + region->width <= (int64_t)width &&
           (int64_t)region->y + region->height <= (int64_t)height;
}

/* Formats whose few bytes may leave any number of pixels out: above the first number of pixels the
 * file has a byte for so many of them. OK or LIMIT. */
enum { DECODE_PIXELS_FREE = 1 << 20, DECODE_PIXELS_A_BYTE = 4096 };
enum spdl_class decode_bytes_check(uint64_t pixels, uint64_t bytes, uint64_t byte_offset,
                                   struct decode_fault *fault);

#endif
