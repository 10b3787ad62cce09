/* GIF: the first frame, on the canvas of the whole picture, interlaced or not. Transparency is
 * dropped: a transparent pixel has the colour that the palette gives it. Around a frame that is
 * smaller than the canvas is the transparent colour, or the palette's first. A canvas that is
 * smaller than the frame grows to it. Without a palette values are grey. What follows the frame's
 * last pixel is not looked at. */
#include "decode/decode_gif.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "decode/decode_buffer.h"

enum {
    HEAD_BYTES = 13,
    FRAME_BYTES = 9, /* of an image descriptor, behind its separator */
    COLOURS_MAX = 256,
    CODES_MAX = 4096, /* of 12 bits */
    CODE_BITS_MAX = 12
};
enum { BLOCK_EXTENSION = 0x21, BLOCK_FRAME = 0x2c, BLOCK_END = 0x3b, LABEL_CONTROL = 0xf9 };

/* A run of pixels that a code stands for: that of another code and one pixel more. */
struct gif_code {
    uint16_t before;
    uint16_t length;
    uint8_t last, first;
};

struct decode_gif {
    const uint8_t *data;
    size_t bytes;
    size_t at;             /* of what comes next; after the head: of the compressed data */
    int32_t width, height; /* of the canvas */
    int32_t frame_x, frame_y, frame_width, frame_height;
    bool interlaced;
    int32_t transparent; /* -1: none */
    uint32_t colour_count;
    uint8_t palette[COLOURS_MAX][4];
    struct decode_buffer rows;
    struct gif_code codes[CODES_MAX];
    uint8_t run[CODES_MAX]; /* the pixels of one code */
};

