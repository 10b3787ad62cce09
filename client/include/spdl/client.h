/* spdl/client.h: batches of a running spdld, in place. C and C++.
 *
 * Life of a batch. spdld fills a slot of the stream's ring and publishes it. spdl_next gives it to
 * the caller with one reference; its tensors are views of shared memory, read-only, valid while a
 * reference is held. spdl_batch_ref adds references, spdl_batch_unref drops one; with the last the
 * slot goes back to spdld, in any order. A rank that holds every slot and asks for another batch
 * gets -ENOBUFS (class RESOURCE), not a hang.
 *
 * Threads. A connection and a stream may be used by any number of threads; spdl_next of one stream
 * serves one caller at a time, batches in order. A batch may be used and dropped by any thread.
 * After fork the child may touch nothing of it: calls return -ESTALE (class FORKED); exec is fine.
 *
 * Errors. 0 or a negative errno, and a sentence: of the connection or of the stream. Nothing here
 * aborts, prints or installs handlers.
 *
 * A daemon that dies is waited for (`reconnect_s`); the stream then goes on behind the last batch
 * given out: nothing is lost or repeated. */
#ifndef SPDL_CLIENT_H
#define SPDL_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPDL_API __attribute__((visibility("default")))

struct spdl_connection;
struct spdl_stream;
struct spdl_batch;

struct spdl_connect_options {
    size_t options_bytes;    /* sizeof(struct spdl_connect_options) */
    const char *socket;      /* NULL: $SPDL_SOCKET, then /run/spdld/spdld.sock */
    int is_private;          /* 1: find or start the job's own daemon */
    const char *config_file; /* private: as spdld -c; NULL: none */
    const char *const *sets; /* private: "KEY=VALUE", as spdld --set */
    size_t set_count;
    const char *client_name; /* for status; NULL: the program's name */
    double reconnect_s;      /* how long a daemon that died is waited for; 0: not at all; < 0: 60 */
};

/* Connects; a daemon that dies just then is waited for as later, but for 10 s at most.
 * *ret_connection is returned owned, also with an error (for spdl_connection_error), NULL
 * only without memory. Errors: -ENOENT, -ECONNREFUSED: no daemon there; -EACCES; -EPROTO: of an
 * unknown version; -EEXIST: a private daemon with another configuration (the sentence names the
 * difference); -ETIMEDOUT; -EINTR: a signal came. Blocks up to 10 s. */
SPDL_API int spdl_connect(const struct spdl_connect_options *options,
                          struct spdl_connection **ret_connection);
/* Accepts NULL. Streams stay usable. */
SPDL_API void spdl_disconnect(struct spdl_connection *connection);
/* The last sentence; until the next call. */
SPDL_API const char *spdl_connection_error(const struct spdl_connection *connection);

struct spdl_open_options {
    size_t options_bytes;     /* sizeof(struct spdl_open_options) */
    const char *dataset;      /* a name of the configuration, or NULL */
    const char *dataset_yaml; /* a dataset as YAML, for a private daemon, or NULL */
    uint64_t batch;           /* G: of the whole job; each rank's is batch / world */
    uint32_t rank;
    uint32_t world; /* 0 is 1 */
    int has_seed;
    uint64_t seed;
    const char *state; /* go on behind the batch that carried it; NULL: from epoch and step */
    uint32_t epoch;
    uint64_t step;
    uint32_t slots;       /* batches ready ahead; 0: the daemon's setting */
    const char *on_error; /* "substitute", "mask", "fail", with ",max_rate=0.01,max_consecutive=100"
                             behind it; NULL: the dataset's */
    uint64_t limit;       /* end (-ENODATA) after so many batches; 0: never */
};

struct spdl_stream_info {
    uint64_t samples; /* N */
    uint64_t steps_per_epoch;
    uint32_t epoch; /* where it began */
    uint64_t step;
    uint64_t seed;
    const char *plan_id; /* 32 hexadecimal digits; until close */
    const char *warning; /* a sentence or "" */
};

/* Opens a stream. *ret_stream is returned owned. Errors, with the daemon's sentence in
 * spdl_connection_error: -EINVAL; -ENOENT: no such dataset, no such folder; -EACCES; -ENOSPC:
 * memory or /dev/shm is short (class RESOURCE, with numbers); -ERANGE: the step is beyond the
 * epoch; -ESTALE: the state is of another plan; -ETIMEDOUT: the daemon takes the connection and
 * says nothing for 10 s; -EPIPE: it is gone (waited for as in spdl_next). Blocks while the dataset
 * is listed; a signal ends it with -EINTR. */
SPDL_API int spdl_open(struct spdl_connection *connection, const struct spdl_open_options *options,
                       struct spdl_stream **ret_stream);
/* Accepts NULL. Batches still referenced stay readable; their memory goes with the last of them. */
SPDL_API void spdl_close(struct spdl_stream *stream);
SPDL_API void spdl_stream_info(const struct spdl_stream *stream, struct spdl_stream_info *ret_info);

