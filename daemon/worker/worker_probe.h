/* A codec that somebody took over, for tests: bytes that hold the text of SPDL_PROBE_MARKER and
 * behind it the name of a probe make it try what that probe is named for, with all the worker's
 * rights. Compiled in by `make FAILPOINTS=1` alone. What it got is said on standard error. */
#ifndef SPDLD_WORKER_PROBE_H
#define SPDLD_WORKER_PROBE_H

#include <stddef.h>

void worker_probe(const void *data, size_t bytes);

#ifdef SPDL_FAILPOINTS
#define WORKER_PROBE(data, bytes) worker_probe(data, bytes)
#else
#define WORKER_PROBE(data, bytes) ((void)0)
#endif

#endif
