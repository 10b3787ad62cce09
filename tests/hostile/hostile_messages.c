/* What a hostile rank says (see hostile.h): every message wrong in every way, floods, half things,
 * and nothing at all. The daemon may answer, refuse or hang up; that it lives and that others do
 * not notice is looked at by the test. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/hostile/hostile.h"

enum {
    BODY_FIRST = 2,
    BODY_LAST = 21,
    FDS_MAX = 253,
    CONNECTIONS = 300,
    ANSWER_MS = 2,
    FIELD_CODE = 3,
    FIELD_ERROR = 9,
    FIELD_SET = 20,
    FIELD_RELOAD = 21,
    ASKING = 64,
    QUESTIONS = 32
};

static const uint64_t odd_numbers[] = {
    0,          1,          127,        255,       65535,
    1u << 20,   INT32_MAX,  UINT32_MAX, INT64_MAX, (uint64_t)INT64_MAX + 1,
    UINT64_MAX, 0xfffffffe, 4096,       64,        3};

static void pause_ms(long ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&left, NULL);
}

/* A connection of its own, Hello first when asked for. */
static int greeted(const struct hostile *hostile, bool with_hello)
{
    struct message hello;
    int fd = wire_connect(hostile);
    message_hello(&hello);
    if (fd >= 0 && with_hello)
        wire_send_message(fd, &hello);
    return fd;
}

/* Sends it and hangs up behind a short look at the answer. */
static void say(struct hostile *hostile, bool with_hello, const void *data, size_t bytes)
{
    int fd = greeted(hostile, with_hello);
    if (fd < 0)
        return;
    if (wire_send(fd, data, bytes))
        wire_drain(fd, ANSWER_MS);
    close(fd);
    hostile->tried++;
}

/* A message that is good as far as it goes, for each body. */
static void sample(struct message *message, unsigned body)
{
    if (body == 2)
        message_hello(message);
    else if (body == 3)
        message_open(message, 2);
    else if (body <= 6)
        message_of_stream(message, body, 1, body == 4 ? 0 : -1);
    else
        message_ask(message, body);
}

/* Cut at every length, with a length that is wrong, twice, before Hello, and as a reply. */
static void one_body(struct hostile *hostile, unsigned body)
{
    struct message message;
    sample(&message, body);
    for (size_t bytes = 1; bytes <= message.bytes; bytes++)
        say(hostile, bytes % 2 == 0, message.data, bytes);
    for (int off = -3; off <= 3; off++) {
        struct message wrong = message;
        wrong.data[0] = (uint8_t)(wrong.data[0] + off);
        say(hostile, true, wrong.data, wrong.bytes);
    }
    struct message twice = message;
    message_raw(&twice, message.data + 4, message.bytes - 4);
    message_end(&twice);
    say(hostile, true, twice.data, twice.bytes);
    for (size_t i = 0; i < sizeof odd_numbers / sizeof *odd_numbers; i++) {
        struct message inner = {0}, outer;
        for (unsigned field = 1; field <= 12; field++)
            message_number(&inner, field, odd_numbers[i]);
        message_begin(&outer);
        message_bytes(&outer, body, inner.data, inner.bytes);
        message_number(&outer, body, odd_numbers[i]);
        message_end(&outer);
        say(hostile, true, outer.data, outer.bytes);
    }
}

/* Fields of every number with numbers and with bytes, no body, text of another protocol. */
static void odd_ones(struct hostile *hostile)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    static const uint8_t lengths[][8] = {
        {0}, {0xff, 0xff, 0xff, 0xff}, {1, 0, 16, 0}, {0, 0, 0, 128}};
    say(hostile, false, http, sizeof http);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        say(hostile, i % 2 == 0, lengths[i], sizeof lengths[i]);
    for (unsigned field = 1; field < 40; field++) {
        struct message message;
        message_begin(&message);
        message_number(&message, field, 1);
        message_end(&message);
        say(hostile, true, message.data, message.bytes);
        message_begin(&message);
        message_bytes(&message, field, "\x08\x01\x12\x02\xff\xff", 6);
        message_end(&message);
        say(hostile, true, message.data, message.bytes);
    }
}

