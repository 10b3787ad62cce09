/* The worker's sandbox: see worker_lock.h. Three layers, each of which holds without the others:
 * limits, Landlock (whatever path or port is asked for), and a seccomp filter (whatever system call
 * is made). The filter is a table of what a worker does between its lock and its end; what is not
 * in it ends the process with SIGSYS, which spdld counts against the sample. */
#include "worker/worker_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"

#if defined(__x86_64__)
#define LOCK_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define LOCK_ARCH AUDIT_ARCH_AARCH64
#else
#error "the worker's filter needs the name of this architecture"
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOCK_RELAXED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LOCK_RELAXED 1
#endif
#endif
#ifndef LOCK_RELAXED
#define LOCK_RELAXED 0
#endif

enum {
    DESCRIPTORS_MAX = 16, /* 2, 3, the eventfd, and the four of a message */
    RULES_MAX = 64,
    RULE_STEPS = 6, /* instructions of the longest rule */
    PROGRAM_MAX = RULES_MAX * RULE_STEPS + 8
};

/* --- seccomp --- */

enum rule_kind {
    RULE_ALLOW,    /* whatever the arguments are */
    RULE_ALLOW_IF, /* where the low half of argument `argument`, masked, is `value` */
    RULE_NO_SUCH,  /* answers ENOSYS: the C library then does it in another way */
    RULE_KILL
};

struct rule {
    uint32_t number; /* of the system call */
    enum rule_kind kind;
    uint32_t argument, mask, value;
};

enum { ALL_BITS = -1 };

/* What later C libraries do beside a thread's stack: guard it, and name it. */
enum { ADVICE_GUARD = 102, NAME_MAPPING = 0x53564d41 };

/* Calls of a normal row first. Where a call stands more than once, one of the rows must hold. */
static const struct rule rules[] = {
#if LOCK_RELAXED
/* A sanitizer reads /proc, asks for stacks and starts a symbolizer: here only what no sanitizer
 * does is refused, and the rest is allowed. */
#define LAST_WORD SECCOMP_RET_ALLOW
    {SYS_clone3, RULE_NO_SUCH, 0, 0, 0}, {SYS_ftruncate, RULE_KILL, 0, 0, 0},
    {SYS_fallocate, RULE_KILL, 0, 0, 0}, {SYS_bind, RULE_KILL, 0, 0, 0},
    {SYS_listen, RULE_KILL, 0, 0, 0},
#else
#define LAST_WORD SECCOMP_RET_KILL_PROCESS
    {SYS_futex, RULE_ALLOW, 0, 0, 0},
    {SYS_write, RULE_ALLOW, 0, 0, 0}, /* the eventfd; last words */
    {SYS_madvise, RULE_ALLOW_IF, 2, (uint32_t)ALL_BITS, MADV_DONTNEED},
    {SYS_madvise, RULE_ALLOW_IF, 2, (uint32_t)ALL_BITS, MADV_FREE},
    {SYS_mmap, RULE_ALLOW_IF, 2, PROT_EXEC, 0},
    {SYS_munmap, RULE_ALLOW, 0, 0, 0},
    {SYS_mprotect, RULE_ALLOW_IF, 2, PROT_EXEC, 0},
    {SYS_brk, RULE_ALLOW, 0, 0, 0},
    {SYS_clock_gettime, RULE_ALLOW, 0, 0, 0}, /* where the clock is not read without the kernel */
    {SYS_sched_yield, RULE_ALLOW, 0, 0, 0},
    {SYS_nanosleep, RULE_ALLOW, 0, 0, 0},
    {SYS_clock_nanosleep, RULE_ALLOW, 0, 0, 0},
    {SYS_recvmsg, RULE_ALLOW_IF, 0, (uint32_t)ALL_BITS, WORKER_SOCKET_FD},
    {SYS_sendto, RULE_ALLOW_IF, 0, (uint32_t)ALL_BITS, WORKER_SOCKET_FD},
    {SYS_shutdown, RULE_ALLOW_IF, 0, (uint32_t)ALL_BITS, WORKER_SOCKET_FD},
    {SYS_close, RULE_ALLOW, 0, 0, 0},
    {SYS_fstat, RULE_ALLOW, 0, 0, 0},
    {SYS_madvise, RULE_ALLOW_IF, 2, (uint32_t)ALL_BITS, MADV_HUGEPAGE},
    {SYS_madvise, RULE_ALLOW_IF, 2, (uint32_t)ALL_BITS, MADV_NOHUGEPAGE},
    {SYS_madvise, RULE_ALLOW_IF, 2, (uint32_t)ALL_BITS, MADV_DONTDUMP},
    {SYS_madvise, RULE_ALLOW_IF, 2, (uint32_t)ALL_BITS, MADV_DODUMP},
    {SYS_madvise, RULE_ALLOW_IF, 2, (uint32_t)ALL_BITS, ADVICE_GUARD},
    /* threads */
    {SYS_clone3, RULE_NO_SUCH, 0, 0, 0}, /* its flags are in memory, where no filter can look */
    {SYS_clone, RULE_ALLOW_IF, 0, CLONE_THREAD, CLONE_THREAD},
    {SYS_set_robust_list, RULE_ALLOW, 0, 0, 0},
    {SYS_rseq, RULE_ALLOW, 0, 0, 0},
    {SYS_prctl, RULE_ALLOW_IF, 0, (uint32_t)ALL_BITS, PR_SET_NAME},
    {SYS_prctl, RULE_ALLOW_IF, 0, (uint32_t)ALL_BITS, NAME_MAPPING},
    {SYS_gettid, RULE_ALLOW, 0, 0, 0},
    {SYS_sched_getaffinity, RULE_ALLOW, 0, 0, 0},
    {SYS_getrandom, RULE_ALLOW, 0, 0, 0},
    /* signals: handlers, and raise() for abort() */
    {SYS_rt_sigaction, RULE_ALLOW, 0, 0, 0},
    {SYS_rt_sigprocmask, RULE_ALLOW, 0, 0, 0},
    {SYS_rt_sigreturn, RULE_ALLOW, 0, 0, 0},
    {SYS_restart_syscall, RULE_ALLOW, 0, 0, 0},
    {SYS_sigaltstack, RULE_ALLOW, 0, 0, 0},
    {SYS_getpid, RULE_ALLOW, 0, 0, 0},
    {SYS_writev, RULE_ALLOW, 0, 0, 0}, /* the C library's last words */
    {SYS_exit, RULE_ALLOW, 0, 0, 0},
    {SYS_exit_group, RULE_ALLOW, 0, 0, 0},
#ifdef SPDL_FAILPOINTS
#ifdef SYS_unlink /* the token of a point to die at */
    {SYS_unlink, RULE_ALLOW, 0, 0, 0},
#else
    {SYS_unlinkat, RULE_ALLOW, 0, 0, 0},
#endif
#endif
#endif
};

