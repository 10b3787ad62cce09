/* Named points at which a process can be made to kill itself, so that tests can ask what a kill -9
 * just there costs. They are compiled in by `make FAILPOINTS=1` alone; in every other build a point
 * is nothing.
 *
 * SPDL_FAILPOINT=NAME or NAME:N: SIGKILL at the first (N-th) time the point is reached. With
 * SPDL_FAILPOINT_TOKEN=PATH only the process that removes the file at PATH dies, so that whoever is
 * started again with the same environment lives.
 *
 * SPDL_CRASH_MARKER=TEXT: a codec that is given bytes with this text in them dies of SIGSEGV, each
 * time, as one with a defect would; a number behind it chooses another way to die: 1 SIGBUS, 2
 * SIGILL, 3 SIGFPE, 4 SIGABRT, 5 SIGSYS. */
#ifndef SPDL_SHM_FAILPOINT_H
#define SPDL_SHM_FAILPOINT_H

#include <stddef.h>

void spdl_failpoint(const char *name);
void spdl_crashpoint(const void *data, size_t bytes);

#ifdef SPDL_FAILPOINTS
#define SPDL_FAILPOINT(name) spdl_failpoint(name)
#define SPDL_CRASHPOINT(data, bytes) spdl_crashpoint(data, bytes)
#else
#define SPDL_CRASHPOINT(data, bytes) ((void)0)
#define SPDL_FAILPOINT(name) ((void)0)
#endif

#endif
