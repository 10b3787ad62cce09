/* BMP: palettes of 1, 2, 4 and 8 bits, 16, 24 and 32 bits with the usual or the file's own masks,
 * run lengths of 8 and 4 bits, rows from below or from above; with the heads of Windows and OS/2.
 * Alpha is dropped. A colour that the palette does not have, and what runs leave out, is black or
 * the palette's first.
 *
 * Rows are where the head says, so that a picture without run lengths has its full length or is
 * TRUNCATED; only the region is unpacked. Run lengths are followed to their end. */
#include "decode/decode_bmp.h"

#include <string.h>

#include "base/assert.h"
#include "decode/decode_buffer.h"

enum {
    FILE_HEAD_BYTES = 14,
    CORE_HEAD_BYTES = 12, /* the oldest: sizes of 16 bits, palette entries of 3 bytes */
    OS2_SHORT_BYTES = 16,
    INFO_HEAD_BYTES = 40,
    OS2_LONG_BYTES = 64,
    COLOURS_MAX = 256,
};

enum bmp_packing {
    BMP_PLAIN = 0,
    BMP_RUNS_8 = 1,
    BMP_RUNS_4 = 2,
    BMP_MASKS = 3,
    BMP_MASKS_ALPHA = 6,
};

/* Where a colour is in a pixel of 16 or 32 bits. */
struct bmp_mask {
    uint32_t shift, most; /* most: its largest value; 0: the colour is not stored */
};

struct decode_bmp {
    const uint8_t *data;
    size_t bytes;
    uint32_t head_bytes, bits, packing;
    int32_t width, height;
    bool from_above;
    size_t pixels_at;
    struct bmp_mask masks[3]; /* red, green, blue */
    uint8_t palette[COLOURS_MAX][4];
    struct decode_buffer rows;
};

