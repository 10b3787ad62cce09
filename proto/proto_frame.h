/* Frames of the control socket: a length, one packed message, descriptors beside it. One sender and
 * one receiver, for clients and daemon alike; both work on non-blocking sockets and keep what is
 * half sent or half received. Bytes from the peer are never trusted: lengths are bounded, surplus
 * descriptors are closed. */
#ifndef SPDL_PROTO_FRAME_H
#define SPDL_PROTO_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "proto/spdl_control.pb-c.h"

enum {
    SPDL_PROTO_VERSION = 1,
    SPDL_PROTO_VERSION_OLDEST = 1,
    SPDL_PROTO_FRAME_MAX = 1 << 20, /* bytes of one message */
    SPDL_PROTO_FDS_MAX = 4,         /* descriptors of one frame */
    SPDL_PROTO_FIELDS_MAX = 1024,   /* fields of one message to the daemon, inner ones too */
    SPDL_PROTO_STREAM_MAX = 8192    /* bytes of a Release, Close or Unmapped */
};

struct spdl_proto_in {
    size_t limit;    /* bytes of one message; 0: SPDL_PROTO_FRAME_MAX; set by the owner */
    uint8_t *buffer; /* owned; grows up to the frame maximum */
    size_t capacity;
    size_t start, bytes;         /* what was received and not taken yet */
    int fds[SPDL_PROTO_FDS_MAX]; /* received and not taken yet; owned */
    int fd_count;
};

struct spdl_proto_out {
    uint8_t *buffer; /* owned; bytes not sent yet */
    size_t capacity, bytes;
    size_t limit;                /* -ENOBUFS above it; set by the owner */
    int fds[SPDL_PROTO_FDS_MAX]; /* duplicates, to be sent with byte fd_at of the buffer; closed
                                    once sent; one set may wait at a time */
    int fd_count;
    size_t fd_at;
};

void spdl_proto_in_fini(struct spdl_proto_in *in);
void spdl_proto_out_fini(struct spdl_proto_out *out);

/* One read of what the socket has, which never blocks: returns 0; -ENODATA: the peer closed;
 * -EAGAIN: nothing there; -EPROTO: a length of 0 or above the limit, or too many descriptors;
 * another negative errno from recvmsg. accept_fds = 0: descriptors are closed at once. There may be
 * more in the socket: take the frames, then poll or call again. Whoever takes descriptors out of
 * `fds` sets fd_count to 0. */
int spdl_proto_receive(int fd, struct spdl_proto_in *in, int accept_fds);

/* The next whole frame in `in`: returns 1 with *ret_payload and *ret_bytes, valid until
 * spdl_proto_next_done; 0: none yet; -EPROTO: its length is 0 or above the limit. */
int spdl_proto_next(struct spdl_proto_in *in, const uint8_t **ret_payload, size_t *ret_bytes);
void spdl_proto_next_done(struct spdl_proto_in *in);

/* Looks at a packed ToDaemon before it is unpacked, so that unpacking it takes little time and
 * memory whoever made it. Returns the number of the body's field in ToDaemon (0: it has none);
 * -EPROTO: it is cut, of an unknown form, of more fields than SPDL_PROTO_FIELDS_MAX, or a message
 * about a stream above SPDL_PROTO_STREAM_MAX. */
int spdl_proto_scan(const uint8_t *payload, size_t bytes);

/* Packs a message behind what waits already, whole or not at all. fds (borrowed) are duplicated.
 * -ENOBUFS: above the limit, or descriptors wait already; -EMSGSIZE: above the frame maximum;
 * -ENOMEM; -EMFILE. */
int spdl_proto_queue_to_daemon(struct spdl_proto_out *out, const Spdl__V1__ToDaemon *message);
int spdl_proto_queue_to_client(struct spdl_proto_out *out, const Spdl__V1__ToClient *message,
                               const int *fds, int fd_count);

/* Sends what waits without blocking: 0: all gone; -EAGAIN: some is left; another negative errno:
 * the peer is gone (EPIPE never raises a signal). */
int spdl_proto_flush(int fd, struct spdl_proto_out *out);

#endif
