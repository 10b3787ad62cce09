/* The file of an index: see source_index_file.h.
 *
 *   head | entries, one a shard | paths | blocks
 *
 * Numbers are those of the machine; a file of another one is as good as none. A sum over all of it
 * is checked when it is mapped, so that what is used later is what was written. */
#include "source/source_index_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { INDEX_VERSION = 2, BUFFER_BYTES = 256 << 10 };
static const char index_magic[8] = "SPDLIDX";

struct index_head {
    char magic[8];
    uint32_t version, byte_order; /* 0x01020304 */
    uint32_t head_bytes, entry_bytes, block_head_bytes, spare;
    char kind[SOURCE_KIND_BYTES];
    uint64_t bytes;             /* of the file */
    uint64_t sum_high, sum_low; /* of all behind the head */
    uint64_t shard_count;
    uint64_t head_sum; /* of the head before this */
};

static uint64_t head_sum(const struct index_head *head)
{
    return XXH3_64bits(head, offsetof(struct index_head, head_sum));
}

static bool head_is_right(const struct index_head *head, const char *kind, uint64_t bytes)
{
    return memcmp(head->magic, index_magic, sizeof head->magic) == 0 &&
           head->version == INDEX_VERSION && head->byte_order == 0x01020304 &&
           head->head_bytes == sizeof *head &&
           head->entry_bytes == sizeof(struct source_index_entry) &&
           head->block_head_bytes == sizeof(struct source_block) && head->bytes == bytes &&
           strncmp(head->kind, kind, sizeof head->kind) == 0 && head->head_sum == head_sum(head) &&
           head->shard_count <= (bytes - sizeof *head) / sizeof(struct source_index_entry);
}

static bool entry_is_right(const struct source_index_map *map,
                           const struct source_index_entry *entry)
{
    return entry->block_at % 8 == 0 && entry->block_at <= map->bytes &&
           entry->block_bytes <= map->bytes - entry->block_at && entry->path_at <= map->bytes &&
           entry->path_bytes <= map->bytes - entry->path_at &&
           source_block_check((const void *)(map->base + entry->block_at), entry->block_bytes);
}

uint64_t source_index_map_count(const struct source_index_map *map)
{
    return map->base ? ((const struct index_head *)(const void *)map->base)->shard_count : 0;
}

const struct source_index_entry *source_index_map_entry(const struct source_index_map *map,
                                                        uint64_t number, const char **ret_path)
{
    const struct source_index_entry *entries =
        (const void *)(map->base + sizeof(struct index_head));
    *ret_path = map->base + entries[number].path_at;
    return &entries[number];
}

const struct source_block *source_index_map_block(const struct source_index_map *map,
                                                  const struct source_index_entry *entry)
{
    return (const void *)(map->base + entry->block_at);
}

static bool map_is_right(const struct source_index_map *map, const char *kind)
{
    const struct index_head *head = (const void *)map->base;
    const struct source_index_entry *entries = (const void *)(map->base + sizeof *head);
    if (!head_is_right(head, kind, map->bytes))
        return false;
    XXH128_hash_t sum = XXH3_128bits(map->base + sizeof *head, map->bytes - sizeof *head);
    if (sum.high64 != head->sum_high || sum.low64 != head->sum_low)
        return false;
    for (uint64_t i = 0; i < head->shard_count; i++)
        if (!entry_is_right(map, &entries[i]))
            return false;
    return true;
}

static int map_fd(int fd, struct source_index_map *ret_map)
{
    *ret_map = (struct source_index_map){0};
    return source_guard_map(fd, sizeof(struct index_head), &ret_map->guard, &ret_map->base,
                            &ret_map->bytes);
}

int source_index_map_fd(int fd, const char *kind, struct source_index_map *ret_map)
{
    int rc = map_fd(fd, ret_map);
    if (rc == 0 && !map_is_right(ret_map, kind)) {
        source_index_map_close(ret_map);
        rc = -EBADMSG;
    }
    return rc;
}

