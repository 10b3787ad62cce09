/* A file system that stops answering: whoever waits for it holds up nobody else, and closing does
 * not wait for it. The test is its own file system, by FUSE, in a mount namespace of its own;
 * without the right to mount it is skipped. Also what is said when io_uring is refused. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/fuse.h>
#include <linux/seccomp.h>
#include <poll.h>
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
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fetch/fetch.h"
#include "item/class.h"

enum { FILE_BYTES = 100000, SKIPPED = 77 };
enum {
    NODE_GOOD = 2,
    NODE_HUNG_READ = 3,
    NODE_HUNG_OPEN = 4,
    NODE_HUNG_LOOKUP = 5,
    NODE_HUNG_STAT = 6
};

#if defined(__SANITIZE_THREAD__)
/* Engines are opened in children. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}
#endif

static const char *const names[] = {[NODE_GOOD] = "good",
                                    [NODE_HUNG_READ] = "hung_read",
                                    [NODE_HUNG_OPEN] = "hung_open",
                                    [NODE_HUNG_LOOKUP] = "hung_lookup",
                                    [NODE_HUNG_STAT] = "hung_stat"};

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void answer(int fuse, const struct fuse_in_header *in, int error, const void *body,
                   size_t bytes)
{
    struct fuse_out_header head = {
        .len = (uint32_t)(sizeof head + bytes), .error = error, .unique = in->unique};
    union {
        const void *from;
        void *to;
    } plain = {.from = body}; /* iovec knows no const */
    struct iovec parts[2] = {{.iov_base = &head, .iov_len = sizeof head},
                             {.iov_base = plain.to, .iov_len = bytes}};
    if (writev(fuse, parts, 2) < 0)
        return; /* the caller has gone */
}

static struct fuse_attr attributes(uint64_t node)
{
    bool folder = node == FUSE_ROOT_ID;
    return (struct fuse_attr){.ino = node,
                              .size = folder ? 0 : FILE_BYTES,
                              .mtime = 1000000000,
                              .mode = folder ? S_IFDIR | 0755 : S_IFREG | 0644,
                              .nlink = 1};
}

static void answer_lookup(int fuse, const struct fuse_in_header *in, const char *name)
{
    for (uint64_t node = NODE_GOOD; node <= NODE_HUNG_STAT; node++) {
        if (strcmp(name, names[node]) != 0)
            continue;
        if (node == NODE_HUNG_LOOKUP)
            return;
        struct fuse_entry_out entry = {
            .nodeid = node, .entry_valid = 1, .attr_valid = 0, .attr = attributes(node)};
        answer(fuse, in, 0, &entry, sizeof entry);
        return;
    }
    answer(fuse, in, -ENOENT, NULL, 0);
}

static void answer_one(int fuse, const struct fuse_in_header *in, const void *body)
{
    static uint8_t content[FILE_BYTES];
    static uint32_t stats_of_hung;
    switch (in->opcode) {
    case FUSE_INIT: {
        struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION,
                                     .minor = 31,
                                     .max_readahead = 1 << 17,
                                     .flags = FUSE_PARALLEL_DIROPS,
                                     .max_write = 1 << 17};
        answer(fuse, in, 0, &init, sizeof init);
        return;
    }
    case FUSE_LOOKUP:
        answer_lookup(fuse, in, body);
        return;
    case FUSE_GETATTR: {
        if (in->nodeid == NODE_HUNG_STAT && stats_of_hung++ > 0)
            return;
        struct fuse_attr_out out = {.attr_valid = 0, .attr = attributes(in->nodeid)};
        answer(fuse, in, 0, &out, sizeof out);
        return;
    }
    case FUSE_OPEN: {
        if (in->nodeid == NODE_HUNG_OPEN)
            return;
        struct fuse_open_out open = {.open_flags = FOPEN_DIRECT_IO};
        answer(fuse, in, 0, &open, sizeof open);
        return;
    }
    case FUSE_READ: {
        struct fuse_read_in read;
        memcpy(&read, body, sizeof read);
        if (in->nodeid == NODE_HUNG_READ)
            return;
        uint64_t left = read.offset < FILE_BYTES ? FILE_BYTES - read.offset : 0;
        uint32_t some = read.size > 30000 ? 30000 : read.size; /* short reads, too */
        memset(content, 0x42, sizeof content);
        answer(fuse, in, 0, content, left < some ? left : some);
        return;
    }
    case FUSE_RELEASE:
        answer(fuse, in, 0, NULL, 0);
        return;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return;
    }
    answer(fuse, in, -ENOSYS, NULL, 0);
}

