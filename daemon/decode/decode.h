/* Decode: from the bytes of a part to pixels or values. One row of decode_table a codec; the first
 * whose probe likes the first bytes is taken, never by name. Bytes are hostile. Nothing is decided
 * by time. */
#ifndef SPDLD_DECODE_H
#define SPDLD_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "item/class.h"
#include "item/field.h"

/* Encoded bytes of one part; borrowed. They may change under us if the daemon misbehaves, but not
 * in size. */
struct decode_packet {
    const uint8_t *data;
    size_t bytes;
};

struct decode_fault {
    enum spdl_class class_number; /* SPDL_CLASS_OK: none */
    uint64_t byte_offset;         /* where in the packet; UINT64_MAX: not known */
    char message[96];             /* short sentence without the sample's name */
};

struct decode_head {
    int32_t width, height; /* as stored */
    int32_t orientation;   /* EXIF 1 … 8; 1 where there is none */
    int32_t channels;      /* as stored */
};

struct decode_region {
    int32_t x, y, width, height; /* in the picture as stored; inside it, not empty */
};

/* Where decoded pixels are: 4 bytes each (R, G, B, unused). The buffer is the codec context's own
 * and valid until its next call; 64 bytes behind it may be read. The region begins at (region_x,
 * region_y) of it. */
struct decode_pixels {
    const uint8_t *base;
    size_t stride;
    int32_t region_x, region_y;
};

struct decode_ops {
    const char *name; /* jpeg … */
    size_t ctx_bytes; /* per thread, zeroed, 64-byte aligned, allocated by the worker */
    bool (*probe)(const uint8_t *head, size_t head_bytes);
    int (*open)(void *ctx); /* once per thread; 0 or -ENOMEM */
    void (*close)(void *ctx);
    /* Looks at the head of the packet. Limits (max_pixels) are applied here, from the head alone.
     * Returns OK or fills ret_fault. */
    enum spdl_class (*head)(void *ctx, const struct decode_packet *packet, uint64_t max_pixels,
                            struct decode_head *ret_head, struct decode_fault *ret_fault);
    /* Decodes the region, byte-equal to the same region of a full decode, then goes on to the
     * picture's last row so that damage anywhere is found whatever the region (unless
     * may_stop_early). Called after head on the same packet. */
    enum spdl_class (*decode)(void *ctx, const struct decode_packet *packet,
                              const struct decode_region *region, bool may_stop_early,
                              struct decode_pixels *ret_pixels, struct decode_fault *ret_fault);
    /* Gives back what only an unusually large picture needed. Ends the life of the pixels. */
    void (*trim)(void *ctx);
};
extern const struct decode_ops *const decode_table[]; /* pictures; ends with NULL */

/* The codec for these bytes, or NULL with the fault: EMPTY, BAD_FORMAT, or UNSUPPORTED with the
 * name of the format it looks like. */
const struct decode_ops *decode_probe(const struct decode_packet *packet,
                                      struct decode_fault *ret_fault);

/* Values, straight into the row. raw: exactly `bytes` bytes, else EMPTY, SHORT or LIMIT.
 * made_up: bytes from the sample id by the keyed generator of docs/order.md. class: decimal text of
 * a whole number, EMPTY, BAD_FORMAT or LIMIT; float: of any number, the same. bytes: any number of
 * them up to room_bytes, else LIMIT. json: looks only; what it is not, decode_json.c says. */
enum spdl_class decode_raw(const struct decode_packet *packet, uint64_t bytes, uint8_t *row,
                           struct decode_fault *ret_fault);
void decode_made_up(uint64_t id, uint64_t bytes, uint8_t *row);
enum spdl_class decode_class_text(const struct decode_packet *packet, int64_t *ret_value,
                                  struct decode_fault *ret_fault);
enum spdl_class decode_float_text(const struct decode_packet *packet, float *ret_value,
                                  struct decode_fault *ret_fault);
enum spdl_class decode_bytes(const struct decode_packet *packet, uint64_t room_bytes, uint8_t *row,
                             struct decode_fault *ret_fault);
enum spdl_class decode_json_check(const struct decode_packet *packet,
                                  struct decode_fault *ret_fault);

#endif
