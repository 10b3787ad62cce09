/* A table for people: cells are made safe for a terminal, columns get the width that they need. */
#ifndef SPDL_CTL_TABLE_H
#define SPDL_CTL_TABLE_H

#include "client/ctl/ctl_text.h"

enum { CTL_TABLE_COLUMNS_MAX = 16 };

struct ctl_table {
    struct ctl_text cells; /* each ends with a 0 */
    uint32_t columns;
    uint32_t count;                         /* of cells */
    uint32_t widths[CTL_TABLE_COLUMNS_MAX]; /* in characters */
    uint32_t right;                         /* bit per column: numbers stand to the right */
};

void ctl_table_cell(struct ctl_table *table, const char *string);
void ctl_table_cellf(struct ctl_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds the table to the text, its first row in bold when `bold`, and frees it. */
void ctl_table_print(struct ctl_table *table, bool bold, struct ctl_text *text);

/* 1.5 GiB, 1 h 02 min: numbers as people read them. */
void ctl_text_size(struct ctl_text *text, uint64_t bytes);
void ctl_text_duration(struct ctl_text *text, double seconds);

#endif
