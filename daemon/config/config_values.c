/* The values of datasets and fields as text, a row each: see config_values.h. */
#include "config/config_values.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_dataset.h"
#include "config/config_settings.h"
#include "config/config_text.h"
#include "config/config_units.h"

void config_values_quote(FILE *out, const char *string)
{
    char text[CONFIG_SETTING_TEXT_BYTES];
    config_text_quote(string, text, sizeof text);
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

static void source_text_print(FILE *out, const char *name, const char *text)
{
    if (!text[0])
        return;
    fprintf(out, ", %s: ", name);
    config_values_quote(out, text);
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
    char line[CONFIG_PATH_BYTES];
    bool is_list = strchr(source->path, '\n') != NULL;
    fprintf(out, "{%s: %s", source->kind, is_list ? "[" : "");
    for (const char *at = source->path; *at;) {
        size_t line_bytes = strcspn(at, "\n");
        memcpy(line, at, line_bytes);
        line[line_bytes] = 0;
        config_values_quote(out, line);
        at += line_bytes + (at[line_bytes] != 0);
        fputs(*at ? ", " : "", out);
    }
    fputs(is_list ? "]" : "", out);
    source_text_print(out, "root", source->root);
    source_text_print(out, "path_column", source->path_column);
    source_text_print(out, "label_column", source->label_column);
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

static void block_samples_print(FILE *out, const struct config_dataset *dataset)
{
    if (dataset->shuffle == CONFIG_SHUFFLE_BLOCK)
        fprintf(out, "%" PRIu64, dataset->block_samples);
}

static void lanes_print(FILE *out, const struct config_dataset *dataset)
{
    if (dataset->shuffle != CONFIG_SHUFFLE_GLOBAL)
        fprintf(out, "%" PRIu32, dataset->lanes);
}

static void policy_print(FILE *out, const struct config_dataset *dataset)
{
    word_print(out, config_policies, dataset->on_error.policy);
}

static void max_rate_print(FILE *out, const struct config_dataset *dataset)
{
    char text[CONFIG_UNITS_TEXT_BYTES];
    double rate = (double)dataset->on_error.max_rate / CONFIG_RATE_UNIT;
    fputs(config_units_double_text(rate, text), out);
}

static void max_consecutive_print(FILE *out, const struct config_dataset *dataset)
{
    fprintf(out, "%" PRIu32, dataset->on_error.max_consecutive);
}

static void last_print(FILE *out, const struct config_dataset *dataset)
{
    word_print(out, config_lasts, dataset->last);
}

const struct config_dataset_row config_dataset_rows[] = {
    {"source", source_print},
    {"order.shuffle", shuffle_print},
    {"order.seed", seed_print},
    {"order.block_samples", block_samples_print},
    {"order.lanes", lanes_print},
    {"on_error.policy", policy_print},
    {"on_error.max_rate", max_rate_print},
    {"on_error.max_consecutive", max_consecutive_print},
    {"last", last_print},
    {"allow", config_allow_print},
    {NULL, NULL},
};

static void from_print(FILE *out, const struct field_spec *field)
{
    for (uint32_t i = 0; i < field->from_count; i++) {
        fputs(i ? ", " : "[", out);
        config_values_quote(out, field->from[i]);
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

static bool is_same(const double *a, const double *b)
{
    return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
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
        if (is_same(row->mean, field->mean) && is_same(row->std, field->std)) {
            fputs(row->name, out);
            return;
        }
    }
    fputs("{mean: ", out);
    doubles_print(out, field->mean, field->channels);
    fputs(", std: ", out);
    doubles_print(out, field->std, field->channels);
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

static void views_print(FILE *out, const struct field_spec *field)
{
    if (field->views)
        fprintf(out, "%" PRIu32, field->views);
}

static void mode_print(FILE *out, const struct field_spec *field)
{
    if (strcmp(field->decoder, "image") == 0)
        word_print(out, config_modes, field->channels);
}

static void max_bytes_print(FILE *out, const struct field_spec *field)
{
    char text[CONFIG_UNITS_TEXT_BYTES];
    if (field->max_bytes)
        fputs(config_units_size_text(field->max_bytes, text), out);
}

static void pad_print(FILE *out, const struct field_spec *field)
{
    if (field->max_bytes)
        fputs(field->pad == FIELD_PAD_YES ? "true" : "false", out);
}

static void missing_print(FILE *out, const struct field_spec *field)
{
    if (field->missing_empty)
        word_print(out, config_missings, CONFIG_MISSING_EMPTY);
}

static void orientation_print(FILE *out, const struct field_spec *field)
{
    if (strcmp(field->decoder, "image") == 0)
        fputs(field->ignore_orientation ? "ignore" : "exif", out);
}

const struct config_field_row config_field_rows[] = {
    {"from", from_print},
    {"decode", decode_print},
    {"ops", ops_print},
    {"normalize", normalize_print},
    {"dtype", dtype_print},
    {"layout", layout_print},
    {"bytes", bytes_print},
    {"orientation", orientation_print},
    {"max_bytes", max_bytes_print},
    {"pad", pad_print},
    {"mode", mode_print},
    {"views", views_print},
    {"missing", missing_print},
    {NULL, NULL},
};

char *config_values_done(FILE *out, char **text)
{
    int failed = ferror(out);
    if (fclose(out) == 0 && !failed)
        return *text;
    free(*text);
    return NULL;
}

char *config_dataset_row_text(const struct config_dataset_row *row,
                              const struct config_dataset *dataset)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    row->print(out, dataset);
    return config_values_done(out, &text);
}

char *config_field_row_text(const struct config_field_row *row, const struct field_spec *field)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    row->print(out, field);
    return config_values_done(out, &text);
}
