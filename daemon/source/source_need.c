/* Which parts a sample needs: see source_need.h. */
#include "source/source_need.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)FIELD_MAX <= 32, "fields are bits");

int source_need_init(const struct source_spec *spec, struct source_need *ret_need)
{
    *ret_need = (struct source_need){0};
    if (spec->field_count == 0)
        return 0;
    ret_need->fields = calloc(spec->field_count, sizeof *ret_need->fields);
    ret_need->messages = calloc(spec->field_count, sizeof *ret_need->messages);
    if (!ret_need->fields || !ret_need->messages) {
        source_need_fini(ret_need);
        return -ENOMEM;
    }
    ret_need->field_count = spec->field_count;
    for (uint32_t f = 0; f < spec->field_count; f++)
        ret_need->all |= spec->fields[f].missing_empty ? 0 : UINT32_C(1) << f;
    memcpy(ret_need->fields, spec->fields, spec->field_count * sizeof *ret_need->fields);
    for (uint32_t f = 0; f < spec->field_count; f++)
        field_missing_text(&spec->fields[f], ret_need->messages[f], SOURCE_NEED_MESSAGE_BYTES);
    return 0;
}

void source_need_fini(struct source_need *need)
{
    free(need->fields);
    free(need->messages);
    *need = (struct source_need){0};
}

uint32_t source_need_bits(const struct source_need *need, const char *name)
{
    uint32_t bits = 0;
    for (uint32_t f = 0; f < need->field_count; f++)
        for (uint32_t n = 0; n < need->fields[f].from_count; n++)
            if (strcmp(need->fields[f].from[n], name) == 0)
                bits |= UINT32_C(1) << f;
    return bits;
}

const char *source_need_message(const struct source_need *need, uint32_t bits)
{
    for (uint32_t f = 0; f < need->field_count; f++)
        if ((need->all & ~bits) >> f & 1)
            return need->messages[f];
    return "";
}
