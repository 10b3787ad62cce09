/* Files that stay open between reads, and reads of neighbours by one call: the same bytes and the
 * same classes as without, few descriptors, and none after they are forgotten. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fetch/fetch.h"
#include "fetch/fetch_join.h"
#include "fetch/fetch_keep.h"
#include "item/class.h"

#if defined(__SANITIZE_THREAD__)
/* A child writes to a file while it is read. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}
#endif

enum { DEPTH = 128, SHARD_BYTES = 3 << 20, RANGE_BYTES = 1024, SMALL_FILES = 300 };

static char folders[2][64]; /* in memory and on a disk */
static int root_fd;
static const char *engine;
static const int owner; /* its address */
static struct fetch *fetch;
static uint8_t memory[DEPTH][65536];

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint8_t byte_of(uint64_t seed, uint64_t offset)
{
    return (uint8_t)mix((seed << 40) + offset + 1);
}

static void write_file(const char *name, uint64_t seed, uint64_t bytes)
{
    uint8_t *content = malloc(bytes);
    assert_non_null(content);
    for (uint64_t i = 0; i < bytes; i++)
        content[i] = byte_of(seed, i);
    int fd = openat(root_fd, name, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, bytes), bytes);
    close(fd);
    free(content);
}

static void set_time(const char *name, time_t seconds)
{
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    assert_int_equal(utimensat(root_fd, name, times, 0), 0);
}

static struct fetch_request range(const char *name, int32_t file, uint64_t offset, uint64_t bytes)
{
    struct stat st;
    assert_int_equal(fstatat(root_fd, name, &st, 0), 0);
    return (struct fetch_request){.root_fd = root_fd,
                                  .path = name,
                                  .offset = offset,
                                  .bytes = bytes,
                                  .file_bytes = (uint64_t)st.st_size,
                                  .mtime_ns = st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                                  .owner = &owner,
                                  .file = file};
}

static void give(struct fetch_request *request, uint64_t ticket)
{
    request->ticket = ticket;
    request->into = memory[ticket];
    memset(memory[ticket], 0, request->bytes + 1);
    assert_int_equal(fetch_submit(fetch, request), 0);
}

/* Takes exactly `count` results, by their tickets. */
static void take(struct fetch_result *ret_results, uint32_t count)
{
    struct fetch_result results[7];
    fetch_kick(fetch);
    for (uint32_t done = 0; done < count;) {
        uint32_t some = fetch_reap(fetch, results, 7);
        for (uint32_t i = 0; i < some; i++, done++)
            ret_results[results[i].ticket] = results[i];
        struct pollfd ready = {.fd = fetch_fd(fetch), .events = POLLIN};
        if (some == 0 && poll(&ready, 1, 20000) != 1)
            fail_msg("%s: no result", engine);
    }
}

static uint32_t read_one(struct fetch_request *request)
{
    struct fetch_result result;
    give(request, 0);
    take(&result, 1);
    return result.class_number;
}

static void expect_bytes(const uint8_t *bytes, uint64_t seed, uint64_t offset, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (bytes[i] != byte_of(seed, offset + i))
            fail_msg("%s: byte %llu differs", engine, (unsigned long long)(offset + i));
}

static unsigned open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    unsigned count = 0;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* The engine closes in its own time: 10 seconds are for ever. */
static void expect_descriptors(unsigned count)
{
    for (int i = 0; i < 10000 && open_descriptors() != count; i++)
        usleep(1000);
    assert_int_equal(open_descriptors(), count);
}

/* --- the table --- */

static void expect_closed(int fd)
{
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
}

static struct fetch_kept *add(struct fetch_keep *keep, const void *whose, int32_t file, int fd,
                              int *ret_close)
{
    static uint64_t now_ns;
    const struct fetch_kept open = {.fd = fd, .owner = whose, .file = file};
    return fetch_keep_add(keep, &open, ++now_ns, ret_close);
}

