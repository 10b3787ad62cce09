/* The meaning of a read: see fetch_file.h. */
#include "fetch/fetch_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "item/class.h"

#ifndef RESOLVE_CACHED
#define RESOLVE_CACHED 0x20
#endif

enum { RENAME_TRIES = 16 };

int fetch_file_open(int root_fd, const char *path, int cached)
{
    struct open_how how = FETCH_FILE_HOW;
    if (cached)
        how.resolve |= RESOLVE_CACHED | RESOLVE_NO_XDEV;
    for (int tries = 0;;) {
        long fd = syscall(SYS_openat2, root_fd, path, &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        if (errno == EAGAIN && (cached || ++tries == RENAME_TRIES))
            return -EAGAIN; /* uncached: something on the path keeps being renamed, or the file is
                               under a lease */
        if (errno != EINTR && errno != EAGAIN)
            return -errno;
    }
}

uint32_t fetch_file_class(int code)
{
    switch (-code) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case EAGAIN:
        return SPDL_CLASS_RESOURCE;
    }
    return SPDL_CLASS_IO_ERROR;
}

uint32_t fetch_file_judge(const struct fetch_request *request, uint32_t mode, uint64_t size,
                          int64_t mtime_ns, int *ret_code)
{
    *ret_code = 0;
    if (!S_ISREG(mode)) {
        *ret_code = S_ISDIR(mode) ? -EISDIR : -EINVAL;
        return SPDL_CLASS_IO_ERROR;
    }
    if (size != request->file_bytes || mtime_ns != request->mtime_ns)
        return SPDL_CLASS_CHANGED;
    return size == 0 ? SPDL_CLASS_EMPTY : SPDL_CLASS_OK;
}

int64_t fetch_file_time_ns(int64_t seconds, uint32_t nanoseconds)
{
    return (int64_t)((uint64_t)seconds * 1000000000u + nanoseconds);
}

uint32_t fetch_file_judge_stat(const struct fetch_request *request, const struct stat *st,
                               int *ret_code)
{
    return fetch_file_judge(request, st->st_mode, (uint64_t)st->st_size,
                            fetch_file_time_ns(st->st_mtim.tv_sec, (uint32_t)st->st_mtim.tv_nsec),
                            ret_code);
}

uint32_t fetch_file_judge_fd(const struct fetch_request *request, int fd, int *ret_code)
{
    struct stat st;
    if (fstat(fd, &st) < 0) {
        *ret_code = -errno;
        return fetch_file_class(*ret_code);
    }
    return fetch_file_judge_stat(request, &st, ret_code);
}

bool fetch_file_keeps(const struct fetch_request *request)
{
    return request->owner && request->file >= 0;
}

bool fetch_file_same(const struct fetch_request *a, const struct fetch_request *b)
{
    return fetch_file_keeps(a) && a->owner == b->owner && a->file == b->file &&
           a->root_fd == b->root_fd;
}
