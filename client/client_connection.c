/* Connections: finding the daemon (or starting the job's own), Hello, and questions on the
 * connection's own link. */
#include "client/client_query.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/client_internal.h"

#define DEFAULT_SOCKET "/run/spdld/spdld.sock"

enum {
    GROUP_BYTES = 4096, /* names of the members of a group */
    CONNECT_SECONDS = 10,
    QUERY_SECONDS = 30,
    INDEX_SECONDS = 86400,
    DEFAULT_RECONNECT_SECONDS = 60,
    SETS_MAX = 1024
};

struct spdl_connection {
    pthread_mutex_t lock;
    struct spdl_client_target *target;
    struct spdl_client_link link;
    struct spdl_client_hello hello;
    int was_started;
    struct spdl_client_error error;
};

struct spdl_client_target *spdl_client_target_ref(struct spdl_client_target *target)
{
    atomic_fetch_add_explicit(&target->refs, 1, memory_order_relaxed);
    return target;
}

void spdl_client_target_unref(struct spdl_client_target *target)
{
    if (!target || atomic_fetch_sub_explicit(&target->refs, 1, memory_order_acq_rel) != 1)
        return;
    spdl_client_guard_fini(&target->guard);
    for (size_t i = 0; i < target->set_count; i++)
        free(target->sets[i]);
    free(target->sets);
    free(target->socket);
    free(target->config_file);
    free(target->client_name);
    free(target);
}

/* A daemon is told an absolute path, since its working directory is another one. */
static int take_config_file(struct spdl_client_target *target, const char *file,
                            struct spdl_client_error *error)
{
    if (!file)
        return 0;
    target->config_file = realpath(file, NULL);
    if (target->config_file)
        return 0;
    int code = -errno;
    char words[128];
    return spdl_client_fail(error, code, 0, "configuration file %s: %s", file,
                            spdl_client_errno_text(code, words, sizeof(words)));
}

static int take_sets(struct spdl_client_target *target, const struct spdl_connect_options *options)
{
    if (options->set_count == 0)
        return 0;
    if (!options->sets || options->set_count > SETS_MAX)
        return -EINVAL;
    target->sets = calloc(options->set_count, sizeof(*target->sets));
    if (!target->sets)
        return -ENOMEM;
    int rc = 0;
    for (size_t i = 0; i < options->set_count && rc == 0; i++) {
        target->sets[i] = spdl_client_copy_text(options->sets[i] ? options->sets[i] : "", &rc);
        target->set_count = i + 1;
    }
    return rc;
}

/* Fills the target; the sentence of a failure is the connection's. */
static int target_fill(struct spdl_client_target *target,
                       const struct spdl_connect_options *options, struct spdl_client_error *error)
{
    int rc = 0;
    target->is_private = options->is_private != 0;
    double reconnect_s =
        options->reconnect_s < 0.0 ? (double)DEFAULT_RECONNECT_SECONDS : options->reconnect_s;
    target->reconnect_ns = spdl_client_deadline_ns(0, reconnect_s);
    const char *name = options->client_name ? options->client_name : program_invocation_short_name;
    target->client_name = spdl_client_copy_text(name ? name : "", &rc);
    const char *socket_path = options->socket;
    const char *from_environment = getenv("SPDL_SOCKET");
    if (!socket_path && !target->is_private)
        socket_path = from_environment && from_environment[0] ? from_environment : DEFAULT_SOCKET;
    target->socket = spdl_client_copy_text(socket_path, &rc);
    if (rc < 0)
        return spdl_client_fail(error, rc, SPDL_CLASS_RESOURCE, "no memory");
    rc = spdl_client_private_find(target, error);
    if (rc < 0 || !target->is_private)
        return rc;
    rc = take_config_file(target, options->config_file, error);
    if (rc < 0)
        return rc;
    rc = take_sets(target, options);
    if (rc < 0)
        return spdl_client_fail(error, rc, 0, "the settings given cannot be taken (%zu of them)",
                                options->set_count);
    return 0;
}

