/* The daemon's side of one worker: starts it, gives it segments, hands rows over through the rings,
 * notices its death. Conductor role. What the worker reports is copied first and checked by the
 * caller. */
#ifndef SPDLD_PIPELINE_WORKER_H
#define SPDLD_PIPELINE_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/loop.h"
#include "shm/shm_segment.h"
#include "shm/shm_work.h"
#include "worker/worker.h"

/* How a worker is started: as a process (spdld) or as a thread (spdld-inproc). Takes the socket on
 * success. memory_bytes: that a process may have of its own. *ret_pid: 0 for a thread. */
struct pipeline_launcher {
    int (*start)(int socket_fd, uint64_t memory_bytes, pid_t *ret_pid, struct err *reterr);
};

/* What the worker tells, to the pipeline. context is the pipeline's. */
struct pipeline_worker_ops {
    void (*ready)(void *context, uint32_t worker, const struct worker_lock *lock);
    void (*attached)(void *context, uint32_t worker, uint32_t stream);
    void (*detached)(void *context, uint32_t worker, uint32_t stream);
    void (*threads)(void *context, uint32_t worker, uint32_t count); /* that work now */
    void (*finished)(void *context, uint32_t worker,
                     const struct spdl_work_completion *completion); /* a copy */
    /* It is dead (or was ended for breaking the protocol). suspects: tickets its threads were
     * working on. */
    void (*died)(void *context, uint32_t worker, bool crashed, const uint64_t *suspects,
                 uint32_t suspect_count, const char *how);
};

struct pipeline_worker_params {
    uint32_t number;
    uint32_t thread_count;
    uint64_t memory_bytes; /* for its own */
    enum spdl_shm_kind shm_kind;
    const struct spdl_shm_segment *arena; /* borrowed for life */
    struct loop *loop;
    const struct pipeline_launcher *launcher;
    const struct pipeline_worker_ops *ops;
    void *context;
};

struct pipeline_worker;

/* Starts it. `ready` is called later, from the loop. Returned owned. */
int pipeline_worker_start(const struct pipeline_worker_params *params,
                          struct pipeline_worker **ret_worker, struct err *reterr);
/* Asks it to end; pipeline_worker_stop follows. */
void pipeline_worker_leave(struct pipeline_worker *worker);
/* Closes its socket, waits for its end so long, then kills it. Accepts NULL. */
void pipeline_worker_stop(struct pipeline_worker *worker, uint32_t wait_ms);

/* Gives it a stream (message and descriptor are copied) or takes one away. Answers come by
 * `attached` and `detached`. -ENOMEM. */
int pipeline_worker_add(struct pipeline_worker *worker, const struct worker_add *message,
                        int data_fd);
int pipeline_worker_drop(struct pipeline_worker *worker, uint32_t stream);
/* So many of its threads shall work from now on; the answer comes by `threads`. -ENOMEM. */
int pipeline_worker_set_threads(struct pipeline_worker *worker, uint32_t count);

/* Hands a row over; seen by the threads after pipeline_worker_kick. */
void pipeline_worker_push(struct pipeline_worker *worker, const struct spdl_work_command *command);
/* cost_ns: of a row, as far as known; 0: not known. */
void pipeline_worker_kick(struct pipeline_worker *worker, uint64_t cost_ns);

/* Takes finished rows: calls `finished` for each. Returns how many. */
uint32_t pipeline_worker_drain(struct pipeline_worker *worker);

/* Says that the conductor is about to sleep (the worker then writes to the eventfd) or is awake. */
void pipeline_worker_waiting(struct pipeline_worker *worker, bool waiting);

pid_t pipeline_worker_pid(const struct pipeline_worker *worker); /* 0: a thread */

#endif
