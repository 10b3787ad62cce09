/* Whether bytes are one JSON text (RFC 8259) and nothing else: strict grammar, strict UTF-8 in
 * strings, a fixed depth, no recursion. Numbers are not evaluated, names of members may repeat. The
 * bytes are only looked at.
 *
 * Classes: EMPTY when there is nothing but white space, BAD_FORMAT when the first byte begins no
 * JSON value, TRUNCATED when it ends before its value does, LIMIT when it is nested too deep,
 * CORRUPT for all else. */
#include "decode/decode.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 128 };

/* What may come next. */
enum expect {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END, /* behind '[' */
    EXPECT_NAME,         /* behind ',' in an object */
    EXPECT_NAME_OR_END,  /* behind '{' */
    EXPECT_COMMA_OR_END, /* behind a value inside something */
    EXPECT_NOTHING       /* behind the whole value */
};

struct scan {
    const uint8_t *data;
    size_t at, end;
    uint32_t depth;
    bool is_object[DEPTH_MAX];
    enum expect expect;
    enum spdl_class class_number;
    const char *message;
};

static bool fail(struct scan *scan, enum spdl_class class_number, const char *message)
{
    scan->class_number = class_number;
    scan->message = message;
    return false;
}

static bool fail_here(struct scan *scan, const char *message)
{
    if (scan->at >= scan->end)
        return fail(scan, SPDL_CLASS_TRUNCATED, "it ends before its value does");
    return fail(scan, SPDL_CLASS_CORRUPT, message);
}

