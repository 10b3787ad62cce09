/* States as text: the vectors, the way there and back, and every way in which a text can be wrong.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "plan/plan.h"
#include "tests/lib/vectors.h"

enum { TEXT_CHARS = 92 };

static const struct plan_state sample = {.format = PLAN_STATE_FORMAT,
                                         .decode_version = PLAN_DECODE_VERSION,
                                         .plan_id = {0x0123456789ABCDEF, 0xFEDCBA9876543210},
                                         .seed = 42,
                                         .epoch = 3,
                                         .position = 1024,
                                         .step = 16,
                                         .batch = 64};

static void check_equal(const struct plan_state *found, const struct plan_state *expected)
{
    assert_int_equal(found->format, expected->format);
    assert_int_equal(found->decode_version, expected->decode_version);
    assert_true(found->plan_id.high == expected->plan_id.high);
    assert_true(found->plan_id.low == expected->plan_id.low);
    assert_true(found->seed == expected->seed);
    assert_int_equal(found->epoch, expected->epoch);
    assert_true(found->position == expected->position);
    assert_true(found->step == expected->step);
    assert_true(found->batch == expected->batch);
}

static void test_vectors(void **state)
{
    (void)state;
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "state", 9); rows++) {
        struct plan_state expected = {
            .format = vectors_u32(&vectors, 1),
            .decode_version = vectors_u32(&vectors, 2),
            .seed = vectors_u64(&vectors, 4),
            .epoch = vectors_u32(&vectors, 5),
            .position = vectors_u64(&vectors, 6),
            .step = vectors_u64(&vectors, 7),
            .batch = vectors_u64(&vectors, 8),
        };
        vectors_id(&vectors, 3, &expected.plan_id.high, &expected.plan_id.low);
        char text[PLAN_STATE_TEXT_BYTES];
        plan_state_encode(&expected, text);
        assert_string_equal(text, vectors.words[9]);
        struct plan_state found;
        struct err err = {0};
        assert_int_equal(plan_state_decode(text, strlen(text), &found, &err), 0);
        check_equal(&found, &expected);
    }
    vectors_close(&vectors);
    assert_true(rows >= 12);
}

/* The exact bytes are decoded from memory of just their size, so that a sanitizer sees any look
 * beyond; the result stays untouched. */
static void check_refused(const char *text, size_t bytes, int code, const char *words)
{
    char *exact = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(exact);
    memcpy(exact, text, bytes);
    struct plan_state found = sample;
    struct err err = {0};
    assert_int_equal(plan_state_decode(exact, bytes, &found, &err), code);
    assert_int_equal(err.code, code);
    if (words)
        assert_non_null(strstr(err.text, words));
    check_equal(&found, &sample);
    free(exact);
}

static void test_cut_and_longer_texts(void **state)
{
    (void)state;
    char text[PLAN_STATE_TEXT_BYTES];
    plan_state_encode(&sample, text);
    assert_int_equal(strlen(text), TEXT_CHARS);
    for (size_t bytes = 0; bytes < TEXT_CHARS; bytes++)
        check_refused(text, bytes, -EINVAL, bytes < 6 ? "not a state" : "cut");
    check_refused(text, TEXT_CHARS + 1, -EINVAL, "93"); /* the final 0 is none of its characters */
    static const char *const behind[] = {" ", "\n", "=", "A", "=="};
    for (size_t i = 0; i < sizeof behind / sizeof behind[0]; i++) {
        char longer[PLAN_STATE_TEXT_BYTES];
        memcpy(longer, text, TEXT_CHARS);
        memcpy(longer + TEXT_CHARS, behind[i], strlen(behind[i]) + 1);
        check_refused(longer, strlen(longer), -EINVAL, "damaged");
    }
}

static void test_no_state_at_all(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",        "hello",         "spdl",   "spdl.AAAA", "spdl01.AA", "spdlx.AAA", "SPDL1.A",
        " spdl1.", "spdl1234567.A", "spdl99", "spdl1",     "spdl0.AAA", "spdl1-AAA"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        check_refused(texts[i], strlen(texts[i]), -EINVAL, "not a state");
}

static void test_later_formats(void **state)
{
    (void)state;
    check_refused("spdl2.AAAA", 10, -ENOTSUP, "format 2");
    check_refused("spdl37.", 7, -ENOTSUP, "format 37");
    check_refused("spdl999.whatever", 16, -ENOTSUP, "format 999");
    struct plan_state later = sample;
    char text[PLAN_STATE_TEXT_BYTES];
    later.format = 2;
    plan_state_encode(&later, text);
    check_refused(text, TEXT_CHARS, -ENOTSUP, "format 2");
    later.format = 0;
    plan_state_encode(&later, text);
    check_refused(text, TEXT_CHARS, -EINVAL, "no format 0");
}

static void test_values_that_no_state_has(void **state)
{
    (void)state;
    struct plan_state wrong = sample;
    char text[PLAN_STATE_TEXT_BYTES];
    wrong.batch = 0;
    plan_state_encode(&wrong, text);
    check_refused(text, TEXT_CHARS, -EINVAL, "batch size is 0");
    wrong = sample;
    wrong.step = 1025;
    plan_state_encode(&wrong, text);
    check_refused(text, TEXT_CHARS, -EINVAL, "step 1025 cannot be at position 1024");
}

/* Any other byte at any place is noticed: there is one text for a state. */
static void test_every_change_is_noticed(void **state)
{
    (void)state;
    char text[PLAN_STATE_TEXT_BYTES];
    plan_state_encode(&sample, text);
    for (size_t at = 0; at < TEXT_CHARS; at++) {
        const char was = text[at];
        for (int byte = 0; byte < 256; byte++) {
            if ((char)byte == was)
                continue;
            text[at] = (char)byte;
            bool is_later = at == 4 && byte >= '2' && byte <= '9';
            check_refused(text, TEXT_CHARS, is_later ? -ENOTSUP : -EINVAL, NULL);
        }
        text[at] = was;
    }
    text[6] = '+';
    check_refused(text, TEXT_CHARS, -EINVAL, "character");
    plan_state_encode(&sample, text);
    text[TEXT_CHARS - 1]++; /* the bits behind the last byte */
    check_refused(text, TEXT_CHARS, -EINVAL, "damaged");
    plan_state_encode(&sample, text);
    text[20] = text[20] == 'A' ? 'B' : 'A';
    check_refused(text, TEXT_CHARS, -EINVAL, "checksum");
}

static void test_garbage(void **state)
{
    (void)state;
    const uint32_t key[2] = {1, 2};
    for (uint32_t n = 0; n < 2000; n++) {
        char text[160];
        uint32_t words[4];
        for (uint32_t i = 0; i < sizeof text; i += 16) {
            philox4x32((const uint32_t[4]){n, i, 0, 0}, key, words);
            memcpy(text + i, words, 16);
        }
        if (n % 2 == 0)
            memcpy(text, "spdl1.", 6);
        check_refused(text, n % 4 < 2 ? TEXT_CHARS : n % (sizeof text + 1), -EINVAL, NULL);
    }
}

static void test_errors_may_be_unwanted(void **state)
{
    (void)state;
    struct plan_state found;
    assert_int_equal(plan_state_decode("no", 2, &found, NULL), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_cut_and_longer_texts),
        cmocka_unit_test(test_no_state_at_all),
        cmocka_unit_test(test_later_formats),
        cmocka_unit_test(test_values_that_no_state_has),
        cmocka_unit_test(test_every_change_is_noticed),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_errors_may_be_unwanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
