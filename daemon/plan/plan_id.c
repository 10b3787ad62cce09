/* Plan ids: XXH3-128 of a canonical text of all that can change a sample or its place. In: dataset
 * id, order, fields. Out: 128 bits. Pure but for memory that it gives back, any thread.
 * docs/order.md has the text. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "plan/plan.h"

enum { ID_HEAD_BYTES = 256, ID_FIELD_TEXT_BYTES = 8192 }; /* a field with full lists takes less */

/* Refuses what the order does not have, so that no id is made for it. */
static int id_check(uint32_t shuffle, uint32_t last, uint32_t field_count, struct err *reterr)
{
    if (shuffle == PLAN_SHUFFLE_BLOCK)
        return err_set(reterr, -EINVAL,
                       "shuffle: block is reserved and version %d of the order does not have it; "
                       "use global or none",
                       (int)PLAN_ORDER_VERSION);
    if (!plan_shuffle_name(shuffle))
        return err_set(reterr, -EINVAL, "shuffle: %" PRIu32 " is none of none and global", shuffle);
    if (!plan_last_name(last))
        return err_set(reterr, -EINVAL, "last: %" PRIu32 " is none of drop, pad and partial", last);
    if (field_count > FIELD_MAX)
        return err_set(reterr, -EINVAL, "%" PRIu32 " fields are more than the limit of %d",
                       field_count, (int)FIELD_MAX);
    return 0;
}

/* Writes the canonical text. Returns its length or a negative errno. */
static int id_write(const char *head, const struct field_spec *fields, uint32_t field_count,
                    char *text, size_t capacity)
{
    size_t used = strlen(head);
    memcpy(text, head, used);
    for (uint32_t i = 0; i < field_count; i++) {
        int n = field_canonical(&fields[i], text + used, capacity - used);
        if (n < 0)
            return n;
        used += (size_t)n;
    }
    return (int)used;
}

/* exception: sizes: what an id is made of, each once, and where it goes. */
int plan_id_make(struct plan_id dataset_id, uint32_t shuffle, uint32_t last,
                 const struct field_spec *fields, uint32_t field_count, struct plan_id *ret_id,
                 struct err *reterr)
{
    int rc = id_check(shuffle, last, field_count, reterr);
    if (rc < 0)
        return rc;
    char dataset[PLAN_ID_TEXT_BYTES];
    plan_id_text(dataset_id, dataset);
    char head[ID_HEAD_BYTES];
    snprintf(head, sizeof head,
             "spdl-plan 1\norder %d\ndataset %s\nshuffle %s\nlast %s\nfields %" PRIu32 "\n",
             (int)PLAN_ORDER_VERSION, dataset, plan_shuffle_name(shuffle), plan_last_name(last),
             field_count);
    size_t capacity = ID_HEAD_BYTES + field_count * (size_t)ID_FIELD_TEXT_BYTES;
    char *text = malloc(capacity);
    if (!text)
        return err_set(reterr, -ENOMEM, "no memory for the plan's text of %zu bytes", capacity);
    rc = id_write(head, fields, field_count, text, capacity);
    if (rc >= 0) {
        XXH128_hash_t digest = XXH3_128bits(text, (size_t)rc);
        *ret_id = (struct plan_id){.high = digest.high64, .low = digest.low64};
    }
    free(text);
    return rc < 0 ? err_set(reterr, rc, "the plan's text is above its limit") : 0;
}

void plan_id_text(struct plan_id id, char text[PLAN_ID_TEXT_BYTES])
{
    snprintf(text, PLAN_ID_TEXT_BYTES, "%016" PRIx64 "%016" PRIx64, id.high, id.low);
}
