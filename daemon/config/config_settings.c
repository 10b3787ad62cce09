/* The table of settings and what reads and writes its rows: see config_settings.h. */
#include "config/config_settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "config/config_text.h"
#include "config/config_units.h"

#define AT(member) offsetof(struct config, member), sizeof(((struct config *)0)->member)
#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define TIB (1ull << 40)

static const struct config_choice engines[] = {{"auto", CONFIG_ENGINE_AUTO},
                                               {"uring", CONFIG_ENGINE_URING},
                                               {"pool", CONFIG_ENGINE_POOL},
                                               {NULL, 0}};
static const struct config_choice shms[] = {
    {"memfd", CONFIG_SHM_MEMFD}, {"posix", CONFIG_SHM_POSIX}, {NULL, 0}};

static const struct config_choice levels[] = {{"debug", CONFIG_LOG_DEBUG},
                                              {"info", CONFIG_LOG_INFO},
                                              {"warning", CONFIG_LOG_WARNING},
                                              {"error", CONFIG_LOG_ERROR},
                                              {NULL, 0}};

/* clang-format off: one row, one setting. */
const struct config_opt config_settings[] = {
    {"socket", CONFIG_TYPE_PATH, CONFIG_OPT_RESTART, AT(socket), 0, 0, "/run/spdld/spdld.sock",
     NULL, "Where spdld listens"},
    {"socket_mode", CONFIG_TYPE_MODE, CONFIG_OPT_RESTART, AT(socket_mode), 0, 0, "0660", NULL,
     "Rights of the socket: who may use it"},
    {"memory", CONFIG_TYPE_SIZE, CONFIG_OPT_LIVE | CONFIG_OPT_AUTO, AT(memory_bytes), 16 * MIB,
     64 * TIB, "auto", NULL,
     "For rings and blobs in flight together; auto: a quarter of what the cgroup allows"},
    {"slots", CONFIG_TYPE_COUNT, CONFIG_OPT_LIVE, AT(slots), 2, 64, "4", NULL,
     "Batches ready ahead, per rank"},
    {"threads.decode", CONFIG_TYPE_COUNT, CONFIG_OPT_LIVE | CONFIG_OPT_AUTO, AT(decode_threads), 1,
     64, "auto", NULL, "Decoding threads; auto: from the CPUs allowed"},
    {"fetch.engine", CONFIG_TYPE_CHOICE, CONFIG_OPT_RESTART, AT(fetch_engine), 0, 0, "auto",
     engines, "How files are read; auto: uring where the kernel allows it, else pool"},
    {"fetch.depth", CONFIG_TYPE_COUNT, CONFIG_OPT_LIVE | CONFIG_OPT_AUTO, AT(fetch_depth), 1, 1024,
     "auto", NULL, "Reads in flight of each stream"},
    {"fetch.memory", CONFIG_TYPE_SIZE, CONFIG_OPT_RESTART | CONFIG_OPT_AUTO, AT(arena_bytes), MIB,
     64 * TIB, "auto", NULL, "For blobs in flight of each user, a part of memory"},
    {"fetch.faulty", CONFIG_TYPE_STRING, CONFIG_OPT_RESTART | CONFIG_OPT_HIDDEN, AT(fetch_faulty),
     0, 0, "", NULL, "Faults that reads shall have"},
    {"shm", CONFIG_TYPE_CHOICE, CONFIG_OPT_RESTART, AT(shm), 0, 0, "memfd", shms,
     "Shared memory: memfd (sealed) or posix (nameless objects in /dev/shm)"},
    {"index_dir", CONFIG_TYPE_PATH, CONFIG_OPT_RESTART, AT(index_dir), 0, 0, "auto", NULL,
     "Folder of indexes of shards; auto: /var/lib/spdld/index for the node's daemon, else "
     "spdld/index in $XDG_CACHE_HOME or ~/.cache; none: they are not kept"},
    {"limits.sample", CONFIG_TYPE_SIZE, CONFIG_OPT_RESTART, AT(max_sample_bytes), KIB, 2 * GIB,
     "64MiB", NULL, "Largest sample; a larger one is an error of class LIMIT"},
    {"limits.pixels", CONFIG_TYPE_COUNT, CONFIG_OPT_RESTART, AT(max_pixels), 1, 65535ull * 65535,
     "134217728", NULL, "Most pixels of a picture; above it the sample is an error of class LIMIT"},
    {"limits.worker", CONFIG_TYPE_SIZE, CONFIG_OPT_RESTART | CONFIG_OPT_AUTO, AT(worker_bytes),
     64 * MIB, 64 * TIB, "auto", NULL,
     "Memory of a worker's own, beside rings and blobs; auto: half of what the cgroup allows"},
    {"quota.streams", CONFIG_TYPE_COUNT, CONFIG_OPT_LIVE | CONFIG_OPT_AUTO, AT(quota_streams), 1,
     1024, "auto", NULL, "Streams of one user; auto: as many as there is room for"},
    {"quota.memory", CONFIG_TYPE_SIZE, CONFIG_OPT_LIVE | CONFIG_OPT_AUTO, AT(quota_bytes), MIB,
     64 * TIB, "auto", NULL,
     "Memory of one user's streams, a part of memory; auto: as much as there is"},
    {"log.level", CONFIG_TYPE_CHOICE, CONFIG_OPT_LIVE, AT(log_level), 0, 0, "info", levels,
     "What is logged: this and what is worse"},
    {.name = NULL},
};
/* clang-format on */

