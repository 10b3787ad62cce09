/* An engine that makes trouble on purpose, around a real one: see fetch_faulty.c. Private to the
 * room. */
#ifndef SPDLD_FETCH_FAULTY_H
#define SPDLD_FETCH_FAULTY_H

#include "base/err.h"
#include "fetch/fetch.h"

/* Takes `inner` on success. -EINVAL with a sentence for words that it does not know, -ENOMEM,
 * -EMFILE. */
int fetch_faulty_open(struct fetch *inner, const struct fetch_params *params,
                      struct fetch **ret_fetch, struct err *reterr);

#endif
