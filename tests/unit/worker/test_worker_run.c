/* The whole worker, run in a thread, with a test in the place of spdld: real rings, real segments.
 */
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "decode/decode.h"
#include "shm/shm_segment.h"
#include "shm/shm_work.h"
#include "tests/lib/jpeg_maker.h"
#include "worker/worker.h"

enum { ARENA_BYTES = 1 << 20, SLOTS = 2, ROWS = 8, RAW_BYTES = 1024, SIDE = 16 };

struct daemon {
    int socket_fd, event_fd;
    pthread_t thread;
    int status;
    struct spdl_shm_segment arena, commands_segment, completions_segment, data[3];
    struct spdl_work_command_segment *commands;
    struct spdl_work_completion_segment *completions;
    uint32_t published;
    uint64_t cursor, next_ticket;
    int peer_fd;
};

static void *run_worker(void *argument)
{
    struct daemon *daemon = argument;
    daemon->status = worker_run(daemon->peer_fd);
    return NULL;
}

static void make_segment(struct spdl_shm_segment *segment, enum spdl_shm_use use, uint64_t bytes)
{
    uint64_t free_bytes;
    assert_int_equal(spdl_shm_segment_create(segment, SPDL_SHM_MEMFD, use, bytes, 1, &free_bytes),
                     0);
}

static void send_message(const struct daemon *daemon, const void *data, size_t bytes,
                         const int *fds, size_t fd_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(6 * sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)(uintptr_t)data, bytes};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd_count > 0) {
        header.msg_control = &control;
        header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&header);
        if (cmsg == NULL)
            abort();
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, fd_count * sizeof(int));
    }
    assert_int_equal(sendmsg(daemon->socket_fd, &header, MSG_NOSIGNAL), bytes);
}

static void expect_reply(const struct daemon *daemon, enum worker_message_kind kind,
                         uint32_t stream)
{
    struct worker_message_head head;
    assert_int_equal(recv(daemon->socket_fd, &head, sizeof head, 0), sizeof head);
    assert_int_equal(head.kind, kind);
    assert_int_equal(head.stream, stream);
}

static struct worker_start start_message(const struct daemon *daemon, uint32_t threads)
{
    return (struct worker_start){.head.kind = WORKER_START,
                                 .version = WORKER_VERSION,
                                 .thread_count = threads,
                                 .arena_bytes = ARENA_BYTES,
                                 .commands_bytes = daemon->commands_segment.bytes,
                                 .completions_bytes = daemon->completions_segment.bytes};
}

static void send_start(const struct daemon *daemon, const struct worker_start *start)
{
    int fds[4] = {daemon->arena.read_only_fd, daemon->commands_segment.read_only_fd,
                  daemon->completions_segment.fd, daemon->event_fd};
    send_message(daemon, start, sizeof *start, fds, 4);
}

static struct daemon *daemon_begin(void)
{
    struct daemon *daemon = calloc(1, sizeof *daemon);
    assert_non_null(daemon);
    make_segment(&daemon->arena, SPDL_SHM_READ_BY_OTHERS, ARENA_BYTES);
    make_segment(&daemon->commands_segment, SPDL_SHM_READ_BY_OTHERS, sizeof *daemon->commands);
    make_segment(&daemon->completions_segment, SPDL_SHM_WRITTEN_BY_OTHERS,
                 sizeof *daemon->completions);
    daemon->commands = daemon->commands_segment.base;
    daemon->completions = daemon->completions_segment.base;
    daemon->commands->version = SPDL_WORK_VERSION;
    daemon->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    daemon->next_ticket = 1000;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    daemon->socket_fd = ends[0];
    daemon->peer_fd = ends[1];
    assert_int_equal(pthread_create(&daemon->thread, NULL, run_worker, daemon), 0);
    return daemon;
}

static struct daemon *daemon_ready(uint32_t threads)
{
    struct daemon *daemon = daemon_begin();
    struct worker_start start = start_message(daemon, threads);
    send_start(daemon, &start);
    expect_reply(daemon, WORKER_READY, 0);
    return daemon;
}

