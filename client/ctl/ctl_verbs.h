/* The verbs. Each takes the parsed options and returns what spdlctl ends with (enum ctl_exit, or
 * 128 + the signal that ended it). */
#ifndef SPDL_CTL_VERBS_H
#define SPDL_CTL_VERBS_H

#include "client/ctl/ctl_args.h"

int ctl_status(const struct ctl_options *options);
int ctl_datasets(const struct ctl_options *options);
int ctl_streams(const struct ctl_options *options);
int ctl_why(const struct ctl_options *options);
int ctl_config(const struct ctl_options *options);
int ctl_index(const struct ctl_options *options);
int ctl_set(const struct ctl_options *options);
int ctl_reload(const struct ctl_options *options);
int ctl_check(const struct ctl_options *options);
int ctl_plan(const struct ctl_options *options);
int ctl_quarantine(const struct ctl_options *options);
int ctl_errors(const struct ctl_options *options);
int ctl_pull(const struct ctl_options *options);
int ctl_bench(const struct ctl_options *options);
int ctl_preview(const struct ctl_options *options);

#endif
