/* Tar shards as a source: keys, parts, order, what is left out and why, the id, and sets that other
 * programs wrote. */
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
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#include "item/class.h"
#include "source/source.h"
#include "tests/lib/sha256.h"
#include "tests/lib/tar_maker.h"

static char root[64];
static struct tar_maker maker;

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/spdl-tar-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static int remove_root(void **state)
{
    (void)state;
    tar_maker_fini(&maker);
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *at(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

/* What was made becomes a shard; the next one begins. */
static void shard(const char *name)
{
    tar_write(&maker, at(name));
    tar_maker_fini(&maker);
}

static int try_open(const char *patterns, struct source **ret_source, struct err *reterr)
{
    static struct source_spec spec;
    spec = (struct source_spec){.kind = "tar"};
    snprintf(spec.path, sizeof spec.path, "%s", patterns);
    return source_open(&spec, ret_source, reterr);
}

static struct source *open_source(const char *name)
{
    struct source *source;
    struct err err = {0};
    if (try_open(at(name), &source, &err) < 0)
        fail_msg("%s", err.text);
    return source;
}

static void refused(const char *patterns, int code, const char *words)
{
    struct source *source;
    struct err err = {0};
    int rc = try_open(patterns, &source, &err);
    assert_null(source);
    if (rc != code || !strstr(err.text, words))
        fail_msg("%s: %d %s", patterns, rc, err.text);
}

/* "key part=content part=content\n" for every sample, contents as they are in the shard. */
static const char *listing(const struct source *source)
{
    static char text[1 << 15];
    size_t used = 0;
    text[0] = 0;
    for (uint64_t id = 0; id < source_counts(source)->samples; id++) {
        struct source_sample sample;
        source_warm(source, id, SOURCE_FAR); /* which changes nothing */
        source_warm(source, id, SOURCE_NEAR);
        source_sample(source, id, &sample);
        used += (size_t)snprintf(text + used, sizeof text - used, "%.*s", (int)sample.key_bytes,
                                 sample.key);
        for (uint32_t i = 0; i < sample.part_count; i++) {
            const struct source_part *part = &sample.parts[i];
            char content[64] = "";
            int fd = openat(part->root_fd, part->path, O_RDONLY | O_CLOEXEC);
            assert_true(fd >= 0 && part->bytes < sizeof content);
            assert_int_equal(part->kind, SOURCE_PART_FILE);
            assert_int_equal(pread(fd, content, part->bytes, (off_t)part->offset), part->bytes);
            close(fd);
            used +=
                (size_t)snprintf(text + used, sizeof text - used, " %s=%s", part->name, content);
        }
        used += (size_t)snprintf(text + used, sizeof text - used, "\n");
    }
    return text;
}

/* "SHARD@offset CLASS key: message\n" for every fault. */
static const char *faults(const struct source *source)
{
    static char text[1 << 14];
    size_t used = 0;
    text[0] = 0;
    for (uint64_t i = 0; i < source_counts(source)->broken; i++) {
        struct source_fault fault;
        source_fault(source, i, &fault);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s@%llu %s %.*s: %s\n",
                                 strrchr(fault.path, '/') + 1, (unsigned long long)fault.offset,
                                 spdl_class_name(fault.class_number), (int)fault.key_bytes,
                                 fault.key, fault.message);
    }
    return text;
}

static void test_keys_and_parts(void **state)
{
    (void)state;
    tar_text(&maker, "some/path/22.0/1.1.PNG", "a");
    tar_text(&maker, "some/path/22.0/1.json", "b");
    tar_text(&maker, "train.v1/0001.jpg", "c");
    tar_text(&maker, "./k.Cls", "d");
    tar_text(&maker,
             "\xff\xfe"
             "0.jpg",
             "e");
    tar_text(&maker, "a\nb.jpg", "f");
    tar_text(&maker, "q\".jpg", "g");
    tar_text(&maker, "README", "-");      /* names no part */
    tar_text(&maker, "x/._hid.jpg", "-"); /* hidden */
    tar_text(&maker, ".jpg", "-");
    tar_text(&maker, "end.", "-");
    tar_header(&maker, "l.jpg", '2', 0);
    tar_header(&maker, "folder.d/", '5', 0);
    tar_end(&maker);
    shard("s.tar");
    struct source *source = open_source("s.tar");
    assert_string_equal(listing(source), "some/path/22.0/1 1.png=a json=b\n"
                                         "train.v1/0001 jpg=c\n"
                                         "./k cls=d\n"
                                         "\xff\xfe"
                                         "0 jpg=e\n"
                                         "a\nb jpg=f\n"
                                         "q\" jpg=g\n");
    const struct source_counts *counts = source_counts(source);
    assert_int_equal(counts->ignored, 6);
    assert_int_equal(counts->broken, 0);
    assert_int_equal(counts->shards, 1);
    assert_int_equal(counts->longest_key_bytes, 16);
    assert_int_equal(counts->largest_bytes, 1);
    const char *names[8];
    assert_int_equal(source_part_names(source, names, 8), 4);
    assert_string_equal(names[0], "1.png");
    assert_string_equal(names[1], "json");
    assert_string_equal(names[2], "jpg");
    assert_string_equal(names[3], "cls");
    source_close(source);
}

static void test_members_apart(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        char name[32];
        snprintf(name, sizeof name, "%03d.jpg", i);
        tar_text(&maker, name, "j");
    }
    for (int i = 299; i >= 0; i--) {
        char name[32], text[16];
        snprintf(name, sizeof name, "%03d.cls", i);
        snprintf(text, sizeof text, "%d", i);
        tar_text(&maker, name, text);
    }
    shard("s.tar"); /* without an end */
    struct source *source = open_source("s.tar");
    assert_int_equal(source_counts(source)->samples, 300);
    const char *text = listing(source);
    for (int i = 0; i < 300; i++) {
        char line[64];
        int bytes = snprintf(line, sizeof line, "%03d jpg=j cls=%d\n", i, i);
        assert_memory_equal(text, line, (size_t)bytes);
        text += bytes;
    }
    source_close(source);
}