/* Closes the socket and returns what worker_run returned. */
static int daemon_end(struct daemon *daemon)
{
    shutdown(daemon->socket_fd, SHUT_WR);
    assert_int_equal(pthread_join(daemon->thread, NULL), 0);
    close(daemon->socket_fd);
    close(daemon->event_fd);
    spdl_shm_segment_destroy(&daemon->arena);
    spdl_shm_segment_destroy(&daemon->commands_segment);
    spdl_shm_segment_destroy(&daemon->completions_segment);
    for (int i = 0; i < 3; i++)
        if (daemon->data[i].base != NULL)
            spdl_shm_segment_destroy(&daemon->data[i]);
    int status = daemon->status;
    free(daemon);
    return status;
}

static struct field_spec field_finished(struct field_spec field)
{
    struct err err = {0};
    if (field_finish(&field, &err) != 0)
        fail_msg("%s", err.text);
    return field;
}

static struct field_spec raw_field(void)
{
    return field_finished((struct field_spec){.name = "bin",
                                              .decoder = "raw",
                                              .from = {"bin"},
                                              .from_count = 1,
                                              .dtype = FIELD_DTYPE_UINT8,
                                              .bytes = RAW_BYTES});
}

static struct field_spec class_field(void)
{
    return field_finished((struct field_spec){.name = "label",
                                              .decoder = "class",
                                              .from = {"cls"},
                                              .from_count = 1,
                                              .dtype = FIELD_DTYPE_INT64});
}

static struct field_spec image_field(uint32_t op_kind)
{
    struct field_spec field = {.name = "image",
                               .decoder = "image",
                               .from = {"jpg"},
                               .from_count = 1,
                               .dtype = FIELD_DTYPE_UINT8,
                               .layout = FIELD_LAYOUT_NHWC,
                               .channels = 3,
                               .max_pixels = 1 << 20,
                               .op_count = 1};
    field.ops[0] =
        (struct op_spec){.kind = op_kind,
                         .height = SIDE,
                         .width = SIDE,
                         .filter = op_kind == OP_RANDOM_RESIZED_CROP ? FIELD_FILTER_BILINEAR : 0,
                         .scale = {0.08, 1},
                         .ratio = {3. / 4, 4. / 3}};
    if (op_kind != OP_RANDOM_RESIZED_CROP)
        memset(field.ops[0].scale, 0, sizeof field.ops[0].scale * 2);
    return field_finished(field);
}

static struct worker_add add_message(uint32_t stream, const struct field_spec *fields,
                                     uint32_t count)
{
    struct worker_add add = {.head = {WORKER_ADD, stream},
                             .seed = 7,
                             .slot_count = SLOTS,
                             .row_count = ROWS,
                             .field_count = count};
    for (uint32_t f = 0; f < count; f++) {
        add.fields[f] = fields[f];
        add.field_offset[f] = add.slot_bytes;
        add.slot_bytes += (fields[f].row_bytes * ROWS + 255) / 256 * 256;
    }
    add.data_bytes = add.slot_bytes * SLOTS;
    return add;
}

static void add_stream(struct daemon *daemon, const struct worker_add *add)
{
    struct spdl_shm_segment *data = &daemon->data[add->head.stream];
    make_segment(data, SPDL_SHM_WRITTEN_BY_OTHERS, add->data_bytes);
    send_message(daemon, add, sizeof *add, &data->fd, 1);
    expect_reply(daemon, WORKER_ADDED, add->head.stream);
}

static uint8_t *row_of(const struct daemon *daemon, const struct worker_add *add, uint32_t field,
                       uint32_t slot, uint32_t row)
{
    return (uint8_t *)daemon->data[add->head.stream].base + slot * add->slot_bytes +
           add->field_offset[field] + row * add->fields[field].row_bytes;
}

static void put(struct daemon *daemon, struct spdl_work_command command)
{
    command.ticket = daemon->next_ticket++;
    daemon->commands->cells[daemon->published % SPDL_WORK_CELLS] = command;
    daemon->published++;
}

static void publish(struct daemon *daemon)
{
    atomic_store_explicit(&daemon->commands->published, daemon->published, memory_order_release);
    syscall(SYS_futex, &daemon->commands->published, FUTEX_WAKE, 64, NULL, NULL, 0);
}

static bool take(struct daemon *daemon, struct spdl_work_completion *ret_record)
{
    struct spdl_work_completion_cell *cell =
        &daemon->completions->cells[daemon->cursor % SPDL_WORK_CELLS];
    if (atomic_load_explicit(&cell->turn, memory_order_seq_cst) != daemon->cursor + 1)
        return false;
    *ret_record = cell->record;
    daemon->cursor++;
    return true;
}

