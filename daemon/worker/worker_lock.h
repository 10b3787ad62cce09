/* What the worker takes away from itself before it sees a byte of data: rights that a codec never
 * needs and that somebody who took one over would want. Non-logging. */
#ifndef SPDLD_WORKER_LOCK_H
#define SPDLD_WORKER_LOCK_H

#include <stdint.h>

#include "worker/worker.h"

/* Locks the calling process for good. Called by its only thread, before it starts another; keeps
 * descriptors 2 (for last words) and WORKER_SOCKET_FD alone. memory_bytes: of its own, without what
 * it maps of others; 0: no limit. A kernel without one of the means leaves its flag out of
 * *ret_lock; what it has holds. Allocates nothing. */
void worker_lock_take(uint64_t memory_bytes, struct worker_lock *ret_lock);

#endif
