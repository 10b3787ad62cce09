/* Which samples were seen whole: see pipeline_seen.h. The file's payload:
 *
 *   head | marks of groups | first samples of groups, where they are not one each | bits */
#include "pipeline/pipeline_seen.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "pipeline/pipeline_kept.h"

enum { BITS = 8 };

struct seen_head {
    uint64_t name_high, name_low;
    uint64_t sample_count, group_count;
    uint64_t has_firsts; /* 0 or 1 */
};

/* Groups and bits, in memory or in a file's payload. */
struct groups {
    uint64_t sample_count, group_count;
    const uint64_t *marks, *firsts;
    const uint8_t *bits;
};

/* Where a mark stands, for lists that are not in the same order. */
struct marks_table {
    uint32_t *slots; /* 1 + number of the group; 0: free */
    uint64_t room;   /* a power of two */
};

static uint64_t bits_bytes(uint64_t samples)
{
    return samples / BITS + 1;
}

uint64_t pipeline_seen_bytes(const struct pipeline_seen *seen)
{
    return bits_bytes(seen->sample_count);
}

static uint64_t payload_bytes(uint64_t samples, uint64_t groups, bool has_firsts)
{
    return sizeof(struct seen_head) + groups * sizeof(uint64_t) +
           (has_firsts ? (groups + 1) * sizeof(uint64_t) : 0) + bits_bytes(samples);
}

/* --- groups --- */

static void mark_part(XXH3_state_t *state, const struct source_part *part)
{
    const uint64_t numbers[] = {part->offset, part->bytes, part->file_bytes,
                                (uint64_t)part->mtime_ns};
    if (part->kind != SOURCE_PART_FILE)
        return;
    XXH3_64bits_update(state, part->path, strlen(part->path) + 1);
    XXH3_64bits_update(state, numbers, sizeof numbers);
}

static void marks_make(struct pipeline_seen *seen, const struct source *source, XXH3_state_t *state)
{
    struct source_sample sample;
    for (uint64_t g = 0; g < seen->group_count; g++) {
        const uint64_t first = seen->firsts ? seen->firsts[g] : g;
        const uint64_t count = seen->firsts ? seen->firsts[g + 1] - first : 1;
        seen->marks[g] = 0;
        if (count == 0)
            continue;
        source_sample(source, first, &sample);
        XXH3_64bits_reset(state);
        XXH3_64bits_update(state, &count, sizeof count);
        XXH3_64bits_update(state, sample.key, sample.key_bytes);
        for (uint32_t p = 0; p < sample.part_count; p++)
            mark_part(state, &sample.parts[p]);
        seen->marks[g] = XXH3_64bits_digest(state);
    }
}

static bool groups_make(struct pipeline_seen *seen, const struct source *source)
{
    const uint64_t *firsts = source_shards(source);
    seen->sample_count = source_counts(source)->samples;
    seen->group_count = firsts ? source_counts(source)->shards : seen->sample_count;
    if (payload_bytes(seen->sample_count, seen->group_count, firsts != NULL) >
        PIPELINE_KEPT_BYTES_MAX) { /* bits alone, which go with the list */
        seen->group_count = 0;
        seen->file[0] = 0;
        firsts = NULL;
    }
    seen->marks = calloc(seen->group_count + 1, sizeof *seen->marks);
    seen->bits = calloc(bits_bytes(seen->sample_count), 1);
    if (firsts)
        seen->firsts = calloc(seen->group_count + 1, sizeof *seen->firsts);
    XXH3_state_t *state = XXH3_createState();
    bool made = seen->marks && seen->bits && state && (!firsts || seen->firsts);
    if (made && firsts) {
        memcpy(seen->firsts, firsts, seen->group_count * sizeof *firsts);
        seen->firsts[seen->group_count] = seen->sample_count;
    }
    if (made)
        marks_make(seen, source, state);
    XXH3_freeState(state);
    return made;
}

/* --- bits from one list into another --- */

static uint64_t count_of(const struct groups *groups, uint64_t group)
{
    return groups->firsts ? groups->firsts[group + 1] - groups->firsts[group] : 1;
}

