/* Points to die at, for tests: see shm_failpoint.h. Any thread. */
#include "shm/shm_failpoint.h"

#ifdef SPDL_FAILPOINTS
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void spdl_failpoint(const char *name)
{
    static _Atomic unsigned long hits; /* of the one point that is asked for; no partner */
    const char *wanted = getenv("SPDL_FAILPOINT");
    size_t bytes = strlen(name);
    if (!wanted || strncmp(wanted, name, bytes) != 0 ||
        (wanted[bytes] != 0 && wanted[bytes] != ':'))
        return;
    unsigned long nth = wanted[bytes] == ':' ? strtoul(wanted + bytes + 1, NULL, 10) : 1;
    if (atomic_fetch_add_explicit(&hits, 1, memory_order_relaxed) + 1 != nth)
        return;
    const char *token = getenv("SPDL_FAILPOINT_TOKEN");
    if (token && unlink(token) != 0)
        return;
    kill(getpid(), SIGKILL);
}

void spdl_crashpoint(const void *data, size_t bytes)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS};
    const char *marker = getenv("SPDL_CRASH_MARKER");
    const size_t marker_bytes = marker ? strlen(marker) : 0;
    const char *found = marker ? memmem(data, bytes, marker, marker_bytes) : NULL;
    if (!found)
        return;
    const char *end = (const char *)data + bytes, *number = found + marker_bytes;
    const bool chosen = number < end && *number >= '0' && *number <= '5';
    raise(signals[chosen ? *number - '0' : 0]);
}
#endif