/* Names that later versions will know. */
static const char *const later_settings[] = {"cache", "cache.ram", "cache.disk", NULL};

static uint32_t row_of(const struct config_opt *opt)
{
    return (uint32_t)(opt - config_settings);
}

static void number_store(const struct config_opt *opt, struct config *config, uint64_t value)
{
    unsigned char *member = (unsigned char *)config + opt->offset;
    uint32_t narrow = (uint32_t)value;
    if (opt->bytes == sizeof narrow)
        memcpy(member, &narrow, sizeof narrow);
    else
        memcpy(member, &value, sizeof value);
}

static uint64_t number_load(const struct config_opt *opt, const struct config *config)
{
    const unsigned char *member = (const unsigned char *)config + opt->offset;
    uint32_t narrow = 0;
    uint64_t value = 0;
    if (opt->bytes != sizeof narrow) {
        memcpy(&value, member, sizeof value);
        return value;
    }
    memcpy(&narrow, member, sizeof narrow);
    return narrow;
}

int config_setting_read(struct config_reader *reader, const struct config_opt *opt,
                        const struct config_node *node, struct config *config)
{
    char *string = (char *)config + opt->offset;
    uint64_t value = 0;
    uint32_t narrow = 0;
    int rc = 0;
    if ((opt->flags & CONFIG_OPT_AUTO) && config_node_is(node, "auto")) {
        number_store(opt, config, 0);
        return 0;
    }
    switch (opt->type) {
    case CONFIG_TYPE_STRING:
        if (node->kind == CONFIG_NODE_SCALAR && node->bytes == 0) {
            string[0] = '\0';
            return 0;
        }
        return config_read_text(reader, node, opt->name, string, opt->bytes);
    case CONFIG_TYPE_PATH:
        return config_read_text(reader, node, opt->name, string, opt->bytes);
    case CONFIG_TYPE_MODE:
        rc = config_read_mode(reader, node, opt->name, &narrow);
        value = narrow;
        break;
    case CONFIG_TYPE_SIZE:
        rc = config_read_size(reader, node, opt->name, opt->min, opt->max, &value);
        break;
    case CONFIG_TYPE_COUNT:
        rc = config_read_count(reader, node, opt->name, opt->min, opt->max, &value);
        break;
    case CONFIG_TYPE_DURATION:
        rc = config_read_duration(reader, node, opt->name, opt->min, opt->max, &value);
        break;
    case CONFIG_TYPE_CHOICE:
        rc = config_read_choice(reader, node, opt->name, opt->choices, &narrow);
        value = narrow;
        break;
    }
    if (rc == 0)
        number_store(opt, config, value);
    return rc;
}

static struct config_node node_of_text(const char *text)
{
    return (struct config_node){
        .kind = CONFIG_NODE_SCALAR, .quoted = true, .text = text, .bytes = strlen(text), .size = 1};
}

void config_settings_init(struct config *config)
{
    static const struct config none;
    struct config_complaints complaints = {.count = 0};
    struct config_reader reader;
    config_reader_init(&reader, "default", &complaints);
    *config = none;
    for (const struct config_opt *opt = config_settings; opt->name; opt++) {
        struct config_node node = node_of_text(opt->initial);
        int rc = config_setting_read(&reader, opt, &node, config);
        ASSERT(rc == 0 && row_of(opt) < CONFIG_SETTINGS_MAX);
    }
}

const struct config_opt *config_setting_find(const char *name)
{
    for (const struct config_opt *opt = config_settings; opt->name; opt++) {
        if (strcmp(opt->name, name) == 0)
            return opt;
    }
    return NULL;
}

static bool is_later(const char *name)
{
    for (const char *const *later = later_settings; *later; later++) {
        if (strcmp(*later, name) == 0)
            return true;
    }
    return false;
}

