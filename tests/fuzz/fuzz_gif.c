/* GIF from made-up bytes. */
#include "decode/decode_gif.h"
#include "tests/fuzz/fuzz_picture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_picture(&decode_gif_ops, data, bytes);
    return 0;
}
