/* Recipes: which parts of a sample its fields need, and which ranges of files are read for them.
 * Parts that lie close together in one file are read as one. Pure; conductor role; no allocation.
 */
#include <string.h>

#include "pipeline/pipeline_state.h"

/* Bytes between two parts of one file that are read with them rather than apart: a tar header and
 * padding, and no more than a read costs. */
enum { GAP_BYTES = 16384, NO_PART = SOURCE_PARTS_MAX };

/* The part that a field is made from: the first name of `from` that the sample has. */
static uint32_t part_of(const struct field_spec *field, const struct source_sample *sample)
{
    for (uint32_t n = 0; n < field->from_count; n++)
        for (uint32_t p = 0; p < sample->part_count; p++)
            if (strcmp(field->from[n], sample->parts[p].name) == 0)
                return p;
    return NO_PART;
}

_Static_assert((int)SPDL_WORK_PARTS_MAX >= (int)FIELD_MAX, "there is room for each field's part");

/* Puts the part among those of the recipe, once. */
static void need(struct pipeline_recipe *recipe, const struct source_part *part,
                 uint8_t *ret_number)
{
    uint32_t i = 0;
    while (i < recipe->part_count && recipe->parts[i] != part)
        i++;
    if (i == recipe->part_count)
        recipe->parts[recipe->part_count++] = part;
    *ret_number = (uint8_t)i;
}

static bool same_file(const struct source_part *a, const struct source_part *b)
{
    return a->root_fd == b->root_fd && a->file == b->file && (a->file >= 0 || a->path == b->path);
}

static bool before(const struct source_part *a, const struct source_part *b)
{
    return a->file != b->file ? a->file < b->file : a->offset < b->offset;
}

/* Numbers of the parts that are ranges of files, those of one file together and in its order. */
static uint32_t sorted_files(const struct pipeline_recipe *recipe,
                             uint32_t sorted[SPDL_WORK_PARTS_MAX])
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < recipe->part_count; p++) {
        if (recipe->parts[p]->kind != SOURCE_PART_FILE)
            continue;
        uint32_t at = count++;
        for (; at > 0 && before(recipe->parts[p], recipe->parts[sorted[at - 1]]); at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = p;
    }
    return count;
}

static void spans_make(struct pipeline_recipe *recipe)
{
    uint32_t sorted[SPDL_WORK_PARTS_MAX];
    uint32_t count = sorted_files(recipe, sorted);
    struct pipeline_span *span = NULL;
    for (uint32_t i = 0; i < count; i++) {
        const struct source_part *part = recipe->parts[sorted[i]];
        uint64_t end = part->offset + part->bytes;
        bool joins = span && same_file(span->file, part) &&
                     part->offset <= span->offset + span->bytes + GAP_BYTES;
        if (!joins) {
            uint64_t at = span ? span->blob_at + span->bytes : 0;
            span = &recipe->spans[recipe->span_count++];
            *span = (struct pipeline_span){
                .file = part, .offset = part->offset, .bytes = 0, .blob_at = at};
        }
        if (end > span->offset + span->bytes)
            span->bytes = end - span->offset;
        recipe->blob_at[sorted[i]] = span->blob_at + (part->offset - span->offset);
    }
    if (span) /* an empty file is opened too: it may be missing, or filled by now */
        recipe->blob_bytes = span->blob_at + span->bytes > 0 ? span->blob_at + span->bytes : 1;
}

/* The bytes of one file are the row as they stand: no codec need look at them. */
static bool is_in_place(const struct pipeline_dataset *dataset,
                        const struct pipeline_recipe *recipe)
{
    const struct source_part *part = recipe->part_count > 0 ? recipe->parts[0] : NULL;
    const struct field_spec *field = &dataset->fields[0];
    if (!dataset->is_raw || !part || part->kind != SOURCE_PART_FILE || part->bytes == 0 ||
        part->escape != 0)
        return false;
    return field->ragged ? part->bytes <= field->row_bytes : part->bytes == field->row_bytes;
}

void pipeline_recipe_make(const struct pipeline_stream *stream, const struct source_sample *sample,
                          struct pipeline_recipe *ret_recipe)
{
    const struct pipeline_dataset *dataset = stream->dataset;
    ret_recipe->class_number = SPDL_CLASS_OK;
    ret_recipe->blob_bytes = 0;
    ret_recipe->in_place = false;
    ret_recipe->part_count = ret_recipe->span_count = 0;
    for (uint32_t f = 0; f < dataset->field_count; f++) {
        uint32_t part = part_of(&dataset->fields[f], sample);
        if (part == NO_PART && dataset->fields[f].missing_empty) {
            ret_recipe->field_part[f] = SPDL_WORK_NO_PART;
            continue;
        }
        if (part == NO_PART) {
            ret_recipe->class_number = SPDL_CLASS_INCOMPLETE;
            ret_recipe->missing_field = (uint8_t)f;
            return;
        }
        if (sample->parts[part].bytes > stream->pipeline->params.config->max_sample_bytes) {
            ret_recipe->class_number = SPDL_CLASS_LIMIT;
            return;
        }
        need(ret_recipe, &sample->parts[part], &ret_recipe->field_part[f]);
    }
    spans_make(ret_recipe);
    ret_recipe->in_place = is_in_place(dataset, ret_recipe);
}
