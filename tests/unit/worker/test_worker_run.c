/* The whole worker, run in a thread, with a test in the place of spdld: rows, failures, many
 * commands, streams that come and go. */
#include <linux/futex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "decode/decode.h"
#include "tests/lib/jpeg_maker.h"
#include "tests/lib/worker_rig.h"

static void test_starts_and_ends(void **state)
{
    (void)state;
    assert_int_equal(rig_end(rig_ready(1)), 0);
    assert_int_equal(rig_end(rig_ready(5)), 0);
    assert_int_equal(rig_end(rig_begin()), 0); /* the end before the first message */
}

static void test_raw_and_class(void **state)
{
    (void)state;
    struct worker_rig *rig = rig_ready(2);
    struct field_spec fields[2] = {rig_raw_field(), rig_class_field()};
    struct worker_add add = rig_add_message(1, fields, 2);
    rig_add_stream(rig, &add);
    uint8_t bytes[RIG_RAW_BYTES], made[RIG_RAW_BYTES];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    struct spdl_work_command command = rig_command_for(1, 1, 3);
    rig_add_part(&command, 0, rig_blob(rig, 100, bytes, sizeof bytes));
    rig_add_part(&command, 1, (struct spdl_work_part){SPDL_WORK_PART_INTEGER, 0, (uint64_t)-5, 0});
    rig_put(rig, command);
    rig_publish(rig);
    struct spdl_work_completion record = rig_wait_one(rig);
    assert_int_equal(record.class_number, SPDL_CLASS_OK);
    assert_true(record.ticket == 1000 && record.flags == 0);
    int64_t label;
    memcpy(&label, rig_row_of(rig, &add, 1, 1, 3), sizeof label);
    assert_int_equal(label, -5);
    assert_memory_equal(rig_row_of(rig, &add, 0, 1, 3), bytes, sizeof bytes);

    command = rig_command_for(1, 0, 7);
    rig_add_part(&command, 0,
                 (struct spdl_work_part){SPDL_WORK_PART_MADE_UP, 0, 42, RIG_RAW_BYTES});
    rig_add_part(&command, 1, rig_blob(rig, 5000, " 12\n", 4));
    rig_put(rig, command);
    rig_publish(rig);
    record = rig_wait_one(rig);
    assert_int_equal(record.class_number, SPDL_CLASS_OK);
    decode_made_up(42, sizeof made, made);
    assert_memory_equal(rig_row_of(rig, &add, 0, 0, 7), made, sizeof made);
    memcpy(&label, rig_row_of(rig, &add, 1, 0, 7), sizeof label);
    assert_int_equal(label, 12);
    for (uint32_t r = 0; r < 7; r++) /* nothing else was written */
        for (uint32_t i = 0; i < RIG_RAW_BYTES; i++)
            assert_int_equal(rig_row_of(rig, &add, 0, 0, r)[i], 0);
    assert_int_equal(rig_end(rig), 0);
}

static void test_failures_are_told(void **state)
{
    (void)state;
    struct worker_rig *rig = rig_ready(1);
    struct field_spec fields[2] = {rig_class_field(), rig_image_field(OP_CENTER_CROP)};
    struct worker_add add = rig_add_message(0, fields, 2);
    rig_add_stream(rig, &add);
    static const struct {
        const char *bytes;
        size_t count;
        enum spdl_class class_number;
    } cases[] = {{"", 0, SPDL_CLASS_EMPTY},
                 {"<html>", 6, SPDL_CLASS_BAD_FORMAT},
                 {"GIF89a", 6, SPDL_CLASS_TRUNCATED},
                 {"\xff\xd8\xff\xe0", 4, SPDL_CLASS_TRUNCATED}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct spdl_work_command command = rig_command_for(0, 0, 0);
        rig_add_part(&command, 0, (struct spdl_work_part){SPDL_WORK_PART_INTEGER, 0, 3, 0});
        rig_add_part(&command, 1, rig_blob(rig, 64, cases[i].bytes, cases[i].count));
        rig_put(rig, command);
        rig_publish(rig);
        struct spdl_work_completion record = rig_wait_one(rig);
        assert_int_equal(record.class_number, cases[i].class_number);
        assert_int_equal(record.field, 1);
        assert_int_equal(record.flags, 0);
        assert_true(strlen(record.message) > 5);
    }
    struct spdl_work_command command = rig_command_for(0, 0, 0);
    rig_add_part(&command, 0, (struct spdl_work_part){SPDL_WORK_PART_INTEGER, 0, 3, 0});
    rig_put(rig, command); /* no part for the image */
    rig_publish(rig);
    struct spdl_work_completion record = rig_wait_one(rig);
    assert_int_equal(record.class_number, SPDL_CLASS_INCOMPLETE);
    assert_int_equal(record.field, 1);
    assert_true(record.byte_offset == UINT64_MAX);
    assert_int_equal(rig_end(rig), 0);
}

