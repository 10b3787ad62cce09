/* Rows of unequal length in a ring: what the rank finds in the segments after rows were written at
 * their places, noted in any order and published. The test writes as the worker does and reads as a
 * client does. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm/shm_layout.h"
#include "shm/shm_segment.h"
#include "sink/sink.h"
#include "tests/lib/chance.h"

enum { ROWS = 5, SLOTS = 3, ROOM = 100 };

struct ring {
    struct sink *sink;
    struct field_spec fields[3];
    uint8_t *control, *data; /* mapped anew: control read-only */
    const struct spdl_shm_header *header;
    const struct spdl_shm_field *shown;
};

static struct field_spec field_of(const char *name, const char *decoder, uint64_t max_bytes)
{
    struct field_spec field = {.from = {"x"}, .from_count = 1, .max_bytes = max_bytes};
    struct err err = {0};
    memcpy(field.name, name, strlen(name) + 1);
    memcpy(field.decoder, decoder, strlen(decoder) + 1);
    if (max_bytes > 0)
        field.pad = FIELD_PAD_NO;
    if (field_finish(&field, &err) != 0)
        fail_msg("%s", err.text);
    return field;
}

static void ring_init(struct ring *ring)
{
    *ring = (struct ring){0};
    ring->fields[0] = field_of("text", "text", ROOM);
    ring->fields[1] = field_of("label", "class", 0);
    ring->fields[2] = field_of("jpg", "raw", 7);
    struct sink_params params = {.fields = ring->fields,
                                 .field_count = 3,
                                 .slot_count = SLOTS,
                                 .row_count = ROWS,
                                 .key_bytes = 8,
                                 .shm_kind = SPDL_SHM_MEMFD};
    struct err err = {0};
    int fds[3];
    void *base = NULL;
    assert_int_equal(sink_create(&params, &ring->sink, &err), 0);
    uint64_t control_bytes = sink_control_bytes(ring->sink), bytes = sink_data_bytes(ring->sink);
    assert_int_equal(sink_memory_bytes(&params), control_bytes + bytes);
    sink_rank_fds(ring->sink, fds);
    assert_int_equal(spdl_shm_segment_map(fds[0], control_bytes, 0, 1, &base), 0);
    ring->control = base;
    assert_int_equal(spdl_shm_segment_map(sink_worker_fd(ring->sink), bytes, 1, 0, &base), 0);
    ring->data = base;
    ring->header = base = ring->control;
    ring->shown = (const void *)(ring->control + ring->header->fields_offset);
}

static void ring_fini(struct ring *ring)
{
    spdl_shm_segment_unmap(ring->control, sink_control_bytes(ring->sink));
    spdl_shm_segment_unmap(ring->data, sink_data_bytes(ring->sink));
    sink_destroy(ring->sink);
}

static void test_form(void **state)
{
    (void)state;
    struct ring ring;
    ring_init(&ring);
    static const char *const names[] = {"text.values", "text.offsets", "label", "jpg.values",
                                        "jpg.offsets"};
    static const uint32_t kinds[] = {SPDL_SHM_FIELD_VALUES, SPDL_SHM_FIELD_OFFSETS,
                                     SPDL_SHM_FIELD_ROWS, SPDL_SHM_FIELD_VALUES,
                                     SPDL_SHM_FIELD_OFFSETS};
    static const uint32_t partners[] = {1, 0, 0, 4, 3};
    static const uint64_t rooms[] = {ROWS * ROOM, 0, 0, ROWS * 7, 0};
    static const uint64_t row_bytes[] = {0, 8, 8, 0, 8};
    assert_int_equal(ring.header->field_count, 5);
    assert_int_equal(ring.header->slots_offset % 256, 0);
    assert_int_equal(ring.header->slot_stride % 256, 0);
    for (uint32_t i = 0; i < 5; i++) {
        const struct spdl_shm_field *field = &ring.shown[i];
        assert_string_equal(field->name, names[i]);
        assert_int_equal(field->kind, kinds[i]);
        assert_int_equal(field->partner, partners[i]);
        assert_int_equal(field->room_bytes, rooms[i]);
        assert_int_equal(field->row_bytes, row_bytes[i]);
        assert_int_equal(field->dim_count, 0);
        assert_int_equal(field->slot_offset % 256, 0);
        assert_int_equal(field->dtype,
                         kinds[i] == SPDL_SHM_FIELD_VALUES ? SPDL_DTYPE_UINT8 : SPDL_DTYPE_INT64);
    }
    /* The two arrays of offsets stand behind all else of the slot and do not overlap. */
    uint64_t text = ring.shown[1].slot_offset, jpg = ring.shown[4].slot_offset;
    const struct spdl_shm_slot *slot = (const void *)(ring.control + ring.header->slots_offset);
    assert_true(text >= slot->text_offset + slot->text_bytes - ring.header->slots_offset);
    assert_true(jpg >= text + (ROWS + 1) * 8 && jpg + (ROWS + 1) * 8 <= ring.header->slot_stride);
    ring_fini(&ring);
}

