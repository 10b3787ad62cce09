/* Sessions: one for each connection. Who is there is told by the kernel; every frame is bounded and
 * checked; a client that breaks the rules or does not read loses its own connection and nothing
 * else. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "control/control_state.h"
#include "shm/shm_layout.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

enum { DROPS_LOGGED_A_SECOND = 10, OPEN_COST_NS = 250000 };

static void on_socket(void *context, uint32_t events);

static void session_free(struct session *session)
{
    struct control *control = session->control;
    control_budget_leave(session);
    *session->link = session->next;
    if (session->next)
        session->next->link = session->link;
    control->session_count--;
    control_index_leave(session);
    control_change_leave(session);
    loop_remove(control->params.loop, session->pid_source);
    if (session->pid_fd >= 0)
        close(session->pid_fd);
    free(session);
}

/* Closes the socket. The session stays while its process lives and may still map segments. */
static void disconnect(struct session *session)
{
    struct control *control = session->control;
    if (session->fd < 0)
        return;
    control_budget_leave(session);
    loop_remove(control->params.loop, session->source);
    session->source = NULL;
    close(session->fd);
    session->fd = -1;
    spdl_proto_in_fini(&session->in);
    spdl_proto_out_fini(&session->out);
    if (session->greeted && --control->connected_count == 0)
        control->idle_ns = loop_now_ns();
}

/* Some lines a second tell as much as a thousand. */
static bool may_log(struct control *control)
{
    uint64_t now_s = loop_now_ns() / UINT64_C(1000000000);
    if (now_s != control->drops_s) {
        if (control->drops_silent > 0)
            log_line(LOG_LEVEL_WARNING, "%llu more clients were dropped or not served",
                     (unsigned long long)control->drops_silent);
        control->drops_s = now_s;
        control->drops_logged = control->drops_silent = 0;
    }
    bool may = control->drops_logged < DROPS_LOGGED_A_SECOND;
    control->drops_logged += may;
    control->drops_silent += !may;
    return may;
}

void control_session_drop(struct session *session, bool broke_rules, const char *why)
{
    struct control *control = session->control;
    if (why && may_log(control))
        log_line(LOG_LEVEL_WARNING, "client %d (%s) is dropped: %s", (int)session->pid,
                 session->client[0] ? session->client : "not named", why);
    control->protocol_errors += broke_rules;
    disconnect(session);
    if (control_streams_leave(session, session->pid_fd < 0))
        session_free(session);
}

void control_session_end(struct session *session)
{
    disconnect(session);
    control_streams_leave(session, true);
    session_free(session);
}

static void on_death(void *context, uint32_t events)
{
    struct session *session = context;
    (void)events;
    if (session->stream_count > 0)
        session->control->lost_clients++;
    control_session_end(session);
}

/* Whoever does not read its answers is not asked what else it wants. */
static bool is_behind(const struct session *session)
{
    return session->out.bytes >= CONTROL_OUT_ENOUGH;
}

static void watch(struct session *session)
{
    uint32_t events = (is_behind(session) ? 0u : (uint32_t)EPOLLIN) |
                      (session->out.bytes > 0 ? (uint32_t)EPOLLOUT : 0u);
    if (!session->source || events == session->events)
        return; /* without a source it waits, and is watched when its turn comes */
    session->events = events;
    loop_change(session->control->params.loop, session->source, events);
}

void control_session_reply(struct session *session, const Spdl__V1__ToClient *message,
                           const int *fds, int fd_count)
{
    if (session->fd < 0 || session->broken)
        return;
    int rc = spdl_proto_queue_to_client(&session->out, message, fds, fd_count);
    if (rc == 0)
        rc = spdl_proto_flush(session->fd, &session->out);
    if (rc == -EAGAIN)
        watch(session);
    else if (rc < 0) {
        session->deaf = rc == -ENOBUFS;
        session->broken =
            true; /* dropped by its handler, or by the event that its shut socket makes */
        shutdown(session->fd, SHUT_RDWR);
    }
}

