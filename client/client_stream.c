/* Streams: opening, closing, what is known of one, and the return of its batches. */
#include "client/client_internal.h"
#include "shm/shm_failpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { HELLO_SECONDS = 10 };

static void free_text(const char *text)
{
    union {
        const char *in;
        char *out; /* owned by the stream: see copy_options */
    } owned = {text};
    free(owned.out);
}

static void stream_free(struct spdl_stream *stream)
{
    int tell = stream->state == SPDL_CLIENT_UP && stream->link.fd >= 0;
    spdl_client_ring_destroy(stream->ring);
    if (tell) {
        Spdl__V1__Unmapped unmapped = SPDL__V1__UNMAPPED__INIT;
        unmapped.stream = stream->number;
        Spdl__V1__ToDaemon message = SPDL__V1__TO_DAEMON__INIT;
        message.body_case = SPDL__V1__TO_DAEMON__BODY_UNMAPPED;
        message.unmapped = &unmapped;
        /* A daemon that does not listen learns it from the end of the connection. */
        if (spdl_proto_queue_to_daemon(&stream->link.out, &message) == 0)
            spdl_proto_flush(stream->link.fd, &stream->link.out);
    }
    spdl_client_attach_close(stream);
    free_text(stream->asked.dataset);
    free_text(stream->asked.dataset_yaml);
    free_text(stream->asked.on_error);
    free_text(stream->asked.state);
    free_text(stream->info.warning);
    spdl_client_target_unref(stream->target);
    pthread_cond_destroy(&stream->idle);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

void spdl_client_stream_unref(struct spdl_stream *stream)
{
    if (atomic_fetch_sub_explicit(&stream->refs, 1, memory_order_acq_rel) == 1)
        stream_free(stream);
}

/* Tells the daemon that a slot is free again; what the socket does not take waits for the next
 * call. */
static void queue_release(struct spdl_stream *stream, uint64_t sequence)
{
    Spdl__V1__Release release = SPDL__V1__RELEASE__INIT;
    release.stream = stream->number;
    release.n_sequences = 1;
    release.sequences = &sequence;
    Spdl__V1__ToDaemon message = SPDL__V1__TO_DAEMON__INIT;
    message.body_case = SPDL__V1__TO_DAEMON__BODY_RELEASE;
    message.release = &release;
    if (spdl_proto_queue_to_daemon(&stream->link.out, &message) == 0)
        spdl_proto_flush(stream->link.fd, &stream->link.out);
}

void spdl_client_stream_give_back(struct spdl_stream *stream, struct spdl_batch *batch)
{
    struct spdl_client_ring *ring = batch->ring;
    pthread_mutex_lock(&stream->lock);
    batch->is_taken = 0;
    ring->held--;
    SPDL_FAILPOINT("rank.release.before");
    if (ring == stream->ring && stream->state == SPDL_CLIENT_UP && !stream->is_closed)
        queue_release(stream, batch->slot.sequence);
    SPDL_FAILPOINT("rank.release.after");
    int is_old = ring != stream->ring && ring->held == 0;
    pthread_mutex_unlock(&stream->lock);
    if (is_old)
        spdl_client_ring_destroy(ring);
    spdl_client_stream_unref(stream);
}

/* Keeps a copy of what was asked for: it is asked again after a restart of the daemon. */
static int copy_options(struct spdl_stream *stream, const struct spdl_open_options *options)
{
    int rc = 0;
    struct spdl_open_options *asked = &stream->asked;
    *asked = *options;
    asked->dataset = spdl_client_copy_text(options->dataset, &rc);
    asked->dataset_yaml = spdl_client_copy_text(options->dataset_yaml, &rc);
    asked->on_error = spdl_client_copy_text(options->on_error, &rc);
    asked->state = spdl_client_copy_text(options->state, &rc);
    return rc;
}

static struct spdl_stream *stream_create(struct spdl_client_target *target,
                                         const struct spdl_open_options *options)
{
    struct spdl_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return NULL;
    stream->self = stream;
    atomic_init(&stream->refs, 1);
    stream->target = spdl_client_target_ref(target);
    pthread_mutex_init(&stream->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&stream->idle, &attributes);
    pthread_condattr_destroy(&attributes);
    stream->info.warning = NULL;
    spdl_client_attach_init(stream);
    if (copy_options(stream, options) < 0) {
        stream_free(stream);
        return NULL;
    }
    return stream;
}

/* Waits until the stream is open. Nobody else knows it yet, so its lock may be held all the time.
 */
static int await_open(struct spdl_stream *stream)
{
    int64_t hello_by_ns = spdl_client_now_ns() + HELLO_SECONDS * SPDL_CLIENT_SECOND_NS;
    for (;;) {
        if (stream->failed_code != 0) {
            stream->error = stream->failed;
            return stream->failed_code;
        }
        if (stream->state == SPDL_CLIENT_UP)
            return 0;
        int64_t now_ns = spdl_client_now_ns();
        if (stream->state == SPDL_CLIENT_HELLO && now_ns >= hello_by_ns)
            return spdl_client_fail(&stream->error, -ETIMEDOUT, SPDL_CLASS_TIMEOUT,
                                    "the daemon at %s does not answer within %d s",
                                    stream->target->socket, HELLO_SECONDS);
        int rc = spdl_client_attach_step(stream, now_ns);
        if (rc < 0)
            return rc;
        int64_t until_ns = stream->state == SPDL_CLIENT_HELLO ? hello_by_ns : SPDL_CLIENT_NEVER_NS;
        struct pollfd fds[SPDL_CLIENT_POLL_MAX];
        uint32_t count = spdl_client_attach_poll(stream, fds, &until_ns);
        rc = spdl_client_poll(fds, count, until_ns);
        if (rc < 0)
            return spdl_client_fail(&stream->error, rc, 0,
                                    rc == -EINTR ? "interrupted by a signal"
                                                 : "the daemon cannot be waited for");
        spdl_client_attach_handle(stream, fds, count);
    }
}

static int check_options(const struct spdl_open_options *options, struct spdl_open_options *own,
                         struct spdl_client_error *error)
{
    if (spdl_client_take_options(own, sizeof(*own), options, options->options_bytes) < 0)
        return spdl_client_fail(error, -EINVAL, 0,
                                "the options do not say their size, or ask for something that "
                                "this library (%s) does not know",
                                SPDL_VERSION);
    int has_name = own->dataset && own->dataset[0];
    int has_yaml = own->dataset_yaml && own->dataset_yaml[0];
    if (has_name + has_yaml != 1)
        return spdl_client_fail(error, -EINVAL, 0,
                                "a stream needs either the name of a dataset or a dataset as YAML");
    return 0;
}

int spdl_open(struct spdl_connection *connection, const struct spdl_open_options *options,
              struct spdl_stream **ret_stream)
{
    if (!ret_stream)
        return -EINVAL;
    *ret_stream = NULL;
    if (!connection || !options)
        return -EINVAL;
    struct spdl_client_target *target = spdl_client_connection_target(connection);
    if (spdl_client_guard_forked(&target->guard))
        return -ESTALE;
    struct spdl_client_error error = {0};
    struct spdl_open_options own = {0};
    int rc = check_options(options, &own, &error);
    struct spdl_stream *stream = NULL;
    if (rc == 0 && !target->socket)
        rc = spdl_client_fail(&error, -EINVAL, 0, "the connection was never made");
    if (rc == 0) {
        stream = stream_create(target, &own);
        if (!stream)
            rc = spdl_client_fail(&error, -ENOMEM, SPDL_CLASS_RESOURCE, "no memory");
    }
    if (stream) {
        rc = await_open(stream);
        if (rc < 0) {
            error = stream->error;
            stream->state = SPDL_CLIENT_DOWN; /* nothing was mapped that anybody waits for */
            stream_free(stream);
        } else {
            *ret_stream = stream;
        }
    }
    if (rc < 0)
        spdl_client_connection_set_error(connection, &error);
    return rc;
}

void spdl_close(struct spdl_stream *stream)
{
    if (!stream || spdl_client_guard_forked(&stream->target->guard))
        return;
    pthread_mutex_lock(&stream->lock);
    stream->is_closed = 1;
    if (stream->state == SPDL_CLIENT_UP) {
        Spdl__V1__Close close_stream = SPDL__V1__CLOSE__INIT;
        close_stream.stream = stream->number;
        Spdl__V1__ToDaemon message = SPDL__V1__TO_DAEMON__INIT;
        message.body_case = SPDL__V1__TO_DAEMON__BODY_CLOSE;
        message.close = &close_stream;
        if (spdl_proto_queue_to_daemon(&stream->link.out, &message) == 0)
            spdl_proto_flush(stream->link.fd, &stream->link.out);
    }
    pthread_mutex_unlock(&stream->lock);
    spdl_client_stream_unref(stream);
}

void spdl_stream_info(const struct spdl_stream *stream, struct spdl_stream_info *ret_info)
{
    *ret_info = (struct spdl_stream_info){.plan_id = "", .warning = ""};
    if (!spdl_client_guard_forked(&stream->target->guard))
        *ret_info = stream->info;
}

const char *spdl_stream_error(const struct spdl_stream *stream)
{
    if (spdl_client_guard_forked(&stream->target->guard))
        return SPDL_CLIENT_FORKED_TEXT;
    return stream->error.text;
}

const char *spdl_stream_error_class(const struct spdl_stream *stream)
{
    if (spdl_client_guard_forked(&stream->target->guard))
        return spdl_client_class_text(SPDL_CLASS_FORKED);
    return spdl_client_class_text(stream->error.class_number);
}

/* One descriptor for both that a waiting rank polls. */
static int make_event_fd(const struct spdl_stream *stream)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0)
        return -1;
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(fd, EPOLL_CTL_ADD, stream->pipe_fd, &event) < 0 ||
        epoll_ctl(fd, EPOLL_CTL_ADD, stream->link.fd, &event) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int spdl_stream_fd(const struct spdl_stream *stream)
{
    if (spdl_client_guard_forked(&stream->target->guard))
        return -1;
    struct spdl_stream *own = stream->self;
    pthread_mutex_lock(&own->lock);
    if (own->state == SPDL_CLIENT_UP && own->event_fd < 0)
        own->event_fd = make_event_fd(own);
    int fd = own->event_fd;
    pthread_mutex_unlock(&own->lock);
    return fd;
}
