/* Questions for indexes: the answer comes when the dataset was looked at, perhaps minutes later and
 * perhaps to nobody. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/control_state.h"

struct session_look {
    struct session *session; /* NULL: it is gone */
    struct session_look *next, **link;
    uint32_t request;
};

static void look_unlink(struct session *session, struct session_look *look)
{
    *look->link = look->next;
    if (look->next)
        look->next->link = look->link;
    session->look_count--;
    look->session = NULL;
}

void control_index_leave(struct session *session)
{
    while (session->looks)
        look_unlink(session, session->looks);
}

/* --- the answer --- */

static char *copy(const char *text)
{
    return strdup(text ? text : "");
}

static bool bytes_copy(ProtobufCBinaryData *to, const char *from, size_t bytes)
{
    to->data = malloc(bytes ? bytes : 1);
    if (!to->data)
        return false;
    memcpy(to->data, from, bytes);
    to->len = bytes;
    return true;
}

static bool faults_add(Spdl__V1__IndexReply *to, const struct pipeline_index *from)
{
    to->faults = calloc(from->fault_count + 1, sizeof *to->faults);
    for (uint32_t i = 0; to->faults && i < from->fault_count; i++) {
        const struct pipeline_index_fault *fault = &from->faults[i];
        Spdl__V1__IndexFault *one = calloc(1, sizeof *one);
        if (!one)
            return false;
        spdl__v1__index_fault__init(one);
        to->faults[to->n_faults++] = one;
        one->offset = fault->offset;
        one->class_name = copy(spdl_class_name(fault->class_number));
        one->message = copy(fault->message);
        if (!one->class_name || !one->message ||
            !bytes_copy(&one->shard, fault->shard, strlen(fault->shard)) ||
            !bytes_copy(&one->key, fault->key, fault->key_bytes))
            return false;
    }
    return to->faults != NULL;
}

static bool classes_add(Spdl__V1__IndexReply *to, const struct pipeline_index *from)
{
    to->classes = calloc(SPDL_CLASS_COUNT, sizeof *to->classes);
    for (unsigned c = 1; to->classes && c < SPDL_CLASS_COUNT; c++) {
        if (from->classes[c] == 0)
            continue;
        Spdl__V1__Failure *one = calloc(1, sizeof *one);
        if (!one)
            return false;
        spdl__v1__failure__init(one);
        to->classes[to->n_classes++] = one;
        one->count = from->classes[c];
        one->class_name = copy(spdl_class_name(c));
        if (!one->class_name)
            return false;
    }
    return to->classes != NULL;
}

static bool parts_add(Spdl__V1__IndexReply *to, const struct pipeline_index *from)
{
    to->parts = calloc(from->name_count + 1, sizeof *to->parts);
    for (uint32_t i = 0; to->parts && i < from->name_count; i++) {
        to->parts[to->n_parts] = copy(from->names[i]);
        if (!to->parts[to->n_parts++])
            return false;
    }
    return to->parts != NULL;
}

/* Freed by spdl__v1__index_reply__free_unpacked; NULL: no memory. */
static Spdl__V1__IndexReply *reply_make(const struct pipeline_index *index)
{
    char id[40];
    Spdl__V1__IndexReply *reply = calloc(1, sizeof *reply);
    if (!reply)
        return NULL;
    spdl__v1__index_reply__init(reply);
    snprintf(id, sizeof id, "%016" PRIx64 "%016" PRIx64, index->id_high, index->id_low);
    reply->dataset_id = copy(id);
    reply->note = copy(index->note);
    reply->samples = index->samples;
    reply->shards = index->shards;
    reply->ignored = index->ignored;
    reply->broken = index->broken;
    reply->largest_bytes = index->largest_bytes;
    reply->index_bytes = index->index_bytes;
    reply->read_shards = index->read_shards;
    reply->seconds = index->seconds;
    if (reply->dataset_id && reply->note &&
        bytes_copy(&reply->file, index->file, strlen(index->file)) &&
        bytes_copy(&reply->published, index->published, strlen(index->published)) &&
        parts_add(reply, index) && classes_add(reply, index) && faults_add(reply, index))
        return reply;
    spdl__v1__index_reply__free_unpacked(reply, NULL);
    return NULL;
}

static void on_looked(void *context, const struct pipeline_index *index, const struct err *error)
{
    struct session_look *look = context;
    struct session *session = look->session;
    if (session) {
        look_unlink(session, look);
        Spdl__V1__IndexReply *reply = index ? reply_make(index) : NULL;
        if (reply) {
            Spdl__V1__ToClient message;
            spdl__v1__to_client__init(&message);
            message.id = look->request;
            message.body_case = SPDL__V1__TO_CLIENT__BODY_INDEX;
            message.index = reply;
            control_session_reply(session, &message, NULL, 0);
            spdl__v1__index_reply__free_unpacked(reply, NULL);
        } else {
            control_session_error(session, look->request, index ? -ENOMEM : error->code,
                                  index ? SPDL_CLASS_RESOURCE : SPDL_CLASS_OK,
                                  index ? "no memory for the answer" : error->text);
        }
    }
    free(look);
}

int control_index_handle(struct session *session, uint32_t request,
                         const Spdl__V1__IndexRequest *asked)
{
    struct err error = {0};
    struct pipeline_open which = {.dataset = asked->dataset, .dataset_yaml = asked->dataset_yaml};
    if (session->look_count == CONTROL_LOOKS_MAX) {
        control_session_error(session, request, -EMFILE, SPDL_CLASS_RESOURCE,
                              "this connection waits for too many indexes");
        return 0;
    }
    int rc = control_may_use(session, asked->dataset, &error);
    if (rc == 0 && asked->publish && !session->control->params.is_private && session->uid != 0 &&
        session->uid != geteuid())
        rc = err_set(&error, -EACCES,
                     "only root may have the node's daemon write beside the data; a private daemon "
                     "(--private) writes with your own rights");
    struct session_look *look = rc == 0 ? calloc(1, sizeof *look) : NULL;
    if (rc == 0 && !look)
        rc = err_set(&error, -ENOMEM, "no memory for the question");
    if (rc == 0)
        rc = pipeline_index(session->control->params.pipeline, &which, asked->publish, on_looked,
                            look, &error);
    if (rc < 0 || !look) {
        free(look);
        control_session_error(session, request, rc, SPDL_CLASS_OK, error.text);
        return 0;
    }
    *look = (struct session_look){
        .session = session, .next = session->looks, .link = &session->looks, .request = request};
    if (look->next)
        look->next->link = &look->next;
    session->looks = look;
    session->look_count++;
    return 0;
}
