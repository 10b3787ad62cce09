/* The book of the blob arena: which bytes of it are taken. Pure; the memory itself is elsewhere.
 * First fit from the low end, so that the memory in use is little and near. */
#ifndef SPDLD_PIPELINE_ARENA_H
#define SPDLD_PIPELINE_ARENA_H

#include <stdint.h>

enum { PIPELINE_ARENA_ALIGN = 256, PIPELINE_ARENA_EXTENTS_MAX = 4096 };

/* A taken extent: one of those in order of their offsets, and one in a chain of those whose offsets
 * have the same hash. */
struct pipeline_arena_extent {
    uint64_t offset, bytes;
    uint32_t before, after; /* PIPELINE_ARENA_EXTENTS_MAX: the ends of the arena */
    uint32_t chained;       /* in its chain, or among the spare ones; 0: none, else number + 1 */
};

struct pipeline_arena {
    uint64_t bytes;      /* size */
    uint64_t used_bytes; /* taken, with what rounding up costs */
    uint32_t count;      /* extents taken */
    uint32_t spare;      /* first of the extents not in use; as `chained` */
    /* Where the search begins: no gap before this extent has as many bytes. */
    uint32_t hint;
    uint64_t hint_bytes;
    struct pipeline_arena_extent *extents; /* and one that stands for both ends; owned */
    uint32_t *chains;                      /* first of each; as `chained`; owned */
};

/* What a blob of so many bytes takes. */
static inline uint64_t pipeline_arena_taken(uint64_t bytes)
{
    return (bytes + PIPELINE_ARENA_ALIGN - 1) & ~(uint64_t)(PIPELINE_ARENA_ALIGN - 1);
}

/* 0 or -ENOMEM. */
int pipeline_arena_init(struct pipeline_arena *arena, uint64_t bytes);
void pipeline_arena_fini(struct pipeline_arena *arena);

/* Takes at least `bytes` (>= 1). 0, or -EAGAIN when there is no room now. */
int pipeline_arena_take(struct pipeline_arena *arena, uint64_t bytes, uint64_t *ret_offset);

/* Gives back what begins at `offset`; it must be taken. */
void pipeline_arena_give(struct pipeline_arena *arena, uint64_t offset);

#endif
