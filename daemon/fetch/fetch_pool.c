/* The engine of plain threads: each opens, checks and reads one file at a time by blocking calls.
 * For systems that refuse io_uring.
 *
 * A hung read keeps its thread. The pool's memory is counted by its owner and its threads and goes
 * with the last of them, so that a thread that comes back long after fetch_close finds all that it
 * needs; it touches the request's memory only through the read that was hung. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "fetch/fetch.h"
#include "fetch/fetch_file.h"
#include "fetch/fetch_port.h"
#include "item/class.h"

extern const struct fetch_ops fetch_pool_ops;

enum {
    THREADS_MAX = 16,
    STACK_BYTES = 128 << 10,
    PIECE_BYTES = 256 << 10,
    CLOSE_WAIT_NS = 800000000
};

struct fetch_pool {
    struct fetch fetch;
    struct fetch_port port;
    pthread_mutex_t lock; /* guards all below, taking from the port and finishing; leaf rank */
    pthread_cond_t work;
    pthread_cond_t ended;
    uint32_t idle;     /* threads that wait for `work` */
    uint32_t running;  /* threads that have not ended */
    uint32_t owners;   /* running threads and the conductor: the last one frees */
    _Atomic bool stop; /* written under the lock; read without it between two reads of a file */
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

static uint32_t read_file(struct fetch_pool *pool, const struct fetch_request *request,
                          int *ret_code)
{
    int fd = fetch_file_open(request->root_fd, request->path, 0);
    *ret_code = fd < 0 ? fd : 0;
    if (fd < 0)
        return fetch_file_class(fd);
    uint32_t class_number = fetch_file_judge_fd(request, fd, ret_code);
    if (class_number == SPDL_CLASS_OK) {
        int rc = read_all(pool, fd, request);
        /* Also when it was cut short: then the reason is most likely that it changed. */
        if (rc == 0 || rc == -ENODATA)
            class_number = fetch_file_judge_fd(request, fd, ret_code);
        if (rc < 0 && class_number == SPDL_CLASS_OK) {
            *ret_code = rc == -ENODATA ? -EIO : rc;
            class_number = fetch_file_class(*ret_code);
        }
    }
    close(fd);
    return class_number;
}

static void *pool_thread(void *argument)
{
    struct fetch_pool *pool = argument;
    pthread_setname_np(pthread_self(), "spdld-fetch");
    pthread_mutex_lock(&pool->lock);
    while (!pool->stop) {
        uint32_t slot;
        if (!fetch_port_take(&pool->port, &slot)) {
            pool->idle++;
            pthread_cond_wait(&pool->work, &pool->lock);
            pool->idle--;
            continue;
        }
        pthread_mutex_unlock(&pool->lock);
        int code = 0;
        uint32_t class_number = read_file(pool, &pool->port.slots[slot].request, &code);
        pthread_mutex_lock(&pool->lock);
        if (pool->stop)
            break;
        fetch_port_finish(&pool->port, slot, class_number, code);
        fetch_port_signal(&pool->port);
    }
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
    pool->fetch.ops = &fetch_pool_ops;
    pool->owners = 1;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->ended, &clock);
    pthread_condattr_destroy(&clock);
    rc = start_threads(pool, params->depth < THREADS_MAX ? params->depth : THREADS_MAX);
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

static void pool_close(struct fetch *fetch)
{
    struct fetch_pool *pool = pool_of(fetch);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += CLOSE_WAIT_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    while (pool->running > 0 && pthread_cond_timedwait(&pool->ended, &pool->lock, &until) == 0)
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

static void pool_stats(const struct fetch *fetch, struct fetch_stats *ret_stats)
{
    fetch_port_stats(&((const struct fetch_pool *)fetch)->port, ret_stats);
}

const struct fetch_ops fetch_pool_ops = {.name = "pool",
                                         .open = pool_open,
                                         .close = pool_close,
                                         .fd = pool_fd,
                                         .submit = pool_submit,
                                         .kick = pool_kick,
                                         .reap = pool_reap,
                                         .stats = pool_stats};
