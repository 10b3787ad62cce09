/* What a builder has found so far, for the files that make a block of it (source_builder.c,
 * source_builder_block.c) alone; see source_block.h. */
#ifndef SPDLD_SOURCE_BUILDER_H
#define SPDLD_SOURCE_BUILDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "source/source_block.h"

#define SOURCE_BUILDER_NONE UINT32_MAX

struct builder_sample {
    uint32_t key_at, last_part;
    uint16_t key_bytes;
    uint8_t part_count;
    bool left_out;
};
struct builder_part {
    uint64_t bytes;
    uint32_t unit, name;
    uint32_t before; /* part of the same sample before this one, or NONE */
};

struct builder_slot { /* of a hash table */
    uint32_t hash;
    uint32_t number; /* + 1; 0: the slot is free */
};
struct builder_table {
    struct builder_slot *slots;
    size_t room; /* a power of two */
    size_t count;
};

struct builder_list { /* that grows */
    void *items;
    size_t count, room;
};

struct source_builder {
    struct builder_list samples, parts, names, faults, text;
    struct builder_table keys, names_table;
    uint64_t ignored;
    uint32_t current;       /* sample of the last member */
    uint32_t message_at[4]; /* of the last messages: most are the same */
    uint32_t message_next, message_count;
};

#define SAMPLES(builder) ((struct builder_sample *)(builder)->samples.items)
#define PARTS(builder) ((struct builder_part *)(builder)->parts.items)
#define NAMES(builder) ((uint32_t *)(builder)->names.items)
#define TEXT(builder) ((char *)(builder)->text.items)

/* Room for `more` items. 0, -ENOMEM, -EFBIG. */
int source_builder_grow(struct builder_list *list, size_t more, size_t item_bytes);
/* Room for one more, so that half of the slots stay free. */
int source_builder_table_grow(struct builder_table *table);
int source_builder_text(struct source_builder *builder, const char *text, size_t bytes,
                        uint32_t *ret_at);

#endif
