/* How a stream comes to its daemon, and back to it: a machine of five states that never blocks,
 * moved by whoever waits in spdl_open or spdl_next. A lost daemon is tried again every 20 ms at
 * first, then less often; while it is missed the stream's window runs down, while it answers the
 * window stands still. A new daemon is told where to go on by the state of the last batch given
 * out. */
#include "client/client_internal.h"
#include "shm/shm_failpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#define RETRY_FIRST_NS (20 * SPDL_CLIENT_MS_NS)
#define RETRY_LAST_NS (500 * SPDL_CLIENT_MS_NS)

void spdl_client_attach_init(struct spdl_stream *stream)
{
    stream->state = SPDL_CLIENT_DOWN;
    spdl_client_link_init(&stream->link);
    spdl_client_start_init(&stream->start);
    stream->pipe_fd = -1;
    stream->event_fd = -1;
    stream->window_left_ns = stream->target->reconnect_ns;
    stream->retry_step_ns = RETRY_FIRST_NS;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void spdl_client_attach_close(struct spdl_stream *stream)
{
    spdl_client_link_close(&stream->link);
    spdl_client_start_close(&stream->start);
    close_fd(&stream->pipe_fd);
    close_fd(&stream->event_fd);
}

void spdl_client_attach_good(struct spdl_stream *stream)
{
    stream->lost_ns = 0;
    stream->window_left_ns = stream->target->reconnect_ns;
    stream->retry_step_ns = RETRY_FIRST_NS;
    stream->starts = 0;
    stream->refused_code = 0;
}

/* The old ring ends where its last published batch is; these are still given out. */
static void fix_ring_end(struct spdl_stream *stream)
{
    struct spdl_client_ring *ring = stream->ring;
    uint32_t slot;
    uint64_t k = ring->next;
    while (spdl_client_ring_ready(ring, k, &slot))
        k++;
    ring->end = k;
    if (stream->is_ended && stream->end_sequences > k)
        stream->is_ended = 0; /* it died before it published what it announced */
}

/* The daemon is not there, or no longer: try again later. stream->cause says what happened. */
static void lose(struct spdl_stream *stream, int64_t now_ns)
{
    if (stream->state == SPDL_CLIENT_UP)
        fix_ring_end(stream);
    spdl_client_attach_close(stream);
    stream->state = SPDL_CLIENT_DOWN;
    if (stream->lost_ns == 0)
        stream->lost_ns = now_ns;
    stream->retry_at_ns = now_ns + stream->retry_step_ns - RETRY_FIRST_NS;
    stream->retry_step_ns += stream->retry_step_ns / 2;
    if (stream->retry_step_ns > RETRY_LAST_NS)
        stream->retry_step_ns = RETRY_LAST_NS;
}

/* Nothing will come any more, whatever is tried. */
static void fail_for_good(struct spdl_stream *stream, int code)
{
    spdl_client_attach_close(stream);
    stream->state = SPDL_CLIENT_DOWN;
    stream->failed_code = code;
}

/* The daemon refused: at the first time that is the answer; later, what may pass is tried again. */
static void refused(struct spdl_stream *stream, int code, int64_t now_ns)
{
    int may_pass = code == -ENOENT || code == -ENOSPC || code == -ENOMEM || code == -EMFILE ||
                   code == -ENFILE || code == -EAGAIN || code == -EBUSY;
    if (stream->was_open && may_pass) {
        stream->refused_code = code;
        stream->failed = stream->cause;
        lose(stream, now_ns);
        return;
    }
    stream->failed = stream->cause;
    fail_for_good(stream, code);
}

/* When the window ends; never while the daemon is there. */
static int64_t window_end_ns(const struct spdl_stream *stream)
{
    if (stream->lost_ns == 0 || stream->window_left_ns == SPDL_CLIENT_NEVER_NS)
        return SPDL_CLIENT_NEVER_NS;
    return stream->lost_ns + stream->window_left_ns;
}

static void stop_window(struct spdl_stream *stream, int64_t now_ns)
{
    if (stream->lost_ns != 0 && stream->window_left_ns != SPDL_CLIENT_NEVER_NS)
        stream->window_left_ns -= now_ns - stream->lost_ns;
    stream->lost_ns = 0;
}

/* Given up, for this call: a later one may try as long again. */
static int give_up(struct spdl_stream *stream)
{
    spdl_client_attach_close(stream);
    stream->state = SPDL_CLIENT_DOWN;
    stream->lost_ns = 0;
    stream->window_left_ns = stream->target->reconnect_ns;
    stream->retry_step_ns = RETRY_FIRST_NS;
    if (stream->refused_code != 0) {
        int code = stream->refused_code;
        stream->refused_code = 0;
        stream->error = stream->failed;
        return code;
    }
    char waited[64];
    snprintf(waited, sizeof(waited), "; waited %.3g s for it",
             (double)stream->target->reconnect_ns * 1e-9);
    return spdl_client_fail(&stream->error, -EPIPE, SPDL_CLASS_DAEMON_GONE,
                            "the daemon is gone: %s%s", stream->cause.text,
                            stream->target->reconnect_ns > 0 ? waited : "");
}

/* No daemon answers at the socket: a private one is started. */
static int start_daemon(struct spdl_stream *stream, int64_t now_ns)
{
    if (stream->starts >= SPDL_CLIENT_STARTS_MAX) {
        spdl_client_attach_close(stream);
        return spdl_client_fail(&stream->error, -EPIPE, SPDL_CLASS_DAEMON_GONE,
                                "the private spdld was started %d times and gave no batch: %s",
                                SPDL_CLIENT_STARTS_MAX, stream->cause.text);
    }
    stream->starts++;
    if (spdl_client_start_spawn(&stream->start, stream->target, &stream->cause) < 0)
        lose(stream, now_ns);
    else
        stream->state = SPDL_CLIENT_STARTING;
    return 0;
}

static int try_dial(struct spdl_stream *stream, int64_t now_ns)
{
    int rc = spdl_client_link_dial(&stream->link, stream->target);
    if (rc == 0)
        rc = spdl_client_link_queue_hello(&stream->link, stream->target);
    if (rc == 0) {
        stream->state = SPDL_CLIENT_HELLO;
        spdl_proto_flush(stream->link.fd, &stream->link.out); /* a failure shows at the next poll */
        return 0;
    }
    if ((rc == -ENOENT || rc == -ECONNREFUSED) && stream->target->is_private) {
        if (stream->lost_ns == 0)
            stream->lost_ns = now_ns;
        return start_daemon(stream, now_ns);
    }
    char words[128];
    spdl_client_fail(&stream->cause, rc, SPDL_CLASS_DAEMON_GONE, "%s at %s",
                     rc == -EAGAIN ? "it does not answer"
                                   : spdl_client_errno_text(rc, words, sizeof(words)),
                     stream->target->socket);
    lose(stream, now_ns);
    return 0;
}

int spdl_client_attach_step(struct spdl_stream *stream, int64_t now_ns)
{
    if (stream->failed_code != 0 || stream->state == SPDL_CLIENT_UP ||
        stream->state == SPDL_CLIENT_OPENING)
        return 0;
    if (stream->state == SPDL_CLIENT_DOWN && stream->was_open && stream->lost_ns == 0)
        stream->lost_ns = now_ns; /* asked again after it was given up */
    if (now_ns >= window_end_ns(stream)) {
        if (stream->state == SPDL_CLIENT_HELLO)
            spdl_client_fail(&stream->cause, -EPIPE, SPDL_CLASS_DAEMON_GONE,
                             "it does not answer at %s", stream->target->socket);
        return give_up(stream);
    }
    if (stream->state == SPDL_CLIENT_DOWN && now_ns >= stream->retry_at_ns) {
        int rc = try_dial(stream, now_ns);
        if (rc < 0)
            return rc;
        /* Without a window the first failure is the last. */
        if (now_ns >= window_end_ns(stream) && stream->state == SPDL_CLIENT_DOWN)
            return give_up(stream);
    }
    return 0;
}

uint32_t spdl_client_attach_poll(const struct spdl_stream *stream, struct pollfd *ret_fds,
                                 int64_t *deadline_ns)
{
    int64_t until_ns = SPDL_CLIENT_NEVER_NS;
    uint32_t count = 0;
    if (stream->state == SPDL_CLIENT_DOWN)
        until_ns = stream->retry_at_ns;
    if (stream->state == SPDL_CLIENT_STARTING)
        ret_fds[count++] = (struct pollfd){.fd = stream->start.fd, .events = POLLIN};
    if (stream->state == SPDL_CLIENT_UP)
        ret_fds[count++] = (struct pollfd){.fd = stream->pipe_fd, .events = POLLIN};
    if (stream->link.fd >= 0) {
        ret_fds[count] = (struct pollfd){.fd = stream->link.fd, .events = POLLIN};
        if (stream->link.out.bytes > 0)
            ret_fds[count].events |= POLLOUT;
        count++;
    }
    if (stream->state != SPDL_CLIENT_UP && window_end_ns(stream) < until_ns)
        until_ns = window_end_ns(stream);
    if (until_ns < *deadline_ns)
        *deadline_ns = until_ns;
    return count;
}

/* The Open of this stream, from its beginning or behind the last batch given out. */
static int queue_open(struct spdl_stream *stream)
{
    const struct spdl_open_options *asked = &stream->asked;
    static char none[] = "";
    Spdl__V1__Open open;
    spdl__v1__open__init(&open);
    union {
        const char *in;
        char *out; /* protobuf-c has no const strings, and does not write to them */
    } dataset = {asked->dataset}, yaml = {asked->dataset_yaml}, on_error = {asked->on_error},
      state = {stream->given > 0 ? stream->last_state : asked->state};
    open.dataset = dataset.in ? dataset.out : none;
    open.dataset_yaml = yaml.in ? yaml.out : none;
    open.on_error = on_error.in ? on_error.out : none;
    open.batch = asked->batch;
    open.rank = asked->rank;
    open.world = asked->world;
    open.slots = asked->slots;
    open.limit = asked->limit > 0 ? asked->limit - stream->given : 0;
    open.job = stream->target->job;
    if (asked->has_seed && stream->given == 0) {
        open.seed_choice_case = SPDL__V1__OPEN__SEED_CHOICE_SEED;
        open.seed = asked->seed;
    }
    Spdl__V1__Place place = SPDL__V1__PLACE__INIT;
    place.epoch = asked->epoch;
    place.step = asked->step;
    if (state.in) {
        open.from_case = SPDL__V1__OPEN__FROM_STATE;
        open.state = state.out;
    } else {
        open.from_case = SPDL__V1__OPEN__FROM_PLACE;
        open.place = &place;
    }
    Spdl__V1__ToDaemon request = SPDL__V1__TO_DAEMON__INIT;
    request.id = ++stream->link.last_id;
    request.body_case = SPDL__V1__TO_DAEMON__BODY_OPEN;
    request.open = &open;
    return spdl_proto_queue_to_daemon(&stream->link.out, &request);
}

/* What the first OpenReply says of the stream is what spdl_stream_info says ever after. */
static int keep_info(struct spdl_stream *stream, const Spdl__V1__OpenReply *reply)
{
    int rc = 0;
    snprintf(stream->plan_id, sizeof(stream->plan_id), "%s", reply->plan_id);
    stream->info = (struct spdl_stream_info){
        .samples = reply->samples,
        .steps_per_epoch = reply->steps_per_epoch,
        .epoch = reply->epoch,
        .step = reply->step,
        .seed = reply->seed,
        .plan_id = stream->plan_id,
        .warning = spdl_client_copy_text(reply->warning, &rc),
    };
    return rc;
}

/* The three descriptors of an OpenReply become a ring and a pipe. */
static int take_ring(struct spdl_stream *stream, const Spdl__V1__OpenReply *reply)
{
    struct spdl_proto_in *in = &stream->link.in;
    struct stat st;
    if (in->fd_count != 3 || fstat(in->fds[2], &st) < 0 || !S_ISFIFO(st.st_mode) ||
        fcntl(in->fds[2], F_SETFL, O_NONBLOCK) < 0)
        return spdl_client_fail(&stream->cause, -EPROTO, 0,
                                "the daemon opened the stream without its descriptors");
    struct spdl_client_ring *ring;
    SPDL_FAILPOINT("rank.open.before-map");
    int rc = spdl_client_ring_create(in->fds[0], reply->control_bytes, in->fds[1],
                                     reply->data_bytes, &ring, &stream->cause);
    if (rc < 0)
        return rc;
    SPDL_FAILPOINT("rank.open.mapped");
    close(in->fds[0]);
    close(in->fds[1]);
    stream->pipe_fd = in->fds[2];
    in->fd_count = 0;
    ring->stream = stream;
    ring->base = stream->given;
    if (stream->ring && stream->ring->held == 0)
        spdl_client_ring_destroy(stream->ring); /* else the last batch's return does it */
    stream->ring = ring;
    return 0;
}

static void handle_open_reply(struct spdl_stream *stream, const Spdl__V1__OpenReply *reply,
                              int64_t now_ns)
{
    if (stream->was_open && strcmp(stream->plan_id, reply->plan_id) != 0) {
        spdl_client_fail(&stream->cause, -ESTALE, SPDL_CLASS_CHANGED,
                         "the dataset changed behind the daemon's restart: its plan was %s and is "
                         "%.64s now",
                         stream->plan_id, reply->plan_id);
        refused(stream, -ESTALE, now_ns);
        return;
    }
    int rc = take_ring(stream, reply);
    if (rc == 0 && !stream->was_open) {
        rc = keep_info(stream, reply);
        if (rc < 0)
            spdl_client_fail(&stream->cause, rc, SPDL_CLASS_RESOURCE, "no memory");
    }
    if (rc < 0) {
        refused(stream, rc, now_ns);
        return;
    }
    stream->number = reply->stream;
    stream->state = SPDL_CLIENT_UP;
    stream->was_open = 1;
    stream->is_ended = 0;
    stream->refused_code = 0;
}

static void handle_hello_reply(struct spdl_stream *stream, const Spdl__V1__ToClient *message,
                               int64_t now_ns)
{
    int rc = spdl_client_link_check_hello(message, &stream->hello, &stream->cause);
    if (rc < 0) {
        refused(stream, rc, now_ns);
        return;
    }
    stop_window(stream, now_ns);
    stream->state = SPDL_CLIENT_OPENING;
    rc = queue_open(stream);
    if (rc < 0) {
        char words[128];
        spdl_client_fail(&stream->cause, rc, 0, "the request to open cannot be sent: %s",
                         spdl_client_errno_text(rc, words, sizeof(words)));
        refused(stream, rc, now_ns);
    }
}

static void handle_stream_end(struct spdl_stream *stream, const Spdl__V1__StreamEnd *end)
{
    if (end->stream != stream->number)
        return;
    stream->is_ended = 1;
    stream->end_sequences = end->sequences;
    stream->end_code = end->code < 0 && end->code > -4096 ? end->code : -ENODATA;
    spdl_client_fail(&stream->end, 0, end->class_number, "%s",
                     end->message[0] ? end->message : "the stream has ended");
}

static void handle_error(struct spdl_stream *stream, const Spdl__V1__Error *reply, int64_t now_ns)
{
    int code = reply->code < 0 && reply->code > -4096 ? reply->code : -EPROTO;
    spdl_client_fail(&stream->cause, code, reply->class_number, "%s", reply->message);
    if (stream->state == SPDL_CLIENT_HELLO || stream->state == SPDL_CLIENT_OPENING)
        refused(stream, code, now_ns);
}

static void handle_message(struct spdl_stream *stream, const Spdl__V1__ToClient *message,
                           int64_t now_ns)
{
    if (message->body_case == SPDL__V1__TO_CLIENT__BODY_ERROR)
        handle_error(stream, message->error, now_ns);
    else if (stream->state == SPDL_CLIENT_HELLO)
        handle_hello_reply(stream, message, now_ns);
    else if (stream->state == SPDL_CLIENT_OPENING &&
             message->body_case == SPDL__V1__TO_CLIENT__BODY_OPEN)
        handle_open_reply(stream, message->open, now_ns);
    else if (stream->state == SPDL_CLIENT_UP &&
             message->body_case == SPDL__V1__TO_CLIENT__BODY_STREAM_END)
        handle_stream_end(stream, message->stream_end);
}

/* Reads the socket until it is empty; what came before a hang-up counts. */
static void handle_socket(struct spdl_stream *stream, int64_t now_ns)
{
    static const struct spdl_client_error closed = {SPDL_CLASS_DAEMON_GONE,
                                                    "it closed the connection"};
    int rc = 0;
    while (rc == 0 && stream->link.fd >= 0) {
        Spdl__V1__ToClient *message;
        rc = spdl_client_link_take(&stream->link, &message);
        if (rc == 1) {
            handle_message(stream, message, now_ns);
            spdl__v1__to_client__free_unpacked(message, NULL);
            rc = 0;
        } else if (rc == 0) {
            rc = spdl_proto_receive(stream->link.fd, &stream->link.in, 1);
        }
    }
    if (rc == 0 || rc == -EAGAIN)
        return;
    if (rc == -EPROTO)
        spdl_client_fail(&stream->cause, rc, 0, "it sent what cannot be read");
    else
        stream->cause = closed;
    lose(stream, now_ns);
}

static void handle_start(struct spdl_stream *stream, int64_t now_ns)
{
    int rc = spdl_client_start_read(&stream->start, &stream->cause);
    if (rc == 0)
        return;
    if (rc == -EEXIST)
        stream->starts--; /* another rank was first: it is its start */
    lose(stream, now_ns);
    if (rc == 1)
        stream->retry_at_ns = now_ns;
}

static void drain_pipe(int fd)
{
    char bytes[256];
    while (read(fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes)) {
    }
}

void spdl_client_attach_handle(struct spdl_stream *stream, const struct pollfd *fds, uint32_t count)
{
    int64_t now_ns = spdl_client_now_ns();
    for (uint32_t i = 0; i < count; i++) {
        if (fds[i].revents == 0)
            continue;
        if (stream->state == SPDL_CLIENT_UP && fds[i].fd == stream->pipe_fd) {
            drain_pipe(stream->pipe_fd);
        } else if (fds[i].fd == stream->link.fd) {
            if (stream->link.out.bytes > 0)
                spdl_proto_flush(stream->link.fd, &stream->link.out);
            handle_socket(stream, now_ns);
            if (stream->link.out.bytes > 0 && stream->link.fd >= 0)
                spdl_proto_flush(stream->link.fd, &stream->link.out);
        } else if (stream->state == SPDL_CLIENT_STARTING && fds[i].fd == stream->start.fd) {
            handle_start(stream, now_ns);
        }
    }
}
