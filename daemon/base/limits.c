/* What this process may use: see limits.h. cgroup v2 and v1. */
#include "base/limits.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 4096 };

static bool read_text(const char *path, char text[TEXT_BYTES])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t bytes = read(fd, text, TEXT_BYTES - 1);
    close(fd);
    if (bytes < 0)
        return false;
    text[bytes] = 0;
    return true;
}

/* Folder of the process's own group under /sys/fs/cgroup for a controller of version 1, or for
 * version 2 with controller "". */
static bool own_group(const char *controller, char *path, size_t bytes)
{
    char text[TEXT_BYTES];
    if (!read_text("/proc/self/cgroup", text))
        return false;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *names = strchr(line, ':');
        char *group = names ? strchr(names + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = 0;
        if (strcmp(names + 1, controller) != 0)
            continue;
        snprintf(path, bytes, "/sys/fs/cgroup%s%s%s", controller[0] ? "/" : "", controller, group);
        return true;
    }
    return false;
}

/* The smallest number in `file` of the group and of those above it. */
static uint64_t smallest(const char *controller, const char *file)
{
    char path[2048], name[2200], text[TEXT_BYTES];
    uint64_t best = UINT64_MAX;
    if (!own_group(controller, path, sizeof path))
        return best;
    for (;;) {
        snprintf(name, sizeof name, "%s/%s", path, file);
        if (read_text(name, text) && text[0] >= '0' && text[0] <= '9') {
            uint64_t value = strtoull(text, NULL, 10);
            best = value < best ? value : best;
        }
        char *slash = strrchr(path, '/');
        if (!slash || strcmp(path, "/sys/fs/cgroup") == 0)
            return best;
        *slash = 0;
    }
}

uint64_t limits_memory_bytes(void)
{
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t two = smallest("", "memory.max"), one = smallest("memory", "memory.limit_in_bytes");
    uint64_t best = machine < two ? machine : two;
    return best < one ? best : one;
}

static uint32_t quota_cpus(void)
{
    char path[2048], name[2200], text[TEXT_BYTES];
    if (!own_group("", path, sizeof path))
        return UINT32_MAX;
    snprintf(name, sizeof name, "%s/cpu.max", path);
    if (!read_text(name, text) || text[0] < '0' || text[0] > '9')
        return UINT32_MAX;
    char *rest = NULL;
    uint64_t quota = strtoull(text, &rest, 10), period = strtoull(rest, NULL, 10);
    if (period == 0)
        return UINT32_MAX;
    uint64_t cpus = (quota + period - 1) / period;
    return cpus == 0 ? 1 : cpus > UINT32_MAX ? UINT32_MAX : (uint32_t)cpus;
}

uint32_t limits_cpu_count(void)
{
    cpu_set_t set;
    uint32_t cpus = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        cpus = (uint32_t)CPU_COUNT(&set);
    uint32_t quota = quota_cpus();
    return quota < cpus ? quota : cpus;
}
