/* PNM: P1 to P6. Values go from 0 … maxval to 0 … 255, to the nearest; a stored value above maxval
 * counts as maxval, a written one is damage. The first picture of a file counts. A picture of bytes
 * has its full length or is TRUNCATED; text is read to the last value whatever the region is. */
#include "decode/decode_pnm.h"

#include <string.h>

#include "base/assert.h"
#include "decode/decode_buffer.h"

enum pnm_kind { PNM_BITS, PNM_GREY, PNM_COLOUR };

struct decode_pnm {
    const uint8_t *data;
    size_t bytes;
    size_t at; /* the next byte; behind the head: the first of the picture */
    enum pnm_kind kind;
    bool is_text;
    uint32_t width, height, maxval;
    struct decode_buffer rows;
    uint8_t scaled[256]; /* of values of one byte */
};

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool pnm_probe(const uint8_t *head, size_t bytes)
{
    return bytes >= 3 && head[0] == 'P' && head[1] >= '1' && head[1] <= '6' &&
           (is_space(head[2]) || head[2] == '#');
}

static enum spdl_class fail_cut(const struct decode_pnm *pnm, struct decode_fault *fault)
{
    return decode_fault_set(fault, SPDL_CLASS_TRUNCATED, pnm->bytes,
                            "the file ends before its picture does");
}

/* White space, and comments from # to the end of their line. */
static void skip_space(struct decode_pnm *pnm)
{
    bool comment = false;
    for (; pnm->at < pnm->bytes; pnm->at++) {
        uint8_t c = pnm->data[pnm->at];
        if (comment)
            comment = c != '\n' && c != '\r';
        else if (c == '#')
            comment = true;
        else if (!is_space(c))
            break;
    }
}

/* A number up to `most`. One that the file ends with may be cut. */
static enum spdl_class read_number(struct decode_pnm *pnm, uint32_t most, uint32_t *ret_value,
                                   struct decode_fault *fault)
{
    skip_space(pnm);
    size_t first = pnm->at;
    uint64_t value = 0;
    for (; pnm->at < pnm->bytes && pnm->data[pnm->at] >= '0' && pnm->data[pnm->at] <= '9';
         pnm->at++) {
        value = value * 10 + (uint64_t)(pnm->data[pnm->at] - '0');
        if (value > most)
            return decode_fault_set(fault, SPDL_CLASS_CORRUPT, first, "a number is above %u", most);
    }
    if (pnm->at == pnm->bytes)
        return fail_cut(pnm, fault);
    if (pnm->at == first)
        return decode_fault_set(fault, SPDL_CLASS_CORRUPT, first, "it is no number");
    *ret_value = (uint32_t)value;
    return SPDL_CLASS_OK;
}

/* The number's end: one character of white space, or a comment's line. */
static enum spdl_class end_head(struct decode_pnm *pnm, struct decode_fault *fault)
{
    while (pnm->at < pnm->bytes && pnm->data[pnm->at] == '#')
        while (pnm->at < pnm->bytes && pnm->data[pnm->at] != '\n')
            pnm->at++;
    if (pnm->at == pnm->bytes)
        return fail_cut(pnm, fault);
    if (!is_space(pnm->data[pnm->at]))
        return decode_fault_set(fault, SPDL_CLASS_CORRUPT, pnm->at,
                                "something else follows the numbers of its head");
    pnm->at++;
    return SPDL_CLASS_OK;
}

static size_t value_bytes(const struct decode_pnm *pnm)
{
    return pnm->maxval > 255 ? 2 : 1;
}

static uint32_t channels(const struct decode_pnm *pnm)
{
    return pnm->kind == PNM_COLOUR ? 3 : 1;
}

/* Bytes of a stored row. */
static uint64_t row_bytes(const struct decode_pnm *pnm)
{
    return pnm->kind == PNM_BITS ? ((uint64_t)pnm->width + 7) / 8
                                 : (uint64_t)pnm->width * channels(pnm) * value_bytes(pnm);
}

/* In text a number takes a digit and what ends it. */
static uint64_t least_row_bytes(const struct decode_pnm *pnm)
{
    uint64_t values = (uint64_t)pnm->width * channels(pnm);
    return !pnm->is_text ? row_bytes(pnm) : pnm->kind == PNM_BITS ? values : 2 * values;
}

