/* Makes a block: members of one sample are joined wherever they stand in the shard; see
 * source_block.h. Keys and names are found by hash tables, so that a shard of any content costs
 * time in proportion to its size. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "item/class.h"
#include "source/source_block.h"

enum { NAME_BYTES_MAX = 255 };
static const uint32_t NONE = UINT32_MAX;

struct draft_sample {
    uint32_t key_at, last_part;
    uint16_t key_bytes;
    uint8_t part_count;
    bool left_out;
};
struct draft_part {
    uint64_t bytes;
    uint32_t unit, name;
    uint32_t before; /* part of the same sample before this one, or NONE */
};

struct slot { /* of a hash table */
    uint32_t hash;
    uint32_t number; /* + 1; 0: the slot is free */
};
struct table {
    struct slot *slots;
    size_t room; /* a power of two */
    size_t count;
};

struct list { /* that grows */
    void *items;
    size_t count, room;
};

struct source_builder {
    struct list samples, parts, names, faults, text;
    struct table keys, names_table;
    uint64_t ignored;
    uint32_t current;       /* sample of the last member */
    uint32_t message_at[4]; /* of the last messages: most are the same */
    uint32_t message_next, message_count;
};

#define SAMPLES(builder) ((struct draft_sample *)(builder)->samples.items)
#define PARTS(builder) ((struct draft_part *)(builder)->parts.items)
#define NAMES(builder) ((uint32_t *)(builder)->names.items)
#define TEXT(builder) ((char *)(builder)->text.items)

/* Room for `more` items. */
static int grow(struct list *list, size_t more, size_t item_bytes)
{
    if (more <= list->room - list->count)
        return 0;
    if (more > UINT32_MAX - 1 - list->count)
        return -EFBIG;
    size_t room = list->room + list->room / 2 + 64;
    if (room < list->count + more)
        room = list->count + more;
    void *items = reallocarray(list->items, room, item_bytes);
    if (!items)
        return -ENOMEM;
    list->items = items;
    list->room = room;
    return 0;
}

static int table_grow(struct table *table)
{
    if (table->count < table->room / 2)
        return 0;
    size_t room = table->room ? table->room * 2 : 64;
    struct slot *slots = calloc(room, sizeof *slots);
    if (!slots)
        return -ENOMEM;
    for (size_t i = 0; i < table->room; i++) {
        if (table->slots[i].number == 0)
            continue;
        size_t at = table->slots[i].hash & (room - 1);
        while (slots[at].number)
            at = (at + 1) & (room - 1);
        slots[at] = table->slots[i];
    }
    free(table->slots);
    table->slots = slots;
    table->room = room;
    return 0;
}

struct source_builder *source_builder_create(void)
{
    return calloc(1, sizeof(struct source_builder));
}

void source_builder_destroy(struct source_builder *builder)
{
    if (!builder)
        return;
    free(builder->samples.items);
    free(builder->parts.items);
    free(builder->names.items);
    free(builder->faults.items);
    free(builder->text.items);
    free(builder->keys.slots);
    free(builder->names_table.slots);
    free(builder);
}

static int text_add(struct source_builder *builder, const char *text, size_t bytes,
                    uint32_t *ret_at)
{
    int rc = grow(&builder->text, bytes, 1);
    if (rc < 0)
        return rc;
    *ret_at = (uint32_t)builder->text.count;
    memcpy(TEXT(builder) + builder->text.count, text, bytes);
    builder->text.count += bytes;
    return 0;
}

