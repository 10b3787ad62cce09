/* A stream's two mapped segments, and the one place where what stands in them is checked. A daemon
 * with a fault must not be able to crash a trainer: every word is copied before it is looked at,
 * every offset and size is held against the size of the segment, and nothing is used that was not
 * checked in this file. Whoever holds the stream's lock calls; reading a row needs no lock. */
#include "client/client_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shm/shm_segment.h"

static const uint64_t dtype_bytes[] = {
    [SPDL_DTYPE_UINT8] = 1,   [SPDL_DTYPE_INT64] = 8,    [SPDL_DTYPE_FLOAT32] = 4,
    [SPDL_DTYPE_FLOAT16] = 2, [SPDL_DTYPE_BFLOAT16] = 2,
};

/* Do `bytes` bytes at `offset` lie inside `total`, aligned? */
static int is_inside(uint64_t offset, uint64_t bytes, uint64_t total, uint64_t align)
{
    return offset <= total && bytes <= total - offset && offset % align == 0;
}

static const void *control_at(const struct spdl_client_ring *ring, uint64_t offset)
{
    return (const unsigned char *)ring->control + offset;
}

/* Bytes of rows of unequal length, and where they begin: each has the other as its partner. */
static const char *ragged_fault(const struct spdl_shm_field *field, uint32_t number,
                                const struct spdl_shm_field *fields,
                                const struct spdl_shm_header *header)
{
    int is_values = field->kind == SPDL_SHM_FIELD_VALUES;
    const struct spdl_shm_field *partner =
        field->partner < header->field_count ? &fields[field->partner] : NULL;
    if (!partner || partner->partner != number ||
        partner->kind != (is_values ? SPDL_SHM_FIELD_OFFSETS : SPDL_SHM_FIELD_VALUES))
        return "a field's partner";
    if (field->dtype != (is_values ? SPDL_DTYPE_UINT8 : SPDL_DTYPE_INT64) || field->dim_count != 0)
        return "the form of a ragged field";
    if (is_values)
        return is_inside(field->slot_offset, field->room_bytes, header->slot_data_bytes,
                         SPDL_SHM_ALIGN)
                   ? NULL
                   : "a ragged field's place";
    uint64_t bytes = sizeof(int64_t) * ((uint64_t)header->row_count + 1);
    if (!is_inside(field->slot_offset, bytes, header->slot_stride, SPDL_SHM_ALIGN) ||
        header->slots_offset % SPDL_SHM_ALIGN != 0 || header->slot_stride % SPDL_SHM_ALIGN != 0 ||
        header->slot_stride * header->slot_count > header->control_bytes - header->slots_offset)
        return "the place of a ragged field's offsets";
    return NULL;
}

/* NULL when the field is what it should be, else what is wrong with it. */
static const char *field_fault(uint32_t number, const struct spdl_shm_field *fields,
                               const struct spdl_shm_header *header)
{
    const struct spdl_shm_field *field = &fields[number];
    if (field->name[0] == 0 || !memchr(field->name, 0, sizeof(field->name)))
        return "a field's name";
    if (field->kind > SPDL_SHM_FIELD_OFFSETS)
        return "a field's kind";
    if (field->kind != SPDL_SHM_FIELD_ROWS)
        return ragged_fault(field, number, fields, header);
    if (field->dtype < SPDL_DTYPE_UINT8 || field->dtype > SPDL_DTYPE_BFLOAT16)
        return "a field's dtype";
    if (field->dim_count > SPDL_SHM_DIMS_MAX)
        return "a field's number of dimensions";
    uint64_t row_bytes = dtype_bytes[field->dtype];
    int64_t stride =
        1; /* what a caller computes, dimensions of 0 left out: must not overflow either */
    for (uint32_t i = 0; i < field->dim_count; i++) {
        uint64_t dim = field->dims[i];
        if (__builtin_mul_overflow(row_bytes, dim, &row_bytes) ||
            __builtin_mul_overflow(stride, dim > 0 ? dim : 1, &stride))
            return "a field's shape";
    }
    uint64_t tensor_bytes;
    if (row_bytes != field->row_bytes ||
        __builtin_mul_overflow(row_bytes, (uint64_t)header->row_count, &tensor_bytes))
        return "a field's row size";
    if (!is_inside(field->slot_offset, tensor_bytes, header->slot_data_bytes, SPDL_SHM_ALIGN))
        return "a field's place";
    return NULL;
}

