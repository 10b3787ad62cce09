/* The conductor's core: a pure state machine. Events go in by pipeline_core_feed, commands come out
 * of pipeline_core_next; there is no I/O, no clock and no thread in it, so that a simulator can run
 * any schedule by seed. The shell around it (pipeline.c) carries the commands out.
 *
 * A worker has a seat: an arena for the blobs of its streams and places for what is in flight,
 * which it shares with no other. A stream has slots, each is filled with the rows of one batch and
 * published when all are done, in the order of the stream. Slots are the credits: a batch is begun
 * only when one is free. A row is placed (its blob gets room in the arena), fetched, decoded, done;
 * one whose sample fails is placed again with the substitute of its next attempt, or is done with
 * its class, as the policy says. Whether the limits of failures are passed is counted row by row,
 * in the order of the stream, when a batch is due: what ends a stream never hangs on timing. What
 * the outside reports is checked against what is outstanding: a ticket that is not is refused. */
#ifndef SPDLD_PIPELINE_CORE_H
#define SPDLD_PIPELINE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "item/class.h"
#include "plan/plan.h"

enum {
    PIPELINE_STREAMS_MAX = 2048,
    PIPELINE_SLOTS_MAX = 64,
    PIPELINE_ROWS_MAX = 65536,
    PIPELINE_OPS_MAX = 2048, /* fetches and decodes in flight of each worker */
    PIPELINE_DEPTH_MAX = 1024,
    PIPELINE_READS_EXTRA = 64,
    PIPELINE_QUEUE_MAX = 512, /* decodes handed to one worker and not finished */
    PIPELINE_WORKERS_MAX = 16,
    PIPELINE_DEATHS_MAX = 20,    /* of a worker, no row finished between: its streams fail */
    PIPELINE_CRASHES_MAX = 2,    /* of a codec on one sample: then its class is CRASH */
    PIPELINE_RATE_UNIT = 1000000 /* a rate of 1 */
};

enum pipeline_policy {
    PIPELINE_POLICY_MASK = 1,      /* the row is not valid */
    PIPELINE_POLICY_FAIL = 2,      /* the stream ends */
    PIPELINE_POLICY_SUBSTITUTE = 3 /* the row shows another sample */
};

enum pipeline_limit { /* of failures, that ended a stream */
                      PIPELINE_LIMIT_NONE = 0,
                      PIPELINE_LIMIT_FIRST,    /* the policy is fail */
                      PIPELINE_LIMIT_ATTEMPTS, /* a row's sample and all its substitutes failed */
                      PIPELINE_LIMIT_CONSECUTIVE, /* rows one after another whose sample failed */
                      PIPELINE_LIMIT_RATE
};

/* A class that the sample decides, and not the world: only then it is substituted. */
static inline bool pipeline_is_content(enum spdl_class class_number)
{
    return class_number != SPDL_CLASS_RESOURCE && class_number != SPDL_CLASS_TIMEOUT &&
           class_number != SPDL_CLASS_NET_ERROR;
}

struct pipeline_place { /* where a sample stands */
    uint32_t epoch;
    uint32_t attempt;  /* 0: the sample of the order; else its substitute */
    uint64_t position; /* < samples */
};

struct pipeline_sample { /* what it is to the core */
    uint64_t id;
    uint64_t blob_bytes;          /* to be fetched; 0: nothing */
    bool in_place;                /* what is fetched is the row: read there, not decoded */
    enum spdl_class class_number; /* not OK: it fails without being fetched (above a limit) */
};

struct pipeline_core_params {
    uint64_t memory_bytes; /* limit for the memory of streams and seats */
    uint32_t fetch_depth;  /* fetches in flight of a stream; 1 … PIPELINE_DEPTH_MAX */
    uint32_t threads;      /* of each worker */
    uint32_t rate_rows;    /* of a stream, before its rate of failures is looked at */
    /* Looks up the sample at a place of the stream. Pure, quick. */
    void (*lookup)(void *context, uint32_t stream, const struct pipeline_place *place,
                   struct pipeline_sample *ret_sample);
    /* NULL, or makes a done batch ready for the rank; false: it is not to have it. Quick. */
    bool (*ready)(void *context, uint32_t stream, uint32_t slot);
    void *context;
};