void control_session_error(struct session *session, uint32_t request, int code,
                           enum spdl_class class_number, const char *text)
{
    char copy[ERR_TEXT_BYTES];
    snprintf(copy, sizeof copy, "%s", text);
    Spdl__V1__Error error;
    spdl__v1__error__init(&error);
    error.code = code;
    error.class_number = (uint32_t)class_number;
    error.message = copy;
    Spdl__V1__ToClient message;
    spdl__v1__to_client__init(&message);
    message.id = request;
    message.body_case = SPDL__V1__TO_CLIENT__BODY_ERROR;
    message.error = &error;
    control_session_reply(session, &message, NULL, 0);
}

static int hello_handle(struct session *session, uint32_t request, const Spdl__V1__Hello *hello)
{
    char text[160], version[] = SPDL_VERSION;
    if (session->greeted)
        return -EPROTO;
    if (hello->protocol < SPDL_PROTO_VERSION_OLDEST || hello->protocol > SPDL_PROTO_VERSION) {
        snprintf(text, sizeof text,
                 "protocol version %u is not served, %d … %d are: update the older side",
                 hello->protocol, SPDL_PROTO_VERSION_OLDEST, SPDL_PROTO_VERSION);
        control_session_error(session, request, -EPROTO, SPDL_CLASS_UNSUPPORTED, text);
        return -EPROTO;
    }
    if (hello->layout_major != 0 && hello->layout_major != SPDL_SHM_MAJOR) {
        snprintf(text, sizeof text,
                 "layout version %u of shared memory is not served, %d is: update the older side",
                 hello->layout_major, SPDL_SHM_MAJOR);
        control_session_error(session, request, -EPROTO, SPDL_CLASS_UNSUPPORTED, text);
        return -EPROTO;
    }
    snprintf(session->client, sizeof session->client, "%.60s", hello->client ? hello->client : "");
    session->greeted = true;
    session->in.limit = session->control->params.is_private ? 0 : CONTROL_BYTES_MAX;
    session->control->connected_count++;
    session->control->had_client = true;
    Spdl__V1__HelloReply reply;
    spdl__v1__hello_reply__init(&reply);
    reply.protocol = hello->protocol;
    reply.layout_major = SPDL_SHM_MAJOR;
    reply.version = version;
    reply.pid = getpid();
    reply.generation = session->control->generation;
    reply.is_private = session->control->params.is_private;
    Spdl__V1__ToClient message;
    spdl__v1__to_client__init(&message);
    message.id = request;
    message.body_case = SPDL__V1__TO_CLIENT__BODY_HELLO;
    message.hello = &reply;
    control_session_reply(session, &message, NULL, 0);
    return 0;
}

static int dispatch(struct session *session, const Spdl__V1__ToDaemon *message)
{
    if (message->body_case == SPDL__V1__TO_DAEMON__BODY_HELLO)
        return hello_handle(session, message->id, message->hello);
    if (!session->greeted)
        return -EPROTO;
    switch (message->body_case) {
    case SPDL__V1__TO_DAEMON__BODY_OPEN:
        return control_open_handle(session, message->id, message->open);
    case SPDL__V1__TO_DAEMON__BODY_PLAN:
        return control_plan_handle(session, message->id, message->plan);
    case SPDL__V1__TO_DAEMON__BODY_RELEASE:
        return control_release_handle(session, message->release);
    case SPDL__V1__TO_DAEMON__BODY_CLOSE:
        return control_close_handle(session, message->close);
    case SPDL__V1__TO_DAEMON__BODY_UNMAPPED:
        return control_unmapped_handle(session, message->unmapped);
    case SPDL__V1__TO_DAEMON__BODY_WHY:
        return control_why_handle(session, message->id, message->why);
    case SPDL__V1__TO_DAEMON__BODY_STATUS:
        return control_status_handle(session, message->id);
    case SPDL__V1__TO_DAEMON__BODY_CONFIG:
        return control_config_handle(session, message->id, message->config);
    case SPDL__V1__TO_DAEMON__BODY_CONFIG_COMPARE:
        return control_compare_handle(session, message->id, message->config_compare);
    case SPDL__V1__TO_DAEMON__BODY_INDEX:
        return control_index_handle(session, message->id, message->index);
    case SPDL__V1__TO_DAEMON__BODY_QUARANTINE:
        return control_quarantine_handle(session, message->id, message->quarantine);
    case SPDL__V1__TO_DAEMON__BODY_SET:
        return control_set_handle(session, message->id, message->set);
    case SPDL__V1__TO_DAEMON__BODY_RELOAD:
        return control_reload_handle(session, message->id);
    case SPDL__V1__TO_DAEMON__BODY_HELLO:
    case SPDL__V1__TO_DAEMON__BODY__NOT_SET:
    case _SPDL__V1__TO_DAEMON__BODY__CASE_IS_INT_SIZE:
        break;
    }
    return -EPROTO;
}

