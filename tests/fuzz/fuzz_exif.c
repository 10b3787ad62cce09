/* The orientation in made-up EXIF bytes. */
#include <stdlib.h>

#include "decode/decode_exif.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    int32_t orientation = decode_exif_orientation_named(data, bytes);
    if (orientation < 1 || orientation > 8)
        abort();
    return 0;
}
