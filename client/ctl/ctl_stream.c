/* A stream as the verbs pull, bench and preview use it. */
#include "client/ctl/ctl_stream.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/client_query.h"
#include "client/ctl/ctl_attach.h"

enum { SOURCE_HINT_BYTES = 768 };

static volatile sig_atomic_t signal_number;

static void signal_note(int number)
{
    signal_number = number;
}

void ctl_signal_install(void)
{
    struct sigaction action = {.sa_handler = signal_note};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int ctl_signal_exit(void)
{
    return signal_number ? 128 + (int)signal_number : 0;
}

uint64_t ctl_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

int ctl_stream_check(const struct ctl_options *options, uint64_t batch_default)
{
    if (options->source && options->operand_count)
        return ctl_fail(CTL_EXIT_USAGE, "give either DATASET or --source, not both");
    if (options->source && !options->is_private)
        return ctl_fail(CTL_EXIT_USAGE, "--source is for a private daemon: add --private");
    if (options->preset && !options->source)
        return ctl_fail(CTL_EXIT_USAGE, "--preset goes with --source; a named dataset has its own");
    uint64_t world = options->ranks ? options->ranks : options->world ? options->world : 1;
    unsigned long long highest = world - 1;
    uint64_t batch = options->batch ? options->batch : batch_default;
    if (options->rank >= world)
        return ctl_fail(CTL_EXIT_USAGE, "--rank %llu: with --world %llu ranks are 0 to %llu",
                        (unsigned long long)options->rank, (unsigned long long)world, highest);
    if (batch % world)
        return ctl_fail(CTL_EXIT_USAGE,
                        "--batch %llu is the batch of the whole job and cannot be divided among "
                        "%llu ranks; %llu can",
                        (unsigned long long)batch, (unsigned long long)world,
                        (unsigned long long)((batch / world + 1) * world));
    return 0;
}

/* Files that are missing have the same number as a daemon that is: the class tells them apart. */
static bool is_absent(const struct spdl_connection *connection)
{
    return strcmp(spdl_client_error_class(connection), "DAEMON_GONE") == 0;
}

/* Says what a connection could not do, with what to do where there is no daemon. */
static int connect_failed(const struct ctl_options *options, int rc, const char *sentence,
                          bool absent)
{
    if (rc == -ENOENT && !absent) /* what a daemon's start needs */
        return ctl_fail(CTL_EXIT_FAILED, "%s", sentence);
    switch (rc) {
    case -ENOENT:
    case -ECONNREFUSED:
    case -ETIMEDOUT:
    case -EPIPE:
        if (options->is_private)
            return ctl_fail(rc == -EPIPE ? CTL_EXIT_FAILED : CTL_EXIT_NO_DAEMON, "%s", sentence);
        return ctl_fail(CTL_EXIT_NO_DAEMON,
                        "%s\nTo start one: `systemctl start spdld` for the node, `spdld -c FILE` "
                        "by hand, or\n`spdlctl --private ...` for a daemon of your own.",
                        sentence);
    case -EACCES:
    case -EPERM:
    case -EEXIST:
    case -ENOSPC:
    case -ENOMEM:
    case -EMFILE:
    case -ENFILE:
        return ctl_fail(CTL_EXIT_REFUSED, "%s", sentence);
    case -EINTR:
        if (ctl_signal_exit())
            return ctl_signal_exit();
        return ctl_fail(CTL_EXIT_FAILED, "%s", sentence);
    default:
        return ctl_fail(CTL_EXIT_FAILED, "%s", sentence);
    }
}

int ctl_connect(const struct ctl_options *options, struct spdl_connection **ret_connection)
{
    struct spdl_connect_options connect = {
        .options_bytes = sizeof connect,
        .socket = options->socket,
        .is_private = options->is_private,
        .config_file = options->config,
        .sets = options->sets,
        .set_count = options->set_count,
        .client_name = "spdlctl " SPDL_VERSION,
        .reconnect_s = options->has_reconnect ? options->reconnect_s : -1,
    };
    struct spdl_connection *connection = NULL;
    if (options->config && access(options->config, R_OK) < 0)
        return ctl_fail(CTL_EXIT_FAILED, "-c %s: %s", options->config, strerror(errno));
    if (ctl_attach_is_for(options)) {
        int code = ctl_attach(options, &connect, ret_connection);
        if (code >= 0)
            return code;
    }
    int rc = spdl_connect(&connect, &connection);
    if (rc == 0) {
        *ret_connection = connection;
        return 0;
    }
    const char *sentence = connection ? spdl_connection_error(connection) : "";
    int code =
        connect_failed(options, rc, *sentence ? sentence : strerror(-rc), is_absent(connection));
    spdl_disconnect(connection);
    return code;
}

/* A path as YAML in double quotes. False: it is not UTF-8, which YAML cannot say. */
static bool source_quote(struct ctl_text *yaml, const char *path)
{
    const uint8_t *at = (const uint8_t *)path;
    ctl_text_str(yaml, "\"");
    for (size_t left = strlen(path); left > 0;) {
        uint32_t code = 0;
        size_t length = ctl_utf8_sequence(at, left, &code);
        if (length == 0)
            return false;
        if (code == '"' || code == '\\')
            ctl_text_printf(yaml, "\\%c", (int)code);
        else if (code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
                 code == 0xfeff || code >= 0xfffe)
            ctl_text_printf(yaml, "\\U%08x", code);
        else
            ctl_text_put(yaml, at, length);
        at += length;
        left -= length;
    }
    ctl_text_str(yaml, "\"");
    return true;
}

static int source_path(const char *kind, const char *path, struct ctl_text *yaml)
{
    struct ctl_text absolute = {0};
    if (path[0] != '/') {
        char *here = getcwd(NULL, 0);
        if (!here)
            return ctl_fail(CTL_EXIT_FAILED, "the working directory: %s", strerror(errno));
        ctl_text_printf(&absolute, "%s%s", here, here[1] ? "/" : "");
        free(here);
    }
    ctl_text_put(&absolute, path, strlen(path) + 1);
    ctl_text_printf(yaml, "%s: ", kind);
    bool fine = !absolute.failed && source_quote(yaml, absolute.data);
    ctl_text_fini(&absolute);
    if (!fine)
        return ctl_fail(CTL_EXIT_USAGE,
                        "--source %s:%s: the path is not UTF-8, which a "
                        "configuration cannot say; give it another name by a link",
                        kind, path);
    return 0;
}

static int source_synthetic(const char *numbers, struct ctl_text *yaml)
{
    char copy[64];
    uint64_t samples, bytes;
    size_t length = strlen(numbers);
    const char *comma = strchr(numbers, ',');
    if (comma && length < sizeof copy) {
        memcpy(copy, numbers, length + 1);
        copy[comma - numbers] = '\0';
        if (ctl_parse_unsigned(copy, UINT64_MAX, &samples) &&
            ctl_parse_unsigned(comma + 1, UINT64_MAX, &bytes)) {
            ctl_text_printf(yaml, "synthetic: {samples: %llu, bytes: %llu}",
                            (unsigned long long)samples, (unsigned long long)bytes);
            return 0;
        }
    }
    return ctl_fail(CTL_EXIT_USAGE,
                    "--source synthetic:%s: two numbers are wanted, as synthetic:1000000,1024 "
                    "(samples and bytes of each)",
                    numbers);
}

int ctl_source_yaml(const char *source, const char *preset, struct ctl_text *yaml)
{
    const char *colon = strchr(source, ':');
    if (!colon || !colon[1])
        return ctl_fail(CTL_EXIT_USAGE, "--source %s: KIND:PATH is wanted, as folder:/data/photos",
                        source);
    size_t kind_bytes = (size_t)(colon - source);
    int rc;
    ctl_text_str(yaml, "{source: {");
    if (kind_bytes == 6 && memcmp(source, "folder", 6) == 0)
        rc = source_path("folder", colon + 1, yaml);
    else if (kind_bytes == 3 && memcmp(source, "tar", 3) == 0)
        rc = source_path("tar", colon + 1, yaml);
    else if (kind_bytes == 4 && memcmp(source, "list", 4) == 0)
        rc = source_path("list", colon + 1, yaml);
    else if (kind_bytes == 9 && memcmp(source, "synthetic", 9) == 0)
        rc = source_synthetic(colon + 1, yaml);
    else
        rc = ctl_fail(CTL_EXIT_USAGE,
                      "--source %s: this version knows folder:DIR, tar:PATTERN, list:FILE and "
                      "synthetic:N,BYTES",
                      source);
    if (rc != 0)
        return rc;
    ctl_text_str(yaml, "}");
    if (preset) {
        ctl_text_str(yaml, ", preset: ");
        if (!source_quote(yaml, preset))
            return ctl_fail(CTL_EXIT_USAGE, "--preset %s: no such preset", preset);
    }
    ctl_text_str(yaml, "}");
    return 0;
}

/* What is named as a dataset and is one of the files here was meant as a source. */
static void source_hint(const struct ctl_options *options, char hint[SOURCE_HINT_BYTES])
{
    struct stat st;
    const char *name = options->operand_count ? options->operands[0] : "";
    size_t length = strlen(name);
    hint[0] = 0;
    if (options->source || length > SOURCE_HINT_BYTES / 3 || stat(name, &st) < 0)
        return;
    bool is_tar = length > 4 && strcmp(name + length - 4, ".tar") == 0;
    const char *kind = S_ISDIR(st.st_mode) ? "folder" : is_tar ? "tar" : "list";
    if (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode))
        snprintf(hint, SOURCE_HINT_BYTES, "\nA %s of that name is here: %s--source %s:%s",
                 S_ISDIR(st.st_mode) ? "folder" : "file", options->is_private ? "" : "--private ",
                 kind, name);
}

