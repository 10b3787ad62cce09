/* spdlctl bench: drains batches and says how fast, at what cost, and how long the ranks waited. One
 * rank runs in this process; more run in processes of their own, forked before anything is
 * connected, and send their records through pipes. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/ctl/ctl_bench.h"
#include "client/ctl/ctl_json.h"
#include "client/ctl/ctl_query.h"
#include "client/ctl/ctl_stream.h"
#include "client/ctl/ctl_verbs.h"

/* Records of several ranks put together. */
struct bench_sum {
    struct ctl_bench_record record;
    uint32_t ranks; /* that have given theirs */
};

struct bench_daemon {
    double cpu_s, pss_mib;
    uint32_t decode_threads;
    char engine[32];
};

struct bench {
    const struct ctl_options *options;
    struct spdl_connection *connection;
    uint32_t ranks;
    double begin_cpu_s, last_cpu_s; /* of the daemon */
    struct bench_sum total;
    struct bench_sum *epochs; /* not given by all ranks yet */
    size_t epoch_count;
};

struct bench_child {
    pid_t pid;
    int fd; /* read end of its pipe; -1: closed */
    bool is_done;
};

static int bench_ask(struct bench *bench, struct bench_daemon *ret_daemon)
{
    Spdl__V1__StatusRequest question = SPDL__V1__STATUS_REQUEST__INIT;
    Spdl__V1__ToDaemon request = SPDL__V1__TO_DAEMON__INIT;
    Spdl__V1__ToClient *reply = NULL;
    request.body_case = SPDL__V1__TO_DAEMON__BODY_STATUS;
    request.status = &question;
    int code = ctl_query(bench->connection, &request, SPDL__V1__TO_CLIENT__BODY_STATUS, &reply);
    if (code != 0)
        return code;
    ret_daemon->cpu_s = reply->status->cpu_s;
    ret_daemon->pss_mib = reply->status->pss_mib;
    ret_daemon->decode_threads = reply->status->decode_threads;
    snprintf(ret_daemon->engine, sizeof ret_daemon->engine, "%s", reply->status->engine);
    spdl__v1__to_client__free_unpacked(reply, NULL);
    return 0;
}

struct bench_figure {
    const char *name, *words;
    double value;
    int decimals;
};
enum { BENCH_FIGURES = 14 };

static void bench_figures(const struct bench *bench, const struct ctl_bench_record *record,
                          double cpu_s, double pss_mib, struct bench_figure figures[BENCH_FIGURES])
{
    double samples = (double)record->samples, batches = (double)record->batches;
    double none = (double)NAN;
    const struct bench_figure all[BENCH_FIGURES] = {
        {"samples", "samples", samples, 0},
        {"batches", "batches", batches, 0},
        {"ranks", "ranks", bench->ranks, 0},
        {"wall_s", "seconds", record->wall_s, 4},
        {"samples_per_s", "samples a second", record->wall_s > 0 ? samples / record->wall_s : 0, 1},
        {"cpu_s", "CPU seconds of daemon, workers and ranks", cpu_s, 4},
        {"samples_per_cpu_s", "samples a CPU second", cpu_s > 0 ? samples / cpu_s : none, 1},
        {"cpu_us_per_sample", "CPU us a sample", samples > 0 ? cpu_s * 1e6 / samples : none, 3},
        {"client_cpu_us_per_batch", "CPU us a batch in the rank",
         batches > 0 ? (double)record->client_cpu_ns * 1e-3 / batches : none, 3},
        {"wait_p50_us", "us waited for a batch, median",
         ctl_hist_quantile(&record->wait, 0.5) * 1e-3, 1},
        {"wait_p99_us", "us waited for a batch, 99 of 100 below",
         ctl_hist_quantile(&record->wait, 0.99) * 1e-3, 1},
        {"wake_p50_us", "us from publish to a waiting rank's wake, median",
         ctl_hist_quantile(&record->wake, 0.5) * 1e-3, 1},
        {"first_batch_ms", "ms from open to the first batch", (double)record->first_batch_ns * 1e-6,
         3},
        {"pss_mib", "MiB resident of daemon, workers and ranks", pss_mib, 1},
    };
    memcpy(figures, all, sizeof all);
}

