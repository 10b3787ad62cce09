/* The parser of tar headers: every form, every wrong number, every length, and chance. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "item/class.h"
#include "source/source_tar_parse.h"
#include "tests/lib/chance.h"
#include "tests/lib/tar_maker.h"

static struct tar_maker maker;

static int reset(void **state)
{
    (void)state;
    tar_maker_fini(&maker);
    return 0;
}

static int memory_read(void *context, uint64_t offset, void *into, size_t bytes)
{
    const uint8_t *from = context;
    memcpy(into, from + offset, bytes);
    return 0;
}

/* "kind path@data+bytes" for each member, then how it ends. The bytes are copied to a block of
 * their own size, so that a read beyond them is seen by the sanitizer. */
static char *listing(const uint8_t *bytes, size_t count)
{
    static char text[1 << 16];
    uint8_t *copy = malloc(count ? count : 1);
    struct source_tar_input input = {.read = memory_read, .context = copy, .bytes = count};
    struct source_tar_parser *parser = source_tar_create(&input);
    struct source_tar_member member;
    struct source_tar_fault fault;
    size_t used = 0;
    int rc;
    assert_true(copy && parser);
    if (count > 0)
        memcpy(copy, bytes, count);
    text[0] = 0;
    while ((rc = source_tar_next(parser, &member, &fault)) == 1) {
        assert_int_equal(member.data_offset % SOURCE_TAR_BLOCK_BYTES, 0);
        assert_true(member.data_offset <= count);
        assert_true(member.cut || member.bytes <= count - member.data_offset);
        assert_int_equal(strlen(member.path), member.path_bytes);
        used += (size_t)snprintf(
            text + used, sizeof text - used, "%c %s@%llu+%llu%s%s\n", "fos"[member.kind],
            member.path, (unsigned long long)member.data_offset, (unsigned long long)member.bytes,
            member.cut ? " cut" : "", member.long_path ? " long" : "");
        if (used > sizeof text - 10000)
            used = 0;
    }
    if (rc < 0) {
        assert_int_equal(rc, -EBADMSG);
        assert_true(fault.offset <= count && fault.message[0]);
        snprintf(text + used, sizeof text - used, "%s@%llu\n", spdl_class_name(fault.class_number),
                 (unsigned long long)fault.offset);
    }
    assert_int_equal(source_tar_next(parser, &member, &fault), 0);
    source_tar_destroy(parser);
    free(copy);
    return text;
}

static void expect(const char *wanted)
{
    assert_string_equal(listing(maker.bytes, maker.count), wanted);
}

static void test_plain(void **state)
{
    (void)state;
    for (int form = TAR_USTAR; form <= TAR_V7; form++) {
        for (int base_256 = 0; base_256 < 2; base_256++) {
            reset(NULL);
            maker.form = (enum tar_form)form;
            maker.base_256 = base_256;
            tar_text(&maker, "a/x.cls", "7");
            tar_header(&maker, "a/e.txt", form == TAR_V7 ? 0 : '0', 0);
            tar_header(&maker, "a/d/", form == TAR_V7 ? 0 : '5', 0);
            tar_header(&maker, "a/z.bin", '7', 513);
            tar_data(&maker, memset((char[513]){0}, 'z', 513), 513);
            tar_end(&maker);
            expect("f a/x.cls@512+1\nf a/e.txt@1536+0\no a/d/@2048+0\nf a/z.bin@2560+513\n");
        }
    }
}

static void test_kinds_that_are_no_files(void **state)
{
    (void)state;
    for (const char *type = "123456"; *type; type++)
        tar_header(&maker, "l.jpg", *type, 900); /* has no data, whatever the size says */
    tar_header(&maker, "u.jpg", 'Z', 3);
    tar_data(&maker, "abc", 3);
    tar_text(&maker, "a.jpg", "x");
    expect("o l.jpg@512+0\no l.jpg@1024+0\no l.jpg@1536+0\no l.jpg@2048+0\no l.jpg@2560+0\n"
           "o l.jpg@3072+0\no u.jpg@3584+3\nf a.jpg@4608+1\n");
}

static void test_end(void **state)
{
    (void)state;
    expect(""); /* nothing at all */
    tar_end(&maker);
    expect("");
    reset(NULL);
    tar_text(&maker, "a.b", "x");
    tar_end(&maker);
    tar_text(&maker, "behind.the.end", "x");
    memset(maker.bytes + maker.count - 700, 0xaa, 700);
    expect("f a.b@512+1\n");
}

static void test_long_names(void **state)
{
    (void)state;
    char name[300], wanted[400];
    memset(name, 'n', sizeof name);
    memcpy(name + 120, "/x", 2);
    memcpy(name + 200, ".jpg", sizeof ".jpg");
    tar_text(&maker, name, "1"); /* prefix and name */
    snprintf(wanted, sizeof wanted, "f %s@512+1\n", name);
    expect(wanted);
    maker.form = TAR_GNU;
    maker.count = 0;
    tar_long_name(&maker, name);
    tar_header(&maker, "././@LongLink", 'K', 4); /* a link's: not wanted */
    tar_data(&maker, "to", 3);
    tar_text(&maker, "short", "1");
    tar_text(&maker, "next.b", "");
    snprintf(wanted, sizeof wanted, "f %s@2560+1\nf next.b@3584+0\n", name);
    expect(wanted);
    /* Old GNU headers keep times where ustar keeps the prefix. */
    maker.count = 0;
    size_t header = tar_header(&maker, "o.b", '0', 0);
    memcpy(maker.bytes + header + 345, "14524000000", 12);
    tar_sum(&maker, header);
    expect("f o.b@512+0\n");
}

