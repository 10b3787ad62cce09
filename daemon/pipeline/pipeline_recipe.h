/* Recipes: which parts of a sample its fields need, and which ranges of files are read for them.
 * For the files of the pipeline; conductor role. */
#ifndef SPDLD_PIPELINE_RECIPE_H
#define SPDLD_PIPELINE_RECIPE_H

#include <stdint.h>

#include "item/class.h"
#include "item/field.h"
#include "shm/shm_work.h"
#include "source/source.h"

struct pipeline_dataset;
struct pipeline_stream;

/* What a row is made from: the parts that its fields need, and the ranges of files that hold them.
 */
struct pipeline_span {
    const struct source_part
        *file;              /* any part of the span: root, path, size and time of its file */
    uint64_t offset, bytes; /* in the file */
    uint64_t blob_at;       /* in the row's blob */
};
struct pipeline_recipe {
    enum spdl_class class_number; /* not OK: it cannot be made */
    uint8_t missing_field;        /* INCOMPLETE: the first that the sample has no part for */
    uint64_t blob_bytes;          /* 0: nothing is read */
    bool in_place;                /* its only span is the row as it stands */
    uint32_t part_count, span_count;
    const struct source_part *parts[SPDL_WORK_PARTS_MAX];
    uint64_t blob_at[SPDL_WORK_PARTS_MAX]; /* FILE: where the part is in the blob */
    uint8_t field_part[FIELD_MAX];         /* which of the parts each field is made from */
    struct pipeline_span spans[SPDL_WORK_PARTS_MAX];
};

/* The sample that was looked up last, for the read that most often follows. */
struct pipeline_looked {
    const struct pipeline_dataset *dataset; /* NULL: none */
    uint64_t id;
    struct source_sample sample;
    struct pipeline_recipe recipe; /* points into the sample */
};

/* The recipe points into the sample. */
void pipeline_recipe_make(const struct pipeline_stream *stream, const struct source_sample *sample,
                          struct pipeline_recipe *ret_recipe);

#endif
