/* Walks a folder of pictures in byte order of the whole paths. Chores thread.
 *
 * The names of one folder are sorted with a '/' behind those of folders; going down in that order
 * then meets the paths in byte order, without a sort of the whole list. A stack of open folders
 * takes the place of recursion. All folders and links are opened beneath the root by the kernel's
 * own check, so that nothing outside is ever looked at. */
#include "source/source_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    DEPTH_MAX = 64,
    NAME_ROOM = 256, /* of one name with '/' and the final 0 fits behind any path that is walked */
    FOLLOWED_MAX = 65536, /* links to folders: with links to links a small tree can be endless */
    EXTENSION_BYTES_MAX = 4
};

static const char *const extensions[] = {"jpg",  "jpeg", "png", "webp", "bmp",  "gif", "tif",
                                         "tiff", "ppm",  "pgm", "pnm",  "avif", "heic"};
enum { EXTENSION_COUNT = sizeof extensions / sizeof extensions[0], NO_EXTENSION = 255 };

enum name_kind { NAME_FILE, NAME_LINK, NAME_FOLDER };

struct name {
    uint64_t offset; /* in the frame's text; ends with 0, a folder's with '/' before it */
    uint16_t bytes;
    uint8_t kind;
    uint8_t extension;
};

/* A folder on the way down. */
struct frame {
    DIR *dir;
    struct name *names;
    size_t name_count, name_room, next;
    char *text;
    size_t text_bytes, text_room;
    dev_t device;
    ino_t inode;
    uint32_t path_bytes; /* of its path with the final '/'; 0: the root */
};

struct walk {
    int root_fd;
    const char *root;
    struct source_list *list;
    struct source_counts *counts;
    struct err *reterr;
    uint64_t followed;
    uint32_t class_number; /* of what is being walked */
    unsigned depth;
    struct frame frames[DEPTH_MAX];
    char path[SOURCE_KEY_BYTES + NAME_ROOM + 8];
};

const char *source_extension_name(unsigned number)
{
    return number < EXTENSION_COUNT ? extensions[number] : NULL;
}

bool source_extension_is_decoded(unsigned number)
{
    static const char *const others[] = {"tif", "tiff", "avif", "heic"};
    for (size_t i = 0; number < EXTENSION_COUNT && i < sizeof others / sizeof others[0]; i++)
        if (strcmp(extensions[number], others[i]) == 0)
            return false;
    return true;
}

void source_note(struct source_counts *counts, const char *format, ...)
{
    if (counts->note[0])
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(counts->note, sizeof counts->note, format, args);
    va_end(args);
    for (char *c = counts->note; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127)
            *c = '?';
}

static uint8_t extension_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    if (!dot || dot == name || strlen(dot + 1) > EXTENSION_BYTES_MAX)
        return NO_EXTENSION;
    for (unsigned i = 0; i < EXTENSION_COUNT; i++)
        if (strcasecmp(dot + 1, extensions[i]) == 0)
            return (uint8_t)i;
    return NO_EXTENSION;
}

/* Makes room for `more` further items. */
static int grow(void **items, size_t *room, size_t need, size_t item_bytes)
{
    if (need <= *room)
        return 0;
    size_t larger = *room ? *room : 64;
    while (larger < need)
        larger += larger / 2;
    void *moved = reallocarray(*items, larger, item_bytes);
    if (!moved)
        return -ENOMEM;
    *items = moved;
    *room = larger;
    return 0;
}

static int grow_text(char **text, size_t *room, size_t need)
{
    void *items = *text;
    int rc = grow(&items, room, need, 1);
    *text = items;
    return rc;
}

