/* What a read of a file means, the same for every engine: how it is opened, when it is still the
 * file that was listed, and which class an answer of the kernel is. Private to the room; any
 * thread. */
#ifndef SPDLD_FETCH_FILE_H
#define SPDLD_FETCH_FILE_H

#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fetch/fetch.h"

/* How every file is opened: for reading, beneath its root, through no magic link, without waiting
 * for the other end of a pipe. */
#define FETCH_FILE_HOW                                                                             \
    ((struct open_how){.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,                      \
                       .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS})

/* Opens the file. Returns a descriptor or a negative errno. `cached`: only when the kernel can
 * answer at once, else -EAGAIN, or -EXDEV where the file is on another mount than its root. */
int fetch_file_open(int root_fd, const char *path, int cached);

/* Compares what the file is now with what the request says. Returns a class; OK means: read on. */
uint32_t fetch_file_judge(const struct fetch_request *request, uint32_t mode, uint64_t size,
                          int64_t mtime_ns, int *ret_code);
uint32_t fetch_file_judge_stat(const struct fetch_request *request, const struct stat *st,
                               int *ret_code);
uint32_t fetch_file_judge_fd(const struct fetch_request *request, int fd, int *ret_code);

/* May the file be kept open for other reads of it? */
bool fetch_file_keeps(const struct fetch_request *request);
bool fetch_file_same(const struct fetch_request *a, const struct fetch_request *b);

/* The class of a negative errno: RESOURCE for what this process lacks at the moment, else IO_ERROR.
 */
uint32_t fetch_file_class(int code);

/* Seconds and nanoseconds as one number. Wraps for absurd times, as the source does. */
int64_t fetch_file_time_ns(int64_t seconds, uint32_t nanoseconds);

#endif
