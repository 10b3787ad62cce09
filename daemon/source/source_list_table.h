/* What the lists of a source say, row by row, and what was left out of it. Private to the room;
 * filled on the chores thread, only looked at afterwards. */
#ifndef SPDLD_SOURCE_LIST_TABLE_H
#define SPDLD_SOURCE_LIST_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

#include "base/err.h"
#include "source/source.h"

#define SOURCE_LIST_NONE UINT32_MAX /* no name, no label */
enum {
    SOURCE_LIST_NAMES_MAX = 256 /* of parts: columns and extensions */
};

/* A row: one sample. */
struct source_list_entry {
    uint64_t row_at; /* in its list */
    uint64_t bytes;  /* of the file that it names */
    int64_t mtime_ns;
    uint64_t path_at; /* in the text; ends with 0 */
    uint64_t first_cell;
    uint32_t line;
    uint32_t list;
    uint32_t label; /* number of its text, or NONE */
    uint16_t path_bytes;
    uint16_t name; /* of the file's part */
    uint32_t cell_count;
};

/* A further value of a row, where it stands in the list. */
struct source_list_cell {
    uint32_t at, bytes; /* from row_at */
    uint16_t name;
    uint8_t escape; /* enum escape */
    uint8_t spare;
};

struct source_list_label {
    uint64_t at; /* in the text */
    uint64_t count;
    int64_t value; /* its class, where it has one */
    uint32_t bytes;
    uint32_t kind;
};

struct source_list_fault {
    uint64_t offset, key_at, message_at; /* message_at: ends with 0 */
    uint32_t list, class_number, key_bytes;
    uint32_t spare;
};

/* A list and where its relative paths lead. */
struct source_list_file {
    char *path;      /* absolute, as it was asked for */
    char *real;      /* where it is, links followed, without the first slash */
    char *root;      /* folder that its paths are under, for sentences */
    char *root_real; /* the same, links followed */
    int root_fd;
    uint64_t bytes;
    int64_t mtime_ns;
    uint32_t path_name, label_name; /* of these columns; NONE: no name of a part, not there */
    uint32_t *columns;              /* names; NONE: no part; for sentences */
    uint32_t column_count;
};

struct source_list_slots { /* a hash table of labels: number + 1 */
    uint32_t *numbers;
    size_t room;
};

struct source_list_table {
    struct source_list_file *files;
    uint32_t file_count;
    struct source_list_entry *entries;
    struct source_list_cell *cells;
    struct source_list_label *labels;
    struct source_list_fault *faults;
    char *text;
    size_t entry_count, entry_room, cell_count, cell_room, label_count, label_room, fault_count,
        fault_room, text_bytes, text_room;
    struct source_list_slots slots;
    uint32_t name_count;
    char names[SOURCE_LIST_NAMES_MAX][FIELD_PART_BYTES];
    XXH3_state_t *digest; /* of the values */
};

void source_list_table_fini(struct source_list_table *table);

/* 0 or -ENOMEM, for all of these. */
int source_list_table_text(struct source_list_table *table, const char *text, size_t bytes,
                           uint64_t *ret_at); /* a 0 comes behind it */
int source_list_table_entry(struct source_list_table *table, const struct source_list_entry *entry);
int source_list_table_cell(struct source_list_table *table, const struct source_list_cell *cell);
int source_list_table_label(struct source_list_table *table, const char *text, size_t bytes,
                            uint32_t *ret_number);
/* key and message are filled in here. */
int source_list_table_fault(struct source_list_table *table, const struct source_list_fault *fault,
                            const char *key, const char *message);

/* The number of a part's name: lower-cased, without blanks around it. NONE: it can be no part's
 * name, or there are too many. */
uint32_t source_list_table_name(struct source_list_table *table, const char *text, size_t bytes);

/* Reads list number `file`, whose path, real, root and root_fd are set, to the table's end. The
 * names of columns are "" where the rules decide. A negative errno with a sentence that begins with
 * "list" and the path. Blocks. */
struct source_list_columns {
    const char *path, *label;
};
int source_list_read(struct source_list_table *table, uint32_t file,
                     const struct source_list_columns *columns, struct source_counts *counts,
                     struct err *reterr);

/* Leaves out the entries that have no part for one of the fields; labels are settled. 0 or -ENOMEM.
 */
int source_list_table_complete(struct source_list_table *table, bool has_classes,
                               const struct source_spec *spec);

/* Sizes and times of files beneath a root; keeps the folders that it met last open. */
struct source_list_sizes;
struct source_list_sizes *source_list_sizes_create(void);        /* NULL: no memory */
void source_list_sizes_destroy(struct source_list_sizes *sizes); /* accepts NULL */
/* 0; what cannot be looked at has size and time 0, and fails when it is read. -EXDEV: the path
 * leads out. Another negative errno: no descriptors, no memory, the storage fails. */
int source_list_sizes_of(struct source_list_sizes *sizes, int root_fd, const char *path,
                         uint64_t *ret_bytes, int64_t *ret_mtime_ns);

#endif
