/* The end of a process that found a bug of its own: one line on standard error, then abort. */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

void assert_fail(const char *condition, const char *file, int line)
{
    fprintf(stderr, "spdld: internal error: %s:%d: %s does not hold\n", file, line, condition);
    abort();
}
