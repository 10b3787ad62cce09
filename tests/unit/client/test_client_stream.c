/* A stream of a living daemon: order, contents, references, ends, waits, threads, signals and
 * forks. */
#include "tests/unit/client/client_rig.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void test_order_and_contents(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 0, 0);
    struct spdl_stream_info info;
    spdl_stream_info(rig.stream, &info);
    assert_int_equal(info.samples, FAKE_STEPS * FAKE_ROWS);
    assert_int_equal(info.steps_per_epoch, FAKE_STEPS);
    assert_int_equal(info.seed, 99);
    assert_string_equal(info.plan_id, "0123456789abcdef0123456789abcdef");
    assert_string_equal(info.warning, "a warning");
    assert_int_equal(rig.fake.opens[0].seed, 31);
    for (int i = 0; i < 300; i++)
        rig_take(&rig);
    rig_fini(&rig);
}

static void test_views(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 0, 0);
    struct spdl_batch *batch;
    for (int i = 0; i < 3; i++)
        rig_take(&rig);
    assert_int_equal(spdl_next(rig.stream, 10.0, &batch), 0);
    struct spdl_tensor t;
    assert_int_equal(spdl_batch_tensor(batch, 0, &t), 0);
    assert_string_equal(t.name, "image");
    assert_int_equal(t.dtype, SPDL_UINT8);
    assert_int_equal(t.dims, 4);
    const uint64_t shape[] = {FAKE_ROWS, 2, 2, 3};
    const int64_t strides[] = {12, 6, 3, 1};
    assert_memory_equal(t.shape, shape, sizeof(shape));
    assert_memory_equal(t.strides, strides, sizeof(strides));
    assert_int_equal(t.bytes, FAKE_ROWS * FAKE_IMAGE_BYTES);
    assert_int_equal((uintptr_t)t.data % 256, 0);
    assert_int_equal(spdl_batch_tensor(batch, 1, &t), 0);
    assert_int_equal(t.dims, 1);
    assert_int_equal(t.strides[0], 1);
    int64_t labels[FAKE_ROWS];
    memcpy(labels, t.data, sizeof(labels));
    assert_int_equal(labels[2], 32);
    assert_int_equal(spdl_batch_tensor(batch, 2, &t), -ENOENT);
    assert_int_equal(spdl_batch_find(batch, "nothing", &t), -ENOENT);
    struct spdl_row row;
    assert_int_equal(spdl_batch_row(batch, FAKE_ROWS, &row), -ERANGE);
    assert_int_equal(spdl_batch_row(batch, 0, &row), 0);
    assert_int_equal(row.id, 9);
    assert_true(row.valid && row.has_draws && row.flipped);
    assert_int_equal(row.crop[3], 4);
    assert_null(row.failed_key);
    assert_string_equal(row.failed_class, "");
    assert_string_equal(row.message, "");
    assert_int_equal(spdl_batch_row(batch, 1, &row), 0);
    assert_false(row.valid);
    assert_memory_equal(row.failed_key, "k/0-3-1", row.failed_key_bytes);
    assert_string_equal(row.failed_class, "TRUNCATED");
    assert_string_equal(row.message, "ends early");
    struct spdl_batch_info info;
    spdl_batch_info(batch, &info);
    assert_int_equal(info.errors, 1);
    assert_int_equal(info.valid, FAKE_ROWS - 1);
    assert_true(info.publish_ns > 0);
    spdl_batch_unref(batch);
    rig_fini(&rig);
}

