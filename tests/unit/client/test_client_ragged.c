/* Rows of unequal length as the client shows them: real segments from the daemon's sink, read by
 * the client's ring. Then the same segments with one word that lies: an error, never a look outside
 * the mappings. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/client_internal.h"
#include "shm/shm_segment.h"
#include "sink/sink.h"

enum { ROWS = 3, SLOTS = 2, ROOM = 40 };

struct case_rings {
    struct sink *sink;
    struct spdl_shm_segment control, data; /* copies, which the test may change */
    struct spdl_client_target target;
    struct spdl_stream stream;
    struct spdl_client_ring *ring;
};

static const char *const rows[ROWS] = {"a few words", "", "and more of them"};

static struct field_spec field_of(const char *name, const char *decoder, uint64_t max_bytes)
{
    struct field_spec field = {.from = {"x"}, .from_count = 1, .max_bytes = max_bytes};
    memcpy(field.name, name, strlen(name) + 1);
    memcpy(field.decoder, decoder, strlen(decoder) + 1);
    if (max_bytes > 0)
        field.pad = FIELD_PAD_NO;
    assert_int_equal(field_finish(&field, NULL), 0);
    return field;
}

static void segment_copy(struct spdl_shm_segment *to, enum spdl_shm_use use, int fd, uint64_t bytes)
{
    void *from = NULL;
    uint64_t free_bytes;
    assert_int_equal(spdl_shm_segment_create(to, SPDL_SHM_MEMFD, use, bytes, 1, &free_bytes), 0);
    assert_int_equal(spdl_shm_segment_map(fd, bytes, 0, 1, &from), 0);
    memcpy(to->base, from, bytes);
    spdl_shm_segment_unmap(from, bytes);
}

/* A ring whose slot 1 has batch 0: `count` rows of text, and a label of their number. */
static void rings_init(struct case_rings *c, uint32_t count)
{
    memset(c, 0, sizeof *c);
    struct field_spec fields[] = {field_of("label", "class", 0), field_of("text", "text", ROOM)};
    struct sink_params params = {.fields = fields,
                                 .field_count = 2,
                                 .slot_count = SLOTS,
                                 .row_count = ROWS,
                                 .key_bytes = 4,
                                 .shm_kind = SPDL_SHM_MEMFD};
    struct err err = {0};
    void *data = NULL;
    int fds[3];
    assert_int_equal(sink_create(&params, &c->sink, &err), 0);
    uint64_t data_bytes = sink_data_bytes(c->sink);
    assert_int_equal(spdl_shm_segment_map(sink_worker_fd(c->sink), data_bytes, 1, 0, &data), 0);
    struct sink_batch batch = {.rows = count, .state = "there"};
    for (uint32_t r = 0; r < count; r++) {
        char *slot = (char *)data + sink_slot_bytes(c->sink);
        int64_t label = r;
        uint32_t bytes[2] = {0, (uint32_t)strlen(rows[r])};
        struct sink_note note = {.message = "", .field_bytes = bytes};
        memcpy(slot + sink_field_offset(c->sink, 0) + r * sizeof label, &label, sizeof label);
        memcpy(slot + sink_field_offset(c->sink, 1) + r * (size_t)ROOM, rows[r], bytes[1]);
        sink_note(c->sink, 1, r, &note);
    }
    sink_publish_begin(c->sink, 1, &batch);
    for (uint32_t r = 0; r < count; r++) {
        struct sink_row row = {.id = r, .key = "key", .key_bytes = 3, .message = ""};
        sink_publish_row(c->sink, 1, r, &row);
    }
    sink_publish_end(c->sink, 1);
    spdl_shm_segment_unmap(data, data_bytes);
    sink_rank_fds(c->sink, fds);
    segment_copy(&c->control, SPDL_SHM_READ_BY_OTHERS, fds[0], sink_control_bytes(c->sink));
    segment_copy(&c->data, SPDL_SHM_WRITTEN_BY_OTHERS, fds[1], data_bytes);
    spdl_client_guard_init(&c->target.guard);
    c->stream.target = &c->target;
}

