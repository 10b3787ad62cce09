/* What an escaped value says: see escape.h. */
#include "base/escape.h"

#include <string.h>

static bool undo_csv(const uint8_t *from, size_t bytes, uint8_t *to, size_t *ret_bytes)
{
    size_t out = 0;
    for (size_t at = 0; at < bytes; at++) {
        if (from[at] == '"' && (++at == bytes || from[at] != '"'))
            return false;
        to[out++] = from[at];
    }
    *ret_bytes = out;
    return true;
}

/* Four hexadecimal digits, or -1. */
static int32_t unit_of(const uint8_t *from, size_t bytes)
{
    int32_t unit = 0;
    if (bytes < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int c = from[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

static size_t utf8_put(uint32_t code, uint8_t *to)
{
    if (code < 0x80) {
        to[0] = (uint8_t)code;
        return 1;
    }
    size_t more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint8_t heads[] = {0, 0xc0, 0xe0, 0xf0};
    for (size_t i = more; i > 0; i--, code >>= 6)
        to[i] = (uint8_t)(0x80 | (code & 0x3f));
    to[0] = (uint8_t)(heads[more] | code);
    return more + 1;
}

/* The character whose four digits begin at `from`. Returns the bytes behind "\u" that it takes (4,
 * or 10 for a pair), 0: there is none. */
static size_t character_of(const uint8_t *from, size_t bytes, uint32_t *ret_code)
{
    int32_t unit = unit_of(from, bytes);
    if (unit < 0 || (unit >= 0xdc00 && unit <= 0xdfff))
        return 0;
    *ret_code = (uint32_t)unit;
    if (unit < 0xd800 || unit > 0xdbff)
        return 4;
    if (bytes < 10 || from[4] != '\\' || from[5] != 'u')
        return 0;
    int32_t low = unit_of(from + 6, bytes - 6);
    if (low < 0xdc00 || low > 0xdfff)
        return 0;
    *ret_code = 0x10000 + (((uint32_t)unit - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
    return 10;
}

static bool undo_json(const uint8_t *from, size_t bytes, uint8_t *to, size_t *ret_bytes)
{
    static const char names[] = "\"\\/bfnrt", says[] = "\"\\/\b\f\n\r\t";
    size_t out = 0;
    for (size_t at = 0; at < bytes; at++) {
        if (from[at] != '\\') {
            to[out++] = from[at];
            continue;
        }
        if (++at == bytes || from[at] == 0)
            return false;
        const char *name = strchr(names, from[at]);
        if (name) {
            to[out++] = (uint8_t)says[name - names];
            continue;
        }
        uint32_t code = 0;
        size_t taken = from[at] == 'u' ? character_of(from + at + 1, bytes - at - 1, &code) : 0;
        if (taken == 0)
            return false;
        out += utf8_put(code, to + out);
        at += taken;
    }
    *ret_bytes = out;
    return true;
}

bool escape_undo(enum escape escape, const uint8_t *from, size_t bytes, uint8_t *to,
                 size_t *ret_bytes)
{
    switch (escape) {
    case ESCAPE_NONE:
        if (bytes > 0)
            memcpy(to, from, bytes);
        *ret_bytes = bytes;
        return true;
    case ESCAPE_CSV:
        return undo_csv(from, bytes, to, ret_bytes);
    case ESCAPE_JSON:
        return undo_json(from, bytes, to, ret_bytes);
    }
    return false;
}
