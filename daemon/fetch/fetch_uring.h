/* What the files of the engine of io_uring share. Private to them. */
#ifndef SPDLD_FETCH_URING_H
#define SPDLD_FETCH_URING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"
#include "fetch/fetch.h"
#include "fetch/fetch_fetcher.h"
#include "fetch/fetch_keep.h"
#include "fetch/fetch_local.h"
#include "fetch/fetch_port.h"

enum fetch_uring_step { STEP_NONE = 0, STEP_OPEN, STEP_LOOK, STEP_READ, STEP_LOOK_AGAIN };

/* Of the request in the port's slot of the same number. Fetcher only. */
struct fetch_uring_task {
    enum fetch_uring_step step; /* what is in the ring; STEP_NONE: nothing */
    enum fetch_place place;
    int fd;                  /* its own, or that of `kept` */
    struct fetch_kept *kept; /* held */
    uint32_t tries;
    bool cut; /* it ended before its size */
    uint64_t done;
    struct statx look;
};

/* Entries of the ring that belong to no slot. */
#define FETCH_URING_WAKE UINT64_MAX
#define FETCH_URING_CANCEL (UINT64_MAX - 1)
#define FETCH_URING_CLOSE (UINT64_MAX - 2)

struct fetch_uring {
    struct fetch fetch;
    struct fetch_port port;
    struct fetch_fetcher fetcher;
    struct fetch_keep keep;           /* of descriptors; the conductor forgets */
    struct fetch_word threads_wanted; /* of the kernel; W: conductor  R: fetcher */

    /* Fetcher only. */
    struct io_uring ring;
    struct fetch_uring_task *tasks;
    struct fetch_local local;
    struct open_how how;
    uint64_t wake_value;
    bool wake_armed;
    uint32_t in_ring;
    uint32_t threads;     /* of the kernel: their bound */
    uint32_t unsignalled; /* results that the conductor was not told of */
    uint64_t unsignalled_bytes;
};

/* fetch_uring_ring.c. Opens the ring, of the calling thread; io_uring_queue_exit ends it. */
int fetch_uring_ring_open(struct fetch_uring *uring, struct err *reterr);
struct io_uring_sqe *fetch_uring_sqe(struct fetch_uring *uring);
/* Threads that the kernel may have for what waits: as many as are wanted. */
void fetch_uring_set_threads(struct fetch_uring *uring);

/* fetch_uring_task.c */
/* Starts the request in the slot, in the place that its root is in. */
void fetch_uring_task_start(struct fetch_uring *uring, uint32_t slot, enum fetch_place place);
/* Starts requests of kept files, whose roots are in a place of this machine. Sorts the numbers. */
void fetch_uring_task_start_kept(struct fetch_uring *uring, uint32_t *slots, uint32_t count,
                                 enum fetch_place place);
/* Takes what the ring says of the slot's step. */
void fetch_uring_task_ended(struct fetch_uring *uring, uint32_t slot, int result);
/* Closes the descriptor, by the ring: a close may hang as well. Nothing for a negative one. */
void fetch_uring_task_close(struct fetch_uring *uring, int fd);

#endif