static uint32_t read_16(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static bool gif_probe(const uint8_t *head, size_t bytes)
{
    return bytes >= 6 && (memcmp(head, "GIF87a", 6) == 0 || memcmp(head, "GIF89a", 6) == 0);
}

static enum spdl_class fail_cut(const struct decode_gif *gif, struct decode_fault *fault)
{
    return decode_fault_set(fault, SPDL_CLASS_TRUNCATED, gif->bytes,
                            "the file ends before the first frame does");
}

static enum spdl_class fail_at(size_t at, const char *message, struct decode_fault *fault)
{
    return decode_fault_set(fault, SPDL_CLASS_CORRUPT, at, "%s", message);
}

/* `flags` of a head or frame: has it a palette, and of how many colours? */
static bool read_palette(struct decode_gif *gif, uint8_t flags)
{
    if (!(flags & 0x80))
        return true;
    gif->colour_count = 2u << (flags & 7);
    if (gif->bytes - gif->at < (size_t)gif->colour_count * 3)
        return false;
    for (uint32_t i = 0; i < gif->colour_count; i++) {
        memcpy(gif->palette[i], gif->data + gif->at + (size_t)i * 3, 3);
        gif->palette[i][3] = 255;
    }
    gif->at += (size_t)gif->colour_count * 3;
    return true;
}

/* Over the blocks of an extension or of compressed data, to behind the empty one. */
static bool skip_blocks(struct decode_gif *gif)
{
    while (gif->at < gif->bytes) {
        size_t bytes = gif->data[gif->at++];
        if (bytes == 0)
            return true;
        if (bytes > gif->bytes - gif->at)
            return false;
        gif->at += bytes;
    }
    return false;
}

/* Behind its 0x21. */
static bool read_extension(struct decode_gif *gif)
{
    const uint8_t *block = gif->data + gif->at;
    if (gif->bytes - gif->at >= 6 && block[0] == LABEL_CONTROL && block[1] == 4)
        gif->transparent = block[2] & 1 ? block[5] : -1;
    gif->at++;
    return skip_blocks(gif);
}

static enum spdl_class read_frame(struct decode_gif *gif, uint64_t max_pixels,
                                  struct decode_fault *fault)
{
    if (gif->bytes - gif->at < FRAME_BYTES)
        return fail_cut(gif, fault);
    const size_t frame_at = gif->at;
    const uint8_t *frame = gif->data + gif->at;
    gif->frame_x = (int32_t)read_16(frame);
    gif->frame_y = (int32_t)read_16(frame + 2);
    gif->frame_width = (int32_t)read_16(frame + 4);
    gif->frame_height = (int32_t)read_16(frame + 6);
    gif->interlaced = (frame[8] & 0x40) != 0;
    gif->at += FRAME_BYTES;
    if (gif->frame_width == 0 || gif->frame_height == 0)
        return fail_at(frame_at + 4, "its first frame has no pixels", fault);
    if (gif->frame_x + gif->frame_width > gif->width)
        gif->width = gif->frame_x + gif->frame_width;
    if (gif->frame_y + gif->frame_height > gif->height)
        gif->height = gif->frame_y + gif->frame_height;
    enum spdl_class class_number =
        decode_size_check((uint64_t)gif->width, (uint64_t)gif->height, max_pixels, frame_at, fault);
    if (class_number == SPDL_CLASS_OK) /* a frame may be a small part of its canvas */
        class_number = decode_bytes_check((uint64_t)gif->width * (uint64_t)gif->height, gif->bytes,
                                          frame_at, fault);
    if (class_number != SPDL_CLASS_OK)
        return class_number;
    if (!read_palette(gif, frame[8]))
        return fail_cut(gif, fault);
    return SPDL_CLASS_OK;
}

static enum spdl_class read_head(struct decode_gif *gif, uint64_t max_pixels,
                                 struct decode_fault *fault)
{
    if (gif->bytes < HEAD_BYTES)
        return fail_cut(gif, fault);
    gif->width = (int32_t)read_16(gif->data + 6);
    gif->height = (int32_t)read_16(gif->data + 8);
    gif->at = HEAD_BYTES;
    gif->transparent = -1;
    gif->colour_count = 0;
    if (!read_palette(gif, gif->data[10]))
        return fail_cut(gif, fault);
    while (gif->at < gif->bytes) {
        uint8_t block = gif->data[gif->at++];
        if (block == BLOCK_FRAME)
            return read_frame(gif, max_pixels, fault);
        if (block == BLOCK_END)
            return fail_at(gif->at - 1, "there is no frame in it", fault);
        if (block != BLOCK_EXTENSION)
            return fail_at(gif->at - 1, "neither a frame nor an extension", fault);
        if (!read_extension(gif))
            break;
    }
    return fail_cut(gif, fault);
}

static enum spdl_class gif_head(void *ctx, const struct decode_packet *packet, uint64_t max_pixels,
                                struct decode_head *ret_head, struct decode_fault *ret_fault)
{
    struct decode_gif *gif = ctx;
    gif->data = packet->data;
    gif->bytes = packet->bytes;
    enum spdl_class class_number = read_head(gif, max_pixels, ret_fault);
    if (class_number != SPDL_CLASS_OK)
        return class_number;
    if (gif->colour_count == 0) {
        gif->colour_count = COLOURS_MAX;
        for (int i = 0; i < COLOURS_MAX; i++) {
            memset(gif->palette[i], i, 3);
            gif->palette[i][3] = 255;
        }
    }
    *ret_head = (struct decode_head){
        .width = gif->width, .height = gif->height, .orientation = 1, .channels = 3};
    return SPDL_CLASS_OK;
}

/* --- pixels --- */

/* Where the frame's pixels go, in their stored order. */
struct gif_pen {
    struct decode_gif *gif;
    const struct decode_region *region;
    size_t stride;
    int32_t x, y, pass;
    bool done;
};

static void next_row(struct gif_pen *pen)
{
    static const int32_t starts[] = {0, 4, 2, 1}, steps[] = {8, 8, 4, 2};
    pen->x = 0;
    pen->y += pen->gif->interlaced ? steps[pen->pass] : 1;
    while (pen->gif->interlaced && pen->y >= pen->gif->frame_height && pen->pass < 3)
        pen->y = starts[++pen->pass];
    pen->done = pen->y >= pen->gif->frame_height;
}

/* False: a colour that the palette does not have. */
static bool pen_put(struct gif_pen *pen, const uint8_t *pixels, uint32_t count)
{
    const struct decode_gif *gif = pen->gif;
    for (uint32_t i = 0; i < count && !pen->done; i++) {
        int32_t column = gif->frame_x + pen->x - pen->region->x;
        int32_t row = gif->frame_y + pen->y - pen->region->y;
        if (pixels[i] >= gif->colour_count)
            return false;
        if (column >= 0 && column < pen->region->width && row >= 0 && row < pen->region->height)
            memcpy(gif->rows.base + (size_t)row * pen->stride + (size_t)column * 4,
                   gif->palette[pixels[i]], 4);
        if (++pen->x == gif->frame_width)
            next_row(pen);
    }
    return true;
}

/* Codes out of blocks of bytes. */
struct gif_bits {
    const struct decode_gif *gif;
    size_t at, block_end;
    uint32_t held;
    uint32_t held_bits;
};

enum { BITS_CUT = -1, BITS_END = -2 };

static int32_t next_code(struct gif_bits *bits, uint32_t code_bits)
{
    const struct decode_gif *gif = bits->gif;
    while (bits->held_bits < code_bits) {
        if (bits->at == bits->block_end) {
            if (bits->at >= gif->bytes)
                return BITS_CUT;
            size_t block_bytes = gif->data[bits->at++];
            if (block_bytes == 0)
                return BITS_END;
            bits->block_end = bits->at + block_bytes;
        }
        if (bits->at >= gif->bytes)
            return BITS_CUT;
        bits->held |= (uint32_t)gif->data[bits->at++] << bits->held_bits;
        bits->held_bits += 8;
    }
    int32_t code = (int32_t)(bits->held & ((1u << code_bits) - 1));
    bits->held >>= code_bits;
    bits->held_bits -= code_bits;
    return code;
}

/* The pixels of the code, into gif->run. */
static uint32_t code_run(struct decode_gif *gif, uint32_t code)
{
    uint32_t length = gif->codes[code].length;
    for (uint32_t i = length; i > 0; i--) {
        gif->run[i - 1] = gif->codes[code].last;
        code = gif->codes[code].before;
    }
    return length;
}

static void code_add(struct decode_gif *gif, uint32_t number, uint32_t before, uint8_t last)
{
    gif->codes[number] = (struct gif_code){.before = (uint16_t)before,
                                           .length = (uint16_t)(gif->codes[before].length + 1),
                                           .last = last,
                                           .first = gif->codes[before].first};
}

static enum spdl_class decode_codes(struct gif_pen *pen, uint32_t least_bits,
                                    struct decode_fault *fault)
{
    struct decode_gif *gif = pen->gif;
    struct gif_bits bits = {.gif = gif, .at = gif->at, .block_end = gif->at};
    const uint32_t clear = 1u << least_bits, end = clear + 1;
    uint32_t count = end + 1, code_bits = least_bits + 1;
    int32_t before = -1;
    for (uint32_t i = 0; i < clear; i++)
        gif->codes[i] =
            (struct gif_code){.before = 0, .length = 1, .last = (uint8_t)i, .first = (uint8_t)i};
    while (!pen->done) {
        int32_t next = next_code(&bits, code_bits);
        uint32_t code = (uint32_t)next;
        if (next == BITS_CUT)
            return fail_cut(gif, fault);
        if (next == BITS_END || code == end)
            return fail_at(bits.at, "its data ends before the frame's last pixel", fault);
        if (code == clear) {
            count = end + 1;
            code_bits = least_bits + 1;
            before = -1;
            continue;
        }
        if (code > count || (code == count && (before < 0 || count == CODES_MAX)))
            return fail_at(bits.at, "a code that is not in its table", fault);
        if (before >= 0 && count < CODES_MAX) {
            uint32_t from = code == count ? (uint32_t)before : code;
            code_add(gif, count++, (uint32_t)before, gif->codes[from].first);
            if (count == 1u << code_bits && code_bits < CODE_BITS_MAX)
                code_bits++;
        }
        if (!pen_put(pen, gif->run, code_run(gif, code)))
            return fail_at(bits.at, "a colour that its palette does not have", fault);
        before = next;
    }
    return SPDL_CLASS_OK;
}

/* What is around the frame. */
static void fill(const struct decode_gif *gif, size_t stride, const struct decode_region *region)
{
    const uint8_t *colour =
        gif->palette[gif->transparent >= 0 && gif->transparent < (int32_t)gif->colour_count
                         ? gif->transparent
                         : 0];
    for (int32_t y = 0; y < region->height; y++)
        for (int32_t x = 0; x < region->width; x++)
            memcpy(gif->rows.base + (size_t)y * stride + (size_t)x * 4, colour, 4);
}

static enum spdl_class gif_decode(void *ctx, const struct decode_packet *packet,
                                  const struct decode_region *region, bool may_stop_early,
                                  struct decode_pixels *ret_pixels, struct decode_fault *ret_fault)
{
    struct decode_gif *gif = ctx;
    (void)may_stop_early;
    ASSERT(gif->data == packet->data && gif->bytes == packet->bytes);
    ASSERT(decode_region_fits(region, (uint32_t)gif->width, (uint32_t)gif->height));
    const size_t stride = decode_stride(region->width);
    if (!decode_buffer_reserve(&gif->rows, stride, (size_t)region->height))
        return decode_fault_set(ret_fault, SPDL_CLASS_RESOURCE, UINT64_MAX,
                                "no memory for the picture's pixels");
    *ret_pixels = (struct decode_pixels){gif->rows.base, stride, 0, 0};
    if (gif->at >= gif->bytes)
        return fail_cut(gif, ret_fault);
    uint32_t least_bits = gif->data[gif->at];
    if (least_bits < 1 || least_bits > 8)
        return fail_at(gif->at, "its codes have an impossible size", ret_fault);
    fill(gif, stride, region);
    gif->at++;
    struct gif_pen pen = {.gif = gif, .region = region, .stride = stride};
    enum spdl_class class_number = decode_codes(&pen, least_bits, ret_fault);
    gif->at--; /* where the head left it */
    return class_number;
}

static int gif_open(void *ctx)
{
    (void)ctx;
    return 0;
}

static void gif_trim(void *ctx)
{
    decode_buffer_trim(&((struct decode_gif *)ctx)->rows);
}

static void gif_close(void *ctx)
{
    decode_buffer_free(&((struct decode_gif *)ctx)->rows);
}

const struct decode_ops decode_gif_ops = {.name = "gif",
                                          .ctx_bytes = sizeof(struct decode_gif),
                                          .probe = gif_probe,
                                          .open = gif_open,
                                          .close = gif_close,
                                          .head = gif_head,
                                          .decode = gif_decode,
                                          .trim = gif_trim};
