/* Answers to requests for changes, and the list of differences in them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_change.h"

static char *cut(const char *text)
{
    size_t bytes = text ? strlen(text) : 0;
    if (bytes > CONTROL_CHANGE_TEXT_BYTES) {
        bytes = CONTROL_CHANGE_TEXT_BYTES;
        while (bytes > 0 && ((unsigned char)text[bytes] & 0xC0) == 0x80) /* no half of a letter */
            bytes--;
    }
    return strndup(text ? text : "", bytes);
}

void control_change_tell(void *context, const char *name, const char *was, const char *now)
{
    struct control_change_list *list = context;
    if (list->count == CONTROL_CHANGES_TOLD) {
        list->left_out++;
        return;
    }
    Spdl__V1__Change *one = calloc(1, sizeof *one);
    if (!one) {
        list->no_memory = true;
        return;
    }
    spdl__v1__change__init(one);
    list->items[list->count++] = one;
    one->name = cut(name);
    one->was = cut(was);
    one->now = cut(now);
    one->is_added = !was;
    one->is_removed = !now;
    list->no_memory = list->no_memory || !one->name || !one->was || !one->now;
}

void control_change_list_fini(struct control_change_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        free(list->items[i]->name);
        free(list->items[i]->was);
        free(list->items[i]->now);
        free(list->items[i]);
    }
    list->count = 0;
}

/* Strings of a message must be UTF-8, which a line of a file need not be. */
static size_t lines_of(struct control_change *change, char *lines[CONFIG_COMPLAINTS_MAX])
{
    struct config_complaints *complaints = &change->complaints;
    size_t count =
        complaints->count < CONFIG_COMPLAINTS_MAX ? complaints->count : CONFIG_COMPLAINTS_MAX;
    for (size_t i = 0; i < count; i++) {
        lines[i] = complaints->lines[i];
        for (char *at = lines[i]; *at; at++)
            if ((unsigned char)*at < 32 || (unsigned char)*at > 126)
                *at = '?';
    }
    return count;
}

void control_change_reply(struct control_change *change)
{
    char *lines[CONFIG_COMPLAINTS_MAX];
    Spdl__V1__ChangeReply reply;
    spdl__v1__change_reply__init(&reply);
    reply.code = change->code;
    reply.complaints = lines;
    reply.n_complaints = lines_of(change, lines);
    if (change->code == 0) {
        reply.changes = change->list.items;
        reply.n_changes = change->list.count;
        reply.left_out = change->list.left_out;
    }
    Spdl__V1__ToClient message;
    spdl__v1__to_client__init(&message);
    message.id = change->request;
    message.body_case = SPDL__V1__TO_CLIENT__BODY_CHANGE;
    message.change = &reply;
    control_session_reply(change->session, &message, NULL, 0);
}

void control_pending_reply(struct control_change *change)
{
    char *lines[CONFIG_COMPLAINTS_MAX];
    Spdl__V1__ConfigReply reply;
    spdl__v1__config_reply__init(&reply);
    reply.yaml = config_print(change->control->params.config, 1);
    if (!reply.yaml) {
        control_session_error(change->session, change->request, -ENOMEM, SPDL_CLASS_RESOURCE,
                              "no memory for the answer");
        return;
    }
    bool may_know = change->code != -EACCES;
    if (may_know && !change->list.no_memory) {
        reply.pending = change->list.items;
        reply.n_pending = change->list.count;
    }
    reply.complaints = lines;
    reply.n_complaints = may_know ? lines_of(change, lines) : 0;
    Spdl__V1__ToClient message;
    spdl__v1__to_client__init(&message);
    message.id = change->request;
    message.body_case = SPDL__V1__TO_CLIENT__BODY_CONFIG;
    message.config = &reply;
    control_session_reply(change->session, &message, NULL, 0);
    free(reply.yaml);
}
