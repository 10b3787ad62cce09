/* What a row says: see source_list_take.h. */
#include "source/source_list_take.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "item/class.h"

enum { FAULTS_MAX = 1000000 };

int source_list_take_fails(const struct source_list_take *r, int rc, const char *format, ...)
{
    char words[512];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    return err_set(r->reterr, rc, "list %s: %s", r->file->path, words);
}

/* --- faults --- */

/* The row is left out. `at`: where in it; the sentence begins with line and column there. */
int source_list_take_leave_out(struct source_list_take *r, uint32_t class_number, size_t at,
                               const char *format, ...)
{
    const uint8_t *row = r->buffer + r->from;
    char words[240], message[320];
    uint64_t line = r->line, column = 1;
    for (size_t i = 0; i < at; i++) {
        column += (row[i] & 0xc0) != 0x80; /* characters, not bytes */
        if (row[i] == '\n') {
            line++;
            column = 1;
        }
    }
    if (r->table->fault_count == FAULTS_MAX)
        return source_list_take_fails(r, -EBADMSG, "more than %d rows are broken; is it a list?",
                                      FAULTS_MAX);
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    snprintf(message, sizeof message, "line %" PRIu64 ", column %" PRIu64 ": %s", line, column,
             words);
    struct source_list_fault fault = {
        .offset = r->at + r->from + at, .list = r->number, .class_number = class_number};
    return source_list_table_fault(r->table, &fault, r->key, message);
}

/* --- values --- */

static int scratch_room(struct source_list_take *r, size_t more)
{
    if (more <= r->scratch_room - r->scratch_bytes)
        return 0;
    size_t room = r->scratch_room * 2 + more + 4096;
    char *larger = realloc(r->scratch, room);
    if (!larger)
        return source_list_take_fails(r, -ENOMEM, "no memory");
    r->scratch = larger;
    r->scratch_room = room;
    return 0;
}

/* What the value says, behind what is in the scratch. 1; 0: it is not written right. */
int source_list_take_value(struct source_list_take *r, uint32_t at, uint32_t bytes, uint8_t escape,
                           size_t *ret_bytes)
{
    int rc = scratch_room(r, (size_t)bytes + 1);
    if (rc < 0)
        return rc;
    char *to = r->scratch + r->scratch_bytes;
    bool right =
        escape_undo((enum escape)escape, r->buffer + r->from + at, bytes, (uint8_t *)to, ret_bytes);
    to[right ? *ret_bytes : 0] = 0;
    return right;
}

/* Beneath its root: without ./ and double slashes, never absolute. A sentence: it is no such path.
 */
static const char *path_take(struct source_list_take *r, const char *path, size_t bytes,
                             uint32_t *ret_class)
{
    const char *const roots[] = {r->file->root, r->file->root_real};
    size_t out = 0;
    int depth = 0;
    *ret_class = SPDL_CLASS_BAD_FORMAT;
    if (memchr(path, 0, bytes))
        return "the path has a byte 0";
    if (strstr(path, "://")) {
        *ret_class = SPDL_CLASS_UNSUPPORTED;
        return "a path that is not local is not supported in this version";
    }
    for (size_t i = 0; path[0] == '/' && i < 2; i++) {
        size_t root_bytes = strlen(roots[i]);
        if (strncmp(path, roots[i], root_bytes) == 0 &&
            (path[root_bytes] == '/' || roots[i][root_bytes - 1] == '/'))
            path += root_bytes;
        else
            continue;
        path += strspn(path, "/");
        break;
    }
    if (path[0] == '/')
        return "the path is absolute and not beneath the root";
    while (*path) {
        size_t part = strcspn(path, "/");
        if (part > 0 && !(part == 1 && path[0] == '.')) {
            depth += part == 2 && memcmp(path, "..", 2) == 0 ? -1 : 1;
            if (depth < 0)
                return "the path leads out of the root";
            if (out + part + 1 > SOURCE_KEY_BYTES) {
                *ret_class = SPDL_CLASS_LIMIT;
                return "the path is longer than 1024 bytes";
            }
            if (out > 0)
                r->key[out++] = '/';
            memcpy(r->key + out, path, part);
            out += part;
        }
        path += part + (path[part] == '/');
        if (!*path && path[-1] == '/')
            out = 0; /* a folder */
    }
    r->key[out] = 0;
    if (out == 0 && bytes == 0)
        *ret_class = SPDL_CLASS_INCOMPLETE;
    return out > 0 ? NULL : bytes > 0 ? "the path names a folder" : "the path is empty";
}

/* The name of the file's part: its extension, or the column where it has none. */
static uint32_t part_name(struct source_list_take *r, uint32_t column)
{
    const char *slash = strrchr(r->key, '/'), *base = slash ? slash + 1 : r->key;
    const char *dot = strrchr(base, '.');
    const char *last = r->table->entry_count > 0
                           ? r->table->names[r->table->entries[r->table->entry_count - 1].name]
                           : "";
    if (!dot || dot == base)
        return column;
    if (strcasecmp(dot + 1, last) == 0)
        return r->table->entries[r->table->entry_count - 1].name;
    uint32_t name = source_list_table_name(r->table, dot + 1, strlen(dot + 1));
    return name == SOURCE_LIST_NONE ? column : name;
}

