/* Sizes and times of the files that a list names: see source_list_table.h. The folders met last
 * stay open, so that a file costs one call. All are opened beneath the root by the kernel's own
 * check. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>

#include "source/source_list_table.h"

enum { FOLDERS_MIN = 16, FOLDERS_MAX = 2048, PLACES = 8 };

struct folder {
    int fd; /* -1: none */
    int root_fd;
    size_t path_bytes;
    char path[SOURCE_KEY_BYTES + 1];
};

struct source_list_sizes {
    uint32_t turn;
    size_t folder_count; /* a power of two */
    struct folder folders[];
};

/* A quarter of the descriptors that the process may have. */
struct source_list_sizes *source_list_sizes_create(void)
{
    struct rlimit limit;
    size_t count = FOLDERS_MIN;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        while (count < FOLDERS_MAX && count * 8 <= limit.rlim_cur)
            count *= 2;
    struct source_list_sizes *sizes = calloc(1, sizeof *sizes + count * sizeof sizes->folders[0]);
    if (!sizes)
        return NULL;
    sizes->folder_count = count;
    for (size_t i = 0; i < count; i++)
        sizes->folders[i].fd = -1;
    return sizes;
}

void source_list_sizes_destroy(struct source_list_sizes *sizes)
{
    for (size_t i = 0; sizes && i < sizes->folder_count; i++)
        if (sizes->folders[i].fd >= 0)
            close(sizes->folders[i].fd);
    free(sizes);
}

static int open_beneath(int root_fd, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    for (;;) {
        long fd = syscall(SYS_openat2, root_fd, path, &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        if (errno != EINTR && errno != EAGAIN) /* EAGAIN: something was renamed meanwhile */
            return -errno;
    }
}

static bool folder_is(const struct folder *folder, int root_fd, const char *path, size_t bytes)
{
    return folder->fd >= 0 && folder->root_fd == root_fd && folder->path_bytes == bytes &&
           memcmp(folder->path, path, bytes) == 0;
}

/* The open folder of a path whose base name begins at `base`. It is kept in one of a few places,
 * from which another one goes where all are taken. */
static int folder_of(struct source_list_sizes *sizes, int root_fd, const char *path, size_t base)
{
    if (base == 0)
        return root_fd;
    size_t bytes = base - 1; /* without the slash; a path is never absolute */
    size_t first = (size_t)XXH3_64bits(path, bytes), mask = sizes->folder_count - 1;
    struct folder *folder = &sizes->folders[(first + sizes->turn++ % PLACES) & mask];
    for (size_t i = 0; i < PLACES; i++) {
        struct folder *place = &sizes->folders[(first + i) & mask];
        if (folder_is(place, root_fd, path, bytes))
            return place->fd;
        if (place->fd < 0)
            folder = place;
    }
    if (folder->fd >= 0)
        close(folder->fd);
    memcpy(folder->path, path, bytes);
    folder->path[bytes] = 0;
    folder->path_bytes = bytes;
    folder->root_fd = root_fd;
    folder->fd = open_beneath(root_fd, folder->path, O_DIRECTORY);
    int fd = folder->fd;
    if (fd < 0)
        folder->fd = -1;
    return fd;
}

/* Answers that are about this file and not about the machine. */
static int about_the_file(int rc)
{
    switch (-rc) {
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case EPERM:
    case ELOOP:
    case ENAMETOOLONG:
        return 1;
    }
    return 0;
}

int source_list_sizes_of(struct source_list_sizes *sizes, int root_fd, const char *path,
                         uint64_t *ret_bytes, int64_t *ret_mtime_ns)
{
    const char *slash = strrchr(path, '/');
    size_t base = slash ? (size_t)(slash - path) + 1 : 0;
    struct stat st = {0};
    *ret_bytes = 0;
    *ret_mtime_ns = 0;
    int folder = folder_of(sizes, root_fd, path, base);
    int rc = folder;
    if (folder >= 0)
        rc = fstatat(folder, path + base, &st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
    if (rc == 0 && S_ISLNK(st.st_mode)) {
        int fd = open_beneath(root_fd, path, 0);
        rc = fd < 0 ? fd : fstat(fd, &st) < 0 ? -errno : 0;
        if (fd >= 0)
            close(fd);
    }
    if (rc < 0)
        return about_the_file(rc) ? 0 : rc;
    *ret_bytes = st.st_size > 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    *ret_mtime_ns =
        (int64_t)((uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec);
    return 0;
}
