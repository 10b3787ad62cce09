/* Text that is looked at: JSON and numbers with a point, right and wrong, cut at every length and
 * with any byte changed; and bytes of any length. Each packet lies in memory of its own size, so
 * that a look beyond it is seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decode/decode.h"
#include "tests/lib/chance.h"

static enum spdl_class check_json(const void *data, size_t bytes, struct decode_fault *fault)
{
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, data, bytes);
    struct decode_packet packet = {copy, bytes};
    *fault = (struct decode_fault){0};
    enum spdl_class class_number = decode_json_check(&packet, fault);
    free(copy);
    assert_int_equal(fault->class_number, class_number);
    assert_true((class_number == SPDL_CLASS_OK) == (fault->message[0] == '\0'));
    return class_number;
}

static void good(const char *text)
{
    struct decode_fault fault;
    if (check_json(text, strlen(text), &fault) != SPDL_CLASS_OK)
        fail_msg("%s: %s at %d", text, fault.message, (int)fault.byte_offset);
    /* A value that is no bare number is not there until its last byte is. */
    size_t bytes = strlen(text);
    while (bytes > 0 && strchr(" \n\r\t", text[bytes - 1]))
        bytes--;
    bool is_number = !strchr("]}\"elE", text[bytes - 1]);
    for (size_t cut = 0; cut < bytes && !is_number; cut++) {
        enum spdl_class class_number = check_json(text, cut, &fault);
        if (class_number != SPDL_CLASS_TRUNCATED && class_number != SPDL_CLASS_EMPTY)
            fail_msg("%.*s: class %d", (int)cut, text, class_number);
    }
}

static void bad(const char *text, enum spdl_class class_number, size_t offset)
{
    struct decode_fault fault;
    if (check_json(text, strlen(text), &fault) != class_number || fault.byte_offset != offset)
        fail_msg("%s: class %d at %d: %s", text, fault.class_number, (int)fault.byte_offset,
                 fault.message);
}

static void test_json_that_is_right(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "[]",
        "\"\"",
        "0",
        "-0",
        "-0.5e+10",
        "1E-7",
        "120",
        "true",
        "false",
        "null",
        " \t\r\n[ 1 , [ ] , { } , \"a\" ] \n",
        "{\"a\":1,\"a\":[{\"b\":null}],\"\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83d\\ude00\"}",
        "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xed\x9f\xbf \xee\x80\x80 \xf4\x8f\xbf\xbf\"",
        "\"\x7f\"",
        "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        good(texts[i]);
}

