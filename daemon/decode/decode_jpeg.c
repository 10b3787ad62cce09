/* JPEG with libjpeg-turbo: the region that is asked for, with the bytes that Pillow has (accurate
 * integer transform, interpolated chroma).
 *
 * A region is decoded with one column to spare on either side, because chroma is interpolated from
 * its neighbours, and none above or below, because the library keeps context rows itself. Then the
 * codec goes on to the picture's last row: all rows but the last are only entropy-decoded, which
 * finds damage wherever it is. Where the library's partial decode is not exact (crops_exactly),
 * whole rows or the whole picture is decoded.
 *
 * The library's errors come back by longjmp; the functions that setjmp guards keep everything in
 * the context. */
#include "decode/decode_jpeg.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum {
    ROWS_AT_ONCE = 8,
    ROW_ALIGN = 64,
    BUFFER_SPARE_BYTES = 64,              /* that the transform may read behind the last pixel */
    BUFFER_KEEP_BYTES = 64 * 1024 * 1024, /* a larger buffer goes with its picture */
    WIDTH_MIN = 32 /* narrower regions make the library change to another interpolation */
};

static bool jpeg_probe(const uint8_t *head, size_t bytes)
{
    static const uint8_t magic[3] = {0xFF, 0xD8, 0xFF};
    return bytes >= 2 && memcmp(head, magic, bytes < sizeof magic ? bytes : sizeof magic) == 0;
}

/* Runs a step of the codec. Whatever goes wrong in it ends up in the fault, and the object is ready
 * for the next picture. */
static enum spdl_class guarded(struct decode_jpeg *jpeg, void (*step)(struct decode_jpeg *),
                               struct decode_fault *fault)
{
    fault->class_number = SPDL_CLASS_OK;
    jpeg->fault = fault;
    if (setjmp(jpeg->escape) != 0) {
        jpeg_abort_decompress(&jpeg->info);
        jpeg->at_scan = false;
        return jpeg->fault->class_number;
    }
    step(jpeg);
    return SPDL_CLASS_OK;
}

static void create_object(struct decode_jpeg *jpeg)
{
    jpeg_create_decompress(&jpeg->info);
    decode_jpeg_attach(jpeg);
    j_common_ptr common = (j_common_ptr)&jpeg->info;
    for (int i = 0; i < NUM_QUANT_TBLS; i++)
        jpeg->info.quant_tbl_ptrs[i] = jpeg_alloc_quant_table(common);
    for (int i = 0; i < NUM_HUFF_TBLS; i++) {
        jpeg->info.dc_huff_tbl_ptrs[i] = jpeg_alloc_huff_table(common);
        jpeg->info.ac_huff_tbl_ptrs[i] = jpeg_alloc_huff_table(common);
    }
}

/* A compressor with its default settings has the standard's tables. */
static void fetch_usual_tables(struct decode_jpeg *jpeg)
{
    struct jpeg_compress_struct *compress = jpeg->compress;
    jpeg_create_compress(compress);
    compress->input_components = 3;
    compress->in_color_space = JCS_RGB;
    jpeg_set_defaults(compress);
    for (int i = 0; i < 2; i++) {
        jpeg->usual_tables[i] = *compress->dc_huff_tbl_ptrs[i];
        jpeg->usual_tables[2 + i] = *compress->ac_huff_tbl_ptrs[i];
    }
}

static void jpeg_close(void *ctx)
{
    struct decode_jpeg *jpeg = ctx;
    jpeg_destroy_decompress(&jpeg->info);
    free(jpeg->rows);
    memset(jpeg, 0, sizeof *jpeg);
}

static int jpeg_open(void *ctx)
{
    struct decode_jpeg *jpeg = ctx;
    struct decode_fault fault;
    decode_jpeg_prepare(jpeg);
    struct jpeg_compress_struct compress = {.err = &jpeg->errors, .client_data = jpeg};
    jpeg->compress = &compress;
    bool ready = guarded(jpeg, create_object, &fault) == SPDL_CLASS_OK &&
                 guarded(jpeg, fetch_usual_tables, &fault) == SPDL_CLASS_OK;
    jpeg_destroy_compress(&compress);
    jpeg->compress = NULL;
    if (!ready)
        jpeg_close(ctx);
    return ready ? 0 : -ENOMEM;
}

static void read_head(struct decode_jpeg *jpeg)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    decode_jpeg_rewind(jpeg, &jpeg->packet);
    jpeg_read_header(info, TRUE);
    decode_jpeg_assume_tables(jpeg);
    if ((uint64_t)info->image_width * info->image_height > jpeg->max_pixels)
        decode_jpeg_raise(jpeg, SPDL_CLASS_LIMIT, "%u x %u is more than %" PRIu64 " pixels",
                          info->image_width, info->image_height, jpeg->max_pixels);
    if (info->jpeg_color_space == JCS_UNKNOWN)
        decode_jpeg_raise(jpeg, SPDL_CLASS_UNSUPPORTED, "it has %d colour components",
                          info->num_components);
    jpeg->at_scan = true;
}