struct program {
    struct sock_filter steps[PROGRAM_MAX];
    uint16_t count;
};

static void put(struct program *program, struct sock_filter step)
{
    ASSERT(program->count < PROGRAM_MAX);
    program->steps[program->count++] = step;
}

static void put_load(struct program *program, size_t offset)
{
    put(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void put_return(struct program *program, uint32_t action)
{
    put(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

/* The accumulator holds the number of the call before and behind it. */
static void put_rule(struct program *program, const struct rule *rule)
{
    uint32_t action = rule->kind == RULE_NO_SUCH ? SECCOMP_RET_ERRNO | ENOSYS
                      : rule->kind == RULE_KILL  ? SECCOMP_RET_KILL_PROCESS
                                                 : SECCOMP_RET_ALLOW;
    if (rule->kind != RULE_ALLOW_IF) {
        put(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rule->number, 0, 1));
        put_return(program, action);
        return;
    }
    /* Both architectures are little-endian: the low half comes first. */
    size_t offset = offsetof(struct seccomp_data, args) + rule->argument * sizeof(uint64_t);
    put(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rule->number, 0, 5));
    put_load(program, offset);
    put(program, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, rule->mask));
    put(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rule->value, 0, 1));
    put_return(program, action);
    put_load(program, offsetof(struct seccomp_data, nr));
}

/* raise() and abort() send to the process itself; kill -9 of itself is for the points to die at. */
static void put_own_signals(struct program *program)
{
    const uint32_t pid = (uint32_t)getpid();
    struct rule own = {SYS_tgkill, RULE_ALLOW_IF, 0, (uint32_t)ALL_BITS, pid};
    put_rule(program, &own);
#ifdef SPDL_FAILPOINTS
    own.number = SYS_kill;
    put_rule(program, &own);
#endif
}

static bool filter_take(void)
{
    static struct program program; /* large; the only thread uses it once */
    put_load(&program, offsetof(struct seccomp_data, arch));
    put(&program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, LOCK_ARCH, 1, 0));
    put_return(&program, SECCOMP_RET_KILL_PROCESS);
    put_load(&program, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        put_rule(&program, &rules[i]);
    put_own_signals(&program);
    put_return(&program, LAST_WORD);
    const struct sock_fprog all = {.len = program.count, .filter = program.steps};
    /* Without the flag older kernels switch off store bypassing for the whole process, which costs
     * decoding several per cent and protects nothing that is in it. */
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &all) ==
               0 ||
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &all) == 0;
}

