/* What a worker refuses: messages and commands that do not fit end it with status 2, and nothing is
 * written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "tests/lib/worker_rig.h"

static int status_after_start(void (*spoil)(struct worker_start *))
{
    struct worker_rig *rig = rig_begin();
    struct worker_start start = rig_start_message(rig, 2);
    spoil(&start);
    rig_send_start(rig, &start);
    struct worker_message_head head;
    assert_int_equal(recv(rig->socket_fd, &head, sizeof head, 0), 0);
    return rig_end(rig);
}

static void spoil_version(struct worker_start *start)
{
    start->version++;
}
static void spoil_threads(struct worker_start *start)
{
    start->thread_count = SPDL_WORK_THREADS_MAX + 1;
}
static void spoil_no_threads(struct worker_start *start)
{
    start->thread_count = 0;
}
static void spoil_arena(struct worker_start *start)
{
    start->arena_bytes = UINT64_MAX;
}
static void spoil_commands(struct worker_start *start)
{
    start->commands_bytes = 64;
}
static void spoil_completions(struct worker_start *start)
{
    start->completions_bytes *= 2;
}
static void spoil_kind(struct worker_start *start)
{
    start->head.kind = WORKER_ADDED;
}

static void test_bad_start(void **state)
{
    (void)state;
    void (*const spoils[])(struct worker_start *) = {
        spoil_version,  spoil_threads,     spoil_no_threads, spoil_arena,
        spoil_commands, spoil_completions, spoil_kind};
    for (size_t i = 0; i < sizeof spoils / sizeof spoils[0]; i++)
        assert_int_equal(status_after_start(spoils[i]), 2);
}

static int status_after_add(void (*spoil)(struct worker_add *))
{
    struct worker_rig *rig = rig_ready(1);
    struct field_spec fields[2] = {rig_class_field(), rig_image_field(OP_CENTER_CROP)};
    struct worker_add add = rig_add_message(1, fields, 2);
    rig_make_segment(&rig->data[1], SPDL_SHM_WRITTEN_BY_OTHERS, add.data_bytes);
    spoil(&add);
    rig_send_message(rig, &add, sizeof add, &rig->data[1].fd, 1);
    struct worker_message_head head;
    assert_int_equal(recv(rig->socket_fd, &head, sizeof head, 0), 0);
    return rig_end(rig);
}

static void spoil_stream(struct worker_add *add)
{
    add->head.stream = WORKER_STREAMS_MAX;
}
static void spoil_slots(struct worker_add *add)
{
    add->slot_count = 0;
}
static void spoil_slots_many(struct worker_add *add)
{
    add->slot_count = 3; /* more than the segment has room for */
}
static void spoil_slot_bytes(struct worker_add *add)
{
    add->slot_bytes = UINT64_MAX / 2;
}
static void spoil_data_bytes(struct worker_add *add)
{
    add->data_bytes *= 1000;
}
static void spoil_rows(struct worker_add *add)
{
    add->row_count *= 64;
}
static void spoil_offset(struct worker_add *add)
{
    add->field_offset[1] = UINT64_MAX - 7;
}
static void spoil_offset_odd(struct worker_add *add)
{
    add->field_offset[1] += 1;
}
static void spoil_fields(struct worker_add *add)
{
    add->field_count = FIELD_MAX + 1;
}
static void spoil_row_bytes(struct worker_add *add)
{
    add->fields[1].row_bytes -= 8;
}
static void spoil_decoder(struct worker_add *add)
{
    memset(add->fields[0].decoder, 'x', sizeof add->fields[0].decoder);
}
static void spoil_ops(struct worker_add *add)
{
    add->fields[1].op_count = UINT32_MAX;
}

static void test_bad_add(void **state)
{
    (void)state;
    void (*const spoils[])(struct worker_add *) = {
        spoil_stream,     spoil_slots,   spoil_slots_many, spoil_slot_bytes,
        spoil_data_bytes, spoil_rows,    spoil_offset,     spoil_offset_odd,
        spoil_fields,     spoil_decoder, spoil_row_bytes,  spoil_ops};
    for (size_t i = 0; i < sizeof spoils / sizeof spoils[0]; i++)
        assert_int_equal(status_after_add(spoils[i]), 2);
}

