/* SHA-256, for tests that compare with the digests that other programs gave. */
#ifndef SPDL_TESTS_SHA256_H
#define SPDL_TESTS_SHA256_H

#include <stddef.h>

/* Digest as 64 hexadecimal digits and a 0. */
void sha256_text(const void *data, size_t bytes, char ret_text[65]);

#endif
