/* What the files of the control room share. For them alone. Owner: the conductor. */
#ifndef SPDLD_CONTROL_STATE_H
#define SPDLD_CONTROL_STATE_H

#include "control/control.h"
#include "proto/proto_frame.h"

enum {
    CONTROL_SESSIONS_LEAST = 8, /* however few descriptors there are */
    CONTROL_SESSIONS_MAX = 4096,
    CONTROL_SESSIONS_OF_USER_MAX = 2048,    /* so that one user leaves room for the others … */
    CONTROL_SESSIONS_OF_PROCESS_MAX = 1024, /* … and one process for its user's */
    CONTROL_LOOKS_MAX = 4,                  /* questions for indexes, of one connection */
    CONTROL_STREAMS_MAX = 64,               /* of one connection … */
    CONTROL_STREAMS_OF_PROCESS_MAX = 1024,  /* … of one process … */
    CONTROL_STREAMS_OF_USER_MAX = 1536,     /* … and of one user */
    CONTROL_HELLO_BYTES_MAX = 4096,         /* of a message before its sender has said who it is */
    CONTROL_BYTES_MAX = 128 << 10,          /* of a later one, but to a private daemon */
    CONTROL_CHANGES_MAX = 64,               /* requests for changes that are not done */
    CONTROL_OUT_MAX = 4 << 20,              /* bytes that wait for a client that does not read */
    CONTROL_OUT_ENOUGH = 256 << 10,         /* … and from here on it is not asked what it wants */
    CONTROL_HELLO_SECONDS = 10,             /* until a connection has said who it is */
    CONTROL_PRIVATE_FIRST_SECONDS = 15, /* a private daemon waits so long for its first client */
    CONTROL_PRIVATE_LINGER_SECONDS = 5  /* and so long after its last */
};

struct session;
struct control_change;

/* What is left of the conductor's time for those who only ask. */
struct control_budget {
    int64_t left_ns;  /* below 0: owed */
    int64_t slice_ns; /* spent in this turn of the loop */
    int64_t began_ns; /* of a request, in the conductor's CPU time */
    uint64_t filled_ns;
};

struct session_stream {
    struct session *session; /* NULL: the place is free */
    struct pipeline_stream *stream;
    uint32_t request; /* id of the Open that is not answered yet; valid while !opened */
    uint32_t number;
    bool opened, closed;
};

/* A connection; lives on without its socket while the process behind it may still map segments. */
struct session {
    struct control *control;
    struct session *next, **link;
    int fd;
    struct loop_source *source; /* NULL while it waits */
    uint32_t events;            /* that it is watched for */
    bool waits;                 /* in the line for its turn */
    struct session *next_waiting, **waiting_link;
    int pid_fd; /* of the peer; -1: not to be had */
    struct loop_source *pid_source;
    pid_t pid;
    uid_t uid;
    struct spdl_proto_in in;
    struct spdl_proto_out out;
    uint64_t since_ns;
    bool greeted, broken; /* broken: to be dropped when its handler is done */
    bool deaf;            /* … because it does not read */
    char client[64];
    struct session_look *looks; /* at indexes, not answered yet */
    uint32_t look_count;
    uint32_t stream_count;
    struct session_stream *streams[CONTROL_STREAMS_MAX];
};

struct control {
    struct control_params params;
    int listen_fd, lock_fd;
    struct loop_source *listen_source;
    struct session *sessions;
    uint32_t sessions_max, of_user_max, of_process_max; /* by the descriptors that there are */
    uint32_t session_count, connected_count;            /* connected: with a socket and greeted */
    uint64_t hello_end_ns; /* before it nobody can have been silent for too long; 0: nobody is
                              silent */
    uint64_t start_ns,
        idle_ns; /* idle_ns: since when a private daemon has no client; 0: it has one */
    bool had_client;
    struct control_budget budget;
    struct session *waiting, **waiting_end; /* the line */
    bool is_deaf;                           /* no connection is taken for now */
    uint64_t drops_s, drops_logged;         /* in that second; the others are counted alone */
    uint64_t drops_silent;
    int owner_fd; /* pidfd of the owner */
    struct loop_source *owner_source;
    uint64_t generation;
    uint64_t lost_clients, protocol_errors;
    struct chores *chores; /* read the configuration; NULL: not needed yet */
    struct loop_source *chores_source;
    struct control_change *changes; /* not done */
    uint32_t change_count;
};

