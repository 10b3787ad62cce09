/* The command line of spdlctl: one table of options, from which parsing, checks and help are made.
 */
#include "client/ctl/ctl_args.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum args_type { ARGS_FLAG, ARGS_STRING, ARGS_UNSIGNED, ARGS_POSITIVE, ARGS_SECONDS, ARGS_SETS };

enum {
    ARGS_ALL = ~0,
    ARGS_STREAM = CTL_VERB_PULL | CTL_VERB_BENCH | CTL_VERB_PREVIEW,
    ARGS_OPEN = ARGS_STREAM | CTL_VERB_PLAN, /* what says which stream */
    ARGS_SOURCE = ARGS_OPEN | CTL_VERB_INDEX,
    ARGS_PLACED = CTL_VERB_PULL | CTL_VERB_PREVIEW | CTL_VERB_PLAN
};

struct args_option {
    const char *name;  /* without the dashes */
    const char *value; /* its name in help; NULL: a flag */
    const char *help;
    size_t offset; /* of the value in struct ctl_options */
    size_t given;  /* of a bool that says it was given, or 0: the first member is none of these */
    uint64_t max;  /* of a number */
    int verbs;     /* bits of the verbs that take it; ARGS_ALL: every one */
    enum args_type type;
    char letter; /* short form, or 0 */
};

#define AT(member) offsetof(struct ctl_options, member)

static const struct args_option args_options[] = {
    {"socket", "PATH", "the daemon's socket (default: $SPDL_SOCKET, then the system's)", AT(socket),
     0, 0, ARGS_ALL, ARGS_STRING, 0},
    {"private", NULL, "the job's own daemon, started when there is none", AT(is_private), 0, 0,
     ARGS_ALL, ARGS_FLAG, 0},
    {"config", "FILE", "configuration of the private daemon", AT(config), 0, 0, ARGS_ALL,
     ARGS_STRING, 'c'},
    {"set", "KEY=VALUE", "a setting of the private daemon; may be repeated", AT(sets), 0, 0,
     ARGS_ALL, ARGS_SETS, 0},
    {"json", NULL, "JSON: one document, or one line per item", AT(json), 0, 0, ARGS_ALL, ARGS_FLAG,
     0},
    {"help", NULL, "this text", AT(help), 0, 0, ARGS_ALL, ARGS_FLAG, 'h'},
    {"version", NULL, "the version", AT(version), 0, 0, ARGS_ALL, ARGS_FLAG, 0},

    {"source", "KIND:PATH",
     "instead of DATASET, private only: folder:DIR, tar:PATTERN, list:FILE or synthetic:N,BYTES",
     AT(source), 0, 0, ARGS_SOURCE, ARGS_STRING, 0},
    {"preset", "NAME", "fields of --source, as imagenet-train", AT(preset), 0, 0, ARGS_SOURCE,
     ARGS_STRING, 0},
    {"batch", "G", "rows of a batch of the whole job (default 64; preview: 16)", AT(batch), 0,
     1U << 30, ARGS_OPEN, ARGS_POSITIVE, 0},
    {"rank", "R", "rank (default 0)", AT(rank), 0, UINT32_MAX, ARGS_PLACED, ARGS_UNSIGNED, 0},
    {"world", "W", "ranks of the job (default 1)", AT(world), 0, UINT32_MAX, ARGS_PLACED,
     ARGS_POSITIVE, 0},
    {"seed", "N", "seed of the order and the draws (default: the dataset's)", AT(seed),
     AT(has_seed), UINT64_MAX, ARGS_OPEN, ARGS_UNSIGNED, 0},
    {"epoch", "N", "epoch to begin with (default 0)", AT(epoch), AT(has_epoch), UINT32_MAX,
     ARGS_OPEN, ARGS_UNSIGNED, 0},
    {"step", "K", "step to begin with (default 0)", AT(step), AT(has_step), UINT64_MAX, ARGS_OPEN,
     ARGS_UNSIGNED, 0},
    {"state", "STATE", "begin behind the batch that carried this state", AT(state), 0, 0, ARGS_OPEN,
     ARGS_STRING, 0},
    {"steps", "N", "end after N batches (default: pull with the epoch, bench with its time)",
     AT(steps), 0, UINT64_MAX, CTL_VERB_PULL | CTL_VERB_BENCH, ARGS_POSITIVE, 0},
    {"slots", "N", "batches ready ahead (default: the daemon's setting)", AT(slots), 0, UINT32_MAX,
     ARGS_OPEN, ARGS_UNSIGNED, 0},
    {"on-error", "POLICY",
     "substitute, mask or fail, with ,max_rate=X,max_consecutive=N (default: the dataset's)",
     AT(on_error), 0, 0, ARGS_STREAM, ARGS_STRING, 0},
    {"reconnect", "SECONDS", "how long a daemon that died is waited for (default 60; 0: not)",
     AT(reconnect_s), AT(has_reconnect), 0, ARGS_STREAM, ARGS_SECONDS, 0},
    {"timeout", "SECONDS", "fail when a batch takes longer (default: no limit)", AT(timeout_s),
     AT(has_timeout), 0, ARGS_STREAM, ARGS_SECONDS, 0},

    {"hash", NULL, "XXH3-64 of every field and row", AT(hash), 0, 0, CTL_VERB_PULL, ARGS_FLAG, 0},
    {"draws", NULL, "crop and flip of every row", AT(draws), 0, 0, CTL_VERB_PULL, ARGS_FLAG, 0},
    {"out", "DIR", "write EPOCH-STEP.FIELD.npy files into this folder", AT(out), 0, 0,
     CTL_VERB_PULL, ARGS_STRING, 0},
    {"delay-ms", "N", "sleep between batches, holding none", AT(delay_ms), 0, 1U << 30,
     CTL_VERB_PULL, ARGS_UNSIGNED, 0},
    {"seconds", "S", "how long to drain (default 10)", AT(seconds), AT(has_seconds), 0,
     CTL_VERB_BENCH, ARGS_SECONDS, 0},
    {"ranks", "N", "processes that pull, as the ranks of one job (default 1)", AT(ranks), 0,
     CTL_RANKS_MAX, CTL_VERB_BENCH, ARGS_POSITIVE, 0},
    {"output", "FILE", "the PNG file to write", AT(out), 0, 0, CTL_VERB_PREVIEW, ARGS_STRING, 'o'},
    {"publish", NULL, "write the index beside the data too", AT(publish), 0, 0, CTL_VERB_INDEX,
     ARGS_FLAG, 0},
    {"diff", NULL, "only what differs from the defaults, and what a reload would change", AT(diff),
     0, 0, CTL_VERB_CONFIG, ARGS_FLAG, 0},
};
enum { ARGS_COUNT = sizeof args_options / sizeof args_options[0] };

