/* The streams that a worker knows: what an ADD message said, checked, and the mapped data segment.
 * The socket thread adds and drops; decoding threads only look up, and only between the answer to
 * ADD and the message DROP. */
#ifndef SPDLD_WORKER_STREAM_H
#define SPDLD_WORKER_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>

#include "worker/worker.h"

enum worker_decoder {
    WORKER_DECODER_IMAGE,
    WORKER_DECODER_INTEGER,
    WORKER_DECODER_FLOAT,
    WORKER_DECODER_RAW,
    WORKER_DECODER_TEXT,
    WORKER_DECODER_JSON
};

struct worker_stream {
    struct worker_add add;
    enum worker_decoder decoders[FIELD_MAX];
    uint8_t *data;
};

struct worker_streams {
    _Atomic(struct worker_stream *)
        at[WORKER_STREAMS_MAX]; /* W: socket thread, release  R: decoding threads, acquire */
};

/* Checks every number of the message and maps the segment; the descriptor stays the caller's. 0;
 * -EPROTO when the message does not fit; -ENOMEM. */
int worker_streams_add(struct worker_streams *streams, const struct worker_add *add, int data_fd);

/* Unmaps a stream. 0, or -EPROTO when there is none with that number. */
int worker_streams_drop(struct worker_streams *streams, uint32_t number);
void worker_streams_drop_all(struct worker_streams *streams);

/* The stream, or NULL. */
const struct worker_stream *worker_streams_look(const struct worker_streams *streams,
                                                uint32_t number);

/* Where a row of a field is. The numbers have been checked. */
uint8_t *worker_stream_row(const struct worker_stream *stream, uint32_t field, uint32_t slot,
                           uint32_t row);

#endif
