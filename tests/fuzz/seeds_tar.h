/* Seeds of the fuzzers of shards, their index and what is kept beside it. */
#ifndef SPDL_TESTS_SEEDS_TAR_H
#define SPDL_TESTS_SEEDS_TAR_H

#include <stddef.h>

typedef void seed_write(const char *target, const char *name, const void *data, size_t bytes);

/* `root`: the folder of all seeds. Ends the program where something goes wrong. */
void seeds_tar(const char *root, seed_write *write);

#endif