static int status_after_bytes(size_t bytes, int fd_count, uint32_t kind)
{
    struct worker_rig *rig = rig_ready(1);
    uint8_t data[64] = {0};
    memcpy(data, &kind, sizeof kind);
    int fds[6];
    for (int i = 0; i < 6; i++)
        fds[i] = rig->event_fd;
    rig_send_message(rig, data, bytes, fds, (size_t)fd_count);
    struct worker_message_head head;
    assert_int_equal(recv(rig->socket_fd, &head, sizeof head, 0), 0);
    return rig_end(rig);
}

static void test_bad_messages(void **state)
{
    (void)state;
    assert_int_equal(status_after_bytes(3, 0, WORKER_DROP), 2);
    assert_int_equal(status_after_bytes(8, 0, 0), 2);
    assert_int_equal(status_after_bytes(8, 0, 77), 2);
    assert_int_equal(status_after_bytes(8, 0, WORKER_DROP), 2); /* no such stream */
    assert_int_equal(status_after_bytes(8, 1, WORKER_DROP), 2);
    assert_int_equal(status_after_bytes(16, 0, WORKER_ADD), 2);
    assert_int_equal(status_after_bytes(8, 0, WORKER_THREADS), 2); /* no thread */
    assert_int_equal(status_after_bytes(8, 1, WORKER_THREADS), 2);
    assert_int_equal(status_after_bytes(16, 0, WORKER_THREADS), 2);
    assert_int_equal(status_after_bytes(64, 6, WORKER_START), 2);
}

static int status_after_command(void (*spoil)(struct spdl_work_command *))
{
    struct worker_rig *rig = rig_ready(2);
    struct field_spec field = rig_raw_field();
    struct worker_add add = rig_add_message(1, &field, 1);
    rig_add_stream(rig, &add);
    struct spdl_work_command command = rig_command_for(1, 0, 0);
    rig_add_part(&command, 0, (struct spdl_work_part){SPDL_WORK_PART_BLOB, 0, 0, RIG_RAW_BYTES});
    spoil(&command);
    rig_put(rig, command);
    rig_publish(rig);
    struct worker_message_head head;
    assert_int_equal(recv(rig->socket_fd, &head, sizeof head, 0), 0);
    for (uint32_t i = 0; i < add.data_bytes; i++)
        assert_int_equal(((uint8_t *)rig->data[1].base)[i], 0);
    return rig_end(rig);
}

static void spoil_dest(struct spdl_work_command *command)
{
    command->dests[0].stream = 2;
}
static void spoil_dest_far(struct spdl_work_command *command)
{
    command->dests[0].stream = UINT32_MAX;
}
static void spoil_slot(struct spdl_work_command *command)
{
    command->dests[0].slot = RIG_SLOTS;
}
static void spoil_row(struct spdl_work_command *command)
{
    command->dests[0].row = RIG_ROWS;
}
static void spoil_dests(struct spdl_work_command *command)
{
    command->dest_count = 3;
}
static void spoil_no_dests(struct spdl_work_command *command)
{
    command->dest_count = 0;
}
static void spoil_parts(struct spdl_work_command *command)
{
    command->part_count = 200;
}
static void spoil_part_kind(struct spdl_work_command *command)
{
    command->parts[0].kind = 9;
}
static void spoil_part_escape(struct spdl_work_command *command)
{
    command->parts[0].escape = SPDL_WORK_ESCAPE_JSON + 1;
}
static void spoil_part_end(struct spdl_work_command *command)
{
    command->parts[0].value = RIG_ARENA_BYTES - RIG_RAW_BYTES + 1;
}
static void spoil_part_wrap(struct spdl_work_command *command)
{
    command->parts[0].value = UINT64_MAX - 10;
}

static void test_bad_commands(void **state)
{
    (void)state;
    void (*const spoils[])(struct spdl_work_command *) = {
        spoil_dest,     spoil_dest_far,  spoil_slot,       spoil_row,
        spoil_dests,    spoil_no_dests,  spoil_parts,      spoil_part_kind,
        spoil_part_end, spoil_part_wrap, spoil_part_escape};
    for (size_t i = 0; i < sizeof spoils / sizeof spoils[0]; i++)
        assert_int_equal(status_after_command(spoils[i]), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_start),
        cmocka_unit_test(test_bad_add),
        cmocka_unit_test(test_bad_messages),
        cmocka_unit_test(test_bad_commands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