static void rings_fini(struct case_rings *c)
{
    spdl_client_ring_destroy(c->ring);
    spdl_client_guard_fini(&c->target.guard);
    spdl_shm_segment_destroy(&c->control);
    spdl_shm_segment_destroy(&c->data);
    sink_destroy(c->sink);
}

static int ring_open(struct case_rings *c)
{
    struct spdl_client_error error;
    int rc = spdl_client_ring_create(c->control.read_only_fd, c->control.bytes,
                                     c->data.read_only_fd, c->data.bytes, &c->ring, &error);
    if (rc == 0)
        c->ring->stream = &c->stream;
    return rc;
}

/* Takes batch 0 as spdl_next does. */
static int batch_take(struct case_rings *c, struct spdl_batch **ret_batch)
{
    uint32_t slot = UINT32_MAX;
    assert_int_equal(spdl_client_ring_ready(c->ring, 0, &slot), 1);
    assert_int_equal(slot, 1);
    struct spdl_batch *batch = &c->ring->batches[slot];
    batch->number = slot;
    int rc = spdl_client_ring_slot(c->ring, 0, slot, &batch->slot);
    if (rc == 0)
        rc = spdl_client_ring_ragged(c->ring, batch);
    *ret_batch = batch;
    return rc;
}

static void test_tensors(void **state)
{
    (void)state;
    for (uint32_t count = 0; count <= ROWS; count++) {
        struct case_rings c;
        struct spdl_batch *batch;
        struct spdl_batch_info info;
        struct spdl_tensor values, offsets, label;
        rings_init(&c, count);
        assert_int_equal(ring_open(&c), 0);
        assert_int_equal(batch_take(&c, &batch), 0);
        spdl_batch_info(batch, &info);
        assert_int_equal(info.fields, 3);
        assert_int_equal(info.rows, count);
        assert_int_equal(spdl_batch_find(batch, "text", &values), -ENOENT);
        assert_int_equal(spdl_batch_find(batch, "label", &label), 0);
        assert_int_equal(spdl_batch_find(batch, "text.values", &values), 0);
        assert_int_equal(spdl_batch_find(batch, "text.offsets", &offsets), 0);
        assert_int_equal(label.shape[0], count);
        assert_int_equal(values.dtype, SPDL_UINT8);
        assert_int_equal(values.dims, 1);
        assert_int_equal(values.strides[0], 1);
        assert_int_equal(values.shape[0], values.bytes);
        assert_int_equal(offsets.dtype, SPDL_INT64);
        assert_int_equal(offsets.dims, 1);
        assert_int_equal(offsets.shape[0], count + 1);
        assert_int_equal(offsets.bytes, 8 * (count + 1));
        assert_int_equal((uintptr_t)values.data % 256, 0);
        assert_int_equal((uintptr_t)offsets.data % 256, 0);
        const int64_t *at = offsets.data;
        const char *text = values.data;
        assert_int_equal(at[0], 0);
        assert_int_equal(at[count], values.bytes);
        for (uint32_t r = 0; r < count; r++) {
            assert_int_equal(at[r + 1] - at[r], strlen(rows[r]));
            assert_memory_equal(text + at[r], rows[r], strlen(rows[r]));
        }
        rings_fini(&c);
    }
}

