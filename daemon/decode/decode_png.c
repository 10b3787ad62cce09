/* PNG with libpng: any colour type and depth as 8-bit RGB. Alpha and transparent colours are
 * dropped, not blended; 16 bits go to the nearest 8; gamma and colour profiles are ignored; of an
 * animation the default picture counts.
 *
 * All rows are read whatever the region is, so that damage is found wherever it is; those of the
 * region are kept, at their whole width. With the last row the library has read and checked all of
 * the picture's data. What is behind it is not looked at, but for the orientation: a picture is
 * whole without its end marker.
 *
 * The library's errors come back by longjmp; the functions that setjmp guards keep everything in
 * the context. */
#include "decode/decode_png.h"

#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "decode/decode_buffer.h"
#include "decode/decode_exif.h"

enum {
    SIGNATURE_BYTES = 8,
    PROBE_BYTES = 4,        /* of the signature: the others tell damage, not the format */
    CHUNK_HEAD_BYTES = 8,   /* length and name */
    CHUNK_EXTRA_BYTES = 12, /* and the checksum */
    EXIF_BYTES_MAX = 1 << 20,
};

static const uint8_t signature[SIGNATURE_BYTES] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

/* One thread's codec. The library's object lives from head to the end of decode. */
struct decode_png {
    png_structp reader;
    png_infop info;
    jmp_buf escape;              /* out of the call that is under way */
    struct decode_fault *fault;  /* of that call */
    struct decode_packet packet; /* that is read */
    size_t at;                   /* the next byte of it */
    uint64_t max_pixels;
    bool memory_short; /* an allocation failed */
    int32_t orientation;
    struct decode_region region;
    bool may_stop_early;
    struct decode_buffer rows;
    struct decode_pixels pixels;
};

static bool png_probe(const uint8_t *head, size_t bytes)
{
    return bytes >= PROBE_BYTES && memcmp(head, signature, PROBE_BYTES) == 0;
}

static uint32_t read_32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* The checksum of chunks, for the one that is read here. */
static uint32_t checksum(const uint8_t *data, size_t bytes)
{
    uint32_t sum = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        sum ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (UINT32_C(0xEDB88320) & (0u - (sum & 1)));
    }
    return ~sum;
}

/* Of a damaged one nothing is known. */
static int32_t orientation_of(const uint8_t *chunk, size_t bytes)
{
    const uint8_t *data = chunk + CHUNK_HEAD_BYTES;
    if (bytes > EXIF_BYTES_MAX || checksum(chunk + 4, bytes + 4) != read_32(data + bytes))
        return 1;
    return decode_exif_orientation_named(data, bytes);
}

/* Goes through the chunks, because the orientation may be anywhere. */
static void find_orientation(struct decode_png *png)
{
    const uint8_t *data = png->packet.data;
    const size_t bytes = png->packet.bytes;
    png->orientation = 1;
    for (size_t at = SIGNATURE_BYTES; at < bytes && bytes - at >= CHUNK_EXTRA_BYTES;) {
        const uint8_t *name = data + at + 4;
        uint32_t length = read_32(data + at);
        if (length > bytes - at - CHUNK_EXTRA_BYTES || memcmp(name, "IEND", 4) == 0)
            return;
        if (memcmp(name, "eXIf", 4) == 0) {
            png->orientation = orientation_of(data + at, length);
            return;
        }
        at += CHUNK_EXTRA_BYTES + (size_t)length;
    }
}

static _Noreturn void raise_fault(struct decode_png *png, enum spdl_class class_number,
                                  const char *message)
{
    decode_fault_set(png->fault, class_number, png->at, "%.90s", message);
    longjmp(png->escape, 1);
}

static _Noreturn void on_error(png_structp reader, png_const_charp message)
{
    struct decode_png *png = png_get_error_ptr(reader);
    if (png->memory_short)
        raise_fault(png, SPDL_CLASS_RESOURCE, "no memory for the picture");
    raise_fault(png, SPDL_CLASS_CORRUPT, message);
}

/* Warnings are of what does not touch the pixels, but one: the checksum over all of them is wrong.
 */
static void on_warning(png_structp reader, png_const_charp message)
{
    if (strstr(message, "incorrect data check") != NULL)
        on_error(reader, message);
}

static void on_read(png_structp reader, png_bytep to, size_t count)
{
    struct decode_png *png = png_get_io_ptr(reader);
    if (count > png->packet.bytes - png->at) {
        png->at = png->packet.bytes;
        raise_fault(png, SPDL_CLASS_TRUNCATED, "the file ends before its picture does");
    }
    memcpy(to, png->packet.data + png->at, count);
    png->at += count;
}

static png_voidp on_malloc(png_structp reader, png_alloc_size_t bytes)
{
    struct decode_png *png = png_get_mem_ptr(reader);
    void *memory = malloc(bytes);
    png->memory_short = png->memory_short || memory == NULL;
    return memory;
}

static void on_free(png_structp reader, png_voidp memory)
{
    (void)reader;
    free(memory);
}

static void forget(struct decode_png *png)
{
    if (png->reader != NULL)
        png_destroy_read_struct(&png->reader, &png->info, NULL);
    png->reader = NULL;
    png->info = NULL;
}

/* Runs a step of the codec. Whatever goes wrong in it ends up in the fault, and the object is gone.
 */
static enum spdl_class guarded(struct decode_png *png, void (*step)(struct decode_png *),
                               struct decode_fault *fault)
{
    fault->class_number = SPDL_CLASS_OK;
    png->fault = fault;
    if (setjmp(png->escape) != 0) {
        forget(png);
        return png->fault->class_number;
    }
    step(png);
    return SPDL_CLASS_OK;
}