static void serve(int fuse)
{
    static _Alignas(64) uint8_t message[(1 << 17) + 8192];
    for (;;) {
        ssize_t got = read(fuse, message, sizeof message);
        if (got < 0 && (errno == EINTR || errno == ENOENT))
            continue;
        struct fuse_in_header in;
        if (got < (ssize_t)sizeof in)
            _exit(0); /* unmounted */
        memcpy(&in, message, sizeof in);
        answer_one(fuse, &in, message + sizeof in);
    }
}

/* Mounts the file system on a folder in memory of this namespace and starts its server. */
static int mount_fuse(const char *folder, pid_t *ret_server)
{
    int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fuse < 0 || unshare(CLONE_NEWNS) < 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return SKIPPED;
    char options[128];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
             fuse);
    if (mount("spdl-test", folder, "fuse", MS_NOSUID | MS_NODEV, options) < 0)
        return SKIPPED;
    *ret_server = fork();
    if (*ret_server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(fuse);
    }
    close(fuse);
    return *ret_server < 0 ? __LINE__ : 0;
}

static char paths[NODE_HUNG_STAT + 1][128]; /* beneath the root */

static struct fetch_request request_of(int root_fd, uint64_t node, uint64_t ticket, uint8_t *into)
{
    return (struct fetch_request){.ticket = ticket,
                                  .root_fd = root_fd,
                                  .path = paths[node],
                                  .bytes = FILE_BYTES,
                                  .file_bytes = FILE_BYTES,
                                  .mtime_ns = 1000000000 * INT64_C(1000000000),
                                  .owner = names, /* kept open from one read to the next */
                                  .file = (int32_t)node,
                                  .into = into};
}

/* Four hung requests and, round after round, four good ones behind them. Returns 0 or the line that
 * does not hold. */
static int hang(struct fetch *fetch, int root_fd)
{
    static uint8_t memory[8][FILE_BYTES];
    struct fetch_result results[8];
    for (uint64_t i = 0; i < 4; i++) {
        struct fetch_request request = request_of(root_fd, NODE_HUNG_READ + i, 100 + i, memory[i]);
        if (fetch_submit(fetch, &request) < 0)
            return __LINE__;
    }
    fetch_kick(fetch);
    for (int round = 0; round < 20; round++) {
        for (uint64_t i = 4; i < 8; i++) {
            struct fetch_request request = request_of(root_fd, NODE_GOOD, i, memory[i]);
            memset(memory[i], 0, FILE_BYTES);
            if (fetch_submit(fetch, &request) < 0)
                return __LINE__;
        }
        fetch_kick(fetch);
        for (uint32_t done = 0; done < 4;) {
            struct pollfd ready = {.fd = fetch_fd(fetch), .events = POLLIN};
            if (poll(&ready, 1, 10000) != 1)
                return __LINE__;
            uint32_t count = fetch_reap(fetch, results, 8);
            for (uint32_t i = 0; i < count; i++, done++) {
                if (results[i].class_number != SPDL_CLASS_OK || results[i].ticket >= 8)
                    return __LINE__;
                const uint8_t *bytes = memory[results[i].ticket];
                if (bytes[0] != 0x42 || memcmp(bytes, bytes + 1, FILE_BYTES - 1) != 0)
                    return __LINE__;
            }
        }
    }
    struct fetch_stats stats;
    fetch_stats(fetch, &stats);
    return stats.in_flight == 4 && stats.longest_wait_ns > 0 ? 0 : __LINE__;
}