static int peek(const struct scan *scan)
{
    return scan->at < scan->end ? scan->data[scan->at] : -1;
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(int c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool escape_skip(struct scan *scan)
{
    scan->at++;
    int c = peek(scan);
    if (c < 0 || !strchr("\"\\/bfnrtu", c) || c == 0)
        return fail_here(scan, "an escape that JSON does not have");
    scan->at++;
    for (int i = 0; c == 'u' && i < 4; i++, scan->at++)
        if (!is_hex(peek(scan)))
            return fail_here(scan, "\\u is followed by four hexadecimal digits");
    return true;
}

/* One character above ASCII. */
static bool utf8_skip(struct scan *scan)
{
    int first = scan->data[scan->at];
    int more = first >= 0xc2 && first <= 0xdf   ? 1
               : first >= 0xe0 && first <= 0xef ? 2
               : first >= 0xf0 && first <= 0xf4 ? 3
                                                : 0;
    if (more == 0)
        return fail(scan, SPDL_CLASS_CORRUPT, "its text is not UTF-8");
    /* Not longer than needed, no half of a pair, not above the last character. */
    int low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    int high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    scan->at++;
    for (int i = 0; i < more; i++, scan->at++, low = 0x80, high = 0xbf) {
        int c = peek(scan);
        if (c < low || c > high)
            return fail_here(scan, "its text is not UTF-8");
    }
    return true;
}

static bool string_skip(struct scan *scan)
{
    scan->at++;
    for (;;) {
        int c = peek(scan);
        bool good = true;
        if (c == '"') {
            scan->at++;
            return true;
        }
        if (c < 0x20) /* or the end */
            return fail_here(scan, "a control character in a string");
        if (c == '\\')
            good = escape_skip(scan);
        else if (c >= 0x80)
            good = utf8_skip(scan);
        else
            scan->at++;
        if (!good)
            return false;
    }
}

static bool digits_skip(struct scan *scan)
{
    if (!is_digit(peek(scan)))
        return fail_here(scan, "a number lacks a digit");
    while (is_digit(peek(scan)))
        scan->at++;
    return true;
}

static bool number_skip(struct scan *scan)
{
    if (peek(scan) == '-')
        scan->at++;
    if (peek(scan) == '0')
        scan->at++;
    else if (!digits_skip(scan))
        return false;
    if (peek(scan) == '.') {
        scan->at++;
        if (!digits_skip(scan))
            return false;
    }
    if (peek(scan) != 'e' && peek(scan) != 'E')
        return true;
    scan->at++;
    if (peek(scan) == '-' || peek(scan) == '+')
        scan->at++;
    return digits_skip(scan);
}

static bool word_skip(struct scan *scan, const char *word)
{
    for (; *word; word++, scan->at++)
        if (peek(scan) != *word)
            return fail_here(scan, "a word that JSON does not have");
    return true;
}

static bool begin(struct scan *scan, bool is_object)
{
    if (scan->depth == DEPTH_MAX)
        return fail(scan, SPDL_CLASS_LIMIT, "it is nested more than 128 deep");
    scan->is_object[scan->depth++] = is_object;
    scan->expect = is_object ? EXPECT_NAME_OR_END : EXPECT_VALUE_OR_END;
    scan->at++;
    return true;
}

/* A value is complete. */
static void done(struct scan *scan)
{
    scan->expect = scan->depth > 0 ? EXPECT_COMMA_OR_END : EXPECT_NOTHING;
}

static bool value_take(struct scan *scan)
{
    int c = peek(scan);
    bool good;
    if (c == '{' || c == '[')
        return begin(scan, c == '{');
    if (c == '"')
        good = string_skip(scan);
    else if (c == '-' || is_digit(c))
        good = number_skip(scan);
    else if (c == 't')
        good = word_skip(scan, "true");
    else if (c == 'f')
        good = word_skip(scan, "false");
    else if (c == 'n')
        good = word_skip(scan, "null");
    else
        good = fail_here(scan, "a value is missing");
    if (good)
        done(scan);
    return good;
}

static void space_skip(struct scan *scan)
{
    for (int c = peek(scan); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = peek(scan))
        scan->at++;
}

static bool name_take(struct scan *scan)
{
    if (peek(scan) != '"')
        return fail_here(scan, "the name of a member is missing");
    if (!string_skip(scan))
        return false;
    space_skip(scan);
    if (peek(scan) != ':')
        return fail_here(scan, "a ':' is missing");
    scan->at++;
    scan->expect = EXPECT_VALUE;
    return true;
}

/* The end of an array or object, or a comma in it. */
static bool behind_take(struct scan *scan)
{
    bool is_object = scan->is_object[scan->depth - 1];
    int c = peek(scan);
    if (c == ',' && scan->expect == EXPECT_COMMA_OR_END) {
        scan->at++;
        scan->expect = is_object ? EXPECT_NAME : EXPECT_VALUE;
        return true;
    }
    if (c != (is_object ? '}' : ']'))
        return fail_here(scan, is_object ? "a ',' or '}' is missing" : "a ',' or ']' is missing");
    scan->at++;
    scan->depth--;
    done(scan);
    return true;
}

static bool step(struct scan *scan)
{
    int c = peek(scan);
    switch (scan->expect) {
    case EXPECT_VALUE:
        return value_take(scan);
    case EXPECT_VALUE_OR_END:
        return c == ']' ? behind_take(scan) : value_take(scan);
    case EXPECT_NAME:
        return name_take(scan);
    case EXPECT_NAME_OR_END:
        return c == '}' ? behind_take(scan) : name_take(scan);
    case EXPECT_COMMA_OR_END:
        return behind_take(scan);
    case EXPECT_NOTHING:
        break;
    }
    return fail(scan, SPDL_CLASS_CORRUPT, "there is more behind the value");
}

enum spdl_class decode_json_check(const struct decode_packet *packet,
                                  struct decode_fault *ret_fault)
{
    struct scan scan = {.data = packet->data, .end = packet->bytes};
    bool good = true;
    space_skip(&scan);
    size_t first = scan.at;
    if (scan.at == scan.end)
        good = fail(&scan, SPDL_CLASS_EMPTY, "there is no JSON in it");
    while (good && (scan.at < scan.end || scan.expect != EXPECT_NOTHING)) {
        good = step(&scan);
        if (good)
            space_skip(&scan);
    }
    if (good)
        return SPDL_CLASS_OK;
    if (scan.at == first && scan.class_number == SPDL_CLASS_CORRUPT)
        scan.class_number = SPDL_CLASS_BAD_FORMAT;
    ret_fault->class_number = scan.class_number;
    ret_fault->byte_offset = scan.at;
    snprintf(ret_fault->message, sizeof ret_fault->message, "%s", scan.message);
    return scan.class_number;
}