/* Everything in a picture but its pixels is skipped unread, so that nothing of it takes memory. */
static void create_reader(struct decode_png *png)
{
    png->reader = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, png, on_error, on_warning, png,
                                           on_malloc, on_free);
    png->info = png->reader == NULL ? NULL : png_create_info_struct(png->reader);
    if (png->info == NULL)
        raise_fault(png, SPDL_CLASS_RESOURCE, "no memory for the picture");
    png_set_read_fn(png->reader, png, on_read);
    png_set_user_limits(png->reader, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* ours are applied here */
    png_set_chunk_malloc_max(png->reader, 0);
    png_set_keep_unknown_chunks(png->reader, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_crc_action(png->reader, PNG_CRC_ERROR_QUIT, PNG_CRC_WARN_DISCARD);
    png_set_check_for_invalid_index(png->reader, -1);
    /* Some writers claim a smaller window than they use. */
    png_set_option(png->reader, PNG_MAXIMUM_INFLATE_WINDOW, PNG_OPTION_ON);
}

static void read_head(struct decode_png *png)
{
    create_reader(png);
    find_orientation(png);
    png_read_info(png->reader, png->info);
    if (decode_size_check(png_get_image_width(png->reader, png->info),
                          png_get_image_height(png->reader, png->info), png->max_pixels,
                          SIGNATURE_BYTES + CHUNK_HEAD_BYTES, png->fault) != SPDL_CLASS_OK)
        longjmp(png->escape, 1);
}

static enum spdl_class png_head(void *ctx, const struct decode_packet *packet, uint64_t max_pixels,
                                struct decode_head *ret_head, struct decode_fault *ret_fault)
{
    struct decode_png *png = ctx;
    forget(png);
    png->packet = *packet;
    png->max_pixels = max_pixels;
    png->at = 0;
    png->memory_short = false;
    enum spdl_class class_number = guarded(png, read_head, ret_fault);
    if (class_number == SPDL_CLASS_OK)
        *ret_head =
            (struct decode_head){.width = (int32_t)png_get_image_width(png->reader, png->info),
                                 .height = (int32_t)png_get_image_height(png->reader, png->info),
                                 .orientation = png->orientation,
                                 .channels = png_get_channels(png->reader, png->info)};
    return class_number;
}

/* Four bytes a pixel: where a picture has alpha, that is the fourth. Returns how often the rows are
 * read. */
static int choose_form(struct decode_png *png)
{
    png_structp reader = png->reader;
    const int colours = png_get_color_type(reader, png->info);
    if (colours == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(reader);
    else if (colours == PNG_COLOR_TYPE_GRAY)
        png_set_expand_gray_1_2_4_to_8(reader);
    if (colours == PNG_COLOR_TYPE_GRAY || colours == PNG_COLOR_TYPE_GRAY_ALPHA)
        png_set_gray_to_rgb(reader);
    png_set_scale_16(reader); /* to the nearest */
    png_set_filler(reader, 0xFF, PNG_FILLER_AFTER);
    int passes = png_set_interlace_handling(reader);
    png_read_update_info(reader, png->info);
    ASSERT(png_get_rowbytes(reader, png->info) ==
           (size_t)png_get_image_width(reader, png->info) * 4);
    return passes;
}

static void read_pass(struct decode_png *png, size_t stride, bool last)
{
    const int32_t height = (int32_t)png_get_image_height(png->reader, png->info);
    const int32_t first = png->region.y, end = png->region.y + png->region.height;
    for (int32_t y = 0; y < height; y++) {
        if (last && png->may_stop_early && y == end)
            return;
        bool wanted = y >= first && y < end;
        png_read_row(png->reader, wanted ? png->rows.base + (size_t)(y - first) * stride : NULL,
                     NULL);
    }
}

static void decode_region(struct decode_png *png)
{
    const int32_t width = (int32_t)png_get_image_width(png->reader, png->info);
    const size_t stride = decode_stride(width);
    if (!decode_buffer_reserve(&png->rows, stride, (size_t)png->region.height))
        raise_fault(png, SPDL_CLASS_RESOURCE, "no memory for the picture's pixels");
    int passes = choose_form(png);
    for (int pass = 0; pass < passes; pass++)
        read_pass(png, stride, pass == passes - 1);
    png->pixels = (struct decode_pixels){png->rows.base, stride, png->region.x, 0};
}

static enum spdl_class png_decode(void *ctx, const struct decode_packet *packet,
                                  const struct decode_region *region, bool may_stop_early,
                                  struct decode_pixels *ret_pixels, struct decode_fault *ret_fault)
{
    struct decode_png *png = ctx;
    ASSERT(png->reader != NULL && png->packet.data == packet->data &&
           png->packet.bytes == packet->bytes);
    ASSERT(decode_region_fits(region, png_get_image_width(png->reader, png->info),
                              png_get_image_height(png->reader, png->info)));
    png->region = *region;
    png->may_stop_early = may_stop_early;
    enum spdl_class class_number = guarded(png, decode_region, ret_fault);
    forget(png);
    if (class_number == SPDL_CLASS_OK)
        *ret_pixels = png->pixels;
    return class_number;
}

static int png_open(void *ctx)
{
    (void)ctx; /* all that a picture needs comes with it */
    return 0;
}

static void png_close(void *ctx)
{
    struct decode_png *png = ctx;
    forget(png);
    decode_buffer_free(&png->rows);
}

static void png_trim(void *ctx)
{
    struct decode_png *png = ctx;
    decode_buffer_trim(&png->rows);
}

const struct decode_ops decode_png_ops = {
    .name = "png",
    .ctx_bytes = sizeof(struct decode_png),
    .probe = png_probe,
    .open = png_open,
    .close = png_close,
    .head = png_head,
    .decode = png_decode,
    .trim = png_trim,
};
