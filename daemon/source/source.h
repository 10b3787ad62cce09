/* Sources: a named list of samples and where their parts are. Opening one lists it (slow, may
 * block: on the chores thread only); looking up a sample afterwards is fast, allocates nothing and
 * may be done by any thread. */
#ifndef SPDLD_SOURCE_H
#define SPDLD_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "item/field.h"

enum {
    SOURCE_PARTS_MAX = 64,  /* of a sample */
    SOURCE_FILE_ALONE = -1, /* `file` of a part that is a file of its own */
    SOURCE_KIND_BYTES = 16,
    SOURCE_PATH_BYTES = 16384, /* of all paths and patterns of a source */
    SOURCE_INDEX_DIR_BYTES = 4096,
    SOURCE_KEY_BYTES = 1024,
    SOURCE_COLUMN_BYTES = 32
};

/* How far an opening is, for whoever asks meanwhile. Files are shards that have to be read. */
struct source_progress {
    _Atomic uint64_t files, files_done;
    _Atomic uint64_t bytes, bytes_done;
};

/* What the configuration says. */
struct source_spec {
    char kind[SOURCE_KIND_BYTES]; /* folder tar list synthetic */
    /* folder: one path; the others: paths and patterns, one a line. Absolute, or relative to the
     * daemon's working directory. */
    char path[SOURCE_PATH_BYTES];
    char index_dir[SOURCE_INDEX_DIR_BYTES]; /* where indexes are kept; "": they are not */
    uint64_t samples;                       /* synthetic */
    uint64_t bytes;
    char root[SOURCE_INDEX_DIR_BYTES]; /* list: what its paths are under; "": its own folder */
    char path_column[SOURCE_COLUMN_BYTES],
        label_column[SOURCE_COLUMN_BYTES]; /* list; "": as ever */
    /* What rows are made from: a sample without a part for each of them is left out (INCOMPLETE).
     * Borrowed during source_open; none: every sample is taken. */
    const struct field_spec *fields;
    uint32_t field_count;
    struct source_progress *progress; /* is added to; borrowed during source_open; or NULL */
};

enum source_part_kind {
    SOURCE_PART_FILE = 1,    /* a range of a file, often all of it */
    SOURCE_PART_INTEGER = 2, /* the number `value` */
    SOURCE_PART_MADE_UP = 3  /* `bytes` made from the sample's id */
};

struct source_part {
    uint32_t kind;
    const char *name; /* lower case: jpg cls bin; borrowed from the source */
    int64_t value;
    int root_fd;         /* FILE: folder that the path is under; borrowed */
    const char *path;    /* FILE: relative to root_fd; borrowed */
    int32_t file;        /* FILE: number of the shard in the source, or SOURCE_FILE_ALONE */
    uint64_t offset;     /* FILE: where the part begins */
    uint64_t bytes;      /* FILE, MADE_UP: of the part */
    uint64_t file_bytes; /* FILE: size of the whole file when listed */
    int64_t mtime_ns;    /* FILE: time of change when listed */
    uint32_t escape;     /* FILE: enum escape, how the bytes are written */
};

struct source_sample {
    const char *key; /* borrowed, no final 0 needed: key_bytes long; for made-up keys it points into
                        key_space */
    uint32_t key_bytes;
    uint32_t part_count;
    struct source_part parts[SOURCE_PARTS_MAX];
    char key_space[32];
};

struct source;

/* What a listing found, for status and for the log. */
struct source_counts {
    uint64_t samples;
    uint64_t classes;
    uint64_t ignored;       /* files of an unknown kind, hidden files */
    uint64_t refused_links; /* links that lead out of the root */
    uint64_t unreadable_folders;
    uint64_t empty_classes;
    uint64_t largest_bytes; /* of a single part */
    uint32_t longest_key_bytes;
    uint64_t broken; /* samples left out, and files that are damaged: source_fault */
    uint32_t shards; /* files that hold samples; 1 where there is no such thing */
    char note[512];  /* first thing worth a warning, with its path; "" when there is none */
};

/* Kind and absolute paths as one text: what tells one place of samples from another. Returned owned
 * (free); NULL: no memory, or no working directory. */
char *source_place(const struct source_spec *spec);

