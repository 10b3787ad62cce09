/* The daemon's command line and life: see main_daemon.h. */
#include "main_daemon.h"
#include "main_roots.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/loop.h"
#include "config/config.h"
#include "control/control.h"
#include "pipeline/pipeline.h"
#include "service/service.h"

enum { SETS_MAX = 256, STATUS_SECONDS = 5 };

struct options {
    const char *file, *socket;
    const char *sets[SETS_MAX];
    uint32_t set_count;
    bool check, version, defaults, help, is_private;
    bool is_user; /* one user's own, as a private one, but it stays */
    pid_t owner;
    int ready_fd;
};

struct daemon {
    struct options options;
    struct config *config;
    struct loop *loop;
    struct pipeline *pipeline;
    struct control *control;
    char socket[PATH_MAX]; /* one that is too long is refused where it is used */
    char user_file[PATH_MAX];
    uint64_t told_ns; /* when the service manager was last told how it goes */
    int signal_fd;
    struct loop_source *signal_source;
};

static const char usage_text[] =
    "usage: spdld [-c FILE] [--socket PATH] [--set KEY=VALUE]… [--foreground]\n"
    "       spdld --user …             one user's own: datasets of his ranks too, his "
    "configuration "
    "($XDG_CONFIG_HOME/spdld/spdld.yaml)\n"
    "       spdld --check [-c FILE]    reads the configuration, says what is wrong\n"
    "       spdld --print-defaults     the configuration with every default as a comment\n"
    "       spdld --version\n"
    "Without -c it reads /etc/spdld/spdld.yaml and /etc/spdld/datasets.d/*.yaml. It runs in the "
    "foreground and logs to\n"
    "standard error, or to the journal where systemd started it; SIGHUP reads the configuration\n"
    "anew. Exit: 0 after SIGTERM, 1 bad configuration, 2 wrong usage, 3 socket in use, 4 "
    "memory or rights are short.\n";

/* --- command line --- */

static int number_of(const char *text, int *ret_number)
{
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 0 || value > INT_MAX)
        return -EINVAL;
    *ret_number = (int)value;
    return 0;
}

/* Options with a value. Returns 1 when the value was taken, 0 when the option is none of these,
 * negative when it is wrong. */
static int option_value(struct options *options, const char *name, const char *value)
{
    int number = 0;
    if (strcmp(name, "-c") == 0)
        options->file = value;
    else if (strcmp(name, "--socket") == 0)
        options->socket = value;
    else if (strcmp(name, "--set") == 0 && options->set_count < SETS_MAX)
        options->sets[options->set_count++] = value;
    else if (strcmp(name, "--owner") == 0 && number_of(value, &number) == 0)
        options->owner = number;
    else if (strcmp(name, "--ready-fd") == 0 && number_of(value, &number) == 0)
        options->ready_fd = number;
    else
        return 0;
    return 1;
}

static bool option_flag(struct options *options, const char *name)
{
    if (strcmp(name, "--check") == 0)
        options->check = true;
    else if (strcmp(name, "--version") == 0)
        options->version = true;
    else if (strcmp(name, "--print-defaults") == 0)
        options->defaults = true;
    else if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        options->help = true;
    else if (strcmp(name, "--private") == 0)
        options->is_private = true;
    else if (strcmp(name, "--user") == 0)
        options->is_user = true;
    else if (strcmp(name, "--foreground") != 0) /* it always stays in the foreground */
        return false;
    return true;
}

static int options_read(struct options *options, int argc, char **argv)
{
    *options = (struct options){.ready_fd = -1};
    for (int i = 1; i < argc; i++) {
        char name[32];
        const char *equals = strncmp(argv[i], "--", 2) == 0 ? strchr(argv[i], '=') : NULL;
        size_t bytes = equals ? (size_t)(equals - argv[i]) : strlen(argv[i]);
        snprintf(name, sizeof name, "%.*s", (int)(bytes < 31 ? bytes : 31), argv[i]);
        if (!equals && option_flag(options, name))
            continue;
        const char *value = equals ? equals + 1 : i + 1 < argc ? argv[i + 1] : NULL;
        if (value && option_value(options, name, value) > 0) {
            i += equals ? 0 : 1;
            continue;
        }
        fprintf(stderr, "spdld: %s: %s\n%s", argv[i],
                value ? "no such option, or a wrong value" : "no such option, or no value",
                usage_text);
        return -EINVAL;
    }
    return 0;
}

/* --- --check --- */

