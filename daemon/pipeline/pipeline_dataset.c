/* Datasets: those of the configuration and those that ranks of a private daemon bring. Lists them
 * as chores. Conductor role. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dirs.h"
#include "base/log.h"
#include "pipeline/pipeline_state.h"

int pipeline_dataset_list(const struct pipeline *pipeline, const struct config_dataset *config,
                          struct source_progress *progress, struct source **ret_source,
                          struct err *reterr)
{
    const struct config_source *source = &config->source;
    struct source_spec *spec = calloc(1, sizeof *spec);
    *ret_source = NULL;
    if (!spec)
        return err_set(reterr, -ENOMEM, "no memory to list the dataset");
    spec->samples = source->samples;
    spec->bytes = source->bytes;
    spec->fields = config->fields;
    spec->field_count = config->field_count;
    spec->progress = progress;
    _Static_assert(sizeof spec->kind == sizeof source->kind, "one size of kinds");
    _Static_assert(sizeof spec->path == sizeof source->path, "one size of paths");
    memcpy(spec->kind, source->kind, sizeof spec->kind);
    memcpy(spec->path, source->path, sizeof spec->path);
    _Static_assert(sizeof spec->root == sizeof source->root, "one size of roots");
    _Static_assert(sizeof spec->path_column == sizeof source->path_column, "one size of names");
    memcpy(spec->root, source->root, sizeof spec->root);
    memcpy(spec->path_column, source->path_column, sizeof spec->path_column);
    memcpy(spec->label_column, source->label_column, sizeof spec->label_column);
    dirs_index(pipeline->params.config->index_dir, pipeline->params.is_private, spec->index_dir,
               sizeof spec->index_dir);
    int rc = source_open(spec, ret_source, reterr);
    free(spec);
    return rc;
}

static void list_work(struct chore *chore)
{
    struct pipeline_dataset *dataset =
        (struct pipeline_dataset *)(void *)((char *)chore -
                                            offsetof(struct pipeline_dataset, chore));
    dataset->list_error = (struct err){0};
    int rc = pipeline_dataset_list(dataset->pipeline, &dataset->config, &dataset->progress,
                                   &dataset->listed, &dataset->list_error);
    if (rc < 0) {
        dataset->listed = NULL;
        dataset->list_error.code = rc;
    } else {
        pipeline_keep_listed(dataset, dataset->listed);
    }
}

/* A source whose samples do not all have the same parts: what would be rows for all of them has to
 * be said. */
static int parts_check(const struct pipeline_dataset *dataset, const char *const *names,
                       uint32_t count, struct err *reterr)
{
    struct source_sample sample;
    source_sample(dataset->source, 0, &sample);
    if (count <= sample.part_count)
        return 0;
    char list[FIELD_MAX * (FIELD_PART_BYTES + 1)] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, " %s", names[i]);
    return err_set(reterr, -EINVAL,
                   "no preset and no fields, and not every sample has all of the parts%s: say in "
                   "fields what a row is made from, such as fields: {image: {from: [jpg, png], "
                   "decode: raw}}",
                   list);
}

/* Without fields of its own, every part comes raw under its own name. */
static int parts_make(struct pipeline_dataset *dataset, struct err *reterr)
{
    const char *names[FIELD_MAX];
    uint32_t count = source_part_names(dataset->source, names, FIELD_MAX);
    int rc = parts_check(dataset, names, count, reterr);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < count; i++) {
        struct field_spec *field = &dataset->fields[i];
        bool is_class = strcmp(names[i], "cls") == 0;
        if (strlen(names[i]) >= sizeof field->from[0])
            return err_set(reterr, -EINVAL,
                           "no preset and no fields, and the name of part %s has more than %d "
                           "letters: say in fields what a row is made from",
                           names[i], FIELD_PART_BYTES - 1);
        *field = (struct field_spec){.from_count = 1};
        strncpy(field->name, names[i], sizeof field->name - 1);
        strncpy(field->from[0], names[i], sizeof field->from[0] - 1);
        memcpy(field->decoder, is_class ? "class" : "raw", is_class ? 6 : 4);
        if (!is_class)
            field->bytes = dataset->config.source.bytes; /* 0 unless all are of one size */
        if (field_finish(field, reterr) < 0)
            return err_prefix(reterr, "no preset and no fields, so every part comes raw: ");
    }
    dataset->field_count = count;
    return 0;
}

