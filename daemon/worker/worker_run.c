/* The worker's socket: what spdld says, step by step. Runs on the thread that called worker_run,
 * which does nothing else. */
#include "worker/worker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shm/shm_failpoint.h"
#include "shm/shm_segment.h"
#include "worker/worker_state.h"

enum { FDS_MAX = 4, EXIT_DONE = 0, EXIT_SHORT = 1, EXIT_BROKEN = 2 };

/* One message. The descriptors are closed with it unless they are taken out. */
struct message {
    union {
        struct worker_message_head head;
        struct worker_start start;
        struct worker_add add;
    } body;
    size_t bytes;
    int fds[FDS_MAX];
    uint32_t fd_count;
};

static void close_fds(struct message *message)
{
    for (uint32_t i = 0; i < message->fd_count; i++)
        if (message->fds[i] >= 0)
            close(message->fds[i]);
    message->fd_count = 0;
}

static void take_fds(struct msghdr *header, struct message *message)
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part != NULL;
         part = CMSG_NXTHDR(header, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            if (message->fd_count < FDS_MAX)
                message->fds[message->fd_count++] = fd;
            else
                close(fd);
        }
    }
}

/* 1: a message; 0: end of file; -EPROTO: one that cannot be ours. */
static int receive(int socket_fd, struct message *message)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control;
    struct iovec part = {&message->body, sizeof message->body};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = sizeof control};
    ssize_t bytes;
    do {
        bytes = recvmsg(socket_fd, &header, MSG_CMSG_CLOEXEC);
    } while (bytes < 0 && errno == EINTR);
    message->fd_count = 0;
    if (bytes <= 0)
        return 0; /* also ECONNRESET: the other side is gone */
    take_fds(&header, message);
    message->bytes = (size_t)bytes;
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
        message->bytes < sizeof message->body.head)
        return -EPROTO;
    return 1;
}

/* A peer that is gone shows at the next receive. */
static void say(int socket_fd, const void *message, size_t bytes)
{
    while (send(socket_fd, message, bytes, MSG_NOSIGNAL) < 0 && errno == EINTR)
        continue;
}

static void reply(int socket_fd, enum worker_message_kind kind, uint32_t stream)
{
    struct worker_message_head head = {.kind = (uint32_t)kind, .stream = stream};
    say(socket_fd, &head, sizeof head);
}

static bool start_fits(const struct message *message)
{
    const struct worker_start *start = &message->body.start;
    return message->bytes == sizeof *start && message->fd_count == 4 && start->head.stream == 0 &&
           start->version == WORKER_VERSION && start->thread_count >= 1 &&
           start->thread_count <= SPDL_WORK_THREADS_MAX && start->arena_bytes > 0 &&
           start->commands_bytes >= sizeof(struct spdl_work_command_segment) &&
           start->completions_bytes >= sizeof(struct spdl_work_completion_segment);
}

static int on_start(struct worker *worker, struct message *message)
{
    if (worker->commands != NULL || !start_fits(message))
        return -EPROTO;
    const struct worker_start *start = &message->body.start;
    void *arena = NULL, *commands = NULL, *completions = NULL;
    int rc = spdl_shm_segment_map(message->fds[0], start->arena_bytes, 0, 0, &arena);
    worker->arena = arena;
    worker->arena_bytes = start->arena_bytes;
    if (rc == 0)
        rc = spdl_shm_segment_map(message->fds[1], start->commands_bytes, 0, 0, &commands);
    worker->commands = commands;
    worker->commands_bytes = start->commands_bytes;
    if (rc == 0)
        rc = spdl_shm_segment_map(message->fds[2], start->completions_bytes, 1, 0, &completions);
    worker->completions = completions;
    worker->completions_bytes = start->completions_bytes;
    worker->event_fd = message->fds[3];
    message->fds[3] = -1;
    if (rc == 0 && worker->commands->version != SPDL_WORK_VERSION)
        rc = -EPROTO;
    if (rc == 0)
        rc = worker_threads_set(worker, start->thread_count);
    if (rc < 0)
        return rc;
    if ((uint32_t)rc < start->thread_count)
        return -EAGAIN;
    SPDL_FAILPOINT("worker.start.before-ready");
    struct worker_ready ready = {.head.kind = WORKER_READY, .lock = worker->lock};
    say(worker->socket_fd, &ready, sizeof ready);
    return 0;
}

