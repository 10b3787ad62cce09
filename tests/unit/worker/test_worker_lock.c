/* The worker's lock, from inside: every system call that a worker does not need ends it, and those
 * it needs do so with other arguments. Each is tried by a process of its own. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "worker/worker_lock.h"

/* The kernel's own probes pass every filter, and do nothing for whoever calls them. */
enum { URETPROBE = 335, UPROBE = 336 };

enum { CALLS_END = 512, MEMORY_BYTES = 256 << 20 };

static struct worker_lock lock;

/* Runs `action` in a process that has locked itself; what it returns is the exit status. */
static int in_worker(int (*action)(void *), void *argument)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct worker_lock taken;
        worker_lock_take(MEMORY_BYTES, &taken);
        _exit(action(argument));
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static bool died_of_call(int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS;
}

struct call {
    long number;
    uintptr_t arguments[6];
};

static int make_call(void *argument)
{
    const struct call *call = argument;
    const uintptr_t *a = call->arguments;
    long rc = syscall(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
    return rc < 0 ? errno : 0;
}

/* --- what is told of the lock --- */

static int tell(void *argument)
{
    (void)argument;
    struct rlimit core, descriptors, data;
    getrlimit(RLIMIT_CORE, &core); /* by prlimit64, which is refused behind the lock */
    getrlimit(RLIMIT_NOFILE, &descriptors);
    getrlimit(RLIMIT_DATA, &data);
    return 0;
}

static int find_lock(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct worker_lock taken;
        dup2(ends[1], 3); /* the one that is kept */
        worker_lock_take(MEMORY_BYTES, &taken);
        _exit(write(3, &taken, sizeof taken) == (ssize_t)sizeof taken ? 0 : 1);
    }
    assert_int_equal(read(ends[0], &lock, sizeof lock), sizeof lock);
    close(ends[0]);
    close(ends[1]);
    int status = 0;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    return 0;
}

static bool is_whole(void)
{
    return !(lock.flags & WORKER_LOCK_RELAXED) && (lock.flags & WORKER_LOCK_SECCOMP);
}

static void skip_unless_whole(void)
{
    if (!is_whole())
        skip();
}

static void flags_tell_what_holds(void **state)
{
    (void)state;
    assert_true(lock.flags & WORKER_LOCK_NO_NEW_PRIVS);
    assert_int_equal((lock.flags & WORKER_LOCK_LANDLOCK) != 0, lock.landlock_abi > 0);
    skip_unless_whole();
    assert_true(lock.flags & WORKER_LOCK_LIMITS);
    assert_true(died_of_call(in_worker(tell, NULL)));
}

/* --- system calls --- */

/* Those that a worker makes whatever their arguments are, and those that are answered ENOSYS. */
static bool is_allowed(long number)
{
    static const long allowed[] = {
        SYS_futex,           SYS_write,
        SYS_munmap,          SYS_brk,
        SYS_clock_gettime,   SYS_sched_yield,
        SYS_nanosleep,       SYS_clock_nanosleep,
        SYS_close,           SYS_fstat,
        SYS_set_robust_list, SYS_rseq,
        SYS_gettid,          SYS_getrandom,
        SYS_rt_sigaction,    SYS_rt_sigprocmask,
        SYS_rt_sigreturn,    SYS_restart_syscall,
        SYS_sigaltstack,     SYS_getpid,
        SYS_writev,          SYS_exit,
        SYS_exit_group,      SYS_sched_getaffinity,
        SYS_clone3,
#ifdef SPDL_FAILPOINTS
        SYS_unlink,
#endif
    };
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if (allowed[i] == number)
            return true;
    return false;
}

/* Arguments that none of the conditions holds for. */
static void every_other_call_ends_it(void **state)
{
    (void)state;
    skip_unless_whole();
    uint32_t tried = 0;
    for (long number = 0; number < CALLS_END; number++) {
        struct call call = {number, {99, 99, 0x77, 0, 0, 0}};
        if (is_allowed(number) || number == URETPROBE || number == UPROBE)
            continue;
        if (!died_of_call(in_worker(make_call, &call)))
            fail_msg("system call %ld was let through", number);
        tried++;
    }
    assert_true(tried > 450);
}