static void test_references(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 0, 0);
    struct spdl_batch *held[4], *more;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(spdl_next(rig.stream, 10.0, &held[i]), 0);
        rig_check(&rig, held[i]);
    }
    assert_int_equal(spdl_next(rig.stream, 10.0, &more), -ENOBUFS);
    assert_string_equal(spdl_stream_error_class(rig.stream), "RESOURCE");
    assert_null(more);
    char why[256];
    assert_int_equal(spdl_why(rig.stream, why, sizeof(why)), 0);
    assert_string_equal(why, "all 4 slots are held by this process: it must drop a batch");
    /* The third goes back first, and only with its last reference. */
    assert_ptr_equal(spdl_batch_ref(held[2]), held[2]);
    spdl_batch_unref(held[2]);
    assert_int_equal(spdl_next(rig.stream, 10.0, &more), -ENOBUFS);
    assert_int_equal(rig.fake.releases, 0);
    spdl_batch_unref(held[2]);
    assert_int_equal(spdl_next(rig.stream, 10.0, &held[2]), 0);
    rig_check(&rig, held[2]);
    assert_int_equal(fake_await(&rig.fake, &rig.fake.releases, 1), 1);
    for (int i = 3; i >= 0; i--)
        spdl_batch_unref(held[i]);
    spdl_batch_unref(NULL);
    for (int i = 0; i < 10; i++)
        rig_take(&rig);
    rig_fini(&rig);
}

static void test_ends(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 0, 5);
    struct spdl_batch *batch;
    for (int i = 0; i < 5; i++)
        rig_take(&rig);
    for (int i = 0; i < 3; i++)
        assert_int_equal(spdl_next(rig.stream, -1.0, &batch), -ENODATA);
    assert_string_equal(spdl_stream_error_class(rig.stream), "");
    rig_fini(&rig);

    rig_init(&rig);
    rig.fake.end_code = -EIO;
    rig.fake.end_after = 3;
    fake_start(&rig.fake);
    assert_int_equal(rig_connect(&rig, 60), 0);
    assert_int_equal(rig_open(&rig, 0), 0);
    for (int i = 0; i < 3; i++)
        rig_take(&rig);
    assert_int_equal(spdl_next(rig.stream, -1.0, &batch), -EIO);
    assert_string_equal(spdl_stream_error(rig.stream), "the storage does not answer");
    assert_string_equal(spdl_stream_error_class(rig.stream), "TIMEOUT");
    fake_kill(&rig.fake); /* an end is an end: nobody is waited for */
    assert_int_equal(spdl_next(rig.stream, -1.0, &batch), -EIO);
    rig_fini(&rig);
}

static void test_waits(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.fake.allowed = 1;
    fake_start(&rig.fake);
    assert_int_equal(rig_connect(&rig, 0), 0);
    assert_int_equal(rig_open(&rig, 0), 0);
    rig_take(&rig);
    struct spdl_batch *batch;
    assert_int_equal(spdl_next(rig.stream, 0.0, &batch), -EAGAIN);
    double begin = rig_now();
    assert_int_equal(spdl_next(rig.stream, 0.05, &batch), -ETIMEDOUT);
    double took = rig_now() - begin;
    assert_true(took >= 0.05 && took < 5.0);
    assert_string_equal(spdl_stream_error_class(rig.stream), "TIMEOUT");
    assert_int_equal(spdl_next(rig.stream, (double)NAN, &batch), -EINVAL);
    char why[512];
    assert_int_equal(spdl_why(rig.stream, why, sizeof(why)), 0);
    assert_string_equal(why, "reads of photos; most of the time went to reads (75 %): 0 of 3 rows "
                             "are there; raise fetch.depth");
    assert_int_equal(spdl_why(rig.stream, why, 6), 0);
    assert_string_equal(why, "reads");
    int fd = spdl_stream_fd(rig.stream);
    assert_true(fd >= 0);
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, 0), 0);
    fake_allow(&rig.fake, 1);
    assert_int_equal(poll(&poll_fd, 1, 10000), 1);
    assert_int_equal(spdl_next(rig.stream, 0.0, &batch), 0);
    rig_check(&rig, batch);
    spdl_batch_unref(batch);
    assert_int_equal(spdl_next(rig.stream, 0.0, &batch), -EAGAIN);
    assert_int_equal(poll(&poll_fd, 1, 0), 0);
    rig_fini(&rig);
}

