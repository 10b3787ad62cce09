/* The configuration in force as text, and the sample file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/config_dataset.h"
#include "config/config_settings.h"
#include "config/config_text.h"
#include "config/config_units.h"
#include "config/config_values.h"

/* Begins the line of a dotted name; the group's own line comes before its first member. `group`
 * keeps the group between calls. */
static void name_print(FILE *out, const char *indent, const char *name,
                       char group[CONFIG_NAME_BYTES])
{
    const char *dot = strchr(name, '.');
    size_t bytes = dot ? (size_t)(dot - name) : 0;
    if (!dot) {
        group[0] = '\0';
        fprintf(out, "%s%s: ", indent, name);
        return;
    }
    if (strncmp(group, name, bytes) != 0 || group[bytes] != '\0') {
        snprintf(group, CONFIG_NAME_BYTES, "%.*s", (int)bytes, name);
        fprintf(out, "%s%s:\n", indent, group);
    }
    fprintf(out, "%s  %s: ", indent, dot + 1);
}

/* The name of a file may hold any byte; within a comment none of them may end the line. */
static void origin_print(FILE *out, const struct config *config, const struct config_origin *origin)
{
    if (origin->kind == CONFIG_ORIGIN_SET)
        fputs(", by --set", out);
    if (origin->kind == CONFIG_ORIGIN_LIVE)
        fputs(", by spdlctl set", out);
    if (origin->kind != CONFIG_ORIGIN_FILE)
        return;
    fputs(", by ", out);
    config_values_quote(out, config_text_is_utf8(config->file) ? config->file : "the file");
    fprintf(out, ":%" PRIu32, origin->line);
}

static void settings_print(FILE *out, const struct config *config, const struct config *defaults,
                           int only_differences)
{
    char group[CONFIG_NAME_BYTES] = "";
    for (const struct config_opt *opt = config_settings; opt->name; opt++) {
        char text[CONFIG_SETTING_TEXT_BYTES], initial[CONFIG_SETTING_TEXT_BYTES];
        config_setting_text(opt, config, text);
        config_setting_text(opt, defaults, initial);
        int same = strcmp(text, initial) == 0;
        if (same && (only_differences || (opt->flags & CONFIG_OPT_HIDDEN)))
            continue;
        name_print(out, "", opt->name, group);
        fputs(text, out);
        if (!same) {
            fprintf(out, " # default %s", initial);
            origin_print(out, config, &config->origins[opt - config_settings]);
        }
        fputs("\n", out);
    }
}

static void field_print(FILE *out, const struct field_spec *field)
{
    fprintf(out, "      ");
    config_values_quote(out, field->name);
    fputs(":\n", out);
    for (const struct config_field_row *row = config_field_rows; row->name; row++) {
        char *text = config_field_row_text(row, field);
        if (text && text[0])
            fprintf(out, "        %s: %s\n", row->name, text);
        free(text);
    }
}

static void dataset_print(FILE *out, const struct config_dataset *dataset)
{
    char group[CONFIG_NAME_BYTES] = "";
    fputs("  ", out);
    config_values_quote(out, dataset->name);
    fputs(":\n", out);
    for (const struct config_dataset_row *row = config_dataset_rows; row->name; row++) {
        char *text = config_dataset_row_text(row, dataset);
        if (text && text[0]) {
            name_print(out, "    ", row->name, group);
            fputs(text, out);
            fputs("\n", out);
        }
        free(text);
    }
    if (dataset->field_count == 0)
        return;
    fputs("    fields:\n", out);
    for (uint32_t i = 0; i < dataset->field_count; i++)
        field_print(out, &dataset->fields[i]);
}

char *config_print(const struct config *config, int only_differences)
{
    char *text = NULL;
    size_t bytes = 0;
    struct config *defaults = malloc(sizeof *defaults);
    FILE *out = defaults ? open_memstream(&text, &bytes) : NULL;
    if (!out) {
        free(defaults);
        return NULL;
    }
    config_settings_init(defaults);
    settings_print(out, config, defaults, only_differences);
    if (config->dataset_count > 0)
        fputs("datasets:\n", out);
    for (uint32_t i = 0; i < config->dataset_count; i++)
        dataset_print(out, &config->datasets[i]);
    free(defaults);
    return config_values_done(out, &text);
}

