/* Which samples of a dataset were decoded to their last row and found whole: one bit each. A
 * picture that was may be decoded only as far as its crop needs; that changes speed and nothing
 * else, because its class is known. The bits belong to the list that they were made with (names,
 * sizes, times: a file that changes afterwards is class CHANGED) and go with it. Conductor role. */
#include <stdlib.h>
#include <string.h>

#include "pipeline/pipeline_state.h"

enum { BITS = 8 };

void pipeline_seen_begin(struct pipeline_dataset *dataset)
{
    bool has_picture = false;
    for (uint32_t f = 0; f < dataset->field_count; f++)
        has_picture = has_picture || strcmp(dataset->fields[f].decoder, "image") == 0;
    if (!has_picture)
        return;
    dataset->seen_count = source_counts(dataset->source)->samples;
    dataset->seen = calloc(dataset->seen_count / BITS + 1, 1);
    if (!dataset->seen) /* then every picture is decoded whole each time */
        dataset->seen_count = 0;
}

void pipeline_seen_end(struct pipeline_dataset *dataset)
{
    free(dataset->seen);
    dataset->seen = NULL;
    dataset->seen_count = 0;
}

bool pipeline_seen_is(const struct pipeline_dataset *dataset, uint64_t id)
{
    return id < dataset->seen_count && (dataset->seen[id / BITS] >> (id % BITS) & 1) != 0;
}

void pipeline_seen_note(struct pipeline_dataset *dataset, uint64_t id)
{
    if (id < dataset->seen_count)
        dataset->seen[id / BITS] = (uint8_t)(dataset->seen[id / BITS] | 1u << (id % BITS));
}