bool ctl_parse_unsigned(const char *string, uint64_t max, uint64_t *ret_value)
{
    if (!isdigit((unsigned char)string[0]))
        return false;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(string, &end, 10);
    if (errno || *end || value > max)
        return false;
    *ret_value = value;
    return true;
}

bool ctl_parse_seconds(const char *string, double *ret_value)
{
    if (!isdigit((unsigned char)string[0]) && string[0] != '.')
        return false;
    char *end;
    double value = strtod(string, &end);
    if (end == string || *end || !isfinite(value) || value > 1e9)
        return false;
    *ret_value = value;
    return true;
}

uint32_t ctl_name_distance(const char *a, const char *b)
{
    enum { LONGEST = 31 };
    size_t columns = strlen(b);
    if (strlen(a) > LONGEST || columns > LONGEST)
        return UINT32_MAX;
    uint32_t row[LONGEST + 1];
    for (uint32_t i = 0; i <= columns; i++)
        row[i] = i;
    for (uint32_t i = 1; a[i - 1]; i++) {
        uint32_t corner = row[0];
        row[0] = i;
        for (size_t k = 1; k <= columns; k++) {
            uint32_t best = corner + (a[i - 1] != b[k - 1]);
            if (row[k] + 1 < best)
                best = row[k] + 1;
            if (row[k - 1] + 1 < best)
                best = row[k - 1] + 1;
            corner = row[k];
            row[k] = best;
        }
    }
    return row[columns];
}

/* Is a name that far away still the same word with a slip in it? */
static bool is_near(const char *word, uint32_t distance)
{
    size_t length = strlen(word);
    return distance <= (length <= 4 ? 1U : length <= 7 ? 2U : 3U) && distance < length;
}

static int args_unknown_option(const char *word, const struct ctl_verb *verb)
{
    char name[32]; /* without a value behind it */
    const char *bare = word + strspn(word, "-");
    const char *nearest = NULL;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(bare, "="), bare);
    uint32_t best = UINT32_MAX;
    for (size_t i = 0; i < ARGS_COUNT; i++) {
        if (verb && !(args_options[i].verbs & (int)verb->bit))
            continue;
        uint32_t distance = ctl_name_distance(name, args_options[i].name);
        if (distance < best) {
            best = distance;
            nearest = args_options[i].name;
        }
    }
    if (nearest && is_near(name, best))
        return ctl_fail(CTL_EXIT_USAGE, "unknown option %s; the nearest is --%s", word, nearest);
    return ctl_fail(CTL_EXIT_USAGE, "unknown option %s; see spdlctl --help", word);
}

const struct ctl_verb *ctl_verb_find(const char *name)
{
    for (const struct ctl_verb *verb = ctl_verbs; verb->name; verb++) {
        if (strcmp(verb->name, name) == 0)
            return verb;
    }
    return NULL;
}

