/* The differences between two configurations, a line each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/config_settings.h"
#include "config/config_values.h"

enum { WHAT_BYTES = 256 };

static void difference_print(FILE *out, const char *what, const char *name, const char *mine,
                             const char *other)
{
    if (strcmp(mine, other) != 0)
        fprintf(out, "%s%s: running %s, asked %s\n", what, name, mine[0] ? mine : "none",
                other[0] ? other : "none");
}

static const struct field_spec *field_of(const struct config_dataset *dataset, const char *name)
{
    for (uint32_t i = 0; i < dataset->field_count; i++) {
        if (strcmp(dataset->fields[i].name, name) == 0)
            return &dataset->fields[i];
    }
    return NULL;
}

static void names_print(FILE *out, const struct config_dataset *dataset)
{
    fputs("[", out);
    for (uint32_t i = 0; i < dataset->field_count; i++)
        fprintf(out, "%s%s", i ? ", " : "", dataset->fields[i].name);
    fputs("]", out);
}

/* The order of fields counts as well: it goes into their random draws. */
static const struct config_dataset_row names_row = {"fields", names_print};

static int dataset_diff_row(FILE *out, const char *what, const struct config_dataset_row *row,
                            const struct config_dataset *mine, const struct config_dataset *other)
{
    char *a = config_dataset_row_text(row, mine);
    char *b = config_dataset_row_text(row, other);
    int rc = a && b ? 0 : -1;
    if (rc == 0)
        difference_print(out, what, row->name, a, b);
    free(a);
    free(b);
    return rc;
}

static int field_diff(FILE *out, const char *what, const struct field_spec *mine,
                      const struct field_spec *other)
{
    int rc = 0;
    for (const struct config_field_row *row = config_field_rows; row->name && rc == 0; row++) {
        char *a = config_field_row_text(row, mine);
        char *b = config_field_row_text(row, other);
        char name[WHAT_BYTES];
        snprintf(name, sizeof name, "fields.%s.%s", mine->name, row->name);
        rc = a && b ? 0 : -1;
        if (rc == 0)
            difference_print(out, what, name, a, b);
        free(a);
        free(b);
    }
    return rc;
}

static int dataset_diff(FILE *out, const struct config_dataset *mine,
                        const struct config_dataset *other)
{
    char what[WHAT_BYTES];
    snprintf(what, sizeof what, "datasets.%s.", mine->name);
    int rc = 0;
    for (const struct config_dataset_row *row = config_dataset_rows; row->name && rc == 0; row++)
        rc = dataset_diff_row(out, what, row, mine, other);
    if (rc == 0)
        rc = dataset_diff_row(out, what, &names_row, mine, other);
    for (uint32_t i = 0; i < mine->field_count && rc == 0; i++) {
        const struct field_spec *field = field_of(other, mine->fields[i].name);
        if (field)
            rc = field_diff(out, what, &mine->fields[i], field);
    }
    return rc;
}

char *config_diff(const struct config *mine, const struct config *other)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    for (const struct config_opt *opt = config_settings; opt->name; opt++) {
        char a[CONFIG_SETTING_TEXT_BYTES], b[CONFIG_SETTING_TEXT_BYTES];
        difference_print(out, opt->name, "", config_setting_text(opt, mine, a),
                         config_setting_text(opt, other, b));
    }
    int rc = 0;
    for (uint32_t i = 0; i < mine->dataset_count && rc == 0; i++) {
        const struct config_dataset *same = config_dataset_find(other, mine->datasets[i].name);
        if (same)
            rc = dataset_diff(out, &mine->datasets[i], same);
        else
            fprintf(out, "datasets.%s: only in the running configuration\n",
                    mine->datasets[i].name);
    }
    for (uint32_t i = 0; i < other->dataset_count && rc == 0; i++) {
        if (!config_dataset_find(mine, other->datasets[i].name))
            fprintf(out, "datasets.%s: only in the asked configuration\n", other->datasets[i].name);
    }
    text = config_values_done(out, &text);
    if (rc == 0)
        return text;
    free(text);
    return NULL;
}
