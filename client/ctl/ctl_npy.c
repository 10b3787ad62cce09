/* NPY files of a batch's tensors. */
#include "client/ctl/ctl_npy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *npy_descr(enum spdl_dtype dtype)
{
    switch (dtype) {
    case SPDL_UINT8:
        return "|u1";
    case SPDL_INT64:
        return "<i8";
    case SPDL_FLOAT32:
        return "<f4";
    case SPDL_FLOAT16:
        return "<f2";
    case SPDL_BFLOAT16:
        return "<u2";
    }
    return NULL;
}

int ctl_npy_header(const struct spdl_tensor *tensor, char header[CTL_NPY_HEADER_MAX],
                   size_t *ret_bytes)
{
    enum { PREFIX_BYTES = 10, ALIGN_BYTES = 64 };
    const char *descr = npy_descr(tensor->dtype);
    if (!descr || tensor->dims > sizeof tensor->shape / sizeof tensor->shape[0])
        return -EINVAL;
    size_t at = PREFIX_BYTES;
    at += (size_t)snprintf(header + at, CTL_NPY_HEADER_MAX - at,
                           "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (uint32_t i = 0; i < tensor->dims; i++)
        at += (size_t)snprintf(header + at, CTL_NPY_HEADER_MAX - at, "%s%" PRIu64, i ? ", " : "",
                               tensor->shape[i]);
    at += (size_t)snprintf(header + at, CTL_NPY_HEADER_MAX - at, "%s), }",
                           tensor->dims == 1 ? "," : "");
    /* Nine numbers of 20 digits and the words around them always fit. */
    size_t total = (at + 1 + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    memset(header + at, ' ', total - at);
    header[total - 1] = '\n';
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = (char)((total - PREFIX_BYTES) & 0xff);
    header[9] = (char)((total - PREFIX_BYTES) >> 8);
    *ret_bytes = total;
    return 0;
}

int ctl_npy_folder(const char *path)
{
    char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    for (char *at = copy + 1; *copy && *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        (void)mkdir(copy, 0777); /* the last mkdir and open tell what is wrong */
        *at = '/';
    }
    int rc = mkdir(copy, 0777) < 0 && errno != EEXIST ? -errno : 0;
    free(copy);
    if (rc < 0)
        return rc;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int npy_write_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(fd, data, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -errno;
        data += written;
        bytes -= (size_t)written;
    }
    return 0;
}

int ctl_npy_write(int folder, uint32_t epoch, uint64_t step, const struct spdl_tensor *tensor)
{
    char header[CTL_NPY_HEADER_MAX], name[256], temporary[256];
    size_t header_bytes;
    int rc = ctl_npy_header(tensor, header, &header_bytes);
    if (rc < 0)
        return rc;
    if (strchr(tensor->name, '/'))
        return -EINVAL;
    int length = snprintf(name, sizeof name, "%04" PRIu32 "-%08" PRIu64 ".%s.npy", epoch, step,
                          tensor->name);
    int other = snprintf(temporary, sizeof temporary, ".%s.%d", name, (int)getpid());
    if (length < 0 || other < 0 || (size_t)length >= sizeof name ||
        (size_t)other >= sizeof temporary)
        return -EINVAL;

    int fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return -errno;
    rc = npy_write_all(fd, header, header_bytes);
    if (rc == 0)
        rc = npy_write_all(fd, tensor->data, tensor->bytes);
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && renameat(folder, temporary, folder, name) < 0)
        rc = -errno;
    if (rc < 0)
        (void)unlinkat(folder, temporary, 0);
    return rc;
}
