/* Looking at a job's private daemon, and which others run where none of the job does. */
#include "client/ctl/ctl_attach.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/client_query.h"

enum { LISTED_MAX = 8 };

bool ctl_attach_is_for(const struct ctl_options *options)
{
    const uint32_t looks = CTL_VERB_STATUS | CTL_VERB_WHY | CTL_VERB_STREAMS | CTL_VERB_ERRORS |
                           CTL_VERB_QUARANTINE | CTL_VERB_DATASETS | CTL_VERB_CONFIG;
    const struct ctl_verb *verb = options->verb ? ctl_verb_find(options->verb) : NULL;
    return options->is_private && !options->config && options->set_count == 0 && verb &&
           (verb->bit & looks) != 0;
}

/* Of a daemon that is started to be asked they would show nothing. */
static bool is_of_running(const struct ctl_options *options)
{
    const struct ctl_verb *verb = ctl_verb_find(options->verb);
    return (verb->bit & (CTL_VERB_DATASETS | CTL_VERB_CONFIG)) == 0;
}

/* The process that listens there, 0: none does. */
static long listener_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer = {0};
    socklen_t bytes = sizeof peer;
    if (strlen(path) >= sizeof address.sun_path)
        return 0;
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return 0;
    bool listens =
        connect(fd, (const struct sockaddr *)(const void *)&address, sizeof address) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;
    close(fd);
    return listens ? (long)peer.pid : 0;
}

/* Adds "SOCKET (pid …, job …)" of every private daemon in the folder. */
static void running_list(const char *folder, struct ctl_text *text)
{
    static const char before[] = "spdld-", behind[] = ".sock";
    const size_t both = sizeof before + sizeof behind - 2;
    DIR *entries = opendir(folder);
    uint32_t count = 0;
    for (const struct dirent *entry; entries && (entry = readdir(entries)) != NULL;) {
        char path[sizeof((struct sockaddr_un *)0)->sun_path];
        const char *name = entry->d_name;
        size_t length = strlen(name);
        if (length <= both || strncmp(name, before, sizeof before - 1) != 0 ||
            strcmp(name + length - (sizeof behind - 1), behind) != 0 ||
            snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
            continue;
        long pid = listener_of(path);
        if (pid > 0 && count++ < LISTED_MAX) {
            ctl_text_str(text, count > 1 ? ", " : "");
            ctl_text_safe(text, path, strlen(path));
            ctl_text_printf(text, " (pid %ld)", pid);
        }
    }
    if (entries)
        closedir(entries);
    if (count > LISTED_MAX)
        ctl_text_printf(text, " and %u more", count - LISTED_MAX);
}

/* None of this job runs. The socket's name says which job, and its folder where the others are. */
static int say_others(const char *socket_path)
{
    struct ctl_text list = {0};
    char folder[sizeof((struct sockaddr_un *)0)->sun_path];
    const char *name = strrchr(socket_path, '/') ? strrchr(socket_path, '/') + 1 : socket_path;
    size_t length = strlen(name), job_bytes = length > 11 ? length - 11 : 0;
    snprintf(folder, sizeof folder, "%.*s", (int)(name - socket_path), socket_path);
    folder[folder[0] && folder[1] ? strlen(folder) - 1 : strlen(folder)] = 0;
    running_list(folder, &list);
    bool is_any = list.bytes > 0;
    ctl_text_put(&list, "", 1);
    int code = CTL_EXIT_NO_DAEMON;
    if (is_any && !list.failed)
        ctl_fail(code,
                 "no private spdld of job %.*s runs; private ones that run: %s\n"
                 "Look at one with --socket SOCKET in place of --private.",
                 (int)job_bytes, name + (job_bytes ? 6 : 0), list.data);
    else
        ctl_fail(code,
                 "no private spdld of job %.*s runs, and none of another job in %s\n"
                 "One is started by its first rank, as by `spdlctl --private pull ...`.",
                 (int)job_bytes, name + (job_bytes ? 6 : 0), folder);
    ctl_text_fini(&list);
    return code;
}

int ctl_attach(const struct ctl_options *options, const struct spdl_connect_options *connect,
               struct spdl_connection **ret_connection)
{
    struct spdl_connection *connection = NULL;
    struct spdl_client_daemon daemon = {0};
    int rc = spdl_client_connect_running(connect, &connection);
    if (rc == 0) {
        *ret_connection = connection;
        return 0;
    }
    int code = -1;
    bool absent = connection && (rc == -ENOENT || rc == -ECONNREFUSED || rc == -EPIPE) &&
                  strcmp(spdl_client_error_class(connection), "DAEMON_GONE") == 0;
    if (absent && is_of_running(options)) {
        spdl_client_daemon(connection, &daemon);
        code = say_others(daemon.socket);
    } else if (!absent && is_of_running(options)) {
        const char *said = connection ? spdl_connection_error(connection) : "";
        bool waited = rc == -ETIMEDOUT;
        bool refused = rc == -EACCES || rc == -EPERM || rc == -EMFILE || rc == -ENFILE;
        code = ctl_fail(waited    ? CTL_EXIT_NO_DAEMON
                        : refused ? CTL_EXIT_REFUSED
                                  : CTL_EXIT_FAILED,
                        "%s", *said ? said : strerror(-rc));
    }
    spdl_disconnect(connection);
    return code;
}
