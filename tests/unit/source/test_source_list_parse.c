/* Rows of lists: CSV and JSON lines, right ones and wrong ones, and the same rows however the bytes
 * come in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "item/class.h"
#include "source/source_list_parse.h"
#include "tests/lib/chance.h"

/* The first row of `bytes` bytes in memory of just that size. */
static bool row_of(const char *text, size_t bytes, char delimiter, bool is_end,
                   struct source_list_row *ret_row)
{
    uint8_t *data = malloc(bytes + !bytes);
    if (bytes > 0)
        memcpy(data, text, bytes);
    struct source_list_input input = {
        .data = data, .bytes = bytes, .is_end = is_end, .goes_back = true, .delimiter = delimiter};
    bool done = source_list_row(&input, ret_row);
    free(data);
    return done;
}

static size_t value_print(char *to, size_t room, const char *row, uint32_t at, uint32_t bytes,
                          uint8_t escape)
{
    uint8_t text[512];
    size_t said = 0;
    assert_true(bytes <= sizeof text);
    if (!escape_undo((enum escape)escape, (const uint8_t *)row + at, bytes, text, &said))
        return (size_t)snprintf(to, room, "?");
    return (size_t)snprintf(to, room, "%.*s", (int)said, (const char *)text);
}

/* "[value|value]" of every row; "[]" an empty line; "[CLASS@offset]" a broken one. JSON:
 * name=value.
 */
static const char *rows(const char *text, size_t bytes, char delimiter)
{
    static char out[1 << 14];
    static struct source_list_row row;
    size_t used = 0, from = 0;
    out[0] = 0;
    while (from < bytes) {
        assert_true(row_of(text + from, bytes - from, delimiter, true, &row));
        assert_true(row.bytes > 0 && row.bytes <= bytes - from);
        out[used++] = '[';
        if (row.class_number != SPDL_CLASS_OK)
            used += (size_t)snprintf(out + used, sizeof out - used, "%s@%zu",
                                     spdl_class_name(row.class_number), row.fault_at);
        for (uint32_t i = 0; row.class_number == SPDL_CLASS_OK && i < row.value_count; i++) {
            const struct source_list_value *value = &row.values[i];
            if (i > 0)
                out[used++] = '|';
            if (delimiter == SOURCE_LIST_JSON) {
                used += value_print(out + used, sizeof out - used, text + from, value->name_at,
                                    value->name_bytes, value->name_escape);
                out[used++] = value->is_null ? '~' : '=';
            }
            used += value_print(out + used, sizeof out - used, text + from, value->at, value->bytes,
                                value->escape);
        }
        used += (size_t)snprintf(out + used, sizeof out - used, "]");
        from += row.bytes;
    }
    return out;
}

static void is(const char *text, char delimiter, const char *wanted)
{
    const char *got = rows(text, strlen(text), delimiter);
    if (strcmp(got, wanted) != 0)
        fail_msg("%s gives %s, wanted %s", text, got, wanted);
}

static void test_csv(void **state)
{
    (void)state;
    is("a,b\nc,d", ',', "[a|b][c|d]");
    is("a,b\r\nc,d\r\n", ',', "[a|b][c|d]");
    is("a,,\n,,\n", ',', "[a||][||]");
    is("\n\r\na\n", ',', "[][][a]");
    is("\"a,b\",\"c\"\"d\"\n\"\",x\n", ',', "[a,b|c\"d][|x]");
    is("\"two\nlines\",1\r\n\"with\r\nCR\",2\n", ',', "[two\nlines|1][with\r\nCR|2]");
    is("a\"b,c\"\n", ',', "[a\"b|c\"]"); /* a quote inside is itself */
    is("a b , c\n", ',', "[a b | c]");
    is("a\rb,c\n", ',', "[a\rb|c]");
    is("a,b\tc,\"d\te\"\n", '\t', "[a,b|c,\"d|e\"]");
    is("\"a\"\t\"b\tc\"\n", '\t', "[a|b\tc]");
    is("\"last\"", ',', "[last]");
    is("\"last\"\r", ',', "[last]");
    is("x,\"\"\"\"", ',', "[x|\"]");
}

static void test_csv_wrong(void **state)
{
    (void)state;
    is("\"a\"b,c\nd,e\n", ',', "[BAD_FORMAT@3][d|e]");
    is("x,\"a\" ,c\nd,e\n", ',', "[BAD_FORMAT@5][d|e]");
    is("x,\"a\nb,c\nd,e\n", ',', "[TRUNCATED@2][b|c][d|e]"); /* one row is lost, not all */
    is("x,\"a\nb,\"c\"\nd,e\n", ',', "[BAD_FORMAT@8][b|c][d|e]");
    struct source_list_row row;
    struct source_list_input input = {.data = (const uint8_t *)"x,\"a\nb,\"c\"\nd,e\n",
                                      .bytes = 15,
                                      .is_end = true,
                                      .delimiter = ','};
    assert_true(source_list_row(&input, &row)); /* without a step back */
    assert_int_equal(row.bytes, 11);
    assert_int_equal(row.lines, 2);
}

