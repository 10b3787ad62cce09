/* A small daemon in a thread, for tests of the client library: it speaks the protocol, makes real
 * segments and publishes a stream whose every byte follows from (epoch, step, row). It can be
 * killed, started again, stopped, and told to lie. */
#ifndef TESTS_LIB_FAKE_DAEMON_H
#define TESTS_LIB_FAKE_DAEMON_H

#include <pthread.h>
#include <stdint.h>

#include "proto/proto_frame.h"
#include "shm/shm_layout.h"

enum {
    FAKE_ROWS = 3,         /* of a batch */
    FAKE_STEPS = 7,        /* of an epoch */
    FAKE_IMAGE_BYTES = 12, /* of a row: [2, 2, 3] */
    FAKE_OPENS_MAX = 512
};

enum fake_lie {
    FAKE_TRUTH,
    FAKE_LIE_PROTOCOL,   /* HelloReply of another version */
    FAKE_LIE_SMALL_DATA, /* announces more data than there is */
    FAKE_LIE_TWO_FDS,    /* leaves the pipe out */
    FAKE_LIE_PIPE,       /* another segment in the place of the pipe */
    FAKE_LIE_GARBAGE,    /* bytes that are no message behind HelloReply */
    FAKE_LIE_OVERSIZED,  /* a length above the maximum behind HelloReply */
    FAKE_LIE_SLOT_TWICE, /* publishes a slot that is held */
    FAKE_LIE_SILENCE     /* takes connections and says nothing */
};

/* What an Open asked for. */
struct fake_open {
    char dataset[64];
    char state[128]; /* "": from a place */
    uint32_t epoch;
    uint64_t step, limit, batch;
    int has_seed;
    uint64_t seed;
};

struct fake_daemon {
    /* set by the test before fake_start; they stay over a restart */
    const char *socket;
    uint32_t slots;
    enum fake_lie lie;
    int refuse_code;       /* an Error to Open; 0: none */
    uint32_t refuse_count; /* so many times; 0: always */
    int end_code;          /* StreamEnd with this code behind end_after batches; 0: none */
    uint64_t end_after;
    int die_after_open; /* hang up right behind each OpenReply */
    const char *plan_id, *differences;
    /* changes the control segment before the OpenReply (slot 0 is filled as batch 0 but not
     * published) */
    void (*mutate)(void *argument, unsigned char *control);
    void *mutate_argument;
    int mutate_slot; /* call it before each publish, too */

    /* what happened; under lock */
    pthread_mutex_t lock;
    struct fake_open opens[FAKE_OPENS_MAX];
    uint32_t open_count;
    uint64_t hellos, releases, closes, unmapped, whys, compares, published;
    char compared[256];

    /* own */
    int64_t allowed; /* batches that may still be published; < 0: any number */
    int stop, paused;
    int listener, wake[2];
    uint64_t generation;
    pthread_t thread;
};

void fake_init(struct fake_daemon *fake, const char *socket);
void fake_start(struct fake_daemon *fake); /* listens when it returns */
void fake_kill(struct fake_daemon *fake);  /* as kill -9: everything is gone */
void fake_fini(struct fake_daemon *fake);
void fake_allow(struct fake_daemon *fake, int64_t batches); /* so many more; < 0: any number */
void fake_pause(struct fake_daemon *fake, int paused);      /* as SIGSTOP and SIGCONT */
void fake_wake(struct fake_daemon *fake);
/* Waits (up to 10 s) until *counter, one of the counters, is at least `value`. Returns the counter.
 */
uint64_t fake_await(struct fake_daemon *fake, const uint64_t *counter, uint64_t value);

/* The byte at `index` of a row's image. */
uint8_t fake_byte(uint32_t epoch, uint64_t step, uint32_t row, uint32_t index);

#endif