/* Sleeps as spdld does: says so, looks once more, waits for the eventfd. */
static struct spdl_work_completion wait_one(struct daemon *daemon)
{
    struct spdl_work_completion record;
    while (!take(daemon, &record)) {
        atomic_store_explicit(&daemon->commands->waiting, 1, memory_order_seq_cst);
        if (take(daemon, &record)) {
            atomic_store_explicit(&daemon->commands->waiting, 0, memory_order_seq_cst);
            break;
        }
        struct pollfd poll_fd = {.fd = daemon->event_fd, .events = POLLIN};
        assert_int_equal(poll(&poll_fd, 1, 20000), 1); /* a lost wake-up would end here */
        uint64_t count;
        assert_int_equal(read(daemon->event_fd, &count, sizeof count), sizeof count);
        atomic_store_explicit(&daemon->commands->waiting, 0, memory_order_seq_cst);
    }
    return record;
}

static struct spdl_work_command command_for(uint32_t stream, uint32_t slot, uint32_t row)
{
    struct spdl_work_command command = {.dest_count = 1};
    command.dests[0] = (struct spdl_work_dest){.stream = stream, .slot = slot, .row = row};
    memset(command.field_part, SPDL_WORK_NO_PART, sizeof command.field_part);
    return command;
}

static void add_part(struct spdl_work_command *command, uint32_t field, struct spdl_work_part part)
{
    command->field_part[field] = command->part_count;
    command->parts[command->part_count++] = part;
}

static struct spdl_work_part blob(struct daemon *daemon, uint64_t offset, const void *data,
                                  size_t bytes)
{
    memcpy((uint8_t *)daemon->arena.base + offset, data, bytes);
    return (struct spdl_work_part){SPDL_WORK_PART_BLOB, 0, offset, bytes};
}

static void test_starts_and_ends(void **state)
{
    (void)state;
    assert_int_equal(daemon_end(daemon_ready(1)), 0);
    assert_int_equal(daemon_end(daemon_ready(5)), 0);
    assert_int_equal(daemon_end(daemon_begin()), 0); /* the end before the first message */
}

static void test_raw_and_class(void **state)
{
    (void)state;
    struct daemon *daemon = daemon_ready(2);
    struct field_spec fields[2] = {raw_field(), class_field()};
    struct worker_add add = add_message(1, fields, 2);
    add_stream(daemon, &add);
    uint8_t bytes[RAW_BYTES], made[RAW_BYTES];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    struct spdl_work_command command = command_for(1, 1, 3);
    add_part(&command, 0, blob(daemon, 100, bytes, sizeof bytes));
    add_part(&command, 1, (struct spdl_work_part){SPDL_WORK_PART_INTEGER, 0, (uint64_t)-5, 0});
    put(daemon, command);
    publish(daemon);
    struct spdl_work_completion record = wait_one(daemon);
    assert_int_equal(record.class_number, SPDL_CLASS_OK);
    assert_true(record.ticket == 1000 && record.flags == 0);
    int64_t label;
    memcpy(&label, row_of(daemon, &add, 1, 1, 3), sizeof label);
    assert_int_equal(label, -5);
    assert_memory_equal(row_of(daemon, &add, 0, 1, 3), bytes, sizeof bytes);

    command = command_for(1, 0, 7);
    add_part(&command, 0, (struct spdl_work_part){SPDL_WORK_PART_MADE_UP, 0, 42, RAW_BYTES});
    add_part(&command, 1, blob(daemon, 5000, " 12\n", 4));
    put(daemon, command);
    publish(daemon);
    record = wait_one(daemon);
    assert_int_equal(record.class_number, SPDL_CLASS_OK);
    decode_made_up(42, sizeof made, made);
    assert_memory_equal(row_of(daemon, &add, 0, 0, 7), made, sizeof made);
    memcpy(&label, row_of(daemon, &add, 1, 0, 7), sizeof label);
    assert_int_equal(label, 12);
    for (uint32_t r = 0; r < 7; r++) /* nothing else was written */
        for (uint32_t i = 0; i < RAW_BYTES; i++)
            assert_int_equal(row_of(daemon, &add, 0, 0, r)[i], 0);
    assert_int_equal(daemon_end(daemon), 0);
}

