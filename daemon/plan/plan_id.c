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

enum {
    ID_HEAD_BYTES = 256,
    ID_ORDER_BYTES = 96,
    ID_FIELD_TEXT_BYTES = 8192 /* a field with full lists takes less */
};

/* The lines that only some orders have, so that ids without them keep their meaning. */
static void id_order_lines(const struct plan_spec *spec, char *text, size_t capacity)
{
    int used = 0;
    text[0] = '\0';
    if (spec->shuffle == PLAN_SHUFFLE_BLOCK)
        used = snprintf(text, capacity, "block_samples %" PRIu64 "\n", spec->block_samples);
    if (spec->lanes > 1)
        snprintf(text + used, capacity - (size_t)used, "lanes %" PRIu32 "\n", spec->lanes);
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

int plan_id_make(struct plan_id dataset_id, const struct plan_spec *spec,
                 const struct field_spec *fields, uint32_t field_count, struct plan_id *ret_id,
                 struct err *reterr)
{
    int rc = plan_spec_check(spec, reterr);
    if (rc < 0)
        return rc;
    if (field_count > FIELD_MAX)
        return err_set(reterr, -EINVAL, "%" PRIu32 " fields are more than the limit of %d",
                       field_count, (int)FIELD_MAX);
    char dataset[PLAN_ID_TEXT_BYTES];
    plan_id_text(dataset_id, dataset);
    char head[ID_HEAD_BYTES];
    char order[ID_ORDER_BYTES];
    id_order_lines(spec, order, sizeof order);
    snprintf(head, sizeof head,
             "spdl-plan 1\norder %d\ndataset %s\nshuffle %s\n%slast %s\nfields %" PRIu32 "\n",
             (int)PLAN_ORDER_VERSION, dataset, plan_shuffle_name(spec->shuffle), order,
             plan_last_name(spec->last), field_count);
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
