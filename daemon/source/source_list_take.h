/* Takes a row of a list into the table: its path and the file behind it, its label, its values;
 * says what is wrong with it and where. Private to source_list_read.c, which finds the rows. */
#ifndef SPDLD_SOURCE_LIST_TAKE_H
#define SPDLD_SOURCE_LIST_TAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "source/source_list_parse.h"
#include "source/source_list_table.h"

/* A list that is being read. */
struct source_list_take {
    struct source_list_table *table;
    struct source_list_file *file;
    uint32_t number; /* of the file */
    const struct source_list_columns *wanted;
    struct source_counts *counts;
    struct err *reterr;
    struct source_list_sizes *sizes;
    int fd;
    /* The part of the file that is looked at: `from` is where the next row begins. */
    uint8_t *buffer;
    size_t room, have, from;
    uint64_t at; /* of buffer[0] in the file */
    bool is_end;
    char delimiter;
    uint64_t line;      /* of the next row, from 1 */
    uint64_t back_left; /* bytes that may be looked at twice */
    struct source_list_row row;
    uint32_t column_count;                     /* CSV */
    uint32_t columns[SOURCE_LIST_COLUMNS_MAX]; /* names; NONE: no part */
    uint32_t path_column;                      /* CSV: which column it is */
    bool knows_path;                           /* JSON: path_text is the name of its member */
    char path_text[FIELD_PART_BYTES], label_text[FIELD_PART_BYTES];
    /* Scratch of a row. */
    char *scratch;
    size_t scratch_bytes, scratch_room;
    char key[SOURCE_KEY_BYTES + 1];
};

/* The list cannot be read: the sentence begins with its name. Returns rc. */
int source_list_take_fails(const struct source_list_take *r, int rc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The row is left out. `at`: where in it; the sentence begins with line and column there. 0 or a
 * negative errno. */
int source_list_take_leave_out(struct source_list_take *r, uint32_t class_number, size_t at,
                               const char *format, ...) __attribute__((format(printf, 4, 5)));

/* What a value of the row says, behind what is in the scratch, with a 0. 1; 0: it is not written
 * right; -ENOMEM. */
int source_list_take_value(struct source_list_take *r, uint32_t at, uint32_t bytes, uint8_t escape,
                           size_t *ret_bytes);

/* A row with its path and the names of its other values. 0 or a negative errno. */
int source_list_take_sample(struct source_list_take *r, const struct source_list_value *path,
                            const uint32_t names[SOURCE_LIST_COLUMNS_MAX]);

#endif
