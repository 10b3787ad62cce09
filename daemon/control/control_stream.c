/* Streams of a connection: open, release, close, and what happens to them when the connection or
 * the process behind it goes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_state.h"

static struct session_stream *find(struct session *session, uint64_t number)
{
    for (uint32_t i = 0; i < CONTROL_STREAMS_MAX; i++) {
        struct session_stream *stream = session->streams[i];
        if (stream && stream->opened && stream->number == number)
            return stream;
    }
    return NULL;
}

static void forget(struct session_stream *stream)
{
    struct session *session = stream->session;
    for (uint32_t i = 0; i < CONTROL_STREAMS_MAX; i++)
        if (session->streams[i] == stream)
            session->streams[i] = NULL;
    session->stream_count--;
    free(stream);
}

/* --- what the pipeline tells --- */

static void on_opened(void *context, const struct pipeline_opened *opened)
{
    struct session_stream *stream = context;
    char plan_id[64], warning[256];
    snprintf(plan_id, sizeof plan_id, "%s", opened->plan_id);
    snprintf(warning, sizeof warning, "%s", opened->warning);
    Spdl__V1__OpenReply reply;
    spdl__v1__open_reply__init(&reply);
    reply.stream = opened->number;
    reply.control_bytes = opened->control_bytes;
    reply.data_bytes = opened->data_bytes;
    reply.samples = opened->samples;
    reply.steps_per_epoch = opened->steps_per_epoch;
    reply.step = opened->step;
    reply.epoch = opened->epoch;
    reply.plan_id = plan_id;
    reply.seed = opened->seed;
    reply.warning = warning;
    Spdl__V1__ToClient message;
    spdl__v1__to_client__init(&message);
    message.id = stream->request;
    message.body_case = SPDL__V1__TO_CLIENT__BODY_OPEN;
    message.open = &reply;
    stream->opened = true;
    stream->number = opened->number;
    control_session_reply(stream->session, &message, opened->fds, 3);
}

static void on_refused(void *context, const struct err *error, enum spdl_class class_number)
{
    struct session_stream *stream = context;
    control_session_error(stream->session, stream->request, error->code, class_number, error->text);
    forget(stream);
}

static void on_ended(void *context, uint64_t batches, int code, enum spdl_class class_number,
                     const char *message)
{
    struct session_stream *stream = context;
    char text[512];
    snprintf(text, sizeof text, "%s", message);
    Spdl__V1__StreamEnd end;
    spdl__v1__stream_end__init(&end);
    end.stream = stream->number;
    end.sequences = batches;
    end.code = code;
    end.class_number = (uint32_t)class_number;
    end.message = text;
    Spdl__V1__ToClient out;
    spdl__v1__to_client__init(&out);
    out.body_case = SPDL__V1__TO_CLIENT__BODY_STREAM_END;
    out.stream_end = &end;
    control_session_reply(stream->session, &out, NULL, 0);
}

static void on_planned(void *context, struct pipeline_planned *planned)
{
    struct session_stream *stream = context;
    control_plan_reply(stream->session, stream->request, planned);
    forget(stream);
}

static const struct pipeline_owner owner = {
    .opened = on_opened, .refused = on_refused, .planned = on_planned, .ended = on_ended};

/* --- what the client asks --- */

static void request_fill(const struct session *session, const Spdl__V1__Open *open,
                         struct pipeline_open *ret_open)
{
    *ret_open = (struct pipeline_open){.dataset = open->dataset,
                                       .dataset_yaml = open->dataset_yaml,
                                       .batch = open->batch,
                                       .rank = open->rank,
                                       .world = open->world,
                                       .has_seed = open->seed_choice_case ==
                                                   SPDL__V1__OPEN__SEED_CHOICE_SEED,
                                       .state = "",
                                       .slots = open->slots,
                                       .on_error = open->on_error,
                                       .limit = open->limit,
                                       .job = open->job,
                                       .pid = session->pid,
                                       .uid = session->uid};
    if (ret_open->has_seed)
        ret_open->seed = open->seed;
    if (open->from_case == SPDL__V1__OPEN__FROM_STATE)
        ret_open->state = open->state;
    if (open->from_case == SPDL__V1__OPEN__FROM_PLACE) {
        ret_open->epoch = open->place->epoch;
        ret_open->step = open->place->step;
    }
}