/* Ends the source, and what is open for it in the engine. */
static void close_source(struct pipeline_dataset *dataset)
{
    struct pipeline *pipeline = dataset->pipeline;
    if (dataset->source && pipeline->spare_fetch)
        fetch_forget(pipeline->spare_fetch, dataset->source);
    for (uint32_t i = 0; dataset->source && i < PIPELINE_WORKERS_MAX; i++)
        if (pipeline->seats[i].phase == SEAT_OPEN && pipeline->seats[i].fetch)
            fetch_forget(pipeline->seats[i].fetch, dataset->source);
    source_close(dataset->source);
    dataset->source = NULL;
    if (pipeline->looked.dataset == dataset)
        pipeline->looked.dataset = NULL; /* points into the source */
}

static int fields_make(struct pipeline_dataset *dataset, struct err *reterr)
{
    dataset->field_count = dataset->config.field_count;
    memcpy(dataset->fields, dataset->config.fields, sizeof dataset->fields);
    int rc = dataset->field_count > 0 ? 0 : parts_make(dataset, reterr);
    uint64_t largest = source_counts(dataset->source)->largest_bytes;
    for (uint32_t f = 0; f < dataset->field_count; f++)
        field_set_largest(&dataset->fields[f], largest > 0 ? largest : 1);
    const struct field_spec *first = &dataset->fields[0];
    dataset->is_raw = dataset->field_count == 1 && (first->bytes > 0 || first->ragged) &&
                      (strcmp(first->decoder, "raw") == 0 || strcmp(first->decoder, "text") == 0);
    return rc;
}

static void list_done(struct chore *chore)
{
    struct pipeline_dataset *dataset =
        (struct pipeline_dataset *)(void *)((char *)chore -
                                            offsetof(struct pipeline_dataset, chore));
    const char *name = dataset->config.name;
    dataset->source = dataset->listed;
    dataset->listed = NULL;
    if (dataset->source && fields_make(dataset, &dataset->list_error) < 0)
        close_source(dataset);
    dataset->state = dataset->source ? DATASET_LISTED : DATASET_FAILED;
    pipeline_keep_take(dataset);
    if (dataset->source) {
        const struct source_counts *counts = source_counts(dataset->source);
        pipeline_dataset_left_out(dataset);
        const struct log_field fields[] = {
            {LOG_ID, LOG_ID_DATASET_LISTED}, {"SPDL_DATASET", name}, {NULL, NULL}};
        enum log_level level = /* perhaps a whole class is not there */
            counts->unreadable_folders > 0 ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO;
        log_event(level, fields, "dataset %s: %llu samples%s%s", dataset->title,
                  (unsigned long long)counts->samples, counts->note[0] ? "; " : "", counts->note);
    }
    dataset->users++; /* it stays while its streams are told, and may go then */
    while (dataset->waiting) {
        struct pipeline_stream *stream = dataset->waiting;
        dataset->waiting = stream->next_waiting;
        pipeline_stream_listed(stream);
    }
    pipeline_dataset_leave(dataset);
}

const char *pipeline_dataset_damaged(struct pipeline_dataset *dataset)
{
    const char *file = dataset->source ? source_damaged(dataset->source) : NULL;
    if (!file || dataset->damaged)
        return file;
    dataset->damaged = dataset->retired = true;
    log_line(LOG_LEVEL_ERROR,
             "dataset %s: the index file %s was cut or written over while it was in use; its "
             "streams end, and the index is made anew when the dataset is opened again",
             dataset->config.name, file);
    return file;
}

static void list_start(struct pipeline_dataset *dataset)
{
    pipeline_keep_load(dataset); /* of one that a rank brought */
    dataset->state = DATASET_LISTING;
    dataset->progress = (struct source_progress){0};
    dataset->chore.work = list_work;
    dataset->chore.done = list_done;
    chores_add(dataset->pipeline->listers, &dataset->chore);
}

void pipeline_dataset_join(struct pipeline_dataset *dataset, struct pipeline_stream *stream)
{
    bool first = dataset->users++ == 0;
    if (first && (dataset->state == DATASET_LISTED || dataset->state == DATASET_FAILED)) {
        dataset->seen_before = dataset->seen; /* what did not change is still known */
        dataset->seen = NULL;
        close_source(dataset); /* the files may be others by now */
        dataset->state = DATASET_NOT_LISTED;
    }
    if (dataset->state == DATASET_LISTED || (dataset->state == DATASET_FAILED && !first)) {
        pipeline_stream_listed(stream);
        return;
    }
    stream->next_waiting = dataset->waiting;
    dataset->waiting = stream;
    if (dataset->state == DATASET_NOT_LISTED)
        list_start(dataset);
}

static void dataset_free(struct pipeline_dataset *dataset)
{
    pipeline_quarantine_destroy(dataset->quarantine);
    pipeline_keep_end(dataset);
    close_source(dataset);
    source_close(dataset->listed);
    free(dataset->yaml);
    free(dataset->title);
    free(dataset);
}

static bool is_unused(const struct pipeline_dataset *dataset)
{
    return dataset->users == 0 && dataset->state != DATASET_LISTING && dataset->chores == 0;
}