/* The four quadrants of the stored picture, as letters, for each orientation as shown. */
static void test_orientations(void **state)
{
    (void)state;
    static const char *const shown[9] = {NULL,   "RGBW", "GRWB", "WBGR", "BWRG",
                                         "RBGW", "BRWG", "WGBR", "GWRB"};
    static const int middle[4][2] = {
        {4, 4}, {RIG_SIDE - 5, 4}, {4, RIG_SIDE - 5}, {RIG_SIDE - 5, RIG_SIDE - 5}};
    struct worker_rig *rig = rig_ready(2);
    struct field_spec fields[2] = {rig_image_field(OP_CENTER_CROP),
                                   rig_image_field(OP_CENTER_CROP)};
    fields[1].ignore_orientation = 1;
    fields[1].name[0] = 'j';
    struct worker_add add = rig_add_message(2, fields, 2);
    rig_add_stream(rig, &add);
    for (int orientation = 1; orientation <= 8; orientation++) {
        struct jpeg_recipe recipe = {.width = 64,
                                     .height = 48,
                                     .quality = 95,
                                     .quadrants = true,
                                     .orientation = orientation};
        size_t bytes;
        uint8_t *file = jpeg_make(&recipe, &bytes);
        struct spdl_work_command command = rig_command_for(2, 0, 1);
        rig_add_part(&command, 0, rig_blob(rig, 4096, file, bytes));
        command.field_part[1] = 0;
        rig_put(rig, command);
        rig_publish(rig);
        struct spdl_work_completion record = rig_wait_one(rig);
        assert_int_equal(record.class_number, SPDL_CLASS_OK);
        assert_int_equal(record.flags, SPDL_WORK_SEEN_WHOLE);
        for (uint32_t f = 0; f < 2; f++)
            for (int q = 0; q < 4; q++) {
                const uint8_t *p =
                    rig_row_of(rig, &add, f, 0, 1) + (middle[q][1] * RIG_SIDE + middle[q][0]) * 3;
                char letter = p[0] > 128 ? (p[1] > 128 ? 'W' : 'R') : p[1] > 128 ? 'G' : 'B';
                assert_int_equal(letter, shown[f == 0 ? orientation : 1][q]);
            }
        free(file);
    }
    assert_int_equal(rig_end(rig), 0);
}

/* A random crop: its draws are told, the same for the same position, also in a second destination.
 */
static void test_draws_and_two_destinations(void **state)
{
    (void)state;
    struct worker_rig *rig = rig_ready(3);
    struct field_spec field = rig_image_field(OP_RANDOM_RESIZED_CROP);
    struct worker_add first = rig_add_message(0, &field, 1), second = rig_add_message(1, &field, 1);
    rig_add_stream(rig, &first);
    rig_add_stream(rig, &second);
    struct jpeg_recipe recipe = {.width = 90, .height = 70, .h = {2}, .v = {2}, .seed = 3};
    size_t bytes;
    uint8_t *file = jpeg_make(&recipe, &bytes);
    struct spdl_work_completion records[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct spdl_work_command command = rig_command_for(0, i, 2);
        command.position = 77;
        command.epoch = 1;
        command.flags = i == 0 ? 0 : SPDL_WORK_MAY_STOP_EARLY;
        command.dest_count = 2;
        command.dests[1] = (struct spdl_work_dest){.stream = 1, .slot = 1 - i, .row = 5};
        rig_add_part(&command, 0, rig_blob(rig, 512, file, bytes));
        rig_put(rig, command);
        rig_publish(rig);
        records[i] = rig_wait_one(rig);
        assert_int_equal(records[i].class_number, SPDL_CLASS_OK);
    }
    assert_int_equal(records[0].flags, SPDL_WORK_DRAWS | SPDL_WORK_SEEN_WHOLE);
    assert_int_equal(records[1].flags, SPDL_WORK_DRAWS);
    assert_memory_equal(records[0].crop, records[1].crop, sizeof records[0].crop);
    const int32_t *crop = records[0].crop;
    assert_true(crop[0] >= 0 && crop[1] >= 0 && crop[2] > 0 && crop[3] > 0 &&
                crop[0] + crop[2] <= 90 && crop[1] + crop[3] <= 70);
    for (uint32_t i = 0; i < 2; i++) {
        assert_memory_equal(rig_row_of(rig, &first, 0, i, 2), rig_row_of(rig, &first, 0, 0, 2),
                            RIG_SIDE * RIG_SIDE * 3);
        assert_memory_equal(rig_row_of(rig, &second, 0, 1 - i, 5), rig_row_of(rig, &first, 0, 0, 2),
                            RIG_SIDE * RIG_SIDE * 3);
    }
    free(file);
    assert_int_equal(rig_end(rig), 0);
}

/* Many short commands on several threads, round and round the rings, with spdld asleep now and
 * then. */
