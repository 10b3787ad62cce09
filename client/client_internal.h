/* Inside libspdl-client: what its files share. Nothing here is exported.
 * Owners. A connection has a link of its own for questions. Each stream has another one, which the
 * caller of spdl_next alone moves (the stream's `busy`); spdl_batch_unref only appends to what it
 * sends. `lock` guards the rest of a stream. A ring (two mapped segments) lives until it is neither
 * the stream's current one nor holds a batch of the caller's. A stream lives until it was closed
 * and its last batch came back. */
#ifndef SPDL_CLIENT_INTERNAL_H
#define SPDL_CLIENT_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/proto_frame.h"
#include "shm/shm_class.h"
#include "shm/shm_layout.h"
#include "spdl/client.h"

enum {
    SPDL_CLIENT_TEXT_BYTES = 1024, /* a sentence with its final 0 */
    SPDL_CLIENT_JOB_BYTES = 72,    /* a job's name, made safe, with its final 0 */
    SPDL_CLIENT_STARTS_MAX = 3,    /* of a private daemon without a batch in between */
    SPDL_CLIENT_POLL_MAX = 2
};

#define SPDL_CLIENT_SECOND_NS INT64_C(1000000000)
#define SPDL_CLIENT_MS_NS INT64_C(1000000)
#define SPDL_CLIENT_NEVER_NS INT64_MAX
/* ---- client_base.c: sentences, time, fork ---- */

struct spdl_client_error {
    uint32_t class_number; /* enum spdl_class, 0: none fits */
    char text[SPDL_CLIENT_TEXT_BYTES];
};

/* Stores a sentence (error may be NULL) and returns code. */
int spdl_client_fail(struct spdl_client_error *error, int code, uint32_t class_number,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));
const char *spdl_client_class_text(uint32_t class_number);
/* "connection refused" for a negative errno, in `buffer`. */
const char *spdl_client_errno_text(int code, char *buffer, size_t bytes);
int64_t spdl_client_now_ns(void); /* CLOCK_MONOTONIC */
/* now + seconds, without overflow; SPDL_CLIENT_NEVER_NS for a negative number. */
int64_t spdl_client_deadline_ns(int64_t now_ns, double seconds);
/* poll until deadline_ns (SPDL_CLIENT_NEVER_NS: no limit): as poll, negative errno on failure. */
int spdl_client_poll(struct pollfd *fds, uint32_t count, int64_t deadline_ns);
/* Copies at most `own` bytes of a caller's struct that says `given` of itself into a zeroed one:
 * -EINVAL when it sets what is not known here. */
int spdl_client_take_options(void *own_options, size_t own, const void *options, size_t given);
char *spdl_client_copy_text(const char *text, int *rc); /* NULL stays NULL; sets *rc to -ENOMEM */

/* A page whose byte the kernel clears in a forked child. */
struct spdl_client_guard {
    _Atomic unsigned char *page; /* in memory; NULL: the kernel cannot, then pid decides */
    void *memory;
    pid_t pid;
};
void spdl_client_guard_init(struct spdl_client_guard *guard);
void spdl_client_guard_fini(struct spdl_client_guard *guard);
int spdl_client_guard_forked(const struct spdl_client_guard *guard);
#define SPDL_CLIENT_FORKED_TEXT "this handle was made before a fork: connect again in the child"
/* ---- client_connection.c: where the daemon is, for a connection and its streams ---- */

struct spdl_client_target {
    _Atomic uint32_t refs;
    struct spdl_client_guard guard;
    int is_private;
    char *socket;
    char *config_file; /* absolute, or NULL */
    char **sets;
    size_t set_count;
    char *client_name;
    char job[SPDL_CLIENT_JOB_BYTES]; /* "": none */
    pid_t owner; /* private: the one process that the job is, 0: a job of several */
    int64_t reconnect_ns;
};
struct spdl_client_target *spdl_client_target_ref(struct spdl_client_target *target);
void spdl_client_target_unref(struct spdl_client_target *target); /* accepts NULL */
struct spdl_client_target *spdl_client_connection_target(const struct spdl_connection *connection);
void spdl_client_connection_set_error(struct spdl_connection *connection,
                                      const struct spdl_client_error *error);
/* ---- client_link.c: one socket ---- */

