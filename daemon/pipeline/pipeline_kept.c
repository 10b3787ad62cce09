/* Small files that outlive the daemon: see pipeline_kept.h.
 *
 *   head | payload
 *
 * Numbers are those of the machine. */
#include "pipeline/pipeline_kept.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/dirs.h"

enum { LOCK_TRIES = 2000, LOCK_PAUSE_NS = 1000000 };

static const char kept_magic[8] = "SPDLKPT";

struct kept_head {
    char magic[8];
    uint32_t kind, byte_order;  /* 0x01020304 */
    uint64_t bytes;             /* of the payload */
    uint64_t sum_high, sum_low; /* of the head before them, and of the payload */
};

static void sum_make(const struct kept_head *head, const void *payload, uint64_t *ret_high,
                     uint64_t *ret_low)
{
    XXH128_hash_t sum = XXH3_128bits_withSeed(
        payload, head->bytes, XXH3_64bits(head, offsetof(struct kept_head, sum_high)));
    *ret_high = sum.high64;
    *ret_low = sum.low64;
}

/* --- reading --- */

static int bytes_read(int fd, void *into, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t got = read(fd, (char *)into + done, bytes - done);
        if (got > 0)
            done += (uint64_t)got;
        else if (got == 0)
            return -EBADMSG;
        else if (errno != EINTR)
            return -errno;
    }
    return 0;
}

static int payload_read(int fd, enum pipeline_kept_kind kind, void **ret_payload,
                        uint64_t *ret_bytes)
{
    struct kept_head head;
    struct stat st;
    uint64_t high, low;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size < sizeof head)
        return -EBADMSG;
    uint64_t bytes = (uint64_t)st.st_size - sizeof head;
    if (bytes > PIPELINE_KEPT_BYTES_MAX)
        return -EFBIG;
    int rc = bytes_read(fd, &head, sizeof head);
    if (rc < 0)
        return rc;
    if (memcmp(head.magic, kept_magic, sizeof head.magic) != 0 || head.kind != (uint32_t)kind ||
        head.byte_order != 0x01020304 || head.bytes != bytes)
        return -EBADMSG;
    char *payload = malloc(bytes ? bytes : 1);
    if (!payload)
        return -ENOMEM;
    rc = bytes_read(fd, payload, bytes);
    if (rc == 0) {
        sum_make(&head, payload, &high, &low);
        rc = high == head.sum_high && low == head.sum_low ? 0 : -EBADMSG;
    }
    if (rc < 0) {
        free(payload);
        return rc;
    }
    *ret_payload = payload;
    *ret_bytes = bytes;
    return 0;
}

int pipeline_kept_read(const char *file, enum pipeline_kept_kind kind, void **ret_payload,
                       uint64_t *ret_bytes)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOTDIR ? -ENOENT : -errno;
    int rc = payload_read(fd, kind, ret_payload, ret_bytes);
    close(fd);
    return rc;
}

/* --- writing --- */

int pipeline_kept_lock(const char *file)
{
    char folder[PIPELINE_KEPT_PATH_BYTES];
    const char *end = strrchr(file, '/');
    if (!end || end == file || (size_t)(end - file) >= sizeof folder)
        return -1;
    dirs_make_above(file);
    memcpy(folder, file, (size_t)(end - file));
    folder[end - file] = 0;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
    for (int i = 0; fd >= 0 && i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 || (errno != EWOULDBLOCK && errno != EINTR))
            return fd;
        nanosleep(&pause, NULL);
    }
    return fd;
}

void pipeline_kept_unlock(int lock)
{
    if (lock >= 0)
        close(lock);
}

static int bytes_write(int fd, const void *from, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t put = write(fd, (const char *)from + done, bytes - done);
        if (put > 0)
            done += (uint64_t)put;
        else if (put == 0)
            return -EIO;
        else if (errno != EINTR)
            return -errno;
    }
    return 0;
}

static int payload_write(int fd, enum pipeline_kept_kind kind, const void *payload, uint64_t bytes)
{
    struct kept_head head = {.kind = kind, .byte_order = 0x01020304, .bytes = bytes};
    memcpy(head.magic, kept_magic, sizeof head.magic);
    sum_make(&head, payload, &head.sum_high, &head.sum_low);
    int rc = bytes_write(fd, &head, sizeof head);
    if (rc == 0)
        rc = bytes_write(fd, payload, bytes);
    if (rc == 0 && fsync(fd) < 0)
        rc = -errno;
    return rc;
}

int pipeline_kept_write(const char *file, enum pipeline_kept_kind kind, const void *payload,
                        uint64_t bytes)
{
    char name[PIPELINE_KEPT_PATH_BYTES + 8];
    if (bytes > PIPELINE_KEPT_BYTES_MAX)
        return -EFBIG;
    if (strlen(file) >= PIPELINE_KEPT_PATH_BYTES)
        return -ENAMETOOLONG;
    dirs_make_above(file);
    dirs_remove_remains(file);
    snprintf(name, sizeof name, "%s.XXXXXX", file);
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = payload_write(fd, kind, payload, bytes);
    if (rc == 0 && rename(name, file) < 0)
        rc = -errno;
    if (rc < 0)
        unlink(name);
    close(fd);
    return rc;
}
