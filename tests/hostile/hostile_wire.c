/* Frames and messages by hand (see hostile.h): nothing of the product is used here. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/hostile/hostile.h"

enum { HEAD_BYTES = 4, SEND_MS = 1000 };

/* --- building --- */

void message_begin(struct message *message)
{
    message->bytes = HEAD_BYTES;
}

void message_raw(struct message *message, const void *data, size_t bytes)
{
    if (bytes > sizeof message->data - message->bytes)
        bytes = sizeof message->data - message->bytes;
    memcpy(message->data + message->bytes, data, bytes);
    message->bytes += bytes;
}

static void varint(struct message *message, uint64_t value)
{
    do {
        uint8_t byte = (uint8_t)((value & 127) | (value > 127 ? 128 : 0));
        message_raw(message, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

void message_number(struct message *message, unsigned field, uint64_t value)
{
    varint(message, (uint64_t)field << 3);
    varint(message, value);
}

void message_bytes(struct message *message, unsigned field, const void *data, size_t bytes)
{
    varint(message, (uint64_t)field << 3 | 2);
    varint(message, bytes);
    message_raw(message, data, bytes);
}

void message_end(struct message *message)
{
    uint32_t bytes = (uint32_t)(message->bytes - HEAD_BYTES);
    for (int i = 0; i < HEAD_BYTES; i++)
        message->data[i] = (uint8_t)(bytes >> (8 * i));
}

static void wrap(struct message *message, unsigned body, const struct message *inner)
{
    message_begin(message);
    message_number(message, 1, 7);
    message_bytes(message, body, inner->data, inner->bytes);
    message_end(message);
}

void message_hello(struct message *message)
{
    struct message inner = {0};
    message_number(&inner, 1, 1);
    message_number(&inner, 2, 1);
    message_bytes(&inner, 3, "hostile \xff\xfe\n", 11);
    message_number(&inner, 4, 1);
    wrap(message, 2, &inner);
}

void message_open(struct message *message, uint32_t slots)
{
    struct message inner = {0};
    message_bytes(&inner, 1, "p", 1);
    message_number(&inner, 3, 8);
    message_number(&inner, 5, 1);
    message_number(&inner, 9, slots);
    message_bytes(&inner, 12, "hostile\xff", 8);
    wrap(message, 3, &inner);
}

void message_of_stream(struct message *message, unsigned body, uint64_t stream, int64_t sequence)
{
    struct message inner = {0};
    message_number(&inner, 1, stream);
    if (sequence >= 0)
        message_number(&inner, 2, (uint64_t)sequence);
    wrap(message, body, &inner);
}

void message_ask(struct message *message, unsigned body)
{
    struct message inner = {0};
    if (body == 7) /* why: all of them */
        message_number(&inner, 2, 1);
    wrap(message, body, &inner);
}

/* --- talking --- */

int wire_connect(const struct hostile *hostile)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t bytes = strlen(hostile->socket);
    if (bytes >= sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path, hostile->socket, bytes);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

bool wire_send(int fd, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    while (bytes > 0) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
            continue;
        }
        struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
        if (errno != EAGAIN || poll(&poll_fd, 1, SEND_MS) <= 0)
            return false;
    }
    return true;
}

bool wire_send_message(int fd, const struct message *message)
{
    return wire_send(fd, message->data, message->bytes);
}

int wire_drain(int fd, int timeout_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    uint8_t bytes[4096];
    if (poll(&poll_fd, 1, timeout_ms) <= 0)
        return 0;
    ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    return n > 0 ? 1 : n < 0 && errno == EAGAIN ? 0 : -1;
}

/* --- a rank --- */

static uint64_t read_varint(const uint8_t *data, size_t bytes, size_t *at)
{
    uint64_t value = 0;
    for (unsigned shift = 0; *at < bytes && shift < 64; shift += 7) {
        uint8_t byte = data[(*at)++];
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            break;
    }
    return value;
}

/* Of an OpenReply: id (1), the reply's key and length, and in it the stream (1). */
static uint64_t stream_of(const uint8_t *data, size_t bytes)
{
    size_t at = HEAD_BYTES;
    for (int i = 0; i < 5; i++) /* key, id, key, length, key */
        read_varint(data, bytes, &at);
    return read_varint(data, bytes, &at);
}

/* Waits for a message with three descriptors. */
static bool receive_stream(struct rank *rank, int timeout_ms)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * STREAM_FDS)];
    } control;
    uint8_t data[512];
    struct pollfd poll_fd = {.fd = rank->fd, .events = POLLIN};
    for (int turn = 0; turn < 8 && poll(&poll_fd, 1, timeout_ms) > 0; turn++) {
        struct iovec vector = {.iov_base = data, .iov_len = sizeof data};
        struct msghdr message = {.msg_iov = &vector,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof control.bytes};
        ssize_t n = recvmsg(rank->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n <= 0)
            return false;
        const struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        if (!c || c->cmsg_type != SCM_RIGHTS)
            continue;
        memcpy(rank->fds, CMSG_DATA(c), sizeof rank->fds);
        rank->stream = stream_of(data, (size_t)n);
        return true;
    }
    return false;
}

bool rank_open(const struct hostile *hostile, struct rank *rank, uint32_t slots)
{
    struct message message;
    *rank = (struct rank){.fd = wire_connect(hostile), .fds = {-1, -1, -1}};
    if (rank->fd < 0)
        return false;
    message_hello(&message);
    bool good = wire_send_message(rank->fd, &message);
    message_open(&message, slots);
    good = good && wire_send_message(rank->fd, &message) && receive_stream(rank, 5000);
    if (!good)
        rank_close(rank);
    return good;
}

void rank_close(struct rank *rank)
{
    for (int i = 0; i < STREAM_FDS; i++)
        if (rank->fds[i] >= 0)
            close(rank->fds[i]);
    if (rank->fd >= 0)
        close(rank->fd);
    rank->fd = -1;
}
