/* Settings: YAML, --set, limits, the sample file, what is printed and compared. */
#include <errno.h>

#include "config/config_read.h"
#include "config/config_settings.h"
#include "config/config_text.h"
#include "tests/unit/config/config_case.h"

static void test_defaults(void **state)
{
    (void)state;
    struct config *config = case_good("", NULL);
    assert_string_equal(config->socket, "/run/spdld/spdld.sock");
    assert_int_equal(config->socket_mode, 0660);
    assert_int_equal(config->memory_bytes, 0);
    assert_int_equal(config->arena_bytes, 0);
    assert_int_equal(config->slots, 4);
    assert_int_equal(config->decode_threads, 0);
    assert_int_equal(config->fetch_engine, CONFIG_ENGINE_AUTO);
    assert_int_equal(config->fetch_depth, 0);
    assert_int_equal(config->shm, CONFIG_SHM_MEMFD);
    assert_int_equal(config->max_sample_bytes, 64 << 20);
    assert_int_equal(config->max_pixels, 134217728);
    assert_string_equal(config->fetch_faulty, "");
    assert_string_equal(config->index_dir, "auto");
    assert_int_equal(config->dataset_count, 0);
    config_destroy(config);
    config_destroy(case_good("# only a comment\n", NULL));
    config_destroy(case_good("---\n...\n", NULL));
    config_destroy(case_good("datasets:\nthreads:\nfetch: ~\n", NULL));
    config_destroy(NULL);
}

static void test_all_settings(void **state)
{
    (void)state;
    struct config *config = case_good("socket: /x/y.sock\n"
                                      "socket_mode: 0600\n"
                                      "memory: 8GiB\n"
                                      "slots: 64\n"
                                      "threads: {decode: 2}\n"
                                      "fetch:\n"
                                      "  engine: uring\n"
                                      "  depth: 1024\n"
                                      "  memory: 1GiB\n"
                                      "  faulty: late=3\n"
                                      "shm: posix\n"
                                      "index_dir: /var/cache/x\n"
                                      "limits: {sample: 10MB, pixels: 1000000}\n",
                                      NULL);
    assert_string_equal(config->socket, "/x/y.sock");
    assert_int_equal(config->socket_mode, 0600);
    assert_true(config->memory_bytes == 8ull << 30);
    assert_int_equal(config->slots, 64);
    assert_int_equal(config->decode_threads, 2);
    assert_int_equal(config->fetch_engine, CONFIG_ENGINE_URING);
    assert_int_equal(config->fetch_depth, 1024);
    assert_int_equal(config->arena_bytes, 1 << 30);
    assert_string_equal(config->fetch_faulty, "late=3");
    assert_int_equal(config->shm, CONFIG_SHM_POSIX);
    assert_string_equal(config->index_dir, "/var/cache/x");
    assert_int_equal(config->max_sample_bytes, 10000000);
    assert_int_equal(config->max_pixels, 1000000);
    config_destroy(config);
}

static void test_set(void **state)
{
    (void)state;
    struct config *config =
        case_good("slots: 8\nthreads.decode: 3\n",
                  SETS("threads.decode=2", "slots=9", "fetch.engine=pool", "memory=auto",
                       "socket=/a=b", "limits.pixels=77", "socket_mode=0666", "slots=10"));
    assert_int_equal(config->decode_threads, 2);
    assert_int_equal(config->slots, 10);
    assert_int_equal(config->fetch_engine, CONFIG_ENGINE_POOL);
    assert_string_equal(config->socket, "/a=b");
    assert_int_equal(config->max_pixels, 77);
    assert_int_equal(config->socket_mode, 0666);
    config_destroy(config);
    case_bad(
        "slots: 1\n",
        SETS("slot=1", "threads.decode=65", "threads.decode=x", "threads=3", "cache=1", "x", "=3",
             "datasets.a=1", "socket=", "socket=\xff", "shm=a\nb", "decode=2", "decode.threads=3",
             "decode.thread=3"),
        SETS("c.yaml:1:8: slots: '1' is outside 2 to 64",
             "--set slot=1: unknown key 'slot'; did you mean 'slots'?",
             "--set threads.decode=65: threads.decode: '65' is outside 1 to 64",
             "--set threads.decode=x: threads.decode is a whole number, not 'x'",
             "--set threads=3: threads holds settings: name one of them",
             "--set cache=1: cache is not supported in this version",
             "--set x: it takes KEY=VALUE, for example slots=8",
             "--set =3: it takes KEY=VALUE, for example slots=8",
             "--set datasets.a=1: datasets are read from files only",
             "--set socket=: socket is empty", "--set socket=\xff: it is not UTF-8",
             "--set shm=a?b: shm is one of memfd posix, not 'a?b'",
             "--set decode=2: unknown key 'decode'; did you mean 'threads.decode'?",
             "--set decode.threads=3: unknown key 'decode.threads'; did you mean 'threads.decode'?",
             "--set decode.thread=3: unknown key 'decode.thread'"));
}

