/* Looking things up in a block: see source_block.h. Damaged numbers lead to an empty answer. */
#include "source/source_block.h"

#include <stdlib.h>
#include <string.h>

static bool section_fits(const struct source_block *block, uint64_t at, uint64_t count,
                         uint64_t each)
{
    return at >= sizeof *block && at <= block->bytes && at % 8 == 0 &&
           count * each <= block->bytes - at;
}

bool source_block_check(const struct source_block *block, uint64_t bytes)
{
    return bytes >= sizeof *block && block->bytes == bytes && bytes % 8 == 0 &&
           section_fits(block, block->samples_at, block->sample_count,
                        sizeof(struct source_block_sample)) &&
           block->is_wide <= 1 &&
           section_fits(block, block->parts_at, block->part_count,
                        block->is_wide ? sizeof(struct source_block_wide_part)
                                       : sizeof(struct source_block_part)) &&
           section_fits(block, block->shapes_at, block->shape_count,
                        sizeof(struct source_block_shape)) &&
           section_fits(block, block->shape_names_at, block->shape_name_count, sizeof(uint32_t)) &&
           section_fits(block, block->names_at, block->name_count, sizeof(uint32_t)) &&
           section_fits(block, block->faults_at, block->fault_count,
                        sizeof(struct source_block_fault)) &&
           section_fits(block, block->text_at, block->text_bytes, 1) && block->text_bytes > 0 &&
           ((const char *)block)[block->text_at + block->text_bytes - 1] == 0;
}

static const void *section(const struct source_block *block, uint64_t at)
{
    return (const char *)block + at;
}

static const char *text_of(const struct source_block *block, uint32_t at, uint32_t bytes)
{
    const char *text = section(block, block->text_at);
    return at < block->text_bytes && bytes <= block->text_bytes - at ? text + at : NULL;
}

const char *source_block_name(const struct source_block *block, uint32_t number)
{
    const uint32_t *names = section(block, block->names_at);
    const char *name = number < block->name_count ? text_of(block, names[number], 1) : NULL;
    return name ? name : "";
}

/* How many parts a sample has, and the numbers of their names (NULL: they stand with the parts). 0:
 * none, or it is damaged. */
static uint32_t parts_of(const struct source_block *block, const struct source_block_sample *sample,
                         const uint32_t **ret_names)
{
    const struct source_block_shape *shapes = section(block, block->shapes_at);
    uint32_t count = sample->shape;
    *ret_names = NULL;
    if (!block->is_wide) {
        const struct source_block_shape *shape = &shapes[sample->shape];
        if (sample->shape >= block->shape_count || shape->first_name > block->shape_name_count ||
            shape->part_count > block->shape_name_count - shape->first_name)
            return 0;
        count = shape->part_count;
        *ret_names = (const uint32_t *)section(block, block->shape_names_at) + shape->first_name;
    }
    return count <= SOURCE_BLOCK_PARTS_MAX && sample->first_part <= block->part_count &&
                   count <= block->part_count - sample->first_part
               ? count
               : 0;
}

static void part_fill(const struct source_block *block, uint32_t number, const uint32_t *name,
                      struct source_part *ret_part)
{
    const struct source_block_wide_part *wide = section(block, block->parts_at);
    const struct source_block_part *parts = section(block, block->parts_at);
    uint32_t unit = name ? parts[number].unit : wide[number].unit;
    *ret_part =
        (struct source_part){.kind = SOURCE_PART_FILE,
                             .name = source_block_name(block, name ? *name : wide[number].name),
                             .offset = (uint64_t)unit * SOURCE_BLOCK_UNIT,
                             .bytes = name ? parts[number].bytes : wide[number].bytes};
}