static void test_failures_are_told(void **state)
{
    (void)state;
    struct daemon *daemon = daemon_ready(1);
    struct field_spec fields[2] = {class_field(), image_field(OP_CENTER_CROP)};
    struct worker_add add = add_message(0, fields, 2);
    add_stream(daemon, &add);
    static const struct {
        const char *bytes;
        size_t count;
        enum spdl_class class_number;
    } cases[] = {{"", 0, SPDL_CLASS_EMPTY},
                 {"<html>", 6, SPDL_CLASS_BAD_FORMAT},
                 {"GIF89a", 6, SPDL_CLASS_UNSUPPORTED},
                 {"\xff\xd8\xff\xe0", 4, SPDL_CLASS_TRUNCATED}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct spdl_work_command command = command_for(0, 0, 0);
        add_part(&command, 0, (struct spdl_work_part){SPDL_WORK_PART_INTEGER, 0, 3, 0});
        add_part(&command, 1, blob(daemon, 64, cases[i].bytes, cases[i].count));
        put(daemon, command);
        publish(daemon);
        struct spdl_work_completion record = wait_one(daemon);
        assert_int_equal(record.class_number, cases[i].class_number);
        assert_int_equal(record.field, 1);
        assert_int_equal(record.flags, 0);
        assert_true(strlen(record.message) > 5);
    }
    struct spdl_work_command command = command_for(0, 0, 0);
    add_part(&command, 0, (struct spdl_work_part){SPDL_WORK_PART_INTEGER, 0, 3, 0});
    put(daemon, command); /* no part for the image */
    publish(daemon);
    struct spdl_work_completion record = wait_one(daemon);
    assert_int_equal(record.class_number, SPDL_CLASS_INCOMPLETE);
    assert_int_equal(record.field, 1);
    assert_true(record.byte_offset == UINT64_MAX);
    assert_int_equal(daemon_end(daemon), 0);
}

/* The four quadrants of the stored picture, as letters, for each orientation as shown. */
static void test_orientations(void **state)
{
    (void)state;
    static const char *const shown[9] = {NULL,   "RGBW", "GRWB", "WBGR", "BWRG",
                                         "RBGW", "BRWG", "WGBR", "GWRB"};
    static const int middle[4][2] = {{4, 4}, {SIDE - 5, 4}, {4, SIDE - 5}, {SIDE - 5, SIDE - 5}};
    struct daemon *daemon = daemon_ready(2);
    struct field_spec fields[2] = {image_field(OP_CENTER_CROP), image_field(OP_CENTER_CROP)};
    fields[1].ignore_orientation = 1;
    fields[1].name[0] = 'j';
    struct worker_add add = add_message(2, fields, 2);
    add_stream(daemon, &add);
    for (int orientation = 1; orientation <= 8; orientation++) {
        struct jpeg_recipe recipe = {.width = 64,
                                     .height = 48,
                                     .quality = 95,
                                     .quadrants = true,
                                     .orientation = orientation};
        size_t bytes;
        uint8_t *file = jpeg_make(&recipe, &bytes);
        struct spdl_work_command command = command_for(2, 0, 1);
        add_part(&command, 0, blob(daemon, 4096, file, bytes));
        command.field_part[1] = 0;
        put(daemon, command);
        publish(daemon);
        struct spdl_work_completion record = wait_one(daemon);
        assert_int_equal(record.class_number, SPDL_CLASS_OK);
        assert_int_equal(record.flags, SPDL_WORK_SEEN_WHOLE);
        for (uint32_t f = 0; f < 2; f++)
            for (int q = 0; q < 4; q++) {
                const uint8_t *p =
                    row_of(daemon, &add, f, 0, 1) + (middle[q][1] * SIDE + middle[q][0]) * 3;
                char letter = p[0] > 128 ? (p[1] > 128 ? 'W' : 'R') : p[1] > 128 ? 'G' : 'B';
                assert_int_equal(letter, shown[f == 0 ? orientation : 1][q]);
            }
        free(file);
    }
    assert_int_equal(daemon_end(daemon), 0);
}

/* A random crop: its draws are told, the same for the same position, also in a second destination.
 */
