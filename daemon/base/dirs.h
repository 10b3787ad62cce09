/* Folders that the program keeps things in. */
#ifndef SPDLD_BASE_DIRS_H
#define SPDLD_BASE_DIRS_H

#include <stdbool.h>
#include <stddef.h>

/* Where indexes are kept, by the setting: a folder as it is; "none": ""; "auto":
 * /var/lib/spdld/index for the node's daemon, spdld/index under $XDG_CACHE_HOME or ~/.cache for a
 * private one and for one that may not write there, "" where none of them can be named. Nothing is
 * made. */
void dirs_index(const char *setting, bool is_private, char *ret_dir, size_t room);

/* Makes the folders that are missing of those that `file` lies in (0755). What cannot be made shows
 * when the file is written. */
void dirs_make_above(const char *file);

/* Takes away what writers of the file left that were killed: files named like it with a point and
 * six more letters, an hour old. */
void dirs_remove_remains(const char *file);

#endif
