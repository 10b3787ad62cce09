/* Walking over JSON (RFC 8259) without building anything: strict grammar, strict UTF-8 in strings,
 * a fixed depth, no recursion. Numbers are not evaluated, names of members may repeat. The bytes
 * are only looked at; any thread. */
#ifndef SPDLD_BASE_JSON_H
#define SPDLD_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_DEPTH_MAX = 128 };

enum json_fault {
    JSON_ENDS = 1, /* the bytes end before the value does */
    JSON_WRONG,
    JSON_DEEP /* nested too deep */
};

/* What may come next. */
enum json_expect {
    JSON_EXPECT_VALUE,
    JSON_EXPECT_VALUE_OR_END, /* behind '[' */
    JSON_EXPECT_NAME,         /* behind ',' in an object */
    JSON_EXPECT_NAME_OR_END,  /* behind '{' */
    JSON_EXPECT_COMMA_OR_END, /* behind a value inside something */
    JSON_EXPECT_NOTHING       /* behind the whole value */
};

/* The caller sets data, at and end; the rest may be anything. */
struct json_scan {
    const uint8_t *data;
    size_t at, end;
    uint32_t depth;
    bool is_object[JSON_DEPTH_MAX];
    enum json_expect expect;
    enum json_fault fault; /* after a false answer; `at` is then where it is */
    const char *message;   /* static storage */
};

void json_space(struct json_scan *scan);  /* over white space */
bool json_string(struct json_scan *scan); /* over the string that begins at `at` with its quote */
bool json_value(struct json_scan *scan);  /* over the value that begins at `at` */

#endif
