/* A bar while shards are read: a thread asks the daemon for its status on a connection of its own.
 */
#include "client/ctl/ctl_progress.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/client_query.h"
#include "client/ctl/ctl_stream.h"

enum { BAR_LETTERS = 32, EVERY_MS = 100 };

struct ctl_progress {
    const struct ctl_options *options;
    const char *dataset;
    pthread_t thread;
    pthread_mutex_t lock; /* guards is_over; leaf rank */
    pthread_cond_t over;
    bool is_over;
};

static void bar_draw(const Spdl__V1__DatasetStatus *dataset)
{
    char bar[BAR_LETTERS + 1];
    double share = dataset->reading_bytes > 0
                       ? (double)dataset->read_bytes / (double)dataset->reading_bytes
                       : 1;
    int full = share < 1 ? (int)(share * BAR_LETTERS) : BAR_LETTERS;
    memset(bar, '.', sizeof bar - 1);
    memset(bar, '#', (size_t)full);
    bar[BAR_LETTERS] = 0;
    fprintf(stderr, "\r[%s] %s\033[K", bar, dataset->progress);
    fflush(stderr);
}

/* False: the daemon does not answer. */
static bool status_show(const struct ctl_progress *progress, struct spdl_connection *connection)
{
    Spdl__V1__StatusRequest question = SPDL__V1__STATUS_REQUEST__INIT;
    Spdl__V1__ToDaemon request = SPDL__V1__TO_DAEMON__INIT;
    Spdl__V1__ToClient *reply = NULL;
    request.body_case = SPDL__V1__TO_DAEMON__BODY_STATUS;
    request.status = &question;
    if (spdl_client_query(connection, &request, &reply) < 0)
        return false;
    if (reply->body_case == SPDL__V1__TO_CLIENT__BODY_STATUS)
        for (size_t i = 0; i < reply->status->n_datasets; i++) {
            const Spdl__V1__DatasetStatus *dataset = reply->status->datasets[i];
            bool is_it = !progress->dataset[0] || strcmp(dataset->name, progress->dataset) == 0;
            if (is_it && dataset->progress[0]) {
                bar_draw(dataset);
                break;
            }
        }
    spdl__v1__to_client__free_unpacked(reply, NULL);
    return true;
}

/* Until it is over or some time has gone by. */
static bool wait(struct ctl_progress *progress)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += EVERY_MS * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000L;
    end.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&progress->lock);
    int rc = 0;
    while (!progress->is_over && rc == 0)
        rc = pthread_cond_clockwait(&progress->over, &progress->lock, CLOCK_MONOTONIC, &end);
    bool is_over = progress->is_over;
    pthread_mutex_unlock(&progress->lock);
    return is_over;
}

static void *run(void *context)
{
    struct ctl_progress *progress = context;
    struct spdl_connection *connection = NULL;
    bool answers = true;
    while (!wait(progress) && answers) {
        if (!connection)
            answers = ctl_connect(progress->options, &connection) == 0;
        if (answers)
            answers = status_show(progress, connection);
    }
    spdl_disconnect(connection);
    return NULL;
}

struct ctl_progress *ctl_progress_begin(const struct ctl_options *options, const char *dataset)
{
    if (options->json || isatty(STDERR_FILENO) != 1)
        return NULL;
    struct ctl_progress *progress = calloc(1, sizeof *progress);
    if (!progress)
        return NULL;
    progress->options = options;
    progress->dataset = dataset;
    pthread_mutex_init(&progress->lock, NULL);
    pthread_cond_init(&progress->over, NULL);
    if (pthread_create(&progress->thread, NULL, run, progress) == 0)
        return progress;
    pthread_cond_destroy(&progress->over);
    pthread_mutex_destroy(&progress->lock);
    free(progress);
    return NULL;
}

void ctl_progress_end(struct ctl_progress *progress)
{
    if (!progress)
        return;
    pthread_mutex_lock(&progress->lock);
    progress->is_over = true;
    pthread_cond_signal(&progress->over);
    pthread_mutex_unlock(&progress->lock);
    pthread_join(progress->thread, NULL);
    pthread_cond_destroy(&progress->over);
    pthread_mutex_destroy(&progress->lock);
    free(progress);
    fputs("\r\033[K", stderr);
    fflush(stderr);
}
