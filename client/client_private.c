/* The job's own daemon: what the job is called, and where its socket is. Nothing is started here.
 */
#include "client/client_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { PATH_BYTES = sizeof(((struct sockaddr_un *)0)->sun_path), NAME_MAX_BYTES = 48 };

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* FNV-1a: only to tell names apart that look the same once they are shortened. */
static uint64_t name_hash(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return hash;
}

/* Makes a name that is safe in a path; one that had to be changed gets a mark of what it was. */
static void make_safe(const char *name, char *ret_job)
{
    int is_changed = 0;
    size_t bytes = 0;
    for (const char *at = name; *at; at++) {
        int is_good = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                      (*at >= '0' && *at <= '9') || *at == '.' || *at == '_' || *at == '-';
        if (bytes == NAME_MAX_BYTES) {
            is_changed = 1;
            break;
        }
        ret_job[bytes++] = is_good ? *at : '_';
        is_changed |= !is_good;
    }
    ret_job[bytes] = 0;
    if (is_changed)
        snprintf(ret_job + bytes, SPDL_CLIENT_JOB_BYTES - bytes, "-%08x",
                 (unsigned)(name_hash(name) & 0xffffffffu));
}

/* The job's name: what the user says, what the launcher says, else this process alone. */
static void find_job(struct spdl_client_target *target)
{
    static const char *const names[] = {"SPDL_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID",
                                        "PBS_JOBID", "LSB_JOBID"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = environment(names[i]);
        if (!value)
            continue;
        const char *port = environment("MASTER_PORT");
        if (strcmp(value, "none") == 0 && strcmp(names[i], "TORCHELASTIC_RUN_ID") == 0) {
            /* torchrun's default is the same for every job of a node: its port is not. */
            if (!port)
                continue;
            char text[64];
            snprintf(text, sizeof(text), "torchrun-%s", port);
            make_safe(text, target->job);
            return;
        }
        make_safe(value, target->job);
        return;
    }
    target->owner = getpid();
    snprintf(target->job, sizeof(target->job), "pid-%ld", (long)target->owner);
}

static int is_own_folder(const char *path, mode_t forbidden)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & forbidden) == 0;
}

/* Puts "FOLDER/spdld-JOB.sock" into path; 0 when it is too long for a socket. */
static int make_path(const char *folder, const char *job, char *path)
{
    int n = snprintf(path, PATH_BYTES, "%s/spdld-%s.sock", folder, job);
    return n > 0 && n < PATH_BYTES;
}

/* A folder of the user's own under the temporary one, made when missing. */
static int own_folder(const char *parent, char *folder, size_t bytes,
                      struct spdl_client_error *error)
{
    int n = snprintf(folder, bytes, "%s/spdld-%lu", parent, (unsigned long)geteuid());
    if (n < 0 || (size_t)n >= bytes)
        return -ENAMETOOLONG;
    char words[128];
    if (mkdir(folder, 0700) < 0 && errno != EEXIST) {
        int code = -errno;
        return spdl_client_fail(error, code, 0, "folder %s for the private spdld: %s", folder,
                                spdl_client_errno_text(code, words, sizeof(words)));
    }
    if (!is_own_folder(folder, 077))
        return spdl_client_fail(error, -EACCES, 0,
                                "%s must be a folder of this user's own with mode 0700: remove "
                                "it, or set XDG_RUNTIME_DIR",
                                folder);
    return 0;
}

/* Where the socket of a private daemon is. */
static int find_socket(struct spdl_client_target *target, struct spdl_client_error *error)
{
    char path[PATH_BYTES];
    char folder[PATH_BYTES];
    int rc = 0;
    const char *runtime = environment("XDG_RUNTIME_DIR");
    if (runtime && runtime[0] == '/' && is_own_folder(runtime, 022) &&
        make_path(runtime, target->job, path)) {
        target->socket = spdl_client_copy_text(path, &rc);
        return rc;
    }
    const char *parent = environment("TMPDIR");
    if (!parent || parent[0] != '/' || strlen(parent) > PATH_BYTES - SPDL_CLIENT_JOB_BYTES)
        parent = "/tmp";
    rc = own_folder(parent, folder, sizeof(folder), error);
    if (rc == 0 && !make_path(folder, target->job, path))
        rc = -ENAMETOOLONG;
    if (rc == -ENAMETOOLONG)
        return spdl_client_fail(error, rc, 0,
                                "the folder %s is too long a name for a socket: set TMPDIR or "
                                "SPDL_JOB to something shorter",
                                parent);
    if (rc == 0)
        target->socket = spdl_client_copy_text(path, &rc);
    return rc;
}

int spdl_client_private_find(struct spdl_client_target *target, struct spdl_client_error *error)
{
    find_job(target);
    if (!target->is_private || target->socket)
        return 0;
    return find_socket(target, error);
}