struct pipeline_stream_params {
    struct plan_schedule schedule; /* checked */
    uint32_t slot_count, worker;   /* 2 … PIPELINE_SLOTS_MAX; < PIPELINE_WORKERS_MAX */
    uint32_t policy;               /* enum pipeline_policy */
    uint32_t max_rate;             /* of failed rows, in PIPELINE_RATE_UNIT */
    uint32_t max_consecutive;      /* failed rows, and substitutes of one row; at least 1 */
    uint64_t limit;                /* batches; 0: no end */
    uint64_t memory_bytes;         /* that its segments take */
};

enum pipeline_event_kind {
    PIPELINE_EVENT_START = 1,  /* stream: its segments are there, work may begin */
    PIPELINE_EVENT_ATTACHED,   /* stream: its worker has mapped the segment */
    PIPELINE_EVENT_FETCHED,    /* ticket, class */
    PIPELINE_EVENT_DECODED,    /* worker, ticket, class, cost_ns */
    PIPELINE_EVENT_RELEASE,    /* stream, sequence: the rank gives a slot back */
    PIPELINE_EVENT_CLOSE,      /* stream: the rank wants no more of it, or is dead */
    PIPELINE_EVENT_UNMAPPED,   /* stream: the rank has unmapped it, or is dead */
    PIPELINE_EVENT_DETACHED,   /* stream: the worker has unmapped it */
    PIPELINE_EVENT_FAIL,       /* stream, code, class: it cannot go on (an outage) */
    PIPELINE_EVENT_WORKER_UP,  /* worker: ready for streams (they attach again) */
    PIPELINE_EVENT_WORKER_DOWN /* worker, crashed, suspects */
};

struct pipeline_event {
    enum pipeline_event_kind kind;
    uint32_t stream;
    uint32_t worker;
    uint64_t ticket;
    uint64_t sequence;
    enum spdl_class class_number;
    int code;
    uint32_t cost_ns;
    bool crashed;             /* by a signal that counts against what it worked on */
    const uint64_t *suspects; /* tickets that its threads were working on */
    uint32_t suspect_count;
};

enum pipeline_command_kind {
    PIPELINE_COMMAND_ATTACH = 1, /* stream, worker: give the segment to the worker */
    PIPELINE_COMMAND_FETCH,      /* ticket, row, blob */
    PIPELINE_COMMAND_DECODE,     /* ticket, row, blob, worker */
    PIPELINE_COMMAND_PUBLISH,    /* stream, slot */
    PIPELINE_COMMAND_END,        /* stream, code, class: no more batches come */
    PIPELINE_COMMAND_DETACH,     /* stream, worker: nothing of it is outstanding there */
    PIPELINE_COMMAND_FORGET      /* stream: nobody uses it any more, its number is free again */
};

struct pipeline_command {
    enum pipeline_command_kind kind;
    uint32_t stream, slot, row, worker;
    uint64_t ticket;
    uint64_t id;       /* of the sample */
    uint64_t position; /* of the row */
    uint32_t epoch;
    uint64_t blob_offset, blob_bytes; /* blob_bytes 0: no blob */
    bool in_place;                    /* FETCH: into the row, not into a blob */
    int code;
    enum spdl_class class_number;
    bool has_row; /* END: slot and row are those of the sample that ended it */
    enum pipeline_limit limit;
};

/* Where a ticket or a release (without row) leads: filled by feed. */
struct pipeline_row_ref {
    uint32_t stream, slot, row;
    bool orphan;      /* its stream is closing: nothing is to be written down */
    uint32_t attempt; /* that it was, and of which sample; not for orphans */
    uint64_t id;
};

struct pipeline_slot_view {
    uint64_t sequence;
    struct plan_batch batch;
};
struct pipeline_row_view {
    uint64_t id;        /* of the sample shown, or of the last that was tried */
    uint64_t failed_id; /* of the sample of the order, where it failed; else id */
    uint64_t position;
    uint32_t attempt;             /* 0: the sample of the order is shown */
    enum spdl_class class_number; /* of the sample of the order */
    bool masked;                  /* nothing is shown */
    bool padded;                  /* behind the last sample: shown, not valid */
};

/* Why a stream has nothing more ready. */
enum pipeline_reason {
    PIPELINE_REASON_NONE = 0, /* ended or closing */
    PIPELINE_REASON_OPENING,  /* the worker has not mapped it yet, or is being started again */
    PIPELINE_REASON_RANK,     /* it has batches ready beyond the one it may hold, or all slots */
    PIPELINE_REASON_READS,    /* rows of its oldest batch are being read */
    PIPELINE_REASON_MEMORY,   /* they wait for room in the arena */
    PIPELINE_REASON_DECODE,   /* they wait for a thread or are being decoded */
    PIPELINE_REASON_COUNT
};

