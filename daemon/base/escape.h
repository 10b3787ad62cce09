/* Values that stand in a list with characters written in another way: in quotes of CSV, where ""
 * is a quote, or in a string of JSON. Pure; any thread. */
#ifndef SPDLD_BASE_ESCAPE_H
#define SPDLD_BASE_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers of enum spdl_work_escape. */
enum escape { ESCAPE_NONE = 0, ESCAPE_CSV = 1, ESCAPE_JSON = 2 };

/* Writes what the value says to `to`, which has room for `bytes`: it never becomes longer. `bytes`
 * at `from` are what stands between the quotes. False: it is not written so (a lone quote, an
 * escape that JSON does not have, half of a surrogate pair). */
bool escape_undo(enum escape escape, const uint8_t *from, size_t bytes, uint8_t *to,
                 size_t *ret_bytes);

#endif
