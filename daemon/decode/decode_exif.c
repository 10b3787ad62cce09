/* The orientation in the EXIF part of a picture. Every offset is checked against the end before it
 * is used; no loop is longer than the bytes that are there. */
#include "decode/decode_exif.h"

#include <stdbool.h>
#include <string.h>

enum { TIFF_HEAD_BYTES = 8, ENTRY_BYTES = 12, TAG_ORIENTATION = 0x0112 };
enum tiff_type { TIFF_BYTE = 1, TIFF_SHORT = 3, TIFF_LONG = 4 };

struct tiff {
    const uint8_t *data;
    size_t bytes;
    bool big_endian;
};

/* The caller has checked that the two or four bytes are there. */
static uint32_t read_16(const struct tiff *tiff, size_t at)
{
    uint32_t a = tiff->data[at], b = tiff->data[at + 1];
    return tiff->big_endian ? a << 8 | b : b << 8 | a;
}

static uint32_t read_32(const struct tiff *tiff, size_t at)
{
    uint32_t a = read_16(tiff, at), b = read_16(tiff, at + 2);
    return tiff->big_endian ? a << 16 | b : b << 16 | a;
}

static uint32_t entry_value(const struct tiff *tiff, size_t entry)
{
    if (read_32(tiff, entry + 4) != 1)
        return 0;
    switch (read_16(tiff, entry + 2)) {
    case TIFF_BYTE:
        return tiff->data[entry + 8];
    case TIFF_SHORT:
        return read_16(tiff, entry + 8);
    case TIFF_LONG:
        return read_32(tiff, entry + 8);
    default:
        return 0;
    }
}

int32_t decode_exif_orientation(const uint8_t *bytes_of_tiff, size_t bytes)
{
    struct tiff tiff = {bytes_of_tiff, bytes, false};
    if (bytes < TIFF_HEAD_BYTES)
        return 1;
    if (tiff.data[0] == 'M' && tiff.data[1] == 'M')
        tiff.big_endian = true;
    else if (tiff.data[0] != 'I' || tiff.data[1] != 'I')
        return 1;
    size_t directory = read_32(&tiff, 4);
    if (read_16(&tiff, 2) != 42 || directory > bytes - 2)
        return 1;
    size_t count = read_16(&tiff, directory), first = directory + 2;
    size_t room = (bytes - first) / ENTRY_BYTES;
    for (size_t i = 0; i < count && i < room; i++) {
        size_t entry = first + i * ENTRY_BYTES;
        if (read_16(&tiff, entry) != TAG_ORIENTATION)
            continue;
        uint32_t value = entry_value(&tiff, entry);
        return value >= 1 && value <= 8 ? (int32_t)value : 1;
    }
    return 1;
}

int32_t decode_exif_orientation_named(const uint8_t *data, size_t bytes)
{
    static const uint8_t name[6] = {'E', 'x', 'i', 'f', 0, 0};
    bool named = bytes >= sizeof name && memcmp(data, name, sizeof name) == 0;
    return named ? decode_exif_orientation(data + sizeof name, bytes - sizeof name)
                 : decode_exif_orientation(data, bytes);
}
