/* Control: the daemon's socket. Accepts clients, checks every message, and turns it into calls of
 * the pipeline; nothing here waits for a client. Conductor role. */
#ifndef SPDLD_CONTROL_H
#define SPDLD_CONTROL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/loop.h"
#include "config/config.h"
#include "pipeline/pipeline.h"

struct control;

struct control_params {
    struct config *config; /* borrowed for life, as the others; changed by set and reload */
    const char *file;      /* with `sets` what the configuration was read from, and is again by a
                              reload, as config_load takes them */
    const char *const *sets;
    uint32_t set_count;
    /* May be NULL. A reload begins (the configuration is read), or is over, done or refused. */
    void (*reloading)(void *context, bool begins);
    void *context;
    struct loop *loop;
    struct pipeline *pipeline;
    const char *socket; /* path */
    int listen_fd;      /* that listens on it already and outlives us; -1: none */
    bool is_private;
    bool stays;  /* also without a client */
    pid_t owner; /* private: the one process that it serves; 0: a job of several */
};

/* Takes the lock beside the socket, replaces a stale socket, listens. -EADDRINUSE: a live daemon
 * has it; -EACCES, -ENOENT, …, with a sentence. Returned owned. */
int control_create(const struct control_params *params, struct control **ret_control,
                   struct err *reterr);
/* Closes every connection and removes the socket. Accepts NULL. */
void control_destroy(struct control *control);

/* Reads the configuration anew, as SIGHUP of that process asks: as `spdlctl reload` does it.
 * Returns at once; what comes of it is logged. */
void control_reload(struct control *control, pid_t pid, uid_t uid);

/* After each round of the loop: drops clients that say nothing, ends a private daemon that nobody
 * needs (loop_stop). Returns how long it need not be called, negative: until something happens. */
int64_t control_step(struct control *control);

#endif
