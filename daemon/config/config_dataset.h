/* Datasets: from YAML nodes into struct config_dataset, by way of fields, operations and presets.
 * Non-logging, any role. */
#ifndef SPDLD_CONFIG_DATASET_H
#define SPDLD_CONFIG_DATASET_H

#include "config/config.h"
#include "config/config_read.h"

/* Words and numbers. */
extern const struct config_choice config_shuffles[];
extern const struct config_choice config_lasts[];
extern const struct config_choice config_policies[];

/* What happens with bad samples where nothing else is said. */
extern const struct config_on_error config_on_error_default;
extern const struct config_choice config_dtypes[];
extern const struct config_choice config_modes[]; /* numbers of channels */
extern const struct config_choice config_layouts[];
enum config_missing { CONFIG_MISSING_DROP = 1, CONFIG_MISSING_EMPTY };
extern const struct config_choice config_missings[];
extern const struct config_choice config_filters[];
const char *config_choice_name(const struct config_choice *choices,
                               uint32_t value); /* NULL: none */

/* A whole dataset (all but its name). Complaints go to the reader; the dataset is complete only
 * when there were none. */
void config_dataset_take(struct config_reader *reader, const struct config_node *node,
                         uint64_t max_pixels, struct config_dataset *ret_dataset);

/* config_allow.c: who may use the dataset, with names looked up. Complains. */
void config_allow_take(struct config_reader *reader, const struct config_node *node,
                       struct config_allow *ret_allow);

/* Names of datasets and fields: letters, digits, - _ and, with `dots`, dots; the first is a letter,
 * a digit or _. */
int config_name_check(struct config_reader *reader, const struct config_node *key, const char *what,
                      bool dots);

/* One field; complains with the field's place, also with what field_finish says. */
void config_field_take(struct config_reader *reader, const struct config_item *item,
                       uint64_t max_pixels, struct field_spec *ret_field);
void config_normalize_take(struct config_reader *reader, const struct config_node *node,
                           struct field_spec *field);

/* An entry of `ops`: `name`, `{name: value}` or `{name: {parameters}}`. */
int config_op_take(struct config_reader *reader, const struct config_node *node,
                   struct op_spec *ret_op);

enum config_op_param {
    CONFIG_OP_SIZE = 1,
    CONFIG_OP_FILTER = 2,
    CONFIG_OP_SCALE = 4,
    CONFIG_OP_RATIO = 8,
    CONFIG_OP_P = 16,
    CONFIG_OP_SHORT_SIDE = 32 /* one number for size means the short side */
};

struct config_op {
    const char *name;
    uint32_t kind;   /* enum op_kind; 0: comes with a later version */
    uint32_t params; /* enum config_op_param */
    struct op_spec initial;
};
extern const struct config_op config_ops[];            /* ends with a row without a name */
const struct config_op *config_op_find(uint32_t kind); /* NULL: none */

/* Normalisations that have a name. */
struct config_normalization {
    const char *name;
    double mean[3], std[3];
};
extern const struct config_normalization
    config_normalizations[]; /* ends with a row without a name */

struct config_preset {
    const char *name;
    uint32_t shuffle, last;
    const char *normalization; /* NULL: none */
    uint32_t dtype, layout;    /* of the image */
    struct op_spec ops[4];     /* ends with kind 0 */
};
extern const struct config_preset config_presets[]; /* ends with a row without a name */

/* Fills fields `image` and `label`, shuffle and last. field_finish is the caller's. */
void config_preset_fill(const struct config_preset *preset, uint64_t max_pixels,
                        struct config_dataset *dataset);
void config_normalize_set(const struct config_normalization *normalization,
                          struct field_spec *field);

#endif
