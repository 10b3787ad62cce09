/* Reads of one open file, several by one call: ranges that lie close together are read with what is
 * between them, each to its own place. Private to the room; any thread. */
#ifndef SPDLD_FETCH_JOIN_H
#define SPDLD_FETCH_JOIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fetch/fetch_port.h"

enum {
    FETCH_BATCH_MAX = 64,            /* requests that are read together */
    FETCH_JOIN_GAP_BYTES = 16 << 10, /* between two of one call: headers and padding */
    FETCH_JOIN_BYTES = 256 << 10     /* of one call, the gaps too; longer ranges are left */
};

/* Requests of one file, by the numbers of their slots. */
struct fetch_batch {
    uint32_t count;
    uint32_t slots[FETCH_BATCH_MAX];
    bool full[FETCH_BATCH_MAX]; /* all of its bytes are there */
    uint64_t joined;            /* calls that were saved */
};

/* Sorts the numbers by owner, file and offset. */
void fetch_join_sort(const struct fetch_port *port, uint32_t *slots, uint32_t count);

/* Reads what can be had from the file, which the caller judges afterwards. What does not come whole
 * at the first try, for whatever reason, is left. flags: of preadv2. Stops soon when *stop is not
 * 0.
 */
void fetch_join_read(const struct fetch_port *port, struct fetch_batch *batch, int fd, int flags,
                     const _Atomic uint32_t *stop);

#endif
