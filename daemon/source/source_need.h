/* Which parts a sample needs, so that every field has one to be made from. Private to the room. */
#ifndef SPDLD_SOURCE_NEED_H
#define SPDLD_SOURCE_NEED_H

#include <stdint.h>

#include "source/source.h"

enum { SOURCE_NEED_MESSAGE_BYTES = 320 };

/* Fields are bits, in the order of the dataset. */
struct source_need {
    uint32_t all; /* 0: every sample is complete */
    uint32_t field_count;
    struct field_spec *fields;                   /* a copy */
    char (*messages)[SOURCE_NEED_MESSAGE_BYTES]; /* of each field: what a sample lacks */
};

/* 0 or -ENOMEM. */
int source_need_init(const struct source_spec *spec, struct source_need *ret_need);
void source_need_fini(struct source_need *need);

/* The fields that can be made from a part of this name. */
uint32_t source_need_bits(const struct source_need *need, const char *name);

/* What a sample lacks whose parts have these bits, which are not all. */
const char *source_need_message(const struct source_need *need, uint32_t bits);

#endif
