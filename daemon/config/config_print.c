/* The configuration as text: in force, as the sample file, and as differences. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/config_dataset.h"
#include "config/config_settings.h"
#include "config/config_units.h"

enum { WHAT_BYTES = 256 };

static void quote_print(FILE *out, const char *string)
{
    char text[CONFIG_SETTING_TEXT_BYTES];
    config_quote(string, text, sizeof text);
    fputs(text, out);
}

static void doubles_print(FILE *out, const double *values, uint32_t count)
{
    char text[CONFIG_UNITS_TEXT_BYTES];
    for (uint32_t i = 0; i < count; i++)
        fprintf(out, "%s%s", i ? ", " : "[", config_units_double_text(values[i], text));
    fputs("]", out);
}

static void word_print(FILE *out, const struct config_choice *choices, uint32_t value)
{
    const char *word = config_choice_name(choices, value);
    fputs(word ? word : "?", out);
}

static void source_print(FILE *out, const struct config_dataset *dataset)
{
    const struct config_source *source = &dataset->source;
    char bytes[CONFIG_UNITS_TEXT_BYTES];
    if (strcmp(source->kind, "synthetic") == 0) {
        fprintf(out, "{synthetic: {samples: %" PRIu64 ", bytes: %s}}", source->samples,
                config_units_size_text(source->bytes, bytes));
        return;
    }
    fprintf(out, "{%s: ", source->kind);
    quote_print(out, source->path);
    fputs("}", out);
}

static void shuffle_print(FILE *out, const struct config_dataset *dataset)
{
    word_print(out, config_shuffles, dataset->shuffle);
}

static void seed_print(FILE *out, const struct config_dataset *dataset)
{
    fprintf(out, "%" PRIu64, dataset->seed);
}

static void policy_print(FILE *out, const struct config_dataset *dataset)
{
    word_print(out, config_policies, dataset->policy);
}

static void last_print(FILE *out, const struct config_dataset *dataset)
{
    word_print(out, config_lasts, dataset->last);
}

/* What a dataset has besides its fields. */
static const struct dataset_row {
    const char *name;
    void (*print)(FILE *out, const struct config_dataset *dataset);
} dataset_rows[] = {
    {"source", source_print},   {"order.shuffle", shuffle_print},
    {"order.seed", seed_print}, {"on_error.policy", policy_print},
    {"last", last_print},       {NULL, NULL},
};

static void from_print(FILE *out, const struct field_spec *field)
{
    for (uint32_t i = 0; i < field->from_count; i++) {
        fputs(i ? ", " : "[", out);
        quote_print(out, field->from[i]);
    }
    fputs("]", out);
}

static void decode_print(FILE *out, const struct field_spec *field)
{
    fputs(field->decoder, out);
}

static void op_print(FILE *out, const struct op_spec *op)
{
    const struct config_op *row = config_op_find(op->kind);
    char number[CONFIG_UNITS_TEXT_BYTES];
    const char *comma = "";
    if (!row) {
        fputs("?", out);
        return;
    }
    fprintf(out, "{%s: {", row->name);
    if ((row->params & CONFIG_OP_SIZE) && op->width == 0)
        fprintf(out, "size: %" PRId32, op->height);
    else if (row->params & CONFIG_OP_SIZE)
        fprintf(out, "size: [%" PRId32 ", %" PRId32 "]", op->height, op->width);
    comma = row->params & CONFIG_OP_SIZE ? ", " : "";
    if (row->params & CONFIG_OP_SCALE) {
        fprintf(out, "%sscale: ", comma);
        doubles_print(out, op->scale, 2);
    }
    if (row->params & CONFIG_OP_RATIO) {
        fprintf(out, "%sratio: ", comma);
        doubles_print(out, op->ratio, 2);
    }
    if (row->params & CONFIG_OP_FILTER) {
        fprintf(out, "%sfilter: ", comma);
        word_print(out, config_filters, op->filter);
    }
    if (row->params & CONFIG_OP_P)
        fprintf(out, "%sp: %s", comma, config_units_double_text(op->p, number));
    fputs("}}", out);
}

static void ops_print(FILE *out, const struct field_spec *field)
{
    if (strcmp(field->decoder, "image") != 0)
        return;
    fputs("[", out);
    for (uint32_t i = 0; i < field->op_count; i++) {
        fputs(i ? ", " : "", out);
        op_print(out, &field->ops[i]);
    }
    fputs("]", out);
}