static void test_json_that_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum spdl_class class_number;
        size_t offset;
    } cases[] = {
        {"", SPDL_CLASS_EMPTY, 0},
        {" \n", SPDL_CLASS_EMPTY, 2},
        {"hello", SPDL_CLASS_BAD_FORMAT, 0},
        {"\xef\xbb\xbf{}", SPDL_CLASS_BAD_FORMAT, 0},
        {"  <html>", SPDL_CLASS_BAD_FORMAT, 2},
        {"NaN", SPDL_CLASS_BAD_FORMAT, 0},
        {"-Infinity", SPDL_CLASS_CORRUPT, 1},
        {"tru", SPDL_CLASS_TRUNCATED, 3},
        {"trux", SPDL_CLASS_CORRUPT, 3},
        {"01", SPDL_CLASS_CORRUPT, 1},
        {"1.", SPDL_CLASS_TRUNCATED, 2},
        {"1.e3", SPDL_CLASS_CORRUPT, 2},
        {".5", SPDL_CLASS_BAD_FORMAT, 0},
        {"+1", SPDL_CLASS_BAD_FORMAT, 0},
        {"1e", SPDL_CLASS_TRUNCATED, 2},
        {"[1,]", SPDL_CLASS_CORRUPT, 3},
        {"[,1]", SPDL_CLASS_CORRUPT, 1},
        {"[1 2]", SPDL_CLASS_CORRUPT, 3},
        {"[1}", SPDL_CLASS_CORRUPT, 2},
        {"{\"a\":1,}", SPDL_CLASS_CORRUPT, 7},
        {"{\"a\" 1}", SPDL_CLASS_CORRUPT, 5},
        {"{a:1}", SPDL_CLASS_CORRUPT, 1},
        {"{1:1}", SPDL_CLASS_CORRUPT, 1},
        {"{'a':1}", SPDL_CLASS_CORRUPT, 1},
        {"{} {}", SPDL_CLASS_CORRUPT, 3},
        {"[] // no", SPDL_CLASS_CORRUPT, 3},
        {"]", SPDL_CLASS_BAD_FORMAT, 0},
        {"\"a\nb\"", SPDL_CLASS_CORRUPT, 2},
        {"\"\\x\"", SPDL_CLASS_CORRUPT, 2},
        {"\"\\u12g4\"", SPDL_CLASS_CORRUPT, 5},
        {"\"\x80\"", SPDL_CLASS_CORRUPT, 1},
        {"\"\xc0\xaf\"", SPDL_CLASS_CORRUPT, 1},         /* longer than needed */
        {"\"\xe0\x9f\xbf\"", SPDL_CLASS_CORRUPT, 2},     /* longer than needed */
        {"\"\xf0\x8f\xbf\xbf\"", SPDL_CLASS_CORRUPT, 2}, /* longer than needed */
        {"\"\xed\xa0\x80\"", SPDL_CLASS_CORRUPT, 2},     /* half of a pair */
        {"\"\xf4\x90\x80\x80\"", SPDL_CLASS_CORRUPT, 2}, /* above the last character */
        {"\"\xe2\x82", SPDL_CLASS_TRUNCATED, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        bad(cases[i].text, cases[i].class_number, cases[i].offset);
    struct decode_fault fault;
    assert_int_equal(check_json("[\0]", 3, &fault), SPDL_CLASS_CORRUPT);
    assert_int_equal(check_json("\"\\\0\"", 4, &fault), SPDL_CLASS_CORRUPT);
}

static void test_json_depth(void **state)
{
    (void)state;
    static char text[2 * 128 * 5 + 1];
    struct decode_fault fault;
    for (int depth = 127; depth <= 129; depth++) {
        size_t bytes = 0;
        for (int i = 0; i < depth; i++) {
            size_t more = i % 2 ? 1 : 5;
            memcpy(text + bytes, i % 2 ? "[" : "{\"a\":", more);
            bytes += more;
        }
        text[bytes++] = '0';
        for (int i = depth; i-- > 0;)
            text[bytes++] = i % 2 ? ']' : '}';
        assert_int_equal(check_json(text, bytes, &fault),
                         depth <= 128 ? SPDL_CLASS_OK : SPDL_CLASS_LIMIT);
    }
    /* A hostile depth costs no stack. */
    size_t many = 1 << 20;
    char *deep = malloc(many);
    assert_non_null(deep);
    memset(deep, '[', many);
    assert_int_equal(check_json(deep, many, &fault), SPDL_CLASS_LIMIT);
    free(deep);
}

static void test_json_that_is_damaged(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":[1.5e3,true,null,\"\\u00e9\xc3\xa9\"],\"b\":{\"c\":-0}}";
    uint64_t seed = 5;
    uint8_t copy[sizeof text];
    uint32_t wrong = 0;
    for (int i = 0; i < 20000; i++) {
        memcpy(copy, text, sizeof text);
        for (int n = 1 + chance_below(&seed, 3); n > 0; n--) {
            int at = chance_below(&seed, sizeof text - 1);
            copy[at] = (uint8_t)chance_below(&seed, 256);
        }
        struct decode_fault fault;
        enum spdl_class class_number = check_json(copy, sizeof text - 1, &fault);
        wrong += class_number != SPDL_CLASS_OK;
        assert_true(fault.byte_offset < sizeof text);
    }
    assert_in_range(wrong, 15000, 19999);
}

static enum spdl_class read_float(const char *text, float *ret_value)
{
    size_t bytes = strlen(text);
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, text, bytes);
    struct decode_packet packet = {copy, bytes};
    struct decode_fault fault = {0};
    enum spdl_class class_number = decode_float_text(&packet, ret_value, &fault);
    free(copy);
    assert_int_equal(fault.class_number, class_number);
    return class_number;
}

