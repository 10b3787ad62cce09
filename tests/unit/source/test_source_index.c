/* The file of an index: that it is used, made anew only where shards have changed, and that no
 * damage to it, no other builder and no lack of rights is ever seen in what it gives. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "item/class.h"
#include "source/source_index.h"
#include "tests/lib/chance.h"

static char root[64], patterns[256], dir[256];
static _Atomic int builds;

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/spdl-index-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    snprintf(patterns, sizeof patterns, "%s/s*.bin", root);
    snprintf(dir, sizeof dir, "%s/not/yet/there", root);
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

static void shard(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

/* A shard's samples are its letters; '!' is a fault. */
static int letters_build(int fd, uint64_t bytes, struct source_progress *progress,
                         struct source_block **ret_block, struct err *reterr)
{
    char text[256], path[8];
    struct source_builder *builder = source_builder_create();
    int rc = 0;
    assert_true(bytes < sizeof text && pread(fd, text, bytes, 0) == (ssize_t)bytes);
    builds++;
    for (uint64_t i = 0; rc == 0 && i < bytes; i++) {
        struct source_builder_member member = {
            .path = path, .data_offset = i * 512, .header_offset = i, .bytes = i + 1};
        member.path_bytes = (uint32_t)snprintf(path, sizeof path, "%c.x", text[i]);
        if (text[i] == '?')
            rc = err_set(reterr, -EIO, "it has a ?");
        else if (text[i] == '!')
            rc = source_builder_fault(builder, SPDL_CLASS_CORRUPT, i, "a mark");
        else
            rc = source_builder_member(builder, &member);
    }
    if (progress)
        progress->bytes_done += bytes;
    *ret_block = rc == 0 ? source_builder_finish(builder) : NULL;
    source_builder_destroy(builder);
    return rc;
}

static struct source_index *open_index(int wanted_builds, bool kept)
{
    struct source_index_params params = {
        .kind = "letters", .patterns = patterns, .dir = dir, .build = letters_build};
    struct source_index *index = NULL;
    struct err err = {0};
    builds = 0;
    if (source_index_open(&params, &index, &err) < 0)
        fail_msg("%s", err.text);
    if (wanted_builds >= 0)
        assert_int_equal(builds, wanted_builds);
    assert_int_equal(index->parsed_count, builds);
    assert_int_equal(index->kept, kept);
    return index;
}

/* "ab|cd!" for two shards. */
static const char *letters(const struct source_index *index)
{
    static char text[1024];
    size_t used = 0;
    for (uint32_t s = 0; s < index->shard_count; s++) {
        const struct source_block *block = index->shards[s].block;
        for (uint32_t i = 0; i < block->sample_count && used < sizeof text - 4; i++) {
            struct source_sample sample;
            source_block_sample(block, i, &sample);
            if (sample.key_bytes == 1 && sample.part_count == 1)
                text[used++] = sample.key[0];
        }
        for (uint32_t i = 0; i < block->fault_count; i++)
            text[used++] = '!';
        text[used++] = '|';
    }
    text[used - 1] = 0;
    return text;
}

static void expect(int wanted_builds, bool kept, const char *wanted)
{
    struct source_index *index = open_index(wanted_builds, kept);
    assert_string_equal(letters(index), wanted);
    source_index_close(index);
}

static int files_in(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static void test_only_what_changed_is_read(void **state)
{
    (void)state;
    shard("s1.bin", "ab");
    shard("s2.bin", "cd!");
    shard("s3.bin", "e");
    expect(3, true, "ab|cd!|e");
    expect(0, true, "ab|cd!|e");
    shard("s2.bin", "cdf");
    expect(1, true, "ab|cdf|e");
    expect(0, true, "ab|cdf|e");
    shard("s0.bin", "z");
    shard("s25.bin", "y");
    expect(2, true, "z|ab|cdf|y|e");
    char path[256];
    snprintf(path, sizeof path, "%s/s1.bin", root);
    unlink(path);
    expect(0, true, "z|cdf|y|e");
    expect(0, true, "z|cdf|y|e");
    struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1000, .tv_nsec = 1}};
    snprintf(path, sizeof path, "%s/s3.bin", root);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    expect(1, true, "z|cdf|y|e");
    expect(0, true, "z|cdf|y|e");
    assert_int_equal(files_in(dir), 1);
}

