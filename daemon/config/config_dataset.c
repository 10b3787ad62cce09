/* A dataset's mapping into a struct config_dataset: source, preset, fields, order, what happens
 * with bad samples and with the last batch. */
#include "config/config_dataset.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const struct config_choice config_shuffles[] = {{"none", CONFIG_SHUFFLE_NONE},
                                                {"global", CONFIG_SHUFFLE_GLOBAL},
                                                {"block", CONFIG_SHUFFLE_BLOCK},
                                                {NULL, 0}};
const struct config_choice config_lasts[] = {{"drop", CONFIG_LAST_DROP},
                                             {"pad", CONFIG_LAST_PAD},
                                             {"partial", CONFIG_LAST_PARTIAL},
                                             {NULL, 0}};
const struct config_choice config_policies[] = {{"substitute", CONFIG_POLICY_SUBSTITUTE},
                                                {"mask", CONFIG_POLICY_MASK},
                                                {"fail", CONFIG_POLICY_FAIL},
                                                {NULL, 0}};

const struct config_on_error config_on_error_default = {
    .policy = CONFIG_POLICY_SUBSTITUTE, .max_rate = CONFIG_RATE_UNIT / 100, .max_consecutive = 100};

enum { SYNTHETIC_BYTES_MAX = 1 << 30 };
static const uint64_t synthetic_samples_max = 1ull << 48;
static const uint64_t block_samples_max = 1ull << 48;

enum {
    KEY_SOURCE,
    KEY_PRESET,
    KEY_FIELDS,
    KEY_ORDER,
    KEY_ON_ERROR,
    KEY_LAST,
    KEY_NORMALIZE,
    KEY_DTYPE,
    KEY_LAYOUT,
    KEY_ALLOW,
    KEY_COUNT
};
static const struct config_key dataset_keys[KEY_COUNT + 1] = {
    [KEY_SOURCE] = {"source", false},     [KEY_PRESET] = {"preset", false},
    [KEY_FIELDS] = {"fields", false},     [KEY_ORDER] = {"order", false},
    [KEY_ON_ERROR] = {"on_error", false}, [KEY_LAST] = {"last", false},
    [KEY_DTYPE] = {"dtype", false},       [KEY_NORMALIZE] = {"normalize", false},
    [KEY_LAYOUT] = {"layout", false},     [KEY_ALLOW] = {"allow", false},
};

static void folder_take(struct config_reader *reader, const struct config_node *node,
                        struct config_source *source)
{
    if (node->kind == CONFIG_NODE_SEQUENCE) {
        config_complain(reader, node,
                        "a list of folders is not supported in this version: give one folder");
        return;
    }
    if (config_read_text(reader, node, "folder", source->path, sizeof source->path) < 0)
        return;
    if (strstr(source->path, "://"))
        config_complain(reader, node,
                        "a folder that is not local is not supported in this version");
}

static void path_take(struct config_reader *reader, const struct config_node *node,
                      const char *kind, struct config_source *source)
{
    size_t used = strlen(source->path);
    if (used + 2 > sizeof source->path) {
        config_complain(reader, node, "%s: its paths are longer than %d bytes in all", kind,
                        CONFIG_PATH_BYTES - 2);
        return;
    }
    char *path = source->path + used + (used > 0);
    if (config_read_text(reader, node, kind, path,
                         (size_t)(source->path + sizeof source->path - path)) < 0) {
        path[0] = 0;
        return;
    }
    if (used > 0)
        source->path[used] = '\n';
    if (strstr(path, "://"))
        config_complain(reader, node, "a %s that is not local is not supported in this version",
                        kind);
}

/* A path, a pattern, or a list of them: one a line in source->path. */
static void paths_take(struct config_reader *reader, const struct config_node *node,
                       const char *kind, struct config_source *source)
{
    snprintf(source->kind, sizeof source->kind, "%s", kind);
    if (node->kind != CONFIG_NODE_SEQUENCE) {
        path_take(reader, node, kind, source);
        return;
    }
    if (!node->first)
        config_complain(reader, node, "%s: the list of paths is empty", kind);
    for (const struct config_item *item = node->first; item; item = item->next)
        path_take(reader, item->value, kind, source);
}

