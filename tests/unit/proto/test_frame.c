/* Frames of the control socket: whole and in pieces, with descriptors, against garbage, truncation
 * and floods. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "proto/proto_frame.h"

struct pair {
    int a, b;
    struct spdl_proto_in in;
    struct spdl_proto_out out;
};

static void pair_init(struct pair *p)
{
    int fds[2];
    memset(p, 0, sizeof(*p));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    p->a = fds[0];
    p->b = fds[1];
    p->out.limit = 4 << 20;
}

static void pair_fini(struct pair *p)
{
    spdl_proto_in_fini(&p->in);
    spdl_proto_out_fini(&p->out);
    close(p->a);
    close(p->b);
}

static int open_fd_count(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void queue_release(struct pair *p, uint64_t *sequences, size_t count)
{
    Spdl__V1__Release release = SPDL__V1__RELEASE__INIT;
    release.stream = 7;
    release.n_sequences = count;
    release.sequences = sequences;
    Spdl__V1__ToDaemon message = SPDL__V1__TO_DAEMON__INIT;
    message.id = 3;
    message.body_case = SPDL__V1__TO_DAEMON__BODY_RELEASE;
    message.release = &release;
    assert_int_equal(spdl_proto_queue_to_daemon(&p->out, &message), 0);
}

static int queue_config(struct pair *p, size_t text_bytes, const int *fds, int fd_count)
{
    char *text = malloc(text_bytes + 1);
    assert_non_null(text);
    memset(text, 'x', text_bytes);
    text[text_bytes] = 0;
    Spdl__V1__ConfigReply config;
    spdl__v1__config_reply__init(&config);
    config.yaml = text;
    Spdl__V1__ToClient message = SPDL__V1__TO_CLIENT__INIT;
    message.body_case = SPDL__V1__TO_CLIENT__BODY_CONFIG;
    message.config = &config;
    int rc = spdl_proto_queue_to_client(&p->out, &message, fds, fd_count);
    free(text);
    return rc;
}

static Spdl__V1__ToDaemon *take_to_daemon(struct pair *p)
{
    const uint8_t *payload;
    size_t bytes;
    if (spdl_proto_next(&p->in, &payload, &bytes) != 1)
        return NULL;
    Spdl__V1__ToDaemon *message = spdl__v1__to_daemon__unpack(NULL, bytes, payload);
    spdl_proto_next_done(&p->in);
    return message;
}

static Spdl__V1__ToDaemon *must_take(struct pair *p)
{
    Spdl__V1__ToDaemon *message = take_to_daemon(p);
    assert_non_null(message);
    if (!message)
        abort();
    return message;
}

static void test_round_trip(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p);
    uint64_t sequences[] = {1, UINT64_MAX, 300};
    queue_release(&p, sequences, 3);
    queue_release(&p, sequences, 0);
    assert_int_equal(spdl_proto_flush(p.a, &p.out), 0);
    assert_int_equal(p.out.bytes, 0);
    assert_int_equal(spdl_proto_receive(p.b, &p.in, 0), 0);
    Spdl__V1__ToDaemon *m = must_take(&p);
    assert_int_equal(m->id, 3);
    assert_int_equal(m->body_case, SPDL__V1__TO_DAEMON__BODY_RELEASE);
    assert_int_equal(m->release->stream, 7);
    assert_int_equal(m->release->n_sequences, 3);
    assert_true(m->release->sequences[1] == UINT64_MAX);
    spdl__v1__to_daemon__free_unpacked(m, NULL);
    m = must_take(&p);
    assert_int_equal(m->release->n_sequences, 0);
    spdl__v1__to_daemon__free_unpacked(m, NULL);
    assert_null(take_to_daemon(&p));
    assert_int_equal(spdl_proto_receive(p.b, &p.in, 0), -EAGAIN);
    close(p.a);
    p.a = -1;
    assert_int_equal(spdl_proto_receive(p.b, &p.in, 0), -ENODATA);
    pair_fini(&p);
}

/* A frame cut at every length, then completed byte by byte, gives the same message. */
static void test_every_cut(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p);
    uint64_t sequences[] = {5, 6};
    queue_release(&p, sequences, 2);
    uint8_t whole[64];
    size_t bytes = p.out.bytes;
    assert_true(bytes < sizeof(whole));
    memcpy(whole, p.out.buffer, bytes);
    for (size_t cut = 1; cut < bytes; cut++) {
        assert_int_equal(send(p.a, whole, cut, 0), cut);
        assert_int_equal(spdl_proto_receive(p.b, &p.in, 0), 0);
        assert_null(take_to_daemon(&p));
        for (size_t i = cut; i < bytes; i++) {
            assert_null(take_to_daemon(&p));
            assert_int_equal(send(p.a, whole + i, 1, 0), 1);
            assert_int_equal(spdl_proto_receive(p.b, &p.in, 0), 0);
        }
        Spdl__V1__ToDaemon *m = must_take(&p);
        assert_int_equal(m->release->sequences[1], 6);
        spdl__v1__to_daemon__free_unpacked(m, NULL);
    }
    pair_fini(&p);
}