int ctl_open_failed(const struct ctl_options *options, struct spdl_connection *connection, int rc)
{
    const char *said = spdl_connection_error(connection);
    const char *sentence = *said ? said : strerror(-rc);
    char hint[SOURCE_HINT_BYTES];
    switch (rc) {
    case -ENOENT:
        source_hint(options, hint);
        if (is_absent(connection))
            return ctl_fail(CTL_EXIT_NO_DAEMON, "%s", sentence);
        return ctl_fail(CTL_EXIT_FAILED, "%s%s", sentence, hint);
    case -EINVAL:
    case -ERANGE:
    case -ESTALE:
        return ctl_fail(CTL_EXIT_USAGE, "%s", sentence);
    case -EACCES:
    case -EPERM:
    case -ENOSPC:
    case -ENOMEM:
    case -EMFILE:
    case -ENFILE:
        return ctl_fail(CTL_EXIT_REFUSED, "%s", sentence);
    case -EPIPE:
    case -ECONNREFUSED:
        return ctl_fail(CTL_EXIT_NO_DAEMON, "%s", sentence);
    case -EINTR:
        if (ctl_signal_exit())
            return ctl_signal_exit();
        return ctl_fail(CTL_EXIT_FAILED, "%s", sentence);
    default:
        return ctl_fail(CTL_EXIT_FAILED, "%s", sentence);
    }
}

