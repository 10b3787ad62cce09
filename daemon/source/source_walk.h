/* The list of pictures beneath a folder: how source_folder gets it and keeps it. Private to the
 * room. */
#ifndef SPDLD_SOURCE_WALK_H
#define SPDLD_SOURCE_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "source/source.h"

#define SOURCE_WALK_NO_CLASS UINT32_MAX /* a file that lies in the root itself */

/* One picture. */
struct source_entry {
    uint64_t path_offset; /* in the list's text; ends with 0 */
    uint64_t bytes;
    int64_t mtime_ns;
    uint32_t class_number;
    uint16_t path_bytes;
    uint8_t extension; /* number in the table of extensions */
    uint8_t reserved;
};

struct source_class {
    char *name; /* owned by the list */
    uint64_t samples;
};

struct source_list {
    struct source_entry *entries; /* sorted by the bytes of their paths */
    size_t entry_count, entry_room;
    char *text;
    size_t text_bytes, text_room;
    struct source_class *classes; /* sorted by the bytes of their names */
    size_t class_count;
};

/* Lists everything beneath the open folder `root_fd`; `root` is its name for sentences. Counts what
 * it leaves out. The list is filled also when it fails; source_list_fini frees it in any case.
 * Errors: -ENOMEM, -EMFILE, -EIO and other answers of the file system that say nothing about a
 * single entry. Blocks. */
int source_walk(int root_fd, const char *root, struct source_list *list,
                struct source_counts *counts, struct err *reterr);
void source_list_fini(struct source_list *list);

/* The name of an extension by its number, lower case; NULL behind the last. Static storage. */
const char *source_extension_name(unsigned number);

/* False: pictures in that format fail when they are decoded. */
bool source_extension_is_decoded(unsigned number);

/* Keeps the first sentence. */
void source_note(struct source_counts *counts, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
