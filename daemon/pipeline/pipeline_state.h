/* What the files of the pipeline share. For them alone. Owner of everything here: the conductor;
 * chores touch only what their comment says. */
#ifndef SPDLD_PIPELINE_STATE_H
#define SPDLD_PIPELINE_STATE_H

#include "base/chores.h"
#include "fetch/fetch.h"
#include "pipeline/pipeline.h"
#include "pipeline/pipeline_core.h"
#include "pipeline/pipeline_keep.h"
#include "pipeline/pipeline_quarantine.h"
#include "pipeline/pipeline_recipe.h"
#include "pipeline/pipeline_seat.h"
#include "pipeline/pipeline_worker.h"
#include "plan/plan.h"
#include "shm/shm_segment.h"
#include "sink/sink.h"
#include "source/source.h"

enum {
    PIPELINE_INLINE_MAX = 64,
    PIPELINE_YAML_MAX = 65536,
    PIPELINE_AHEAD = 16 /* samples that are made ready for their lookup */
};

enum dataset_state { DATASET_NOT_LISTED, DATASET_LISTING, DATASET_LISTED, DATASET_FAILED };

/* A dataset that streams use. Its list is made when the first stream opens it, kept while one has
 * it open, and made anew after that. */
struct pipeline_dataset {
    struct pipeline *pipeline;
    struct pipeline_dataset *next;
    struct config_dataset config;
    char *yaml;  /* of one that a rank brought; NULL: of the configuration */
    char *title; /* its name for people: of one that a rank brought its source */
    enum dataset_state state;
    uint32_t users; /* streams, the waiting ones too */
    bool damaged;   /* what its source lists may be wrong: nothing of it is kept */
    bool retired;   /* the configuration has another one of its name, or none: the streams that
                       have it go on with it, and it goes with the last of them */
    struct source *source;
    struct chore chore; /* lists: writes listed and list_error, adds to progress */
    struct source_progress progress;
    struct source *listed;
    struct err list_error;
    uint32_t field_count; /* with the raw fields of a dataset that names none */
    struct field_spec fields[FIELD_MAX];
    bool is_raw; /* its one field is bytes as they lie in the files, without padding */
    struct pipeline_seen *seen;        /* NULL: no picture, or not listed */
    struct pipeline_seen *seen_before; /* of the list before this one, for the chore that lists */
    struct pipeline_seen *seen_listed; /* by that chore, with seen_note */
    struct err seen_note;
    struct pipeline_keep keep;
    uint32_t chores;                        /* of `keep`, at work or waiting */
    uint64_t short_rows;                    /* that were decoded as far as they are needed */
    struct pipeline_stream *waiting;        /* for the list, linked by next_waiting */
    struct pipeline_quarantine *quarantine; /* NULL: empty */
};

enum stream_phase { STREAM_LISTING, STREAM_SEAT, STREAM_SEGMENTS, STREAM_OPEN };

/* How the time went, for status and why. */
struct stream_times {
    uint64_t last_ns;
    enum pipeline_reason reason; /* since last_ns */
    bool starved;
    double reason_s[PIPELINE_REASON_COUNT]; /* older time weighs less */
    double starved_s, all_s;
    uint64_t rate_ns, rate_samples;
    double samples_per_s;
};

/* The sample at a position to which the lookups will come. */
struct stream_ahead {
    uint64_t position, id;
    uint32_t epoch;
    bool known;
};

struct pipeline_stream {
    struct pipeline *pipeline;
    struct pipeline_dataset *dataset;
    struct pipeline_stream *next_waiting; /* for a list or a seat, or of those that leave */
    const struct pipeline_owner *owner;
    void *context;
    enum stream_phase phase;
    bool closed, unmapped; /* by the rank */
    uint32_t number;       /* in the core and in the worker; from STREAM_SEGMENTS on */
    uint32_t worker;
    /* as asked */
    bool has_seed, has_state, is_plan_only;
    uint64_t batch, seed, limit, step;
    uint32_t rank, world, epoch, slots;
    struct config_on_error on_error;
    struct plan_state state;
    char job[64];
    pid_t pid;
    uid_t uid;
    /* as planned */
    struct plan_schedule schedule;
    struct plan_id plan_id;
    char plan_id_text[PLAN_ID_TEXT_BYTES];
    char warning[256];
    struct plan_sequence *sequence;   /* its first table is made by the chore that makes the sink */
    struct pipeline_planned *planned; /* is_plan_only: written by the chore */
    uint64_t sequence_bytes;
    struct stream_ahead ahead[PIPELINE_AHEAD]; /* of the position modulo PIPELINE_AHEAD */
    uint64_t memory_bytes;                     /* of segments and sequence */
    /* its ring */
    struct chore chore; /* makes or destroys the sink: writes sink, sink_rc, sink_error */
    struct sink *sink;
    struct sink_params sink_params;
    int sink_rc;
    struct err sink_error;
    char end_message[512];
    struct stream_times times;
    uint64_t faults_logged;
    char last_state[PLAN_STATE_TEXT_BYTES];
};