/* Lists the source. Returned owned: source_close. Errors: -ENOENT, -EACCES, -ENOTDIR, -ENODATA (no
 * sample at all), -ENOMEM, -EINVAL, with a sentence that names the path. Blocks. */
int source_open(const struct source_spec *spec, struct source **ret_source, struct err *reterr);
void source_close(struct source *source); /* accepts NULL */

const struct source_counts *source_counts(const struct source *source);

/* 128-bit hash of the manifest: kind, keys in order, sizes (docs/order.md). Never a path above the
 * root, never a time. */
void source_id(const struct source *source, uint64_t *ret_high, uint64_t *ret_low);

/* Sample `id` < samples. */
void source_sample(const struct source *source, uint64_t id, struct source_sample *ret_sample);

/* Says that the sample is looked up soon, so that the processor gets what is known of it near: once
 * some lookups before, to its first step, and once again halfway, to what that leads to. May do
 * nothing; changes nothing. */
enum source_warmth { SOURCE_FAR = 0, SOURCE_NEAR = 1 };
bool source_warms(const struct source *source); /* false: it would do nothing */
void source_warm(const struct source *source, uint64_t id, enum source_warmth warmth);

/* Number of the first sample of each shard, source_counts()->shards of them, ascending; borrowed.
 * NULL: one shard that begins with sample 0. */
const uint64_t *source_shards(const struct source *source);

/* One of the samples that were left out, number `index` < source_counts()->broken. */
struct source_fault {
    const char *path;      /* of the shard; borrowed */
    uint64_t offset;       /* in it */
    uint32_t class_number; /* enum spdl_class: DUPLICATE TRUNCATED CORRUPT UNSUPPORTED LIMIT EMPTY
                            * INCOMPLETE
                            */
    const char *key;       /* borrowed; "" where not known */
    uint32_t key_bytes;
    const char *message; /* borrowed */
};
void source_fault(const struct source *source, uint64_t index, struct source_fault *ret_fault);

/* Where the list is kept for the next time. */
struct source_kept {
    const char *file;     /* "": nowhere; borrowed */
    uint64_t bytes;       /* of the list, there or in memory */
    uint32_t read_shards; /* shards that were read for this opening; the others were in the file */
    int is_kept;          /* 1: what is in use is what is in the file */
};
/* Writes what is known of the list beside the data, so that others who have the data need not read
 * it. ret_file: borrowed from the source. -ENOTSUP (a source of this kind has no index) or another
 * negative errno with a sentence. Blocks. */
int source_publish(const struct source *source, const char **ret_file, struct err *reterr);

/* False: a source of this kind keeps nothing. */
bool source_kept(const struct source *source, struct source_kept *ret_kept);

/* The file in which what is known of the samples lies, where it was cut or written over since: what
 * was looked up of late may be wrong, and so may all that follows. NULL: it was right until now.
 * Borrowed from the source. Quick; one thread at a time. */
const char *source_damaged(const struct source *source);

/* Names of the parts that the source's samples can have, for "without preset and fields every part
 * comes raw under its own name". Returns how many, at most `max`; names are borrowed. */
uint32_t source_part_names(const struct source *source, const char **names, uint32_t max);

/* One kind of source: a row of source_table. */
struct source_ops {
    const char *kind; /* as in the configuration */
    int (*open)(const struct source_spec *spec, struct source **ret_source, struct err *reterr);
    void (*close)(struct source *source);
    void (*sample)(const struct source *source, uint64_t id, struct source_sample *ret_sample);
    uint32_t (*part_names)(const struct source *source, const char **names, uint32_t max);
    const uint64_t *(*shards)(const struct source *source); /* optional */
    void (*fault)(const struct source *source, uint64_t index,
                  struct source_fault *ret_fault);                           /* optional */
    void (*kept)(const struct source *source, struct source_kept *ret_kept); /* optional */
    void (*warm)(const struct source *source, uint64_t id,
                 enum source_warmth warmth); /* optional */
    int (*publish)(const struct source *source, const char **ret_file,
                   struct err *reterr);                  /* optional */
    const char *(*damaged)(const struct source *source); /* optional */
};
extern const struct source_ops *const source_table[]; /* ends with NULL */

/* Every source starts with this. */
struct source {
    const struct source_ops *ops;
    struct source_counts counts;
    uint64_t id_high, id_low;
};

#endif
