/* The conductor: streams of batches for ranks. It lists datasets, plans, reads, hands rows to
 * workers and publishes batches; its core is a pure state machine (pipeline_core.h). Everything
 * here is called by the conductor's thread and none of it blocks. */
#ifndef SPDLD_PIPELINE_H
#define SPDLD_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/loop.h"
#include "config/config.h"
#include "item/class.h"
#include "pipeline/pipeline_quarantine.h"
#include "pipeline/pipeline_worker.h"

struct pipeline;
struct pipeline_stream;

struct pipeline_params {
    const struct config *config; /* borrowed for life; its owner may change live settings and
                                    datasets, and says so by pipeline_settings_changed */
    struct loop *loop;           /* borrowed for life */
    const struct pipeline_launcher *launcher;
    bool is_private; /* datasets written in an Open are served */
};

/* -ENOMEM, -ENOSPC (memory is short), -ENOTSUP (the engine asked for is refused), with a sentence.
 * Returned owned. */
int pipeline_create(const struct pipeline_params *params, struct pipeline **ret_pipeline,
                    struct err *reterr);
/* Ends the workers. Streams of living ranks are gone with their sockets. Accepts NULL. */
void pipeline_destroy(struct pipeline *pipeline);

/* May the settings of `next` be those of `params.config`? -ENOSPC with a sentence. */
int pipeline_settings_check(const struct pipeline *pipeline, const struct config *next,
                            struct err *reterr);
/* Live settings or datasets of `params.config` are others now. Streams that are open go on with the
 * dataset and the slots that they have. */
void pipeline_settings_changed(struct pipeline *pipeline);

/* The loop's step: takes results, does what there is to do. */
int64_t pipeline_step(struct pipeline *pipeline);

struct pipeline_open {
    const char *dataset;      /* a name, or "" */
    const char *dataset_yaml; /* or a dataset as YAML, or "" */
    uint64_t batch;
    uint32_t rank, world;
    bool has_seed;
    uint64_t seed;
    const char *state; /* "": from epoch and step */
    uint32_t epoch;
    uint64_t step;
    uint32_t slots;       /* 0: the setting */
    const char *on_error; /* "": the dataset's */
    uint64_t limit;
    const char *job;
    pid_t pid;         /* of the rank, for status */
    uid_t uid;         /* of the rank: its worker serves this user alone */
    bool is_plan_only; /* no stream: what it would be is told to `planned`, and that is all */
};

struct pipeline_opened {
    uint32_t number; /* of the stream in the daemon: 1, 2, …; free again when it is gone */
    int fds[3];      /* control, data, pipe: borrowed during the call */
    uint64_t control_bytes, data_bytes;
    uint64_t samples, steps_per_epoch, step;
    uint32_t epoch;
    const char *plan_id;
    uint64_t seed;
    const char *warning;
};

enum { PIPELINE_PLAN_ROWS = 8, PIPELINE_PLAN_KEY_BYTES = 256 };
struct pipeline_plan_row {
    uint64_t position, id, bytes; /* bytes: that are read for it */
    uint32_t key_bytes;           /* of `key`, which may be cut */
    uint8_t key[PIPELINE_PLAN_KEY_BYTES];
};

/* What a stream would read, in which order and with how much memory. */
struct pipeline_planned {
    const struct config_dataset *dataset;
    const char *shuffle, *last; /* by name */
    char source[512];
    const char *plan_id, *warning;
    uint64_t seed, batch, step, samples, steps_per_epoch;
    uint32_t epoch, rank, world, slots;
    uint32_t shards, shards_open; /* shards_open: that all ranks together read at a time */
    uint64_t epoch_bytes;         /* read in an epoch by all ranks */
    bool is_estimate;             /* … by a part of the samples */
    uint64_t largest_bytes;       /* of a sample, of those looked at */
    uint64_t stream_bytes, slot_bytes, table_bytes; /* memory; tables are those of the order */
    uint64_t memory_limit, memory_used;
    uint64_t
        unit_bytes;     /* memory_limit, a worker's own and the daemon's: for a unit's MemoryMax= */
    uint32_t row_count; /* the first rows of the rank */
    struct pipeline_plan_row rows[PIPELINE_PLAN_ROWS];
};

/* What a stream tells its owner. refused and planned end the stream: its handle is gone. */
struct pipeline_owner {
    void (*opened)(void *context, const struct pipeline_opened *opened);
    void (*refused)(void *context, const struct err *error, enum spdl_class class_number);
    void (*planned)(void *context, struct pipeline_planned *planned); /* is_plan_only */
    void (*ended)(void *context, uint64_t batches, int code, enum spdl_class class_number,
                  const char *message);
};

/* Begins to open a stream. 0: one of opened (or planned) and refused will be called, perhaps before
 * this returns; else nothing is called, a negative errno with a sentence. *ret_stream is set before
 * any call. */
int pipeline_open(struct pipeline *pipeline, const struct pipeline_open *open,
                  const struct pipeline_owner *owner, void *context,
                  struct pipeline_stream **ret_stream, struct err *reterr);
