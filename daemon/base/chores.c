/* Threads for work that may block: see chores.h. */
#include "base/chores.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { END_SECONDS = 2 };

struct list {
    struct chore *first, **end;
};

struct chores {
    pthread_mutex_t lock; /* guards all below but the descriptor; leaf rank */
    pthread_cond_t more;  /* work, or the end of it */
    pthread_cond_t ended; /* a thread ended */
    struct list waiting, finished;
    int waiting_count;
    bool stopped;
    int event_fd;
    int threads_max, thread_count, running, idle;
    pthread_t threads[CHORES_THREADS_MAX];
};

static void put(struct list *list, struct chore *chore)
{
    chore->next = NULL;
    *list->end = chore;
    list->end = &chore->next;
}

static struct chore *take(struct list *list)
{
    struct chore *chore = list->first;
    if (chore) {
        list->first = chore->next;
        if (!list->first)
            list->end = &list->first;
    }
    return chore;
}

static void *run(void *argument)
{
    struct chores *chores = argument;
    pthread_mutex_lock(&chores->lock);
    while (!chores->stopped) {
        struct chore *chore = take(&chores->waiting);
        if (!chore) {
            chores->idle++;
            pthread_cond_wait(&chores->more, &chores->lock);
            chores->idle--;
            continue;
        }
        chores->waiting_count--;
        pthread_mutex_unlock(&chores->lock);
        chore->work(chore);
        pthread_mutex_lock(&chores->lock);
        put(&chores->finished, chore);
        uint64_t one = 1;
        ssize_t ignored = write(chores->event_fd, &one, sizeof one); /* full: readable already */
        (void)ignored;
    }
    chores->running--;
    pthread_cond_signal(&chores->ended);
    pthread_mutex_unlock(&chores->lock);
    return NULL;
}

/* Under the lock. False: no thread more can be had. */
static bool start_one(struct chores *chores)
{
    if (chores->thread_count == chores->threads_max ||
        pthread_create(&chores->threads[chores->thread_count], NULL, run, chores) != 0)
        return false;
    chores->thread_count++;
    chores->running++;
    return true;
}

struct chores *chores_create(int threads_max)
{
    struct chores *chores = calloc(1, sizeof *chores);
    if (!chores)
        return NULL;
    pthread_mutex_init(&chores->lock, NULL);
    pthread_cond_init(&chores->more, NULL);
    pthread_cond_init(&chores->ended, NULL);
    chores->waiting.end = &chores->waiting.first;
    chores->finished.end = &chores->finished.first;
    chores->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_lock(&chores->lock);
    chores->threads_max = threads_max < CHORES_THREADS_MAX ? threads_max : CHORES_THREADS_MAX;
    bool good = chores->event_fd >= 0 && start_one(chores);
    pthread_mutex_unlock(&chores->lock);
    if (!good) {
        chores_destroy(chores);
        return NULL;
    }
    return chores;
}

bool chores_destroy(struct chores *chores)
{
    if (!chores)
        return true;
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += END_SECONDS;
    int rc = 0;
    pthread_mutex_lock(&chores->lock);
    chores->stopped = true;
    pthread_cond_broadcast(&chores->more);
    while (chores->running > 0 && rc == 0)
        rc = pthread_cond_clockwait(&chores->ended, &chores->lock, CLOCK_MONOTONIC, &end);
    bool all = chores->running == 0;
    pthread_mutex_unlock(&chores->lock);
    if (!all)
        return false;
    for (int i = 0; i < chores->thread_count; i++)
        pthread_join(chores->threads[i], NULL);
    if (chores->event_fd >= 0)
        close(chores->event_fd);
    pthread_cond_destroy(&chores->more);
    pthread_cond_destroy(&chores->ended);
    pthread_mutex_destroy(&chores->lock);
    free(chores);
    return true;
}

void chores_add(struct chores *chores, struct chore *chore)
{
    pthread_mutex_lock(&chores->lock);
    put(&chores->waiting, chore);
    if (++chores->waiting_count > chores->idle)
        start_one(chores);
    pthread_cond_signal(&chores->more);
    pthread_mutex_unlock(&chores->lock);
}

int chores_fd(const struct chores *chores)
{
    return chores->event_fd;
}

void chores_reap(struct chores *chores)
{
    uint64_t count;
    ssize_t ignored = read(chores->event_fd, &count, sizeof count); /* EAGAIN: nothing was done */
    (void)ignored;
    for (;;) {
        pthread_mutex_lock(&chores->lock);
        struct chore *chore = take(&chores->finished);
        pthread_mutex_unlock(&chores->lock);
        if (!chore)
            return;
        chore->done(chore);
    }
}
