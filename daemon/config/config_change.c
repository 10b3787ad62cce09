/* Changes of a configuration that is in use: which of them need a restart, and how the others take
 * their place. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/config_settings.h"

int config_change(const struct config *running, const char *const *sets, uint32_t set_count,
                  struct config **ret_next, struct config_complaints *ret_complaints)
{
    size_t datasets_bytes = running->dataset_count * sizeof *running->datasets;
    struct config *next = malloc(sizeof *next);
    ret_complaints->count = 0;
    if (!next)
        return -ENOMEM;
    *next = *running;
    next->places = NULL;
    next->datasets = malloc(datasets_bytes + 1);
    if (!next->datasets) {
        free(next);
        return -ENOMEM;
    }
    if (datasets_bytes > 0)
        memcpy(next->datasets, running->datasets, datasets_bytes);
    for (uint32_t i = 0; i < set_count; i++)
        config_settings_assign(ret_complaints, CONFIG_ORIGIN_LIVE, sets[i], next);
    config_settings_check(next, ret_complaints);
    if (ret_complaints->count > 0) {
        config_destroy(next);
        return -EINVAL;
    }
    *ret_next = next;
    return 0;
}

enum log_level config_log_level(const struct config *config)
{
    switch ((enum config_log)config->log_level) {
    case CONFIG_LOG_DEBUG:
        return LOG_LEVEL_DEBUG;
    case CONFIG_LOG_INFO:
        return LOG_LEVEL_INFO;
    case CONFIG_LOG_WARNING:
        return LOG_LEVEL_WARNING;
    case CONFIG_LOG_ERROR:
        return LOG_LEVEL_ERROR;
    }
    return LOG_LEVEL_INFO;
}

const char *config_restart_names(const struct config *running, const struct config *next,
                                 char text[CONFIG_RESTART_NAMES_BYTES])
{
    size_t used = 0;
    text[0] = 0;
    for (const struct config_opt *opt = config_settings; opt->name; opt++) {
        char a[CONFIG_SETTING_TEXT_BYTES], b[CONFIG_SETTING_TEXT_BYTES];
        if ((opt->flags & CONFIG_OPT_LIVE) ||
            strcmp(config_setting_text(opt, running, a), config_setting_text(opt, next, b)) == 0)
            continue;
        int bytes = snprintf(text + used, CONFIG_RESTART_NAMES_BYTES - used, "%s%s",
                             used > 0 ? ", " : "", opt->name);
        if (bytes < 0 || (size_t)bytes >= CONFIG_RESTART_NAMES_BYTES - used)
            break;
        used += (size_t)bytes;
    }
    return text;
}

void config_adopt(struct config *running, struct config *next)
{
    struct config_dataset *datasets = running->datasets;
    struct config_place *places = running->places;
    uint32_t dataset_count = running->dataset_count;
    config_settings_live_copy(running, next);
    memcpy(running->file, next->file, sizeof running->file);
    running->datasets = next->datasets;
    running->places = next->places;
    running->dataset_count = next->dataset_count;
    next->datasets = datasets;
    next->places = places;
    next->dataset_count = dataset_count;
}
