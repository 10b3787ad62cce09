/* Fetch: byte ranges into memory, by io_uring or by a pool of threads, with equal results. submit
 * and reap are the conductor's and never block; the work is done by threads of the engine. */
#ifndef SPDLD_FETCH_H
#define SPDLD_FETCH_H

#include <stdint.h>

#include "base/err.h"

enum { FETCH_DEPTH_MAX = 1536, FETCH_ENGINE_BYTES = 16 };

struct fetch_request {
    uint64_t ticket;  /* comes back in the result */
    int root_fd;      /* folder that path is under; nothing outside it is ever opened */
    const char *path; /* relative; borrowed until the result */
    uint64_t offset;
    uint64_t bytes;      /* to read; the whole file when it equals file_bytes */
    uint64_t file_bytes; /* size and time the file must have, else class CHANGED */
    int64_t mtime_ns;
    /* A shard is read again and again: with file >= 0 and an owner the engine may keep it open
     * under (owner, file) for a second, until fetch_forget(owner); those of one file that wait
     * together are read together. owner is only compared. */
    const void *owner;
    int32_t file;
    uint8_t *into; /* room for `bytes`; borrowed until the result */
};

struct fetch_result {
    uint64_t ticket;
    uint32_t class_number; /* enum spdl_class: OK EMPTY IO_ERROR CHANGED RESOURCE (no descriptors or
                              memory: try again) */
    int code;              /* negative errno behind it, or 0 */
};

struct fetch_params {
    uint32_t depth;   /* reads in flight; 1 … FETCH_DEPTH_MAX */
    char faulty[128]; /* tests only, "" otherwise: see fetch_faulty.c */
};

struct fetch_stats {
    uint64_t reads, bytes, failures;
    uint64_t
        joined; /* reads that cost no call of their own, since a neighbour's brought them too */
    uint64_t in_flight;
    uint64_t longest_wait_ns; /* age of the oldest read in flight */
};

struct fetch;

/* Opens the engine by name: uring, pool, or auto (uring, else pool; *ret_note then says why in a
 * sentence, "" otherwise). Errors: -ENOTSUP or the kernel's refusal for uring when asked for by
 * name. */
int fetch_open(const char *engine, const struct fetch_params *params, struct fetch **ret_fetch,
               char ret_note[256], struct err *reterr);

/* Now and then while reads are in flight: sees to it that those that are late do not keep the
 * others from being done, by more threads. */
void fetch_tend(struct fetch *fetch);

/* Asks its threads to end; fetch_close follows. Nothing more may be submitted. */
void fetch_leave(struct fetch *fetch);

/* Ends its threads. Reads in flight are given up; a hung one leaves its thread to the end of the
 * process and its memory untouched by us. */
void fetch_close(struct fetch *fetch);

/* "uring" or "pool". */
const char *fetch_engine(const struct fetch *fetch);

/* Readable when results wait; for poll and epoll alone. fetch_reap drains it. */
int fetch_fd(const struct fetch *fetch);

/* Takes the request; -EAGAIN when `depth` are in flight, -EINVAL for a range outside file_bytes.
 * Requests given before fetch_kick may wait for it. */
int fetch_submit(struct fetch *fetch, const struct fetch_request *request);
void fetch_kick(struct fetch *fetch);

/* Up to max finished results, any order. Returns how many. Exactly one result for every request. */
uint32_t fetch_reap(struct fetch *fetch, struct fetch_result *results, uint32_t max);

/* Lets go of all that is kept open for the owner, whose requests must have ended. Does not wait:
 * the engine closes soon after. */
void fetch_forget(struct fetch *fetch, const void *owner);

void fetch_stats(const struct fetch *fetch, struct fetch_stats *ret_stats);

/* A row of fetch_table. */
struct fetch_ops {
    const char *name;
    int (*open)(const struct fetch_params *params, struct fetch **ret_fetch, struct err *reterr);
    void (*tend)(struct fetch *fetch);
    void (*leave)(struct fetch *fetch);
    void (*close)(struct fetch *fetch);
    int (*fd)(const struct fetch *fetch);
    int (*submit)(struct fetch *fetch, const struct fetch_request *request);
    void (*kick)(struct fetch *fetch);
    uint32_t (*reap)(struct fetch *fetch, struct fetch_result *results, uint32_t max);
    void (*forget)(struct fetch *fetch, const void *owner);
    void (*stats)(const struct fetch *fetch, struct fetch_stats *ret_stats);
};
extern const struct fetch_ops
    *const fetch_table[]; /* ends with NULL; auto tries them in this order */

/* Every engine starts with this. */
struct fetch {
    const struct fetch_ops *ops;
};

#endif
