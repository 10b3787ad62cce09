/* A spdld of the test's own for one worker: see worker_rig.h. */
#include "tests/lib/worker_rig.h"

#include <linux/futex.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static void *run_worker(void *argument)
{
    struct worker_rig *rig = argument;
    rig->status = worker_run(rig->peer_fd, NULL);
    return NULL;
}

void rig_make_segment(struct spdl_shm_segment *segment, enum spdl_shm_use use, uint64_t bytes)
{
    uint64_t free_bytes;
    assert_int_equal(spdl_shm_segment_create(segment, SPDL_SHM_MEMFD, use, bytes, 1, &free_bytes),
                     0);
}

void rig_send_message(const struct worker_rig *rig, const void *data, size_t bytes, const int *fds,
                      size_t fd_count)
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
    assert_int_equal(sendmsg(rig->socket_fd, &header, MSG_NOSIGNAL), bytes);
}

void rig_expect_reply(const struct worker_rig *rig, enum worker_message_kind kind, uint32_t stream)
{
    struct worker_ready message;
    size_t bytes = kind == WORKER_READY ? sizeof message : sizeof message.head;
    assert_int_equal(recv(rig->socket_fd, &message, sizeof message, 0), bytes);
    assert_int_equal(message.head.kind, kind);
    assert_int_equal(message.head.stream, stream);
}

struct worker_start rig_start_message(const struct worker_rig *rig, uint32_t threads)
{
    return (struct worker_start){.head.kind = WORKER_START,
                                 .version = WORKER_VERSION,
                                 .thread_count = threads,
                                 .arena_bytes = RIG_ARENA_BYTES,
                                 .commands_bytes = rig->commands_segment.bytes,
                                 .completions_bytes = rig->completions_segment.bytes};
}

void rig_send_start(const struct worker_rig *rig, const struct worker_start *start)
{
    int fds[4] = {rig->arena.read_only_fd, rig->commands_segment.read_only_fd,
                  rig->completions_segment.fd, rig->event_fd};
    rig_send_message(rig, start, sizeof *start, fds, 4);
}

struct worker_rig *rig_begin(void)
{
    struct worker_rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig_make_segment(&rig->arena, SPDL_SHM_READ_BY_OTHERS, RIG_ARENA_BYTES);
    rig_make_segment(&rig->commands_segment, SPDL_SHM_READ_BY_OTHERS, sizeof *rig->commands);
    rig_make_segment(&rig->completions_segment, SPDL_SHM_WRITTEN_BY_OTHERS,
                     sizeof *rig->completions);
    rig->commands = rig->commands_segment.base;
    rig->completions = rig->completions_segment.base;
    rig->commands->version = SPDL_WORK_VERSION;
    rig->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    rig->next_ticket = 1000;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    rig->socket_fd = ends[0];
    rig->peer_fd = ends[1];
    assert_int_equal(pthread_create(&rig->thread, NULL, run_worker, rig), 0);
    return rig;
}

struct worker_rig *rig_ready(uint32_t threads)
{
    struct worker_rig *rig = rig_begin();
    struct worker_start start = rig_start_message(rig, threads);
    rig_send_start(rig, &start);
    rig_expect_reply(rig, WORKER_READY, 0);
    return rig;
}

int rig_end(struct worker_rig *rig)
{
    shutdown(rig->socket_fd, SHUT_WR);
    assert_int_equal(pthread_join(rig->thread, NULL), 0);
    close(rig->socket_fd);
    close(rig->event_fd);
    spdl_shm_segment_destroy(&rig->arena);
    spdl_shm_segment_destroy(&rig->commands_segment);
    spdl_shm_segment_destroy(&rig->completions_segment);
    for (int i = 0; i < 3; i++)
        if (rig->data[i].base != NULL)
            spdl_shm_segment_destroy(&rig->data[i]);
    int status = rig->status;
    free(rig);
    return status;
}

static struct field_spec field_finished(struct field_spec field)
{
    struct err err = {0};
    if (field_finish(&field, &err) != 0)
        fail_msg("%s", err.text);
    return field;
}

struct field_spec rig_raw_field(void)
{
    return field_finished((struct field_spec){.name = "bin",
                                              .decoder = "raw",
                                              .from = {"bin"},
                                              .from_count = 1,
                                              .dtype = FIELD_DTYPE_UINT8,
                                              .bytes = RIG_RAW_BYTES});
}

struct field_spec rig_class_field(void)
{
    return field_finished((struct field_spec){.name = "label",
                                              .decoder = "class",
                                              .from = {"cls"},
                                              .from_count = 1,
                                              .dtype = FIELD_DTYPE_INT64});
}