static int args_unknown_verb(const char *name)
{
    const char *nearest = "help"; /* the one that is no row of the table */
    uint32_t best = ctl_name_distance(name, nearest);
    for (const struct ctl_verb *verb = ctl_verbs; verb->name; verb++) {
        uint32_t distance = verb->run ? ctl_name_distance(name, verb->name) : UINT32_MAX;
        if (distance < best) {
            best = distance;
            nearest = verb->name;
        }
    }
    if (is_near(name, best))
        return ctl_fail(CTL_EXIT_USAGE, "unknown verb %s; the nearest is %s", name, nearest);
    return ctl_fail(CTL_EXIT_USAGE, "unknown verb %s; see spdlctl --help", name);
}

/* The option that a word names: --NAME, --NAME=VALUE or -L; *ret_value is the value behind the
 * equals sign, or NULL. */
static const struct args_option *args_find(const char *word, const char **ret_value)
{
    *ret_value = NULL;
    for (size_t i = 0; i < ARGS_COUNT; i++) {
        const struct args_option *option = &args_options[i];
        if (word[1] != '-') {
            if (option->letter && word[1] == option->letter && !word[2])
                return option;
            continue;
        }
        size_t length = strlen(option->name);
        if (strncmp(word + 2, option->name, length) != 0)
            continue;
        char behind = word[2 + length];
        if (behind == '=')
            *ret_value = word + 2 + length + 1;
        if (behind == '=' || behind == '\0')
            return option;
    }
    return NULL;
}

static int args_store(const struct args_option *option, const char *value,
                      struct ctl_options *options)
{
    char *base = (char *)options;
    void *at = base + option->offset;
    switch (option->type) {
    case ARGS_FLAG:
        *(bool *)at = true;
        break;
    case ARGS_STRING:
        if (!*value)
            return ctl_fail(CTL_EXIT_USAGE, "--%s is empty", option->name);
        memcpy(at, &value, sizeof value);
        break;
    case ARGS_UNSIGNED:
    case ARGS_POSITIVE: {
        uint64_t number, least = option->type == ARGS_POSITIVE;
        if (!ctl_parse_unsigned(value, option->max, &number) || number < least)
            return ctl_fail(CTL_EXIT_USAGE, "--%s %s: not a whole number from %llu to %llu",
                            option->name, value, (unsigned long long)least,
                            (unsigned long long)option->max);
        memcpy(at, &number, sizeof number);
        break;
    }
    case ARGS_SECONDS: {
        double number;
        if (!ctl_parse_seconds(value, &number))
            return ctl_fail(CTL_EXIT_USAGE, "--%s %s: not a number of seconds", option->name,
                            value);
        memcpy(at, &number, sizeof number);
        break;
    }
    case ARGS_SETS:
        if (!strchr(value, '=') || value[0] == '=')
            return ctl_fail(CTL_EXIT_USAGE, "--set %s: not KEY=VALUE", value);
        if (options->set_count == CTL_SETS_MAX)
            return ctl_fail(CTL_EXIT_USAGE, "more than %d times --set", (int)CTL_SETS_MAX);
        options->sets[options->set_count++] = value;
        break;
    }
    if (option->given)
        *(bool *)(void *)(base + option->given) = true;
    return 0;
}

static int args_operand(const char *word, struct ctl_options *options)
{
    if (!options->verb) {
        options->verb = word;
        return 0;
    }
    if (options->operand_count == CTL_OPERANDS_MAX)
        return ctl_fail(CTL_EXIT_USAGE, "more than %d operands", (int)CTL_OPERANDS_MAX);
    options->operands[options->operand_count++] = word;
    return 0;
}

/* The verb is known and takes each of the options that were given. */
static int args_check(const struct ctl_options *options, const bool *given)
{
    const struct ctl_verb *verb = ctl_verb_find(options->verb);
    if (!verb)
        return args_unknown_verb(options->verb);
    if (!verb->run)
        return ctl_fail(CTL_EXIT_USAGE, "%s: not in this version", verb->name);
    for (size_t i = 0; i < ARGS_COUNT; i++) {
        if (given[i] && !(args_options[i].verbs & (int)verb->bit))
            return ctl_fail(CTL_EXIT_USAGE,
                            "%s has no option --%s; `spdlctl %s --help` lists its options",
                            verb->name, args_options[i].name, verb->name);
    }
    if (options->config && !options->is_private)
        return ctl_fail(CTL_EXIT_USAGE, "-c is the configuration of a private daemon: add "
                                        "--private, or start `spdld -c FILE`");
    if (options->set_count && !options->is_private)
        return ctl_fail(CTL_EXIT_USAGE, "--set is a setting of a private daemon: add --private");
    if (options->socket && options->is_private)
        return ctl_fail(CTL_EXIT_USAGE, "--socket and --private exclude each other");
    if (options->operand_count < verb->operands_min && !options->source)
        return ctl_fail(CTL_EXIT_USAGE, "%s: %s is missing", verb->name, verb->operands);
    if (options->operand_count > verb->operands_max)
        return ctl_fail(CTL_EXIT_USAGE, "%s: %s is one operand too many", verb->name,
                        options->operands[verb->operands_max]);
    return 0;
}