static const char *header_fault(const struct spdl_shm_header *header, uint64_t control_bytes,
                                uint64_t data_bytes)
{
    if (header->magic != SPDL_SHM_MAGIC)
        return "the magic number";
    if (header->major != SPDL_SHM_MAJOR)
        return "the layout's version";
    if (header->control_bytes != control_bytes || header->data_bytes != data_bytes)
        return "the sizes";
    if (header->slot_count < 1 || header->slot_count > SPDL_SHM_SLOTS_MAX)
        return "the number of slots";
    if (header->order_count <= header->slot_count ||
        (header->order_count & (header->order_count - 1)) != 0)
        return "the size of the order ring";
    if (header->field_count < 1 || header->field_count > SPDL_SHM_FIELDS_MAX)
        return "the number of fields";
    if (header->row_count < 1 || header->row_count > SPDL_SHM_ROWS_MAX)
        return "the number of rows";
    uint64_t field_bytes = sizeof(struct spdl_shm_field) * (uint64_t)header->field_count;
    if (!is_inside(header->fields_offset, field_bytes, control_bytes, 8))
        return "the place of the fields";
    if (!is_inside(header->order_offset, 8 * (uint64_t)header->order_count, control_bytes, 8))
        return "the place of the order ring";
    uint64_t slot_bytes = sizeof(struct spdl_shm_slot);
    if (header->slot_stride < slot_bytes || header->slot_stride > control_bytes ||
        header->slot_stride % 8 != 0)
        return "the distance of the slots";
    uint64_t last_slot = header->slot_stride * (header->slot_count - 1); /* cannot overflow */
    if (last_slot > control_bytes ||
        !is_inside(header->slots_offset, last_slot + slot_bytes, control_bytes, 8))
        return "the place of the slots";
    return NULL;
}

static const char *ring_fault(struct spdl_client_ring *ring)
{
    if (ring->control_bytes < sizeof(struct spdl_shm_header))
        return "the size of the control segment";
    const struct spdl_shm_header *shared = ring->control;
    /* Partner: the daemon's release store, after all that stands before it. */
    if (atomic_load_explicit(&shared->ready, memory_order_acquire) != SPDL_SHM_MAGIC)
        return "the ready word";
    memcpy(&ring->header, shared, sizeof(ring->header));
    const char *fault = header_fault(&ring->header, ring->control_bytes, ring->data_bytes);
    if (fault)
        return fault;
    memcpy(ring->fields, control_at(ring, ring->header.fields_offset),
           sizeof(struct spdl_shm_field) * ring->header.field_count);
    for (uint32_t i = 0; i < ring->header.field_count; i++) {
        fault = field_fault(i, ring->fields, &ring->header);
        if (fault)
            return fault;
    }
    ring->order = control_at(ring, ring->header.order_offset);
    return NULL;
}

int spdl_client_ring_create(int control_fd, uint64_t control_bytes, int data_fd,
                            uint64_t data_bytes, struct spdl_client_ring **ret_ring,
                            struct spdl_client_error *error)
{
    struct spdl_client_ring *ring = calloc(1, sizeof(*ring));
    if (!ring)
        return spdl_client_fail(error, -ENOMEM, SPDL_CLASS_RESOURCE, "no memory");
    int rc = spdl_shm_segment_map(control_fd, control_bytes, 0, 1, &ring->control);
    if (rc == 0) {
        ring->control_bytes = control_bytes;
        rc = spdl_shm_segment_map(data_fd, data_bytes, 0, 1, &ring->data);
    }
    if (rc == 0)
        ring->data_bytes = data_bytes;
    char words[128];
    if (rc < 0) {
        spdl_client_ring_destroy(ring);
        return spdl_client_fail(error, rc, rc == -ENOMEM ? SPDL_CLASS_RESOURCE : 0,
                                "the stream's shared memory cannot be mapped: %s",
                                spdl_client_errno_text(rc, words, sizeof(words)));
    }
    const char *fault = ring_fault(ring);
    if (fault) {
        spdl_client_ring_destroy(ring);
        return spdl_client_fail(error, -EPROTO, 0,
                                "the daemon's shared memory is not what it should be: %s", fault);
    }
    ring->end = UINT64_MAX;
    for (uint32_t i = 0; i < ring->header.slot_count; i++)
        ring->batches[i].ring = ring;
    *ret_ring = ring;
    return 0;
}

void spdl_client_ring_destroy(struct spdl_client_ring *ring)
{
    if (!ring)
        return;
    spdl_shm_segment_unmap(ring->control, ring->control_bytes);
    spdl_shm_segment_unmap(ring->data, ring->data_bytes);
    free(ring);
}

int spdl_client_ring_ready(const struct spdl_client_ring *ring, uint64_t k, uint32_t *ret_slot)
{
    if (k >= ring->end)
        return 0;
    /* Partner: the conductor's release store of the entry, after descriptor and tensors. */
    uint64_t entry = atomic_load_explicit(&ring->order[k & (ring->header.order_count - 1)],
                                          memory_order_acquire);
    *ret_slot = (uint32_t)(entry & 0xff);
    return entry >> 8 == k + 1;
}