/* Prints one line of JSON, or one screen. daemon is NULL where it was not asked. */
static int bench_print(const struct bench *bench, const struct ctl_bench_record *record,
                       const struct bench_daemon *daemon, double since_cpu_s)
{
    struct bench_figure figures[BENCH_FIGURES];
    struct ctl_text text = {0};
    double none = (double)NAN;
    bench_figures(bench, record, daemon ? daemon->cpu_s - since_cpu_s + record->cpu_s : none,
                  daemon ? daemon->pss_mib + record->pss_mib : none, figures);
    if (bench->options->json) {
        ctl_json_open(&text, '{');
        if (!record->is_last)
            ctl_json_key_unsigned(&text, "epoch", record->epoch);
        for (unsigned i = 0; i < BENCH_FIGURES; i++)
            ctl_json_key_double(&text, figures[i].name, figures[i].value, figures[i].decimals);
        ctl_json_key_unsigned(&text, "wakes", record->wake.count);
        if (daemon) {
            ctl_json_key_string(&text, "engine", daemon->engine);
            ctl_json_key_unsigned(&text, "decode_threads", daemon->decode_threads);
        }
        ctl_json_close(&text, '}');
        ctl_text_str(&text, "\n");
    } else if (!record->is_last) {
        ctl_text_printf(&text, "epoch %u: %.0f samples in %.2f s, %.1f a second\n", record->epoch,
                        (double)record->samples, record->wall_s,
                        record->wall_s > 0 ? (double)record->samples / record->wall_s : 0);
    } else {
        for (unsigned i = 0; i < BENCH_FIGURES; i++) {
            if (isfinite(figures[i].value))
                ctl_text_printf(&text, "%14.*f  %s\n", figures[i].decimals, figures[i].value,
                                figures[i].words);
        }
        if (daemon)
            ctl_text_printf(&text, "reads by %s, %u decoding threads\n", daemon->engine,
                            daemon->decode_threads);
    }
    return ctl_print(&text);
}

static void bench_merge(struct bench_sum *sum, const struct ctl_bench_record *from)
{
    struct ctl_bench_record *into = &sum->record;
    into->epoch = from->epoch;
    into->is_last = from->is_last;
    into->batches += from->batches;
    into->samples += from->samples;
    into->client_cpu_ns += from->client_cpu_ns;
    into->cpu_s += from->cpu_s;
    into->pss_mib += from->pss_mib;
    if (from->wall_s > into->wall_s)
        into->wall_s = from->wall_s;
    if (from->total_wall_s > into->total_wall_s)
        into->total_wall_s = from->total_wall_s;
    if (from->first_batch_ns > into->first_batch_ns)
        into->first_batch_ns = from->first_batch_ns;
    ctl_hist_merge(&into->wait, &from->wait);
    ctl_hist_merge(&into->wake, &from->wake);
    sum->ranks++;
}

/* The sum of an epoch, made when this is its first record; NULL without memory. */
static struct bench_sum *bench_epoch(struct bench *bench, uint32_t epoch)
{
    for (size_t i = 0; i < bench->epoch_count; i++) {
        if (bench->epochs[i].record.epoch == epoch)
            return &bench->epochs[i];
    }
    struct bench_sum *more =
        realloc(bench->epochs, (bench->epoch_count + 1) * sizeof bench->epochs[0]);
    if (!more)
        return NULL;
    bench->epochs = more;
    struct bench_sum *sum = &more[bench->epoch_count++];
    memset(sum, 0, sizeof *sum);
    return sum;
}

static int bench_epoch_done(struct bench *bench, struct bench_sum *sum)
{
    struct bench_daemon daemon;
    bool asks = isfinite(sum->record.pss_mib);
    int code = asks ? bench_ask(bench, &daemon) : 0;
    if (code == 0)
        code = bench_print(bench, &sum->record, asks ? &daemon : NULL, bench->last_cpu_s);
    if (code == 0 && asks)
        bench->last_cpu_s = daemon.cpu_s;
    *sum = bench->epochs[--bench->epoch_count];
    return code;
}

