/* A codec under made-up bytes: its head and then its pixels, whole and in part. Both must be of the
 * same class, and the part must have the bytes of the whole. */
#ifndef SPDL_TESTS_FUZZ_PICTURE_H
#define SPDL_TESTS_FUZZ_PICTURE_H

#include <stdlib.h>
#include <string.h>

#include "decode/decode.h"
#include "tests/fuzz/fuzz.h"

enum { FUZZ_PIXELS_MAX = 1 << 16 };

static inline void *fuzz_context(const struct decode_ops *ops)
{
    static void *ctx; /* of the one codec of a program; as long as it runs */
    if (ctx != NULL)
        return ctx;
    size_t bytes = (ops->ctx_bytes + 63) & ~(size_t)63;
    ctx = aligned_alloc(64, bytes);
    if (ctx == NULL)
        abort();
    memset(ctx, 0, bytes);
    if (ops->open(ctx) != 0)
        abort();
    return ctx;
}

static inline enum spdl_class fuzz_decode(const struct decode_ops *ops,
                                          const struct decode_packet *packet,
                                          const struct decode_region *region,
                                          struct decode_pixels *ret_pixels)
{
    struct decode_head head;
    struct decode_fault fault;
    void *ctx = fuzz_context(ops);
    enum spdl_class class_number = ops->head(ctx, packet, FUZZ_PIXELS_MAX, &head, &fault);
    if (class_number == SPDL_CLASS_OK)
        class_number = ops->decode(ctx, packet, region, false, ret_pixels, &fault);
    if (class_number != SPDL_CLASS_OK && fault.class_number != class_number)
        abort();
    return class_number;
}

static inline const uint8_t *fuzz_row(const struct decode_pixels *pixels, int32_t y)
{
    return pixels->base + (size_t)(pixels->region_y + y) * pixels->stride +
           (size_t)pixels->region_x * 4;
}

/* Three of each four bytes of the region, one behind the other; free them. */
static inline uint8_t *fuzz_copy(const struct decode_pixels *pixels,
                                 const struct decode_region *region)
{
    uint8_t *copy = malloc((size_t)region->width * (size_t)region->height * 3), *to = copy;
    if (copy == NULL)
        abort();
    for (int32_t y = 0; y < region->height; y++)
        for (int32_t x = 0; x < region->width; x++, to += 3)
            memcpy(to, fuzz_row(pixels, y) + (size_t)x * 4, 3);
    return copy;
}

/* A part that the bytes choose, so that a find can be repeated. */
static inline struct decode_region fuzz_part(const struct decode_packet *packet, int32_t width,
                                             int32_t height)
{
    uint32_t luck = 1;
    for (size_t i = 0; i < packet->bytes; i++)
        luck = luck * 16777619 ^ packet->data[i];
    struct decode_region part = {0};
    part.x = (int32_t)(luck % (uint32_t)width);
    part.y = (int32_t)(luck / 7 % (uint32_t)height);
    part.width = 1 + (int32_t)(luck / 49 % (uint32_t)(width - part.x));
    part.height = 1 + (int32_t)(luck / 343 % (uint32_t)(height - part.y));
    return part;
}

static inline void fuzz_picture(const struct decode_ops *ops, const uint8_t *data, size_t bytes)
{
    const struct decode_packet packet = {data, bytes};
    struct decode_head head;
    struct decode_fault fault;
    struct decode_pixels pixels;
    if (!ops->probe(data, bytes) ||
        ops->head(fuzz_context(ops), &packet, FUZZ_PIXELS_MAX, &head, &fault) != SPDL_CLASS_OK)
        return;
    if (head.width <= 0 || head.height <= 0 || head.orientation < 1 || head.orientation > 8)
        abort();
    const struct decode_region all = {0, 0, head.width, head.height};
    const struct decode_region part = fuzz_part(&packet, head.width, head.height);
    enum spdl_class class_number = fuzz_decode(ops, &packet, &all, &pixels);
    uint8_t *whole = class_number == SPDL_CLASS_OK ? fuzz_copy(&pixels, &all) : NULL;
    if (fuzz_decode(ops, &packet, &part, &pixels) != class_number)
        abort();
    if (whole == NULL)
        return;
    uint8_t *piece = fuzz_copy(&pixels, &part);
    for (int32_t y = 0; y < part.height; y++)
        if (memcmp(piece + (size_t)y * (size_t)part.width * 3,
                   whole + ((size_t)(part.y + y) * (size_t)all.width + (size_t)part.x) * 3,
                   (size_t)part.width * 3) != 0)
            abort();
    free(piece);
    free(whole);
}

#endif
