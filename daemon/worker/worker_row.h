/* The row executor: from a command to a finished row in its slot, on the calling thread. */
#ifndef SPDLD_WORKER_ROW_H
#define SPDLD_WORKER_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "shm/shm_work.h"
#include "worker/worker_stream.h"

/* What a row is made from. */
struct worker_job {
    const struct spdl_work_command *command; /* the thread's own copy */
    const uint8_t *arena;
    uint64_t arena_bytes;
    const struct worker_stream *streams[SPDL_WORK_DESTS_MAX]; /* one a destination */
};

struct worker_row;                               /* codecs and scratch of one thread */
struct worker_row *worker_row_create(void);      /* returned owned; NULL: no memory */
void worker_row_destroy(struct worker_row *row); /* accepts NULL */

/* Whether the command stays inside the arena, the slots and the streams' forms. Anything else is a
 * fault of spdld. */
bool worker_row_fits(const struct worker_job *job);

/* Makes the row. Fills the completion but for cost_ns. After a failure the row's bytes are of no
 * use. */
void worker_row_run(struct worker_row *row, const struct worker_job *job,
                    struct spdl_work_completion *ret_completion);

#endif
