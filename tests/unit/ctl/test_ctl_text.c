/* Text and JSON of spdlctl: escapes, bytes that are not UTF-8, what a terminal may be shown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/ctl/ctl_hist.h"
#include "client/ctl/ctl_json.h"
#include "client/ctl/ctl_table.h"

static void text_is(struct ctl_text *text, const char *wanted)
{
    assert_false(text->failed);
    ctl_text_put(text, "", 1);
    assert_string_equal(text->data, wanted);
    ctl_text_fini(text);
}

static void json_is(const void *data, size_t bytes, const char *wanted)
{
    struct ctl_text text = {0};
    ctl_json_bytes(&text, data, bytes);
    text_is(&text, wanted);
}

static void test_json_strings(void **state)
{
    (void)state;
    json_is("", 0, "\"\"");
    json_is("a/b.jpg", 7, "\"a/b.jpg\"");
    json_is("\"\\/\n\r\t", 6, "\"\\\"\\\\/\\n\\r\\t\"");
    json_is("\0\x1f\x7f", 3, "\"\\u0000\\u001f\\u007f\"");
    json_is("\xc3\xa4\xe2\x82\xac", 5, "\"\\u00e4\\u20ac\"");
    json_is("\xf0\x9f\x98\x80", 4, "\"\\ud83d\\ude00\"");
    json_is("\xe2\x80\xa8", 3, "\"\\u2028\"");
}

static void test_json_not_utf8(void **state)
{
    (void)state;
    json_is("a\xff"
            "b",
            3, "\"a\\udcffb\"");
    json_is("\xc3", 1, "\"\\udcc3\"");
    json_is("\xe2\x82", 2, "\"\\udce2\\udc82\"");
    json_is("\xe2\x82"
            "A",
            3, "\"\\udce2\\udc82A\"");
    json_is("\xc0\xaf", 2, "\"\\udcc0\\udcaf\"");                       /* overlong */
    json_is("\xe0\x80\x80", 3, "\"\\udce0\\udc80\\udc80\"");            /* overlong */
    json_is("\xed\xa0\x80", 3, "\"\\udced\\udca0\\udc80\"");            /* a surrogate */
    json_is("\xf4\x90\x80\x80", 4, "\"\\udcf4\\udc90\\udc80\\udc80\""); /* above 10ffff */
    json_is("\x80\xc3\xa4", 3, "\"\\udc80\\u00e4\"");
}

static void test_json_commas(void **state)
{
    (void)state;
    struct ctl_text text = {0};
    ctl_text_str(&text, "\n");
    ctl_json_open(&text, '{');
    ctl_json_key(&text, "a");
    ctl_json_open(&text, '[');
    ctl_json_close(&text, ']');
    ctl_json_key(&text, "b");
    ctl_json_open(&text, '[');
    ctl_json_string(&text, "[");
    ctl_json_string(&text, ":");
    ctl_json_unsigned(&text, UINT64_MAX);
    ctl_json_signed(&text, INT64_MIN);
    ctl_json_bool(&text, true);
    ctl_json_null(&text);
    ctl_json_open(&text, '{');
    ctl_json_close(&text, '}');
    ctl_json_open(&text, '{');
    ctl_json_close(&text, '}');
    ctl_json_close(&text, ']');
    ctl_json_key_double(&text, "c", 1.0 / 3, 3);
    ctl_json_key_double(&text, "d", (double)__builtin_inff(), 3);
    ctl_json_close(&text, '}');
    text_is(&text, "\n{\"a\":[],\"b\":[\"[\",\":\",18446744073709551615,-9223372036854775808,true,"
                   "null,{},{}],\"c\":0.333,\"d\":null}");
}

static void test_safe(void **state)
{
    (void)state;
    struct ctl_text text = {0};
    static const char raw[] = "a\x1b[31m\xc3\xa4\xff\xc2\x9b\xe2\x80\xae.";
    ctl_text_safe(&text, raw, sizeof raw - 1);
    text_is(&text, "a\\x1b[31m\xc3\xa4\\xff\\xc2\\x9b\\xe2\\x80\\xae.");
}

static void test_table(void **state)
{
    (void)state;
    struct ctl_table table = {.columns = 3, .right = 1U << 1};
    struct ctl_text text = {0};
    static const char *const cells[] = {"NAME", "N",        "X", "\xc3\xa4", "1234",
                                        "",     "long one", "7", "z"};
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++)
        ctl_table_cell(&table, cells[i]);
    ctl_table_print(&table, false, &text);
    text_is(&text, "  NAME         N  X\n"
                   "  \xc3\xa4         1234  \n"
                   "  long one     7  z\n");
}

static void test_numbers(void **state)
{
    (void)state;
    struct ctl_text text = {0};
    ctl_text_size(&text, 1023);
    ctl_text_str(&text, ", ");
    ctl_text_size(&text, 1536);
    ctl_text_str(&text, ", ");
    ctl_text_size(&text, 8ULL << 30);
    ctl_text_str(&text, ", ");
    ctl_text_duration(&text, 3725);
    ctl_text_str(&text, ", ");
    ctl_text_duration(&text, 59.94);
    text_is(&text, "1023 B, 1.5 KiB, 8.0 GiB, 1 h 02 min, 59.9 s");
}

static void test_hist(void **state)
{
    (void)state;
    static struct ctl_hist hist, other;
    assert_true(ctl_hist_quantile(&hist, 0.5) == 0);
    for (uint64_t i = 1; i <= 100; i++)
        ctl_hist_add(&hist, i * 1000);
    double median = ctl_hist_quantile(&hist, 0.5);
    double high = ctl_hist_quantile(&hist, 0.99);
    assert_true(median > 50000 * 0.96 && median < 50000 * 1.04);
    assert_true(high > 99000 * 0.96 && high < 99000 * 1.04);
    ctl_hist_add(&other, 0);
    ctl_hist_add(&other, UINT64_MAX);
    ctl_hist_merge(&hist, &other);
    assert_int_equal(hist.count, 102);
    assert_true(ctl_hist_quantile(&hist, 0) == 0);
    assert_true(ctl_hist_quantile(&hist, 1) > 1e13);
    /* Exact where the buckets are single numbers. */
    static struct ctl_hist small;
    for (uint64_t i = 0; i < 64; i++)
        ctl_hist_add(&small, i);
    for (unsigned i = 0; i < 64; i++)
        assert_true(ctl_hist_quantile(&small, (i + 1) / 64.0) == (double)i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_strings), cmocka_unit_test(test_json_not_utf8),
        cmocka_unit_test(test_json_commas),  cmocka_unit_test(test_safe),
        cmocka_unit_test(test_table),        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_hist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
