/* What the socket thread and the decoding threads of one worker share. */
#ifndef SPDLD_WORKER_STATE_H
#define SPDLD_WORKER_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "shm/shm_work.h"
#include "worker/worker.h"
#include "worker/worker_stream.h"

struct worker_row;
struct worker;

struct worker_thread {
    struct worker *worker;
    struct worker_row *row;
    pthread_t handle;
    bool started;
    uint32_t number;
};

struct worker {
    struct worker_lock lock; /* to be told in READY */
    int socket_fd, event_fd;
    const uint8_t *arena;
    const struct spdl_work_command_segment *commands;
    struct spdl_work_completion_segment *completions;
    uint64_t arena_bytes, commands_bytes, completions_bytes;
    struct worker_thread threads[SPDL_WORK_THREADS_MAX];
    struct worker_streams streams;
    /* What follows is between the threads. Each on a line of its own. */
    _Alignas(128) _Atomic uint32_t active; /* W: socket thread  R: threads, seq_cst: those with a
                                              lower number work, the others wait on this word */
    _Alignas(128) _Atomic uint32_t
        claimed; /* commands that a thread has taken; wraps like `published` */
    _Alignas(128) _Atomic uint64_t completed; /* completions that have got their number */
    _Alignas(128) _Atomic bool stop;          /* W: socket thread */
    _Atomic uint32_t running;                 /* threads that have not ended yet */
    _Atomic bool broken;                      /* W: any thread: a command that does not fit */
};

/* Lets `count` decoding threads work: starts those that are missing, lets those above it wait, each
 * after the row that it is at. Returns how many work then, or, when none does, -ENOMEM or -EAGAIN.
 * Those that were started must be ended in either case. */
int worker_threads_set(struct worker *worker, uint32_t count);

/* Ends all threads, each after the row that it is at, and gives back what they had. */
void worker_threads_end(struct worker *worker);

#endif
