/* Folders that the program keeps things in: see dirs.h. */
#include "base/dirs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