static void normalize_print(FILE *out, const struct field_spec *field)
{
    if (strcmp(field->decoder, "image") != 0)
        return;
    if (!field->normalize) {
        fputs("none", out);
        return;
    }
    for (const struct config_normalization *row = config_normalizations; row->name; row++) {
        if (memcmp(row->mean, field->mean, sizeof row->mean) == 0 &&
            memcmp(row->std, field->std, sizeof row->std) == 0) {
            fputs(row->name, out);
            return;
        }
    }
    fputs("{mean: ", out);
    doubles_print(out, field->mean, 3);
    fputs(", std: ", out);
    doubles_print(out, field->std, 3);
    fputs("}", out);
}

static void dtype_print(FILE *out, const struct field_spec *field)
{
    word_print(out, config_dtypes, field->dtype);
}

static void layout_print(FILE *out, const struct field_spec *field)
{
    if (field->layout)
        word_print(out, config_layouts, field->layout);
}

static void bytes_print(FILE *out, const struct field_spec *field)
{
    char text[CONFIG_UNITS_TEXT_BYTES];
    if (field->bytes)
        fputs(config_units_size_text(field->bytes, text), out);
}

static void orientation_print(FILE *out, const struct field_spec *field)
{
    if (strcmp(field->decoder, "image") == 0)
        fputs(field->ignore_orientation ? "ignore" : "exif", out);
}

/* What a field has; a row that prints nothing does not go with the field. */
static const struct field_row {
    const char *name;
    void (*print)(FILE *out, const struct field_spec *field);
} field_rows[] = {
    {"from", from_print},   {"decode", decode_print},
    {"ops", ops_print},     {"normalize", normalize_print},
    {"dtype", dtype_print}, {"layout", layout_print},
    {"bytes", bytes_print}, {"orientation", orientation_print},
    {NULL, NULL},
};

/* Texts of single values: one stream per call. Returned owned; NULL: no memory. */
static char *dataset_row_text(const struct dataset_row *row, const struct config_dataset *dataset)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    row->print(out, dataset);
    return fclose(out) == 0 ? text : (free(text), NULL);
}

static char *field_row_text(const struct field_row *row, const struct field_spec *field)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    row->print(out, field);
    return fclose(out) == 0 ? text : (free(text), NULL);
}

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

static void origin_print(FILE *out, const struct config *config, const struct config_origin *origin)
{
    if (origin->kind == CONFIG_ORIGIN_SET)
        fputs(", by --set", out);
    else if (origin->kind == CONFIG_ORIGIN_FILE)
        fprintf(out, ", by %s:%" PRIu32, config->file, origin->line);
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
    quote_print(out, field->name);
    fputs(":\n", out);
    for (const struct field_row *row = field_rows; row->name; row++) {
        char *text = field_row_text(row, field);
        if (text && text[0])
            fprintf(out, "        %s: %s\n", row->name, text);
        free(text);
    }
}

static void dataset_print(FILE *out, const struct config_dataset *dataset)
{
    char group[CONFIG_NAME_BYTES] = "";
    fputs("  ", out);
    quote_print(out, dataset->name);
    fputs(":\n", out);
    for (const struct dataset_row *row = dataset_rows; row->name; row++) {
        name_print(out, "    ", row->name, group);
        row->print(out, dataset);
        fputs("\n", out);
    }
    if (dataset->field_count == 0)
        return;
    fputs("    fields:\n", out);
    for (uint32_t i = 0; i < dataset->field_count; i++)
        field_print(out, &dataset->fields[i]);
}

/* Ends a text; NULL when anything went wrong on the way. */
static char *text_done(FILE *out, char **text)
{
    int failed = ferror(out);
    if (fclose(out) == 0 && !failed)
        return *text;
    free(*text);
    return NULL;
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
    return text_done(out, &text);
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
    "# Configuration of spdld. Every setting stands here as a comment with its default. A change "
    "takes effect\n"
    "# when spdld starts again. Sizes take KiB MiB GiB KB MB GB, and are bytes without a unit.\n";

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
    return text_done(out, &text);
}

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
static const struct dataset_row names_row = {"fields", names_print};

static int dataset_diff_row(FILE *out, const char *what, const struct dataset_row *row,
                            const struct config_dataset *mine, const struct config_dataset *other)
{
    char *a = dataset_row_text(row, mine);
    char *b = dataset_row_text(row, other);
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
    for (const struct field_row *row = field_rows; row->name && rc == 0; row++) {
        char *a = field_row_text(row, mine);
        char *b = field_row_text(row, other);
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
    for (const struct dataset_row *row = dataset_rows; row->name && rc == 0; row++)
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
    text = text_done(out, &text);
    if (rc == 0)
        return text;
    free(text);
    return NULL;
}
