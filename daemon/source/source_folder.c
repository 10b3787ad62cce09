/* A folder of pictures.
 *
 * Samples are the regular files with a picture's extension, upper or lower case, in byte order of
 * their paths relative to the folder; the path is the key. A sample has a part named by its
 * extension in lower case, and a part "cls" with its class. Classes are the folder's sub-folders in
 * byte order of their names, empty and unreadable ones too, so that no label shifts when a folder
 * is emptied. Deeper folders belong to the class that they lie in. Pictures directly in the folder:
 * when no class has a picture, they are the samples, all with label 0. Beside classes that have
 * some they are left out, counted and noted. Hidden files and folders, other extensions, pipes,
 * sockets and devices are counted as ignored. A link to a file or folder inside is taken as what it
 * leads to (a loop is not followed); one that leads out, or that is written as an absolute path, is
 * refused and is no class. Pictures of a kind that a field is not made from are left out
 * (INCOMPLETE). Files without rights and links that lead nowhere are samples, which fail
 * when they are read.
 *
 * The id is the hash of "spdl-folder 1\n", then of every sample's key, a zero byte, its size in
 * decimal and a newline, then, when there are classes, of the name of each class without samples,
 * '/', a zero byte and a newline: a new empty class shifts the labels behind it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "item/class.h"
#include "source/source.h"
#include "source/source_need.h"
#include "source/source_walk.h"

extern const struct source_ops source_folder_ops;

struct source_folder {
    struct source source;
    int root_fd;
    struct source_list list; /* behind its entry_count samples stand those that lack something */
    struct source_need need;
    uint32_t extension_seen; /* bit n: extension n */
};

static void folder_close(struct source *source)
{
    struct source_folder *folder = (struct source_folder *)source;
    source_list_fini(&folder->list);
    source_need_fini(&folder->need);
    if (folder->root_fd >= 0)
        close(folder->root_fd);
    free(folder);
}

static int open_root(const char *path, struct err *reterr)
{
    if (path[0] == 0)
        return err_set(reterr, -EINVAL, "folder: the path is empty");
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    int rc = -errno;
    switch (-rc) {
    case ENOENT:
        return err_set(reterr, rc, "folder %s: it does not exist; check the path", path);
    case ENOTDIR:
        return err_set(reterr, rc, "folder %s: it is not a folder", path);
    case EACCES:
        return err_set(reterr, rc, "folder %s: it may not be read by user %u (Permission denied)",
                       path, (unsigned)geteuid());
    }
    return err_set(reterr, rc, "folder %s: %s", path, strerror(-rc));
}

/* Puts before the note, which is about the first folder that cannot be read, how many there are. */
static void unreadable_count(struct source_counts *counts)
{
    char first[sizeof counts->note];
    if (counts->unreadable_folders < 2)
        return;
    memcpy(first, counts->note, sizeof first);
    snprintf(counts->note, sizeof counts->note,
             "%" PRIu64 " folders cannot be read; the first: %.440s", counts->unreadable_folders,
             first);
}

/* Pictures that lie beside classes are left out; without a class that has any they are all there
 * is. */
static void settle_classes(struct source_folder *folder, const char *path)
{
    struct source_list *list = &folder->list;
    struct source_counts *counts = &folder->source.counts;
    uint64_t in_classes = 0;
    for (size_t i = 0; i < list->class_count; i++)
        in_classes += list->classes[i].samples;
    uint64_t loose = list->entry_count - in_classes;
    size_t kept = 0;
    for (size_t i = 0; i < list->entry_count; i++) {
        struct source_entry *entry = &list->entries[i];
        if (entry->class_number == SOURCE_WALK_NO_CLASS) {
            if (in_classes > 0)
                continue;
            entry->class_number = 0;
        }
        list->entries[kept++] = *entry;
    }
    list->entry_count = kept;
    if (in_classes == 0) {
        counts->classes = kept > 0;
        return;
    }
    counts->classes = list->class_count;
    counts->ignored += loose;
    if (loose > 0)
        source_note(counts,
                    "%" PRIu64 " pictures directly in %s are left out: they lie beside "
                    "the folders of classes and belong to none",
                    loose, path);
    for (size_t i = 0; i < list->class_count; i++) {
        if (list->classes[i].samples > 0)
            continue;
        counts->empty_classes++;
        source_note(counts, "%s/%s has no picture; it keeps its class number %zu", path,
                    list->classes[i].name, i);
    }
}

static uint32_t has_of(const struct source_folder *folder, const struct source_entry *entry)
{
    return source_need_bits(&folder->need, "cls") |
           source_need_bits(&folder->need, source_extension_name(entry->extension));
}