static int on_add(struct worker *worker, const struct message *message)
{
    if (worker->commands == NULL || message->bytes != sizeof message->body.add ||
        message->fd_count != 1)
        return -EPROTO;
    int rc = worker_streams_add(&worker->streams, &message->body.add, message->fds[0]);
    if (rc != 0)
        return rc;
    SPDL_FAILPOINT("worker.add.mapped");
    reply(worker->socket_fd, WORKER_ADDED, message->body.head.stream);
    return 0;
}

static int on_drop(struct worker *worker, const struct message *message)
{
    if (message->bytes != sizeof message->body.head || message->fd_count != 0)
        return -EPROTO;
    /* Partner: the release with which threads counted the rows of this stream. */
    atomic_load_explicit(&worker->completed, memory_order_acquire);
    int rc = worker_streams_drop(&worker->streams, message->body.head.stream);
    if (rc != 0)
        return rc;
    SPDL_FAILPOINT("worker.drop.unmapped");
    reply(worker->socket_fd, WORKER_DROPPED, message->body.head.stream);
    return 0;
}

static int on_threads(struct worker *worker, const struct message *message)
{
    uint32_t count = message->body.head.stream;
    if (worker->commands == NULL || message->bytes != sizeof message->body.head ||
        message->fd_count != 0 || count < 1 || count > SPDL_WORK_THREADS_MAX)
        return -EPROTO;
    int working = worker_threads_set(worker, count);
    if (working < 0)
        return working;
    reply(worker->socket_fd, WORKER_THREADS, (uint32_t)working);
    return 0;
}

static int on_message(struct worker *worker, struct message *message)
{
    switch ((enum worker_message_kind)message->body.head.kind) {
    case WORKER_START:
        return on_start(worker, message);
    case WORKER_ADD:
        return on_add(worker, message);
    case WORKER_DROP:
        return on_drop(worker, message);
    case WORKER_THREADS:
        return on_threads(worker, message);
    case WORKER_READY: /* what a worker says */
    case WORKER_ADDED:
    case WORKER_DROPPED:
        break;
    }
    return -EPROTO;
}

static int serve(struct worker *worker, struct message *message)
{
    for (;;) {
        int rc = receive(worker->socket_fd, message);
        if (rc > 0)
            rc = on_message(worker, message);
        else if (rc == 0)
            return EXIT_DONE;
        close_fds(message);
        if (rc == 0)
            continue;
        if (rc == -EPROTO) {
            fprintf(stderr, "spdld-worker: a message of kind %u (%zu bytes) does not fit\n",
                    message->body.head.kind, message->bytes);
            return EXIT_BROKEN;
        }
        fprintf(stderr, "spdld-worker: no memory or no threads: %s\n", strerror(-rc));
        return EXIT_SHORT;
    }
}

static void release(struct worker *worker)
{
    if (worker->commands != NULL)
        worker_threads_end(worker);
    worker_streams_drop_all(&worker->streams);
    spdl_shm_segment_unmap((void *)(uintptr_t)worker->arena, worker->arena_bytes);
    spdl_shm_segment_unmap((void *)(uintptr_t)worker->commands, worker->commands_bytes);
    spdl_shm_segment_unmap(worker->completions, worker->completions_bytes);
    if (worker->event_fd >= 0)
        close(worker->event_fd);
    free(worker);
}

int worker_run(int socket_fd, const struct worker_lock *lock)
{
    int status = EXIT_SHORT;
    struct worker *worker = aligned_alloc(_Alignof(struct worker), sizeof *worker);
    struct message *message = calloc(1, sizeof *message);
    if (worker == NULL || message == NULL) {
        fputs("spdld-worker: no memory to begin with\n", stderr);
        free(worker);
    } else {
        memset(worker, 0, sizeof *worker);
        worker->socket_fd = socket_fd;
        worker->event_fd = -1;
        if (lock != NULL)
            worker->lock = *lock;
        status = serve(worker, message);
        /* Partner: the release in give_up. */
        if (atomic_load_explicit(&worker->broken, memory_order_acquire)) {
            fputs("spdld-worker: a command does not fit\n", stderr);
            status = EXIT_BROKEN;
        }
        release(worker);
    }
    free(message);
    close(socket_fd); /* last: whoever waits for it may give back the segments then */
    return status;
}
