/* What a dataset keeps over restarts of the daemon: which samples were seen whole, and its
 * quarantine. Both are in memory and, as far as the folder of the setting index_dir can be written,
 * in files there; they are written by chores, some time after they changed, when the last stream
 * leaves and when the daemon ends. Nothing is decided by them but speed. */
#ifndef SPDLD_PIPELINE_KEEP_H
#define SPDLD_PIPELINE_KEEP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/chores.h"
#include "base/err.h"
#include "pipeline/pipeline_quarantine.h"
#include "pipeline/pipeline_seen.h"

struct pipeline;
struct pipeline_dataset;

/* Conductor only, but for what a chore at work is said to have. */
struct pipeline_keep {
    char *seen_file, *seen_name; /* owned; NULL: it has no picture, or there is no folder */
    char *quarantine_file;       /* owned; NULL: there is no folder */
    bool is_loaded;              /* the quarantine of former runs was asked for */
    bool quarantine_changed;
    bool was_said; /* that it cannot be written */
    bool is_busy, again;
    uint64_t written_ns;
    /* The chore that writes has these. */
    struct chore chore;
    _Atomic bool is_done;       /* by the chore; for the end of the daemon, which calls no `done` */
    struct pipeline_seen *seen; /* NULL: not to be written */
    uint8_t *bits;
    struct pipeline_quarantine *list; /* the copy to be written; NULL: not to be written */
    bool has_list;
    struct err error;
    /* The chore that loads has these. */
    struct chore load_chore;
    struct pipeline_quarantine *loaded;
    struct err load_note;
};

void pipeline_keep_begin(struct pipeline_dataset *dataset); /* with the dataset */
void pipeline_keep_end(struct pipeline_dataset *dataset);
/* Asks for the quarantine of former runs, once. */
void pipeline_keep_load(struct pipeline_dataset *dataset);
/* … of every dataset of the configuration, and waits for them a short time. */
void pipeline_keep_load_all(struct pipeline *pipeline);
/* Makes seen_listed. On the chores thread; blocks. */
void pipeline_keep_listed(struct pipeline_dataset *dataset, const struct source *source);
void pipeline_keep_take(struct pipeline_dataset *dataset);  /* … into its place */
void pipeline_keep_write(struct pipeline_dataset *dataset); /* what has changed, soon */
void pipeline_keep_step(struct pipeline *pipeline, uint64_t now_ns);
/* The daemon ends: what has changed is written, which is waited for a short time. Calls no `done`.
 */
void pipeline_keep_finish(struct pipeline *pipeline);

#endif
