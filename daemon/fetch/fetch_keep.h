/* Files that are kept open between reads, so that a shard is not opened for each of its samples.
 * A table of at most 256 of them, or a quarter of the descriptors that the process may have; the
 * one that was not used for longest gives way. Private to the room; any thread.
 *
 * A kept file is what it was when it was opened: a shard that is replaced by renaming another over
 * it is read on as the index knows it, never half and half. So that a daemon of many days notices,
 * nothing is kept for longer than a second: then the path is followed anew.
 *
 * Nothing here makes a system call under the lock, nor closes: descriptors to close are handed to
 * the thread of the engine, which may wait for a file system. */
#ifndef SPDLD_FETCH_KEEP_H
#define SPDLD_FETCH_KEEP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { FETCH_KEEP_MAX = 256, FETCH_KEEP_CHAINS = 256 };

struct fetch_kept {
    int fd;         /* readable without the lock by who holds it, as is `place` */
    uint32_t place; /* enum fetch_place, where the engine wants to know it */
    /* Under the lock. */
    const void *owner; /* NULL: not to be found any more */
    int32_t file;
    uint32_t holders;
    uint64_t opened_ns, used_ns;
    struct fetch_kept *next; /* in its chain */
};

struct fetch_keep {
    pthread_mutex_t lock; /* guards all below; leaf rank */
    uint32_t room, count; /* of table; count: with a descriptor */
    struct fetch_kept table[FETCH_KEEP_MAX];
    struct fetch_kept *chains[FETCH_KEEP_CHAINS];
    struct fetch_kept *spare;
    _Atomic uint32_t dead; /* forgotten and not yet taken to be closed */
};

void fetch_keep_init(struct fetch_keep *keep);
/* Closes all. */
void fetch_keep_fini(struct fetch_keep *keep);

/* The file, held, or NULL. */
struct fetch_kept *fetch_keep_find(struct fetch_keep *keep, const void *owner, int32_t file,
                                   uint64_t now_ns);

/* Keeps the open descriptor of what is found by owner and file, held: taken on success. NULL: all
 * others are held. *ret_close is a descriptor to close, or -1: the one that gave way, or the
 * caller's where another thread was faster. */
struct fetch_kept *fetch_keep_add(struct fetch_keep *keep, const struct fetch_kept *open,
                                  uint64_t now_ns, int *ret_close);

/* Holds once more what the caller holds. */
void fetch_keep_hold(struct fetch_keep *keep, struct fetch_kept *kept);
/* Lets go; `changed`: it is not to be found again. Returns a descriptor to close, or -1. */
int fetch_keep_release(struct fetch_keep *keep, struct fetch_kept *kept, bool changed);

/* Nothing of the owner's is found any more; of nobody's for NULL. True: there is something to take.
 */
bool fetch_keep_forget(struct fetch_keep *keep, const void *owner);
bool fetch_keep_dead(struct fetch_keep *keep);
/* A descriptor to close of those forgotten; -1: none. Cheap where there is none. */
int fetch_keep_take(struct fetch_keep *keep);

#endif
