/* The daemon's side of one worker: see pipeline_worker.h. Conductor role. */
#include "pipeline/pipeline_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "pipeline/pipeline_core.h"
#include "shm/shm_failpoint.h"

enum { WAKE_WORTH_NS = 50000 };

/* A message that waits for room in the socket. */
struct outgoing {
    struct outgoing *next;
    int fd; /* duplicate; -1: none */
    size_t bytes;
    union {
        struct worker_message_head head;
        struct worker_start start;
        struct worker_add add;
    } message;
};

struct pipeline_worker {
    struct pipeline_worker_params params;
    pid_t pid;
    int socket_fd, pid_fd, event_fd;
    struct loop_source *socket_source, *pid_source, *event_source;
    struct spdl_shm_segment commands_segment, completions_segment;
    struct spdl_work_command_segment *commands;
    struct spdl_work_completion_segment *completions;
    uint64_t written;   /* commands put into cells */
    uint64_t published; /* of them shown to the threads */
    uint64_t oldest; /* first command whose completion was not taken: no cell behind oldest + CELLS
                        may be written */
    uint64_t cursor; /* completions taken */
    bool taken[SPDL_WORK_CELLS]; /* by command number mod CELLS: its completion was taken */
    uint64_t command_of[PIPELINE_OPS_MAX]; /* by the low half of the ticket */
    uint32_t backlog_head,
        backlog_count; /* commands that wait for a cell: only when one row takes very long */
    struct spdl_work_command backlog[PIPELINE_QUEUE_MAX];
    struct outgoing *first, **end;
    bool dead;
};

/* --- messages --- */