/* The sample of this key, made when there is none. */
static int sample_find(struct source_builder *builder, const char *key, size_t key_bytes,
                       uint32_t *ret_number)
{
    struct draft_sample *samples = SAMPLES(builder);
    if (builder->samples.count > 0) { /* most often the one before */
        const struct draft_sample *last = &samples[builder->samples.count - 1];
        if (last->key_bytes == key_bytes &&
            memcmp(TEXT(builder) + last->key_at, key, key_bytes) == 0) {
            *ret_number = (uint32_t)builder->samples.count - 1;
            return 0;
        }
    }
    int rc = table_grow(&builder->keys);
    if (rc == 0)
        rc = grow(&builder->samples, 1, sizeof *samples);
    if (rc < 0)
        return rc;
    samples = SAMPLES(builder);
    uint32_t hash = (uint32_t)XXH3_64bits(key, key_bytes);
    size_t at = hash & (builder->keys.room - 1);
    for (; builder->keys.slots[at].number; at = (at + 1) & (builder->keys.room - 1)) {
        const struct slot *slot = &builder->keys.slots[at];
        const struct draft_sample *sample = &samples[slot->number - 1];
        if (slot->hash == hash && sample->key_bytes == key_bytes &&
            memcmp(TEXT(builder) + sample->key_at, key, key_bytes) == 0) {
            *ret_number = slot->number - 1;
            return 0;
        }
    }
    struct draft_sample *sample = &samples[builder->samples.count];
    *sample = (struct draft_sample){.key_bytes = (uint16_t)key_bytes, .last_part = NONE};
    rc = text_add(builder, key, key_bytes, &sample->key_at);
    if (rc < 0)
        return rc;
    *ret_number = (uint32_t)builder->samples.count++;
    builder->keys.slots[at] = (struct slot){.hash = hash, .number = *ret_number + 1};
    builder->keys.count++;
    return 0;
}

/* The number of a part's name, which ends with 0. */
static int name_find(struct source_builder *builder, const char *name, size_t bytes,
                     uint32_t *ret_number)
{
    struct table *table = &builder->names_table;
    int rc = table_grow(table);
    if (rc == 0)
        rc = grow(&builder->names, 1, sizeof(uint32_t));
    if (rc < 0)
        return rc;
    uint32_t hash = (uint32_t)XXH3_64bits(name, bytes);
    size_t at = hash & (table->room - 1);
    for (; table->slots[at].number; at = (at + 1) & (table->room - 1)) {
        uint32_t number = table->slots[at].number - 1;
        if (table->slots[at].hash == hash &&
            strcmp(TEXT(builder) + NAMES(builder)[number], name) == 0) {
            *ret_number = number;
            return 0;
        }
    }
    uint32_t text_at;
    rc = text_add(builder, name, bytes + 1, &text_at);
    if (rc < 0)
        return rc;
    NAMES(builder)[builder->names.count] = text_at;
    *ret_number = (uint32_t)builder->names.count++;
    table->slots[at] = (struct slot){.hash = hash, .number = *ret_number + 1};
    table->count++;
    return 0;
}

static int message_add(struct source_builder *builder, const char *message, uint32_t *ret_at)
{
    for (uint32_t i = 0; i < builder->message_count; i++)
        if (strcmp(TEXT(builder) + builder->message_at[i], message) == 0) {
            *ret_at = builder->message_at[i];
            return 0;
        }
    int rc = text_add(builder, message, strlen(message) + 1, ret_at);
    if (rc < 0)
        return rc;
    builder->message_at[builder->message_next++ % 4] = *ret_at;
    if (builder->message_count < 4)
        builder->message_count++;
    return 0;
}

static int fault_add(struct source_builder *builder, const struct source_block_fault *fault,
                     const char *message)
{
    int rc = grow(&builder->faults, 1, sizeof *fault);
    struct source_block_fault *to = builder->faults.items;
    if (rc < 0)
        return rc;
    to += builder->faults.count;
    *to = *fault;
    rc = message_add(builder, message, &to->message_at);
    if (rc == 0)
        builder->faults.count++;
    return rc;
}

int source_builder_fault(struct source_builder *builder, uint32_t class_number, uint64_t offset,
                         const char *message)
{
    struct source_block_fault fault = {.class_number = class_number, .offset = offset};
    return fault_add(builder, &fault, message);
}

/* A sample is left out once, for the first reason. */
static int leave_out(struct source_builder *builder, uint32_t number, uint32_t class_number,
                     uint64_t offset, const char *message)
{
    struct draft_sample *sample = &SAMPLES(builder)[number];
    if (sample->left_out)
        return 0;
    sample->left_out = true;
    struct source_block_fault fault = {.class_number = class_number,
                                       .offset = offset,
                                       .key_at = sample->key_at,
                                       .key_bytes = sample->key_bytes};
    return fault_add(builder, &fault, message);
}

void source_builder_ignore(struct source_builder *builder)
{
    builder->ignored++;
}

