/* The table of settings: a row gives name, type, limits, default and help of a setting, and so its
 * YAML, --set, the sample file, the printed configuration and differences. Non-logging, any role.
 */
#ifndef SPDLD_CONFIG_SETTINGS_H
#define SPDLD_CONFIG_SETTINGS_H

#include <stddef.h>
#include <stdint.h>

#include "config/config.h"
#include "config/config_read.h"

enum config_type {
    CONFIG_TYPE_STRING,   /* char[] */
    CONFIG_TYPE_PATH,     /* char[] */
    CONFIG_TYPE_MODE,     /* uint32_t */
    CONFIG_TYPE_SIZE,     /* uint64_t, bytes */
    CONFIG_TYPE_COUNT,    /* uint32_t or uint64_t */
    CONFIG_TYPE_DURATION, /* uint64_t, ns */
    CONFIG_TYPE_CHOICE    /* uint32_t, number of a word */
};

enum {
    CONFIG_OPT_RESTART = 1, /* takes effect when spdld starts again */
    CONFIG_OPT_LIVE = 2,    /* takes effect while spdld runs */
    CONFIG_OPT_AUTO = 4,    /* may be "auto", kept as 0 */
    CONFIG_OPT_HIDDEN =
        8 /* for tests: not in the sample file, not among the names that are offered */
};

struct config_opt {
    const char *name; /* dotted; rows of a group are neighbours */
    enum config_type type;
    uint32_t flags;
    size_t offset, bytes; /* of the member in struct config */
    uint64_t min, max;
    const char *initial; /* the default as text; "" only for a string that may be empty */
    const struct config_choice *choices;
    const char *help; /* one sentence without a full stop */
};

enum { CONFIG_SETTING_TEXT_BYTES = 8192 };

extern const struct config_opt config_settings[]; /* ends with a row without a name */

/* Every setting at its default. */
void config_settings_init(struct config *config);

const struct config_opt *config_setting_find(const char *name); /* NULL: none */

/* Reads a value into its member. 0 or -EINVAL after a complaint. */
int config_setting_read(struct config_reader *reader, const struct config_opt *opt,
                        const struct config_node *node, struct config *config);

/* Reads the settings out of a file's mapping; `datasets` is left for another. -EINVAL when anything
 * was wrong. */
void config_settings_read(struct config_reader *reader, const struct config_node *root,
                          struct config *config);

/* Reads "KEY=VALUE" of the command line (CONFIG_ORIGIN_SET) or of a call (CONFIG_ORIGIN_LIVE). */
void config_settings_assign(struct config_complaints *complaints, uint32_t origin,
                            const char *assignment, struct config *config);

/* The values of the live settings, and where all values are from. */
void config_settings_live_copy(struct config *to, const struct config *from);

/* Checks that need more than one setting. */
void config_settings_check(const struct config *config, struct config_complaints *complaints);

/* The value as YAML. Returns text. */
const char *config_setting_text(const struct config_opt *opt, const struct config *config,
                                char text[CONFIG_SETTING_TEXT_BYTES]);

#endif