static int send_one(struct pipeline_worker *worker, const struct outgoing *out, const int *fds,
                    int fd_count)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)&out->message, .iov_len = out->bytes};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control = {0};
    struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd_count > 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE((size_t)fd_count * sizeof(int));
        struct cmsghdr *part = CMSG_FIRSTHDR(&header);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN((size_t)fd_count * sizeof(int));
        memcpy(CMSG_DATA(part), fds, (size_t)fd_count * sizeof(int));
    }
    return sendmsg(worker->socket_fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void outgoing_free(struct outgoing *out)
{
    if (out->fd >= 0)
        close(out->fd);
    free(out);
}

static void flush(struct pipeline_worker *worker)
{
    while (worker->first) {
        struct outgoing *out = worker->first;
        int rc = send_one(worker, out, &out->fd, out->fd >= 0 ? 1 : 0);
        if (rc == -EAGAIN) {
            loop_change(worker->params.loop, worker->socket_source, EPOLLIN | EPOLLOUT);
            return;
        }
        worker->first = out->next; /* another error: it is dying, its death comes by itself */
        if (!worker->first)
            worker->end = &worker->first;
        outgoing_free(out);
    }
    loop_change(worker->params.loop, worker->socket_source, EPOLLIN);
}

/* Sends the message, or keeps it, with a duplicate of the descriptor, until the socket has room. */
static int queue(struct pipeline_worker *worker, const void *message, size_t bytes, int fd)
{
    struct outgoing *out = calloc(1, sizeof *out);
    if (!out)
        return -ENOMEM;
    memcpy(&out->message, message, bytes);
    out->bytes = bytes;
    if (!worker->first && send_one(worker, out, &fd, fd >= 0 ? 1 : 0) != -EAGAIN) {
        free(out); /* another error: it is dying, its death comes by itself */
        return 0;
    }
    out->fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (fd >= 0 && out->fd < 0) {
        int rc = -errno;
        free(out);
        return rc;
    }
    *worker->end = out;
    worker->end = &out->next;
    flush(worker);
    return 0;
}

int pipeline_worker_add(struct pipeline_worker *worker, const struct worker_add *message,
                        int data_fd)
{
    return queue(worker, message, sizeof *message, data_fd);
}

int pipeline_worker_drop(struct pipeline_worker *worker, uint32_t stream)
{
    struct worker_message_head message = {.kind = WORKER_DROP, .stream = stream};
    return queue(worker, &message, sizeof message, -1);
}

int pipeline_worker_set_threads(struct pipeline_worker *worker, uint32_t count)
{
    struct worker_message_head message = {.kind = WORKER_THREADS, .stream = count};
    worker->params.thread_count = count;
    return queue(worker, &message, sizeof message, -1);
}

/* --- rows --- */

static void put(struct pipeline_worker *worker, const struct spdl_work_command *command)
{
    uint64_t number = worker->written++;
    worker->commands->cells[number % SPDL_WORK_CELLS] = *command;
    worker->taken[number % SPDL_WORK_CELLS] = false;
    worker->command_of[(uint32_t)command->ticket % PIPELINE_OPS_MAX] = number;
}

static bool has_cell(const struct pipeline_worker *worker)
{
    return worker->written - worker->oldest < SPDL_WORK_CELLS;
}

void pipeline_worker_push(struct pipeline_worker *worker, const struct spdl_work_command *command)
{
    if (worker->backlog_count == 0 && has_cell(worker)) {
        put(worker, command);
        return;
    }
    ASSERT(worker->backlog_count < PIPELINE_QUEUE_MAX);
    worker->backlog[(worker->backlog_head + worker->backlog_count++) % PIPELINE_QUEUE_MAX] =
        *command;
}

/* How many threads are woken for `more` rows: a second one only for more work than its waking
 * costs. */
static uint64_t wake_count(const struct pipeline_worker *worker, uint64_t more, uint64_t cost_ns)
{
    uint64_t count = cost_ns == 0 ? more : more * cost_ns / WAKE_WORTH_NS + 1;
    count = count < more ? count : more;
    return count < worker->params.thread_count ? count : worker->params.thread_count;
}

void pipeline_worker_kick(struct pipeline_worker *worker, uint64_t cost_ns)
{
    uint64_t more = worker->written - worker->published;
    if (more == 0)
        return;
    SPDL_FAILPOINT("daemon.commands.before");
    worker->published = worker->written;
    /* Partner: the threads' acquire load; the cells were written before. */
    atomic_store_explicit(&worker->commands->published, (uint32_t)worker->written,
                          memory_order_release);
    syscall(SYS_futex, &worker->commands->published, FUTEX_WAKE,
            (int)wake_count(worker, more, cost_ns), NULL, NULL, 0);
    SPDL_FAILPOINT("daemon.commands.after");
}

/* The completion of a command was taken: its cell may be written again once all before it are taken
 * too. */
static void cell_done(struct pipeline_worker *worker, uint64_t ticket)
{
    uint64_t number = worker->command_of[(uint32_t)ticket % PIPELINE_OPS_MAX];
    worker->taken[number % SPDL_WORK_CELLS] = true;
    while (worker->oldest != worker->written && worker->taken[worker->oldest % SPDL_WORK_CELLS])
        worker->oldest++;
    while (worker->backlog_count > 0 && has_cell(worker)) {
        put(worker, &worker->backlog[worker->backlog_head]);
        worker->backlog_head = (worker->backlog_head + 1) % PIPELINE_QUEUE_MAX;
        worker->backlog_count--;
    }
}

uint32_t pipeline_worker_drain(struct pipeline_worker *worker)
{
    uint32_t count = 0;
    /* A worker can have no more completions than commands: what is beyond is a lie. */
    while (count < SPDL_WORK_CELLS && worker->cursor < worker->published) {
        struct spdl_work_completion_cell *cell =
            &worker->completions->cells[worker->cursor % SPDL_WORK_CELLS];
        /* Partner: the thread's release store behind the record. */
        if (atomic_load_explicit(&cell->turn, memory_order_acquire) != worker->cursor + 1)
            break;
        struct spdl_work_completion record = cell->record;
        record.message[SPDL_WORK_MESSAGE_BYTES - 1] = 0;
        worker->cursor++;
        count++;
        SPDL_FAILPOINT("daemon.completion.taken");
        cell_done(worker, record.ticket);
        worker->params.ops->finished(worker->params.context, worker->params.number, &record);
    }
    return count;
}

void pipeline_worker_waiting(struct pipeline_worker *worker, bool waiting)
{
    /* Partner: the threads' seq_cst load after their completion; either they see it or we see the
     * completion. */
    atomic_store_explicit(&worker->commands->waiting, waiting, memory_order_seq_cst);
}

/* --- life and death --- */

static void bury(struct pipeline_worker *worker, bool crashed, const char *how)
{
    if (worker->dead)
        return;
    worker->dead = true;
    pipeline_worker_drain(worker); /* what was committed counts, up to the first gap */
    uint64_t suspects[SPDL_WORK_THREADS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < SPDL_WORK_THREADS_MAX; i++) {
        uint64_t ticket =
            atomic_load_explicit(&worker->completions->working[i], memory_order_relaxed);
        if (ticket != 0)
            suspects[count++] = ticket;
    }
    worker->params.ops->died(worker->params.context, worker->params.number, crashed, suspects,
                             count, how);
}

static bool counts_against_sample(int signal_number)
{
    return signal_number == SIGSEGV || signal_number == SIGBUS || signal_number == SIGILL ||
           signal_number == SIGFPE || signal_number == SIGABRT || signal_number == SIGSYS;
}

static void on_pid(void *context, uint32_t events)
{
    struct pipeline_worker *worker = context;
    (void)events;
    int status = 0;
    if (waitpid(worker->pid, &status, WNOHANG) != worker->pid)
        return;
    char how[96];
    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "it died by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(how, sizeof how, "it ended with status %d", WEXITSTATUS(status));
    worker->pid = 0;
    bury(worker, WIFSIGNALED(status) && counts_against_sample(WTERMSIG(status)), how);
}

static void on_event(void *context, uint32_t events)
{
    struct pipeline_worker *worker = context;
    (void)events;
    uint64_t count;
    ssize_t ignored =
        read(worker->event_fd, &count, sizeof count); /* the step that follows drains the ring */
    (void)ignored;
}

static void on_socket(void *context, uint32_t events)
{
    struct pipeline_worker *worker = context;
    if (events & EPOLLOUT)
        flush(worker);
    for (;;) {
        struct worker_ready message;
        ssize_t bytes = recv(worker->socket_fd, &message, sizeof message, MSG_DONTWAIT);
        if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (bytes <= 0) { /* the end of a process is seen by its pidfd, which also says how */
            loop_remove(worker->params.loop, worker->socket_source);
            worker->socket_source = NULL;
            if (worker->pid_fd < 0)
                bury(worker, false, "its thread ended");
            return;
        }
        struct worker_message_head head = message.head;
        if ((size_t)bytes == sizeof message && head.kind == WORKER_READY)
            worker->params.ops->ready(worker->params.context, worker->params.number, &message.lock);
        else if ((size_t)bytes == sizeof head && head.kind == WORKER_ADDED)
            worker->params.ops->attached(worker->params.context, worker->params.number,
                                         head.stream);
        else if ((size_t)bytes == sizeof head && head.kind == WORKER_DROPPED)
            worker->params.ops->detached(worker->params.context, worker->params.number,
                                         head.stream);
        else if ((size_t)bytes == sizeof head && head.kind == WORKER_THREADS)
            worker->params.ops->threads(worker->params.context, worker->params.number, head.stream);
        if (worker->dead)
            return;
    }
}

static int rings_failed(int rc, uint64_t free_bytes, struct err *reterr)
{
    char room[80] = "";
    if (rc == -ENOSPC && free_bytes != UINT64_MAX)
        snprintf(room, sizeof room, ", /dev/shm has %llu bytes free; use shm: memfd",
                 (unsigned long long)free_bytes);
    return err_set(
        reterr, rc, "shared memory for a worker's rings (%zu bytes) could not be had: %s%s",
        sizeof(struct spdl_work_command_segment) + sizeof(struct spdl_work_completion_segment),
        strerror(-rc), room);
}

static int make_rings(struct pipeline_worker *worker, struct err *reterr)
{
    uint64_t free_bytes = UINT64_MAX;
    int rc =
        spdl_shm_segment_create(&worker->commands_segment, worker->params.shm_kind,
                                SPDL_SHM_READ_BY_OTHERS, sizeof *worker->commands, 1, &free_bytes);
    if (rc == 0)
        rc = spdl_shm_segment_create(&worker->completions_segment, worker->params.shm_kind,
                                     SPDL_SHM_WRITTEN_BY_OTHERS, sizeof *worker->completions, 1,
                                     &free_bytes);
    if (rc < 0)
        return rings_failed(rc, free_bytes, reterr);
    worker->commands = worker->commands_segment.base;
    worker->completions = worker->completions_segment.base;
    worker->commands->version = SPDL_WORK_VERSION;
    worker->commands->thread_count = worker->params.thread_count;
    worker->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return worker->event_fd < 0
               ? err_set(reterr, -errno, "no eventfd for a worker: %s", strerror(errno))
               : 0;
}

static int send_start(struct pipeline_worker *worker, struct err *reterr)
{
    struct outgoing out = {.bytes = sizeof out.message.start, .fd = -1};
    out.message.start =
        (struct worker_start){.head.kind = WORKER_START,
                              .version = WORKER_VERSION,
                              .thread_count = worker->params.thread_count,
                              .arena_bytes = worker->params.arena->bytes,
                              .commands_bytes = worker->commands_segment.bytes,
                              .completions_bytes = worker->completions_segment.bytes};
    int fds[4] = {worker->params.arena->read_only_fd, worker->commands_segment.read_only_fd,
                  worker->completions_segment.fd, worker->event_fd};
    int rc = send_one(worker, &out, fds, 4);
    return rc < 0 ? err_set(reterr, rc, "the worker does not take its first message: %s",
                            strerror(-rc))
                  : 0;
}

static int launch(struct pipeline_worker *worker, struct err *reterr)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return err_set(reterr, -errno, "no socket for a worker: %s", strerror(errno));
    worker->socket_fd = ends[0];
    int rc =
        worker->params.launcher->start(ends[1], worker->params.memory_bytes, &worker->pid, reterr);
    if (rc < 0) {
        close(ends[1]);
        return rc;
    }
    if (worker->pid > 0) {
        worker->pid_fd = (int)syscall(SYS_pidfd_open, worker->pid, 0);
        if (worker->pid_fd < 0)
            return err_set(reterr, -errno, "pidfd_open of the worker: %s", strerror(errno));
        rc = loop_add(worker->params.loop, worker->pid_fd, EPOLLIN, on_pid, worker,
                      &worker->pid_source);
    }
    if (rc == 0)
        rc = loop_add(worker->params.loop, worker->socket_fd, EPOLLIN, on_socket, worker,
                      &worker->socket_source);
    if (rc == 0)
        rc = loop_add(worker->params.loop, worker->event_fd, EPOLLIN, on_event, worker,
                      &worker->event_source);
    return rc < 0 ? err_set(reterr, rc, "no watch on a worker: %s", strerror(-rc)) : 0;
}

