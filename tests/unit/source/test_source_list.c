/* Lists as a source: keys, parts, classes, what is left out and where it is said to be, the id. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
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

#include <cmocka.h>

#include "base/escape.h"
#include "item/class.h"
#include "source/source.h"

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/spdl-list-XXXXXX");
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
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *at(const char *name)
{
    static char paths[4][512];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", root, name);
    return path;
}

static void file_write(const char *name, const char *text, size_t bytes)
{
    FILE *file = fopen(at(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static struct source_spec spec; /* of the next opening */

static void pictures(void)
{
    memset(&spec, 0, sizeof spec);
    memcpy(spec.kind, "list", sizeof "list");
    assert_int_equal(mkdir(at("p"), 0777), 0);
    assert_int_equal(mkdir(at("p/q"), 0777), 0);
    file_write("p/a.jpg", "AAA", 3);
    file_write("p/q/b.PNG", "BBBBB", 5);
    file_write("c", "C", 1);
}

static struct source *open_list(const char *name, const char *text)
{
    struct source *source;
    struct err err = {0};
    file_write(name, text, strlen(text));
    snprintf(spec.path, sizeof spec.path, "%s", at(name));
    if (source_open(&spec, &source, &err) < 0)
        fail_msg("%s", err.text);
    return source;
}

static void refused(const char *name, const char *text, size_t bytes, int code, const char *words)
{
    struct source *source;
    struct err err = {0};
    file_write(name, text, bytes);
    snprintf(spec.path, sizeof spec.path, "%s", at(name));
    int rc = source_open(&spec, &source, &err);
    assert_null(source);
    if (rc != code || !strstr(err.text, words))
        fail_msg("%s: %d %s", text, rc, err.text);
}
#define REFUSED(name, text, code, words) refused(name, text, sizeof(text) - 1, code, words)

static size_t part_print(char *to, size_t room, const struct source_part *part)
{
    if (part->kind == SOURCE_PART_INTEGER)
        return (size_t)snprintf(to, room, " %s:%" PRId64, part->name, part->value);
    uint8_t content[64] = {0}, said[64] = {0};
    size_t bytes = 0;
    struct stat st;
    int fd = openat(part->root_fd, part->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return (size_t)snprintf(to, room, " %s?", part->name);
    assert_true(part->bytes < sizeof content && fstat(fd, &st) == 0);
    assert_int_equal(st.st_size, part->file_bytes);
    assert_int_equal(pread(fd, content, part->bytes, (off_t)part->offset), part->bytes);
    close(fd);
    assert_true(escape_undo((enum escape)part->escape, content, part->bytes, said, &bytes));
    return (size_t)snprintf(to, room, " %s=%s", part->name, (const char *)said);
}

/* "key part=content part:number\n" for every sample. */
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
        for (uint32_t i = 0; i < sample.part_count; i++)
            used += part_print(text + used, sizeof text - used, &sample.parts[i]);
        used += (size_t)snprintf(text + used, sizeof text - used, "\n");
    }
    return text;
}

/* "offset CLASS key: message\n" for every fault. */
static const char *faults(const struct source *source)
{
    static char text[1 << 14];
    size_t used = 0;
    text[0] = 0;
    for (uint64_t i = 0; i < source_counts(source)->broken; i++) {
        struct source_fault fault;
        source_fault(source, i, &fault);
        assert_string_equal(fault.path, spec.path);
        used += (size_t)snprintf(text + used, sizeof text - used, "%" PRIu64 " %s %.*s: %s\n",
                                 fault.offset, spdl_class_name(fault.class_number),
                                 (int)fault.key_bytes, fault.key, fault.message);
    }
    return text;
}

static void gives(const char *name, const char *text, const char *samples, const char *left_out)
{
    struct source *source = open_list(name, text);
    assert_string_equal(listing(source), samples);
    assert_string_equal(faults(source), left_out);
    source_close(source);
}

