/* Changes of the running configuration: set, reload, and what a reload would change. All of a
 * change is checked before any of it is applied. The configuration is read, and groups are looked
 * up, by a chore; everything else is done by the conductor. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/chores.h"
#include "base/log.h"
#include "control/control_change.h"

/* --- the end of a request --- */

static void change_free(struct control_change *change)
{
    *change->link = change->next;
    if (change->next)
        change->next->link = change->link;
    change->control->change_count--;
    for (uint32_t i = 0; i < change->set_count; i++)
        free(change->sets[i]);
    config_destroy(change->config);
    free(change);
}

void control_change_leave(struct session *session)
{
    for (struct control_change *at = session->control->changes; at; at = at->next)
        if (at->session == session)
            at->session = NULL;
}

void control_change_end(struct control *control)
{
    loop_remove(control->params.loop, control->chores_source);
    if (control->chores && !chores_destroy(control->chores))
        return; /* it reads a file that does not answer: it ends with the process */
    while (control->changes)
        change_free(control->changes);
}

/* --- what a change would be, and its check --- */

static void complain(struct control_change *change, int code, const char *text)
{
    struct config_complaints *complaints = &change->complaints;
    if (change->code == 0)
        change->code = code;
    if (complaints->count < CONFIG_COMPLAINTS_MAX)
        snprintf(complaints->lines[complaints->count], sizeof complaints->lines[0], "%.500s", text);
    complaints->count++;
}

static void next_make(struct control_change *change)
{
    const struct control *control = change->control;
    if (change->kind != CONTROL_CHANGE_SET)
        return;
    int rc = config_change(control->params.config, (const char *const *)change->sets,
                           change->set_count, &change->config, &change->complaints);
    if (rc < 0)
        change->code = rc;
    if (rc == -ENOMEM)
        complain(change, rc, "no memory for the change");
}

static void next_check(struct control_change *change)
{
    const struct control *control = change->control;
    char names[CONFIG_RESTART_NAMES_BYTES], text[CONFIG_RESTART_NAMES_BYTES + 128];
    struct err error;
    config_restart_names(control->params.config, change->config, names);
    snprintf(text, sizeof text, "%s: %s effect only when spdld starts again; nothing was changed",
             names, strchr(names, ',') ? "they take" : "it takes");
    if (names[0])
        complain(change, -EPERM, text);
    int rc = pipeline_settings_check(control->params.pipeline, change->config, &error);
    if (rc < 0)
        complain(change, rc, error.text);
    rc = config_compare(control->params.config, change->config, control_change_tell, &change->list);
    if (rc < 0 || change->list.no_memory)
        complain(change, -ENOMEM, "no memory for the change");
}

/* --- the log --- */

static void who_text(const struct control_change *change, char *text, size_t bytes)
{
    static const char *const words[] = {"set", "reload", "look"};
    snprintf(text, bytes, "%s by %s %d of user %u", words[change->kind],
             change->by_signal ? "SIGHUP from process" : "process", (int)change->peer.pid,
             (unsigned)change->peer.uid);
}

static void refused_log(const struct control_change *change)
{
    char who[96];
    who_text(change, who, sizeof who);
    const struct log_field fields[] = {
        {LOG_ID, LOG_ID_RELOAD_REFUSED}, {"SPDL_WHO", who}, {NULL, NULL}};
    for (uint32_t i = 0; i < change->complaints.count && i < CONFIG_COMPLAINTS_MAX; i++)
        log_event(LOG_LEVEL_WARNING, fields, "%s is refused: %s", who, change->complaints.lines[i]);
}

static void applied_log(const struct control_change *change)
{
    char who[96];
    who_text(change, who, sizeof who);
    struct log_field fields[] = {
        {LOG_ID, LOG_ID_RELOADED}, {"SPDL_WHO", who}, {NULL, NULL}, {NULL, NULL}};
    for (uint32_t i = 0; i < change->list.count; i++) {
        const Spdl__V1__Change *one = change->list.items[i];
        fields[2] = (struct log_field){"SPDL_SETTING", one->name};
        if (one->is_added || one->is_removed)
            log_event(LOG_LEVEL_INFO, fields, "%s: %s is %s", who, one->name,
                      one->is_added ? "added" : "removed");
        else
            log_event(LOG_LEVEL_INFO, fields, "%s: %s was %s, is %s", who, one->name, one->was,
                      one->now);
    }
    if (change->list.count == 0)
        log_event(LOG_LEVEL_INFO, fields, "%s: nothing has changed", who);
}

/* --- done --- */

static void apply(struct control_change *change)
{
    struct control *control = change->control;
    enum log_level before = config_log_level(control->params.config);
    enum log_level after = config_log_level(change->config);
    config_adopt(control->params.config, change->config);
    pipeline_settings_changed(control->params.pipeline);
    log_level_set(after < before ? after : before); /* a change of it is said by the wordier one */
    applied_log(change);
    log_level_set(after);
}