static uint32_t read_16(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static uint32_t read_32(const uint8_t *at)
{
    return read_16(at) | read_16(at + 2) << 16;
}

static bool is_head_size(uint32_t bytes)
{
    return bytes == CORE_HEAD_BYTES || bytes == OS2_SHORT_BYTES || bytes == OS2_LONG_BYTES ||
           bytes == INFO_HEAD_BYTES || bytes == 52 || bytes == 56 || bytes == 108 || bytes == 124;
}

/* Two letters are little: the size of the head must make sense, or, in a file that ends before it,
 * the reserved bytes. */
static bool bmp_probe(const uint8_t *head, size_t bytes)
{
    if (bytes < 10 || head[0] != 'B' || head[1] != 'M')
        return false;
    if (bytes < FILE_HEAD_BYTES + 4)
        return read_32(head + 6) == 0;
    return is_head_size(read_32(head + FILE_HEAD_BYTES));
}

static enum spdl_class fail_cut(const struct decode_bmp *bmp, struct decode_fault *fault)
{
    return decode_fault_set(fault, SPDL_CLASS_TRUNCATED, bmp->bytes,
                            "the file ends before its picture does");
}

static enum spdl_class fail_at(enum spdl_class class_number, size_t offset, const char *message,
                               struct decode_fault *fault)
{
    return decode_fault_set(fault, class_number, offset, "%s", message);
}

/* Bits of a pixel for each packing. */
static enum spdl_class check_form(const struct decode_bmp *bmp, struct decode_fault *fault)
{
    const uint32_t bits = bmp->bits;
    bool right = false;
    if (bmp->packing > BMP_MASKS && bmp->packing != BMP_MASKS_ALPHA)
        return fail_at(SPDL_CLASS_UNSUPPORTED, 30, "its packing is not decoded", fault);
    if (bmp->head_bytes == OS2_LONG_BYTES && bmp->packing >= BMP_MASKS)
        return fail_at(SPDL_CLASS_UNSUPPORTED, 30, "its packing is not decoded", fault);
    switch ((enum bmp_packing)bmp->packing) {
    case BMP_PLAIN:
        right = bits == 1 || bits == 2 || bits == 4 || bits == 8 || bits == 16 || bits == 24 ||
                bits == 32;
        break;
    case BMP_RUNS_8:
        right = bits == 8 && !bmp->from_above;
        break;
    case BMP_RUNS_4:
        right = bits == 4 && !bmp->from_above;
        break;
    case BMP_MASKS:
    case BMP_MASKS_ALPHA:
        right = bits == 16 || bits == 32;
        break;
    }
    return right ? SPDL_CLASS_OK
                 : fail_at(SPDL_CLASS_CORRUPT, 28, "its bits a pixel make no sense", fault);
}

static bool mask_read(uint32_t bits, uint32_t pixel_bits, struct bmp_mask *ret_mask)
{
    uint32_t shift = bits == 0 ? 0 : (uint32_t)__builtin_ctz(bits);
    *ret_mask = (struct bmp_mask){shift, bits >> shift};
    bool joined = (ret_mask->most & (ret_mask->most + 1)) == 0;
    return joined && (pixel_bits == 32 || bits <= UINT16_MAX);
}

/* The file's own masks are behind the first 40 bytes of the head, whatever its size. */
static enum spdl_class read_masks(struct decode_bmp *bmp, size_t *behind_head,
                                  struct decode_fault *fault)
{
    static const uint32_t usual[2][3] = {{0x7C00, 0x03E0, 0x001F}, {0xFF0000, 0x00FF00, 0x0000FF}};
    const size_t at = FILE_HEAD_BYTES + INFO_HEAD_BYTES;
    bool own = bmp->packing == BMP_MASKS || bmp->packing == BMP_MASKS_ALPHA;
    if (own && bmp->head_bytes == INFO_HEAD_BYTES)
        *behind_head += bmp->packing == BMP_MASKS ? 12 : 16;
    if (own && bmp->bytes < at + 12)
        return fail_cut(bmp, fault);
    for (size_t c = 0; c < 3; c++) {
        uint32_t bits = own ? read_32(bmp->data + at + 4 * c) : usual[bmp->bits == 32][c];
        if (!mask_read(bits, bmp->bits, &bmp->masks[c]))
            return fail_at(SPDL_CLASS_CORRUPT, at + 4 * c, "the mask of a colour has holes", fault);
    }
    return SPDL_CLASS_OK;
}

/* Colours that the file does not have stay black. */
static enum spdl_class read_palette(struct decode_bmp *bmp, size_t *behind_head,
                                    struct decode_fault *fault)
{
    const size_t entry_bytes = bmp->head_bytes == CORE_HEAD_BYTES ? 3 : 4;
    size_t count = (size_t)1 << bmp->bits;
    uint32_t used =
        bmp->head_bytes < INFO_HEAD_BYTES ? 0 : read_32(bmp->data + FILE_HEAD_BYTES + 32);
    if (used != 0 && used < count)
        count = used;
    memset(bmp->palette, 0, sizeof bmp->palette);
    const uint32_t offset = read_32(bmp->data + 10);
    if (offset > *behind_head && (offset - *behind_head) / entry_bytes < count)
        count = (offset - *behind_head) / entry_bytes; /* the pixels begin before its end */
    if (*behind_head > bmp->bytes || count > (bmp->bytes - *behind_head) / entry_bytes)
        return fail_cut(bmp, fault);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *entry = bmp->data + *behind_head + i * entry_bytes;
        for (size_t c = 0; c < 3; c++)
            bmp->palette[i][c] = entry[2 - c];
    }
    *behind_head += count * entry_bytes;
    return SPDL_CLASS_OK;
}

