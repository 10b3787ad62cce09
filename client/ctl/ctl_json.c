/* Writing JSON into a text. */
#include "client/ctl/ctl_json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* A value follows another one exactly when the text before it does not end with an opening bracket,
 * a colon or a line. No value ends with one of these, strings end with their quote. */
static void json_comma(struct ctl_text *text)
{
    char last = text->bytes ? text->data[text->bytes - 1] : '\n';
    if (last != '{' && last != '[' && last != ':' && last != '\n')
        ctl_text_put(text, ",", 1);
}

void ctl_json_open(struct ctl_text *text, char bracket)
{
    json_comma(text);
    ctl_text_put(text, &bracket, 1);
}

void ctl_json_close(struct ctl_text *text, char bracket)
{
    ctl_text_put(text, &bracket, 1);
}

void ctl_json_key(struct ctl_text *text, const char *name)
{
    ctl_json_string(text, name);
    ctl_text_put(text, ":", 1);
}

static void json_escape(struct ctl_text *text, uint32_t code)
{
    char two[2] = {'\\', 0};
    switch (code) {
    case '"':
    case '\\':
        two[1] = (char)code;
        break;
    case '\n':
        two[1] = 'n';
        break;
    case '\r':
        two[1] = 'r';
        break;
    case '\t':
        two[1] = 't';
        break;
    default:
        if (code > 0xffff) {
            ctl_text_printf(text, "\\u%04x\\u%04x", 0xd800U + ((code - 0x10000U) >> 10),
                            0xdc00U + ((code - 0x10000U) & 0x3ffU));
        } else {
            ctl_text_printf(text, "\\u%04x", code);
        }
        return;
    }
    ctl_text_put(text, two, 2);
}

void ctl_json_bytes(struct ctl_text *text, const void *data, size_t bytes)
{
    json_comma(text);
    ctl_text_put(text, "\"", 1);
    const uint8_t *at = data;
    while (bytes > 0) {
        size_t plain = 0;
        while (plain < bytes && at[plain] >= 0x20 && at[plain] < 0x7f && at[plain] != '"' &&
               at[plain] != '\\')
            plain++;
        ctl_text_put(text, at, plain);
        at += plain;
        bytes -= plain;
        if (bytes == 0)
            break;
        uint32_t code = 0;
        size_t length = ctl_utf8_sequence(at, bytes, &code);
        if (length == 0) {
            code = 0xdc00U + at[0];
            length = 1;
        }
        json_escape(text, code);
        at += length;
        bytes -= length;
    }
    ctl_text_put(text, "\"", 1);
}

void ctl_json_string(struct ctl_text *text, const char *string)
{
    ctl_json_bytes(text, string ? string : "", string ? strlen(string) : 0);
}

void ctl_json_unsigned(struct ctl_text *text, uint64_t value)
{
    json_comma(text);
    ctl_text_printf(text, "%" PRIu64, value);
}

void ctl_json_signed(struct ctl_text *text, int64_t value)
{
    json_comma(text);
    ctl_text_printf(text, "%" PRId64, value);
}

void ctl_json_double(struct ctl_text *text, double value, int decimals)
{
    json_comma(text);
    if (isfinite(value))
        ctl_text_printf(text, "%.*f", decimals, value);
    else
        ctl_text_str(text, "null");
}

void ctl_json_bool(struct ctl_text *text, bool value)
{
    json_comma(text);
    ctl_text_str(text, value ? "true" : "false");
}

void ctl_json_null(struct ctl_text *text)
{
    json_comma(text);
    ctl_text_str(text, "null");
}

void ctl_json_key_string(struct ctl_text *text, const char *name, const char *string)
{
    ctl_json_key(text, name);
    ctl_json_string(text, string);
}

void ctl_json_key_unsigned(struct ctl_text *text, const char *name, uint64_t value)
{
    ctl_json_key(text, name);
    ctl_json_unsigned(text, value);
}

void ctl_json_key_signed(struct ctl_text *text, const char *name, int64_t value)
{
    ctl_json_key(text, name);
    ctl_json_signed(text, value);
}

void ctl_json_key_double(struct ctl_text *text, const char *name, double value, int decimals)
{
    ctl_json_key(text, name);
    ctl_json_double(text, value, decimals);
}
