/* Questions: which samples failed. A page of the list at a time, no larger than a message may be.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_state.h"

enum { PAGE_BYTES_MAX = SPDL_PROTO_FRAME_MAX / 2, SAMPLE_BYTES = 128 };

/* The answer's own memory: the samples point into the pipeline's list, which stays as it is until
 * the answer is packed. */
struct answer {
    struct pipeline_quarantine_page page;
    Spdl__V1__QuarantineReply reply;
    Spdl__V1__Quarantined samples[PIPELINE_QUARANTINE_PAGE];
    Spdl__V1__Quarantined *list[PIPELINE_QUARANTINE_PAGE];
    char class_names[PIPELINE_QUARANTINE_PAGE][32];
    char messages[PIPELINE_QUARANTINE_PAGE][PIPELINE_QUARANTINE_MESSAGE_BYTES];
    char datasets[PIPELINE_QUARANTINE_PAGE][CONFIG_NAME_BYTES];
};

/* Strings of a message must be UTF-8; what is not shows as ?. */
static char *plain(char *to, size_t room, const char *from)
{
    size_t i = 0;
    for (; from[i] && i + 1 < room; i++)
        to[i] = from[i] >= 32 && from[i] < 127 ? from[i] : '?';
    to[i] = 0;
    return to;
}

static ProtobufCBinaryData bytes_of(const char *data, size_t bytes)
{
    union { /* the generated type has no const; packing only reads */
        const char *from;
        uint8_t *to;
    } pointer = {.from = data};
    return (ProtobufCBinaryData){.len = bytes, .data = pointer.to};
}

static void sample_fill(struct answer *answer, uint32_t i)
{
    const struct pipeline_quarantined *from = &answer->page.samples[i];
    Spdl__V1__Quarantined *to = &answer->samples[i];
    spdl__v1__quarantined__init(to);
    to->dataset = plain(answer->datasets[i], sizeof answer->datasets[i], from->dataset);
    to->key = bytes_of(from->key, from->key_bytes);
    to->path = bytes_of(from->path, strlen(from->path));
    to->offset = from->offset;
    to->has_fault = from->fault != UINT64_MAX;
    to->fault = to->has_fault ? from->fault : 0;
    to->class_name = plain(answer->class_names[i], sizeof answer->class_names[i],
                           spdl_class_name(from->class_number));
    to->message = plain(answer->messages[i], sizeof answer->messages[i], from->message);
    to->count = from->count;
    to->first_s = from->first_s;
    to->last_s = from->last_s;
}

/* What the peer may not use is left out, and its names with it. */
static void answer_fill(const struct session *session, struct answer *answer, uint32_t count,
                        uint64_t start)
{
    size_t bytes = 0, shown = 0;
    uint32_t used = 0;
    struct err refused;
    for (; used < count; used++) {
        const struct pipeline_quarantined *from = &answer->page.samples[used];
        if (control_may_use(session, from->dataset, &refused) < 0)
            continue;
        bytes += SAMPLE_BYTES + from->key_bytes + strlen(from->path) + strlen(from->message);
        if (bytes > PAGE_BYTES_MAX)
            break;
        sample_fill(answer, used);
        answer->list[shown++] = &answer->samples[used];
    }
    spdl__v1__quarantine_reply__init(&answer->reply);
    answer->reply.n_samples = shown;
    answer->reply.samples = answer->list;
    answer->reply.left_out = answer->page.left_out;
    if (used > 0 && start + used < answer->page.total)
        answer->reply.next = start + used;
}

int control_quarantine_handle(struct session *session, uint32_t request,
                              const Spdl__V1__QuarantineRequest *asked)
{
    const struct control *control = session->control;
    if (asked->dataset[0] && !config_dataset_find(control->params.config, asked->dataset)) {
        struct err error;
        int rc = config_dataset_unknown(control->params.config, asked->dataset, &error);
        control_session_error(session, request, rc, SPDL_CLASS_OK, error.text);
        return 0;
    }
    struct err refused;
    if (control_may_use(session, asked->dataset, &refused) < 0) {
        control_session_error(session, request, -EACCES, SPDL_CLASS_OK, refused.text);
        return 0;
    }
    struct answer *answer = malloc(sizeof *answer);
    if (!answer) {
        control_session_error(session, request, -ENOMEM, SPDL_CLASS_RESOURCE,
                              "no memory for the answer");
        return 0;
    }
    uint32_t count = pipeline_quarantine_list(control->params.pipeline, asked->dataset,
                                              asked->start, &answer->page);
    answer_fill(session, answer, count, asked->start);
    Spdl__V1__ToClient message;
    spdl__v1__to_client__init(&message);
    message.id = request;
    message.body_case = SPDL__V1__TO_CLIENT__BODY_QUARANTINE;
    message.quarantine = &answer->reply;
    control_session_reply(session, &message, NULL, 0);
    free(answer);
    return 0;
}