static void expect_progress(uint64_t files, uint64_t bytes)
{
    struct source_progress progress = {0};
    struct source_index_params params = {.kind = "letters",
                                         .patterns = patterns,
                                         .dir = dir,
                                         .progress = &progress,
                                         .build = letters_build};
    struct source_index *index = NULL;
    struct err err = {0};
    assert_int_equal(source_index_open(&params, &index, &err), 0);
    assert_true(progress.files == files && progress.files_done == files);
    assert_true(progress.bytes == bytes && progress.bytes_done == bytes);
    source_index_close(index);
}

/* Shards that are to be read, and their bytes, and how far that is. */
static void test_progress(void **state)
{
    (void)state;
    shard("s1.bin", "ab");
    shard("s2.bin", "cde");
    expect_progress(2, 5);
    expect_progress(0, 0);
    shard("s2.bin", "cdef");
    expect_progress(1, 4);
}

static void test_errors(void **state)
{
    (void)state;
    shard("s1.bin", "a");
    shard("s2.bin", "b?");
    shard("s3.bin", "?");
    struct source_index_params params = {
        .kind = "letters", .patterns = patterns, .dir = dir, .build = letters_build};
    struct source_index *index = NULL;
    struct err err = {0};
    assert_int_equal(source_index_open(&params, &index, &err), -EIO);
    assert_non_null(strstr(err.text, "s2.bin: it has a ?")); /* the first, whoever met it */
    assert_null(index);
}

/* No rights, no room, no folder: the index is in memory, and right. */
static void test_unwritable(void **state)
{
    (void)state;
    shard("s1.bin", "ab");
    snprintf(dir, sizeof dir, "%s/s1.bin/below", root); /* a file is no folder */
    expect(1, false, "ab");
    dir[0] = 0;
    expect(1, false, "ab");
    snprintf(dir, sizeof dir, "%s/kept", root);
    expect(1, true, "ab");
    shard("s1.bin", "abc");
    pid_t child = fork();
    if (child == 0) { /* without the rights of root */
        if (chmod(dir, 0555) < 0 ||
            (geteuid() == 0 && (chmod(root, 0755) < 0 || setuid(65534) < 0)))
            _exit(9);
        struct source_index *index = open_index(1, false);
        _exit(strcmp(letters(index), "abc") == 0 ? 0 : 8);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    chmod(dir, 0755);
    expect(1, true, "abc");
}

static char *index_file(void)
{
    static char path[4400];
    struct source_index *index = open_index(-1, true);
    snprintf(path, sizeof path, "%s", index->file);
    source_index_close(index);
    return path;
}

static void write_bytes(const char *path, const uint8_t *bytes, size_t count)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, bytes, count) == (ssize_t)count);
    close(fd);
}

