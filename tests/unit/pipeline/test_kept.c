/* What outlives the daemon: files that are damaged, cut or of something else are as good as none;
 * bits of groups that changed are gone, those of others come with them wherever they stand; a
 * quarantine comes back as it was. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "pipeline/pipeline_kept.h"
#include "pipeline/pipeline_quarantine.h"
#include "pipeline/pipeline_seen.h"
#include "tests/lib/chance.h"

static char root[64], file[128];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/spdl-kept-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    snprintf(file, sizeof file, "%s/not/there/x.seen", root);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int read_back(enum pipeline_kept_kind kind, const char *wanted, size_t wanted_bytes)
{
    void *payload = NULL;
    uint64_t bytes = 0;
    int rc = pipeline_kept_read(file, kind, &payload, &bytes);
    if (rc == 0) {
        assert_int_equal(bytes, wanted_bytes);
        assert_memory_equal(payload, wanted, wanted_bytes);
    }
    free(payload);
    return rc;
}

static void write_bytes(const uint8_t *bytes, size_t count)
{
    int fd = open(file, O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, bytes, count) == (ssize_t)count);
    close(fd);
}

static void test_files(void **state)
{
    (void)state;
    static const char text[] = "what is kept";
    uint8_t whole[256], copy[256];
    assert_int_equal(read_back(PIPELINE_KEPT_SEEN, "", 0), -ENOENT);
    assert_int_equal(pipeline_kept_write(file, PIPELINE_KEPT_SEEN, text, sizeof text), 0);
    assert_int_equal(read_back(PIPELINE_KEPT_SEEN, text, sizeof text), 0);
    assert_int_equal(read_back(PIPELINE_KEPT_QUARANTINE, "", 0), -EBADMSG);
    assert_int_equal(pipeline_kept_write(file, PIPELINE_KEPT_SEEN, "", 0), 0);
    assert_int_equal(read_back(PIPELINE_KEPT_SEEN, "", 0), 0);
    assert_int_equal(pipeline_kept_write(file, PIPELINE_KEPT_SEEN, text, sizeof text), 0);
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t count = read(fd, whole, sizeof whole);
    close(fd);
    assert_true(count > (ssize_t)sizeof text && count < (ssize_t)sizeof whole);
    for (ssize_t i = 0; i < count; i++) { /* cut, and each bit */
        write_bytes(whole, (size_t)i);
        assert_int_equal(read_back(PIPELINE_KEPT_SEEN, "", 0), -EBADMSG);
        for (int bit = 0; bit < 8; bit++) {
            memcpy(copy, whole, sizeof copy);
            copy[i] ^= (uint8_t)(1 << bit);
            write_bytes(copy, (size_t)count);
            assert_int_equal(read_back(PIPELINE_KEPT_SEEN, "", 0), -EBADMSG);
        }
    }
    memcpy(copy, whole, sizeof copy);
    write_bytes(copy, (size_t)count + 1);
    assert_int_equal(read_back(PIPELINE_KEPT_SEEN, "", 0), -EBADMSG);
    assert_int_equal(truncate(file, (off_t)PIPELINE_KEPT_BYTES_MAX * 2), 0);
    assert_int_equal(read_back(PIPELINE_KEPT_SEEN, "", 0), -EFBIG);
    char name[256];
    snprintf(name, sizeof name, "%s.AbCdEf", file); /* left by a writer that was killed */
    fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1000}};
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    assert_int_equal(pipeline_kept_write(file, PIPELINE_KEPT_SEEN, text, sizeof text), 0);
    assert_int_equal(access(name, F_OK), -1);
}

/* --- what was seen --- */

/* A source of samples whose files are the letters of a text, their times the digits behind them. */
struct letters {
    struct source source;
    const char *text;
    uint64_t firsts[8]; /* firsts[1] is above 0: shards */
};

static void letters_sample(const struct source *source, uint64_t id,
                           struct source_sample *ret_sample)
{
    const struct letters *letters = (const struct letters *)source;
    uint64_t of = id;
    static char path[2];
    for (uint32_t s = 0; letters->firsts[1] > 0 && s < source->counts.shards; s++)
        if (letters->firsts[s] <= id && id < letters->firsts[s + 1])
            of = s;
    path[0] = letters->text[2 * of];
    ret_sample->key = path;
    ret_sample->key_bytes = 1;
    ret_sample->part_count = 1;
    ret_sample->parts[0] = (struct source_part){.kind = SOURCE_PART_FILE,
                                                .path = path,
                                                .bytes = 10,
                                                .file_bytes = 10,
                                                .mtime_ns = letters->text[2 * of + 1]};
}