static struct config *load(const struct options *options)
{
    struct config_complaints *complaints = calloc(1, sizeof *complaints);
    struct config *config = NULL;
    if (!complaints)
        return NULL;
    int rc = config_load(options->file, options->sets, options->set_count, &config, complaints);
    for (uint32_t i = 0; i < complaints->count && i < CONFIG_COMPLAINTS_MAX; i++)
        fprintf(stderr, "%s\n", complaints->lines[i]);
    if (rc < 0 && complaints->count == 0)
        fprintf(stderr, "%s: %s\n", options->file ? options->file : "configuration", strerror(-rc));
    free(complaints);
    return rc < 0 ? NULL : config;
}

static int check(const struct options *options)
{
    struct config *config = load(options);
    if (!config)
        return MAIN_EXIT_CONFIG;
    int bad = main_roots_check(config);
    if (bad == 0)
        printf("the configuration is good: %u datasets\n", config->dataset_count);
    config_destroy(config);
    return bad > 0 ? MAIN_EXIT_CONFIG : MAIN_EXIT_OK;
}

static int print_defaults(void)
{
    char *text = config_print_defaults();
    if (!text)
        return MAIN_EXIT_SHORT;
    fputs(text, stdout);
    free(text);
    return MAIN_EXIT_OK;
}

/* --- life --- */

/* Tells the client that started us how it went: "ok" or "error CODE SENTENCE". */
static void report(struct options *options, const char *line)
{
    if (options->ready_fd < 0)
        return;
    ssize_t ignored =
        write(options->ready_fd, line, strlen(line)); /* it may be gone: then it does not matter */
    (void)ignored;
    close(options->ready_fd);
    options->ready_fd = -1;
}

static int fail(struct options *options, const struct err *error)
{
    char line[ERR_TEXT_BYTES + 64];
    snprintf(line, sizeof line, "error %d %s\n", error->code, error->text);
    /* Ranks that start at the same moment start several private daemons: whose came later is told,
     * and nobody else has to hear of it. */
    bool is_late = error->code == -EADDRINUSE && options->is_private && options->ready_fd >= 0;
    report(options, line);
    log_line(is_late ? LOG_LEVEL_DEBUG : LOG_LEVEL_ERROR, "%s", error->text);
    return error->code == -EADDRINUSE ? MAIN_EXIT_IN_USE
           : error->code == -EINVAL   ? MAIN_EXIT_CONFIG
                                      : MAIN_EXIT_SHORT;
}

static void status_words(const struct daemon *daemon, char *text, size_t bytes)
{
    struct pipeline_stream *at = NULL;
    struct pipeline_stream_status status;
    uint32_t streams = 0;
    double rate = 0;
    while ((at = pipeline_stream_next(daemon->pipeline, at)) != NULL) {
        pipeline_stream_status(at, &status);
        rate += status.samples_per_s;
        streams++;
    }
    if (streams == 0)
        snprintf(text, bytes, "waits for ranks; %u datasets", daemon->config->dataset_count);
    else
        snprintf(text, bytes, "serves %u streams, %.0f samples/s", streams, rate);
}

/* What it does, in words, for `systemctl status`. */
static void tell(struct daemon *daemon, uint64_t now_ns)
{
    char text[160];
    if (!service_is_managed() || now_ns - daemon->told_ns < STATUS_SECONDS * UINT64_C(1000000000))
        return;
    status_words(daemon, text, sizeof text);
    service_status(text);
    daemon->told_ns = now_ns;
}

/* The configuration is read anew, or that is over. */
static void on_reloading(void *context, bool begins)
{
    const struct daemon *daemon = context;
    char words[160];
    status_words(daemon, words, sizeof words);
    if (begins)
        service_reloading();
    else
        service_ready(words);
    log_line(LOG_LEVEL_DEBUG, "the configuration %s: %s", begins ? "is read" : "was read",
             daemon->options.file ? daemon->options.file : "/etc/spdld");
}

static void on_signal(void *context, uint32_t events)
{
    struct daemon *daemon = context;
    struct signalfd_siginfo info;
    (void)events;
    while (read(daemon->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
            loop_stop(daemon->loop);
        else if (info.ssi_signo == SIGHUP)
            control_reload(daemon->control, (pid_t)info.ssi_pid, (uid_t)info.ssi_uid);
    }
}

static int64_t shorter(int64_t a, int64_t b)
{
    return a < 0 ? b : b < 0 || a < b ? a : b;
}

static int64_t step(void *context)
{
    struct daemon *daemon = context;
    int64_t wait_ns = shorter(pipeline_step(daemon->pipeline), control_step(daemon->control));
    uint64_t now_ns = loop_now_ns();
    tell(daemon, now_ns);
    return shorter(wait_ns, service_alive(now_ns));
}

static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit); /* refused: it stays as it is */
    }
}