struct pipeline {
    struct pipeline_params params;
    struct pipeline_core *core;
    struct chores *chores;                  /* memory: they come to their end */
    struct chores *listers;                 /* files: they may hang */
    struct fetch *spare_fetch;              /* an engine that no seat has; NULL: none */
    char engine_name[16], engine_note[256]; /* of the first */
    uint64_t ended_reads, ended_read_bytes; /* of engines that are closed */
    struct loop_source *chores_source, *listers_source;
    uint64_t generation, memory_limit;
    uint64_t arena_bytes;          /* of each seat */
    uint64_t now_ns;               /* when the last step began */
    uint64_t tended_ns;            /* when the engines were last looked after */
    uint32_t threads, fetch_depth; /* as the settings say now */
    struct pipeline_dataset *datasets;
    struct pipeline_look *looks; /* at datasets, for pipeline_index */
    uint32_t look_count;
    struct pipeline_stream *streams[PIPELINE_STREAMS_MAX]; /* by number */
    struct pipeline_stream *leaving; /* known to a chore alone: forgotten, or a plan only */
    uint32_t stream_count;
    struct pipeline_looked looked;
    struct pipeline_seat seats[PIPELINE_WORKERS_MAX];
    uint64_t worker_restarts;
    uint64_t counted_ns; /* when times were last counted */
    uint64_t kept_ns;    /* when it was last looked what is to be written */
};

/* pipeline_dataset.c */
struct pipeline_dataset *pipeline_dataset_get(struct pipeline *pipeline,
                                              const struct pipeline_open *open, struct err *reterr);
/* Adds the stream as a user; it goes on by pipeline_stream_listed, perhaps at once. */
void pipeline_dataset_join(struct pipeline_dataset *dataset, struct pipeline_stream *stream);
void pipeline_dataset_leave(struct pipeline_dataset *dataset);
/* The file of its source's index, where that was cut or written over under it: then its streams
 * end, and who opens the dataset gets one that is listed anew. NULL: what was looked up is right.
 */
const char *pipeline_dataset_damaged(struct pipeline_dataset *dataset);
void pipeline_dataset_free_all(struct pipeline *pipeline);
/* Of those that ranks brought, and the retired ones that nobody uses. */
void pipeline_dataset_trim(struct pipeline *pipeline);
/* Retires those that the configuration does not have so any more. */
void pipeline_dataset_review(struct pipeline *pipeline);

/* Lists a dataset as its configuration says. On the chores thread; may block. */
int pipeline_dataset_list(const struct pipeline *pipeline, const struct config_dataset *config,
                          struct source_progress *progress, struct source **ret_source,
                          struct err *reterr);

/* pipeline_progress.c: how far a list is, in words. False: nothing is known to be read for it. */
bool pipeline_progress_words(const struct source_progress *progress, char *text, size_t bytes);

/* pipeline_index.c */
/* How far the look at the dataset is that began last; NULL: nobody looks at it. */
const struct source_progress *pipeline_index_progress(const struct pipeline_dataset *dataset);
void pipeline_index_free_all(struct pipeline *pipeline);

/* Of a source, as status shows it. */
void pipeline_dataset_source_text(const struct config_source *source, char *text, size_t bytes);

/* pipeline_failed.c */
/* Notes that a sample failed, in its quarantine. fault: where in the part; UINT64_MAX: not known.
 */
void pipeline_dataset_failed(struct pipeline_dataset *dataset, uint64_t id,
                             enum spdl_class class_number, uint64_t fault, const char *message);
/* What its source left out is in the quarantine too. */
void pipeline_dataset_left_out(struct pipeline_dataset *dataset);

/* pipeline_stream.c */
void pipeline_stream_listed(struct pipeline_stream *stream);
/* error: its user has no seat; NULL: he has. */
void pipeline_stream_seated(struct pipeline_stream *stream, const struct err *error);
void pipeline_stream_free(struct pipeline_stream *stream);
/* The core forgot it: its memory goes. */
void pipeline_stream_forget(struct pipeline_stream *stream);

/* pipeline_plan.c: what a stream would be, worked out by a chore. */
int pipeline_plan_begin(struct pipeline_stream *stream, struct err *reterr);

/* pipeline_row.c: what stands where, and what worker and rank are told of it */
void pipeline_row_lookup(void *context, uint32_t stream, const struct pipeline_place *place,
                         struct pipeline_sample *ret_sample);
/* The sample and its recipe; until the next lookup. */
const struct pipeline_looked *pipeline_row_look(struct pipeline_stream *stream, uint64_t id);
void pipeline_row_command(const struct pipeline_stream *stream,
                          const struct pipeline_command *command,
                          struct spdl_work_command *ret_work);
/* Fills in what the rank reads of the batch; false: it may be wrong, and end_message says why. */
bool pipeline_row_ready(void *context, uint32_t stream, uint32_t slot);
/* Words for a failure that is seen without reading or decoding anything. */
const char *pipeline_row_message(enum spdl_class class_number);

/* pipeline.c; any thread */
int pipeline_engine_open(const struct pipeline *pipeline, struct fetch **ret_fetch, char note[256],
                         struct err *reterr);

/* pipeline_fetch.c */
void pipeline_fetch_start(struct pipeline *pipeline, const struct pipeline_command *command);
void pipeline_fetch_take(struct pipeline_seat *seat);
/* Until the next retry; negative: none. */
int64_t pipeline_fetch_again(struct pipeline *pipeline, uint64_t now_ns);
/* Of a stream's reads in flight. */
struct pipeline_oldest {
    const char *path; /* of the oldest, relative to its folder; NULL: there are none */
    uint32_t tries;   /* that failed so far */
    double age_s;
};
struct pipeline_oldest pipeline_fetch_oldest(const struct pipeline_stream *stream);

/* pipeline_why.c */
void pipeline_why_count(struct pipeline *pipeline, uint64_t now_ns);

#endif
