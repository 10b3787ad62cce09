/* For tests and benchmarks of the room: picks the loops that a scratch runs with, instead of the
 * best that the CPU has. The bytes are the same with all of them. */
#ifndef SPDLD_TRANSFORM_SCRATCH_H
#define SPDLD_TRANSFORM_SCRATCH_H

#include "transform/transform.h"
#include "transform/transform_resize.h"

/* Borrowed: static storage from transform_resize_choice. */
void transform_use(struct transform *transform, const struct resize_kernels *kernels);

#endif
