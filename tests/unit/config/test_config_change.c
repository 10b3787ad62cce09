/* Changes of a configuration in use: what differs, what needs a restart, what is taken over. */
#include "config/config_settings.h"
#include "tests/unit/config/config_case.h"

#define FOLDER "datasets:\n  p: {source: {folder: /a}, preset: imagenet-eval}\n"

static char told[4096];

static void tell(void *context, const char *name, const char *mine, const char *other)
{
    size_t used = strlen(told);
    (void)context;
    snprintf(told + used, sizeof told - used, "%s: %s > %s\n", name, mine ? mine : "(none)",
             other ? other : "(none)");
}

static const char *compare(const struct config *mine, const struct config *other)
{
    told[0] = 0;
    assert_int_equal(config_compare(mine, other, tell, NULL), 0);
    return told;
}

static void test_change(void **state)
{
    (void)state;
    struct config *config = case_good("slots: 5\nmemory: 1GiB\n" FOLDER, SETS("shm=posix"));
    struct config *next = NULL;
    assert_int_equal(config_change(config, SETS("slots=9", "threads.decode=3", "slots=8"), 3, &next,
                                   &the_case.complaints),
                     0);
    assert_int_equal(next->slots, 8);
    assert_int_equal(config->slots, 5);
    assert_string_equal(compare(config, next), "slots: 5 > 8\nthreads.decode: auto > 3\n");
    assert_int_equal(next->dataset_count, 1);
    assert_ptr_not_equal(next->datasets, config->datasets);
    config_destroy(next);
    next = NULL;
    /* All that is wrong is said, and nothing is made. */
    assert_int_equal(config_change(config, SETS("slots=9", "slots=99", "memori=1GiB", "x"), 4,
                                   &next, &the_case.complaints),
                     -EINVAL);
    assert_null(next);
    case_compare(SETS("slots=99: slots: '99' is outside 2 to 64",
                      "memori=1GiB: unknown key 'memori'; did you mean 'memory'?",
                      "x: it takes KEY=VALUE, for example slots=8"));
    config_destroy(config);
}

static void test_restart_names(void **state)
{
    (void)state;
    char names[CONFIG_RESTART_NAMES_BYTES];
    struct config *mine = case_good("slots: 5\nshm: memfd\n", NULL);
    struct config *other = case_good("slots: 6\nlog: {level: error}\n", NULL);
    assert_string_equal(config_restart_names(mine, other, names), "");
    config_destroy(other);
    other = case_good("shm: posix\nslots: 6\nsocket: /x\nlimits: {sample: 1MiB}\n", NULL);
    assert_string_equal(config_restart_names(mine, other, names), "socket, shm, limits.sample");
    config_destroy(other);
    config_destroy(mine);
    /* All of them fit. */
    size_t bytes = 1;
    for (const struct config_opt *opt = config_settings; opt->name; opt++)
        bytes += strlen(opt->name) + 2;
    assert_true(bytes <= CONFIG_RESTART_NAMES_BYTES);
}

static void test_adopt(void **state)
{
    (void)state;
    struct config *mine = case_good("slots: 5\nshm: memfd\n" FOLDER, NULL);
    struct config *next =
        case_good("\n\nslots: 6\nlog: {level: error}\nshm: posix\nmemory: 2GiB\n" FOLDER
                  "  q: {source: {tar: /b.tar}}\n",
                  NULL);
    assert_string_equal(compare(mine, next), "memory: auto > 2GiB\nslots: 5 > 6\n"
                                             "shm: memfd > posix\nlog.level: info > error\n"
                                             "datasets.q: (none) > there\n");
    config_adopt(mine, next);
    assert_string_equal(compare(mine, next), "shm: memfd > posix\ndatasets.q: there > (none)\n");
    assert_int_equal(mine->slots, 6);
    assert_int_equal(config_log_level(mine), LOG_LEVEL_ERROR);
    assert_int_equal(mine->origins[config_setting_find("slots") - config_settings].line, 3);
    assert_non_null(config_dataset_find(mine, "q"));
    assert_null(config_dataset_find(next, "q"));
    config_destroy(next);
    config_destroy(mine);
}

static void test_datasets(void **state)
{
    (void)state;
    struct config *mine = case_good(FOLDER "  q: {source: {tar: /b.tar}}\n", NULL);
    struct config *other =
        case_good("datasets:\n  p: {source: {folder: /a}, preset: imagenet-eval, last: drop, "
                  "order: {seed: 7}}\n",
                  NULL);
    assert_string_equal(compare(mine, other), "datasets.p.order.seed: 0 > 7\n"
                                              "datasets.p.last: partial > drop\n"
                                              "datasets.q: there > (none)\n");
    config_destroy(other);
    config_destroy(mine);
}

/* What was set while it runs is no difference to what a command line asks for. */
static void test_live_is_not_asked(void **state)
{
    (void)state;
    struct config *mine = case_good("slots: 5\n", NULL), *live = NULL;
    assert_int_equal(
        config_change(mine, SETS("slots=9", "fetch.depth=3"), 2, &live, &the_case.complaints), 0);
    char *diff = config_diff(live, mine);
    assert_string_equal(diff, "");
    free(diff);
    char *text = config_print(live, 1);
    assert_string_equal(text, "slots: 9 # default 4, by spdlctl set\n"
                              "fetch:\n  depth: 3 # default auto, by spdlctl set\n");
    free(text);
    config_destroy(live);
    config_destroy(mine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_change),
        cmocka_unit_test(test_restart_names),
        cmocka_unit_test(test_adopt),
        cmocka_unit_test(test_datasets),
        cmocka_unit_test(test_live_is_not_asked),
    };
    return cmocka_run_group_tests(tests, NULL, case_clean);
}
