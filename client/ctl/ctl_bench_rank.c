/* One rank of spdlctl bench: takes batches and gives them back unread, so that what is measured is
 * spdld and the client library alone. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "client/ctl/ctl_bench.h"
#include "client/ctl/ctl_stream.h"

struct bench_rank {
    const struct ctl_options *options;
    const struct ctl_bench_sink *sink;
    struct spdl_stream *stream;
    struct ctl_bench_record record;
    uint64_t before_open_ns, open_ns, mark_ns; /* mark: the last record */
    uint64_t mark_thread_ns;
    uint64_t look_ns; /* when memory was looked at last */
    double mark_cpu_s;
};

static double bench_cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static uint64_t bench_thread_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* Proportional share of resident memory, in MiB; not a number where the kernel does not say. */
static double bench_pss_mib(void)
{
    char line[256];
    double kib = (double)NAN;
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    if (!file)
        return kib;
    while (fgets(line, sizeof line, file)) {
        unsigned long long value;
        if (sscanf(line, "Pss: %llu kB", &value) == 1) {
            kib = (double)value;
            break;
        }
    }
    fclose(file);
    return kib / 1024;
}

/* Gives the record of what was done since the last one, and begins the next. */
static int bench_give(struct bench_rank *rank, uint32_t epoch, bool is_last)
{
    const uint64_t look_every_ns = 50000000;
    struct ctl_bench_record *record = &rank->record;
    uint64_t now_ns = ctl_now_ns();
    double cpu_s = bench_cpu_s();
    bool look = is_last || now_ns - rank->look_ns >= look_every_ns;
    record->epoch = epoch;
    record->is_last = is_last;
    record->client_cpu_ns = bench_thread_ns() - rank->mark_thread_ns;
    record->wall_s = (double)(now_ns - rank->mark_ns) * 1e-9;
    record->total_wall_s = (double)(now_ns - rank->open_ns) * 1e-9;
    record->cpu_s = cpu_s - rank->mark_cpu_s;
    record->pss_mib = look ? bench_pss_mib() : (double)NAN;
    int code = rank->sink->take(rank->sink->context, record);

    uint64_t first_batch_ns = record->first_batch_ns;
    memset(record, 0, sizeof *record);
    record->first_batch_ns = first_batch_ns;
    rank->mark_ns = now_ns;
    rank->mark_cpu_s = cpu_s;
    rank->mark_thread_ns = bench_thread_ns();
    if (look)
        rank->look_ns = ctl_now_ns();
    return code;
}

/* How long the next batch may be waited for: to the end of the run, and no longer than --timeout.
 */
static double bench_patience_s(const struct bench_rank *rank, uint64_t end_ns, bool *ret_ends)
{
    double left_s = -1;
    *ret_ends = false;
    if (end_ns) {
        uint64_t now_ns = ctl_now_ns();
        left_s = now_ns >= end_ns ? 0 : (double)(end_ns - now_ns) * 1e-9;
        *ret_ends = true;
    }
    if (rank->options->has_timeout && (left_s < 0 || rank->options->timeout_s < left_s)) {
        left_s = rank->options->timeout_s;
        *ret_ends = false;
    }
    return left_s;
}

static int bench_loop(struct bench_rank *rank, uint64_t end_ns)
{
    uint32_t epoch = 0;
    bool ends;
    for (bool first = true;; first = false) {
        struct spdl_batch *batch = NULL;
        struct spdl_batch_info info;
        uint64_t wait_ns = 0;
        double patience_s = bench_patience_s(rank, end_ns, &ends);
        if (ends && patience_s <= 0)
            break;
        int rc = ctl_stream_next(rank->stream, patience_s, &batch, &wait_ns);
        if (rc == -ENODATA || (rc == -ETIMEDOUT && ends))
            break;
        if (rc < 0)
            return ctl_stream_failed(rank->stream, rc);
        spdl_batch_info(batch, &info);
        spdl_batch_unref(batch);
        uint64_t now_ns = first || wait_ns ? ctl_now_ns() : 0;
        if (first)
            rank->record.first_batch_ns = now_ns - rank->before_open_ns;
        else if (info.epoch != epoch) {
            int code = bench_give(rank, epoch, false);
            if (code != 0)
                return code;
        }
        epoch = info.epoch;
        rank->record.batches++;
        rank->record.samples += info.rows;
        ctl_hist_add(&rank->record.wait, wait_ns);
        if (wait_ns && now_ns > info.publish_ns)
            ctl_hist_add(&rank->record.wake, now_ns - info.publish_ns);
    }
    return bench_give(rank, epoch, true);
}

int ctl_bench_rank(const struct ctl_options *options, uint32_t number, uint32_t world,
                   struct spdl_connection *connection, const struct ctl_bench_sink *sink)
{
    struct bench_rank rank = {.options = options, .sink = sink};
    struct ctl_slice slice = {
        .batch = options->batch ? options->batch : 64,
        .rank = number,
        .world = world,
        .limit = options->steps,
    };
    rank.before_open_ns = ctl_now_ns();
    int code = ctl_stream_open(options, &slice, connection, &rank.stream);
    if (code != 0)
        return code;
    rank.open_ns = rank.mark_ns = rank.look_ns = ctl_now_ns();
    rank.mark_thread_ns = bench_thread_ns();
    double seconds = options->has_seconds ? options->seconds : options->steps ? -1 : 10;
    code = bench_loop(&rank, seconds < 0 ? 0 : rank.open_ns + (uint64_t)(seconds * 1e9));
    spdl_close(rank.stream);
    return code;
}
