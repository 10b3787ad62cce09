/* Every codec of the table opened, for tests that decode with the one that knows a file. */
#ifndef SPDL_TESTS_CODECS_H
#define SPDL_TESTS_CODECS_H

enum { CODECS_MAX = 8 };

extern void *codec_contexts[CODECS_MAX]; /* of decode_table[i] */

/* Set-up and tear-down of a group of tests. */
int codecs_open(void **state);
int codecs_close(void **state);

#endif
