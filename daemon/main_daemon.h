/* The daemon's command line and life, shared by spdld (workers are processes) and spdld-inproc
 * (workers are threads). */
#ifndef SPDLD_MAIN_DAEMON_H
#define SPDLD_MAIN_DAEMON_H

#include "pipeline/pipeline_worker.h"

enum {
    MAIN_EXIT_OK = 0,
    MAIN_EXIT_CONFIG = 1,
    MAIN_EXIT_USAGE = 2,
    MAIN_EXIT_IN_USE = 3,
    MAIN_EXIT_SHORT = 4 /* memory or rights */
};

/* Runs until SIGTERM, SIGINT, or, private, until nobody needs it. Returns the exit status. */
int main_daemon(int argc, char **argv, const struct pipeline_launcher *launcher);

#endif