static void test_forms(void **state)
{
    (void)state;
    pictures();
    static const char wanted[] = "p/a.jpg jpg=AAA path=AAA cls:1 label:1 caption=one, \"two\"\n"
                                 "p/q/b.PNG png=BBBBB path=BBBBB cls:0 label:0 caption=\n";
    gives("l.csv", "path,label,Caption\np/a.jpg,dog,\"one, \"\"two\"\"\"\np/q/b.PNG,cat,\n", wanted,
          "");
    gives("l.csv",
          "\xef\xbb\xbfpath,label, caption \r\np/a.jpg,dog,\"one, \"\"two\"\"\"\r\n\r\n"
          "\"p/q/b.PNG\",\"cat\",\"\"",
          wanted, "");
    gives("l.tsv", "path\tlabel\tcaption\np/a.jpg\tdog\t\"one, \"\"two\"\"\"\np/q/b.PNG\tcat\t\n",
          wanted, "");
    static const char json[] =
        "{\"path\": \"p/a.jpg\", \"label\": \"dog\", \"caption\": \"one, \\\"two\\\"\"}\n"
        "{\"caption\": \"\", \"label\": \"cat\", \"path\": \"p\\/q/b.PNG\"}\n";
    gives("l.jsonl", json, wanted, "");
    gives("l.NDJSON", json, wanted, "");
    gives("l.txt", json, wanted, ""); /* by its first byte */
    gives("l", "path,label,caption\np/a.jpg,dog,\"one, \"\"two\"\"\"\np/q/b.PNG,cat,\n", wanted,
          "");
    gives("l.txt", "path\tlabel\tcaption\np/a.jpg\tdog\t\"one, \"\"two\"\"\"\np/q/b.PNG\tcat\t\n",
          wanted, "");
}

/* One set, written in two ways, is one dataset; other content is another one. */
static void test_ids(void **state)
{
    (void)state;
    pictures();
    static const struct {
        const char *name, *text;
        bool same;
    } lists[] = {{"a.csv", "path,label,t\np/a.jpg,1,x\nc,2,\"y\"\"\"\n", true},
                 {"b.tsv", "t\tpath\tlabel\r\n\"x\"\t./p//a.jpg\t1\r\ny\"\tc\t2\r\n", false},
                 {"c.csv", "path,label,t\r\n\"p/a.jpg\",\"1\",\"x\"\r\nc,2,y\"", true},
                 {"d.jsonl",
                  "{\"path\":\"p/a.jpg\",\"label\":1,\"t\":\"x\"}\n"
                  "{\"path\":\"c\",\"label\":2,\"t\":\"y\\\"\"}\n",
                  true},
                 {"e.csv", "path,label,t\np/a.jpg,1,x\nc,2,z\n", false},
                 {"f.csv", "path,label,t\np/a.jpg,1,x\nc,3,\"y\"\"\"\n", false},
                 {"g.csv", "path,label,u\np/a.jpg,1,x\nc,2,\"y\"\"\"\n", false},
                 {"h.csv", "path,label,t\nc,2,\"y\"\"\"\np/a.jpg,1,x\n", false}};
    uint64_t first[2], id[2];
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        struct source *source = open_list(lists[i].name, lists[i].text);
        source_id(source, &id[0], &id[1]);
        if (i == 0)
            memcpy(first, id, sizeof id);
        assert_int_equal(memcmp(first, id, sizeof id) == 0, lists[i].same);
        source_close(source);
    }
}

static void test_columns(void **state)
{
    (void)state;
    pictures();
    /* Without "path" the first one; a column without a name, or with one that no part has, is none.
     */
    gives("l.csv", ",file_name,a b,n\n0,c,x,7\n", "c file_name=C n=7\n", "");
    gives("l.csv", "cls,path\n5,p/a.jpg\n", "p/a.jpg jpg=AAA path=AAA cls=5\n", "");
    gives("l.jsonl", "{\"img\": \"c\", \"n\": 7}\n{\"n\": [1, 2], \"img\": \"p/a.jpg\"}\n",
          "c img=C n=7\np/a.jpg jpg=AAA img=AAA n=[1, 2]\n", "");
    /* null is nothing. */
    gives("l.jsonl", "{\"path\": \"c\", \"n\": null, \"m\": true}\n", "c path=C m=true\n", "");
    snprintf(spec.path_column, sizeof spec.path_column, "where");
    snprintf(spec.label_column, sizeof spec.label_column, "What");
    gives("l.csv", "path,where,what,label\nx,c,3,4\n", "c where=C cls:3 what:3 path=x label=4\n",
          "");
    gives("l.jsonl", "{\"what\": 3, \"where\": \"c\", \"path\": \"x\"}\n",
          "c where=C cls:3 what:3 path=x\n", "");
    REFUSED("l.csv", "path,what\nc,1\n", -EINVAL, "no column 'where'; its columns are: path what");
    REFUSED("l.csv", "where,label\nc,1\n", -EINVAL, "no column 'What'");
}

