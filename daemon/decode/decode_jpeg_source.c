/* JPEG: where the codec's bytes come from, and what becomes of the library's errors and warnings.
 *
 * The library warns of damage and goes on with grey; here the first warning that means damage ends
 * the picture. A packet that ends too early gets an end marker behind it, as often as it is asked
 * for, and the fact is noted: so a picture that only lacks its end marker is whole, and what goes
 * wrong behind the end is called TRUNCATED and not CORRUPT. */
#include "decode/decode_jpeg.h"

#include <inttypes.h>
#include <jerror.h>
#include <stdarg.h>
#include <string.h>

#include "decode/decode_exif.h"

enum {
    MARKER_RST0 = 0xD0,
    MARKER_RST7 = 0xD7,
    MARKER_EOI = 0xD9,
    EXIF_NAME_BYTES = 6,
    UNWRITTEN_BYTES = 4
};

static const JOCTET end_marker[2] = {0xFF, MARKER_EOI};

static struct decode_jpeg *of(j_common_ptr info)
{
    return info->client_data;
}

static uint64_t place(const struct decode_jpeg *jpeg)
{
    if (jpeg->packet.data == NULL)
        return UINT64_MAX;
    return jpeg->end_hit ? jpeg->packet.bytes
                         : (uint64_t)(jpeg->source.next_input_byte - jpeg->packet.data);
}

void decode_jpeg_raise(struct decode_jpeg *jpeg, enum spdl_class class_number, const char *format,
                       ...)
{
    struct decode_fault *fault = jpeg->fault;
    fault->class_number = class_number;
    fault->byte_offset = place(jpeg);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault->message, sizeof fault->message, format, arguments);
    va_end(arguments);
    longjmp(jpeg->escape, 1);
}

/* Ends the picture with the library's own words. */
static _Noreturn void raise_message(j_common_ptr info, enum spdl_class class_number)
{
    char message[JMSG_LENGTH_MAX];
    info->err->format_message(info, message);
    decode_jpeg_raise(of(info), class_number, "%.*s", 90, message);
}

static enum spdl_class class_of_error(const struct jpeg_error_mgr *errors)
{
    switch (errors->msg_code) {
    case JERR_OUT_OF_MEMORY:
        return SPDL_CLASS_RESOURCE;
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW:
        return SPDL_CLASS_LIMIT;
    case JERR_BAD_PRECISION: /* 12 bits are a kind of JPEG, 200 bits are damage */
        return errors->msg_parm.i[0] == 12 || errors->msg_parm.i[0] == 16 ? SPDL_CLASS_UNSUPPORTED
                                                                          : SPDL_CLASS_CORRUPT;
    case JERR_ARITH_NOTIMPL:
    case JERR_CCIR601_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_SOF_UNSUPPORTED:
        return SPDL_CLASS_UNSUPPORTED;
    default:
        return SPDL_CLASS_CORRUPT;
    }
}

static _Noreturn void on_error(j_common_ptr info)
{
    struct decode_jpeg *jpeg = of(info);
    enum spdl_class class_number = class_of_error(info->err);
    if (class_number == SPDL_CLASS_CORRUPT && jpeg->end_hit)
        decode_jpeg_raise(jpeg, SPDL_CLASS_TRUNCATED, "the file ends before its picture does");
    raise_message(info, class_number);
}

/* Zeros and ones that fill up the data of a scan. */
static bool is_filling(const uint8_t *from, const uint8_t *end)
{
    while (from < end && (*from == 0 || *from == 0xFF))
        from++;
    return from == end;
}

/* What lies between the last scan's data and the end marker. Cameras fill up there; other bytes
 * were meant for the picture, and its data was misread. Without the marker, the end of the file was
 * never written. */
static bool ends_filled(const struct decode_jpeg *jpeg)
{
    const uint8_t *first = jpeg->packet.data;
    const uint8_t *end = jpeg->source.next_input_byte; /* of the marker; it is only looked at yet */
    const size_t count = (size_t)jpeg->errors.msg_parm.i[0];
    return !jpeg->end_hit && is_filling((size_t)(end - first) < count ? first : end - count, end);
}