struct spdl_client_link {
    int fd; /* -1: none */
    struct spdl_proto_in in;
    struct spdl_proto_out out;
    uint32_t last_id;
};
struct spdl_client_hello {
    int64_t pid;
    uint64_t generation;
    int is_private;
    char version[32];
};
void spdl_client_link_init(struct spdl_client_link *link);
void spdl_client_link_close(struct spdl_client_link *link);
/* Never blocks; -EAGAIN: the daemon's queue is full. With is_private the other side must run as the
 * same user (-EACCES). */
int spdl_client_link_dial(struct spdl_client_link *link, const struct spdl_client_target *target);
int spdl_client_link_queue_hello(struct spdl_client_link *link,
                                 const struct spdl_client_target *target);
int spdl_client_link_check_hello(const Spdl__V1__ToClient *reply,
                                 struct spdl_client_hello *ret_hello,
                                 struct spdl_client_error *error);
/* The next message that came whole: 1, owned; 0: none yet; -EPROTO; -ENOMEM. */
int spdl_client_link_take(struct spdl_client_link *link, Spdl__V1__ToClient **ret_message);
/* Asks and waits until deadline_ns. An Error answer becomes its code, class and sentence. -EINTR
 * only when signals_count. */
int spdl_client_link_exchange(struct spdl_client_link *link, Spdl__V1__ToDaemon *request,
                              int64_t deadline_ns, int signals_count,
                              Spdl__V1__ToClient **ret_reply, struct spdl_client_error *error);
int spdl_client_link_hello(struct spdl_client_link *link, const struct spdl_client_target *target,
                           int64_t deadline_ns, int signals_count,
                           struct spdl_client_hello *ret_hello, struct spdl_client_error *error);
/* ---- client_private.c, client_spawn.c: the job's own daemon ---- */

/* Fills job, and with is_private owner and socket (unless it is set). */
int spdl_client_private_find(struct spdl_client_target *target, struct spdl_client_error *error);

struct spdl_client_start {
    int fd; /* -1: none; reads what a starting daemon says of itself */
    size_t bytes;
    char line[512];
};
void spdl_client_start_init(struct spdl_client_start *start);
void spdl_client_start_close(struct spdl_client_start *start);
int spdl_client_start_spawn(struct spdl_client_start *start,
                            const struct spdl_client_target *target,
                            struct spdl_client_error *error);
/* 1: it listens; 0: not yet; -EEXIST: another one was first; another: it failed, error has its
 * sentence. */
int spdl_client_start_read(struct spdl_client_start *start, struct spdl_client_error *error);
/* ---- client_ring.c: two mapped segments, and the one place where their words are checked ---- */

struct spdl_batch {
    _Atomic uint32_t refs;
    int is_taken; /* stream's lock */
    struct spdl_client_ring *ring;
    uint64_t sequence; /* the caller's */
    uint64_t wait_ns;
    struct spdl_shm_slot slot;                 /* a checked copy */
    uint32_t number;                           /* of the slot */
    uint64_t value_bytes[SPDL_SHM_FIELDS_MAX]; /* of ragged fields in it; checked */
};
struct spdl_client_ring {
    struct spdl_stream *stream; /* borrowed: a batch holds it */
    void *control, *data;
    uint64_t control_bytes, data_bytes;
    const _Atomic uint64_t *order;
    struct spdl_shm_header header;                     /* a checked copy */
    struct spdl_shm_field fields[SPDL_SHM_FIELDS_MAX]; /* checked copies */
    uint64_t base;                                     /* the caller's sequence of its batch 0 */
    uint64_t next; /* its batch to be given out next; stream's lock */
    uint64_t end;  /* none comes from here on; UINT64_MAX while it lives */
    uint32_t held; /* batches given out and not back; stream's lock */
    struct spdl_batch batches[SPDL_SHM_SLOTS_MAX];
};
/* Maps and checks both segments (descriptors borrowed). -EPROTO: they are not what they should be.
 */
int spdl_client_ring_create(int control_fd, uint64_t control_bytes, int data_fd,
                            uint64_t data_bytes, struct spdl_client_ring **ret_ring,
                            struct spdl_client_error *error);