bool source_index_map_is_whole(const struct source_index_map *map, const char *kind)
{
    enum source_guard_state state = map->guard ? source_guard_look(map->guard) : SOURCE_GUARD_WHOLE;
    if (state != SOURCE_GUARD_TOUCHED)
        return state == SOURCE_GUARD_WHOLE;
    if (!map_is_right(map, kind))
        return false;
    source_guard_accept(map->guard);
    return source_guard_look(map->guard) == SOURCE_GUARD_WHOLE;
}

void source_index_map_open(const char *file, const char *kind, struct source_index_map *ret_map)
{
    *ret_map = (struct source_index_map){0};
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    (void)source_index_map_fd(fd, kind, ret_map);
    close(fd);
}

static bool all_read(int fd, char *to, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t got = pread(fd, to + done, (size_t)(bytes - done), (off_t)done);
        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        done += got > 0 ? (uint64_t)got : 0;
    }
    return true;
}

void source_index_map_copy(const char *file, const char *kind, struct source_index_map *ret_map)
{
    struct stat st;
    *ret_map = (struct source_index_map){0};
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool is_file = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                   (uint64_t)st.st_size >= sizeof(struct index_head);
    char *copy = is_file ? malloc((size_t)st.st_size) : NULL;
    if (copy && all_read(fd, copy, (uint64_t)st.st_size)) {
        *ret_map =
            (struct source_index_map){.base = copy, .bytes = (uint64_t)st.st_size, .copy = copy};
        copy = NULL;
        if (!map_is_right(ret_map, kind))
            source_index_map_close(ret_map);
    }
    free(copy);
    if (fd >= 0)
        close(fd);
}

void source_index_map_close(struct source_index_map *map)
{
    free(map->copy);
    source_guard_unmap(map->guard);
    *map = (struct source_index_map){0};
}

/* --- writing --- */

struct output {
    int fd, rc;
    uint64_t at;
    size_t held;
    XXH3_state_t *sum;
    char *buffer;
};

static void flush(struct output *output)
{
    for (size_t done = 0; output->rc == 0 && done < output->held;) {
        ssize_t bytes = write(output->fd, output->buffer + done, output->held - done);
        if (bytes > 0)
            done += (size_t)bytes;
        else if (bytes == 0 || errno != EINTR)
            output->rc = bytes == 0 ? -EIO : -errno;
    }
    output->held = 0;
}

static void put(struct output *output, const void *from, uint64_t bytes)
{
    const char *at = from;
    XXH3_128bits_update(output->sum, from, bytes);
    output->at += bytes;
    while (bytes > 0 && output->rc == 0) {
        size_t more = BUFFER_BYTES - output->held;
        if (more > bytes)
            more = (size_t)bytes;
        memcpy(output->buffer + output->held, at, more);
        output->held += more;
        at += more;
        bytes -= more;
        if (output->held == BUFFER_BYTES)
            flush(output);
    }
}

static void pad(struct output *output)
{
    static const char zeros[8];
    put(output, zeros, (8 - output->at % 8) % 8);
}

static void body_write(struct output *output, const struct source_index_written *written)
{
    const struct source_index_shard *shards = written->shards;
    const uint32_t count = written->count;
    uint64_t path_at = sizeof(struct index_head) + count * sizeof(struct source_index_entry);
    uint64_t block_at = path_at;
    for (uint32_t i = 0; i < count; i++)
        block_at += strlen(shards[i].path + written->path_at);
    block_at = (block_at + 7) & ~UINT64_C(7);
    for (uint32_t i = 0; i < count; i++) {
        struct source_index_entry entry = {.bytes = shards[i].bytes,
                                           .mtime_ns = shards[i].mtime_ns,
                                           .ctime_ns = shards[i].ctime_ns,
                                           .content = written->contents ? written->contents[i] : 0,
                                           .block_at = block_at,
                                           .block_bytes = shards[i].block->bytes,
                                           .path_at = path_at,
                                           .path_bytes =
                                               (uint32_t)strlen(shards[i].path + written->path_at)};
        put(output, &entry, sizeof entry);
        path_at += entry.path_bytes;
        block_at += entry.block_bytes;
    }
    for (uint32_t i = 0; i < count; i++)
        put(output, shards[i].path + written->path_at, strlen(shards[i].path + written->path_at));
    pad(output);
    for (uint32_t i = 0; i < count; i++)
        put(output, shards[i].block, shards[i].block->bytes);
    flush(output);
}