/* The socket is there and not for us: says for whom it is. */
static int refused_error(const struct spdl_client_target *target, struct spdl_client_error *error)
{
    struct stat st;
    struct group entry, *found = NULL;
    char room[GROUP_BYTES];
    if (stat(target->socket, &st) < 0)
        return spdl_client_fail(error, -EACCES, 0,
                                "%s may not be used: the folder that it is in is not open to you",
                                target->socket);
    getgrgid_r(st.st_gid, &entry, room, sizeof(room), &found);
    if ((st.st_mode & S_IWGRP) == 0)
        return spdl_client_fail(error, -EACCES, 0, "%s may not be used: user %u alone may",
                                target->socket, (unsigned)st.st_uid);
    return spdl_client_fail(error, -EACCES, 0,
                            "%s may not be used: members of the group %s (%u) may, and user %u",
                            target->socket, found ? found->gr_name : "without a name",
                            (unsigned)st.st_gid, (unsigned)st.st_uid);
}

/* What stands in the way of a connect, in words for people. */
static int dial_error(const struct spdl_client_target *target, int code,
                      struct spdl_client_error *error)
{
    char words[128];
    spdl_client_errno_text(code, words, sizeof(words));
    if (code == -ENOENT || code == -ECONNREFUSED)
        return spdl_client_fail(error, code, SPDL_CLASS_DAEMON_GONE,
                                "no spdld at %s (%s): start it, or ask for a private one",
                                target->socket, words);
    if (code == -EACCES && target->is_private)
        return spdl_client_fail(error, code, 0, "%s cannot be used: it belongs to another user",
                                target->socket);
    if (code == -EACCES)
        return refused_error(target, error);
    if (code == -ETIMEDOUT)
        return spdl_client_fail(error, code, SPDL_CLASS_TIMEOUT,
                                "the daemon at %s does not answer within %d s", target->socket,
                                CONNECT_SECONDS);
    return spdl_client_fail(error, code, 0, "%s: %s", target->socket, words);
}

/* Waits until deadline_ns for a private daemon that was just started. 1: it listens; -EEXIST:
 * another one does or will. */
static int await_start(struct spdl_client_start *start, int64_t deadline_ns,
                       struct spdl_client_error *error)
{
    for (;;) {
        int rc = spdl_client_start_read(start, error);
        if (rc != 0)
            return rc;
        struct pollfd poll_fd = {.fd = start->fd, .events = POLLIN};
        rc = spdl_client_poll(&poll_fd, 1, deadline_ns);
        if (rc == -EINTR)
            return spdl_client_fail(error, rc, 0, "interrupted by a signal");
        if (rc == 0)
            return spdl_client_fail(error, -ETIMEDOUT, SPDL_CLASS_TIMEOUT,
                                    "the private spdld did not come up within %d s",
                                    CONNECT_SECONDS);
        if (rc < 0)
            return spdl_client_fail(error, rc, 0, "the private spdld cannot be waited for");
    }
}

static int start_private(struct spdl_connection *connection, int64_t deadline_ns)
{
    struct spdl_client_start start;
    spdl_client_start_init(&start);
    int rc = spdl_client_start_spawn(&start, connection->target, &connection->error);
    if (rc == 0)
        rc = await_start(&start, deadline_ns, &connection->error);
    spdl_client_start_close(&start);
    if (rc == 1)
        connection->was_started = 1;
    return rc == -EEXIST ? 0 : rc; /* the daemon's lock decides among several that start at once */
}

/* Connects the link, starting a private daemon where none answers. */
static int dial(struct spdl_connection *connection, int may_start, int64_t deadline_ns)
{
    const struct spdl_client_target *target = connection->target;
    for (;;) {
        int rc = spdl_client_link_dial(&connection->link, target);
        if (rc == 0)
            return 0;
        int is_absent = rc == -ENOENT || rc == -ECONNREFUSED;
        if (rc != -EAGAIN && !(is_absent && target->is_private && may_start))
            return dial_error(target, rc, &connection->error);
        if (spdl_client_now_ns() >= deadline_ns)
            return dial_error(target, -ETIMEDOUT, &connection->error);
        if (is_absent && !connection->was_started) {
            rc = start_private(connection, deadline_ns);
            if (rc < 0)
                return rc;
            if (rc == 1)
                continue;
        }
        rc = spdl_client_poll(NULL, 0, spdl_client_now_ns() + 20 * SPDL_CLIENT_MS_NS);
        if (rc < 0)
            return spdl_client_fail(&connection->error, rc, 0, "interrupted by a signal");
    }
}

