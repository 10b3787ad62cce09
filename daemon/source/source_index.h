/* The index of a dataset of shards: a block (source_block.h) for each shard, kept in one file that
 * is mapped. Opening it looks at each shard's size and time, reads again the shards that have
 * changed and writes a new file beside the old one, which then takes its place: builders do not
 * disturb each other, and who has the old one mapped keeps it. Where it cannot be written the index
 * stays in memory.
 *
 * A shard of which the file has size, time and time of change is not looked into. An index that was
 * published beside the shards is used where it has the size and the content of a shard, by some of
 * its bytes: times are others where shards were copied. Non-logging; blocks; chores thread. */
#ifndef SPDLD_SOURCE_INDEX_H
#define SPDLD_SOURCE_INDEX_H

#include <stdint.h>

#include "base/err.h"
#include "source/source_block.h"

struct source_index_params {
    const char *kind;                 /* of the source; part of the file's identity */
    const char *patterns;             /* one a line */
    const char *dir;                  /* where the file is; "": it is not kept */
    struct source_progress *progress; /* or NULL */
    /* Reads a shard; adds to `progress`, where it is not NULL, the bytes that it has gone over. 0
     * with *ret_block returned owned; -ENOMEM; another negative errno with a sentence that does not
     * name the shard. Called by several threads at once. */
    int (*build)(int fd, uint64_t bytes, struct source_progress *progress,
                 struct source_block **ret_block, struct err *reterr);
};

struct source_index_shard {
    const char *path; /* absolute, as it was asked for */
    const char *real; /* where it is, links followed, without the first slash */
    uint64_t bytes;
    int64_t mtime_ns, ctime_ns;
    const struct source_block *block;
};

struct source_index {
    struct source_index_shard *shards;
    uint32_t shard_count;
    uint32_t parsed_count; /* shards that were read for this opening */
    int kept;              /* 1: what is in use is what is in the file, or in the published one */
    char file[4352];       /* the file's path; "": none */
    char published[4352];  /* where an index of just these shards lies, or may lie, beside them */
    struct source_index_own *own;
};

/* Returned owned. -ENOENT, -EACCES, -EIO …, with a sentence that names path or pattern. */
int source_index_open(const struct source_index_params *params, struct source_index **ret_index,
                      struct err *reterr);
/* Writes the index beside the shards, with their paths relative to the folder that they have in
 * common, so that both can be moved and copied. 0, or a negative errno with a sentence. Blocks. */
int source_index_publish(const struct source_index *index, const char *kind, struct err *reterr);
/* The file that blocks are mapped from and that was cut or written over since, so that what was
 * looked up of late may be wrong, and so may all that follows; NULL: there is none. */
const char *source_index_damaged(const struct source_index *index, const char *kind);
void source_index_close(struct source_index *index); /* accepts NULL */

#endif
