/* Mapped files that others may cut while they are mapped. A page that is gone raises SIGBUS at
 * whoever touches it: it is given zeros instead, as are all behind it, and the mapping is known to
 * be damaged from then on. A SIGBUS anywhere else does what it would do without this. */
#ifndef SPDLD_SOURCE_GUARD_H
#define SPDLD_SOURCE_GUARD_H

#include <stdbool.h>
#include <stdint.h>

struct source_guard; /* of one mapping; its owner alone uses it, anybody may touch the bytes */

/* Maps a whole regular file for reading, with a page of zeros behind it. Keeps a descriptor of its
 * own. *ret_guard returned owned. 0; -EINVAL: not a regular file, or shorter than least_bytes;
 * another negative errno. Blocks. */
int source_guard_map(int fd, uint64_t least_bytes, struct source_guard **ret_guard,
                     const char **ret_base, uint64_t *ret_bytes);
void source_guard_unmap(struct source_guard *guard); /* accepts NULL */

enum source_guard_state {
    SOURCE_GUARD_WHOLE,   /* the file has the size and time that it had when it was mapped */
    SOURCE_GUARD_TOUCHED, /* it has another time: it may hold something else */
    SOURCE_GUARD_DAMAGED  /* it was cut or has another size: what was read of late may be wrong */
};
/* Answers for all that was read of the mapping before. Asks the kernel, and never a server. */
enum source_guard_state source_guard_look(struct source_guard *guard);
/* The bytes were found to be right after all: the time that it has now is taken for good. */
void source_guard_accept(struct source_guard *guard);

#endif