/* Nobody takes the streams of the others: what is wrong with one more of this session, or NULL. */
static const char *too_many(const struct session *session)
{
    uint32_t of_user = 0, of_process = 0;
    for (const struct session *at = session->control->sessions; at; at = at->next) {
        of_user += at->uid == session->uid ? at->stream_count : 0;
        of_process += at->pid == session->pid && at->pid > 0 ? at->stream_count : 0;
    }
    return session->stream_count >= CONTROL_STREAMS_MAX ? "too many streams on one connection"
           : of_process >= CONTROL_STREAMS_OF_PROCESS_MAX
               ? "this process has too many streams: close some first"
           : of_user >= CONTROL_STREAMS_OF_USER_MAX ? "this user has too many streams"
                                                    : NULL;
}

/* Begins to open a stream, or to plan one. */
static int begin(struct session *session, uint32_t request, const Spdl__V1__Open *open,
                 bool is_plan_only)
{
    uint32_t place = 0;
    while (place < CONTROL_STREAMS_MAX && session->streams[place])
        place++;
    const char *why = too_many(session);
    struct session_stream *stream =
        !why && place < CONTROL_STREAMS_MAX ? calloc(1, sizeof *stream) : NULL;
    if (!stream) {
        control_session_error(session, request, why ? -EMFILE : -ENOMEM, SPDL_CLASS_RESOURCE,
                              why ? why : "no memory for a stream");
        return 0;
    }
    *stream = (struct session_stream){.session = session, .request = request};
    session->streams[place] = stream;
    session->stream_count++;
    struct pipeline_open asked;
    struct err error = {0};
    int rc = control_may_use(session, open->dataset, &error);
    if (rc < 0) {
        control_session_error(session, request, rc, SPDL_CLASS_OK, error.text);
        forget(stream);
        return 0;
    }
    request_fill(session, open, &asked);
    asked.is_plan_only = is_plan_only;
    struct pipeline_stream *handle = NULL;
    rc = pipeline_open(session->control->params.pipeline, &asked, &owner, stream, &handle, &error);
    if (rc < 0) {
        control_session_error(session, request, rc, SPDL_CLASS_OK, error.text);
        forget(stream);
        return 0;
    }
    if (session->streams[place] == stream) /* it was not refused meanwhile */
        stream->stream = handle;
    return 0;
}

int control_open_handle(struct session *session, uint32_t request, const Spdl__V1__Open *open)
{
    return begin(session, request, open, false);
}

int control_plan_handle(struct session *session, uint32_t request,
                        const Spdl__V1__PlanRequest *plan)
{
    return plan->open ? begin(session, request, plan->open, true) : -EPROTO;
}

int control_release_handle(struct session *session, const Spdl__V1__Release *release)
{
    struct session_stream *stream = find(session, release->stream);
    if (!stream || stream->closed || release->n_sequences == 0)
        return -EPROTO;
    for (size_t i = 0; i < release->n_sequences; i++)
        if (pipeline_release(stream->stream, release->sequences[i]) < 0)
            return -EPROTO;
    return 0;
}

int control_close_handle(struct session *session, const Spdl__V1__Close *close)
{
    struct session_stream *stream = find(session, close->stream);
    if (!stream || stream->closed)
        return -EPROTO;
    stream->closed = true;
    pipeline_close(stream->stream);
    return 0;
}

int control_unmapped_handle(struct session *session, const Spdl__V1__Unmapped *unmapped)
{
    struct session_stream *stream = find(session, unmapped->stream);
    if (!stream || !stream->closed)
        return -EPROTO;
    pipeline_unmapped(stream->stream);
    forget(stream);
    return 0;
}

bool control_streams_leave(struct session *session, bool dead)
{
    for (uint32_t i = 0; i < CONTROL_STREAMS_MAX; i++) {
        struct session_stream *stream = session->streams[i];
        if (!stream || !stream->stream)
            continue;
        if (dead || !stream->opened) { /* what it was never given it cannot map */
            pipeline_unmapped(stream->stream);
            forget(stream);
        } else {
            stream->closed = true;
            pipeline_close(stream->stream);
        }
    }
    return session->stream_count == 0;
}
