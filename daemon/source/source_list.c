/* Lists: CSV, tab-separated values or JSON lines; a row is a sample.
 *
 * The lists are the files that paths and patterns name, in byte order of their paths. A row names a
 * file, in the column "path" or in the first; its path is beneath the folder of the list, or
 * beneath `root`, and is the sample's key. The file is a part named by its extension, and by its
 * column. The column "label" is the class: the part "cls". Every further column is a part of its
 * own name, which stays in the list and is read there.
 *
 * Labels are classes: numbers where at least half of them are whole numbers (3, 3.0), which are
 * then taken as they are; else the number of the label among all labels in byte order. Labels that
 * are mostly fractions are no classes. A row whose label is no number where the others are is left
 * out.
 *
 * What is broken is left out and listed: values missing or too many, wrong quotes, no JSON, a path
 * that leads out, a row without a part that a field needs (INCOMPLETE). A row whose file is not
 * there is a sample that fails when it is read; a list whose first column was taken for the paths
 * and names no file at all is refused.
 *
 * The id is the hash of "spdl-list 1\n", then for each sample of its key, a zero byte, its file's
 * size, its class or '-', and last of the hash of all values (docs/order.md). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "item/class.h"
#include "source/source_glob.h"
#include "source/source_list_need.h"
#include "source/source_list_table.h"
#include "source/source_reasons.h"
#include "source/source_walk.h"

extern const struct source_ops source_list_ops;

struct list_source {
    struct source source;
    struct source_list_table table;
    bool has_classes;
    int root_fd; /* "/", which the lists are beneath */
    uint32_t part_count;
    const char *part_names[FIELD_MAX];
};

static void list_close(struct source *source)
{
    struct list_source *list = (struct list_source *)source;
    source_list_table_fini(&list->table);
    if (list->root_fd >= 0)
        close(list->root_fd);
    free(list);
}

/* --- labels --- */

enum { LABEL_TEXT, LABEL_FRACTION, LABEL_WHOLE };

static size_t digits_of(const char *text)
{
    return strspn(text, "0123456789");
}

/* What a label is; of a whole number the value. */
static uint32_t label_kind(const char *text, int64_t *ret_value)
{
    text += strspn(text, " \t");
    bool is_negative = *text == '-', is_whole = true;
    text += *text == '-' || *text == '+';
    size_t digits = digits_of(text), zeroes = 0, decimals = 0;
    int64_t value = 0; /* kept negative: the range of negative numbers is the larger one */
    for (size_t i = 0; i < digits; i++)
        if (__builtin_mul_overflow(value, (int64_t)10, &value) ||
            __builtin_sub_overflow(value, (int64_t)(text[i] - '0'), &value))
            is_whole = false;
    if (!is_negative && __builtin_sub_overflow((int64_t)0, value, &value))
        is_whole = false;
    text += digits;
    if (*text == '.') {
        decimals = digits_of(++text);
        zeroes = strspn(text, "0");
        text += decimals;
    }
    if (digits + decimals == 0)
        return LABEL_TEXT;
    if (*text == 'e' || *text == 'E') {
        text++;
        text += *text == '-' || *text == '+';
        if (digits_of(text) == 0)
            return LABEL_TEXT;
        text += digits_of(text);
        is_whole = false;
    }
    text += strspn(text, " \t");
    if (*text)
        return LABEL_TEXT;
    *ret_value = value;
    return is_whole && zeroes == decimals && digits > 0 ? LABEL_WHOLE : LABEL_FRACTION;
}

struct sorted_label {
    const char *text;
    uint32_t bytes, number;
};

static int label_compare(const void *a, const void *b)
{
    const struct sorted_label *x = a, *y = b;
    uint32_t least = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->text, y->text, least);
    return order ? order : x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Each text is the number of its place among all of them. */
static int labels_number(struct source_list_table *table, uint64_t *ret_classes)
{
    struct sorted_label *sorted = calloc(table->label_count + 1, sizeof *sorted);
    uint32_t count = 0;
    if (!sorted)
        return -ENOMEM;
    for (uint32_t i = 0; i < table->label_count; i++)
        if (table->labels[i].count > 0)
            sorted[count++] =
                (struct sorted_label){table->text + table->labels[i].at, table->labels[i].bytes, i};
    qsort(sorted, count, sizeof *sorted, label_compare);
    for (uint32_t i = 0; i < count; i++)
        table->labels[sorted[i].number].value = i;
    free(sorted);
    *ret_classes = count;
    return 0;
}

