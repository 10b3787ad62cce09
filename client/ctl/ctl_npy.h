/* NPY files (format 1.0) of a batch's tensors, one a field and step. */
#ifndef SPDL_CTL_NPY_H
#define SPDL_CTL_NPY_H

#include "spdl/client.h"

enum { CTL_NPY_HEADER_MAX = 512 };

/* The file's header, a multiple of 64 bytes. -EINVAL: unknown dtype or too many dimensions. NPY
 * knows no bfloat16: it is kept as uint16. */
int ctl_npy_header(const struct spdl_tensor *tensor, char header[CTL_NPY_HEADER_MAX],
                   size_t *ret_bytes);

/* Makes the folder and its parents where they are missing and opens it. Returns a descriptor or a
 * negative errno. */
int ctl_npy_folder(const char *path);

/* Writes EPOCH-STEP.FIELD.npy into the folder under a temporary name and renames it when it is
 * whole. -EINVAL also for a field whose name cannot be a file's; else what open, write and rename
 * say. */
int ctl_npy_write(int folder, uint32_t epoch, uint64_t step, const struct spdl_tensor *tensor);

#endif