static void synthetic_take(struct config_reader *reader, const struct config_node *node,
                           struct config_source *source)
{
    static const struct config_key keys[] = {{"samples", false}, {"bytes", false}, {NULL, false}};
    const struct config_node *values[2] = {NULL};
    if (config_keys_take(reader, node, "synthetic", keys, values) < 0)
        return;
    if (values[0])
        config_read_count(reader, values[0], "samples", 1, synthetic_samples_max, &source->samples);
    else
        config_complain(reader, node, "synthetic needs samples");
    if (values[1])
        config_read_size(reader, values[1], "bytes", 1, SYNTHETIC_BYTES_MAX, &source->bytes);
    else
        config_complain(reader, node, "synthetic needs bytes");
}

/* What goes with lists alone: root, path_column, label_column. */
static void list_take(struct config_reader *reader, const struct config_node *node,
                      const struct config_node *const values[3], struct config_source *source)
{
    static const char *const names[] = {"root", "path_column", "label_column"};
    char *const texts[] = {source->root, source->path_column, source->label_column};
    static const size_t room[] = {sizeof source->root, sizeof source->path_column,
                                  sizeof source->label_column};
    for (size_t i = 0; i < 3; i++) {
        if (!values[i])
            continue;
        if (strcmp(source->kind, "list") != 0)
            config_complain(reader, config_key_node(node, names[i]), "%s goes with a list",
                            names[i]);
        else
            config_read_text(reader, values[i], names[i], texts[i], room[i]);
    }
}

enum { SOURCE_FOLDER, SOURCE_SYNTHETIC, SOURCE_TAR, SOURCE_LIST, SOURCE_KINDS };

static void source_take(struct config_reader *reader, const struct config_node *node,
                        struct config_source *source)
{
    static const struct config_key kinds[] = {[SOURCE_FOLDER] = {"folder", false},
                                              [SOURCE_SYNTHETIC] = {"synthetic", false},
                                              [SOURCE_TAR] = {"tar", false},
                                              [SOURCE_LIST] = {"list", false},
                                              {"root", false},
                                              {"path_column", false},
                                              {"label_column", false},
                                              {"mds", true},
                                              {"litdata", true},
                                              {"tfrecord", true},
                                              {"arrayrecord", true},
                                              {"parquet", true},
                                              {"tokens", true},
                                              {"megatron", true},
                                              {"npy", true},
                                              {NULL, false}};
    const struct config_node *values[sizeof kinds / sizeof kinds[0]] = {NULL};
    uint32_t complaints_before = reader->complaints->count, given = 0;
    if (config_keys_take(reader, node, "source", kinds, values) < 0)
        return;
    for (size_t i = 0; i < SOURCE_KINDS; i++)
        given += values[i] != NULL;
    if (given > 1) {
        config_complain(reader, node, "a source is one kind: folder, tar, list or synthetic");
        return;
    }
    if (values[SOURCE_FOLDER]) {
        snprintf(source->kind, sizeof source->kind, "folder");
        folder_take(reader, values[SOURCE_FOLDER], source);
    } else if (values[SOURCE_SYNTHETIC]) {
        snprintf(source->kind, sizeof source->kind, "synthetic");
        synthetic_take(reader, values[SOURCE_SYNTHETIC], source);
    } else if (values[SOURCE_TAR]) {
        paths_take(reader, values[SOURCE_TAR], "tar", source);
    } else if (values[SOURCE_LIST]) {
        paths_take(reader, values[SOURCE_LIST], "list", source);
    } else if (reader->complaints->count == complaints_before) {
        config_complain(reader, node,
                        "source is {folder: PATH}, {tar: PATTERN}, {list: FILE} or {synthetic: "
                        "{samples: N, bytes: B}}");
        return;
    }
    list_take(reader, node, &values[SOURCE_KINDS], source);
}

static const struct config_preset *preset_find(struct config_reader *reader,
                                               const struct config_node *node)
{
    char show[CONFIG_SHOW_BYTES], hint[CONFIG_SHOW_BYTES], names[128] = "";
    size_t used = 0;
    struct config_nearest nearest;
    config_nearest_init(&nearest, node->kind == CONFIG_NODE_SCALAR ? node->text : "");
    for (const struct config_preset *preset = config_presets; preset->name; preset++) {
        if (config_node_is(node, preset->name))
            return preset;
        config_nearest_try(&nearest, preset->name);
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? " " : "",
                                     preset->name);
    }
    config_complain(reader, node, "preset is one of %s, not %s%s", names, config_show(node, show),
                    config_nearest_hint(&nearest, hint));
    return NULL;
}

