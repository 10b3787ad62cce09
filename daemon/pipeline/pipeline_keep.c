/* What a dataset keeps over restarts: see pipeline_keep.h. Conductor role, but for what chores do.
 */
#include "pipeline/pipeline_keep.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "base/dirs.h"
#include "base/log.h"
#include "pipeline/pipeline_kept.h"
#include "pipeline/pipeline_state.h"

enum { WRITE_EVERY_S = 30, WAIT_MS = 2000, STEP_MS = 1 };
static const uint64_t NS_PER_S = 1000000000;

/* --- names --- */

/* FOLDER/HASH.KIND.WHAT, the hash that of `text`. Returned owned. */
static char *file_name(const char *folder, const char *text, const char *kind, const char *what)
{
    char *file = NULL;
    XXH128_hash_t hash = XXH3_128bits(text, strlen(text));
    if (asprintf(&file, "%s/%016" PRIx64 "%016" PRIx64 ".%s.%s", folder, hash.high64, hash.low64,
                 kind, what) < 0)
        return NULL;
    if (strlen(file) < PIPELINE_KEPT_PATH_BYTES)
        return file;
    free(file);
    return NULL;
}

/* Which parts are decoded how: what "seen whole" is about, and what numbers the samples. */
static char *seen_name(const struct pipeline_dataset *dataset, const char *place)
{
    char *text = NULL;
    size_t bytes = 0;
    bool has_picture = false;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    fprintf(out, "%sdecode version %d\n", place, PLAN_DECODE_VERSION);
    for (uint32_t f = 0; f < dataset->config.field_count; f++) {
        const struct field_spec *field = &dataset->config.fields[f];
        has_picture = has_picture || strcmp(field->decoder, "image") == 0;
        fprintf(out, "%s %" PRIu64, field->decoder, field->max_pixels);
        for (uint32_t n = 0; n < field->from_count; n++)
            fprintf(out, " %s", field->from[n]);
        fputc('\n', out);
    }
    if (fclose(out) == 0 && has_picture)
        return text;
    free(text);
    return NULL;
}

void pipeline_keep_begin(struct pipeline_dataset *dataset)
{
    const struct pipeline *pipeline = dataset->pipeline;
    struct pipeline_keep *keep = &dataset->keep;
    struct source_spec *spec = calloc(1, sizeof *spec);
    if (!spec)
        return;
    const char *kind = dataset->config.source.kind;
    memcpy(spec->kind, kind, sizeof spec->kind);
    memcpy(spec->path, dataset->config.source.path, sizeof spec->path);
    dirs_index(pipeline->params.config->index_dir, pipeline->params.is_private, spec->index_dir,
               sizeof spec->index_dir);
    char *place = dataset->config.source.path[0] ? source_place(spec) : NULL;
    if (place) {
        keep->seen_name = seen_name(dataset, place);
        if (keep->seen_name && spec->index_dir[0])
            keep->seen_file = file_name(spec->index_dir, keep->seen_name, kind, "seen");
        if (spec->index_dir[0])
            keep->quarantine_file = file_name(spec->index_dir, place, kind, "quarantine");
    }
    free(place);
    free(spec);
}

void pipeline_keep_end(struct pipeline_dataset *dataset)
{
    struct pipeline_keep *keep = &dataset->keep;
    pipeline_seen_release(dataset->seen);
    pipeline_seen_release(dataset->seen_before);
    pipeline_seen_release(dataset->seen_listed);
    pipeline_seen_release(keep->seen);
    pipeline_quarantine_destroy(keep->list);
    pipeline_quarantine_destroy(keep->loaded);
    free(keep->bits);
    free(keep->seen_file);
    free(keep->seen_name);
    free(keep->quarantine_file);
}

/* --- loading --- */

static int list_read(const char *file, struct pipeline_quarantine **ret_list)
{
    void *payload = NULL;
    uint64_t bytes = 0;
    *ret_list = NULL;
    int rc = pipeline_kept_read(file, PIPELINE_KEPT_QUARANTINE, &payload, &bytes);
    if (rc == 0)
        rc = pipeline_quarantine_unpack(payload, bytes, ret_list);
    free(payload);
    return rc == -ENOENT ? 0 : rc;
}

static struct pipeline_dataset *dataset_of_load(struct chore *chore)
{
    return (struct pipeline_dataset *)(void *)((char *)chore -
                                               offsetof(struct pipeline_dataset, keep.load_chore));
}

