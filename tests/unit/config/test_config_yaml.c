/* Texts that are no YAML, or too much of it: bounds, places, files, folders, and mutated texts. */
#include <fcntl.h>
#include <sys/stat.h>

#include "config/config_read.h"
#include "config/config_yaml.h"
#include "tests/unit/config/config_case.h"

/* Parses alone; returns the code and keeps the complaints. */
static int parse(const char *text, size_t bytes, struct config_tree *ret_tree)
{
    struct config_reader reader;
    the_case.complaints.count = 0;
    config_reader_init(&reader, "t", &the_case.complaints);
    return config_yaml_parse(&reader, text, bytes, ret_tree);
}

static void bad(const char *text, const char *expected)
{
    struct config_tree tree;
    assert_int_equal(parse(text, strlen(text), &tree), -EINVAL);
    assert_null(tree.root);
    assert_int_equal(the_case.complaints.count, 1);
    assert_string_equal(the_case.complaints.lines[0], expected);
    config_yaml_fini(&tree);
}

static void test_no_yaml(void **state)
{
    (void)state;
    bad("a: 1\n\tb: 2", "t:2:1: found a tab character that violates indentation (while scanning a "
                        "plain scalar that begins at 1:4)");
    bad("a: \"open\nb: 2\n", "t:3:1: found unexpected end of stream (while scanning a quoted "
                             "scalar that begins at 1:4)");
    bad("a: [1, 2\n", "t:2:1: did not find expected ',' or ']' (while parsing a flow sequence that "
                      "begins at 1:4)");
    bad("a: 1\n b: 2\n", "t:2:3: mapping values are not allowed in this context");
    bad("a: \xff", "t:1:4: invalid leading UTF-8 octet");
    bad("\xc3\xa4: 1\nb: \xc3(", "t:2:5: invalid trailing UTF-8 octet");
    bad("a: \x01", "t:1:4: control characters are not allowed");
    bad("a: *b", "t:1:4: there is no anchor 'b' above");
    bad("a: &b [*b]", "t:1:8: alias 'b' holds itself");
    bad("a: !!int 3", "t:1:4: tags are not supported");
    bad("a: !own [3]", "t:1:4: tags are not supported");
    bad("a: 1\n---\nb: 2", "t:2:1: a second document begins here: one is allowed");
    bad("{a: 1}: 2", "t:1:1: a key must be a name, not a list or a mapping");
    bad("? [a]\n: 2", "t:1:3: a key must be a name, not a list or a mapping");
    BAD("a: \tb: 2", "c.yaml:1:6: mapping values are not allowed in this context");
    BAD("[1, 2]", "c.yaml:1:1: a configuration is a mapping of settings, not a list");
    BAD("slots", "c.yaml:1:1: a configuration is a mapping of settings, not 'slots'");
}

static void test_tree(void **state)
{
    (void)state;
    static const char text[] = "\xef\xbb\xbf"
                               "a: &x {b: [1, \"2\"]}\nc: *x\n\"d\": |\n  block\n";
    struct config_tree tree;
    assert_int_equal(parse(text, strlen(text), &tree), 0);
    const struct config_node *root = tree.root;
    assert_int_equal(root->kind, CONFIG_NODE_MAPPING);
    assert_int_equal(root->count, 3);
    assert_int_equal(root->height, 3);
    /* Itself, three keys, twice the five of the anchor's mapping, one block. */
    assert_int_equal(root->size, 1 + 3 + 2 * 5 + 1);
    const struct config_node *first = root->first->value;
    assert_ptr_equal(first, root->first->next->value);
    assert_int_equal(first->size, 5);
    assert_int_equal(first->first->value->line, 1);
    assert_string_equal(root->first->next->next->value->text, "block\n");
    assert_int_equal(root->first->next->next->key->line, 3);
    assert_int_equal(root->first->next->next->key->column, 1);
    config_yaml_fini(&tree);
    /* An alias stands for what it names. */
    struct config *config = case_good("datasets:\n"
                                      "  a:\n"
                                      "    source: {folder: /a}\n"
                                      "    fields: &f {l: {from: cls, decode: class}}\n"
                                      "  b: {source: {folder: /b}, fields: *f}\n",
                                      NULL);
    assert_string_equal(config->datasets[1].fields[0].name, "l");
    config_destroy(config);
}

static void nested(char *text, uint32_t levels)
{
    memset(text, '[', levels);
    memset(text + levels, ']', levels);
    text[2 * levels] = '\0';
}

