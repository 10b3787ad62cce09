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
#include <unistd.h>
#include <xxhash.h>

#include "base/assert.h"
#include "base/dirs.h"
#include "source/source_glob.h"
#include "source/source_index_file.h"

enum { BUILDERS_MAX = 4, CONTENT_PLACES = 32 };

struct source_index_own {
    struct source_files files;              /* the paths */
    struct source_index_map map, published; /* as far as blocks are in them */
    char map_file[4352];
    size_t folder_bytes; /* of the folder that the shards have in common, with its last slash */
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
    source_index_map_close(&own->published);
    source_files_fini(&own->files);
    free(own->made);
    free(own);
    free(index->shards);
    free(index);
}

static int64_t ns_of(const struct timespec *time)
{
    return (int64_t)((uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec);
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
        shard->mtime_ns = ns_of(&st.st_mtim);
        shard->ctime_ns = ns_of(&st.st_ctim);
    }
    return 0;
}

/* --- the file --- */

/* Up to the first of these bytes that ends with a slash. */
static size_t slash_before(const char *path, size_t bytes)
{
    while (bytes > 0 && path[bytes - 1] != '/')
        bytes--;
    return bytes;
}

/* Bytes of the folder that the shards have in common, with its slash; there is a shard. */
static size_t folder_bytes_of(const struct source_index *index)
{
    const char *first = index->shards[0].path;
    size_t bytes = slash_before(first, strlen(first));
    for (uint32_t i = 1; i < index->shard_count; i++) {
        const char *path = index->shards[i].path;
        ASSERT(path);
        while (bytes > 0 && strncmp(first, path, bytes) != 0)
            bytes = slash_before(first, bytes - 1);
    }
    return bytes;
}

/* Its name is the hash of the absolute patterns; that of a published one the hash of the paths in
 * the folder that the shards have in common. */
static void files_name(struct source_index *index, const struct source_index_params *params)
{
    char *patterns = params->dir[0] ? source_glob_absolute(params->patterns) : NULL;
    struct source_index_own *own = index->own;
    XXH3_state_t *state = XXH3_createState();
    XXH128_hash_t hash;
    ASSERT(index->shards && index->shards[0].path); /* there is a shard */
    const char *first = index->shards[0].path;
    if (patterns) {
        hash = XXH3_128bits(patterns, strlen(patterns));
        snprintf(index->file, sizeof index->file, "%.4096s/%016" PRIx64 "%016" PRIx64 ".%s.index",
                 params->dir, hash.high64, hash.low64, params->kind);
    }
    free(patterns);
    own->folder_bytes = folder_bytes_of(index);
    if (state) {
        XXH3_128bits_reset(state);
        for (uint32_t i = 0; i < index->shard_count; i++) {
            ASSERT(index->shards[i].path);
            const char *path = index->shards[i].path + own->folder_bytes;
            XXH3_128bits_update(state, path, strlen(path) + 1);
        }
        hash = XXH3_128bits_digest(state);
        snprintf(index->published, sizeof index->published,
                 "%.*s.spdl-%016" PRIx64 "%016" PRIx64 ".%s.index", (int)own->folder_bytes, first,
                 hash.high64, hash.low64, params->kind);
    }
    XXH3_freeState(state);
}

static int path_compare(const char *path, uint64_t bytes, const char *other)
{
    size_t other_bytes = strlen(other), least = bytes < other_bytes ? (size_t)bytes : other_bytes;
    int order = memcmp(path, other, least);
    return order ? order : bytes < other_bytes ? -1 : bytes > other_bytes;
}

/* The entry of the shard in a file whose paths are without their first bytes. Both lists are in the
 * order of their paths; *at is where to go on. */
static const struct source_index_entry *entry_of(const struct source_index_map *map,
                                                 const char *shard_path, uint64_t *at)
{
    for (uint64_t count = source_index_map_count(map); *at < count; (*at)++) {
        const char *path;
        const struct source_index_entry *entry = source_index_map_entry(map, *at, &path);
        int order = path_compare(path, entry->path_bytes, shard_path);
        if (order >= 0)
            return order == 0 ? entry : NULL;
    }
    return NULL;
}

