/* Configuration files: opened, read whole, parsed and put together. */
#include "config/config_load.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config_dataset.h"
#include "config/config_read.h"
#include "config/config_settings.h"
#include "config/config_yaml.h"

struct place {
    uint32_t file; /* index of the loader's file */
    uint32_t line; /* of its name */
    uint32_t source_line, source_column;
};

struct loader {
    struct config *config;
    struct config_complaints *complaints;
    uint32_t capacity;
    char (*files)[CONFIG_PATH_BYTES]; /* CONFIG_FILES_MAX + 1 */
    uint32_t file_count;
    struct place places[CONFIG_DATASETS_MAX];
};

/* Reads a whole regular file. Returned owned in *ret_text. */
static int file_read_fd(int fd, char **ret_text, size_t *ret_bytes)
{
    struct stat status;
    if (fstat(fd, &status) < 0)
        return -errno;
    if (!S_ISREG(status.st_mode))
        return -ENOTSUP;
    if (status.st_size > CONFIG_FILE_BYTES_MAX)
        return -EFBIG;
    size_t capacity = (size_t)status.st_size + 1; /* one more: notices a file that grows */
    char *text = malloc(capacity);
    if (!text)
        return -ENOMEM;
    size_t used = 0;
    while (used < capacity) {
        ssize_t n = read(fd, text + used, capacity - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int rc = -errno;
            free(text);
            return rc;
        }
        if (n == 0)
            break;
        used += (size_t)n;
    }
    if (used == capacity) {
        free(text);
        return -EBUSY;
    }
    *ret_text = text;
    *ret_bytes = used;
    return 0;
}

static int file_read(const char *path, char **ret_text, size_t *ret_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    int rc = file_read_fd(fd, ret_text, ret_bytes);
    close(fd);
    return rc;
}

static int file_refused(struct config_reader *reader, int rc)
{
    if (rc == -ENOTSUP)
        return config_complain(reader, NULL, "not a regular file");
    if (rc == -EFBIG)
        return config_complain(reader, NULL, "larger than %d MiB", CONFIG_FILE_BYTES_MAX >> 20);
    if (rc == -EBUSY)
        return config_complain(reader, NULL, "it changed while it was read");
    config_complain(reader, NULL, "%s", strerror(-rc));
    return rc;
}

static struct config_dataset *dataset_new(struct loader *loader)
{
    static const struct config_dataset none;
    struct config *config = loader->config;
    if (config->dataset_count == loader->capacity) {
        uint32_t capacity = loader->capacity ? loader->capacity * 2 : 4;
        struct config_dataset *grown = realloc(config->datasets, capacity * sizeof *grown);
        if (!grown)
            return NULL;
        config->datasets = grown;
        loader->capacity = capacity;
    }
    struct config_dataset *dataset = &config->datasets[config->dataset_count];
    *dataset = none;
    return dataset;
}

static int dataset_add(struct loader *loader, struct config_reader *reader,
                       const struct config_item *item)
{
    const struct config_dataset *same = config_dataset_find(loader->config, item->key->text);
    if (config_name_check(reader, item->key, "dataset", true) < 0)
        return 0;
    if (same) {
        const struct place *place = &loader->places[same - loader->config->datasets];
        config_complain(reader, item->key, "dataset %s is given twice, first at %.200s:%u",
                        same->name, loader->files[place->file], place->line);
        return 0;
    }
    if (loader->config->dataset_count == CONFIG_DATASETS_MAX)
        return config_complain(reader, item->key, "more than %d datasets", CONFIG_DATASETS_MAX);
    struct config_dataset *dataset = dataset_new(loader);
    if (!dataset)
        return -ENOMEM;
    memcpy(dataset->name, item->key->text, item->key->bytes + 1);
    config_dataset_take(reader, item->value, loader->config->max_pixels, dataset);
    const struct config_node *source = config_key_node(item->value, "source");
    loader->places[loader->config->dataset_count++] =
        (struct place){.file = loader->file_count - 1,
                       .line = item->key->line,
                       .source_line = source->line,
                       .source_column = source->column};
    return 0;
}

/* Where the sources are said, which the configuration keeps. */
static int places_keep(const struct loader *loader)
{
    struct config *config = loader->config;
    config->places = calloc(config->dataset_count + 1u, sizeof *config->places);
    for (uint32_t i = 0; config->places && i < config->dataset_count; i++) {
        const struct place *place = &loader->places[i];
        config->places[i] = (struct config_place){.file = strdup(loader->files[place->file]),
                                                  .line = place->source_line,
                                                  .column = place->source_column};
        if (!config->places[i].file)
            return -ENOMEM;
    }
    return config->places ? 0 : -ENOMEM;
}

