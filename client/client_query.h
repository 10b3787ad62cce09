/* Inside libspdl-client and spdlctl: one question on a connection and its answer, and what the
 * daemon said of itself. Not exported from the shared library (spdlctl links the static one). */
#ifndef SPDL_CLIENT_QUERY_H
#define SPDL_CLIENT_QUERY_H

#include <stdint.h>

#include "proto/spdl_control.pb-c.h"
#include "spdl/client.h"

/* spdl_connect to a daemon that runs, with whatever configuration: none is started. */
int spdl_client_connect_running(const struct spdl_connect_options *options,
                                struct spdl_connection **ret_connection);

/* Sends `request` (borrowed; its id is set here) on the connection's own socket and waits for the
 * answer to it, up to 30 s (a day for an index, which is read meanwhile). Returns 0 with *ret_reply
 * owned (spdl__v1__to_client__free_unpacked(reply, NULL)), or the negative errno of the daemon's
 * Error answer, whose sentence is then spdl_connection_error and whose class
 * spdl_client_error_class; or -EPIPE: the daemon closed the connection; -ETIMEDOUT; -EINTR: a
 * signal came; -EPROTO: the answer cannot be read; -ESTALE: forked. After a failure of the
 * connection itself the next query connects anew, once. */
int spdl_client_query(struct spdl_connection *connection, Spdl__V1__ToDaemon *request,
                      Spdl__V1__ToClient **ret_reply);

/* Class (enum spdl_class as text, "" when none fits) of the connection's last error, spdl_open
 * included. Until the next call. */
const char *spdl_client_error_class(const struct spdl_connection *connection);

/* What the daemon said of itself when the connection was last made. Strings live as long as the
 * connection; all 0 and "" without one. */
struct spdl_client_daemon {
    int64_t pid;
    uint64_t generation;
    const char *version;
    const char *socket; /* path that was connected to */
    int is_private;
    int was_started; /* 1: this connection started the private daemon */
};
void spdl_client_daemon(const struct spdl_connection *connection,
                        struct spdl_client_daemon *ret_daemon);

#endif
