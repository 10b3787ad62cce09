/* The engines, in the order in which `auto` tries them. */
#include <stddef.h>

#include "fetch/fetch.h"

extern const struct fetch_ops fetch_uring_ops, fetch_pool_ops;

const struct fetch_ops *const fetch_table[] = {&fetch_uring_ops, &fetch_pool_ops, NULL};
