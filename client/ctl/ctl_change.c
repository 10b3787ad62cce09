/* spdlctl set and reload: changes of a running daemon, and what they changed. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/ctl/ctl_json.h"
#include "client/ctl/ctl_query.h"
#include "client/ctl/ctl_stream.h"
#include "client/ctl/ctl_verbs.h"

void ctl_changes_people(struct ctl_text *text, const char *prefix, Spdl__V1__Change *const *changes,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const Spdl__V1__Change *change = changes[i];
        if (change->is_added || change->is_removed)
            ctl_text_printf(text, "%s%s: %s\n", prefix, change->name,
                            change->is_added ? "added" : "removed");
        else
            ctl_text_printf(text, "%s%s: %s -> %s\n", prefix, change->name,
                            change->was[0] ? change->was : "none",
                            change->now[0] ? change->now : "none");
    }
}

void ctl_changes_json(struct ctl_text *text, Spdl__V1__Change *const *changes, size_t count)
{
    ctl_json_open(text, '[');
    for (size_t i = 0; i < count; i++) {
        const Spdl__V1__Change *change = changes[i];
        ctl_json_open(text, '{');
        ctl_json_key_string(text, "name", change->name);
        ctl_json_key(text, "was");
        if (change->is_added)
            ctl_json_null(text);
        else
            ctl_json_string(text, change->was);
        ctl_json_key(text, "now");
        if (change->is_removed)
            ctl_json_null(text);
        else
            ctl_json_string(text, change->now);
        ctl_json_close(text, '}');
    }
    ctl_json_close(text, ']');
}

static int refused(const Spdl__V1__ChangeReply *reply)
{
    int code = ctl_query_code(reply->code);
    for (size_t i = 0; i < reply->n_complaints; i++)
        ctl_fail(code, "%s", reply->complaints[i]);
    if (reply->n_complaints == 0)
        ctl_fail(code, "the change is refused");
    return code;
}

static int told(const struct ctl_options *options, const Spdl__V1__ChangeReply *reply)
{
    struct ctl_text text = {0};
    if (options->json) {
        ctl_json_open(&text, '{');
        ctl_json_key(&text, "changes");
        ctl_changes_json(&text, reply->changes, reply->n_changes);
        ctl_json_close(&text, '}');
        ctl_text_str(&text, "\n");
        return ctl_print(&text);
    }
    ctl_changes_people(&text, "", reply->changes, reply->n_changes);
    if (reply->left_out > 0)
        ctl_text_printf(&text, "and %llu more\n", (unsigned long long)reply->left_out);
    if (reply->n_changes == 0)
        ctl_text_str(&text, "nothing has changed\n");
    return ctl_print(&text);
}

static int ask(const struct ctl_options *options, Spdl__V1__ToDaemon *request)
{
    struct spdl_connection *connection = NULL;
    Spdl__V1__ToClient *reply = NULL;
    int code = ctl_connect(options, &connection);
    if (code == 0)
        code = ctl_query(connection, request, SPDL__V1__TO_CLIENT__BODY_CHANGE, &reply);
    spdl_disconnect(connection);
    if (code != 0 || !reply)
        return code;
    code = reply->change->code == 0 ? told(options, reply->change) : refused(reply->change);
    spdl__v1__to_client__free_unpacked(reply, NULL);
    return code;
}

int ctl_set(const struct ctl_options *options)
{
    Spdl__V1__SetRequest question = SPDL__V1__SET_REQUEST__INIT;
    Spdl__V1__ToDaemon request = SPDL__V1__TO_DAEMON__INIT;
    union { /* the generated type has no const; packing only reads */
        const char *from;
        char *to;
    } word;
    char *sets[CTL_SETS_MAX];
    for (uint32_t i = 0; i < options->operand_count; i++) {
        word.from = options->operands[i];
        sets[i] = word.to;
    }
    question.sets = sets;
    question.n_sets = options->operand_count;
    request.body_case = SPDL__V1__TO_DAEMON__BODY_SET;
    request.set = &question;
    return ask(options, &request);
}

int ctl_reload(const struct ctl_options *options)
{
    Spdl__V1__ReloadRequest question = SPDL__V1__RELOAD_REQUEST__INIT;
    Spdl__V1__ToDaemon request = SPDL__V1__TO_DAEMON__INIT;
    request.body_case = SPDL__V1__TO_DAEMON__BODY_RELOAD;
    request.reload = &question;
    return ask(options, &request);
}
