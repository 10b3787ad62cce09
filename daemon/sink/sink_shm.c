/* A stream's ring in shared memory: see sink.h; the layout is shm/shm_layout.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "shm/shm_failpoint.h"
#include "shm/shm_layout.h"
#include "shm/shm_segment.h"
#include "sink/sink.h"

/* Where things are in the two segments. */
struct layout {
    uint64_t fields, order, slots, slot_stride; /* control segment */
    uint64_t rows, messages, text;              /* in a slot's part of it */
    uint64_t text_bytes, control_bytes;
    uint64_t offsets_at[FIELD_MAX]; /* of ragged fields, in a slot's part of the control segment */
    uint64_t field_offset[FIELD_MAX], slot_data_bytes, data_bytes;
    uint32_t order_count;
};

struct sink {
    struct layout layout;
    uint32_t slot_count, row_count, field_count;
    uint64_t row_bytes[FIELD_MAX]; /* ragged: room of a row */
    bool ragged[FIELD_MAX];
    struct spdl_shm_segment control, data;
    int pipe_read, pipe_write;
    /* of each slot: */
    uint32_t message_count[SPDL_SHM_SLOTS_MAX];
    uint64_t text_used[SPDL_SHM_SLOTS_MAX];
};

static uint64_t align_up(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

/* Fields that the rank sees: a ragged one is two, values and offsets. */
static uint32_t shown_count(const struct sink_params *params)
{
    uint32_t count = params->field_count;
    for (uint32_t f = 0; f < params->field_count; f++)
        count += params->fields[f].ragged;
    return count;
}

static bool layout_make(const struct sink_params *params, struct layout *l)
{
    uint64_t rows = params->row_count > 0 ? params->row_count : 1, data = 0;
    for (uint32_t f = 0; f < params->field_count; f++) {
        uint64_t bytes;
        l->field_offset[f] = data;
        if (__builtin_mul_overflow(params->fields[f].row_bytes, rows, &bytes) ||
            bytes > UINT64_MAX / 256 - data)
            return false;
        data = align_up(data + bytes, SPDL_SHM_ALIGN);
    }
    l->slot_data_bytes = align_up(data > 0 ? data : 1, 4096);
    if (__builtin_mul_overflow(l->slot_data_bytes, params->slot_count, &l->data_bytes))
        return false;
    l->order_count = 1;
    while (l->order_count < params->slot_count + 1)
        l->order_count *= 2;
    uint32_t entries = shown_count(params);
    l->fields = align_up(sizeof(struct spdl_shm_header), 128);
    l->order = align_up(l->fields + entries * sizeof(struct spdl_shm_field), 128);
    l->slots = align_up(l->order + l->order_count * sizeof(uint64_t), SPDL_SHM_ALIGN);
    l->rows = align_up(sizeof(struct spdl_shm_slot), 64);
    l->messages = l->rows + rows * sizeof(struct spdl_shm_row);
    l->text = l->messages + (uint64_t)SPDL_SHM_MESSAGES_MAX * SPDL_SHM_MESSAGE_BYTES;
    l->text_bytes = rows * params->key_bytes * (params->has_substitutes ? 2 : 1);
    l->slot_stride = align_up(l->text + l->text_bytes, SPDL_SHM_ALIGN);
    for (uint32_t f = 0; f < params->field_count; f++) {
        if (!params->fields[f].ragged)
            continue;
        l->offsets_at[f] = l->slot_stride;
        l->slot_stride = align_up(l->offsets_at[f] + (rows + 1) * sizeof(int64_t), SPDL_SHM_ALIGN);
    }
    l->control_bytes = align_up(l->slots + params->slot_count * l->slot_stride, 4096);
    return true;
}

uint64_t sink_memory_bytes(const struct sink_params *params)
{
    struct layout l = {0};
    uint64_t bytes;
    if (!layout_make(params, &l) || __builtin_add_overflow(l.data_bytes, l.control_bytes, &bytes))
        return UINT64_MAX;
    return bytes;
}

static struct spdl_shm_slot *slot_at(const struct sink *sink, uint32_t slot)
{
    ASSERT(slot < sink->slot_count);
    return (struct spdl_shm_slot *)(void *)((char *)sink->control.base + sink->layout.slots +
                                            slot * sink->layout.slot_stride);
}

static struct spdl_shm_row *row_at(const struct sink *sink, uint32_t slot, uint32_t row)
{
    ASSERT(row < sink->row_count);
    return (struct spdl_shm_row *)(void *)((char *)slot_at(sink, slot) + sink->layout.rows) + row;
}

/* Where each row of a ragged field begins; until its batch is published, entry r + 1 holds the
 * bytes of row r. */
static int64_t *offsets_of(const struct sink *sink, uint32_t slot, uint32_t field)
{
    return (int64_t *)(void *)((char *)slot_at(sink, slot) + sink->layout.offsets_at[field]);
}

static void name_fill(struct spdl_shm_field *to, const char *name, const char *suffix)
{
    size_t bytes = strnlen(name, SPDL_SHM_NAME_BYTES - 1), more = strlen(suffix);
    ASSERT(bytes + more < SPDL_SHM_NAME_BYTES); /* field_finish */
    memcpy(to->name, name, bytes);
    memcpy(to->name + bytes, suffix, more);
}

/* Entries `number` and the one behind it. */
static void ragged_fill(struct sink *sink, const struct field_spec *from, uint32_t field,
                        struct spdl_shm_field *fields, uint32_t number)
{
    struct spdl_shm_field *values = &fields[number], *offsets = &fields[number + 1];
    uint64_t rows = sink->row_count > 0 ? sink->row_count : 1;
    *values = (struct spdl_shm_field){.dtype = from->dtype,
                                      .slot_offset = sink->layout.field_offset[field],
                                      .kind = SPDL_SHM_FIELD_VALUES,
                                      .partner = number + 1,
                                      .room_bytes = from->row_bytes * rows};
    *offsets = (struct spdl_shm_field){.dtype = SPDL_DTYPE_INT64,
                                       .row_bytes = sizeof(int64_t),
                                       .slot_offset = sink->layout.offsets_at[field],
                                       .kind = SPDL_SHM_FIELD_OFFSETS,
                                       .partner = number};
    name_fill(values, from->name, ".values");
    name_fill(offsets, from->name, ".offsets");
}

static void fields_fill(struct sink *sink, const struct sink_params *params)
{
    struct spdl_shm_field *fields =
        (struct spdl_shm_field *)(void *)((char *)sink->control.base + sink->layout.fields);
    uint32_t number = 0;
    for (uint32_t f = 0; f < params->field_count; f++) {
        const struct field_spec *from = &params->fields[f];
        sink->row_bytes[f] = from->row_bytes;
        sink->ragged[f] = from->ragged != 0;
        if (from->ragged) {
            ragged_fill(sink, from, f, fields, number);
            number += 2;
            continue;
        }
        struct spdl_shm_field *to = &fields[number++];
        name_fill(to, from->name, "");
        to->dtype = from->dtype;
        to->dim_count = from->dim_count;
        for (uint32_t d = 0; d < from->dim_count; d++)
            to->dims[d] = from->dims[d];
        to->row_bytes = from->row_bytes;
        to->slot_offset = sink->layout.field_offset[f];
    }
}

static void header_fill(struct sink *sink, const struct sink_params *params)
{
    const struct layout *l = &sink->layout;
    struct spdl_shm_header *header = sink->control.base;
    header->magic = SPDL_SHM_MAGIC;
    header->major = SPDL_SHM_MAJOR;
    header->minor = SPDL_SHM_MINOR;
    header->control_bytes = l->control_bytes;
    header->data_bytes = l->data_bytes;
    header->generation = params->generation;
    header->stream_id = params->stream_id;
    header->slot_count = params->slot_count;
    header->order_count = l->order_count;
    header->field_count = shown_count(params);
    header->row_count = params->row_count;
    header->fields_offset = l->fields;
    header->order_offset = l->order;
    header->slots_offset = l->slots;
    header->slot_stride = l->slot_stride;
    header->slot_data_bytes = l->slot_data_bytes;
    fields_fill(sink, params);
    for (uint32_t s = 0; s < params->slot_count; s++) {
        uint64_t at = l->slots + s * l->slot_stride;
        struct spdl_shm_slot *slot = slot_at(sink, s);
        slot->data_offset = s * l->slot_data_bytes;
        slot->rows_offset = at + l->rows;
        slot->messages_offset = at + l->messages;
        slot->text_offset = at + l->text;
        slot->text_bytes = l->text_bytes;
    }
    /* Partner: the rank's acquire load when it maps the segment. */
    atomic_store_explicit(&header->ready, SPDL_SHM_MAGIC, memory_order_release);
}

static int segment_make(struct spdl_shm_segment *segment, const struct sink_params *params,
                        enum spdl_shm_use use, uint64_t bytes, struct err *reterr)
{
    uint64_t free_bytes = UINT64_MAX;
    int rc = spdl_shm_segment_create(segment, (enum spdl_shm_kind)params->shm_kind, use, bytes, 1,
                                     &free_bytes);
    if (rc == -ENOSPC && free_bytes != UINT64_MAX)
        return err_set(reterr, rc,
                       "/dev/shm is short: %llu bytes are needed for a segment, %llu are free; ask "
                       "for fewer slots or a "
                       "smaller batch, make it larger, or use shm: memfd",
                       (unsigned long long)bytes, (unsigned long long)free_bytes);
    if (rc < 0)
        return err_set(reterr, rc, "a shared memory segment of %llu bytes could not be made: %s",
                       (unsigned long long)bytes, strerror(-rc));
    return 0;
}

int sink_create(const struct sink_params *params, struct sink **ret_sink, struct err *reterr)
{
    ASSERT(params->slot_count <= SPDL_SHM_SLOTS_MAX && params->field_count <= FIELD_MAX);
    struct sink *sink = calloc(1, sizeof *sink);
    if (!sink)
        return err_set(reterr, -ENOMEM, "no memory for a stream");
    sink->pipe_read = sink->pipe_write = -1;
    sink->control.fd = sink->control.read_only_fd = sink->data.fd = sink->data.read_only_fd = -1;
    sink->slot_count = params->slot_count;
    sink->row_count = params->row_count;
    sink->field_count = params->field_count;
    int rc = layout_make(params, &sink->layout)
                 ? 0
                 : err_set(reterr, -EOVERFLOW, "a batch of this size overflows");
    if (rc == 0)
        rc = segment_make(&sink->control, params, SPDL_SHM_READ_BY_OTHERS,
                          sink->layout.control_bytes, reterr);
    if (rc == 0)
        rc = segment_make(&sink->data, params, SPDL_SHM_WRITTEN_BY_OTHERS, sink->layout.data_bytes,
                          reterr);
    int ends[2] = {-1, -1};
    if (rc == 0 && pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        rc = err_set(reterr, -errno, "no pipe for wake-ups: %s", strerror(errno));
    if (rc < 0) {
        sink_destroy(sink);
        return rc;
    }
    sink->pipe_read = ends[0];
    sink->pipe_write = ends[1];
    header_fill(sink, params);
    *ret_sink = sink;
    return 0;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void sink_destroy(struct sink *sink)
{
    if (!sink)
        return;
    spdl_shm_segment_destroy(&sink->control);
    spdl_shm_segment_destroy(&sink->data);
    close_fd(&sink->pipe_read);
    close_fd(&sink->pipe_write);
    free(sink);
}

void sink_rank_fds(const struct sink *sink, int fds[3])
{
    fds[0] = sink->control.read_only_fd;
    fds[1] = sink->data.read_only_fd;
    fds[2] = sink->pipe_read;
}

void sink_rank_fds_sent(struct sink *sink)
{
    close_fd(&sink->pipe_read);
    close_fd(&sink->control.fd); /* the mappings stay */
    close_fd(&sink->control.read_only_fd);
    close_fd(&sink->data.read_only_fd);
}

int sink_worker_fd(const struct sink *sink)
{
    return sink->data.fd;
}

uint64_t sink_control_bytes(const struct sink *sink)
{
    return sink->layout.control_bytes;
}

uint64_t sink_data_bytes(const struct sink *sink)
{
    return sink->layout.data_bytes;
}

uint64_t sink_slot_bytes(const struct sink *sink)
{
    return sink->layout.slot_data_bytes;
}

uint64_t sink_field_offset(const struct sink *sink, uint32_t field)
{
    return sink->layout.field_offset[field];
}

/* Stores a message in the slot and returns 1 + its number; 0 when there is none or no room. */
static uint32_t message_put(struct sink *sink, uint32_t slot, const char *message)
{
    if (!message || !message[0] || sink->message_count[slot] == SPDL_SHM_MESSAGES_MAX)
        return 0;
    uint32_t number = sink->message_count[slot]++;
    char *to = (char *)sink->control.base + slot_at(sink, slot)->messages_offset +
               number * SPDL_SHM_MESSAGE_BYTES;
    size_t i = 0;
    for (; message[i] && i + 1 < SPDL_SHM_MESSAGE_BYTES; i++)
        to[i] = message[i] >= 32 && message[i] < 127 ? message[i] : '?';
    to[i] = 0;
    return number + 1;
}

void sink_note(struct sink *sink, uint32_t slot, uint32_t row, const struct sink_note *note)
{
    struct spdl_shm_row *to = row_at(sink, slot, row);
    to->flags = 0;
    if (note->has_draws) {
        to->flags = SPDL_SHM_ROW_DRAWS | (note->hflip ? SPDL_SHM_ROW_HFLIP : 0u) |
                    (note->vflip ? SPDL_SHM_ROW_VFLIP : 0u);
        memcpy(to->crop, note->crop, sizeof to->crop);
    }
    bool good = note->class_number == SPDL_CLASS_OK;
    for (uint32_t f = 0; f < sink->field_count; f++) {
        if (!sink->ragged[f])
            continue;
        uint64_t bytes = good && note->field_bytes ? note->field_bytes[f] : 0;
        ASSERT(bytes <= sink->row_bytes[f]);
        offsets_of(sink, slot, f)[row + 1] = (int64_t)bytes;
    }
    if (note->is_substitute)
        return;
    to->class_number = note->class_number;
    if (!good)
        to->message = message_put(sink, slot, note->message);
}

void sink_reset(struct sink *sink, uint32_t slot)
{
    for (uint32_t r = 0; r < sink->row_count; r++)
        *row_at(sink, slot, r) = (struct spdl_shm_row){0};
    for (uint32_t f = 0; f < sink->field_count; f++)
        if (sink->ragged[f])
            memset(offsets_of(sink, slot, f), 0, (sink->row_count + 1) * sizeof(int64_t));
    sink->message_count[slot] = 0;
}

void sink_publish_begin(struct sink *sink, uint32_t slot, const struct sink_batch *batch)
{
    struct spdl_shm_slot *to = slot_at(sink, slot);
    to->sequence = batch->sequence;
    to->epoch = batch->epoch;
    to->rows = batch->rows;
    to->valid = 0;
    to->error_count = 0;
    to->step = batch->step;
    to->position = batch->position;
    to->next_position = batch->next_position;
    to->next_step = batch->next_step;
    to->next_epoch = batch->next_epoch;
    size_t bytes = strnlen(batch->state, sizeof to->state - 1);
    memcpy(to->state, batch->state, bytes);
    to->state[bytes] = 0;
    to->state_bytes = (uint32_t)bytes;
    sink->text_used[slot] = 0;
}

static char *data_of(const struct sink *sink, uint32_t slot, uint32_t field)
{
    return (char *)sink->data.base + slot * sink->layout.slot_data_bytes +
           sink->layout.field_offset[field];
}

uint8_t *sink_row_bytes(struct sink *sink, uint32_t field, uint32_t slot, uint32_t row)
{
    return (uint8_t *)data_of(sink, slot, field) + row * sink->row_bytes[field];
}

/* In every field whose rows have one size; a ragged one has no bytes. */
static void row_zero(struct sink *sink, uint32_t slot, uint32_t row)
{
    for (uint32_t f = 0; f < sink->field_count; f++)
        if (!sink->ragged[f])
            memset(data_of(sink, slot, f) + row * sink->row_bytes[f], 0, sink->row_bytes[f]);
}

/* Moves the row's bytes behind those of the rows before it, which are shorter than their room. */
static void row_pack(struct sink *sink, uint32_t slot, uint32_t row, bool masked)
{
    for (uint32_t f = 0; f < sink->field_count; f++) {
        if (!sink->ragged[f])
            continue;
        int64_t *offsets = offsets_of(sink, slot, f);
        uint64_t from = row * sink->row_bytes[f], to = (uint64_t)offsets[row];
        uint64_t bytes = masked ? 0 : (uint64_t)offsets[row + 1];
        char *data = data_of(sink, slot, f);
        if (bytes > 0 && to != from)
            memmove(data + to, data + from, bytes);
        offsets[row + 1] = (int64_t)(to + bytes);
    }
}

/* Adds a key to the slot's text and returns where; its length is cut to the room that is left. */
static uint32_t key_put(struct sink *sink, uint32_t slot, const char *key, uint32_t *key_bytes)
{
    uint64_t at = sink->text_used[slot], room = sink->layout.text_bytes - at;
    if (*key_bytes > room)
        *key_bytes = (uint32_t)room;
    memcpy((char *)sink->control.base + slot_at(sink, slot)->text_offset + at, key, *key_bytes);
    sink->text_used[slot] += *key_bytes;
    return (uint32_t)at;
}

void sink_publish_row(struct sink *sink, uint32_t slot, uint32_t row, const struct sink_row *shown)
{
    struct spdl_shm_slot *head = slot_at(sink, slot);
    struct spdl_shm_row *to = row_at(sink, slot, row);
    bool failed = shown->class_number != SPDL_CLASS_OK;
    to->id = shown->id;
    to->key_bytes = shown->key_bytes;
    to->key_offset = key_put(sink, slot, shown->key, &to->key_bytes);
    to->failed_id = shown->failed_id;
    to->failed_key_offset = to->key_offset;
    to->failed_key_bytes = failed ? to->key_bytes : 0;
    if (failed && shown->attempt > 0) {
        to->failed_key_bytes = shown->failed_key_bytes;
        to->failed_key_offset = key_put(sink, slot, shown->failed_key, &to->failed_key_bytes);
    }
    if (failed && (to->class_number != (uint32_t)shown->class_number || to->message == 0))
        to->message = message_put(sink, slot, shown->message);
    if (shown->masked) {
        to->flags = 0;
        row_zero(sink, slot, row);
    }
    row_pack(sink, slot, row, shown->masked);
    to->class_number = shown->class_number;
    to->attempt = shown->attempt;
    to->valid = !shown->masked && !shown->padded;
    head->valid += to->valid;
    head->error_count += failed;
}

uint64_t sink_publish_end(struct sink *sink, uint32_t slot)
{
    struct spdl_shm_slot *head = slot_at(sink, slot);
    for (uint32_t r = head->rows; r < sink->row_count; r++)
        row_zero(sink, slot, r);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    head->publish_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    uint64_t sequence = head->sequence;
    SPDL_FAILPOINT("daemon.publish.before-entry");
    _Atomic uint64_t *order = (void *)((char *)sink->control.base + sink->layout.order);
    /* Partner: the rank's acquire load of the entry; all that the batch is was written before. */
    atomic_store_explicit(&order[sequence % sink->layout.order_count],
                          spdl_shm_order_entry(sequence, slot), memory_order_release);
    SPDL_FAILPOINT("daemon.publish.before-pipe");
    char byte = 1;
    ssize_t ignored =
        write(sink->pipe_write, &byte,
              1); /* full: the rank is awake already; EPIPE: its death comes by pidfd */
    (void)ignored;
    SPDL_FAILPOINT("daemon.publish.after-pipe");
    return head->publish_ns;
}
