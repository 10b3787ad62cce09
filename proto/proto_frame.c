/* Frames of the control socket (see proto_frame.h): what was received in part waits in `in`, what
 * could not be sent yet in `out`. Buffers grow with the bytes that really came, never with a length
 * that the peer only announced. No role of its own: the owner of the struct. */
#include "proto/proto_frame.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    HEAD_BYTES = 4,
    BUFFER_FIRST = 4096,     /* of a buffer's first allocation */
    BUFFER_KEPT = 64 * 1024, /* an empty buffer above this size is given back */
    ROOM_MIN = 1024,         /* less room than this is not worth a read */
    BUFFER_MAX = HEAD_BYTES + SPDL_PROTO_FRAME_MAX
};

static uint32_t head_load(const uint8_t *head)
{
    return (uint32_t)head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 |
           (uint32_t)head[3] << 24;
}

static void head_store(uint8_t *head, uint32_t bytes)
{
    head[0] = (uint8_t)bytes;
    head[1] = (uint8_t)(bytes >> 8);
    head[2] = (uint8_t)(bytes >> 16);
    head[3] = (uint8_t)(bytes >> 24);
}

static void close_all(int *fds, int *count)
{
    for (int i = 0; i < *count; i++)
        close(fds[i]);
    *count = 0;
}

void spdl_proto_in_fini(struct spdl_proto_in *in)
{
    close_all(in->fds, &in->fd_count);
    free(in->buffer);
    memset(in, 0, sizeof(*in));
}

void spdl_proto_out_fini(struct spdl_proto_out *out)
{
    close_all(out->fds, &out->fd_count);
    free(out->buffer);
    memset(out, 0, sizeof(*out));
}

/* Makes the capacity at least `bytes`, which the caller has bounded. */
static int buffer_reserve(uint8_t **buffer, size_t *capacity, size_t bytes)
{
    if (bytes <= *capacity)
        return 0;
    size_t next = *capacity > 0 ? *capacity : BUFFER_FIRST;
    while (next < bytes)
        next *= 2;
    uint8_t *moved = realloc(*buffer, next);
    if (!moved)
        return -ENOMEM;
    *buffer = moved;
    *capacity = next;
    return 0;
}

/* Moves what waits to the front and makes room for a read; *ret_room is 0 when a whole frame of the
 * maximum waits to be taken. */
static int make_room(struct spdl_proto_in *in, size_t *ret_room)
{
    if (in->start > 0 && in->bytes > 0)
        memmove(in->buffer, in->buffer + in->start, in->bytes);
    in->start = 0;
    if (in->bytes == 0 && in->capacity > BUFFER_KEPT) {
        free(in->buffer);
        in->buffer = NULL;
        in->capacity = 0;
    }
    size_t wanted = in->bytes + ROOM_MIN;
    if (wanted > BUFFER_MAX)
        wanted = BUFFER_MAX;
    int rc = buffer_reserve(&in->buffer, &in->capacity, wanted);
    if (rc < 0)
        return rc;
    size_t end = in->capacity < BUFFER_MAX ? in->capacity : BUFFER_MAX;
    *ret_room = end > in->bytes ? end - in->bytes : 0;
    return 0;
}

/* Takes the descriptors out of a received control buffer; those beyond the maximum are closed. */
static int take_fds(struct spdl_proto_in *in, struct msghdr *message)
{
    int rc = (message->msg_flags & MSG_CTRUNC) != 0 ? -EPROTO : 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (in->fd_count < SPDL_PROTO_FDS_MAX) {
                in->fds[in->fd_count++] = fd;
            } else {
                close(fd);
                rc = -EPROTO;
            }
        }
    }
    return rc;
}

/* Is the length of the first frame one that may be? */
static int check_head(const struct spdl_proto_in *in)
{
    if (in->bytes < HEAD_BYTES)
        return 0;
    uint32_t bytes = head_load(in->buffer + in->start);
    size_t limit =
        in->limit > 0 && in->limit < SPDL_PROTO_FRAME_MAX ? in->limit : SPDL_PROTO_FRAME_MAX;
    return bytes == 0 || bytes > limit ? -EPROTO : 0;
}

int spdl_proto_receive(int fd, struct spdl_proto_in *in, int accept_fds)
{
    size_t room;
    int rc = make_room(in, &room);
    if (rc < 0)
        return rc;
    if (room == 0)
        return check_head(in);
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * SPDL_PROTO_FDS_MAX)];
    } control;
    struct iovec vector = {.iov_base = in->buffer + in->bytes, .iov_len = room};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (accept_fds) { /* without a control buffer the kernel closes descriptors itself */
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
    }
    ssize_t got;
    do {
        got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    rc = accept_fds ? take_fds(in, &message) : 0;
    if (rc < 0)
        return rc;
    if (got == 0)
        return -ENODATA;
    in->bytes += (size_t)got;
    return check_head(in);
}