static int open_beneath(int root_fd, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    for (;;) {
        long fd = syscall(SYS_openat2, root_fd, path, &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        if (errno != EINTR && errno != EAGAIN) /* EAGAIN: something was renamed meanwhile */
            return -errno;
    }
}

static int stat_beneath(int root_fd, const char *path, struct stat *ret_stat)
{
    int fd = open_beneath(root_fd, path, O_PATH);
    if (fd < 0)
        return fd;
    int rc = fstat(fd, ret_stat) < 0 ? -errno : 0;
    close(fd);
    return rc;
}

/* True for an answer that is about the storage or this process; all else is about the one entry
 * that was looked at. */
static bool about_storage(int rc)
{
    static const int codes[] = {EMFILE,       ENFILE,       ENOMEM,      EIO,          ESTALE,
                                ETIMEDOUT,    ENOTCONN,     ENODEV,      ECONNREFUSED, ECONNRESET,
                                EHOSTDOWN,    EHOSTUNREACH, ENOBUFS,     EREMOTEIO,    ENOLINK,
                                ECONNABORTED, ENETDOWN,     ENETUNREACH, EBADMSG,      EUCLEAN,
                                ENOSYS,       EBADF,        EFAULT};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (rc == -codes[i])
            return true;
    return false;
}

/* Puts the name behind the path of the folder that is being walked. */
static void path_append(struct walk *walk, const char *name, size_t bytes)
{
    memcpy(walk->path + walk->frames[walk->depth - 1].path_bytes, name, bytes + 1);
}

static int fail(struct walk *walk, int rc)
{
    return err_set(walk->reterr, rc, "folder %s: %s: %s", walk->root,
                   walk->path[0] ? walk->path : ".", strerror(-rc));
}

static int add_name(struct walk *walk, const char *name, enum name_kind kind, uint8_t extension)
{
    struct frame *frame = &walk->frames[walk->depth - 1];
    size_t bytes = strlen(name);
    if (bytes + 2 > NAME_ROOM + 1) {
        walk->counts->ignored++; /* some file systems have names of more than 255 bytes */
        source_note(walk->counts, "a name in %s/%s is too long and is left out", walk->root,
                    walk->path);
        return 0;
    }
    void *names = frame->names;
    int rc = grow(&names, &frame->name_room, frame->name_count + 1, sizeof *frame->names);
    frame->names = names;
    if (rc == 0)
        rc = grow_text(&frame->text, &frame->text_room, frame->text_bytes + bytes + 2);
    if (rc < 0)
        return fail(walk, rc);
    char *text = frame->text + frame->text_bytes;
    memcpy(text, name, bytes);
    if (kind == NAME_FOLDER)
        text[bytes++] = '/';
    text[bytes] = 0;
    frame->names[frame->name_count++] = (struct name){.offset = frame->text_bytes,
                                                      .bytes = (uint16_t)bytes,
                                                      .kind = (uint8_t)kind,
                                                      .extension = extension};
    frame->text_bytes += bytes + 1;
    return 0;
}

/* A link to a folder inside: followed unless it leads to a folder on the way to it, which would be
 * a loop. */
static int add_folder_link(struct walk *walk, const char *name, const struct stat *st)
{
    for (unsigned i = 0; i < walk->depth; i++)
        if (walk->frames[i].device == st->st_dev && walk->frames[i].inode == st->st_ino) {
            walk->counts->ignored++;
            source_note(walk->counts, "%s/%s is a link to a folder above it and is not followed",
                        walk->root, walk->path);
            return 0;
        }
    if (walk->followed == FOLLOWED_MAX) {
        walk->counts->ignored++;
        source_note(walk->counts, "%s/%s: more than %d links to folders; this one is left out",
                    walk->root, walk->path, FOLLOWED_MAX);
        return 0;
    }
    walk->followed++;
    return add_name(walk, name, NAME_FOLDER, NO_EXTENSION);
}

static int add_link(struct walk *walk, const char *name)
{
    uint8_t extension = extension_of(name);
    path_append(walk, name, strlen(name));
    struct stat st;
    int rc = stat_beneath(walk->root_fd, walk->path, &st);
    if (rc == -EXDEV) {
        walk->counts->refused_links++;
        source_note(walk->counts, "%s/%s is a link that leads out of the folder and is left out",
                    walk->root, walk->path);
        return 0;
    }
    if (rc < 0 && about_storage(rc))
        return fail(walk, rc);
    if (rc == 0 && S_ISDIR(st.st_mode))
        return add_folder_link(walk, name, &st);
    /* A link that leads nowhere under a picture's name is a sample that will fail, like a file
     * without rights. */
    if ((rc == 0 && !S_ISREG(st.st_mode)) || extension == NO_EXTENSION) {
        walk->counts->ignored++;
        return 0;
    }
    return add_name(walk, name, NAME_LINK, extension);
}

static unsigned char type_of(int folder_fd, const struct dirent *entry)
{
    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type;
    struct stat st;
    if (fstatat(folder_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return DT_REG; /* told apart when its size is asked for */
    return S_ISREG(st.st_mode)   ? DT_REG
           : S_ISDIR(st.st_mode) ? DT_DIR
           : S_ISLNK(st.st_mode) ? DT_LNK
                                 : DT_FIFO;
}

static int add_dirent(struct walk *walk, const struct dirent *entry)
{
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return 0;
    if (name[0] == '.') { /* hidden: .DS_Store, ._1.jpg, .thumbnails */
        walk->counts->ignored++;
        return 0;
    }
    unsigned char type = type_of(dirfd(walk->frames[walk->depth - 1].dir), entry);
    if (type == DT_LNK)
        return add_link(walk, name);
    if (type == DT_DIR)
        return add_name(walk, name, NAME_FOLDER, NO_EXTENSION);
    uint8_t extension = type == DT_REG ? extension_of(name) : NO_EXTENSION;
    if (extension == NO_EXTENSION) {
        walk->counts->ignored++;
        return 0;
    }
    return add_name(walk, name, NAME_FILE, extension);
}

static int compare_names(const void *a, const void *b, void *text)
{
    const struct name *left = a, *right = b;
    return strcmp((const char *)text + left->offset, (const char *)text + right->offset);
}

static int compare_classes(const void *a, const void *b)
{
    const struct source_class *left = a, *right = b;
    return strcmp(left->name, right->name);
}

/* The classes are the root's folders, in byte order of their bare names, which is not the order of
 * the walk ("a" and "a.b"). */
static int take_classes(struct walk *walk)
{
    const struct frame *root = &walk->frames[0];
    struct source_list *list = walk->list;
    list->classes = calloc(root->name_count + 1, sizeof *list->classes);
    if (!list->classes)
        return fail(walk, -ENOMEM);
    for (size_t i = 0; i < root->name_count; i++) {
        if (root->names[i].kind != NAME_FOLDER)
            continue;
        char *name = strndup(root->text + root->names[i].offset, root->names[i].bytes - 1u);
        if (!name)
            return fail(walk, -ENOMEM);
        list->classes[list->class_count++].name = name;
    }
    qsort(list->classes, list->class_count, sizeof *list->classes, compare_classes);
    return 0;
}

/* Reads and sorts the names of the folder on top of the stack. */
static int read_names(struct walk *walk)
{
    struct frame *frame = &walk->frames[walk->depth - 1];
    for (;;) {
        walk->path[frame->path_bytes] = 0;
        errno = 0;
        const struct dirent *entry = readdir(frame->dir);
        if (!entry) {
            if (errno != 0 && errno != ENOENT)
                return fail(walk, -errno);
            break;
        }
        int rc = add_dirent(walk, entry);
        if (rc < 0)
            return rc;
    }
    if (frame->name_count > 0)
        qsort_r(frame->names, frame->name_count, sizeof *frame->names, compare_names, frame->text);
    return walk->depth == 1 ? take_classes(walk) : 0;
}

static void pop(struct walk *walk)
{
    struct frame *frame = &walk->frames[--walk->depth];
    free(frame->names);
    free(frame->text);
    if (frame->dir)
        closedir(frame->dir);
    *frame = (struct frame){0};
}

/* The folder that walk->path names is left out. */
static int leave_out(struct walk *walk, int code)
{
    if (walk->counts->unreadable_folders++ == 0)
        walk->counts->note[0] = 0; /* of a link that leads out, which matters less */
    source_note(walk->counts, "%s/%s cannot be read (%s): its pictures are left out", walk->root,
                walk->path, strerror(-code));
    return 0;
}

/* Opens the folder that walk->path names ("": the root) and puts it on the stack. Returns 1 when it
 * is there, 0 when it is left out. */
static int push(struct walk *walk, uint32_t path_bytes)
{
    int fd = open_beneath(walk->root_fd, path_bytes ? walk->path : ".", O_RDONLY | O_DIRECTORY);
    if (fd < 0) {
        if (path_bytes == 0 || about_storage(fd))
            return fail(walk, fd);
        return leave_out(walk, fd);
    }
    struct stat st;
    if (fstat(fd, &st) < 0) {
        int rc = -errno;
        close(fd);
        return fail(walk, rc);
    }
    DIR *dir = fdopendir(fd);
    if (!dir) {
        int rc = -errno;
        close(fd);
        return fail(walk, rc);
    }
    walk->frames[walk->depth++] = (struct frame){
        .dir = dir, .device = st.st_dev, .inode = st.st_ino, .path_bytes = path_bytes};
    int rc = read_names(walk);
    if (rc < 0 && !about_storage(rc) && path_bytes > 0) { /* it may be opened, not listed */
        if (walk->reterr)
            *walk->reterr = (struct err){0};
        walk->path[path_bytes] = 0;
        pop(walk);
        return leave_out(walk, rc);
    }
    return rc < 0 ? rc : 1;
}

static int enter(struct walk *walk, const struct name *name)
{
    const struct frame *frame = &walk->frames[walk->depth - 1];
    uint32_t path_bytes = frame->path_bytes + name->bytes;
    if (path_bytes >= SOURCE_KEY_BYTES || walk->depth == DEPTH_MAX) {
        walk->counts->ignored++;
        source_note(walk->counts, "%s/%s lies too deep and is left out", walk->root, walk->path);
        return 0;
    }
    if (walk->depth == 1) {
        char bare[NAME_ROOM + 1];
        memcpy(bare, walk->path, name->bytes);
        bare[name->bytes - 1u] = 0;
        const struct source_class key = {.name = bare};
        const struct source_class *found = bsearch(
            &key, walk->list->classes, walk->list->class_count, sizeof key, compare_classes);
        walk->class_number = found ? (uint32_t)(found - walk->list->classes) : SOURCE_WALK_NO_CLASS;
    }
    int rc = push(walk, path_bytes);
    return rc < 0 ? rc : 0;
}

static int add_entry(struct walk *walk, const struct name *name, size_t path_bytes,
                     const struct stat *st)
{
    struct source_list *list = walk->list;
    void *entries = list->entries;
    int rc = grow(&entries, &list->entry_room, list->entry_count + 1, sizeof *list->entries);
    list->entries = entries;
    if (rc == 0)
        rc = grow_text(&list->text, &list->text_room, list->text_bytes + path_bytes + 1);
    if (rc < 0)
        return fail(walk, rc);
    uint32_t number = walk->depth == 1 ? SOURCE_WALK_NO_CLASS : walk->class_number;
    memcpy(list->text + list->text_bytes, walk->path, path_bytes + 1);
    list->entries[list->entry_count++] = (struct source_entry){
        .path_offset = list->text_bytes,
        .bytes = st->st_size > 0 ? (uint64_t)st->st_size : 0,
        .mtime_ns =
            (int64_t)((uint64_t)st->st_mtim.tv_sec * 1000000000u +
                      (uint64_t)st->st_mtim.tv_nsec), /* wraps for absurd times, as in fetch */
        .class_number = number,
        .path_bytes = (uint16_t)path_bytes,
        .extension = name->extension};
    list->text_bytes += path_bytes + 1;
    if (number != SOURCE_WALK_NO_CLASS)
        list->classes[number].samples++;
    return 0;
}

static int take_file(struct walk *walk, const struct name *name)
{
    const struct frame *frame = &walk->frames[walk->depth - 1];
    size_t path_bytes = (size_t)frame->path_bytes + name->bytes;
    if (path_bytes > SOURCE_KEY_BYTES) {
        walk->counts->ignored++;
        source_note(walk->counts, "a path in %s is longer than %d bytes and is left out: %s",
                    walk->root, SOURCE_KEY_BYTES, walk->path);
        return 0;
    }
    struct stat st = {.st_mode = S_IFREG};
    int rc = 0;
    if (name->kind == NAME_LINK)
        rc = stat_beneath(walk->root_fd, walk->path, &st);
    else if (fstatat(dirfd(frame->dir), frame->text + name->offset, &st, AT_SYMLINK_NOFOLLOW) < 0)
        rc = -errno;
    if (rc < 0 && about_storage(rc))
        return fail(walk, rc);
    if (rc < 0) /* it stays a sample, and fails when it is read */
        st = (struct stat){.st_mode = S_IFREG};
    if (!S_ISREG(st.st_mode)) {
        walk->counts->ignored++;
        return 0;
    }
    return add_entry(walk, name, path_bytes, &st);
}

int source_walk(int root_fd, const char *root, struct source_list *list,
                struct source_counts *counts, struct err *reterr)
{
    struct walk *walk = calloc(1, sizeof *walk);
    if (!walk)
        return err_set(reterr, -ENOMEM, "folder %s: no memory to list it", root);
    walk->root_fd = root_fd;
    walk->root = root;
    walk->list = list;
    walk->counts = counts;
    walk->reterr = reterr;
    int rc = push(walk, 0);
    while (rc >= 0 && walk->depth > 0) {
        struct frame *frame = &walk->frames[walk->depth - 1];
        if (frame->next == frame->name_count) {
            pop(walk);
            continue;
        }
        const struct name *name = &frame->names[frame->next++];
        path_append(walk, frame->text + name->offset, name->bytes);
        rc = name->kind == NAME_FOLDER ? enter(walk, name) : take_file(walk, name);
    }
    while (walk->depth > 0)
        pop(walk);
    free(walk);
    return rc < 0 ? rc : 0;
}

void source_list_fini(struct source_list *list)
{
    for (size_t i = 0; i < list->class_count; i++)
        free(list->classes[i].name);
    free(list->classes);
    free(list->entries);
    free(list->text);
    *list = (struct source_list){0};
}