/* A batch held over close stays readable; then its memory goes, and the daemon hears of it. */
static void test_close_with_batch(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 0, 0);
    struct spdl_batch *batch;
    assert_int_equal(spdl_next(rig.stream, 10.0, &batch), 0);
    int maps = rig_map_count();
    spdl_close(rig.stream);
    rig.stream = NULL;
    spdl_disconnect(rig.connection);
    rig.connection = NULL;
    assert_int_equal(fake_await(&rig.fake, &rig.fake.closes, 1), 1);
    assert_int_equal(rig_map_count(), maps);
    rig_check(&rig, batch);
    spdl_batch_unref(batch);
    assert_int_equal(fake_await(&rig.fake, &rig.fake.unmapped, 1), 1);
    assert_int_equal(rig.fake.releases, 0);
    assert_true(rig_map_count() < maps);
    rig_fini(&rig);
}

static void test_open_and_close_often(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 0, 0);
    rig_take(&rig);
    int fds = 0, maps = 0;
    for (int i = 0; i < 100; i++) {
        spdl_close(rig.stream);
        rig.stream = NULL;
        assert_true(fake_await(&rig.fake, &rig.fake.unmapped, (uint64_t)i + 1) > 0);
        fake_kill(&rig.fake);
        fake_start(&rig.fake);
        if (i == 10) {
            fds = rig_fd_count();
            maps = rig_map_count();
        }
        if (i == 99) {
            assert_int_equal(rig_fd_count(), fds);
            assert_int_equal(rig_map_count(), maps);
        }
        assert_int_equal(rig_open(&rig, 0), 0);
        rig.next = 0;
        rig_take(&rig);
    }
    rig_fini(&rig);
}

struct drain {
    struct rig *rig;
    _Atomic uint64_t *seen;
    uint64_t limit;
};

static void *drain_thread(void *argument)
{
    struct drain *drain = argument;
    for (;;) {
        struct spdl_batch *batch;
        if (spdl_next(drain->rig->stream, 20.0, &batch) != 0)
            return NULL;
        struct spdl_batch_info info;
        spdl_batch_info(batch, &info);
        atomic_fetch_add(&drain->seen[info.sequence], 1);
        spdl_batch_unref(batch);
    }
}

static void test_threads(void **state)
{
    (void)state;
    enum { LIMIT = 2000, THREADS = 4 };
    static _Atomic uint64_t seen[LIMIT];
    struct rig rig;
    rig_up(&rig, 0, LIMIT);
    struct drain drain = {&rig, seen, LIMIT};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, drain_thread, &drain), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < LIMIT; i++)
        assert_int_equal(atomic_load(&seen[i]), 1);
    rig_fini(&rig);
}

static void on_signal(int number)
{
    (void)number;
}

struct wait {
    struct spdl_stream *stream;
    _Atomic int rc;
};

static void *wait_thread(void *argument)
{
    struct wait *wait = argument;
    struct spdl_batch *batch;
    atomic_store(&wait->rc, spdl_next(wait->stream, -1.0, &batch));
    return NULL;
}

static void test_signal(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.fake.allowed = 0;
    fake_start(&rig.fake);
    assert_int_equal(rig_connect(&rig, 60), 0);
    assert_int_equal(rig_open(&rig, 0), 0);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
    sigaction(SIGUSR1, &action, &before);
    struct wait wait = {rig.stream, 1};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_thread, &wait), 0);
    while (atomic_load(&wait.rc) == 1) {
        pthread_kill(thread, SIGUSR1);
        struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
    }
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&wait.rc), -EINTR);
    sigaction(SIGUSR1, &before, NULL);
    fake_allow(&rig.fake, -1);
    rig_take(&rig);
    rig_fini(&rig);
}

static int child_sees_fork(struct rig *rig, struct spdl_batch *batch)
{
    struct spdl_batch *other;
    struct spdl_tensor tensor;
    struct spdl_row row;
    struct spdl_batch_info info;
    struct spdl_stream *stream;
    char why[128];
    struct spdl_open_options options = {.options_bytes = sizeof(options), .dataset = "photos"};
    int good = spdl_next(rig->stream, 1.0, &other) == -ESTALE;
    good &= spdl_batch_tensor(batch, 0, &tensor) == -ESTALE;
    good &= spdl_batch_row(batch, 0, &row) == -ESTALE;
    good &= spdl_open(rig->connection, &options, &stream) == -ESTALE;
    good &= spdl_why(rig->stream, why, sizeof(why)) == -ESTALE;
    good &= spdl_stream_fd(rig->stream) == -1;
    good &= strcmp(spdl_stream_error_class(rig->stream), "FORKED") == 0;
    good &= strstr(spdl_connection_error(rig->connection), "fork") != NULL;
    spdl_batch_info(batch, &info);
    good &= info.rows == 0;
    spdl_batch_unref(batch); /* none of these may reach the daemon */
    spdl_close(rig->stream);
    spdl_disconnect(rig->connection);
    return good;
}

