/* The book of the blob arena: see pipeline_arena.h. Conductor role. */
#include "pipeline/pipeline_arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

int pipeline_arena_init(struct pipeline_arena *arena, uint64_t bytes)
{
    *arena = (struct pipeline_arena){.bytes = bytes & ~(uint64_t)(PIPELINE_ARENA_ALIGN - 1)};
    arena->extents = calloc(PIPELINE_ARENA_EXTENTS_MAX, sizeof *arena->extents);
    return arena->extents ? 0 : -ENOMEM;
}

void pipeline_arena_fini(struct pipeline_arena *arena)
{
    free(arena->extents);
    arena->extents = NULL;
}

int pipeline_arena_take(struct pipeline_arena *arena, uint64_t bytes, uint64_t *ret_offset)
{
    ASSERT(bytes > 0);
    if (bytes > arena->bytes || arena->count == PIPELINE_ARENA_EXTENTS_MAX)
        return -EAGAIN;
    bytes = (bytes + PIPELINE_ARENA_ALIGN - 1) & ~(uint64_t)(PIPELINE_ARENA_ALIGN - 1);
    uint64_t at = 0;
    uint32_t i = 0;
    for (; i < arena->count; i++) {
        if (arena->extents[i].offset - at >= bytes)
            break;
        at = arena->extents[i].offset + arena->extents[i].bytes;
    }
    if (i == arena->count && arena->bytes - at < bytes)
        return -EAGAIN;
    memmove(&arena->extents[i + 1], &arena->extents[i],
            (arena->count - i) * sizeof *arena->extents);
    arena->extents[i] = (struct pipeline_arena_extent){.offset = at, .bytes = bytes};
    arena->count++;
    arena->used_bytes += bytes;
    *ret_offset = at;
    return 0;
}

void pipeline_arena_give(struct pipeline_arena *arena, uint64_t offset)
{
    uint32_t low = 0, high = arena->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (arena->extents[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    ASSERT(low < arena->count && arena->extents[low].offset == offset);
    arena->used_bytes -= arena->extents[low].bytes;
    arena->count--;
    memmove(&arena->extents[low], &arena->extents[low + 1],
            (arena->count - low) * sizeof *arena->extents);
}