int spdl_client_ring_slot(const struct spdl_client_ring *ring, uint64_t k, uint32_t slot,
                          struct spdl_shm_slot *ret_slot)
{
    const struct spdl_shm_header *h = &ring->header;
    if (slot >= h->slot_count)
        return -EPROTO;
    const void *shared = control_at(ring, h->slots_offset + h->slot_stride * slot);
    memcpy(ret_slot, shared, sizeof(*ret_slot));
    if (ret_slot->sequence != k || ret_slot->rows > h->row_count ||
        ret_slot->valid > ret_slot->rows || ret_slot->error_count > ret_slot->rows)
        return -EPROTO;
    if (ret_slot->state_bytes >= SPDL_SHM_STATE_BYTES ||
        memchr(ret_slot->state, 0, SPDL_SHM_STATE_BYTES) != ret_slot->state + ret_slot->state_bytes)
        return -EPROTO;
    uint64_t row_bytes = sizeof(struct spdl_shm_row) * (uint64_t)h->row_count;
    uint64_t message_bytes = (uint64_t)SPDL_SHM_MESSAGES_MAX * SPDL_SHM_MESSAGE_BYTES;
    if (!is_inside(ret_slot->rows_offset, row_bytes, h->control_bytes, 8) ||
        !is_inside(ret_slot->messages_offset, message_bytes, h->control_bytes, 1) ||
        !is_inside(ret_slot->text_offset, ret_slot->text_bytes, h->control_bytes, 1) ||
        !is_inside(ret_slot->data_offset, h->slot_data_bytes, h->data_bytes, SPDL_SHM_ALIGN))
        return -EPROTO;
    return 0;
}

const int64_t *spdl_client_ring_offsets(const struct spdl_batch *batch, uint32_t field)
{
    const struct spdl_client_ring *ring = batch->ring;
    uint64_t slot = ring->header.slots_offset + ring->header.slot_stride * batch->number;
    return control_at(ring, slot + ring->fields[field].slot_offset);
}

int spdl_client_ring_ragged(const struct spdl_client_ring *ring, struct spdl_batch *batch)
{
    for (uint32_t i = 0; i < ring->header.field_count; i++) {
        const struct spdl_shm_field *field = &ring->fields[i];
        if (field->kind != SPDL_SHM_FIELD_VALUES)
            continue;
        const int64_t *offsets = spdl_client_ring_offsets(batch, field->partner);
        int64_t last = 0;
        if (offsets[0] != 0)
            return -EPROTO;
        for (uint32_t r = 1; r <= batch->slot.rows; r++) {
            int64_t offset = offsets[r];
            if (offset < last)
                return -EPROTO;
            last = offset;
        }
        if ((uint64_t)last > field->room_bytes)
            return -EPROTO;
        batch->value_bytes[i] = (uint64_t)last;
    }
    return 0;
}

int spdl_client_ring_row(const struct spdl_client_ring *ring, const struct spdl_shm_slot *slot,
                         uint32_t number, struct spdl_row *ret_row)
{
    memset(ret_row, 0, sizeof(*ret_row));
    if (number >= slot->rows)
        return -ERANGE;
    struct spdl_shm_row row;
    memcpy(&row, control_at(ring, slot->rows_offset + sizeof(row) * (uint64_t)number), sizeof(row));
    if (!is_inside(row.key_offset, row.key_bytes, slot->text_bytes, 1) ||
        !is_inside(row.failed_key_offset, row.failed_key_bytes, slot->text_bytes, 1) ||
        row.key_bytes > SPDL_SHM_KEY_BYTES || row.failed_key_bytes > SPDL_SHM_KEY_BYTES ||
        row.class_number >= SPDL_CLASS_COUNT || row.message > SPDL_SHM_MESSAGES_MAX)
        return -EPROTO;
    const char *message = "";
    if (row.message > 0) {
        message = control_at(ring, slot->messages_offset +
                                       (uint64_t)SPDL_SHM_MESSAGE_BYTES * (row.message - 1));
        if (!memchr(message, 0, SPDL_SHM_MESSAGE_BYTES))
            return -EPROTO;
    }
    const char *text = control_at(ring, slot->text_offset);
    ret_row->id = row.id;
    ret_row->key = text + row.key_offset;
    ret_row->key_bytes = row.key_bytes;
    ret_row->valid = row.valid != 0;
    ret_row->failed_key = row.failed_key_bytes > 0 ? text + row.failed_key_offset : NULL;
    ret_row->failed_key_bytes = row.failed_key_bytes;
    ret_row->failed_class = spdl_client_class_text(row.class_number);
    ret_row->message = message;
    ret_row->has_draws = (row.flags & SPDL_SHM_ROW_DRAWS) != 0;
    memcpy(ret_row->crop, row.crop, sizeof(ret_row->crop));
    ret_row->flipped = (row.flags & SPDL_SHM_ROW_HFLIP) != 0;
    ret_row->attempt = row.attempt;
    return 0;
}