static const uint64_t *letters_shards(const struct source *source)
{
    const struct letters *letters = (const struct letters *)source;
    return letters->firsts[1] > 0 ? letters->firsts : NULL;
}

static const struct source_ops letters_ops = {.sample = letters_sample, .shards = letters_shards};

static struct letters letters_of(const char *text)
{
    return (struct letters){
        .source = {.ops = &letters_ops, .counts = {.samples = strlen(text) / 2}}, .text = text};
}

static void expect_seen(const struct letters *letters, const struct pipeline_seen *before,
                        const char *name, const char *wanted)
{
    struct err note = {0};
    struct pipeline_seen *seen = pipeline_seen_open(&letters->source, file, name, before, &note);
    assert_non_null(seen);
    assert_string_equal(note.text, "");
    uint64_t count = 0;
    for (uint64_t i = 0; i < letters->source.counts.samples; i++) {
        if (pipeline_seen_is(seen, i) != (wanted[i] == '1'))
            fail_msg("sample %d of %s is not as in %s", (int)i, letters->text, wanted);
        count += wanted[i] == '1';
    }
    assert_false(pipeline_seen_is(seen, letters->source.counts.samples));
    assert_int_equal(seen->seen_count, count);
    pipeline_seen_release(seen);
}

static void keep_seen(const struct letters *letters, const char *name, const char *which)
{
    struct err note = {0};
    struct pipeline_seen *seen = pipeline_seen_open(&letters->source, file, name, NULL, &note);
    assert_non_null(seen);
    uint64_t before = seen->seen_count, noted = 0;
    for (uint64_t i = 0; which[i]; i++) {
        if (which[i] != '1')
            continue;
        noted += !pipeline_seen_is(seen, i);
        pipeline_seen_note(seen, i);
        pipeline_seen_note(seen, i);
    }
    pipeline_seen_note(seen, UINT64_MAX);
    assert_int_equal(seen->noted_count, noted);
    assert_int_equal(seen->seen_count, before + noted);
    assert_int_equal(pipeline_seen_write(seen, seen->bits), 0);
    pipeline_seen_release(seen);
}

static void test_seen_files(void **state)
{
    (void)state;
    struct letters all = letters_of("a1b1c1d1e1f1g1h1i1j1k1");
    expect_seen(&all, NULL, "n", "00000000000");
    keep_seen(&all, "n", "10110000011");
    expect_seen(&all, NULL, "n", "10110000011");
    keep_seen(&all, "n", "01000000000"); /* what is there stays */
    expect_seen(&all, NULL, "n", "11110000011");
    struct letters fewer = letters_of("b1d1k1"), changed = letters_of("a1b2c1d1");
    struct letters more = letters_of("A1a1b1bxc1d1e1f1g1h1i1j1k1z1");
    expect_seen(&fewer, NULL, "n", "111");
    expect_seen(&changed, NULL, "n", "1011");
    expect_seen(&more, NULL, "n", "01101100000110");
    struct err note = {0};
    struct pipeline_seen *other = pipeline_seen_open(&all.source, file, "m", NULL, &note);
    assert_int_equal(other->seen_count, 0); /* another name: other parts are decoded */
    assert_non_null(strstr(note.text, "is of no use"));
    pipeline_seen_release(other);
}

static void test_seen_without_a_file(void **state)
{
    (void)state;
    struct err note = {0};
    struct letters all = letters_of("a1b1c1"), changed = letters_of("0ya1b2c1");
    struct pipeline_seen *seen = pipeline_seen_open(&all.source, "", "n", NULL, &note);
    for (uint64_t i = 0; i < 3; i++)
        pipeline_seen_note(seen, i);
    expect_seen(&changed, seen, "n", "0101");
    expect_seen(&changed, seen, "m", "0000");
    pipeline_seen_release(seen);
}