/* What a row of field `field` has in it, and how many bytes. */
static uint8_t byte_of(uint64_t batch, uint32_t field, uint32_t row, uint32_t i)
{
    return (uint8_t)(batch * 31 + field * 17 + row * 7 + i + 1);
}

struct row {
    bool bad, padded;
    uint32_t bytes[3];
};

static void row_write(const struct ring *ring, uint32_t slot, uint64_t batch, uint32_t number,
                      const struct row *row)
{
    int64_t label = (int64_t)(batch * 100 + number);
    uint8_t *base = ring->data + slot * sink_slot_bytes(ring->sink);
    for (uint32_t f = 0; f < 3; f++) {
        uint8_t *to = base + sink_field_offset(ring->sink, f) + number * ring->fields[f].row_bytes;
        for (uint32_t i = 0; f != 1 && i < row->bytes[f]; i++)
            to[i] = byte_of(batch, f, number, i);
        if (f == 1)
            memcpy(to, &label, sizeof label);
    }
    struct sink_note note = {.message = "", .field_bytes = row->bytes};
    sink_note(ring->sink, slot, number, &note);
}

static void batch_publish(const struct ring *ring, uint32_t slot, uint64_t batch, uint32_t rows,
                          const struct row *all)
{
    struct sink_batch head = {.sequence = batch, .rows = rows, .state = "s"};
    sink_publish_begin(ring->sink, slot, &head);
    for (uint32_t r = 0; r < rows; r++) {
        struct sink_row shown = {.id = r,
                                 .key = "k",
                                 .key_bytes = 1,
                                 .class_number = all[r].bad ? SPDL_CLASS_CORRUPT : SPDL_CLASS_OK,
                                 .masked = all[r].bad,
                                 .padded = all[r].padded,
                                 .message = ""};
        sink_publish_row(ring->sink, slot, r, &shown);
    }
    sink_publish_end(ring->sink, slot);
}

static void batch_check(const struct ring *ring, uint32_t slot, uint64_t batch, uint32_t rows,
                        const struct row *all)
{
    const uint8_t *head =
        ring->control + ring->header->slots_offset + slot * ring->header->slot_stride;
    const uint8_t *base = ring->data + slot * ring->header->slot_data_bytes;
    for (uint32_t f = 0; f < 3; f += 2) {
        const struct spdl_shm_field *values = &ring->shown[f == 0 ? 0 : 3];
        const int64_t *offsets = (const void *)(head + ring->shown[values->partner].slot_offset);
        const uint8_t *at = base + values->slot_offset;
        int64_t total = 0;
        assert_int_equal(offsets[0], 0);
        for (uint32_t r = 0; r < rows; r++) {
            uint32_t bytes = all[r].bad ? 0 : all[r].bytes[f];
            for (uint32_t i = 0; i < bytes; i++)
                assert_int_equal(at[total + i], byte_of(batch, f, r, i));
            total += bytes;
            assert_int_equal(offsets[r + 1], total);
        }
    }
    for (uint32_t r = 0; r < ROWS; r++) { /* rows of one size are zeroed as ever */
        int64_t label, wanted = r < rows && !all[r].bad ? (int64_t)(batch * 100 + r) : 0;
        memcpy(&label, base + ring->shown[2].slot_offset + 8 * r, sizeof label);
        assert_int_equal(label, wanted);
    }
}

