/* The text of a state from made-up bytes. One that is taken comes out as the same text. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct plan_state state = {0};
    struct err err = {0};
    char *text = malloc(bytes + 1), again[PLAN_STATE_TEXT_BYTES]; /* of its own size: no end mark */
    if (text == NULL)
        abort();
    memcpy(text, data, bytes);
    if (plan_state_decode(text, bytes, &state, &err) == 0) {
        plan_state_encode(&state, again);
        if (strlen(again) > bytes || memcmp(again, text, strlen(again)) != 0)
            abort();
    } else if (err.text[0] == '\0') {
        abort();
    }
    free(text);
    return 0;
}
