/* The log: levels, lines that repeat, what is cleaned, and a sink that takes lines with fields. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"

enum { LINES_MAX = 16 };

static struct {
    enum log_level level;
    char text[2048], field[128];
    int field_count;
} lines[LINES_MAX];
static int line_count;

static void take(enum log_level level, const char *text, const struct log_field *fields)
{
    assert_true(line_count < LINES_MAX);
    lines[line_count].level = level;
    snprintf(lines[line_count].text, sizeof lines[0].text, "%s", text);
    lines[line_count].field[0] = 0;
    lines[line_count].field_count = 0;
    for (const struct log_field *at = fields; at && at->name; at++) {
        snprintf(lines[line_count].field, sizeof lines[0].field, "%s=%s", at->name, at->value);
        lines[line_count].field_count++;
    }
    line_count++;
}

static int begin(void **state)
{
    (void)state;
    line_count = 0;
    log_level_set(LOG_LEVEL_INFO);
    log_sink_set(take);
    return 0;
}

static int end(void **state)
{
    (void)state;
    log_sink_set(NULL);
    return 0;
}

static void lines_go_to_the_sink_with_their_fields(void **state)
{
    (void)state;
    const struct log_field fields[] = {
        {LOG_ID, LOG_ID_STARTED}, {"SPDL_DATASET", "photos"}, {NULL, NULL}};
    log_event(LOG_LEVEL_WARNING, fields, "dataset %s", "photos");
    log_line(LOG_LEVEL_ERROR, "a line of %d", 7);
    assert_int_equal(line_count, 2);
    assert_int_equal(lines[0].level, LOG_LEVEL_WARNING);
    assert_string_equal(lines[0].text, "dataset photos");
    assert_int_equal(lines[0].field_count, 2);
    assert_string_equal(lines[0].field, "SPDL_DATASET=photos");
    assert_int_equal(lines[1].level, LOG_LEVEL_ERROR);
    assert_string_equal(lines[1].text, "a line of 7");
    assert_int_equal(lines[1].field_count, 0);
}

static void lines_below_the_level_are_dropped(void **state)
{
    (void)state;
    log_line(LOG_LEVEL_DEBUG, "below");
    log_level_set(LOG_LEVEL_ERROR);
    log_line(LOG_LEVEL_WARNING, "below too");
    log_line(LOG_LEVEL_ERROR, "not below");
    log_level_set(LOG_LEVEL_DEBUG);
    log_line(LOG_LEVEL_DEBUG, "no longer below");
    assert_int_equal(line_count, 2);
    assert_string_equal(lines[0].text, "not below");
    assert_string_equal(lines[1].text, "no longer below");
}

static void lines_that_repeat_are_counted(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        log_line(LOG_LEVEL_INFO, "again");
    assert_int_equal(line_count, 1);
    log_line(LOG_LEVEL_WARNING, "another");
    assert_int_equal(line_count, 3);
    assert_string_equal(lines[1].text, "the line above came 4 more times");
    assert_int_equal(lines[1].level, LOG_LEVEL_INFO);
    assert_string_equal(lines[2].text, "another");
    log_line(LOG_LEVEL_ERROR, "another"); /* of another level: another line */
    assert_int_equal(line_count, 4);
}

static void what_is_no_text_is_not_passed_on(void **state)
{
    (void)state;
    log_line(LOG_LEVEL_INFO, "a\nPRIORITY=0\x1b[2J \xff\xc3\xa4 \x7f");
    assert_string_equal(lines[0].text, "a?PRIORITY=0?[2J ?\xc3\xa4 ?");
    char large[3000];
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = 0;
    log_line(LOG_LEVEL_INFO, "%s", large);
    assert_int_equal(strlen(lines[1].text), 1023);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_go_to_the_sink_with_their_fields, begin, end),
        cmocka_unit_test_setup_teardown(lines_below_the_level_are_dropped, begin, end),
        cmocka_unit_test_setup_teardown(lines_that_repeat_are_counted, begin, end),
        cmocka_unit_test_setup_teardown(what_is_no_text_is_not_passed_on, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