static int bench_take(void *context, const struct ctl_bench_record *record)
{
    struct bench *bench = context;
    double pss_mib = bench->total.record.pss_mib;
    bench_merge(&bench->total, record);
    if (record->is_last)
        return 0;
    bench->total.ranks--; /* counts the ranks that are done */
    bench->total.record.pss_mib = pss_mib;
    struct bench_sum *sum = bench_epoch(bench, record->epoch);
    if (!sum)
        return ctl_fail(CTL_EXIT_FAILED, "out of memory");
    bench_merge(sum, record);
    return sum->ranks == bench->ranks ? bench_epoch_done(bench, sum) : 0;
}

/* The daemon's CPU before the run: nothing where it was started for it. */
static int bench_begin(struct bench *bench)
{
    struct spdl_client_daemon about;
    struct bench_daemon daemon = {0};
    int code = ctl_connect(bench->options, &bench->connection);
    if (code != 0)
        return code;
    spdl_client_daemon(bench->connection, &about);
    if (!about.was_started)
        code = bench_ask(bench, &daemon);
    bench->begin_cpu_s = bench->last_cpu_s = daemon.cpu_s;
    return code;
}

static int bench_end(struct bench *bench)
{
    struct bench_daemon daemon;
    int code = bench_ask(bench, &daemon);
    bench->total.record.wall_s = bench->total.record.total_wall_s;
    bench->total.record.is_last = true;
    return code ? code : bench_print(bench, &bench->total.record, &daemon, bench->begin_cpu_s);
}

static int bench_last_take(void *context, const struct ctl_bench_record *record)
{
    int code = bench_take(context, record);
    /* Asked while the stream is open, so that its memory is seen. */
    return code == 0 && record->is_last ? bench_end(context) : code;
}

static int bench_alone(struct bench *bench)
{
    struct ctl_bench_sink sink = {bench_last_take, bench};
    int code = bench_begin(bench);
    return code ? code : ctl_bench_rank(bench->options, 0, 1, bench->connection, &sink);
}

/* A rank's process: what it hears from its parent and what it tells it. */
struct bench_pipes {
    int go_fd;     /* a byte for each rank to begin with; closed at the end */
    int record_fd; /* write end */
};

static ssize_t bench_read(int fd, void *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = read(fd, (char *)data + done, bytes - done);
        if (got < 0 && errno == EINTR && !ctl_signal_exit())
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

/* Sends a record to the parent; the last one is followed by waiting until the parent has seen the
 * stream at its end. */
static int bench_send(void *context, const struct ctl_bench_record *record)
{
    const struct bench_pipes *pipes = context;
    struct ctl_text text = {0};
    char word;
    ctl_text_put(&text, record, sizeof *record);
    int rc = ctl_text_write(&text, pipes->record_fd);
    ctl_text_fini(&text);
    if (rc == 0 && record->is_last)
        (void)bench_read(pipes->go_fd, &word, 1);
    return rc < 0 ? CTL_EXIT_FAILED : 0;
}

static int bench_child_run(struct bench *bench, uint32_t rank, struct bench_pipes *pipes)
{
    struct ctl_bench_sink sink = {bench_send, pipes};
    char word;
    if (bench_read(pipes->go_fd, &word, 1) != 1)
        return CTL_EXIT_FAILED;
    int code = ctl_connect(bench->options, &bench->connection);
    if (code == 0)
        code = ctl_bench_rank(bench->options, rank, bench->ranks, bench->connection, &sink);
    spdl_disconnect(bench->connection);
    return code;
}

static int bench_fork(struct bench *bench, struct bench_child *children, const int go[2])
{
    pid_t parent = getpid();
    for (uint32_t i = 0; i < bench->ranks; i++) {
        int pipe_fds[2];
        if (pipe2(pipe_fds, O_CLOEXEC) < 0)
            return ctl_fail(CTL_EXIT_FAILED, "pipe: %s", strerror(errno));
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            if (getppid() != parent)
                _exit(CTL_EXIT_FAILED);
            close(go[1]);
            close(pipe_fds[0]);
            for (uint32_t k = 0; k < i; k++)
                close(children[k].fd);
            struct bench_pipes pipes = {go[0], pipe_fds[1]};
            _exit(bench_child_run(bench, i, &pipes));
        }
        close(pipe_fds[1]);
        if (pid < 0) {
            close(pipe_fds[0]);
            return ctl_fail(CTL_EXIT_FAILED, "fork: %s", strerror(errno));
        }
        children[i] = (struct bench_child){.pid = pid, .fd = pipe_fds[0]};
    }
    return 0;
}

