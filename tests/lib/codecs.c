/* Every codec of the table: see codecs.h. */
#include "tests/lib/codecs.h"

#include <stdlib.h>
#include <string.h>

#include "decode/decode.h"

void *codec_contexts[CODECS_MAX];

int codecs_open(void **state)
{
    (void)state;
    for (size_t i = 0; decode_table[i] != NULL; i++) {
        if (i >= CODECS_MAX)
            return -1;
        size_t bytes = (decode_table[i]->ctx_bytes + 63) & ~(size_t)63;
        codec_contexts[i] = aligned_alloc(64, bytes);
        if (!codec_contexts[i])
            return -1;
        memset(codec_contexts[i], 0, bytes);
        if (decode_table[i]->open(codec_contexts[i]) != 0)
            return -1;
    }
    return 0;
}

int codecs_close(void **state)
{
    (void)state;
    for (size_t i = 0; decode_table[i] != NULL; i++) {
        decode_table[i]->close(codec_contexts[i]);
        free(codec_contexts[i]);
    }
    return 0;
}