static void test_table(void **state)
{
    (void)state;
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    small = (struct rlimit){.rlim_cur = 64, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &small), 0);
    struct fetch_keep keep;
    fetch_keep_init(&keep);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(keep.room, 16);

    int other, fds[17];
    struct fetch_kept *kept[17];
    assert_null(fetch_keep_find(&keep, &owner, 0, 1));
    for (int i = 0; i < 16; i++) {
        fds[i] = dup(root_fd);
        kept[i] = add(&keep, i < 8 ? (const void *)&owner : &fds, i, fds[i], &other);
        assert_int_equal(kept[i]->fd, fds[i]);
        assert_int_equal(other, -1);
    }
    fds[16] = dup(root_fd);
    assert_null(add(&keep, &owner, 16, fds[16], &other)); /* all are held */
    assert_int_equal(other, -1);
    for (int i = 0; i < 16; i++)
        assert_int_equal(fetch_keep_release(&keep, kept[i], false), -1);
    assert_ptr_equal(fetch_keep_find(&keep, &owner, 0, 18), kept[0]); /* used last, and held */
    kept[16] = add(&keep, &owner, 16, fds[16], &other);
    assert_non_null(kept[16]);
    assert_int_equal(other, fds[1]); /* not used for longest */
    expect_closed(other);
    assert_null(fetch_keep_find(&keep, &owner, 1, 20));
    assert_null(fetch_keep_find(&keep, &fds, 0, 20)); /* another's */

    int twice = dup(root_fd); /* two threads open the same file */
    assert_ptr_equal(add(&keep, &owner, 0, twice, &other), kept[0]);
    assert_int_equal(other, twice);
    expect_closed(other);
    assert_int_equal(fetch_keep_release(&keep, kept[0], true), -1); /* changed, and held */
    assert_null(fetch_keep_find(&keep, &owner, 0, 20));
    other = fetch_keep_release(&keep, kept[0], false);
    assert_int_equal(other, fds[0]);
    expect_closed(other);

    assert_true(fetch_keep_forget(&keep, &owner)); /* 2 … 7, and 16, which is held */
    assert_null(fetch_keep_find(&keep, &owner, 2, 20));
    for (int i = 0; i < 6; i++)
        expect_closed(fetch_keep_take(&keep));
    assert_int_equal(fetch_keep_take(&keep), -1);
    assert_false(fetch_keep_dead(&keep));
    other = fetch_keep_release(&keep, kept[16], false);
    assert_int_equal(other, fds[16]);
    expect_closed(other);
    assert_false(fetch_keep_forget(&keep, &owner));

    assert_null(fetch_keep_find(&keep, &fds, 8, 1000000000u + 20)); /* opened a second ago */
    assert_true(fetch_keep_dead(&keep));
    expect_closed(fetch_keep_take(&keep));
    unsigned descriptors = open_descriptors();
    fetch_keep_fini(&keep);
    assert_int_equal(open_descriptors(), descriptors - 7);
}

/* --- one call for several --- */

static struct fetch_batch join(struct fetch_port *port, const uint64_t ranges[][2], uint32_t count)
{
    static const _Atomic uint32_t go_on;
    struct fetch_batch batch = {.count = count};
    for (uint32_t i = 0; i < count; i++) {
        batch.slots[i] = i;
        port->slots[i].request = range("shard", 0, ranges[i][0], ranges[i][1]);
        port->slots[i].request.into = memory[i];
        if (ranges[i][1] < sizeof memory[i])
            memset(memory[i], 0, ranges[i][1] + 1);
    }
    fetch_join_sort(port, batch.slots, count);
    int fd = openat(root_fd, "shard", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    fetch_join_read(port, &batch, fd, 0, &go_on);
    close(fd);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = batch.slots[i];
        assert_true(i == 0 || ranges[batch.slots[i - 1]][0] <= ranges[slot][0]);
        if (!batch.full[i])
            continue;
        expect_bytes(memory[slot], 7, ranges[slot][0], ranges[slot][1]);
        assert_int_equal(memory[slot][ranges[slot][1]], 0);
    }
    return batch;
}

static void test_join(void **state)
{
    (void)state;
    struct fetch_port port;
    assert_int_equal(fetch_port_init(&port, DEPTH, NULL), 0);
    const uint64_t gap = FETCH_JOIN_GAP_BYTES;
    /* Out of order; 0-1000, 1000-1100, one gap's length, then one byte more than that, a range that
     * overlaps, an empty one at its end. */
    const uint64_t mixed[][2] = {{2100 + gap + gap + 1, 50}, {1000, 100},      {0, 1000},
                                 {1100 + gap, 1000},         {1200 + gap, 10}, {1210 + gap, 0}};
    struct fetch_batch batch = join(&port, mixed, 6);
    assert_int_equal(batch.joined, 3); /* 0+1000+1100g; 1200g+1210g; the far one */
    for (uint32_t i = 0; i < 6; i++)
        assert_true(batch.full[i]);

    uint64_t many[64][2];
    for (uint64_t i = 0; i < 64; i++) {
        many[i][0] = 512 + i * 1536;
        many[i][1] = 1024;
    }
    batch = join(&port, (const uint64_t(*)[2])many, 64);
    assert_int_equal(batch.joined, 62); /* 32 at a time */
    for (uint64_t i = 0; i < 64; i++) {
        many[i][0] = i * 60000;
        many[i][1] = 60000;
    }
    batch = join(&port, (const uint64_t(*)[2])many, 16);
    assert_int_equal(batch.joined, 12); /* 4 of them are a call's bytes */

    /* Beyond the file's end, and longer than a call: left to the engine. */
    const uint64_t odd[][2] = {{SHARD_BYTES - 10, 20}, {0, FETCH_JOIN_BYTES + 1}, {5, 5}};
    batch = join(&port, odd, 3);
    assert_false(batch.full[0]);
    assert_true(batch.full[1]);
    assert_false(batch.full[2]);
    fetch_port_fini(&port);
}

