/* Reading one tar shard. Private to the room, and for its fuzzers. */
#ifndef SPDLD_SOURCE_TAR_H
#define SPDLD_SOURCE_TAR_H

#include <stdint.h>

#include "base/err.h"
#include "source/source_block.h"

/* Makes a block of the open shard: `build` of struct source_index_params. */
int source_tar_build(int fd, uint64_t bytes, struct source_progress *progress,
                     struct source_block **ret_block, struct err *reterr);

#endif
