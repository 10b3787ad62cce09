/* The command line of spdlctl: order, values, refusals and the nearest name. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/ctl/ctl_args.h"
#include "client/ctl/ctl_stream.h"

static struct ctl_options options;

/* Parses words that are separated by single spaces, with what is said on standard error caught in
 * `said`. */
static char said[4096];
static int parse(const char *words)
{
    static char copy[512];
    static char program[] = "spdlctl";
    char *argv[64] = {program};
    int argc = 1;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *rest = copy, *word; (word = strsep(&rest, " ")) && *words;)
        argv[argc++] = word;
    int pipe_fds[2];
    assert_int_equal(pipe2(pipe_fds, O_NONBLOCK), 0);
    int error = dup(STDERR_FILENO);
    dup2(pipe_fds[1], STDERR_FILENO);
    int code = ctl_args_parse(argc, argv, &options);
    dup2(error, STDERR_FILENO);
    close(error);
    close(pipe_fds[1]);
    ssize_t got = read(pipe_fds[0], said, sizeof said - 1);
    said[got > 0 ? got : 0] = '\0';
    close(pipe_fds[0]);
    return code;
}

static void test_order(void **state)
{
    (void)state;
    assert_int_equal(parse("--private -c f.yaml --json pull p --batch 32 --set a=1 --set b=2"), 0);
    assert_true(options.is_private && options.json);
    assert_string_equal(options.config, "f.yaml");
    assert_string_equal(options.verb, "pull");
    assert_int_equal(options.operand_count, 1);
    assert_string_equal(options.operands[0], "p");
    assert_int_equal(options.batch, 32);
    assert_int_equal(options.set_count, 2);
    assert_string_equal(options.sets[1], "b=2");
    assert_int_equal(parse("pull --hash --draws p --json --socket=/s --seed=18446744073709551615"),
                     0);
    assert_true(options.hash && options.draws && options.json && options.has_seed);
    assert_true(options.seed == UINT64_MAX);
    assert_string_equal(options.socket, "/s");
    assert_int_equal(parse("--steps 3 pull --reconnect 0 --timeout 1.5 -- p"), 0);
    assert_true(options.has_reconnect && options.reconnect_s == 0 && options.timeout_s == 1.5);
    assert_int_equal(options.steps, 3);
    assert_int_equal(parse("check -- -odd.yaml b.yaml"), 0);
    assert_string_equal(options.operands[0], "-odd.yaml");
    assert_int_equal(parse("preview p -o x.png"), 0);
    assert_string_equal(options.out, "x.png");
}

static void refused(const char *words, const char *sentence)
{
    assert_int_equal(parse(words), CTL_EXIT_USAGE);
    if (!strstr(said, sentence))
        fail_msg("%s: said \"%s\", not \"%s\"", words, said, sentence);
}

static void test_refused(void **state)
{
    (void)state;
    refused("", "a verb is missing");
    refused("pul p", "the nearest is pull");
    refused("statsu", "the nearest is status");
    refused("top", "not in this version");
    refused("replay on 3", "not in this version");
    refused("pull p --bacth 3", "the nearest is --batch");
    refused("pull p --bacth=3", "the nearest is --batch");
    refused("pull --dataset p", "unknown option --dataset; see");
    refused("halp me", "unknown verb halp; the nearest is help");
    refused("plot", "unknown verb plot; see");
    refused("help pul", "the nearest is pull");
    refused("help pull plan", "plan is one operand too many");
    refused("help top", "not in this version");
    refused("pull p -x", "unknown option -x");
    refused("pull p --batch", "G is missing");
    refused("pull p --batch 3x", "not a whole number");
    refused("pull p --batch -3", "not a whole number");
    refused("pull p --batch 0", "from 1 to");
    refused("pull p --world 0", "from 1 to");
    refused("pull p --steps 0", "from 1 to");
    refused("bench p --ranks 0", "from 1 to");
    refused("pull p --batch=", "not a whole number");
    refused("pull p --epoch 4294967296", "not a whole number");
    refused("pull p --seed 18446744073709551616", "not a whole number");
    refused("pull p --timeout inf", "not a number of seconds");
    refused("pull p --timeout 1s", "not a number of seconds");
    refused("pull p --hash=1", "takes no value");
    refused("pull", "DATASET is missing");
    refused("pull a b", "one operand too many");
    refused("status x", "one operand too many");
    refused("bench p --hash", "no option --hash");
    refused("status --batch 3", "no option --batch");
    refused("-c f status", "--private");
    refused("--set a=b status", "--private");
    refused("--private --set ab status", "not KEY=VALUE");
    refused("--private --socket /s status", "exclude each other");
    refused("pull p --on-error=", "is empty");
}

