/* What every engine promises, asked of every row of the table: the right bytes, exactly one result
 * each, the same class for the same fault, nothing outside the root, and no descriptor kept. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fetch/fetch.h"
#include "item/class.h"

enum { DEPTH = 16, FILES = 300, FILE_BYTES_MAX = 20000, BIG_BYTES = 9 << 20 };

#if defined(__SANITIZE_THREAD__)
/* One test forks to lose its rights, and opens an engine in the child. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}
#endif

struct place {
    char path[64];
    int fd;
};

static struct place places[2]; /* a folder in memory, read at once, and one on the disk */
static const struct place *root;
static const char *engine;

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint8_t byte_of(uint32_t file, uint64_t offset)
{
    return (uint8_t)mix(((uint64_t)file << 40) + offset + 1);
}

static uint64_t bytes_of(uint32_t file)
{
    return 1 + mix(file + 77) % FILE_BYTES_MAX;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static void write_file(int root_fd, const char *name, uint32_t number, uint64_t bytes)
{
    uint8_t *content = malloc(bytes + 1);
    assert_non_null(content);
    for (uint64_t i = 0; i < bytes; i++)
        content[i] = byte_of(number, i);
    int fd = openat(root_fd, name, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, bytes), bytes);
    close(fd);
    free(content);
}

