/* Reads a list: finds its rows and which columns are what. The list is read and never mapped: it
 * may be cut while it is in use. Chores thread. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "item/class.h"
#include "source/source_list_take.h"
#include "source/source_walk.h"

enum { CHUNK_BYTES = 1 << 20, ROOM_MAX = SOURCE_LIST_ROW_BYTES_MAX };

/* --- bytes --- */

/* More of the file behind what is there; what is behind us goes. */
static int fill(struct source_list_take *r)
{
    memmove(r->buffer, r->buffer + r->from, r->have - r->from);
    r->at += r->from;
    r->have -= r->from;
    r->from = 0;
    if (r->have == r->room && r->room < ROOM_MAX) {
        size_t room = r->room < CHUNK_BYTES ? CHUNK_BYTES : r->room * 2;
        uint8_t *larger = realloc(r->buffer, room);
        if (!larger)
            return source_list_take_fails(r, -ENOMEM, "no memory");
        r->buffer = larger;
        r->room = room;
    }
    while (r->have < r->room && !r->is_end) {
        ssize_t got =
            pread(r->fd, r->buffer + r->have, r->room - r->have, (off_t)(r->at + r->have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return source_list_take_fails(r, -errno, "%s", strerror(errno));
        r->is_end = got == 0;
        r->have += (size_t)got;
    }
    return 0;
}

/* The next row. 1, 0: none is left. */
static int next_row(struct source_list_take *r)
{
    for (;;) {
        struct source_list_input input = {.data = r->buffer + r->from,
                                          .bytes = r->have - r->from,
                                          .is_end = r->is_end,
                                          .goes_back = r->back_left > 0,
                                          .delimiter = r->delimiter};
        if (input.bytes == 0 && r->is_end)
            return 0;
        if (input.bytes > 0 && source_list_row(&input, &r->row))
            return 1;
        int rc = fill(r);
        if (rc < 0)
            return rc;
    }
}

static void row_end(struct source_list_take *r)
{
    uint64_t again = r->row.looked > r->row.bytes ? r->row.looked - r->row.bytes : 0;
    r->back_left -= again < r->back_left ? again : r->back_left;
    r->from += r->row.bytes;
    r->line += r->row.lines;
}

/* --- CSV --- */

/* Does the first line look like a row? */
static bool is_picture(const char *name)
{
    const char *dot = strrchr(name, '.');
    for (unsigned i = 0; dot && source_extension_name(i); i++)
        if (strcasecmp(dot + 1, source_extension_name(i)) == 0)
            return true;
    return false;
}

static uint32_t column_named(const struct source_list_take *r, const char *name)
{
    for (uint32_t i = 0; i < r->column_count; i++)
        if (r->columns[i] != SOURCE_LIST_NONE &&
            strcasecmp(r->table->names[r->columns[i]], name) == 0)
            return i;
    return SOURCE_LIST_NONE;
}

static int no_column(const struct source_list_take *r, const char *name)
{
    char names[400] = "";
    for (uint32_t i = 0; i < r->column_count; i++)
        if (r->columns[i] != SOURCE_LIST_NONE) {
            size_t used = strlen(names);
            snprintf(names + used, sizeof names - used, " %s", r->table->names[r->columns[i]]);
        }
    return source_list_take_fails(r, -EINVAL, "it has no column '%s'; its columns are:%s", name,
                                  names);
}

static int column_take(struct source_list_take *r, uint32_t number,
                       const struct source_list_value *value)
{
    size_t bytes = 0;
    r->scratch_bytes = 0;
    int rc = source_list_take_value(r, value->at, value->bytes, value->escape, &bytes);
    if (rc < 0)
        return rc;
    uint32_t name = source_list_table_name(r->table, r->scratch, bytes);
    if (is_picture(r->scratch))
        return source_list_take_fails(
            r, -EINVAL,
            "line 1 looks like a row (%.100s): the first line names the columns, as "
            "in path,label",
            r->scratch);
    for (uint32_t i = 0; name != SOURCE_LIST_NONE && i < number; i++)
        if (r->columns[i] == name)
            return source_list_take_fails(r, -EINVAL, "line 1: two columns are named '%s'",
                                          r->table->names[name]);
    if (name == SOURCE_LIST_NONE && bytes > 0)
        source_note(r->counts,
                    "list %s: the column '%.60s' is no part: a part's name is of up to %d letters, "
                    "digits, - _ and .",
                    r->file->path, r->scratch, FIELD_PART_BYTES - 1);
    r->columns[number] = name;
    return 0;
}

/* The first line. */
static int header_take(struct source_list_take *r)
{
    int rc = next_row(r);
    if (rc > 0 && r->row.class_number != SPDL_CLASS_OK)
        return source_list_take_fails(r, -EINVAL, "line 1, which names the columns: %s",
                                      r->row.message);
    if (rc > 0 && r->row.further > 0)
        return source_list_take_fails(r, -E2BIG, "it has more than %d columns",
                                      SOURCE_LIST_COLUMNS_MAX);
    if (rc <= 0 || r->row.value_count == 0)
        return rc < 0 ? rc : source_list_take_fails(r, -ENODATA, "its first line names no columns");
    r->column_count = r->row.value_count;
    for (uint32_t i = 0; rc > 0 && i < r->column_count; i++)
        if (column_take(r, i, &r->row.values[i]) < 0)
            return r->reterr ? r->reterr->code : -EINVAL;
    r->path_column = column_named(r, r->wanted->path[0] ? r->wanted->path : "path");
    if (r->path_column == SOURCE_LIST_NONE && r->wanted->path[0])
        return no_column(r, r->wanted->path);
    for (uint32_t i = 0; r->path_column == SOURCE_LIST_NONE && i < r->column_count; i++)
        if (r->columns[i] != SOURCE_LIST_NONE)
            r->path_column = i;
    if (r->path_column == SOURCE_LIST_NONE)
        return source_list_take_fails(
            r, -EINVAL, "line 1 names no column (%.100s): it is to be one like path,label",
            r->scratch);
    uint32_t label = column_named(r, r->label_text);
    if (label == SOURCE_LIST_NONE && r->wanted->label[0])
        return no_column(r, r->wanted->label);
    r->file->path_name = r->columns[r->path_column];
    r->file->label_name =
        label == SOURCE_LIST_NONE || label == r->path_column ? SOURCE_LIST_NONE : r->columns[label];
    row_end(r);
    return 0;
}

static int csv_take(struct source_list_take *r)
{
    uint32_t count = r->row.value_count + r->row.further;
    if (count < r->column_count)
        return source_list_take_leave_out(r, SPDL_CLASS_INCOMPLETE, 0,
                                          "it has %" PRIu32 " of %" PRIu32 " columns", count,
                                          r->column_count);
    if (count > r->column_count)
        return source_list_take_leave_out(
            r, SPDL_CLASS_BAD_FORMAT, 0,
            "it has %" PRIu32 " values for %" PRIu32
            " columns; a value with the delimiter in it stands in quotes",
            count, r->column_count);
    return source_list_take_sample(r, &r->row.values[r->path_column], r->columns);
}

/* --- JSON lines --- */

/* The name of a member; most often that of the row before at the same place. 1, 0: the row was left
 * out, with *ret_name NONE where it is no part's name. */
static int member_name(struct source_list_take *r, uint32_t number,
                       const struct source_list_value *value, uint32_t *ret_name)
{
    const char *text = (const char *)r->buffer + r->from + value->name_at;
    uint32_t last = number < r->column_count ? r->columns[number] : SOURCE_LIST_NONE;
    *ret_name = last;
    if (last == SOURCE_LIST_NONE || strlen(r->table->names[last]) != value->name_bytes ||
        memcmp(r->table->names[last], text, value->name_bytes) != 0) {
        size_t bytes = 0;
        int rc = source_list_take_value(r, value->name_at, value->name_bytes, value->name_escape,
                                        &bytes);
        if (rc < 0)
            return rc;
        *ret_name = rc == 0
                        ? SOURCE_LIST_NONE
                        : source_list_table_name(r->table, r->scratch + r->scratch_bytes, bytes);
    }
    for (uint32_t i = 0; *ret_name != SOURCE_LIST_NONE && i < number; i++)
        if (r->columns[i] == *ret_name) {
            int rc = source_list_take_leave_out(r, SPDL_CLASS_DUPLICATE, value->name_at,
                                                "%s is there twice", r->table->names[*ret_name]);
            return rc;
        }
    r->columns[number] = *ret_name;
    if (number >= r->column_count)
        r->column_count = number + 1;
    return 1;
}

static int json_take(struct source_list_take *r)
{
    const struct source_list_value *path = NULL;
    uint32_t first = SOURCE_LIST_NONE;
    r->scratch_bytes = 0;
    for (uint32_t i = 0; i < r->row.value_count; i++) {
        uint32_t name;
        int rc = member_name(r, i, &r->row.values[i], &name);
        if (rc != 1)
            return rc;
        if (first == SOURCE_LIST_NONE)
            first = name;
    }
    if (!r->knows_path && first != SOURCE_LIST_NONE) { /* the first row says which member it is */
        bool has_path = false;
        for (uint32_t i = 0; i < r->row.value_count; i++)
            has_path = has_path || (r->columns[i] != SOURCE_LIST_NONE &&
                                    strcmp(r->table->names[r->columns[i]], "path") == 0);
        snprintf(r->path_text, sizeof r->path_text, "%s",
                 has_path ? "path" : r->table->names[first]);
        r->knows_path = true;
    }
    uint32_t path_name = source_list_table_name(r->table, r->path_text, strlen(r->path_text));
    uint32_t label_name = source_list_table_name(r->table, r->label_text, strlen(r->label_text));
    r->file->path_name = path_name;
    r->file->label_name = label_name == path_name ? SOURCE_LIST_NONE : label_name;
    for (uint32_t i = 0; i < r->row.value_count; i++)
        if (r->columns[i] != SOURCE_LIST_NONE && r->columns[i] == path_name &&
            !r->row.values[i].is_null)
            path = &r->row.values[i];
    if (!path)
        return source_list_take_leave_out(r, SPDL_CLASS_INCOMPLETE, 0, "it has no %s",
                                          r->path_text);
    return source_list_take_sample(r, path, r->columns);
}

/* --- the file --- */

static int rows_take(struct source_list_take *r)
{
    int rc = 1;
    while (rc >= 0 && (rc = next_row(r)) > 0) {
        r->key[0] = 0;
        if (r->row.class_number != SPDL_CLASS_OK)
            rc = source_list_take_leave_out(r, r->row.class_number, r->row.fault_at, "%s",
                                            r->row.message);
        else if (r->row.value_count == 0)
            rc = 0; /* an empty line */
        else
            rc = r->delimiter == SOURCE_LIST_JSON ? json_take(r) : csv_take(r);
        row_end(r);
    }
    return rc;
}

/* How the list is written: by its extension, else by its first byte. */
static int form_find(struct source_list_take *r)
{
    static const struct {
        const char *extension;
        char delimiter;
    } forms[] = {
        {".csv", ','}, {".tsv", '\t'}, {".jsonl", SOURCE_LIST_JSON}, {".ndjson", SOURCE_LIST_JSON}};
    static const uint8_t mark[] = {0xef, 0xbb, 0xbf};
    const uint8_t *head = r->buffer;
    const char *dot = strrchr(r->file->path, '.');
    if (r->have == 0)
        return source_list_take_fails(r, -ENODATA, "the file is empty");
    if (r->have >= 2 &&
        ((head[0] == 0xff && head[1] == 0xfe) || (head[0] == 0xfe && head[1] == 0xff)))
        return source_list_take_fails(r, -EINVAL, "it is written in UTF-16; write it in UTF-8");
    if (r->have >= 4 &&
        (memcmp(head, "\x1f\x8b", 2) == 0 || memcmp(head, "\x28\xb5\x2f\xfd", 4) == 0 ||
         memcmp(head, "PK\3\4", 4) == 0 || memcmp(head, "PAR1", 4) == 0))
        return source_list_take_fails(r, -EINVAL,
                                      "it is neither CSV nor JSON lines; unpack or convert it");
    if (r->have >= sizeof mark && memcmp(head, mark, sizeof mark) == 0)
        r->from = sizeof mark;
    for (size_t i = 0; dot && i < sizeof forms / sizeof forms[0]; i++)
        if (strcasecmp(dot, forms[i].extension) == 0) {
            r->delimiter = forms[i].delimiter;
            return 0;
        }
    size_t line = r->from;
    while (line < r->have && head[line] != '\n')
        line++;
    r->delimiter = ',';
    if (r->from < r->have && head[r->from] == '{')
        r->delimiter = SOURCE_LIST_JSON;
    else if (memchr(head + r->from, '\t', line - r->from) &&
             !memchr(head + r->from, ',', line - r->from))
        r->delimiter = '\t';
    return 0;
}

static int list_take(struct source_list_take *r)
{
    struct stat before, after;
    if (fstat(r->fd, &before) < 0)
        return source_list_take_fails(r, -errno, "%s", strerror(errno));
    if (!S_ISREG(before.st_mode))
        return source_list_take_fails(r, -EINVAL, "it is not a file");
    r->file->bytes = (uint64_t)before.st_size;
    r->file->mtime_ns =
        (int64_t)((uint64_t)before.st_mtim.tv_sec * 1000000000u + (uint64_t)before.st_mtim.tv_nsec);
    r->back_left = r->file->bytes * 4 + SOURCE_LIST_ROW_BYTES_MAX;
    int rc = fill(r);
    if (rc == 0)
        rc = form_find(r);
    if (rc == 0 && r->delimiter != SOURCE_LIST_JSON)
        rc = header_take(r);
    if (rc == 0)
        rc = rows_take(r);
    if (rc < 0)
        return rc == -ENOMEM ? source_list_take_fails(r, rc, "no memory") : rc;
    if (fstat(r->fd, &after) < 0 || after.st_size != before.st_size ||
        after.st_mtim.tv_sec != before.st_mtim.tv_sec ||
        after.st_mtim.tv_nsec != before.st_mtim.tv_nsec)
        return source_list_take_fails(r, -ESTALE, "it changed while it was read; try again");
    return 0;
}

int source_list_read(struct source_list_table *table, uint32_t file,
                     const struct source_list_columns *columns, struct source_counts *counts,
                     struct err *reterr)
{
    struct source_list_take *r = calloc(1, sizeof *r);
    struct source_list_file *list = &table->files[file];
    char root[2] = "/";
    int rc = 0;
    if (!r)
        return err_set(reterr, -ENOMEM, "list %s: no memory", list->path);
    *r = (struct source_list_take){.table = table,
                                   .file = list,
                                   .number = file,
                                   .wanted = columns,
                                   .counts = counts,
                                   .reterr = reterr,
                                   .fd = -1,
                                   .line = 1,
                                   .room = CHUNK_BYTES};
    list->path_name = list->label_name = SOURCE_LIST_NONE;
    snprintf(r->label_text, sizeof r->label_text, "%s",
             columns->label[0] ? columns->label : "label");
    snprintf(r->path_text, sizeof r->path_text, "%s", columns->path);
    r->knows_path = columns->path[0] != 0;
    r->sizes = source_list_sizes_create();
    r->buffer = malloc(r->room);
    int root_fd = open(root, O_PATH | O_CLOEXEC);
    if (root_fd >= 0)
        r->fd = openat(root_fd, list->real, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (!r->sizes || !r->buffer)
        rc = source_list_take_fails(r, -ENOMEM, "no memory");
    else if (r->fd < 0)
        rc = source_list_take_fails(r, -errno, "%s", strerror(errno));
    else
        rc = list_take(r);
    list->columns = calloc(r->column_count + 1, sizeof *list->columns);
    if (rc == 0 && !list->columns)
        rc = source_list_take_fails(r, -ENOMEM, "no memory");
    if (list->columns) {
        list->column_count = r->column_count;
        memcpy(list->columns, r->columns, r->column_count * sizeof *list->columns);
    }
    if (root_fd >= 0)
        close(root_fd);
    if (r->fd >= 0)
        close(r->fd);
    source_list_sizes_destroy(r->sizes);
    free(r->buffer);
    free(r->scratch);
    free(r);
    return rc;
}