static void trim_retired(struct pipeline *pipeline)
{
    for (struct pipeline_dataset **at = &pipeline->datasets; *at;) {
        struct pipeline_dataset *gone = *at;
        if (!gone->retired || !is_unused(gone)) {
            at = &gone->next;
            continue;
        }
        *at = gone->next;
        dataset_free(gone);
    }
}

/* One that a rank brought is kept a while for its other ranks and for its return; the oldest unused
 * one goes when there are too many. */
void pipeline_dataset_trim(struct pipeline *pipeline)
{
    trim_retired(pipeline);
    uint32_t count = 0;
    struct pipeline_dataset **oldest = NULL;
    for (struct pipeline_dataset **at = &pipeline->datasets; *at; at = &(*at)->next) {
        if (!(*at)->yaml)
            continue;
        count++;
        if (is_unused(*at))
            oldest = at; /* new ones stand in front */
    }
    if (count > PIPELINE_INLINE_MAX && oldest) {
        struct pipeline_dataset *gone = *oldest;
        *oldest = gone->next;
        dataset_free(gone);
    }
}

void pipeline_dataset_leave(struct pipeline_dataset *dataset)
{
    if (--dataset->users == 0)
        pipeline_keep_write(dataset);
    pipeline_dataset_trim(dataset->pipeline);
}

void pipeline_dataset_free_all(struct pipeline *pipeline)
{
    while (pipeline->datasets) {
        struct pipeline_dataset *next = pipeline->datasets->next;
        while (pipeline->datasets->waiting) {
            struct pipeline_stream *stream = pipeline->datasets->waiting;
            pipeline->datasets->waiting = stream->next_waiting;
            free(stream);
        }
        dataset_free(pipeline->datasets);
        pipeline->datasets = next;
    }
}

static struct pipeline_dataset *add(struct pipeline *pipeline, const struct config_dataset *config,
                                    const char *yaml, struct err *reterr)
{
    struct pipeline_dataset *dataset = calloc(1, sizeof *dataset);
    char text[512]; /* of its source, for one without a name */
    pipeline_dataset_source_text(&config->source, text, sizeof text);
    if (dataset && yaml)
        dataset->yaml = strdup(yaml);
    if (dataset)
        dataset->title = strdup(config->name[0] ? config->name : text);
    if (!dataset || !dataset->title || (yaml && !dataset->yaml)) {
        if (dataset) {
            free(dataset->yaml);
            free(dataset->title);
        }
        free(dataset);
        err_set(reterr, -ENOMEM, "no memory for a dataset");
        return NULL;
    }
    dataset->pipeline = pipeline;
    dataset->config = *config;
    dataset->next = pipeline->datasets;
    pipeline->datasets = dataset;
    pipeline_keep_begin(dataset);
    return dataset;
}

/* One that nobody uses is listed anew in any case. */
static bool is_usable(struct pipeline_dataset *dataset)
{
    return dataset->users == 0 || !pipeline_dataset_damaged(dataset);
}

static struct pipeline_dataset *get_inline(struct pipeline *pipeline, const char *yaml,
                                           struct err *reterr)
{
    if (!pipeline->params.is_private) {
        err_set(reterr, -EACCES,
                "this daemon serves the datasets of its configuration only; a folder of one's own "
                "is served by a private "
                "daemon (--private)");
        return NULL;
    }
    if (strlen(yaml) > PIPELINE_YAML_MAX) {
        err_set(reterr, -EINVAL, "the dataset's YAML is longer than %d bytes", PIPELINE_YAML_MAX);
        return NULL;
    }
    for (struct pipeline_dataset *dataset = pipeline->datasets; dataset; dataset = dataset->next)
        if (dataset->yaml && !dataset->retired && strcmp(dataset->yaml, yaml) == 0 &&
            is_usable(dataset))
            return dataset;
    struct config_dataset *config = calloc(1, sizeof *config);
    struct config_complaints *complaints = calloc(1, sizeof *complaints);
    struct pipeline_dataset *dataset = NULL;
    if (!config || !complaints)
        err_set(reterr, -ENOMEM, "no memory for a dataset");
    else if (config_dataset_read(yaml, strlen(yaml), "dataset", pipeline->params.config, config,
                                 complaints) < 0)
        err_set(reterr, -EINVAL, "%s",
                complaints->count > 0 ? complaints->lines[0] : "the dataset is not valid");
    else
        dataset = add(pipeline, config, yaml, reterr);
    if (dataset && !dataset->config.name[0])
        memcpy(dataset->config.name, "(given)", sizeof "(given)");
    free(config);
    free(complaints);
    return dataset;
}

