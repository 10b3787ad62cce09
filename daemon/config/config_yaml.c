/* YAML into nodes, by libyaml's events: see config_yaml.h. Depth, nodes and anchors are bounded
 * while parsing, so that a small text cannot stand for a large tree. An alias shares the node that
 * it names; what a walk over the tree would visit is what counts. */
#include "config/config_yaml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/assert.h"
#include "config/config_read.h"

enum { CHUNK_BYTES = 16384 };

struct chunk {
    struct chunk *next;
    size_t used, capacity;
    _Alignas(16) unsigned char bytes[];
};

struct anchor {
    const char *name;
    const struct config_node *node;
};

struct frame {
    struct config_node *container;
    struct config_item *last;
    const struct config_node *key; /* mapping: waits for its value */
    uint32_t nodes_before;
};

struct builder {
    struct config_reader *reader;
    struct config_tree *tree;
    const char *input;
    size_t input_bytes;
    struct frame frames[CONFIG_YAML_DEPTH_MAX];
    uint32_t depth;
    uint32_t nodes;
    struct anchor anchors[CONFIG_YAML_ANCHORS_MAX];
    uint32_t anchor_count;
    uint32_t documents;
};

static void *tree_take(struct config_tree *tree, size_t bytes)
{
    struct chunk *chunk = tree->chunks;
    size_t rounded = (bytes + 15) & ~(size_t)15;
    if (!chunk || chunk->capacity - chunk->used < rounded) {
        size_t capacity = rounded > CHUNK_BYTES ? rounded : CHUNK_BYTES;
        struct chunk *fresh = malloc(sizeof *fresh + capacity);
        if (!fresh)
            return NULL;
        *fresh = (struct chunk){.next = chunk, .capacity = capacity};
        tree->chunks = fresh;
        chunk = fresh;
    }
    void *taken = chunk->bytes + chunk->used;
    chunk->used += rounded;
    memset(taken, 0, bytes);
    return taken;
}

