/* Reads for the core: gives them to the fetch engine, tells a sample's fault from an outage, tries
 * an outage again with growing pauses and fails the stream when it does not end. Conductor role. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "pipeline/pipeline_state.h"
#include "shm/shm_failpoint.h"

enum {
    STORAGE_TRIES = 5,     /* of a read that the storage fails */
    FIRST_PAUSE_MS = 50,   /* doubled each time */
    RESOURCE_SECONDS = 60, /* how long descriptors or memory may be short */
    RESOURCE_PAUSE_MS = 100,
    RESULTS_MAX = 64,
    FAULTS_LOGGED_MAX = 20 /* of a stream; the others are counted */
};
static const uint64_t NS_PER_MS = 1000000;

/* A read's ticket is that of its row with the number of the span in bits that the core does not
 * use. */
enum { SPAN_SHIFT = 16, INDEX_MASK = (1 << SPAN_SHIFT) - 1, SPAN_MASK = 0xff };
_Static_assert(PIPELINE_WORKERS_MAX *PIPELINE_OPS_MAX <= INDEX_MASK + 1,
               "the number of an operation leaves room for that of a span");

static uint64_t ticket_of_row(uint64_t ticket)
{
    return ticket & ~((uint64_t)SPAN_MASK << SPAN_SHIFT);
}

static struct pipeline_seat *seat_of(struct pipeline *pipeline, uint64_t ticket)
{
    return &pipeline->seats[(ticket & INDEX_MASK) / PIPELINE_OPS_MAX];
}

static struct pipeline_request *request_of(const struct pipeline_seat *seat, uint64_t ticket)
{
    return &seat->requests[ticket % PIPELINE_OPS_MAX];
}

/* Gives the read to the engine, or keeps it for later where the engine has enough. */
static void submit(struct pipeline_seat *seat, struct pipeline_read *read, uint64_t now_ns)
{
    if (fetch_submit(seat->fetch, &read->fetch) == 0)
        return;
    read->again_ns = now_ns + NS_PER_MS;
    seat->retry_count++;
}

void pipeline_fetch_start(struct pipeline *pipeline, const struct pipeline_command *command)
{
    struct pipeline_stream *stream = pipeline->streams[command->stream];
    const struct pipeline_recipe *recipe = &pipeline_row_look(stream, command->id)->recipe;
    ASSERT(recipe->span_count > 0);
    struct pipeline_seat *seat = seat_of(pipeline, command->ticket);
    struct pipeline_request *request = request_of(seat, command->ticket);
    request->left = request->span_count = recipe->span_count;
    request->in_place = command->in_place;
    request->worst =
        (struct fetch_result){.ticket = command->ticket, .class_number = SPDL_CLASS_OK};
    uint8_t *into = command->in_place ? sink_row_bytes(stream->sink, 0, command->slot, command->row)
                                      : (uint8_t *)seat->arena.base + command->blob_offset;
    for (uint32_t i = 0; i < recipe->span_count; i++) {
        const struct pipeline_span *span = &recipe->spans[i];
        request->reads[i] =
            (struct pipeline_read){.begin_ns = pipeline->now_ns,
                                   .fetch = {.ticket = command->ticket | (uint64_t)i << SPAN_SHIFT,
                                             .root_fd = span->file->root_fd,
                                             .path = span->file->path,
                                             .offset = span->offset,
                                             .bytes = span->bytes,
                                             .file_bytes = span->file->file_bytes,
                                             .mtime_ns = span->file->mtime_ns,
                                             .owner = stream->dataset->source,
                                             .file = span->file->file,
                                             .into = into + span->blob_at}};
        submit(seat, &request->reads[i], 0);
    }
}

static bool is_shortage(const struct fetch_result *result)
{
    return result->class_number == SPDL_CLASS_RESOURCE || result->code == -EMFILE ||
           result->code == -ENFILE || result->code == -ENOMEM;
}

/* What the storage does, as against what the sample is. */
static bool is_outage(const struct fetch_result *result)
{
    return is_shortage(result) || (result->class_number == SPDL_CLASS_IO_ERROR &&
                                   (result->code == -EIO || result->code == -ESTALE ||
                                    result->code == -ETIMEDOUT || result->code == -EHOSTDOWN ||
                                    result->code == -ENOTCONN || result->code == -EREMOTEIO));
}