/* Takes the blocks of shards that are as they were. Returns whether the file is just what is
 * wanted. */
static bool blocks_take(struct source_index *index)
{
    const struct source_index_map *map = &index->own->map;
    uint64_t at = 0;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < index->shard_count; i++) {
        struct source_index_shard *shard = &index->shards[i];
        ASSERT(shard->path); /* it was found by it */
        const struct source_index_entry *entry = entry_of(map, shard->path, &at);
        if (!entry || entry->bytes != shard->bytes || entry->mtime_ns != shard->mtime_ns ||
            entry->ctime_ns != shard->ctime_ns)
            continue;
        shard->block = source_index_map_block(map, entry);
        taken++;
    }
    return taken == index->shard_count && source_index_map_count(map) == index->shard_count;
}

const char *source_index_damaged(const struct source_index *index, const char *kind)
{
    return source_index_map_is_whole(&index->own->map, kind) ? NULL : index->own->map_file;
}

/* Puts a new file in its place and goes on with it. It stays in memory where that fails. */
static void keep(struct source_index *index, const char *kind)
{
    struct source_index_own *own = index->own;
    struct source_index_map map;
    const char *path;
    if (!own || !index->file[0])
        return;
    dirs_make_above(index->file);
    dirs_remove_remains(index->file);
    const struct source_index_written written = {
        .kind = kind, .shards = index->shards, .count = index->shard_count};
    if (source_index_file_write(index->file, &written, &map) < 0)
        return;
    if (source_index_damaged(index, kind)) { /* and so may be what was written from it */
        unlink(index->file);
        source_index_map_close(&map);
        return;
    }
    for (uint32_t i = 0; i < index->shard_count; i++) {
        index->shards[i].block =
            source_index_map_block(&map, source_index_map_entry(&map, i, &path));
        free(own->made[i]);
        own->made[i] = NULL;
    }
    source_index_map_close(&own->map);
    source_index_map_close(&own->published);
    own->map = map;
    index->kept = 1;
}

/* --- reading shards --- */