static enum spdl_class jpeg_head(void *ctx, const struct decode_packet *packet, uint64_t max_pixels,
                                 struct decode_head *ret_head, struct decode_fault *ret_fault)
{
    struct decode_jpeg *jpeg = ctx;
    jpeg->packet = *packet;
    jpeg->max_pixels = max_pixels;
    enum spdl_class class_number = guarded(jpeg, read_head, ret_fault);
    if (class_number == SPDL_CLASS_OK)
        *ret_head = (struct decode_head){.width = (int32_t)jpeg->info.image_width,
                                         .height = (int32_t)jpeg->info.image_height,
                                         .orientation = jpeg->orientation,
                                         .channels = jpeg->info.num_components};
    return class_number;
}

/* What the scans have not brought. A picture of one scan has everything or has raised a fault
 * already. */
static void check_scans(struct decode_jpeg *jpeg)
{
    static const UINT16 missing[DCTSIZE2];
    const struct jpeg_decompress_struct *info = &jpeg->info;
    for (int i = 0; i < info->num_components; i++) {
        const JQUANT_TBL *table = info->comp_info[i].quant_table;
        bool seen = table != NULL && (!info->progressive_mode || info->coef_bits[i][0] >= 0);
        if (!seen)
            decode_jpeg_raise(jpeg, jpeg->end_hit ? SPDL_CLASS_TRUNCATED : SPDL_CLASS_CORRUPT,
                              "there is no scan of colour component %d", i + 1);
        if (memcmp(table->quantval, missing, sizeof missing) == 0)
            decode_jpeg_raise(jpeg, SPDL_CLASS_CORRUPT,
                              "the quantisation table of colour component %d is missing", i + 1);
        for (int k = 0; info->progressive_mode && jpeg->end_hit && k < DCTSIZE2; k++)
            if (info->coef_bits[i][k] != 0)
                decode_jpeg_raise(jpeg, SPDL_CLASS_TRUNCATED, "the last scans are missing");
    }
}

/* Arithmetic coding reads zeros behind its end without a word, so that its end marker is part of
 * the data. */
static void check_end(struct decode_jpeg *jpeg)
{
    if (jpeg->info.arith_code && jpeg->end_hit)
        decode_jpeg_raise(jpeg, SPDL_CLASS_TRUNCATED, "the file ends before its picture does");
}

/* The library's partial decode gives the bytes of the full one for every sampling, with one
 * exception: coefficients that a progressive picture never got are guessed from neighbouring
 * blocks, and those outside the crop are not at hand. */
static bool crops_exactly(const struct jpeg_decompress_struct *info)
{
    if (!info->progressive_mode)
        return true;
    for (int i = 0; i < info->num_components; i++)
        for (int k = 0; k < DCTSIZE2; k++)
            if (info->coef_bits[i][k] != 0)
                return false;
    return true;
}

static void reserve_rows(struct decode_jpeg *jpeg, size_t stride)
{
    size_t count = (size_t)jpeg->region.height + 1; /* one for the picture's last row */
    if (count < ROWS_AT_ONCE)
        count = ROWS_AT_ONCE;
    size_t bytes = stride * count + BUFFER_SPARE_BYTES;
    if (bytes <= jpeg->rows_bytes)
        return;
    free(jpeg->rows);
    jpeg->rows = aligned_alloc(ROW_ALIGN, bytes);
    jpeg->rows_bytes = jpeg->rows == NULL ? 0 : bytes;
    if (jpeg->rows == NULL)
        decode_jpeg_raise(jpeg, SPDL_CLASS_RESOURCE, "no memory for %zu bytes of pixels", bytes);
}

static void read_rows(struct decode_jpeg *jpeg, uint8_t *to, size_t stride, int32_t count)
{
    for (int32_t done = 0; done < count;) {
        JSAMPROW rows[ROWS_AT_ONCE];
        int32_t some = count - done < ROWS_AT_ONCE ? count - done : ROWS_AT_ONCE;
        for (int32_t k = 0; k < some; k++)
            rows[k] = to + (size_t)(done + k) * stride;
        JDIMENSION got = jpeg_read_scanlines(&jpeg->info, rows, (JDIMENSION)some);
        if (got == 0)
            decode_jpeg_raise(jpeg, SPDL_CLASS_CORRUPT, "the rows end at %d", done);
        done += (int32_t)got;
    }
}

static void discard_rows(struct decode_jpeg *jpeg, size_t stride, int32_t count)
{
    for (int32_t done = 0; done < count; done += ROWS_AT_ONCE)
        read_rows(jpeg, jpeg->rows, stride,
                  count - done < ROWS_AT_ONCE ? count - done : ROWS_AT_ONCE);
}