/* `help VERB` is `VERB --help`. */
static int args_take_help(struct ctl_options *options)
{
    if (!options->verb || strcmp(options->verb, "help") != 0)
        return 0;
    options->help = true;
    options->verb = options->operand_count ? options->operands[0] : NULL;
    if (options->operand_count > 1)
        return ctl_fail(CTL_EXIT_USAGE, "help: %s is one operand too many", options->operands[1]);
    const struct ctl_verb *verb = options->verb ? ctl_verb_find(options->verb) : NULL;
    if (options->verb && !verb)
        return args_unknown_verb(options->verb);
    if (verb && !verb->run)
        return ctl_fail(CTL_EXIT_USAGE, "%s: not in this version", verb->name);
    return 0;
}

int ctl_args_parse(int argc, char *const argv[], struct ctl_options *ret_options)
{
    bool given[ARGS_COUNT] = {false}, ended = false;
    *ret_options = (struct ctl_options){0};
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value;
        int rc;
        if (ended || word[0] != '-' || !word[1]) {
            rc = args_operand(word, ret_options);
        } else if (strcmp(word, "--") == 0) {
            ended = true;
            continue;
        } else {
            const struct args_option *option = args_find(word, &value);
            if (!option)
                return args_unknown_option(
                    word, ret_options->verb ? ctl_verb_find(ret_options->verb) : NULL);
            if (!option->value && value)
                return ctl_fail(CTL_EXIT_USAGE, "--%s takes no value", option->name);
            if (option->value && !value && ++i == argc)
                return ctl_fail(CTL_EXIT_USAGE, "%s: %s is missing", word, option->value);
            given[option - args_options] = true;
            rc = args_store(option, value ? value : option->value ? argv[i] : "", ret_options);
        }
        if (rc != 0)
            return rc;
    }
    int rc = args_take_help(ret_options);
    if (rc != 0 || ret_options->help || ret_options->version)
        return rc;
    if (!ret_options->verb)
        return ctl_fail(CTL_EXIT_USAGE, "a verb is missing; see spdlctl --help");
    return args_check(ret_options, given);
}

static void args_help_options(struct ctl_text *text, const struct ctl_verb *verb)
{
    for (size_t i = 0; i < ARGS_COUNT; i++) {
        const struct args_option *option = &args_options[i];
        bool global = option->verbs == ARGS_ALL;
        if (verb ? global || !(option->verbs & (int)verb->bit) : !global)
            continue;
        struct ctl_text left = {0};
        if (option->letter)
            ctl_text_printf(&left, "-%c, ", option->letter);
        ctl_text_printf(&left, "--%s%s%s", option->name, option->value ? " " : "",
                        option->value ? option->value : "");
        ctl_text_printf(text, "  %-22.*s %s\n", (int)left.bytes, left.data ? left.data : "",
                        option->help);
        ctl_text_fini(&left);
    }
}

void ctl_args_help(const struct ctl_verb *verb, struct ctl_text *text)
{
    static const char usage[] =
        "spdlctl [--socket PATH | --private [-c FILE]] [--set KEY=VALUE]... [--json]";
    if (verb) {
        ctl_text_printf(text, "%s %s%s%s\n\n%s.\n", usage, verb->name, *verb->operands ? " " : "",
                        verb->operands, verb->summary);
        struct ctl_text own = {0};
        args_help_options(&own, verb);
        if (own.bytes) {
            ctl_text_str(text, "\nOptions:\n");
            ctl_text_put(text, own.data, own.bytes);
        }
        ctl_text_fini(&own);
    } else {
        ctl_text_printf(text, "%s VERB ...\n\nVerbs:\n", usage);
        for (const struct ctl_verb *row = ctl_verbs; row->name; row++) {
            if (row->run)
                ctl_text_printf(text, "  %-10s %-10s %s\n", row->name, row->operands, row->summary);
        }
        ctl_text_str(text, "`spdlctl help VERB` lists the options of a verb.\n");
    }
    ctl_text_str(text, "\nOptions of every verb:\n");
    args_help_options(text, NULL);
    ctl_text_str(text, "\nExit codes: 0 done, 1 failed, 2 wrong usage, 3 no daemon, 4 refused "
                       "(rights, budget or another\nconfiguration), 5 ended by a limit of "
                       "failures.\n");
}
