/* What a hostile rank does to what it is given (see hostile.h): segments that it may only read, and
 * the read end of a pipe. Its own data segment has a writer, the worker, so that the kernel keeps
 * others out by the file's mode alone: whoever owns it (the daemon's own user) may open it again.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/hostile/hostile.h"

enum { LOOK_BYTES = 4096, PIPE_BYTES = 1 << 20 };
static const char *const names[] = {"control segment", "data segment"};

/* Does the mode keep this user out? */
static bool is_strangers(int fd)
{
    struct stat status;
    return fstat(fd, &status) == 0 && status.st_uid != geteuid() && geteuid() != 0;
}

static bool is_sealed(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK);
}

static int again(int fd, int flags)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, flags | O_CLOEXEC);
}

static bool can_map(int fd, int flags)
{
    void *base = mmap(NULL, LOOK_BYTES, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (base == MAP_FAILED)
        return false;
    munmap(base, LOOK_BYTES);
    return true;
}

static bool can_protect(int fd)
{
    void *base = mmap(NULL, LOOK_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return false;
    bool can = mprotect(base, LOOK_BYTES, PROT_READ | PROT_WRITE) == 0;
    munmap(base, LOOK_BYTES);
    return can;
}

static bool can_write(int fd)
{
    char byte = 'x';
    return pwrite(fd, &byte, 1, 0) == 1;
}

static void write_one(struct hostile *hostile, int fd, const char *name, bool is_data)
{
    hostile_tried(hostile, can_map(fd, MAP_SHARED), "%s: mapped writable", name);
    hostile_tried(hostile, can_protect(fd), "%s: made writable with mprotect", name);
    hostile_tried(hostile, can_write(fd), "%s: written with pwrite", name);
    hostile_tried(hostile, fcntl(fd, F_SETFL, O_RDWR) == 0 && can_write(fd), "%s: F_SETFL", name);
    hostile_tried(hostile, is_sealed(fd) && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0,
                  "%s: sealed by a rank", name);
    hostile_tried(hostile, is_strangers(fd) && fchmod(fd, 0666) == 0, "%s: fchmod", name);
    int other = again(fd, O_RDWR);
    bool may = !is_strangers(fd) && (is_data || !is_sealed(fd));
    hostile_tried(hostile, is_strangers(fd) && other >= 0, "%s: opened again for writing", name);
    if (other >= 0 && !may) {
        hostile_tried(hostile, can_map(other, MAP_SHARED), "%s: opened again and mapped", name);
        hostile_tried(hostile, can_write(other), "%s: opened again and written", name);
    }
    if (other >= 0)
        close(other);
}

void mode_write(struct hostile *hostile)
{
    struct rank rank;
    if (!rank_open(hostile, &rank, 2))
        return;
    for (int i = 0; i < 2; i++)
        write_one(hostile, rank.fds[i], names[i], i == 1);
    rank_close(&rank);
}

static void resize_one(struct hostile *hostile, int fd, const char *name)
{
    static const int ways[] = {0,
                               FALLOC_FL_KEEP_SIZE,
                               FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                               FALLOC_FL_COLLAPSE_RANGE,
                               FALLOC_FL_ZERO_RANGE,
                               FALLOC_FL_INSERT_RANGE};
    struct stat before, after;
    if (fstat(fd, &before) < 0)
        return;
    const off_t sizes[] = {0, 1, before.st_size - 4096, before.st_size + 4096, (off_t)1 << 40};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        hostile_tried(hostile, ftruncate(fd, sizes[i]) == 0, "%s: ftruncate", name);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        hostile_tried(hostile, fallocate(fd, ways[i], i == 0 ? before.st_size : 0, 4096) == 0,
                      "%s: fallocate of kind %d", name, ways[i]);
    hostile_tried(hostile, fstat(fd, &after) == 0 && after.st_size != before.st_size,
                  "%s: of another size", name);
}

void mode_resize(struct hostile *hostile)
{
    struct rank rank;
    if (!rank_open(hostile, &rank, 2))
        return;
    for (int i = 0; i < 2; i++) {
        resize_one(hostile, rank.fds[i], names[i]);
        int other = again(rank.fds[i], O_RDWR);
        if (other < 0)
            continue;
        struct stat status;
        off_t size = fstat(other, &status) == 0 ? status.st_size : 0;
        bool may = !is_strangers(other) && !is_sealed(other);
        hostile_tried(hostile, !may && ftruncate(other, size / 2) == 0, "%s: opened again and cut",
                      names[i]);
        hostile_tried(hostile, !may && ftruncate(other, size + 4096) == 0,
                      "%s: opened again and grown", names[i]);
        /* A hole in one's own data is one's own loss; in the control segment it must not be. */
        hostile_tried(hostile,
                      !may && i == 0 &&
                          fallocate(other, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) ==
                              0,
                      "%s: opened again and punched", names[i]);
        close(other);
    }
    rank_close(&rank);
}

/* Takes the pipe for itself: makes it small, fills it from the other side, makes its own end
 * blocking and asynchronous. The daemon's end has flags of its own; a full pipe is an awake rank.
 */
void mode_pipe(struct hostile *hostile)
{
    static const char bytes[4096];
    struct rank rank;
    if (!rank_open(hostile, &rank, 2))
        return;
    int pipe_fd = rank.fds[2], other = again(pipe_fd, O_WRONLY | O_NONBLOCK);
    hostile_tried(hostile, write(pipe_fd, bytes, 1) == 1, "the read end writes");
    fcntl(pipe_fd, F_SETFL, O_ASYNC);
    fcntl(pipe_fd, F_SETPIPE_SZ, 4096);
    for (size_t sent = 0; other >= 0 && sent < PIPE_BYTES; sent += sizeof bytes)
        if (write(other, bytes, sizeof bytes) < 0)
            break;
    if (other >= 0)
        fcntl(other, F_SETFL, 0);
    double end = hostile_now() + hostile->seconds;
    /* Releases all it gets without ever reading the pipe. */
    for (int64_t sequence = 0; hostile_now() < end; sequence++) {
        struct message message;
        message_of_stream(&message, 4, rank.stream, sequence);
        usleep(20000);
        if (!wire_send_message(rank.fd, &message))
            break;
    }
    if (other >= 0)
        close(other);
    rank_close(&rank);
}
