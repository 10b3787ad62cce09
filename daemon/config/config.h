/* The configuration: one table of settings, datasets, presets; read from YAML with file:line:column
 * in every complaint. Non-logging. */
#ifndef SPDLD_CONFIG_H
#define SPDLD_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/log.h"
#include "item/field.h"

enum {
    CONFIG_DATASETS_MAX = 256,
    CONFIG_NAME_BYTES = 64,
    CONFIG_PATH_BYTES = 16384, /* of all paths and patterns of a source, one a line */
    CONFIG_ROOT_BYTES = 4096,
    CONFIG_SOCKET_BYTES = 108, /* sun_path */
    CONFIG_COMPLAINTS_MAX = 32,
    CONFIG_SETTINGS_MAX = 32,
    CONFIG_RESTART_NAMES_BYTES = CONFIG_SETTINGS_MAX * 32,
    CONFIG_FILE_BYTES_MAX = 4 << 20,     /* of a configuration file */
    CONFIG_DATASET_BYTES_MAX = 64 << 10, /* of a dataset in a message */
    CONFIG_FILES_MAX = 256,              /* in datasets.d */
    CONFIG_BLOCK_SAMPLES_DEFAULT = 65536,
    CONFIG_LANES_MAX = 65536
};

enum config_engine { CONFIG_ENGINE_AUTO = 1, CONFIG_ENGINE_URING, CONFIG_ENGINE_POOL };
enum config_shm { CONFIG_SHM_MEMFD = 1, CONFIG_SHM_POSIX }; /* numbers of enum spdl_shm_kind */
enum config_shuffle {
    CONFIG_SHUFFLE_NONE = 1,
    CONFIG_SHUFFLE_GLOBAL,
    CONFIG_SHUFFLE_BLOCK
}; /* numbers of enum plan_shuffle */
enum config_log { CONFIG_LOG_DEBUG = 1, CONFIG_LOG_INFO, CONFIG_LOG_WARNING, CONFIG_LOG_ERROR };
enum config_last { CONFIG_LAST_DROP = 1, CONFIG_LAST_PAD, CONFIG_LAST_PARTIAL };
enum config_policy {
    CONFIG_POLICY_MASK = 1,
    CONFIG_POLICY_FAIL,
    CONFIG_POLICY_SUBSTITUTE
}; /* numbers of enum pipeline_policy */
enum {
    CONFIG_RATE_UNIT = 1000000, /* a rate of 1, as max_rate counts it */
    CONFIG_CONSECUTIVE_MAX = 10000
};

/* What happens with samples that fail. */
struct config_on_error {
    uint32_t policy;          /* enum config_policy */
    uint32_t max_rate;        /* 0 … CONFIG_RATE_UNIT */
    uint32_t max_consecutive; /* 1 … CONFIG_CONSECUTIVE_MAX */
};

/* Who may have streams of a dataset. */
enum { CONFIG_ALLOW_MAX = 32 };
#define CONFIG_ALLOW_NOBODY UINT32_MAX /* number of a name that the node does not know */
struct config_allow_list {
    uint32_t count;
    uint32_t ids[CONFIG_ALLOW_MAX];
    char names[CONFIG_ALLOW_MAX][CONFIG_NAME_BYTES];
};
struct config_allow {
    bool is_given; /* else everybody who may use the socket */
    struct config_allow_list users, groups;
};

struct config_source {
    char kind[16]; /* folder tar list synthetic */
    char path[CONFIG_PATH_BYTES];
    uint64_t samples, bytes;
    char root[CONFIG_ROOT_BYTES]; /* list; "": the folder of each list */
    char path_column[FIELD_PART_BYTES], label_column[FIELD_PART_BYTES]; /* list */
};

struct config_dataset {
    char name[CONFIG_NAME_BYTES];
    struct config_source source;
    uint32_t field_count;                /* 0: every part comes raw under its own name */
    struct field_spec fields[FIELD_MAX]; /* after field_finish */
    uint32_t shuffle, last;
    uint64_t seed;
    struct config_on_error on_error;
    uint64_t block_samples; /* with shuffle: block */
    uint32_t lanes;         /* 1: none */
    struct config_allow allow;
};

/* Where a setting's value is from. */
enum config_origin_kind {
    CONFIG_ORIGIN_DEFAULT = 0,
    CONFIG_ORIGIN_FILE,
    CONFIG_ORIGIN_SET, /* of the command line */
    CONFIG_ORIGIN_LIVE /* while it runs: until the next reload or start */
};
struct config_origin {
    uint32_t kind;         /* enum config_origin_kind */
    uint32_t line, column; /* in the file */
};

/* Where a dataset says what its source is. */
struct config_place {
    char *file; /* owned */
    uint32_t line, column;
};

/* Settings of the daemon. Each is a row of config_settings (config_settings.c), which also gives
 * help, limits and the sample file. */
