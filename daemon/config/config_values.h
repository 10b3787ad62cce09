/* The values of datasets and fields as text in YAML's flow style: what is printed and what is
 * compared. */
#ifndef SPDLD_CONFIG_VALUES_H
#define SPDLD_CONFIG_VALUES_H

#include <stdio.h>

#include "config/config.h"

/* What a dataset has besides its fields; names are dotted. A row that prints nothing does not go
 * with the dataset. */
struct config_dataset_row {
    const char *name;
    void (*print)(FILE *out, const struct config_dataset *dataset);
};
extern const struct config_dataset_row config_dataset_rows[]; /* ends with a row without a name */

/* What a field has; a row that prints nothing does not go with the field. */
struct config_field_row {
    const char *name;
    void (*print)(FILE *out, const struct field_spec *field);
};
extern const struct config_field_row config_field_rows[]; /* ends with a row without a name */

/* What a row prints, as a text. Returned owned; NULL: no memory. */
char *config_dataset_row_text(const struct config_dataset_row *row,
                              const struct config_dataset *dataset);
char *config_field_row_text(const struct config_field_row *row, const struct field_spec *field);

void config_allow_print(FILE *out, const struct config_dataset *dataset); /* a row's */

/* A string as a YAML scalar. */
void config_values_quote(FILE *out, const char *string);

/* Ends a text that a memory stream wrote. Returned owned; NULL (and nothing is left) when anything
 * went wrong on the way. */
char *config_values_done(FILE *out, char **text);

#endif
