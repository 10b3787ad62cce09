/* What this process may use: CPUs by affinity and cgroup, memory by cgroup and machine. Reads /proc
 * and /sys; values when they are missing are the machine's own. */
#ifndef SPDLD_BASE_LIMITS_H
#define SPDLD_BASE_LIMITS_H

#include <stdint.h>

/* CPUs: those of the affinity mask, no more than the cgroup's quota rounded up; at least 1. */
uint32_t limits_cpu_count(void);

/* Bytes: the smaller of the machine's memory and the cgroup limits from the own group up to the
 * root. */
uint64_t limits_memory_bytes(void);

#endif
