/* The differences between two configurations: told one by one, or as text with a line each. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/config_settings.h"
#include "config/config_values.h"

enum { WHAT_BYTES = 256 };

struct walk {
    void (*tell)(void *context, const char *name, const char *mine, const char *other);
    void *context;
};

static void difference_tell(const struct walk *walk, const char *what, const char *name,
                            const char *mine, const char *other)
{
    char whole[WHAT_BYTES * 2];
    if (strcmp(mine, other) == 0)
        return;
    snprintf(whole, sizeof whole, "%s%s", what, name);
    walk->tell(walk->context, whole, mine, other);
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

static int dataset_diff_row(const struct walk *walk, const char *what,
                            const struct config_dataset_row *row, const struct config_dataset *mine,
                            const struct config_dataset *other)
{
    char *a = config_dataset_row_text(row, mine);
    char *b = config_dataset_row_text(row, other);
    int rc = a && b ? 0 : -1;
    if (rc == 0)
        difference_tell(walk, what, row->name, a, b);
    free(a);
    free(b);
    return rc;
}

static int field_diff(const struct walk *walk, const char *what, const struct field_spec *mine,
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
            difference_tell(walk, what, name, a, b);
        free(a);
        free(b);
    }
    return rc;
}

static int dataset_diff(const struct walk *walk, const struct config_dataset *mine,
                        const struct config_dataset *other)
{
    char what[WHAT_BYTES];
    snprintf(what, sizeof what, "datasets.%s.", mine->name);
    int rc = 0;
    for (const struct config_dataset_row *row = config_dataset_rows; row->name && rc == 0; row++)
        rc = dataset_diff_row(walk, what, row, mine, other);
    if (rc == 0)
        rc = dataset_diff_row(walk, what, &names_row, mine, other);
    for (uint32_t i = 0; i < mine->field_count && rc == 0; i++) {
        const struct field_spec *field = field_of(other, mine->fields[i].name);
        if (field)
            rc = field_diff(walk, what, &mine->fields[i], field);
    }
    return rc;
}

int config_compare(const struct config *mine, const struct config *other,
                   void (*tell)(void *context, const char *name, const char *mine,
                                const char *other),
                   void *context)
{
    const struct walk walk = {.tell = tell, .context = context};
    char name[WHAT_BYTES];
    int rc = 0;
    for (const struct config_opt *opt = config_settings; opt->name; opt++) {
        char a[CONFIG_SETTING_TEXT_BYTES], b[CONFIG_SETTING_TEXT_BYTES];
        difference_tell(&walk, opt->name, "", config_setting_text(opt, mine, a),
                        config_setting_text(opt, other, b));
    }
    for (uint32_t i = 0; i < mine->dataset_count && rc == 0; i++) {
        const struct config_dataset *same = config_dataset_find(other, mine->datasets[i].name);
        if (same)
            rc = dataset_diff(&walk, &mine->datasets[i], same);
        snprintf(name, sizeof name, "datasets.%s", mine->datasets[i].name);
        if (!same)
            tell(context, name, "there", NULL);
    }
    for (uint32_t i = 0; i < other->dataset_count && rc == 0; i++) {
        snprintf(name, sizeof name, "datasets.%s", other->datasets[i].name);
        if (!config_dataset_find(mine, other->datasets[i].name))
            tell(context, name, NULL, "there");
    }
    return rc == 0 ? 0 : -ENOMEM;
}

struct text_of {
    FILE *out;
    const struct config *mine;
};

static void text_tell(void *context, const char *name, const char *mine, const char *other)
{
    const struct text_of *text = context;
    const struct config_opt *opt = config_setting_find(name);
    /* What was set while it runs was asked for by nobody's command line. */
    if (opt && text->mine->origins[opt - config_settings].kind == CONFIG_ORIGIN_LIVE)
        return;
    if (!other)
        fprintf(text->out, "%s: only in the running configuration\n", name);
    else if (!mine)
        fprintf(text->out, "%s: only in the asked configuration\n", name);
    else
        fprintf(text->out, "%s: running %s, asked %s\n", name, mine[0] ? mine : "none",
                other[0] ? other : "none");
}

char *config_diff(const struct config *mine, const struct config *other)
{
    char *text = NULL;
    size_t bytes = 0;
    struct text_of context = {.out = open_memstream(&text, &bytes), .mine = mine};
    if (!context.out)
        return NULL;
    int rc = config_compare(mine, other, text_tell, &context);
    text = config_values_done(context.out, &text);
    if (rc == 0)
        return text;
    free(text);
    return NULL;
}