static enum spdl_class read_size(struct decode_bmp *bmp, uint64_t max_pixels,
                                 struct decode_fault *fault)
{
    const uint8_t *head = bmp->data + FILE_HEAD_BYTES;
    const bool core = bmp->head_bytes == CORE_HEAD_BYTES;
    int64_t width = core ? (int32_t)read_16(head + 4) : (int32_t)read_32(head + 4);
    int64_t height = core ? (int32_t)read_16(head + 6) : (int32_t)read_32(head + 8);
    bmp->bits = read_16(head + (core ? 10 : 14));
    bmp->packing = bmp->head_bytes < INFO_HEAD_BYTES ? 0 : read_32(head + 16);
    bmp->from_above = height < 0;
    if (width < 0)
        return fail_at(SPDL_CLASS_CORRUPT, FILE_HEAD_BYTES + 4, "its width is below 0", fault);
    height = height < 0 ? -height : height;
    enum spdl_class class_number = decode_size_check((uint64_t)width, (uint64_t)height, max_pixels,
                                                     FILE_HEAD_BYTES + 4, fault);
    bmp->width = (int32_t)width;
    bmp->height = class_number == SPDL_CLASS_OK ? (int32_t)height : 0;
    return class_number;
}

/* Bytes from one stored row to the next, and those of the last, whose filling may be missing. */
static uint64_t row_bytes(const struct decode_bmp *bmp)
{
    return ((uint64_t)bmp->width * bmp->bits + 31) / 32 * 4;
}

static bool holds_pixels(const struct decode_bmp *bmp)
{
    uint64_t last = ((uint64_t)bmp->width * bmp->bits + 7) / 8;
    uint64_t room = bmp->bytes - bmp->pixels_at;
    return last <= room &&
           (bmp->height == 1 || row_bytes(bmp) <= (room - last) / ((uint64_t)bmp->height - 1));
}

static bool has_runs(const struct decode_bmp *bmp)
{
    return bmp->packing == BMP_RUNS_8 || bmp->packing == BMP_RUNS_4;
}

static enum spdl_class read_head(struct decode_bmp *bmp, uint64_t max_pixels,
                                 struct decode_fault *fault)
{
    if (bmp->bytes < FILE_HEAD_BYTES + 4)
        return fail_cut(bmp, fault);
    bmp->head_bytes = read_32(bmp->data + FILE_HEAD_BYTES);
    size_t behind_head = FILE_HEAD_BYTES + (size_t)bmp->head_bytes;
    if (!is_head_size(bmp->head_bytes)) /* what the probe saw has changed */
        return fail_at(SPDL_CLASS_CORRUPT, FILE_HEAD_BYTES, "the size of its head", fault);
    if (behind_head > bmp->bytes)
        return fail_cut(bmp, fault);
    enum spdl_class class_number = read_size(bmp, max_pixels, fault);
    if (class_number == SPDL_CLASS_OK)
        class_number = check_form(bmp, fault);
    if (class_number == SPDL_CLASS_OK && (bmp->bits == 16 || bmp->bits == 32))
        class_number = read_masks(bmp, &behind_head, fault);
    if (class_number == SPDL_CLASS_OK && bmp->bits <= 8)
        class_number = read_palette(bmp, &behind_head, fault);
    if (class_number != SPDL_CLASS_OK)
        return class_number;
    uint32_t offset = read_32(bmp->data + 10);
    bmp->pixels_at = offset == 0 ? behind_head : offset;
    if (bmp->pixels_at < behind_head)
        return fail_at(SPDL_CLASS_CORRUPT, 10, "its pixels begin in its head", fault);
    if (bmp->pixels_at > bmp->bytes || (!has_runs(bmp) && !holds_pixels(bmp)))
        return fail_cut(bmp, fault);
    if (has_runs(bmp)) /* a few bytes may leave any number of pixels out */
        return decode_bytes_check((uint64_t)bmp->width * (uint64_t)bmp->height,
                                  bmp->bytes - bmp->pixels_at, bmp->pixels_at, fault);
    return SPDL_CLASS_OK;
}

static enum spdl_class bmp_head(void *ctx, const struct decode_packet *packet, uint64_t max_pixels,
                                struct decode_head *ret_head, struct decode_fault *ret_fault)
{
    struct decode_bmp *bmp = ctx;
    bmp->data = packet->data;
    bmp->bytes = packet->bytes;
    enum spdl_class class_number = read_head(bmp, max_pixels, ret_fault);
    if (class_number != SPDL_CLASS_OK)
        return class_number;
    *ret_head = (struct decode_head){.width = bmp->width,
                                     .height = bmp->height,
                                     .orientation = 1,
                                     .channels = bmp->bits <= 8 ? 1 : 3};
    return SPDL_CLASS_OK;
}