static void test_pax(void **state)
{
    (void)state;
    char comment[601], long_path[SOURCE_TAR_PATH_MAX + 10];
    memset(comment, 'c', sizeof comment - 1);
    comment[600] = 0;
    tar_pax(&maker, 'x', "comment", comment);
    tar_text(&maker, "short.a", "1");
    tar_pax(&maker, 'x', "path", "k/\xc3\xb6.jpg");
    tar_pax(&maker, 'x', "mtime", "1.5");
    tar_text(&maker, "x", "1");
    tar_pax(&maker, 'x', "size", "3");
    tar_header(&maker, "s.b", '0', 0);
    tar_data(&maker, "abc", 3);
    tar_text(&maker, "plain.b", "1");
    expect("f short.a@2048+1\nf k/\xc3\xb6.jpg@5120+1\nf s.b@7168+3\nf plain.b@8192+1\n");

    reset(NULL);
    tar_pax(&maker, 'g', "path", "all.g");
    tar_text(&maker, "one", "1");
    tar_pax(&maker, 'x', "path", "own.g");
    tar_text(&maker, "two", "1");
    tar_pax(&maker, 'g', "path", ""); /* takes it back */
    tar_text(&maker, "three", "1");
    expect("f all.g@1536+1\nf own.g@3584+1\nf three@5632+1\n");

    reset(NULL);
    memset(long_path, 'p', sizeof long_path);
    long_path[SOURCE_TAR_PATH_MAX + 1] = 0;
    tar_pax(&maker, 'x', "path", long_path);
    tar_text(&maker, "x", "1");
    assert_non_null(strstr(listing(maker.bytes, maker.count), "+1 long\n"));
}

static void test_pax_that_is_malformed(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "x",       "10 path=a\n",       "11 path=aaa",   "0 a=b\n",
        "5 a=b\n", "999 path=a\n",      "-5 a=b\n",      "7  path\n",
        "6 =bc\n", "12345678901 a=b\n", "12 size=0x3\n", "30 size=99999999999999999999\n"};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        reset(NULL);
        tar_text(&maker, "a.b", "1");
        tar_header(&maker, "pax", 'x', strlen(bodies[i]));
        tar_data(&maker, bodies[i], strlen(bodies[i]));
        tar_text(&maker, "c.d", "1");
        if (strcmp(bodies[i], "10 path=a\n") == 0)
            expect("f a.b@512+1\nf a@2560+1\n");
        else
            expect("f a.b@512+1\nCORRUPT@1024\n");
    }
    reset(NULL); /* a path with a zero byte */
    tar_header(&maker, "pax", 'x', 12);
    tar_data(&maker, "12 path=a\0b\n", 12);
    tar_text(&maker, "c.d", "1");
    expect("CORRUPT@0\n");
    reset(NULL);
    tar_header(&maker, "pax", 'x', SOURCE_TAR_EXTENDED_MAX + 1);
    expect("TRUNCATED@0\n");
    uint8_t *large = calloc(1, SOURCE_TAR_EXTENDED_MAX + 1);
    tar_data(&maker, large, SOURCE_TAR_EXTENDED_MAX + 1);
    free(large);
    expect("CORRUPT@0\n");
}

static void test_sparse(void **state)
{
    (void)state;
    maker.form = TAR_GNU;
    size_t header = tar_header(&maker, "old.b", 'S', 512);
    maker.bytes[header + 482] = 1; /* a block of the map follows, and another one */
    tar_sum(&maker, header);
    uint8_t map[512] = {[504] = 1};
    tar_data(&maker, map, sizeof map);
    map[504] = 0;
    tar_data(&maker, map, sizeof map);
    tar_data(&maker, memset((char[512]){0}, 'd', 512), 512);
    tar_text(&maker, "a.b", "1");
    tar_pax(&maker, 'x', "GNU.sparse.name", "new.b");
    tar_text(&maker, "GNUSparseFile.1/new.b", "1");
    tar_text(&maker, "c.d", "1");
    expect("s old.b@1536+512\nf a.b@2560+1\ns new.b@4608+1\nf c.d@5632+1\n");
}