/* Pictures of a kind that a field is not made from go behind the others, in their order. */
static int leave_out(struct source_folder *folder, const char *path)
{
    struct source_list *list = &folder->list;
    struct source_counts *counts = &folder->source.counts;
    struct source_entry *lacking = NULL;
    uint32_t has[32] = {0};
    size_t kept = 0, count = 0;
    for (unsigned e = 0; source_extension_name(e) && e < 32; e++)
        has[e] = has_of(folder, &(struct source_entry){.extension = (uint8_t)e});
    for (size_t i = 0; i < list->entry_count; i++)
        count += (has[list->entries[i].extension] & folder->need.all) != folder->need.all;
    if (count == 0)
        return 0;
    lacking = calloc(count, sizeof *lacking);
    if (!lacking)
        return -ENOMEM;
    count = 0;
    for (size_t i = 0; i < list->entry_count; i++) {
        const struct source_entry *entry = &list->entries[i];
        if ((has[entry->extension] & folder->need.all) == folder->need.all)
            list->entries[kept++] = *entry;
        else
            lacking[count++] = *entry;
    }
    memcpy(&list->entries[kept], lacking, count * sizeof *lacking);
    free(lacking);
    list->entry_count = kept;
    counts->broken = count;
    source_note(counts, "%zu pictures in %s are left out; the first, %s, has %s", count, path,
                list->text + list->entries[kept].path_offset,
                source_need_message(&folder->need, has[list->entries[kept].extension]));
    return 0;
}

/* Pictures that a field wants decoded and whose names say that they cannot be. They stay samples:
 * what counts are their bytes. */
static void undecoded_note(struct source_folder *folder, const struct source_spec *spec)
{
    const struct source_list *list = &folder->list;
    char names[64] = "";
    uint64_t counts[32] = {0}, total = 0;
    bool is_decoded = false;
    for (uint32_t f = 0; f < spec->field_count; f++)
        is_decoded = is_decoded || strcmp(spec->fields[f].decoder, "image") == 0;
    for (size_t i = 0; is_decoded && i < list->entry_count; i++)
        if (list->entries[i].extension < 32)
            counts[list->entries[i].extension]++;
    for (unsigned e = 0; source_extension_name(e) && e < 32; e++) {
        if (counts[e] == 0 || source_extension_is_decoded(e))
            continue;
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                 source_extension_name(e));
        total += counts[e];
    }
    if (total > 0)
        source_note(&folder->source.counts,
                    "%" PRIu64 " pictures have the names of formats that are not decoded (%s): "
                    "they fail when they are read",
                    total, names);
}

static int no_samples(const struct source_counts *counts, const char *path, struct err *reterr)
{
    char known[160] = "";
    for (unsigned i = 0; source_extension_name(i); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? " " : "", source_extension_name(i));
    }
    err_set(reterr, -ENODATA, "; pictures are files that end in one of: %s", known);
    if (counts->unreadable_folders > 0 || counts->refused_links > 0)
        err_prefix(reterr,
                   ", %" PRIu64 " folders that cannot be read, %" PRIu64 " links that lead out",
                   counts->unreadable_folders, counts->refused_links);
    err_prefix(reterr, "folder %s: it has no picture; %" PRIu64 " other files", path,
               counts->ignored);
    return -ENODATA;
}

/* Hashes the manifest and notes the largest part and the longest key on the way. */
static int take_measure(struct source_folder *folder)
{
    static const char head[] = "spdl-folder 1\n";
    const struct source_list *list = &folder->list;
    struct source_counts *counts = &folder->source.counts;
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return -ENOMEM;
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, head, sizeof head - 1);
    for (size_t i = 0; i < list->entry_count; i++) {
        const struct source_entry *entry = &list->entries[i];
        char size[32];
        int size_bytes = snprintf(size, sizeof size, "%" PRIu64 "\n", entry->bytes);
        XXH3_128bits_update(state, list->text + entry->path_offset, entry->path_bytes + 1u);
        XXH3_128bits_update(state, size, (size_t)size_bytes);
        if (entry->bytes > counts->largest_bytes)
            counts->largest_bytes = entry->bytes;
        if (entry->path_bytes > counts->longest_key_bytes)
            counts->longest_key_bytes = entry->path_bytes;
        folder->extension_seen |= UINT32_C(1) << entry->extension;
    }
    for (size_t i = 0; counts->empty_classes > 0 && i < list->class_count; i++) {
        if (list->classes[i].samples > 0)
            continue;
        XXH3_128bits_update(state, list->classes[i].name, strlen(list->classes[i].name));
        XXH3_128bits_update(state, "/\0\n", 3);
    }
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    folder->source.id_high = hash.high64;
    folder->source.id_low = hash.low64;
    counts->samples = list->entry_count;
    return 0;
}

