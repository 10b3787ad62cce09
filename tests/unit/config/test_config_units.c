/* Units, durations and quoted strings. */
#include "config/config_read.h"
#include "config/config_text.h"
#include "config/config_units.h"
#include "tests/unit/config/config_case.h"

static void test_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc;
        uint64_t value;
    } sizes[] = {
        {"0", 0, 0},
        {"17", 0, 17},
        {"1KiB", 0, 1024},
        {"3MiB", 0, 3 << 20},
        {"8GiB", 0, 8ull << 30},
        {"1KB", 0, 1000},
        {"2MB", 0, 2000000},
        {"5GB", 0, 5000000000},
        {"18446744073709551615", 0, UINT64_MAX},
        {"18446744073709551616", -ERANGE, 0},
        {"17179869184GiB", -ERANGE, 0},
        {"17179869183GiB", 0, 17179869183ull << 30},
        {"", -EINVAL, 0},
        {"KiB", -EINVAL, 0},
        {"1kib", -EINVAL, 0},
        {"1 KiB", -EINVAL, 0},
        {"1.5GiB", -EINVAL, 0},
        {"-1", -EINVAL, 0},
        {"1KiBx", -EINVAL, 0},
        {"99999999999999999999zz", -EINVAL, 0},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t value = 12345;
        int rc = config_units_size(sizes[i].text, &value);
        if (rc != sizes[i].rc)
            print_error("size '%s'\n", sizes[i].text);
        assert_int_equal(rc, sizes[i].rc);
        assert_true(value == (rc == 0 ? sizes[i].value : 12345));
    }
    static const struct {
        const char *text;
        int rc;
        uint64_t ns;
    } durations[] = {
        {"7us", 0, 7000},         {"20ms", 0, 20000000},
        {"60s", 0, 60000000000},  {"2min", 0, 120000000000},
        {"1h", 0, 3600000000000}, {"1", -EINVAL, 0},
        {"1m", -EINVAL, 0},       {"5124096h", -ERANGE, 0},
        {"s", -EINVAL, 0},        {"5124095h", 0, 5124095ull * 3600000000000},
    };
    for (size_t i = 0; i < sizeof durations / sizeof durations[0]; i++) {
        uint64_t ns = 0;
        assert_int_equal(config_units_duration(durations[i].text, &ns), durations[i].rc);
        assert_true(ns == durations[i].ns);
    }
}

static void test_units_text(void **state)
{
    (void)state;
    char text[CONFIG_UNITS_TEXT_BYTES];
    assert_string_equal(config_units_size_text(0, text), "0");
    assert_string_equal(config_units_size_text(1, text), "1");
    assert_string_equal(config_units_size_text(64 << 20, text), "64MiB");
    assert_string_equal(config_units_size_text(3000000, text), "3MB");
    assert_string_equal(config_units_size_text(1536, text), "1536");
    assert_string_equal(config_units_duration_text(1500000000, text), "1500ms");
    assert_string_equal(config_units_duration_text(7200000000000, text), "2h");
    assert_string_equal(config_units_double_text(0.1, text), "0.1");
    assert_string_equal(config_units_double_text(3.0 / 4.0, text), "0.75");
    assert_string_equal(config_units_double_text(4.0 / 3.0, text), "1.3333333333333333");
    static const uint64_t sizes[] = {1000, 1024, 1023, 1ull << 40, 999999999999, UINT64_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t back = 0;
        assert_int_equal(config_units_size(config_units_size_text(sizes[i], text), &back), 0);
        assert_true(back == sizes[i]);
    }
    double value = 5;
    assert_int_equal(config_units_double("1e400", &value), -ERANGE);
    assert_int_equal(config_units_double("nan", &value), -EINVAL);
    assert_int_equal(config_units_double("0x10", &value), -EINVAL);
    assert_int_equal(config_units_double(" 1", &value), -EINVAL);
    assert_int_equal(config_units_double("", &value), -EINVAL);
    assert_int_equal(config_units_double("1.2.3", &value), -EINVAL);
    assert_true(value == 5);
    assert_int_equal(config_units_double("-2.5e-1", &value), 0);
    assert_true(value == -0.25);
}

/* No setting is a duration yet; the reader that such a row will use. */
static void test_duration(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *complaint;
    } cases[] = {
        {"20ms", NULL},
        {"5ms", "w:3:9: reconnect: '5ms' is outside 10ms to 1min"},
        {"61s", "w:3:9: reconnect: '61s' is outside 10ms to 1min"},
        {"99999999999999h", "w:3:9: reconnect: '99999999999999h' is outside 10ms to 1min"},
        {"20", "w:3:9: reconnect is a duration, a number with us ms s min h, not '20'"},
        {"", "w:3:9: reconnect is a duration, not nothing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config_reader reader;
        uint64_t ns = 0;
        struct config_node node = {.kind = CONFIG_NODE_SCALAR, .line = 3, .column = 9};
        node.text = cases[i].text;
        node.bytes = strlen(node.text);
        the_case.complaints.count = 0;
        config_reader_init(&reader, "w", &the_case.complaints);
        int rc = config_read_duration(&reader, &node, "reconnect", 10000000, 60000000000, &ns);
        assert_int_equal(rc, cases[i].complaint ? -EINVAL : 0);
        assert_int_equal(ns, cases[i].complaint ? 0 : 20000000);
        if (cases[i].complaint)
            assert_string_equal(the_case.complaints.lines[0], cases[i].complaint);
    }
}

static void test_quote(void **state)
{
    (void)state;
    char text[64], small[16];
    assert_int_equal(config_text_quote("a\x01\x7f", text, sizeof text), 11);
    assert_string_equal(text, "\"a\\x01\\x7F\"");
    for (size_t capacity = 1; capacity <= sizeof small; capacity++) {
        size_t used = config_text_quote("\"\"\"\"\xc2\x85\"\"\"\"\"\"\"\"\"\"", small, capacity);
        assert_true(used < capacity);
        assert_int_equal(small[used], 0);
    }
    assert_true(config_text_is_utf8("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82"));
    static const char *const wrong[] = {"\x80",         "\xc3",         "\xc0\xaf",
                                        "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                        "\xff",         "\xe2\x82",     "\xf0\x80\x80\xaf"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(config_text_is_utf8(wrong[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_units_text),
        cmocka_unit_test(test_duration),
        cmocka_unit_test(test_quote),
    };
    return cmocka_run_group_tests(tests, NULL, case_clean);
}
