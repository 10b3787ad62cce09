/* What all engines have in common: the choice of the engine, and access by its table. */
#include "fetch/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fetch/fetch_faulty.h"

enum { NOTE_BYTES = 256 };

/* Files are opened by openat2 alone, since nothing else keeps them beneath their root: say at the
 * start when it is refused. */
static int check_openat2(struct err *reterr)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC | O_DIRECTORY, .resolve = RESOLVE_BENEATH};
    long fd = syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof how);
    if (fd >= 0) {
        close((int)fd);
        return 0;
    }
    int rc = -errno;
    if (rc != -ENOSYS && rc != -EPERM)
        return 0; /* about the current folder, and not about the call */
    return err_set(
        reterr, rc,
        "fetch: openat2: %s; it needs Linux 5.6 and a seccomp filter that knows the call",
        strerror(-rc));
}

static int open_auto(const struct fetch_params *params, struct fetch **ret_fetch,
                     char ret_note[NOTE_BYTES], struct err *reterr)
{
    struct err first = {0};
    int rc = -ENOTSUP;
    for (const struct fetch_ops *const *row = fetch_table; *row; row++) {
        struct err err = {0};
        rc = (*row)->open(params, ret_fetch, &err);
        if (rc == 0) {
            if (first.code != 0)
                snprintf(ret_note, NOTE_BYTES, "files are read by %s: %.200s", (*row)->name,
                         first.text);
            return 0;
        }
        if (first.code == 0)
            first = err;
    }
    return err_set(reterr, rc, "fetch: no engine works: %s", first.text);
}

static int open_named(const char *engine, const struct fetch_params *params,
                      struct fetch **ret_fetch, struct err *reterr)
{
    char names[128] = "auto";
    for (const struct fetch_ops *const *row = fetch_table; *row; row++) {
        if (strcmp(engine, (*row)->name) == 0)
            return (*row)->open(params, ret_fetch, reterr);
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, " %s", (*row)->name);
    }
    return err_set(reterr, -EINVAL, "fetch: there is no engine '%s'; there are: %s", engine, names);
}

int fetch_open(const char *engine, const struct fetch_params *params, struct fetch **ret_fetch,
               char ret_note[256], struct err *reterr)
{
    *ret_fetch = NULL;
    ret_note[0] = 0;
    int rc = check_openat2(reterr);
    if (rc < 0)
        return rc;
    struct fetch *fetch = NULL;
    rc = strcmp(engine, "auto") == 0 ? open_auto(params, &fetch, ret_note, reterr)
                                     : open_named(engine, params, &fetch, reterr);
    if (rc < 0)
        return rc;
    if (params->faulty[0]) {
        struct fetch *faulty;
        rc = fetch_faulty_open(fetch, params, &faulty, reterr);
        if (rc < 0) {
            fetch_close(fetch);
            return rc;
        }
        fetch = faulty;
    }
    *ret_fetch = fetch;
    return 0;
}

void fetch_tend(struct fetch *fetch)
{
    fetch->ops->tend(fetch);
}

void fetch_leave(struct fetch *fetch)
{
    if (fetch)
        fetch->ops->leave(fetch);
}

void fetch_close(struct fetch *fetch)
{
    if (fetch)
        fetch->ops->close(fetch);
}

const char *fetch_engine(const struct fetch *fetch)
{
    return fetch->ops->name;
}

int fetch_fd(const struct fetch *fetch)
{
    return fetch->ops->fd(fetch);
}

int fetch_submit(struct fetch *fetch, const struct fetch_request *request)
{
    return fetch->ops->submit(fetch, request);
}

void fetch_kick(struct fetch *fetch)
{
    fetch->ops->kick(fetch);
}

uint32_t fetch_reap(struct fetch *fetch, struct fetch_result *results, uint32_t max)
{
    return fetch->ops->reap(fetch, results, max);
}

void fetch_forget(struct fetch *fetch, const void *owner)
{
    fetch->ops->forget(fetch, owner);
}

void fetch_stats(const struct fetch *fetch, struct fetch_stats *ret_stats)
{
    fetch->ops->stats(fetch, ret_stats);
}