/* Bits of a group are added to those of the same group in `to`. */
static void bits_add(const struct groups *from, uint64_t group, uint8_t *to, uint64_t to_first)
{
    uint64_t first = from->firsts ? from->firsts[group] : group, count = count_of(from, group);
    for (uint64_t i = 0; i < count; i++) {
        if (first % BITS == to_first % BITS && (first + i) % BITS == 0 && count - i >= BITS) {
            to[(to_first + i) / BITS] |= from->bits[(first + i) / BITS]; /* eight at once */
            i += BITS - 1;
        } else if (from->bits[(first + i) / BITS] >> ((first + i) % BITS) & 1) {
            to[(to_first + i) / BITS] |= (uint8_t)(1u << ((to_first + i) % BITS));
        }
    }
}

static bool table_make(const struct groups *groups, struct marks_table *table)
{
    table->room = 64;
    while (table->room < 2 * groups->group_count)
        table->room *= 2;
    table->slots =
        groups->group_count < UINT32_MAX ? calloc(table->room, sizeof *table->slots) : NULL;
    for (uint64_t g = 0; table->slots && g < groups->group_count; g++) {
        if (count_of(groups, g) == 0)
            continue; /* empty ones have all the same mark */
        uint64_t at = groups->marks[g] & (table->room - 1);
        while (table->slots[at])
            at = (at + 1) & (table->room - 1);
        table->slots[at] = (uint32_t)g + 1;
    }
    return table->slots != NULL;
}

static bool table_find(const struct marks_table *table, const struct groups *groups, uint64_t mark,
                       uint64_t *ret_group)
{
    for (uint64_t at = mark & (table->room - 1); table->slots[at];
         at = (at + 1) & (table->room - 1)) {
        *ret_group = table->slots[at] - 1;
        if (groups->marks[*ret_group] == mark)
            return true;
    }
    return false;
}

/* What is seen in `from` is seen in `bits`, group by group; most often both have the same ones. */
static void bits_take(const struct pipeline_seen *seen, const struct groups *from, uint8_t *bits)
{
    const struct groups to = {
        .group_count = seen->group_count, .marks = seen->marks, .firsts = seen->firsts};
    struct marks_table table = {0};
    for (uint64_t g = 0; g < to.group_count; g++) {
        uint64_t other = g;
        if (count_of(&to, g) == 0)
            continue;
        bool same = g < from->group_count && from->marks[g] == to.marks[g];
        if (!same && !table.slots && !table_make(from, &table))
            break; /* no memory: some are decoded whole once more */
        if (!same && !table_find(&table, from, to.marks[g], &other))
            continue;
        if (count_of(from, other) == count_of(&to, g))
            bits_add(from, other, bits, to.firsts ? to.firsts[g] : g);
    }
    free(table.slots);
}

/* --- the file --- */

/* What a payload holds. False: it is damaged, or of another name. */
static bool payload_look(const struct pipeline_seen *seen, const char *payload, uint64_t bytes,
                         struct groups *ret_groups)
{
    struct seen_head head;
    if (bytes < sizeof head)
        return false;
    memcpy(&head, payload, sizeof head);
    if (head.name_high != seen->name_high || head.name_low != seen->name_low ||
        head.has_firsts > 1 || head.group_count > bytes / sizeof(uint64_t) ||
        head.sample_count / BITS > bytes ||
        payload_bytes(head.sample_count, head.group_count, head.has_firsts != 0) != bytes ||
        (!head.has_firsts && head.sample_count != head.group_count))
        return false;
    const uint64_t *marks = (const void *)(payload + sizeof head);
    const uint64_t *firsts = head.has_firsts ? marks + head.group_count : NULL;
    *ret_groups =
        (struct groups){.sample_count = head.sample_count,
                        .group_count = head.group_count,
                        .marks = marks,
                        .firsts = firsts,
                        .bits = (const uint8_t *)(payload + bytes - bits_bytes(head.sample_count))};
    uint64_t before = 0;
    for (uint64_t g = 0; firsts && g <= head.group_count; g++) {
        if (firsts[g] < before || firsts[g] > head.sample_count)
            return false;
        before = firsts[g];
    }
    return true;
}