static void test_wrong_values(void **state)
{
    (void)state;
    BAD("slots: 1", "c.yaml:1:8: slots: '1' is outside 2 to 64");
    BAD("slots: 65", "c.yaml:1:8: slots: '65' is outside 2 to 64");
    BAD("slots: 99999999999999999999999",
        "c.yaml:1:8: slots: '99999999999999999999999' is outside 2 to 64");
    BAD("slots: many", "c.yaml:1:8: slots is a whole number, not 'many'");
    BAD("slots: -4", "c.yaml:1:8: slots is a whole number, not '-4'");
    BAD("slots:", "c.yaml:1:7: slots is a whole number, not nothing");
    BAD("slots: [4]", "c.yaml:1:8: slots is a whole number, not a list");
    BAD("slots: {a: 4}", "c.yaml:1:8: slots is a whole number, not a mapping");
    BAD("slots: auto", "c.yaml:1:8: slots is a whole number, not 'auto'");
    BAD("memory: 8Gi", "c.yaml:1:9: memory is a size, a number with KiB MiB GiB KB MB GB or bytes "
                       "without, not '8Gi'");
    BAD("memory: 1KiB", "c.yaml:1:9: memory: '1KiB' is outside 16MiB to 65536GiB");
    BAD("socket_mode: 0999",
        "c.yaml:1:14: socket_mode is a file mode such as \"0660\", not '0999'");
    BAD("socket_mode: 1777",
        "c.yaml:1:14: socket_mode is a file mode such as \"0660\", not '1777'");
    BAD("socket_mode: 66", "c.yaml:1:14: socket_mode is a file mode such as \"0660\", not '66'");
    BAD("shm: memfdd",
        "c.yaml:1:6: shm is one of memfd posix, not 'memfdd'; did you mean 'memfd'?");
    BAD("shm: {memfd: 1}", "c.yaml:1:6: shm is one of memfd posix, not a mapping");
    BAD("fetch: {engine: urign}", "c.yaml:1:17: fetch.engine is one of auto uring pool, not "
                                  "'urign'; did you mean 'uring'?");
    BAD("fetch: pool", "c.yaml:1:8: fetch is a mapping, not 'pool'");
    BAD("threads: [1]", "c.yaml:1:10: threads is a mapping, not a list");
    BAD("memory: 1GiB\nfetch: {memory: 2GiB}",
        "c.yaml:2:17: fetch.memory 2GiB is more than memory 1GiB, which it is a part of");
    BAD("socket: \"a\\nb\"", "c.yaml:1:9: socket holds a control character");
    BAD("socket: \"a\\0b\"", "c.yaml:1:9: a value holds a zero byte");
    BAD("socket: \"\"", "c.yaml:1:9: socket is empty");
    char text[200] = "socket: ";
    memset(text + 8, 'x', 108);
    BAD(text, "c.yaml:1:9: socket is longer than 107 bytes");
    text[8 + 107] = '\0';
    config_destroy(case_good(text, NULL));
}

static void test_wrong_keys(void **state)
{
    (void)state;
    BAD("slotts: 4", "c.yaml:1:1: unknown key 'slotts'; did you mean 'slots'?");
    BAD("memroy: 4", "c.yaml:1:1: unknown key 'memroy'; did you mean 'memory'?");
    BAD("thread: {decode: 2}", "c.yaml:1:1: unknown key 'thread'; did you mean 'threads'?");
    BAD("dataset: {}", "c.yaml:1:1: unknown key 'dataset'; did you mean 'datasets'?");
    BAD("something_else: 4", "c.yaml:1:1: unknown key 'something_else'");
    BAD("fetch: {deph: 4}", "c.yaml:1:9: unknown key 'deph' in fetch; did you mean 'depth'?");
    BAD("fetch: {fualty: x}", "c.yaml:1:9: unknown key 'fualty' in fetch");
    BAD("depth: 4", "c.yaml:1:1: unknown key 'depth'; did you mean 'fetch.depth'?");
    BAD("cache: {ram: 2GiB}", "c.yaml:1:1: cache is not supported in this version");
    BAD("slots: 4\nslots: 5", "c.yaml:2:1: slots is given twice, first in line 1");
    BAD("fetch: {depth: 4}\nfetch.depth: 5",
        "c.yaml:2:1: fetch.depth is given twice, first in line 1");
    BAD("datasets: {}\ndatasets: {}", "c.yaml:2:1: datasets is given twice");
    BAD("datasets: [a]", "c.yaml:1:11: datasets is a mapping of names to datasets, not a list");
    BAD("\"a\\x1bb\": 1", "c.yaml:1:1: unknown key 'a?b'");
    /* All of a file, in its order. */
    BAD("zz: 1\ndatasets: 3\nslots: 1\nfetch: {x: 1}\nshm: 1\n", "c.yaml:1:1: unknown key 'zz'",
        "c.yaml:2:11: datasets is a mapping of names to datasets, not '3'",
        "c.yaml:3:8: slots: '1' is outside 2 to 64", "c.yaml:4:9: unknown key 'x' in fetch",
        "c.yaml:5:6: shm is one of memfd posix, not '1'");
}

