/* The command line of spdlctl: one table of options, from which parsing, checks and help are made.
 */
#ifndef SPDL_CTL_ARGS_H
#define SPDL_CTL_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/ctl/ctl_text.h"

enum { CTL_SETS_MAX = 64, CTL_OPERANDS_MAX = 256, CTL_RANKS_MAX = 1024 };

/* What was asked. Strings are borrowed from argv. Numbers that were not given are 0 unless said
 * otherwise. */
struct ctl_options {
    bool json, is_private, help, version;
    const char *socket, *config;
    const char *sets[CTL_SETS_MAX];
    uint32_t set_count;

    const char *source, *preset, *state, *on_error;
    uint64_t batch; /* 0: the verb's own default */
    uint64_t rank, world, seed, epoch, step, steps, slots;
    bool has_seed, has_epoch, has_step, has_reconnect, has_timeout, has_seconds;
    double reconnect_s, timeout_s;

    bool hash, draws;
    uint64_t delay_ms;
    const char *out; /* folder of pull, file of preview */
    double seconds;
    uint64_t ranks;
    bool diff;
    bool publish;

    const char *verb; /* NULL: none was given */
    const char *operands[CTL_OPERANDS_MAX];
    uint32_t operand_count;
};

struct ctl_verb {
    const char *name;
    uint32_t bit;
    const char *operands; /* as help shows them, "" for none */
    uint32_t operands_min, operands_max;
    const char *summary;
    int (*run)(const struct ctl_options *options); /* NULL: a name kept for a later version */
};

/* Every verb, a row each; ends with a zeroed row. */
extern const struct ctl_verb ctl_verbs[];
enum {
    CTL_VERB_STATUS = 1 << 0,
    CTL_VERB_PULL = 1 << 1,
    CTL_VERB_BENCH = 1 << 2,
    CTL_VERB_PREVIEW = 1 << 3,
    CTL_VERB_DATASETS = 1 << 4,
    CTL_VERB_STREAMS = 1 << 5,
    CTL_VERB_CONFIG = 1 << 6,
    CTL_VERB_CHECK = 1 << 7,
    CTL_VERB_WHY = 1 << 8,
    CTL_VERB_INDEX = 1 << 9,
    CTL_VERB_PLAN = 1 << 12,
    CTL_VERB_QUARANTINE = 1 << 10,
    CTL_VERB_ERRORS = 1 << 11,
    CTL_VERB_SET = 1 << 20,
    CTL_VERB_RELOAD = 1 << 21
};
const struct ctl_verb *ctl_verb_find(const char *name);

/* Reads argv[1 …] into *ret_options and checks that every option belongs to the verb and that the
 * verb has its operands. 0, or CTL_EXIT_USAGE after a sentence on standard error. With --help or
 * --version nothing else is asked for. */
int ctl_args_parse(int argc, char *const argv[], struct ctl_options *ret_options);

/* Help of one verb, or of the program with NULL. */
void ctl_args_help(const struct ctl_verb *verb, struct ctl_text *text);

/* Strict numbers: the whole string, in range. */
bool ctl_parse_unsigned(const char *string, uint64_t max, uint64_t *ret_value);
bool ctl_parse_seconds(const char *string, double *ret_value); /* finite, not negative */

/* How many letters have to be changed, added or left out to make one name of the other; names
 * longer than 31 letters count as far away. */
uint32_t ctl_name_distance(const char *a, const char *b);

#endif