static void test_floats(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        float value;
    } right[] = {{"0", 0.0f},
                 {"-0.5", -0.5f},
                 {" +1.25\r\n", 1.25f},
                 {".5", 0.5f},
                 {"5.", 5.0f},
                 {"1e-7", 1e-7f},
                 {"3.4028235E+38", 0x1.fffffep+127f},
                 {"1e-60", 0.0f},
                 {"16777217", 16777216.0f},
                 /* rounded once: by way of a double it would be 1 */
                 {"1.00000005960464477540", 1.0f + 0x1p-23f},
                 {"1.00000005960464477539", 1.0f}};
    static const struct {
        const char *text;
        enum spdl_class class_number;
    } wrong[] = {{"", SPDL_CLASS_EMPTY},         {" \n ", SPDL_CLASS_EMPTY},
                 {"x", SPDL_CLASS_BAD_FORMAT},   {"nan", SPDL_CLASS_BAD_FORMAT},
                 {"inf", SPDL_CLASS_BAD_FORMAT}, {"0x10", SPDL_CLASS_BAD_FORMAT},
                 {"1,5", SPDL_CLASS_BAD_FORMAT}, {"1 2", SPDL_CLASS_BAD_FORMAT},
                 {"--1", SPDL_CLASS_BAD_FORMAT}, {".", SPDL_CLASS_BAD_FORMAT},
                 {"1e", SPDL_CLASS_BAD_FORMAT},  {"1e+", SPDL_CLASS_BAD_FORMAT},
                 {"e5", SPDL_CLASS_BAD_FORMAT},  {"1.5f", SPDL_CLASS_BAD_FORMAT},
                 {"1e39", SPDL_CLASS_LIMIT},     {"-1e999999", SPDL_CLASS_LIMIT}};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        float value = -77;
        if (read_float(right[i].text, &value) != SPDL_CLASS_OK ||
            memcmp(&value, &right[i].value, 4) != 0)
            fail_msg("%s: %.9g", right[i].text, (double)value);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        float value = -77;
        assert_int_equal(read_float(wrong[i].text, &value), wrong[i].class_number);
        assert_true(value == -77);
    }
    float value;
    char longest[1026];
    memset(longest, '0', sizeof longest);
    longest[1024] = 0;
    assert_int_equal(read_float(longest, &value), SPDL_CLASS_OK);
    longest[1024] = '0';
    longest[1025] = 0;
    assert_int_equal(read_float(longest, &value), SPDL_CLASS_LIMIT);
}

static void test_bytes(void **state)
{
    (void)state;
    uint8_t row[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    struct decode_fault fault = {0};
    struct decode_packet packet = {(const uint8_t *)"abcd", 4};
    assert_int_equal(decode_bytes(&packet, 4, row, &fault), SPDL_CLASS_OK);
    assert_memory_equal(row, "abcd\x09\x09\x09\x09", 8);
    assert_int_equal(decode_bytes(&packet, 3, row, &fault), SPDL_CLASS_LIMIT);
    assert_int_equal(fault.byte_offset, 3);
    assert_string_equal(fault.message, "it has 4 bytes, a row has room for 3");
    packet = (struct decode_packet){NULL, 0};
    assert_int_equal(decode_bytes(&packet, 0, row, &fault), SPDL_CLASS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_that_is_right),
        cmocka_unit_test(test_json_that_is_wrong),
        cmocka_unit_test(test_json_depth),
        cmocka_unit_test(test_json_that_is_damaged),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
