/* An epoll loop for one thread: see loop.h. */
#include "base/loop.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { ROUND_MAX = 64 };

struct loop_source {
    int fd;
    bool removed;
    loop_handler *handler;
    void *context;
    struct loop_source *next; /* in the list of removed ones */
};

struct loop {
    int epoll_fd;
    bool stopped;
    struct loop_source *removed; /* freed after the round in which they were removed */
};

struct loop *loop_create(void)
{
    struct loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return NULL;
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0) {
        free(loop);
        return NULL;
    }
    return loop;
}

static void free_removed(struct loop *loop)
{
    while (loop->removed) {
        struct loop_source *next = loop->removed->next;
        free(loop->removed);
        loop->removed = next;
    }
}

void loop_destroy(struct loop *loop)
{
    if (!loop)
        return;
    free_removed(loop);
    close(loop->epoll_fd);
    free(loop);
}

int loop_add(struct loop *loop, int fd, uint32_t events, loop_handler *handler, void *context,
             struct loop_source **ret_source)
{
    struct loop_source *source = calloc(1, sizeof *source);
    if (!source)
        return -ENOMEM;
    *source = (struct loop_source){.fd = fd, .handler = handler, .context = context};
    struct epoll_event event = {.events = events, .data.ptr = source};
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        int rc = -errno;
        free(source);
        return rc;
    }
    *ret_source = source;
    return 0;
}

void loop_change(struct loop *loop, struct loop_source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, source->fd, &event);
}

void loop_remove(struct loop *loop, struct loop_source *source)
{
    if (!source)
        return;
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
    source->removed = true;
    source->next = loop->removed;
    loop->removed = source;
}

static int sleep_ms(int64_t ns)
{
    if (ns < 0)
        return -1;
    int64_t ms = (ns + 999999) / 1000000;
    return ms > 60000 ? 60000 : (int)ms;
}

void loop_run(struct loop *loop, loop_step *step, void *context)
{
    struct epoll_event events[ROUND_MAX];
    int64_t wait_ns = step(context);
    while (!loop->stopped) {
        int n = epoll_wait(loop->epoll_fd, events, ROUND_MAX, sleep_ms(wait_ns));
        for (int i = 0; i < n; i++) {
            struct loop_source *source = events[i].data.ptr;
            if (!source->removed)
                source->handler(source->context, events[i].events);
        }
        free_removed(loop);
        if (!loop->stopped)
            wait_ns = step(context);
    }
}

void loop_stop(struct loop *loop)
{
    loop->stopped = true;
}

uint64_t loop_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
