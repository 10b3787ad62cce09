/* A block: the samples of one shard, as an index keeps them. It is one piece of memory with offsets
 * in it and no pointer, so that it can be written to a file and mapped again. */
#ifndef SPDLD_SOURCE_BLOCK_H
#define SPDLD_SOURCE_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "source/source.h"

enum {
    SOURCE_BLOCK_UNIT = 512,    /* parts begin at multiples of it in their shard */
    SOURCE_BLOCK_PARTS_MAX = 16 /* of a sample */
};

/* Sections lie behind the head in the order of their names here; each begins at a multiple of 8.
 *
 * Most samples of a shard have parts of the same names in the same order: that is a shape, which is
 * kept once. A block with a part of 4 GiB or more, or with too many shapes, is wide: it has no
 * shapes, and the name stands with each part. */
struct source_block {
    uint64_t bytes;                   /* of the whole block, a multiple of 8 */
    uint64_t digest_high, digest_low; /* of its samples (docs/order.md) */
    uint64_t ignored, largest_bytes;
    uint64_t samples_at, parts_at, shapes_at, shape_names_at, names_at, faults_at, text_at;
    uint32_t sample_count, part_count, shape_count, shape_name_count, name_count, fault_count;
    uint32_t text_bytes; /* its last byte is 0 */
    uint32_t longest_key_bytes;
    uint32_t is_wide; /* 0 or 1 */
    uint32_t reserved;
};

struct source_block_sample {
    uint32_t key_at; /* in the text */
    uint32_t first_part;
    uint16_t key_bytes;
    uint16_t shape; /* its number; wide: how many parts it has */
};
struct source_block_shape {
    uint32_t first_name, part_count; /* in shape_names, which has numbers of names */
    uint32_t sample_count;
};
struct source_block_part {
    uint32_t unit; /* offset in the shard / SOURCE_BLOCK_UNIT */
    uint32_t bytes;
};
struct source_block_wide_part {
    uint64_t bytes;
    uint32_t unit;
    uint32_t name; /* number of its name */
};
struct source_block_fault {
    uint64_t offset;
    uint32_t class_number;
    uint32_t key_at, key_bytes;
    uint32_t message_at; /* ends with 0 */
};
enum { SOURCE_BLOCK_SHAPES_MAX = 65535 };

/* Are the sections inside the block, which is `bytes` long? What stands in them is checked when it
 * is looked up. */
bool source_block_check(const struct source_block *block, uint64_t bytes);

/* Key and parts (name, offset, bytes; the rest is the caller's) of sample `number`. One that is
 * damaged has no parts. */
void source_block_sample(const struct source_block *block, uint32_t number,
                         struct source_sample *ret_sample);
/* Gets near what is known of the sample; near: its own record is near already. */
void source_block_warm(const struct source_block *block, uint32_t number, bool near);
void source_block_fault(const struct source_block *block, uint32_t number,
                        struct source_fault *ret_fault); /* all but the path */
const char *source_block_name(const struct source_block *block, uint32_t number);

/* Samples that lack a part: a field is made from the first of its names that a sample has. Bit f of
 * has[n]: name n of the block is one of field f's. Returns how many samples do not have the bits
 * `all`; their numbers, ascending, are *ret_numbers, returned owned (free); UINT32_MAX: no memory.
 */
uint32_t source_block_lacking(const struct source_block *block, const uint32_t *has, uint32_t all,
                              uint32_t **ret_numbers);

/* Makes a block from members in the order in which they are found. */
struct source_builder;

struct source_builder *source_builder_create(void);          /* NULL: no memory */
void source_builder_destroy(struct source_builder *builder); /* accepts NULL */

/* A member of the shard: its key and the name of its part are taken from its path. One without a
 * part's name, or hidden, is counted as ignored. With a class other than OK its sample is left out,
 * with the message (printed with the part's name where it holds %s). 0, -ENOMEM or -EFBIG: more
 * than an index can hold. */
struct source_builder_member {
    const char *path;
    uint32_t path_bytes;
    uint64_t header_offset, data_offset, bytes;
    uint32_t class_number;
    const char *message;
};
int source_builder_member(struct source_builder *builder,
                          const struct source_builder_member *member);
void source_builder_ignore(struct source_builder *builder);
/* Something wrong that belongs to no sample. */
int source_builder_fault(struct source_builder *builder, uint32_t class_number, uint64_t offset,
                         const char *message);
/* The shard ends before the member that comes next is known; `path` is as much of its name as there
 * is, or "". The sample found last may be the one that it belongs to: then that is left out. */
int source_builder_cut(struct source_builder *builder, uint64_t offset, const char *path,
                       const char *message);
/* Returned owned: free. NULL: no memory, or too large. */
struct source_block *source_builder_finish(struct source_builder *builder);

#endif