/* Leaves out the rows whose label is no whole number. */
static int texts_leave_out(struct source_list_table *table)
{
    size_t kept = 0;
    for (size_t i = 0; i < table->entry_count; i++) {
        struct source_list_entry entry = table->entries[i];
        if (entry.label == SOURCE_LIST_NONE || table->labels[entry.label].kind == LABEL_WHOLE) {
            table->entries[kept++] = entry;
            continue;
        }
        char message[200];
        snprintf(message, sizeof message,
                 "line %" PRIu32 ": the label '%.80s' is no whole number, as most labels are",
                 entry.line, table->text + table->labels[entry.label].at);
        struct source_list_fault fault = {
            .offset = entry.row_at, .list = entry.list, .class_number = SPDL_CLASS_BAD_FORMAT};
        char key[SOURCE_KEY_BYTES + 1]; /* the text moves when it grows */
        snprintf(key, sizeof key, "%s", table->text + entry.path_at);
        int rc = source_list_table_fault(table, &fault, key, message);
        if (rc < 0)
            return rc;
    }
    table->entry_count = kept;
    return 0;
}

static int labels_settle(struct list_source *list)
{
    struct source_list_table *table = &list->table;
    uint64_t counts[3] = {0}, whole_texts = 0;
    for (uint32_t i = 0; i < table->label_count; i++) {
        struct source_list_label *label = &table->labels[i];
        const char *text = table->text + label->at;
        label->kind =
            strlen(text) == label->bytes ? label_kind(text, &label->value) : (uint32_t)LABEL_TEXT;
        counts[label->kind] += label->count;
        whole_texts += label->kind == LABEL_WHOLE && label->count > 0;
    }
    uint64_t total = counts[LABEL_TEXT] + counts[LABEL_FRACTION] + counts[LABEL_WHOLE];
    list->has_classes = total > 0;
    if (total == 0)
        return 0;
    if (counts[LABEL_WHOLE] * 2 >= total) {
        list->source.counts.classes = whole_texts;
        return texts_leave_out(table);
    }
    if (counts[LABEL_TEXT] * 2 > total)
        return labels_number(table, &list->source.counts.classes);
    list->has_classes = false;
    source_note(&list->source.counts,
                "list %s: its labels are fractions and no classes: there is no part cls; take them "
                "by the name of their column, with decode: float",
                table->files[0].path);
    return 0;
}

/* --- all lists --- */