/* "(2 to 64)" and the like behind a setting's help. */
static void limits_print(FILE *out, const struct config_opt *opt)
{
    char low[CONFIG_UNITS_TEXT_BYTES], high[CONFIG_UNITS_TEXT_BYTES];
    const char *or_auto = opt->flags & CONFIG_OPT_AUTO ? "auto, or " : "";
    switch (opt->type) {
    case CONFIG_TYPE_SIZE:
        fprintf(out, " (%s%s to %s)", or_auto, config_units_size_text(opt->min, low),
                config_units_size_text(opt->max, high));
        break;
    case CONFIG_TYPE_COUNT:
        fprintf(out, " (%s%" PRIu64 " to %" PRIu64 ")", or_auto, opt->min, opt->max);
        break;
    case CONFIG_TYPE_DURATION:
        fprintf(out, " (%s%s to %s)", or_auto, config_units_duration_text(opt->min, low),
                config_units_duration_text(opt->max, high));
        break;
    case CONFIG_TYPE_CHOICE:
        for (const struct config_choice *choice = opt->choices; choice->name; choice++)
            fprintf(out, "%s%s", choice == opt->choices ? " (" : " ", choice->name);
        fputs(")", out);
        break;
    case CONFIG_TYPE_STRING:
    case CONFIG_TYPE_PATH:
    case CONFIG_TYPE_MODE:
        break;
    }
    if (opt->flags & CONFIG_OPT_LIVE)
        fputs("; live", out);
}

static size_t group_bytes(const char *name)
{
    const char *dot = strchr(name, '.');
    return dot ? (size_t)(dot - name) : strlen(name);
}

/* All rows of one top-level key: their help, then one line that can be uncommented. Returns the row
 * behind them. */
static const struct config_opt *key_print(FILE *out, const struct config_opt *first,
                                          const struct config *defaults)
{
    char text[CONFIG_SETTING_TEXT_BYTES];
    size_t bytes = group_bytes(first->name);
    const struct config_opt *end = first;
    while (end->name && group_bytes(end->name) == bytes &&
           strncmp(end->name, first->name, bytes) == 0)
        end++;
    fputs("\n", out);
    for (const struct config_opt *opt = first; opt < end; opt++) {
        if (opt->flags & CONFIG_OPT_HIDDEN)
            continue;
        fputs("# ", out);
        if (strchr(opt->name, '.'))
            fprintf(out, "%s: ", opt->name + bytes + 1);
        fputs(opt->help, out);
        limits_print(out, opt);
        fputs("\n", out);
    }
    fprintf(out, "#%.*s: ", (int)bytes, first->name);
    const char *before = strchr(first->name, '.') ? "{" : "";
    for (const struct config_opt *opt = first; opt < end; opt++) {
        if (opt->flags & CONFIG_OPT_HIDDEN)
            continue;
        fputs(before, out);
        if (before[0])
            fprintf(out, "%s: ", opt->name + bytes + 1);
        fputs(config_setting_text(opt, defaults, text), out);
        before = ", ";
    }
    fputs(strchr(first->name, '.') ? "}\n" : "\n", out);
    return end;
}

static const char sample_head[] =
    "# Configuration of spdld. Every setting stands here as a comment with its default. Those that "
    "are "
    "live, and\n"
    "# datasets, are changed by `spdlctl reload` while spdld runs; the others when it starts "
    "again.\n"
    "# Sizes take KiB MiB GiB KB MB GB, and are bytes without a unit.\n";

static const char sample_datasets[] =
    "\n"
    "# Datasets, here or in files of their own in datasets.d. Presets:";

static const char sample_example[] = "\n"
                                     "#datasets:\n"
                                     "#  photos:\n"
                                     "#    source: {folder: /data/photos}\n"
                                     "#    preset: imagenet-train\n";

char *config_print_defaults(void)
{
    char *text = NULL;
    size_t bytes = 0;
    struct config *defaults = malloc(sizeof *defaults);
    FILE *out = defaults ? open_memstream(&text, &bytes) : NULL;
    if (!out) {
        free(defaults);
        return NULL;
    }
    config_settings_init(defaults);
    fputs(sample_head, out);
    for (const struct config_opt *opt = config_settings; opt->name;)
        opt = key_print(out, opt, defaults);
    fputs(sample_datasets, out);
    for (const struct config_preset *preset = config_presets; preset->name; preset++)
        fprintf(out, " %s", preset->name);
    fputs(sample_example, out);
    free(defaults);
    return config_values_done(out, &text);
}