static uint8_t scale(const struct decode_pnm *pnm, uint32_t value)
{
    value = value > pnm->maxval ? pnm->maxval : value;
    return (uint8_t)((value * 255 + pnm->maxval / 2) / pnm->maxval);
}

static enum spdl_class read_head(struct decode_pnm *pnm, uint64_t max_pixels,
                                 struct decode_fault *fault)
{
    int number = pnm->data[1] - '0';
    pnm->is_text = number <= 3;
    pnm->kind = (enum pnm_kind)((number - 1) % 3);
    pnm->at = 2;
    pnm->maxval = 1;
    enum spdl_class class_number = read_number(pnm, UINT32_MAX, &pnm->width, fault);
    if (class_number == SPDL_CLASS_OK)
        class_number = read_number(pnm, UINT32_MAX, &pnm->height, fault);
    if (class_number == SPDL_CLASS_OK && pnm->kind != PNM_BITS)
        class_number = read_number(pnm, UINT16_MAX, &pnm->maxval, fault);
    if (class_number == SPDL_CLASS_OK)
        class_number = end_head(pnm, fault);
    if (class_number == SPDL_CLASS_OK && pnm->maxval == 0)
        class_number = decode_fault_set(fault, SPDL_CLASS_CORRUPT, pnm->at, "its maxval is 0");
    return class_number != SPDL_CLASS_OK
               ? class_number
               : decode_size_check(pnm->width, pnm->height, max_pixels, 2, fault);
}

static enum spdl_class pnm_head(void *ctx, const struct decode_packet *packet, uint64_t max_pixels,
                                struct decode_head *ret_head, struct decode_fault *ret_fault)
{
    struct decode_pnm *pnm = ctx;
    pnm->data = packet->data;
    pnm->bytes = packet->bytes;
    enum spdl_class class_number = read_head(pnm, max_pixels, ret_fault);
    if (class_number != SPDL_CLASS_OK)
        return class_number;
    if (least_row_bytes(pnm) > (pnm->bytes - pnm->at) / pnm->height)
        return fail_cut(pnm, ret_fault);
    *ret_head = (struct decode_head){.width = (int32_t)pnm->width,
                                     .height = (int32_t)pnm->height,
                                     .orientation = 1,
                                     .channels = (int32_t)channels(pnm)};
    return SPDL_CLASS_OK;
}

static void put(uint8_t *pixel, uint8_t red, uint8_t green, uint8_t blue)
{
    pixel[0] = red;
    pixel[1] = green;
    pixel[2] = blue;
    pixel[3] = 255;
}

/* A value of a row of bytes, counted from the row's beginning. */
static uint8_t stored_value(const struct decode_pnm *pnm, const uint8_t *row, size_t number)
{
    if (value_bytes(pnm) == 1)
        return pnm->scaled[row[number]];
    return scale(pnm, (uint32_t)row[2 * number] << 8 | row[2 * number + 1]);
}

static void unpack_row(const struct decode_pnm *pnm, const uint8_t *row,
                       const struct decode_region *region, uint8_t *to)
{
    for (int32_t i = 0; i < region->width; i++, to += 4) {
        size_t x = (size_t)region->x + (size_t)i;
        uint8_t value;
        switch (pnm->kind) {
        case PNM_BITS:
            value = row[x / 8] >> (7 - x % 8) & 1 ? 0 : 255;
            put(to, value, value, value);
            break;
        case PNM_GREY:
            value = stored_value(pnm, row, x);
            put(to, value, value, value);
            break;
        case PNM_COLOUR:
            put(to, stored_value(pnm, row, 3 * x), stored_value(pnm, row, 3 * x + 1),
                stored_value(pnm, row, 3 * x + 2));
            break;
        }
    }
}

static void unpack_stored(const struct decode_pnm *pnm, const struct decode_region *region,
                          size_t stride)
{
    for (int32_t i = 0; i < region->height; i++) {
        size_t y = (size_t)region->y + (size_t)i;
        unpack_row(pnm, pnm->data + pnm->at + y * row_bytes(pnm), region,
                   pnm->rows.base + (size_t)i * stride);
    }
}

