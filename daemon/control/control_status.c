/* Questions: status, why, the configuration. Answers are made of what the pipeline tells; nothing
 * here changes anything. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "control/control_state.h"

enum { DATASETS_MAX = 320, STREAMS_MAX = 2048, FIELD_TEXT_BYTES = 160 };

/* --- numbers of the processes --- */

static double cpu_seconds(const struct pipeline_status *status)
{
    double seconds = 0;
    struct rusage usage;
    const int who[2] = {RUSAGE_SELF, RUSAGE_CHILDREN}; /* children: the workers that have ended */
    for (int i = 0; i < 2; i++)
        if (getrusage(who[i], &usage) == 0)
            seconds += (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    for (uint32_t i = 0; i < status->worker_count; i++) {
        clockid_t clock;
        struct timespec used;
        if (status->workers[i].pid > 0 &&
            clock_getcpuclockid(status->workers[i].pid, &clock) == 0 &&
            clock_gettime(clock, &used) == 0)
            seconds += (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
    }
    return seconds;
}

static double pss_mib_of(pid_t pid)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t bytes = read(fd, text, sizeof text - 1);
    close(fd);
    text[bytes > 0 ? bytes : 0] = 0;
    const char *line = strstr(text, "\nPss:");
    return line ? (double)strtoull(line + 5, NULL, 10) / 1024 : 0;
}

/* --- parts of the answer; each returns false without memory --- */

/* The answer's own memory, so that one call frees it all. */
struct answer {
    Spdl__V1__StatusReply reply;
    struct pipeline_status status;
    uint32_t dataset_count, stream_count;
    Spdl__V1__DatasetStatus *datasets[DATASETS_MAX];
    Spdl__V1__StreamStatus *streams[STREAMS_MAX];
    int64_t pids[PIPELINE_STATUS_WORKERS_MAX];
    Spdl__V1__WorkerStatus workers[PIPELINE_STATUS_WORKERS_MAX];
    Spdl__V1__WorkerStatus *worker_list[PIPELINE_STATUS_WORKERS_MAX];
};

static char *copy(const char *text)
{
    return strdup(text ? text : "");
}

static void shape_text(const struct field_spec *field, char text[FIELD_TEXT_BYTES])
{
    if (field->ragged) {
        snprintf(text, FIELD_TEXT_BYTES, "%s %s ragged", field->name,
                 field_dtype_name(field->dtype));
        return;
    }
    int at =
        snprintf(text, FIELD_TEXT_BYTES, "%s %s [", field->name, field_dtype_name(field->dtype));
    for (uint32_t d = 0; d < field->dim_count && at > 0 && at < FIELD_TEXT_BYTES; d++)
        at += snprintf(text + at, FIELD_TEXT_BYTES - (size_t)at, "%s%llu", d > 0 ? "," : "",
                       (unsigned long long)field->dims[d]);
    if (at > 0 && at < FIELD_TEXT_BYTES)
        snprintf(text + at, FIELD_TEXT_BYTES - (size_t)at, "]");
}

static bool add_dataset(struct answer *answer, const struct pipeline_dataset_status *from)
{
    Spdl__V1__DatasetStatus *to = calloc(1, sizeof *to);
    if (!to)
        return false;
    spdl__v1__dataset_status__init(to);
    answer->datasets[answer->dataset_count++] = to;
    to->name = copy(from->name);
    to->source = copy(from->source);
    to->state = copy(from->state);
    to->note = copy(from->note);
    to->samples = from->samples;
    to->ignored = from->ignored;
    to->classes = from->classes;
    to->seen = from->seen;
    to->short_rows = from->short_rows;
    to->progress = copy(from->progress);
    to->read_bytes = from->read_bytes;
    to->reading_bytes = from->reading_bytes;
    to->fields = calloc(from->field_count + 1, sizeof *to->fields);
    for (uint32_t f = 0; to->fields && f < from->field_count; f++) {
        char text[FIELD_TEXT_BYTES];
        shape_text(&from->fields[f], text);
        to->fields[to->n_fields++] = copy(text);
    }
    return to->name && to->source && to->state && to->note && to->progress && to->fields;
}

static bool add_failures(Spdl__V1__StreamStatus *to, const uint64_t counts[SPDL_CLASS_COUNT])
{
    to->failures = calloc(SPDL_CLASS_COUNT, sizeof(void *));
    for (unsigned c = 1; to->failures && c < SPDL_CLASS_COUNT; c++) {
        if (counts[c] == 0)
            continue;
        Spdl__V1__Failure *failure = calloc(1, sizeof *failure);
        if (!failure)
            return false;
        spdl__v1__failure__init(failure);
        failure->class_name = copy(spdl_class_name(c));
        failure->count = counts[c];
        to->failures[to->n_failures++] = failure;
    }
    return to->failures != NULL;
}

static bool add_stream(struct answer *answer, const struct pipeline_stream_status *from)
{
    Spdl__V1__StreamStatus *to = calloc(1, sizeof *to);
    if (!to)
        return false;
    spdl__v1__stream_status__init(to);
    answer->streams[answer->stream_count++] = to;
    to->stream = from->number;
    to->dataset = copy(from->dataset);
    to->rank = from->rank;
    to->world = from->world;
    to->epoch = from->epoch;
    to->step = from->step;
    to->ready_slots = from->ready_slots;
    to->slots = from->slots;
    to->starved_ratio = from->starved_ratio;
    to->samples_per_s = from->samples_per_s;
    to->waiting_for = copy(from->waiting_for);
    to->pid = from->pid;
    to->uid = from->uid;
    to->batches = from->batches;
    to->samples = from->samples;
    to->memory = from->memory_bytes;
    to->job = copy(from->job);
    to->state = copy(from->state);
    return add_failures(to, from->failures) && to->dataset && to->waiting_for && to->job &&
           to->state;
}

static void answer_free(struct answer *answer)
{
    if (!answer)
        return;
    for (uint32_t i = 0; i < answer->dataset_count; i++)
        spdl__v1__dataset_status__free_unpacked(answer->datasets[i], NULL);
    for (uint32_t i = 0; i < answer->stream_count; i++)
        spdl__v1__stream_status__free_unpacked(answer->streams[i], NULL);
    free(answer);
}

static bool collect(const struct control *control, struct answer *answer)
{
    const struct pipeline *pipeline = control->params.pipeline;
    struct pipeline_dataset_status dataset;
    struct pipeline_stream_status stream;
    pipeline_status(pipeline, &answer->status);
    for (uint32_t i = 0; i < DATASETS_MAX && pipeline_dataset_status(pipeline, i, &dataset); i++)
        if (!add_dataset(answer, &dataset))
            return false;
    const struct pipeline_stream *at = NULL;
    while (answer->stream_count < STREAMS_MAX &&
           (at = pipeline_stream_next(pipeline, at)) != NULL) {
        pipeline_stream_status(at, &stream);
        if (!add_stream(answer, &stream))
            return false;
    }
    return true;
}

static void workers_fill(struct answer *answer)
{
    Spdl__V1__StatusReply *reply = &answer->reply;
    for (uint32_t i = 0; i < answer->status.worker_count; i++) {
        const struct pipeline_worker_status *from = &answer->status.workers[i];
        Spdl__V1__WorkerStatus *to = answer->worker_list[i] = &answer->workers[i];
        spdl__v1__worker_status__init(to);
        to->pid = from->pid;
        to->uid = from->uid;
        to->no_new_privs = (from->lock.flags & WORKER_LOCK_NO_NEW_PRIVS) != 0;
        to->limits = (from->lock.flags & WORKER_LOCK_LIMITS) != 0;
        to->landlock = from->lock.landlock_abi;
        to->seccomp = (from->lock.flags & WORKER_LOCK_SECCOMP) != 0;
        to->relaxed = (from->lock.flags & WORKER_LOCK_RELAXED) != 0;
        if (from->pid > 0)
            answer->pids[reply->n_worker_pids++] = from->pid;
    }
    reply->worker_pids = answer->pids;
    reply->n_workers = answer->status.worker_count;
    reply->workers = answer->worker_list;
}

static void reply_fill(const struct control *control, struct answer *answer, char *version,
                       char *engine, char *note)
{
    Spdl__V1__StatusReply *reply = &answer->reply;
    const struct pipeline_status *status = &answer->status;
    reply->version = version;
    reply->engine = engine;
    reply->engine_note = note;
    reply->pid = getpid();
    reply->uptime_s = (double)(loop_now_ns() - control->start_ns) * 1e-9;
    reply->generation = control->generation;
    reply->memory_limit = status->memory_limit;
    reply->memory_used = status->memory_used;
    reply->n_datasets = answer->dataset_count;
    reply->datasets = answer->datasets;
    reply->n_streams = answer->stream_count;
    reply->streams = answer->streams;
    reply->decode_threads = status->decode_threads;
    workers_fill(answer);
    reply->worker_restarts = status->worker_restarts;
    reply->lost_clients = control->lost_clients;
    reply->protocol_errors = control->protocol_errors;
    reply->cpu_s = cpu_seconds(status);
    reply->pss_mib = pss_mib_of(getpid());
    for (size_t i = 0; i < reply->n_worker_pids; i++)
        reply->pss_mib += pss_mib_of((pid_t)reply->worker_pids[i]);
    reply->reads = status->reads;
    reply->read_bytes = status->read_bytes;
    reply->arena_used = status->arena_used;
    reply->arena_bytes = status->arena_bytes;
}

int control_status_handle(struct session *session, uint32_t request)
{
    const struct control *control = session->control;
    struct answer *answer = calloc(1, sizeof *answer);
    if (!answer || !collect(control, answer)) {
        answer_free(answer);
        control_session_error(session, request, -ENOMEM, SPDL_CLASS_RESOURCE,
                              "no memory for the answer");
        return 0;
    }
    char version[] = SPDL_VERSION, engine[32], note[256], memfd[] = "memfd", posix[] = "posix";
    snprintf(engine, sizeof engine, "%s", answer->status.engine);
    snprintf(note, sizeof note, "%s", answer->status.engine_note);
    spdl__v1__status_reply__init(&answer->reply);
    reply_fill(control, answer, version, engine, note);
    answer->reply.shm = control->params.config->shm == CONFIG_SHM_POSIX ? posix : memfd;
    Spdl__V1__ToClient message;
    spdl__v1__to_client__init(&message);
    message.id = request;
    message.body_case = SPDL__V1__TO_CLIENT__BODY_STATUS;
    message.status = &answer->reply;
    control_session_reply(session, &message, NULL, 0);
    answer_free(answer);
    return 0;
}

/* --- why --- */

static bool is_of(const struct session *session, uint32_t number)
{
    for (uint32_t i = 0; i < CONTROL_STREAMS_MAX; i++)
        if (session->streams[i] && session->streams[i]->opened &&
            session->streams[i]->number == number)
            return true;
    return false;
}

static Spdl__V1__Why *why_make(const struct pipeline_stream *stream)
{
    struct pipeline_stream_status status;
    struct pipeline_why why;
    Spdl__V1__Why *to = calloc(1, sizeof *to);
    if (!to)
        return NULL;
    pipeline_stream_status(stream, &status);
    pipeline_stream_why(stream, &why);
    spdl__v1__why__init(to);
    to->stream = status.number;
    to->dataset = copy(status.dataset);
    to->rank = status.rank;
    to->world = status.world;
    to->waiting_for = copy(status.waiting_for);
    to->bottleneck = copy(why.bottleneck);
    to->evidence = copy(why.evidence);
    to->advice = copy(why.advice);
    to->share = why.share;
    return to;
}

int control_why_handle(struct session *session, uint32_t request, const Spdl__V1__WhyRequest *asked)
{
    const struct pipeline *pipeline = session->control->params.pipeline;
    Spdl__V1__Why **list = calloc(STREAMS_MAX, sizeof(void *));
    size_t count = 0;
    const struct pipeline_stream *at = NULL;
    struct pipeline_stream_status status;
    while (list && count < STREAMS_MAX && (at = pipeline_stream_next(pipeline, at)) != NULL) {
        pipeline_stream_status(at, &status);
        if (!asked->all && !(status.number == asked->stream && is_of(session, status.number)))
            continue;
        list[count] = why_make(at);
        if (list[count])
            count++;
    }
    Spdl__V1__WhyReply reply;
    spdl__v1__why_reply__init(&reply);
    reply.n_streams = count;
    reply.streams = list;
    Spdl__V1__ToClient message;
    spdl__v1__to_client__init(&message);
    message.id = request;
    message.body_case = SPDL__V1__TO_CLIENT__BODY_WHY;
    message.why = &reply;
    control_session_reply(session, &message, NULL, 0);
    for (size_t i = 0; i < count; i++)
        spdl__v1__why__free_unpacked(list[i], NULL);
    free(list);
    return 0;
}

/* --- the configuration --- */

int control_config_handle(struct session *session, uint32_t request,
                          const Spdl__V1__ConfigRequest *asked)
{
    if (asked->only_differences)
        return control_pending_handle(session, request);
    char *yaml = config_print(session->control->params.config, 0);
    if (!yaml) {
        control_session_error(session, request, -ENOMEM, SPDL_CLASS_RESOURCE,
                              "no memory for the answer");
        return 0;
    }
    Spdl__V1__ConfigReply reply;
    spdl__v1__config_reply__init(&reply);
    reply.yaml = yaml;
    Spdl__V1__ToClient message;
    spdl__v1__to_client__init(&message);
    message.id = request;
    message.body_case = SPDL__V1__TO_CLIENT__BODY_CONFIG;
    message.config = &reply;
    control_session_reply(session, &message, NULL, 0);
    free(yaml);
    return 0;
}

static int compare(const struct control *control, const Spdl__V1__ConfigCompare *asked,
                   char **ret_text, struct err *reterr)
{
    struct config_complaints *complaints = calloc(1, sizeof *complaints);
    struct config *other = NULL;
    if (!complaints)
        return err_set(reterr, -ENOMEM, "no memory for the answer");
    int rc = config_load(asked->file[0] ? asked->file : NULL, (const char *const *)asked->sets,
                         (uint32_t)asked->n_sets, &other, complaints);
    if (rc < 0)
        err_set(reterr, rc, "%s", complaints->count > 0 ? complaints->lines[0] : strerror(-rc));
    else
        *ret_text = config_diff(control->params.config, other);
    if (rc == 0 && !*ret_text)
        rc = err_set(reterr, -ENOMEM, "no memory for the answer");
    config_destroy(other);
    free(complaints);
    return rc;
}

int control_compare_handle(struct session *session, uint32_t request,
                           const Spdl__V1__ConfigCompare *asked)
{
    struct err error = {0};
    char *text = NULL;
    if (!session->control->params.is_private) {
        control_session_error(session, request, -EACCES, SPDL_CLASS_OK,
                              "configurations are compared by private daemons only");
        return 0;
    }
    int rc = compare(session->control, asked, &text, &error);
    if (rc < 0) {
        control_session_error(session, request, rc, SPDL_CLASS_OK, error.text);
        return 0;
    }
    Spdl__V1__ConfigCompareReply reply;
    spdl__v1__config_compare_reply__init(&reply);
    reply.differences = text;
    Spdl__V1__ToClient message;
    spdl__v1__to_client__init(&message);
    message.id = request;
    message.body_case = SPDL__V1__TO_CLIENT__BODY_CONFIG_COMPARE;
    message.config_compare = &reply;
    control_session_reply(session, &message, NULL, 0);
    free(text);
    return 0;
}
