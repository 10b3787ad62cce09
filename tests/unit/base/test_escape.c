/* Escaped values: what they say, and those that are not written so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/escape.h"
#include "tests/lib/chance.h"

/* In memory of just its size, so that a sanitizer sees a byte too many. */
static bool undo(enum escape escape, const char *from, size_t bytes, char *ret_text,
                 size_t *ret_bytes)
{
    uint8_t *in = malloc(bytes + !bytes), *out = malloc(bytes + !bytes);
    if (bytes > 0)
        memcpy(in, from, bytes);
    bool good = escape_undo(escape, in, bytes, out, ret_bytes);
    if (good) {
        assert_true(*ret_bytes <= bytes);
        if (*ret_bytes > 0)
            memcpy(ret_text, out, *ret_bytes);
    }
    free(in);
    free(out);
    return good;
}

static void says(enum escape escape, const char *from, const char *wanted, size_t wanted_bytes)
{
    char text[256];
    size_t bytes = 0;
    if (!undo(escape, from, strlen(from), text, &bytes))
        fail_msg("%s is refused", from);
    assert_int_equal(bytes, wanted_bytes);
    assert_memory_equal(text, wanted, bytes);
}
#define SAYS(escape, from, wanted) says(escape, from, wanted, sizeof(wanted) - 1)

static void refused(enum escape escape, const char *from)
{
    char text[256];
    size_t bytes;
    if (undo(escape, from, strlen(from), text, &bytes))
        fail_msg("%s is taken", from);
}

static void test_right(void **state)
{
    (void)state;
    SAYS(ESCAPE_NONE, "a\"\"\\n", "a\"\"\\n");
    SAYS(ESCAPE_NONE, "", "");
    SAYS(ESCAPE_CSV, "", "");
    SAYS(ESCAPE_CSV, "a\"\"b\"\"\"\"\nc\\n", "a\"b\"\"\nc\\n");
    SAYS(ESCAPE_JSON, "", "");
    SAYS(ESCAPE_JSON, "\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t");
    SAYS(ESCAPE_JSON, "\\u0041\\u00e9\\u20AC\\ud83d\\ude00\\u0000z",
         "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\0z");
    SAYS(ESCAPE_JSON, "\\udbff\\udfff\\u07ff\\u0800\\uffff",
         "\xf4\x8f\xbf\xbf\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf");
}

static void test_wrong(void **state)
{
    (void)state;
    refused(ESCAPE_CSV, "\"");
    refused(ESCAPE_CSV, "a\"b");
    refused(ESCAPE_CSV, "\"\"\"");
    static const char *const wrong[] = {
        "\\",        "\\x",        "\\u",     "\\u12",         "\\u12g4",        "\\ud800",
        "\\ud800\\", "\\ud800\\u", "\\udc00", "\\ud800\\n123", "\\ud800\\u0041", "\\ud800abcdef"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        refused(ESCAPE_JSON, wrong[i]);
    char text[8];
    size_t bytes;
    assert_false(undo(ESCAPE_JSON, "\\\0", 2, text, &bytes));
}

/* Anything: no byte outside, and never longer. */
static void test_garbage(void **state)
{
    (void)state;
    static const char letters[] = "\"\\ud8dc0fnaé\n";
    uint64_t seed = 7;
    char from[40], text[40];
    size_t bytes;
    for (int run = 0; run < 20000; run++) {
        size_t count = (size_t)chance_below(&seed, sizeof from);
        for (size_t i = 0; i < count; i++)
            from[i] = letters[chance_below(&seed, sizeof letters)];
        undo(ESCAPE_CSV, from, count, text, &bytes);
        undo(ESCAPE_JSON, from, count, text, &bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_right), cmocka_unit_test(test_wrong),
                                       cmocka_unit_test(test_garbage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