static int all_write(int fd, const struct source_index_written *written)
{
    struct index_head head = {.version = INDEX_VERSION,
                              .byte_order = 0x01020304,
                              .head_bytes = sizeof head,
                              .entry_bytes = sizeof(struct source_index_entry),
                              .block_head_bytes = sizeof(struct source_block),
                              .shard_count = written->count};
    struct output output = {.fd = fd, .at = sizeof head};
    output.buffer = malloc(BUFFER_BYTES);
    output.sum = XXH3_createState();
    if (!output.buffer || !output.sum) {
        output.rc = -ENOMEM;
    } else if (lseek(fd, sizeof head, SEEK_SET) < 0) {
        output.rc = -errno;
    } else {
        XXH3_128bits_reset(output.sum);
        body_write(&output, written);
        XXH128_hash_t sum = XXH3_128bits_digest(output.sum);
        memcpy(head.magic, index_magic, sizeof head.magic);
        memcpy(head.kind, written->kind, strnlen(written->kind, sizeof head.kind));
        head.bytes = output.at;
        head.sum_high = sum.high64;
        head.sum_low = sum.low64;
        head.head_sum = head_sum(&head);
        if (output.rc == 0 && pwrite(fd, &head, sizeof head, 0) != (ssize_t)sizeof head)
            output.rc = -EIO;
    }
    if (output.rc == 0 && fsync(fd) < 0)
        output.rc = -errno;
    XXH3_freeState(output.sum);
    free(output.buffer);
    return output.rc;
}

/* A file without a name in the folder of `file`, so that nothing stays of a builder that is killed;
 * negative where there are none. */
static int open_nameless(const char *file)
{
    const char *slash = strrchr(file, '/');
    char *folder = slash ? strndup(file, slash == file ? 1 : (size_t)(slash - file)) : strdup(".");
    int fd = folder && access("/proc/self/fd", X_OK) == 0
                 ? open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)
                 : -1;
    free(folder);
    return fd;
}

/* Names it, as the last thing before it takes the place of the old one; `name` ends with XXXXXX. */
static int give_name(int fd, char *name)
{
    char self[64];
    uint64_t random;
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return -EIO;
    for (char *at = name + strlen(name); *--at == 'X'; random /= 26)
        *at = (char)('a' + random % 26);
    return linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

int source_index_file_write(const char *file, const struct source_index_written *written,
                            struct source_index_map *ret_map)
{
    char *name = NULL;
    *ret_map = (struct source_index_map){0};
    if (asprintf(&name, "%s.XXXXXX", file) < 0)
        return -ENOMEM;
    int fd = open_nameless(file);
    bool has_name = fd < 0;
    if (has_name)
        fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0) {
        int rc = -errno;
        free(name);
        return rc;
    }
    int rc = all_write(fd, written);
    if (rc == 0)
        rc = map_fd(fd, ret_map);
    if (rc == 0 && written->contents && fchmod(fd, 0644) < 0) /* published: for all to read */
        rc = -errno;
    if (rc == 0 && !has_name) {
        rc = give_name(fd, name);
        has_name = rc == 0;
    }
    if (rc == 0 && rename(name, file) < 0)
        rc = -errno;
    if (rc < 0) {
        if (has_name)
            unlink(name);
        source_index_map_close(ret_map);
    }
    close(fd);
    free(name);
    return rc;
}
