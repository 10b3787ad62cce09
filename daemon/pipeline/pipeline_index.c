/* Looks at a dataset's index for who asks: lists it as a chore, beside the list that streams have,
 * and answers later. Conductor role; `work` alone is of the chores thread. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/pipeline_state.h"

enum { LOOKS_MAX = 16 };

struct pipeline_look {
    struct pipeline *pipeline;
    struct pipeline_look *next, **link;
    void (*done)(void *context, const struct pipeline_index *index, const struct err *error);
    void *context;
    uint64_t start_ns;
    struct config_dataset from;
    bool publish;
    bool is_inline; /* of a rank, not of the configuration */
    struct source_progress progress;
    struct chore chore; /* writes source, error and index */
    struct source *source;
    struct err error;
    struct pipeline_index index;
};

static struct pipeline_look *look_of(struct chore *chore)
{
    return (struct pipeline_look *)(void *)((char *)chore - offsetof(struct pipeline_look, chore));
}

/* Every fault is counted by its class; the first ones are kept. */
static void faults_take(struct pipeline_look *look)
{
    struct pipeline_index *index = &look->index;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < index->broken; i++) {
        struct source_fault fault;
        source_fault(look->source, i, &fault);
        if (fault.class_number < SPDL_CLASS_COUNT)
            index->classes[fault.class_number]++;
        bytes += strlen(fault.path) + strlen(fault.message) + fault.key_bytes;
        if (index->fault_count == PIPELINE_INDEX_FAULTS_MAX ||
            bytes > PIPELINE_INDEX_FAULT_BYTES_MAX)
            continue;
        index->faults[index->fault_count++] =
            (struct pipeline_index_fault){.shard = fault.path,
                                          .offset = fault.offset,
                                          .class_number = fault.class_number,
                                          .key = fault.key,
                                          .key_bytes = fault.key_bytes,
                                          .message = fault.message};
    }
}

static void look_work(struct chore *chore)
{
    struct pipeline_look *look = look_of(chore);
    struct pipeline_index *index = &look->index;
    struct source_kept kept = {.file = ""};
    int rc = pipeline_dataset_list(look->pipeline, &look->from, &look->progress, &look->source,
                                   &look->error);
    if (rc < 0) {
        look->source = NULL;
        look->error.code = rc;
        return;
    }
    index->published = "";
    if (look->publish && source_publish(look->source, &index->published, &look->error) < 0) {
        source_close(look->source);
        look->source = NULL;
        return;
    }
    const struct source_counts *counts = source_counts(look->source);
    source_id(look->source, &index->id_high, &index->id_low);
    source_kept(look->source, &kept);
    index->samples = counts->samples;
    index->shards = counts->shards;
    index->ignored = counts->ignored;
    index->broken = counts->broken;
    index->largest_bytes = counts->largest_bytes;
    index->note = counts->note;
    index->file = kept.file;
    index->index_bytes = kept.bytes;
    index->read_shards = kept.read_shards;
    index->name_count = source_part_names(look->source, index->names, FIELD_MAX);
    faults_take(look);
}

static void look_free(struct pipeline_look *look)
{
    *look->link = look->next;
    if (look->next)
        look->next->link = look->link;
    look->pipeline->look_count--;
    source_close(look->source);
    free(look);
}

static void look_done(struct chore *chore)
{
    struct pipeline_look *look = look_of(chore);
    look->index.seconds = (double)(loop_now_ns() - look->start_ns) * 1e-9;
    look->done(look->context, look->source ? &look->index : NULL, &look->error);
    look_free(look);
}

int pipeline_index(struct pipeline *pipeline, const struct pipeline_open *which, bool publish,
                   void (*done)(void *context, const struct pipeline_index *index,
                                const struct err *error),
                   void *context, struct err *reterr)
{
    if (pipeline->look_count == LOOKS_MAX)
        return err_set(reterr, -EAGAIN, "%d datasets are being looked at; try again", LOOKS_MAX);
    const struct pipeline_dataset *dataset = pipeline_dataset_get(pipeline, which, reterr);
    if (!dataset)
        return reterr->code;
    struct pipeline_look *look = calloc(1, sizeof *look);
    if (!look)
        return err_set(reterr, -ENOMEM, "no memory to look at the dataset");
    look->pipeline = pipeline;
    look->done = done;
    look->context = context;
    look->start_ns = loop_now_ns();
    look->from = dataset->config;
    look->publish = publish;
    look->is_inline = dataset->yaml != NULL;
    look->chore.work = look_work;
    look->chore.done = look_done;
    look->next = pipeline->looks;
    look->link = &pipeline->looks;
    if (look->next)
        look->next->link = &look->next;
    pipeline->looks = look;
    pipeline->look_count++;
    pipeline_dataset_trim(pipeline);
    chores_add(pipeline->listers, &look->chore);
    return 0;
}

const struct source_progress *pipeline_index_progress(const struct pipeline_dataset *dataset)
{
    for (const struct pipeline_look *look = dataset->pipeline->looks; look; look = look->next)
        if (look->is_inline == (dataset->yaml != NULL) &&
            strcmp(look->from.name, dataset->config.name) == 0)
            return &look->progress;
    return NULL;
}

void pipeline_index_free_all(struct pipeline *pipeline)
{
    for (struct pipeline_look *look = pipeline->looks, *next; look; look = next) {
        next = look->next;
        look_free(look);
    }
}