static void test_seen_shards(void **state)
{
    (void)state;
    struct letters all = letters_of("a1b1c1d1");
    all.source.counts.shards = 4;
    all.source.counts.samples = 25;
    memcpy(all.firsts, (const uint64_t[]){0, 3, 3, 20, 25}, 5 * sizeof(uint64_t));
    keep_seen(&all, "n", "1100110011000000000101101");
    expect_seen(&all, NULL, "n", "1100110011000000000101101");
    struct letters moved = letters_of("c1a1d1"); /* others in front: bits are not at whole bytes */
    moved.source.counts.shards = 3;
    moved.source.counts.samples = 25;
    memcpy(moved.firsts, (const uint64_t[]){0, 17, 20, 25}, 4 * sizeof(uint64_t));
    expect_seen(&moved, NULL, "n", "0110011000000000111001101");
    struct letters longer = letters_of("a1c1d1"); /* a shard of another count is another */
    longer.source.counts.shards = 3;
    longer.source.counts.samples = 26;
    memcpy(longer.firsts, (const uint64_t[]){0, 4, 21, 26}, 4 * sizeof(uint64_t));
    expect_seen(&longer, NULL, "n", "00000110011000000000101101");
}

/* Any payload, right sum or not, leads nowhere. */
static void test_seen_payloads_are_hostile(void **state)
{
    (void)state;
    uint64_t chance = 11;
    struct letters all = letters_of("a1b1c1d1e1");
    all.source.counts.shards = 2;
    memcpy(all.firsts, (const uint64_t[]){0, 2, 5}, 3 * sizeof(uint64_t));
    keep_seen(&all, "n", "11011");
    void *payload = NULL;
    uint64_t bytes = 0;
    assert_int_equal(pipeline_kept_read(file, PIPELINE_KEPT_SEEN, &payload, &bytes), 0);
    for (int round = 0; round < 300; round++) {
        uint8_t *copy = malloc(bytes);
        uint64_t length = round % 4 ? bytes : (uint64_t)chance_below(&chance, (int)bytes + 1);
        assert_non_null(copy);
        memcpy(copy, payload, bytes);
        for (int n = chance_below(&chance, 4); n >= 0 && length > 0; n--)
            copy[chance_below(&chance, (int)length)] = (uint8_t)chance_next(&chance);
        assert_int_equal(pipeline_kept_write(file, PIPELINE_KEPT_SEEN, copy, length), 0);
        free(copy);
        struct err note = {0};
        struct pipeline_seen *seen = pipeline_seen_open(&all.source, file, "n", NULL, &note);
        assert_true(seen->seen_count <= 5);
        pipeline_seen_release(seen);
    }
    free(payload);
}

/* Writers at once: what each of them has seen is in the file at the end. */
static void test_writers_at_once(void **state)
{
    (void)state;
    enum { WRITERS = 4 };
    static const char *const which[WRITERS] = {"1000", "0100", "0010", "0001"};
    struct letters all = letters_of("a1b1c1d1");
    pid_t children[WRITERS];
    for (int w = 0; w < WRITERS; w++) {
        children[w] = fork();
        if (children[w] != 0)
            continue;
        for (int round = 0; round < 20; round++) {
            struct err note = {0};
            struct pipeline_seen *seen = pipeline_seen_open(&all.source, file, "n", NULL, &note);
            pipeline_seen_note(seen, (uint64_t)(strchr(which[w], '1') - which[w]));
            int rc = pipeline_seen_write(seen, seen->bits);
            pipeline_seen_release(seen);
            if (rc < 0 || note.text[0])
                _exit(8);
        }
        _exit(0);
    }
    for (int w = 0; w < WRITERS; w++) {
        int status = 0;
        assert_int_equal(waitpid(children[w], &status, 0), children[w]);
        assert_int_equal(status, 0);
    }
    keep_seen(&all, "n", "1111"); /* the last write of one may have missed that of another */
    expect_seen(&all, NULL, "n", "1111");
}

/* --- the quarantine --- */

static void list_fill(struct pipeline_quarantine **list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        char key[32], path[32];
        snprintf(key, sizeof key, "k\xff\n%u", i);
        snprintf(path, sizeof path, "p/%u.tar", i % 3);
        struct pipeline_quarantined sample = {.key = key,
                                              .key_bytes = (uint32_t)strlen(key),
                                              .path = path,
                                              .offset = 512 * i,
                                              .fault = i % 2 ? UINT64_MAX : 600 * i,
                                              .class_number =
                                                  i % 2 ? SPDL_CLASS_CORRUPT : SPDL_CLASS_LIMIT,
                                              .message = "why"};
        for (uint32_t n = 0; n <= i % 2; n++)
            pipeline_quarantine_note(list, &sample, 1000 + i + n);
    }
}