/* Gives back what the lists grew too large by. */
static void trim(struct source_list *list, size_t lacking)
{
    void *entries = reallocarray(list->entries, list->entry_count + lacking, sizeof *list->entries);
    if (entries) {
        list->entries = entries;
        list->entry_room = list->entry_count + lacking;
    }
    char *text = realloc(list->text, list->text_bytes);
    if (text) {
        list->text = text;
        list->text_room = list->text_bytes;
    }
}

static int folder_open(const struct source_spec *spec, struct source **ret_source,
                       struct err *reterr)
{
    if (memchr(spec->path, 0, sizeof spec->path) == NULL)
        return err_set(reterr, -EINVAL, "folder: the path is longer than %d bytes",
                       SOURCE_PATH_BYTES - 1);
    int root_fd = open_root(spec->path, reterr);
    if (root_fd < 0)
        return root_fd;
    struct source_folder *folder = calloc(1, sizeof *folder);
    if (!folder) {
        close(root_fd);
        return err_set(reterr, -ENOMEM, "folder %s: no memory", spec->path);
    }
    folder->source.ops = &source_folder_ops;
    folder->root_fd = root_fd;
    int rc = source_walk(root_fd, spec->path, &folder->list, &folder->source.counts, reterr);
    if (rc < 0)
        goto fail;
    unreadable_count(&folder->source.counts);
    settle_classes(folder, spec->path);
    rc = source_need_init(spec, &folder->need);
    if (rc == 0)
        rc = leave_out(folder, spec->path);
    if (rc < 0) {
        err_set(reterr, rc, "folder %s: no memory for its list", spec->path);
        goto fail;
    }
    if (folder->list.entry_count == 0 && folder->source.counts.broken > 0) {
        rc = err_set(reterr, -ENODATA, "folder %s: no sample is left: %s", spec->path,
                     folder->source.counts.note);
        goto fail;
    }
    if (folder->list.entry_count == 0) {
        rc = no_samples(&folder->source.counts, spec->path, reterr);
        goto fail;
    }
    undecoded_note(folder, spec);
    trim(&folder->list, folder->source.counts.broken);
    rc = take_measure(folder);
    if (rc < 0) {
        err_set(reterr, rc, "folder %s: no memory to hash its list", spec->path);
        goto fail;
    }
    *ret_source = &folder->source;
    return 0;
fail:
    folder_close(&folder->source);
    return rc;
}

static void folder_sample(const struct source *source, uint64_t id,
                          struct source_sample *ret_sample)
{
    const struct source_folder *folder = (const struct source_folder *)source;
    const struct source_entry *entry = &folder->list.entries[id];
    const char *path = folder->list.text + entry->path_offset;
    ret_sample->key = path;
    ret_sample->key_bytes = entry->path_bytes;
    ret_sample->part_count = 2;
    ret_sample->parts[0] = (struct source_part){.kind = SOURCE_PART_FILE,
                                                .name = source_extension_name(entry->extension),
                                                .root_fd = folder->root_fd,
                                                .path = path,
                                                .file = SOURCE_FILE_ALONE,
                                                .bytes = entry->bytes,
                                                .file_bytes = entry->bytes,
                                                .mtime_ns = entry->mtime_ns};
    ret_sample->parts[1] = (struct source_part){
        .kind = SOURCE_PART_INTEGER, .name = "cls", .value = entry->class_number, .root_fd = -1};
}

static void folder_fault(const struct source *source, uint64_t index,
                         struct source_fault *ret_fault)
{
    const struct source_folder *folder = (const struct source_folder *)source;
    const struct source_entry *entry = &folder->list.entries[folder->list.entry_count + index];
    const char *path = folder->list.text + entry->path_offset;
    *ret_fault =
        (struct source_fault){.path = path,
                              .class_number = SPDL_CLASS_INCOMPLETE,
                              .key = path,
                              .key_bytes = entry->path_bytes,
                              .message = source_need_message(&folder->need, has_of(folder, entry))};
}

static void folder_warm(const struct source *source, uint64_t id, enum source_warmth warmth)
{
    const struct source_folder *folder = (const struct source_folder *)source;
    const struct source_entry *entry = &folder->list.entries[id];
    __builtin_prefetch(warmth == SOURCE_FAR ? (const char *)entry
                                            : folder->list.text + entry->path_offset);
}

static uint32_t folder_part_names(const struct source *source, const char **names, uint32_t max)
{
    const struct source_folder *folder = (const struct source_folder *)source;
    uint32_t count = 0;
    for (unsigned i = 0; source_extension_name(i); i++)
        if (folder->extension_seen >> i & 1 && count < max)
            names[count++] = source_extension_name(i);
    if (count < max)
        names[count++] = "cls";
    return count;
}

const struct source_ops source_folder_ops = {.kind = "folder",
                                             .open = folder_open,
                                             .close = folder_close,
                                             .sample = folder_sample,
                                             .part_names = folder_part_names,
                                             .fault = folder_fault,
                                             .warm = folder_warm};
