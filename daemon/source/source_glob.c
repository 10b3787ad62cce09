/* From paths and patterns to files: see source_glob.h. Braces are opened first, with a list of what
 * is still to be opened in place of recursion; then wildcards are matched by glob(3). */
#include "source/source_glob.h"

#include <ctype.h>
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NUMBER_DIGITS_MAX = 18 };

struct item { /* a pattern whose braces before `from` are opened, or stay as they are */
    char *text;
    size_t from;
};

struct glob_run {
    const char *kind;
    struct err *reterr;
    struct source_files *files;
    uint32_t room;
    struct item *items;
    size_t item_count, item_room;
};

static int no_memory(struct glob_run *run)
{
    return err_set(run->reterr, -ENOMEM, "%s: no memory for its list of files", run->kind);
}

static int too_many(struct glob_run *run)
{
    return err_set(run->reterr, -E2BIG, "%s: its patterns name more than %d files", run->kind,
                   SOURCE_GLOB_FILES_MAX);
}

static int file_add(struct glob_run *run, const char *path)
{
    struct source_files *files = run->files;
    if (files->count == SOURCE_GLOB_FILES_MAX)
        return too_many(run);
    if (files->count == run->room) {
        uint32_t room = run->room ? run->room * 2 : 16;
        char **paths = reallocarray(files->paths, room, sizeof *paths);
        if (!paths)
            return no_memory(run);
        files->paths = paths;
        run->room = room;
    }
    files->paths[files->count] = strdup(path);
    return files->paths[files->count++] ? 0 : no_memory(run);
}

/* The texts in one: before, whose braces are opened, middle and behind. */
static int item_add(struct glob_run *run, const char *text, size_t before_bytes, const char *middle,
                    size_t middle_bytes, const char *behind)
{
    if (run->item_count == SOURCE_GLOB_FILES_MAX)
        return too_many(run);
    if (run->item_count == run->item_room) {
        size_t room = run->item_room ? run->item_room * 2 : 64;
        struct item *items = reallocarray(run->items, room, sizeof *items);
        if (!items)
            return no_memory(run);
        run->items = items;
        run->item_room = room;
    }
    size_t behind_bytes = strlen(behind);
    char *joined = malloc(before_bytes + middle_bytes + behind_bytes + 1);
    if (!joined)
        return no_memory(run);
    memcpy(joined, text, before_bytes);
    memcpy(joined + before_bytes, middle, middle_bytes);
    memcpy(joined + before_bytes + middle_bytes, behind, behind_bytes + 1);
    run->items[run->item_count++] = (struct item){.text = joined, .from = before_bytes};
    return 0;
}

static size_t digits(const char *text)
{
    size_t count = 0;
    while (text[count] >= '0' && text[count] <= '9')
        count++;
    return count;
}

/* {00..17} or {0..20..5}; 0 when the braces' content is no range, 1 when it was opened. */
static int range_open(struct glob_run *run, const char *text, const char *open, const char *close)
{
    size_t first_digits = digits(open + 1);
    const char *at = open + 1 + first_digits;
    if (first_digits == 0 || strncmp(at, "..", 2) != 0)
        return 0;
    size_t last_digits = digits(at + 2), step_digits = 0;
    const char *last_at = at + 2, *end = last_at + last_digits, *step_at = NULL;
    if (last_digits > 0 && strncmp(end, "..", 2) == 0) {
        step_at = end + 2;
        step_digits = digits(step_at);
        end = step_at + step_digits;
        if (step_digits == 0)
            return 0;
    }
    if (last_digits == 0 || end != close || first_digits > NUMBER_DIGITS_MAX ||
        last_digits > NUMBER_DIGITS_MAX || step_digits > NUMBER_DIGITS_MAX)
        return 0;
    uint64_t first = strtoull(open + 1, NULL, 10), last = strtoull(last_at, NULL, 10);
    uint64_t step = step_at ? strtoull(step_at, NULL, 10) : 1;
    if (first > last) { /* the files are sorted anyway */
        uint64_t swap = first;
        first = last;
        last = swap;
    }
    if (step == 0 || (last - first) / step >= SOURCE_GLOB_FILES_MAX)
        return step == 0 ? 0 : too_many(run);
    bool padded = open[1] == '0' || *last_at == '0';
    int width = padded ? (int)(first_digits > last_digits ? first_digits : last_digits) : 0;
    /* From the last to the first: what was put down last is taken up first. */
    for (uint64_t n = (last - first) / step + 1; n-- > 0;) {
        uint64_t value = first + n * step;
        char number[32];
        int bytes = snprintf(number, sizeof number, "%0*" PRIu64, width, value);
        int rc = item_add(run, text, (size_t)(open - text), number, (size_t)bytes, close + 1);
        if (rc < 0)
            return rc;
    }
    return 1;
}

/* {a,b}: each alternative may hold braces itself. 0: there is no comma. */
static int list_open(struct glob_run *run, const char *text, const char *open, const char *close)
{
    const char *begin = open + 1;
    int depth = 0, commas = 0;
    for (const char *at = begin; at <= close; at++) {
        depth += *at == '{';
        depth -= *at == '}' && at != close;
        if (depth > 0 || (at != close && *at != ','))
            continue;
        if (at == close && commas == 0)
            return 0;
        commas++;
        int rc = item_add(run, text, (size_t)(open - text), begin, (size_t)(at - begin), close + 1);
        if (rc < 0)
            return rc;
        begin = at + 1;
    }
    return 1;
}

static const char *close_find(const char *open)
{
    int depth = 0;
    for (const char *at = open; *at; at++) {
        depth += *at == '{';
        depth -= *at == '}';
        if (depth == 0)
            return at;
    }
    return NULL;
}