/* Closes, releases and unmaps in every wrong order, on a stream of its own and on others'. */
static void wrong_order(struct hostile *hostile)
{
    for (unsigned first = 4; first <= 6; first++)
        for (unsigned second = 4; second <= 6; second++)
            for (uint64_t stream = 0; stream < 4; stream++) {
                struct rank rank;
                struct message message;
                if (!rank_open(hostile, &rank, 2))
                    continue;
                message_of_stream(&message, first, stream ? stream : rank.stream, 1 << 20);
                wire_send_message(rank.fd, &message);
                message_of_stream(&message, second, stream ? stream : rank.stream, -1);
                for (int i = 0; i < 4; i++)
                    wire_send_message(rank.fd, &message);
                wire_drain(rank.fd, ANSWER_MS);
                rank_close(&rank);
                hostile->tried++;
            }
}

void mode_messages(struct hostile *hostile)
{
    for (unsigned body = BODY_FIRST; body <= BODY_LAST; body++)
        one_body(hostile, body);
    odd_ones(hostile);
    wrong_order(hostile);
}

void mode_random(struct hostile *hostile)
{
    double end = hostile_now() + hostile->seconds;
    while (hostile_now() < end) {
        struct message message;
        sample(&message, BODY_FIRST + hostile_random(hostile) % (BODY_LAST - 1));
        uint32_t changes = hostile_random(hostile) % 8;
        for (uint32_t i = 0; i < changes; i++)
            message.data[hostile_random(hostile) % message.bytes] =
                (uint8_t)hostile_random(hostile);
        for (size_t i = 0; changes == 7 && i < message.bytes; i++)
            message.data[i] = (uint8_t)hostile_random(hostile);
        say(hostile, hostile_random(hostile) % 2, message.data, message.bytes);
    }
}

/* Messages of as many tiny fields as there is room for: dear to unpack. */
void mode_fields(struct hostile *hostile)
{
    double end = hostile_now() + hostile->seconds;
    for (unsigned body = BODY_FIRST; hostile_now() < end;
         body = body < BODY_LAST ? body + 1 : BODY_FIRST) {
        static struct message inner, outer;
        inner.bytes = 0;
        while (inner.bytes < 60000)
            message_number(&inner, body % 2 ? 2 : 100, 1);
        message_begin(&outer);
        message_bytes(&outer, body, inner.data, inner.bytes);
        message_end(&outer);
        say(hostile, true, outer.data, outer.bytes);
    }
}

/* An Error, or a ChangeReply that begins with its code: nothing was changed. */
static bool is_refusal(const uint8_t *reply)
{
    if (reply[6] == (FIELD_ERROR << 3 | 2))
        return true;
    return reply[reply[8] < 128 ? 9 : 10] == FIELD_CODE << 3;
}

/* Another user than the daemon's changes its settings: it must be refused. */
void mode_change(struct hostile *hostile)
{
    static const char *const sets[] = {"slots=9", "log.level=debug", "memory=1GiB"};
    for (size_t i = 0; i <= sizeof sets / sizeof *sets; i++) {
        struct message message, inner = {0};
        bool is_set = i < sizeof sets / sizeof *sets;
        uint8_t reply[4096] = {0};
        int fd = greeted(hostile, true);
        if (fd < 0)
            continue;
        struct ucred daemon = {.uid = geteuid()};
        socklen_t bytes = sizeof daemon;
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &daemon, &bytes);
        bool is_stranger = daemon.uid != geteuid() && geteuid() != 0;
        wire_drain(fd, 1000); /* HelloReply */
        if (is_set)
            message_bytes(&inner, 1, sets[i], strlen(sets[i]));
        message_begin(&message);
        message_number(&message, 1, 7);
        message_bytes(&message, is_set ? FIELD_SET : FIELD_RELOAD, inner.data, inner.bytes);
        message_end(&message);
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        if (is_stranger && wire_send_message(fd, &message) && poll(&poll_fd, 1, 1000) > 0) {
            ssize_t n = recv(fd, reply, sizeof reply, MSG_DONTWAIT);
            hostile_tried(hostile, n > 0 && !is_refusal(reply), "%s by a stranger",
                          is_set ? sets[i] : "reload");
        }
        close(fd);
        hostile->tried++;
    }
}

/* --- descriptors --- */

static int a_descriptor(unsigned kind)
{
    int pair[2] = {-1, -1};
    if (kind == 0)
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (kind == 1)
        return open("/", O_PATH | O_CLOEXEC);
    if (kind == 2)
        return memfd_create("hostile", MFD_CLOEXEC);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0)
        close(pair[1]);
    return pair[0];
}

