/* What the parts of the core share: pipeline_core.c takes events, pipeline_core_next.c gives
 * commands, pipeline_core_failed.c knows what becomes of failed samples, pipeline_core_seat.c what
 * each worker has for itself. For them alone. */
#ifndef SPDLD_PIPELINE_CORE_STATE_H
#define SPDLD_PIPELINE_CORE_STATE_H

#include "pipeline/pipeline_arena.h"
#include "pipeline/pipeline_core.h"

/* Planted defects, for the test that the simulator finds each of them; always 0 in a program. */
#ifdef PIPELINE_CORE_DEFECTS
extern int pipeline_core_defect;
#define DEFECT(number) (pipeline_core_defect == (number))
#else
#define DEFECT(number) false
#endif

enum row_state { ROW_IDLE, ROW_FETCHING, ROW_READY, ROW_DECODING, ROW_DONE };
enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_HELD };
enum attach_state { ATTACH_NONE, ATTACH_SENT, ATTACH_DONE, ATTACH_DETACHING };
#define CORE_NO_OP UINT32_MAX
enum op_kind_core { CORE_OP_FREE, CORE_OP_FETCH, CORE_OP_DECODE };

struct core_row {
    uint64_t id;
    uint64_t failed_id;               /* of the sample of the order, where it failed */
    uint64_t blob_offset, blob_bytes; /* blob_bytes 0: no blob */
    uint32_t attempt;
    uint8_t state;        /* enum row_state */
    uint8_t class_number; /* that the sample of the order failed with; 0: it did not */
    uint8_t crashes;      /* on the sample of this attempt */
    bool masked;          /* done, and nothing is shown */
};

struct core_slot {
    enum slot_state state;
    uint64_t sequence;
    struct plan_batch batch;
    uint32_t rows, placed, done, fetching, decoding;
    uint32_t queue_head, queue_count; /* rows in state READY, in the order they became so */
    uint32_t *queue;
    uint32_t again_head, again_count; /* rows to be placed with another attempt */
    uint32_t *again;
    struct core_row *row;
    uint32_t failures[SPDL_CLASS_COUNT];
};

struct core_stream {
    bool used, started, closing, unmapped, ended, end_sent, dirty, memory_wait;
    enum attach_state attach;
    struct pipeline_stream_params params;
    uint32_t row_room;      /* rows of a slot */
    uint64_t next_sequence; /* the next batch to begin */
    uint64_t next_publish;
    uint64_t place_sequence; /* no batch before it has rows to place */
    uint64_t published, released;
    uint64_t served;           /* when work of it was last chosen, for turns */
    uint32_t fetches, decodes; /* outstanding */
    uint64_t blob_bytes;       /* of the arena that are its */
    uint64_t wait_gives;       /* memory_wait: what the worker's `gives` was */
    int end_code;
    bool end_has_row;
    uint32_t end_slot, end_row;
    enum spdl_class end_class;
    uint64_t failures[SPDL_CLASS_COUNT];
    uint64_t samples;
    bool lost; /* at a row whose substitutes have all failed: nothing behind it is made any more */
    uint64_t lost_sequence;
    uint32_t lost_row;
    enum pipeline_limit end_limit;
    uint64_t counted_rows, failed_rows, shown_rows; /* for the limits */
    uint64_t failed_classes[SPDL_CLASS_COUNT];      /* of the failed rows */
    uint32_t consecutive_rows;
    uint8_t slot_of[PIPELINE_SLOTS_MAX]; /* of sequence mod PIPELINE_SLOTS_MAX, while it is in
                                            [next_publish, next_sequence) */
    struct core_slot slots[PIPELINE_SLOTS_MAX];
};

struct core_op {
    uint32_t generation; /* of the ticket; another one each time */
    uint8_t kind;        /* enum op_kind_core */
    bool orphan;         /* the stream is closing: only the blob matters */
    bool in_place;       /* FETCH: the row is whole with it */
    uint32_t stream, slot, row, worker;
    uint64_t blob_offset, blob_bytes;
    uint32_t next_free;
};

