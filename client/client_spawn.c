/* Starting a private daemon: finding the program, starting it so that it is no child of the
 * caller's, and hearing whether it came up.
 *
 * The daemon must not be a child of a training process (nobody would wait for it), and a large
 * process must not be copied by fork. So a vfork child spawns the daemon and ends at once; the
 * daemon goes to init, and all that is left of the vfork child is a number to wait for. */
#include "client/client_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, READY_FD = 3, FD_ABOVE = 10, ARGS_FIXED = 12 };

static const char own_address = 0; /* any address inside the library */

void spdl_client_start_init(struct spdl_client_start *start)
{
    memset(start, 0, sizeof(*start));
    start->fd = -1;
}

void spdl_client_start_close(struct spdl_client_start *start)
{
    if (start->fd >= 0)
        close(start->fd);
    spdl_client_start_init(start);
}

static int is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Looks for spdld in the folder of `file`, and in bin beside that folder. */
static int look_beside(const char *file, char *path)
{
    const char *slash = strrchr(file, '/');
    if (!slash)
        return 0;
    int folder_bytes = (int)(slash - file);
    static const char *const places[] = {"", "/../bin", "/../../bin"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        int n = snprintf(path, PATH_BYTES, "%.*s%s/spdld", folder_bytes, file, places[i]);
        if (n > 0 && n < PATH_BYTES && is_program(path))
            return 1;
    }
    return 0;
}

static int look_on_path(const char *name, char *path)
{
    const char *list = getenv("PATH");
    if (!list || !list[0])
        list = "/usr/local/bin:/usr/bin:/bin";
    for (const char *at = list; at;) {
        const char *colon = strchr(at, ':');
        int bytes = colon ? (int)(colon - at) : (int)strlen(at);
        int n = snprintf(path, PATH_BYTES, "%.*s/%s", bytes, at, name);
        if (bytes > 0 && n > 0 && n < PATH_BYTES && is_program(path))
            return 1;
        at = colon ? colon + 1 : NULL;
    }
    return 0;
}

/* $SPDLD, beside the library, beside the program, on PATH. */
static int find_program(char *path, struct spdl_client_error *error)
{
    const char *named = getenv("SPDLD");
    if (named && named[0]) {
        int is_found = strchr(named, '/') ? is_program(named) : look_on_path(named, path);
        if (!is_found)
            return spdl_client_fail(
                error, -ENOENT, 0, "SPDLD names %s, which is not a program that can be run", named);
        if (strchr(named, '/') && snprintf(path, PATH_BYTES, "%s", named) >= PATH_BYTES)
            return spdl_client_fail(error, -ENAMETOOLONG, 0, "SPDLD is too long a name");
        return 0;
    }
    Dl_info info;
    if (dladdr(&own_address, &info) && info.dli_fname && look_beside(info.dli_fname, path))
        return 0;
    char self[PATH_BYTES];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n > 0) {
        self[n] = 0;
        if (look_beside(self, path))
            return 0;
    }
    if (look_on_path("spdld", path))
        return 0;
    return spdl_client_fail(error, -ENOENT, 0,
                            "the program spdld is neither beside the library nor on PATH: set "
                            "SPDLD to where it is");
}

/* The command line; strings are borrowed from target, path and numbers. The array is owned. */
static char **make_arguments(const struct spdl_client_target *target, char *path, char *owner)
{
    static char is_private[] = "--private", owner_option[] = "--owner", socket[] = "--socket",
                config[] = "-c", set[] = "--set", ready[] = "--ready-fd", ready_number[] = "3";
    char **arguments = calloc(ARGS_FIXED + 2 * target->set_count, sizeof(*arguments));
    if (!arguments)
        return NULL;
    size_t n = 0;
    arguments[n++] = path;
    arguments[n++] = is_private;
    if (target->owner > 0) {
        arguments[n++] = owner_option;
        arguments[n++] = owner;
    }
    arguments[n++] = socket;
    arguments[n++] = target->socket;
    if (target->config_file) {
        arguments[n++] = config;
        arguments[n++] = target->config_file;
    }
    for (size_t i = 0; i < target->set_count; i++) {
        arguments[n++] = set;
        arguments[n++] = target->sets[i];
    }
    arguments[n++] = ready;
    arguments[n++] = ready_number;
    return arguments;
}

/* Where the daemon's words go: $SPDL_LOG, the caller's standard error, or nowhere when that is
 * closed. */
static int open_log(struct spdl_client_error *error)
{
    const char *file = getenv("SPDL_LOG");
    int is_named = file && file[0];
    int fd = -1;
    if (is_named)
        fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    else
        fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, FD_ABOVE);
    if (fd < 0 && !is_named)
        fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        int code = -errno;
        char words[128];
        return spdl_client_fail(error, code, 0, "the log %s (SPDL_LOG) cannot be written: %s",
                                is_named ? file : "",
                                spdl_client_errno_text(code, words, sizeof(words)));
    }
    if (fd < FD_ABOVE) {
        int above = fcntl(fd, F_DUPFD_CLOEXEC, FD_ABOVE);
        int code = -errno;
        close(fd);
        return above < 0 ? spdl_client_fail(error, code, 0, "no descriptor is left") : above;
    }
    return fd;
}

