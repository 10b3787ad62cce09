/* Rows of lists from made-up bytes: the first says which form they have. */
#include <stdlib.h>

#include "item/class.h"
#include "source/source_list_parse.h"
#include "tests/fuzz/fuzz.h"

static void value_check(const uint8_t *row, size_t row_bytes, uint32_t at, uint32_t bytes,
                        uint8_t escape)
{
    if (at > row_bytes || bytes > row_bytes - at)
        abort();
    size_t said = 0;
    uint8_t *text = malloc(bytes);
    if (escape_undo((enum escape)escape, row + at, bytes, text, &said) && said > bytes)
        abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char delimiters[] = {',', '\t', SOURCE_LIST_JSON};
    static struct source_list_row row;
    if (bytes == 0)
        return 0;
    struct source_list_input input = {.data = data + 1,
                                      .bytes = bytes - 1,
                                      .is_end = true,
                                      .goes_back = (data[0] & 1) != 0,
                                      .delimiter = delimiters[data[0] / 2 % 3]};
    while (input.bytes > 0) {
        if (!source_list_row(&input, &row) || row.bytes == 0 || row.bytes > input.bytes)
            abort();
        for (uint32_t i = 0; row.class_number == SPDL_CLASS_OK && i < row.value_count; i++) {
            const struct source_list_value *value = &row.values[i];
            value_check(input.data, row.bytes, value->at, value->bytes, value->escape);
            value_check(input.data, row.bytes, value->name_at, value->name_bytes,
                        value->name_escape);
        }
        input.data += row.bytes;
        input.bytes -= row.bytes;
    }
    return 0;
}