/* --- the engines --- */

static void check_equal(void)
{
    uint64_t joined = 0;
    struct fetch_result results[DEPTH];
    for (uint64_t round = 0; round < 40; round++) {
        uint64_t start = mix(round) % (SHARD_BYTES - 400000), offsets[DEPTH];
        for (uint32_t i = 0; i < DEPTH; i++) {
            bool apart = round % 2 == 0;
            offsets[i] = apart ? mix(round << 20 | i) % (SHARD_BYTES - RANGE_BYTES)
                               : start + (uint64_t)(i ^ 5) * 1536;
            struct fetch_request request =
                range("shard", i % 16 == 15 ? -1 : 0, offsets[i], RANGE_BYTES);
            give(&request, i);
        }
        take(results, DEPTH);
        for (uint32_t i = 0; i < DEPTH; i++) {
            assert_int_equal(results[i].class_number, SPDL_CLASS_OK);
            expect_bytes(memory[i], 7, offsets[i], RANGE_BYTES);
            assert_int_equal(memory[i][RANGE_BYTES], 0);
        }
        struct fetch_stats stats;
        fetch_stats(fetch, &stats);
        joined = stats.joined;
    }
    assert_true(joined > 100);
}

/* Nothing is in the page cache: reads that have to wait, of files that are open. */
static void check_cold(void)
{
    struct fetch_result results[DEPTH];
    for (uint64_t round = 0; round < 3; round++) {
        int fd = openat(root_fd, "shard", O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(fdatasync(fd), 0);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
        uint64_t offsets[DEPTH];
        for (uint32_t i = 0; i < DEPTH; i++) {
            offsets[i] = mix(round << 20 | i) % (SHARD_BYTES - 60000);
            struct fetch_request request = range("shard", 0, offsets[i], i % 3 ? 700 : 60000);
            give(&request, i);
        }
        take(results, DEPTH);
        for (uint32_t i = 0; i < DEPTH; i++) {
            assert_int_equal(results[i].class_number, SPDL_CLASS_OK);
            expect_bytes(memory[i], 7, offsets[i], i % 3 ? 700 : 60000);
        }
    }
}

static void check_descriptors(void)
{
    static char names[SMALL_FILES][16];
    for (uint32_t i = 0; i < SMALL_FILES; i++) {
        snprintf(names[i], sizeof names[i], "small%u", i);
        write_file(names[i], i, 100);
    }
    unsigned before = open_descriptors();
    for (uint32_t i = 0; i < 3 * SMALL_FILES; i++) {
        uint32_t file = i < SMALL_FILES ? i : (uint32_t)(mix(i) % SMALL_FILES);
        struct fetch_request request = range(names[file], (int32_t)file, 10, 80);
        assert_int_equal(read_one(&request), SPDL_CLASS_OK);
        expect_bytes(memory[0], file, 10, 80);
    }
    unsigned now = open_descriptors();
    assert_true(now > before + 50 && now <= before + FETCH_KEEP_MAX + 1);
    fetch_forget(fetch, &now); /* another's */
    fetch_forget(fetch, &owner);
    expect_descriptors(before);
    struct fetch_request request = range(names[3], 3, 0, 100);
    assert_int_equal(read_one(&request), SPDL_CLASS_OK);
    expect_bytes(memory[0], 3, 0, 100);
    fetch_forget(fetch, &owner);
    expect_descriptors(before);
    for (uint32_t i = 0; i < SMALL_FILES; i++)
        assert_int_equal(unlinkat(root_fd, names[i], 0), 0);
}

static void check_changed(void)
{
    write_file("moving", 1, 5000);
    set_time("moving", 1000000000);
    struct fetch_request request = range("moving", 5, 100, 2000);
    assert_int_equal(read_one(&request), SPDL_CLASS_OK);
    /* In place: seen by the very next read. */
    write_file("moving", 2, 5000);
    assert_int_equal(read_one(&request), SPDL_CLASS_CHANGED);
    write_file("moving", 1, 1000);
    set_time("moving", 1000000000);
    assert_int_equal(read_one(&request), SPDL_CLASS_CHANGED);
    write_file("moving", 1, 5000);
    set_time("moving", 1000000000);
    assert_int_equal(read_one(&request), SPDL_CLASS_OK);
    expect_bytes(memory[0], 1, 100, 2000);
    /* Another file under its name: the old bytes, and after a second at most it is seen. */
    write_file("next", 3, 5000);
    set_time("next", 1000000001);
    assert_int_equal(renameat(root_fd, "next", root_fd, "moving"), 0);
    struct timespec now, from;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (;;) {
        uint32_t class_number = read_one(&request);
        if (class_number == SPDL_CLASS_CHANGED)
            break;
        assert_int_equal(class_number, SPDL_CLASS_OK);
        expect_bytes(memory[0], 1, 100, 2000);
        clock_gettime(CLOCK_MONOTONIC, &now);
        assert_true(now.tv_sec - from.tv_sec < 5);
    }
    assert_int_equal(unlinkat(root_fd, "moving", 0), 0);
    assert_int_equal(read_one(&request), SPDL_CLASS_IO_ERROR);
}

/* A shard that is written while many ranges of it are read: all old, or CHANGED. */
static void check_written_meanwhile(void)
{
    enum { BYTES = 1 << 20, WRITES = 60 };
    static uint8_t other[BYTES];
    write_file("moving", 5, BYTES);
    set_time("moving", 1000000000);
    struct fetch_request first = range("moving", 9, 0, 30000);
    assert_int_equal(read_one(&first), SPDL_CLASS_OK); /* from now on it is open */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        memset(other, 0xaa, sizeof other);
        int fd = openat(root_fd, "moving", O_WRONLY);
        for (int i = 0; i < WRITES; i++)
            if (pwrite(fd, other, BYTES, 0) != BYTES || ftruncate(fd, i % 2 ? BYTES : 100) < 0)
                _exit(1);
        _exit(0);
    }
    int status = 0;
    struct fetch_result results[30];
    for (uint32_t count = 0; waitpid(child, &status, WNOHANG) == 0 || count == 0; count++) {
        for (uint32_t i = 0; i < 30; i++) {
            struct fetch_request request = first;
            request.offset = i * 34000;
            give(&request, i);
        }
        take(results, 30);
        for (uint32_t i = 0; i < 30; i++)
            if (results[i].class_number == SPDL_CLASS_OK)
                expect_bytes(memory[i], 5, i * 34000, 30000);
            else
                assert_int_equal(results[i].class_number, SPDL_CLASS_CHANGED);
    }
    assert_int_equal(status, 0);
    assert_int_equal(read_one(&first), SPDL_CLASS_CHANGED);
    assert_int_equal(unlinkat(root_fd, "moving", 0), 0);
}

