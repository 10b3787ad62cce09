/* A hostile rank, for tests: it speaks the control socket's protocol by hand, wrong in every way
 * there is, and tries what a rank must not be able to do. What was tried is counted; what succeeded
 * although it must not is printed and counted as a breach. */
#ifndef SPDL_TESTS_HOSTILE_H
#define SPDL_TESTS_HOSTILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MESSAGE_BYTES = 1 << 17, STREAM_FDS = 3 };

/* What a frame is built of. */
struct message {
    size_t bytes;
    uint8_t data[MESSAGE_BYTES];
};

struct rank {
    int fd;
    uint64_t stream;
    int fds[STREAM_FDS]; /* control, data, pipe */
};

struct hostile {
    const char *socket;
    double seconds; /* how long what has no end of its own goes on */
    uint64_t random;
    uint64_t tried, breaches;
};

double hostile_now(void);
uint32_t hostile_random(struct hostile *hostile); /* by the seed alone */
/* Says what was tried and whether it succeeded though it must not. */
void hostile_tried(struct hostile *hostile, bool is_breach, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* hostile_wire.c: messages. `begin` leaves room for the length, `end` writes it. */
void message_begin(struct message *message);
void message_number(struct message *message, unsigned field, uint64_t value);
void message_bytes(struct message *message, unsigned field, const void *data, size_t bytes);
void message_raw(struct message *message, const void *data, size_t bytes);
void message_end(struct message *message);
void message_hello(struct message *message);
void message_open(struct message *message, uint32_t slots);
void message_of_stream(struct message *message, unsigned body, uint64_t stream, int64_t sequence);
void message_ask(struct message *message, unsigned body);
int wire_connect(const struct hostile *hostile); /* -1: refused */
/* False: the daemon closed it. Never blocks for longer than a second. */
bool wire_send(int fd, const void *data, size_t bytes);
bool wire_send_message(int fd, const struct message *message);
/* Reads what comes within so many milliseconds: 1: something; 0: nothing; -1: closed. */
int wire_drain(int fd, int timeout_ms);
/* Hello and Open: false when it was refused or nobody is there. */
bool rank_open(const struct hostile *hostile, struct rank *rank, uint32_t slots);
void rank_close(struct rank *rank);

/* hostile_messages.c */
void mode_messages(struct hostile *hostile);
void mode_random(struct hostile *hostile);
void mode_fields(struct hostile *hostile);
void mode_change(struct hostile *hostile);
void mode_descriptors(struct hostile *hostile);
void mode_connections(struct hostile *hostile);
void mode_slow(struct hostile *hostile);
void mode_questions(struct hostile *hostile);
void mode_deaf(struct hostile *hostile);
/* hostile_segments.c */
void mode_write(struct hostile *hostile);
void mode_resize(struct hostile *hostile);
void mode_pipe(struct hostile *hostile);

#endif