struct config {
    char socket[CONFIG_SOCKET_BYTES];
    uint32_t socket_mode;
    uint32_t slots;
    uint64_t memory_bytes;   /* 0: auto */
    uint64_t arena_bytes;    /* blobs in flight; 0: auto */
    uint32_t decode_threads; /* 0: auto */
    uint32_t fetch_engine;   /* enum config_engine */
    uint32_t fetch_depth;    /* 0: auto */
    uint32_t shm;            /* enum config_shm */
    uint64_t max_sample_bytes;
    uint64_t max_pixels;
    uint32_t quota_streams;                            /* of one user; 0: auto */
    uint64_t quota_bytes;                              /* of one user's streams; 0: auto */
    uint64_t worker_bytes;                             /* of a worker's own; 0: auto */
    uint32_t log_level;                                /* enum config_log */
    char index_dir[2048];                              /* "auto", "none" or a folder */
    char fetch_faulty[128];                            /* tests only; not in the sample file */
    char file[CONFIG_PATH_BYTES];                      /* that settings were read from; "": none */
    struct config_origin origins[CONFIG_SETTINGS_MAX]; /* by row of config_settings */
    uint32_t dataset_count;
    struct config_dataset *datasets; /* owned by the config */
    struct config_place *places;     /* of the datasets; owned; NULL: not known */
};

/* All that was wrong, in order, one line each: "FILE:LINE:COLUMN: what; did you mean 'x'?" */
struct config_complaints {
    uint32_t count; /* may be above CONFIG_COMPLAINTS_MAX: only so many are kept */
    char lines[CONFIG_COMPLAINTS_MAX][512];
};

/* Reads `file` (NULL: /etc/spdld/spdld.yaml and /etc/spdld/datasets.d/ *.yaml where they exist,
 * else only defaults), then `KEY=VALUE` settings
 * ("threads.decode=2"). Returned owned: config_destroy. 0; -EINVAL with complaints; -ENOENT or
 * -EACCES for a named file. */
int config_load(const char *file, const char *const *sets, uint32_t set_count,
                struct config **ret_config, struct config_complaints *ret_complaints);
void config_destroy(struct config *config);

/* Reads one dataset written as YAML (the value of a name under `datasets:`), as it travels in an
 * Open message: bytes from a stranger, at most CONFIG_DATASET_BYTES_MAX. `where` stands for the
 * file's name; the dataset's own name stays "". 0; -EINVAL with complaints; -ENOMEM. */
int config_dataset_read(const char *yaml, size_t bytes, const char *where,
                        const struct config *config, struct config_dataset *ret_dataset,
                        struct config_complaints *ret_complaints);

/* "policy[,max_rate=x][,max_consecutive=n]" of --on-error; a limit that is not named stays as it
 * was. -EINVAL with a sentence: nothing is changed then. */
int config_on_error_read(const char *text, struct config_on_error *on_error, struct err *reterr);

/* May a process of this user and these groups have streams? And who may, in words. */
bool config_allow_has(const struct config_allow *allow, uint32_t uid, const uint32_t *gids,
                      uint32_t gid_count);
void config_allow_text(const struct config_allow *allow, char *text, size_t bytes);

const struct config_dataset *config_dataset_find(const struct config *config,
                                                 const char *name); /* NULL: none */
/* Says that there is no such dataset, which there are and which is near. -ENOENT. */
int config_dataset_unknown(const struct config *config, const char *name, struct err *reterr);

/* Text that callers free: the settings in force as YAML with where each differs from its default;
 * the sample file with every default as a comment; the differences between two configurations, one
 * a line, "" when equal. NULL: no memory. */
char *config_print(const struct config *config, int only_differences);
char *config_print_defaults(void);
char *config_diff(const struct config *mine, const struct config *other);

enum log_level config_log_level(const struct config *config);

/* --- changes while it runs --- */

/* The running configuration with `KEY=VALUE` settings changed, as --set writes them. Returned owned
 * (with datasets of its own). 0; -EINVAL with complaints; -ENOMEM. */
int config_change(const struct config *running, const char *const *sets, uint32_t set_count,
                  struct config **ret_next, struct config_complaints *ret_complaints);

/* Calls `tell` for each setting that differs and each part of a dataset that does ("slots", "8",
 * "4"; "datasets.photos.last", …); NULL: the dataset is not there. 0 or -ENOMEM. */
int config_compare(const struct config *mine, const struct config *other,
                   void (*tell)(void *context, const char *name, const char *mine,
                                const char *other),
                   void *context);

/* Names of the settings that differ and take effect only when spdld starts again, "a, b"; "" when
 * there are none. Returns text. */
const char *config_restart_names(const struct config *running, const struct config *next,
                                 char text[CONFIG_RESTART_NAMES_BYTES]);

/* The live settings and the datasets of `next` become those of `running`; next keeps the former
 * datasets. The other settings are not touched, so that other threads may read them. */
void config_adopt(struct config *running, struct config *next);

#endif
