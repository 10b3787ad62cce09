/* How far the listing of a dataset is, in words. Any thread. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#include "pipeline/pipeline_state.h"

bool pipeline_progress_words(const struct source_progress *progress, char *text, size_t bytes)
{
    uint64_t files = atomic_load_explicit(&progress->files, memory_order_relaxed);
    uint64_t done = atomic_load_explicit(&progress->files_done, memory_order_relaxed);
    uint64_t all_bytes = atomic_load_explicit(&progress->bytes, memory_order_relaxed);
    uint64_t done_bytes = atomic_load_explicit(&progress->bytes_done, memory_order_relaxed);
    if (files == 0)
        return false;
    double share = all_bytes > 0 ? (double)done_bytes / (double)all_bytes : 1;
    snprintf(text, bytes, "indexing shard %" PRIu64 " of %" PRIu64 ", %.0f %%",
             done < files ? done + 1 : files, files, share < 1 ? 100 * share : 100.0);
    return true;
}
