/* Which samples of a dataset were decoded to their last row and found whole: one bit each. A
 * picture that was may be decoded only as far as its crop needs; that changes speed and nothing
 * else, because its class is known. Bits belong to groups of samples that change together (a shard,
 * else a file), which are known by a mark made from path, size and time: where that differs the
 * bits are gone. They outlive the daemon in a file. */
#ifndef SPDLD_PIPELINE_SEEN_H
#define SPDLD_PIPELINE_SEEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "source/source.h"

struct pipeline_seen {
    uint32_t users;        /* conductor only: who needs marks and groups; 0 frees it */
    uint64_t sample_count; /* what follows is not changed after it was made, but for the bits */
    uint64_t group_count;
    uint64_t *marks;  /* of each group */
    uint64_t *firsts; /* first sample of each group, and behind the last; NULL: one each */
    uint64_t name_high, name_low; /* of what it was made with: pipeline_seen_open */
    char *file;           /* "": it is not kept, for there is no folder or there are too many */
    uint8_t *bits;        /* conductor only, once it has it */
    uint64_t seen_count;  /* bits that are set */
    uint64_t noted_count; /* … since they were written, or were last about to be */
};

/* Makes what belongs to the source, with the bits of the file and of `before` (NULL: none; of an
 * older listing). `name`: which parts of which source are decoded how, as text; a file of another
 * name is as good as none. Returned owned, with one user: pipeline_seen_release. NULL: no memory;
 * then every picture is decoded whole each time. *ret_note has a sentence where the file was of no
 * use. Blocks; chores thread. */
struct pipeline_seen *pipeline_seen_open(const struct source *source, const char *file,
                                         const char *name, const struct pipeline_seen *before,
                                         struct err *ret_note);
void pipeline_seen_release(struct pipeline_seen *seen); /* accepts NULL */

/* Conductor role; seen may be NULL. */
static inline bool pipeline_seen_is(const struct pipeline_seen *seen, uint64_t id)
{
    return seen && id < seen->sample_count && (seen->bits[id / 8] >> (id % 8) & 1) != 0;
}
void pipeline_seen_note(struct pipeline_seen *seen, uint64_t id);

uint64_t pipeline_seen_bytes(const struct pipeline_seen *seen); /* of its bits */

/* Writes the file with the bits given, and with those that another daemon wrote in it meanwhile,
 * which are added to `bits`. 0 or a negative errno. Blocks; chores thread. */
int pipeline_seen_write(const struct pipeline_seen *seen, uint8_t *bits);

#endif