static void test_depth(void **state)
{
    (void)state;
    static char text[200002];
    struct config_tree tree;
    nested(text, CONFIG_YAML_DEPTH_MAX);
    assert_int_equal(parse(text, strlen(text), &tree), 0);
    assert_int_equal(tree.root->height, CONFIG_YAML_DEPTH_MAX);
    config_yaml_fini(&tree);
    nested(text, CONFIG_YAML_DEPTH_MAX + 1);
    bad(text, "t:1:33: nested deeper than 32 levels");
    nested(text, 100000);
    bad(text, "t:1:33: nested deeper than 32 levels");
    /* Sixteen levels within sixteen levels, by an alias; then one more. */
    static const char anchor[] = "[&a [[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]], ";
    snprintf(text, sizeof text, "%s[[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]]", anchor);
    assert_int_equal(parse(text, strlen(text), &tree), 0);
    assert_int_equal(tree.root->height, CONFIG_YAML_DEPTH_MAX);
    config_yaml_fini(&tree);
    snprintf(text, sizeof text, "%s[[[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]]]", anchor);
    bad(text, "t:1:55: nested deeper than 32 levels");
}

static void test_bombs(void **state)
{
    (void)state;
    char text[4096];
    size_t used = (size_t)snprintf(text, sizeof text, "- &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for (int i = 1; i < 10; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used,
                             "- &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i,
                             i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
    struct config_tree tree;
    assert_int_equal(parse(text, used, &tree), -EINVAL);
    assert_non_null(strstr(the_case.complaints.lines[0], ": more than 100000 values"));
    config_yaml_fini(&tree);

    size_t values = CONFIG_YAML_NODES_MAX;
    char *many = malloc(values * 2 + 2);
    assert_non_null(many);
    many[0] = '[';
    for (size_t i = 0; i < values; i++)
        memcpy(many + 1 + 2 * i, "1,", 2);
    /* The list itself is one of them. */
    many[2 * (values - 1)] = ']';
    assert_int_equal(parse(many, 2 * (values - 1) + 1, &tree), 0);
    assert_int_equal(tree.root->size, CONFIG_YAML_NODES_MAX);
    config_yaml_fini(&tree);
    many[2 * (values - 1)] = ',';
    many[2 * values] = ']';
    assert_int_equal(parse(many, 2 * values + 1, &tree), -EINVAL);
    assert_string_equal(the_case.complaints.lines[0], "t:1:200000: more than 100000 values");
    config_yaml_fini(&tree);
    free(many);

    used = (size_t)snprintf(text, sizeof text, "[");
    for (int i = 0; i < CONFIG_YAML_ANCHORS_MAX; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "&a%d 1,", i);
    snprintf(text + used, sizeof text - used, "2]");
    assert_int_equal(parse(text, strlen(text), &tree), 0);
    config_yaml_fini(&tree);
    snprintf(text + used, sizeof text - used, "&b 2]");
    assert_int_equal(parse(text, strlen(text), &tree), -EINVAL);
    assert_non_null(strstr(the_case.complaints.lines[0], ": more than 64 anchors"));
    config_yaml_fini(&tree);
}

static void test_files(void **state)
{
    (void)state;
    struct config *config = NULL;
    struct config_complaints *complaints = &the_case.complaints;
    char missing[128];
    snprintf(missing, sizeof missing, "%s/missing.yaml", case_folder());
    assert_int_equal(config_load(missing, NULL, 0, &config, complaints), -ENOENT);
    case_compare(SETS("missing.yaml: No such file or directory"));
    assert_int_equal(config_load("/dev/null", NULL, 0, &config, complaints), -EINVAL);
    case_compare(SETS("/dev/null: not a regular file"));
    assert_int_equal(config_load("/", NULL, 0, &config, complaints), -EINVAL);
    case_compare(SETS("/: not a regular file"));
    if (geteuid() != 0) {
        const char *path = case_write("c.yaml", "", 0);
        assert_int_equal(chmod(path, 0), 0);
        assert_int_equal(config_load(path, NULL, 0, &config, complaints), -EACCES);
        case_compare(SETS("c.yaml: Permission denied"));
        assert_int_equal(chmod(path, 0600), 0);
    }
    char *large = malloc(CONFIG_FILE_BYTES_MAX + 1);
    assert_non_null(large);
    memset(large, '#', CONFIG_FILE_BYTES_MAX + 1);
    const char *path = case_write("c.yaml", large, CONFIG_FILE_BYTES_MAX + 1);
    assert_int_equal(config_load(path, NULL, 0, &config, complaints), -EINVAL);
    case_compare(SETS("c.yaml: larger than 4 MiB"));
    path = case_write("c.yaml", large, CONFIG_FILE_BYTES_MAX);
    assert_int_equal(config_load(path, NULL, 0, &config, complaints), 0);
    config_destroy(config);
    free(large);
    /* A long name is cut at its front, so that what is said about it stays. */
    char name[400] = "/tmp/";
    memset(name + 5, 'n', 240);
    assert_int_equal(config_load(name, NULL, 0, &config, complaints), -ENOENT);
    assert_int_equal(strncmp(complaints->lines[0], "...nnn", 6), 0);
    assert_non_null(strstr(complaints->lines[0], "n: No such file or directory"));
}

static void test_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"c.yaml", "b.yaml", "a.yaml", ".h.yaml", "x.yml"};
    static const char *const texts[] = {"datasets: {c: {source: {folder: /c}}}",
                                        "datasets: {b: {source: {folder: /b}}}",
                                        "datasets: {a: {source: {folder: /a}}}", "}", "}"};
    struct config_complaints *complaints = &the_case.complaints;
    struct config *config = NULL;
    for (size_t i = 0; i < 5; i++)
        case_write(names[i], texts[i], strlen(texts[i]));
    struct config_places places = {.file = "/nowhere/spdld.yaml", .folder = case_folder()};
    assert_int_equal(config_load_places(&places, &config, complaints), 0);
    assert_int_equal(config->dataset_count, 3);
    assert_string_equal(config->datasets[0].name, "a");
    assert_string_equal(config->datasets[2].name, "c");
    assert_string_equal(config->file, "");
    config_destroy(config);
    config = NULL;
    static const char wrong[] = "slots: 4\nfetch: {depth: 1}\ndatasest: {}\n"
                                "datasets: {a: {source: {folder: /x}}, d: {}}\n";
    case_write("c.yaml", wrong, strlen(wrong));
    case_write("b.yaml", "}", 1);
    assert_int_equal(config_load_places(&places, &config, complaints), -EINVAL);
    case_compare(SETS(
        "b.yaml:1:1: did not find expected node content (while parsing a block node that begins "
        "at 1:1)",
        "c.yaml:1:1: 'slots' belongs into spdld.yaml: this file holds datasets",
        "c.yaml:2:1: 'fetch' belongs into spdld.yaml: this file holds datasets",
        "c.yaml:3:1: unknown key 'datasest' in a file of datasets; did you mean 'datasets'?",
        "c.yaml:4:12: dataset a is given twice, first at a.yaml:1",
        "c.yaml:4:42: the dataset needs a source"));
    for (size_t i = 0; i < 5; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", case_folder(), names[i]);
        assert_int_equal(unlink(path), 0);
    }
    places.folder = "/nowhere/datasets.d";
    assert_int_equal(config_load_places(&places, &config, complaints), 0);
    assert_int_equal(config->dataset_count, 0);
    config_destroy(config);
}

