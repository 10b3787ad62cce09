/* A stream as the verbs pull, bench and preview use it: opened from the command line, waited for so
 * that a signal ends it, its errors said. */
#ifndef SPDL_CTL_STREAM_H
#define SPDL_CTL_STREAM_H

#include "client/ctl/ctl_args.h"
#include "spdl/client.h"

/* Checks what can be checked without a daemon: source and preset, rank, world, and that the batch
 * (batch_default when none was given) can be divided among the ranks. 0 or CTL_EXIT_USAGE after a
 * sentence. */
int ctl_stream_check(const struct ctl_options *options, uint64_t batch_default);

/* Connects as the options say. 0 with *ret_connection owned, else an exit code after a sentence. */
int ctl_connect(const struct ctl_options *options, struct spdl_connection **ret_connection);

/* The dataset of --source as YAML, added to the text. 0 or CTL_EXIT_USAGE. */
int ctl_source_yaml(const char *source, const char *preset, struct ctl_text *yaml);

struct ctl_slice {
    uint64_t batch; /* G */
    uint32_t rank, world;
    uint64_t limit; /* 0: none */
};

/* Opens the stream that the options ask for. Exit code as above; *ret_stream owned. */
int ctl_stream_open(const struct ctl_options *options, const struct ctl_slice *slice,
                    struct spdl_connection *connection, struct spdl_stream **ret_stream);

/* Says why the daemon refused a stream, or a plan of one, and returns the exit code. */
int ctl_open_failed(const struct ctl_options *options, struct spdl_connection *connection, int rc);

/* The next batch, within timeout_s (< 0: no limit). 0 with *ret_batch owned and *ret_wait_ns, how
 * long was waited; -EINTR: a signal that ends the program came (ctl_signal_exit); -ETIMEDOUT,
 * -ENODATA and others as spdl_next has them. */
int ctl_stream_next(struct spdl_stream *stream, double timeout_s, struct spdl_batch **ret_batch,
                    uint64_t *ret_wait_ns);

/* Says why spdl_next failed and returns the exit code. */
int ctl_stream_failed(struct spdl_stream *stream, int rc);

/* SIGINT and SIGTERM are noted instead of ending the program; blocking calls return. */
void ctl_signal_install(void);
int ctl_signal_exit(void); /* 0: none came; else 130 or 143 */

uint64_t ctl_now_ns(void); /* CLOCK_MONOTONIC */

#endif
