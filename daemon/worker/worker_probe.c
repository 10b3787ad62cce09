/* What a codec that was taken over might try: see worker_probe.h. Decoder role. */
#include "worker/worker_probe.h"

#ifdef SPDL_FAILPOINTS
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The page of the arena that the bytes are in. */
static uintptr_t page;

static long open_file(void)
{
    return syscall(SYS_openat, AT_FDCWD, "/etc/passwd", O_RDONLY);
}

static long open_for_writing(void)
{
    return syscall(SYS_openat, AT_FDCWD, "/tmp/spdld-probe", O_WRONLY | O_CREAT, 0600);
}

static long open_daemon_memory(void)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/mem", (int)getppid());
    return syscall(SYS_openat, AT_FDCWD, path, O_RDWR);
}

static long open_own_segment(void)
{
    return syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR);
}

static long look_at_file(void)
{
    struct stat st;
    return syscall(SYS_newfstatat, AT_FDCWD, "/etc/passwd", &st, 0);
}

static long make_socket(void)
{
    return syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
}

static long make_unix_socket(void)
{
    return syscall(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
}

static long make_pair(void)
{
    int ends[2];
    return syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, ends);
}

static long pass_descriptor(void)
{
    struct msghdr header = {0};
    return syscall(SYS_sendmsg, 3, &header, 0);
}

static long make_process(void)
{
    long got = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (got == 0)
        _exit(0);
    return got;
}

static long make_process_3(void)
{
    uint64_t arguments[8] = {0};
    long got = syscall(SYS_clone3, arguments, sizeof arguments);
    if (got == 0)
        _exit(0);
    return got;
}

static long start_program(void)
{
    return syscall(SYS_execve, "/bin/true", NULL, NULL);
}

static long trace_daemon(void)
{
    return syscall(SYS_ptrace, PTRACE_SEIZE, getppid(), NULL, NULL);
}

static long read_daemon(void)
{
    char byte;
    struct iovec mine = {&byte, 1}, theirs = {(void *)page, 1};
    return syscall(SYS_process_vm_readv, getppid(), &mine, 1ul, &theirs, 1ul, 0ul);
}

static long hold_daemon(void)
{
    return syscall(SYS_pidfd_open, getppid(), 0);
}

static long signal_daemon(void)
{
    return syscall(SYS_kill, getppid(), SIGCONT);
}

static long signal_daemon_thread(void)
{
    return syscall(SYS_tgkill, getppid(), getppid(), SIGCONT);
}

static long resize(void)
{
    long got = -1;
    for (int fd = 0; fd < 16; fd++)
        got = syscall(SYS_ftruncate, fd, 1 << 30) == 0 ? 0 : got;
    return got;
}

static long reserve(void)
{
    long got = -1;
    for (int fd = 0; fd < 16; fd++)
        got = syscall(SYS_fallocate, fd, 0, 0, 1 << 30) == 0 ? 0 : got;
    return got;
}

static long grow_mapping(void)
{
    return syscall(SYS_mremap, page, 4096, 1 << 24, MREMAP_MAYMOVE);
}

static long punch(void)
{
    return syscall(SYS_madvise, page, 4096, MADV_REMOVE);
}

static long make_code(void)
{
    return syscall(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == -1
               ? -1
               : 0;
}

static long turn_into_code(void)
{
    return syscall(SYS_mprotect, page, 4096, PROT_READ | PROT_EXEC);
}

static long make_segment(void)
{
    return syscall(SYS_memfd_create, "probe", 0);
}

static long make_ring(void)
{
    char params[120] = {0};
    return syscall(SYS_io_uring_setup, 8, params);
}

static long raise_limit(void)
{
    struct rlimit limit = {1024, 1024};
    return syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, NULL);
}

static long new_namespace(void)
{
    return syscall(SYS_unshare, CLONE_NEWUSER);
}

static const struct probe {
    const char *name;
    long (*attempt)(void); /* not negative: it got what it wanted */
} probes[] = {
    {"open-file", open_file},
    {"open-for-writing", open_for_writing},
    {"open-daemon-memory", open_daemon_memory},
    {"open-own-memory", open_own_segment},
    {"look-at-file", look_at_file},
    {"make-socket", make_socket},
    {"make-unix-socket", make_unix_socket},
    {"make-pair", make_pair},
    {"pass-descriptor", pass_descriptor},
    {"make-process", make_process},
    {"make-process-3", make_process_3},
    {"start-program", start_program},
    {"trace-daemon", trace_daemon},
    {"read-daemon", read_daemon},
    {"hold-daemon", hold_daemon},
    {"signal-daemon", signal_daemon},
    {"signal-daemon-thread", signal_daemon_thread},
    {"resize-segment", resize},
    {"reserve-segment", reserve},
    {"grow-mapping", grow_mapping},
    {"punch-hole", punch},
    {"make-code", make_code},
    {"turn-into-code", turn_into_code},
    {"make-segment", make_segment},
    {"make-ring", make_ring},
    {"raise-limit", raise_limit},
    {"new-namespace", new_namespace},
};

void worker_probe(const void *data, size_t bytes)
{
    const char *marker = getenv("SPDL_PROBE_MARKER");
    const char *at = marker ? memmem(data, bytes, marker, strlen(marker)) : NULL;
    if (at == NULL)
        return;
    at += strlen(marker);
    size_t left = bytes - (size_t)(at - (const char *)data);
    page = (uintptr_t)at & ~(uintptr_t)4095;
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) {
        size_t length = strlen(probes[i].name);
        if (left <= length || memcmp(at, probes[i].name, length) != 0 || at[length] != '\n')
            continue;
        long got = probes[i].attempt();
        fprintf(stderr, "spdld-worker: probe %s %s (%s)\n", probes[i].name,
                got < 0 ? "was refused" : "GOT IT", got < 0 ? strerror(errno) : "0");
    }
}
#endif