static void test_many_complaints(void **state)
{
    (void)state;
    char text[4096] = "";
    size_t used = 0;
    for (int i = 0; i < 40; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "unknown%d: 1\n", i);
    snprintf(text + used, sizeof text - used, "datasets: {}\n");
    struct config *config = NULL;
    assert_int_equal(case_load(text, NULL, &config), -EINVAL);
    assert_int_equal(the_case.complaints.count, 40);
    assert_non_null(strstr(the_case.complaints.lines[0], ":1:1: unknown key 'unknown0'"));
    assert_non_null(strstr(the_case.complaints.lines[31], ":32:1: unknown key 'unknown31'"));
}

/* What is wrong further up in the file comes first, also when the list is full already. */
static void test_full_in_order(void **state)
{
    (void)state;
    char text[4096];
    size_t used = (size_t)snprintf(text, sizeof text, "datasets:\n  a b: {}\n");
    for (int i = 0; i < 40; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "unknown%d: 1\n", i);
    struct config *config = NULL;
    assert_int_equal(case_load(text, NULL, &config), -EINVAL);
    assert_int_equal(the_case.complaints.count, 41);
    assert_non_null(strstr(the_case.complaints.lines[0], ":2:3: the name of a dataset"));
    assert_non_null(strstr(the_case.complaints.lines[1], ":3:1: unknown key 'unknown0'"));
    assert_non_null(strstr(the_case.complaints.lines[31], ":33:1: unknown key 'unknown30'"));
}

/* A value that is shown is cut between characters, never within one. */
static void test_shown_values(void **state)
{
    (void)state;
    static const char *const letters[] = {"\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x99\x82"};
    for (size_t k = 0; k < 3; k++) {
        for (size_t lead = 0; lead < 4; lead++) {
            char text[256] = "abc", show[CONFIG_SHOW_BYTES];
            size_t bytes = strlen(letters[k]);
            for (size_t i = 0; i < 40; i++)
                memcpy(text + lead + i * bytes, letters[k], bytes + 1);
            struct config_node node = {.kind = CONFIG_NODE_SCALAR, .text = text};
            node.bytes = strlen(text);
            config_show(&node, show);
            size_t whole = (47 - lead) / bytes;
            assert_true(config_text_is_utf8(show));
            assert_int_equal(strlen(show), 1 + lead + whole * bytes + 1 + 3);
        }
    }
    char line[512], key[300];
    memset(key, 'k', sizeof key);
    key[sizeof key - 1] = '\0';
    snprintf(line, sizeof line, "%s: 1", key);
    key[47] = '\0';
    char expected[400];
    snprintf(expected, sizeof expected, "c.yaml:1:1: unknown key '%s'...", key);
    BAD(line, expected);
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = calloc(1, 65536);
    assert_non_null(text);
    size_t bytes = fread(text, 1, 65535, file);
    assert_true(bytes > 0 && bytes < 65535);
    fclose(file);
    return text;
}