static void test_draws_and_two_destinations(void **state)
{
    (void)state;
    struct daemon *daemon = daemon_ready(3);
    struct field_spec field = image_field(OP_RANDOM_RESIZED_CROP);
    struct worker_add first = add_message(0, &field, 1), second = add_message(1, &field, 1);
    add_stream(daemon, &first);
    add_stream(daemon, &second);
    struct jpeg_recipe recipe = {.width = 90, .height = 70, .h = {2}, .v = {2}, .seed = 3};
    size_t bytes;
    uint8_t *file = jpeg_make(&recipe, &bytes);
    struct spdl_work_completion records[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct spdl_work_command command = command_for(0, i, 2);
        command.position = 77;
        command.epoch = 1;
        command.flags = i == 0 ? 0 : SPDL_WORK_MAY_STOP_EARLY;
        command.dest_count = 2;
        command.dests[1] = (struct spdl_work_dest){.stream = 1, .slot = 1 - i, .row = 5};
        add_part(&command, 0, blob(daemon, 512, file, bytes));
        put(daemon, command);
        publish(daemon);
        records[i] = wait_one(daemon);
        assert_int_equal(records[i].class_number, SPDL_CLASS_OK);
    }
    assert_int_equal(records[0].flags, SPDL_WORK_DRAWS | SPDL_WORK_SEEN_WHOLE);
    assert_int_equal(records[1].flags, SPDL_WORK_DRAWS);
    assert_memory_equal(records[0].crop, records[1].crop, sizeof records[0].crop);
    const int32_t *crop = records[0].crop;
    assert_true(crop[0] >= 0 && crop[1] >= 0 && crop[2] > 0 && crop[3] > 0 &&
                crop[0] + crop[2] <= 90 && crop[1] + crop[3] <= 70);
    for (uint32_t i = 0; i < 2; i++) {
        assert_memory_equal(row_of(daemon, &first, 0, i, 2), row_of(daemon, &first, 0, 0, 2),
                            SIDE * SIDE * 3);
        assert_memory_equal(row_of(daemon, &second, 0, 1 - i, 5), row_of(daemon, &first, 0, 0, 2),
                            SIDE * SIDE * 3);
    }
    free(file);
    assert_int_equal(daemon_end(daemon), 0);
}

/* Many short commands on several threads, round and round the rings, with spdld asleep now and
 * then. */
static void test_many_commands(void **state)
{
    (void)state;
    struct daemon *daemon = daemon_ready(4);
    struct field_spec field = raw_field();
    struct worker_add add = add_message(0, &field, 1);
    add_stream(daemon, &add);
    const uint64_t total = 6000;
    uint64_t sent = 0, taken = 0;
    uint8_t *seen = calloc(total, 1), made[RAW_BYTES];
    while (taken < total) {
        while (sent < total && sent - taken < SLOTS * ROWS) {
            uint32_t place = (uint32_t)(sent % (SLOTS * ROWS));
            struct spdl_work_command command = command_for(0, place / ROWS, place % ROWS);
            add_part(&command, 0,
                     (struct spdl_work_part){SPDL_WORK_PART_MADE_UP, 0, sent, RAW_BYTES});
            put(daemon, command);
            sent++;
        }
        publish(daemon);
        while (taken < sent) { /* all, so that no row is written while it is looked at */
            struct spdl_work_completion record = wait_one(daemon);
            assert_int_equal(record.class_number, SPDL_CLASS_OK);
            uint64_t id = record.ticket - 1000;
            assert_true(id < total && seen[id] == 0);
            seen[id] = 1;
            taken++;
            uint32_t place = (uint32_t)(id % (SLOTS * ROWS));
            decode_made_up(id, RAW_BYTES, made);
            assert_memory_equal(row_of(daemon, &add, 0, place / ROWS, place % ROWS), made,
                                RAW_BYTES);
        }
    }
    for (int i = 0; i < SPDL_WORK_THREADS_MAX; i++)
        assert_true(atomic_load_explicit(&daemon->completions->working[i], memory_order_relaxed) <
                    daemon->next_ticket);
    free(seen);
    assert_int_equal(daemon_end(daemon), 0);
}

