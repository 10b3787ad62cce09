/* The worker: a process of decoding threads. This header is what spdld and the worker say to each
 * other on the worker's socket (SOCK_SEQPACKET, one message a packet, fixed structs, descriptors
 * beside them); rows travel through the rings of shm/shm_work.h.
 *
 * Life: spdld starts the worker with the socket as descriptor 3 → START (arena, commands,
 * completions, eventfd) → READY (what holds of its lock) → any number of ADD (data segment) → ADDED
 * and DROP → DROPPED → end of file: the worker exits with 0. spdld sends commands for a stream only
 * between its ADDED and its DROP, and DROP only when none of them is outstanding. After START the
 * worker opens nothing: all it ever maps came by descriptor. A message that does not fit ends the
 * worker with status 2.
 * completions, eventfd) → READY → any number of ADD (data segment) → ADDED and DROP → DROPPED → end
 * of file: the worker exits with 0. spdld sends commands for a stream only between its ADDED and
 * its DROP, and DROP only when none of them is outstanding. THREADS may come at any time behind
 * START and is answered by THREADS with the number of threads that run then: those that are too
 * many wait, those that are missing are started. After START the worker opens nothing: all it ever
 * maps came by descriptor. A message that does not fit ends the worker with status 2.
 */
#ifndef SPDLD_WORKER_H
#define SPDLD_WORKER_H

#include <stdint.h>

#include "item/field.h"

enum { WORKER_VERSION = 3, WORKER_SOCKET_FD = 3, WORKER_SLOTS_MAX = 64, WORKER_STREAMS_MAX = 4096 };

enum worker_message_kind {
    WORKER_START = 1, /* spdld → worker; descriptors: arena (read-only), commands (read-only),
                         completions (writable), eventfd */
    WORKER_READY = 2, /* worker → spdld */
    WORKER_ADD = 3,   /* spdld → worker; descriptor: data segment (writable) */
    WORKER_ADDED = 4,
    WORKER_DROP = 5,
    WORKER_DROPPED = 6,
    WORKER_THREADS = 7 /* both ways */
};

struct worker_message_head {
    uint32_t kind;   /* enum worker_message_kind */
    uint32_t stream; /* the worker's number for it: < WORKER_STREAMS_MAX; 0 in START and READY;
                        in THREADS their number, 1 … SPDL_WORK_THREADS_MAX */
};

/* What a worker has taken away from itself, see worker_lock.h. */
enum worker_lock_flag {
    WORKER_LOCK_NO_NEW_PRIVS = 1, /* no program that it starts could have more rights */
    WORKER_LOCK_LIMITS = 2,       /* no core file, few descriptors, memory of its own bounded */
    WORKER_LOCK_LANDLOCK = 4,     /* no file, no port, no signal to others: refused by the kernel */
    WORKER_LOCK_SECCOMP = 8,      /* only the system calls of a list; another one is its death */
    WORKER_LOCK_RELAXED = 16      /* built with a sanitizer, which needs more than the list has */
};

struct worker_lock {
    uint32_t flags;        /* enum worker_lock_flag */
    uint32_t landlock_abi; /* of the kernel; 0: it has none */
};

struct worker_ready {
    struct worker_message_head head;
    struct worker_lock lock; /* all zero: a thread of spdld-inproc, which has none */
};

struct worker_start {
    struct worker_message_head head;
    uint32_t version;
    uint32_t thread_count; /* 1 … SPDL_WORK_THREADS_MAX */
    uint64_t arena_bytes;
    uint64_t commands_bytes;
    uint64_t completions_bytes;
};

struct worker_add {
    struct worker_message_head head;
    uint64_t seed;
    uint64_t data_bytes; /* of the segment */
    uint64_t slot_bytes; /* slot s begins at s * slot_bytes */
    uint32_t slot_count;
    uint32_t row_count; /* rows of a slot */
    uint32_t field_count;
    uint32_t reserved;
    uint64_t
        field_offset[FIELD_MAX]; /* in a slot; row r of field f is at + r * fields[f].row_bytes */
    struct field_spec fields[FIELD_MAX];
};

/* Runs the worker on its socket until the peer closes it: the whole life of spdld-worker, or of a
 * thread in spdld-inproc. lock: what the process has taken away from itself, to be told; NULL:
 * none. Takes the descriptor. Returns 0 at end of file, 2 when the peer broke the protocol, 1 when
 * memory or threads are short (a line says so on standard error). Blocks. */
int worker_run(int socket_fd, const struct worker_lock *lock);

#endif