/* What a rank's process ended with. */
static int bench_reap(struct bench_child *child)
{
    int status = 0;
    while (waitpid(child->pid, &status, 0) < 0) {
        if (errno != EINTR)
            return CTL_EXIT_FAILED;
    }
    child->pid = -1;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    return ctl_fail(CTL_EXIT_FAILED, "a rank was ended by signal %d", WTERMSIG(status));
}

/* Takes one record from a rank whose pipe has something. */
static int bench_receive(struct bench *bench, struct bench_child *child)
{
    struct ctl_bench_record record;
    ssize_t got = bench_read(child->fd, &record, sizeof record);
    if (got == (ssize_t)sizeof record) {
        child->is_done = record.is_last;
        return bench_take(bench, &record);
    }
    if (ctl_signal_exit())
        return ctl_signal_exit();
    int code = bench_reap(child); /* it has said why */
    return code ? code : CTL_EXIT_FAILED;
}

static int bench_gather(struct bench *bench, struct bench_child *children)
{
    struct pollfd polls[CTL_RANKS_MAX];
    int code = 0;
    while (code == 0 && bench->total.ranks < bench->ranks) {
        for (uint32_t i = 0; i < bench->ranks; i++)
            polls[i] =
                (struct pollfd){.fd = children[i].is_done ? -1 : children[i].fd, .events = POLLIN};
        int ready = poll(polls, bench->ranks, 500);
        if (ready < 0 && errno != EINTR)
            code = ctl_fail(CTL_EXIT_FAILED, "poll: %s", strerror(errno));
        if (ctl_signal_exit())
            code = ctl_signal_exit();
        for (uint32_t i = 0; i < bench->ranks && code == 0 && ready > 0; i++) {
            if (polls[i].revents)
                code = bench_receive(bench, &children[i]);
        }
    }
    return code ? code : bench_end(bench);
}

/* Several ranks: all of one job, so that a private daemon is theirs together. */
static int bench_together(struct bench *bench)
{
    int go[2];
    char job[64];
    struct bench_child *children = calloc(bench->ranks, sizeof *children);
    if (!children || pipe2(go, O_CLOEXEC) < 0) {
        free(children);
        return ctl_fail(CTL_EXIT_FAILED, "starting the ranks: %s", strerror(errno));
    }
    snprintf(job, sizeof job, "spdlctl-bench-%d-%llu", (int)getpid(),
             (unsigned long long)ctl_now_ns());
    if (bench->options->is_private && !getenv("SPDL_JOB"))
        setenv("SPDL_JOB", job, 1);

    int code = bench_fork(bench, children, go);
    close(go[0]);
    if (code == 0)
        code = bench_begin(bench);
    for (uint32_t i = 0; i < bench->ranks && code == 0; i++) {
        if (write(go[1], "g", 1) != 1)
            code = ctl_fail(CTL_EXIT_FAILED, "starting the ranks: %s", strerror(errno));
    }
    if (code == 0)
        code = bench_gather(bench, children);
    close(go[1]);
    for (uint32_t i = 0; i < bench->ranks; i++) {
        if (children[i].pid <= 0)
            continue;
        if (code != 0)
            kill(children[i].pid, SIGTERM);
        (void)bench_reap(&children[i]);
        close(children[i].fd);
    }
    free(children);
    return code;
}

int ctl_bench(const struct ctl_options *options)
{
    int code = ctl_stream_check(options, 64);
    if (code != 0)
        return code;
    struct bench *bench = calloc(1, sizeof *bench);
    if (!bench)
        return ctl_fail(CTL_EXIT_FAILED, "out of memory");
    bench->options = options;
    bench->ranks = options->ranks ? (uint32_t)options->ranks : 1;
    ctl_signal_install();
    code = bench->ranks == 1 ? bench_alone(bench) : bench_together(bench);
    spdl_disconnect(bench->connection);
    free(bench->epochs);
    free(bench);
    return code;
}
