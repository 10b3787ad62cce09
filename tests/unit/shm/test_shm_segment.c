/* Segments: their space is theirs, their size is fixed, and a descriptor for reading stays one. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm/shm_segment.h"

static const enum spdl_shm_kind kinds[] = {SPDL_SHM_MEMFD, SPDL_SHM_POSIX};
static const enum spdl_shm_use uses[] = {SPDL_SHM_READ_BY_OTHERS, SPDL_SHM_WRITTEN_BY_OTHERS};

static unsigned entries(const char *path)
{
    DIR *dir = opendir(path);
    assert_non_null(dir);
    unsigned count = 0;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static int reopen(int fd, int flags)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, flags | O_CLOEXEC);
}

/* Nothing can be written through a descriptor for reading, whatever the kind. */
static void check_read_only(const struct spdl_shm_segment *segment)
{
    assert_int_equal(fcntl(segment->read_only_fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_true(fcntl(segment->read_only_fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(segment->fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(pwrite(segment->read_only_fd, "x", 1, 0), -1);
    assert_int_equal(errno, EBADF);
    void *base = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, segment->read_only_fd, 0);
    assert_ptr_equal(base, MAP_FAILED);
    assert_int_equal(errno, EACCES);
    void *mapped;
    assert_int_equal(spdl_shm_segment_map(segment->read_only_fd, 4096, 1, 0, &mapped), -EACCES);
    assert_null(mapped);
    assert_int_equal(spdl_shm_segment_map(segment->read_only_fd, 4096, 0, 0, &mapped), 0);
    assert_int_equal(mprotect(mapped, 4096, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(errno, EACCES);
    spdl_shm_segment_unmap(mapped, 4096);
}

/* What the seals hold even for who opens it again for writing, root too. */
static void check_seals(const struct spdl_shm_segment *segment, enum spdl_shm_use use)
{
    int fd = reopen(segment->read_only_fd, O_RDWR);
    assert_true(fd >= 0); /* the mode lets its owner */
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, (off_t)segment->bytes * 2), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_int_equal(errno, EPERM);
    void *base = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (use == SPDL_SHM_READ_BY_OTHERS) {
        assert_ptr_equal(base, MAP_FAILED);
        assert_int_equal(errno, EPERM);
        assert_int_equal(pwrite(fd, "x", 1, 0), -1);
        assert_int_equal(errno, EPERM);
    } else {
        assert_ptr_not_equal(base, MAP_FAILED);
        memset(base, 0x77, 4096);
        assert_int_equal(*(uint8_t *)segment->base, 0x77);
        munmap(base, 4096);
    }
    close(fd);
}

static void test_create(void **state)
{
    (void)state;
    unsigned descriptors = entries("/proc/self/fd"), names = entries("/dev/shm");
    for (int i = 0; i < 8; i++) {
        enum spdl_shm_kind kind = kinds[i & 1];
        enum spdl_shm_use use = uses[i >> 1 & 1];
        struct spdl_shm_segment segment;
        uint64_t free_bytes = 0;
        assert_int_equal(spdl_shm_segment_create(&segment, kind, use, 100001, i >> 2, &free_bytes),
                         0);
        assert_int_equal(segment.bytes, 102400);
        struct stat st;
        assert_int_equal(fstat(segment.fd, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(st.st_size, 102400);
        if (i >> 2)
            assert_int_equal(st.st_blocks, 200); /* all of it is there before it is touched */
        const uint8_t *bytes = segment.base;
        for (uint64_t k = 0; k < segment.bytes; k++)
            assert_int_equal(bytes[k], 0);
        memset(segment.base, 0x5a, segment.bytes);
        uint8_t last;
        assert_int_equal(pread(segment.read_only_fd, &last, 1, 102399), 1);
        assert_int_equal(last, 0x5a);
        check_read_only(&segment);
        if (kind == SPDL_SHM_MEMFD)
            check_seals(&segment, use);
        assert_int_equal(entries("/dev/shm"), names); /* no name, ever */
        spdl_shm_segment_destroy(&segment);
        assert_int_equal(segment.fd, -1);
        spdl_shm_segment_destroy(&segment);
    }
    struct spdl_shm_segment zeroed = {0};
    spdl_shm_segment_destroy(&zeroed); /* must not close descriptor 0 */
    assert_int_equal(entries("/proc/self/fd"), descriptors);
}

static void test_bad_sizes(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct spdl_shm_segment segment;
        assert_int_equal(
            spdl_shm_segment_create(&segment, kinds[i], SPDL_SHM_READ_BY_OTHERS, 0, 1, NULL),
            -EINVAL);
        assert_int_equal(spdl_shm_segment_create(&segment, kinds[i], SPDL_SHM_READ_BY_OTHERS,
                                                 UINT64_MAX, 1, NULL),
                         -EINVAL);
        assert_int_equal(segment.fd, -1);
    }
}

/* A file that is smaller than what it is said to be would end in SIGBUS. */
static void test_map_checks_the_size(void **state)
{
    (void)state;
    struct spdl_shm_segment segment;
    assert_int_equal(spdl_shm_segment_create(&segment, SPDL_SHM_MEMFD, SPDL_SHM_WRITTEN_BY_OTHERS,
                                             8192, 1, NULL),
                     0);
    void *base;
    assert_int_equal(spdl_shm_segment_map(segment.fd, 8193, 1, 0, &base), -EPROTO);
    assert_int_equal(spdl_shm_segment_map(segment.fd, 0, 1, 0, &base), -EPROTO);
    assert_int_equal(spdl_shm_segment_map(-1, 1, 1, 0, &base), -EBADF);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(spdl_shm_segment_map(ends[0], 1, 0, 0, &base), -EPROTO);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(spdl_shm_segment_map(segment.fd, 8192, 1, 0, &base), 0);
    memset(base, 1, 8192);
    assert_int_equal(((uint8_t *)segment.base)[8191], 1);
    spdl_shm_segment_unmap(base, 8192);
    spdl_shm_segment_unmap(NULL, 1);
    spdl_shm_segment_destroy(&segment);
}

static void test_not_in_child(void **state)
{
    (void)state;
    struct spdl_shm_segment segment;
    assert_int_equal(
        spdl_shm_segment_create(&segment, SPDL_SHM_MEMFD, SPDL_SHM_READ_BY_OTHERS, 4096, 1, NULL),
        0);
    void *inherited, *private;
    assert_int_equal(spdl_shm_segment_map(segment.read_only_fd, 4096, 0, 0, &inherited), 0);
    assert_int_equal(spdl_shm_segment_map(segment.read_only_fd, 4096, 0, 1, &private), 0);
    pid_t child = fork();
    if (child == 0) {
        unsigned char there;
        int first = mincore(inherited, 4096, &there);
        int second = mincore(private, 4096, &there);
        _exit(first == 0 && second == -1 && errno == ENOMEM ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    spdl_shm_segment_unmap(inherited, 4096);
    spdl_shm_segment_unmap(private, 4096);
    spdl_shm_segment_destroy(&segment);
}

/* In a child with a /dev/shm of 1 MiB. Returns 0, 77 when it may not mount, or the line that does
 * not hold. */
static int small_dev_shm(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") < 0)
        return 77;
    struct spdl_shm_segment segment;
    uint64_t free_bytes = 0;
    if (spdl_shm_segment_create(&segment, SPDL_SHM_POSIX, SPDL_SHM_WRITTEN_BY_OTHERS, 4 << 20, 1,
                                &free_bytes) != -ENOSPC)
        return __LINE__;
    if (free_bytes != 1 << 20 || segment.fd != -1 || segment.base)
        return __LINE__;
    if (spdl_shm_segment_create(&segment, SPDL_SHM_POSIX, SPDL_SHM_WRITTEN_BY_OTHERS, 1 << 19, 1,
                                &free_bytes) != 0)
        return __LINE__;
    memset(segment.base, 1, segment.bytes);
    struct spdl_shm_segment second;
    if (spdl_shm_segment_create(&second, SPDL_SHM_POSIX, SPDL_SHM_WRITTEN_BY_OTHERS, 1 << 20, 1,
                                &free_bytes) != -ENOSPC)
        return __LINE__;
    if (free_bytes != 1 << 19)
        return __LINE__;
    spdl_shm_segment_destroy(&segment);
    /* Not in the way of segments that are not there. */
    if (spdl_shm_segment_create(&segment, SPDL_SHM_MEMFD, SPDL_SHM_READ_BY_OTHERS, 4 << 20, 1,
                                &free_bytes) != 0)
        return __LINE__;
    spdl_shm_segment_destroy(&segment);
    return 0;
}

/* In a child without /proc: a memfd cannot be opened again, a named object can. */
static int no_proc(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", "/proc", "tmpfs", 0, "size=1m") < 0)
        return 77;
    struct spdl_shm_segment segment;
    if (spdl_shm_segment_create(&segment, SPDL_SHM_MEMFD, SPDL_SHM_READ_BY_OTHERS, 4096, 1, NULL) !=
        -ENOTSUP)
        return __LINE__;
    if (spdl_shm_segment_create(&segment, SPDL_SHM_POSIX, SPDL_SHM_READ_BY_OTHERS, 4096, 1, NULL) !=
        0)
        return __LINE__;
    uint8_t byte = 1;
    memset(segment.base, 9, 4096);
    if (pread(segment.read_only_fd, &byte, 1, 0) != 1 || byte != 9 ||
        pwrite(segment.read_only_fd, &byte, 1, 0) != -1)
        return __LINE__;
    struct stat st;
    if (fstat(segment.fd, &st) < 0 || st.st_nlink != 0 || (st.st_mode & 07777) != 0600)
        return __LINE__;
    spdl_shm_segment_destroy(&segment);
    return 0;
}

static void in_child(int (*check)(void))
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int line = check();
        ssize_t written = write(ends[1], &line, sizeof line);
        _exit(written != sizeof line);
    }
    int line = -1;
    close(ends[1]);
    assert_int_equal(read(ends[0], &line, sizeof line), sizeof line);
    close(ends[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    if (line == 77)
        skip();
    assert_int_equal(line, 0);
}

static void test_small_dev_shm(void **state)
{
    (void)state;
    in_child(small_dev_shm);
}

static void test_no_proc(void **state)
{
    (void)state;
    in_child(no_proc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_bad_sizes),
        cmocka_unit_test(test_map_checks_the_size),
        cmocka_unit_test(test_not_in_child),
        cmocka_unit_test(test_small_dev_shm),
        cmocka_unit_test(test_no_proc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