int pipeline_worker_start(const struct pipeline_worker_params *params,
                          struct pipeline_worker **ret_worker, struct err *reterr)
{
    struct pipeline_worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return err_set(reterr, -ENOMEM, "no memory for a worker");
    worker->params = *params;
    worker->socket_fd = worker->pid_fd = worker->event_fd = -1;
    worker->commands_segment.fd = worker->commands_segment.read_only_fd = -1;
    worker->completions_segment.fd = worker->completions_segment.read_only_fd = -1;
    worker->end = &worker->first;
    int rc = make_rings(worker, reterr);
    if (rc == 0)
        rc = launch(worker, reterr);
    if (rc == 0)
        rc = send_start(worker, reterr);
    if (rc < 0) {
        pipeline_worker_stop(worker, 0);
        return rc;
    }
    *ret_worker = worker;
    return 0;
}

static void reap(struct pipeline_worker *worker, uint32_t wait_ms)
{
    if (worker->pid_fd >= 0) {
        struct pollfd wait = {.fd = worker->pid_fd, .events = POLLIN};
        if (poll(&wait, 1, (int)wait_ms) == 0)
            kill(worker->pid, SIGKILL);
    }
    waitpid(worker->pid, NULL, 0);
    worker->pid = 0;
}

void pipeline_worker_leave(struct pipeline_worker *worker)
{
    shutdown(worker->socket_fd, SHUT_WR);
}