static void test_labels(void **state)
{
    (void)state;
    pictures();
    gives("l.csv", "path,label\nc,7\nc,-1\nc, 3.0\nc,007\n",
          "c path=C cls:7 label:7\nc path=C cls:-1 label:-1\nc path=C cls:3 label:3\n"
          "c path=C cls:7 label:7\n",
          "");
    struct source *source = open_list("l.csv", "path,label\nc,b\nc,a b\nc,10\nc,b\nc,9\nc,ä\n");
    assert_string_equal(listing(source),
                        "c path=C cls:3 label:3\nc path=C cls:2 label:2\nc path=C cls:0 label:0\n"
                        "c path=C cls:3 label:3\nc path=C cls:1 label:1\nc path=C cls:4 label:4\n");
    assert_int_equal(source_counts(source)->classes, 5);
    source_close(source);
    /* One that is no number among numbers does not renumber the others. */
    gives("l.csv", "path,label\nc,N/A\nc,10\nc,9\nc,\nc,1\n",
          "c path=C cls:10 label:10\nc path=C cls:9 label:9\nc path=C\nc path=C cls:1 label:1\n",
          "11 BAD_FORMAT c: line 2: the label 'N/A' is no whole number, as most labels are\n");
    /* Fractions are no classes. */
    source = open_list("l.csv", "path,label\nc,0.25\nc,1e-3\nc,1\n");
    assert_string_equal(listing(source), "c path=C label=0.25\nc path=C label=1e-3\nc path=C "
                                         "label=1\n");
    assert_non_null(strstr(source_counts(source)->note, "its labels are fractions"));
    source_close(source);
    gives("l.jsonl",
          "{\"path\":\"c\",\"label\":10}\n{\"path\":\"c\",\"label\":\"9\"}\n{\"path\":\"c\"}\n",
          "c path=C cls:10 label:10\nc path=C cls:9 label:9\nc path=C\n", "");
    gives("l.csv", "path,label\nc,9223372036854775807\nc,-9223372036854775808\n",
          "c path=C cls:9223372036854775807 label:9223372036854775807\n"
          "c path=C cls:-9223372036854775808 label:-9223372036854775808\n",
          "");
}

static void test_paths(void **state)
{
    (void)state;
    pictures();
    char text[2048], wanted[2048];
    assert_int_equal(symlink("../c", at("p/inside.jpg")), 0);
    assert_int_equal(symlink("/etc/passwd", at("p/out.jpg")), 0);
    assert_int_equal(symlink("/etc", at("p/etc")), 0);
    snprintf(text, sizeof text,
             "path\n./p//a.jpg\np/../c\np/inside.jpg\n%s/c\ngone.jpg\ngone/x.jpg\nc/x\n"
             "..\n../c\np/../../c\n/etc/passwd\np/out.jpg\np/etc/passwd\np/\n\"\"\ns3://b/c\n",
             root);
    struct source *source = open_list("l.csv", text);
    assert_string_equal(listing(source),
                        "p/a.jpg jpg=AAA path=AAA\np/../c path=C\n"
                        "p/inside.jpg jpg=C path=C\nc path=C\ngone.jpg jpg? path?\n"
                        "gone/x.jpg jpg? path?\nc/x path?\n");
    size_t before = strlen(root) + 63;
    snprintf(wanted, sizeof wanted,
             "%zu BAD_FORMAT : line 9, column 1: the path leads out of the root (the root is %s)\n"
             "%zu BAD_FORMAT : line 10, column 1: the path leads out of the root (the root is %s)\n"
             "%zu BAD_FORMAT : line 11, column 1: the path leads out of the root (the root is %s)\n"
             "%zu BAD_FORMAT : line 12, column 1: the path is absolute and not beneath the root "
             "(the root is %s)\n"
             "%zu IO_ERROR p/out.jpg: line 13, column 1: a link leads out of the root, %s\n"
             "%zu IO_ERROR p/etc/passwd: line 14, column 1: a link leads out of the root, %s\n"
             "%zu BAD_FORMAT : line 15, column 1: the path names a folder (the root is %s)\n",
             before, root, before + 3, root, before + 8, root, before + 18, root, before + 30, root,
             before + 40, root, before + 53, root);
    assert_memory_equal(faults(source), wanted, strlen(wanted));
    assert_non_null(strstr(faults(source), "INCOMPLETE : line 16, column 2: the path is empty"));
    assert_non_null(strstr(faults(source), "UNSUPPORTED : line 17, column 1: a path that is not"));
    source_close(source);
    /* Beneath a root of its own. */
    assert_int_equal(mkdir(at("lists"), 0777), 0);
    snprintf(spec.root, sizeof spec.root, "%s", at("p"));
    snprintf(text, sizeof text, "path\na.jpg\n%s/p/q/b.PNG\n../c\n", root);
    source = open_list("lists/l.csv", text);
    assert_string_equal(listing(source), "a.jpg jpg=AAA path=AAA\nq/b.PNG png=BBBBB path=BBBBB\n");
    assert_int_equal(source_counts(source)->broken, 1);
    source_close(source);
    snprintf(spec.root, sizeof spec.root, "%s", at("nowhere"));
    REFUSED("l.csv", "path\nc\n", -ENOENT, "its root");
}