static struct field_spec *field_find(struct config_dataset *dataset, const char *name)
{
    for (uint32_t i = 0; i < dataset->field_count; i++) {
        if (strcmp(dataset->fields[i].name, name) == 0)
            return &dataset->fields[i];
    }
    return NULL;
}

/* Fields beside a preset take the place of its field of the same name, or come behind its fields.
 */
static void fields_take(struct config_reader *reader, const struct config_node *node,
                        uint64_t max_pixels, struct config_dataset *dataset)
{
    char show[CONFIG_SHOW_BYTES];
    if (config_node_is_empty(node))
        return;
    if (node->kind != CONFIG_NODE_MAPPING) {
        config_complain(reader, node, "fields is a mapping of names to fields, not %s",
                        config_show(node, show));
        return;
    }
    uint32_t from_preset = dataset->field_count;
    uint32_t replaced = 0;
    for (const struct config_item *item = node->first; item; item = item->next) {
        struct field_spec *field = field_find(dataset, item->key->text);
        uint32_t index = field ? (uint32_t)(field - dataset->fields) : dataset->field_count;
        if (field && (index >= from_preset || (replaced & 1u << index))) {
            config_complain(reader, item->key, "field %s is given twice", field->name);
            continue;
        }
        if (index == FIELD_MAX) {
            config_complain(reader, item->key, "more than %d fields", FIELD_MAX);
            return;
        }
        if (field)
            replaced |= 1u << index;
        config_field_take(reader, item, max_pixels, &dataset->fields[index]);
        /* A field that was refused keeps its name, so that a second one of the same name is
         * noticed. */
        if (!field && dataset->fields[index].name[0])
            dataset->field_count++;
        if (field)
            memcpy(dataset->fields[index].name, item->key->text, item->key->bytes + 1);
    }
}

/* normalize, dtype and layout beside a preset: they go to the preset's image. */
static void beside_take(struct config_reader *reader, const struct config_node *node,
                        const struct config_node *const *values, struct config_dataset *dataset)
{
    static const uint32_t beside[] = {KEY_NORMALIZE, KEY_DTYPE, KEY_LAYOUT};
    struct field_spec *image = field_find(dataset, "image");
    bool replaced =
        values[KEY_FIELDS] && config_key_node(values[KEY_FIELDS], "image") != values[KEY_FIELDS];
    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
        const char *name = dataset_keys[beside[i]].name;
        if (!values[beside[i]])
            continue;
        if (!values[KEY_PRESET])
            config_complain(reader, config_key_node(node, name),
                            "%s goes into a field, or beside a preset", name);
        else if (replaced)
            config_complain(reader, config_key_node(node, name),
                            "%s has no effect: fields replaces the preset's image", name);
    }
    if (!image)
        return;
    if (values[KEY_NORMALIZE])
        config_normalize_take(reader, values[KEY_NORMALIZE], image);
    if (values[KEY_DTYPE])
        config_read_choice(reader, values[KEY_DTYPE], "dtype", config_dtypes, &image->dtype);
    if (values[KEY_LAYOUT])
        config_read_choice(reader, values[KEY_LAYOUT], "layout", config_layouts, &image->layout);
}

static void preset_take(struct config_reader *reader, const struct config_node *node,
                        const struct config_node *const *values, uint64_t max_pixels,
                        struct config_dataset *dataset)
{
    const struct config_preset *preset =
        values[KEY_PRESET] ? preset_find(reader, values[KEY_PRESET]) : NULL;
    uint32_t complaints_before = reader->complaints->count;
    if (preset)
        config_preset_fill(preset, max_pixels, dataset);
    beside_take(reader, node, values, dataset);
    if (!preset || reader->complaints->count != complaints_before)
        return;
    for (uint32_t i = 0; i < dataset->field_count; i++) {
        struct err err = {0};
        if (field_finish(&dataset->fields[i], &err) < 0)
            config_complain(reader, values[KEY_PRESET], "%s", err.text);
    }
}