static void load_work(struct chore *chore)
{
    struct pipeline_keep *keep = &dataset_of_load(chore)->keep;
    int rc = list_read(keep->quarantine_file, &keep->loaded);
    if (rc < 0)
        err_set(&keep->load_note, rc, "%s is of no use (%s): the quarantine begins anew",
                keep->quarantine_file,
                rc == -EBADMSG ? "damaged, or of another version" : strerror(-rc));
}

static void load_done(struct chore *chore)
{
    struct pipeline_dataset *dataset = dataset_of_load(chore);
    struct pipeline_keep *keep = &dataset->keep;
    pipeline_quarantine_merge(&dataset->quarantine, keep->loaded);
    pipeline_quarantine_destroy(keep->loaded);
    keep->loaded = NULL;
    dataset->chores--;
    if (keep->load_note.text[0])
        log_line(LOG_LEVEL_WARNING, "dataset %s: %s", dataset->title, keep->load_note.text);
}

void pipeline_keep_load(struct pipeline_dataset *dataset)
{
    struct pipeline_keep *keep = &dataset->keep;
    if (keep->is_loaded || !keep->quarantine_file)
        return;
    keep->is_loaded = true;
    keep->load_chore.work = load_work;
    keep->load_chore.done = load_done;
    dataset->chores++;
    chores_add(dataset->pipeline->chores, &keep->load_chore);
}

void pipeline_keep_load_all(struct pipeline *pipeline)
{
    struct err error;
    for (uint32_t i = pipeline->params.config->dataset_count; i > 0; i--) {
        const struct pipeline_open which = {
            .dataset = pipeline->params.config->datasets[i - 1].name, .dataset_yaml = ""};
        struct pipeline_dataset *dataset = pipeline_dataset_get(pipeline, &which, &error);
        if (dataset)
            pipeline_keep_load(dataset);
    }
    /* Most often there is nothing to load. Where the folder does not answer they come later. */
    for (int waited = 0; waited < WAIT_MS / 2; waited += STEP_MS) {
        bool all = true;
        for (const struct pipeline_dataset *at = pipeline->datasets; at; at = at->next)
            all = all && at->chores == 0;
        if (all)
            return;
        struct pollfd wait = {.fd = chores_fd(pipeline->chores), .events = POLLIN};
        poll(&wait, 1, STEP_MS);
        chores_reap(pipeline->chores);
    }
}

/* --- what was seen, for a new list --- */

void pipeline_keep_listed(struct pipeline_dataset *dataset, const struct source *source)
{
    const struct pipeline_keep *keep = &dataset->keep;
    dataset->seen_note = (struct err){0};
    if (keep->seen_name)
        dataset->seen_listed =
            pipeline_seen_open(source, keep->seen_file ? keep->seen_file : "", keep->seen_name,
                               dataset->seen_before, &dataset->seen_note);
}

void pipeline_keep_take(struct pipeline_dataset *dataset)
{
    dataset->seen = dataset->seen_listed;
    dataset->seen_listed = NULL;
    pipeline_seen_release(dataset->seen_before);
    dataset->seen_before = NULL;
    if (dataset->seen_note.text[0])
        log_line(LOG_LEVEL_WARNING, "dataset %s: %s", dataset->title, dataset->seen_note.text);
}

/* --- writing --- */

/* With what another daemon wrote meanwhile. */
static int list_write(const char *file, struct pipeline_quarantine **list)
{
    struct pipeline_quarantine *other = NULL;
    uint64_t bytes = 0;
    int lock = pipeline_kept_lock(file);
    (void)list_read(file, &other); /* one that is of no use is replaced */
    pipeline_quarantine_merge(list, other);
    pipeline_quarantine_destroy(other);
    void *packed = pipeline_quarantine_pack(*list, &bytes);
    int rc = packed ? pipeline_kept_write(file, PIPELINE_KEPT_QUARANTINE, packed, bytes) : -ENOMEM;
    pipeline_kept_unlock(lock);
    free(packed);
    return rc;
}

static struct pipeline_dataset *dataset_of(struct chore *chore)
{
    return (struct pipeline_dataset *)(void *)((char *)chore -
                                               offsetof(struct pipeline_dataset, keep.chore));
}

