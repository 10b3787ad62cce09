/* Columns that a list lacks: see source_list_need.h. */
#include "source/source_list_need.h"

#include <stdio.h>
#include <string.h>

enum {
    NEAR = 2,         /* letters that may be wrong in a name */
    FAULTS_MAX = 1000 /* that are looked at */
};

uint32_t source_list_need_missing(const struct source_list_table *table,
                                  const struct source_need *need)
{
    uint32_t missing = 0;
    for (size_t i = 0; i < table->fault_count && i < FAULTS_MAX; i++)
        for (uint32_t f = 0; f < need->field_count; f++)
            if (strstr(table->text + table->faults[i].message_at, need->messages[f]))
                missing |= UINT32_C(1) << f;
    return missing;
}

/* How many letters are put in, left out, changed or swapped between two names of parts. */
static unsigned distance_of(const char *a, const char *b)
{
    unsigned d[FIELD_PART_BYTES + 1][FIELD_PART_BYTES + 1];
    size_t a_bytes = strnlen(a, FIELD_PART_BYTES), b_bytes = strnlen(b, FIELD_PART_BYTES);
    for (size_t i = 0; i <= a_bytes; i++)
        for (size_t j = 0; j <= b_bytes; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = (unsigned)(i + j);
                continue;
            }
            unsigned best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < best)
                best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best)
                best = d[i][j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[a_bytes][b_bytes];
}

/* The name that a column was to have for a field of `missing`; NULL: none is near. */
static const char *meant(const struct source_need *need, uint32_t missing, const char *column)
{
    for (uint32_t f = 0; f < need->field_count; f++)
        for (uint32_t n = 0; (missing >> f & 1) && n < need->fields[f].from_count; n++) {
            const char *name = need->fields[f].from[n];
            if (strcmp(name, "cls") == 0) /* which is what a list calls so */
                name = "label";
            if (strlen(name) > NEAR + 1 && distance_of(name, column) <= NEAR)
                return name;
        }
    return NULL;
}

void source_list_need_hint(const struct source_list_table *table, uint32_t number,
                           const struct source_need *need, uint32_t missing, char text[400])
{
    const struct source_list_file *file = &table->files[number];
    const char *near = NULL;
    size_t used = (size_t)snprintf(text, 300, "its columns are");
    for (uint32_t i = 0; i < file->column_count; i++) {
        if (file->columns[i] == SOURCE_LIST_NONE)
            continue;
        const char *column = table->names[file->columns[i]];
        if (!near && file->columns[i] != file->path_name)
            near = meant(need, missing, column);
        if (used + FIELD_PART_BYTES + 8 < 300)
            used += (size_t)snprintf(text + used, 300 - used, "%s %s", i ? "," : "", column);
    }
    if (near)
        snprintf(text + used, 400 - used, "; did you mean %s?", near);
}

bool source_list_need_files(const struct source_list_table *table, uint32_t file)
{
    for (size_t i = 0; i < table->entry_count; i++) {
        const struct source_list_entry *entry = &table->entries[i];
        if (entry->list == file && (entry->bytes > 0 || entry->mtime_ns != 0))
            return true;
    }
    return false;
}