static void test_shards(void **state)
{
    (void)state;
    static const char *const names[] = {"b.tar", "a.tar", "c.tar", "d.tar"};
    for (int i = 0; i < 4; i++) {
        if (i != 2) {
            tar_text(&maker, "k.a", names[i]);
            tar_text(&maker, "l.a", "1");
        }
        tar_end(&maker);
        shard(names[i]);
    }
    mkdir(at("z.tar"), 0755); /* a folder is no shard */
    struct source *source = open_source("*.tar");
    const char *wanted = "k a=a.tar\nl a=1\nk a=b.tar\nl a=1\nk a=d.tar\nl a=1\n";
    assert_string_equal(listing(source), wanted);
    assert_int_equal(source_counts(source)->shards, 4);
    const uint64_t *shards = source_shards(source);
    const uint64_t first[] = {0, 2, 4, 4};
    assert_memory_equal(shards, first, sizeof first);
    source_close(source);
    source = open_source("{d,b,{a,c},d}.tar");
    assert_string_equal(listing(source), wanted);
    source_close(source);
    for (int i = 8; i <= 11; i++) {
        char name[32];
        tar_text(&maker, "n.a", "1");
        snprintf(name, sizeof name, "n%03d.tar", i);
        shard(name);
    }
    static const struct {
        const char *pattern;
        uint32_t shards;
    } ranges[] = {{"n{008..011}.tar", 4},   {"n{011..008}.tar", 4},
                  {"n0{08..11..3}.tar", 2}, {"n0{08,1{0..1}}.tar", 3},
                  {"n0*.tar", 4},           {"n0[01][89].tar", 2},
                  {"n01?.tar", 2}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        source = open_source(ranges[i].pattern);
        assert_int_equal(source_counts(source)->shards, ranges[i].shards);
        source_close(source);
    }
    char lines[512];
    snprintf(lines, sizeof lines, "%s/b.tar\n%s/./a.tar\n%s//a.tar", root, root, root);
    struct err err = {0};
    assert_int_equal(try_open(lines, &source, &err), 0);
    assert_int_equal(source_counts(source)->shards, 2);
    source_close(source);
    tar_text(&maker, "n.a", "1");
    shard("odd{1..2}[x].tar"); /* a file's own name is no pattern */
    source = open_source("odd{1..2}[x].tar");
    assert_int_equal(source_counts(source)->shards, 1);
    source_close(source);
    assert_int_equal(chdir(root), 0);
    assert_int_equal(try_open("./a.tar", &source, &err), 0);
    source_close(source);
    assert_int_equal(chdir("/"), 0);
}

static void test_refused(void **state)
{
    (void)state;
    refused(at("none.tar"), -ENOENT, "none.tar: it does not exist");
    refused(at("none*.tar"), -ENOENT, "none*.tar: no file matches");
    refused(at("{00..02}.tar"), -ENOENT, ".tar: it does not exist");
    refused(root, -EISDIR, "it is a folder; for the files in it write");
    refused("", -EINVAL, "empty");
    refused(at("{0..2000000}.tar"), -E2BIG, "more than");
    tar_end(&maker);
    shard("empty.tar");
    refused(at("empty.tar"), -ENODATA, "no sample in 1 shards");
    tar_file(&maker, "x", "\x1f\x8b\x08", 3);
    memcpy(maker.bytes, "\x1f\x8b\x08", 3);
    shard("g.tar");
    refused(at("g.tar"), -ENODATA, "compressed (gzip)");
    tar_text(&maker, "a.b", "1");
    maker.bytes[0] = 'b';
    shard("no.tar");
    refused(at("no.tar"), -ENODATA, "it is no tar file");
}