static void finish(struct control_change *change)
{
    struct control *control = change->control;
    bool is_pending = change->kind == CONTROL_CHANGE_PENDING;
    if (change->code == 0)
        next_make(change);
    if (change->code == 0)
        next_check(change);
    if (change->code == 0 && !is_pending)
        apply(change);
    else if (!is_pending)
        refused_log(change);
    if (change->kind == CONTROL_CHANGE_RELOAD && control->params.reloading)
        control->params.reloading(control->params.context, false);
    if (change->session && is_pending)
        control_pending_reply(change);
    else if (change->session)
        control_change_reply(change);
    control_change_list_fini(&change->list);
    change_free(change);
}

/* --- the chore --- */

static struct control_change *change_of(struct chore *chore)
{
    return (struct control_change *)(void *)((char *)chore -
                                             offsetof(struct control_change, chore));
}

static void change_work(struct chore *chore)
{
    struct control_change *change = change_of(chore);
    const struct control_params params =
        change->control->params; /* which may go while this hangs */
    struct err error;
    if (!change->by_signal && control_peer_check(&change->peer, &error) < 0) {
        complain(change, error.code, error.text);
        return;
    }
    if (change->kind == CONTROL_CHANGE_SET)
        return;
    int rc = config_load(params.file, params.sets, params.set_count, &change->config,
                         &change->complaints);
    if (rc == -ENOMEM || (rc < 0 && change->complaints.count == 0))
        complain(change, rc, strerror(-rc));
    else if (rc < 0)
        change->code = -EBADMSG;
}

static void change_done(struct chore *chore)
{
    finish(change_of(chore));
}

static void on_chores(void *context, uint32_t events)
{
    struct control *control = context;
    (void)events;
    chores_reap(control->chores);
}

static int chores_need(struct control *control)
{
    if (control->chores)
        return 0;
    control->chores = chores_create(1);
    if (!control->chores)
        return -ENOMEM;
    return loop_add(control->params.loop, chores_fd(control->chores), EPOLLIN, on_chores, control,
                    &control->chores_source);
}

/* --- the beginning --- */

static struct control_change *change_new(struct control *control, struct session *session,
                                         enum control_change_kind kind, uint32_t request)
{
    struct control_change *change = calloc(1, sizeof *change);
    if (change && session)
        control_peer_read(session, &change->peer);
    /* Who may not change anything cannot take every place. */
    bool is_owner = !session || (change && control_peer_is_owner(&change->peer));
    uint32_t places = is_owner ? CONTROL_CHANGES_MAX : CONTROL_CHANGES_MAX / 2;
    if (!change || control->change_count >= places || chores_need(control) < 0) {
        free(change);
        if (session)
            control_session_error(
                session, request, -EAGAIN, SPDL_CLASS_RESOURCE,
                "too many changes wait to be made, or memory is short: try again");
        return NULL;
    }
    change->control = control;
    change->session = session;
    change->kind = kind;
    change->request = request;
    change->chore.work = change_work;
    change->chore.done = change_done;
    change->next = control->changes;
    change->link = &control->changes;
    if (change->next)
        change->next->link = &change->next;
    control->changes = change;
    control->change_count++;
    return change;
}

static void begin(struct control_change *change)
{
    const struct control_params *params = &change->control->params;
    if (change->kind == CONTROL_CHANGE_RELOAD && params->reloading)
        params->reloading(params->context, true);
    if (change->kind == CONTROL_CHANGE_SET && control_peer_is_owner(&change->peer))
        finish(change);
    else
        chores_add(change->control->chores, &change->chore);
}

int control_set_handle(struct session *session, uint32_t request, const Spdl__V1__SetRequest *asked)
{
    if (asked->n_sets == 0 || asked->n_sets > CONTROL_SETS_MAX)
        return -EPROTO;
    struct control_change *change =
        change_new(session->control, session, CONTROL_CHANGE_SET, request);
    if (!change)
        return 0;
    for (size_t i = 0; i < asked->n_sets; i++) {
        change->sets[i] = strdup(asked->sets[i]);
        if (change->sets[i]) {
            change->set_count++;
            continue;
        }
        complain(change, -ENOMEM, "no memory for the change");
        break;
    }
    begin(change);
    return 0;
}

int control_reload_handle(struct session *session, uint32_t request)
{
    struct control_change *change =
        change_new(session->control, session, CONTROL_CHANGE_RELOAD, request);
    if (change)
        begin(change);
    return 0;
}

int control_pending_handle(struct session *session, uint32_t request)
{
    struct control_change *change =
        change_new(session->control, session, CONTROL_CHANGE_PENDING, request);
    if (change)
        begin(change);
    return 0;
}

void control_reload(struct control *control, pid_t pid, uid_t uid)
{
    struct control_change *change = change_new(control, NULL, CONTROL_CHANGE_RELOAD, 0);
    if (!change) {
        log_line(LOG_LEVEL_ERROR, "SIGHUP: too many changes wait to be made, or memory is short");
        return;
    }
    change->by_signal = true;
    change->peer.pid = pid;
    change->peer.uid = uid;
    begin(change);
}
