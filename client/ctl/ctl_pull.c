/* spdlctl pull: a test rank. It takes batches, keeps them as files when asked, and prints a line
 * for each, whole and only after everything about the batch is done: what a killed pull printed is
 * what it got. */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/ctl_line.h"
#include "client/ctl/ctl_npy.h"
#include "client/ctl/ctl_stream.h"
#include "client/ctl/ctl_verbs.h"
#include "shm/shm_failpoint.h"

struct pull {
    const struct ctl_options *options;
    struct spdl_stream *stream;
    struct ctl_text line; /* reused for every batch */
    int folder;           /* of --out, or -1 */
    uint32_t epoch;       /* the stream's first */
    uint64_t left;        /* batches to come; UINT64_MAX: until another epoch begins */
};

static int pull_files(const struct pull *pull, const struct spdl_batch *batch,
                      const struct spdl_batch_info *info)
{
    for (uint32_t i = 0; i < info->fields; i++) {
        struct spdl_tensor tensor;
        int rc = spdl_batch_tensor(batch, i, &tensor);
        if (rc == 0)
            rc = ctl_npy_write(pull->folder, info->epoch, info->step, &tensor);
        if (rc < 0)
            return ctl_fail(CTL_EXIT_FAILED, "--out %s, step %llu: %s", pull->options->out,
                            (unsigned long long)info->step, strerror(-rc));
    }
    return 0;
}

/* All that is done with a batch while it is held. */
static int pull_batch(struct pull *pull, const struct spdl_batch *batch,
                      const struct spdl_batch_info *info, uint64_t wait_ns)
{
    const struct ctl_options *options = pull->options;
    struct ctl_line_options line = {.hash = options->hash, .draws = options->draws};
    int code = pull->folder >= 0 ? pull_files(pull, batch, info) : 0;
    if (code != 0)
        return code;
    ctl_text_clear(&pull->line);
    int rc = options->json ? ctl_line_json(batch, &line, wait_ns, &pull->line)
                           : ctl_line_people(batch, &line, wait_ns, &pull->line);
    return rc < 0 ? ctl_fail(CTL_EXIT_FAILED, "a batch that cannot be read: %s", strerror(-rc)) : 0;
}

static int pull_write(const struct pull *pull)
{
    SPDL_FAILPOINT("rank.line.before");
    int rc = ctl_text_write(&pull->line, STDOUT_FILENO);
    SPDL_FAILPOINT("rank.line.after");
    if (rc == -EPIPE)
        return CTL_EXIT_FAILED; /* nobody reads on: nothing to say to anybody */
    return rc < 0 ? ctl_fail(CTL_EXIT_FAILED, "standard output: %s", strerror(-rc)) : 0;
}

static void pull_delay(uint64_t delay_ms)
{
    struct timespec left = {.tv_sec = (time_t)(delay_ms / 1000),
                            .tv_nsec = (long)(delay_ms % 1000) * 1000000};
    while (nanosleep(&left, &left) < 0 && errno == EINTR && !ctl_signal_exit())
        ;
}

static int pull_loop(struct pull *pull)
{
    double timeout_s = pull->options->has_timeout ? pull->options->timeout_s : -1;
    while (pull->left > 0) {
        struct spdl_batch *batch = NULL;
        struct spdl_batch_info info;
        uint64_t wait_ns = 0;
        int rc = ctl_stream_next(pull->stream, timeout_s, &batch, &wait_ns);
        if (rc == -ENODATA)
            break;
        if (rc < 0)
            return ctl_stream_failed(pull->stream, rc);
        SPDL_FAILPOINT("rank.batch.taken");
        spdl_batch_info(batch, &info);
        bool other_epoch = pull->left == UINT64_MAX && info.epoch != pull->epoch;
        int code = other_epoch ? 0 : pull_batch(pull, batch, &info, wait_ns);
        spdl_batch_unref(batch);
        if (code == 0 && !other_epoch)
            code = pull_write(pull);
        if (code != 0 || other_epoch)
            return code;
        if (pull->left != UINT64_MAX)
            pull->left--;
        if (pull->options->delay_ms && pull->left)
            pull_delay(pull->options->delay_ms);
    }
    return 0;
}

/* How many batches are wanted. Without --steps: the rest of the epoch. Behind a state of another
 * batch size steps are counted anew, so there only the first batch of the next epoch tells where
 * this one ended. */
static uint64_t pull_count(const struct ctl_options *options, const struct spdl_stream_info *info)
{
    if (options->steps)
        return options->steps;
    if (options->state || info->steps_per_epoch <= info->step)
        return UINT64_MAX;
    return info->steps_per_epoch - info->step;
}

static int pull_run(struct pull *pull, struct spdl_connection *connection)
{
    const struct ctl_options *options = pull->options;
    struct ctl_slice slice = {
        .batch = options->batch ? options->batch : 64,
        .rank = (uint32_t)options->rank,
        .world = options->world ? (uint32_t)options->world : 1,
        .limit = options->steps,
    };
    struct spdl_stream_info info;
    int code = ctl_stream_open(options, &slice, connection, &pull->stream);
    if (code != 0)
        return code;
    spdl_stream_info(pull->stream, &info);
    pull->epoch = info.epoch;
    pull->left = pull_count(options, &info);
    code = pull_loop(pull);
    spdl_close(pull->stream);
    return code;
}

int ctl_pull(const struct ctl_options *options)
{
    struct pull pull = {.options = options, .folder = -1};
    struct spdl_connection *connection = NULL;
    int code = ctl_stream_check(options, 64);
    if (code != 0)
        return code;
    if (options->out) {
        pull.folder = ctl_npy_folder(options->out);
        if (pull.folder < 0)
            return ctl_fail(CTL_EXIT_FAILED, "--out %s: %s", options->out, strerror(-pull.folder));
    }
    ctl_signal_install();
    code = ctl_connect(options, &connection);
    if (code == 0)
        code = pull_run(&pull, connection);
    spdl_disconnect(connection);
    ctl_text_fini(&pull.line);
    if (pull.folder >= 0)
        close(pull.folder);
    return code;
}