static void arguments_are_looked_at(void **state)
{
    (void)state;
    skip_unless_whole();
    const uintptr_t page =
        (uintptr_t)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const uintptr_t none = MAP_PRIVATE | MAP_ANONYMOUS, parent = (uintptr_t)getpid();
    const struct {
        struct call call;
        bool allowed;
    } cases[] = {
        {{SYS_mmap, {0, 4096, PROT_READ | PROT_WRITE, none, (uintptr_t)-1, 0}}, true},
        {{SYS_mmap, {0, 4096, PROT_READ | PROT_EXEC, none, (uintptr_t)-1, 0}}, false},
        {{SYS_mprotect, {page, 4096, PROT_READ}}, true},
        {{SYS_mprotect, {page, 4096, PROT_READ | PROT_EXEC}}, false},
        {{SYS_madvise, {page, 4096, MADV_DONTNEED}}, true},
        {{SYS_madvise, {page, 4096, MADV_REMOVE}}, false},
        {{SYS_madvise, {page, 4096, MADV_DONTNEED | (uintptr_t)1 << 16}}, false},
        {{SYS_prctl, {PR_SET_NAME, (uintptr_t) "name"}}, true},
        {{SYS_prctl, {PR_SET_DUMPABLE, 1}}, false},
        {{SYS_sendto, {3, page, 0, 0, 0, 0}}, true}, /* no socket, but it may ask */
        {{SYS_sendto, {2, page, 0, 0, 0, 0}}, false},
        {{SYS_recvmsg, {2, page, 0}}, false},
        {{SYS_shutdown, {2, 2}}, false},
        {{SYS_clone, {SIGCHLD}}, false},
        {{SYS_clone, {CLONE_VM | CLONE_FILES | CLONE_SIGHAND}}, false},
        {{SYS_tgkill, {parent, parent, 0}}, false},
        {{SYS_kill, {parent, 0}}, false},
        {{0x40000000 + SYS_getpid, {0}}, false}, /* the same call by another door */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct call call = cases[i].call;
        if (died_of_call(in_worker(make_call, &call)) == cases[i].allowed)
            fail_msg("case %zu, system call %ld, is %s", i, call.number,
                     cases[i].allowed ? "refused" : "let through");
    }
    munmap((void *)page, 4096);
}

static void clone3_does_not_exist(void **state)
{
    (void)state;
    skip_unless_whole();
    struct call call = {SYS_clone3, {0, 0}};
    int status = in_worker(make_call, &call);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), ENOSYS);
}

static void *no_thread(void *argument)
{
    return argument;
}

/* What codecs and the C library do in a normal life, and an abort. */
static int live(void *argument)
{
    pthread_t threads[8];
    void *blocks[64], *got = NULL;
    for (int i = 0; i < 8; i++)
        if (pthread_create(&threads[i], NULL, no_thread, &blocks[i]) != 0)
            return 1;
    for (int i = 0; i < 8; i++)
        if (pthread_join(threads[i], &got) != 0 || got != &blocks[i])
            return 2;
    for (size_t i = 0; i < 64; i++) {
        blocks[i] = malloc(i * 9973);
        if (i > 0 && blocks[i] == NULL)
            return 3;
        if (i > 0)
            memset(blocks[i], 1, i * 9973);
    }
    for (size_t i = 0; i < 64; i++)
        free(blocks[i]);
    if (argument != NULL)
        abort();
    return 0;
}

static void a_normal_life_is_left_alone(void **state)
{
    (void)state;
    char yes = 1;
    assert_int_equal(in_worker(live, NULL), 0);
    int status = in_worker(live, &yes);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_false(WCOREDUMP(status));
}

static int want_memory(void *argument)
{
    (void)argument;
    void *much = mmap(NULL, 2 * (size_t)MEMORY_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *shared = mmap(NULL, 2 * (size_t)MEMORY_BYTES, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return (much == MAP_FAILED ? 0 : 1) + (shared != MAP_FAILED ? 0 : 2);
}

/* Memory of its own is bounded, and segments, which others pay for, are not counted. */
static void memory_is_bounded(void **state)
{
    (void)state;
    skip_unless_whole();
    assert_int_equal(in_worker(want_memory, NULL), 0);
}

static int write_to_output(void *argument)
{
    (void)argument;
    return write(1, "x", 1) == 1 && write(5, "x", 1) < 0 ? 0 : 1;
}

/* Descriptor 1 is the null device, whatever it was, and what is behind the socket is closed. */
static void nothing_is_inherited(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int kept = dup(STDOUT_FILENO);
    fflush(stdout);
    assert_int_equal(dup2(ends[1], STDOUT_FILENO), STDOUT_FILENO);
    int status = in_worker(write_to_output, NULL);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    close(ends[1]);
    char byte;
    assert_int_equal(read(ends[0], &byte, 1), 0);
    close(ends[0]);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flags_tell_what_holds),       cmocka_unit_test(every_other_call_ends_it),
        cmocka_unit_test(arguments_are_looked_at),     cmocka_unit_test(clone3_does_not_exist),
        cmocka_unit_test(a_normal_life_is_left_alone), cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(nothing_is_inherited),
    };
    return cmocka_run_group_tests(tests, find_lock, NULL);
}