/* Length of the group's name in a row's name, 0 without a group. */
static size_t group_bytes(const struct config_opt *opt)
{
    const char *dot = strchr(opt->name, '.');
    return dot ? (size_t)(dot - opt->name) : 0;
}

static bool is_group(const char *name)
{
    size_t bytes = strlen(name);
    for (const struct config_opt *opt = config_settings; opt->name; opt++) {
        if (group_bytes(opt) == bytes && bytes > 0 && strncmp(opt->name, name, bytes) == 0)
            return true;
    }
    return false;
}

/* Is it the row's name with group and member the other way around? */
static bool is_turned(const struct config_opt *opt, const char *name)
{
    size_t group = group_bytes(opt), bytes = strlen(opt->name);
    if (group == 0 || strlen(name) != bytes)
        return false;
    size_t member = bytes - group - 1;
    return name[member] == '.' && strncmp(name, opt->name + group + 1, member) == 0 &&
           strncmp(name + member + 1, opt->name, group) == 0;
}

/* Offers every name that may stand at this level: of the top ("" as group) or of a group. */
static void setting_unknown(struct config_reader *reader, const struct config_node *key,
                            const char *group)
{
    struct config_nearest nearest;
    char show[CONFIG_SHOW_BYTES], hint[CONFIG_SHOW_BYTES], groups[8][CONFIG_NAME_BYTES];
    config_nearest_init(&nearest, key->text);
    size_t bytes = strlen(group);
    uint32_t group_count = 0; /* a name that is offered lives in groups until the hint is written */
    for (const struct config_opt *opt = config_settings; opt->name; opt++) {
        if (opt->flags & CONFIG_OPT_HIDDEN)
            continue;
        size_t own = group_bytes(opt);
        if (bytes > 0 && own == bytes && strncmp(opt->name, group, bytes) == 0)
            config_nearest_try(&nearest, opt->name + bytes + 1);
        if (bytes > 0)
            continue;
        config_nearest_try(&nearest, opt->name);
        if ((own > 0 && strcmp(opt->name + own + 1, key->text) == 0) || is_turned(opt, key->text))
            config_nearest_take(&nearest, opt->name);
        if (own > 0 && own < sizeof groups[0] && group_count < 8) {
            memcpy(groups[group_count], opt->name, own);
            groups[group_count][own] = '\0';
            config_nearest_try(&nearest, groups[group_count++]);
        }
    }
    if (bytes == 0)
        config_nearest_try(&nearest, "datasets");
    config_complain(reader, key, "unknown key %s%s%s%s", config_show(key, show),
                    bytes ? " in " : "", group, config_nearest_hint(&nearest, hint));
}

/* One entry of the top or of a group. `name` is dotted. */
static void setting_take(struct config_reader *reader, const struct config_opt *opt,
                         const struct config_item *item, struct config *config)
{
    struct config_origin *origin = &config->origins[row_of(opt)];
    if (origin->kind == CONFIG_ORIGIN_FILE) {
        config_complain(reader, item->key, "%s is given twice, first in line %u", opt->name,
                        origin->line);
        return;
    }
    config_setting_read(reader, opt, item->value, config);
    *origin = (struct config_origin){
        .kind = CONFIG_ORIGIN_FILE, .line = item->value->line, .column = item->value->column};
}

static void group_read(struct config_reader *reader, const struct config_item *group,
                       struct config *config)
{
    char show[CONFIG_SHOW_BYTES], name[CONFIG_NAME_BYTES * 2];
    if (config_node_is_empty(group->value))
        return;
    if (group->value->kind != CONFIG_NODE_MAPPING) {
        config_complain(reader, group->value, "%s is a mapping, not %s", group->key->text,
                        config_show(group->value, show));
        return;
    }
    for (const struct config_item *item = group->value->first; item; item = item->next) {
        snprintf(name, sizeof name, "%s.%s", group->key->text, item->key->text);
        const struct config_opt *opt = config_setting_find(name);
        if (opt)
            setting_take(reader, opt, item, config);
        else
            setting_unknown(reader, item->key, group->key->text);
    }
}

void config_settings_read(struct config_reader *reader, const struct config_node *root,
                          struct config *config)
{
    for (const struct config_item *item = root->first; item; item = item->next) {
        const char *name = item->key->text;
        const struct config_opt *opt = config_setting_find(name);
        if (strcmp(name, "datasets") == 0)
            continue;
        if (opt)
            setting_take(reader, opt, item, config);
        else if (is_group(name))
            group_read(reader, item, config);
        else if (is_later(name))
            config_complain(reader, item->key, "%s is not supported in this version", name);
        else
            setting_unknown(reader, item->key, "");
    }
}