static void test_fork(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 0, 0);
    struct spdl_batch *batch;
    assert_int_equal(spdl_next(rig.stream, 10.0, &batch), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(child_sees_fork(&rig, batch) ? 0 : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    rig_check(&rig, batch);
    spdl_batch_unref(batch);
    for (int i = 0; i < 20; i++)
        rig_take(&rig);
    assert_int_equal(rig.fake.closes, 0);
    rig_fini(&rig);
}

/* In a process that may only read, write and exit: a batch that is ready comes without any system
 * call. */
static void test_no_system_call(void **state)
{
    (void)state;
    if (RIG_SANITIZED)
        skip();
    struct rig rig;
    rig_init(&rig);
    fake_start(&rig.fake);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct spdl_batch *batch;
        if (rig_connect(&rig, 0) < 0 || rig_open(&rig, 0) < 0 ||
            spdl_next(rig.stream, 10.0, &batch) < 0)
            _exit(2);
        char go;
        if (read(ready[0], &go, 1) != 1)
            _exit(3);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
            syscall(SYS_exit, 77);
        int good = 1;
        for (int i = 0; i < 3; i++) {
            good &= spdl_next(rig.stream, 10.0, &batch) == 0;
            struct spdl_batch_info info;
            spdl_batch_info(batch, &info);
            good &= info.sequence == (uint64_t)i + 1 && info.wait_ns == 0;
        }
        syscall(SYS_exit, good ? 0 : 1);
    }
    int status;
    assert_true(fake_await(&rig.fake, &rig.fake.published, 4) >= 4);
    assert_int_equal(write(ready[1], "g", 1), 1);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        rig_fini(&rig);
        skip();
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    rig_fini(&rig);
}

static void test_connect_errors(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    assert_int_equal(rig_connect(&rig, 0), -ENOENT);
    assert_non_null(strstr(spdl_connection_error(rig.connection), rig.socket));
    assert_int_equal(rig_open(&rig, 0), -EPIPE); /* a connection that was not made can open later */
    spdl_disconnect(rig.connection);
    rig.connection = NULL;
    fake_start(&rig.fake);
    fake_kill(&rig.fake);
    assert_int_equal(rig_connect(&rig, 0), -ECONNREFUSED);
    spdl_disconnect(rig.connection);
    rig.connection = NULL;
    fake_start(&rig.fake);
    struct {
        struct spdl_connect_options options;
        long later;
    } larger = {.options = {.options_bytes = sizeof(larger), .socket = rig.socket}};
    assert_int_equal(spdl_connect(&larger.options, &rig.connection), 0);
    spdl_disconnect(rig.connection);
    larger.later = 1;
    assert_int_equal(spdl_connect(&larger.options, &rig.connection), -EINVAL);
    spdl_disconnect(rig.connection);
    assert_int_equal(rig_connect(&rig, 0), 0);
    struct spdl_open_options options = {.options_bytes = sizeof(options)};
    assert_int_equal(spdl_open(rig.connection, &options, &rig.stream), -EINVAL);
    rig.fake.refuse_code = -ENOENT;
    assert_int_equal(rig_open(&rig, 0), -ENOENT);
    assert_string_equal(spdl_connection_error(rig.connection), "the fake refuses");
    assert_null(rig.stream);
    rig_fini(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_contents),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_close_with_batch),
        cmocka_unit_test(test_open_and_close_often),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_signal),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_no_system_call),
        cmocka_unit_test(test_connect_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