static void test_damage(void **state)
{
    (void)state;
    static uint8_t whole[4096], copy[4096];
    uint64_t chance = 3;
    shard("s1.bin", "ab");
    shard("s2.bin", "cd!");
    const char *path = index_file();
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = read(fd, whole, sizeof whole);
    close(fd);
    assert_true(count > 200 && count < (ssize_t)sizeof whole);
    for (ssize_t i = 0; i < count; i += 1 + chance_below(&chance, 8)) { /* one bit */
        memcpy(copy, whole, (size_t)count);
        copy[i] ^= (uint8_t)(1 << chance_below(&chance, 8));
        write_bytes(path, copy, (size_t)count);
        expect(2, true, "ab|cd!");
    }
    for (ssize_t i = 0; i < count; i += 1 + chance_below(&chance, 80)) { /* cut */
        write_bytes(path, whole, (size_t)i);
        expect(2, true, "ab|cd!");
    }
    unlink(path);
    assert_int_equal(mkdir(path, 0755), 0); /* something else stands there */
    expect(2, false, "ab|cd!");
    rmdir(path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    expect(2, true, "ab|cd!");
    expect(0, true, "ab|cd!");
}

/* What was right when it was opened may be damaged later: no look-up leaves the block. */
static void test_damage_under_us(void **state)
{
    (void)state;
    uint64_t chance = 5;
    shard("s1.bin", "abcdefgh!ij");
    struct source_index *index = open_index(1, true);
    const struct source_block *block = index->shards[0].block;
    uint64_t head = sizeof *block, bytes = block->bytes;
    uint8_t *copy = malloc(bytes);
    const struct source_block *spoilt = (const void *)copy;
    assert_non_null(copy);
    for (int round = 0; round < 20000; round++) {
        struct source_sample sample;
        struct source_fault fault;
        memcpy(copy, block, bytes);
        for (int n = chance_below(&chance, 6); n >= 0; n--) {
            uint64_t at = head + (uint64_t)chance_below(&chance, (int)(bytes - head));
            if (at < bytes - 1 || copy[at] != 0) /* the text's end is part of the check */
                copy[at] = (uint8_t)chance_next(&chance);
        }
        if (round % 2)
            copy[chance_below(&chance, (int)head)] = (uint8_t)chance_next(&chance);
        if (!source_block_check(spoilt, bytes))
            continue;
        for (uint32_t i = 0; i < spoilt->sample_count; i++) {
            source_block_sample(spoilt, i, &sample);
            assert_true(sample.part_count <= SOURCE_PARTS_MAX);
            for (uint32_t p = 0; p < sample.part_count; p++)
                assert_true(strlen(sample.parts[p].name) < bytes);
            for (uint32_t k = 0; k < sample.key_bytes; k++)
                chance ^= (uint64_t)(sample.key[k] & 1);
        }
        for (uint32_t i = 0; i < spoilt->fault_count; i++) {
            source_block_fault(spoilt, i, &fault);
            assert_true(strlen(fault.message) < bytes && fault.key_bytes < bytes);
        }
    }
    free(copy);
    source_index_close(index);
}

/* Builders of the same index, while shards change: each gets what it looked at. */
static void test_builders_at_once(void **state)
{
    (void)state;
    enum { BUILDERS = 4, ROUNDS = 10 };
    pid_t children[BUILDERS];
    shard("s1.bin", "ab");
    shard("s2.bin", "cd");
    for (int b = 0; b < BUILDERS; b++) {
        children[b] = fork();
        if (children[b] != 0)
            continue;
        for (int round = 0; round < ROUNDS; round++) {
            struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1000 + b * ROUNDS + round}};
            char path[256];
            snprintf(path, sizeof path, "%s/s2.bin", root);
            struct source_index_params params = {
                .kind = "letters", .patterns = patterns, .dir = dir, .build = letters_build};
            struct source_index *index = NULL;
            struct err err = {0};
            if (utimensat(AT_FDCWD, path, times, 0) < 0)
                _exit(9);
            int rc = source_index_open(&params, &index, &err);
            if (rc == -ESTALE) /* it was touched while it was read: said, and tried again */
                continue;
            if (rc < 0 || strcmp(letters(index), "ab|cd") != 0)
                _exit(8);
            source_index_close(index);
        }
        _exit(0);
    }
    for (int b = 0; b < BUILDERS; b++) {
        int status = 0;
        assert_int_equal(waitpid(children[b], &status, 0), children[b]);
        assert_int_equal(status, 0);
    }
    expect(-1, true, "ab|cd");
    assert_int_equal(files_in(dir), 1);
}

/* What a builder left that was killed goes when it is old. */
static void test_remains(void **state)
{
    (void)state;
    char left[4500];
    shard("s1.bin", "ab");
    snprintf(left, sizeof left, "%s.AbCdEf", index_file());
    write_bytes(left, (const uint8_t *)"x", 1);
    shard("s1.bin", "abc");
    expect(1, true, "abc");
    assert_int_equal(files_in(dir), 2);
    struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, left, times, 0), 0);
    shard("s1.bin", "abcd");
    expect(1, true, "abcd");
    assert_int_equal(files_in(dir), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_only_what_changed_is_read, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_progress, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_errors, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_unwritable, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_damage, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_damage_under_us, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_builders_at_once, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_remains, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