/* Warnings that do not touch the pixels. */
static bool is_harmless(const struct decode_jpeg *jpeg)
{
    switch (jpeg->errors.msg_code) {
    case JWRN_JFIF_MAJOR:
    case JWRN_ADOBE_XFORM:
    case JWRN_NOT_SEQUENTIAL:
        return true;
    case JWRN_EXTRANEOUS_DATA:
        return jpeg->errors.msg_parm.i[1] == MARKER_EOI && ends_filled(jpeg);
    default:
        return false;
    }
}

static void on_message(j_common_ptr info, int level)
{
    if (level >= 0) /* a trace */
        return;
    struct decode_jpeg *jpeg = of(info);
    const int code = info->err->msg_code;
    if (is_harmless(jpeg) && !(code == JWRN_NOT_SEQUENTIAL && jpeg->end_hit))
        return;
    /* A Huffman code that does not exist was read from bytes that are there: zeros behind the end
     * raise JWRN_HIT_MARKER before they are used. */
    if (jpeg->end_hit && code != JWRN_HUFF_BAD_CODE)
        decode_jpeg_raise(jpeg, SPDL_CLASS_TRUNCATED, "the file ends before its picture does");
    raise_message(info, SPDL_CLASS_CORRUPT);
}

static void on_output(j_common_ptr info)
{
    (void)info; /* nothing is ever printed */
}

static void source_init(j_decompress_ptr info)
{
    (void)info;
}

static boolean source_fill(j_decompress_ptr info)
{
    struct decode_jpeg *jpeg = info->client_data;
    jpeg->end_hit = true;
    info->src->next_input_byte = end_marker;
    info->src->bytes_in_buffer = sizeof end_marker;
    return TRUE;
}

static void source_skip(j_decompress_ptr info, long bytes)
{
    struct jpeg_source_mgr *source = info->src;
    if (bytes <= 0)
        return;
    if ((unsigned long)bytes > source->bytes_in_buffer) {
        source_fill(info);
        return;
    }
    source->next_input_byte += bytes;
    source->bytes_in_buffer -= (size_t)bytes;
}

static void source_term(j_decompress_ptr info)
{
    (void)info;
}

/* APP1: the orientation is read where it lies; nothing is saved. */
static boolean on_app1(j_decompress_ptr info)
{
    struct decode_jpeg *jpeg = info->client_data;
    struct jpeg_source_mgr *source = info->src;
    if (source->bytes_in_buffer < 2) {
        source_fill(info);
        return TRUE;
    }
    const uint8_t *data = source->next_input_byte;
    size_t length = (size_t)data[0] << 8 | data[1];
    source_skip(info, length < 2 ? 2 : (long)length);
    if (jpeg->end_hit || jpeg->exif_seen || length < 2 + EXIF_NAME_BYTES ||
        memcmp(data + 2, "Exif\0", EXIF_NAME_BYTES) != 0)
        return TRUE;
    jpeg->exif_seen = true;
    jpeg->orientation =
        decode_exif_orientation(data + 2 + EXIF_NAME_BYTES, length - 2 - EXIF_NAME_BYTES);
    return TRUE;
}

/* A scan of few bytes goes over all pixels, so that many of them cost long. */
static void on_progress(j_common_ptr info)
{
    struct decode_jpeg *jpeg = of(info);
    const int scans = jpeg->info.input_scan_number;
    const uint64_t pixels = (uint64_t)jpeg->info.image_width * jpeg->info.image_height;
    if (scans > DECODE_JPEG_SCANS_MAX)
        decode_jpeg_raise(jpeg, SPDL_CLASS_LIMIT, "it has more than %d scans",
                          DECODE_JPEG_SCANS_MAX);
    if (scans > DECODE_JPEG_SCANS_USUAL && (uint64_t)scans * pixels > DECODE_JPEG_SCAN_PIXELS_MAX)
        decode_jpeg_raise(jpeg, SPDL_CLASS_LIMIT, "it has %d scans of %" PRIu64 " pixels and more",
                          scans, pixels);
}

static _Noreturn void raise_unwritten(struct decode_jpeg *jpeg)
{
    jpeg->end_hit = true;
    decode_jpeg_raise(jpeg, SPDL_CLASS_TRUNCATED,
                      "it ends in filling, without its end marker: it was not written whole");
}

/* Data of a picture hardly ends so. */
static bool ends_unwritten(const struct decode_packet *packet)
{
    const uint8_t *end = packet->data + packet->bytes;
    return packet->bytes >= UNWRITTEN_BYTES && is_filling(end - UNWRITTEN_BYTES, end);
}

