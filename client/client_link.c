/* One socket to the daemon: connecting without blocking, Hello, and a question with its answer. */
#include "client/client_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { OUT_LIMIT = SPDL_PROTO_FRAME_MAX + 64 * 1024 };

void spdl_client_link_init(struct spdl_client_link *link)
{
    memset(link, 0, sizeof(*link));
    link->fd = -1;
    link->out.limit = OUT_LIMIT;
}

void spdl_client_link_close(struct spdl_client_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    spdl_proto_in_fini(&link->in);
    spdl_proto_out_fini(&link->out);
    spdl_client_link_init(link);
}

int spdl_client_link_dial(struct spdl_client_link *link, const struct spdl_client_target *target)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t bytes = strlen(target->socket);
    if (bytes >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    memcpy(address.sun_path, target->socket, bytes);
    spdl_client_link_close(link);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    struct ucred peer;
    socklen_t peer_bytes = sizeof(peer);
    if (target->is_private && (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) < 0 ||
                               peer.uid != geteuid())) {
        close(fd);
        return -EACCES; /* somebody else listens where our own daemon should be */
    }
    link->fd = fd;
    return 0;
}

static void fill_hello(const struct spdl_client_target *target, Spdl__V1__Hello *hello,
                       Spdl__V1__ToDaemon *request)
{
    spdl__v1__hello__init(hello);
    hello->protocol = SPDL_PROTO_VERSION;
    hello->layout_major = SPDL_SHM_MAJOR;
    hello->client = target->client_name;
    hello->pid = getpid();
    spdl__v1__to_daemon__init(request);
    request->body_case = SPDL__V1__TO_DAEMON__BODY_HELLO;
    request->hello = hello;
}

int spdl_client_link_queue_hello(struct spdl_client_link *link,
                                 const struct spdl_client_target *target)
{
    Spdl__V1__Hello hello;
    Spdl__V1__ToDaemon request;
    fill_hello(target, &hello, &request);
    request.id = ++link->last_id;
    return spdl_proto_queue_to_daemon(&link->out, &request);
}

int spdl_client_link_check_hello(const Spdl__V1__ToClient *reply,
                                 struct spdl_client_hello *ret_hello,
                                 struct spdl_client_error *error)
{
    if (reply->body_case != SPDL__V1__TO_CLIENT__BODY_HELLO)
        return spdl_client_fail(error, -EPROTO, 0, "what listens there does not speak as spdld");
    const Spdl__V1__HelloReply *hello = reply->hello;
    if (hello->protocol != SPDL_PROTO_VERSION || hello->layout_major != SPDL_SHM_MAJOR)
        return spdl_client_fail(error, -EPROTO, 0,
                                "spdld %.32s speaks protocol %u and layout %u, this library (%s) "
                                "protocol %d and layout %d: update the older one",
                                hello->version, hello->protocol, hello->layout_major, SPDL_VERSION,
                                SPDL_PROTO_VERSION, SPDL_SHM_MAJOR);
    ret_hello->pid = hello->pid;
    ret_hello->generation = hello->generation;
    ret_hello->is_private = hello->is_private;
    snprintf(ret_hello->version, sizeof(ret_hello->version), "%s", hello->version);
    return 0;
}

int spdl_client_link_take(struct spdl_client_link *link, Spdl__V1__ToClient **ret_message)
{
    const uint8_t *payload;
    size_t bytes;
    int rc = spdl_proto_next(&link->in, &payload, &bytes);
    if (rc <= 0)
        return rc;
    Spdl__V1__ToClient *message = spdl__v1__to_client__unpack(NULL, bytes, payload);
    spdl_proto_next_done(&link->in);
    if (!message)
        return -EPROTO;
    *ret_message = message;
    return 1;
}