static void test_many_datasets(void **state)
{
    (void)state;
    char *text = malloc(1 << 16);
    assert_non_null(text);
    size_t used = (size_t)snprintf(text, 1 << 16, "datasets:\n");
    for (int i = 0; i < CONFIG_DATASETS_MAX; i++)
        used +=
            (size_t)snprintf(text + used, (1 << 16) - used, "  d%d: {source: {folder: /x}}\n", i);
    struct config *config = case_good(text, NULL);
    assert_int_equal(config->dataset_count, CONFIG_DATASETS_MAX);
    assert_string_equal(config->datasets[255].name, "d255");
    config_destroy(config);
    snprintf(text + used, (1 << 16) - used, "  e: {source: {folder: /x}}\n  f: {}\n");
    BAD(text, "c.yaml:258:3: more than 256 datasets");
    free(text);
}

/* A generator that gives the same numbers everywhere. */
static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static const char seed_text[] =
    "slots: 8\nthreads: {decode: 2}\nfetch: {engine: pool, depth: auto}\n"
    "socket_mode: \"0660\"\nmemory: 8GiB\nlimits:\n  pixels: 1000\n"
    "datasets:\n  a:\n    source: &s {folder: /data/photos}\n    preset: imagenet-train\n"
    "    normalize: {mean: [0.5, 0.5, 0.5], std: [1, 1, 1]}\n    dtype: float32\n"
    "    order: {shuffle: global, seed: 3}\n    on_error: {policy: mask}\n    last: drop\n"
    "  b:\n    source: *s\n    fields:\n      image:\n        from: [jpg, png]\n"
    "        decode: image\n        ops: [{random_resized_crop: {size: 9, scale: [0.9, 1.0]}}, "
    "random_flip, {resize: [3, 4]}]\n      label: {from: cls, decode: class}\n";

