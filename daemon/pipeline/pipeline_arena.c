/* The book of the blob arena: see pipeline_arena.h. Conductor role. */
#include "pipeline/pipeline_arena.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

enum { ENDS = PIPELINE_ARENA_EXTENTS_MAX, CHAINS = PIPELINE_ARENA_EXTENTS_MAX };

int pipeline_arena_init(struct pipeline_arena *arena, uint64_t bytes)
{
    *arena = (struct pipeline_arena){.bytes = bytes & ~(uint64_t)(PIPELINE_ARENA_ALIGN - 1),
                                     .hint = ENDS};
    arena->extents = calloc(PIPELINE_ARENA_EXTENTS_MAX + 1, sizeof *arena->extents);
    arena->chains = calloc(CHAINS, sizeof *arena->chains);
    if (!arena->extents || !arena->chains) {
        pipeline_arena_fini(arena);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < PIPELINE_ARENA_EXTENTS_MAX; i++) {
        arena->extents[i].chained = arena->spare;
        arena->spare = i + 1;
    }
    arena->extents[ENDS] =
        (struct pipeline_arena_extent){.offset = arena->bytes, .before = ENDS, .after = ENDS};
    return 0;
}

void pipeline_arena_fini(struct pipeline_arena *arena)
{
    free(arena->extents);
    free(arena->chains);
    arena->extents = NULL;
    arena->chains = NULL;
}

static uint32_t *chain_of(struct pipeline_arena *arena, uint64_t offset)
{
    uint64_t page = offset / PIPELINE_ARENA_ALIGN;
    return &arena->chains[(page ^ page / CHAINS) % CHAINS];
}

/* Where the gap before the extent begins. */
static uint64_t gap_at(const struct pipeline_arena *arena, uint32_t number)
{
    const struct pipeline_arena_extent *before = &arena->extents[arena->extents[number].before];
    return before == &arena->extents[ENDS] ? 0 : before->offset + before->bytes;
}

/* Puts a new extent before the given one. */
static uint32_t put(struct pipeline_arena *arena, uint32_t after, uint64_t offset, uint64_t bytes)
{
    uint32_t number = arena->spare - 1, before = arena->extents[after].before;
    struct pipeline_arena_extent *extent = &arena->extents[number];
    uint32_t *chain = chain_of(arena, offset);
    arena->spare = extent->chained;
    *extent = (struct pipeline_arena_extent){
        .offset = offset, .bytes = bytes, .before = before, .after = after, .chained = *chain};
    *chain = number + 1;
    arena->extents[before].after = number;
    arena->extents[after].before = number;
    arena->count++;
    arena->used_bytes += bytes;
    return number;
}

int pipeline_arena_take(struct pipeline_arena *arena, uint64_t bytes, uint64_t *ret_offset)
{
    ASSERT(bytes > 0);
    if (bytes > arena->bytes || arena->spare == 0)
        return -EAGAIN;
    bytes = pipeline_arena_taken(bytes);
    uint32_t number = bytes >= arena->hint_bytes ? arena->hint : arena->extents[ENDS].after;
    uint64_t at = gap_at(arena, number);
    while (arena->extents[number].offset - at < bytes) {
        if (number == ENDS)
            return -EAGAIN;
        at = arena->extents[number].offset + arena->extents[number].bytes;
        number = arena->extents[number].after;
    }
    put(arena, number, at, bytes);
    arena->hint = number;
    arena->hint_bytes = bytes;
    *ret_offset = at;
    return 0;
}

void pipeline_arena_give(struct pipeline_arena *arena, uint64_t offset)
{
    uint32_t *link = chain_of(arena, offset);
    while (*link != 0 && arena->extents[*link - 1].offset != offset)
        link = &arena->extents[*link - 1].chained;
    ASSERT(*link != 0);
    uint32_t number = *link - 1;
    struct pipeline_arena_extent *extent = &arena->extents[number];
    *link = extent->chained;
    arena->extents[extent->before].after = extent->after;
    arena->extents[extent->after].before = extent->before;
    /* The gap that grew is before the next one. */
    if (offset <= arena->extents[arena->hint].offset)
        arena->hint = extent->after;
    extent->chained = arena->spare;
    arena->spare = number + 1;
    arena->count--;
    arena->used_bytes -= extent->bytes;
}
