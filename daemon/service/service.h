/* The service manager: says how it goes, feeds its watchdog, takes its socket, logs to its journal.
 * Without one (no $NOTIFY_SOCKET, no $LISTEN_FDS, no $JOURNAL_STREAM) everything here does nothing.
 * The only room that names libsystemd. */
#ifndef SPDLD_SERVICE_H
#define SPDLD_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Reads what the manager put into the environment, and takes it out of there, so that no child
 * takes it for its own. Called once, before there are threads. is_private: what is there is meant
 * for the program that started us. */
void service_begin(bool is_private);

/* Somebody listens to what is said. */
bool service_is_managed(void);

/* The socket that the manager listens on for us, or -1: none. -EINVAL: there are several, or it is
 * no UNIX stream socket that listens. Its path goes to `path`. */
int service_listener(char *path, uint32_t path_bytes, int *ret_fd, struct err *reterr);

/* Lines go to the journal with their fields, where standard error does. */
void service_log(void);

/* READY=1, or RELOADING=1 and behind it READY=1, or STOPPING=1. text: what it does, in words. */
void service_ready(const char *text);
void service_reloading(void);
void service_stopping(const char *text);
/* STATUS=, where it differs from the last. */
void service_status(const char *text);

/* Called by the conductor at each turn: feeds the watchdog, which therefore sees the conductor's
 * own progress and no timer's. Returns how long the conductor may sleep; negative: as long as it
 * likes. */
int64_t service_alive(uint64_t now_ns);

#endif