/* A peer that does not read: the rest waits and arrives in order, descriptors with their own frame.
 */
static void test_slow_reader(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p);
    int before = open_fd_count();
    int pipe_fds[2];
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    assert_int_equal(queue_config(&p, 1000 * 1000, NULL, 0), 0);
    assert_int_equal(queue_config(&p, 10, pipe_fds, 2), 0);
    assert_int_equal(queue_config(&p, 10, pipe_fds, 1), -ENOBUFS);
    assert_int_equal(queue_config(&p, 1000, NULL, 0), 0);
    close(pipe_fds[1]);
    const size_t want[] = {1000 * 1000, 10, 1000};
    size_t at = 0;
    int again = 0;
    while (at < 3) {
        int rc = spdl_proto_flush(p.a, &p.out);
        assert_true(rc == 0 || rc == -EAGAIN);
        again += rc == -EAGAIN;
        rc = spdl_proto_receive(p.b, &p.in, 1);
        assert_true(rc == 0 || rc == -EAGAIN);
        const uint8_t *payload;
        size_t bytes;
        while (spdl_proto_next(&p.in, &payload, &bytes) == 1) {
            Spdl__V1__ToClient *m = spdl__v1__to_client__unpack(NULL, bytes, payload);
            assert_non_null(m);
            assert_int_equal(strlen(m->config->yaml), want[at]);
            if (at == 0)
                assert_int_equal(p.in.start, 0);
            if (at == 1)
                assert_int_equal(p.in.fd_count, 2);
            spdl__v1__to_client__free_unpacked(m, NULL);
            spdl_proto_next_done(&p.in);
            at++;
        }
    }
    assert_true(again > 0);
    assert_int_equal(p.out.fd_count, 0);
    /* The received write end is the same pipe: a byte goes through. */
    char byte = 'k';
    assert_int_equal(write(p.in.fds[1], &byte, 1), 1);
    assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
    assert_int_equal(fcntl(p.in.fds[0], F_GETFD), FD_CLOEXEC);
    close(pipe_fds[0]);
    spdl_proto_in_fini(&p.in);
    assert_int_equal(open_fd_count(), before);
    pair_fini(&p);
}

static void send_with_fds(int to, const void *data, size_t bytes, int fd, int count)
{
    int fds[16];
    char control[CMSG_SPACE(sizeof(fds))] __attribute__((aligned(16)));
    memset(control, 0, sizeof(control));
    for (int i = 0; i < count; i++)
        fds[i] = fd;
    struct iovec vector = {.iov_len = bytes};
    memcpy(&vector.iov_base, &data, sizeof(data));
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
    memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)count);
    assert_int_equal(sendmsg(to, &message, 0), bytes);
}

static void test_hostile_descriptors(void **state)
{
    (void)state;
    int before = open_fd_count();
    struct pair p;
    pair_init(&p);
    const uint8_t part[] = {9, 0, 0};
    send_with_fds(p.a, part, sizeof(part), 0, 10);
    assert_int_equal(spdl_proto_receive(p.b, &p.in, 1), -EPROTO); /* more than fit in one message */
    pair_fini(&p);
    pair_init(&p);
    send_with_fds(p.a, part, sizeof(part), 0, 3);
    send_with_fds(p.a, part, 1, 0, 3);
    assert_int_equal(spdl_proto_receive(p.b, &p.in, 1), 0);
    assert_int_equal(spdl_proto_receive(p.b, &p.in, 1), -EPROTO); /* more than one owner may hold */
    pair_fini(&p);
    pair_init(&p);
    int with = open_fd_count();
    send_with_fds(p.a, part, sizeof(part), 0, 10);
    assert_int_equal(spdl_proto_receive(p.b, &p.in, 0), 0); /* a side that takes none loses none */
    assert_int_equal(open_fd_count(), with);
    assert_int_equal(p.in.bytes, 3);
    pair_fini(&p);
    assert_int_equal(open_fd_count(), before);
}

static void expect_bad_length(uint32_t length)
{
    struct pair p;
    pair_init(&p);
    const uint8_t head[] = {(uint8_t)length, (uint8_t)(length >> 8), (uint8_t)(length >> 16),
                            (uint8_t)(length >> 24), 1};
    const uint8_t *payload;
    size_t bytes;
    assert_int_equal(send(p.a, head, sizeof(head), 0), sizeof(head));
    assert_int_equal(spdl_proto_receive(p.b, &p.in, 0), -EPROTO);
    assert_int_equal(spdl_proto_next(&p.in, &payload, &bytes), -EPROTO);
    pair_fini(&p);
}

