/* Walking over JSON: see json.h. */
#include "base/json.h"

#include <string.h>

static bool fail(struct json_scan *scan, enum json_fault fault, const char *message)
{
    scan->fault = fault;
    scan->message = message;
    return false;
}

static bool fail_here(struct json_scan *scan, const char *message)
{
    if (scan->at >= scan->end)
        return fail(scan, JSON_ENDS, "it ends before its value does");
    return fail(scan, JSON_WRONG, message);
}

static int peek(const struct json_scan *scan)
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

static bool escape_skip(struct json_scan *scan)
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
static bool utf8_skip(struct json_scan *scan)
{
    int first = scan->data[scan->at];
    int more = first >= 0xc2 && first <= 0xdf   ? 1
               : first >= 0xe0 && first <= 0xef ? 2
               : first >= 0xf0 && first <= 0xf4 ? 3
                                                : 0;
    if (more == 0)
        return fail(scan, JSON_WRONG, "its text is not UTF-8");
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

bool json_string(struct json_scan *scan)
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

static bool digits_skip(struct json_scan *scan)
{
    if (!is_digit(peek(scan)))
        return fail_here(scan, "a number lacks a digit");
    while (is_digit(peek(scan)))
        scan->at++;
    return true;
}

static bool number_skip(struct json_scan *scan)
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

static bool word_skip(struct json_scan *scan, const char *word)
{
    for (; *word; word++, scan->at++)
        if (peek(scan) != *word)
            return fail_here(scan, "a word that JSON does not have");
    return true;
}

static bool begin(struct json_scan *scan, bool is_object)
{
    if (scan->depth == JSON_DEPTH_MAX)
        return fail(scan, JSON_DEEP, "it is nested more than 128 deep");
    scan->is_object[scan->depth++] = is_object;
    scan->expect = is_object ? JSON_EXPECT_NAME_OR_END : JSON_EXPECT_VALUE_OR_END;
    scan->at++;
    return true;
}

/* A value is complete. */
static void done(struct json_scan *scan)
{
    scan->expect = scan->depth > 0 ? JSON_EXPECT_COMMA_OR_END : JSON_EXPECT_NOTHING;
}

static bool value_take(struct json_scan *scan)
{
    int c = peek(scan);
    bool good;
    if (c == '{' || c == '[')
        return begin(scan, c == '{');
    if (c == '"')
        good = json_string(scan);
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

void json_space(struct json_scan *scan)
{
    for (int c = peek(scan); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = peek(scan))
        scan->at++;
}

static bool name_take(struct json_scan *scan)
{
    if (peek(scan) != '"')
        return fail_here(scan, "the name of a member is missing");
    if (!json_string(scan))
        return false;
    json_space(scan);
    if (peek(scan) != ':')
        return fail_here(scan, "a ':' is missing");
    scan->at++;
    scan->expect = JSON_EXPECT_VALUE;
    return true;
}

/* The end of an array or object, or a comma in it. */
static bool behind_take(struct json_scan *scan)
{
    bool is_object = scan->is_object[scan->depth - 1];
    int c = peek(scan);
    if (c == ',' && scan->expect == JSON_EXPECT_COMMA_OR_END) {
        scan->at++;
        scan->expect = is_object ? JSON_EXPECT_NAME : JSON_EXPECT_VALUE;
        return true;
    }
    if (c != (is_object ? '}' : ']'))
        return fail_here(scan, is_object ? "a ',' or '}' is missing" : "a ',' or ']' is missing");
    scan->at++;
    scan->depth--;
    done(scan);
    return true;
}

static bool step(struct json_scan *scan)
{
    int c = peek(scan);
    switch (scan->expect) {
    case JSON_EXPECT_VALUE:
        return value_take(scan);
    case JSON_EXPECT_VALUE_OR_END:
        return c == ']' ? behind_take(scan) : value_take(scan);
    case JSON_EXPECT_NAME:
        return name_take(scan);
    case JSON_EXPECT_NAME_OR_END:
        return c == '}' ? behind_take(scan) : name_take(scan);
    case JSON_EXPECT_COMMA_OR_END:
        return behind_take(scan);
    case JSON_EXPECT_NOTHING:
        break;
    }
    return fail(scan, JSON_WRONG, "there is more behind the value");
}

bool json_value(struct json_scan *scan)
{
    scan->depth = 0;
    scan->expect = JSON_EXPECT_VALUE;
    while (step(scan)) {
        if (scan->expect == JSON_EXPECT_NOTHING)
            return true;
        json_space(scan);
    }
    return false;
}