/* A daemon that was found must have the configuration that was asked for. */
static int compare_config(struct spdl_connection *connection, int64_t deadline_ns)
{
    struct spdl_client_target *target = connection->target;
    Spdl__V1__ConfigCompare compare;
    spdl__v1__config_compare__init(&compare);
    if (target->config_file)
        compare.file = target->config_file;
    compare.n_sets = target->set_count;
    compare.sets = target->sets;
    Spdl__V1__ToDaemon request = SPDL__V1__TO_DAEMON__INIT;
    request.body_case = SPDL__V1__TO_DAEMON__BODY_CONFIG_COMPARE;
    request.config_compare = &compare;
    Spdl__V1__ToClient *reply;
    int rc = spdl_client_link_exchange(&connection->link, &request, deadline_ns, 1, &reply,
                                       &connection->error);
    if (rc < 0)
        return rc;
    if (reply->body_case != SPDL__V1__TO_CLIENT__BODY_CONFIG_COMPARE)
        rc = spdl_client_fail(&connection->error, -EPROTO, 0,
                              "the daemon answered with something else than was asked");
    else if (reply->config_compare->differences[0] != 0)
        rc = spdl_client_fail(&connection->error, -EEXIST, SPDL_CLASS_ALREADY_RUNNING,
                              "the private spdld of job %s runs already with another "
                              "configuration: %s",
                              target->job, reply->config_compare->differences);
    spdl__v1__to_client__free_unpacked(reply, NULL);
    return rc;
}

/* *was_there: set where a daemon took the connection and hung up. */
static int connect_once(struct spdl_connection *connection, int may_start, int64_t deadline_ns,
                        int *was_there)
{
    int rc = dial(connection, may_start, deadline_ns), is_dialled = rc == 0;
    if (rc == 0)
        rc = spdl_client_link_hello(&connection->link, connection->target, deadline_ns, 1,
                                    &connection->hello, &connection->error);
    if (rc == 0 && connection->target->is_private && may_start && !connection->was_started)
        rc = compare_config(connection, deadline_ns);
    if (rc < 0)
        spdl_client_link_close(&connection->link);
    *was_there |= is_dialled && rc == -EPIPE;
    return rc;
}

/* A daemon that took the connection and died before it said who it is was there: the next one is
 * waited for. */
static int connect_link(struct spdl_connection *connection, int may_start)
{
    int was_there = 0;
    int64_t now_ns = spdl_client_now_ns();
    int64_t deadline_ns = now_ns + CONNECT_SECONDS * SPDL_CLIENT_SECOND_NS;
    int64_t patience_ns = connection->target->reconnect_ns < CONNECT_SECONDS * SPDL_CLIENT_SECOND_NS
                              ? now_ns + connection->target->reconnect_ns
                              : deadline_ns;
    for (;;) {
        int rc = connect_once(connection, may_start, deadline_ns, &was_there);
        int is_absent = rc == -ENOENT || rc == -ECONNREFUSED;
        if (!may_start || !was_there || !(is_absent || rc == -EPIPE) ||
            spdl_client_now_ns() >= patience_ns)
            return rc;
        if (spdl_client_poll(NULL, 0, spdl_client_now_ns() + 20 * SPDL_CLIENT_MS_NS) < 0)
            return spdl_client_fail(&connection->error, -EINTR, 0, "interrupted by a signal");
    }
}

