/* The end of a builder: one block of all that it found; see source_block.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "source/source_builder.h"

/* Shapes of the samples that stay. */
struct shapes {
    struct builder_list list; /* struct source_block_shape */
    struct builder_list names;
    struct builder_table table;
    uint16_t *of_sample; /* by number among all samples of the builder */
    bool is_wide;        /* the block has none */
};

static uint64_t place(uint64_t *at, uint64_t bytes)
{
    uint64_t here = *at;
    *at = (here + bytes + 7) & ~UINT64_C(7);
    return here;
}

/* Numbers of a sample's parts, in the order of the shard. */
static void parts_of(const struct source_builder *builder, const struct builder_sample *sample,
                     uint32_t numbers[SOURCE_BLOCK_PARTS_MAX])
{
    uint32_t left = sample->part_count;
    for (uint32_t at = sample->last_part; at != SOURCE_BUILDER_NONE && left > 0;
         at = PARTS(builder)[at].before)
        numbers[--left] = at;
}

/* --- shapes --- */

static bool is_shape(const struct shapes *shapes, uint32_t number, const uint32_t *names,
                     uint32_t count)
{
    const struct source_block_shape *shape =
        (const struct source_block_shape *)shapes->list.items + number;
    return shape->part_count == count &&
           memcmp((const uint32_t *)shapes->names.items + shape->first_name, names,
                  count * sizeof *names) == 0;
}

static int shape_add(struct shapes *shapes, const uint32_t *names, uint32_t count)
{
    int rc = source_builder_grow(&shapes->list, 1, sizeof(struct source_block_shape));
    if (rc == 0)
        rc = source_builder_grow(&shapes->names, count, sizeof *names);
    if (rc < 0)
        return rc;
    ((struct source_block_shape *)shapes->list.items)[shapes->list.count++] =
        (struct source_block_shape){.first_name = (uint32_t)shapes->names.count,
                                    .part_count = count};
    memcpy((uint32_t *)shapes->names.items + shapes->names.count, names, count * sizeof *names);
    shapes->names.count += count;
    return 0;
}

/* The number of the shape with these names, made where there is none. */
static int shape_find(struct shapes *shapes, const uint32_t *names, uint32_t count,
                      uint32_t *ret_number)
{
    struct builder_table *table = &shapes->table;
    int rc = source_builder_table_grow(table);
    if (rc < 0)
        return rc;
    uint32_t hash = (uint32_t)XXH3_64bits(names, count * sizeof *names);
    size_t at = hash & (table->room - 1);
    for (; table->slots[at].number; at = (at + 1) & (table->room - 1)) {
        *ret_number = table->slots[at].number - 1;
        if (table->slots[at].hash == hash && is_shape(shapes, *ret_number, names, count))
            return 0;
    }
    rc = shape_add(shapes, names, count);
    if (rc < 0)
        return rc;
    *ret_number = (uint32_t)shapes->list.count - 1;
    table->slots[at] = (struct builder_slot){.hash = hash, .number = *ret_number + 1};
    table->count++;
    return 0;
}

static int shapes_make(const struct source_builder *builder, struct shapes *shapes)
{
    uint32_t numbers[SOURCE_BLOCK_PARTS_MAX] = {0}, names[SOURCE_BLOCK_PARTS_MAX], shape = 0;
    shapes->of_sample = calloc(builder->samples.count + 1, sizeof *shapes->of_sample);
    if (!shapes->of_sample)
        return -ENOMEM;
    for (size_t s = 0; s < builder->samples.count && !shapes->is_wide; s++) {
        const struct builder_sample *sample = &SAMPLES(builder)[s];
        if (sample->left_out)
            continue;
        parts_of(builder, sample, numbers);
        for (uint32_t i = 0; i < sample->part_count; i++) {
            names[i] = PARTS(builder)[numbers[i]].name;
            shapes->is_wide = shapes->is_wide || PARTS(builder)[numbers[i]].bytes > UINT32_MAX;
        }
        int rc = shape < shapes->list.count && is_shape(shapes, shape, names, sample->part_count)
                     ? 0 /* that of the sample before */
                     : shape_find(shapes, names, sample->part_count, &shape);
        if (rc < 0)
            return rc;
        shapes->is_wide = shapes->is_wide || shapes->list.count > SOURCE_BLOCK_SHAPES_MAX;
        shapes->of_sample[s] = (uint16_t)shape;
        ((struct source_block_shape *)shapes->list.items)[shape].sample_count++;
    }
    if (shapes->is_wide)
        shapes->list.count = shapes->names.count = 0;
    return 0;
}

static void shapes_fini(struct shapes *shapes)
{
    free(shapes->list.items);
    free(shapes->names.items);
    free(shapes->table.slots);
    free(shapes->of_sample);
}

/* --- the digest --- */

static void digest_sample(XXH3_state_t *state, const struct source_block *block, uint32_t number)
{
    char text[64];
    struct source_sample sample;
    source_block_sample(block, number, &sample);
    int bytes = snprintf(text, sizeof text, "%c%" PRIu32 "\n", 0, sample.part_count);
    XXH3_128bits_update(state, sample.key, sample.key_bytes);
    XXH3_128bits_update(state, text, (size_t)bytes);
    for (uint32_t i = 0; i < sample.part_count; i++) {
        const struct source_part *part = &sample.parts[i];
        bytes = snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 "\n", part->offset, part->bytes);
        XXH3_128bits_update(state, part->name, strlen(part->name) + 1);
        XXH3_128bits_update(state, text, (size_t)bytes);
    }
}

