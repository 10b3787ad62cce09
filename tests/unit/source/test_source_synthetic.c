/* The synthetic source: keys, sizes, limits, and the id that its numbers give. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

#include "source/source.h"

static struct source *open_source(uint64_t samples, uint64_t bytes)
{
    struct source_spec spec = {.kind = "synthetic", .samples = samples, .bytes = bytes};
    struct source *source;
    struct err err = {0};
    if (source_open(&spec, &source, &err) < 0)
        fail_msg("%s", err.text);
    return source;
}

static void expect_key(const struct source *source, uint64_t id, const char *key)
{
    struct source_sample sample;
    source_sample(source, id, &sample);
    assert_int_equal(sample.key_bytes, strlen(key));
    assert_memory_equal(sample.key, key, sample.key_bytes);
    assert_int_equal(sample.part_count, 1);
    assert_int_equal(sample.parts[0].kind, SOURCE_PART_MADE_UP);
    assert_string_equal(sample.parts[0].name, "bin");
    assert_int_equal(sample.parts[0].bytes, 1024);
}

static void test_keys(void **state)
{
    (void)state;
    const uint64_t many = UINT64_C(1) << 62;
    struct source *source = open_source(many, 1024);
    expect_key(source, 0, "000000000");
    expect_key(source, 17, "000000017");
    expect_key(source, 999999999, "999999999");
    expect_key(source, 1000000000, "1000000000");
    expect_key(source, many - 1, "4611686018427387903");
    assert_int_equal(source_counts(source)->samples, many);
    assert_int_equal(source_counts(source)->longest_key_bytes, 19);
    assert_int_equal(source_counts(source)->largest_bytes, 1024);
    source_close(source);
    source = open_source(1, 1);
    assert_int_equal(source_counts(source)->longest_key_bytes, 9);
    source_close(source);
}

static void test_id(void **state)
{
    (void)state;
    static const char text[] = "spdl-synthetic 1\n1000 512\n";
    XXH128_hash_t hash = XXH3_128bits(text, sizeof text - 1);
    struct source *source = open_source(1000, 512);
    uint64_t high, low;
    source_id(source, &high, &low);
    assert_int_equal(high, hash.high64);
    assert_int_equal(low, hash.low64);
    source_close(source);
}

static void test_refusals(void **state)
{
    (void)state;
    struct source_spec spec = {.kind = "synthetic", .samples = 0, .bytes = 1};
    struct source *source;
    struct err err = {0};
    assert_int_equal(source_open(&spec, &source, &err), -ENODATA);
    assert_null(source);
    spec.samples = (UINT64_C(1) << 62) + 1;
    assert_int_equal(source_open(&spec, &source, &err), -EINVAL);
    spec.samples = 1;
    spec.bytes = 0;
    assert_int_equal(source_open(&spec, &source, &err), -EINVAL);
    assert_true(err.text[0] != 0);
    source_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_id),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