static int frame(struct session *session, const uint8_t *payload, size_t bytes)
{
    Spdl__V1__ToDaemon *message = spdl__v1__to_daemon__unpack(NULL, bytes, payload);
    int rc = message ? dispatch(session, message) : -EPROTO;
    if (message)
        spdl__v1__to_daemon__free_unpacked(message, NULL);
    return rc;
}

static bool is_of_a_stream(int body)
{
    return body == SPDL__V1__TO_DAEMON__BODY_RELEASE || body == SPDL__V1__TO_DAEMON__BODY_CLOSE ||
           body == SPDL__V1__TO_DAEMON__BODY_UNMAPPED;
}

/* What the chores and the worker will do for it, so that opening and closing without end is dear.
 */
static int64_t other_cost_ns(int body)
{
    return body == SPDL__V1__TO_DAEMON__BODY_OPEN || body == SPDL__V1__TO_DAEMON__BODY_PLAN
               ? OPEN_COST_NS
               : 0;
}

/* All whole frames that were received, until it is the turn of others. */
static int frames(struct session *session)
{
    struct control_budget *budget = &session->control->budget;
    const uint8_t *payload;
    size_t bytes;
    uint32_t requests = 0;
    int rc;
    while ((rc = is_behind(session) ? 0 : spdl_proto_next(&session->in, &payload, &bytes)) > 0) {
        int body = spdl_proto_scan(payload, bytes);
        bool is_request = body >= 0 && !is_of_a_stream(body);
        if (is_request &&
            (control_budget_is_turn_over(requests++) || !control_budget_begin(budget))) {
            control_budget_wait(session);
            return 0;
        }
        rc = body < 0 ? body : frame(session, payload, bytes);
        if (is_request)
            control_budget_end(budget, other_cost_ns(body));
        spdl_proto_next_done(&session->in);
        if (rc < 0 || session->broken)
            break;
    }
    return rc;
}

/* What is to be done behind frames(). */
static void settle(struct session *session, int rc)
{
    if (session->broken)
        control_session_drop(session, false, session->deaf ? "it does not read its answers" : NULL);
    else if (rc == -EPROTO)
        control_session_drop(session, true,
                             "it sent a message that is malformed, too large or not in place");
    else if (rc < 0 && rc != -EAGAIN)
        control_session_drop(session, false,
                             rc == -ENODATA || rc == -ECONNRESET ? NULL : strerror(-rc));
    else
        watch(session);
}

void control_session_resume(struct session *session)
{
    struct control *control = session->control;
    control_budget_leave(session);
    session->events = EPOLLIN;
    int rc =
        loop_add(control->params.loop, session->fd, EPOLLIN, on_socket, session, &session->source);
    if (rc == 0)
        rc = frames(session);
    settle(session, rc);
}

static void on_socket(void *context, uint32_t events)
{
    struct session *session = context;
    int rc = 0;
    if (events & EPOLLOUT) {
        rc = spdl_proto_flush(session->fd, &session->out);
        if (rc < 0 && rc != -EAGAIN) {
            control_session_drop(session, false, NULL);
            return;
        }
        rc = frames(session); /* some may have been left while it was behind */
    }
    bool has_news = (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
    if (rc >= 0 && has_news && !session->waits && !is_behind(session)) {
        rc = spdl_proto_receive(session->fd, &session->in, 0);
        if (rc == 0)
            rc = frames(session);
    } else if (is_behind(session) && (events & EPOLLHUP)) {
        rc = -ENODATA; /* nobody will read what it has not read yet */
    }
    settle(session, rc);
}

/* A descriptor of the process behind the socket: its death is seen also when a child keeps the
 * socket open. */
static int peer_pid_fd(int fd, pid_t pid)
{
    int pid_fd = -1;
    socklen_t bytes = sizeof pid_fd;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pid_fd, &bytes) == 0)
        return pid_fd;
    return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