void config_yaml_fini(struct config_tree *tree)
{
    struct chunk *chunk = tree->chunks;
    while (chunk) {
        struct chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
    *tree = (struct config_tree){0};
}

static const char *tree_text(struct config_tree *tree, const void *text, size_t bytes)
{
    char *copy = tree_take(tree, bytes + 1);
    if (copy && bytes > 0)
        memcpy(copy, text, bytes);
    return copy;
}

static uint32_t place_of(size_t from_zero)
{
    return from_zero < UINT32_MAX - 1 ? (uint32_t)from_zero + 1 : UINT32_MAX;
}

static int node_new(struct builder *b, enum config_node_kind kind, const yaml_event_t *event,
                    struct config_node **ret_node)
{
    struct config_node *node = tree_take(b->tree, sizeof *node);
    if (!node)
        return -ENOMEM;
    node->kind = kind;
    node->line = place_of(event->start_mark.line);
    node->column = place_of(event->start_mark.column);
    node->size = 1;
    *ret_node = node;
    return 0;
}

static int anchor_add(struct builder *b, const yaml_char_t *name, const struct config_node *node)
{
    if (!name)
        return 0;
    if (b->anchor_count == CONFIG_YAML_ANCHORS_MAX)
        return config_complain(b->reader, node, "more than %d anchors", CONFIG_YAML_ANCHORS_MAX);
    const char *copy = tree_text(b->tree, name, strlen((const char *)name));
    if (!copy)
        return -ENOMEM;
    b->anchors[b->anchor_count++] = (struct anchor){.name = copy, .node = node};
    return 0;
}

/* Puts a node where it belongs: at the top, into a sequence, as a mapping's key or as the value of
 * that key. */
static int node_place(struct builder *b, const struct config_node *node)
{
    if (node->size > CONFIG_YAML_NODES_MAX - b->nodes)
        return config_complain(b->reader, node, "more than %d values", CONFIG_YAML_NODES_MAX);
    b->nodes += node->size;
    if (b->depth == 0) {
        b->tree->root = node;
        return 0;
    }
    struct frame *frame = &b->frames[b->depth - 1];
    if (frame->container->kind == CONFIG_NODE_MAPPING && !frame->key) {
        if (node->kind != CONFIG_NODE_SCALAR)
            return config_complain(b->reader, node,
                                   "a key must be a name, not a list or a mapping");
        frame->key = node;
        return 0;
    }
    struct config_item *item = tree_take(b->tree, sizeof *item);
    if (!item)
        return -ENOMEM;
    item->key = frame->key;
    item->value = node;
    frame->key = NULL;
    if (frame->last)
        frame->last->next = item;
    else
        frame->container->first = item;
    frame->last = item;
    frame->container->count++;
    if (node->height >= frame->container->height)
        frame->container->height = node->height + 1;
    return 0;
}

static int on_scalar(struct builder *b, const yaml_event_t *event)
{
    struct config_node *node = NULL;
    int rc = node_new(b, CONFIG_NODE_SCALAR, event, &node);
    if (rc < 0)
        return rc;
    node->bytes = event->data.scalar.length;
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    node->text = tree_text(b->tree, event->data.scalar.value, node->bytes);
    if (!node->text)
        return -ENOMEM;
    if (event->data.scalar.tag)
        return config_complain(b->reader, node, "tags are not supported");
    if (memchr(node->text, 0, node->bytes))
        return config_complain(b->reader, node, "a value holds a zero byte");
    rc = anchor_add(b, event->data.scalar.anchor, node);
    return rc < 0 ? rc : node_place(b, node);
}

static int on_start(struct builder *b, const yaml_event_t *event)
{
    bool mapping = event->type == YAML_MAPPING_START_EVENT;
    const yaml_char_t *tag =
        mapping ? event->data.mapping_start.tag : event->data.sequence_start.tag;
    const yaml_char_t *anchor =
        mapping ? event->data.mapping_start.anchor : event->data.sequence_start.anchor;
    struct config_node *node = NULL;
    int rc = node_new(b, mapping ? CONFIG_NODE_MAPPING : CONFIG_NODE_SEQUENCE, event, &node);
    if (rc < 0)
        return rc;
    if (tag)
        return config_complain(b->reader, node, "tags are not supported");
    if (b->depth == CONFIG_YAML_DEPTH_MAX)
        return config_complain(b->reader, node, "nested deeper than %d levels",
                               CONFIG_YAML_DEPTH_MAX);
    node->height = 1;
    rc = anchor_add(b, anchor, node);
    uint32_t before = b->nodes;
    if (rc == 0)
        rc = node_place(b, node);
    if (rc < 0)
        return rc;
    b->frames[b->depth++] = (struct frame){.container = node, .nodes_before = before};
    return 0;
}

/* A container's height reaches its parent only when it is complete. */
static int on_end(struct builder *b)
{
    ASSERT(b->depth > 0);
    struct frame *frame = &b->frames[--b->depth];
    frame->container->size = b->nodes - frame->nodes_before;
    if (b->depth > 0) {
        struct config_node *parent = b->frames[b->depth - 1].container;
        if (frame->container->height >= parent->height)
            parent->height = frame->container->height + 1;
    }
    return 0;
}

static int on_alias(struct builder *b, const yaml_event_t *event)
{
    const char *name = (const char *)event->data.alias.anchor;
    struct config_node here = {.line = place_of(event->start_mark.line),
                               .column = place_of(event->start_mark.column)};
    const struct config_node *target = NULL;
    for (uint32_t i = b->anchor_count; i > 0 && !target; i--) {
        if (strcmp(b->anchors[i - 1].name, name) == 0)
            target = b->anchors[i - 1].node;
    }
    if (!target)
        return config_complain(b->reader, &here, "there is no anchor '%.60s' above", name);
    for (uint32_t i = 0; i < b->depth; i++) {
        if (b->frames[i].container == target)
            return config_complain(b->reader, &here, "alias '%.60s' holds itself", name);
    }
    if (b->depth + target->height > CONFIG_YAML_DEPTH_MAX)
        return config_complain(b->reader, &here, "nested deeper than %d levels",
                               CONFIG_YAML_DEPTH_MAX);
    return node_place(b, target);
}

static int on_document(struct builder *b, const yaml_event_t *event)
{
    struct config_node here = {.line = place_of(event->start_mark.line),
                               .column = place_of(event->start_mark.column)};
    if (b->documents++ > 0)
        return config_complain(b->reader, &here, "a second document begins here: one is allowed");
    return 0;
}

static int on_event(struct builder *b, const yaml_event_t *event, bool *ret_done)
{
    switch (event->type) {
    case YAML_STREAM_END_EVENT:
        *ret_done = true;
        return 0;
    case YAML_DOCUMENT_START_EVENT:
        return on_document(b, event);
    case YAML_SCALAR_EVENT:
        return on_scalar(b, event);
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        return on_start(b, event);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return on_end(b);
    case YAML_ALIAS_EVENT:
        return on_alias(b, event);
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        return 0;
    }
    return 0;
}

/* Errors of libyaml's reader know only an offset. */
static struct config_node place_at_offset(const struct builder *b, size_t offset)
{
    struct config_node here = {.line = 1, .column = 1};
    for (size_t i = 0; i < offset && i < b->input_bytes; i++) {
        unsigned char byte = (unsigned char)b->input[i];
        if (byte == '\n') {
            here.line++;
            here.column = 1;
        } else if ((byte & 0xC0) != 0x80) {
            here.column++;
        }
    }
    return here;
}

static int parser_failed(struct builder *b, const yaml_parser_t *parser)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return -ENOMEM;
    const char *problem = parser->problem ? parser->problem : "not YAML";
    if (parser->error == YAML_READER_ERROR) {
        struct config_node here = place_at_offset(b, parser->problem_offset);
        return config_complain(b->reader, &here, "%s", problem);
    }
    struct config_node here = {.line = place_of(parser->problem_mark.line),
                               .column = place_of(parser->problem_mark.column)};
    if (!parser->context)
        return config_complain(b->reader, &here, "%s", problem);
    return config_complain(b->reader, &here, "%s (%s that begins at %u:%u)", problem,
                           parser->context, place_of(parser->context_mark.line),
                           place_of(parser->context_mark.column));
}

int config_yaml_parse(struct config_reader *reader, const char *text, size_t bytes,
                      struct config_tree *ret_tree)
{
    *ret_tree = (struct config_tree){0};
    struct builder b = {.reader = reader, .tree = ret_tree, .input = text, .input_bytes = bytes};
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return -ENOMEM;
    if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        b.input += 3;
        b.input_bytes -= 3;
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)b.input, b.input_bytes);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    int rc = 0;
    for (bool done = false; rc == 0 && !done;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            rc = parser_failed(&b, &parser);
            break;
        }
        rc = on_event(&b, &event, &done);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    if (rc < 0)
        ret_tree->root = NULL;
    return rc;
}
