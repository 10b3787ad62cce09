/* The kinds of source, in the order in which they are offered. */
#include <stddef.h>

#include "source/source.h"

extern const struct source_ops source_folder_ops, source_tar_ops, source_list_ops,
    source_synthetic_ops;

const struct source_ops *const source_table[] = {&source_folder_ops, &source_tar_ops,
                                                 &source_list_ops, &source_synthetic_ops, NULL};
