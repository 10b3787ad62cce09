/* A quarantine that was kept, of made-up bytes. One that is taken comes out as the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "pipeline/pipeline_quarantine.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct pipeline_quarantine *list = NULL, *again = NULL;
    uint64_t packed_bytes = 0;
    uint8_t *copy = malloc(bytes ? bytes : 1); /* of its own size */
    if (!copy)
        abort();
    memcpy(copy, data, bytes);
    if (pipeline_quarantine_unpack(copy, bytes, &list) == 0) {
        void *packed = pipeline_quarantine_pack(list, &packed_bytes);
        if (!packed || packed_bytes > bytes ||
            pipeline_quarantine_unpack(packed, packed_bytes, &again) != 0 ||
            pipeline_quarantine_count(again) != pipeline_quarantine_count(list))
            abort();
        free(packed);
    } else if (list) {
        abort();
    }
    pipeline_quarantine_destroy(list);
    pipeline_quarantine_destroy(again);
    free(copy);
    return 0;
}