static bool may_use(const struct control *control, uid_t uid)
{
    /* The socket's mode decides for the node's daemon; a private one serves its own user. */
    return !control->params.is_private || uid == getuid() || uid == 0;
}

/* Nobody takes the places of the others. NULL: there is one for this peer. */
static const char *no_place(const struct control *control, const struct ucred *peer)
{
    uint32_t of_user = 0, of_process = 0;
    for (const struct session *session = control->sessions; session; session = session->next) {
        of_user += session->uid == peer->uid;
        of_process += session->pid == peer->pid && peer->pid > 0; /* 0: of another container */
    }
    return control->session_count >= control->sessions_max ? "the daemon has too many connections"
           : of_user >= control->of_user_max               ? "this user has too many connections"
           : of_process >= control->of_process_max         ? "this process has too many connections"
                                                           : NULL;
}

void control_session_no_descriptors(int fd)
{
    int no = 0;
    setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no,
               sizeof no); /* an older kernel does not know it */
}

/* Says why on a socket that is closed at once. */
static void turn_away(struct control *control, int fd, const struct ucred *peer, int code,
                      const char *why)
{
    char text[128];
    snprintf(text, sizeof text, "%s", why);
    const struct log_field fields[] = {
        {LOG_ID, LOG_ID_CLIENT_REFUSED}, {"SPDL_WHY", why}, {NULL, NULL}};
    if (may_log(control))
        log_event(LOG_LEVEL_WARNING, fields, "client %d of user %d is not served: %s",
                  (int)peer->pid, (int)peer->uid, why);
    Spdl__V1__Error error;
    spdl__v1__error__init(&error);
    error.code = code;
    error.class_number = code == -EACCES ? 0 : SPDL_CLASS_RESOURCE;
    error.message = text;
    Spdl__V1__ToClient message;
    spdl__v1__to_client__init(&message);
    message.body_case = SPDL__V1__TO_CLIENT__BODY_ERROR;
    message.error = &error;
    struct spdl_proto_out out = {.limit = CONTROL_OUT_MAX};
    if (spdl_proto_queue_to_client(&out, &message, NULL, 0) == 0)
        spdl_proto_flush(fd, &out); /* it may be gone already */
    spdl_proto_out_fini(&out);
    close(fd);
}

void control_session_accept(struct control *control, int fd)
{
    struct ucred peer = {0};
    socklen_t bytes = sizeof peer;
    const char *why = NULL;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0 || !may_use(control, peer.uid)) {
        turn_away(control, fd, &peer, -EACCES, "this daemon serves another user");
        return;
    }
    why = no_place(control, &peer);
    struct session *session = why ? NULL : calloc(1, sizeof *session);
    if (!session) {
        turn_away(control, fd, &peer, why ? -EMFILE : -ENOMEM, why ? why : "no memory");
        return;
    }
    *session = (struct session){.control = control,
                                .fd = fd,
                                .pid_fd = peer_pid_fd(fd, peer.pid),
                                .pid = peer.pid,
                                .uid = peer.uid,
                                .events = EPOLLIN,
                                .in.limit = CONTROL_HELLO_BYTES_MAX,
                                .out.limit = CONTROL_OUT_MAX,
                                .since_ns = loop_now_ns()};
    session->next = control->sessions;
    session->link = &control->sessions;
    if (session->next)
        session->next->link = &session->next;
    control->sessions = session;
    control->session_count++;
    if (control->hello_end_ns == 0)
        control->hello_end_ns = session->since_ns + CONTROL_HELLO_SECONDS * UINT64_C(1000000000);
    int rc = loop_add(control->params.loop, fd, EPOLLIN, on_socket, session, &session->source);
    if (rc == 0 && session->pid_fd >= 0)
        rc = loop_add(control->params.loop, session->pid_fd, EPOLLIN, on_death, session,
                      &session->pid_source);
    if (rc < 0)
        control_session_drop(session, false, "no memory to watch it");
}