void spdl_client_ring_destroy(struct spdl_client_ring *ring); /* accepts NULL */
/* Is batch k there? Then its slot. */
int spdl_client_ring_ready(const struct spdl_client_ring *ring, uint64_t k, uint32_t *ret_slot);
/* Copies and checks the descriptor of batch k in `slot`. */
int spdl_client_ring_slot(const struct spdl_client_ring *ring, uint64_t k, uint32_t slot,
                          struct spdl_shm_slot *ret_slot);
/* Checks the offsets of ragged fields of a batch whose slot was copied, and fills value_bytes. */
int spdl_client_ring_ragged(const struct spdl_client_ring *ring, struct spdl_batch *batch);
const int64_t *spdl_client_ring_offsets(const struct spdl_batch *batch, uint32_t field);
int spdl_client_ring_row(const struct spdl_client_ring *ring, const struct spdl_shm_slot *slot,
                         uint32_t row, struct spdl_row *ret_row);
/* ---- client_stream.c, client_attach.c, client_next.c ---- */

enum spdl_client_state {
    SPDL_CLIENT_DOWN,     /* no socket; next try at retry_at_ns */
    SPDL_CLIENT_STARTING, /* a private daemon was started and has not said yet that it listens */
    SPDL_CLIENT_HELLO,    /* connected, HelloReply awaited */
    SPDL_CLIENT_OPENING,  /* OpenReply awaited */
    SPDL_CLIENT_UP
};

struct spdl_stream {
    struct spdl_stream *self; /* so that functions that take a const stream can lock it */
    _Atomic uint32_t refs;    /* the caller's one and one for each batch held */
    struct spdl_client_target *target;
    pthread_mutex_t lock;
    pthread_cond_t idle; /* busy became 0 */
    int busy;            /* one caller is in spdl_next */
    int is_closed;

    struct spdl_open_options asked; /* strings owned */
    int was_open;                   /* once */
    struct spdl_stream_info info;   /* strings owned */
    char plan_id[64];
    uint64_t given;                        /* batches given out in all */
    char last_state[SPDL_SHM_STATE_BYTES]; /* of the last batch given out */

    enum spdl_client_state state;
    struct spdl_client_link link;
    struct spdl_client_start start;
    struct spdl_client_hello hello;
    uint64_t number; /* of the stream on this link */
    int pipe_fd;
    int event_fd; /* epoll over link and pipe, made when asked for; -1 */
    struct spdl_client_ring *ring;

    int is_ended; /* StreamEnd came: end_* of the current ring */
    uint64_t end_sequences;
    int end_code;
    struct spdl_client_error end;
    int failed_code; /* nothing will ever come again: `failed` says why */
    struct spdl_client_error failed;

    int64_t lost_ns;        /* since when the daemon is missed; 0: it is not */
    int64_t window_left_ns; /* of reconnect_ns */
    int64_t retry_at_ns, retry_step_ns;
    int refused_code;               /* of the last refusal while trying again; 0: none */
    uint32_t starts;                /* of private daemons since the last batch */
    struct spdl_client_error cause; /* why the last try failed */

    struct spdl_client_error error; /* the caller's */
};

void spdl_client_stream_unref(struct spdl_stream *stream);
/* A batch's last reference is gone. */
void spdl_client_stream_give_back(struct spdl_stream *stream, struct spdl_batch *batch);

/* client_attach.c: how a stream comes to its daemon, and back to it. All with the lock held; none
 * blocks. */
void spdl_client_attach_init(struct spdl_stream *stream);
/* A batch came: what was lost is found again. */
void spdl_client_attach_good(struct spdl_stream *stream);
/* Goes on as far as it can: 0; -EPIPE (or the code of the daemon's last refusal): given up,
 * stream->error says why. */
int spdl_client_attach_step(struct spdl_stream *stream, int64_t now_ns);
/* What to poll, and until when at most. Returns the number of descriptors. */
uint32_t spdl_client_attach_poll(const struct spdl_stream *stream, struct pollfd *ret_fds,
                                 int64_t *deadline_ns);
/* Handles what poll said. */
void spdl_client_attach_handle(struct spdl_stream *stream, const struct pollfd *fds,
                               uint32_t count);
void spdl_client_attach_close(struct spdl_stream *stream); /* descriptors of the link */

#endif