static void each_engine_and_place(void (*check)(void))
{
    for (const struct fetch_ops *const *row = fetch_table; *row; row++) {
        engine = (*row)->name;
        for (int i = 0; i < 2; i++) {
            struct fetch_params params = {.depth = DEPTH};
            char note[256];
            struct err err = {0};
            root_fd = open(folders[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            assert_true(root_fd >= 0);
            unsigned descriptors = open_descriptors();
            int rc = fetch_open(engine, &params, &fetch, note, &err);
            if (rc == -EPERM || rc == -ENOSYS || rc == -ENOTSUP) {
                print_message("%s is not to be had here: %s\n", engine, err.text);
            } else {
                assert_int_equal(rc, 0);
                check();
                fetch_close(fetch);
            }
            assert_int_equal(open_descriptors(), descriptors);
            close(root_fd);
        }
    }
}

#define TEST(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        each_engine_and_place(check_##name);                                                       \
    }
TEST(equal)
TEST(cold)
TEST(descriptors)
TEST(changed)
TEST(written_meanwhile)

static int make_folders(void **state)
{
    (void)state;
    for (int i = 1; i >= 0; i--) {
        snprintf(folders[i], sizeof folders[i], "%s/spdl-keep-XXXXXX", i ? "/tmp" : "/dev/shm");
        assert_non_null(mkdtemp(folders[i]));
        root_fd = open(folders[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(root_fd >= 0);
        write_file("shard", 7, SHARD_BYTES);
        if (i > 0)
            close(root_fd);
    }
    return 0;
}

static int remove_folders(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        root_fd = open(folders[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        unlinkat(root_fd, "shard", 0);
        close(root_fd);
        rmdir(folders[i]);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_equal),
        cmocka_unit_test(test_cold),
        cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_changed),
        cmocka_unit_test(test_written_meanwhile),
    };
    return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