static void fill_place(struct place *place, const char *parent)
{
    snprintf(place->path, sizeof place->path, "%s/spdl-fetch-XXXXXX", parent);
    assert_non_null(mkdtemp(place->path));
    assert_int_equal(chmod(place->path, 0755), 0);
    place->fd = open(place->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(place->fd >= 0);
    assert_int_equal(mkdirat(place->fd, "sub", 0755), 0);
    for (uint32_t i = 0; i < FILES; i++) {
        char name[32];
        snprintf(name, sizeof name, "sub/%u", i);
        write_file(place->fd, name, i, bytes_of(i));
    }
    write_file(place->fd, "big", 1000, BIG_BYTES);
    write_file(place->fd, "empty", 0, 0);
    assert_int_equal(mkfifoat(place->fd, "fifo", 0644), 0);
    assert_int_equal(symlinkat("/etc/passwd", place->fd, "out"), 0);
    assert_int_equal(symlinkat("../../etc/passwd", place->fd, "up"), 0);
    assert_int_equal(symlinkat("nowhere", place->fd, "dangling"), 0);
    assert_int_equal(symlinkat("loop", place->fd, "loop"), 0);
    assert_int_equal(symlinkat("sub/7", place->fd, "inside"), 0);
}

static int make_places(void **state)
{
    (void)state;
    fill_place(&places[0], "/dev/shm");
    fill_place(&places[1], "/tmp");
    return 0;
}

static int remove_places(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        close(places[i].fd);
        nftw(places[i].path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    return 0;
}

static struct fetch *open_engine(uint32_t depth, const char *faulty)
{
    struct fetch_params params = {.depth = depth};
    snprintf(params.faulty, sizeof params.faulty, "%s", faulty);
    struct fetch *fetch;
    char note[256];
    struct err err = {0};
    if (fetch_open(engine, &params, &fetch, note, &err) < 0)
        fail_msg("%s: %s", engine, err.text);
    assert_string_equal(note, "");
    assert_string_equal(fetch_engine(fetch), engine);
    return fetch;
}

/* A request for all of the file as it is now; for a name that leads nowhere, as the source lists
 * it. */
static struct fetch_request whole(const char *name, uint64_t ticket, uint8_t *into)
{
    struct stat st = {0};
    if (fstatat(root->fd, name, &st, 0) < 0)
        st = (struct stat){0};
    return (struct fetch_request){.ticket = ticket,
                                  .root_fd = root->fd,
                                  .path = name,
                                  .bytes = (uint64_t)st.st_size,
                                  .file_bytes = (uint64_t)st.st_size,
                                  .mtime_ns = st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                                  .into = into};
}

/* Waits until the engine says that results wait; 20 seconds are for ever. */
static uint32_t reap(struct fetch *fetch, struct fetch_result *results, uint32_t max)
{
    for (;;) {
        uint32_t count = fetch_reap(fetch, results, max);
        if (count > 0)
            return count;
        struct pollfd ready = {.fd = fetch_fd(fetch), .events = POLLIN};
        if (poll(&ready, 1, 20000) != 1)
            fail_msg("%s: no result", engine);
    }
}

static struct fetch_result one(struct fetch *fetch, const struct fetch_request *request)
{
    struct fetch_result results[4];
    assert_int_equal(fetch_submit(fetch, request), 0);
    fetch_kick(fetch);
    assert_int_equal(reap(fetch, results, 4), 1);
    assert_int_equal(results[0].ticket, request->ticket);
    return results[0];
}

static void expect(struct fetch *fetch, const struct fetch_request *request, uint32_t class_number,
                   int code)
{
    struct fetch_result result = one(fetch, request);
    if (result.class_number != class_number || result.code != code)
        fail_msg("%s: %s gives %s %d and not %s %d", engine, request->path,
                 spdl_class_name(result.class_number), result.code, spdl_class_name(class_number),
                 code);
}

static void expect_bytes(uint32_t file, const uint8_t *bytes, uint64_t offset, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (bytes[i] != byte_of(file, offset + i))
            fail_msg("%s: file %u differs at byte %llu", engine, file,
                     (unsigned long long)(offset + i));
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

/* Keeps the engine full with `total` whole files; each result's bytes are right and each ticket
 * comes once. */
static void read_many(struct fetch *fetch, uint32_t total, uint64_t max_failures)
{
    static uint8_t memory[DEPTH][FILE_BYTES_MAX];
    static char names[DEPTH][32];
    uint32_t file_of[DEPTH] = {0}, sent = 0, done = 0;
    uint64_t failures = 0, wanted_bytes = 0;
    bool busy[DEPTH] = {0};
    struct fetch_stats before, after;
    fetch_stats(fetch, &before);
    while (done < total) {
        for (uint32_t i = 0; i < DEPTH && sent < total; i++) {
            if (busy[i])
                continue;
            file_of[i] = (uint32_t)(mix(sent) % FILES);
            snprintf(names[i], sizeof names[i], "sub/%u", file_of[i]);
            struct fetch_request request = whole(names[i], i, memory[i]);
            assert_int_equal(request.bytes, bytes_of(file_of[i]));
            memset(memory[i], 0, sizeof memory[i]);
            assert_int_equal(fetch_submit(fetch, &request), 0);
            busy[i] = true;
            sent++;
        }
        fetch_kick(fetch);
        struct fetch_result results[5];
        uint32_t count = reap(fetch, results, 5);
        for (uint32_t i = 0; i < count; i++, done++) {
            uint64_t at = results[i].ticket;
            assert_true(at < DEPTH && busy[at]);
            busy[at] = false;
            if (results[i].class_number == SPDL_CLASS_OK) {
                expect_bytes(file_of[at], memory[at], 0, bytes_of(file_of[at]));
                wanted_bytes += bytes_of(file_of[at]);
            } else {
                assert_int_equal(results[i].class_number, SPDL_CLASS_IO_ERROR);
                assert_int_equal(results[i].code, -EIO);
                failures++;
            }
        }
    }
    assert_int_equal(failures, max_failures);
    fetch_stats(fetch, &after);
    assert_int_equal(after.in_flight, 0);
    assert_int_equal(after.longest_wait_ns, 0);
    assert_int_equal(after.reads - before.reads, total);
    if (failures == 0)
        assert_int_equal(after.bytes - before.bytes, wanted_bytes);
}

static void check_many(void)
{
    struct fetch *fetch = open_engine(DEPTH, "");
    read_many(fetch, 100, 0);
    unsigned descriptors = open_descriptors();
    read_many(fetch, 10000, 0);
    assert_int_equal(open_descriptors(), descriptors);
    fetch_close(fetch);
}

static void check_classes(void)
{
    static uint8_t memory[FILE_BYTES_MAX];
    struct fetch *fetch = open_engine(DEPTH, "");
    struct fetch_request request = whole("inside", 1, memory);
    expect(fetch, &request, SPDL_CLASS_OK, 0);
    expect_bytes(7, memory, 0, bytes_of(7));
    memset(memory, 0xee, sizeof memory);

    request = whole("missing", 2, memory);
    expect(fetch, &request, SPDL_CLASS_IO_ERROR, -ENOENT);
    request = whole("dangling", 3, memory);
    expect(fetch, &request, SPDL_CLASS_IO_ERROR, -ENOENT);
    request = whole("sub/1/x", 4, memory);
    expect(fetch, &request, SPDL_CLASS_IO_ERROR, -ENOTDIR);
    request = whole("loop", 5, memory);
    expect(fetch, &request, SPDL_CLASS_IO_ERROR, -ELOOP);
    request = whole("sub", 6, memory);
    request.bytes = 0;
    expect(fetch, &request, SPDL_CLASS_IO_ERROR, -EISDIR);
    request = whole("fifo", 7, memory);
    expect(fetch, &request, SPDL_CLASS_IO_ERROR, -EINVAL);
    request = whole("empty", UINT64_MAX, memory);
    expect(fetch, &request, SPDL_CLASS_EMPTY, 0);
    static const char *const outside[] = {"out", "up", "../etc", "/etc/passwd", "sub/../../x"};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        request = whole(outside[i], 8, memory);
        request.file_bytes = request.bytes = 100;
        expect(fetch, &request, SPDL_CLASS_IO_ERROR, -EXDEV);
    }
    for (size_t i = 0; i < sizeof memory; i++)
        assert_int_equal(memory[i], 0xee);
    struct fetch_stats stats;
    fetch_stats(fetch, &stats);
    assert_int_equal(stats.reads, 13);
    assert_int_equal(stats.failures, 12);
    fetch_close(fetch);
}

static void check_changed(void)
{
    static uint8_t memory[FILE_BYTES_MAX];
    struct fetch *fetch = open_engine(DEPTH, "");
    struct fetch_request request = whole("sub/3", 1, memory);
    struct fetch_request other = request;
    other.mtime_ns++;
    expect(fetch, &other, SPDL_CLASS_CHANGED, 0);
    other = request;
    other.file_bytes++;
    expect(fetch, &other, SPDL_CLASS_CHANGED, 0);
    other = request;
    other.file_bytes = 1;
    other.bytes = 1;
    expect(fetch, &other, SPDL_CLASS_CHANGED, 0);
    other = whole("empty", 1, memory);
    other.mtime_ns++;
    expect(fetch, &other, SPDL_CLASS_CHANGED, 0);
    expect(fetch, &request, SPDL_CLASS_OK, 0);
    fetch_close(fetch);
}

static void check_ranges(void)
{
    uint8_t *memory = malloc(BIG_BYTES);
    assert_non_null(memory);
    struct fetch *fetch = open_engine(DEPTH, "");
    struct fetch_request request = whole("big", 1, memory);
    assert_int_equal(request.bytes, BIG_BYTES);
    expect(fetch, &request, SPDL_CLASS_OK, 0);
    expect_bytes(1000, memory, 0, BIG_BYTES);
    for (uint32_t i = 0; i < 50; i++) {
        request.offset = mix(i) % BIG_BYTES;
        request.bytes = mix(i + 1000) % (BIG_BYTES - request.offset) % 50000;
        memset(memory, 0, request.bytes + 1);
        expect(fetch, &request, SPDL_CLASS_OK, 0);
        expect_bytes(1000, memory, request.offset, request.bytes);
        assert_int_equal(memory[request.bytes], 0); /* not a byte more */
    }
    request.offset = BIG_BYTES; /* the end, and nothing from there on */
    request.bytes = 0;
    expect(fetch, &request, SPDL_CLASS_OK, 0);
    request.bytes = 1;
    assert_int_equal(fetch_submit(fetch, &request), -EINVAL);
    request.offset = UINT64_MAX;
    assert_int_equal(fetch_submit(fetch, &request), -EINVAL);
    fetch_close(fetch);
    free(memory);
}

/* Nothing of the file is in the page cache, so that the reads have to wait for the disk. */
static void check_cold(void)
{
    uint8_t *memory = malloc(BIG_BYTES);
    assert_non_null(memory);
    struct fetch *fetch = open_engine(DEPTH, "");
    for (int round = 0; round < 3; round++) {
        int fd = openat(root->fd, "big", O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(fdatasync(fd), 0);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
        memset(memory, 0, BIG_BYTES);
        struct fetch_request request = whole("big", 1, memory);
        expect(fetch, &request, SPDL_CLASS_OK, 0);
        expect_bytes(1000, memory, 0, BIG_BYTES);
    }
    fetch_close(fetch);
    free(memory);
}

static void check_depth(void)
{
    static uint8_t memory[4][FILE_BYTES_MAX];
    struct fetch *fetch = open_engine(3, "");
    struct fetch_request request = whole("sub/1", 0, memory[0]);
    for (uint64_t i = 0; i < 3; i++) {
        request.ticket = i;
        request.into = memory[i];
        assert_int_equal(fetch_submit(fetch, &request), 0);
    }
    assert_int_equal(fetch_submit(fetch, &request), -EAGAIN);
    struct fetch_stats stats;
    fetch_stats(fetch, &stats);
    assert_int_equal(stats.in_flight, 3);
    assert_true(stats.longest_wait_ns > 0);
    fetch_kick(fetch);
    struct fetch_result results[4];
    uint32_t seen = 0, count = 0;
    while (count < 3) {
        assert_int_equal(reap(fetch, results, 1), 1);
        assert_true(results[0].ticket < 3 && !(seen >> results[0].ticket & 1));
        seen |= 1u << results[0].ticket;
        count++;
    }
    assert_int_equal(fetch_reap(fetch, results, 4), 0);
    struct pollfd ready = {.fd = fetch_fd(fetch), .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 0), 0); /* drained: a conductor that waits would not spin */
    assert_int_equal(fetch_submit(fetch, &request), 0);
    fetch_kick(fetch);
    assert_int_equal(reap(fetch, results, 4), 1);
    fetch_close(fetch);

    struct fetch_params params = {.depth = 0};
    char note[256];
    struct err err = {0};
    assert_int_equal(fetch_open(engine, &params, &fetch, note, &err), -EINVAL);
    assert_null(fetch);
    params.depth = FETCH_DEPTH_MAX + 1;
    assert_int_equal(fetch_open(engine, &params, &fetch, note, &err), -EINVAL);
    assert_non_null(strstr(err.text, "1537"));
    params.depth = FETCH_DEPTH_MAX;
    assert_int_equal(fetch_open(engine, &params, &fetch, note, &err), 0);
    fetch_close(fetch);
}

/* Closing gives up what is in flight, and keeps nothing. */
static void check_close(void)
{
    uint8_t *memory = malloc((size_t)DEPTH * BIG_BYTES);
    assert_non_null(memory);
    unsigned descriptors = open_descriptors();
    for (int round = 0; round < 20; round++) {
        struct fetch *fetch = open_engine(DEPTH, "");
        for (uint32_t i = 0; i < DEPTH; i++) {
            struct fetch_request request =
                whole(i % 8 ? "sub/1" : "big", i, memory + (size_t)i * BIG_BYTES);
            assert_int_equal(fetch_submit(fetch, &request), 0);
        }
        if (round % 2)
            fetch_kick(fetch);
        fetch_close(fetch);
    }
    assert_int_equal(open_descriptors(), descriptors);
    free(memory);
}

/* A file that is written while it is read: a result is the whole old file, the whole new one, or
 * CHANGED. */
static void check_written_meanwhile(void)
{
    enum { BYTES = 1 << 20, WRITES = 150 };
    static uint8_t memory[BYTES];
    write_file(root->fd, "moving", 5, BYTES);
    /* An old time, so that a write in the same tick of the clock as the file's own is seen too. */
    const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    assert_int_equal(utimensat(root->fd, "moving", old, 0), 0);
    struct stat st;
    assert_int_equal(fstatat(root->fd, "moving", &st, 0), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        memset(memory, 0xaa, sizeof memory);
        int fd = openat(root->fd, "moving", O_WRONLY);
        for (int i = 0; i < WRITES; i++)
            if (pwrite(fd, memory, BYTES, 0) != BYTES || ftruncate(fd, i % 2 ? BYTES : 100) < 0)
                _exit(1);
        _exit(0);
    }
    struct fetch *fetch = open_engine(DEPTH, "");
    int status = 0;
    uint32_t count = 0;
    struct fetch_request request = whole("moving", 1, memory);
    request.bytes = request.file_bytes = BYTES;
    request.mtime_ns = st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    while (waitpid(child, &status, WNOHANG) == 0 || count == 0) {
        struct fetch_result result = one(fetch, &request);
        count++;
        if (result.class_number == SPDL_CLASS_OK)
            expect_bytes(5, memory, 0, BYTES);
        else
            assert_int_equal(result.class_number, SPDL_CLASS_CHANGED);
    }
    assert_int_equal(status, 0);
    expect(fetch, &request, SPDL_CLASS_CHANGED, 0);
    fetch_close(fetch);
    assert_int_equal(unlinkat(root->fd, "moving", 0), 0);
}

/* In a child without rights: returns the line that does not hold. */
static int without_rights(void)
{
    static uint8_t memory[FILE_BYTES_MAX];
    struct fetch_params params = {.depth = 4};
    struct fetch *fetch;
    char note[256];
    if (fetch_open(engine, &params, &fetch, note, NULL) < 0)
        return __LINE__;
    struct fetch_request request = whole("sub/9", 9, memory);
    struct fetch_result result;
    struct pollfd ready = {.fd = fetch_fd(fetch), .events = POLLIN};
    if (fetch_submit(fetch, &request) < 0)
        return __LINE__;
    fetch_kick(fetch);
    if (poll(&ready, 1, 20000) != 1 || fetch_reap(fetch, &result, 1) != 1)
        return __LINE__;
    fetch_close(fetch);
    if (result.class_number != SPDL_CLASS_IO_ERROR || result.code != -EACCES)
        return __LINE__;
    return 0;
}

static void check_forbidden(void)
{
    assert_int_equal(fchmodat(root->fd, "sub/9", 0, 0), 0);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        int line = geteuid() == 0 && setresuid(65534, 65534, 65534) < 0 ? -1 : without_rights();
        ssize_t written = write(ends[1], &line, sizeof line);
        _exit(written != sizeof line);
    }
    close(ends[1]);
    int line = -2;
    assert_int_equal(read(ends[0], &line, sizeof line), sizeof line);
    close(ends[0]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(fchmodat(root->fd, "sub/9", 0644, 0), 0);
    assert_int_equal(line, 0);
}

static void check_faulty(void)
{
    struct fetch *fetch = open_engine(DEPTH, "eio_every=7,reorder=5,delay_us=200");
    read_many(fetch, 350, 50);
    fetch_close(fetch);

    static uint8_t memory[6][FILE_BYTES_MAX];
    fetch = open_engine(DEPTH, "hang_every=3");
    for (uint32_t i = 0; i < 6; i++) {
        struct fetch_request request = whole("sub/1", i, memory[i]);
        assert_int_equal(fetch_submit(fetch, &request), 0);
    }
    fetch_kick(fetch);
    struct fetch_result results[6];
    uint32_t seen = 0;
    for (uint32_t count = 0; count < 4;) {
        uint32_t more = reap(fetch, results, 6);
        for (uint32_t i = 0; i < more; i++)
            seen |= 1u << results[i].ticket;
        count += more;
    }
    assert_int_equal(seen, 0x1b); /* all but the third and the sixth */
    struct fetch_stats stats;
    fetch_stats(fetch, &stats);
    assert_int_equal(stats.in_flight, 2);
    assert_true(stats.longest_wait_ns > 0);
    fetch_close(fetch);
}

static void each_engine_and_place(void (*check)(void))
{
    for (const struct fetch_ops *const *row = fetch_table; *row; row++) {
        engine = (*row)->name;
        struct fetch_params params = {.depth = 1};
        struct fetch *fetch;
        char note[256];
        struct err err = {0};
        int rc = fetch_open(engine, &params, &fetch, note, &err);
        if (rc == -EPERM || rc == -ENOSYS || rc == -ENOTSUP) {
            print_message("%s is not to be had here: %s\n", engine, err.text);
            continue;
        }
        assert_int_equal(rc, 0);
        fetch_close(fetch);
        for (int i = 0; i < 2; i++) {
            root = &places[i];
            check();
        }
    }
}

#define TEST(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        each_engine_and_place(check_##name);                                                       \
    }
TEST(many)
TEST(classes)
TEST(changed)
TEST(ranges)
TEST(cold)
TEST(depth)
TEST(close)
TEST(written_meanwhile)
TEST(forbidden)
TEST(faulty)

static void test_choice(void **state)
{
    (void)state;
    struct fetch_params params = {.depth = 4};
    struct fetch *fetch;
    char note[256];
    struct err err = {0};
    assert_int_equal(fetch_open("auto", &params, &fetch, note, &err), 0);
    if (strcmp(fetch_engine(fetch), "uring") != 0)
        assert_non_null(strstr(note, "io_uring"));
    else
        assert_string_equal(note, "");
    fetch_close(fetch);
    assert_int_equal(fetch_open("urnig", &params, &fetch, note, &err), -EINVAL);
    assert_null(fetch);
    assert_non_null(strstr(err.text, "auto uring pool"));
    snprintf(params.faulty, sizeof params.faulty, "dealy_us=1");
    assert_int_equal(fetch_open("auto", &params, &fetch, note, &err), -EINVAL);
    assert_non_null(strstr(err.text, "dealy_us=1"));
    fetch_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),      cmocka_unit_test(test_classes),
        cmocka_unit_test(test_changed),   cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_cold),      cmocka_unit_test(test_depth),
        cmocka_unit_test(test_close),     cmocka_unit_test(test_written_meanwhile),
        cmocka_unit_test(test_forbidden), cmocka_unit_test(test_faulty),
        cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests(tests, make_places, remove_places);
}
