/* A request to change the running configuration, and its answer. For the files control_change*.c
 * alone. Owner: the conductor; the chore's own are `config`, `complaints` and `code` until it is
 * done. */
#ifndef SPDLD_CONTROL_CHANGE_H
#define SPDLD_CONTROL_CHANGE_H

#include "base/chores.h"
#include "control/control_state.h"

enum {
    CONTROL_SETS_MAX = 64,       /* of one request */
    CONTROL_CHANGES_TOLD = 1024, /* in one answer */
    CONTROL_CHANGE_TEXT_BYTES = 400
};

enum control_change_kind { CONTROL_CHANGE_SET, CONTROL_CHANGE_RELOAD, CONTROL_CHANGE_PENDING };

struct control_change_list {
    Spdl__V1__Change *items[CONTROL_CHANGES_TOLD]; /* owned */
    uint32_t count;
    uint64_t left_out;
    bool no_memory;
};

struct control_change {
    struct control *control;
    struct control_change *next, **link;
    struct session *session; /* NULL: nobody waits for the answer */
    enum control_change_kind kind;
    uint32_t request;
    bool by_signal;
    struct control_peer peer;
    char *sets[CONTROL_SETS_MAX]; /* owned */
    uint32_t set_count;
    struct chore chore;
    struct config *config; /* to be; after it was applied what was; owned */
    struct config_complaints complaints;
    int code; /* 0, or why nothing is changed */
    struct control_change_list list;
};

/* control_change_reply.c */
/* Takes one difference for the list: as config_compare tells it. */
void control_change_tell(void *context, const char *name, const char *was, const char *now);
void control_change_list_fini(struct control_change_list *list);
void control_change_reply(struct control_change *change);
void control_pending_reply(struct control_change *change);

#endif
