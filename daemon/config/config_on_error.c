/* The words of --on-error, as they come from a rank: a policy and the limits behind it. In: text.
 * Out: a struct config_on_error. Pure, any thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/config_dataset.h"
#include "config/config_read.h"
#include "config/config_units.h"

enum { WORD_BYTES = 64 };

static int policy_take(const char *word, struct config_on_error *on_error, struct err *reterr)
{
    struct config_nearest nearest;
    char hint[CONFIG_SHOW_BYTES];
    config_nearest_init(&nearest, word);
    for (const struct config_choice *choice = config_policies; choice->name; choice++) {
        if (strcmp(choice->name, word) == 0) {
            on_error->policy = choice->value;
            return 0;
        }
        config_nearest_try(&nearest, choice->name);
    }
    return err_set(reterr, -EINVAL, "'%s' is not a policy: use substitute, mask or fail%s", word,
                   config_nearest_hint(&nearest, hint));
}

static int rate_take(const char *text, struct config_on_error *on_error, struct err *reterr)
{
    double rate = 0;
    if (config_units_double(text, &rate) < 0 || !(rate >= 0 && rate <= 1))
        return err_set(reterr, -EINVAL, "max_rate is a number from 0 to 1, not '%s'", text);
    on_error->max_rate = (uint32_t)(rate * CONFIG_RATE_UNIT + 0.5);
    return 0;
}

static int consecutive_take(const char *text, struct config_on_error *on_error, struct err *reterr)
{
    char *end = NULL;
    unsigned long number = 0;
    if (*text >= '0' && *text <= '9')
        number = strtoul(text, &end, 10); /* too large a number gives the largest */
    if (!end || *end != '\0' || number < 1 || number > CONFIG_CONSECUTIVE_MAX)
        return err_set(reterr, -EINVAL, "max_consecutive is a whole number from 1 to %d, not '%s'",
                       (int)CONFIG_CONSECUTIVE_MAX, text);
    on_error->max_consecutive = (uint32_t)number;
    return 0;
}

static int limit_take(const char *word, struct config_on_error *on_error, struct err *reterr)
{
    static const char rate[] = "max_rate=", consecutive[] = "max_consecutive=";
    if (strncmp(word, rate, sizeof rate - 1) == 0)
        return rate_take(word + sizeof rate - 1, on_error, reterr);
    if (strncmp(word, consecutive, sizeof consecutive - 1) == 0)
        return consecutive_take(word + sizeof consecutive - 1, on_error, reterr);
    return err_set(reterr, -EINVAL, "'%s' behind the policy is not max_rate=x or max_consecutive=n",
                   word);
}

int config_on_error_read(const char *text, struct config_on_error *on_error, struct err *reterr)
{
    struct config_on_error read = *on_error;
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char word[WORD_BYTES] = "";
        size_t bytes = strcspn(at, ",");
        memcpy(word, at, bytes < sizeof word - 1 ? bytes : sizeof word - 1);
        int rc = at == text ? policy_take(word, &read, reterr) : limit_take(word, &read, reterr);
        if (rc < 0)
            return rc;
    }
    *on_error = read;
    return 0;
}