static uint8_t masked(const struct bmp_mask *mask, uint32_t pixel)
{
    if (mask->most == 0)
        return 0;
    uint64_t value = pixel >> mask->shift & mask->most;
    return (uint8_t)((value * 255 + mask->most / 2) / mask->most);
}

static void unpack_pixel(const struct decode_bmp *bmp, const uint8_t *row, size_t x, uint8_t *to)
{
    if (bmp->bits <= 8) {
        size_t bit = x * bmp->bits;
        uint32_t index =
            (uint32_t)row[bit / 8] >> (8 - bmp->bits - bit % 8) & ((1u << bmp->bits) - 1);
        memcpy(to, bmp->palette[index], 4);
    } else if (bmp->bits == 24) {
        to[0] = row[3 * x + 2];
        to[1] = row[3 * x + 1];
        to[2] = row[3 * x];
    } else {
        uint32_t pixel = bmp->bits == 16 ? read_16(row + 2 * x) : read_32(row + 4 * x);
        for (size_t c = 0; c < 3; c++)
            to[c] = masked(&bmp->masks[c], pixel);
    }
    to[3] = 255;
}

static void decode_plain(const struct decode_bmp *bmp, const struct decode_region *region,
                         size_t stride)
{
    for (int32_t i = 0; i < region->height; i++) {
        int32_t y = region->y + i;
        size_t stored = (size_t)(bmp->from_above ? y : bmp->height - 1 - y);
        const uint8_t *row = bmp->data + bmp->pixels_at + stored * row_bytes(bmp);
        uint8_t *to = bmp->rows.base + (size_t)i * stride;
        for (int32_t k = 0; k < region->width; k++)
            unpack_pixel(bmp, row, (size_t)(region->x + k), to + (size_t)k * 4);
    }
}

/* Where the runs are: row 0 is the lowest. What runs beyond a row's end is left out. */
struct bmp_runs {
    struct decode_bmp *bmp;
    const struct decode_region *region;
    size_t stride, at;
    int64_t x, y;
};

static bool run_put(struct bmp_runs *runs, uint32_t index)
{
    const struct decode_bmp *bmp = runs->bmp;
    int64_t column = runs->x - runs->region->x;
    int64_t row = bmp->height - 1 - runs->y - runs->region->y;
    runs->x++;
    if (runs->y >= bmp->height)
        return false;
    if (column >= 0 && column < runs->region->width && row >= 0 && row < runs->region->height)
        memcpy(bmp->rows.base + (size_t)row * runs->stride + (size_t)column * 4,
               bmp->palette[index], 4);
    return true;
}

/* `count` pixels of the same byte (two indices in it, of 4 bits) or of as many as they take. */
static bool run_pixels(struct bmp_runs *runs, uint32_t count, bool same)
{
    const struct decode_bmp *bmp = runs->bmp;
    const uint8_t *from = bmp->data + runs->at;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index;
        if (bmp->bits == 8)
            index = from[same ? 0 : i];
        else
            index = (uint32_t)from[same ? 0 : i / 2] >> (i % 2 == 0 ? 4 : 0) & 15;
        if (!run_put(runs, index))
            return false;
    }
    return true;
}

