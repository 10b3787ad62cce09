/* Fields that are no pictures: bytes and numbers. For item/field.c alone. */
#ifndef SPDLD_ITEM_FIELD_VALUE_H
#define SPDLD_ITEM_FIELD_VALUE_H

#include "item/field.h"

/* Checks a field of any decoder but image and works out dtype, pad, ragged and dims. 0 or -EINVAL
 * with a sentence. */
int field_value_finish(struct field_spec *field, struct err *reterr);

/* Refuses, for a picture, what goes with bytes only. */
int field_value_check_none(const struct field_spec *field, struct err *reterr);

/* The room of a ragged row; 0: not known yet. */
uint64_t field_value_room(const struct field_spec *field);

#endif
