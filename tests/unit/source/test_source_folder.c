/* The folder source: what becomes a sample, under which key and label, and what is left out. */
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
#include <xxhash.h>

#include <cmocka.h>

#include "source/source.h"

static char root[64];

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/spdl-source-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *at(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static void folder(const char *name)
{
    assert_int_equal(mkdir(at(name), 0755), 0);
}

static void file(const char *name, size_t bytes)
{
    int fd = open(at(name), O_CREAT | O_EXCL | O_WRONLY, 0644);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    close(fd);
}

static void link_to(const char *target, const char *name)
{
    assert_int_equal(symlink(target, at(name)), 0);
}

static struct source *open_source(void)
{
    struct source_spec spec = {.kind = "folder"};
    snprintf(spec.path, sizeof spec.path, "%s", root);
    struct source *source;
    struct err err = {0};
    if (source_open(&spec, &source, &err) < 0)
        fail_msg("%s", err.text);
    return source;
}

static int open_fails(const char *path, struct err *reterr)
{
    struct source_spec spec = {.kind = "folder"};
    snprintf(spec.path, sizeof spec.path, "%s", path);
    struct source *source;
    int rc = source_open(&spec, &source, reterr);
    assert_null(source);
    assert_int_equal(reterr->code, rc);
    return rc;
}

static void expect(const struct source *source, uint64_t id, const char *key, int64_t label,
                   const char *part)
{
    struct source_sample sample;
    assert_true(id < source_counts(source)->samples);
    assert_true(source_warms(source)); /* which changes nothing */
    source_warm(source, id, SOURCE_FAR);
    source_warm(source, id, SOURCE_NEAR);
    source_sample(source, id, &sample);
    assert_int_equal(sample.key_bytes, strlen(key));
    assert_memory_equal(sample.key, key, sample.key_bytes);
    assert_int_equal(sample.part_count, 2);
    assert_int_equal(sample.parts[0].kind, SOURCE_PART_FILE);
    assert_string_equal(sample.parts[0].name, part);
    assert_string_equal(sample.parts[0].path, key);
    assert_int_equal(sample.parts[1].kind, SOURCE_PART_INTEGER);
    assert_string_equal(sample.parts[1].name, "cls");
    assert_int_equal(sample.parts[1].value, label);
}

/* Hidden files, capital extensions, an empty class in the middle. */
static void test_classes_and_hidden_files(void **state)
{
    (void)state;
    folder("a"), folder("b"), folder("c");
    file("a/1.jpg", 10), file("a/2.JPG", 20), file("a/.DS_Store", 5), file("a/._1.jpg", 5);
    file("c/3.jpeg", 300), file("c/notes.txt", 1), file("c/jpg", 1), file(".DS_Store", 1);
    struct source *source = open_source();
    const struct source_counts *counts = source_counts(source);
    assert_int_equal(counts->samples, 3);
    assert_int_equal(counts->classes, 3);
    assert_int_equal(counts->empty_classes, 1);
    assert_int_equal(counts->ignored, 5);
    assert_int_equal(counts->largest_bytes, 300);
    assert_int_equal(counts->longest_key_bytes, 8);
    assert_non_null(strstr(counts->note, "/b has no picture"));
    expect(source, 0, "a/1.jpg", 0, "jpg");
    expect(source, 1, "a/2.JPG", 0, "jpg");
    expect(source, 2, "c/3.jpeg", 2, "jpeg");
    const char *names[8];
    assert_int_equal(source_part_names(source, names, 8), 3);
    assert_string_equal(names[0], "jpg");
    assert_string_equal(names[1], "jpeg");
    assert_string_equal(names[2], "cls");
    assert_int_equal(source_part_names(source, names, 1), 1);

    struct source_sample sample;
    struct stat st;
    source_sample(source, 2, &sample);
    assert_int_equal(fstatat(sample.parts[0].root_fd, sample.parts[0].path, &st, 0), 0);
    assert_int_equal(sample.parts[0].bytes, 300);
    assert_int_equal(sample.parts[0].mtime_ns, st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
    source_close(source);
}

static void test_flat_folder(void **state)
{
    (void)state;
    file("b.png", 1), file("a.webp", 2), file("B.bmp", 3);
    folder("thumbs"); /* no pictures in it: no class */
    struct source *source = open_source();
    assert_int_equal(source_counts(source)->samples, 3);
    assert_int_equal(source_counts(source)->classes, 1);
    assert_int_equal(source_counts(source)->empty_classes, 0);
    assert_string_equal(source_counts(source)->note, "");
    expect(source, 0, "B.bmp", 0, "bmp");
    expect(source, 1, "a.webp", 0, "webp");
    expect(source, 2, "b.png", 0, "png");
    source_close(source);
}

static void test_pictures_beside_classes(void **state)
{
    (void)state;
    folder("x"), file("x/1.jpg", 1), file("loose.jpg", 1), file("zoo.jpg", 1);
    struct source *source = open_source();
    assert_int_equal(source_counts(source)->samples, 1);
    assert_int_equal(source_counts(source)->ignored, 2);
    assert_non_null(strstr(source_counts(source)->note, "2 pictures directly in"));
    expect(source, 0, "x/1.jpg", 0, "jpg");
    source_close(source);
}

/* Keys are in byte order of the whole path, classes in byte order of their names. */
static void test_order(void **state)
{
    (void)state;
    folder("a"), folder("a.b"), folder("a/sub"), folder("a/sub/deep"), folder("a-"), folder("\xff");
    file("a/sub.jpg", 1), file("a/sub/1.jpg", 1), file("a/sub/deep/0.jpg", 1),
        file("a/sub0.jpg", 1);
    file("a.b/1.jpg", 1), file("a-/1.jpg", 1), file("\xff/1.jpg", 1), file("a/\xc3\xa9.jpg", 1);
    struct source *source = open_source();
    assert_int_equal(source_counts(source)->samples, 8);
    expect(source, 0, "a-/1.jpg", 1, "jpg");
    expect(source, 1, "a.b/1.jpg", 2, "jpg");
    expect(source, 2, "a/sub.jpg", 0, "jpg");
    expect(source, 3, "a/sub/1.jpg", 0, "jpg");
    expect(source, 4, "a/sub/deep/0.jpg", 0, "jpg");
    expect(source, 5, "a/sub0.jpg", 0, "jpg");
    expect(source, 6, "a/\xc3\xa9.jpg", 0, "jpg");
    expect(source, 7, "\xff/1.jpg", 3, "jpg");
    source_close(source);
}

static void test_links(void **state)
{
    (void)state;
    folder("a"), folder("b"), file("a/1.jpg", 7), file("a/text", 1);
    link_to("../a/1.jpg", "b/inside.jpg");
    link_to("/etc/passwd", "b/passwd.jpg");
    link_to("../../../etc/passwd", "b/up.jpg");
    link_to("nowhere", "b/dangling.jpg");
    link_to("nowhere", "b/dangling.txt");
    link_to("self.jpg", "b/self.jpg");
    link_to(".", "b/loop");
    link_to("..", "b/up");
    link_to("/etc", "etc");
    link_to("a", "c");
    link_to("../a", "b/folder");
    struct source *source = open_source();
    const struct source_counts *counts = source_counts(source);
    assert_int_equal(counts->refused_links, 3);
    assert_int_equal(counts->ignored, 6); /* a/text on three ways, dangling.txt, loop, up */
    assert_int_equal(counts->classes, 3);
    assert_int_equal(counts->samples, 6);
    assert_non_null(strstr(counts->note, "link"));
    expect(source, 0, "a/1.jpg", 0, "jpg");
    expect(source, 1, "b/dangling.jpg", 1, "jpg");
    expect(source, 2, "b/folder/1.jpg", 1, "jpg");
    expect(source, 3, "b/inside.jpg", 1, "jpg");
    expect(source, 4, "b/self.jpg", 1, "jpg");
    expect(source, 5, "c/1.jpg", 2, "jpg");
    struct source_sample sample;
    source_sample(source, 1, &sample);
    assert_int_equal(sample.parts[0].bytes, 0);
    assert_int_equal(sample.parts[0].mtime_ns, 0);
    source_sample(source, 3, &sample);
    assert_int_equal(sample.parts[0].bytes, 7);
    source_close(source);
}

static void test_pipes_are_ignored(void **state)
{
    (void)state;
    file("a.jpg", 1);
    assert_int_equal(mkfifo(at("pipe.jpg"), 0644), 0);
    link_to("pipe.jpg", "link.jpg");
    struct source *source = open_source();
    assert_int_equal(source_counts(source)->samples, 1);
    assert_int_equal(source_counts(source)->ignored, 2);
    source_close(source);
}

/* What a user without rights sees; runs in a child, since root would see all. Returns 0 or the line
 * that does not hold. */
static int without_rights(void)
{
#define HOLDS(condition)                                                                           \
    if (!(condition))                                                                              \
    return __LINE__
    struct source_spec spec = {.kind = "folder"};
    snprintf(spec.path, sizeof spec.path, "%s", root);
    struct source *source;
    struct err err = {0};
    HOLDS(source_open(&spec, &source, &err) == 0);
    HOLDS(source_counts(source)->samples == 4);
    HOLDS(source_counts(source)->unreadable_folders == 1);
    HOLDS(source_counts(source)->classes == 4);
    HOLDS(strstr(source_counts(source)->note, "closed/ cannot be read (Permission denied)"));
    struct source_sample sample;
    source_sample(source, 1, &sample); /* the file without rights */
    HOLDS(strcmp(sample.key, "a/2.jpg") == 0 && sample.parts[0].bytes == 9);
    source_sample(source, 2, &sample);
    HOLDS(strcmp(sample.key, "d/4.jpg") == 0 && sample.parts[1].value == 2);
    source_sample(source, 3, &sample); /* its folder may be listed and not searched */
    HOLDS(strcmp(sample.key, "e/5.jpg") == 0 && sample.parts[0].bytes == 0);
    source_close(source);
    snprintf(spec.path, sizeof spec.path, "%s/closed", root);
    HOLDS(source_open(&spec, &source, &err) == -EACCES);
    HOLDS(strstr(err.text, spec.path) && strstr(err.text, "Permission denied"));
#undef HOLDS
    return 0;
}

static void test_without_rights(void **state)
{
    (void)state;
    folder("a"), folder("closed"), folder("d"), folder("e"), file("a/1.jpg", 1), file("a/2.jpg", 9);
    file("closed/3.jpg", 1), file("d/4.jpg", 1), file("e/5.jpg", 5);
    assert_int_equal(chmod(root, 0755), 0);
    assert_int_equal(chmod(at("a/2.jpg"), 0), 0);
    assert_int_equal(chmod(at("closed"), 0), 0);
    assert_int_equal(chmod(at("e"), 0444), 0);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        int line = geteuid() == 0 && setresuid(65534, 65534, 65534) < 0 ? -1 : without_rights();
        ssize_t written = write(ends[1], &line, sizeof line);
        _exit(written != sizeof line);
    }
    int line = -2;
    close(ends[1]);
    assert_int_equal(read(ends[0], &line, sizeof line), sizeof line);
    close(ends[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(chmod(at("closed"), 0755), 0);
    assert_int_equal(chmod(at("e"), 0755), 0);
    assert_int_equal(line, 0);
}

/* The folders of a process that has ended and waits for its parent refuse to be listed (EINVAL). */
static void test_folders_that_refuse(void **state)
{
    (void)state;
    char path[64];
    siginfo_t info;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    snprintf(path, sizeof path, "/proc/%d", (int)child);
    struct err err = {0};
    assert_int_equal(open_fails(path, &err), -ENODATA);
    assert_non_null(strstr(err.text, "folders that cannot be read"));
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void test_undecoded_formats(void **state)
{
    (void)state;
    folder("a"), file("a/1.jpg", 1), file("a/2.tif", 2), file("a/3.TIFF", 3), file("a/4.heic", 4);
    struct field_spec field = {.name = "image",
                               .decoder = "image",
                               .from = {"jpg", "tif", "tiff", "heic"},
                               .from_count = 4};
    struct source_spec spec = {.kind = "folder", .fields = &field, .field_count = 1};
    snprintf(spec.path, sizeof spec.path, "%s", root);
    struct source *source;
    assert_int_equal(source_open(&spec, &source, NULL), 0);
    assert_int_equal(source_counts(source)->samples, 4);
    assert_string_equal(source_counts(source)->note,
                        "3 pictures have the names of formats that are not decoded (tif, tiff, "
                        "heic): they fail when they are read");
    source_close(source);
    memcpy(field.decoder, "raw", sizeof "raw");
    assert_int_equal(source_open(&spec, &source, NULL), 0);
    assert_string_equal(source_counts(source)->note, "");
    source_close(source);
}

static void test_refusals(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(open_fails(at("missing"), &err), -ENOENT);
    assert_non_null(strstr(err.text, "missing"));
    file("note.txt", 1);
    assert_int_equal(open_fails(at("note.txt"), &err), -ENOTDIR);
    assert_int_equal(open_fails("", &err), -EINVAL);
    assert_int_equal(open_fails(root, &err), -ENODATA);
    assert_non_null(strstr(err.text, "no picture; 1 other files"));
    assert_non_null(strstr(err.text, "jpg jpeg png"));
    struct source_spec spec = {.kind = "tra"};
    struct source *source;
    assert_int_equal(source_open(&spec, &source, &err), -EINVAL);
    assert_non_null(strstr(err.text, "folder tar list synthetic"));
}

static void test_deep_and_long(void **state)
{
    (void)state;
    file("a.jpg", 1);
    char path[2048] = "";
    for (int i = 0; i < 70; i++) {
        strncat(path, i ? "/d" : "d", sizeof path - strlen(path) - 1);
        folder(path);
        char name[2100];
        snprintf(name, sizeof name, "%s/x.jpg", path);
        file(name, 1);
    }
    struct source *source = open_source();
    assert_int_equal(source_counts(source)->samples,
                     63); /* the root is the first of 64 folders; a.jpg is loose */
    assert_non_null(strstr(source_counts(source)->note, "too deep"));
    source_close(source);

    folder("w");
    snprintf(path, sizeof path, "w");
    char part[203];
    memset(part, 'p', 201);
    part[0] = '/', part[201] = 0;
    for (int i = 0; i < 5; i++) {
        strncat(path, part, sizeof path - strlen(path) - 1);
        folder(path);
    }
    size_t used = strlen(path);
    assert_int_equal(used, 1006);
    snprintf(path + used, sizeof path - used, "/ttttttttttttt.jpg"); /* 1,024 bytes in all */
    file(path, 1);
    snprintf(path + used, sizeof path - used, "/tttttttttttttt.jpg");
    file(path, 1);
    source = open_source();
    assert_int_equal(source_counts(source)->samples, 64);
    assert_int_equal(source_counts(source)->longest_key_bytes, 1024);
    source_close(source);
}

static void test_id(void **state)
{
    (void)state;
    folder("a"), file("a/1.jpg", 12345), file("a/2.jpg", 0);
    static const char manifest[] = "spdl-folder 1\na/1.jpg\0"
                                   "12345\na/2.jpg\0"
                                   "0\n";
    XXH128_hash_t hash = XXH3_128bits(manifest, sizeof manifest - 1);
    uint64_t high, low, other_high, other_low;
    struct source *source = open_source();
    source_id(source, &high, &low);
    source_close(source);
    assert_int_equal(high, hash.high64);
    assert_int_equal(low, hash.low64);

    folder("0"); /* an empty class shifts the labels, so it is another dataset */
    source = open_source();
    source_id(source, &other_high, &other_low);
    expect(source, 0, "a/1.jpg", 1, "jpg");
    source_close(source);
    assert_true(high != other_high && low != other_low);
    assert_int_equal(rmdir(at("0")), 0);

    assert_int_equal(truncate(at("a/2.jpg"), 1), 0);
    source = open_source();
    source_id(source, &other_high, &other_low);
    source_close(source);
    assert_true(high != other_high && low != other_low);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        TEST(test_classes_and_hidden_files),
        TEST(test_flat_folder),
        TEST(test_pictures_beside_classes),
        TEST(test_order),
        TEST(test_links),
        TEST(test_pipes_are_ignored),
        TEST(test_without_rights),
        TEST(test_folders_that_refuse),
        TEST(test_undecoded_formats),
        TEST(test_refusals),
        TEST(test_deep_and_long),
        TEST(test_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
