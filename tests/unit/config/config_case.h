/* What the tests of the configuration share: a text goes into a file, is loaded, and its complaints
 * are compared word for word, without the file's folder. */
#ifndef SPDL_TESTS_CONFIG_CASE_H
#define SPDL_TESTS_CONFIG_CASE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/config.h"
#include "config/config_load.h"

struct config_case {
    char folder[64]; /* of this test program, made at its first use */
    struct config_complaints complaints;
};

static struct config_case the_case;

static inline const char *case_folder(void)
{
    if (!the_case.folder[0]) {
        snprintf(the_case.folder, sizeof the_case.folder, "/tmp/spdl-config-XXXXXX");
        assert_non_null(mkdtemp(the_case.folder));
    }
    return the_case.folder;
}

/* Returns the path, which lives until the program ends its next call. */
static inline const char *case_write(const char *name, const void *text, size_t bytes)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", case_folder(), name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    return path;
}

static inline int case_load(const char *yaml, const char *const *sets, struct config **ret_config)
{
    uint32_t set_count = 0;
    while (sets && sets[set_count])
        set_count++;
    const char *path = case_write("c.yaml", yaml, strlen(yaml));
    return config_load(path, sets, set_count, ret_config, &the_case.complaints);
}

/* A text that is right. */
static inline struct config *case_good(const char *yaml, const char *const *sets)
{
    struct config *config = NULL;
    int rc = case_load(yaml, sets, &config);
    if (rc != 0)
        print_error("%s\n", the_case.complaints.lines[0]);
    assert_int_equal(rc, 0);
    assert_int_equal(the_case.complaints.count, 0);
    return config;
}

/* Compares the complaints with `expected`, which ends with NULL, each without the folder of
 * the file. */
static inline void case_compare(const char *const *expected)
{
    uint32_t i = 0;
    for (; expected[i] && i < the_case.complaints.count; i++) {
        char *line = the_case.complaints.lines[i];
        size_t bytes = strlen(case_folder()) + 1;
        for (char *at = strstr(line, case_folder()); at; at = strstr(line, case_folder()))
            memmove(at, at + bytes, strlen(at + bytes) + 1);
        assert_string_equal(line, expected[i]);
    }
    if (expected[i])
        print_error("missing: %s\n", expected[i]);
    if (i < the_case.complaints.count && i < CONFIG_COMPLAINTS_MAX)
        print_error("too much: %s\n", the_case.complaints.lines[i]);
    assert_null(expected[i]);
    assert_int_equal(the_case.complaints.count, i);
}

/* A text (with --set values) that is wrong, and all that is said about it. */
static inline void case_bad(const char *yaml, const char *const *sets, const char *const *expected)
{
    struct config *config = NULL;
    assert_int_equal(case_load(yaml, sets, &config), -EINVAL);
    assert_null(config);
    case_compare(expected);
}

#define BAD(yaml, ...) case_bad((yaml), NULL, (const char *const[]){__VA_ARGS__, NULL})
#define SETS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Teardown of a group. */
static inline int case_clean(void **state)
{
    (void)state;
    char path[256];
    if (!the_case.folder[0])
        return 0;
    snprintf(path, sizeof path, "%s/c.yaml", the_case.folder);
    unlink(path);
    return rmdir(the_case.folder);
}

#endif
