/* The quarantine's list: what makes a sample the same, what is kept of it, and its bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pipeline/pipeline_quarantine.h"

static struct pipeline_quarantined bad(const char *key, const char *path, uint64_t offset)
{
    return (struct pipeline_quarantined){.key = key,
                                         .key_bytes = (uint32_t)strlen(key),
                                         .path = path,
                                         .offset = offset,
                                         .fault = UINT64_MAX,
                                         .class_number = SPDL_CLASS_CORRUPT,
                                         .message = "damaged"};
}

static void test_a_sample_is_one(void **state)
{
    (void)state;
    struct pipeline_quarantine *list = NULL;
    assert_int_equal(pipeline_quarantine_count(list), 0);
    assert_int_equal(pipeline_quarantine_left_out(list), 0);
    struct pipeline_quarantined sample = bad("a/1", "x.tar", 512);
    pipeline_quarantine_note(&list, &sample, 100);
    sample.class_number = SPDL_CLASS_CHANGED; /* what it failed with last stands there */
    sample.message = "another size";
    sample.fault = 700;
    pipeline_quarantine_note(&list, &sample, 90000);
    assert_int_equal(pipeline_quarantine_count(list), 1);
    struct pipeline_quarantined got;
    pipeline_quarantine_at(list, 0, &got);
    assert_int_equal(got.key_bytes, 3);
    assert_memory_equal(got.key, "a/1", 3);
    assert_string_equal(got.path, "x.tar");
    assert_int_equal(got.offset, 512);
    assert_int_equal(got.fault, 700);
    assert_int_equal(got.class_number, SPDL_CLASS_CHANGED);
    assert_string_equal(got.message, "another size");
    assert_int_equal(got.count, 2);
    assert_int_equal(got.first_s, 100);
    assert_int_equal(got.last_s, 90000);

    /* Another file, another place, another key, and a key that runs into the path: all others. */
    const struct pipeline_quarantined others[] = {bad("a/1", "y.tar", 512), bad("a/1", "x.tar", 0),
                                                  bad("a/", "x.tar", 512),
                                                  bad("a/1x", ".tar", 512)};
    for (size_t i = 0; i < 4; i++) {
        pipeline_quarantine_note(&list, &others[i], 1);
        assert_int_equal(pipeline_quarantine_count(list), 2 + i);
    }
    pipeline_quarantine_destroy(list);
    pipeline_quarantine_destroy(NULL);
}

static void test_a_long_message_is_cut(void **state)
{
    (void)state;
    struct pipeline_quarantine *list = NULL;
    char text[PIPELINE_QUARANTINE_MESSAGE_BYTES + 50];
    memset(text, 'm', sizeof text - 1);
    text[sizeof text - 1] = 0;
    struct pipeline_quarantined sample = bad("", "", 0), got;
    sample.message = text;
    pipeline_quarantine_note(&list, &sample, 1);
    pipeline_quarantine_at(list, 0, &got);
    assert_int_equal(strlen(got.message), PIPELINE_QUARANTINE_MESSAGE_BYTES - 1);
    assert_int_equal(got.key_bytes, 0);
    pipeline_quarantine_destroy(list);
}

static void test_bounds(void **state)
{
    (void)state;
    struct pipeline_quarantine *list = NULL;
    char key[32];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < PIPELINE_QUARANTINE_MAX + 5; i++) {
            snprintf(key, sizeof key, "k%d", i);
            struct pipeline_quarantined sample = bad(key, "f", 0);
            pipeline_quarantine_note(&list, &sample, i);
        }
    assert_int_equal(pipeline_quarantine_count(list), PIPELINE_QUARANTINE_MAX);
    assert_int_equal(pipeline_quarantine_left_out(list), 10);
    struct pipeline_quarantined got;
    for (uint32_t i = 0; i < PIPELINE_QUARANTINE_MAX; i++) { /* in the order in which they came */
        pipeline_quarantine_at(list, i, &got);
        snprintf(key, sizeof key, "k%u", i);
        assert_int_equal(got.key_bytes, strlen(key));
        assert_memory_equal(got.key, key, got.key_bytes);
        assert_int_equal(got.count, 2);
    }
    pipeline_quarantine_destroy(list);
}

/* Long names have a bound of their own. */
static void test_text_is_bounded(void **state)
{
    (void)state;
    struct pipeline_quarantine *list = NULL;
    enum { LONG = 16384 };
    char *path = malloc(LONG);
    assert_non_null(path);
    memset(path, 'p', LONG - 1);
    path[LONG - 1] = 0;
    for (uint64_t i = 0; i < 600; i++) {
        struct pipeline_quarantined sample = bad("", path, i);
        pipeline_quarantine_note(&list, &sample, 1);
    }
    assert_int_equal(pipeline_quarantine_count(list), PIPELINE_QUARANTINE_TEXT_MAX / LONG);
    assert_int_equal(pipeline_quarantine_left_out(list), 600 - PIPELINE_QUARANTINE_TEXT_MAX / LONG);
    pipeline_quarantine_destroy(list);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sample_is_one), cmocka_unit_test(test_a_long_message_is_cut),
        cmocka_unit_test(test_bounds), cmocka_unit_test(test_text_is_bounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