static void test_streams_come_and_go(void **state)
{
    (void)state;
    struct daemon *daemon = daemon_ready(2);
    struct field_spec field = raw_field();
    for (int round = 0; round < 50; round++) {
        struct worker_add add = add_message(1, &field, 1);
        add_stream(daemon, &add);
        struct spdl_work_command command = command_for(1, 0, 0);
        add_part(&command, 0, (struct spdl_work_part){SPDL_WORK_PART_MADE_UP, 0, 9, RAW_BYTES});
        put(daemon, command);
        publish(daemon);
        assert_int_equal(wait_one(daemon).class_number, SPDL_CLASS_OK);
        struct worker_message_head drop = {WORKER_DROP, 1};
        send_message(daemon, &drop, sizeof drop, NULL, 0);
        expect_reply(daemon, WORKER_DROPPED, 1);
        spdl_shm_segment_destroy(&daemon->data[1]);
    }
    assert_int_equal(daemon_end(daemon), 0);
}

/* --- what does not fit --- */

static int status_after_start(void (*spoil)(struct worker_start *))
{
    struct daemon *daemon = daemon_begin();
    struct worker_start start = start_message(daemon, 2);
    spoil(&start);
    send_start(daemon, &start);
    struct worker_message_head head;
    assert_int_equal(recv(daemon->socket_fd, &head, sizeof head, 0), 0);
    return daemon_end(daemon);
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
    struct daemon *daemon = daemon_ready(1);
    struct field_spec fields[2] = {class_field(), image_field(OP_CENTER_CROP)};
    struct worker_add add = add_message(1, fields, 2);
    make_segment(&daemon->data[1], SPDL_SHM_WRITTEN_BY_OTHERS, add.data_bytes);
    spoil(&add);
    send_message(daemon, &add, sizeof add, &daemon->data[1].fd, 1);
    struct worker_message_head head;
    assert_int_equal(recv(daemon->socket_fd, &head, sizeof head, 0), 0);
    return daemon_end(daemon);
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
    struct daemon *daemon = daemon_ready(1);
    uint8_t data[64] = {0};
    memcpy(data, &kind, sizeof kind);
    int fds[6];
    for (int i = 0; i < 6; i++)
        fds[i] = daemon->event_fd;
    send_message(daemon, data, bytes, fds, (size_t)fd_count);
    struct worker_message_head head;
    assert_int_equal(recv(daemon->socket_fd, &head, sizeof head, 0), 0);
    return daemon_end(daemon);
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
    assert_int_equal(status_after_bytes(64, 6, WORKER_START), 2);
}

static int status_after_command(void (*spoil)(struct spdl_work_command *))
{
    struct daemon *daemon = daemon_ready(2);
    struct field_spec field = raw_field();
    struct worker_add add = add_message(1, &field, 1);
    add_stream(daemon, &add);
    struct spdl_work_command command = command_for(1, 0, 0);
    add_part(&command, 0, (struct spdl_work_part){SPDL_WORK_PART_BLOB, 0, 0, RAW_BYTES});
    spoil(&command);
    put(daemon, command);
    publish(daemon);
    struct worker_message_head head;
    assert_int_equal(recv(daemon->socket_fd, &head, sizeof head, 0), 0);
    for (uint32_t i = 0; i < add.data_bytes; i++)
        assert_int_equal(((uint8_t *)daemon->data[1].base)[i], 0);
    return daemon_end(daemon);
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
    command->dests[0].slot = SLOTS;
}
static void spoil_row(struct spdl_work_command *command)
{
    command->dests[0].row = ROWS;
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
static void spoil_part_end(struct spdl_work_command *command)
{
    command->parts[0].value = ARENA_BYTES - RAW_BYTES + 1;
}
static void spoil_part_wrap(struct spdl_work_command *command)
{
    command->parts[0].value = UINT64_MAX - 10;
}

static void test_bad_commands(void **state)
{
    (void)state;
    void (*const spoils[])(struct spdl_work_command *) = {
        spoil_dest,     spoil_dest_far, spoil_slot,      spoil_row,      spoil_dests,
        spoil_no_dests, spoil_parts,    spoil_part_kind, spoil_part_end, spoil_part_wrap};
    for (size_t i = 0; i < sizeof spoils / sizeof spoils[0]; i++)
        assert_int_equal(status_after_command(spoils[i]), 2);
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
        cmocka_unit_test(test_streams_come_and_go),
        cmocka_unit_test(test_bad_start),
        cmocka_unit_test(test_bad_add),
        cmocka_unit_test(test_bad_messages),
        cmocka_unit_test(test_bad_commands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
