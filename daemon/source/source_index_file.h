/* The file of an index: see source_index.h. For source_index.c alone. */
#ifndef SPDLD_SOURCE_INDEX_FILE_H
#define SPDLD_SOURCE_INDEX_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "source/source_guard.h"
#include "source/source_index.h"

/* A mapped file that was whole when it was mapped. */
struct source_index_map {
    const char *base; /* NULL: none */
    uint64_t bytes;
    struct source_guard *guard; /* NULL: none, or it is a copy */
    char *copy;                 /* NULL: it is mapped */
};

/* A shard as the file has it. */
struct source_index_entry {
    uint64_t bytes;
    int64_t mtime_ns, ctime_ns;
    uint64_t content; /* source_index_content; 0: it was not worked out */
    uint64_t block_at, block_bytes;
    uint64_t path_at; /* in the file */
    uint32_t path_bytes;
    uint32_t spare;
};

/* Maps the file where it is an index of this kind, version and machine and not damaged. Anything
 * else leaves the map empty. */
void source_index_map_open(const char *file, const char *kind, struct source_index_map *ret_map);
/* The same of a file that others may write: it is read, so that nothing that is done to it later
 * matters. */
void source_index_map_copy(const char *file, const char *kind, struct source_index_map *ret_map);
/* source_index_map_open of a file that is open. 0, or a negative errno with the map empty. */
int source_index_map_fd(int fd, const char *kind, struct source_index_map *ret_map);
/* Was it whole all the time until now? Where its time is another one all of it is read again. */
bool source_index_map_is_whole(const struct source_index_map *map, const char *kind);
void source_index_map_close(struct source_index_map *map);
uint64_t source_index_map_count(const struct source_index_map *map);
/* Shard `number` and its path; the path is not ended by 0. */
const struct source_index_entry *source_index_map_entry(const struct source_index_map *map,
                                                        uint64_t number, const char **ret_path);
const struct source_block *source_index_map_block(const struct source_index_map *map,
                                                  const struct source_index_entry *entry);

/* What is written: paths without their first `path_at` bytes, of each shard what is in `contents`
 * (NULL: 0). */
struct source_index_written {
    const char *kind;
    const struct source_index_shard *shards;
    uint32_t count;
    size_t path_at;
    const uint64_t *contents;
};
/* Writes a new file and puts it in the place of `file`; maps it. 0 or a negative errno: nothing has
 * changed. */
int source_index_file_write(const char *file, const struct source_index_written *written,
                            struct source_index_map *ret_map);

#endif
