/* Seats: what the daemon has for one user whose ranks have streams: an arena for blobs, an engine
 * for reads, what is being read, a worker. No user has a part in the seat of another. For the files
 * of the pipeline; conductor role. */
#ifndef SPDLD_PIPELINE_SEAT_H
#define SPDLD_PIPELINE_SEAT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/chores.h"
#include "base/err.h"
#include "base/loop.h"
#include "fetch/fetch.h"
#include "pipeline/pipeline_worker.h"
#include "shm/shm_segment.h"
#include "shm/shm_work.h"

struct pipeline;
struct pipeline_stream;

struct pipeline_read { /* of one span */
    struct fetch_request fetch;
    uint32_t tries;
    uint64_t begin_ns, first_ns; /* first_ns: of its first failure */
    uint64_t again_ns;           /* when it is tried again; 0: it is at work, or done */
};
struct pipeline_request { /* a fetch that the core asked for */
    bool in_place;        /* into the row */
    uint32_t left;        /* spans that are not done */
    uint32_t span_count;
    struct fetch_result
        worst;        /* what the row ends with: OK, or the fault of the first span that has one */
    const char *path; /* of that span */
    struct pipeline_read reads[SPDL_WORK_PARTS_MAX];
};

enum seat_phase { SEAT_FREE, SEAT_MAKING, SEAT_OPEN };
struct pipeline_seat { /* one user's */
    enum seat_phase phase;
    struct pipeline *pipeline;
    uid_t uid;
    uint32_t streams;                /* that have segments */
    struct pipeline_stream *waiting; /* SEAT_MAKING: linked by next_waiting */
    struct chore chore; /* makes it: writes arena, fetch, engine_note, make_rc, make_error */
    int make_rc;
    struct err make_error;
    struct spdl_shm_segment arena;
    struct fetch *fetch;
    struct loop_source *fetch_source;
    char engine_note[256];
    struct pipeline_request *requests; /* PIPELINE_OPS_MAX, by the ticket; owned */
    uint32_t retry_count;              /* reads with again_ns */
    uint64_t idle_ns;                  /* since when it has no stream; 0: it has */
    struct pipeline_worker *worker;    /* NULL: not running */
    bool dead;                         /* to be buried in the next step */
    bool was_ready;
    uint32_t failed_starts;
    uint64_t start_ns;       /* when it may be started again */
    uint64_t moved_ns;       /* when it last finished a row or had none to finish */
    struct worker_lock lock; /* of the last one that was ready */
    char note[160];          /* of its last death */
    int start_code;          /* why it could not be started the last time; 0: it was */
};

/* pipeline_seat_open.c */
/* Finds or makes the seat of the stream's user; it goes on by pipeline_stream_seated, perhaps at
 * once. -ENOSPC, -EMFILE, -ENOMEM with a sentence. */
int pipeline_seat_join(struct pipeline_stream *stream, struct err *reterr);
/* Gives up a seat that has no stream, but not that number. False: there is none. */
bool pipeline_seat_evict(struct pipeline *pipeline, uint32_t but);
/* Gives up those that were idle for long. Returns when to look again; negative: no need. */
int64_t pipeline_seat_idle(struct pipeline *pipeline, uint64_t now_ns);
void pipeline_seat_free_all(struct pipeline *pipeline);

/* pipeline_seat.c: workers */
/* That a worker may have of its own, beside rings and blobs. */
uint64_t pipeline_seat_memory_bytes(const struct pipeline *pipeline);
int64_t pipeline_seat_step(struct pipeline *pipeline, uint64_t now_ns);
void pipeline_seat_attach(struct pipeline *pipeline, struct pipeline_stream *stream);
void pipeline_seat_set_threads(struct pipeline *pipeline); /* of every worker: pipeline->threads */

#endif