static void write_work(struct chore *chore)
{
    struct pipeline_keep *keep = &dataset_of(chore)->keep;
    int rc = keep->seen ? pipeline_seen_write(keep->seen, keep->bits) : 0;
    if (rc < 0)
        err_set(&keep->error, rc, "%s: %s", keep->seen->file, strerror(-rc));
    rc = keep->has_list ? list_write(keep->quarantine_file, &keep->list) : 0;
    if (rc < 0)
        err_set(&keep->error, rc, "%s: %s", keep->quarantine_file, strerror(-rc));
    atomic_store_explicit(&keep->is_done, true, memory_order_release); /* pipeline_keep_finish */
}

static void error_say(struct pipeline_dataset *dataset)
{
    struct pipeline_keep *keep = &dataset->keep;
    if (!keep->error.text[0] || keep->was_said)
        return;
    keep->was_said = true;
    log_line(
        LOG_LEVEL_WARNING,
        "dataset %s: what was seen whole and what failed cannot be kept for the next start and "
        "stays in memory: %s",
        dataset->title, keep->error.text);
}

static void write_done(struct chore *chore)
{
    struct pipeline_dataset *dataset = dataset_of(chore);
    struct pipeline_keep *keep = &dataset->keep;
    pipeline_seen_release(keep->seen);
    pipeline_quarantine_destroy(keep->list);
    free(keep->bits);
    keep->seen = NULL;
    keep->list = NULL;
    keep->bits = NULL;
    keep->is_busy = false;
    dataset->chores--;
    error_say(dataset);
    if (keep->again)
        pipeline_keep_write(dataset);
    pipeline_dataset_trim(dataset->pipeline); /* perhaps this was what it was waited for with */
}

/* Copies of what has changed. False: there is nothing to write. */
static bool copies_make(struct pipeline_dataset *dataset)
{
    struct pipeline_keep *keep = &dataset->keep;
    struct pipeline_seen *seen = dataset->seen;
    if (seen && seen->file[0] && seen->noted_count > 0) {
        keep->bits = malloc(pipeline_seen_bytes(seen));
        if (keep->bits) {
            memcpy(keep->bits, seen->bits, pipeline_seen_bytes(seen));
            keep->seen = seen;
            seen->users++;
            seen->noted_count = 0;
        }
    }
    keep->has_list = keep->quarantine_changed && keep->quarantine_file;
    if (keep->has_list) {
        keep->quarantine_changed = false;
        pipeline_quarantine_merge(&keep->list, dataset->quarantine);
    }
    return keep->seen || keep->has_list;
}

void pipeline_keep_write(struct pipeline_dataset *dataset)
{
    struct pipeline_keep *keep = &dataset->keep;
    keep->again = keep->is_busy;
    if (dataset->damaged || keep->is_busy || !copies_make(dataset))
        return;
    keep->is_busy = true;
    keep->error = (struct err){0};
    keep->written_ns = loop_now_ns();
    atomic_store_explicit(&keep->is_done, false, memory_order_relaxed);
    keep->chore.work = write_work;
    keep->chore.done = write_done;
    dataset->chores++;
    chores_add(dataset->pipeline->chores, &keep->chore);
}

void pipeline_keep_step(struct pipeline *pipeline, uint64_t now_ns)
{
    if (now_ns - pipeline->kept_ns < NS_PER_S)
        return;
    pipeline->kept_ns = now_ns;
    for (struct pipeline_dataset *at = pipeline->datasets; at; at = at->next)
        if (now_ns - at->keep.written_ns >= WRITE_EVERY_S * NS_PER_S && !at->keep.is_busy)
            pipeline_keep_write(at);
}

static bool all_written(const struct pipeline *pipeline)
{
    for (const struct pipeline_dataset *at = pipeline->datasets; at; at = at->next)
        if (at->keep.is_busy && !atomic_load_explicit(&at->keep.is_done, memory_order_acquire))
            return false;
    return true;
}

void pipeline_keep_finish(struct pipeline *pipeline)
{
    const struct timespec step = {.tv_nsec = STEP_MS * 1000000};
    for (struct pipeline_dataset *at = pipeline->datasets; at; at = at->next)
        if (at->keep.quarantine_changed || (at->seen && at->seen->noted_count > 0))
            pipeline_keep_write(at);
    for (int waited = 0; waited < WAIT_MS && !all_written(pipeline); waited += STEP_MS)
        nanosleep(&step, NULL);
    for (struct pipeline_dataset *at = pipeline->datasets; at; at = at->next)
        if (at->keep.is_busy && atomic_load_explicit(&at->keep.is_done, memory_order_acquire))
            error_say(at);
}