static int datasets_read(struct loader *loader, struct config_reader *reader,
                         const struct config_node *root)
{
    char show[CONFIG_SHOW_BYTES];
    bool seen = false;
    for (const struct config_item *item = root->first; item; item = item->next) {
        if (strcmp(item->key->text, "datasets") != 0)
            continue;
        if (seen)
            config_complain(reader, item->key, "datasets is given twice");
        seen = true;
        if (config_node_is_empty(item->value))
            continue;
        if (item->value->kind != CONFIG_NODE_MAPPING) {
            config_complain(reader, item->value,
                            "datasets is a mapping of names to datasets, not %s",
                            config_show(item->value, show));
            continue;
        }
        int rc = 0;
        for (const struct config_item *one = item->value->first; one && rc == 0; one = one->next)
            rc = dataset_add(loader, reader, one);
        if (rc == -ENOMEM)
            return rc;
    }
    return 0;
}

/* A file of datasets.d: nothing but `datasets`. */
static void others_refuse(struct config_reader *reader, const struct config_node *root)
{
    static const struct config_key keys[] = {{"datasets", false}, {NULL, false}};
    for (const struct config_item *item = root->first; item; item = item->next) {
        char show[CONFIG_SHOW_BYTES];
        const char *name = item->key->text;
        const struct config_node *values[1] = {NULL};
        struct config_item alone = {.key = item->key, .value = item->value};
        struct config_node one = {.kind = CONFIG_NODE_MAPPING, .first = &alone, .count = 1};
        size_t bytes = strlen(name);
        bool setting = false;
        for (const struct config_opt *opt = config_settings; opt->name; opt++)
            setting = setting || (strncmp(opt->name, name, bytes) == 0 && bytes > 0 &&
                                  strchr(".", opt->name[bytes]));
        if (setting)
            config_complain(reader, item->key,
                            "%s belongs into spdld.yaml: this file holds datasets",
                            config_show(item->key, show));
        else if (strcmp(name, "datasets") != 0)
            config_keys_take(reader, &one, "a file of datasets", keys, values);
    }
}

/* Reads one file; `settings`: it may hold more than datasets. */
static int file_load(struct loader *loader, const char *path, bool settings, bool required)
{
    struct config_reader reader;
    struct config_tree tree = {0};
    char *text = NULL;
    char show[CONFIG_SHOW_BYTES];
    size_t bytes = 0;
    config_reader_init(&reader, path, loader->complaints);
    int rc = file_read(path, &text, &bytes);
    if (rc == -ENOENT && !required)
        return 0;
    if (rc < 0)
        return file_refused(&reader, rc);
    snprintf(loader->files[loader->file_count++], CONFIG_PATH_BYTES, "%s", path);
    rc = config_yaml_parse(&reader, text, bytes, &tree);
    if (rc == 0 && tree.root && !config_node_is_empty(tree.root)) {
        if (tree.root->kind != CONFIG_NODE_MAPPING) {
            config_complain(&reader, tree.root, "a configuration is a mapping of settings, not %s",
                            config_show(tree.root, show));
        } else {
            if (settings)
                config_settings_read(&reader, tree.root, loader->config);
            else
                others_refuse(&reader, tree.root);
            rc = datasets_read(loader, &reader, tree.root);
        }
    }
    config_yaml_fini(&tree);
    free(text);
    return rc == -ENOMEM ? rc : 0;
}

static int is_yaml(const struct dirent *entry)
{
    size_t bytes = strlen(entry->d_name);
    return entry->d_name[0] != '.' && bytes > 5 && strcmp(entry->d_name + bytes - 5, ".yaml") == 0;
}

/* In the order of their names' bytes, whatever the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int folder_load(struct loader *loader, const char *folder)
{
    struct dirent **entries = NULL;
    struct config_reader reader;
    config_reader_init(&reader, folder, loader->complaints);
    int count = scandir(folder, &entries, is_yaml, by_name);
    if (count < 0)
        return errno == ENOENT ? 0 : file_refused(&reader, -errno);
    int rc = 0;
    if (count > CONFIG_FILES_MAX)
        rc = config_complain(&reader, NULL, "more than %d files", CONFIG_FILES_MAX);
    for (int i = 0; i < count; i++) {
        char path[CONFIG_PATH_BYTES];
        int n = snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (n > 0 && (size_t)n < sizeof path && i < CONFIG_FILES_MAX && rc != -ENOMEM) {
            int one = file_load(loader, path, false, true);
            rc = rc == 0 || one == -ENOMEM ? one : rc;
        }
        free(entries[i]);
    }
    free(entries);
    return rc;
}

static int loader_run(struct loader *loader, const struct config_places *places)
{
    int rc = 0;
    if (places->file) {
        rc = file_load(loader, places->file, true, places->file_required);
        if (loader->file_count > 0)
            snprintf(loader->config->file, sizeof loader->config->file, "%s", places->file);
    }
    if (places->folder && rc == 0)
        rc = folder_load(loader, places->folder);
    for (uint32_t i = 0; i < places->set_count; i++)
        config_settings_assign(loader->complaints, CONFIG_ORIGIN_SET, places->sets[i],
                               loader->config);
    config_settings_check(loader->config, loader->complaints);
    /* Only now is the limit known: --set comes behind the files. */
    for (uint32_t i = 0; i < loader->config->dataset_count; i++) {
        struct config_dataset *dataset = &loader->config->datasets[i];
        for (uint32_t k = 0; k < dataset->field_count; k++)
            dataset->fields[k].max_pixels = loader->config->max_pixels;
    }
    if (rc == 0 && loader->complaints->count > 0)
        rc = -EINVAL;
    return rc;
}

