/* Mapped files that may be cut: see source_guard.h. The list of mappings only grows, by as many as
 * there are at a time, so that the handler can go over it at any moment. Any thread. */
#include "source/source_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct source_guard {
    struct source_guard *next;
    _Atomic bool is_taken;
    _Atomic bool is_damaged;
    /* What the handler knows it by, in one word: number of its first page and how many there are;
     * 0: no mapping. Partner: its load in the handler. Nobody touches a mapping while it is made or
     * ended. */
    _Atomic uint64_t place;
    void *base;
    size_t mapped_bytes;
    int fd;
    uint64_t bytes;
    struct statx_timestamp mtime, mtime_now;
};

enum { COUNT_BITS = 29 }; /* of the number of pages; the others are for addresses of 47 bits */
static const uint64_t COUNT_MAX = (UINT64_C(1) << COUNT_BITS) - 1;

static _Atomic(struct source_guard *) guards;
static struct sigaction action_before;
static uintptr_t page_bytes;

/* --- the signal --- */

/* Puts zeros in the place of the page and of all behind it. Async-signal-safe. */
static bool mend(uintptr_t at)
{
    struct source_guard *guard = atomic_load_explicit(&guards, memory_order_acquire);
    for (; guard; guard = guard->next) {
        uint64_t place = atomic_load_explicit(&guard->place, memory_order_acquire);
        uintptr_t base = (uintptr_t)(place >> COUNT_BITS) * page_bytes;
        uintptr_t bytes = (uintptr_t)(place & COUNT_MAX) * page_bytes;
        if (at < base || at - base >= bytes)
            continue;
        uintptr_t from = at & ~(page_bytes - 1);
        /* Partner: source_guard_look, which asks after what was read. */
        atomic_store_explicit(&guard->is_damaged, true, memory_order_release);
        return mmap((void *)from, base + bytes - from, PROT_READ,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
    }
    return false;
}

static void on_bus(int number, siginfo_t *info, void *context)
{
    int error = errno;
    (void)context;
    if (info->si_code <= 0 || !mend((uintptr_t)info->si_addr)) {
        sigaction(number, &action_before, NULL); /* it comes again, when this is left */
        if (info->si_code <= 0)
            raise(number);
    }
    errno = error;
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &action_before);
}

/* --- mappings --- */

static struct source_guard *take(void)
{
    struct source_guard *guard = atomic_load_explicit(&guards, memory_order_acquire);
    for (; guard; guard = guard->next) {
        bool is_taken = false;
        if (atomic_compare_exchange_strong_explicit(&guard->is_taken, &is_taken, true,
                                                    memory_order_acquire, memory_order_relaxed))
            return guard;
    }
    guard = calloc(1, sizeof *guard);
    if (!guard)
        return NULL;
    atomic_init(&guard->is_taken, true);
    guard->next = atomic_load_explicit(&guards, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&guards, &guard->next, guard,
                                                  memory_order_release, memory_order_relaxed))
        continue;
    return guard;
}

static void give(struct source_guard *guard)
{
    if (guard->fd >= 0)
        close(guard->fd);
    atomic_store_explicit(&guard->is_taken, false, memory_order_release);
}

static int look(int fd, struct statx *ret_stat)
{
    return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_SIZE | STATX_MTIME,
                 ret_stat) < 0
               ? -errno
               : 0;
}

/* The page behind is there before the file is, so that nothing else can come to lie in it. */
static int map(struct source_guard *guard)
{
    size_t bytes = (size_t)((guard->bytes + page_bytes - 1) & ~(page_bytes - 1)) + page_bytes;
    void *base = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return -errno;
    uint64_t first = (uintptr_t)base / page_bytes, count = bytes / page_bytes;
    if (count > COUNT_MAX || first > UINT64_MAX >> COUNT_BITS) {
        munmap(base, bytes);
        return -EFBIG;
    }
    if (mmap(base, (size_t)guard->bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE | MAP_FIXED,
             guard->fd, 0) == MAP_FAILED) {
        int rc = -errno;
        munmap(base, bytes);
        return rc;
    }
    atomic_store_explicit(&guard->is_damaged, false, memory_order_relaxed);
    guard->base = base;
    guard->mapped_bytes = bytes;
    atomic_store_explicit(&guard->place, first << COUNT_BITS | count, memory_order_release);
    return 0;
}

int source_guard_map(int fd, uint64_t least_bytes, struct source_guard **ret_guard,
                     const char **ret_base, uint64_t *ret_bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct statx st = {0};
    pthread_once(&once, install);
    struct source_guard *guard = take();
    if (!guard)
        return -ENOMEM;
    guard->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    int rc = guard->fd < 0 ? -errno : look(guard->fd, &st);
    if (rc == 0 && (!S_ISREG(st.stx_mode) || st.stx_size < least_bytes || st.stx_size == 0))
        rc = -EINVAL;
    if (rc == 0) {
        guard->bytes = st.stx_size;
        guard->mtime = st.stx_mtime;
        rc = map(guard);
    }
    if (rc < 0) {
        give(guard);
        return rc;
    }
    *ret_guard = guard;
    *ret_base = guard->base;
    *ret_bytes = guard->bytes;
    return 0;
}

void source_guard_unmap(struct source_guard *guard)
{
    if (!guard)
        return;
    atomic_store_explicit(&guard->place, 0, memory_order_release);
    munmap(guard->base, guard->mapped_bytes);
    give(guard);
}

enum source_guard_state source_guard_look(struct source_guard *guard)
{
    struct statx st;
    if (look(guard->fd, &st) < 0 || st.stx_size != guard->bytes)
        atomic_store_explicit(&guard->is_damaged, true, memory_order_relaxed);
    if (atomic_load_explicit(&guard->is_damaged, memory_order_acquire))
        return SOURCE_GUARD_DAMAGED;
    guard->mtime_now = st.stx_mtime;
    return st.stx_mtime.tv_sec == guard->mtime.tv_sec &&
                   st.stx_mtime.tv_nsec == guard->mtime.tv_nsec
               ? SOURCE_GUARD_WHOLE
               : SOURCE_GUARD_TOUCHED;
}

void source_guard_accept(struct source_guard *guard)
{
    guard->mtime = guard->mtime_now;
}
