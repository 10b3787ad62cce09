/* Sentences about a list whose columns are other than its dataset needs. Private to the room. */
#ifndef SPDLD_SOURCE_LIST_NEED_H
#define SPDLD_SOURCE_LIST_NEED_H

#include <stdbool.h>

#include "source/source_list_table.h"
#include "source/source_need.h"

/* The fields for which rows that were left out have no part. */
uint32_t source_list_need_missing(const struct source_list_table *table,
                                  const struct source_need *need);

/* The columns of a list, and which of them may be the part that a field of `missing` is to be made
 * from, written wrong. */
void source_list_need_hint(const struct source_list_table *table, uint32_t file,
                           const struct source_need *need, uint32_t missing, char text[400]);

/* Does any row of the list name a file that is there? */
bool source_list_need_files(const struct source_list_table *table, uint32_t file);

#endif