/* A descriptor or a negative errno. */
static int shard_open(const struct source_index_shard *shard)
{
    int root = open("/", O_PATH | O_CLOEXEC);
    int fd = root < 0 ? -1 : openat(root, shard->real, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int rc = fd < 0 ? -errno : fd;
    if (root >= 0)
        close(root);
    return rc;
}

static int shard_read(struct build_run *run, uint32_t number, struct err *reterr)
{
    struct source_index_shard *shard = &run->index->shards[number];
    int fd = shard_open(shard), rc = fd;
    if (rc < 0)
        return err_set(reterr, rc, "%s %s: %s", run->params->kind, shard->path, strerror(-rc));
    struct err error = {0};
    rc = run->params->build(fd, shard->bytes, run->params->progress, &run->index->own->made[number],
                            &error);
    struct stat st;
    if (rc == 0 && (fstat(fd, &st) < 0 || (uint64_t)st.st_size != shard->bytes ||
                    ns_of(&st.st_mtim) != shard->mtime_ns))
        rc = err_set(&error, -ESTALE, "it changed while it was read; try again");
    close(fd);
    if (rc < 0)
        return err_set(reterr, rc, "%s %s: %s", run->params->kind, shard->path,
                       error.text[0] ? error.text : strerror(-rc));
    shard->block = run->index->own->made[number];
    if (run->params->progress)
        atomic_fetch_add_explicit(&run->params->progress->files_done, 1, memory_order_relaxed);
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
    uint64_t missing_bytes = 0;
    for (uint32_t i = 0; i < index->shard_count; i++) {
        missing += !index->shards[i].block;
        missing_bytes += index->shards[i].block ? 0 : index->shards[i].bytes;
    }
    if (params->progress) { /* looked at by others, at any time */
        atomic_fetch_add_explicit(&params->progress->bytes, missing_bytes, memory_order_relaxed);
        atomic_fetch_add_explicit(&params->progress->files, missing, memory_order_relaxed);
    }
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

/* --- beside the shards --- */

/* A hash of a shard's bytes at some places: its begin, its end, and what stands before parts that
 * lie evenly in it, which in a tar is their headers. 0: it cannot be read. */
static uint64_t content_of(const struct source_index_shard *shard, const struct source_block *block)
{
    char bytes[SOURCE_BLOCK_UNIT];
    uint64_t places[CONTENT_PLACES + 2] = {
        0, shard->bytes > sizeof bytes ? shard->bytes - sizeof bytes : 0};
    uint32_t count = 2;
    int fd = shard_open(shard);
    XXH3_state_t *state = XXH3_createState();
    bool is_read = fd >= 0 && state;
    for (uint32_t i = 0; i < CONTENT_PLACES && block->sample_count > 0; i++) {
        struct source_sample sample;
        uint64_t number = (uint64_t)i * (block->sample_count - 1) / (CONTENT_PLACES - 1);
        source_block_sample(block, (uint32_t)number, &sample);
        if (sample.part_count > 0 && sample.parts[0].offset >= sizeof bytes)
            places[count++] = sample.parts[0].offset - sizeof bytes;
    }
    if (state)
        XXH3_64bits_reset(state);
    for (uint32_t i = 0; i < count && is_read; i++) {
        ssize_t got = pread(fd, bytes, sizeof bytes, (off_t)places[i]);
        is_read = got >= 0;
        if (got > 0)
            XXH3_64bits_update(state, bytes, (size_t)got);
    }
    uint64_t hash = is_read ? XXH3_64bits_digest(state) | 1 : 0;
    XXH3_freeState(state);
    if (fd >= 0)
        close(fd);
    return hash;
}

/* Takes from the published index the blocks of shards that are still missing and have its size and
 * content. Returns whether every shard has a block. */
static bool published_take(struct source_index *index, const char *kind)
{
    struct source_index_map *map = &index->own->published;
    uint64_t at = 0;
    bool all = true;
    source_index_map_copy(index->published, kind, map);
    for (uint32_t i = 0; i < index->shard_count; i++) {
        struct source_index_shard *shard = &index->shards[i];
        const struct source_index_entry *entry =
            map->base ? entry_of(map, shard->path + index->own->folder_bytes, &at) : NULL;
        if (!shard->block && entry && entry->bytes == shard->bytes && entry->content != 0 &&
            entry->content == content_of(shard, source_index_map_block(map, entry)))
            shard->block = source_index_map_block(map, entry);
        all = all && shard->block;
    }
    return all;
}

int source_index_publish(const struct source_index *index, const char *kind, struct err *reterr)
{
    uint64_t *contents = calloc(index->shard_count, sizeof *contents);
    struct source_index_map map;
    if (!contents)
        return err_set(reterr, -ENOMEM, "%s: no memory for its index", kind);
    for (uint32_t i = 0; i < index->shard_count; i++)
        contents[i] = content_of(&index->shards[i], index->shards[i].block);
    const struct source_index_written written = {.kind = kind,
                                                 .shards = index->shards,
                                                 .count = index->shard_count,
                                                 .path_at = index->own->folder_bytes,
                                                 .contents = contents};
    dirs_remove_remains(index->published);
    int rc = source_index_file_write(index->published, &written, &map);
    free(contents);
    if (rc < 0)
        return err_set(reterr, rc, "the index cannot be published as %s: %s", index->published,
                       strerror(-rc));
    source_index_map_close(&map);
    const char *damaged = source_index_damaged(index, kind);
    if (!damaged)
        return 0;
    unlink(index->published); /* it was written from what may be wrong */
    return err_set(reterr, -ESTALE, "the index file %s was cut or written over; try again",
                   damaged);
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
    files_name(index, params);
    if (index->file[0])
        source_index_map_open(index->file, params->kind, &index->own->map);
    memcpy(index->own->map_file, index->file, sizeof index->file);
    if (blocks_take(index)) {
        index->kept = 1;
    } else {
        bool is_there = published_take(index, params->kind);
        rc = is_there ? 0 : build(index, params, reterr);
        if (rc == 0)
            keep(index, params->kind);
        if (rc == 0 && is_there && !index->kept) {
            index->kept = 1; /* in the published file */
            memcpy(index->file, index->published, sizeof index->file);
        }
    }
    if (rc < 0) {
        source_index_close(index);
        return rc;
    }
    *ret_index = index;
    return 0;
}