/* A state says where the stream begins and with which seed; options beside it may only say the
 * same. */
static int open_contradicts(const struct ctl_options *options, const struct spdl_stream_info *info)
{
    if (!options->state)
        return 0;
    if (options->has_epoch && options->epoch != info->epoch)
        return ctl_fail(CTL_EXIT_USAGE, "--epoch %llu contradicts --state, which is in epoch %u",
                        (unsigned long long)options->epoch, info->epoch);
    if (options->has_step && options->step != info->step)
        return ctl_fail(CTL_EXIT_USAGE, "--step %llu contradicts --state, which is at step %llu",
                        (unsigned long long)options->step, (unsigned long long)info->step);
    if (options->has_seed && options->seed != info->seed)
        return ctl_fail(CTL_EXIT_USAGE, "--seed %llu contradicts --state, whose seed is %llu",
                        (unsigned long long)options->seed, (unsigned long long)info->seed);
    return 0;
}

int ctl_stream_open(const struct ctl_options *options, const struct ctl_slice *slice,
                    struct spdl_connection *connection, struct spdl_stream **ret_stream)
{
    struct ctl_text yaml = {0};
    struct spdl_stream *stream = NULL;
    struct spdl_stream_info info;
    int code = options->source ? ctl_source_yaml(options->source, options->preset, &yaml) : 0;
    ctl_text_put(&yaml, "", 1);
    if (code == 0 && yaml.failed)
        code = ctl_fail(CTL_EXIT_FAILED, "out of memory");
    if (code != 0) {
        ctl_text_fini(&yaml);
        return code;
    }
    struct spdl_open_options open = {
        .options_bytes = sizeof open,
        .dataset = options->source ? NULL : options->operands[0],
        .dataset_yaml = options->source ? yaml.data : NULL,
        .batch = slice->batch,
        .rank = slice->rank,
        .world = slice->world,
        .has_seed = options->has_seed,
        .seed = options->seed,
        .state = options->state,
        .epoch = (uint32_t)options->epoch,
        .step = options->step,
        .slots = (uint32_t)options->slots,
        .on_error = options->on_error,
        .limit = slice->limit,
    };
    int rc = spdl_open(connection, &open, &stream);
    ctl_text_fini(&yaml);
    if (rc < 0)
        return ctl_open_failed(options, connection, rc);
    spdl_stream_info(stream, &info);
    code = open_contradicts(options, &info);
    if (code != 0) {
        spdl_close(stream);
        return code;
    }
    if (info.warning && *info.warning)
        ctl_warn("%s", info.warning);
    *ret_stream = stream;
    return 0;
}

