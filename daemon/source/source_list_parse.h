/* Rows of a list: CSV (RFC 4180) or JSON lines. Pure: bytes in, places of values out; what is wrong
 * with a row is said and the next one begins behind it. Private to the room. */
#ifndef SPDLD_SOURCE_LIST_PARSE_H
#define SPDLD_SOURCE_LIST_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/escape.h"

enum {
    SOURCE_LIST_COLUMNS_MAX = 60,
    SOURCE_LIST_ROW_BYTES_MAX = 16 << 20,
    SOURCE_LIST_JSON = 0 /* `delimiter` of JSON lines */
};

struct source_list_value {
    uint32_t at, bytes; /* from the row's first byte; without its quotes */
    uint8_t escape;     /* enum escape */
    /* JSON: the member's name */
    uint8_t name_escape;
    bool is_null;
    uint32_t name_at, name_bytes;
};

struct source_list_row {
    size_t looked;         /* bytes that were looked at: the row's and some behind */
    size_t bytes;          /* with the end of its line; the next one begins there */
    uint32_t lines;        /* ends of lines in it */
    uint32_t value_count;  /* 0: an empty line */
    uint32_t further;      /* CSV: values above the limit, which are counted alone */
    uint32_t class_number; /* enum spdl_class: OK BAD_FORMAT TRUNCATED LIMIT INCOMPLETE */
    size_t fault_at;
    const char *message; /* static storage */
    struct source_list_value values[SOURCE_LIST_COLUMNS_MAX];
};

/* What is left of a list. */
struct source_list_input {
    const uint8_t *data;
    size_t bytes;
    bool is_end;    /* nothing comes behind */
    bool goes_back; /* CSV: the row behind one with wrong quotes begins in its second line, else
                       where the fault was seen: many of them may not cost more than time in
                       proportion to the list */
    char delimiter; /* ',' or a tab; SOURCE_LIST_JSON */
};

/* The row that the input begins with. False: it goes on behind the input; never when that is the
 * end or has SOURCE_LIST_ROW_BYTES_MAX bytes. */
bool source_list_row(const struct source_list_input *input, struct source_list_row *ret_row);

#endif