static int connect_with(const struct spdl_connect_options *options, int may_start,
                        struct spdl_connection **ret_connection)
{
    if (!ret_connection)
        return -EINVAL;
    *ret_connection = NULL;
    struct spdl_connection *connection = calloc(1, sizeof(*connection));
    struct spdl_client_target *target = calloc(1, sizeof(*target));
    if (!connection || !target) {
        free(connection);
        free(target);
        return -ENOMEM;
    }
    pthread_mutex_init(&connection->lock, NULL);
    spdl_client_link_init(&connection->link);
    atomic_init(&target->refs, 1);
    spdl_client_guard_init(&target->guard);
    connection->target = target;
    *ret_connection = connection;
    struct spdl_connect_options own = {.reconnect_s = -1.0};
    if (options && spdl_client_take_options(&own, sizeof(own), options, options->options_bytes) < 0)
        return spdl_client_fail(&connection->error, -EINVAL, 0,
                                "the options do not say their size, or ask for something that "
                                "this library (%s) does not know",
                                SPDL_VERSION);
    int rc = target_fill(target, &own, &connection->error);
    return rc < 0 ? rc : connect_link(connection, may_start);
}

int spdl_connect(const struct spdl_connect_options *options,
                 struct spdl_connection **ret_connection)
{
    return connect_with(options, 1, ret_connection);
}

int spdl_client_connect_running(const struct spdl_connect_options *options,
                                struct spdl_connection **ret_connection)
{
    return connect_with(options, 0, ret_connection);
}

void spdl_disconnect(struct spdl_connection *connection)
{
    if (!connection || spdl_client_guard_forked(&connection->target->guard))
        return;
    spdl_client_link_close(&connection->link);
    spdl_client_target_unref(connection->target);
    pthread_mutex_destroy(&connection->lock);
    free(connection);
}

const char *spdl_connection_error(const struct spdl_connection *connection)
{
    if (!connection)
        return "no memory";
    if (spdl_client_guard_forked(&connection->target->guard))
        return SPDL_CLIENT_FORKED_TEXT;
    return connection->error.text;
}

const char *spdl_client_error_class(const struct spdl_connection *connection)
{
    return connection ? spdl_client_class_text(connection->error.class_number) : "";
}

struct spdl_client_target *spdl_client_connection_target(const struct spdl_connection *connection)
{
    return connection->target;
}

void spdl_client_connection_set_error(struct spdl_connection *connection,
                                      const struct spdl_client_error *error)
{
    pthread_mutex_lock(&connection->lock);
    connection->error = *error;
    pthread_mutex_unlock(&connection->lock);
}

void spdl_client_daemon(const struct spdl_connection *connection,
                        struct spdl_client_daemon *ret_daemon)
{
    *ret_daemon = (struct spdl_client_daemon){
        .pid = connection->hello.pid,
        .generation = connection->hello.generation,
        .version = connection->hello.version,
        .socket = connection->target->socket ? connection->target->socket : "",
        .is_private = connection->hello.is_private,
        .was_started = connection->was_started,
    };
}

/* Does the daemon's end still stand? A question that was never sent may be asked again. */
static int link_is_broken(const struct spdl_client_link *link)
{
    char byte;
    return link->fd < 0 || recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

int spdl_client_query(struct spdl_connection *connection, Spdl__V1__ToDaemon *request,
                      Spdl__V1__ToClient **ret_reply)
{
    *ret_reply = NULL;
    if (spdl_client_guard_forked(&connection->target->guard))
        return -ESTALE;
    pthread_mutex_lock(&connection->lock);
    int rc = 0;
    if (link_is_broken(&connection->link)) {
        spdl_client_link_close(&connection->link);
        rc = connect_link(connection, 0);
    }
    if (rc == 0) {
        int reads = request->body_case == SPDL__V1__TO_DAEMON__BODY_INDEX;
        int64_t seconds = reads ? (int64_t)INDEX_SECONDS : (int64_t)QUERY_SECONDS;
        int64_t deadline_ns = spdl_client_now_ns() + seconds * SPDL_CLIENT_SECOND_NS;
        rc = spdl_client_link_exchange(&connection->link, request, deadline_ns, 1, ret_reply,
                                       &connection->error);
        /* A late answer must not be taken for that of the next question: ids differ. A broken
         * stream of bytes is of no use. */
        if (rc == -EPIPE || rc == -EPROTO)
            spdl_client_link_close(&connection->link);
    }
    pthread_mutex_unlock(&connection->lock);
    return rc;
}
