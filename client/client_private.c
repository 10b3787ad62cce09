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

/* A job's name as it is put together: safe in a path, with a mark when it had to be changed. */
struct namer {
    char *job; /* SPDL_CLIENT_JOB_BYTES */
    size_t bytes;
    int is_changed;
    uint64_t hash; /* FNV-1a of what was added: tells names apart that look the same */
};

static void namer_init(struct namer *namer, char *job)
{
    *namer = (struct namer){.job = job, .hash = UINT64_C(0xcbf29ce484222325)};
    job[0] = 0;
}

static void namer_add(struct namer *namer, const char *text)
{
    for (const char *at = text; *at; at++) {
        int is_good = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                      (*at >= '0' && *at <= '9') || *at == '.' || *at == '_' || *at == '-';
        namer->hash = (namer->hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
        if (namer->bytes < NAME_MAX_BYTES)
            namer->job[namer->bytes++] = is_good ? *at : '_';
        else
            namer->is_changed = 1;
        namer->is_changed |= !is_good;
    }
    namer->job[namer->bytes] = 0;
}

/* A further part, behind a dot. */
static void namer_part(struct namer *namer, const char *before, const char *text)
{
    if (namer->bytes > 0)
        namer_add(namer, ".");
    namer_add(namer, before);
    namer_add(namer, text);
}

static void namer_end(struct namer *namer)
{
    if (namer->is_changed)
        snprintf(namer->job + namer->bytes, SPDL_CLIENT_JOB_BYTES - namer->bytes, "-%08x",
                 (unsigned)(namer->hash & 0xffffffffu));
}

static const char *first_of(const char *const *names, size_t count)
{
    const char *value = NULL;
    for (size_t i = 0; i < count && !value; i++)
        value = environment(names[i]);
    return value;
}

#define FIRST_OF(...)                                                                              \
    first_of((const char *const[]){__VA_ARGS__},                                                   \
             sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* What the node's scheduler calls the job: its number, and the step or the element of an array
 * where these share the number. */
static void add_scheduler(struct namer *namer)
{
    const char *job = FIRST_OF("SLURM_JOB_ID", "SLURM_JOBID");
    if (job) {
        const char *step = FIRST_OF("SLURM_STEP_ID", "SLURM_STEPID");
        namer_part(namer, "", job);
        if (step)
            namer_part(namer, "", step);
        return;
    }
    job = environment("LSB_JOBID");
    if (job) {
        const char *element = environment("LSB_JOBINDEX");
        namer_part(namer, "", job);
        if (element && strcmp(element, "0") != 0)
            namer_part(namer, "", element);
        return;
    }
    job = FIRST_OF("PBS_JOBID", "FLUX_JOB_ID");
    if (job)
        namer_part(namer, "", job);
}

/* What started the ranks inside of it: several such starts in one job of the scheduler are several
 * jobs. */
static void add_launcher(struct namer *namer)
{
    const char *run = environment("TORCHELASTIC_RUN_ID"), *port = environment("MASTER_PORT");
    if (run && strcmp(run, "none") != 0) {
        namer_part(namer, "", run);
        return;
    }
    if (run && port) {
        /* torchrun's default is the same for every job of a node: its port is not. */
        namer_part(namer, "torchrun-", port);
        return;
    }
    run = FIRST_OF("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri",
                   "PALS_APID", "PMI_JOBID");
    if (run)
        namer_part(namer, "", run);
}

/* Ranks without a name in common still have something in common: the port where they meet, or the
 * process that started them. */
static void add_common(struct namer *namer)
{
    const char *port = environment("MASTER_PORT");
    if (port && environment("RANK") && environment("WORLD_SIZE")) {
        namer_part(namer, "port-", port);
        return;
    }
    if (FIRST_OF("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")) {
        char text[24];
        snprintf(text, sizeof(text), "%ld", (long)getppid());
        namer_part(namer, "mpi-", text);
    }
}

/* The job's name: what the user says, what the launcher says, else this process alone. */
static void find_job(struct spdl_client_target *target)
{
    struct namer namer;
    namer_init(&namer, target->job);
    const char *given = environment("SPDL_JOB");
    if (given) {
        namer_part(&namer, "", given);
    } else {
        add_scheduler(&namer);
        add_launcher(&namer);
    }
    if (namer.bytes == 0)
        add_common(&namer);
    namer_end(&namer);
    if (namer.bytes > 0)
        return;
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

/* What is wrong with a folder that cannot be trusted. */
static void describe_folder(const char *folder, char *words, size_t bytes)
{
    struct stat st;
    if (lstat(folder, &st) < 0)
        snprintf(words, bytes, "cannot be looked at");
    else if (S_ISLNK(st.st_mode))
        snprintf(words, bytes, "is a symbolic link (of user %lu)", (unsigned long)st.st_uid);
    else if (!S_ISDIR(st.st_mode))
        snprintf(words, bytes, "is no folder");
    else if (st.st_uid != geteuid())
        snprintf(words, bytes, "belongs to user %lu", (unsigned long)st.st_uid);
    else
        snprintf(words, bytes, "is open to others (mode %04o)", (unsigned)st.st_mode & 07777u);
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
        return spdl_client_fail(error, code, 0,
                                "folder %s for the private spdld: %s; set XDG_RUNTIME_DIR or "
                                "TMPDIR to a folder that can be written",
                                folder, spdl_client_errno_text(code, words, sizeof(words)));
    }
    if (is_own_folder(folder, 077))
        return 0;
    describe_folder(folder, words, sizeof(words));
    return spdl_client_fail(error, -EACCES, 0,
                            "%s %s: the private spdld needs it to be a folder of user %lu's own "
                            "with mode 0700; remove it, or set XDG_RUNTIME_DIR or TMPDIR to a "
                            "folder of your own",
                            folder, words, (unsigned long)geteuid());
}

/* Where the socket of a private daemon is. */
static int find_socket(struct spdl_client_target *target, struct spdl_client_error *error)
{
    char path[PATH_BYTES];
    char folder[PATH_BYTES];
    int rc = 0;
    const char *runtime = environment("XDG_RUNTIME_DIR");
    if (runtime && runtime[0] == '/' && is_own_folder(runtime, 022) &&
        access(runtime, W_OK | X_OK) == 0 && make_path(runtime, target->job, path)) {
        target->socket = spdl_client_copy_text(path, &rc);
        return rc;
    }
    const char *parent = environment("TMPDIR");
    /* A container may have inherited the name of a folder that it does not have. */
    if (!parent || parent[0] != '/' || strlen(parent) > PATH_BYTES - SPDL_CLIENT_JOB_BYTES ||
        access(parent, W_OK | X_OK) < 0)
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
