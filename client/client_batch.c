/* Batches as the caller sees them: references, and views of what is in the slot. Any thread. */
#include "client/client_internal.h"

#include <errno.h>
#include <string.h>

static const struct spdl_client_guard *guard_of(const struct spdl_batch *batch)
{
    return &batch->ring->stream->target->guard;
}

struct spdl_batch *spdl_batch_ref(struct spdl_batch *batch)
{
    if (batch && !spdl_client_guard_forked(guard_of(batch)))
        atomic_fetch_add_explicit(&batch->refs, 1, memory_order_relaxed);
    return batch;
}

void spdl_batch_unref(struct spdl_batch *batch)
{
    if (!batch || spdl_client_guard_forked(guard_of(batch)))
        return;
    if (atomic_fetch_sub_explicit(&batch->refs, 1, memory_order_acq_rel) == 1)
        spdl_client_stream_give_back(batch->ring->stream, batch);
}

void spdl_batch_info(const struct spdl_batch *batch, struct spdl_batch_info *ret_info)
{
    const struct spdl_shm_slot *slot = &batch->slot;
    *ret_info = (struct spdl_batch_info){.state = ""};
    if (spdl_client_guard_forked(guard_of(batch)))
        return;
    *ret_info = (struct spdl_batch_info){
        .epoch = slot->epoch,
        .step = slot->step,
        .sequence = batch->sequence,
        .rows = slot->rows,
        .valid = slot->valid,
        .errors = slot->error_count,
        .fields = batch->ring->header.field_count,
        .publish_ns = slot->publish_ns,
        .wait_ns = batch->wait_ns,
        .state = slot->state,
    };
}

int spdl_batch_tensor(const struct spdl_batch *batch, uint32_t index,
                      struct spdl_tensor *ret_tensor)
{
    memset(ret_tensor, 0, sizeof(*ret_tensor));
    const struct spdl_client_ring *ring = batch->ring;
    if (spdl_client_guard_forked(guard_of(batch)))
        return -ESTALE;
    if (index >= ring->header.field_count)
        return -ENOENT;
    const struct spdl_shm_field *field = &ring->fields[index];
    ret_tensor->name = field->name;
    ret_tensor->dtype = (enum spdl_dtype)field->dtype;
    ret_tensor->dims = field->dim_count + 1;
    ret_tensor->shape[0] = batch->slot.rows;
    int64_t stride = 1;
    for (uint32_t i = field->dim_count; i > 0; i--) {
        ret_tensor->shape[i] = field->dims[i - 1];
        ret_tensor->strides[i] = stride;
        stride *= (int64_t)field->dims[i - 1];
    }
    ret_tensor->strides[0] = stride;
    if (field->kind == SPDL_SHM_FIELD_OFFSETS) {
        ret_tensor->shape[0]++;
        ret_tensor->data = spdl_client_ring_offsets(batch, index);
        ret_tensor->bytes = sizeof(int64_t) * (size_t)ret_tensor->shape[0];
        return 0;
    }
    if (field->kind == SPDL_SHM_FIELD_VALUES)
        ret_tensor->shape[0] = batch->value_bytes[index];
    ret_tensor->data =
        (const unsigned char *)ring->data + batch->slot.data_offset + field->slot_offset;
    ret_tensor->bytes = field->kind == SPDL_SHM_FIELD_VALUES
                            ? (size_t)batch->value_bytes[index]
                            : (size_t)(field->row_bytes * batch->slot.rows);
    return 0;
}

int spdl_batch_find(const struct spdl_batch *batch, const char *name,
                    struct spdl_tensor *ret_tensor)
{
    const struct spdl_client_ring *ring = batch->ring;
    for (uint32_t i = 0; name && i < ring->header.field_count; i++) {
        if (strcmp(ring->fields[i].name, name) == 0)
            return spdl_batch_tensor(batch, i, ret_tensor);
    }
    memset(ret_tensor, 0, sizeof(*ret_tensor));
    return spdl_client_guard_forked(guard_of(batch)) ? -ESTALE : -ENOENT;
}

int spdl_batch_row(const struct spdl_batch *batch, uint32_t row, struct spdl_row *ret_row)
{
    if (spdl_client_guard_forked(guard_of(batch))) {
        memset(ret_row, 0, sizeof(*ret_row));
        return -ESTALE;
    }
    return spdl_client_ring_row(batch->ring, &batch->slot, row, ret_row);
}
