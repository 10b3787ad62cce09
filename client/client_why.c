/* Why a stream waits: what the client knows for certain, else what the daemon says on a connection
 * of its own, else that it says nothing. */
#include "client/client_internal.h"

#include <errno.h>
#include <stdio.h>

#define WHY_LIMIT_NS SPDL_CLIENT_SECOND_NS

/* What is known of the stream at one moment. */
struct view {
    enum spdl_client_state state;
    uint64_t daemon_number; /* of the stream in the daemon */
    uint64_t number;        /* of the stream on its connection */
    int64_t left_ns;        /* for trying again; < 0: no try is running */
    int64_t daemon_pid;
    struct spdl_client_error cause;
};

/* Fills view. Returns 1 when text has the answer already. */
static int look(struct spdl_stream *stream, struct view *view, char *text, size_t bytes)
{
    int is_said = 1;
    pthread_mutex_lock(&stream->lock);
    const struct spdl_client_ring *ring = stream->ring;
    uint32_t slot;
    int is_ready = spdl_client_ring_ready(ring, ring->next, &slot);
    if (stream->asked.limit > 0 && stream->given >= stream->asked.limit)
        snprintf(text, bytes, "the stream has ended: all %llu batches were given out",
                 (unsigned long long)stream->asked.limit);
    else if (!is_ready && stream->failed_code != 0)
        snprintf(text, bytes, "the stream failed: %s", stream->failed.text);
    else if (!is_ready && stream->is_ended && ring->next >= stream->end_sequences)
        snprintf(text, bytes, "the stream has ended: %s", stream->end.text);
    else if (!is_ready && ring->end == UINT64_MAX && ring->held >= ring->header.slot_count)
        snprintf(text, bytes, "all %u slots are held by this process: it must drop a batch",
                 ring->header.slot_count);
    else
        is_said = 0;
    view->state = stream->state;
    view->daemon_number = ring->header.stream_id;
    view->number = stream->number;
    view->daemon_pid = stream->hello.pid;
    view->cause = stream->cause;
    view->left_ns = -1;
    if (stream->lost_ns != 0 && stream->window_left_ns != SPDL_CLIENT_NEVER_NS)
        view->left_ns = stream->lost_ns + stream->window_left_ns - spdl_client_now_ns();
    pthread_mutex_unlock(&stream->lock);
    return is_said;
}

/* "57 s more", or nothing. */
static const char *more(const struct view *view, char *buffer, size_t bytes)
{
    buffer[0] = 0;
    if (view->left_ns > 0)
        snprintf(buffer, bytes, ", trying again for %lld s more",
                 (long long)((view->left_ns + SPDL_CLIENT_SECOND_NS - 1) / SPDL_CLIENT_SECOND_NS));
    return buffer;
}

/* The daemon's own words about this stream. */
static void say_reply(const struct view *view, const Spdl__V1__WhyReply *reply, char *text,
                      size_t bytes)
{
    const Spdl__V1__Why *found = NULL;
    for (size_t i = 0; i < reply->n_streams && !found; i++) {
        if (reply->streams[i]->stream == view->daemon_number)
            found = reply->streams[i];
    }
    if (!found) {
        snprintf(text, bytes, "the daemon does not know this stream");
        return;
    }
    int n = snprintf(text, bytes, "%s",
                     found->waiting_for[0] ? found->waiting_for : "it waits for nothing");
    size_t at = n > 0 && (size_t)n < bytes ? (size_t)n : bytes - 1;
    if (found->bottleneck[0])
        snprintf(text + at, bytes - at, "; most of the time went to %s (%.0f %%)%s%s%s%s",
                 found->bottleneck, found->share * 100.0, found->evidence[0] ? ": " : "",
                 found->evidence, found->advice[0] ? "; " : "", found->advice);
}

