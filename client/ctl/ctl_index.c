/* spdlctl index: makes or checks the index of a dataset and says what is in it and what was left
 * out. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "client/client_query.h"
#include "client/ctl/ctl_json.h"
#include "client/ctl/ctl_progress.h"
#include "client/ctl/ctl_query.h"
#include "client/ctl/ctl_stream.h"
#include "client/ctl/ctl_table.h"
#include "client/ctl/ctl_verbs.h"

static void json_bytes(struct ctl_text *text, const char *name, const ProtobufCBinaryData *bytes)
{
    ctl_json_key(text, name);
    ctl_json_bytes(text, bytes->data, bytes->len);
}

static void index_json(struct ctl_text *text, const Spdl__V1__IndexReply *index)
{
    ctl_json_open(text, '{');
    ctl_json_key_string(text, "dataset_id", index->dataset_id);
    ctl_json_key_unsigned(text, "samples", index->samples);
    ctl_json_key_unsigned(text, "shards", index->shards);
    ctl_json_key_unsigned(text, "read_shards", index->read_shards);
    ctl_json_key_unsigned(text, "largest_bytes", index->largest_bytes);
    ctl_json_key(text, "parts");
    ctl_json_open(text, '[');
    for (size_t i = 0; i < index->n_parts; i++)
        ctl_json_string(text, index->parts[i]);
    ctl_json_close(text, ']');
    ctl_json_key_unsigned(text, "ignored", index->ignored);
    ctl_json_key_unsigned(text, "broken", index->broken);
    ctl_json_key(text, "classes");
    ctl_json_open(text, '{');
    for (size_t i = 0; i < index->n_classes; i++)
        ctl_json_key_unsigned(text, index->classes[i]->class_name, index->classes[i]->count);
    ctl_json_close(text, '}');
    ctl_json_key(text, "faults");
    ctl_json_open(text, '[');
    for (size_t i = 0; i < index->n_faults; i++) {
        const Spdl__V1__IndexFault *fault = index->faults[i];
        ctl_json_open(text, '{');
        json_bytes(text, "shard", &fault->shard);
        ctl_json_key_unsigned(text, "offset", fault->offset);
        ctl_json_key_string(text, "class", fault->class_name);
        json_bytes(text, "key", &fault->key);
        ctl_json_key_string(text, "message", fault->message);
        ctl_json_close(text, '}');
    }
    ctl_json_close(text, ']');
    json_bytes(text, "file", &index->file);
    json_bytes(text, "published", &index->published);
    ctl_json_key_unsigned(text, "index_bytes", index->index_bytes);
    ctl_json_key_string(text, "note", index->note);
    ctl_json_key_double(text, "seconds", index->seconds, 3);
    ctl_json_close(text, '}');
    ctl_text_str(text, "\n");
}

static void faults_people(struct ctl_text *text, const Spdl__V1__IndexReply *index)
{
    if (index->broken == 0)
        return;
    ctl_text_printf(text, "left out as broken: %" PRIu64 " (", index->broken);
    for (size_t i = 0; i < index->n_classes; i++)
        ctl_text_printf(text, "%s%s %" PRIu64, i ? ", " : "", index->classes[i]->class_name,
                        index->classes[i]->count);
    ctl_text_str(text, ")\n");
    for (size_t i = 0; i < index->n_faults; i++) {
        const Spdl__V1__IndexFault *fault = index->faults[i];
        ctl_text_str(text, "  ");
        ctl_text_safe(text, fault->shard.data, fault->shard.len);
        ctl_text_printf(text, " at byte %" PRIu64 ": ", fault->offset);
        ctl_text_safe(text, fault->class_name, strlen(fault->class_name));
        ctl_text_str(text, fault->key.len ? " " : "");
        ctl_text_safe(text, fault->key.data, fault->key.len);
        ctl_text_str(text, ": ");
        ctl_text_safe(text, fault->message, strlen(fault->message));
        ctl_text_str(text, "\n");
    }
    if (index->n_faults < index->broken)
        ctl_text_printf(text, "  and %" PRIu64 " more\n", index->broken - index->n_faults);
}

static void index_people(struct ctl_text *text, const Spdl__V1__IndexReply *index)
{
    ctl_text_printf(text, "%" PRIu64 " samples", index->samples);
    if (index->shards > 0)
        ctl_text_printf(text, " in %" PRIu64 " shards, %" PRIu64 " of them read now", index->shards,
                        index->read_shards);
    ctl_text_str(text, "; ");
    ctl_text_duration(text, index->seconds);
    ctl_text_str(text, "\nparts: ");
    for (size_t i = 0; i < index->n_parts; i++) {
        ctl_text_str(text, i ? " " : "");
        ctl_text_safe(text, index->parts[i], strlen(index->parts[i]));
    }
    ctl_text_str(text, "; the largest has ");
    ctl_text_size(text, index->largest_bytes);
    ctl_text_printf(text, "\nid: %s\n", index->dataset_id);
    if (index->file.len > 0) {
        ctl_text_str(text, "kept in ");
        ctl_text_safe(text, index->file.data, index->file.len);
        ctl_text_str(text, ", ");
        ctl_text_size(text, index->index_bytes);
        ctl_text_str(text, "\n");
    } else if (index->index_bytes > 0) {
        ctl_text_str(text, "not kept: the folder of the setting index_dir cannot be written\n");
    }
    if (index->published.len > 0) {
        ctl_text_str(text, "published as ");
        ctl_text_safe(text, index->published.data, index->published.len);
        ctl_text_str(text, "\n");
    }
    if (index->ignored > 0)
        ctl_text_printf(text, "ignored, for they are no parts of samples: %" PRIu64 "\n",
                        index->ignored);
    faults_people(text, index);
    if (index->broken == 0 && *index->note) {
        ctl_text_str(text, "note: ");
        ctl_text_safe(text, index->note, strlen(index->note));
        ctl_text_str(text, "\n");
    }
}

static int index_ask(const struct ctl_options *options, char *yaml, Spdl__V1__ToClient **ret_reply)
{
    struct spdl_connection *connection = NULL;
    Spdl__V1__IndexRequest question;
    Spdl__V1__ToDaemon request = SPDL__V1__TO_DAEMON__INIT;
    char name[256] = "", none[] = "";
    if (!options->source && strlen(options->operands[0]) >= sizeof name)
        return ctl_fail(CTL_EXIT_FAILED, "there is no dataset of such a long name");
    if (!options->source)
        memcpy(name, options->operands[0], strlen(options->operands[0]) + 1);
    spdl__v1__index_request__init(&question);
    question.dataset = name;
    question.publish = options->publish;
    question.dataset_yaml = options->source ? yaml : none;
    request.body_case = SPDL__V1__TO_DAEMON__BODY_INDEX;
    request.index = &question;
    int code = ctl_connect(options, &connection);
    if (code == 0) {
        struct ctl_progress *progress = ctl_progress_begin(options, name);
        int rc = spdl_client_query(connection, &request, ret_reply);
        ctl_progress_end(progress); /* before anything else is said */
        code = rc == -ENOENT
                   ? ctl_open_failed(options, connection, rc)
                   : ctl_query_end(connection, rc, SPDL__V1__TO_CLIENT__BODY_INDEX, ret_reply);
    }
    spdl_disconnect(connection);
    return code;
}

int ctl_index(const struct ctl_options *options)
{
    struct ctl_text yaml = {0}, text = {0};
    Spdl__V1__ToClient *reply = NULL;
    int code = ctl_stream_check(options, 1);
    if (code == 0 && options->source)
        code = ctl_source_yaml(options->source, options->preset, &yaml);
    ctl_text_put(&yaml, "", 1);
    if (code == 0 && yaml.failed)
        code = ctl_fail(CTL_EXIT_FAILED, "out of memory");
    if (code == 0)
        code = index_ask(options, yaml.data, &reply);
    ctl_text_fini(&yaml);
    if (code != 0 || !reply)
        return code;
    if (options->json)
        index_json(&text, reply->index);
    else
        index_people(&text, reply->index);
    spdl__v1__to_client__free_unpacked(reply, NULL);
    return ctl_print(&text);
}