/* Name, length and text of a value to what is hashed of the row, which the scratch ends with. */
static int value_note(struct source_list_take *r, uint32_t name, size_t bytes)
{
    char head[FIELD_PART_BYTES + 32];
    int head_bytes = snprintf(head, sizeof head, "%s%c%zu ", r->table->names[name], 0, bytes);
    int rc = scratch_room(r, bytes + (size_t)head_bytes + 1);
    if (rc < 0)
        return rc;
    char *to = r->scratch + r->scratch_bytes;
    memmove(to + head_bytes, to, bytes);
    memcpy(to, head, (size_t)head_bytes);
    to[(size_t)head_bytes + bytes] = '\n';
    r->scratch_bytes += (size_t)head_bytes + bytes + 1;
    return 0;
}

/* A further value of the row, with the label. 1; 0: the row was left out. */
static int cell_take(struct source_list_take *r, const struct source_list_value *value,
                     uint32_t name, struct source_list_entry *entry)
{
    size_t bytes = 0;
    int rc = source_list_take_value(r, value->at, value->bytes, value->escape, &bytes);
    if (rc == 0)
        rc = source_list_take_leave_out(r, SPDL_CLASS_BAD_FORMAT, value->at,
                                        "the value of %s has half of a surrogate pair",
                                        r->table->names[name]);
    else if (rc == 1) {
        struct source_list_cell cell = {.at = value->at,
                                        .bytes = value->bytes,
                                        .name = (uint16_t)name,
                                        .escape = value->escape};
        rc = source_list_table_cell(r->table, &cell);
        entry->cell_count++;
        if (rc == 0 && name == r->file->label_name && bytes > 0)
            rc = source_list_table_label(r->table, r->scratch + r->scratch_bytes, bytes,
                                         &entry->label);
        if (rc == 0 && bytes > r->counts->largest_bytes)
            r->counts->largest_bytes = bytes;
        if (rc == 0)
            rc = value_note(r, name, bytes);
        return rc < 0 ? rc : 1;
    }
    return rc;
}

/* The path of the row, and the file it names. 1; 0: the row was left out. */
static int file_take(struct source_list_take *r, const struct source_list_value *value,
                     struct source_list_entry *entry)
{
    size_t bytes = 0;
    uint32_t class_number = SPDL_CLASS_BAD_FORMAT;
    int rc = source_list_take_value(r, value->at, value->bytes, value->escape, &bytes);
    if (rc < 0)
        return rc;
    const char *message = rc == 0
                              ? "the path has half of a surrogate pair"
                              : path_take(r, r->scratch + r->scratch_bytes, bytes, &class_number);
    if (message) {
        r->key[0] = 0;
        return source_list_take_leave_out(r, class_number, value->at, "%s (the root is %.150s)",
                                          message, r->file->root);
    }
    rc = source_list_sizes_of(r->sizes, r->file->root_fd, r->key, &entry->bytes, &entry->mtime_ns);
    if (rc == -EXDEV)
        return source_list_take_leave_out(r, SPDL_CLASS_IO_ERROR, value->at,
                                          "a link leads out of the root, %s", r->file->root);
    if (rc < 0)
        return source_list_take_fails(r, rc, "line %" PRIu64 ": %s: %s", r->line, r->key,
                                      strerror(-rc));
    entry->path_bytes = (uint16_t)strlen(r->key);
    if (entry->bytes > r->counts->largest_bytes)
        r->counts->largest_bytes = entry->bytes;
    return 1;
}

/* A row with its path and the names of its other values. */
int source_list_take_sample(struct source_list_take *r, const struct source_list_value *path,
                            const uint32_t names[SOURCE_LIST_COLUMNS_MAX])
{
    struct source_list_table *table = r->table;
    size_t cells_before = table->cell_count;
    struct source_list_entry entry = {.row_at = r->at + r->from,
                                      .line = (uint32_t)r->line,
                                      .list = r->number,
                                      .label = SOURCE_LIST_NONE,
                                      .first_cell = cells_before};
    r->scratch_bytes = 0;
    int rc = file_take(r, path, &entry);
    for (uint32_t i = 0; rc == 1 && i < r->row.value_count; i++) {
        const struct source_list_value *value = &r->row.values[i];
        if (value != path && names[i] != SOURCE_LIST_NONE && !value->is_null)
            rc = cell_take(r, value, names[i], &entry);
    }
    if (rc != 1) {
        table->cell_count = cells_before;
        if (entry.label != SOURCE_LIST_NONE)
            table->labels[entry.label].count--;
        return rc;
    }
    rc = source_list_table_text(table, r->key, entry.path_bytes, &entry.path_at);
    entry.name = (uint16_t)part_name(r, r->file->path_name);
    if (rc == 0)
        rc = source_list_table_entry(table, &entry);
    if (rc == 0)
        rc = scratch_room(r, 1);
    if (rc < 0)
        return rc;
    r->scratch[r->scratch_bytes] = '\n';
    XXH3_128bits_update(table->digest, r->scratch, r->scratch_bytes + 1);
    if (entry.path_bytes > r->counts->longest_key_bytes)
        r->counts->longest_key_bytes = entry.path_bytes;
    return 0;
}
