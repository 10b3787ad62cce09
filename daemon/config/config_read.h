/* Reading values out of YAML nodes: each call checks kind and range and complains with the place
 * when something is wrong. Non-logging, any role, no allocation. */
#ifndef SPDLD_CONFIG_READ_H
#define SPDLD_CONFIG_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"
#include "config/config_yaml.h"

/* One file (or one --set) that is being read. Complaints of a reader are kept in the order of their
 * places. */
struct config_reader {
    const char *where; /* what stands for the file's name; borrowed */
    struct config_complaints *complaints;
    uint32_t first;                         /* the reader's first line in complaints */
    uint64_t places[CONFIG_COMPLAINTS_MAX]; /* of its lines: line << 32 | column */
};

/* A word and its number. The number 0 marks a word that comes with a later version; a row without a
 * name ends the list. */
struct config_choice {
    const char *name;
    uint32_t value;
};

/* A key of a mapping; `later`: known, but not supported in this version. A row without a name ends
 * the list. */
struct config_key {
    const char *name;
    bool later;
};

enum { CONFIG_SHOW_BYTES = 96 };

void config_reader_init(struct config_reader *reader, const char *where,
                        struct config_complaints *complaints);

/* Adds "WHERE:LINE:COLUMN: words"; without a node (or one without a place) only "WHERE: words".
 * Always returns -EINVAL. */
int config_complain(struct config_reader *reader, const struct config_node *node,
                    const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "; did you mean 'x'?" for the best of the names, or "" when none is near. */
struct config_nearest {
    const char *word;
    const char *best;
    uint32_t best_distance;
};
void config_nearest_init(struct config_nearest *nearest, const char *word);
void config_nearest_try(struct config_nearest *nearest, const char *name);
/* Offers a name without looking at the word: the first one so offered wins. */
void config_nearest_take(struct config_nearest *nearest, const char *name);
const char *config_nearest_hint(const struct config_nearest *nearest, char hint[CONFIG_SHOW_BYTES]);

/* The node in words for a complaint: 'text' (cut and without control bytes), "a list", "a mapping",
 * "nothing". */
const char *config_show(const struct config_node *node, char show[CONFIG_SHOW_BYTES]);
bool config_node_is_empty(
    const struct config_node *node); /* `key:` with nothing behind it, ~ or null */
bool config_node_is(const struct config_node *node, const char *word);

/* Puts the value of keys[i] in ret_values[i] (NULL: not given). Complains about anything else in
 * the mapping. An empty node is a mapping without entries. Returns 0 or -EINVAL when the node is no
 * mapping. */
int config_keys_take(struct config_reader *reader, const struct config_node *node, const char *name,
                     const struct config_key *keys, const struct config_node **ret_values);
/* Key node of an entry, for a complaint about the key itself; the mapping when it is not there. */
const struct config_node *config_key_node(const struct config_node *mapping, const char *key);

/* Scalars. All return 0 or -EINVAL after a complaint, and leave the result untouched then. */
int config_read_text(struct config_reader *reader, const struct config_node *node, const char *name,
                     char *ret_text, size_t capacity);
int config_read_count(struct config_reader *reader, const struct config_node *node,
                      const char *name, uint64_t min, uint64_t max, uint64_t *ret_count);
int config_read_size(struct config_reader *reader, const struct config_node *node, const char *name,
                     uint64_t min, uint64_t max, uint64_t *ret_bytes);
int config_read_duration(struct config_reader *reader, const struct config_node *node,
                         const char *name, uint64_t min_ns, uint64_t max_ns, uint64_t *ret_ns);
int config_read_mode(struct config_reader *reader, const struct config_node *node, const char *name,
                     uint32_t *ret_mode);
int config_read_double(struct config_reader *reader, const struct config_node *node,
                       const char *name, double min, double max, double *ret_value);
int config_read_choice(struct config_reader *reader, const struct config_node *node,
                       const char *name, const struct config_choice *choices, uint32_t *ret_value);
/* A sequence of exactly `count` numbers. */
int config_read_doubles(struct config_reader *reader, const struct config_node *node,
                        const char *name, uint32_t count, double *ret_values);

#endif
