/* Numbers with units: see config_units.h. */
#include "config/config_units.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *name;
    uint64_t scale;
};

/* Largest first within binary and decimal: the order in which a number's own text is chosen. */
static const struct unit size_units[] = {
    {"GiB", 1ull << 30},
    {"MiB", 1ull << 20},
    {"KiB", 1ull << 10},
    {"GB", 1000000000},
    {"MB", 1000000},
    {"KB", 1000},
    {"", 1},
    {NULL, 0},
};
static const struct unit duration_units[] = {
    {"h", 3600000000000}, {"min", 60000000000}, {"s", 1000000000},
    {"ms", 1000000},      {"us", 1000},         {NULL, 0},
};

/* Digits at the start of text; *ret_rest is behind them. */
static int digits_read(const char *text, uint64_t *ret_count, const char **ret_rest)
{
    uint64_t count = 0;
    const char *at = text;
    int rc = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(count, (uint64_t)10, &count) ||
            __builtin_add_overflow(count, (uint64_t)(*at - '0'), &count))
            rc = -ERANGE;
    }
    if (at == text)
        return -EINVAL;
    *ret_count = count;
    *ret_rest = at;
    return rc;
}

static int units_read(const char *text, const struct unit *units, uint64_t *ret_value)
{
    uint64_t count = 0;
    const char *rest = "";
    int rc = digits_read(text, &count, &rest);
    if (rc == -EINVAL)
        return rc;
    for (const struct unit *unit = units; unit->name; unit++) {
        if (strcmp(rest, unit->name) != 0)
            continue;
        if (rc < 0 || __builtin_mul_overflow(count, unit->scale, &count))
            return -ERANGE;
        *ret_value = count;
        return 0;
    }
    return -EINVAL;
}

static const char *units_text(uint64_t value, const struct unit *units, char *text)
{
    const struct unit *unit = units;
    while (unit[1].name && (value == 0 || value % unit->scale != 0))
        unit++;
    snprintf(text, CONFIG_UNITS_TEXT_BYTES, "%" PRIu64 "%s", value / unit->scale, unit->name);
    return text;
}

int config_units_count(const char *text, uint64_t *ret_count)
{
    static const struct unit none[] = {{"", 1}, {NULL, 0}};
    return units_read(text, none, ret_count);
}

int config_units_size(const char *text, uint64_t *ret_bytes)
{
    return units_read(text, size_units, ret_bytes);
}

int config_units_duration(const char *text, uint64_t *ret_ns)
{
    return units_read(text, duration_units, ret_ns);
}

int config_units_double(const char *text, double *ret_value)
{
    /* strtod takes more than a decimal number (hexadecimal, inf, nan, leading blanks): only these
     * bytes get to it. */
    if (text[0] == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0')
        return -EINVAL;
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end != '\0')
        return -EINVAL;
    if (!isfinite(value))
        return -ERANGE;
    *ret_value = value;
    return 0;
}

const char *config_units_size_text(uint64_t bytes, char text[CONFIG_UNITS_TEXT_BYTES])
{
    return units_text(bytes, size_units, text);
}

const char *config_units_duration_text(uint64_t ns, char text[CONFIG_UNITS_TEXT_BYTES])
{
    return units_text(ns, duration_units, text);
}

const char *config_units_double_text(double value, char text[CONFIG_UNITS_TEXT_BYTES])
{
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(text, CONFIG_UNITS_TEXT_BYTES, "%.*g", precision, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return text;
}
