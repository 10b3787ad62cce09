/* The engine of plain threads: each opens, checks and reads one file at a time by blocking calls,
 * and those requests of one kept file together that wait one behind the other. For systems that
 * refuse io_uring.
 *
 * A hung read keeps its thread; for reads that are late more threads are started, one for each, up
 * to THREADS_MAX: where so many hang the engine stands still until one comes back. The pool's
 * memory is counted by its owner and its threads and goes with the last of them, so that a thread
 * that comes back long after fetch_close finds all that it needs; it touches the request's memory
 * only through the read that was hung. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "fetch/fetch.h"
#include "fetch/fetch_file.h"
#include "fetch/fetch_join.h"
#include "fetch/fetch_keep.h"
#include "fetch/fetch_port.h"
#include "item/class.h"

extern const struct fetch_ops fetch_pool_ops;

enum { THREADS_USUAL = 16, THREADS_MAX = 512, STACK_BYTES = 128 << 10, LEAVE_WAIT_NS = 800000000 };

struct fetch_pool {
    struct fetch fetch;
    struct fetch_port port;
    pthread_mutex_t lock; /* guards all below, taking from the port and finishing; leaf rank */
    pthread_cond_t work;
    pthread_cond_t ended;
    uint32_t idle;          /* threads that wait for `work` */
    uint32_t running;       /* threads that have not ended */
    uint32_t owners;        /* running threads and the conductor: the last one frees */
    _Atomic uint32_t stop;  /* written under the lock; read without it between two reads */
    struct fetch_keep keep; /* has a lock of its own */
    struct timespec until;  /* for its end; conductor only */
};

static void unref_locked(struct fetch_pool *pool)
{
    bool last = --pool->owners == 0;
    pthread_mutex_unlock(&pool->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->ended);
    fetch_port_fini(&pool->port);
    fetch_keep_fini(&pool->keep);
    free(pool);
}