/* What follows a 0: the end of a row, of the picture, a step, or pixels one by one. */
static enum spdl_class run_escape(struct bmp_runs *runs, uint8_t code, bool *ret_end,
                                  struct decode_fault *fault)
{
    const struct decode_bmp *bmp = runs->bmp;
    const size_t left = bmp->bytes - runs->at;
    if (code == 1) {
        *ret_end = true;
    } else if (code == 0) {
        runs->x = 0;
        runs->y++;
    } else if (code == 2) {
        if (left < 2)
            return fail_cut(bmp, fault);
        runs->x += bmp->data[runs->at];
        runs->y += bmp->data[runs->at + 1];
        runs->at += 2;
    } else {
        size_t bytes = bmp->bits == 8 ? code : ((size_t)code + 1) / 2;
        if (bytes > left)
            return fail_cut(bmp, fault);
        if (!run_pixels(runs, code, false))
            return fail_at(SPDL_CLASS_CORRUPT, runs->at, "its runs leave the picture", fault);
        bytes += bytes & 1;
        runs->at += bytes > left ? left : bytes;
    }
    return SPDL_CLASS_OK;
}

/* Is the last pixel behind us? Then the end marker may be missing. */
static bool run_done(const struct bmp_runs *runs)
{
    return runs->y >= runs->bmp->height ||
           (runs->y == runs->bmp->height - 1 && runs->x >= runs->bmp->width);
}

static enum spdl_class decode_runs(struct bmp_runs *runs, struct decode_fault *fault)
{
    const struct decode_bmp *bmp = runs->bmp;
    bool end = false;
    while (!end) {
        if (bmp->bytes - runs->at < 2)
            return run_done(runs) ? SPDL_CLASS_OK : fail_cut(bmp, fault);
        uint8_t count = bmp->data[runs->at], code = bmp->data[runs->at + 1];
        if (count == 0) {
            runs->at += 2;
            enum spdl_class class_number = run_escape(runs, code, &end, fault);
            if (class_number != SPDL_CLASS_OK)
                return class_number;
            continue;
        }
        runs->at++;
        if (!run_pixels(runs, count, true))
            return fail_at(SPDL_CLASS_CORRUPT, runs->at, "its runs leave the picture", fault);
        runs->at++;
    }
    return SPDL_CLASS_OK;
}

static void fill(struct decode_bmp *bmp, size_t stride, const struct decode_region *region)
{
    for (int32_t y = 0; y < region->height; y++)
        for (int32_t x = 0; x < region->width; x++)
            memcpy(bmp->rows.base + (size_t)y * stride + (size_t)x * 4, bmp->palette[0], 4);
}

static enum spdl_class bmp_decode(void *ctx, const struct decode_packet *packet,
                                  const struct decode_region *region, bool may_stop_early,
                                  struct decode_pixels *ret_pixels, struct decode_fault *ret_fault)
{
    struct decode_bmp *bmp = ctx;
    (void)may_stop_early;
    ASSERT(bmp->data == packet->data && bmp->bytes == packet->bytes);
    ASSERT(decode_region_fits(region, (uint32_t)bmp->width, (uint32_t)bmp->height));
    const size_t stride = decode_stride(region->width);
    if (!decode_buffer_reserve(&bmp->rows, stride, (size_t)region->height))
        return decode_fault_set(ret_fault, SPDL_CLASS_RESOURCE, UINT64_MAX,
                                "no memory for the picture's pixels");
    *ret_pixels = (struct decode_pixels){bmp->rows.base, stride, 0, 0};
    if (!has_runs(bmp)) {
        decode_plain(bmp, region, stride);
        return SPDL_CLASS_OK;
    }
    fill(bmp, stride, region);
    struct bmp_runs runs = {bmp, region, stride, bmp->pixels_at, 0, 0};
    return decode_runs(&runs, ret_fault);
}

static int bmp_open(void *ctx)
{
    (void)ctx;
    return 0;
}

static void bmp_close(void *ctx)
{
    struct decode_bmp *bmp = ctx;
    decode_buffer_free(&bmp->rows);
}

static void bmp_trim(void *ctx)
{
    struct decode_bmp *bmp = ctx;
    decode_buffer_trim(&bmp->rows);
}

const struct decode_ops decode_bmp_ops = {
    .name = "bmp",
    .ctx_bytes = sizeof(struct decode_bmp),
    .probe = bmp_probe,
    .open = bmp_open,
    .close = bmp_close,
    .head = bmp_head,
    .decode = bmp_decode,
    .trim = bmp_trim,
};