/* The next batch, returned owned with one reference. timeout_s < 0: no limit; 0: only when one is
 * ready. With a batch ready it makes no system call. Errors: -EAGAIN: none ready within the
 * time-out of 0; -ETIMEDOUT; -EINTR: a signal came; -ENODATA: `limit` batches were given; -ENOBUFS:
 * every slot is held; -EPIPE: the daemon is gone and did not come back in time (class DAEMON_GONE);
 * -ESTALE: forked, or the dataset changed behind a restart; another: the stream failed;
 * spdl_stream_error has the sentence. */
SPDL_API int spdl_next(struct spdl_stream *stream, double timeout_s, struct spdl_batch **ret_batch);

/* Last sentence of the stream, and the class (enum spdl_class as text, "" when none fits). Until
 * the next call by this thread's owner. */
SPDL_API const char *spdl_stream_error(const struct spdl_stream *stream);
SPDL_API const char *spdl_stream_error_class(const struct spdl_stream *stream);

/* A descriptor that polls readable when a batch may be ready (then call spdl_next with time-out 0).
 * It may change with a reconnect: ask again after each spdl_next. -1: none now. */
SPDL_API int spdl_stream_fd(const struct spdl_stream *stream);

/* Why the stream waits, in a sentence: asked of the daemon, or, when it does not answer within 1 s,
 * what the client itself knows ("the daemon is gone: …"). Fills text with at most `bytes` bytes and
 * a final 0. May be called while another thread waits in spdl_next. */
SPDL_API int spdl_why(struct spdl_stream *stream, char *text, size_t bytes);

SPDL_API struct spdl_batch *spdl_batch_ref(struct spdl_batch *batch); /* returns batch */
SPDL_API void spdl_batch_unref(struct spdl_batch *batch);             /* accepts NULL */

struct spdl_batch_info {
    uint32_t epoch;
    uint64_t step;
    uint64_t sequence; /* in the stream, over restarts of the daemon: 0, 1, … */
    uint32_t rows;     /* of this rank; 0 … batch / world */
    uint32_t valid;    /* rows that are good */
    uint32_t errors;   /* rows whose sample failed */
    uint32_t fields;
    uint64_t publish_ns; /* CLOCK_MONOTONIC when spdld published it */
    uint64_t wait_ns;    /* that spdl_next waited for it */
    const char *state; /* of the place behind it: for the trainer's checkpoint; while referenced */
};
SPDL_API void spdl_batch_info(const struct spdl_batch *batch, struct spdl_batch_info *ret_info);

enum spdl_dtype {
    SPDL_UINT8 = 1,
    SPDL_INT64 = 2,
    SPDL_FLOAT32 = 3,
    SPDL_FLOAT16 = 4,
    SPDL_BFLOAT16 = 5
};

/* A field whose rows differ in length is two tensors: NAME.values, uint8 [all bytes of all rows],
 * and NAME.offsets, int64 [rows + 1]: row r is the values from offsets[r] up to offsets[r + 1]. The
 * offsets were checked: they begin with 0, never fall, and end with the number of values. */
struct spdl_tensor {
    const char *name;
    enum spdl_dtype dtype;
    uint32_t dims; /* with rows as the first, but for values of unequal length */
    uint64_t shape[9];
    int64_t strides[9]; /* in elements, C order */
    const void *data;   /* 256-byte aligned; read-only */
    size_t bytes;
};
/* Tensor number `index` < fields, or by name. -ENOENT when there is none. */
SPDL_API int spdl_batch_tensor(const struct spdl_batch *batch, uint32_t index,
                               struct spdl_tensor *ret_tensor);
SPDL_API int spdl_batch_find(const struct spdl_batch *batch, const char *name,
                             struct spdl_tensor *ret_tensor);

struct spdl_row {
    uint64_t id;     /* of the sample shown: its place in the dataset's list */
    const char *key; /* not 0-terminated, any bytes */
    uint32_t key_bytes;
    int valid;              /* 0: masked or padded; its bytes are 0 where masked */
    const char *failed_key; /* of the sample that failed; NULL when none did */
    uint32_t failed_key_bytes;
    const char *failed_class; /* "TRUNCATED"; "" when none did */
    const char *message;      /* a sentence or "" */
    int has_draws;
    int32_t crop[4];  /* x, y, width, height in the picture as shown */
    int flipped;      /* left and right swapped */
    uint32_t attempt; /* 0: the sample of the order is shown; else how often one was tried instead
                         of `failed_key` until one was good */
};
/* -ERANGE: there is no such row; -EPROTO: the daemon's words are broken; -ESTALE: forked. */
SPDL_API int spdl_batch_row(const struct spdl_batch *batch, uint32_t row, struct spdl_row *ret_row);

SPDL_API const char *spdl_version(void);

#ifdef __cplusplus
}
#endif
#endif