/* under_root: by the path from "/", which is on a disk of this machine. */
static int check_hung(const char *engine, const char *folder, bool under_root)
{
    pid_t server = -1;
    int rc = mount_fuse(folder, &server);
    if (rc != 0)
        return rc;
    int root_fd = open(under_root ? "/" : folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (uint64_t node = NODE_GOOD; node <= NODE_HUNG_STAT; node++)
        snprintf(paths[node], sizeof paths[node], "%s%s%s", under_root ? folder + 1 : "",
                 under_root ? "/" : "", names[node]);
    struct fetch_params params = {.depth = 8};
    struct fetch *fetch;
    char note[256];
    struct err err = {0};
    /* Before the kernel knows that this file system looks up names in parallel, one that hangs
     * would hold up the others. */
    struct stat st;
    if (root_fd < 0 || fstatat(root_fd, paths[NODE_GOOD], &st, 0) < 0)
        return __LINE__;
    rc = fetch_open(engine, &params, &fetch, note, &err);
    if (rc < 0)
        return SKIPPED;
    rc = hang(fetch, root_fd);
    uint64_t before = now_ms();
    fetch_close(fetch);
    uint64_t took = now_ms() - before;
    kill(server, SIGKILL); /* whatever hangs ends now */
    waitpid(server, NULL, 0);
    return rc != 0 ? rc : took < 5000 ? 0 : __LINE__; /* a second, on a machine that is not busy */
}

static const char *argument_engine;
static bool argument_under_root;
static char argument_folder[64];

static int hung_in_child(void)
{
    return check_hung(argument_engine, argument_folder, argument_under_root);
}

static int in_child(int (*check)(void))
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        int line = check();
        ssize_t written = write(ends[1], &line, sizeof line);
        _exit(written != sizeof line);
    }
    int line = -1;
    close(ends[1]);
    assert_int_equal(read(ends[0], &line, sizeof line), sizeof line);
    close(ends[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    return line;
}

static void test_hung(void **state)
{
    (void)state;
    bool skipped = false;
    snprintf(argument_folder, sizeof argument_folder, "/tmp/spdl-hung-XXXXXX");
    assert_non_null(mkdtemp(argument_folder));
    int line = 0;
    for (int i = 0; i < 4 && line == 0; i++) {
        argument_engine = i / 2 == 0 ? "uring" : "pool";
        argument_under_root = i % 2 == 1;
        line = in_child(hung_in_child);
        if (line == SKIPPED) {
            skipped = true;
            line = 0;
        }
    }
    rmdir(argument_folder);
    if (line != 0)
        fail_msg("%s: line %d does not hold", argument_engine, line);
    if (skipped)
        skip();
}

/* In a child whose filter refuses io_uring, as containers do. */
static int without_uring(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof rules / sizeof rules[0], .filter = rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        return SKIPPED;
    struct fetch_params params = {.depth = 4};
    struct fetch *fetch;
    char note[256];
    struct err err = {0};
    if (fetch_open("uring", &params, &fetch, note, &err) != -EPERM || fetch)
        return __LINE__;
    if (!strstr(err.text, "io_uring_setup: Operation not permitted"))
        return __LINE__;
    if (fetch_open("auto", &params, &fetch, note, &err) != 0)
        return __LINE__;
    if (strcmp(fetch_engine(fetch), "pool") != 0)
        return __LINE__;
    if (!strstr(note, "read by pool: io_uring_setup: Operation not permitted"))
        return __LINE__;
    fetch_close(fetch);
    return 0;
}

static void test_refused(void **state)
{
    (void)state;
    int line = in_child(without_uring);
    if (line == SKIPPED)
        skip();
    assert_int_equal(line, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hung),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