int spdl_proto_next(struct spdl_proto_in *in, const uint8_t **ret_payload, size_t *ret_bytes)
{
    if (in->bytes < HEAD_BYTES)
        return 0;
    int rc = check_head(in);
    if (rc < 0)
        return rc;
    size_t bytes = head_load(in->buffer + in->start);
    if (in->bytes < HEAD_BYTES + bytes)
        return 0;
    *ret_payload = in->buffer + in->start + HEAD_BYTES;
    *ret_bytes = bytes;
    return 1;
}

void spdl_proto_next_done(struct spdl_proto_in *in)
{
    if (in->bytes < HEAD_BYTES)
        return;
    size_t frame = HEAD_BYTES + (size_t)head_load(in->buffer + in->start);
    if (frame > in->bytes)
        return;
    in->start += frame;
    in->bytes -= frame;
}

/* Makes room for a frame of `bytes` behind what waits and writes its head; the caller packs at
 * *ret_payload and then counts it. */
static int frame_begin(struct spdl_proto_out *out, size_t bytes, uint8_t **ret_payload)
{
    if (bytes == 0 || bytes > SPDL_PROTO_FRAME_MAX)
        return -EMSGSIZE;
    if (out->bytes + HEAD_BYTES + bytes > out->limit)
        return -ENOBUFS;
    int rc = buffer_reserve(&out->buffer, &out->capacity, out->bytes + HEAD_BYTES + bytes);
    if (rc < 0)
        return rc;
    head_store(out->buffer + out->bytes, (uint32_t)bytes);
    *ret_payload = out->buffer + out->bytes + HEAD_BYTES;
    return 0;
}

int spdl_proto_queue_to_daemon(struct spdl_proto_out *out, const Spdl__V1__ToDaemon *message)
{
    size_t bytes = spdl__v1__to_daemon__get_packed_size(message);
    uint8_t *payload;
    int rc = frame_begin(out, bytes, &payload);
    if (rc < 0)
        return rc;
    spdl__v1__to_daemon__pack(message, payload);
    out->bytes += HEAD_BYTES + bytes;
    return 0;
}

/* Duplicates descriptors for a frame that will begin at fd_at. */
static int keep_fds(struct spdl_proto_out *out, const int *fds, int fd_count)
{
    if (fd_count < 0 || fd_count > SPDL_PROTO_FDS_MAX)
        return -EINVAL;
    if (fd_count > 0 && out->fd_count > 0)
        return -ENOBUFS;
    for (int i = 0; i < fd_count; i++) {
        int copy = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
        if (copy < 0) {
            int rc = -errno;
            close_all(out->fds, &out->fd_count);
            return rc;
        }
        out->fds[out->fd_count++] = copy;
    }
    if (fd_count > 0)
        out->fd_at = out->bytes;
    return 0;
}

int spdl_proto_queue_to_client(struct spdl_proto_out *out, const Spdl__V1__ToClient *message,
                               const int *fds, int fd_count)
{
    size_t bytes = spdl__v1__to_client__get_packed_size(message);
    uint8_t *payload;
    int rc = frame_begin(out, bytes, &payload);
    if (rc < 0)
        return rc;
    rc = keep_fds(out, fds, fd_count);
    if (rc < 0)
        return rc;
    spdl__v1__to_client__pack(message, payload);
    out->bytes += HEAD_BYTES + bytes;
    return 0;
}

/* One sendmsg: the bytes in front of waiting descriptors go alone, so that the descriptors arrive
 * with the first byte of their frame. */
static ssize_t send_some(int fd, struct spdl_proto_out *out, size_t sent)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * SPDL_PROTO_FDS_MAX)];
    } control;
    struct iovec vector = {.iov_base = out->buffer + sent, .iov_len = out->bytes - sent};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (out->fd_count > 0 && out->fd_at > sent) {
        vector.iov_len = out->fd_at - sent;
    } else if (out->fd_count > 0) {
        size_t fd_bytes = sizeof(int) * (size_t)out->fd_count;
        memset(&control, 0, sizeof(control));
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(fd_bytes);
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(fd_bytes);
        memcpy(CMSG_DATA(c), out->fds, fd_bytes);
    }
    ssize_t n;
    do {
        n = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    if (message.msg_control)
        close_all(out->fds, &out->fd_count);
    return n;
}

int spdl_proto_flush(int fd, struct spdl_proto_out *out)
{
    size_t sent = 0;
    int rc = 0;
    while (sent < out->bytes && rc == 0) {
        ssize_t n = send_some(fd, out, sent);
        if (n < 0)
            rc = (int)n;
        else
            sent += (size_t)n;
    }
    if (sent > 0 && sent < out->bytes)
        memmove(out->buffer, out->buffer + sent, out->bytes - sent);
    out->bytes -= sent;
    out->fd_at = out->fd_at > sent ? out->fd_at - sent : 0;
    if (out->bytes == 0 && out->capacity > BUFFER_KEPT) {
        free(out->buffer);
        out->buffer = NULL;
        out->capacity = 0;
    }
    return rc;
}