/* All of the request's bytes, or a negative errno. */
static int read_all(struct fetch_pool *pool, int fd, const struct fetch_request *request)
{
    for (uint64_t done = 0; done < request->bytes;) {
        if (atomic_load_explicit(&pool->stop, memory_order_relaxed))
            return -ECANCELED; /* the memory may soon be others' */
        ssize_t got =
            pread(fd, request->into + done, request->bytes - done, (off_t)(request->offset + done));
        if (got > 0)
            done += (uint64_t)got;
        else if (got == 0)
            return -ENODATA; /* shorter than it was a moment ago */
        else if (errno != EINTR)
            return -errno;
    }
    return 0;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now); /* of ages of a second */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void close_if(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* What the requests that a thread takes share, and what each ends with. */
struct work {
    struct fetch_batch batch;
    struct {
        uint32_t class_number;
        int code;
    } ends[FETCH_BATCH_MAX];
    int fd;
    struct fetch_kept *kept; /* NULL: fd is closed at the end */
};

static const struct fetch_request *request_of(struct fetch_pool *pool, const struct work *work,
                                              uint32_t i)
{
    return &pool->port.slots[work->batch.slots[i]].request;
}

static void judge(struct fetch_pool *pool, struct work *work, uint32_t i)
{
    work->ends[i].class_number =
        fetch_file_judge_fd(request_of(pool, work, i), work->fd, &work->ends[i].code);
}

/* Finds the file or opens it. Sets the end of all where that fails. Returns whether there is
 * anything to read. */
static bool open_file(struct fetch_pool *pool, struct work *work)
{
    const struct fetch_request *request = request_of(pool, work, 0);
    bool keeps = fetch_file_keeps(request);
    work->kept =
        keeps ? fetch_keep_find(&pool->keep, request->owner, request->file, now_ns()) : NULL;
    work->fd = work->kept ? work->kept->fd : fetch_file_open(request->root_fd, request->path, 0);
    bool good = false;
    for (uint32_t i = 0; i < work->batch.count; i++) {
        work->ends[i].code = work->fd < 0 ? work->fd : 0;
        work->ends[i].class_number = work->fd < 0 ? fetch_file_class(work->fd) : SPDL_CLASS_OK;
        if (work->fd >= 0 && !work->kept)
            judge(pool, work, i);
        good |= work->ends[i].class_number == SPDL_CLASS_OK;
    }
    if (good && keeps && !work->kept) {
        int other;
        const struct fetch_kept open = {
            .fd = work->fd, .owner = request->owner, .file = request->file};
        work->kept = fetch_keep_add(&pool->keep, &open, now_ns(), &other);
        close_if(other);
        if (work->kept)
            work->fd = work->kept->fd;
    }
    return good;
}

/* What was not read whole with the others: alone, and judged. */
static void read_alone(struct fetch_pool *pool, struct work *work, uint32_t i)
{
    int rc = read_all(pool, work->fd, request_of(pool, work, i));
    /* Also when it was cut short: then the reason is most likely that it changed. */
    if (rc == 0 || rc == -ENODATA)
        judge(pool, work, i);
    if (rc < 0 && work->ends[i].class_number == SPDL_CLASS_OK) {
        work->ends[i].code = rc == -ENODATA ? -EIO : rc;
        work->ends[i].class_number = fetch_file_class(work->ends[i].code);
    }
}

static void read_batch(struct fetch_pool *pool, struct work *work)
{
    struct stat st;
    bool changed = false;
    struct fetch_batch *batch = &work->batch;
    fetch_join_sort(&pool->port, batch->slots, batch->count);
    if (open_file(pool, work)) {
        fetch_join_read(&pool->port, batch, work->fd, 0, &pool->stop);
        fetch_port_joined(&pool->port, batch->joined);
        int rc = fstat(work->fd, &st) < 0 ? -errno : 0;
        for (uint32_t i = 0; i < batch->count; i++) {
            if (work->ends[i].class_number != SPDL_CLASS_OK)
                continue;
            if (!batch->full[i] || rc < 0)
                read_alone(pool, work, i);
            else
                work->ends[i].class_number =
                    fetch_file_judge_stat(request_of(pool, work, i), &st, &work->ends[i].code);
            changed |= work->ends[i].class_number == SPDL_CLASS_CHANGED;
        }
    }
    close_if(work->kept ? fetch_keep_release(&pool->keep, work->kept, changed) : work->fd);
}

/* Takes a request, and those of the same kept file behind it that are not left to idle threads. */
static bool take(struct fetch_pool *pool, struct fetch_batch *batch)
{
    uint32_t slot;
    uint32_t share = fetch_port_waiting(&pool->port) / (pool->idle + 1);
    batch->count = 0;
    while (fetch_port_peek(&pool->port, &slot)) {
        const struct fetch_request *request = &pool->port.slots[slot].request;
        if (batch->count > 0 &&
            (batch->count >= share || batch->count == FETCH_BATCH_MAX ||
             !fetch_file_same(&pool->port.slots[batch->slots[0]].request, request)))
            break;
        fetch_port_take(&pool->port, &batch->slots[batch->count++]);
    }
    return batch->count > 0;
}

/* Waits for work, under the lock, which it lets go of while it waits or closes. False: there are
 * enough that wait. */
static bool wait_for_work(struct fetch_pool *pool)
{
    if (fetch_keep_dead(&pool->keep)) {
        pthread_mutex_unlock(&pool->lock);
        for (int fd; (fd = fetch_keep_take(&pool->keep)) >= 0;)
            close(fd);
        pthread_mutex_lock(&pool->lock);
        return true;
    }
    if (pool->idle >= THREADS_USUAL)
        return false;
    pool->idle++;
    pthread_cond_wait(&pool->work, &pool->lock);
    pool->idle--;
    return true;
}

/* A close may hang: not by the conductor. */
static void close_all(struct fetch_pool *pool)
{
    fetch_keep_forget(&pool->keep, NULL);
    for (int fd; (fd = fetch_keep_take(&pool->keep)) >= 0;)
        close(fd);
}

static void *pool_thread(void *argument)
{
    struct fetch_pool *pool = argument;
    struct work work;
    pthread_setname_np(pthread_self(), "spdld-fetch");
    pthread_mutex_lock(&pool->lock);
    while (!pool->stop) {
        if (!take(pool, &work.batch)) {
            if (!wait_for_work(pool))
                break;
            continue;
        }
        pthread_mutex_unlock(&pool->lock);
        read_batch(pool, &work);
        pthread_mutex_lock(&pool->lock);
        if (pool->stop)
            break;
        for (uint32_t i = 0; i < work.batch.count; i++)
            fetch_port_finish(&pool->port, work.batch.slots[i], work.ends[i].class_number,
                              work.ends[i].code);
        fetch_port_signal(&pool->port);
    }
    bool stop = pool->stop;
    pthread_mutex_unlock(&pool->lock);
    if (stop)
        close_all(pool);
    pthread_mutex_lock(&pool->lock);
    pool->running--;
    pthread_cond_signal(&pool->ended);
    unref_locked(pool);
    return NULL;
}

static int start_threads(struct fetch_pool *pool, uint32_t count)
{
    pthread_attr_t attributes;
    int rc = pthread_attr_init(&attributes);
    if (rc != 0)
        return -rc;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the conductor's */
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_mutex_lock(&pool->lock);
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        pthread_t thread;
        rc = pthread_create(&thread, &attributes, pool_thread, pool);
        if (rc == 0) {
            pool->running++;
            pool->owners++;
        }
    }
    if (pool->running > 0)
        rc = 0; /* fewer will do */
    pthread_mutex_unlock(&pool->lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return -rc;
}

static int pool_open(const struct fetch_params *params, struct fetch **ret_fetch,
                     struct err *reterr)
{
    struct fetch_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return err_set(reterr, -ENOMEM, "fetch: no memory for the pool");
    int rc = fetch_port_init(&pool->port, params->depth, reterr);
    if (rc < 0) {
        free(pool);
        return rc;
    }
    fetch_keep_init(&pool->keep);
    pool->fetch.ops = &fetch_pool_ops;
    pool->owners = 1;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->ended, &clock);
    pthread_condattr_destroy(&clock);
    rc = start_threads(pool, params->depth < THREADS_USUAL ? params->depth : THREADS_USUAL);
    if (rc < 0) {
        pthread_mutex_lock(&pool->lock);
        unref_locked(pool);
        return err_set(reterr, rc, "fetch: a thread of the pool does not start: %s", strerror(-rc));
    }
    *ret_fetch = &pool->fetch;
    return 0;
}

