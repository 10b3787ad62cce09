/* What the fuzzed parsers share. Each target is a program of libFuzzer: it is called with bytes
 * that are made up, and ends by a signal where something is wrong. */
#ifndef SPDL_TESTS_FUZZ_H
#define SPDL_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Called by libFuzzer. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#endif