/* Adds the file's bits. 0, also when there is none; a negative errno when it is of no use. */
static int file_take(const struct pipeline_seen *seen, uint8_t *bits)
{
    void *payload = NULL;
    uint64_t bytes = 0;
    struct groups groups;
    int rc = pipeline_kept_read(seen->file, PIPELINE_KEPT_SEEN, &payload, &bytes);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    if (payload_look(seen, payload, bytes, &groups))
        bits_take(seen, &groups, bits);
    else
        rc = -EBADMSG;
    free(payload);
    return rc;
}

int pipeline_seen_write(const struct pipeline_seen *seen, uint8_t *bits)
{
    struct seen_head head = {.name_high = seen->name_high,
                             .name_low = seen->name_low,
                             .sample_count = seen->sample_count,
                             .group_count = seen->group_count,
                             .has_firsts = seen->firsts != NULL};
    uint64_t bytes = payload_bytes(seen->sample_count, seen->group_count, seen->firsts != NULL);
    char *payload = bytes <= PIPELINE_KEPT_BYTES_MAX ? malloc(bytes) : NULL, *at = payload;
    if (!payload)
        return bytes <= PIPELINE_KEPT_BYTES_MAX ? -ENOMEM : -EFBIG;
    int lock = pipeline_kept_lock(seen->file);
    (void)file_take(seen, bits); /* one that is of no use is replaced */
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    memcpy(at, seen->marks, seen->group_count * sizeof *seen->marks);
    at += seen->group_count * sizeof *seen->marks;
    if (seen->firsts) {
        memcpy(at, seen->firsts, (seen->group_count + 1) * sizeof *seen->firsts);
        at += (seen->group_count + 1) * sizeof *seen->firsts;
    }
    memcpy(at, bits, bits_bytes(seen->sample_count));
    int rc = pipeline_kept_write(seen->file, PIPELINE_KEPT_SEEN, payload, bytes);
    pipeline_kept_unlock(lock);
    free(payload);
    return rc;
}

/* --- life --- */

void pipeline_seen_release(struct pipeline_seen *seen)
{
    if (!seen || --seen->users > 0)
        return;
    free(seen->marks);
    free(seen->firsts);
    free(seen->file);
    free(seen->bits);
    free(seen);
}

static uint64_t bits_count(const struct pipeline_seen *seen)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < bits_bytes(seen->sample_count); i++)
        count += (uint64_t)__builtin_popcount(seen->bits[i]);
    return count;
}

struct pipeline_seen *pipeline_seen_open(const struct source *source, const char *file,
                                         const char *name, const struct pipeline_seen *before,
                                         struct err *ret_note)
{
    struct pipeline_seen *seen = calloc(1, sizeof *seen);
    if (!seen)
        return NULL;
    XXH128_hash_t hash = XXH3_128bits(name, strlen(name));
    seen->users = 1;
    seen->name_high = hash.high64;
    seen->name_low = hash.low64;
    seen->file = strdup(file);
    if (!seen->file || !groups_make(seen, source)) {
        pipeline_seen_release(seen);
        return NULL;
    }
    int rc = file[0] ? file_take(seen, seen->bits) : 0;
    if (rc < 0)
        err_set(ret_note, rc, "%s is of no use (%s): what was seen whole begins anew", file,
                rc == -EBADMSG ? "damaged, or of something else" : strerror(-rc));
    seen->seen_count = bits_count(seen);
    if (before && before->name_high == seen->name_high && before->name_low == seen->name_low) {
        const struct groups groups = {.sample_count = before->sample_count,
                                      .group_count = before->group_count,
                                      .marks = before->marks,
                                      .firsts = before->firsts,
                                      .bits = before->bits};
        bits_take(seen, &groups, seen->bits);
        uint64_t count = bits_count(seen);
        seen->noted_count = count - seen->seen_count;
        seen->seen_count = count;
    }
    return seen;
}

void pipeline_seen_note(struct pipeline_seen *seen, uint64_t id)
{
    if (!seen || id >= seen->sample_count || pipeline_seen_is(seen, id))
        return;
    seen->bits[id / BITS] = (uint8_t)(seen->bits[id / BITS] | 1u << (id % BITS));
    seen->seen_count++;
    seen->noted_count++;
}
