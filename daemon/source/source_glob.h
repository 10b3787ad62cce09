/* From paths and patterns to the files that they name. Non-logging; looks at folders, may block. */
#ifndef SPDLD_SOURCE_GLOB_H
#define SPDLD_SOURCE_GLOB_H

#include <stdint.h>

#include "base/err.h"

enum { SOURCE_GLOB_FILES_MAX = 1 << 20 };

struct source_files {
    char **paths; /* absolute, in byte order, each once */
    uint32_t count;
};

/* `patterns` has one path or pattern a line: * ? [abc] as in a shell, {a,b} and {00..17}. One that
 * names a file as it stands is that file. A wildcard takes regular files alone; what is written out
 * must be there. -ENOENT (nothing there, or nothing matches), -EACCES, -EISDIR, -E2BIG, -ENOMEM,
 * with a sentence that begins with the kind and the path. */
int source_glob(const char *kind, const char *patterns, struct source_files *ret_files,
                struct err *reterr);
void source_files_fini(struct source_files *files);

/* The patterns as absolute paths, one a line, "./" and double slashes taken out. Returned owned;
 * NULL: no memory, or no working directory. */
char *source_glob_absolute(const char *patterns);

#endif
