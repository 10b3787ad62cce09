/* The life of a fetcher: see fetch_fetcher.h. */
#include "fetch/fetch_fetcher.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"

enum { STOP_WAIT_NS = 900000000 };

int fetch_fetcher_init(struct fetch_fetcher *fetcher, struct err *reterr)
{
    fetcher->owners = 1;
    fetcher->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (fetcher->wake_fd < 0) {
        int rc = -errno;
        return err_set(reterr, rc, "fetch: eventfd: %s", strerror(-rc));
    }
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&fetcher->changed, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&fetcher->lock, NULL);
    return 0;
}

void fetch_fetcher_fini(struct fetch_fetcher *fetcher)
{
    pthread_mutex_destroy(&fetcher->lock);
    pthread_cond_destroy(&fetcher->changed);
    close(fetcher->wake_fd);
}

static int start_thread(struct fetch_fetcher *fetcher, void *(*run)(void *), void *argument)
{
    pthread_attr_t attributes;
    int rc = pthread_attr_init(&attributes);
    if (rc != 0)
        return -rc;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the conductor's */
    pthread_t thread;
    fetcher->owners = 2;
    rc = pthread_create(&thread, &attributes, run, argument);
    if (rc != 0)
        fetcher->owners = 1;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return -rc;
}

int fetch_fetcher_start(struct fetch_fetcher *fetcher, void *(*run)(void *), void *argument,
                        struct err *reterr)
{
    int rc = start_thread(fetcher, run, argument);
    if (rc < 0)
        return err_set(reterr, rc, "fetch: the fetcher does not start: %s", strerror(-rc));
    pthread_mutex_lock(&fetcher->lock);
    while (!fetcher->started)
        pthread_cond_wait(&fetcher->changed, &fetcher->lock);
    rc = fetcher->start_code;
    if (rc < 0 && reterr)
        *reterr = fetcher->start_err;
    pthread_mutex_unlock(&fetcher->lock);
    return rc;
}

void fetch_fetcher_started(struct fetch_fetcher *fetcher, int code, const struct err *err)
{
    pthread_mutex_lock(&fetcher->lock);
    fetcher->started = true;
    fetcher->start_code = code;
    fetcher->start_err = *err;
    pthread_cond_signal(&fetcher->changed);
    pthread_mutex_unlock(&fetcher->lock);
}

void fetch_fetcher_wake(struct fetch_fetcher *fetcher)
{
    if (atomic_load(&fetcher->state.value) == FETCH_FETCHER_AWAKE)
        return;
    uint32_t state = atomic_exchange(&fetcher->state.value, FETCH_FETCHER_AWAKE);
    if (state == FETCH_FETCHER_ON_FUTEX) {
        syscall(SYS_futex, &fetcher->state.value, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    } else if (state == FETCH_FETCHER_ON_FD) {
        uint64_t one = 1;
        ssize_t written = write(fetcher->wake_fd, &one, sizeof one);
        ASSERT(written == sizeof one);
    }
}

void fetch_fetcher_sleep_on_futex(struct fetch_fetcher *fetcher)
{
    syscall(SYS_futex, &fetcher->state.value, FUTEX_WAIT_PRIVATE, FETCH_FETCHER_ON_FUTEX, NULL,
            NULL, 0);
}

bool fetch_fetcher_stopped(struct fetch_fetcher *fetcher)
{
    return atomic_load(&fetcher->stop.value) != 0;
}

void fetch_fetcher_leave(struct fetch_fetcher *fetcher)
{
    struct timespec *until = &fetcher->until;
    clock_gettime(CLOCK_MONOTONIC, until);
    until->tv_nsec += STOP_WAIT_NS;
    until->tv_sec += until->tv_nsec / 1000000000;
    until->tv_nsec %= 1000000000;
    atomic_store(&fetcher->stop.value, 1);
    fetch_fetcher_wake(fetcher);
}

void fetch_fetcher_stop(struct fetch_fetcher *fetcher)
{
    if (!fetch_fetcher_stopped(fetcher))
        fetch_fetcher_leave(fetcher);
    pthread_mutex_lock(&fetcher->lock);
    while (!fetcher->ended &&
           pthread_cond_timedwait(&fetcher->changed, &fetcher->lock, &fetcher->until) == 0)
        ;
    pthread_mutex_unlock(&fetcher->lock);
}

void fetch_fetcher_give_up(struct fetch_fetcher *fetcher)
{
    pthread_mutex_lock(&fetcher->lock);
    fetcher->ended = true;
    pthread_cond_signal(&fetcher->changed);
    pthread_mutex_unlock(&fetcher->lock);
}

bool fetch_fetcher_unref(struct fetch_fetcher *fetcher, bool is_fetcher)
{
    pthread_mutex_lock(&fetcher->lock);
    if (is_fetcher) {
        fetcher->ended = true;
        pthread_cond_signal(&fetcher->changed);
    }
    bool last = --fetcher->owners == 0;
    pthread_mutex_unlock(&fetcher->lock);
    return last;
}
