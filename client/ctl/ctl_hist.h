/* A histogram of durations from 1 ns to hours with steps of about 3 %, of a fixed size so that it
 * goes through a pipe and can be added up. */
#ifndef SPDL_CTL_HIST_H
#define SPDL_CTL_HIST_H

#include <stdint.h>

enum { CTL_HIST_SUB = 32, CTL_HIST_BUCKETS = 40 * CTL_HIST_SUB };

struct ctl_hist {
    uint64_t count;
    uint32_t buckets[CTL_HIST_BUCKETS];
};

void ctl_hist_add(struct ctl_hist *hist, uint64_t value_ns);
void ctl_hist_merge(struct ctl_hist *into, const struct ctl_hist *from);

/* The value below which the share `quantile` (0 … 1) of all lies, in ns: the middle of its bucket.
 * 0 when the histogram is empty. */
double ctl_hist_quantile(const struct ctl_hist *hist, double quantile);

#endif