static void test_faults(void **state)
{
    (void)state;
    char key[SOURCE_KEY_BYTES + 10];
    tar_text(&maker, "0.jpg", "a");
    tar_text(&maker, "0.cls", "a");
    tar_text(&maker, "0.JPG", "a");
    tar_text(&maker, "0.cls", "a");
    tar_text(&maker, "1.jpg", "b");
    tar_text(&maker, "1.cls", "b");
    shard("0.tar");
    tar_text(&maker, "s.cls", "a");
    maker.form = TAR_GNU;
    tar_header(&maker, "s.jpg", 'S', 0);
    maker.form = TAR_USTAR;
    tar_text(&maker, "t.jpg", "a");
    size_t header = maker.count;
    tar_text(&maker, "u.jpg", "a");
    maker.bytes[header] ^= 1;
    shard("1.tar");
    for (int i = 0; i < 17; i++) {
        char name[16];
        snprintf(name, sizeof name, "m.p%02d", i);
        tar_text(&maker, name, "");
    }
    memset(key, 'k', sizeof key);
    memcpy(key + SOURCE_KEY_BYTES, ".a", sizeof ".a");
    tar_pax(&maker, 'x', "path", key);
    tar_text(&maker, "-", "fits");
    memcpy(key + SOURCE_KEY_BYTES, "k.a", sizeof "k.a");
    tar_pax(&maker, 'x', "path", key);
    tar_text(&maker, "-", "does not");
    shard("2.tar");
    shard("3.tar"); /* no bytes */
    struct source *source = open_source("*.tar");
    const struct source_counts *counts = source_counts(source);
    assert_int_equal(counts->samples, 3);
    assert_int_equal(counts->broken, 6);
    assert_int_equal(counts->longest_key_bytes, SOURCE_KEY_BYTES);
    assert_non_null(strstr(counts->note, "6 left out"));
    static char wanted[2048];
    key[SOURCE_KEY_BYTES + 1] = 0;
    snprintf(wanted, sizeof wanted,
             "0.tar@2048 DUPLICATE 0: the part jpg is there twice\n"
             "1.tar@1024 UNSUPPORTED s: the part jpg is a sparse file (tar --sparse), which is not "
             "supported\n"
             "1.tar@2560 CORRUPT : a header's checksum is wrong: what follows is not read\n"
             "2.tar@8192 LIMIT m: it has more than 16 parts\n"
             "2.tar@13824 LIMIT %s: its key is longer than 1024 bytes\n"
             "3.tar@0 EMPTY : the file is empty\n",
             key);
    assert_string_equal(faults(source), wanted);
    const char *text = listing(source);
    assert_memory_equal(text, "1 jpg=b cls=b\nt jpg=a\nkkk", 25);
    source_close(source);
}

/* Ten samples of 6656 bytes, cut at every place that differs in kind, and at many others. */
static void test_cut(void **state)
{
    (void)state;
    static char picture[5000];
    for (int i = 0; i < 10; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d.jpg", i);
        tar_file(&maker, name, picture, sizeof picture);
        snprintf(name, sizeof name, "%d.cls", i);
        tar_text(&maker, name, "1");
    }
    assert_int_equal(maker.count, 66560);
    tar_write(&maker, at("s.tar"));
    for (off_t cut = 6656; cut <= 66560; cut += cut % 512 ? 173 : 1) {
        struct source_fault fault;
        assert_int_equal(truncate(at("s.tar"), cut), 0);
        struct source *source = open_source("s.tar");
        const struct source_counts *counts = source_counts(source);
        uint64_t whole = (uint64_t)cut / 6656, rest = (uint64_t)cut % 6656;
        bool inside = (rest > 0 && rest < 5512) || (rest > 5632 && rest <= 6144);
        /* The picture alone: a sample, as long as nothing shows that it had more parts. */
        bool kept = (rest >= 5512 && rest <= 5632) || rest >= 6145;
        assert_int_equal(counts->broken, inside);
        if (inside) {
            source_fault(source, 0, &fault);
            assert_int_equal(fault.class_number, SPDL_CLASS_TRUNCATED);
            assert_true(fault.offset <= (uint64_t)cut);
        }
        assert_int_equal(counts->samples, whole + kept);
        source_close(source);
        tar_write(&maker, at("s.tar"));
    }
    assert_int_equal(truncate(at("s.tar"), 42936), 0);
    struct source *source = open_source("s.tar");
    assert_int_equal(source_counts(source)->samples, 6);
    assert_string_equal(faults(source),
                        "s.tar@39936 TRUNCATED 6: the shard ends inside the part jpg\n");
    source_close(source);
}