static void expect_same(const struct pipeline_quarantine *a, const struct pipeline_quarantine *b)
{
    assert_int_equal(pipeline_quarantine_count(a), pipeline_quarantine_count(b));
    for (uint32_t i = 0; i < pipeline_quarantine_count(a); i++) {
        struct pipeline_quarantined x, y;
        pipeline_quarantine_at(a, i, &x);
        pipeline_quarantine_at(b, i, &y);
        assert_int_equal(x.key_bytes, y.key_bytes);
        assert_memory_equal(x.key, y.key, x.key_bytes);
        assert_string_equal(x.path, y.path);
        assert_string_equal(x.message, y.message);
        assert_true(x.offset == y.offset && x.fault == y.fault && x.count == y.count &&
                    x.first_s == y.first_s && x.last_s == y.last_s &&
                    x.class_number == y.class_number);
    }
}

static void test_packed(void **state)
{
    (void)state;
    struct pipeline_quarantine *list = NULL, *back = NULL;
    uint64_t bytes = 0;
    void *packed = pipeline_quarantine_pack(list, &bytes); /* an empty one too */
    assert_int_equal(pipeline_quarantine_unpack(packed, bytes, &back), 0);
    assert_null(back);
    free(packed);
    list_fill(&list, 7);
    packed = pipeline_quarantine_pack(list, &bytes);
    assert_int_equal(pipeline_quarantine_unpack(packed, bytes, &back), 0);
    expect_same(list, back);
    pipeline_quarantine_destroy(back);
    for (uint64_t cut = 0; cut < bytes; cut++) {
        void *copy = malloc(cut ? cut : 1);
        memcpy(copy, packed, cut);
        assert_int_equal(pipeline_quarantine_unpack(copy, cut, &back), -EBADMSG);
        assert_null(back);
        free(copy);
    }
    uint64_t chance = 4;
    for (int round = 0; round < 5000; round++) {
        uint8_t *copy = malloc(bytes + 1);
        memcpy(copy, packed, bytes);
        for (int n = chance_below(&chance, 4); n >= 0; n--)
            copy[chance_below(&chance, (int)bytes)] = (uint8_t)chance_next(&chance);
        if (pipeline_quarantine_unpack(copy, bytes, &back) == 0)
            for (uint32_t i = 0; i < pipeline_quarantine_count(back); i++) {
                struct pipeline_quarantined sample;
                pipeline_quarantine_at(back, i, &sample);
                assert_true(sample.class_number < SPDL_CLASS_COUNT && sample.count > 0);
                for (const char *at = sample.message; *at; at++)
                    assert_in_range(*at, ' ', '~');
            }
        pipeline_quarantine_destroy(back);
        free(copy);
    }
    free(packed);
    pipeline_quarantine_destroy(list);
}

static void test_merged(void **state)
{
    (void)state;
    struct pipeline_quarantine *list = NULL, *other = NULL;
    list_fill(&list, 3);
    list_fill(&other, 5);
    struct pipeline_quarantined sample;
    pipeline_quarantine_at(other, 0, &sample);
    sample.class_number = SPDL_CLASS_EMPTY;
    pipeline_quarantine_note(&other, &sample, 9000); /* later there */
    assert_true(pipeline_quarantine_merge(&list, other));
    expect_same(list, other);
    assert_false(pipeline_quarantine_merge(&list, other)); /* nothing new */
    expect_same(list, other);
    pipeline_quarantine_at(list, 0, &sample);
    assert_int_equal(sample.class_number, SPDL_CLASS_EMPTY);
    assert_true(sample.count == 2 && sample.first_s == 1000 && sample.last_s == 9000);
    for (int n = 0; n < 3; n++)
        pipeline_quarantine_note_once(&list, &sample, 9100 + n);
    pipeline_quarantine_at(list, 0, &sample);
    assert_true(sample.count == 2 && sample.last_s == 9102);
    pipeline_quarantine_destroy(list);
    pipeline_quarantine_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_files, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_seen_files, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_seen_without_a_file, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_seen_shards, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_seen_payloads_are_hostile, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_writers_at_once, make_root, remove_root),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_merged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