/* Where key and part's name end and begin in a path. False: it is no part of a sample. */
static bool split(const struct source_builder_member *member, size_t *ret_key_bytes,
                  size_t *ret_name_at)
{
    const char *path = member->path, *base = path;
    size_t bytes = member->path_bytes;
    const char *slash = memrchr(path, '/', bytes);
    if (slash)
        base = slash + 1;
    size_t base_bytes = bytes - (size_t)(base - path);
    const char *dot = base_bytes > 0 ? memchr(base, '.', base_bytes) : NULL;
    if (!dot || dot == base || dot + 1 == path + bytes)
        return false;
    *ret_key_bytes = (size_t)(dot - path);
    *ret_name_at = *ret_key_bytes + 1;
    return true;
}

static bool has_part(const struct source_builder *builder, const struct draft_sample *sample,
                     uint32_t name)
{
    for (uint32_t at = sample->last_part; at != NONE; at = PARTS(builder)[at].before)
        if (PARTS(builder)[at].name == name)
            return true;
    return false;
}

static int part_add(struct source_builder *builder, uint32_t number,
                    const struct source_builder_member *member, uint32_t name)
{
    int rc = grow(&builder->parts, 1, sizeof(struct draft_part));
    uint64_t unit = member->data_offset / SOURCE_BLOCK_UNIT;
    if (rc < 0 || unit > UINT32_MAX)
        return rc < 0 ? rc : -EFBIG;
    struct draft_sample *sample = &SAMPLES(builder)[number];
    PARTS(builder)
    [builder->parts.count] = (struct draft_part){
        .bytes = member->bytes, .unit = (uint32_t)unit, .name = name, .before = sample->last_part};
    sample->last_part = (uint32_t)builder->parts.count++;
    sample->part_count++;
    return 0;
}