static void order_take(struct config_reader *reader, const struct config_node *node,
                       struct config_dataset *dataset)
{
    static const struct config_key keys[] = {{"shuffle", false},
                                             {"seed", false},
                                             {"block_samples", false},
                                             {"lanes", false},
                                             {NULL, false}};
    const struct config_node *values[4] = {NULL};
    if (config_keys_take(reader, node, "order", keys, values) < 0)
        return;
    int rc = 0;
    if (values[0])
        rc = config_read_choice(reader, values[0], "shuffle", config_shuffles, &dataset->shuffle);
    if (values[1])
        config_read_count(reader, values[1], "seed", 0, UINT64_MAX, &dataset->seed);
    if (values[2])
        config_read_count(reader, values[2], "block_samples", 1, block_samples_max,
                          &dataset->block_samples);
    if (values[2] && rc == 0 && dataset->shuffle != CONFIG_SHUFFLE_BLOCK)
        config_complain(reader, config_key_node(node, "block_samples"),
                        "block_samples has no effect: it goes with shuffle: block");
    uint64_t lanes = dataset->lanes;
    if (values[3])
        config_read_count(reader, values[3], "lanes", 1, CONFIG_LANES_MAX, &lanes);
    dataset->lanes = (uint32_t)lanes;
    if (lanes > 1 && rc == 0 && dataset->shuffle == CONFIG_SHUFFLE_GLOBAL)
        config_complain(reader, config_key_node(node, "lanes"),
                        "lanes with shuffle: global would keep no rank to its own shards; use "
                        "shuffle: block or none");
}

static void on_error_take(struct config_reader *reader, const struct config_node *node,
                          struct config_dataset *dataset)
{
    static const struct config_key keys[] = {
        {"policy", false}, {"max_rate", false}, {"max_consecutive", false}, {NULL, false}};
    const struct config_node *values[3] = {NULL};
    struct config_on_error *on_error = &dataset->on_error;
    double rate = 0;
    uint64_t consecutive = 0;
    if (config_keys_take(reader, node, "on_error", keys, values) < 0)
        return;
    *on_error = config_on_error_default;
    if (values[0])
        config_read_choice(reader, values[0], "policy", config_policies, &on_error->policy);
    if (values[1] && config_read_double(reader, values[1], "max_rate", 0, 1, &rate) == 0)
        on_error->max_rate = (uint32_t)(rate * CONFIG_RATE_UNIT + 0.5);
    if (values[2] && config_read_count(reader, values[2], "max_consecutive", 1,
                                       CONFIG_CONSECUTIVE_MAX, &consecutive) == 0)
        on_error->max_consecutive = (uint32_t)consecutive;
}

void config_dataset_take(struct config_reader *reader, const struct config_node *node,
                         uint64_t max_pixels, struct config_dataset *ret_dataset)
{
    const struct config_node *values[KEY_COUNT] = {NULL};
    ret_dataset->shuffle = CONFIG_SHUFFLE_NONE;
    ret_dataset->last = CONFIG_LAST_PARTIAL;
    ret_dataset->on_error = config_on_error_default;
    ret_dataset->block_samples = CONFIG_BLOCK_SAMPLES_DEFAULT;
    ret_dataset->lanes = 1;
    if (config_keys_take(reader, node, "the dataset", dataset_keys, values) < 0)
        return;
    if (values[KEY_SOURCE])
        source_take(reader, values[KEY_SOURCE], &ret_dataset->source);
    else
        config_complain(reader, node, "the dataset needs a source");
    preset_take(reader, node, values, max_pixels, ret_dataset);
    if (values[KEY_FIELDS])
        fields_take(reader, values[KEY_FIELDS], max_pixels, ret_dataset);
    if (values[KEY_ORDER])
        order_take(reader, values[KEY_ORDER], ret_dataset);
    if (values[KEY_ON_ERROR])
        on_error_take(reader, values[KEY_ON_ERROR], ret_dataset);
    if (values[KEY_ALLOW])
        config_allow_take(reader, values[KEY_ALLOW], &ret_dataset->allow);
    if (values[KEY_LAST])
        config_read_choice(reader, values[KEY_LAST], "last", config_lasts, &ret_dataset->last);
}
