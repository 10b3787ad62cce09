/* Folders that the program keeps things in: see dirs.h. */
#include "base/dirs.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STALE_SECONDS = 3600, SUFFIX_BYTES = 7 };

static const char *home(void)
{
    const char *given = getenv("HOME");
    return given && given[0] == '/' ? given : NULL;
}

void dirs_index(const char *setting, bool is_private, char *ret_dir, size_t room)
{
    static const char state[] = "/var/lib/spdld";
    const char *cache = getenv("XDG_CACHE_HOME");
    int bytes = 0;
    ret_dir[0] = 0;
    if (strcmp(setting, "none") == 0)
        return;
    if (strcmp(setting, "auto") != 0)
        bytes = snprintf(ret_dir, room, "%s", setting);
    else if (!is_private && (geteuid() == 0 || access(state, W_OK) == 0))
        bytes = snprintf(ret_dir, room, "%s/index", state);
    else if (cache && cache[0] == '/')
        bytes = snprintf(ret_dir, room, "%s/spdld/index", cache);
    else if (home())
        bytes = snprintf(ret_dir, room, "%s/.cache/spdld/index", home());
    if (bytes < 0 || (size_t)bytes >= room)
        ret_dir[0] = 0;
}

void dirs_make_above(const char *file)
{
    char path[4352];
    size_t bytes = strnlen(file, sizeof path - 1);
    memcpy(path, file, bytes);
    path[bytes] = 0;
    for (char *at = path; (at = strchr(at + 1, '/')) != NULL; *at = '/') {
        *at = 0;
        mkdir(path, 0755);
    }
}

void dirs_remove_remains(const char *file)
{
    char folder[4352];
    const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file;
    size_t bytes = slash ? (size_t)(slash - file) : 0, base_bytes = strlen(base);
    if (bytes == 0 || bytes >= sizeof folder)
        return;
    memcpy(folder, file, bytes);
    folder[bytes] = 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct stat st;
        if (strncmp(entry->d_name, base, base_bytes) == 0 && entry->d_name[base_bytes] == '.' &&
            strlen(entry->d_name) == base_bytes + SUFFIX_BYTES &&
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_mtim.tv_sec < time(NULL) - STALE_SECONDS)
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
}