static bool digest(struct source_block *block)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return false;
    XXH3_128bits_reset(state);
    for (uint32_t i = 0; i < block->sample_count; i++)
        digest_sample(state, block, i);
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    block->digest_high = hash.high64;
    block->digest_low = hash.low64;
    return true;
}

/* --- the block --- */

static void part_write(const struct source_block *block, uint32_t number,
                       const struct builder_part *part)
{
    char *parts = (char *)(uintptr_t)block + block->parts_at;
    if (block->is_wide)
        ((struct source_block_wide_part *)(void *)parts)[number] = (struct source_block_wide_part){
            .bytes = part->bytes, .unit = part->unit, .name = part->name};
    else
        ((struct source_block_part *)(void *)parts)[number] =
            (struct source_block_part){.unit = part->unit, .bytes = (uint32_t)part->bytes};
}

static void samples_write(const struct source_builder *builder, const struct shapes *shapes,
                          struct source_block *block)
{
    struct source_block_sample *samples = (void *)((char *)block + block->samples_at);
    uint32_t numbers[SOURCE_BLOCK_PARTS_MAX], next_part = 0, next = 0;
    for (size_t s = 0; s < builder->samples.count; s++) {
        const struct builder_sample *sample = &SAMPLES(builder)[s];
        if (sample->left_out)
            continue;
        samples[next++] = (struct source_block_sample){
            .key_at = sample->key_at,
            .first_part = next_part,
            .key_bytes = sample->key_bytes,
            .shape = shapes->is_wide ? sample->part_count : shapes->of_sample[s]};
        if (sample->key_bytes > block->longest_key_bytes)
            block->longest_key_bytes = sample->key_bytes;
        parts_of(builder, sample, numbers);
        for (uint32_t i = 0; i < sample->part_count; i++) {
            const struct builder_part *part = &PARTS(builder)[numbers[i]];
            part_write(block, next_part++, part);
            if (part->bytes > block->largest_bytes)
                block->largest_bytes = part->bytes;
        }
    }
}

static void list_write(struct source_block *block, uint64_t at, const struct builder_list *list,
                       size_t item_bytes)
{
    if (list->count > 0)
        memcpy((char *)block + at, list->items, list->count * item_bytes);
}

/* Where each section is. */
static struct source_block head_make(const struct source_builder *builder,
                                     const struct shapes *shapes)
{
    struct source_block head = {.ignored = builder->ignored,
                                .shape_count = (uint32_t)shapes->list.count,
                                .shape_name_count = (uint32_t)shapes->names.count,
                                .name_count = (uint32_t)builder->names.count,
                                .fault_count = (uint32_t)builder->faults.count,
                                .text_bytes = (uint32_t)builder->text.count,
                                .is_wide = shapes->is_wide};
    for (size_t s = 0; s < builder->samples.count; s++) {
        const struct builder_sample *sample = &SAMPLES(builder)[s];
        head.sample_count += !sample->left_out;
        head.part_count += sample->left_out ? 0 : sample->part_count;
    }
    uint64_t at = sizeof head;
    head.samples_at = place(&at, head.sample_count * sizeof(struct source_block_sample));
    head.parts_at =
        place(&at, head.part_count * (head.is_wide ? sizeof(struct source_block_wide_part)
                                                   : sizeof(struct source_block_part)));
    head.shapes_at = place(&at, head.shape_count * sizeof(struct source_block_shape));
    head.shape_names_at = place(&at, head.shape_name_count * sizeof(uint32_t));
    head.names_at = place(&at, head.name_count * sizeof(uint32_t));
    head.faults_at = place(&at, head.fault_count * sizeof(struct source_block_fault));
    head.text_at = place(&at, head.text_bytes);
    head.bytes = at;
    return head;
}

struct source_block *source_builder_finish(struct source_builder *builder)
{
    uint32_t end;
    struct shapes shapes = {0};
    struct source_block *block = NULL;
    free(builder->keys.slots); /* the block needs the room */
    builder->keys = (struct builder_table){0};
    if (source_builder_text(builder, "", 1, &end) == 0 && shapes_make(builder, &shapes) == 0) {
        struct source_block head = head_make(builder, &shapes);
        block = calloc(1, head.bytes);
        if (block)
            *block = head;
    }
    if (block) {
        samples_write(builder, &shapes, block);
        list_write(block, block->shapes_at, &shapes.list, sizeof(struct source_block_shape));
        list_write(block, block->shape_names_at, &shapes.names, sizeof(uint32_t));
        list_write(block, block->names_at, &builder->names, sizeof(uint32_t));
        list_write(block, block->faults_at, &builder->faults, sizeof(struct source_block_fault));
        list_write(block, block->text_at, &builder->text, 1);
        if (!digest(block)) {
            free(block);
            block = NULL;
        }
    }
    shapes_fini(&shapes);
    return block;
}