static void id_of(const char *name, uint64_t id[2])
{
    struct source *source = open_source(name);
    source_id(source, &id[0], &id[1]);
    source_close(source);
}

static void two_samples(const char *name, const char *second, const char *text)
{
    tar_text(&maker, "a.txt", "1");
    tar_text(&maker, second, text);
    tar_end(&maker);
    shard(name);
}

static void test_id(void **state)
{
    (void)state;
    uint64_t first[2], id[2];
    two_samples("a.tar", "b.txt", "2");
    id_of("a.tar", first);
    /* As docs/order.md has it. */
    static const char members[] = "a\0"
                                  "1\ntxt\0"
                                  "512 1\nb\0"
                                  "1\ntxt\0"
                                  "1536 1\n";
    XXH128_hash_t hash = XXH3_128bits(members, sizeof members - 1);
    char manifest[128];
    int bytes = snprintf(manifest, sizeof manifest, "spdl-tar 1\n3072 2 %016llx%016llx\n",
                         (unsigned long long)hash.high64, (unsigned long long)hash.low64);
    hash = XXH3_128bits(manifest, (size_t)bytes);
    assert_int_equal(first[0], hash.high64);
    assert_int_equal(first[1], hash.low64);
    assert_int_equal(mkdir(at("other"), 0755), 0);
    two_samples("other/name.tar", "b.txt", "2"); /* another place, name and time */
    id_of("other/name.tar", id);
    assert_memory_equal(id, first, sizeof id);
    static const char *const others[][2] = {
        {"c.txt", "2"}, {"b.cls", "2"}, {"b.txt", "22"}, {"a.cls", "2"}};
    for (size_t i = 0; i < 4; i++) {
        two_samples("b.tar", others[i][0], others[i][1]);
        id_of("b.tar", id);
        assert_memory_not_equal(id, first, sizeof id);
    }
    two_samples("b.tar", "b.txt", "2");
    id_of("{a,b}.tar", id);
    assert_memory_not_equal(id, first, sizeof id);
}

/* What the webdataset package reads out of the shards that it wrote. */
static void test_other_writers(void **state)
{
    (void)state;
    static const char *const files[] = {"gnu.tar", "pax.tar", "ustar.tar"};
    static char line[1024], path[256];
    uint64_t compared = 0, ids[3] = {0};
    struct source *sources[3];
    struct err err = {0};
    FILE *list = fopen("tests/data/webdataset/samples.txt", "re");
    assert_non_null(list);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "tests/data/webdataset/%s", files[i]);
        assert_int_equal(try_open(path, &sources[i], &err), 0);
        assert_int_equal(source_counts(sources[i])->samples, 20);
        assert_int_equal(source_counts(sources[i])->broken, 0);
    }
    while (fgets(line, sizeof line, list)) { /* three lines a sample: cls, jpg, json */
        char *rest = line, *file = strsep(&rest, "\t"), *key = strsep(&rest, "\t");
        char *part_name = strsep(&rest, "\t"), *bytes = strsep(&rest, "\t");
        char *digest = strsep(&rest, "\n"), text[65];
        int i = 0;
        while (i < 3 && strcmp(file, files[i]) != 0)
            i++;
        if (i == 3)
            continue; /* compressed */
        struct source_sample sample;
        source_sample(sources[i], ids[i]++ / 3, &sample);
        assert_int_equal(sample.key_bytes, strlen(key));
        assert_memory_equal(sample.key, key, sample.key_bytes);
        assert_int_equal(sample.part_count, 3);
        uint32_t p = 0;
        while (p < 3 && strcmp(sample.parts[p].name, part_name) != 0)
            p++;
        assert_true(p < 3);
        const struct source_part *part = &sample.parts[p];
        assert_int_equal(part->bytes, strtoull(bytes, NULL, 10));
        char *content = malloc(part->bytes);
        int fd = openat(part->root_fd, part->path, O_RDONLY | O_CLOEXEC);
        assert_int_equal(pread(fd, content, part->bytes, (off_t)part->offset), part->bytes);
        sha256_text(content, part->bytes, text);
        assert_string_equal(text, digest);
        close(fd);
        free(content);
        compared++;
    }
    assert_int_equal(compared, 180);
    for (int i = 0; i < 3; i++)
        source_close(sources[i]);
    fclose(list);
    refused("tests/data/webdataset/gzip.tar.gz", -ENODATA, "compressed (gzip)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_other_writers, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_keys_and_parts, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_members_apart, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_shards, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_refused, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_faults, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_cut, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_id, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
