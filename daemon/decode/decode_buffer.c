/* What the codecs share: the memory for decoded rows, and how a fault is filled. */
#include "decode/decode_buffer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    ALIGN = 64,
    SPARE_BYTES = 64,              /* that the transform may read behind the last pixel */
    KEEP_BYTES = 64 * 1024 * 1024, /* a larger buffer goes with its picture */
};

size_t decode_stride(int32_t width)
{
    return ((size_t)width * 4 + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

bool decode_buffer_reserve(struct decode_buffer *buffer, size_t stride, size_t rows)
{
    size_t bytes;
    if (__builtin_mul_overflow(stride, rows, &bytes) ||
        __builtin_add_overflow(bytes, (size_t)SPARE_BYTES, &bytes))
        return false;
    if (bytes <= buffer->bytes)
        return true;
    decode_buffer_free(buffer);
    buffer->base = aligned_alloc(ALIGN, bytes);
    buffer->bytes = buffer->base == NULL ? 0 : bytes;
    return buffer->base != NULL;
}

void decode_buffer_trim(struct decode_buffer *buffer)
{
    if (buffer->bytes > KEEP_BYTES)
        decode_buffer_free(buffer);
}

void decode_buffer_free(struct decode_buffer *buffer)
{
    free(buffer->base);
    *buffer = (struct decode_buffer){0};
}

enum spdl_class decode_fault_set(struct decode_fault *fault, enum spdl_class class_number,
                                 uint64_t byte_offset, const char *format, ...)
{
    fault->class_number = class_number;
    fault->byte_offset = byte_offset;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault->message, sizeof fault->message, format, arguments);
    va_end(arguments);
    return class_number;
}

enum spdl_class decode_size_check(uint64_t width, uint64_t height, uint64_t max_pixels,
                                  uint64_t byte_offset, struct decode_fault *fault)
{
    if (width == 0 || height == 0)
        return decode_fault_set(fault, SPDL_CLASS_CORRUPT, byte_offset,
                                "it is %" PRIu64 " x %" PRIu64 " pixels", width, height);
    uint64_t pixels;
    if (__builtin_mul_overflow(width, height, &pixels) || pixels > max_pixels ||
        width > INT32_MAX || height > INT32_MAX)
        return decode_fault_set(fault, SPDL_CLASS_LIMIT, byte_offset,
                                "%" PRIu64 " x %" PRIu64 " is more than %" PRIu64 " pixels", width,
                                height, max_pixels);
    return SPDL_CLASS_OK;
}

enum spdl_class decode_bytes_check(uint64_t pixels, uint64_t bytes, uint64_t byte_offset,
                                   struct decode_fault *fault)
{
    if (pixels <= DECODE_PIXELS_FREE || pixels / DECODE_PIXELS_A_BYTE <= bytes)
        return SPDL_CLASS_OK;
    return decode_fault_set(fault, SPDL_CLASS_LIMIT, byte_offset,
                            "%" PRIu64 " pixels in %" PRIu64 " bytes: more than %d a byte", pixels,
                            bytes, (int)DECODE_PIXELS_A_BYTE);
}