/* Columns first … first + width - 1 of the picture hold the region and what its edges need. */
static void choose_columns(const struct decode_jpeg *jpeg, JDIMENSION *ret_first,
                           JDIMENSION *ret_width)
{
    const int32_t all = (int32_t)jpeg->info.output_width;
    int32_t first = jpeg->region.x - 1, end = jpeg->region.x + jpeg->region.width + 1;
    end = end < first + WIDTH_MIN ? first + WIDTH_MIN : end;
    end = end > all ? all : end;
    first = end - first < WIDTH_MIN ? end - WIDTH_MIN : first;
    first = first < 0 ? 0 : first;
    *ret_first = (JDIMENSION)first;
    *ret_width = (JDIMENSION)(end - first);
}

/* Adobe's way, which all writers follow: what is stored is 255 minus the ink. Rounded as Pillow
 * does. */
static void ink_to_rgb(uint8_t *pixel, size_t count)
{
    for (; count > 0; count--, pixel += 4) {
        int white = pixel[3];
        for (int c = 0; c < 3; c++) {
            int product = (255 - pixel[c]) * white + 128;
            pixel[c] = (uint8_t)(white - ((product + (product >> 8)) >> 8));
        }
    }
}

/* Goes on to the last row, so that damage behind the region is found. Several scans have been read
 * to their end already. */
static void read_to_end(struct decode_jpeg *jpeg, size_t stride)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    JDIMENSION left = info->output_height - info->output_scanline;
    if (left == 0 || jpeg_has_multiple_scans(info))
        return;
    jpeg_skip_scanlines(info, left - 1);
    read_rows(jpeg, jpeg->rows + (size_t)jpeg->region.height * stride, stride, 1);
}

static void decode_region(struct decode_jpeg *jpeg)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    const struct decode_region *region = &jpeg->region;
    bool ink = info->num_components == 4;
    jpeg->at_scan = false;
    info->out_color_space = ink ? JCS_CMYK : JCS_EXT_RGBX;
    info->progress = jpeg_has_multiple_scans(info) ? &jpeg->progress : NULL;
    jpeg_start_decompress(info);
    check_scans(jpeg);
    JDIMENSION first = 0, width = info->output_width;
    bool exact = crops_exactly(info);
    if (exact) {
        choose_columns(jpeg, &first, &width);
        jpeg_crop_scanline(info, &first, &width);
    }
    size_t stride = ((size_t)width * 4 + ROW_ALIGN - 1) & ~(size_t)(ROW_ALIGN - 1);
    reserve_rows(jpeg, stride);
    if (exact)
        jpeg_skip_scanlines(info, (JDIMENSION)region->y);
    else
        discard_rows(jpeg, stride, region->y);
    read_rows(jpeg, jpeg->rows, stride, region->height);
    if (!jpeg->may_stop_early) {
        read_to_end(jpeg, stride);
        decode_jpeg_check_tail(jpeg);
    }
    check_end(jpeg);
    if (ink)
        for (int32_t y = 0; y < region->height; y++)
            ink_to_rgb(jpeg->rows + (size_t)y * stride, width);
    jpeg->pixels = (struct decode_pixels){jpeg->rows, stride, region->x - (int32_t)first, 0};
    jpeg_abort_decompress(info);
}

static enum spdl_class jpeg_decode(void *ctx, const struct decode_packet *packet,
                                   const struct decode_region *region, bool may_stop_early,
                                   struct decode_pixels *ret_pixels, struct decode_fault *ret_fault)
{
    struct decode_jpeg *jpeg = ctx;
    ASSERT(jpeg->at_scan && jpeg->packet.data == packet->data &&
           jpeg->packet.bytes == packet->bytes);
    ASSERT(region->x >= 0 && region->y >= 0 && region->width > 0 && region->height > 0 &&
           (int64_t)region->x + region->width <= (int64_t)jpeg->info.image_width &&
           (int64_t)region->y + region->height <= (int64_t)jpeg->info.image_height);
    jpeg->region = *region;
    jpeg->may_stop_early = may_stop_early;
    enum spdl_class class_number = guarded(jpeg, decode_region, ret_fault);
    if (class_number == SPDL_CLASS_OK)
        *ret_pixels = jpeg->pixels;
    return class_number;
}

static void jpeg_trim(void *ctx)
{
    struct decode_jpeg *jpeg = ctx;
    if (jpeg->rows_bytes <= BUFFER_KEEP_BYTES)
        return;
    free(jpeg->rows);
    jpeg->rows = NULL;
    jpeg->rows_bytes = 0;
}

const struct decode_ops decode_jpeg_ops = {
    .name = "jpeg",
    .ctx_bytes = sizeof(struct decode_jpeg),
    .probe = jpeg_probe,
    .open = jpeg_open,
    .close = jpeg_close,
    .head = jpeg_head,
    .decode = jpeg_decode,
    .trim = jpeg_trim,
};