/* Takes messages until the answer to `id` is among them; others are of no interest here. */
static int take_answer(struct spdl_client_link *link, uint32_t id, Spdl__V1__ToClient **ret_reply)
{
    for (;;) {
        Spdl__V1__ToClient *message;
        int rc = spdl_client_link_take(link, &message);
        if (rc <= 0)
            return rc;
        /* An Error without an id is about the whole connection. */
        if (message->id == id ||
            (message->id == 0 && message->body_case == SPDL__V1__TO_CLIENT__BODY_ERROR)) {
            *ret_reply = message;
            return 1;
        }
        spdl__v1__to_client__free_unpacked(message, NULL);
    }
}

/* Sends and receives until there is an answer or something failed. */
static int exchange_loop(struct spdl_client_link *link, uint32_t id, int64_t deadline_ns,
                         int signals_count, Spdl__V1__ToClient **ret_reply)
{
    for (;;) {
        int sent = spdl_proto_flush(link->fd, &link->out);
        int rc = take_answer(link, id, ret_reply);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        rc = spdl_proto_receive(link->fd, &link->in, 0);
        if (rc == 0)
            continue; /* also when sending failed: the reason may be on its way */
        if (rc != -EAGAIN)
            return rc == -ENODATA ? -EPIPE : rc;
        if (sent < 0 && sent != -EAGAIN)
            return sent;
        struct pollfd poll_fd = {.fd = link->fd, .events = POLLIN};
        if (sent == -EAGAIN)
            poll_fd.events |= POLLOUT;
        rc = spdl_client_poll(&poll_fd, 1, deadline_ns);
        if (rc == -EINTR && !signals_count)
            continue;
        if (rc < 0)
            return rc;
        if (rc == 0)
            return -ETIMEDOUT;
    }
}

/* An Error's own words; its code is made to be a negative errno. */
static int error_of_reply(const Spdl__V1__Error *reply, struct spdl_client_error *error)
{
    int code = reply->code < 0 && reply->code > -4096 ? reply->code : -EPROTO;
    return spdl_client_fail(error, code, reply->class_number, "%s", reply->message);
}

int spdl_client_link_exchange(struct spdl_client_link *link, Spdl__V1__ToDaemon *request,
                              int64_t deadline_ns, int signals_count,
                              Spdl__V1__ToClient **ret_reply, struct spdl_client_error *error)
{
    request->id = ++link->last_id;
    char words[128];
    int rc = spdl_proto_queue_to_daemon(&link->out, request);
    if (rc < 0)
        return spdl_client_fail(error, rc, 0, "the request cannot be sent: %s",
                                spdl_client_errno_text(rc, words, sizeof(words)));
    Spdl__V1__ToClient *reply = NULL;
    rc = exchange_loop(link, request->id, deadline_ns, signals_count, &reply);
    if (rc == -ETIMEDOUT)
        return spdl_client_fail(error, rc, SPDL_CLASS_TIMEOUT, "the daemon does not answer");
    if (rc == -EINTR)
        return spdl_client_fail(error, rc, 0, "interrupted by a signal");
    if (rc == -EPROTO)
        return spdl_client_fail(error, rc, 0, "the daemon sent what cannot be read");
    if (rc < 0 || !reply)
        return spdl_client_fail(error, -EPIPE, SPDL_CLASS_DAEMON_GONE,
                                "the daemon closed the connection");
    if (reply->body_case == SPDL__V1__TO_CLIENT__BODY_ERROR) {
        rc = error_of_reply(reply->error, error);
        spdl__v1__to_client__free_unpacked(reply, NULL);
        return rc;
    }
    *ret_reply = reply;
    return 0;
}

int spdl_client_link_hello(struct spdl_client_link *link, const struct spdl_client_target *target,
                           int64_t deadline_ns, int signals_count,
                           struct spdl_client_hello *ret_hello, struct spdl_client_error *error)
{
    Spdl__V1__Hello hello;
    Spdl__V1__ToDaemon request;
    fill_hello(target, &hello, &request);
    Spdl__V1__ToClient *reply = NULL;
    int rc = spdl_client_link_exchange(link, &request, deadline_ns, signals_count, &reply, error);
    if (rc < 0 || !reply)
        return rc;
    rc = spdl_client_link_check_hello(reply, ret_hello, error);
    spdl__v1__to_client__free_unpacked(reply, NULL);
    return rc;
}
