/* What all sources have in common: the choice of the kind, and access by its table. */
#include "source/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "source/source_glob.h"

static void kinds_into(char *text, size_t room)
{
    text[0] = 0;
    for (const struct source_ops *const *row = source_table; *row; row++) {
        size_t used = strlen(text), more = strlen((*row)->kind);
        if (used + more + 2 > room)
            return;
        if (used > 0)
            text[used++] = ' ';
        memcpy(text + used, (*row)->kind, more + 1);
    }
}

int source_open(const struct source_spec *spec, struct source **ret_source, struct err *reterr)
{
    *ret_source = NULL;
    for (const struct source_ops *const *row = source_table; *row; row++)
        if (strncmp(spec->kind, (*row)->kind, sizeof spec->kind) == 0)
            return (*row)->open(spec, ret_source, reterr);
    char kinds[128];
    kinds_into(kinds, sizeof kinds);
    return err_set(reterr, -EINVAL, "there is no source of the kind '%.*s'; there are: %s",
                   (int)sizeof spec->kind, spec->kind, kinds);
}

char *source_place(const struct source_spec *spec)
{
    char *path = source_glob_absolute(spec->path), *text = NULL;
    if (path && asprintf(&text, "%.*s\n%s\n", (int)sizeof spec->kind, spec->kind, path) < 0)
        text = NULL;
    free(path);
    return text;
}

void source_close(struct source *source)
{
    if (source)
        source->ops->close(source);
}

const struct source_counts *source_counts(const struct source *source)
{
    return &source->counts;
}

void source_id(const struct source *source, uint64_t *ret_high, uint64_t *ret_low)
{
    *ret_high = source->id_high;
    *ret_low = source->id_low;
}

void source_sample(const struct source *source, uint64_t id, struct source_sample *ret_sample)
{
    ASSERT(id < source->counts.samples);
    source->ops->sample(source, id, ret_sample);
}

const uint64_t *source_shards(const struct source *source)
{
    return source->ops->shards ? source->ops->shards(source) : NULL;
}

void source_fault(const struct source *source, uint64_t index, struct source_fault *ret_fault)
{
    ASSERT(index < source->counts.broken && source->ops->fault);
    source->ops->fault(source, index, ret_fault);
}

bool source_kept(const struct source *source, struct source_kept *ret_kept)
{
    if (!source->ops->kept)
        return false;
    source->ops->kept(source, ret_kept);
    return true;
}

int source_publish(const struct source *source, const char **ret_file, struct err *reterr)
{
    if (!source->ops->publish)
        return err_set(reterr, -ENOTSUP, "a source of the kind '%s' has no index to publish",
                       source->ops->kind);
    return source->ops->publish(source, ret_file, reterr);
}

const char *source_damaged(const struct source *source)
{
    return source->ops->damaged ? source->ops->damaged(source) : NULL;
}

uint32_t source_part_names(const struct source *source, const char **names, uint32_t max)
{
    return source->ops->part_names(source, names, max);
}

bool source_warms(const struct source *source)
{
    return source->ops->warm != NULL;
}

void source_warm(const struct source *source, uint64_t id, enum source_warmth warmth)
{
    if (source->ops->warm)
        source->ops->warm(source, id, warmth);
}