/* Bits need no space between them. */
static enum spdl_class read_bit(struct decode_pnm *pnm, uint8_t *ret_value,
                                struct decode_fault *fault)
{
    skip_space(pnm);
    if (pnm->at == pnm->bytes)
        return fail_cut(pnm, fault);
    uint8_t c = pnm->data[pnm->at];
    if (c != '0' && c != '1')
        return decode_fault_set(fault, SPDL_CLASS_CORRUPT, pnm->at, "it is neither 0 nor 1");
    pnm->at++;
    *ret_value = c == '1' ? 0 : 255;
    return SPDL_CLASS_OK;
}

static enum spdl_class read_pixel(struct decode_pnm *pnm, uint8_t *ret_pixel,
                                  struct decode_fault *fault)
{
    uint8_t values[3] = {0};
    for (uint32_t c = 0; c < channels(pnm); c++) {
        uint32_t number = 0;
        enum spdl_class class_number = pnm->kind == PNM_BITS
                                           ? read_bit(pnm, &values[c], fault)
                                           : read_number(pnm, pnm->maxval, &number, fault);
        if (class_number != SPDL_CLASS_OK)
            return class_number;
        if (pnm->kind != PNM_BITS)
            values[c] = scale(pnm, number);
    }
    bool colour = pnm->kind == PNM_COLOUR;
    put(ret_pixel, values[0], values[colour ? 1 : 0], values[colour ? 2 : 0]);
    return SPDL_CLASS_OK;
}

/* Pixels of a text come one behind the other, with no way to jump. */
static enum spdl_class unpack_text(struct decode_pnm *pnm, const struct decode_region *region,
                                   size_t stride, struct decode_fault *fault)
{
    for (uint32_t y = 0; y < pnm->height; y++) {
        int64_t row = (int64_t)y - region->y;
        for (uint32_t x = 0; x < pnm->width; x++) {
            uint8_t pixel[4];
            enum spdl_class class_number = read_pixel(pnm, pixel, fault);
            if (class_number != SPDL_CLASS_OK)
                return class_number;
            int64_t column = (int64_t)x - region->x;
            if (row >= 0 && row < region->height && column >= 0 && column < region->width)
                memcpy(pnm->rows.base + (size_t)row * stride + (size_t)column * 4, pixel, 4);
        }
    }
    return SPDL_CLASS_OK;
}

static enum spdl_class pnm_decode(void *ctx, const struct decode_packet *packet,
                                  const struct decode_region *region, bool may_stop_early,
                                  struct decode_pixels *ret_pixels, struct decode_fault *ret_fault)
{
    struct decode_pnm *pnm = ctx;
    (void)may_stop_early;
    ASSERT(pnm->data == packet->data && pnm->bytes == packet->bytes);
    ASSERT(decode_region_fits(region, pnm->width, pnm->height));
    const size_t stride = decode_stride(region->width);
    if (!decode_buffer_reserve(&pnm->rows, stride, (size_t)region->height))
        return decode_fault_set(ret_fault, SPDL_CLASS_RESOURCE, UINT64_MAX,
                                "no memory for the picture's pixels");
    *ret_pixels = (struct decode_pixels){pnm->rows.base, stride, 0, 0};
    if (pnm->is_text)
        return unpack_text(pnm, region, stride, ret_fault);
    for (uint32_t value = 0; value < 256; value++)
        pnm->scaled[value] = scale(pnm, value);
    unpack_stored(pnm, region, stride);
    return SPDL_CLASS_OK;
}

static int pnm_open(void *ctx)
{
    (void)ctx;
    return 0;
}

static void pnm_close(void *ctx)
{
    struct decode_pnm *pnm = ctx;
    decode_buffer_free(&pnm->rows);
}

static void pnm_trim(void *ctx)
{
    struct decode_pnm *pnm = ctx;
    decode_buffer_trim(&pnm->rows);
}

const struct decode_ops decode_pnm_ops = {
    .name = "pnm",
    .ctx_bytes = sizeof(struct decode_pnm),
    .probe = pnm_probe,
    .open = pnm_open,
    .close = pnm_close,
    .head = pnm_head,
    .decode = pnm_decode,
    .trim = pnm_trim,
};
