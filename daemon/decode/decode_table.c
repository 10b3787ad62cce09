/* The list of picture codecs, and the look at a packet's first bytes that chooses one. */
#include "decode/decode.h"

#include <stdio.h>
#include <string.h>

#include "decode/decode_bmp.h"
#include "decode/decode_gif.h"
#include "decode/decode_jpeg.h"
#include "decode/decode_png.h"
#include "decode/decode_pnm.h"
#include "decode/decode_webp.h"

const struct decode_ops *const decode_table[] = {
    &decode_jpeg_ops,
    &decode_png_ops,
    &decode_webp_ops,
    &decode_bmp_ops,
    &decode_gif_ops,
    &decode_pnm_ops,
    NULL,
};

/* Formats without a codec that are told by their first bytes, so that the fault can name them. */
struct magic {
    const char *name;
    const char *bytes;
    const char *mask; /* x: this byte must be equal; .: any byte */
};

static const struct magic magics[] = {
    {"TIFF", "II*\0", "xxxx"},
    {"TIFF", "MM\0*", "xxxx"},
    {"BigTIFF", "II+\0", "xxxx"},
    {"BigTIFF", "MM\0+", "xxxx"},
    {"JPEG XL", "\xff\x0a", "xx"},
    {"JPEG XL", "\0\0\0\x0cJXL ", "xxxxxxxx"},
    {"JPEG 2000", "\0\0\0\x0cjP  ", "xxxxxxxx"},
    {"JPEG 2000", "\xff\x4f\xff\x51", "xxxx"},
    {"AVIF", "\0\0\0\0ftypavif", "....xxxxxxxx"},
    {"AVIF", "\0\0\0\0ftypavis", "....xxxxxxxx"},
    {"HEIF", "\0\0\0\0ftyphei", "....xxxxxxx"},
    {"HEIF", "\0\0\0\0ftypmif1", "....xxxxxxxx"},
    {"HEIF", "\0\0\0\0ftypmsf1", "....xxxxxxxx"},
    {"OpenEXR", "\x76\x2f\x31\x01", "xxxx"},
    {"Photoshop", "8BPS\0\x01", "xxxxxx"},
    {"QOI", "qoif", "xxxx"},
    {"ICO", "\0\0\x01\0", "xxxx"},
    {"PAM", "P7\n", "xxx"},
};

static bool magic_fits(const struct magic *magic, const uint8_t *data, size_t bytes)
{
    size_t length = strlen(magic->mask);
    if (bytes < length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (magic->mask[i] == 'x' && data[i] != (uint8_t)magic->bytes[i])
            return false;
    return true;
}

static const char *known_format(const struct decode_packet *packet)
{
    for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++)
        if (magic_fits(&magics[i], packet->data, packet->bytes))
            return magics[i].name;
    return NULL;
}

const struct decode_ops *decode_probe(const struct decode_packet *packet,
                                      struct decode_fault *ret_fault)
{
    for (size_t i = 0; packet->bytes != 0 && decode_table[i] != NULL; i++)
        if (decode_table[i]->probe(packet->data, packet->bytes))
            return decode_table[i];
    ret_fault->byte_offset = 0;
    if (packet->bytes == 0) {
        ret_fault->class_number = SPDL_CLASS_EMPTY;
        snprintf(ret_fault->message, sizeof ret_fault->message, "there are no bytes in it");
        return NULL;
    }
    const char *name = known_format(packet);
    if (name != NULL) {
        ret_fault->class_number = SPDL_CLASS_UNSUPPORTED;
        snprintf(ret_fault->message, sizeof ret_fault->message,
                 "it is a picture in %s format, which is not decoded yet", name);
        return NULL;
    }
    ret_fault->class_number = SPDL_CLASS_BAD_FORMAT;
    snprintf(ret_fault->message, sizeof ret_fault->message,
             "the first bytes belong to no picture format that is known");
    return NULL;
}