/* Goes over what the library has not read. Returns whether an end is there. */
static bool find_end(struct decode_jpeg *jpeg)
{
    const uint8_t *at = jpeg->source.next_input_byte;
    for (size_t left = jpeg->source.bytes_in_buffer; left > 1; at++, left--) {
        if (*at == 0xFF && at[1] >= MARKER_RST0 && at[1] <= MARKER_RST7) {
            at++;
            left--;
        } else if (*at == 0xFF && at[1] != 0 && at[1] != 0xFF) {
            return true;
        } else if (*at != 0 && *at != 0xFF) {
            decode_jpeg_raise(jpeg, SPDL_CLASS_CORRUPT,
                              "its data goes on behind its last pixel; some of it was misread");
        }
    }
    if (at != jpeg->source.next_input_byte) /* the last byte may be half an end marker */
        raise_unwritten(jpeg);
    return false;
}

void decode_jpeg_check_tail(struct decode_jpeg *jpeg)
{
    if (jpeg->info.unread_marker != 0 && !jpeg->end_hit)
        return;
    bool several = jpeg_has_multiple_scans(&jpeg->info); /* all was read already */
    if (!jpeg->end_hit && (several || find_end(jpeg)))
        return;
    if (ends_unwritten(&jpeg->packet))
        raise_unwritten(jpeg);
}

void decode_jpeg_prepare(struct decode_jpeg *jpeg)
{
    jpeg->info.err = jpeg_std_error(&jpeg->errors);
    jpeg->info.client_data = jpeg;
    jpeg->errors.error_exit = on_error;
    jpeg->errors.emit_message = on_message;
    jpeg->errors.output_message = on_output;
    jpeg->progress.progress_monitor = on_progress;
    jpeg->source = (struct jpeg_source_mgr){.init_source = source_init,
                                            .fill_input_buffer = source_fill,
                                            .skip_input_data = source_skip,
                                            .resync_to_restart = jpeg_resync_to_restart,
                                            .term_source = source_term};
}

void decode_jpeg_attach(struct decode_jpeg *jpeg)
{
    jpeg->info.src = &jpeg->source;
    jpeg_set_marker_processor(&jpeg->info, JPEG_APP0 + 1, on_app1);
}

/* The library keeps tables from one picture to the next. A picture must not depend on what its
 * thread decoded before: quantisation tables become zeros, which the codec takes as missing, and
 * Huffman tables one with more codes than there can be, which the library refuses. */
static const JHUFF_TBL no_table = {.bits = {[0] = 1 /* no file can say so */, [1] = 3}};

static void forget_tables(struct decode_jpeg *jpeg)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    for (int i = 0; i < NUM_QUANT_TBLS; i++)
        memset(info->quant_tbl_ptrs[i]->quantval, 0, sizeof info->quant_tbl_ptrs[i]->quantval);
    for (int i = 0; i < NUM_HUFF_TBLS; i++) {
        *info->dc_huff_tbl_ptrs[i] = no_table;
        *info->ac_huff_tbl_ptrs[i] = no_table;
    }
}

void decode_jpeg_assume_tables(struct decode_jpeg *jpeg)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    for (int i = 0; i < NUM_HUFF_TBLS; i++)
        if (info->dc_huff_tbl_ptrs[i]->bits[0] == 0 || info->ac_huff_tbl_ptrs[i]->bits[0] == 0)
            return;
    for (int i = 0; i < 2 && !info->progressive_mode; i++) {
        *info->dc_huff_tbl_ptrs[i] = jpeg->usual_tables[i];
        *info->ac_huff_tbl_ptrs[i] = jpeg->usual_tables[2 + i];
    }
}

void decode_jpeg_rewind(struct decode_jpeg *jpeg, const struct decode_packet *packet)
{
    jpeg_abort_decompress(&jpeg->info);
    jpeg->packet = *packet;
    jpeg->source.next_input_byte = packet->data;
    jpeg->source.bytes_in_buffer = packet->bytes;
    jpeg->info.progress = NULL;
    jpeg->at_scan = false;
    jpeg->end_hit = false;
    jpeg->exif_seen = false;
    jpeg->orientation = 1;
    forget_tables(jpeg);
}
