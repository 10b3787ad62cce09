/* Control: the socket, its lock, and the life of a private daemon. See control.h. */
#include "control/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "control/control_state.h"

enum { LOCK_TRIES = 16, ACCEPTS_A_ROUND = 32 };
static const uint64_t NS_PER_S = 1000000000;

/* --- the lock and the socket --- */

static void lock_name(const struct control *control, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s.lock", control->params.socket);
}

/* Takes the lock file beside the socket. Whoever ends removes it, so the file that was locked must
 * still be the one of that name. */
static int lock_take(struct control *control, struct err *reterr)
{
    char path[160];
    lock_name(control, path, sizeof path);
    for (int i = 0; i < LOCK_TRIES; i++) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return err_set(reterr, -errno, "the lock %s cannot be opened: %s", path,
                           strerror(errno));
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
            int code = errno;
            close(fd);
            if (code != EWOULDBLOCK)
                return err_set(reterr, -code, "the lock %s cannot be had: %s", path,
                               strerror(code));
            return err_set(reterr, -EADDRINUSE, "the socket %s is in use by a live daemon",
                           control->params.socket);
        }
        struct stat mine, named;
        if (fstat(fd, &mine) == 0 && stat(path, &named) == 0 && mine.st_ino == named.st_ino &&
            mine.st_dev == named.st_dev) {
            control->lock_fd = fd;
            return 0;
        }
        close(fd);
    }
    return err_set(reterr, -EADDRINUSE, "the lock %s is taken and given up again and again", path);
}

static void on_listen(void *context, uint32_t events)
{
    struct control *control = context;
    (void)events;
    for (int i = 0; i < ACCEPTS_A_ROUND; i++) {
        if (!control_budget_begin(&control->budget)) {
            control_budget_no_connections(control);
            return;
        }
        int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            control_session_accept(control, fd);
            control_budget_end(&control->budget, 0);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
            log_line(LOG_LEVEL_WARNING, "a client is not served: %s", strerror(errno));
            control_budget_rest(
                &control->budget); /* it stays readable: look again a little later */
            control_budget_no_connections(control);
        }
        return;
    }
}

static int listen_on(struct control *control, struct err *reterr)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = control->params.socket;
    if (strlen(path) >= sizeof address.sun_path)
        return err_set(reterr, -ENAMETOOLONG, "the socket's path is longer than %zu bytes: %s",
                       sizeof address.sun_path - 1, path);
    memcpy(address.sun_path, path, strlen(path));
    if (control->params.listen_fd >= 0) {
        control->listen_fd = control->params.listen_fd;
        fcntl(control->listen_fd, F_SETFL, fcntl(control->listen_fd, F_GETFL) | O_NONBLOCK);
        control_session_no_descriptors(control->listen_fd);
        return 0;
    }
    control->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (control->listen_fd < 0)
        return err_set(reterr, -errno, "no socket: %s", strerror(errno));
    struct stat old;
    if (lstat(path, &old) == 0 && !S_ISSOCK(old.st_mode))
        return err_set(reterr, -ENOTSOCK,
                       "%s is there and is no socket: remove it or choose another path", path);
    unlink(path); /* stale: we have the lock */
    mode_t mask = umask(0177);
    int rc = bind(control->listen_fd, (struct sockaddr *)&address, sizeof address) < 0 ? -errno : 0;
    umask(mask);
    if (rc == 0 &&
        chmod(path, control->params.is_private ? 0600 : control->params.config->socket_mode) < 0)
        rc = -errno;
    if (rc == 0 && listen(control->listen_fd, SOMAXCONN) < 0)
        rc = -errno;
    return rc < 0 ? err_set(reterr, rc, "the socket %s cannot be made: %s", path, strerror(-rc))
                  : 0;
}

/* --- life --- */

static void on_owner(void *context, uint32_t events)
{
    struct control *control = context;
    (void)events;
    loop_stop(control->params.loop);
}

/* Workers and ranks are watched in the same way: without the call nothing works, and that is said
 * at the start. */
static int watch_owner(struct control *control, struct err *reterr)
{
    pid_t owner = control->params.owner;
    int fd = (int)syscall(SYS_pidfd_open, owner > 0 ? owner : getpid(), 0);
    if (fd < 0 && errno == ESRCH)
        return err_set(reterr, -ESRCH, "the process %d that this private daemon serves is gone",
                       (int)owner);
    if (fd < 0)
        return err_set(
            reterr, -errno,
            "pidfd_open: %s; it needs Linux 5.3 and a seccomp filter that knows the call",
            strerror(errno));
    if (owner <= 0) {
        close(fd);
        return 0;
    }
    control->owner_fd = fd;
    return loop_add(control->params.loop, control->owner_fd, EPOLLIN, on_owner, control,
                    &control->owner_source);
}

static uint32_t clamp(uint64_t number, uint32_t least, uint32_t most)
{
    return number < least ? least : number > most ? most : (uint32_t)number;
}