int source_builder_member(struct source_builder *builder,
                          const struct source_builder_member *member)
{
    char name[NAME_BYTES_MAX + 1], text[NAME_BYTES_MAX + 200];
    size_t key_bytes, name_at;
    uint32_t number, name_number;
    if (!split(member, &key_bytes, &name_at)) {
        builder->ignored++;
        return member->class_number == SPDL_CLASS_OK
                   ? 0
                   : source_builder_fault(builder, member->class_number, member->header_offset,
                                          "the shard ends inside a member");
    }
    size_t name_bytes = member->path_bytes - name_at;
    size_t taken = name_bytes < NAME_BYTES_MAX ? name_bytes : (size_t)NAME_BYTES_MAX;
    for (size_t i = 0; i < taken; i++) {
        char c = member->path[name_at + i];
        name[i] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    name[taken] = 0;
    int rc = sample_find(builder, member->path, key_bytes, &number);
    if (rc < 0)
        return rc;
    builder->current = number;
    uint32_t class_number = member->class_number;
    const char *message = member->message;
    if (class_number == SPDL_CLASS_OK) {
        const struct draft_sample *sample = &SAMPLES(builder)[number];
        if (sample->left_out)
            return 0;
        message = NULL;
        class_number = SPDL_CLASS_LIMIT;
        if (key_bytes > SOURCE_KEY_BYTES)
            message = "its key is longer than 1024 bytes";
        else if (name_bytes > NAME_BYTES_MAX)
            message = "the name of a part is longer than 255 bytes";
        else if ((rc = name_find(builder, name, taken, &name_number)) < 0)
            return rc;
        else if (has_part(builder, &SAMPLES(builder)[number], name_number)) {
            class_number = SPDL_CLASS_DUPLICATE;
            message = "the part %s is there twice";
        } else if (SAMPLES(builder)[number].part_count == SOURCE_PARTS_MAX)
            message = "it has more than 16 parts";
        else
            return part_add(builder, number, member, name_number);
    }
    const char *hole = strstr(message, "%s");
    snprintf(text, sizeof text, "%.*s%s%s", hole ? (int)(hole - message) : (int)strlen(message),
             message, hole ? name : "", hole ? hole + 2 : "");
    return leave_out(builder, number, class_number, member->header_offset, text);
}

/* May a member whose name begins like this be of the sample? Base names are compared: the folder
 * may stand elsewhere in its header. */
static bool may_be_of(const struct source_builder *builder, const struct draft_sample *sample,
                      const char *path)
{
    const char *key = TEXT(builder) + sample->key_at;
    const char *key_slash = memrchr(key, '/', sample->key_bytes);
    const char *slash = strrchr(path, '/');
    const char *key_base = key_slash ? key_slash + 1 : key, *base = slash ? slash + 1 : path;
    size_t key_base_bytes = sample->key_bytes - (size_t)(key_base - key);
    size_t bytes = strcspn(base, ".");
    if (strncmp(path, "././@Long", 9) == 0 || strstr(path, "PaxHeader"))
        return true; /* the name would have come behind */
    return bytes <= key_base_bytes && memcmp(base, key_base, bytes) == 0 &&
           (bytes == key_base_bytes || base[bytes] == 0);
}

int source_builder_cut(struct source_builder *builder, uint64_t offset, const char *path,
                       const char *message)
{
    if (builder->samples.count > 0) {
        const struct draft_sample *sample = &SAMPLES(builder)[builder->current];
        if (!sample->left_out && may_be_of(builder, sample, path))
            return leave_out(builder, builder->current, SPDL_CLASS_TRUNCATED, offset, message);
    }
    return source_builder_fault(builder, SPDL_CLASS_TRUNCATED, offset, message);
}

/* --- the block --- */

static uint64_t place(uint64_t *at, uint64_t bytes)
{
    uint64_t here = *at;
    *at = (here + bytes + 7) & ~UINT64_C(7);
    return here;
}

/* Numbers of a sample's parts, in the order of the shard. */
static void parts_of(const struct source_builder *builder, const struct draft_sample *sample,
                     uint32_t numbers[SOURCE_PARTS_MAX])
{
    uint32_t left = sample->part_count;
    for (uint32_t at = sample->last_part; at != NONE && left > 0; at = PARTS(builder)[at].before)
        numbers[--left] = at;
}

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

static void samples_write(const struct source_builder *builder, struct source_block *block,
                          struct source_block_sample *samples, struct source_block_part *parts)
{
    uint32_t numbers[SOURCE_PARTS_MAX] = {0}, next_part = 0, next = 0;
    for (size_t s = 0; s < builder->samples.count; s++) {
        const struct draft_sample *sample = &SAMPLES(builder)[s];
        if (sample->left_out)
            continue;
        samples[next++] = (struct source_block_sample){.key_at = sample->key_at,
                                                       .first_part = next_part,
                                                       .key_bytes = sample->key_bytes,
                                                       .part_count = sample->part_count};
        if (sample->key_bytes > block->longest_key_bytes)
            block->longest_key_bytes = sample->key_bytes;
        parts_of(builder, sample, numbers);
        for (uint32_t i = 0; i < sample->part_count; i++) {
            const struct draft_part *part = &PARTS(builder)[numbers[i]];
            parts[next_part++] = (struct source_block_part){
                .bytes = part->bytes, .unit = part->unit, .name = part->name};
            if (part->bytes > block->largest_bytes)
                block->largest_bytes = part->bytes;
        }
    }
}

struct source_block *source_builder_finish(struct source_builder *builder)
{
    uint32_t end;
    struct source_block head = {.ignored = builder->ignored,
                                .name_count = (uint32_t)builder->names.count,
                                .fault_count = (uint32_t)builder->faults.count};
    free(builder->keys.slots); /* the block needs the room */
    builder->keys = (struct table){0};
    if (text_add(builder, "", 1, &end) < 0)
        return NULL;
    head.text_bytes = (uint32_t)builder->text.count;
    for (size_t s = 0; s < builder->samples.count; s++) {
        const struct draft_sample *sample = &SAMPLES(builder)[s];
        head.sample_count += !sample->left_out;
        head.part_count += sample->left_out ? 0 : sample->part_count;
    }
    uint64_t at = sizeof head;
    head.samples_at = place(&at, head.sample_count * sizeof(struct source_block_sample));
    head.parts_at = place(&at, head.part_count * sizeof(struct source_block_part));
    head.names_at = place(&at, head.name_count * sizeof(uint32_t));
    head.faults_at = place(&at, head.fault_count * sizeof(struct source_block_fault));
    head.text_at = place(&at, head.text_bytes);
    head.bytes = at;
    char *base = calloc(1, at);
    struct source_block *block = (struct source_block *)(void *)base;
    if (!block)
        return NULL;
    *block = head;
    samples_write(builder, block, (void *)(base + head.samples_at), (void *)(base + head.parts_at));
    if (head.name_count > 0)
        memcpy(base + head.names_at, builder->names.items, head.name_count * sizeof(uint32_t));
    if (head.fault_count > 0)
        memcpy(base + head.faults_at, builder->faults.items,
               head.fault_count * sizeof(struct source_block_fault));
    memcpy(base + head.text_at, builder->text.items, head.text_bytes);
    if (!digest(block)) {
        free(block);
        return NULL;
    }
    return block;
}