/* True when the read is to be tried again; the time is then set. */
static bool pause_before(struct pipeline_read *request, const struct fetch_result *result,
                         uint64_t now_ns)
{
    if (request->tries == 0)
        request->first_ns = now_ns;
    uint64_t pause_ms = RESOURCE_PAUSE_MS;
    if (is_shortage(result)) {
        if (now_ns - request->first_ns > RESOURCE_SECONDS * 1000 * NS_PER_MS)
            return false;
    } else {
        if (request->tries + 1 >= STORAGE_TRIES)
            return false;
        pause_ms = (uint64_t)FIRST_PAUSE_MS << request->tries;
    }
    request->tries++;
    request->again_ns = now_ns + pause_ms * NS_PER_MS;
    return true;
}

static void fault_words(const struct fetch_result *result, char *text, size_t bytes)
{
    if (result->class_number == SPDL_CLASS_CHANGED)
        snprintf(text, bytes, "the file has another size or time than when it was listed");
    else if (result->class_number == SPDL_CLASS_EMPTY)
        snprintf(text, bytes, "the file is empty");
    else
        snprintf(text, bytes, "the file cannot be read: %s", strerror(-result->code));
}

static void stream_fails(struct pipeline *pipeline, struct pipeline_stream *stream,
                         const struct pipeline_read *read, const struct fetch_result *result)
{
    snprintf(stream->end_message, sizeof stream->end_message, "reading %s failed %u times: %s",
             read->fetch.path, read->tries + 1, strerror(-result->code));
    log_line(LOG_LEVEL_ERROR, "dataset %s: %s", stream->dataset->title, stream->end_message);
    struct pipeline_event event = {.kind = PIPELINE_EVENT_FAIL,
                                   .stream = stream->number,
                                   .code = result->code < 0 ? result->code : -EIO,
                                   .class_number = is_shortage(result) ? SPDL_CLASS_RESOURCE
                                                                       : SPDL_CLASS_IO_ERROR};
    pipeline_core_feed(pipeline->core, &event, NULL);
}

/* A ragged row that was read in place: how long it is. */
static void note_bytes(struct pipeline_stream *stream, const struct pipeline_row_ref *ref,
                       uint64_t bytes)
{
    uint32_t field_bytes[FIELD_MAX] = {(uint32_t)bytes};
    struct sink_note note = {.class_number = SPDL_CLASS_OK,
                             .is_substitute = ref->attempt > 0,
                             .message = "",
                             .field_bytes = field_bytes};
    sink_note(stream->sink, ref->slot, ref->row, &note);
}

/* Samples whose blobs have come: what is known of them is looked up once more for their commands,
 * and has left the caches since it was for their reads. */
struct come {
    uint32_t count;
    struct {
        const struct source *source;
        uint64_t id;
    } rows[RESULTS_MAX];
};

static void come_add(struct come *come, const struct source *source, uint64_t id)
{
    if (!source_warms(source))
        return;
    source_warm(source, id, SOURCE_FAR);
    come->rows[come->count].source = source;
    come->rows[come->count++].id = id;
}

static void come_end(const struct come *come)
{
    for (uint32_t i = 0; i < come->count; i++)
        source_warm(come->rows[i].source, come->rows[i].id, SOURCE_NEAR);
}

/* All spans of the row are there, or cannot be. */
static void finish(struct pipeline *pipeline, const struct pipeline_request *request,
                   struct come *come)
{
    const struct fetch_result *result = &request->worst;
    struct pipeline_event event = {.kind = PIPELINE_EVENT_FETCHED,
                                   .ticket = result->ticket,
                                   .class_number = (enum spdl_class)result->class_number};
    struct pipeline_row_ref ref;
    SPDL_FAILPOINT("daemon.fetch.done");
    int rc = pipeline_core_feed(pipeline->core, &event, &ref);
    ASSERT(rc == 0); /* the engine is ours: one result for each request */
    if (ref.orphan)
        return;
    struct pipeline_stream *stream = pipeline->streams[ref.stream];
    if (result->class_number == SPDL_CLASS_OK) {
        if (!request->in_place)
            come_add(come, stream->dataset->source, ref.id);
        else if (stream->dataset->fields[0].ragged)
            note_bytes(stream, &ref, request->reads[0].fetch.bytes);
        return;
    }
    char words[160];
    fault_words(result, words, sizeof words);
    struct sink_note note = {.class_number = (enum spdl_class)result->class_number,
                             .is_substitute = ref.attempt > 0,
                             .message = words};
    sink_note(stream->sink, ref.slot, ref.row, &note);
    pipeline_dataset_failed(stream->dataset, ref.id, note.class_number, UINT64_MAX, words);
    if (stream->faults_logged++ < FAULTS_LOGGED_MAX)
        log_line(LOG_LEVEL_WARNING, "dataset %s: %s: %s: %s", stream->dataset->title, request->path,
                 spdl_class_name(result->class_number), words);
}

