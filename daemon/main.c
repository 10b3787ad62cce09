/* spdld: the daemon of a node, or a job's private one. Its workers are processes. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "main_daemon.h"
#include "worker/worker.h"

/* spdld-worker stands beside this program, or, installed, in ../libexec/spdld. */
static int worker_path(char path[PATH_MAX], struct err *reterr)
{
    static const char *const places[] = {"spdld-worker", "../libexec/spdld/spdld-worker"};
    char self[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    if (bytes < 0)
        return err_set(reterr, -errno,
                       "/proc/self/exe cannot be read, so spdld-worker is not found: %s",
                       strerror(errno));
    self[bytes] = 0;
    char *slash = strrchr(self, '/');
    if (slash)
        slash[1] = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int length = snprintf(path, PATH_MAX, "%s%s", self, places[i]);
        if (length > 0 && length < PATH_MAX && access(path, X_OK) == 0)
            return 0;
    }
    return err_set(reterr, -ENOENT, "spdld-worker is not in %s", self);
}

static int start_process(int socket_fd, uint64_t memory_bytes, pid_t *ret_pid, struct err *reterr)
{
    char path[PATH_MAX], name[] = "spdld-worker", option[] = "--memory", memory[24];
    char *arguments[] = {name, option, memory, NULL};
    snprintf(memory, sizeof memory, "%" PRIu64, memory_bytes);
    int rc = worker_path(path, reterr);
    if (rc < 0)
        return rc;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, socket_fd, WORKER_SOCKET_FD);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    rc = posix_spawn(ret_pid, path, &actions, &attributes, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (rc != 0)
        return err_set(reterr, -rc, "%s cannot be started: %s", path, strerror(rc));
    close(socket_fd);
    return 0;
}

static const struct pipeline_launcher launcher = {.start = start_process};

int main(int argc, char **argv)
{
    return main_daemon(argc, argv, &launcher);
}
