/* JPEG: what the files of the codec share. The codec itself is decode_jpeg.c; where its bytes come
 * from and how it fails is decode_jpeg_source.c. */
#ifndef SPDLD_DECODE_JPEG_H
#define SPDLD_DECODE_JPEG_H

#include <setjmp.h>
#include <stdio.h> /* jpeglib.h needs it */

#include <jpeglib.h>

#include "decode/decode.h"

/* So many scans may have a picture of any size; more only as long as scans times pixels are not too
 * many, and at most so many. */
enum {
    DECODE_JPEG_SCANS_USUAL = 32,
    DECODE_JPEG_SCAN_PIXELS_MAX = 256 << 20,
    DECODE_JPEG_SCANS_MAX = 500
};

extern const struct decode_ops decode_jpeg_ops;

/* One thread's codec. The library's object lives as long as the thread; pictures come and go in it.
 */
struct decode_jpeg {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf escape; /* where decode_jpeg_raise goes: out of the call that is under way */
    struct decode_fault *fault;  /* of that call */
    struct decode_packet packet; /* that the object reads */
    struct decode_region region; /* that is asked for */
    bool at_scan;                /* the head was read, nothing of the first scan yet */
    bool may_stop_early;
    bool end_hit;   /* the library asked for more bytes than there are */
    bool exif_seen; /* the first EXIF part counts */
    int32_t orientation;
    uint64_t max_pixels;
    uint8_t *rows; /* decoded rows; grows */
    size_t rows_bytes;
    struct decode_pixels pixels;
    struct jpeg_compress_struct *compress; /* while the context is opened */
    JHUFF_TBL usual_tables[4]; /* DC 0, DC 1, AC 0, AC 1 of the standard: a picture without tables
                                  means these */
};

/* Sets up errors and source in the context, before the object is made; then gives them to the
 * object. */
void decode_jpeg_prepare(struct decode_jpeg *jpeg);
void decode_jpeg_attach(struct decode_jpeg *jpeg);

/* Points the source at the packet and forgets everything about the one before. */
void decode_jpeg_rewind(struct decode_jpeg *jpeg, const struct decode_packet *packet);

/* The head was read. A sequential picture that has no Huffman table at all means the standard's. */
void decode_jpeg_assume_tables(struct decode_jpeg *jpeg);

/* The picture was decoded to its last pixel: its data must be at its end, too, and the file must
 * not end in what fills up room that was never written. */
void decode_jpeg_check_tail(struct decode_jpeg *jpeg);

/* Fills the fault, with the place in the packet, and leaves the call under way. */
_Noreturn void decode_jpeg_raise(struct decode_jpeg *jpeg, enum spdl_class class_number,
                                 const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