struct core_worker {
    bool open; /* its seat: it has an arena */
    bool up;
    bool alone;                 /* a suspect is being tried: nothing else is handed over */
    uint32_t streams;           /* in use */
    uint32_t fetching, decodes; /* outstanding */
    uint32_t deaths;            /* in a row, without a finished row */
    uint64_t cost_ns;           /* moving mean; 0: none yet */
    uint64_t memory_bytes;      /* that its seat takes */
    uint64_t gives;             /* blobs given back so far */
    struct pipeline_arena arena;
    uint32_t free_op;
    struct core_op *ops; /* PIPELINE_OPS_MAX; NULL: its seat was never open; owned */
};

struct pipeline_core {
    struct pipeline_core_params params;
    uint64_t memory_used;
    uint64_t turn;
    uint32_t active_count;
    uint32_t active[PIPELINE_STREAMS_MAX]; /* numbers of the streams in use */
    uint32_t dirty_head, dirty_count;
    uint32_t dirty[PIPELINE_STREAMS_MAX]; /* streams that may have something to command */
    struct core_stream
        *streams[PIPELINE_STREAMS_MAX]; /* NULL: never used; kept for the next stream otherwise */
    struct core_worker workers[PIPELINE_WORKERS_MAX];
};

/* Marks the stream as worth a look by pipeline_core_next. */
void pipeline_core_touch(struct pipeline_core *core, uint32_t stream);

/* A free place for something in flight of a worker; there is one. */
struct core_op *pipeline_core_op_take(struct pipeline_core *core, uint32_t worker);
void pipeline_core_op_give(struct pipeline_core *core, struct core_op *op);
uint64_t pipeline_core_ticket(const struct pipeline_core *core, const struct core_op *op);
/* What is in flight under the ticket; NULL: nothing. */
struct core_op *pipeline_core_op_find(const struct pipeline_core *core, uint64_t ticket);

/* Room for a blob in the arena of the stream's worker: 0, or -EAGAIN, which the stream notes. */
int pipeline_core_blob_take(struct pipeline_core *core, struct core_stream *stream, uint64_t bytes,
                            uint64_t *ret_offset);
void pipeline_core_blob_give(struct pipeline_core *core, struct core_stream *stream,
                             uint64_t offset, uint64_t bytes);
/* Whether the stream has its share of fetches and of memory not yet. */
bool pipeline_core_may_fetch(const struct pipeline_core *core, const struct core_stream *stream);

void pipeline_core_row_ready(struct core_slot *slot, uint32_t row);
/* Its sample is made, or failed: then the row is perhaps placed again with a substitute. */
void pipeline_core_row_done(struct pipeline_core *core, uint32_t stream, struct core_slot *slot,
                            uint32_t row, enum spdl_class class_number);
/* The slot's next row to be placed, with `take` for good; it has one. A row behind one whose
 * substitutes all failed is not made any more. */
uint32_t pipeline_core_row_next(const struct core_slot *slot);
uint32_t pipeline_core_row_take(struct core_slot *slot);
bool pipeline_core_row_is_lost(const struct core_stream *stream, const struct core_slot *slot,
                               uint32_t row);
/* Counts the rows of a batch that is whole. False: one of them ends the stream. */
bool pipeline_core_count_batch(struct pipeline_core *core, uint32_t stream, uint32_t slot);
/* The class of most of the failed rows that were counted. */
enum spdl_class pipeline_core_most_class(const struct core_stream *stream);
void pipeline_core_blob_drop(struct pipeline_core *core, struct core_stream *stream,
                             struct core_row *row);
void pipeline_core_end(struct pipeline_core *core, uint32_t stream, int code,
                       enum spdl_class class_number);
void pipeline_core_forget(struct pipeline_core *core, uint32_t stream);

#endif
