/* Looking at a job's private daemon: verbs that only read take the one that runs as it is. */
#ifndef SPDL_CTL_ATTACH_H
#define SPDL_CTL_ATTACH_H

#include "client/ctl/ctl_args.h"
#include "spdl/client.h"

/* Does the verb only look, at a private daemon of whatever configuration? */
bool ctl_attach_is_for(const struct ctl_options *options);

/* Connects to the daemon that runs. 0 with *ret_connection owned; an exit code after a sentence;
 * -1: none runs, and the verb makes sense with one that is started for it. */
int ctl_attach(const struct ctl_options *options, const struct spdl_connect_options *connect,
               struct spdl_connection **ret_connection);

#endif