int config_load_places(const struct config_places *places, struct config **ret_config,
                       struct config_complaints *ret_complaints)
{
    ret_complaints->count = 0;
    struct loader *loader = calloc(1, sizeof *loader);
    int rc = -ENOMEM;
    if (!loader)
        return rc;
    loader->complaints = ret_complaints;
    loader->files = calloc(CONFIG_FILES_MAX + 1, sizeof *loader->files);
    loader->config = malloc(sizeof *loader->config);
    if (loader->config)
        config_settings_init(loader->config);
    if (loader->files && loader->config)
        rc = loader_run(loader, places);
    if (rc == 0)
        rc = places_keep(loader);
    if (rc == 0)
        *ret_config = loader->config;
    else
        config_destroy(loader->config);
    free(loader->files);
    free(loader);
    return rc;
}

int config_load(const char *file, const char *const *sets, uint32_t set_count,
                struct config **ret_config, struct config_complaints *ret_complaints)
{
    struct config_places places = {.file = "/etc/spdld/spdld.yaml",
                                   .folder = "/etc/spdld/datasets.d"};
    if (file)
        places = (struct config_places){.file = file, .file_required = 1};
    places.sets = sets;
    places.set_count = set_count;
    return config_load_places(&places, ret_config, ret_complaints);
}

void config_destroy(struct config *config)
{
    if (!config)
        return;
    for (uint32_t i = 0; config->places && i < config->dataset_count; i++)
        free(config->places[i].file);
    free(config->places);
    free(config->datasets);
    free(config);
}

int config_dataset_read(const char *yaml, size_t bytes, const char *where,
                        const struct config *config, struct config_dataset *ret_dataset,
                        struct config_complaints *ret_complaints)
{
    static const struct config_dataset none;
    struct config_reader reader;
    struct config_tree tree = {0};
    ret_complaints->count = 0;
    config_reader_init(&reader, where, ret_complaints);
    if (bytes > CONFIG_DATASET_BYTES_MAX)
        return config_complain(&reader, NULL, "a dataset's text is larger than %d KiB",
                               CONFIG_DATASET_BYTES_MAX >> 10);
    struct config_dataset *dataset = malloc(sizeof *dataset);
    if (!dataset)
        return -ENOMEM;
    *dataset = none;
    int rc = config_yaml_parse(&reader, yaml, bytes, &tree);
    if (rc == 0 && !tree.root)
        rc = config_complain(&reader, NULL, "the dataset is empty");
    if (rc == 0)
        config_dataset_take(&reader, tree.root, config->max_pixels, dataset);
    if (rc == 0 && ret_complaints->count > 0)
        rc = -EINVAL;
    if (rc == 0)
        *ret_dataset = *dataset;
    config_yaml_fini(&tree);
    free(dataset);
    return rc;
}

const struct config_dataset *config_dataset_find(const struct config *config, const char *name)
{
    for (uint32_t i = 0; i < config->dataset_count; i++) {
        if (strcmp(config->datasets[i].name, name) == 0)
            return &config->datasets[i];
    }
    return NULL;
}

int config_dataset_unknown(const struct config *config, const char *name, struct err *reterr)
{
    enum { SHOWN_MAX = 5 };
    struct config_nearest nearest;
    char hint[CONFIG_SHOW_BYTES], list[SHOWN_MAX * (CONFIG_NAME_BYTES + 2) + 64] = "";
    size_t used = 0;
    config_nearest_init(&nearest, name);
    for (uint32_t i = 0; i < config->dataset_count; i++) {
        config_nearest_try(&nearest, config->datasets[i].name);
        if (i < SHOWN_MAX)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                     config->datasets[i].name);
    }
    if (config->dataset_count > SHOWN_MAX)
        snprintf(list + used, sizeof list - used, " and %u more",
                 (unsigned)(config->dataset_count - SHOWN_MAX));
    return err_set(reterr, -ENOENT, "there is no dataset '%.256s' (%s%s)%s", name,
                   config->dataset_count > 1    ? "there are "
                   : config->dataset_count == 1 ? "there is "
                                                : "",
                   list[0] ? list : "the configuration has none",
                   config_nearest_hint(&nearest, hint));
}