/* 0, or -EPROTO: no batch with this sequence is out. */
int pipeline_release(struct pipeline_stream *stream, uint64_t sequence);
/* The rank wants no more, or is dead: its slots are free at once; the owner is not called any more.
 */
void pipeline_close(struct pipeline_stream *stream);
/* The rank has unmapped it or is dead. Ends the handle; closes it first where that was not done. */
void pipeline_unmapped(struct pipeline_stream *stream);

/* --- for status and why --- */

struct pipeline_stream_status {
    uint32_t number;
    const char *dataset, *job, *plan_id;
    uint32_t rank, world, epoch, ready_slots, slots;
    uint64_t step, batches, samples, memory_bytes;
    double starved_ratio, samples_per_s;
    uint64_t failures[SPDL_CLASS_COUNT];
    char waiting_for[256];
    char state[256]; /* behind the last batch published */
    pid_t pid;
    uid_t uid;
};
struct pipeline_why {
    char bottleneck[16];
    char evidence[256];
    char advice[192];
    double share;
};
struct pipeline_dataset_status {
    const char *name, *state, *note;
    char source[512];
    uint64_t samples, classes, ignored;
    char progress[96]; /* while shards are read, for a stream or for an index: in words; else "" */
    uint64_t read_bytes, reading_bytes; /* … and in bytes, of all that is to be read */
    uint64_t seen;                      /* samples that were decoded whole once */
    uint64_t short_rows; /* rows decoded only as far as they are needed, which seen ones may be */
    uint32_t field_count;
    const struct field_spec *fields;
};
struct pipeline_worker_status {
    pid_t pid; /* 0: a thread of this process */
    uid_t uid; /* whose streams it serves */
    struct worker_lock lock;
};
enum { PIPELINE_STATUS_WORKERS_MAX = 16 };
struct pipeline_status {
    const char *engine, *engine_note;
    uint64_t memory_limit, memory_used, arena_used, arena_bytes, reads, read_bytes, worker_restarts;
    uint32_t decode_threads, worker_count;
    struct pipeline_worker_status workers[PIPELINE_STATUS_WORKERS_MAX];
    double ended_workers_cpu_s; /* is part of the daemon's RUSAGE_CHILDREN */
};

void pipeline_status(const struct pipeline *pipeline, struct pipeline_status *ret_status);
/* Stream after stream, then those that wait for a dataset's list, which have the number 0 in their
 * status: starts with NULL, ends with NULL. */
struct pipeline_stream *pipeline_stream_next(const struct pipeline *pipeline,
                                             const struct pipeline_stream *after);
void pipeline_stream_status(const struct pipeline_stream *stream,
                            struct pipeline_stream_status *ret_status);
void pipeline_stream_why(const struct pipeline_stream *stream, struct pipeline_why *ret_why);
/* What a dataset's index holds. Everything in it is borrowed during the call. */
enum { PIPELINE_INDEX_FAULTS_MAX = 1000, PIPELINE_INDEX_FAULT_BYTES_MAX = 512 << 10 };
struct pipeline_index_fault {
    const char *shard;
    uint64_t offset;
    uint32_t class_number;
    const char *key;
    uint32_t key_bytes;
    const char *message;
};
struct pipeline_index {
    uint64_t id_high, id_low;
    uint64_t samples, shards, ignored, broken, largest_bytes;
    uint64_t index_bytes, read_shards;
    const char *file;      /* "": it is not kept */
    const char *published; /* where it was written beside the data; "": that was not asked for */
    const char *note;
    uint32_t name_count;
    const char *names[FIELD_MAX];
    uint64_t classes[SPDL_CLASS_COUNT]; /* of what is broken */
    uint32_t fault_count;               /* the first ones, bounded by number and by bytes */
    struct pipeline_index_fault faults[PIPELINE_INDEX_FAULTS_MAX];
    double seconds;
};
/* publish: writes its index beside the data too. Lists a dataset anew beside whatever streams have
 * of it, and calls `done` once, later, with the result or with the error (index NULL); never after
 * pipeline_destroy. 0, or a negative errno with a sentence: nothing is called. */
int pipeline_index(struct pipeline *pipeline, const struct pipeline_open *which, bool publish,
                   void (*done)(void *context, const struct pipeline_index *index,
                                const struct err *error),
                   void *context, struct err *reterr);

/* Dataset number `index` of the configuration, then those that ranks brought. False behind the
 * last. */
bool pipeline_dataset_status(const struct pipeline *pipeline, uint32_t index,
                             struct pipeline_dataset_status *ret_status);

enum { PIPELINE_QUARANTINE_PAGE = 128 };
struct pipeline_quarantine_page {
    struct pipeline_quarantined samples[PIPELINE_QUARANTINE_PAGE]; /* valid until the next step */
    uint64_t total, left_out; /* samples on the lists; failures that had no room */
};
/* Samples number `start` and on of the quarantine of a dataset (all of that name), or of every
 * dataset with "". Returns how many. */
uint32_t pipeline_quarantine_list(const struct pipeline *pipeline, const char *dataset,
                                  uint64_t start, struct pipeline_quarantine_page *ret_page);

#endif
