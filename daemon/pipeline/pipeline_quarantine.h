/* The quarantine: which samples of a dataset failed, where they are, how often and since when. A
 * bounded list in memory; what has no room is counted. It decides nothing: a sample on it is tried
 * again each time. Conductor role. */
#ifndef SPDLD_PIPELINE_QUARANTINE_H
#define SPDLD_PIPELINE_QUARANTINE_H

#include <stdbool.h>
#include <stdint.h>

#include "item/class.h"

enum {
    PIPELINE_QUARANTINE_MAX = 10000,        /* samples of a dataset */
    PIPELINE_QUARANTINE_TEXT_MAX = 8 << 20, /* bytes of their keys, paths and messages */
    PIPELINE_QUARANTINE_MESSAGE_BYTES = 256 /* of one message, with its final 0 */
};

/* A sample that failed. Two with the same key, path and offset are one. */
struct pipeline_quarantined {
    const char *dataset; /* set by pipeline_quarantine_list alone */
    const char *key;     /* any bytes; borrowed */
    uint32_t key_bytes;
    const char *path; /* of the file that holds it, relative to the source's root; "": none */
    uint64_t offset;  /* where in the file it begins */
    uint64_t fault;   /* where in the file it fails; UINT64_MAX: not known */
    enum spdl_class class_number; /* with which it failed last */
    const char *message;
    uint64_t count;
    int64_t first_s, last_s; /* since 1970 */
};

struct pipeline_quarantine;

/* Notes a failure at the time now_s; of `sample` what it is, not count and times. *list is made
 * when it is NULL. Without memory it is counted alone, or not at all. */
void pipeline_quarantine_note(struct pipeline_quarantine **list,
                              const struct pipeline_quarantined *sample, int64_t now_s);
/* The same for what fails at every look: it counts once. */
void pipeline_quarantine_note_once(struct pipeline_quarantine **list,
                                   const struct pipeline_quarantined *sample, int64_t now_s);
/* Adds a sample as it stands on another list: where it is on this one too, the higher count and the
 * longer time are right. Returns whether the list has something that it had not. */
bool pipeline_quarantine_add(struct pipeline_quarantine **list,
                             const struct pipeline_quarantined *sample);
/* Adds a list that was kept, or that another daemon has, in the same way. */
bool pipeline_quarantine_merge(struct pipeline_quarantine **list,
                               const struct pipeline_quarantine *other);
void pipeline_quarantine_destroy(struct pipeline_quarantine *list); /* accepts NULL */

/* The list as bytes, and back (pipeline_quarantine_pack.c). pack: returned owned (free); NULL: no
 * memory. unpack: 0 with the list returned owned, NULL when it is empty; -EBADMSG (the bytes are
 * hostile); -ENOMEM. */
void *pipeline_quarantine_pack(const struct pipeline_quarantine *list, uint64_t *ret_bytes);
int pipeline_quarantine_unpack(const void *bytes, uint64_t count,
                               struct pipeline_quarantine **ret_list);

/* list may be NULL: it is empty. Samples are numbered in the order in which they came. */
uint32_t pipeline_quarantine_count(const struct pipeline_quarantine *list);
uint64_t pipeline_quarantine_left_out(const struct pipeline_quarantine *list); /* failures */
void pipeline_quarantine_at(const struct pipeline_quarantine *list, uint32_t index,
                            struct pipeline_quarantined *ret_sample);

#endif