static void test_broken_rows(void **state)
{
    (void)state;
    pictures();
    gives(
        "l.csv", "path,t\nc\nc,ä,\"x\"y\nc,1,2\nc,\"a\nb\nc,\"a\nb\"\n", "c path=C t=a\nb\n",
        "7 INCOMPLETE : line 2, column 1: it has 1 of 2 columns\n"
        "17 BAD_FORMAT : line 3, column 8: a value in quotes ends and something stands behind it; "
        "a quote inside is written twice\n"
        "19 BAD_FORMAT : line 4, column 1: it has 3 values for 2 columns; a value with the "
        "delimiter in it stands in quotes\n"
        "35 BAD_FORMAT : line 7, column 4: a value in quotes ends and something stands behind it; "
        "a quote inside is written twice\n"
        "30 INCOMPLETE : line 6, column 1: it has 1 of 2 columns\n");
    gives("l.jsonl",
          "{\"path\": \"c\"}\n{\"path\" \"c\"}\n{\"p\": 1}\n{\"path\": null}\n"
          "{\"path\":\"c\",\"path\":\"c\"}\n{\"path\":\"c\",\"t\":\"\\ud800\"}\n{\"path\": \"c",
          "c path=C\n",
          "22 BAD_FORMAT : line 2, column 9: a ':' is missing\n"
          "27 INCOMPLETE : line 3, column 1: it has no path\n"
          "36 INCOMPLETE : line 4, column 1: it has no path\n"
          "64 DUPLICATE : line 5, column 14: path is there twice\n"
          "92 BAD_FORMAT c: line 6, column 18: the value of t has half of a surrogate pair\n"
          "112 TRUNCATED : line 7, column 12: it ends before its value does\n");
}

static void test_refused(void **state)
{
    (void)state;
    pictures();
    REFUSED("l.csv", "", -ENODATA, "the file is empty");
    REFUSED("l.csv", "path,label\n", -ENODATA, "it has no row that is a sample");
    REFUSED("l.csv", "path,label\nc\n", -ENODATA, "line 2, column 1: it has 1 of 2 columns");
    REFUSED("l.csv", "\n", -ENODATA, "its first line names no columns");
    REFUSED("l.csv", "p/a.jpg,0\nc,1\n", -EINVAL, "line 1 looks like a row (p/a.jpg)");
    REFUSED("l.csv", "path,a,A\nc,1,2\n", -EINVAL, "two columns are named 'a'");
    REFUSED("l.csv", "\"path\"x,a\nc,1\n", -EINVAL, "line 1, which names the columns");
    REFUSED("l.csv", ",,\nc,1,2\n", -EINVAL, "line 1 names no column");
    REFUSED("l.txt", "p/a.x 0\nc 1\n", -EINVAL, "line 1 names no column (p/a.x 0)");
    REFUSED("l.csv", "\xff\xfep\0a\0", -EINVAL, "UTF-16");
    REFUSED("l.csv", "\x1f\x8b\x08\0\0\0", -EINVAL, "unpack");
    REFUSED("l.jsonl", "[1, 2]\n", -ENODATA, "line 1, column 1: a row is an object");
    snprintf(spec.path, sizeof spec.path, "%s", at("none.csv"));
    struct source *source;
    struct err err = {0};
    assert_int_equal(source_open(&spec, &source, &err), -ENOENT);
    assert_non_null(strstr(err.text, "none.csv"));
}