int ctl_stream_next(struct spdl_stream *stream, double timeout_s, struct spdl_batch **ret_batch,
                    uint64_t *ret_wait_ns)
{
    /* A signal between the look at the note and the wait would go unseen: no single wait is longer
     * than this. */
    const double slice_s = 0.5;
    uint64_t begin_ns = 0;
    for (double left_s = timeout_s;;) {
        if (ctl_signal_exit())
            return -EINTR;
        double wait_s = left_s < 0 || left_s > slice_s ? slice_s : left_s;
        int rc = spdl_next(stream, wait_s, ret_batch);
        if (rc == 0) {
            struct spdl_batch_info info;
            spdl_batch_info(*ret_batch, &info);
            *ret_wait_ns = begin_ns ? ctl_now_ns() - begin_ns : info.wait_ns;
            return 0;
        }
        if (rc != -EINTR && rc != -ETIMEDOUT && rc != -EAGAIN)
            return rc;
        uint64_t now_ns = ctl_now_ns();
        if (!begin_ns)
            begin_ns = now_ns - (rc == -ETIMEDOUT ? (uint64_t)(wait_s * 1e9) : 0);
        if (timeout_s >= 0) {
            left_s = timeout_s - (double)(now_ns - begin_ns) * 1e-9;
            if (left_s <= 0)
                return -ETIMEDOUT;
        }
    }
}

int ctl_stream_failed(struct spdl_stream *stream, int rc)
{
    if (rc == -EINTR && ctl_signal_exit())
        return ctl_signal_exit();
    if (rc == -ETIMEDOUT) {
        char why[512] = "";
        (void)spdl_why(stream, why, sizeof why);
        return ctl_fail(CTL_EXIT_FAILED, "no batch within --timeout%s%s", *why ? ": " : "", why);
    }
    const char *said = spdl_stream_error(stream);
    const char *class_name = spdl_stream_error_class(stream);
    int code = CTL_EXIT_FAILED;
    if (rc == -EPIPE)
        code = CTL_EXIT_NO_DAEMON;
    else if (rc == -ENOSPC || rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE || rc == -EACCES)
        code = CTL_EXIT_REFUSED;
    else if (rc == -EBADMSG || strcmp(class_name, "ALL_FAILED") == 0)
        code = CTL_EXIT_LIMIT;
    const char *sentence = *said ? said : strerror(-rc);
    bool names_class = !*class_name || strstr(sentence, class_name);
    return ctl_fail(code, "%s%s%s%s", sentence, names_class ? "" : " (",
                    names_class ? "" : class_name, names_class ? "" : ")");
}