static int prepare(struct daemon *daemon, struct err *reterr)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    raise_descriptors();
    sigprocmask(SIG_BLOCK, &signals, NULL); /* every thread inherits it */
    daemon->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    daemon->loop = loop_create();
    if (!daemon->loop || daemon->signal_fd < 0)
        return err_set(reterr, -errno, "no event loop: %s", strerror(errno));
    int rc = loop_add(daemon->loop, daemon->signal_fd, EPOLLIN, on_signal, daemon,
                      &daemon->signal_source);
    return rc < 0 ? err_set(reterr, rc, "no watch on signals: %s", strerror(-rc)) : 0;
}

static int start(struct daemon *daemon, const struct pipeline_launcher *launcher,
                 struct err *reterr)
{
    struct options *options = &daemon->options;
    int rc = prepare(daemon, reterr);
    if (rc < 0)
        return rc;
    int listen_fd = -1;
    snprintf(daemon->socket, sizeof daemon->socket, "%s",
             options->socket ? options->socket : daemon->config->socket);
    rc = service_listener(daemon->socket, sizeof daemon->socket, &listen_fd, reterr);
    if (rc < 0)
        return rc;
    struct pipeline_params pipeline = {.config = daemon->config,
                                       .loop = daemon->loop,
                                       .launcher = launcher,
                                       .is_private = options->is_private || options->is_user};
    rc = pipeline_create(&pipeline, &daemon->pipeline, reterr);
    if (rc < 0)
        return rc;
    struct control_params control = {.config = daemon->config,
                                     .loop = daemon->loop,
                                     .pipeline = daemon->pipeline,
                                     .socket = daemon->socket,
                                     .listen_fd = listen_fd,
                                     .is_private = options->is_private || options->is_user,
                                     .stays = !options->is_private,
                                     .owner = options->owner,
                                     .file = options->file,
                                     .sets = options->sets,
                                     .set_count = options->set_count,
                                     .reloading = on_reloading,
                                     .context = daemon};
    log_level_set(config_log_level(daemon->config));
    return control_create(&control, &daemon->control, reterr);
}

/* From here on it serves, until it is told to end. */
static void run(struct daemon *daemon)
{
    char words[160];
    const struct log_field started[] = {{LOG_ID, LOG_ID_STARTED}, {NULL, NULL}};
    const struct log_field stopping[] = {{LOG_ID, LOG_ID_STOPPING}, {NULL, NULL}};
    report(&daemon->options, "ok\n");
    if (!daemon->options.is_private) /* there the one who asks is told */
        main_roots_warn(daemon->config);
    log_event(LOG_LEVEL_INFO, started, "version %s listens on %s", SPDL_VERSION, daemon->socket);
    status_words(daemon, words, sizeof words);
    service_ready(words);
    loop_run(daemon->loop, step, daemon);
    service_stopping("ends");
    if (!daemon->options.is_private)
        log_event(LOG_LEVEL_INFO, stopping, "it ends");
}

/* The user's own configuration, where there is one; NULL: the node's. */
static const char *user_file(char *path, size_t bytes)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int length = config && config[0] == '/'
                     ? snprintf(path, bytes, "%s/spdld/spdld.yaml", config)
                     : snprintf(path, bytes, "%s/.config/spdld/spdld.yaml", home ? home : "");
    return length > 0 && (size_t)length < bytes && access(path, F_OK) == 0 ? path : NULL;
}

static void finish(struct daemon *daemon)
{
    control_destroy(daemon->control);
    pipeline_destroy(daemon->pipeline);
    if (daemon->loop)
        loop_remove(daemon->loop, daemon->signal_source);
    loop_destroy(daemon->loop);
    if (daemon->signal_fd >= 0)
        close(daemon->signal_fd);
    config_destroy(daemon->config);
}

static int serve(const struct options *options, const struct pipeline_launcher *launcher)
{
    struct daemon daemon = {.options = *options, .signal_fd = -1};
    struct err error = {0};
    service_begin(options->is_private);
    service_log();
    if (options->is_user && !options->file)
        daemon.options.file = user_file(daemon.user_file, sizeof daemon.user_file);
    daemon.config = load(&daemon.options);
    if (!daemon.config) {
        err_set(&error, -EINVAL, "the configuration is not valid");
        return fail(&daemon.options, &error);
    }
    int status = MAIN_EXIT_OK;
    if (start(&daemon, launcher, &error) < 0) {
        status = fail(&daemon.options, &error);
    } else {
        run(&daemon);
    }
    finish(&daemon);
    return status;
}

int main_daemon(int argc, char **argv, const struct pipeline_launcher *launcher)
{
    struct options options;
    if (options_read(&options, argc, argv) < 0)
        return MAIN_EXIT_USAGE;
    if (options.help) {
        fputs(usage_text, stdout);
        return MAIN_EXIT_OK;
    }
    if (options.version) {
        printf("spdld %s\n", SPDL_VERSION);
        return MAIN_EXIT_OK;
    }
    if (options.defaults)
        return print_defaults();
    return options.check ? check(&options) : serve(&options, launcher);
}
