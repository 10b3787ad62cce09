/* The streams that a worker knows. What spdld says is checked here once, so that no thread can be
 * led outside a segment afterwards. */
#include "worker/worker_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shm/shm_layout.h"
#include "shm/shm_segment.h"
#include "transform/transform.h"

enum { ROW_ALIGN = 8 }; /* of a field in a slot: the widest dtype */

static bool find_decoder(const struct field_spec *field, enum worker_decoder *ret_decoder)
{
    static const struct {
        const char *name;
        enum worker_decoder decoder;
    } decoders[] = {{"image", WORKER_DECODER_IMAGE}, {"class", WORKER_DECODER_INTEGER},
                    {"int", WORKER_DECODER_INTEGER}, {"float", WORKER_DECODER_FLOAT},
                    {"raw", WORKER_DECODER_RAW},     {"text", WORKER_DECODER_TEXT},
                    {"json", WORKER_DECODER_JSON}};
    for (size_t i = 0; i < sizeof decoders / sizeof decoders[0]; i++)
        if (strncmp(field->decoder, decoders[i].name, sizeof field->decoder) == 0) {
            *ret_decoder = decoders[i].decoder;
            return true;
        }
    return false;
}

/* The form of a row, as spdld has worked it out, must be the one that follows from the field's own
 * parts. */
static bool field_fits(const struct field_spec *field, enum worker_decoder decoder)
{
    struct field_spec again = *field;
    if (field_finish(&again, NULL) != 0 || again.row_bytes != field->row_bytes ||
        again.ragged != field->ragged || field->row_bytes == 0)
        return false;
    switch (decoder) {
    case WORKER_DECODER_IMAGE:
        return transform_check(field, NULL) == 0;
    case WORKER_DECODER_INTEGER:
        return field->row_bytes == sizeof(int64_t) && field->dtype == FIELD_DTYPE_INT64;
    case WORKER_DECODER_FLOAT:
        return field->row_bytes == sizeof(float) && field->dtype == FIELD_DTYPE_FLOAT32;
    case WORKER_DECODER_RAW:
    case WORKER_DECODER_TEXT:
    case WORKER_DECODER_JSON:
        return field->dtype == FIELD_DTYPE_UINT8;
    }
    return false;
}

static bool message_fits(const struct worker_add *add)
{
    if (add->head.stream >= WORKER_STREAMS_MAX || add->slot_count == 0 ||
        add->slot_count > WORKER_SLOTS_MAX || add->row_count > SPDL_SHM_ROWS_MAX ||
        add->field_count == 0 || add->field_count > FIELD_MAX)
        return false;
    if (add->slot_bytes > add->data_bytes / add->slot_count)
        return false;
    for (uint32_t f = 0; f < add->field_count; f++) {
        uint64_t bytes = 0, end = 0;
        if (add->field_offset[f] % ROW_ALIGN != 0 ||
            __builtin_mul_overflow(add->fields[f].row_bytes, add->row_count, &bytes) ||
            __builtin_add_overflow(add->field_offset[f], bytes, &end) || end > add->slot_bytes)
            return false;
    }
    return true;
}

int worker_streams_add(struct worker_streams *streams, const struct worker_add *add, int data_fd)
{
    if (!message_fits(add) || worker_streams_look(streams, add->head.stream) != NULL)
        return -EPROTO;
    struct worker_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return -ENOMEM;
    stream->add = *add;
    int rc = 0;
    for (uint32_t f = 0; f < add->field_count && rc == 0; f++)
        if (!find_decoder(&add->fields[f], &stream->decoders[f]) ||
            !field_fits(&add->fields[f], stream->decoders[f]))
            rc = -EPROTO;
    void *data = NULL;
    if (rc == 0)
        rc = spdl_shm_segment_map(data_fd, add->data_bytes, 1, 0, &data);
    if (rc != 0) {
        free(stream);
        return rc;
    }
    stream->data = data;
    /* Partner: the acquire in worker_streams_look. */
    atomic_store_explicit(&streams->at[add->head.stream], stream, memory_order_release);
    return 0;
}

int worker_streams_drop(struct worker_streams *streams, uint32_t number)
{
    if (number >= WORKER_STREAMS_MAX)
        return -EPROTO;
    struct worker_stream *stream =
        atomic_exchange_explicit(&streams->at[number], NULL, memory_order_acq_rel);
    if (stream == NULL)
        return -EPROTO;
    spdl_shm_segment_unmap(stream->data, stream->add.data_bytes);
    free(stream);
    return 0;
}

void worker_streams_drop_all(struct worker_streams *streams)
{
    for (uint32_t i = 0; i < WORKER_STREAMS_MAX; i++)
        worker_streams_drop(streams, i);
}

const struct worker_stream *worker_streams_look(const struct worker_streams *streams,
                                                uint32_t number)
{
    if (number >= WORKER_STREAMS_MAX)
        return NULL;
    /* Partner: the release in worker_streams_add. */
    return atomic_load_explicit(&streams->at[number], memory_order_acquire);
}

uint8_t *worker_stream_row(const struct worker_stream *stream, uint32_t field, uint32_t slot,
                           uint32_t row)
{
    return stream->data + (uint64_t)slot * stream->add.slot_bytes +
           stream->add.field_offset[field] + (uint64_t)row * stream->add.fields[field].row_bytes;
}