/* What the daemon begins with: standard descriptors, the pipe, a session and signals of its own. */
static int fill_spawn(posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes,
                      int log_fd, int ready_fd)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int rc = posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_addopen(actions, 1, "/dev/null", O_WRONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(actions, log_fd, 2);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(actions, ready_fd, READY_FD);
    if (rc == 0)
        rc = posix_spawn_file_actions_addclosefrom_np(actions, READY_FD + 1);
    if (rc == 0)
        rc = posix_spawnattr_setsigmask(attributes, &none);
    if (rc == 0)
        rc = posix_spawnattr_setsigdefault(attributes, &all);
    if (rc == 0)
        rc = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                      POSIX_SPAWN_SETSID);
    return -rc;
}

struct spawn_plan {
    const char *path;
    char **arguments;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int rc; /* of posix_spawn, written by the vfork child: it shares this memory */
};

/* Runs posix_spawn in a vfork child, so that the daemon's parent is gone when this returns. Signals
 * are blocked: no handler of the caller's may run in the child. */
static int spawn_orphan(struct spawn_plan *plan)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pid_t child = vfork();
    if (child == 0) {
        pid_t daemon_pid;
        plan->rc = -posix_spawn(&daemon_pid, plan->path, &plan->actions, &plan->attributes,
                                plan->arguments, environ);
        _exit(0);
    }
    int rc = child < 0 ? -errno : 0;
    /* A caller that reaps every child of its own may be faster: ECHILD is as good. */
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc < 0 ? rc : plan->rc;
}

static int spawn(const struct spdl_client_target *target, int log_fd, int ready_fd,
                 struct spdl_client_error *error)
{
    char path[PATH_BYTES];
    char owner[24];
    int rc = find_program(path, error);
    if (rc < 0)
        return rc;
    snprintf(owner, sizeof(owner), "%ld", (long)target->owner);
    struct spawn_plan plan = {.path = path, .arguments = make_arguments(target, path, owner)};
    if (!plan.arguments)
        return spdl_client_fail(error, -ENOMEM, SPDL_CLASS_RESOURCE, "no memory");
    posix_spawn_file_actions_init(&plan.actions);
    posix_spawnattr_init(&plan.attributes);
    rc = fill_spawn(&plan.actions, &plan.attributes, log_fd, ready_fd);
    if (rc == 0)
        rc = spawn_orphan(&plan);
    posix_spawnattr_destroy(&plan.attributes);
    posix_spawn_file_actions_destroy(&plan.actions);
    free(plan.arguments);
    char words[128];
    if (rc < 0)
        spdl_client_fail(error, rc, 0, "%s cannot be started: %s", path,
                         spdl_client_errno_text(rc, words, sizeof(words)));
    return rc;
}

int spdl_client_start_spawn(struct spdl_client_start *start,
                            const struct spdl_client_target *target,
                            struct spdl_client_error *error)
{
    spdl_client_start_close(start);
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return spdl_client_fail(error, -errno, SPDL_CLASS_RESOURCE, "no descriptor is left");
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    /* Above the numbers that the daemon's own descriptors get, so that none overwrites another. */
    int ready_fd = fcntl(fds[1], F_DUPFD_CLOEXEC, FD_ABOVE);
    close(fds[1]);
    int log_fd = -1;
    int rc = ready_fd < 0
                 ? spdl_client_fail(error, -errno, SPDL_CLASS_RESOURCE, "no descriptor is left")
                 : 0;
    if (rc == 0)
        log_fd = open_log(error);
    if (log_fd < 0 && rc == 0)
        rc = log_fd;
    if (rc == 0)
        rc = spawn(target, log_fd, ready_fd, error);
    if (log_fd >= 0)
        close(log_fd);
    if (ready_fd >= 0)
        close(ready_fd);
    if (rc < 0) {
        close(fds[0]);
        return rc;
    }
    start->fd = fds[0];
    return 0;
}

/* "ok" or "error CODE SENTENCE". */
static int understand_line(const char *line, struct spdl_client_error *error)
{
    if (strcmp(line, "ok") == 0)
        return 1;
    if (strncmp(line, "error ", 6) != 0)
        return spdl_client_fail(error, -EPROTO, 0, "spdld said at its start: %.200s", line);
    char *end;
    long code = strtol(line + 6, &end, 10);
    if (end == line + 6 || code >= 0 || code <= -4096)
        code = -EPROTO;
    while (*end == ' ')
        end++;
    if (code == -EADDRINUSE)
        code = -EEXIST;
    return spdl_client_fail(error, (int)code, 0, "the private spdld cannot start: %s", end);
}

int spdl_client_start_read(struct spdl_client_start *start, struct spdl_client_error *error)
{
    for (;;) {
        size_t room = sizeof(start->line) - 1 - start->bytes;
        ssize_t n = read(start->fd, start->line + start->bytes, room);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n > 0)
            start->bytes += (size_t)n;
        start->line[start->bytes] = 0;
        char *newline = strchr(start->line, '\n');
        if (newline)
            *newline = 0;
        if (newline || (n > 0 && (size_t)n == room))
            return understand_line(start->line, error);
        if (n <= 0)
            return spdl_client_fail(error, -EPIPE, SPDL_CLASS_DAEMON_GONE,
                                    "the private spdld ended while it started: its log (standard "
                                    "error, or SPDL_LOG) says why");
    }
}