/* Is it the one that streams get by the name of this one of the configuration? */
static bool is_of(const struct pipeline_dataset *dataset, const struct config_dataset *config)
{
    return !dataset->yaml && !dataset->retired && strcmp(dataset->config.name, config->name) == 0;
}

void pipeline_dataset_review(struct pipeline *pipeline)
{
    for (struct pipeline_dataset *dataset = pipeline->datasets; dataset; dataset = dataset->next) {
        const struct config_dataset *now =
            config_dataset_find(pipeline->params.config, dataset->config.name);
        /* Bytes that differ and mean the same cost a list more, and nothing else. */
        if (!dataset->yaml && (!now || memcmp((const uint8_t *)now,
                                              (const uint8_t *)&dataset->config, sizeof *now) != 0))
            dataset->retired = true;
    }
    pipeline_dataset_trim(pipeline);
}

struct pipeline_dataset *pipeline_dataset_get(struct pipeline *pipeline,
                                              const struct pipeline_open *open, struct err *reterr)
{
    if (open->dataset_yaml[0])
        return get_inline(pipeline, open->dataset_yaml, reterr);
    const struct config_dataset *config =
        config_dataset_find(pipeline->params.config, open->dataset);
    if (!config) {
        (void)config_dataset_unknown(pipeline->params.config, open->dataset, reterr);
        return NULL;
    }
    for (struct pipeline_dataset *dataset = pipeline->datasets; dataset; dataset = dataset->next)
        if (is_of(dataset, config) && is_usable(dataset))
            return dataset;
    return add(pipeline, config, NULL, reterr);
}

void pipeline_dataset_source_text(const struct config_source *source, char *text, size_t bytes)
{
    if (source->samples > 0)
        snprintf(text, bytes, "%s:%llu samples of %llu bytes", source->kind,
                 (unsigned long long)source->samples, (unsigned long long)source->bytes);
    else
        snprintf(text, bytes, "%s:%.490s", source->kind, source->path);
    for (char *at = text; (at = strchr(at, '\n')) != NULL;) /* several paths stand one a line */
        *at = ' ';
}

static const char *state_name(enum dataset_state state)
{
    static const char *const names[] = {"not-listed", "listing", "listed", "failed"};
    return names[state];
}

static void progress_take(const struct pipeline_dataset *dataset,
                          struct pipeline_dataset_status *status)
{
    const struct source_progress *progress =
        dataset->state == DATASET_LISTING ? &dataset->progress : pipeline_index_progress(dataset);
    if (!progress || !pipeline_progress_words(progress, status->progress, sizeof status->progress))
        return;
    status->read_bytes = atomic_load_explicit(&progress->bytes_done, memory_order_relaxed);
    status->reading_bytes = atomic_load_explicit(&progress->bytes, memory_order_relaxed);
}

bool pipeline_dataset_status(const struct pipeline *pipeline, uint32_t index,
                             struct pipeline_dataset_status *ret_status)
{
    const struct config *config = pipeline->params.config;
    const struct config_dataset *from =
        index < config->dataset_count ? &config->datasets[index] : NULL;
    const struct pipeline_dataset *dataset = pipeline->datasets;
    uint32_t skip = from ? 0 : index - config->dataset_count;
    for (; dataset; dataset = dataset->next) {
        if (from && is_of(dataset, from))
            break;
        if (!from && (dataset->yaml || dataset->retired) && skip-- == 0)
            break;
    }
    if (!from && !dataset)
        return false;
    const struct config_dataset *shown = dataset ? &dataset->config : from;
    *ret_status = (struct pipeline_dataset_status){
        .name = shown->name,
        .state = state_name(dataset ? dataset->state : DATASET_NOT_LISTED),
        .note = "",
        .short_rows = dataset ? dataset->short_rows : 0,
        .field_count = dataset && dataset->source ? dataset->field_count : shown->field_count,
        .fields = dataset && dataset->source ? dataset->fields : shown->fields};
    pipeline_dataset_source_text(&shown->source, ret_status->source, sizeof ret_status->source);
    if (dataset && dataset->state == DATASET_FAILED)
        ret_status->note = dataset->list_error.text;
    if (dataset)
        progress_take(dataset, ret_status);
    if (dataset && dataset->source) {
        const struct source_counts *counts = source_counts(dataset->source);
        ret_status->samples = counts->samples;
        ret_status->classes = counts->classes;
        ret_status->ignored = counts->ignored;
        ret_status->seen = dataset->seen ? dataset->seen->seen_count : 0;
        ret_status->note = counts->note;
    }
    if (dataset && dataset->damaged)
        ret_status->note = "its index was cut or written over: its streams end";
    else if (dataset && dataset->retired)
        ret_status->note = "no longer in the configuration: the streams that it has go on";
    return true;
}