static const char *const pieces[] = {
    "{",
    "}",
    "[",
    "]",
    ": ",
    "\n",
    "\n  ",
    "- ",
    "*s",
    "&s ",
    "\"",
    "'",
    "auto",
    "-1",
    "\xff",
    "\xc3",
    "!!int",
    "slots",
    "source",
    "resize",
    "fields",
    "1e999",
    "99999999999999999999",
    "\t",
    "#",
    "|\n",
    "? ",
    "---\n",
    "null",
    "image",
    "~",
    "preset: clip-eval",
    "\\u2028",
    "normalize: none",
    "\"\\x85\"",
    "%",
};

static size_t mutate(char *text, size_t bytes, size_t capacity, uint64_t *seed)
{
    uint32_t kind = next_random(seed) % 6;
    size_t at = bytes > 0 ? next_random(seed) % bytes : 0;
    if (kind == 0 && bytes > 0) {
        text[at] = (char)next_random(seed);
    } else if (kind >= 4) {
        /* Another digit: most of these are still right. */
        while (at < bytes && (text[at] < '0' || text[at] > '9'))
            at++;
        if (at < bytes)
            text[at] = (char)('0' + next_random(seed) % 10);
    } else if (kind == 1 && bytes > 0) {
        size_t gone = 1 + next_random(seed) % 20;
        gone = gone < bytes - at ? gone : bytes - at;
        memmove(text + at, text + at + gone, bytes - at - gone);
        bytes -= gone;
    } else {
        const char *piece = pieces[next_random(seed) % (sizeof pieces / sizeof pieces[0])];
        size_t more = strlen(piece);
        if (bytes + more < capacity) {
            memmove(text + at + more, text + at, bytes - at);
            memcpy(text + at, piece, more);
            bytes += more;
        }
    }
    return bytes;
}

static void check_complaints(int rc)
{
    const struct config_complaints *complaints = &the_case.complaints;
    assert_true((rc == 0) == (complaints->count == 0));
    for (uint32_t i = 0; i < complaints->count && i < CONFIG_COMPLAINTS_MAX; i++) {
        size_t bytes = strnlen(complaints->lines[i], sizeof complaints->lines[i]);
        assert_in_range(bytes, 5, sizeof complaints->lines[i] - 1);
        for (size_t k = 0; k < bytes; k++)
            assert_true((unsigned char)complaints->lines[i][k] >= 32);
    }
}

/* Whatever is read is printed, and read back as the same. */
static void check_round_trip(struct config *config)
{
    char *text = config_print(config, 0);
    assert_non_null(text);
    struct config *back = case_good(text, NULL);
    char *diff = config_diff(config, back);
    assert_string_equal(diff, "");
    free(diff);
    free(text);
    config_destroy(back);
}

static void test_mutations(void **state)
{
    (void)state;
    uint64_t seed = 20240607;
    uint32_t good = 0;
    char text[2048];
    for (int round = 0; round < 6000; round++) {
        size_t bytes = strlen(seed_text);
        memcpy(text, seed_text, bytes);
        uint32_t changes = 1 + next_random(&seed) % 2;
        for (uint32_t i = 0; i < changes; i++)
            bytes = mutate(text, bytes, sizeof text, &seed);
        struct config *config = NULL;
        const char *path = case_write("c.yaml", text, bytes);
        int rc = config_load(path, NULL, 0, &config, &the_case.complaints);
        check_complaints(rc);
        if (rc != 0)
            continue;
        good++;
        check_round_trip(config);
        config_destroy(config);
    }
    assert_in_range(good, 200, 5800);
}

static void test_truncation(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes <= strlen(seed_text); bytes++) {
        struct config *config = NULL;
        const char *path = case_write("c.yaml", seed_text, bytes);
        int rc = config_load(path, NULL, 0, &config, &the_case.complaints);
        check_complaints(rc);
        config_destroy(config);
    }
}

static void test_garbage(void **state)
{
    (void)state;
    uint64_t seed = 7;
    struct config *config = case_good("", NULL);
    struct config_dataset *dataset = calloc(1, sizeof *dataset);
    assert_non_null(dataset);
    for (int round = 0; round < 5000; round++) {
        unsigned char bytes[256];
        size_t count = next_random(&seed) % sizeof bytes;
        for (size_t i = 0; i < count; i++)
            bytes[i] = (unsigned char)(next_random(&seed) % (round % 2 ? 256 : 128));
        int rc = config_dataset_read((const char *)bytes, count, "open", config, dataset,
                                     &the_case.complaints);
        assert_int_equal(rc, -EINVAL);
        check_complaints(rc);
    }
    free(dataset);
    config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_yaml),       cmocka_unit_test(test_tree),
        cmocka_unit_test(test_depth),         cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_files),         cmocka_unit_test(test_folder),
        cmocka_unit_test(test_many_datasets), cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_truncation),    cmocka_unit_test(test_garbage),
    };
    return cmocka_run_group_tests(tests, NULL, case_clean);
}
