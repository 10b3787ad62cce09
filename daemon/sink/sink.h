/* Sink: a stream's ring in shared memory. It lays out the control and data segments, keeps a slot's
 * descriptor and publishes it to the rank. Conductor role, except sink_create and sink_destroy,
 * which may block and run as chores. */
#ifndef SPDLD_SINK_H
#define SPDLD_SINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "item/class.h"
#include "item/field.h"

struct sink;

struct sink_params {
    const struct field_spec *fields; /* borrowed during the call; finished */
    uint32_t field_count;
    uint32_t slot_count;
    uint32_t row_count;   /* rows that a slot has room for; may be 0 rows used later */
    uint32_t key_bytes;   /* longest key */
    bool has_substitutes; /* a row may have two keys */
    uint64_t stream_id;
    uint64_t generation;
    uint32_t shm_kind; /* enum spdl_shm_kind */
};

/* What the two segments will take, in bytes; UINT64_MAX on overflow. Pure. */
uint64_t sink_memory_bytes(const struct sink_params *params);

/* Makes the segments and the wake-up pipe. *ret_sink is returned owned. -ENOSPC (with a sentence
 * that has needed and free bytes), -ENOMEM, -EMFILE. */
int sink_create(const struct sink_params *params, struct sink **ret_sink, struct err *reterr);
void sink_destroy(struct sink *sink); /* accepts NULL */

/* Descriptors for the rank: control (read-only), data (read-only), wake-up pipe (read end).
 * Borrowed. */
void sink_rank_fds(const struct sink *sink, int fds[3]);
/* The rank has got its descriptors: what only it needs is closed here, the mappings stay. */
void sink_rank_fds_sent(struct sink *sink);
/* Descriptor of the data segment for the worker (writable), and where its fields are in a slot.
 * Borrowed. */
int sink_worker_fd(const struct sink *sink);
uint64_t sink_control_bytes(const struct sink *sink);
uint64_t sink_data_bytes(const struct sink *sink);
uint64_t sink_slot_bytes(const struct sink *sink);
uint64_t sink_field_offset(const struct sink *sink, uint32_t field);

/* Where a row of a field is made: what is written there before the slot is published is the row;
 * of a ragged one as many bytes as its note says. Borrowed. */
uint8_t *sink_row_bytes(struct sink *sink, uint32_t field, uint32_t slot, uint32_t row);

/* What is known about a row when its fetch or decode ended; stays until sink_reset of its slot. */
struct sink_note {
    enum spdl_class class_number;
    bool is_substitute; /* the row keeps the class and the message of the sample that failed */
    bool has_draws, hflip, vflip;
    int32_t crop[4];
    const char *message; /* borrowed; any bytes up to a 0; "" for none */
    /* Bytes of the row in each ragged field, at most its room: by number of the field, borrowed;
     * NULL: none. */
    const uint32_t *field_bytes;
};
void sink_note(struct sink *sink, uint32_t slot, uint32_t row, const struct sink_note *note);

/* The slot was given back: forgets its notes. */
void sink_reset(struct sink *sink, uint32_t slot);

struct sink_batch {
    uint64_t sequence;
    uint32_t epoch, next_epoch;
    uint64_t step, position, next_step, next_position;
    uint32_t rows;
    const char *state; /* text of the place behind it */
};
struct sink_row {
    uint64_t id;     /* of the sample shown; where none is, of the one that failed */
    const char *key; /* borrowed */
    uint32_t key_bytes;
    uint64_t failed_id;     /* of the sample of the order, where it failed; else id */
    const char *failed_key; /* with an attempt alone */
    uint32_t failed_key_bytes;
    enum spdl_class class_number; /* of that sample */
    uint32_t attempt;             /* 0: the sample of the order is shown */
    bool masked;                  /* the row is zeroed in every field and not valid */
    bool padded;                  /* shown, not valid */
    const char *message;          /* used when the row has no note of its own; "" for none */
};

/* Publishing: begin, the rows in order (which packs those of ragged fields together), end. end
 * stamps the time, stores the order entry with release and writes a byte into the pipe; it never
 * blocks. Returns publish_ns. */
void sink_publish_begin(struct sink *sink, uint32_t slot, const struct sink_batch *batch);
void sink_publish_row(struct sink *sink, uint32_t slot, uint32_t row, const struct sink_row *shown);
uint64_t sink_publish_end(struct sink *sink, uint32_t slot);

#endif