/* control_budget.c */
void control_budget_init(struct control_budget *budget, uint64_t now_ns);
/* False: the time is spent, whoever asks has to wait. */
bool control_budget_begin(struct control_budget *budget);
/* Behind a begin. more_ns: what others (chores, the worker) will spend on it. */
void control_budget_end(struct control_budget *budget, int64_t more_ns);
void control_budget_rest(struct control_budget *budget); /* nothing for some milliseconds */
bool control_budget_is_turn_over(uint32_t requests);     /* of one session in one go */
/* Takes the session out of the loop and puts it into the line. */
void control_budget_wait(struct session *session);
void control_budget_leave(struct session *session);
/* Takes no connection until there is time again. */
void control_budget_no_connections(struct control *control);
/* Serves the line. Returns as control_step does. */
int64_t control_budget_step(struct control *control, uint64_t now_ns);

/* control_session.c */
void control_session_resume(struct session *session); /* its turn has come */
void control_session_accept(struct control *control, int fd);
/* Where the kernel can (Linux 6.16), nobody may send descriptors on it: closing a stranger's can
 * take long. Older ones close them as they come. */
void control_session_no_descriptors(int fd);
void control_session_drop(struct session *session, bool broke_rules, const char *why);
/* The process behind it is dead, or we end: nothing is left of it. */
void control_session_end(struct session *session);
/* Queues and sends a reply; a client that does not read is dropped. */
void control_session_reply(struct session *session, const Spdl__V1__ToClient *message,
                           const int *fds, int fd_count);
void control_session_error(struct session *session, uint32_t request, int code,
                           enum spdl_class class_number, const char *text);

/* Handlers, one for each message: return 0, or -EPROTO: the connection is dropped. */
int control_open_handle(struct session *session, uint32_t request, const Spdl__V1__Open *open);
int control_plan_handle(struct session *session, uint32_t request,
                        const Spdl__V1__PlanRequest *plan);
int control_release_handle(struct session *session, const Spdl__V1__Release *release);
int control_close_handle(struct session *session, const Spdl__V1__Close *close);
int control_unmapped_handle(struct session *session, const Spdl__V1__Unmapped *unmapped);
/* The connection is gone: closes its streams; with `dead` their memory is free too. True when none
 * is left. */
bool control_streams_leave(struct session *session, bool dead);

/* control_plan.c: the answer to a PlanRequest. */
void control_plan_reply(struct session *session, uint32_t request,
                        struct pipeline_planned *planned);
/* control_index.c */
int control_index_handle(struct session *session, uint32_t request,
                         const Spdl__V1__IndexRequest *asked);
void control_index_leave(struct session *session); /* nobody waits for its answers any more */

/* control_status.c */
int control_status_handle(struct session *session, uint32_t request);
int control_why_handle(struct session *session, uint32_t request, const Spdl__V1__WhyRequest *why);
int control_config_handle(struct session *session, uint32_t request,
                          const Spdl__V1__ConfigRequest *config);
int control_compare_handle(struct session *session, uint32_t request,
                           const Spdl__V1__ConfigCompare *compare);

/* control_change.c */
int control_set_handle(struct session *session, uint32_t request,
                       const Spdl__V1__SetRequest *asked);
int control_reload_handle(struct session *session, uint32_t request);
/* The answer to a ConfigRequest for differences. */
int control_pending_handle(struct session *session, uint32_t request);
void control_change_leave(struct session *session); /* nobody waits for its answers any more */
void control_change_end(struct control *control);

/* control_rights.c: who asks, as the kernel knows it. */
enum { CONTROL_GROUPS_MAX = 1024 };
struct control_peer {
    pid_t pid;
    uid_t uid;
    gid_t gid;
    uint32_t group_count;
    gid_t groups[CONTROL_GROUPS_MAX];
};
void control_peer_read(const struct session *session, struct control_peer *ret_peer);
bool control_peer_is_owner(const struct control_peer *peer); /* root, or the daemon's own user */
/* … or of the group spdld-admin. May ask other programs (NSS) and block. -EACCES with a sentence
 * that says who may. Any thread. */
int control_peer_check(const struct control_peer *peer, struct err *reterr);

/* May the peer have streams of the dataset of this name? 0, also where there is none; -EACCES with
 * a sentence that says who may. */
int control_may_use(const struct session *session, const char *dataset, struct err *reterr);

/* control_quarantine.c */
int control_quarantine_handle(struct session *session, uint32_t request,
                              const Spdl__V1__QuarantineRequest *asked);

#endif
