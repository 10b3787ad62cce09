/* The life of a fetcher: a thread that may outlive its engine's close, since an operation of its
 * can hang. Knows nothing of how it reads. Private to the room.
 *
 * The engine's memory has two owners, conductor and fetcher; who lets go last frees it. */
#ifndef SPDLD_FETCH_FETCHER_H
#define SPDLD_FETCH_FETCHER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "fetch/fetch_port.h"

enum fetch_fetcher_state {
    FETCH_FETCHER_AWAKE = 0,
    FETCH_FETCHER_ON_FUTEX = 1, /* sleeps until the word changes */
    FETCH_FETCHER_ON_FD =
        2 /* sleeps until wake_fd is readable, or something else that it waits for */
};

struct fetch_fetcher {
    struct fetch_word
        state; /* enum fetch_fetcher_state. W: fetcher sets, conductor resets; the futex */
    struct fetch_word stop; /* W: conductor  R: fetcher */
    int wake_fd;            /* eventfd, blocking. W: conductor  R: fetcher */
    pthread_mutex_t lock;   /* guards all below; leaf rank */
    pthread_cond_t changed;
    bool started, ended;
    int start_code;
    struct err start_err;
    uint32_t owners;
    struct timespec until; /* for its end; conductor only */
};

/* Conductor. Errors: -EMFILE, -ENFILE, with a sentence. fini when both have let go. */
int fetch_fetcher_init(struct fetch_fetcher *fetcher, struct err *reterr);
void fetch_fetcher_fini(struct fetch_fetcher *fetcher);

/* Conductor: starts the thread, with all signals blocked, and waits until it says how its start
 * went. When the thread does not start at all the conductor is the only owner. */
int fetch_fetcher_start(struct fetch_fetcher *fetcher, void *(*run)(void *), void *argument,
                        struct err *reterr);
void fetch_fetcher_wake(struct fetch_fetcher *fetcher);
/* Conductor: asks it to stop. */
void fetch_fetcher_leave(struct fetch_fetcher *fetcher);
/* Conductor: the same, where that was not done; and waits for the end, 0.9 s from then at most. */
void fetch_fetcher_stop(struct fetch_fetcher *fetcher);

/* Fetcher. `give_up`: it goes on, but nobody need wait for it. */
void fetch_fetcher_started(struct fetch_fetcher *fetcher, int code, const struct err *err);
bool fetch_fetcher_stopped(struct fetch_fetcher *fetcher);
void fetch_fetcher_give_up(struct fetch_fetcher *fetcher);
void fetch_fetcher_sleep_on_futex(struct fetch_fetcher *fetcher);

/* Either: lets go. True for the last, who frees. The fetcher says in the same breath that it has
 * ended, so that a conductor that waited for it is the last. */
bool fetch_fetcher_unref(struct fetch_fetcher *fetcher, bool is_fetcher);

#endif
