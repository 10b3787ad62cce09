/* Philox4x32-10 against the known answers published with Random123. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/philox.h"

static void test_known_answers(void **state)
{
    (void)state;
    static const uint32_t known[][10] = {
        /* counter, key, words */
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
         0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint32_t words[4];
        philox4x32(known[i], known[i] + 4, words);
        assert_memory_equal(words, known[i] + 6, sizeof words);
    }
}

static void test_result_may_replace_counter(void **state)
{
    (void)state;
    uint32_t words[4] = {0, 0, 0, 0};
    const uint32_t key[2] = {0, 0};
    philox4x32(words, key, words);
    assert_int_equal(words[0], 0x6627e8d5);
    assert_int_equal(words[3], 0x9b00dbd8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known_answers),
                                       cmocka_unit_test(test_result_may_replace_counter)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