/* --- Landlock --- */

#if !LOCK_RELAXED
/* The kernel's numbers: the headers of Debian 12 have those of the first versions alone. */
struct landlock_rights {
    uint64_t files, ports, scopes;
};

enum {
    LANDLOCK_ASK_VERSION = 1,
    LANDLOCK_FILES_1 = 0x1fff, /* execute, read, write, list, remove and make, of each kind */
    LANDLOCK_REMOVE_FILE = 1 << 5,
    LANDLOCK_REFER = 1 << 13,     /* since version 2 */
    LANDLOCK_TRUNCATE = 1 << 14,  /* 3 */
    LANDLOCK_IOCTL_DEV = 1 << 15, /* 5 */
    LANDLOCK_PORTS = 3,           /* 4: bind and connect */
    LANDLOCK_SCOPES = 3           /* 6: abstract sockets and signals of others */
};

/* Rights that are named and for which no rule is given are refused. */
static bool landlock_take(uint32_t *ret_abi)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_ASK_VERSION);
    if (abi < 1)
        return false;
    struct landlock_rights rights = {.files = LANDLOCK_FILES_1};
    rights.files |= abi >= 2 ? LANDLOCK_REFER : 0;
    rights.files |= abi >= 3 ? LANDLOCK_TRUNCATE : 0;
    rights.files |= abi >= 5 ? LANDLOCK_IOCTL_DEV : 0;
    rights.ports = abi >= 4 ? LANDLOCK_PORTS : 0;
    rights.scopes = abi >= 6 ? LANDLOCK_SCOPES : 0;
#ifdef SPDL_FAILPOINTS
    rights.files &= ~(uint64_t)LANDLOCK_REMOVE_FILE;
#endif
    size_t bytes = abi >= 6 ? sizeof rights : abi >= 4 ? 2 * sizeof(uint64_t) : sizeof(uint64_t);
    long ruleset = syscall(SYS_landlock_create_ruleset, &rights, bytes, 0);
    if (ruleset < 0)
        return false;
    bool done = syscall(SYS_landlock_restrict_self, ruleset, 0) == 0;
    close((int)ruleset);
    *ret_abi = done ? (uint32_t)abi : 0;
    return done;
}

/* --- limits --- */

static bool limit(int what, uint64_t value)
{
    const struct rlimit both = {.rlim_cur = value, .rlim_max = value};
    if (setrlimit((__rlimit_resource_t)what, &both) == 0)
        return true;
    struct rlimit old; /* a harder one may hold already */
    return getrlimit((__rlimit_resource_t)what, &old) == 0 && old.rlim_max <= value;
}

/* Segments are shared mappings, which RLIMIT_DATA does not count. */
static bool limits_take(uint64_t memory_bytes)
{
    bool done = limit(RLIMIT_CORE, 0);
    done = limit(RLIMIT_NOFILE, DESCRIPTORS_MAX) && done;
    if (memory_bytes > 0)
        done = limit(RLIMIT_DATA, memory_bytes) && done;
    return done;
}
#endif

/* Whatever spdld had as its input and output is no business of a codec. */
static void close_inherited(void)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 2; fd++)
        if (null_fd < 0 || dup2(null_fd, fd) < 0)
            close(fd);
    if (syscall(SYS_close_range, WORKER_SOCKET_FD + 1, ~0u, 0) < 0 && null_fd > WORKER_SOCKET_FD)
        close(null_fd); /* an older kernel: spdld opens all its own to be closed at exec */
}

/* For tests that ask what one layer holds without another, and what they cost. */
static bool is_left_out(const char *layer)
{
#ifdef SPDL_FAILPOINTS
    const char *without = getenv("SPDL_LOCK_WITHOUT");
    return without != NULL && strstr(without, layer) != NULL;
#else
    (void)layer;
    return false;
#endif
}

void worker_lock_take(uint64_t memory_bytes, struct worker_lock *ret_lock)
{
    *ret_lock = (struct worker_lock){0};
    close_inherited();
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
        ret_lock->flags |= WORKER_LOCK_NO_NEW_PRIVS;
#if LOCK_RELAXED
    (void)memory_bytes; /* shadow memory is far larger than any limit */
    ret_lock->flags |= WORKER_LOCK_RELAXED;
#else
    if (limits_take(memory_bytes))
        ret_lock->flags |= WORKER_LOCK_LIMITS;
    if (!is_left_out("landlock") && landlock_take(&ret_lock->landlock_abi))
        ret_lock->flags |= WORKER_LOCK_LANDLOCK;
#endif
    if (!is_left_out("seccomp") && filter_take()) /* last: it refuses all of the above */
        ret_lock->flags |= WORKER_LOCK_SECCOMP;
}
