/* Which mounts cannot hang: see fetch_local.h. */
#include "fetch/fetch_local.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const disks[] = {"ext2",     "ext3", "ext4",    "xfs",   "btrfs", "f2fs",
                                    "bcachefs", "zfs",  "overlay", "erofs", "jfs",   "squashfs",
                                    "iso9660",  "vfat", "exfat",   "ntfs3"};
static const char *const memories[] = {"tmpfs", "ramfs", "devtmpfs", "rootfs"};

static int among(const char *const *names, size_t count, const char *name, size_t bytes)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(names[i]) == bytes && memcmp(names[i], name, bytes) == 0)
            return 1;
    return 0;
}

/* A line is "MOUNT PARENT DEVICE ROOT POINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS". */
static enum fetch_place place_of_line(const char *line)
{
    const char *type = strstr(line, " - ");
    if (!type)
        return FETCH_PLACE_REMOTE;
    type += 3;
    size_t bytes = strcspn(type, " \n");
    if (among(disks, sizeof disks / sizeof disks[0], type, bytes))
        return FETCH_PLACE_DISK;
    if (among(memories, sizeof memories / sizeof memories[0], type, bytes))
        return FETCH_PLACE_MEMORY;
    return FETCH_PLACE_REMOTE;
}

/* Looks the mount up in one list of mounts: by its number, or else by its file system. */
static enum fetch_place ask_list(const char *path, const struct statx *st)
{
    enum fetch_place of_mount = FETCH_PLACE_REMOTE, of_device = FETCH_PLACE_REMOTE;
    FILE *file = fopen(path, "re");
    if (!file)
        return FETCH_PLACE_REMOTE;
    char *line = NULL, *end;
    size_t room = 0;
    while (of_mount == FETCH_PLACE_REMOTE && getline(&line, &room, file) > 0) {
        bool is_mount = strtoull(line, &end, 10) == st->stx_mnt_id;
        (void)strtoull(end, &end, 10);
        bool is_device = strtoull(end, &end, 10) == st->stx_dev_major && *end == ':' &&
                         strtoull(end + 1, &end, 10) == st->stx_dev_minor;
        if (is_mount)
            of_mount = place_of_line(end);
        else if (is_device)
            of_device = place_of_line(end);
    }
    free(line);
    fclose(file);
    return of_mount != FETCH_PLACE_REMOTE ? of_mount : of_device;
}

/* In a root of our own (chroot) our list lacks the mount that this root is a folder of; that of the
 * first process has it. */
static enum fetch_place ask_proc(const struct statx *st)
{
    enum fetch_place place = ask_list("/proc/self/mountinfo", st);
    return place != FETCH_PLACE_REMOTE ? place : ask_list("/proc/1/mountinfo", st);
}

enum fetch_place fetch_local_find(struct fetch_local *local, int root_fd)
{
    struct statx st;
    if (statx(root_fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &st) < 0 ||
        !(st.stx_mask & STATX_MNT_ID))
        return FETCH_PLACE_REMOTE;
    for (uint32_t i = 0; i < local->count; i++)
        if (local->known[i].mount == st.stx_mnt_id)
            return local->known[i].place;
    uint32_t at = local->count;
    if (local->count < FETCH_LOCAL_MOUNTS) {
        local->count++;
    } else {
        at = local->oldest;
        local->oldest = (local->oldest + 1) % FETCH_LOCAL_MOUNTS;
    }
    local->known[at].mount = st.stx_mnt_id;
    local->known[at].place = ask_proc(&st);
    return local->known[at].place;
}
