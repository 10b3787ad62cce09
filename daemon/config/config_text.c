/* Strings for YAML: see config_text.h. */
#include "config/config_text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

bool config_text_is_utf8(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    while (*at) {
        uint32_t more = *at < 0x80             ? 0
                        : (*at & 0xE0) == 0xC0 ? 1
                        : (*at & 0xF0) == 0xE0 ? 2
                        : (*at & 0xF8) == 0xF0 ? 3
                                               : 4;
        uint32_t code = more == 0 ? *at : *at & (0x3Fu >> more);
        if (more == 4)
            return false;
        at++;
        for (uint32_t i = 0; i < more; i++, at++) {
            if ((*at & 0xC0) != 0x80)
                return false;
            code = code << 6 | (*at & 0x3Fu);
        }
        static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
        if (code < least[more] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
            return false;
    }
    return true;
}

/* Length of a UTF-8 character whose bytes YAML would not keep as they are: C1 controls, other line
 * breaks, the byte order mark. 0: kept. */
static size_t escaped_bytes(const unsigned char *at, uint32_t *ret_code)
{
    if (at[0] == 0xC2 && at[1] >= 0x80 && at[1] <= 0xA0) {
        *ret_code = at[1];
        return 2;
    }
    if (at[0] == 0xE2 && at[1] == 0x80 && (at[2] == 0xA8 || at[2] == 0xA9)) {
        *ret_code = 0x2000u + (at[2] & 0x3Fu);
        return 3;
    }
    if (at[0] == 0xEF && (at[1] == 0xBB || at[1] == 0xBF) && at[2] >= 0xBE) {
        *ret_code = 0xF000u | (at[1] & 0x3Fu) << 6 | (at[2] & 0x3Fu);
        return 3;
    }
    return 0;
}

size_t config_text_quote(const char *string, char *text, size_t capacity)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-";
    const unsigned char *at = (const unsigned char *)string;
    bool quoted = string[0] == '\0' || string[0] == '-' || string[strspn(string, plain)] != '\0' ||
                  strcmp(string, "null") == 0 || strcmp(string, "auto") == 0;
    size_t used = 0;
    if (quoted && used + 1 < capacity)
        text[used++] = '"';
    while (*at && used + 9 < capacity) {
        uint32_t code = 0;
        size_t special = quoted ? escaped_bytes(at, &code) : 0;
        if (special > 0) {
            used += (size_t)snprintf(text + used, capacity - used, "\\u%04X", code);
            at += special;
        } else if (*at < 32 || *at == 127) {
            used += (size_t)snprintf(text + used, capacity - used, "\\x%02X", *at++);
        } else {
            if (*at == '"' || *at == '\\')
                text[used++] = '\\';
            text[used++] = (char)*at++;
        }
    }
    if (quoted && used + 1 < capacity)
        text[used++] = '"';
    text[used] = '\0';
    return used;
}
