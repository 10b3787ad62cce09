/* Makes a block: members of one sample are joined wherever they stand in the shard; see
 * source_block.h. Keys and names are found by hash tables, so that a shard of any content costs
 * time in proportion to its size. */
#include "source/source_builder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "item/class.h"

enum { NAME_BYTES_MAX = 255 };

int source_builder_grow(struct builder_list *list, size_t more, size_t item_bytes)
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

int source_builder_table_grow(struct builder_table *table)
{
    if (table->count < table->room / 2)
        return 0;
    size_t room = table->room ? table->room * 2 : 64;
    struct builder_slot *slots = calloc(room, sizeof *slots);
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

int source_builder_text(struct source_builder *builder, const char *text, size_t bytes,
                        uint32_t *ret_at)
{
    int rc = source_builder_grow(&builder->text, bytes, 1);
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
    struct builder_sample *samples = SAMPLES(builder);
    if (builder->samples.count > 0) { /* most often the one before */
        const struct builder_sample *last = &samples[builder->samples.count - 1];
        if (last->key_bytes == key_bytes &&
            memcmp(TEXT(builder) + last->key_at, key, key_bytes) == 0) {
            *ret_number = (uint32_t)builder->samples.count - 1;
            return 0;
        }
    }
    int rc = source_builder_table_grow(&builder->keys);
    if (rc == 0)
        rc = source_builder_grow(&builder->samples, 1, sizeof *samples);
    if (rc < 0)
        return rc;
    samples = SAMPLES(builder);
    uint32_t hash = (uint32_t)XXH3_64bits(key, key_bytes);
    size_t at = hash & (builder->keys.room - 1);
    for (; builder->keys.slots[at].number; at = (at + 1) & (builder->keys.room - 1)) {
        const struct builder_slot *slot = &builder->keys.slots[at];
        const struct builder_sample *sample = &samples[slot->number - 1];
        if (slot->hash == hash && sample->key_bytes == key_bytes &&
            memcmp(TEXT(builder) + sample->key_at, key, key_bytes) == 0) {
            *ret_number = slot->number - 1;
            return 0;
        }
    }
    struct builder_sample *sample = &samples[builder->samples.count];
    *sample =
        (struct builder_sample){.key_bytes = (uint16_t)key_bytes, .last_part = SOURCE_BUILDER_NONE};
    rc = source_builder_text(builder, key, key_bytes, &sample->key_at);
    if (rc < 0)
        return rc;
    *ret_number = (uint32_t)builder->samples.count++;
    builder->keys.slots[at] = (struct builder_slot){.hash = hash, .number = *ret_number + 1};
    builder->keys.count++;
    return 0;
}

/* The number of a part's name, which ends with 0. */
static int name_find(struct source_builder *builder, const char *name, size_t bytes,
                     uint32_t *ret_number)
{
    struct builder_table *table = &builder->names_table;
    int rc = source_builder_table_grow(table);
    if (rc == 0)
        rc = source_builder_grow(&builder->names, 1, sizeof(uint32_t));
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
    rc = source_builder_text(builder, name, bytes + 1, &text_at);
    if (rc < 0)
        return rc;
    NAMES(builder)[builder->names.count] = text_at;
    *ret_number = (uint32_t)builder->names.count++;
    table->slots[at] = (struct builder_slot){.hash = hash, .number = *ret_number + 1};
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
    int rc = source_builder_text(builder, message, strlen(message) + 1, ret_at);
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
    int rc = source_builder_grow(&builder->faults, 1, sizeof *fault);
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
    struct builder_sample *sample = &SAMPLES(builder)[number];
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

static bool has_part(const struct source_builder *builder, const struct builder_sample *sample,
                     uint32_t name)
{
    for (uint32_t at = sample->last_part; at != SOURCE_BUILDER_NONE; at = PARTS(builder)[at].before)
        if (PARTS(builder)[at].name == name)
            return true;
    return false;
}

static int part_add(struct source_builder *builder, uint32_t number,
                    const struct source_builder_member *member, uint32_t name)
{
    int rc = source_builder_grow(&builder->parts, 1, sizeof(struct builder_part));
    uint64_t unit = member->data_offset / SOURCE_BLOCK_UNIT;
    if (rc < 0 || unit > UINT32_MAX)
        return rc < 0 ? rc : -EFBIG;
    struct builder_sample *sample = &SAMPLES(builder)[number];
    PARTS(builder)
    [builder->parts.count] = (struct builder_part){
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
        const struct builder_sample *sample = &SAMPLES(builder)[number];
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
        } else if (SAMPLES(builder)[number].part_count == SOURCE_BLOCK_PARTS_MAX)
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
static bool may_be_of(const struct source_builder *builder, const struct builder_sample *sample,
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
        const struct builder_sample *sample = &SAMPLES(builder)[builder->current];
        if (!sample->left_out && may_be_of(builder, sample, path))
            return leave_out(builder, builder->current, SPDL_CLASS_TRUNCATED, offset, message);
    }
    return source_builder_fault(builder, SPDL_CLASS_TRUNCATED, offset, message);
}