/* Several lists are one after the other in the order of their paths, whatever their form. */
static void test_several(void **state)
{
    (void)state;
    pictures();
    file_write("2.csv", "path,label,t\nc,b,x\n", 19);
    file_write("1.jsonl", "{\"file\":\"p/a.jpg\",\"label\":\"z\"}\n", 32);
    snprintf(spec.path, sizeof spec.path, "%s/[12].*", root);
    struct source *source;
    struct err err = {0};
    assert_int_equal(source_open(&spec, &source, &err), 0);
    assert_string_equal(listing(source), "p/a.jpg jpg=AAA file=AAA cls:1 label:1\n"
                                         "c path=C cls:0 label:0 t=x\n");
    const char *names[8];
    assert_int_equal(source_part_names(source, names, 8), 3);
    assert_string_equal(names[0], "file"); /* not all have the same extension */
    assert_string_equal(names[1], "cls");
    assert_string_equal(names[2], "t");
    source_close(source);
}

/* Without fields a field is made of each part; what is beyond the limit is said to be left out. */
static void test_many_columns(void **state)
{
    (void)state;
    pictures();
    struct source *source = open_list(
        "l.csv",
        "path,label,a,b,c,d,e,f,g,h,i,j,k,l,m,n,o\nc,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16\n");
    const char *names[32];
    assert_int_equal(source_part_names(source, names, 32), FIELD_MAX);
    assert_string_equal(names[15], "n");
    assert_non_null(strstr(source_counts(source)->note, "without fields o and those behind it"));
    struct source_sample sample;
    source_sample(source, 0, &sample);
    assert_int_equal(sample.part_count, 18);
    assert_string_equal(sample.parts[17].name, "o");
    source_close(source);
}

/* Rows of any size, at any place of the pieces in which a list is read. */
static void test_large(void **state)
{
    (void)state;
    pictures();
    enum { COUNT = 3000 };
    size_t room = 6 << 20, used = 0;
    char *text = malloc(room);
    used += (size_t)snprintf(text, room, "path,t,n\n");
    for (int i = 0; i < COUNT; i++) {
        size_t bytes = i == 1000 ? 3 << 20 : (size_t)(i * 7919 % 1500);
        used += (size_t)snprintf(text + used, room - used, "c,\"");
        for (size_t k = 0; k < bytes; k++)
            text[used++] = k % 100 == 99 ? '\n' : 'x';
        used += (size_t)snprintf(text + used, room - used, "\",%d\n", i);
    }
    file_write("l.csv", text, used);
    snprintf(spec.path, sizeof spec.path, "%s", at("l.csv"));
    struct source *source;
    struct err err = {0};
    assert_int_equal(source_open(&spec, &source, &err), 0);
    assert_int_equal(source_counts(source)->samples, COUNT);
    assert_int_equal(source_counts(source)->broken, 0);
    assert_int_equal(source_counts(source)->largest_bytes, 3 << 20);
    for (int i = 0; i < COUNT; i++) {
        struct source_sample sample;
        char number[16];
        source_sample(source, (uint64_t)i, &sample);
        assert_int_equal(sample.part_count, 3);
        assert_int_equal(sample.parts[1].bytes, i == 1000 ? 3 << 20 : i * 7919 % 1500);
        snprintf(number, sizeof number, "%d", i);
        assert_int_equal(sample.parts[2].bytes, strlen(number));
        assert_memory_equal(text + sample.parts[2].offset, number, strlen(number));
    }
    source_close(source);
    free(text);
}

/* Quotes that open everywhere cost time in proportion to the list. */
static void test_hostile_quotes(void **state)
{
    (void)state;
    pictures();
    size_t lines = 300000, bytes = 5 + lines * 6;
    char *text = malloc(bytes + 1);
    snprintf(text, bytes + 1, "path\n");
    for (size_t i = 0; i < lines; i++)
        memcpy(text + 5 + i * 6, i == 0 ? "c,\"xx\n" : "a\",\"x\n", 6);
    file_write("l.csv", text, bytes);
    free(text);
    snprintf(spec.path, sizeof spec.path, "%s", at("l.csv"));
    struct source *source;
    struct err err = {0};
    assert_int_equal(source_open(&spec, &source, &err), -ENODATA);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        TEST(test_forms),   TEST(test_ids),           TEST(test_columns),
        TEST(test_labels),  TEST(test_paths),         TEST(test_broken_rows),
        TEST(test_refused), TEST(test_several),       TEST(test_many_columns),
        TEST(test_large),   TEST(test_hostile_quotes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
