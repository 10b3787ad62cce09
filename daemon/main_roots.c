/* Looks for the roots of the datasets: see main_roots.h. */
#include "main_roots.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "source/source_glob.h"

/* --- --check --- */

static void say(const struct config *config, uint32_t number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(const struct config *config, uint32_t number, const char *format, ...)
{
    if (config->places)
        fprintf(stderr, "%s:%u:%u: ", config->places[number].file, config->places[number].line,
                config->places[number].column);
    fprintf(stderr, "dataset %s: ", config->datasets[number].name);
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

/* How many of a dataset's shards the service's user cannot read; 1 where they cannot be found. */
static int check_shards(const struct config *config, uint32_t number)
{
    const struct config_source *source = &config->datasets[number].source;
    struct source_files files;
    struct err error = {0};
    int bad = 0;
    if (source_glob(source->kind, source->path, &files, &error) < 0) {
        say(config, number, "%s", error.text);
        return 1;
    }
    for (uint32_t i = 0; i < files.count; i++) {
        if (access(files.paths[i], R_OK) == 0)
            continue;
        say(config, number, "%s: %s", files.paths[i], strerror(errno));
        bad++;
    }
    source_files_fini(&files);
    if (source->root[0] && access(source->root, R_OK | X_OK) < 0) {
        say(config, number, "%s: %s", source->root, strerror(errno));
        bad++;
    }
    return bad;
}

int main_roots_check(const struct config *config)
{
    int bad = 0;
    for (uint32_t i = 0; i < config->dataset_count; i++) {
        const struct config_source *source = &config->datasets[i].source;
        if (!source->path[0])
            continue;
        if (strcmp(source->kind, "folder") != 0) {
            bad += check_shards(config, i);
            continue;
        }
        int fd = open(source->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0) {
            close(fd);
            continue;
        }
        say(config, i, "%s: %s", source->path, strerror(errno));
        bad++;
    }
    return bad;
}

/* --- at the start --- */

struct roots {
    uint32_t count;
    struct config_dataset datasets[];
};

/* A path, or of a pattern the folder before its first letter that stands for others. */
static void warn_path(const char *name, const char *path, size_t bytes)
{
    char *fixed = strndup(path, bytes);
    if (!fixed)
        return;
    size_t plain = strcspn(fixed, "*?[{");
    if (fixed[plain]) {
        fixed[plain] = 0;
        char *slash = strrchr(fixed, '/');
        if (slash)
            slash[slash == fixed] = 0;
        else
            fixed[0] = 0;
    }
    if (fixed[0] && access(fixed, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR))
        log_line(LOG_LEVEL_WARNING,
                 "dataset %s: %s does not exist: its streams cannot be opened until it does", name,
                 fixed);
    free(fixed);
}

static void *warn_run(void *context)
{
    struct roots *roots = context;
    for (uint32_t i = 0; i < roots->count; i++) {
        const struct config_dataset *dataset = &roots->datasets[i];
        for (const char *line = dataset->source.path; *line;) {
            size_t bytes = strcspn(line, "\n");
            warn_path(dataset->name, line, bytes);
            line += bytes + (line[bytes] == '\n');
        }
        warn_path(dataset->name, dataset->source.root, strlen(dataset->source.root));
    }
    free(roots);
    return NULL;
}

void main_roots_warn(const struct config *config)
{
    pthread_t thread;
    size_t bytes = config->dataset_count * sizeof *config->datasets;
    struct roots *roots = bytes > 0 ? malloc(sizeof *roots + bytes) : NULL;
    if (!roots) /* no memory, or no thread: who opens a dataset is told all the same */
        return;
    roots->count = config->dataset_count;
    memcpy(roots->datasets, config->datasets, bytes);
    if (pthread_create(&thread, NULL, warn_run, roots) == 0)
        pthread_detach(thread);
    else
        free(roots);
}