/* Connections may take half of the descriptors that there are, two each. */
static void places_count(struct control *control)
{
    struct rlimit limit;
    uint64_t most = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / 4 : 0;
    control->sessions_max = clamp(most, CONTROL_SESSIONS_LEAST, CONTROL_SESSIONS_MAX);
    control->of_user_max =
        clamp(control->sessions_max / 4 * 3, CONTROL_SESSIONS_LEAST, CONTROL_SESSIONS_OF_USER_MAX);
    control->of_process_max =
        clamp(control->sessions_max / 4, CONTROL_SESSIONS_LEAST, CONTROL_SESSIONS_OF_PROCESS_MAX);
}

int control_create(const struct control_params *params, struct control **ret_control,
                   struct err *reterr)
{
    struct control *control = calloc(1, sizeof *control);
    if (!control)
        return err_set(reterr, -ENOMEM, "no memory for the socket");
    control->params = *params;
    control->listen_fd = control->lock_fd = control->owner_fd = -1;
    control->start_ns = loop_now_ns();
    control->idle_ns = control->start_ns;
    control->waiting_end = &control->waiting;
    control_budget_init(&control->budget, control->start_ns);
    places_count(control);
    int rc =
        getrandom(&control->generation, sizeof control->generation, 0) == sizeof control->generation
            ? 0
            : err_set(reterr, -EIO, "no random bytes");
    if (rc == 0)
        rc = lock_take(control, reterr);
    if (rc == 0)
        rc = listen_on(control, reterr);
    if (rc == 0)
        control_session_no_descriptors(control->listen_fd);
    if (rc == 0)
        rc = loop_add(params->loop, control->listen_fd, EPOLLIN, on_listen, control,
                      &control->listen_source);
    if (rc == 0)
        rc = watch_owner(control, reterr);
    if (rc < 0) {
        control_destroy(control);
        return rc;
    }
    *ret_control = control;
    return 0;
}

void control_destroy(struct control *control)
{
    if (!control)
        return;
    while (control->sessions)
        control_session_end(control->sessions);
    control_change_end(control);
    loop_remove(control->params.loop, control->listen_source);
    loop_remove(control->params.loop, control->owner_source);
    if (control->owner_fd >= 0)
        close(control->owner_fd);
    if (control->listen_source && control->params.listen_fd < 0)
        unlink(control->params.socket);
    if (control->listen_fd >= 0)
        close(control->listen_fd);
    if (control->lock_fd >= 0) {
        char path[160];
        lock_name(control, path, sizeof path);
        unlink(path);
        close(control->lock_fd);
    }
    free(control);
}

static int64_t private_step(struct control *control, uint64_t now_ns)
{
    if (!control->params.is_private || control->params.stays || control->connected_count > 0)
        return -1;
    uint64_t seconds = !control->had_client        ? CONTROL_PRIVATE_FIRST_SECONDS
                       : control->params.owner > 0 ? 0
                                                   : CONTROL_PRIVATE_LINGER_SECONDS;
    uint64_t end_ns = control->idle_ns + seconds * NS_PER_S;
    /* One process that comes and goes keeps its daemon while it lives: its pidfd ends us. */
    if (control->params.owner > 0 && control->had_client)
        return -1;
    if (now_ns < end_ns)
        return (int64_t)(end_ns - now_ns);
    loop_stop(control->params.loop);
    return -1;
}

/* Drops who said nothing for too long. Looks at the sessions only when one may be due: there can be
 * thousands, and this is called at every turn of the loop. */
static int64_t silent_step(struct control *control, uint64_t now_ns)
{
    if (control->hello_end_ns == 0)
        return -1;
    if (now_ns < control->hello_end_ns)
        return (int64_t)(control->hello_end_ns - now_ns);
    control->hello_end_ns = 0;
    struct session *next;
    for (struct session *session = control->sessions; session; session = next) {
        next = session->next;
        if (session->greeted || session->waits || session->fd < 0)
            continue;
        uint64_t end_ns = session->since_ns + CONTROL_HELLO_SECONDS * NS_PER_S;
        if (end_ns <= now_ns)
            control_session_drop(session, true, "it said nothing for 10 s");
        else if (control->hello_end_ns == 0 || end_ns < control->hello_end_ns)
            control->hello_end_ns = end_ns;
    }
    return control->hello_end_ns > 0 ? (int64_t)(control->hello_end_ns - now_ns) : -1;
}

static int64_t shorter(int64_t a, int64_t b)
{
    return a < 0 ? b : b < 0 || a < b ? a : b;
}

int64_t control_step(struct control *control)
{
    uint64_t now_ns = loop_now_ns();
    int64_t wait_ns = private_step(control, now_ns);
    wait_ns = shorter(wait_ns, silent_step(control, now_ns));
    return shorter(wait_ns, control_budget_step(control, now_ns));
}