static int file_open(struct source_list_file *file, const struct source_spec *spec,
                     struct err *reterr)
{
    const char *slash = strrchr(file->path, '/');
    size_t folder_bytes = slash && slash > file->path ? (size_t)(slash - file->path) : 1;
    file->root = spec->root[0] ? strdup(spec->root) : strndup(file->path, folder_bytes);
    char *real = realpath(file->path, NULL);
    if (!real || !file->root) {
        int rc = real ? -ENOMEM : -errno;
        free(real);
        return err_set(reterr, rc, "list %s: %s", file->path, strerror(-rc));
    }
    file->real = strdup(real + 1);
    free(real);
    file->root_real = realpath(file->root, NULL);
    file->root_fd = open(file->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (!file->real)
        return err_set(reterr, -ENOMEM, "list %s: no memory", file->path);
    if (file->root_fd < 0 || !file->root_real)
        return err_set(reterr, -errno, "list %s: its root %s: %s", file->path, file->root,
                       strerror(errno));
    return 0;
}

static int files_read(struct list_source *list, const struct source_spec *spec, struct err *reterr)
{
    struct source_list_table *table = &list->table;
    const struct source_list_columns columns = {spec->path_column, spec->label_column};
    struct source_files files;
    int rc = source_glob("list", spec->path, &files, reterr);
    if (rc < 0)
        return rc;
    table->files = calloc(files.count, sizeof *table->files);
    table->digest = XXH3_createState();
    if (!table->files || !table->digest) {
        source_files_fini(&files);
        return err_set(reterr, -ENOMEM, "list: no memory");
    }
    XXH3_128bits_reset(table->digest);
    for (uint32_t i = 0; rc == 0 && i < files.count; i++) {
        table->files[i] = (struct source_list_file){.path = strdup(files.paths[i]), .root_fd = -1};
        table->file_count++;
        rc = table->files[i].path ? file_open(&table->files[i], spec, reterr)
                                  : err_set(reterr, -ENOMEM, "list: no memory");
        if (rc == 0)
            rc = source_list_read(table, i, &columns, &list->source.counts, reterr);
    }
    source_files_fini(&files);
    return rc;
}

static void name_add(struct list_source *list, const char *name)
{
    for (uint32_t i = 0; i < list->part_count; i++)
        if (strcmp(list->part_names[i], name) == 0)
            return;
    if (list->part_count < FIELD_MAX)
        list->part_names[list->part_count++] = name;
    else
        source_note(&list->source.counts,
                    "list %s: it has more than %d parts, which fields name; without fields %s and "
                    "those behind it are left out",
                    list->table.files[0].path, FIELD_MAX, name);
}

/* Each part once: the file by its extension where all have the same, else by its column; the class,
 * then what else some row has, in the order of the names. */
static void names_gather(struct list_source *list)
{
    const struct source_list_table *table = &list->table;
    bool seen[SOURCE_LIST_NAMES_MAX] = {false}, same = true;
    for (size_t i = 0; i < table->entry_count; i++) {
        const struct source_list_entry *entry = &table->entries[i];
        same = same && entry->name == table->entries[0].name;
        for (uint32_t c = 0; c < entry->cell_count; c++) {
            uint16_t name = table->cells[entry->first_cell + c].name;
            if (!list->has_classes || name != table->files[entry->list].label_name)
                seen[name] = true;
        }
    }
    if (table->entry_count > 0)
        name_add(list, table->names[same ? table->entries[0].name : table->files[0].path_name]);
    if (list->has_classes)
        name_add(list, "cls");
    for (uint32_t i = 0; i < table->name_count; i++)
        if (seen[i])
            name_add(list, table->names[i]);
}

/* The id. */
static int take_measure(struct list_source *list)
{
    static const char head[] = "spdl-list 1\n";
    struct source_list_table *table = &list->table;
    XXH128_hash_t values = XXH3_128bits_digest(table->digest);
    char text[64];
    int bytes;
    XXH3_128bits_reset(table->digest);
    XXH3_128bits_update(table->digest, head, sizeof head - 1);
    for (size_t i = 0; i < table->entry_count; i++) {
        const struct source_list_entry *entry = &table->entries[i];
        bytes = snprintf(text, sizeof text, "%" PRIu64 " ", entry->bytes);
        if (list->has_classes && entry->label != SOURCE_LIST_NONE)
            bytes += snprintf(text + bytes, sizeof text - (size_t)bytes, "%" PRId64 "\n",
                              table->labels[entry->label].value);
        else
            bytes += snprintf(text + bytes, sizeof text - (size_t)bytes, "-\n");
        XXH3_128bits_update(table->digest, table->text + entry->path_at, entry->path_bytes + 1u);
        XXH3_128bits_update(table->digest, text, (size_t)bytes);
    }
    bytes =
        snprintf(text, sizeof text, "%016" PRIx64 "%016" PRIx64 "\n", values.high64, values.low64);
    XXH3_128bits_update(table->digest, text, (size_t)bytes);
    XXH128_hash_t hash = XXH3_128bits_digest(table->digest);
    list->source.id_high = hash.high64;
    list->source.id_low = hash.low64;
    return 0;
}

static void counts_take(struct list_source *list)
{
    struct source_counts *counts = &list->source.counts;
    counts->samples = list->table.entry_count;
    counts->broken = list->table.fault_count;
    source_reasons_note(&list->source, "rows ");
}

/* Without a column that is named for it, the first one has the paths: is it so? */
static int paths_check(const struct list_source *list, const struct source_spec *spec,
                       struct err *reterr)
{
    const struct source_list_table *table = &list->table;
    static const struct source_need none = {0};
    for (uint32_t i = 0; i < table->file_count && !spec->path_column[0]; i++) {
        const struct source_list_file *file = &table->files[i];
        if (file->path_name == SOURCE_LIST_NONE ||
            strcmp(table->names[file->path_name], "path") == 0 || table->entry_count == 0 ||
            source_list_need_files(table, i))
            continue;
        char columns[400];
        source_list_need_hint(table, i, &none, 0, columns);
        return err_set(reterr, -ENODATA,
                       "list %s: it has no column path, and no value of %s, which was taken for "
                       "it, names a file under %s; %s: say in path_column which one has the paths",
                       file->path, table->names[file->path_name], file->root, columns);
    }
    return 0;
}

/* No row is a sample: why, and of which columns. */
static int none_left(const struct list_source *list, const struct source_spec *spec,
                     struct err *reterr)
{
    const struct source_list_table *table = &list->table;
    const struct source_counts *counts = &list->source.counts;
    struct source_need need;
    char hint[400];
    if (counts->broken == 0 || source_need_init(spec, &need) < 0)
        return err_set(reterr, -ENODATA, "list %s: it has no row that is a sample",
                       table->files ? table->files[0].path : "");
    source_list_need_hint(table, table->faults[0].list, &need,
                          source_list_need_missing(table, &need), hint);
    source_need_fini(&need);
    return err_set(reterr, -ENODATA, "list %s: no sample is left: %s; %s",
                   table->files[table->faults[0].list].path, counts->note, hint);
}

static int list_open(const struct source_spec *spec, struct source **ret_source, struct err *reterr)
{
    struct list_source *list = calloc(1, sizeof *list);
    if (!list)
        return err_set(reterr, -ENOMEM, "list: no memory");
    list->source.ops = &source_list_ops;
    list->root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int rc = list->root_fd < 0 ? err_set(reterr, -errno, "list: /: %s", strerror(errno))
                               : files_read(list, spec, reterr);
    if (rc == 0 && labels_settle(list) < 0)
        rc = err_set(reterr, -ENOMEM, "list: no memory");
    if (rc == 0)
        rc = paths_check(list, spec, reterr);
    if (rc == 0 && source_list_table_complete(&list->table, list->has_classes, spec) < 0)
        rc = err_set(reterr, -ENOMEM, "list: no memory");
    if (rc == 0) {
        counts_take(list);
        if (list->source.counts.samples == 0)
            rc = none_left(list, spec, reterr);
    }
    if (rc == 0)
        rc = take_measure(list);
    if (rc < 0) {
        list_close(&list->source);
        return rc;
    }
    names_gather(list);
    *ret_source = &list->source;
    return 0;
}

/* --- looking up --- */

static void integer_add(struct source_sample *sample, const char *name, int64_t value)
{
    sample->parts[sample->part_count++] = (struct source_part){
        .kind = SOURCE_PART_INTEGER, .name = name, .value = value, .root_fd = -1};
}

static void list_sample(const struct source *source, uint64_t id, struct source_sample *ret_sample)
{
    const struct list_source *list = (const struct list_source *)source;
    const struct source_list_table *table = &list->table;
    const struct source_list_entry *entry = &table->entries[id];
    const struct source_list_file *file = &table->files[entry->list];
    bool has_class = list->has_classes && entry->label != SOURCE_LIST_NONE;
    ret_sample->key = table->text + entry->path_at;
    ret_sample->key_bytes = entry->path_bytes;
    ret_sample->parts[0] = (struct source_part){.kind = SOURCE_PART_FILE,
                                                .name = table->names[entry->name],
                                                .root_fd = file->root_fd,
                                                .path = ret_sample->key,
                                                .file = SOURCE_FILE_ALONE,
                                                .bytes = entry->bytes,
                                                .file_bytes = entry->bytes,
                                                .mtime_ns = entry->mtime_ns};
    ret_sample->part_count = 1;
    if (file->path_name != entry->name) {
        ret_sample->parts[1] = ret_sample->parts[0];
        ret_sample->parts[1].name = table->names[file->path_name];
        ret_sample->part_count = 2;
    }
    if (has_class) {
        integer_add(ret_sample, "cls", table->labels[entry->label].value);
        integer_add(ret_sample, table->names[file->label_name], table->labels[entry->label].value);
    }
    for (uint32_t i = 0; i < entry->cell_count && ret_sample->part_count < SOURCE_PARTS_MAX; i++) {
        const struct source_list_cell *cell = &table->cells[entry->first_cell + i];
        if (list->has_classes && cell->name == file->label_name)
            continue;
        ret_sample->parts[ret_sample->part_count++] =
            (struct source_part){.kind = SOURCE_PART_FILE,
                                 .name = table->names[cell->name],
                                 .root_fd = list->root_fd,
                                 .path = file->real,
                                 .file = (int32_t)entry->list,
                                 .offset = entry->row_at + cell->at,
                                 .bytes = cell->bytes,
                                 .file_bytes = file->bytes,
                                 .mtime_ns = file->mtime_ns,
                                 .escape = cell->escape};
    }
}

static void list_warm(const struct source *source, uint64_t id, enum source_warmth warmth)
{
    const struct source_list_table *table = &((const struct list_source *)source)->table;
    const struct source_list_entry *entry = &table->entries[id];
    if (warmth == SOURCE_FAR) {
        __builtin_prefetch(entry);
        return;
    }
    __builtin_prefetch(table->text + entry->path_at);
    if (entry->cell_count > 0)
        __builtin_prefetch(&table->cells[entry->first_cell]);
}

static void list_fault(const struct source *source, uint64_t index, struct source_fault *ret_fault)
{
    const struct source_list_table *table = &((const struct list_source *)source)->table;
    const struct source_list_fault *fault = &table->faults[index];
    *ret_fault = (struct source_fault){.path = table->files[fault->list].path,
                                       .offset = fault->offset,
                                       .class_number = fault->class_number,
                                       .key = table->text + fault->key_at,
                                       .key_bytes = fault->key_bytes,
                                       .message = table->text + fault->message_at};
}

static uint32_t list_part_names(const struct source *source, const char **names, uint32_t max)
{
    const struct list_source *list = (const struct list_source *)source;
    uint32_t count = list->part_count < max ? list->part_count : max;
    memcpy(names, list->part_names, count * sizeof *names);
    return count;
}

const struct source_ops source_list_ops = {.kind = "list",
                                           .open = list_open,
                                           .close = list_close,
                                           .sample = list_sample,
                                           .part_names = list_part_names,
                                           .fault = list_fault,
                                           .warm = list_warm};