static void take_one(struct pipeline *pipeline, const struct fetch_result *result,
                     struct come *come)
{
    struct pipeline_seat *seat = seat_of(pipeline, result->ticket);
    struct pipeline_request *request = request_of(seat, result->ticket);
    uint32_t span = (uint32_t)(result->ticket >> SPAN_SHIFT) & SPAN_MASK;
    ASSERT(span < request->span_count && request->left > 0);
    struct pipeline_read *read = &request->reads[span];
    if (is_outage(result)) {
        struct pipeline_row_ref ref;
        bool wanted =
            pipeline_core_ticket_ref(pipeline->core, ticket_of_row(result->ticket), &ref) == 0 &&
            !ref.orphan;
        if (wanted && pause_before(read, result, loop_now_ns())) {
            seat->retry_count++;
            return;
        }
        if (wanted)
            stream_fails(pipeline, pipeline->streams[ref.stream], read, result);
    }
    read->begin_ns = 0;
    if (request->worst.class_number == SPDL_CLASS_OK && result->class_number != SPDL_CLASS_OK) {
        request->worst.class_number = result->class_number;
        request->worst.code = result->code;
        request->path = read->fetch.path;
    }
    if (--request->left == 0)
        finish(pipeline, request, come);
}

void pipeline_fetch_take(struct pipeline_seat *seat)
{
    struct fetch_result results[RESULTS_MAX];
    uint32_t count;
    while ((count = fetch_reap(seat->fetch, results, RESULTS_MAX)) > 0) {
        struct come come;
        come.count = 0;
        for (uint32_t i = 0; i < count; i++)
            take_one(seat->pipeline, &results[i], &come);
        come_end(&come);
    }
}

static int64_t read_again(struct pipeline_seat *seat, struct pipeline_read *read, uint64_t now_ns)
{
    if (read->again_ns > now_ns)
        return (int64_t)(read->again_ns - now_ns);
    read->again_ns = 0;
    seat->retry_count--;
    submit(seat, read, now_ns);
    return read->again_ns ? (int64_t)NS_PER_MS : -1;
}

static int64_t seat_again(struct pipeline_seat *seat, uint64_t now_ns)
{
    int64_t wait_ns = -1;
    bool given = false;
    for (uint32_t i = 0; seat->retry_count > 0 && i < PIPELINE_OPS_MAX; i++) {
        struct pipeline_request *request = &seat->requests[i];
        for (uint32_t r = 0; request->left > 0 && r < request->span_count; r++) {
            if (request->reads[r].again_ns == 0)
                continue;
            int64_t left_ns = read_again(seat, &request->reads[r], now_ns);
            given = given || left_ns < 0;
            wait_ns = wait_ns < 0 || (left_ns >= 0 && left_ns < wait_ns) ? left_ns : wait_ns;
        }
    }
    if (given) /* what a step gives the engine is kicked before this is asked */
        fetch_kick(seat->fetch);
    return wait_ns;
}

int64_t pipeline_fetch_again(struct pipeline *pipeline, uint64_t now_ns)
{
    int64_t wait_ns = -1;
    for (uint32_t i = 0; i < PIPELINE_WORKERS_MAX; i++) {
        struct pipeline_seat *seat = &pipeline->seats[i];
        int64_t left_ns = seat->retry_count > 0 ? seat_again(seat, now_ns) : -1;
        if (left_ns >= 0 && (wait_ns < 0 || left_ns < wait_ns))
            wait_ns = left_ns;
    }
    return wait_ns;
}

struct pipeline_oldest pipeline_fetch_oldest(const struct pipeline_stream *stream)
{
    const struct pipeline *pipeline = stream->pipeline;
    const struct pipeline_seat *seat = &pipeline->seats[stream->worker];
    const struct pipeline_read *oldest = NULL;
    struct pipeline_row_ref ref;
    for (uint32_t i = 0; i < PIPELINE_OPS_MAX; i++) {
        const struct pipeline_request *request = &seat->requests[i];
        if (request->left == 0 ||
            pipeline_core_ticket_ref(pipeline->core, request->worst.ticket, &ref) < 0 ||
            ref.stream != stream->number)
            continue;
        for (uint32_t r = 0; r < request->span_count; r++)
            if (request->reads[r].begin_ns != 0 &&
                (!oldest || request->reads[r].begin_ns < oldest->begin_ns))
                oldest = &request->reads[r];
    }
    if (!oldest)
        return (struct pipeline_oldest){0};
    uint64_t now_ns = loop_now_ns();
    return (struct pipeline_oldest){
        .path = oldest->fetch.path,
        .tries = oldest->tries,
        .age_s = now_ns > oldest->begin_ns ? (double)(now_ns - oldest->begin_ns) * 1e-9 : 0};
}
