/* Questions to the daemon, as the verbs ask them: one message, one answer, errors said. */
#ifndef SPDL_CTL_QUERY_H
#define SPDL_CTL_QUERY_H

#include "client/client_query.h"
#include "client/ctl/ctl_args.h"

/* Asks and checks that the answer is of the wanted kind. 0 with *ret_reply owned
 * (spdl__v1__to_client__free_unpacked), else an exit code after a sentence. */
int ctl_query(struct spdl_connection *connection, Spdl__V1__ToDaemon *request,
              Spdl__V1__ToClient__BodyCase wanted, Spdl__V1__ToClient **ret_reply);

/* The second half of it, for one that asked by itself: rc and *reply are those of
 * spdl_client_query; *reply is NULL after a failure. */
int ctl_query_end(struct spdl_connection *connection, int rc, Spdl__V1__ToClient__BodyCase wanted,
                  Spdl__V1__ToClient **reply);

/* Connects and asks for the status. As above. */
int ctl_query_status(const struct ctl_options *options, Spdl__V1__ToClient **ret_reply);

/* The exit code for a negative errno of the daemon. */
int ctl_query_code(int rc);

/* "NAME: was -> now" and the like, each behind `prefix`; and the same as a JSON list. */
void ctl_changes_people(struct ctl_text *text, const char *prefix, Spdl__V1__Change *const *changes,
                        size_t count);
void ctl_changes_json(struct ctl_text *text, Spdl__V1__Change *const *changes, size_t count);

/* Writes the text to standard output and frees it; 0 or CTL_EXIT_FAILED. */
int ctl_print(struct ctl_text *text);

#endif