static void send_descriptors(int fd, int sent, int count, const void *data, size_t bytes)
{
    static union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * FDS_MAX)];
    } control;
    union { /* sendmsg only reads */
        const void *from;
        void *to;
    } pointer = {.from = data};
    struct iovec vector = {.iov_base = pointer.to, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count)};
    struct cmsghdr *c = &control.align;
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
    for (int i = 0; i < count; i++)
        memcpy(CMSG_DATA(c) + sizeof(int) * (size_t)i, &sent, sizeof sent);
    if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        wire_send(fd, data, bytes); /* the kernel refused the descriptors: the bytes alone */
}

void mode_descriptors(struct hostile *hostile)
{
    static const int counts[] = {1, 2, 4, 5, 64, FDS_MAX};
    double end = hostile_now() + hostile->seconds;
    for (unsigned turn = 0; hostile_now() < end; turn++) {
        int sent = a_descriptor(turn % 4), count = counts[turn % 6];
        int fd = wire_connect(hostile);
        for (unsigned body = BODY_FIRST; fd >= 0 && body <= BODY_LAST; body++) {
            struct message message;
            sample(&message, body);
            send_descriptors(fd, sent, count, message.data, message.bytes);
            if (turn % 2) /* in the middle of a message, too */
                send_descriptors(fd, sent, count, message.data, 3);
            hostile->tried++;
        }
        if (fd >= 0) {
            wire_drain(fd, ANSWER_MS);
            close(fd);
        }
        close(sent);
    }
}

/* --- connections --- */

void mode_connections(struct hostile *hostile)
{
    double end = hostile_now() + hostile->seconds;
    while (hostile_now() < end) {
        int held[CONNECTIONS], count = 0;
        for (int i = 0; i < CONNECTIONS; i++) {
            int fd = greeted(hostile, i % 3 > 0);
            if (fd >= 0)
                held[count++] = fd;
        }
        pause_ms(20);
        for (int i = 0; i < count; i++)
            close(held[i]);
        hostile->tried += (uint64_t)count;
    }
}

/* --- slowness --- */

/* Writes byte by byte and reads byte by byte. */
void mode_slow(struct hostile *hostile)
{
    double end = hostile_now() + hostile->seconds;
    while (hostile_now() < end) {
        int fd = wire_connect(hostile);
        for (unsigned body = BODY_FIRST; fd >= 0 && body <= BODY_LAST; body++) {
            struct message message;
            sample(&message, body);
            for (size_t i = 0; i < message.bytes && hostile_now() < end; i++) {
                uint8_t byte;
                if (!wire_send(fd, message.data + i, 1))
                    break;
                recv(fd, &byte, 1, MSG_DONTWAIT);
                pause_ms(1);
                hostile->tried++;
            }
        }
        if (fd >= 0)
            close(fd);
        pause_ms(1);
    }
}

/* Many connections that each ask a lot at once and read all the answers. */
void mode_questions(struct hostile *hostile)
{
    static const unsigned asked[] = {8, 7, 9, 12, 15, 3, 10, 8};
    double end = hostile_now() + hostile->seconds;
    int fds[ASKING];
    for (int i = 0; i < ASKING; i++)
        fds[i] = greeted(hostile, true);
    for (unsigned turn = 0; hostile_now() < end; turn++) {
        int *fd = &fds[turn % ASKING];
        static struct message burst, message;
        burst.bytes = 0;
        for (int i = 0; i < QUESTIONS; i++) {
            sample(&message, asked[(turn / ASKING + (unsigned)i) % 8]);
            message_raw(&burst, message.data, message.bytes);
        }
        if (*fd < 0 || !wire_send_message(*fd, &burst)) {
            if (*fd >= 0)
                close(*fd);
            *fd = greeted(hostile, true);
            continue;
        }
        while (wire_drain(*fd, 0) > 0)
            ;
        hostile->tried += QUESTIONS;
    }
    for (int i = 0; i < ASKING; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Asks as fast as it can and reads nothing, with the smallest room for answers. */
void mode_deaf(struct hostile *hostile)
{
    double end = hostile_now() + hostile->seconds;
    while (hostile_now() < end) {
        struct rank rank;
        struct message message;
        int least = 1;
        bool is_open = rank_open(hostile, &rank, 2);
        if (!is_open)
            rank.fd = greeted(hostile, true);
        setsockopt(rank.fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof least);
        message_ask(&message, 8);
        for (int i = 0; i < 100000 && hostile_now() < end; i++) {
            ssize_t n = send(rank.fd, message.data, message.bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && errno != EAGAIN)
                break;
            if (n < 0)
                pause_ms(5);
            hostile->tried += n > 0;
        }
        rank_close(&rank);
        pause_ms(1);
    }
}
