/* A bar on the terminal while the daemon reads shards for a question that waits for its answer. */
#ifndef SPDLD_CTL_PROGRESS_H
#define SPDLD_CTL_PROGRESS_H

#include "client/ctl/ctl_args.h"

struct ctl_progress;

/* Begins to show how far the daemon is with the dataset (borrowed; "": the one that this call
 * brings), on the standard error where that is a terminal and --json was not given. NULL: it is not
 * shown. */
struct ctl_progress *ctl_progress_begin(const struct ctl_options *options, const char *dataset);
/* Takes the bar away. Accepts NULL. */
void ctl_progress_end(struct ctl_progress *progress);

#endif
