/* spdlctl bench, inside: one rank measures and gives records; the program adds them up and prints.
 */
#ifndef SPDL_CTL_BENCH_H
#define SPDL_CTL_BENCH_H

#include "client/ctl/ctl_args.h"
#include "client/ctl/ctl_hist.h"
#include "spdl/client.h"

/* What a rank did since its last record: in an epoch, or behind the last whole one. Crosses a pipe
 * between a rank's process and its parent, both of this program. */
struct ctl_bench_record {
    uint32_t epoch;
    uint32_t is_last;
    uint64_t batches, samples;
    uint64_t first_batch_ns; /* from before the stream was opened */
    uint64_t client_cpu_ns;  /* of the thread that took the batches */
    double wall_s;
    double total_wall_s; /* since the stream was opened */
    double cpu_s;        /* of the rank's process */
    double
        pss_mib; /* of the rank's process; not a number: too soon after the last record to look */
    struct ctl_hist wait, wake;
};

struct ctl_bench_sink {
    int (*take)(void *context,
                const struct ctl_bench_record *record); /* 0, or an exit code that ends the rank */
    void *context;
};

/* Opens rank `rank` of `world` on the connection, takes batches until the time or the steps are
 * over, and gives its records, the last one while the stream is still open. Returns an exit code.
 */
int ctl_bench_rank(const struct ctl_options *options, uint32_t rank, uint32_t world,
                   struct spdl_connection *connection, const struct ctl_bench_sink *sink);

#endif