void source_block_sample(const struct source_block *block, uint32_t number,
                         struct source_sample *ret_sample)
{
    const struct source_block_sample *samples = section(block, block->samples_at);
    const uint32_t *names;
    ret_sample->key = "";
    ret_sample->key_bytes = ret_sample->part_count = 0;
    if (number >= block->sample_count)
        return;
    const struct source_block_sample *sample = &samples[number];
    const char *key = text_of(block, sample->key_at, sample->key_bytes);
    if (!key || sample->key_bytes > SOURCE_KEY_BYTES)
        return;
    ret_sample->key = key;
    ret_sample->key_bytes = sample->key_bytes;
    ret_sample->part_count = parts_of(block, sample, &names);
    for (uint32_t i = 0; i < ret_sample->part_count; i++)
        part_fill(block, sample->first_part + i, names ? names + i : NULL, &ret_sample->parts[i]);
}

/* What the sample's parts are good for. */
static uint32_t has_of(const struct source_block *block, uint32_t number, const uint32_t *has)
{
    const struct source_block_sample *sample =
        (const struct source_block_sample *)section(block, block->samples_at) + number;
    const struct source_block_wide_part *wide = section(block, block->parts_at);
    const uint32_t *names;
    uint32_t count = parts_of(block, sample, &names), bits = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t name = names ? names[i] : wide[sample->first_part + i].name;
        bits |= name < block->name_count ? has[name] : 0;
    }
    return bits;
}

/* Can it be that a sample lacks something? By the shapes alone. */
static bool may_lack(const struct source_block *block, const uint32_t *has, uint32_t all)
{
    const struct source_block_shape *shapes = section(block, block->shapes_at);
    const uint32_t *names = section(block, block->shape_names_at);
    for (uint32_t s = 0; s < block->shape_count; s++) {
        uint32_t bits = 0;
        for (uint32_t i = 0; i < shapes[s].part_count; i++) {
            uint64_t at = (uint64_t)shapes[s].first_name + i;
            bits |=
                at < block->shape_name_count && names[at] < block->name_count ? has[names[at]] : 0;
            if (at >= block->shape_name_count)
                return true;
        }
        if ((bits & all) != all)
            return true;
    }
    return block->is_wide != 0;
}

uint32_t source_block_lacking(const struct source_block *block, const uint32_t *has, uint32_t all,
                              uint32_t **ret_numbers)
{
    uint32_t count = 0;
    *ret_numbers = NULL;
    if (!may_lack(block, has, all))
        return 0;
    for (uint32_t i = 0; i < block->sample_count; i++)
        count += (has_of(block, i, has) & all) != all;
    if (count == 0)
        return 0;
    *ret_numbers = malloc(count * sizeof **ret_numbers);
    if (!*ret_numbers)
        return UINT32_MAX;
    for (uint32_t i = 0, at = 0; i < block->sample_count && at < count; i++)
        if ((has_of(block, i, has) & all) != all)
            (*ret_numbers)[at++] = i;
    return count;
}

void source_block_warm(const struct source_block *block, uint32_t number, bool near)
{
    const struct source_block_sample *samples = section(block, block->samples_at);
    if (number >= block->sample_count)
        return;
    const struct source_block_sample *sample = &samples[number];
    if (!near) {
        __builtin_prefetch(sample);
        return;
    }
    if (sample->first_part < block->part_count)
        __builtin_prefetch((const char *)section(block, block->parts_at) +
                           sample->first_part * (block->is_wide
                                                     ? sizeof(struct source_block_wide_part)
                                                     : sizeof(struct source_block_part)));
    const char *key = text_of(block, sample->key_at, sample->key_bytes);
    if (key)
        __builtin_prefetch(key);
}

void source_block_fault(const struct source_block *block, uint32_t number,
                        struct source_fault *ret_fault)
{
    const struct source_block_fault *faults = section(block, block->faults_at);
    *ret_fault = (struct source_fault){.key = "", .message = ""};
    if (number >= block->fault_count)
        return;
    const struct source_block_fault *fault = &faults[number];
    const char *key = text_of(block, fault->key_at, fault->key_bytes);
    const char *message = text_of(block, fault->message_at, 1);
    ret_fault->offset = fault->offset;
    ret_fault->class_number = fault->class_number;
    if (key) {
        ret_fault->key = key;
        ret_fault->key_bytes = fault->key_bytes;
    }
    if (message)
        ret_fault->message = message;
}
