/* Files that are cut while they are mapped: zeros in the place of what is gone, for any number of
 * threads, and the mapping is known to be damaged; a SIGBUS elsewhere ends the process as ever. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "source/source_guard.h"

enum { PAGES = 64, THREADS = 4, ROUNDS = 50 };
static const struct timespec long_ago[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
static size_t page;

static int file_of(size_t bytes)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    int fd = dup(fileno(file));
    fclose(file);
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, 'x', bytes);
    assert_int_equal(write(fd, text, bytes), bytes);
    free(text);
    assert_int_equal(futimens(fd, long_ago), 0); /* what follows is of another time */
    return fd;
}

static uint64_t count_of(const char *base, uint64_t bytes, char wanted)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < bytes; i++)
        count += ((const volatile char *)base)[i] == wanted;
    return count;
}

static void test_cut(void **state)
{
    const size_t bytes = PAGES * page - 7, cuts[] = {0, page, bytes / 2, bytes - 1};
    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        struct source_guard *guard;
        const char *base;
        uint64_t mapped;
        int fd = file_of(bytes);
        assert_int_equal(source_guard_map(fd, 1, &guard, &base, &mapped), 0);
        assert_int_equal(mapped, bytes);
        assert_int_equal(count_of(base, mapped, 'x'), bytes);
        assert_int_equal(count_of(base + mapped, page, 0), page); /* a page of zeros behind it */
        assert_int_equal(source_guard_look(guard), SOURCE_GUARD_WHOLE);
        assert_int_equal(ftruncate(fd, (off_t)cuts[i]), 0);
        assert_int_equal(count_of(base, mapped, 'x'), cuts[i]);
        assert_int_equal(count_of(base, mapped, 0), bytes - cuts[i]);
        assert_int_equal(ftruncate(fd, (off_t)bytes), 0); /* it does not become whole again */
        int wanted = cuts[i] + page > bytes ? SOURCE_GUARD_TOUCHED : SOURCE_GUARD_DAMAGED;
        assert_int_equal(source_guard_look(guard), wanted);
        source_guard_unmap(guard);
        close(fd);
    }
}

static void test_time_and_size(void **state)
{
    struct source_guard *guard;
    const char *base;
    uint64_t mapped;
    (void)state;
    int fd = file_of(100);
    assert_int_equal(source_guard_map(fd, 101, &guard, &base, &mapped), -EINVAL);
    assert_int_equal(source_guard_map(fd, 100, &guard, &base, &mapped), 0);
    assert_int_equal(futimens(fd, NULL), 0);
    assert_int_equal(source_guard_look(guard), SOURCE_GUARD_TOUCHED);
    source_guard_accept(guard);
    assert_int_equal(source_guard_look(guard), SOURCE_GUARD_WHOLE);
    assert_int_equal(ftruncate(fd, 50), 0); /* seen without a page being touched */
    assert_int_equal(source_guard_look(guard), SOURCE_GUARD_DAMAGED);
    source_guard_unmap(guard);
    close(fd);
    source_guard_unmap(NULL);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(source_guard_map(pipes[0], 1, &guard, &base, &mapped), -EINVAL);
    close(pipes[0]);
    close(pipes[1]);
}

/* Maps, cuts and reads, beside others that do the same. NULL: all went well. */
static void *rounds(void *context)
{
    (void)context;
    for (int i = 0; i < ROUNDS; i++) {
        struct source_guard *guard;
        const char *base;
        uint64_t mapped;
        int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, (off_t)(4 * page)) < 0 || pwrite(fd, "xx", 2, 0) != 2 ||
            source_guard_map(fd, 1, &guard, &base, &mapped) < 0)
            return (void *)(uintptr_t)1;
        if (ftruncate(fd, (off_t)page) < 0 || count_of(base, mapped, 'x') != 2 ||
            count_of(base, mapped, 0) != 4 * page - 2)
            return (void *)(uintptr_t)2;
        if (source_guard_look(guard) != SOURCE_GUARD_DAMAGED)
            return (void *)(uintptr_t)3;
        source_guard_unmap(guard);
        close(fd);
    }
    return NULL;
}

static void *read_all(void *context)
{
    return (void *)(uintptr_t)count_of(context, PAGES * page, 0);
}

static void test_threads(void **state)
{
    pthread_t threads[THREADS];
    struct source_guard *guard;
    const char *base;
    uint64_t mapped;
    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, rounds, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    int fd = file_of(PAGES * page);
    assert_int_equal(source_guard_map(fd, 1, &guard, &base, &mapped), 0);
    assert_int_equal(ftruncate(fd, 0), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, (void *)(uintptr_t)base), 0);
    for (int i = 0; i < THREADS; i++) {
        void *count;
        pthread_join(threads[i], &count);
        assert_int_equal((uintptr_t)count, PAGES * page);
    }
    source_guard_unmap(guard);
    close(fd);
}

/* What a child ends with that gets a SIGBUS that is not ours. */
static int end_of(bool is_sent)
{
    pid_t child = fork();
    if (child == 0) {
        struct source_guard *guard;
        const char *base;
        uint64_t mapped;
        const struct rlimit none = {0, 0};
        int fd = file_of(page), other = file_of(page), null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO); /* a sanitizer has much to say, and so has cmocka */
        dup2(null, STDOUT_FILENO);
        setrlimit(RLIMIT_CORE, &none);
        if (source_guard_map(fd, 1, &guard, &base, &mapped) < 0)
            _exit(0);
        const char *mine = mmap(NULL, page, PROT_READ, MAP_SHARED, other, 0);
        if (ftruncate(other, 0) < 0)
            _exit(0);
        if (is_sent)
            kill(getpid(), SIGBUS);
        else
            (void)*(const volatile char *)mine;
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_others(void **state)
{
    (void)state;
    for (int is_sent = 0; is_sent < 2; is_sent++) {
        int status = end_of(is_sent);
        assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGBUS : WEXITSTATUS(status) != 0);
    }
}

/* In one, as cmocka puts a handler of its own in the place of ours before each test. */
static void test_all(void **state)
{
    test_cut(state);
    test_time_and_size(state);
    test_threads(state);
    test_others(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
    page = (size_t)sysconf(_SC_PAGESIZE);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