static void test_help(void **state)
{
    (void)state;
    assert_int_equal(parse("--help"), 0);
    assert_true(options.help);
    assert_int_equal(parse("pull -h"), 0);
    assert_true(options.help);
    assert_int_equal(parse("--version"), 0);
    assert_true(options.version);
    for (const struct ctl_verb *verb = ctl_verbs; verb->name; verb++) {
        struct ctl_text text = {0};
        if (!verb->run)
            continue;
        ctl_args_help(verb, &text);
        ctl_text_put(&text, "", 1);
        assert_non_null(strstr(text.data, verb->summary));
        assert_non_null(strstr(text.data, "--socket PATH"));
        assert_true(
            !strstr(text.data, "--batch G") ==
            !(verb->bit & (CTL_VERB_PULL | CTL_VERB_BENCH | CTL_VERB_PREVIEW | CTL_VERB_PLAN)));
        assert_true(!strstr(text.data, "--diff") == (verb->bit != CTL_VERB_CONFIG));
        ctl_text_fini(&text);
    }
}

static void test_distance(void **state)
{
    (void)state;
    assert_int_equal(ctl_name_distance("", ""), 0);
    assert_int_equal(ctl_name_distance("", "abc"), 3);
    assert_int_equal(ctl_name_distance("abc", ""), 3);
    assert_int_equal(ctl_name_distance("kitten", "sitting"), 3);
    assert_int_equal(ctl_name_distance("pull", "pull"), 0);
    char name[40];
    memset(name, 'a', sizeof name - 1);
    name[31] = '\0';
    assert_int_equal(ctl_name_distance(name, name), 0);
    name[31] = 'a';
    name[32] = '\0';
    assert_true(ctl_name_distance(name, "a") == UINT32_MAX);
}

static int stream_check(const char *words)
{
    assert_int_equal(parse(words), 0);
    return ctl_stream_check(&options, 64);
}

static void test_stream_check(void **state)
{
    (void)state;
    assert_int_equal(stream_check("pull p"), 0);
    assert_int_equal(stream_check("pull p --rank 3 --world 4"), 0);
    assert_int_equal(stream_check("pull p --rank 4 --world 4"), CTL_EXIT_USAGE);
    assert_int_equal(stream_check("pull p --rank 1"), CTL_EXIT_USAGE);
    assert_int_equal(stream_check("pull p --batch 10 --world 4"), CTL_EXIT_USAGE);
    assert_int_equal(stream_check("bench p --batch 10 --ranks 4"), CTL_EXIT_USAGE);
    assert_int_equal(stream_check("bench p --ranks 4"), 0);
    assert_int_equal(stream_check("pull --source folder:/x"), CTL_EXIT_USAGE);
    assert_int_equal(stream_check("--private pull --source folder:/x"), 0);
    assert_int_equal(stream_check("--private pull p --source folder:/x"), CTL_EXIT_USAGE);
    assert_int_equal(stream_check("--private pull p --preset imagenet-train"), CTL_EXIT_USAGE);
}

static void yaml_is(const char *source, const char *preset, const char *wanted)
{
    struct ctl_text yaml = {0};
    int code = ctl_source_yaml(source, preset, &yaml);
    assert_int_equal(code, wanted ? 0 : CTL_EXIT_USAGE);
    ctl_text_put(&yaml, "", 1);
    if (wanted)
        assert_string_equal(yaml.data, wanted);
    ctl_text_fini(&yaml);
}

static void test_source(void **state)
{
    (void)state;
    yaml_is("folder:/data/photos", "imagenet-train",
            "{source: {folder: \"/data/photos\"}, preset: \"imagenet-train\"}");
    yaml_is("folder:/a: \"b\\c\n\xc3\xa4", NULL,
            "{source: {folder: \"/a: \\\"b\\\\c\\U0000000a\xc3\xa4\"}}");
    yaml_is("synthetic:1000000,1024", NULL,
            "{source: {synthetic: {samples: 1000000, bytes: 1024}}}");
    yaml_is("folder:/a\xff", NULL, NULL);
    yaml_is("folder:", NULL, NULL);
    yaml_is("folder", NULL, NULL);
    yaml_is("synthetic:1", NULL, NULL);
    yaml_is("synthetic:1,x", NULL, NULL);
    yaml_is("tar:/a/{00..17}.tar", "imagenet-train",
            "{source: {tar: \"/a/{00..17}.tar\"}, preset: \"imagenet-train\"}");
    yaml_is("tar:", NULL, NULL);
    yaml_is("mds:/a", NULL, NULL);
    assert_int_equal(chdir("/usr"), 0);
    yaml_is("folder:lib", NULL, "{source: {folder: \"/usr/lib\"}}");
    assert_int_equal(chdir("/"), 0);
    yaml_is("folder:lib", NULL, "{source: {folder: \"/lib\"}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_help),         cmocka_unit_test(test_distance),
        cmocka_unit_test(test_stream_check), cmocka_unit_test(test_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