static void test_damage(void **state)
{
    (void)state;
    tar_text(&maker, "a.b", "1");
    size_t second = maker.count;
    tar_text(&maker, "c.d", "1");
    tar_text(&maker, "e.f", "1");
    maker.bytes[second + 3] ^= 1;
    expect("f a.b@512+1\nCORRUPT@1024\n");
    maker.bytes[second + 3] ^= 1;
    static const char *const sizes[] = {
        "9",        "-1",
        "7x",       "\xff\xff\xff\xff",
        "\x81\x01", "\x80\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01"};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        memset(maker.bytes + second + 124, 0, 12);
        memcpy(maker.bytes + second + 124, sizes[i], strlen(sizes[i]));
        tar_sum(&maker, second);
        expect("f a.b@512+1\nCORRUPT@1024\n");
    }
    memcpy(maker.bytes + second + 124, "\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12);
    tar_sum(&maker, second);
    expect("f a.b@512+1\nf c.d@1536+9223372036854775807 cut\n");
    /* Sums of signed bytes, as old writers made them. */
    reset(NULL);
    size_t header = tar_header(&maker, "\xe4\xf6.b", '0', 0);
    unsigned long sum = strtoul((const char *)maker.bytes + header + 148, NULL, 8) - 512;
    char text[16];
    snprintf(text, sizeof text, "%06lo", sum);
    memcpy(maker.bytes + header + 148, text, 7);
    expect("f \xe4\xf6.b@512+0\n");
}

static void test_every_length(void **state)
{
    (void)state;
    char name[160], whole[1024];
    memset(name, 'n', 150);
    memcpy(name + 150, ".jpg", sizeof ".jpg");
    maker.form = TAR_GNU;
    tar_text(&maker, "a.cls", "7");
    tar_long_name(&maker, name);
    tar_file(&maker, "x", memset((char[700]){0}, 'j', 700), 700);
    tar_pax(&maker, 'x', "path", "p.txt");
    tar_text(&maker, "y", "1");
    tar_end(&maker);
    snprintf(whole, sizeof whole, "f a.cls@512+1\nf %s@2560+700\nf p.txt@5120+1\n", name);
    expect(whole);
    for (size_t count = 0; count < maker.count; count++) {
        const char *text = listing(maker.bytes, count);
        const char *last = strstr(text, "TRUNCATED@");
        size_t said = last ? (size_t)(last - text) : strlen(text);
        const char *cut = strstr(text, " cut\n");
        assert_true(cut || strncmp(text, whole, said) == 0);
        if (count >= 1 && count < 512)
            assert_string_equal(text, "TRUNCATED@0\n");
        if (count == 512)
            assert_string_equal(text, "f a.cls@512+1 cut\n");
        if (count >= 513 && count <= 1024) /* padding is missing, the member is whole */
            assert_string_equal(text, "f a.cls@512+1\n");
        if (count > 2560 && count < 3260)
            assert_non_null(cut);
        if (count >= 5121)
            assert_string_equal(text, whole);
    }
}

static void test_chance(void **state)
{
    (void)state;
    uint64_t chance = 7;
    char name[140];
    memset(name, 'n', 130);
    memcpy(name + 130, ".a", sizeof ".a");
    tar_text(&maker, "a.cls", "7");
    tar_pax(&maker, 'x', "path", "p.txt");
    tar_text(&maker, "y", "1");
    maker.form = TAR_GNU;
    tar_long_name(&maker, name);
    tar_text(&maker, "x", "1");
    tar_header(&maker, "s.b", 'S', 0);
    tar_end(&maker);
    uint8_t *copy = malloc(maker.count);
    assert_non_null(copy);
    struct tar_maker spoilt = {.bytes = copy, .count = maker.count, .room = maker.count};
    for (int round = 0; round < 20000; round++) {
        memcpy(copy, maker.bytes, maker.count);
        for (int n = chance_below(&chance, 4); n >= 0; n--) {
            size_t at = (size_t)chance_below(&chance, (int)maker.count);
            copy[at] = (uint8_t)chance_next(&chance);
            if (chance_below(&chance, 4) > 0) /* right sums let more through */
                tar_sum(&spoilt, at / 512 * 512);
        }
        listing(copy, (size_t)chance_below(&chance, (int)maker.count + 1));
    }
    for (int round = 0; round < 2000; round++) {
        for (size_t i = 0; i < maker.count; i++)
            copy[i] = (uint8_t)chance_next(&chance);
        for (size_t i = 0; i < maker.count; i += 512) {
            copy[i + 156] = (uint8_t) "0xgLKS51"[chance_below(&chance, 8)];
            memset(copy + i + 124, '0', 11);
            copy[i + 132] = (uint8_t)('0' + chance_below(&chance, 3));
            tar_sum(&spoilt, i);
        }
        listing(copy, maker.count);
    }
    free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plain, reset, reset),
        cmocka_unit_test_setup_teardown(test_kinds_that_are_no_files, reset, reset),
        cmocka_unit_test_setup_teardown(test_end, reset, reset),
        cmocka_unit_test_setup_teardown(test_long_names, reset, reset),
        cmocka_unit_test_setup_teardown(test_pax, reset, reset),
        cmocka_unit_test_setup_teardown(test_pax_that_is_malformed, reset, reset),
        cmocka_unit_test_setup_teardown(test_sparse, reset, reset),
        cmocka_unit_test_setup_teardown(test_damage, reset, reset),
        cmocka_unit_test_setup_teardown(test_every_length, reset, reset),
        cmocka_unit_test_setup_teardown(test_chance, reset, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
