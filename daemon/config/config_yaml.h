/* YAML text as a bounded tree of nodes with positions. The one place that knows libyaml.
 * Non-logging, any role. */
#ifndef SPDLD_CONFIG_YAML_H
#define SPDLD_CONFIG_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CONFIG_YAML_DEPTH_MAX = 32,
    CONFIG_YAML_NODES_MAX = 100000, /* aliases count as what they stand for */
    CONFIG_YAML_ANCHORS_MAX = 64
};

enum config_node_kind { CONFIG_NODE_SCALAR = 1, CONFIG_NODE_SEQUENCE, CONFIG_NODE_MAPPING };

/* An entry of a sequence (no key) or of a mapping. */
struct config_item {
    const struct config_node *key;
    const struct config_node *value;
    struct config_item *next;
};

struct config_node {
    enum config_node_kind kind;
    uint32_t line; /* from 1; 0: not from a file */
    uint32_t column;
    bool quoted;
    const char *text; /* scalar: `bytes` bytes and a 0 behind them */
    size_t bytes;
    struct config_item *first; /* sequence, mapping: in the order of the text */
    uint32_t count;
    uint32_t size;   /* nodes in it, itself included, aliases as what they stand for */
    uint32_t height; /* levels of sequences and mappings, itself included; 0: scalar */
};

struct config_reader;

struct config_tree {
    const struct config_node *root; /* NULL: the text holds no document */
    void *chunks;
};

/* Parses one document. Returns 0; -EINVAL with a complaint at the reader; -ENOMEM. The tree is
 * fini'd by the caller in every case. */
int config_yaml_parse(struct config_reader *reader, const char *text, size_t bytes,
                      struct config_tree *ret_tree);
void config_yaml_fini(struct config_tree *tree);

#endif