/* A stream that is opened again has no number yet: what one waits for that has none. */
static void say_opening(const Spdl__V1__ToClient *reply, char *text, size_t bytes)
{
    snprintf(text, bytes, "the daemon lists the dataset or finds memory for the stream");
    if (reply->body_case != SPDL__V1__TO_CLIENT__BODY_WHY)
        return;
    for (size_t i = 0; i < reply->why->n_streams; i++)
        if (reply->why->streams[i]->stream == 0)
            snprintf(text, bytes, "the stream is opened again: %s",
                     reply->why->streams[i]->waiting_for);
}

static void say_silence(const struct spdl_client_target *target, const struct view *view, int code,
                        char *text, size_t bytes)
{
    char words[128];
    char again[64];
    if (code == -ETIMEDOUT || code == -EAGAIN)
        snprintf(text, bytes, "the daemon (pid %lld) at %s does not answer%s",
                 (long long)view->daemon_pid, target->socket, more(view, again, sizeof(again)));
    else if (code == -EPIPE)
        snprintf(text, bytes, "the daemon is gone: it closed the connection at %s%s",
                 target->socket, more(view, again, sizeof(again)));
    else
        snprintf(text, bytes, "the daemon is gone: %s at %s%s",
                 spdl_client_errno_text(code, words, sizeof(words)), target->socket,
                 more(view, again, sizeof(again)));
}

/* Asks the daemon on a short connection of its own: spdl_next may be waiting on the stream's. */
static void ask(const struct spdl_client_target *target, const struct view *view, char *text,
                size_t bytes)
{
    int64_t deadline_ns = spdl_client_now_ns() + WHY_LIMIT_NS;
    struct spdl_client_link link;
    struct spdl_client_hello hello;
    struct spdl_client_error error;
    spdl_client_link_init(&link);
    int rc = spdl_client_link_dial(&link, target);
    if (rc < 0) {
        say_silence(target, view, rc, text, bytes);
        return;
    }
    Spdl__V1__WhyRequest why = SPDL__V1__WHY_REQUEST__INIT;
    why.stream = view->daemon_number;
    why.all = 1;
    Spdl__V1__ToDaemon request = SPDL__V1__TO_DAEMON__INIT;
    request.body_case = SPDL__V1__TO_DAEMON__BODY_WHY;
    request.why = &why;
    Spdl__V1__ToClient *reply = NULL;
    rc = spdl_client_link_hello(&link, target, deadline_ns, 0, &hello, &error);
    if (rc == 0 && view->state != SPDL_CLIENT_UP && view->state != SPDL_CLIENT_OPENING) {
        char again[64];
        snprintf(text, bytes, "the daemon was gone (%s) and is back: the stream is opened again%s",
                 view->cause.text, more(view, again, sizeof(again)));
        spdl_client_link_close(&link);
        return;
    }
    if (rc == 0)
        rc = spdl_client_link_exchange(&link, &request, deadline_ns, 0, &reply, &error);
    if (rc == -ETIMEDOUT || rc == -EPIPE)
        say_silence(target, view, rc, text, bytes);
    else if (rc < 0)
        snprintf(text, bytes, "the daemon answers: %s", error.text);
    else if (reply && view->state == SPDL_CLIENT_OPENING)
        say_opening(reply, text, bytes);
    else if (reply && reply->body_case == SPDL__V1__TO_CLIENT__BODY_WHY)
        say_reply(view, reply->why, text, bytes);
    else
        snprintf(text, bytes, "the daemon answers with something else than was asked");
    if (reply)
        spdl__v1__to_client__free_unpacked(reply, NULL);
    spdl_client_link_close(&link);
}

int spdl_why(struct spdl_stream *stream, char *text, size_t bytes)
{
    if (!stream || !text || bytes == 0)
        return -EINVAL;
    if (spdl_client_guard_forked(&stream->target->guard)) {
        snprintf(text, bytes, "%s", SPDL_CLIENT_FORKED_TEXT);
        return -ESTALE;
    }
    struct view view;
    if (!look(stream, &view, text, bytes))
        ask(stream->target, &view, text, bytes);
    return 0;
}
