/* The table of kept files: see fetch_keep.h. */
#include "fetch/fetch_keep.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/assert.h"

static const uint64_t FRESH_NS = 1000000000;

void fetch_keep_init(struct fetch_keep *keep)
{
    memset(keep, 0, sizeof *keep);
    pthread_mutex_init(&keep->lock, NULL);
    struct rlimit limit;
    keep->room = FETCH_KEEP_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 4 < FETCH_KEEP_MAX)
        keep->room = limit.rlim_cur / 4 > 0 ? (uint32_t)(limit.rlim_cur / 4) : 1;
    for (uint32_t i = 0; i < keep->room; i++) {
        keep->table[i].fd = -1;
        keep->table[i].next = keep->spare;
        keep->spare = &keep->table[i];
    }
}

void fetch_keep_fini(struct fetch_keep *keep)
{
    for (uint32_t i = 0; i < keep->room; i++)
        if (keep->table[i].fd >= 0)
            close(keep->table[i].fd);
    pthread_mutex_destroy(&keep->lock);
}

static struct fetch_kept **chain_of(struct fetch_keep *keep, const void *owner, int32_t file)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)owner >> 4) * UINT64_C(0x9e3779b97f4a7c15);
    return &keep->chains[((mixed >> 40) + (uint32_t)file) % FETCH_KEEP_CHAINS];
}

static struct fetch_kept *find(struct fetch_keep *keep, const void *owner, int32_t file)
{
    struct fetch_kept *kept = *chain_of(keep, owner, file);
    while (kept && (kept->owner != owner || kept->file != file))
        kept = kept->next;
    return kept;
}

static void hide(struct fetch_keep *keep, struct fetch_kept *kept)
{
    struct fetch_kept **at = chain_of(keep, kept->owner, kept->file);
    while (*at != kept)
        at = &(*at)->next;
    *at = kept->next;
    kept->next = NULL;
    kept->owner = NULL;
}

/* Of one that is hidden and that nobody holds. */
static int give_up(struct fetch_keep *keep, struct fetch_kept *kept)
{
    int fd = kept->fd;
    kept->fd = -1;
    kept->next = keep->spare;
    keep->spare = kept;
    keep->count--;
    return fd;
}

struct fetch_kept *fetch_keep_find(struct fetch_keep *keep, const void *owner, int32_t file,
                                   uint64_t now_ns)
{
    pthread_mutex_lock(&keep->lock);
    struct fetch_kept *kept = find(keep, owner, file);
    if (kept && now_ns - kept->opened_ns > FRESH_NS) {
        hide(keep, kept);
        if (kept->holders == 0)
            atomic_fetch_add(&keep->dead, 1);
        kept = NULL;
    }
    if (kept) {
        kept->holders++;
        kept->used_ns = now_ns;
    }
    pthread_mutex_unlock(&keep->lock);
    return kept;
}

/* Makes room where there is none. Returns the descriptor that gave way, or -1. */
static int make_room(struct fetch_keep *keep)
{
    struct fetch_kept *oldest = NULL;
    if (keep->spare)
        return -1;
    for (uint32_t i = 0; i < keep->room; i++) {
        struct fetch_kept *kept = &keep->table[i];
        if (kept->owner && kept->holders == 0 && (!oldest || kept->used_ns < oldest->used_ns))
            oldest = kept;
    }
    if (!oldest)
        return -1;
    hide(keep, oldest);
    return give_up(keep, oldest);
}

struct fetch_kept *fetch_keep_add(struct fetch_keep *keep, const struct fetch_kept *open,
                                  uint64_t now_ns, int *ret_close)
{
    ASSERT(open->owner && open->fd >= 0);
    pthread_mutex_lock(&keep->lock);
    struct fetch_kept *kept = find(keep, open->owner, open->file);
    *ret_close = kept ? open->fd : make_room(keep);
    if (!kept && keep->spare) {
        kept = keep->spare;
        keep->spare = kept->next;
        keep->count++;
        struct fetch_kept **chain = chain_of(keep, open->owner, open->file);
        *kept = (struct fetch_kept){.fd = open->fd,
                                    .place = open->place,
                                    .owner = open->owner,
                                    .file = open->file,
                                    .opened_ns = now_ns,
                                    .next = *chain};
        *chain = kept;
    }
    if (kept) {
        kept->holders++;
        kept->used_ns = now_ns;
    }
    pthread_mutex_unlock(&keep->lock);
    return kept;
}

void fetch_keep_hold(struct fetch_keep *keep, struct fetch_kept *kept)
{
    pthread_mutex_lock(&keep->lock);
    kept->holders++;
    pthread_mutex_unlock(&keep->lock);
}

int fetch_keep_release(struct fetch_keep *keep, struct fetch_kept *kept, bool changed)
{
    int fd = -1;
    pthread_mutex_lock(&keep->lock);
    if (changed && kept->owner)
        hide(keep, kept);
    if (--kept->holders == 0 && !kept->owner)
        fd = give_up(keep, kept);
    pthread_mutex_unlock(&keep->lock);
    return fd;
}

bool fetch_keep_forget(struct fetch_keep *keep, const void *owner)
{
    bool any = false;
    pthread_mutex_lock(&keep->lock);
    for (uint32_t i = 0; keep->count > 0 && i < keep->room; i++) {
        struct fetch_kept *kept = &keep->table[i];
        if (!kept->owner || (owner && kept->owner != owner))
            continue;
        hide(keep, kept);
        if (kept->holders > 0)
            continue; /* whoever holds it closes it */
        atomic_fetch_add(&keep->dead, 1);
        any = true;
    }
    pthread_mutex_unlock(&keep->lock);
    return any;
}

bool fetch_keep_dead(struct fetch_keep *keep)
{
    return atomic_load(&keep->dead) > 0; /* partner: fetch_keep_forget, which then wakes */
}

int fetch_keep_take(struct fetch_keep *keep)
{
    int fd = -1;
    if (!fetch_keep_dead(keep))
        return fd;
    pthread_mutex_lock(&keep->lock);
    for (uint32_t i = 0; fd < 0 && i < keep->room; i++) {
        struct fetch_kept *kept = &keep->table[i];
        if (kept->fd < 0 || kept->owner || kept->holders > 0)
            continue;
        fd = give_up(keep, kept);
        atomic_fetch_sub(&keep->dead, 1);
    }
    pthread_mutex_unlock(&keep->lock);
    return fd;
}
