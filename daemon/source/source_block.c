/* Looking things up in a block: see source_block.h. Damaged numbers lead to an empty answer. */
#include "source/source_block.h"

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
           section_fits(block, block->parts_at, block->part_count,
                        sizeof(struct source_block_part)) &&
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

void source_block_sample(const struct source_block *block, uint32_t number,
                         struct source_sample *ret_sample)
{
    const struct source_block_sample *samples = section(block, block->samples_at);
    const struct source_block_part *parts = section(block, block->parts_at);
    ret_sample->key = "";
    ret_sample->key_bytes = ret_sample->part_count = 0;
    if (number >= block->sample_count)
        return;
    const struct source_block_sample *sample = &samples[number];
    const char *key = text_of(block, sample->key_at, sample->key_bytes);
    if (!key || sample->key_bytes > SOURCE_KEY_BYTES ||
        sample->part_count > SOURCE_BLOCK_PARTS_MAX || sample->first_part > block->part_count ||
        sample->part_count > block->part_count - sample->first_part)
        return;
    ret_sample->key = key;
    ret_sample->key_bytes = sample->key_bytes;
    ret_sample->part_count = sample->part_count;
    for (uint32_t i = 0; i < sample->part_count; i++) {
        const struct source_block_part *part = &parts[sample->first_part + i];
        ret_sample->parts[i] =
            (struct source_part){.kind = SOURCE_PART_FILE,
                                 .name = source_block_name(block, part->name),
                                 .offset = (uint64_t)part->unit * SOURCE_BLOCK_UNIT,
                                 .bytes = part->bytes};
    }
}

void source_block_warm(const struct source_block *block, uint32_t number, bool near)
{
    const struct source_block_sample *samples = section(block, block->samples_at);
    const struct source_block_part *parts = section(block, block->parts_at);
    if (number >= block->sample_count)
        return;
    const struct source_block_sample *sample = &samples[number];
    if (!near) {
        __builtin_prefetch(sample);
        return;
    }
    if (sample->first_part < block->part_count) {
        const struct source_block_part *first = &parts[sample->first_part];
        __builtin_prefetch(first);
        if (sample->part_count > 1) /* the next may lie behind the end of a line */
            __builtin_prefetch(first + 1);
    }
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
