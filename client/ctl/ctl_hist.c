/* A histogram of durations: below 32 exact, above it 32 buckets for each power of two. */
#include "client/ctl/ctl_hist.h"

static unsigned hist_bucket(uint64_t value)
{
    if (value < CTL_HIST_SUB)
        return (unsigned)value;
    unsigned top = 63U - (unsigned)__builtin_clzll(value);
    unsigned bucket =
        (top - 4U) * CTL_HIST_SUB + (unsigned)(value >> (top - 5U)) - (unsigned)CTL_HIST_SUB;
    return bucket < CTL_HIST_BUCKETS ? bucket : CTL_HIST_BUCKETS - 1U;
}

/* The middle of a bucket. */
static double hist_value(unsigned bucket)
{
    if (bucket < CTL_HIST_SUB)
        return bucket;
    unsigned power = bucket / CTL_HIST_SUB - 1U;
    unsigned sub = bucket % CTL_HIST_SUB;
    return ((double)(CTL_HIST_SUB + sub) + (power ? 0.5 : 0.0)) * (double)(1ULL << power);
}

void ctl_hist_add(struct ctl_hist *hist, uint64_t value_ns)
{
    hist->buckets[hist_bucket(value_ns)]++;
    hist->count++;
}

void ctl_hist_merge(struct ctl_hist *into, const struct ctl_hist *from)
{
    for (unsigned i = 0; i < CTL_HIST_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
    into->count += from->count;
}

double ctl_hist_quantile(const struct ctl_hist *hist, double quantile)
{
    double wanted = quantile * (double)hist->count;
    uint64_t seen = 0;
    for (unsigned i = 0; i < CTL_HIST_BUCKETS; i++) {
        seen += hist->buckets[i];
        if (hist->buckets[i] && (double)seen >= wanted)
            return hist_value(i);
    }
    return 0;
}
