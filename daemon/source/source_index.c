/* The index of a dataset of shards: see source_index.h. */
#include "source/source_index.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/assert.h"
#include "source/source_glob.h"
#include "source/source_index_file.h"

enum { BUILDERS_MAX = 4, STALE_SECONDS = 3600 };

struct source_index_own {
    struct source_files files; /* the paths */
    struct source_index_map map;
    struct source_block **made; /* by shard; NULL: its block is in the map */
};

/* What the threads that read shards share. */
struct build_run {
    const struct source_index_params *params;
    struct source_index *index;
    _Atomic uint32_t next;   /* shard to be looked at */
    _Atomic uint32_t failed; /* lowest number of a shard that could not be read */
    pthread_mutex_t mutex;   /* guards the error, for which failed is set under it */
    int rc;
    struct err error;
};

static struct source_index *index_create(const struct source_index_params *params,
                                         struct err *reterr, int *ret_rc)
{
    struct source_index *index = calloc(1, sizeof *index);
    struct source_index_own *own = index ? calloc(1, sizeof *own) : NULL;
    if (!own) {
        free(index);
        *ret_rc = err_set(reterr, -ENOMEM, "%s: no memory for its index", params->kind);
        return NULL;
    }
    index->own = own;
    *ret_rc = source_glob(params->kind, params->patterns, &own->files, reterr);
    if (*ret_rc == 0) {
        index->shard_count = own->files.count;
        index->shards = calloc(own->files.count, sizeof *index->shards);
        own->made = calloc(own->files.count, sizeof *own->made);
        if (!index->shards || !own->made)
            *ret_rc = err_set(reterr, -ENOMEM, "%s: no memory for its index", params->kind);
    }
    return index;
}

void source_index_close(struct source_index *index)
{
    if (!index)
        return;
    struct source_index_own *own = index->own;
    for (uint32_t i = 0; i < index->shard_count; i++) {
        if (index->shards)
            free((void *)(uintptr_t)index->shards[i].real);
        if (own->made)
            free(own->made[i]);
    }
    source_index_map_close(&own->map);
    source_files_fini(&own->files);
    free(own->made);
    free(own);
    free(index->shards);
    free(index);
}

static int64_t mtime_of(const struct stat *st)
{
    return (int64_t)((uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec);
}

/* Where each shard is, its size and its time. */
static int shards_look(struct source_index *index, const char *kind, struct err *reterr)
{
    for (uint32_t i = 0; i < index->shard_count; i++) {
        struct source_index_shard *shard = &index->shards[i];
        struct stat st;
        shard->path = index->own->files.paths[i];
        char *real = realpath(shard->path, NULL);
        if (!real || stat(real, &st) < 0) {
            int rc = -errno;
            free(real);
            return err_set(reterr, rc, "%s %s: %s", kind, shard->path, strerror(-rc));
        }
        shard->real = strdup(real + 1); /* behind its first slash, and without the room of its
                                           buffer */
        free(real);
        if (!shard->real)
            return err_set(reterr, -ENOMEM, "%s: no memory for its index", kind);
        shard->bytes = (uint64_t)st.st_size;
        shard->mtime_ns = mtime_of(&st);
    }
    return 0;
}

/* --- the file --- */

/* Makes the folder and those above it that are missing. */
static void folders_make(const char *dir)
{
    char path[SOURCE_INDEX_DIR_BYTES];
    size_t bytes = strnlen(dir, sizeof path - 1);
    memcpy(path, dir, bytes);
    path[bytes] = 0;
    for (char *at = path + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = 0;
        mkdir(path, 0755);
        *at = '/';
    }
    mkdir(path, 0755); /* what cannot be made shows when the file is written */
}

/* Its name is the hash of kind and absolute patterns. */
static void file_name(struct source_index *index, const struct source_index_params *params)
{
    char *patterns = params->dir[0] ? source_glob_absolute(params->patterns) : NULL;
    if (!patterns)
        return;
    XXH128_hash_t hash = XXH3_128bits(patterns, strlen(patterns));
    snprintf(index->file, sizeof index->file, "%.4096s/%016" PRIx64 "%016" PRIx64 ".%s.index",
             params->dir, hash.high64, hash.low64, params->kind);
    free(patterns);
}

static int path_compare(const char *path, uint64_t bytes, const char *other)
{
    size_t other_bytes = strlen(other), least = bytes < other_bytes ? (size_t)bytes : other_bytes;
    int order = memcmp(path, other, least);
    return order ? order : bytes < other_bytes ? -1 : bytes > other_bytes;
}

/* Takes the blocks of shards that are as they were. Both lists are in the order of their paths.
 * Returns whether the file is just what is wanted. */
static bool blocks_take(struct source_index *index)
{
    const struct source_index_map *map = &index->own->map;
    uint64_t count = source_index_map_count(map), at = 0;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < index->shard_count; i++) {
        struct source_index_shard *shard = &index->shards[i];
        const char *path;
        const struct source_index_entry *entry = NULL;
        int order = -1;
        for (; at < count; at++) {
            ASSERT(shard->path); /* it was found by it */
            entry = source_index_map_entry(map, at, &path);
            order = path_compare(path, entry->path_bytes, shard->path);
            if (order >= 0)
                break;
        }
        if (at == count || order != 0 || entry->bytes != shard->bytes ||
            entry->mtime_ns != shard->mtime_ns)
            continue;
        shard->block = source_index_map_block(map, entry);
        taken++;
    }
    return taken == index->shard_count && count == index->shard_count;
}