struct field_spec rig_image_field(uint32_t op_kind)
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
                         .height = RIG_SIDE,
                         .width = RIG_SIDE,
                         .filter = op_kind == OP_RANDOM_RESIZED_CROP ? FIELD_FILTER_BILINEAR : 0,
                         .scale = {0.08, 1},
                         .ratio = {3. / 4, 4. / 3}};
    if (op_kind != OP_RANDOM_RESIZED_CROP)
        memset(field.ops[0].scale, 0, sizeof field.ops[0].scale * 2);
    return field_finished(field);
}

struct worker_add rig_add_message(uint32_t stream, const struct field_spec *fields, uint32_t count)
{
    struct worker_add add = {.head = {WORKER_ADD, stream},
                             .seed = 7,
                             .slot_count = RIG_SLOTS,
                             .row_count = RIG_ROWS,
                             .field_count = count};
    for (uint32_t f = 0; f < count; f++) {
        add.fields[f] = fields[f];
        add.field_offset[f] = add.slot_bytes;
        add.slot_bytes += (fields[f].row_bytes * RIG_ROWS + 255) / 256 * 256;
    }
    add.data_bytes = add.slot_bytes * RIG_SLOTS;
    return add;
}

void rig_add_stream(struct worker_rig *rig, const struct worker_add *add)
{
    struct spdl_shm_segment *data = &rig->data[add->head.stream];
    rig_make_segment(data, SPDL_SHM_WRITTEN_BY_OTHERS, add->data_bytes);
    rig_send_message(rig, add, sizeof *add, &data->fd, 1);
    rig_expect_reply(rig, WORKER_ADDED, add->head.stream);
}

uint8_t *rig_row_of(const struct worker_rig *rig, const struct worker_add *add, uint32_t field,
                    uint32_t slot, uint32_t row)
{
    return (uint8_t *)rig->data[add->head.stream].base + slot * add->slot_bytes +
           add->field_offset[field] + row * add->fields[field].row_bytes;
}

void rig_put(struct worker_rig *rig, struct spdl_work_command command)
{
    command.ticket = rig->next_ticket++;
    rig->commands->cells[rig->published % SPDL_WORK_CELLS] = command;
    rig->published++;
}

void rig_publish(struct worker_rig *rig)
{
    atomic_store_explicit(&rig->commands->published, rig->published, memory_order_release);
    syscall(SYS_futex, &rig->commands->published, FUTEX_WAKE, 64, NULL, NULL, 0);
}

static bool take(struct worker_rig *rig, struct spdl_work_completion *ret_record)
{
    struct spdl_work_completion_cell *cell =
        &rig->completions->cells[rig->cursor % SPDL_WORK_CELLS];
    if (atomic_load_explicit(&cell->turn, memory_order_seq_cst) != rig->cursor + 1)
        return false;
    *ret_record = cell->record;
    rig->cursor++;
    return true;
}

struct spdl_work_completion rig_wait_one(struct worker_rig *rig)
{
    struct spdl_work_completion record;
    while (!take(rig, &record)) {
        atomic_store_explicit(&rig->commands->waiting, 1, memory_order_seq_cst);
        if (take(rig, &record)) {
            atomic_store_explicit(&rig->commands->waiting, 0, memory_order_seq_cst);
            break;
        }
        struct pollfd poll_fd = {.fd = rig->event_fd, .events = POLLIN};
        assert_int_equal(poll(&poll_fd, 1, 20000), 1); /* a lost wake-up would end here */
        uint64_t count;
        assert_int_equal(read(rig->event_fd, &count, sizeof count), sizeof count);
        atomic_store_explicit(&rig->commands->waiting, 0, memory_order_seq_cst);
    }
    return record;
}

struct spdl_work_command rig_command_for(uint32_t stream, uint32_t slot, uint32_t row)
{
    struct spdl_work_command command = {.dest_count = 1};
    command.dests[0] = (struct spdl_work_dest){.stream = stream, .slot = slot, .row = row};
    memset(command.field_part, SPDL_WORK_NO_PART, sizeof command.field_part);
    return command;
}

void rig_add_part(struct spdl_work_command *command, uint32_t field, struct spdl_work_part part)
{
    command->field_part[field] = command->part_count;
    command->parts[command->part_count++] = part;
}

struct spdl_work_part rig_blob(struct worker_rig *rig, uint64_t offset, const void *data,
                               size_t bytes)
{
    memcpy((uint8_t *)rig->arena.base + offset, data, bytes);
    return (struct spdl_work_part){SPDL_WORK_PART_BLOB, 0, offset, bytes};
}