static void test_many_commands(void **state)
{
    (void)state;
    struct worker_rig *rig = rig_ready(4);
    struct field_spec field = rig_raw_field();
    struct worker_add add = rig_add_message(0, &field, 1);
    rig_add_stream(rig, &add);
    const uint64_t total = 6000;
    uint64_t sent = 0, taken = 0;
    uint8_t *seen = calloc(total, 1), made[RIG_RAW_BYTES];
    while (taken < total) {
        while (sent < total && sent - taken < RIG_SLOTS * RIG_ROWS) {
            uint32_t place = (uint32_t)(sent % (RIG_SLOTS * RIG_ROWS));
            struct spdl_work_command command =
                rig_command_for(0, place / RIG_ROWS, place % RIG_ROWS);
            rig_add_part(&command, 0,
                         (struct spdl_work_part){SPDL_WORK_PART_MADE_UP, 0, sent, RIG_RAW_BYTES});
            rig_put(rig, command);
            sent++;
        }
        rig_publish(rig);
        while (taken < sent) { /* all, so that no row is written while it is looked at */
            struct spdl_work_completion record = rig_wait_one(rig);
            assert_int_equal(record.class_number, SPDL_CLASS_OK);
            uint64_t id = record.ticket - 1000;
            assert_true(id < total && seen[id] == 0);
            seen[id] = 1;
            taken++;
            uint32_t place = (uint32_t)(id % (RIG_SLOTS * RIG_ROWS));
            decode_made_up(id, RIG_RAW_BYTES, made);
            assert_memory_equal(rig_row_of(rig, &add, 0, place / RIG_ROWS, place % RIG_ROWS), made,
                                RIG_RAW_BYTES);
        }
    }
    for (int i = 0; i < SPDL_WORK_THREADS_MAX; i++)
        assert_true(atomic_load_explicit(&rig->completions->working[i], memory_order_relaxed) <
                    rig->next_ticket);
    free(seen);
    assert_int_equal(rig_end(rig), 0);
}

/* As spdld does it with one row: shows it and wakes one thread, which must not be one too many. */
static void publish_one(struct worker_rig *rig)
{
    atomic_store_explicit(&rig->commands->published, rig->published, memory_order_release);
    syscall(SYS_futex, &rig->commands->published, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void test_threads_change(void **state)
{
    (void)state;
    struct worker_rig *rig = rig_ready(1);
    struct field_spec field = rig_class_field();
    struct worker_add add = rig_add_message(1, &field, 1);
    rig_add_stream(rig, &add);
    uint32_t random = 12345;
    for (int64_t round = 0; round < 400; round++) {
        random = random * 1664525 + 1013904223;
        struct worker_message_head threads = {WORKER_THREADS, 1 + (random >> 16) % 8};
        rig_send_message(rig, &threads, sizeof threads, NULL, 0);
        if (random & 1 << 28)
            rig_expect_reply(rig, WORKER_THREADS, threads.stream);
        struct spdl_work_command command = rig_command_for(1, 0, (uint32_t)round % RIG_ROWS);
        rig_add_part(&command, 0,
                     (struct spdl_work_part){SPDL_WORK_PART_INTEGER, 0, (uint64_t)round, 0});
        rig_put(rig, command);
        publish_one(rig);
        struct spdl_work_completion record = rig_wait_one(rig); /* or a wake-up was lost */
        int64_t label;
        memcpy(&label, rig_row_of(rig, &add, 0, 0, (uint32_t)round % RIG_ROWS), sizeof label);
        assert_int_equal(record.class_number, SPDL_CLASS_OK);
        assert_int_equal(label, round);
        if (!(random & 1 << 28))
            rig_expect_reply(rig, WORKER_THREADS, threads.stream);
    }
    assert_int_equal(rig_end(rig), 0);
}

static void test_streams_come_and_go(void **state)
{
    (void)state;
    struct worker_rig *rig = rig_ready(2);
    struct field_spec field = rig_raw_field();
    for (int round = 0; round < 50; round++) {
        struct worker_add add = rig_add_message(1, &field, 1);
        rig_add_stream(rig, &add);
        struct spdl_work_command command = rig_command_for(1, 0, 0);
        rig_add_part(&command, 0,
                     (struct spdl_work_part){SPDL_WORK_PART_MADE_UP, 0, 9, RIG_RAW_BYTES});
        rig_put(rig, command);
        rig_publish(rig);
        assert_int_equal(rig_wait_one(rig).class_number, SPDL_CLASS_OK);
        struct worker_message_head drop = {WORKER_DROP, 1};
        rig_send_message(rig, &drop, sizeof drop, NULL, 0);
        rig_expect_reply(rig, WORKER_DROPPED, 1);
        spdl_shm_segment_destroy(&rig->data[1]);
    }
    assert_int_equal(rig_end(rig), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_starts_and_ends),
        cmocka_unit_test(test_raw_and_class),
        cmocka_unit_test(test_failures_are_told),
        cmocka_unit_test(test_orientations),
        cmocka_unit_test(test_draws_and_two_destinations),
        cmocka_unit_test(test_many_commands),
        cmocka_unit_test(test_threads_change),
        cmocka_unit_test(test_streams_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