/* Opens the first braces behind item.from. 0: there are none, 1: others took its place. */
static int braces_open(struct glob_run *run, const struct item *item)
{
    const char *open = item->text + item->from;
    while ((open = strchr(open, '{')) != NULL) {
        const char *close = close_find(open);
        int rc = close ? range_open(run, item->text, open, close) : 0;
        if (rc == 0 && close)
            rc = list_open(run, item->text, open, close);
        if (rc != 0)
            return rc;
        open++;
    }
    return 0;
}

static int written_out(struct glob_run *run, const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        int rc = -errno;
        return err_set(run->reterr, rc, "%s %s: %s", run->kind, path,
                       rc == -ENOENT ? "it does not exist; check the path" : strerror(-rc));
    }
    if (S_ISDIR(st.st_mode))
        return err_set(run->reterr, -EISDIR,
                       "%s %s: it is a folder; for the files in it write %s/*.%s", run->kind, path,
                       path, run->kind);
    if (!S_ISREG(st.st_mode))
        return err_set(run->reterr, -EINVAL, "%s %s: it is no regular file", run->kind, path);
    return file_add(run, path);
}

static int wildcards(struct glob_run *run, const char *pattern)
{
    glob_t found;
    struct stat st;
    uint32_t before = run->files->count;
    int rc = 0, code = glob(pattern, GLOB_NOSORT | GLOB_ERR, NULL, &found);
    if (code == GLOB_NOSPACE)
        rc = no_memory(run);
    else if (code == GLOB_ABORTED)
        rc = err_set(run->reterr, -EACCES, "%s %s: a folder on the way cannot be read: %s",
                     run->kind, pattern, strerror(errno));
    for (size_t i = 0; rc == 0 && code == 0 && i < found.gl_pathc; i++)
        if (stat(found.gl_pathv[i], &st) == 0 && S_ISREG(st.st_mode))
            rc = file_add(run, found.gl_pathv[i]);
    globfree(&found);
    if (rc == 0 && run->files->count == before)
        rc = err_set(run->reterr, -ENOENT, "%s %s: no file matches", run->kind, pattern);
    return rc;
}

static int pattern_take(struct glob_run *run, const char *pattern)
{
    struct stat st;
    if (stat(pattern, &st) == 0)
        return written_out(run, pattern);
    int rc = item_add(run, "", 0, pattern, strlen(pattern), "");
    while (rc == 0 && run->item_count > 0) {
        struct item item = run->items[--run->item_count];
        rc = braces_open(run, &item);
        if (rc == 0)
            rc = strpbrk(item.text, "*?[") && stat(item.text, &st) < 0
                     ? wildcards(run, item.text)
                     : written_out(run, item.text);
        else if (rc == 1)
            rc = 0;
        free(item.text);
    }
    return rc;
}

char *source_glob_absolute(const char *patterns)
{
    char *here = getcwd(NULL, 0);
    size_t here_bytes = here ? strlen(here) : 0, lines = 1;
    for (const char *at = patterns; *at; at++)
        lines += *at == '\n';
    char *text = here ? malloc(strlen(patterns) + lines * (here_bytes + 1) + 2) : NULL;
    char *to = text;
    for (const char *line = patterns; text && *line;) {
        size_t bytes = strcspn(line, "\n");
        const char *end = line + bytes, *next = *end ? end + 1 : end;
        if (bytes > 0 && *line != '/' && here_bytes > 1) {
            memcpy(to, here, here_bytes);
            to += here_bytes;
        }
        for (const char *at = line; at < end;) { /* name after name */
            size_t slashes = strspn(at, "/");
            size_t name = strcspn(at + slashes, "/\n");
            bool is_here = name == 1 && at[slashes] == '.';
            if (!is_here && (name > 0 || at + slashes == end)) {
                *to++ = '/';
                memcpy(to, at + slashes, name);
                to += name;
            }
            at += slashes + name;
        }
        if (bytes > 0 && *next)
            *to++ = '\n';
        line = next;
    }
    if (text)
        *to = 0;
    free(here);
    return text;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort(struct source_files *files)
{
    uint32_t kept = 0;
    if (files->count == 0)
        return;
    qsort(files->paths, files->count, sizeof *files->paths, by_bytes);
    for (uint32_t i = 1; i < files->count; i++) {
        if (strcmp(files->paths[kept], files->paths[i]) == 0)
            free(files->paths[i]);
        else
            files->paths[++kept] = files->paths[i];
    }
    files->count = kept + 1;
}

int source_glob(const char *kind, const char *patterns, struct source_files *ret_files,
                struct err *reterr)
{
    struct glob_run run = {.kind = kind, .reterr = reterr, .files = ret_files};
    *ret_files = (struct source_files){0};
    char *text = source_glob_absolute(patterns), *rest = text, *line;
    int rc = text ? 0 : no_memory(&run);
    while (rc == 0 && (line = strsep(&rest, "\n")) != NULL)
        if (*line)
            rc = pattern_take(&run, line);
    for (size_t i = 0; i < run.item_count; i++)
        free(run.items[i].text);
    free(run.items);
    free(text);
    if (rc == 0 && ret_files->count == 0)
        rc = err_set(reterr, -EINVAL, "%s: the path is empty", kind);
    if (rc < 0)
        source_files_fini(ret_files);
    else
        sort(ret_files);
    return rc;
}

void source_files_fini(struct source_files *files)
{
    for (uint32_t i = 0; i < files->count; i++)
        free(files->paths[i]);
    free(files->paths);
    *files = (struct source_files){0};
}
