/* The book of the blob arena: which bytes of it are taken. Pure; the memory itself is elsewhere.
 * First fit from the low end, so that the pages in use stay few. */
#ifndef SPDLD_PIPELINE_ARENA_H
#define SPDLD_PIPELINE_ARENA_H

#include <stdint.h>

enum { PIPELINE_ARENA_ALIGN = 4096, PIPELINE_ARENA_EXTENTS_MAX = 4096 };

struct pipeline_arena_extent {
    uint64_t offset, bytes;
};

struct pipeline_arena {
    uint64_t bytes;                        /* size */
    uint64_t used_bytes;                   /* taken, with what rounding up costs */
    uint32_t count;                        /* extents taken */
    struct pipeline_arena_extent *extents; /* sorted by offset; owned */
};

/* 0 or -ENOMEM. */
int pipeline_arena_init(struct pipeline_arena *arena, uint64_t bytes);
void pipeline_arena_fini(struct pipeline_arena *arena);

/* Takes at least `bytes` (>= 1). 0, or -EAGAIN when there is no room now. */
int pipeline_arena_take(struct pipeline_arena *arena, uint64_t bytes, uint64_t *ret_offset);

/* Gives back what begins at `offset`; it must be taken. */
void pipeline_arena_give(struct pipeline_arena *arena, uint64_t offset);

#endif