void config_settings_assign(struct config_complaints *complaints, uint32_t origin,
                            const char *assignment, struct config *config)
{
    char where[CONFIG_NAME_BYTES * 3], name[CONFIG_NAME_BYTES];
    struct config_reader reader;
    snprintf(where, sizeof where, "%s%s", origin == CONFIG_ORIGIN_SET ? "--set " : "", assignment);
    config_reader_init(&reader, where, complaints);
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment) {
        config_complain(&reader, NULL, "it takes KEY=VALUE, for example slots=8");
        return;
    }
    if (!config_text_is_utf8(assignment)) {
        config_complain(&reader, NULL, "it is not UTF-8");
        return;
    }
    snprintf(name, sizeof name, "%.*s",
             (int)(equals - assignment < 1000 ? equals - assignment : 1000), assignment);
    const struct config_opt *opt = config_setting_find(name);
    struct config_node key = node_of_text(name);
    struct config_node value = node_of_text(equals + 1);
    if (opt && config_setting_read(&reader, opt, &value, config) == 0)
        config->origins[row_of(opt)] = (struct config_origin){.kind = origin};
    else if (!opt && is_later(name))
        config_complain(&reader, NULL, "%s is not supported in this version", name);
    else if (!opt && (strcmp(name, "datasets") == 0 || strncmp(name, "datasets.", 9) == 0))
        config_complain(&reader, NULL, "datasets are read from files only");
    else if (!opt && is_group(name))
        config_complain(&reader, NULL, "%s holds settings: name one of them", name);
    else if (!opt)
        setting_unknown(&reader, &key, "");
}

void config_settings_check(const struct config *config, struct config_complaints *complaints)
{
    if (config->memory_bytes == 0 || config->arena_bytes <= config->memory_bytes)
        return;
    char arena[CONFIG_UNITS_TEXT_BYTES], memory[CONFIG_UNITS_TEXT_BYTES];
    const struct config_opt *opt = config_setting_find("fetch.memory");
    const struct config_origin *origin = &config->origins[row_of(opt)];
    struct config_node here = {.line = origin->line, .column = origin->column};
    struct config_reader reader;
    config_reader_init(&reader,
                       origin->kind == CONFIG_ORIGIN_SET ? "--set fetch.memory" : config->file,
                       complaints);
    config_complain(&reader, &here, "fetch.memory %s is more than memory %s, which it is a part of",
                    config_units_size_text(config->arena_bytes, arena),
                    config_units_size_text(config->memory_bytes, memory));
}

void config_settings_live_copy(struct config *to, const struct config *from)
{
    for (const struct config_opt *opt = config_settings; opt->name; opt++) {
        to->origins[row_of(opt)] = from->origins[row_of(opt)];
        if (opt->flags & CONFIG_OPT_LIVE)
            memcpy((char *)to + opt->offset, (const char *)from + opt->offset, opt->bytes);
    }
}

const char *config_setting_text(const struct config_opt *opt, const struct config *config,
                                char text[CONFIG_SETTING_TEXT_BYTES])
{
    const char *string = (const char *)config + opt->offset;
    if (opt->type == CONFIG_TYPE_STRING || opt->type == CONFIG_TYPE_PATH) {
        config_text_quote(string, text, CONFIG_SETTING_TEXT_BYTES);
        return text;
    }
    uint64_t value = number_load(opt, config);
    char units[CONFIG_UNITS_TEXT_BYTES] = "";
    if ((opt->flags & CONFIG_OPT_AUTO) && value == 0) {
        snprintf(text, CONFIG_SETTING_TEXT_BYTES, "auto");
        return text;
    }
    switch (opt->type) {
    case CONFIG_TYPE_MODE:
        snprintf(text, CONFIG_SETTING_TEXT_BYTES, "\"%04o\"", (unsigned)value);
        break;
    case CONFIG_TYPE_SIZE:
        snprintf(text, CONFIG_SETTING_TEXT_BYTES, "%s", config_units_size_text(value, units));
        break;
    case CONFIG_TYPE_DURATION:
        snprintf(text, CONFIG_SETTING_TEXT_BYTES, "%s", config_units_duration_text(value, units));
        break;
    case CONFIG_TYPE_CHOICE:
        text[0] = '\0';
        for (const struct config_choice *choice = opt->choices; choice->name; choice++) {
            if (choice->value == value)
                snprintf(text, CONFIG_SETTING_TEXT_BYTES, "%s", choice->name);
        }
        break;
    case CONFIG_TYPE_STRING:
    case CONFIG_TYPE_PATH:
    case CONFIG_TYPE_COUNT:
        snprintf(text, CONFIG_SETTING_TEXT_BYTES, "%" PRIu64, value);
        break;
    }
    return text;
}
