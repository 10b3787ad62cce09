/* Small files that outlive the daemon, in the folder of the setting index_dir: what was seen whole,
 * and the quarantine. One is written beside the old one and renamed, so that a reader finds the old
 * or the new one, whole; a sum over all of it is checked when it is read. Blocks; non-logging;
 * chores thread. */
#ifndef SPDLD_PIPELINE_KEPT_H
#define SPDLD_PIPELINE_KEPT_H

#include <stdint.h>

/* What is in a file, and in which version: a file of another kind or version is as good as none. */
enum pipeline_kept_kind {
    PIPELINE_KEPT_SEEN = 0x10001,      /* pipeline_seen.c */
    PIPELINE_KEPT_QUARANTINE = 0x20001 /* pipeline_quarantine_pack.c */
};

enum {
    PIPELINE_KEPT_PATH_BYTES = 4352,
    PIPELINE_KEPT_BYTES_MAX = 64 << 20 /* of a payload; what is larger is not kept */
};

/* Keeps other processes from the file while it is read, changed and written anew; and other threads
 * of this one that lock too. Returned: what pipeline_kept_unlock takes. Who holds it for seconds is
 * not waited for, and a folder that cannot be locked is used without. */
int pipeline_kept_lock(const char *file);
void pipeline_kept_unlock(int lock);

/* Writes the file anew and makes the folders that it lies in. 0 or a negative errno: what stood
 * there is as it was. */
int pipeline_kept_write(const char *file, enum pipeline_kept_kind kind, const void *payload,
                        uint64_t bytes);

/* *ret_payload is returned owned (free). -ENOENT: there is none; -EBADMSG: it is damaged, cut, or
 * of another kind, version or machine; -EFBIG: it is too large; another negative errno: it cannot
 * be read. */
int pipeline_kept_read(const char *file, enum pipeline_kept_kind kind, void **ret_payload,
                       uint64_t *ret_bytes);

#endif
