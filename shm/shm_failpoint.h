/* Named points at which a process can be made to kill itself, so that tests can ask what a kill -9
 * just there costs. They are compiled in by `make FAILPOINTS=1` alone; in every other build a point
 * is nothing.
 *
 * SPDL_FAILPOINT=NAME or NAME:N: SIGKILL at the first (N-th) time the point is reached. With
 * SPDL_FAILPOINT_TOKEN=PATH only the process that removes the file at PATH dies, so that whoever is
 * started again with the same environment lives. */
#ifndef SPDL_SHM_FAILPOINT_H
#define SPDL_SHM_FAILPOINT_H

void spdl_failpoint(const char *name);

#ifdef SPDL_FAILPOINTS
#define SPDL_FAILPOINT(name) spdl_failpoint(name)
#else
#define SPDL_FAILPOINT(name) ((void)0)
#endif

#endif