static void test_csv_many_values(void **state)
{
    (void)state;
    char text[SOURCE_LIST_COLUMNS_MAX + 3]; /* one value more than commas, all empty */
    memset(text, ',', sizeof text);
    struct source_list_row row;
    assert_true(row_of(text, sizeof text - 1, ',', true, &row));
    assert_int_equal(row.value_count, SOURCE_LIST_COLUMNS_MAX);
    assert_int_equal(row.further, 3);
}

static void test_json(void **state)
{
    (void)state;
    is("{\"a\":1}\n{\"b\":\"x\"}", SOURCE_LIST_JSON, "[a=1][b=x]");
    is(" { \"a\" : -1.5e3 , \"b\" : [1, {\"c\": \"]\"}] , \"d\":{} } \r\n", SOURCE_LIST_JSON,
       "[a=-1.5e3|b=[1, {\"c\": \"]\"}]|d={}]");
    is("{\"a\":null,\"b\":true,\"c\":false}\n\n \n", SOURCE_LIST_JSON,
       "[a~null|b=true|c=false][][]");
    is("{\"\\u0061\":\"q\\\"\\n\\u00e9\"}\n", SOURCE_LIST_JSON, "[a=q\"\n\xc3\xa9]");
}

static void test_json_wrong(void **state)
{
    (void)state;
    is("[1]\n{\"a\":1}\n", SOURCE_LIST_JSON, "[BAD_FORMAT@0][a=1]");
    is("{}\n{\"a\":1}\n", SOURCE_LIST_JSON, "[INCOMPLETE@1][a=1]");
    is("{\"a\":1,}\n{\"a\" 1}\n{\"a\":1} x\n{a:1}\n", SOURCE_LIST_JSON,
       "[BAD_FORMAT@7][BAD_FORMAT@5][BAD_FORMAT@8][BAD_FORMAT@1]");
    is("{\"a\":01}\n{\"a\":NaN}\n{\"a\":\"\t\"}\n", SOURCE_LIST_JSON,
       "[BAD_FORMAT@6][BAD_FORMAT@5][BAD_FORMAT@6]");
    is("{\"a\":1\n{\"a\":1", SOURCE_LIST_JSON, "[BAD_FORMAT@6][TRUNCATED@6]"); /* the list is cut */
    is("{\"a\":\"\xff\"}\n", SOURCE_LIST_JSON, "[BAD_FORMAT@6]");
    char deep[600] = "{\"a\":";
    memset(deep + 5, '[', 300);
    assert_string_equal(rows(deep, 305, SOURCE_LIST_JSON), "[LIMIT@133]");
}

/* Whatever is cut off behind: more is asked for, or the row is the one that it is. */
static void test_pieces(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        char delimiter;
    } lists[] = {{"a,\"b\"\"\n\",c\r\nd,e,f\n", ','},
                 {"\"x\"\r\n", ','},
                 {"{\"a\": \"\\u00e9\", \"b\": [1, 2]}\n{\"a\": 2}\n", SOURCE_LIST_JSON}};
    static struct source_list_row whole, row;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        size_t bytes = strlen(lists[i].text);
        memset(&whole, 0, sizeof whole);
        assert_true(row_of(lists[i].text, bytes, lists[i].delimiter, false, &whole));
        for (size_t cut = 0; cut <= bytes; cut++) {
            memset(&row, 0, sizeof row);
            bool done = row_of(lists[i].text, cut, lists[i].delimiter, false, &row);
            assert_int_equal(done, cut >= whole.bytes);
            if (done)
                assert_memory_equal(&row, &whole, sizeof row);
        }
    }
}

/* Anything: rows that follow one another to the end, values inside their row. */
static void test_garbage(void **state)
{
    (void)state;
    static const char letters[] = "\",\n\r\t{}[]:\\ua1-.e x";
    uint64_t seed = 3;
    char text[80];
    static struct source_list_row row;
    for (int run = 0; run < 30000; run++) {
        size_t bytes = (size_t)chance_below(&seed, sizeof text) + 1, from = 0;
        for (size_t i = 0; i < bytes; i++)
            text[i] = letters[chance_below(&seed, sizeof letters - 1)];
        char delimiter = (char)(run % 2 ? ',' : SOURCE_LIST_JSON);
        for (; from < bytes; from += row.bytes) {
            assert_true(row_of(text + from, bytes - from, delimiter, true, &row));
            assert_true(row.bytes > 0 && row.bytes <= bytes - from);
            assert_true(row.class_number == SPDL_CLASS_OK || row.message[0]);
            for (uint32_t i = 0; row.class_number == SPDL_CLASS_OK && i < row.value_count; i++)
                assert_true(row.values[i].at + row.values[i].bytes <= row.bytes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_csv),
                                       cmocka_unit_test(test_csv_wrong),
                                       cmocka_unit_test(test_csv_many_values),
                                       cmocka_unit_test(test_json),
                                       cmocka_unit_test(test_json_wrong),
                                       cmocka_unit_test(test_pieces),
                                       cmocka_unit_test(test_garbage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