static void test_bad_lengths(void **state)
{
    (void)state;
    expect_bad_length(0);
    expect_bad_length(SPDL_PROTO_FRAME_MAX + 1);
    expect_bad_length(UINT32_MAX);
    expect_bad_length(0x80000000u);
}

/* A length that is only announced costs no memory. */
static void test_announced_only(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p);
    const uint8_t head[] = {0, 0, 0x10, 0};
    assert_int_equal(send(p.a, head, 4, 0), 4);
    assert_int_equal(spdl_proto_receive(p.b, &p.in, 0), 0);
    assert_true(p.in.capacity <= 8192);
    pair_fini(&p);
}

static void test_limits(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p);
    assert_int_equal(queue_config(&p, SPDL_PROTO_FRAME_MAX, NULL, 0), -EMSGSIZE);
    p.out.limit = 1000;
    assert_int_equal(queue_config(&p, 1000, NULL, 0), -ENOBUFS);
    assert_int_equal(p.out.bytes, 0);
    assert_int_equal(queue_config(&p, 900, NULL, 0), 0);
    size_t bytes = p.out.bytes;
    assert_int_equal(queue_config(&p, 900, NULL, 0), -ENOBUFS);
    assert_int_equal(p.out.bytes, bytes);
    int bad = -1;
    assert_int_equal(queue_config(&p, 10, &bad, 1), -EBADF);
    assert_int_equal(p.out.bytes, bytes);
    assert_int_equal(p.out.fd_count, 0);
    close(p.b);
    p.b = -1;
    assert_int_equal(spdl_proto_flush(p.a, &p.out), -EPIPE); /* and no signal */
    pair_fini(&p);
}

/* The largest frame passes in full beside many small ones. */
static void test_largest_and_many(void **state)
{
    (void)state;
    struct pair p;
    pair_init(&p);
    uint64_t sequences[] = {1};
    for (int i = 0; i < 5000; i++)
        queue_release(&p, sequences, 1);
    size_t overhead = 8;
    assert_int_equal(queue_config(&p, SPDL_PROTO_FRAME_MAX - overhead, NULL, 0), 0);
    int frames = 0;
    while (frames < 5001) {
        int rc = spdl_proto_flush(p.a, &p.out);
        assert_true(rc == 0 || rc == -EAGAIN);
        rc = spdl_proto_receive(p.b, &p.in, 0);
        assert_true(rc == 0 || rc == -EAGAIN);
        const uint8_t *payload;
        size_t bytes;
        while (spdl_proto_next(&p.in, &payload, &bytes) == 1) {
            frames++;
            assert_true(frames < 5001 || bytes > SPDL_PROTO_FRAME_MAX - overhead);
            spdl_proto_next_done(&p.in);
        }
    }
    assert_int_equal(spdl_proto_receive(p.b, &p.in, 0), -EAGAIN);
    assert_true(p.in.capacity <= 64 * 1024); /* the large buffer was given back */
    pair_fini(&p);
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Garbage never does more than end the connection with -EPROTO. */
static void test_garbage(void **state)
{
    (void)state;
    uint32_t seed = 20240601;
    for (int round = 0; round < 2000; round++) {
        struct pair p;
        pair_init(&p);
        int rc = 0;
        for (int piece = 0; piece < 20 && rc == 0; piece++) {
            uint8_t bytes[64];
            size_t count = 1 + next_random(&seed) % sizeof(bytes);
            for (size_t i = 0; i < count; i++)
                bytes[i] = next_random(&seed) % 4 == 0 ? (uint8_t)next_random(&seed) : 0;
            assert_int_equal(send(p.a, bytes, count, 0), count);
            rc = spdl_proto_receive(p.b, &p.in, round & 1);
            const uint8_t *payload;
            size_t payload_bytes;
            int next;
            while ((next = spdl_proto_next(&p.in, &payload, &payload_bytes)) == 1) {
                Spdl__V1__ToDaemon *m = spdl__v1__to_daemon__unpack(NULL, payload_bytes, payload);
                if (m)
                    spdl__v1__to_daemon__free_unpacked(m, NULL);
                spdl_proto_next_done(&p.in);
            }
            assert_true(rc == 0 || rc == -EPROTO);
            assert_true(next == 0 || next == -EPROTO);
        }
        pair_fini(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_slow_reader), cmocka_unit_test(test_hostile_descriptors),
        cmocka_unit_test(test_bad_lengths), cmocka_unit_test(test_announced_only),
        cmocka_unit_test(test_limits),      cmocka_unit_test(test_largest_and_many),
        cmocka_unit_test(test_garbage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
