/* A spdld of the test's own for one worker that runs in a thread: real rings, real segments.
 * Whatever goes wrong fails the test. */
#ifndef SPDL_TESTS_WORKER_RIG_H
#define SPDL_TESTS_WORKER_RIG_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm/shm_segment.h"
#include "shm/shm_work.h"
#include "worker/worker.h"

enum {
    RIG_ARENA_BYTES = 1 << 20,
    RIG_SLOTS = 2,
    RIG_ROWS = 8,
    RIG_RAW_BYTES = 1024,
    RIG_SIDE = 16
};

struct worker_rig {
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

/* A segment of the test's; it fails the test when it cannot be made. */
void rig_make_segment(struct spdl_shm_segment *segment, enum spdl_shm_use use, uint64_t bytes);

/* Sends any bytes with descriptors beside them. */
void rig_send_message(const struct worker_rig *rig, const void *data, size_t bytes, const int *fds,
                      size_t fd_count);

/* Waits for an answer of the worker. */
void rig_expect_reply(const struct worker_rig *rig, enum worker_message_kind kind, uint32_t stream);

/* A START that fits, and sending it. */
struct worker_start rig_start_message(const struct worker_rig *rig, uint32_t threads);
void rig_send_start(const struct worker_rig *rig, const struct worker_start *start);

/* Starts a worker's thread; nothing has been said to it. rig_ready: it has been started and has
 * answered. */
struct worker_rig *rig_begin(void);
struct worker_rig *rig_ready(uint32_t threads);

/* Closes the socket; returns what worker_run returned. */
int rig_end(struct worker_rig *rig);

/* Fields: RIG_RAW_BYTES raw bytes; a label; a picture of RIG_SIDE x RIG_SIDE with one operation. */
struct field_spec rig_raw_field(void);
struct field_spec rig_class_field(void);
struct field_spec rig_image_field(uint32_t op_kind);

/* An ADD that fits; adding it with a segment of its own. */
struct worker_add rig_add_message(uint32_t stream, const struct field_spec *fields, uint32_t count);
void rig_add_stream(struct worker_rig *rig, const struct worker_add *add);

/* Where the test sees a row. */
uint8_t *rig_row_of(const struct worker_rig *rig, const struct worker_add *add, uint32_t field,
                    uint32_t slot, uint32_t row);

/* Puts a command in its cell; rig_publish shows all that were put. */
void rig_put(struct worker_rig *rig, struct spdl_work_command command);
void rig_publish(struct worker_rig *rig);

/* The next completion. Sleeps as spdld does: says so, looks once more, waits for the eventfd. */
struct spdl_work_completion rig_wait_one(struct worker_rig *rig);

/* A command without parts; rig_add_part makes a field from a part; rig_blob puts bytes into the
 * arena. */
struct spdl_work_command rig_command_for(uint32_t stream, uint32_t slot, uint32_t row);
void rig_add_part(struct spdl_work_command *command, uint32_t field, struct spdl_work_part part);
struct spdl_work_part rig_blob(struct worker_rig *rig, uint64_t offset, const void *data,
                               size_t bytes);

#endif
