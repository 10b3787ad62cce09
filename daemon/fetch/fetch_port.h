/* What lies between the conductor and the threads of an engine: the requests in flight, a ring of
 * those to start, a ring of those that are finished, and the eventfd. Private to the room.
 *
 * A request keeps one slot from submit to reap. Only slot numbers travel through the rings, and
 * there are never more of them than slots, so that neither ring can overflow. */
#ifndef SPDLD_FETCH_PORT_H
#define SPDLD_FETCH_PORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "fetch/fetch.h"

struct fetch_slot {
    struct fetch_request request; /* written by the conductor before submit */
    struct fetch_result result;   /* written by the engine before finish */
    uint64_t since_ns;            /* conductor only; 0: the slot is free */
};

/* A word that one thread writes and another reads, away from others' words. */
struct fetch_word {
    uint8_t before[124];
    _Atomic uint32_t value;
};

struct fetch_port {
    uint32_t depth;
    uint32_t mask; /* of ring indices */
    struct fetch_slot *slots;
    uint32_t *spare; /* conductor only: numbers of free slots */
    uint32_t spare_count;
    uint32_t *submitted;             /* W: conductor  R: engine */
    uint32_t *finished;              /* W: engine  R: conductor */
    uint64_t reads, bytes, failures; /* conductor only */
    int event_fd;
    _Atomic uint64_t joined;       /* W: engine  R: conductor; a count alone */
    struct fetch_word submit_tail; /* W: conductor  R: engine */
    struct fetch_word submit_head; /* W: engine, one thread at a time */
    struct fetch_word finish_tail; /* W: engine, one thread at a time  R: conductor */
    struct fetch_word
        signalled;        /* W: engine sets it, then writes to event_fd; conductor clears it */
    uint32_t finish_head; /* conductor only */
    uint32_t submit_next; /* conductor only: behind the last request, shown or not */
    uint32_t finish_next; /* engine, one thread at a time: behind the last that is finished */
};

/* 0, -EINVAL for a depth outside its limits, -ENOMEM, -EMFILE, with a sentence. fini accepts a
 * zeroed port. */
int fetch_port_init(struct fetch_port *port, uint32_t depth, struct err *reterr);
void fetch_port_fini(struct fetch_port *port);

/* Conductor: see fetch.h. A request is shown to the engine by fetch_port_show, or before. */
int fetch_port_submit(struct fetch_port *port, const struct fetch_request *request);
void fetch_port_show(struct fetch_port *port);
uint32_t fetch_port_reap(struct fetch_port *port, struct fetch_result *results, uint32_t max);
void fetch_port_stats(const struct fetch_port *port, struct fetch_stats *ret_stats);

/* Conductor: how many are in flight for so long that what they wait for may not come. */
uint32_t fetch_port_late(const struct fetch_port *port);

/* Engine: the number of the next request to start, false when there is none. One thread at a time.
 */
bool fetch_port_take(struct fetch_port *port, uint32_t *ret_slot);
/* The same without taking it. */
bool fetch_port_peek(struct fetch_port *port, uint32_t *ret_slot);

/* How many wait to be started; what another thread takes meanwhile may still be counted. */
uint32_t fetch_port_waiting(struct fetch_port *port);

/* Engine: the request is done. One thread at a time, for these two. The conductor hears of it by
 * fetch_port_signal, which writes to the eventfd at most once between two reaps. */
void fetch_port_finish(struct fetch_port *port, uint32_t slot, uint32_t class_number, int code);
void fetch_port_signal(struct fetch_port *port);

/* Engine, any thread: so many calls were saved. */
void fetch_port_joined(struct fetch_port *port, uint64_t count);

#endif