static void run(const struct ring *ring, uint32_t slot, uint64_t batch, uint32_t rows,
                const struct row *all)
{
    for (uint32_t i = ROWS; i-- > 0;) /* the last row is ready first */
        if (!all[i].bad && i < rows)
            row_write(ring, slot, batch, i, &all[i]);
    batch_publish(ring, slot, batch, rows, all);
    batch_check(ring, slot, batch, rows, all);
    sink_reset(ring->sink, slot);
}

static void test_batches(void **state)
{
    (void)state;
    struct ring ring;
    uint64_t seed = 11, batch = 0;
    ring_init(&ring);
    static const struct row fixed[][ROWS] = {
        {{.bytes = {3, 0, 1}},
         {.bytes = {0, 0, 0}},
         {.bytes = {ROOM, 0, 7}},
         {.bytes = {1, 0, 0}},
         {.bytes = {50, 0, 2}}},
        {{.bytes = {ROOM, 0, 7}},
         {.bytes = {ROOM, 0, 7}},
         {.bytes = {ROOM, 0, 7}},
         {.bytes = {ROOM, 0, 7}},
         {.bytes = {ROOM, 0, 7}}}, /* nothing is to be moved */
        {{.bad = true}, {.bytes = {9, 0, 3}}, {.bad = true}, {.bytes = {8, 0, 2}}, {.bad = true}},
        {{.bad = true}, {.bad = true}, {.bad = true}, {.bad = true}, {.bad = true}},
        {{.bytes = {5, 0, 5}, .padded = true},
         {.bytes = {6, 0, 6}, .padded = true},
         {.bytes = {7, 0, 7}},
         {.bytes = {8, 0, 1}},
         {.bytes = {9, 0, 2}}},
    };
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++, batch++)
        run(&ring, (uint32_t)(batch % SLOTS), batch, ROWS, fixed[i]);
    for (uint32_t rows = 0; rows < ROWS; rows++, batch++) /* fewer rows than there is room for */
        run(&ring, (uint32_t)(batch % SLOTS), batch, rows, fixed[0]);
    for (int i = 0; i < 300; i++, batch++) {
        struct row all[ROWS] = {0};
        for (uint32_t r = 0; r < ROWS; r++) {
            all[r].bad = chance_below(&seed, 5) == 0;
            all[r].bytes[0] = (uint32_t)chance_below(&seed, ROOM + 1);
            all[r].bytes[2] = (uint32_t)chance_below(&seed, 8);
        }
        run(&ring, (uint32_t)(batch % SLOTS), batch, (uint32_t)chance_below(&seed, ROWS + 1), all);
    }
    ring_fini(&ring);
}

/* A row that was made and is shown as bad all the same (a later field of it failed, another sample
 * took its place and failed too) has no bytes; one that was made twice has those of the last. */
static void test_last_note_counts(void **state)
{
    (void)state;
    struct ring ring;
    ring_init(&ring);
    struct row rows[ROWS] = {{.bytes = {40, 0, 4}}, {.bytes = {30, 0, 3}}, {.bytes = {20, 0, 2}}};
    struct row before = {.bytes = {90, 0, 7}};
    for (uint32_t r = 0; r < 3; r++)
        row_write(&ring, 1, 0, r, &before);
    for (uint32_t r = 0; r < 3; r++)
        row_write(&ring, 1, 0, r, &rows[r]);
    rows[1].bad = true;
    /* A substitute's bytes count; that the sample before it failed stays said. */
    struct sink_note failed = {.class_number = SPDL_CLASS_CORRUPT, .message = "no"};
    struct sink_note substitute = {
        .is_substitute = true, .message = "", .field_bytes = rows[2].bytes};
    sink_note(ring.sink, 1, 2, &failed);
    sink_note(ring.sink, 1, 2, &substitute);
    batch_publish(&ring, 1, 0, 3, rows);
    batch_check(&ring, 1, 0, 3, rows);
    ring_fini(&ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_last_note_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
