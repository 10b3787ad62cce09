/* Nameless shared memory: see shm_segment.h. Any role; blocks while space is reserved. */
#include "shm/shm_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* since Linux 6.3 */
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define POSIX_FOLDER "/dev/shm"

enum { NAME_TRIES = 16, NAME_BYTES = 48, RESERVE_STEP_BYTES = 64 << 20 };

/* Opens what `fd` refers to a second time, with read access alone. A duplicate would not do: it
 * shares the access mode. */
static int reopen_read_only(int fd)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDONLY | O_CLOEXEC);
    if (again >= 0)
        return again;
    /* A memfd can be opened again nowhere else, so say that it is /proc that is missing. */
    return errno == ENOENT || errno == ENOTDIR ? -ENOTSUP : -errno;
}

static int open_memfd(struct spdl_shm_segment *segment)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create("spdl", flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) /* an older kernel does not know the flag */
        fd = memfd_create("spdl", flags);
    if (fd < 0)
        return -errno;
    segment->fd = fd;
    if (fchmod(fd, 0600) < 0) /* memfds are made open to everyone who can see the descriptor */
        return -errno;
    int again = reopen_read_only(fd);
    if (again < 0)
        return again;
    segment->read_only_fd = again;
    return 0;
}

/* For file systems and systems without O_TMPFILE or /proc: a random name that lives for two calls.
 */
static int open_named(struct spdl_shm_segment *segment)
{
    for (int i = 0; i < NAME_TRIES; i++) {
        uint64_t random[2];
        if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
            return -EIO;
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "/spdl-%016" PRIx64 "%016" PRIx64, random[0], random[1]);
        segment->fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (segment->fd < 0) {
            if (errno == EEXIST)
                continue;
            return -errno;
        }
        segment->read_only_fd = shm_open(name, O_RDONLY | O_CLOEXEC, 0);
        int rc = segment->read_only_fd < 0 ? -errno : 0;
        shm_unlink(name);
        return rc;
    }
    return -EEXIST;
}

static int open_posix(struct spdl_shm_segment *segment)
{
    int fd = open(POSIX_FOLDER, O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)
            return open_named(segment);
        return -errno;
    }
    int again = reopen_read_only(fd);
    if (again == -ENOTSUP) {
        close(fd);
        return open_named(segment);
    }
    segment->fd = fd;
    if (again < 0)
        return again;
    segment->read_only_fd = again;
    return 0;
}

/* Takes the space now, so that no later access can end in SIGBUS. In steps: the kernel undoes a
 * call that a signal interrupts, and a large one would never end under a timer. */
static int reserve_space(int fd, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        uint64_t step = bytes - at < RESERVE_STEP_BYTES ? bytes - at : RESERVE_STEP_BYTES;
        if (fallocate(fd, 0, (off_t)at, (off_t)step) == 0)
            at += step;
        else if (errno != EINTR)
            return -errno;
    }
    return 0;
}

static uint64_t posix_free_bytes(void)
{
    struct statvfs fs;
    if (statvfs(POSIX_FOLDER, &fs) < 0)
        return UINT64_MAX;
    return (uint64_t)fs.f_bavail * (uint64_t)fs.f_frsize;
}

static int seal(int fd, enum spdl_shm_use use)
{
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    if (use == SPDL_SHM_READ_BY_OTHERS)
        seals |= F_SEAL_FUTURE_WRITE;
    return fcntl(fd, F_ADD_SEALS, seals) < 0 ? -errno : 0;
}

static int open_kind(struct spdl_shm_segment *segment, enum spdl_shm_kind kind)
{
    switch (kind) {
    case SPDL_SHM_MEMFD:
        return open_memfd(segment);
    case SPDL_SHM_POSIX:
        return open_posix(segment);
    }
    return -EINVAL;
}

static int size_and_map(struct spdl_shm_segment *segment, int reserve)
{
    if (ftruncate(segment->fd, (off_t)segment->bytes) < 0)
        return -errno;
    int rc = reserve ? reserve_space(segment->fd, segment->bytes) : 0;
    if (rc < 0)
        return rc;
    void *base = mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    segment->base = base;
    return 0;
}

int spdl_shm_segment_create(struct spdl_shm_segment *segment, enum spdl_shm_kind kind,
                            enum spdl_shm_use use, uint64_t bytes, int reserve,
                            uint64_t *ret_free_bytes)
{
    *segment = (struct spdl_shm_segment){.fd = -1, .read_only_fd = -1};
    if (ret_free_bytes)
        *ret_free_bytes = UINT64_MAX;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (bytes == 0 || bytes > (uint64_t)INT64_MAX - page)
        return -EINVAL;
    segment->bytes = (bytes + page - 1) / page * page;

    int rc = open_kind(segment, kind);
    if (rc == 0)
        rc = size_and_map(segment, reserve);
    if (rc == 0 && kind == SPDL_SHM_MEMFD)
        rc = seal(segment->fd, use);
    if (rc < 0) {
        spdl_shm_segment_destroy(
            segment); /* first, so that the free bytes are those before the attempt */
        if (rc == -ENOSPC && kind == SPDL_SHM_POSIX && ret_free_bytes)
            *ret_free_bytes = posix_free_bytes();
    }
    return rc;
}

void spdl_shm_segment_destroy(struct spdl_shm_segment *segment)
{
    if (!segment->base && segment->bytes == 0)
        return; /* zeroed or closed before: its descriptors are not ours */
    if (segment->base)
        munmap(segment->base, segment->bytes);
    if (segment->fd >= 0)
        close(segment->fd);
    if (segment->read_only_fd >= 0)
        close(segment->read_only_fd);
    *segment = (struct spdl_shm_segment){.fd = -1, .read_only_fd = -1};
}

int spdl_shm_segment_map(int fd, uint64_t bytes, int writable, int not_in_child, void **ret_base)
{
    *ret_base = NULL;
    struct stat st;
    /* Not by fstat(), which asks by a call that also takes paths: no worker is allowed that one. */
    if (syscall(SYS_fstat, fd, &st) < 0)
        return -errno;
    if (bytes == 0 || !S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size < bytes)
        return -EPROTO;
    void *base =
        mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    if (not_in_child && madvise(base, bytes, MADV_DONTFORK) < 0) {
        int rc = -errno;
        munmap(base, bytes);
        return rc;
    }
    *ret_base = base;
    return 0;
}

void spdl_shm_segment_unmap(void *base, uint64_t bytes)
{
    if (base)
        munmap(base, bytes);
}