static void test_fields_that_lie(void **state)
{
    (void)state;
#define FIELD(number, member, value)                                                               \
    {                                                                                              \
        (number) * sizeof(struct spdl_shm_field) + offsetof(struct spdl_shm_field, member),        \
            sizeof(((struct spdl_shm_field *)0)->member), value                                    \
    }
    static const struct {
        size_t at, bytes;
        uint64_t value;
    } changes[] = {
        FIELD(1, kind, 0),
        FIELD(1, kind, 2),
        FIELD(1, kind, 3),
        FIELD(2, kind, 0),
        FIELD(2, kind, 1),
        FIELD(1, partner, 0),
        FIELD(1, partner, 1),
        FIELD(1, partner, 3),
        FIELD(2, partner, 0),
        FIELD(2, partner, UINT32_MAX),
        FIELD(0, kind, 1),
        FIELD(1, room_bytes, UINT64_MAX),
        FIELD(1, room_bytes, 1 << 20),
        FIELD(1, slot_offset, 1),
        FIELD(1, slot_offset, UINT64_MAX - 255),
        FIELD(1, dtype, SPDL_DTYPE_INT64),
        FIELD(1, dim_count, 1),
        FIELD(2, dtype, SPDL_DTYPE_UINT8),
        FIELD(2, dim_count, 1),
        FIELD(2, slot_offset, 8),
        FIELD(2, slot_offset, UINT64_MAX - 255),
        FIELD(2, slot_offset, 1 << 20),
    };
#undef FIELD
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct case_rings c;
        rings_init(&c, ROWS);
        struct spdl_shm_header *header = c.control.base;
        memcpy((char *)c.control.base + header->fields_offset + changes[i].at, &changes[i].value,
               changes[i].bytes);
        if (ring_open(&c) != -EPROTO)
            fail_msg("change %zu was taken", i);
        rings_fini(&c);
    }
}

static void test_offsets_that_lie(void **state)
{
    (void)state;
    static const int64_t lies[][ROWS + 1] = {
        {1, 11, 11, 27},        {-1, 11, 11, 27},     {0, -5, 11, 27},
        {0, 11, 10, 27},        {0, 11, 11, 10},      {0, 11, 11, 121},
        {0, 11, 11, INT64_MAX}, {0, INT64_MIN, 0, 0}, {0, INT64_MAX, 0, 0},
    };
    static const int64_t truths[][ROWS + 1] = {{0, 0, 0, 0}, {0, 120, 120, 120}, {0, 0, 0, 120}};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0] + sizeof truths / sizeof truths[0]; i++) {
        bool is_lie = i < sizeof lies / sizeof lies[0];
        const int64_t *words = is_lie ? lies[i] : truths[i - sizeof lies / sizeof lies[0]];
        struct case_rings c;
        struct spdl_batch *batch;
        struct spdl_tensor values;
        rings_init(&c, ROWS);
        const struct spdl_shm_header *header = c.control.base;
        const struct spdl_shm_field *fields =
            (const void *)((const char *)c.control.base + header->fields_offset);
        memcpy((char *)c.control.base + header->slots_offset + header->slot_stride +
                   fields[2].slot_offset,
               words, (ROWS + 1) * sizeof *words);
        assert_int_equal(ring_open(&c), 0);
        assert_int_equal(batch_take(&c, &batch), is_lie ? -EPROTO : 0);
        if (!is_lie) {
            assert_int_equal(spdl_batch_find(batch, "text.values", &values), 0);
            assert_int_equal(values.bytes, words[ROWS]);
        }
        rings_fini(&c);
    }
}

/* A client that knows nothing of ragged fields takes an entry for rows of one size: it must find
 * their size wrong. */
static void test_older_clients_refuse(void **state)
{
    (void)state;
    struct case_rings c;
    rings_init(&c, ROWS);
    const struct spdl_shm_header *header = c.control.base;
    const struct spdl_shm_field *values =
        (const struct spdl_shm_field *)(const void *)((const char *)c.control.base +
                                                      header->fields_offset) +
        1;
    assert_string_equal(values->name, "text.values");
    assert_int_equal(values->dim_count, 0);
    assert_int_not_equal(values->row_bytes, 1); /* the size of a uint8 */
    assert_int_equal(header->minor, 1);
    rings_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_fields_that_lie),
        cmocka_unit_test(test_offsets_that_lie),
        cmocka_unit_test(test_older_clients_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