struct pipeline_stream_view {
    uint64_t published, released, next_sequence;
    uint32_t free_slots, held_slots;
    enum pipeline_reason reason;
    struct plan_batch next_batch;        /* the next to be published */
    uint64_t failures[SPDL_CLASS_COUNT]; /* of samples, substitutes too */
    uint64_t samples;                    /* rows published */
    /* Counted for the limits, up to the row that passed one: rows, those that failed, the last of
     * them without one between, those of the most frequent class. */
    uint64_t counted_rows, failed_rows, most_rows;
    uint32_t consecutive_rows;
    enum spdl_class most_class;
    uint64_t memory_bytes;
    bool ended;
};

struct pipeline_core;
/* Owned; NULL: no memory. */
struct pipeline_core *pipeline_core_create(const struct pipeline_core_params *params);
void pipeline_core_destroy(struct pipeline_core *core);

/* Fetches that a worker's streams may have in flight together: no stream alone can take all. */
static inline uint32_t pipeline_core_reads_max(uint32_t fetch_depth)
{
    return fetch_depth + fetch_depth / 3 + 1 + PIPELINE_READS_EXTRA;
}

/* A place for a worker, with an arena of its own; memory_bytes: what it takes in all. 0; -ENOSPC
 * with *ret_free_bytes: over the limit of memory; -ENOMEM; -EINVAL: it is open. */
int pipeline_core_seat_open(struct pipeline_core *core, uint32_t worker, uint64_t arena_bytes,
                            uint64_t memory_bytes, uint64_t *ret_free_bytes);
/* It must have no stream, and its worker be down. */
void pipeline_core_seat_close(struct pipeline_core *core, uint32_t worker);
/* Memory that the core itself takes for a stream of so many slots and rows. */
uint64_t pipeline_core_stream_bytes(uint32_t slot_count, uint64_t rows);
/* A new stream of a worker whose seat is open; it waits for START. Errors as before; -EMFILE:
 * PIPELINE_STREAMS_MAX are open. */
int pipeline_core_open(struct pipeline_core *core, const struct pipeline_stream_params *params,
                       uint32_t *ret_stream, uint64_t *ret_free_bytes);

/* 0; -EPROTO: it names what is not outstanding, nothing is changed. ret_ref may be NULL. */
int pipeline_core_feed(struct pipeline_core *core, const struct pipeline_event *event,
                       struct pipeline_row_ref *ret_ref);
/* Where a ticket leads; -EPROTO: it is not outstanding. */
int pipeline_core_ticket_ref(const struct pipeline_core *core, uint64_t ticket,
                             struct pipeline_row_ref *ret_ref);

/* The next thing to do; false: nothing. */
bool pipeline_core_next(struct pipeline_core *core, struct pipeline_command *ret_command);

/* Views: valid numbers only. */
void pipeline_core_slot(const struct pipeline_core *core, uint32_t stream, uint32_t slot,
                        struct pipeline_slot_view *ret_view);
void pipeline_core_row(const struct pipeline_core *core, uint32_t stream, uint32_t slot,
                       uint32_t row, struct pipeline_row_view *ret_view);
void pipeline_core_stream(const struct pipeline_core *core, uint32_t stream,
                          struct pipeline_stream_view *ret_view);
enum pipeline_reason pipeline_core_reason(const struct pipeline_core *core, uint32_t stream);
uint64_t pipeline_core_memory_used(const struct pipeline_core *core);
uint64_t pipeline_core_arena_used(const struct pipeline_core *core, uint32_t worker);
uint32_t pipeline_core_fetching(const struct pipeline_core *core, uint32_t worker);
uint32_t pipeline_core_decoding(const struct pipeline_core *core, uint32_t worker);
uint32_t pipeline_core_cost_ns(const struct pipeline_core *core, uint32_t worker); /* of a row */

/* Live. The limit of memory may be below what is used: then nothing is opened for a while. */
void pipeline_core_set_threads(struct pipeline_core *core, uint32_t threads);
void pipeline_core_set_fetch_depth(struct pipeline_core *core, uint32_t depth);
void pipeline_core_set_memory(struct pipeline_core *core, uint64_t bytes);

#endif