static void test_sample(void **state)
{
    (void)state;
    char *sample = config_print_defaults();
    char *file = read_text("configs/spdld.yaml");
    assert_non_null(sample);
    assert_string_equal(sample, file);
    assert_null(strstr(sample, "faulty"));
    free(file);
    /* Uncommented, every line is a setting at its default. */
    size_t out = 0;
    for (size_t i = 0; sample[i]; i++) {
        int at_start = i == 0 || sample[i - 1] == '\n';
        if (at_start && sample[i] == '#' && sample[i + 1] != ' ' &&
            strncmp(sample + i, "#datasets", 9) != 0)
            continue;
        sample[out++] = sample[i];
    }
    sample[out] = '\0';
    struct config *config = case_good(sample, NULL);
    for (const struct config_opt *opt = config_settings; opt->name; opt++) {
        uint32_t kind = config->origins[opt - config_settings].kind;
        assert_int_equal(kind, opt->flags & CONFIG_OPT_HIDDEN ? CONFIG_ORIGIN_DEFAULT
                                                              : CONFIG_ORIGIN_FILE);
    }
    struct config *defaults = case_good("", NULL);
    char *diff = config_diff(defaults, config);
    assert_string_equal(diff, "");
    free(diff);
    free(sample);
    config_destroy(defaults);
    config_destroy(config);
    file = read_text("configs/datasets.d/photos.yaml");
    config = case_good(file, NULL);
    assert_int_equal(config->dataset_count, 5);
    config_destroy(config);
    free(file);
}

static void test_print(void **state)
{
    (void)state;
    struct config *config =
        case_good("slots: 8\nlimits: {sample: 1MiB}\n", SETS("threads.decode=2", "shm=posix"));
    char *text = config_print(config, 1);
    char expected[512];
    snprintf(expected, sizeof expected,
             "slots: 8 # default 4, by %s/c.yaml:1\n"
             "threads:\n  decode: 2 # default auto, by --set\n"
             "shm: posix # default memfd, by --set\n"
             "limits:\n  sample: 1MiB # default 64MiB, by %s/c.yaml:2\n",
             case_folder(), case_folder());
    assert_string_equal(text, expected);
    free(text);
    text = config_print(config, 0);
    assert_non_null(strstr(text, "\nfetch:\n  engine: auto\n  depth: auto\n  memory: auto\n"));
    assert_null(strstr(text, "faulty"));
    free(text);
    struct config *defaults = case_good("", NULL);
    text = config_diff(defaults, config);
    assert_string_equal(text, "slots: running 4, asked 8\n"
                              "threads.decode: running auto, asked 2\n"
                              "shm: running memfd, asked posix\n"
                              "limits.sample: running 64MiB, asked 1MiB\n");
    free(text);
    config_destroy(defaults);
    config_destroy(config);
}

/* What is printed is read back as the same, also where a string needs quotes and escapes. */
static void test_round_trip(void **state)
{
    (void)state;
    static const char *const sockets[] = {
        "/plain",
        "with space",
        "quote\" and \\ back",
        "# no comment: {x}",
        "-",
        "null",
        "auto",
        "~",
        "\xc3\xa4\xe2\x82\xac\xf0\x9f\x99\x82",
        "nel\xc2\x85ls\xe2\x80\xa8ps\xe2\x80\xa9",
        "mark\xef\xbb\xbfnbsp\xc2\xa0",
        "'single'",
        "a: b",
        "%percent",
        "\xef\xbf\xbd",
        " leading and trailing ",
    };
    for (size_t i = 0; i < sizeof sockets / sizeof sockets[0]; i++) {
        char set[256];
        snprintf(set, sizeof set, "socket=%s", sockets[i]);
        struct config *config = case_good("", SETS(set, "fetch.faulty=a: \"b\""));
        char *text = config_print(config, 0);
        struct config *back = case_good(text, NULL);
        char *diff = config_diff(config, back);
        assert_string_equal(back->socket, sockets[i]);
        assert_string_equal(diff, "");
        free(diff);
        free(text);
        config_destroy(back);
        config_destroy(config);
    }
}

static void test_table(void **state)
{
    (void)state;
    uint32_t count = 0;
    for (const struct config_opt *opt = config_settings; opt->name; opt++, count++) {
        assert_ptr_equal(config_setting_find(opt->name), opt);
        assert_non_null(opt->help);
        assert_true(((opt->flags & CONFIG_OPT_RESTART) != 0) !=
                    ((opt->flags & CONFIG_OPT_LIVE) != 0));
        assert_true(opt->min <= opt->max);
    }
    assert_in_range(count, 10, CONFIG_SETTINGS_MAX);
    assert_null(config_setting_find("slotts"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),      cmocka_unit_test(test_all_settings),
        cmocka_unit_test(test_set),           cmocka_unit_test(test_wrong_values),
        cmocka_unit_test(test_wrong_keys),    cmocka_unit_test(test_many_complaints),
        cmocka_unit_test(test_full_in_order), cmocka_unit_test(test_shown_values),
        cmocka_unit_test(test_sample),        cmocka_unit_test(test_print),
        cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, case_clean);
}
