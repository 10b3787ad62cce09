/* The quarantine's list: see pipeline_quarantine.h. An array in the order of arrival, and a table
 * of its numbers by hash. No pointer into it is kept by anybody. */
#include "pipeline/pipeline_quarantine.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_SIZE = 32768, FIRST_ROOM = 64 };
_Static_assert(TABLE_SIZE > 2 * PIPELINE_QUARANTINE_MAX, "probing stays short");

struct entry {
    char *text; /* key, path with its 0 */
    uint32_t key_bytes;
    char message[PIPELINE_QUARANTINE_MESSAGE_BYTES];
    uint64_t offset, fault, count;
    int64_t first_s, last_s;
    enum spdl_class class_number;
};

struct pipeline_quarantine {
    uint32_t count, room;
    uint64_t left_out;
    size_t text_bytes;
    struct entry *entries;
    uint16_t table[TABLE_SIZE]; /* 1 + number of an entry; 0: free */
};

/* FNV-1a, 64 bits. */
static uint64_t hash_more(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static bool is_it(const struct entry *entry, const struct pipeline_quarantined *sample)
{
    return entry->key_bytes == sample->key_bytes && entry->offset == sample->offset &&
           memcmp(entry->text, sample->key, sample->key_bytes) == 0 &&
           strcmp(entry->text + sample->key_bytes, sample->path) == 0;
}

/* Its place in the table: where it is, or where it is to be. */
static uint16_t *place_of(struct pipeline_quarantine *list,
                          const struct pipeline_quarantined *sample)
{
    uint64_t hash = hash_more(UINT64_C(0xcbf29ce484222325), sample->key, sample->key_bytes);
    hash = hash_more(hash, sample->path, strlen(sample->path));
    hash = hash_more(hash, &sample->offset, sizeof sample->offset);
    uint32_t at = (uint32_t)(hash ^ hash >> 32) % TABLE_SIZE;
    while (list->table[at] != 0 && !is_it(&list->entries[list->table[at] - 1], sample))
        at = (at + 1) % TABLE_SIZE;
    return &list->table[at];
}

static struct entry *entry_add(struct pipeline_quarantine *list,
                               const struct pipeline_quarantined *sample)
{
    size_t path_bytes = strlen(sample->path) + 1, bytes = sample->key_bytes + path_bytes;
    if (list->count == PIPELINE_QUARANTINE_MAX ||
        bytes > PIPELINE_QUARANTINE_TEXT_MAX - list->text_bytes)
        return NULL;
    if (list->count == list->room) {
        uint32_t room = list->room ? 2 * list->room : FIRST_ROOM;
        struct entry *more = realloc(list->entries, room * sizeof *more);
        if (!more)
            return NULL;
        list->entries = more;
        list->room = room;
    }
    char *text = malloc(bytes);
    if (!text)
        return NULL;
    memcpy(text, sample->key, sample->key_bytes);
    memcpy(text + sample->key_bytes, sample->path, path_bytes);
    list->text_bytes += bytes;
    struct entry *entry = &list->entries[list->count++];
    *entry = (struct entry){.text = text, .key_bytes = sample->key_bytes, .offset = sample->offset};
    return entry;
}

static struct pipeline_quarantine *list_of(struct pipeline_quarantine **list_at)
{
    if (!*list_at)
        *list_at = calloc(1, sizeof **list_at);
    return *list_at;
}

/* Its entry, made where there is none; NULL: there is no room, which is counted. */
static struct entry *entry_of(struct pipeline_quarantine *list,
                              const struct pipeline_quarantined *sample)
{
    uint16_t *place = place_of(list, sample);
    struct entry *entry = *place ? &list->entries[*place - 1] : entry_add(list, sample);
    if (entry && *place == 0)
        *place = (uint16_t)list->count;
    if (!entry)
        list->left_out++;
    return entry;
}

/* What it failed with last. */
static void failure_set(struct entry *entry, const struct pipeline_quarantined *sample)
{
    size_t bytes = strnlen(sample->message, sizeof entry->message - 1);
    memcpy(entry->message, sample->message, bytes);
    entry->message[bytes] = 0;
    entry->fault = sample->fault;
    entry->class_number = sample->class_number;
}

void pipeline_quarantine_note(struct pipeline_quarantine **list_at,
                              const struct pipeline_quarantined *sample, int64_t now_s)
{
    struct pipeline_quarantine *list = list_of(list_at);
    struct entry *entry = list ? entry_of(list, sample) : NULL;
    if (!entry)
        return;
    if (entry->count++ == 0)
        entry->first_s = now_s;
    entry->last_s = now_s;
    failure_set(entry, sample);
}

void pipeline_quarantine_note_once(struct pipeline_quarantine **list_at,
                                   const struct pipeline_quarantined *sample, int64_t now_s)
{
    struct pipeline_quarantine *list = list_of(list_at);
    struct entry *entry = list ? entry_of(list, sample) : NULL;
    if (!entry)
        return;
    if (entry->count == 0)
        entry->first_s = now_s;
    entry->count = entry->count ? entry->count : 1;
    entry->last_s = now_s;
    failure_set(entry, sample);
}

bool pipeline_quarantine_add(struct pipeline_quarantine **list_at,
                             const struct pipeline_quarantined *sample)
{
    struct pipeline_quarantine *list = list_of(list_at);
    struct entry *entry = list ? entry_of(list, sample) : NULL;
    if (!entry)
        return false;
    bool is_new = entry->count == 0, is_later = is_new || sample->last_s > entry->last_s;
    bool is_more = sample->count > entry->count;
    if (is_later) {
        failure_set(entry, sample);
        entry->last_s = sample->last_s;
    }
    if (is_new || sample->first_s < entry->first_s)
        entry->first_s = sample->first_s;
    if (is_more)
        entry->count = sample->count;
    return is_later || is_more;
}

bool pipeline_quarantine_merge(struct pipeline_quarantine **list,
                               const struct pipeline_quarantine *other)
{
    bool news = false;
    for (uint32_t i = 0; i < pipeline_quarantine_count(other); i++) {
        struct pipeline_quarantined sample;
        pipeline_quarantine_at(other, i, &sample);
        news = pipeline_quarantine_add(list, &sample) || news;
    }
    return news;
}

void pipeline_quarantine_destroy(struct pipeline_quarantine *list)
{
    if (!list)
        return;
    for (uint32_t i = 0; i < list->count; i++)
        free(list->entries[i].text);
    free(list->entries);
    free(list);
}

uint32_t pipeline_quarantine_count(const struct pipeline_quarantine *list)
{
    return list ? list->count : 0;
}

uint64_t pipeline_quarantine_left_out(const struct pipeline_quarantine *list)
{
    return list ? list->left_out : 0;
}

void pipeline_quarantine_at(const struct pipeline_quarantine *list, uint32_t index,
                            struct pipeline_quarantined *ret_sample)
{
    const struct entry *entry = &list->entries[index];
    *ret_sample = (struct pipeline_quarantined){.key = entry->text,
                                                .key_bytes = entry->key_bytes,
                                                .path = entry->text + entry->key_bytes,
                                                .offset = entry->offset,
                                                .fault = entry->fault,
                                                .class_number = entry->class_number,
                                                .message = entry->message,
                                                .count = entry->count,
                                                .first_s = entry->first_s,
                                                .last_s = entry->last_s};
}