static struct fetch_pool *pool_of(struct fetch *fetch)
{
    return (struct fetch_pool *)fetch;
}

static void pool_tend(struct fetch *fetch)
{
    struct fetch_pool *pool = pool_of(fetch);
    uint32_t late = fetch_port_late(&pool->port);
    if (late == 0)
        return;
    uint32_t wanted = THREADS_USUAL + late;
    wanted = wanted < THREADS_MAX ? wanted : THREADS_MAX;
    wanted = wanted < pool->port.depth ? wanted : pool->port.depth;
    pthread_mutex_lock(&pool->lock);
    uint32_t running = pool->running, waiting = fetch_port_waiting(&pool->port);
    bool stuck = waiting > 0 && pool->idle == 0;
    pthread_mutex_unlock(&pool->lock);
    if (!stuck || wanted <= running)
        return;
    uint32_t more = wanted - running;
    start_threads(pool, more < waiting ? more : waiting);
}

static void pool_leave(struct fetch *fetch)
{
    struct fetch_pool *pool = pool_of(fetch);
    clock_gettime(CLOCK_MONOTONIC, &pool->until);
    pool->until.tv_nsec += LEAVE_WAIT_NS;
    pool->until.tv_sec += pool->until.tv_nsec / 1000000000;
    pool->until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&pool->lock);
    pool->stop = 1;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

static void pool_close(struct fetch *fetch)
{
    struct fetch_pool *pool = pool_of(fetch);
    if (!pool->stop)
        pool_leave(fetch);
    pthread_mutex_lock(&pool->lock);
    while (pool->running > 0 &&
           pthread_cond_timedwait(&pool->ended, &pool->lock, &pool->until) == 0)
        ;
    unref_locked(pool);
}

static int pool_fd(const struct fetch *fetch)
{
    return ((const struct fetch_pool *)fetch)->port.event_fd;
}

static int pool_submit(struct fetch *fetch, const struct fetch_request *request)
{
    return fetch_port_submit(&pool_of(fetch)->port, request);
}

static void pool_kick(struct fetch *fetch)
{
    struct fetch_pool *pool = pool_of(fetch);
    fetch_port_show(&pool->port);
    pthread_mutex_lock(&pool->lock);
    uint32_t waiting = fetch_port_waiting(&pool->port);
    uint32_t wake = waiting < pool->idle ? waiting : pool->idle;
    for (uint32_t i = 0; i < wake; i++)
        pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

static uint32_t pool_reap(struct fetch *fetch, struct fetch_result *results, uint32_t max)
{
    return fetch_port_reap(&pool_of(fetch)->port, results, max);
}

static void pool_forget(struct fetch *fetch, const void *owner)
{
    struct fetch_pool *pool = pool_of(fetch);
    if (!fetch_keep_forget(&pool->keep, owner))
        return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

static void pool_stats(const struct fetch *fetch, struct fetch_stats *ret_stats)
{
    fetch_port_stats(&((const struct fetch_pool *)fetch)->port, ret_stats);
}

const struct fetch_ops fetch_pool_ops = {.name = "pool",
                                         .open = pool_open,
                                         .tend = pool_tend,
                                         .leave = pool_leave,
                                         .close = pool_close,
                                         .fd = pool_fd,
                                         .submit = pool_submit,
                                         .kick = pool_kick,
                                         .reap = pool_reap,
                                         .forget = pool_forget,
                                         .stats = pool_stats};