void pipeline_worker_stop(struct pipeline_worker *worker, uint32_t wait_ms)
{
    if (!worker)
        return;
    loop_remove(worker->params.loop, worker->socket_source);
    loop_remove(worker->params.loop, worker->pid_source);
    loop_remove(worker->params.loop, worker->event_source);
    if (worker->socket_fd >= 0) {
        if (worker->pid_fd < 0) { /* a thread: it closes its end when it has seen ours close, and
                                     maps the rings until then */
            shutdown(worker->socket_fd, SHUT_WR);
            char byte;
            while (recv(worker->socket_fd, &byte, 1, 0) > 0)
                continue;
        }
        close(worker->socket_fd);
    }
    if (worker->pid > 0)
        reap(worker, wait_ms);
    if (worker->pid_fd >= 0)
        close(worker->pid_fd);
    if (worker->event_fd >= 0)
        close(worker->event_fd);
    while (worker->first) {
        struct outgoing *out = worker->first;
        worker->first = out->next;
        outgoing_free(out);
    }
    spdl_shm_segment_destroy(&worker->commands_segment);
    spdl_shm_segment_destroy(&worker->completions_segment);
    free(worker);
}

pid_t pipeline_worker_pid(const struct pipeline_worker *worker)
{
    return worker->pid;
}