/* Takes away what builders left that were killed. */
static void stale_remove(const struct source_index *index)
{
    char pattern[sizeof index->file + 16];
    struct source_files files;
    struct stat st;
    snprintf(pattern, sizeof pattern, "%s.??????", index->file);
    if (source_glob("index", pattern, &files, NULL) < 0)
        return;
    for (uint32_t i = 0; i < files.count; i++)
        if (stat(files.paths[i], &st) == 0 && st.st_mtim.tv_sec < time(NULL) - STALE_SECONDS)
            unlink(files.paths[i]);
    source_files_fini(&files);
}

/* Puts a new file in its place and goes on with it. It stays in memory where that fails. */
static void keep(struct source_index *index, const char *kind)
{
    struct source_index_own *own = index->own;
    struct source_index_map map;
    const char *path;
    char dir[sizeof index->file];
    if (!index->file[0])
        return;
    memcpy(dir, index->file, sizeof dir);
    *strrchr(dir, '/') = 0;
    folders_make(dir);
    stale_remove(index);
    if (source_index_file_write(index->file, kind, index->shards, index->shard_count, &map) < 0)
        return;
    for (uint32_t i = 0; i < index->shard_count; i++) {
        index->shards[i].block =
            source_index_map_block(&map, source_index_map_entry(&map, i, &path));
        free(own->made[i]);
        own->made[i] = NULL;
    }
    source_index_map_close(&own->map);
    own->map = map;
    index->kept = 1;
}

/* --- reading shards --- */

static int shard_read(struct build_run *run, uint32_t number, struct err *reterr)
{
    struct source_index_shard *shard = &run->index->shards[number];
    char root_path[2] = "/";
    int root = open(root_path, O_PATH | O_CLOEXEC);
    int fd = root < 0 ? -1 : openat(root, shard->real, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int rc = fd < 0 ? -errno : 0;
    if (root >= 0)
        close(root);
    if (rc < 0)
        return err_set(reterr, rc, "%s %s: %s", run->params->kind, shard->path, strerror(-rc));
    struct err error = {0};
    rc = run->params->build(fd, shard->bytes, &run->index->own->made[number], &error);
    struct stat st;
    if (rc == 0 && (fstat(fd, &st) < 0 || (uint64_t)st.st_size != shard->bytes ||
                    mtime_of(&st) != shard->mtime_ns))
        rc = err_set(&error, -ESTALE, "it changed while it was read; try again");
    close(fd);
    if (rc < 0)
        return err_set(reterr, rc, "%s %s: %s", run->params->kind, shard->path,
                       error.text[0] ? error.text : strerror(-rc));
    shard->block = run->index->own->made[number];
    return 0;
}

static void *build_thread(void *context)
{
    struct build_run *run = context;
    for (;;) {
        uint32_t number = atomic_fetch_add_explicit(&run->next, 1, memory_order_relaxed);
        /* Shards behind one that failed are of no use; those before it are read, so that the error
         * is that of the first. */
        if (number >= run->index->shard_count ||
            number > atomic_load_explicit(&run->failed, memory_order_relaxed))
            return NULL;
        if (run->index->shards[number].block)
            continue;
        struct err error = {0};
        int rc = shard_read(run, number, &error);
        if (rc == 0)
            continue;
        pthread_mutex_lock(&run->mutex);
        if (number < atomic_load_explicit(&run->failed, memory_order_relaxed)) {
            atomic_store_explicit(&run->failed, number, memory_order_relaxed);
            run->rc = rc;
            run->error = error;
        }
        pthread_mutex_unlock(&run->mutex);
    }
}

static int build(struct source_index *index, const struct source_index_params *params,
                 struct err *reterr)
{
    struct build_run *run = calloc(1, sizeof *run);
    pthread_t threads[BUILDERS_MAX - 1];
    uint32_t missing = 0, started = 0;
    if (!run)
        return err_set(reterr, -ENOMEM, "%s: no memory for its index", params->kind);
    for (uint32_t i = 0; i < index->shard_count; i++)
        missing += !index->shards[i].block;
    run->params = params;
    run->index = index;
    atomic_init(&run->next, 0);
    atomic_init(&run->failed, UINT32_MAX);
    pthread_mutex_init(&run->mutex, NULL);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    while (started < BUILDERS_MAX - 1 && started + 1 < missing && (long)started + 1 < cpus &&
           pthread_create(&threads[started], NULL, build_thread, run) == 0)
        started++;
    build_thread(run);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    index->parsed_count = missing;
    int rc = run->rc;
    if (rc < 0)
        err_set(reterr, rc, "%s", run->error.text);
    pthread_mutex_destroy(&run->mutex);
    free(run);
    return rc;
}

int source_index_open(const struct source_index_params *params, struct source_index **ret_index,
                      struct err *reterr)
{
    int rc = 0;
    struct source_index *index = index_create(params, reterr, &rc);
    if (rc == 0)
        rc = shards_look(index, params->kind, reterr);
    if (rc < 0) {
        source_index_close(index);
        return rc;
    }
    file_name(index, params);
    if (index->file[0])
        source_index_map_open(index->file, params->kind, &index->own->map);
    if (blocks_take(index)) {
        index->kept = 1;
    } else {
        rc = build(index, params, reterr);
        if (rc == 0)
            keep(index, params->kind);
    }
    if (rc < 0) {
        source_index_close(index);
        return rc;
    }
    *ret_index = index;
    return 0;
}
