/* Daemons that die, stop, come back, come back changed, or do not come back: the caller sees a
 * pause, its exact next batch, or a sentence. */
#include "tests/unit/client/client_rig.h"

#include <pthread.h>
#include <stdatomic.h>

/* Killed with batches published and not taken: these come first, then the new daemon goes on behind
 * them. */
static void test_goes_on(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 60, 100);
    rig_take(&rig);
    assert_true(fake_await(&rig.fake, &rig.fake.published, 5) >= 5);
    fake_kill(&rig.fake);
    for (int i = 0; i < 4; i++)
        rig_take(&rig);
    fake_start(&rig.fake);
    for (int i = 0; i < 95; i++)
        rig_take(&rig);
    assert_int_equal(rig.fake.open_count, 2);
    const struct fake_open *again = &rig.fake.opens[1];
    assert_string_equal(again->state, "fake:0:5");
    assert_string_equal(again->dataset, "photos");
    assert_int_equal(again->limit, 95);
    assert_int_equal(again->batch, FAKE_ROWS);
    assert_false(again->has_seed);
    struct spdl_batch *batch;
    assert_int_equal(spdl_next(rig.stream, 10.0, &batch), -ENODATA);
    fake_kill(&rig.fake);
    assert_int_equal(spdl_next(rig.stream, 10.0, &batch), -ENODATA); /* also without a daemon */
    rig_fini(&rig);
}

/* Nothing was given out yet: the original place is asked for again, with its seed. */
static void test_before_the_first(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.fake.allowed = 0;
    fake_start(&rig.fake);
    assert_int_equal(rig_connect(&rig, 60), 0);
    struct spdl_open_options options = {.options_bytes = sizeof(options),
                                        .dataset = "photos",
                                        .batch = FAKE_ROWS,
                                        .has_seed = 1,
                                        .seed = 8,
                                        .epoch = 1,
                                        .step = 2};
    assert_int_equal(spdl_open(rig.connection, &options, &rig.stream), 0);
    fake_kill(&rig.fake);
    rig.fake.allowed = -1;
    fake_start(&rig.fake);
    struct spdl_batch *batch;
    assert_int_equal(spdl_next(rig.stream, 10.0, &batch), 0);
    struct spdl_batch_info info;
    spdl_batch_info(batch, &info);
    assert_int_equal(info.epoch, 1);
    assert_int_equal(info.step, 2);
    assert_int_equal(info.sequence, 0);
    spdl_batch_unref(batch);
    assert_int_equal(rig.fake.open_count, 2);
    assert_int_equal(rig.fake.opens[1].step, 2);
    assert_int_equal(rig.fake.opens[1].seed, 8);
    rig_fini(&rig);
}

static void test_not_waited_for(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 0, 0);
    rig_take(&rig);
    assert_true(fake_await(&rig.fake, &rig.fake.published, 5) >= 5);
    fake_kill(&rig.fake);
    for (int i = 0; i < 4; i++)
        rig_take(&rig);
    struct spdl_batch *batch;
    for (int i = 0; i < 2; i++) {
        double begin = rig_now();
        assert_int_equal(spdl_next(rig.stream, -1.0, &batch), -EPIPE);
        assert_true(rig_now() - begin < 5.0);
        assert_string_equal(spdl_stream_error_class(rig.stream), "DAEMON_GONE");
        assert_non_null(strstr(spdl_stream_error(rig.stream), "the daemon is gone"));
    }
    rig_fini(&rig);
}

static void test_window(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 0.3, 0);
    rig_take(&rig);
    fake_kill(&rig.fake);
    struct spdl_batch *batch;
    int rc;
    while ((rc = spdl_next(rig.stream, 0.0, &batch)) == 0) {
        rig_check(&rig, batch);
        spdl_batch_unref(batch);
    }
    assert_int_equal(rc, -EAGAIN);
    assert_int_equal(spdl_stream_fd(rig.stream), -1);
    char why[256];
    assert_int_equal(spdl_why(rig.stream, why, sizeof(why)), 0);
    assert_non_null(strstr(why, "the daemon is gone: connection refused at "));
    assert_non_null(strstr(why, "trying again for 1 s more"));
    assert_int_equal(spdl_next(rig.stream, 0.05, &batch), -ETIMEDOUT);
    double begin = rig_now();
    assert_int_equal(spdl_next(rig.stream, 20.0, &batch), -EPIPE);
    assert_true(rig_now() - begin < 10.0);
    assert_non_null(strstr(spdl_stream_error(rig.stream), "waited 0.3 s"));
    fake_start(&rig.fake); /* asked again, it is looked for again */
    for (int i = 0; i < 20; i++)
        rig_take(&rig);
    rig_fini(&rig);
}

static void test_changed(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 60, 0);
    rig_take(&rig);
    fake_kill(&rig.fake);
    rig.fake.plan_id = "ffffffffffffffffffffffffffffffff";
    fake_start(&rig.fake);
    struct spdl_batch *batch;
    int rc;
    while ((rc = spdl_next(rig.stream, 10.0, &batch)) == 0) {
        rig_check(&rig, batch);
        spdl_batch_unref(batch);
    }
    assert_int_equal(rc, -ESTALE);
    assert_string_equal(spdl_stream_error_class(rig.stream), "CHANGED");
    assert_int_equal(spdl_next(rig.stream, 10.0, &batch), -ESTALE); /* and stays so */
    rig_fini(&rig);

    rig_up(&rig, 60, 0);
    rig_take(&rig);
    fake_kill(&rig.fake);
    rig.fake.refuse_code = -ESTALE;
    fake_start(&rig.fake);
    while ((rc = spdl_next(rig.stream, 10.0, &batch)) == 0)
        spdl_batch_unref(batch);
    assert_int_equal(rc, -ESTALE);
    assert_string_equal(spdl_stream_error(rig.stream), "the fake refuses");
    rig_fini(&rig);
}

/* What may pass is tried again; when it does not pass, it is the answer. */
static void test_refused_for_a_while(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 60, 0);
    rig_take(&rig);
    fake_kill(&rig.fake);
    rig.fake.refuse_code = -ENOENT;
    rig.fake.refuse_count = 3;
    fake_start(&rig.fake);
    for (int i = 0; i < 20; i++)
        rig_take(&rig);
    assert_int_equal(rig.fake.open_count, 5);
    rig_fini(&rig);

    rig_up(&rig, 0.2, 0);
    rig_take(&rig);
    fake_kill(&rig.fake);
    rig.fake.refuse_code = -ENOSPC;
    fake_start(&rig.fake);
    struct spdl_batch *batch;
    int rc;
    while ((rc = spdl_next(rig.stream, 20.0, &batch)) == 0)
        spdl_batch_unref(batch);
    assert_int_equal(rc, -ENOSPC);
    assert_string_equal(spdl_stream_error(rig.stream), "the fake refuses");
    rig_fini(&rig);
}

/* A daemon that dies each time it has opened the stream is given up, not tried for ever. */
static void test_dies_on_open(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 0.4, 0);
    rig_take(&rig);
    fake_kill(&rig.fake);
    rig.fake.die_after_open = 1;
    rig.fake.allowed = 0;
    fake_start(&rig.fake);
    struct spdl_batch *batch;
    int rc;
    while ((rc = spdl_next(rig.stream, 20.0, &batch)) == 0)
        spdl_batch_unref(batch);
    assert_int_equal(rc, -EPIPE);
    assert_non_null(strstr(spdl_stream_error(rig.stream), "it closed the connection"));
    assert_true(rig.fake.open_count > 2);
    assert_true(rig.fake.open_count < 100); /* and not as fast as it can */
    rig_fini(&rig);
}

/* Batches of a dead daemon stay readable beside those of the new one. */
static void test_old_batches(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 60, 0);
    struct spdl_batch *old[4], *young[4], *more;
    struct rig at_old = rig;
    int maps = rig_map_count();
    for (int i = 0; i < 4; i++)
        assert_int_equal(spdl_next(rig.stream, 10.0, &old[i]), 0);
    fake_kill(&rig.fake);
    rig.next = 4;
    assert_int_equal(spdl_next(rig.stream, 0.01, &more), -ENOBUFS); /* not noticed yet */
    spdl_batch_unref(old[0]);
    assert_int_equal(spdl_next(rig.stream, 0.01, &more), -ETIMEDOUT);
    fake_start(&rig.fake);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(spdl_next(rig.stream, 10.0, &young[i]), 0);
        rig_check(&rig, young[i]);
    }
    assert_int_equal(spdl_next(rig.stream, 10.0, &more), -ENOBUFS);
    at_old.next = 1;
    for (int i = 1; i < 4; i++) {
        rig_check(&at_old, old[i]);
        spdl_batch_unref(old[i]);
    }
    assert_int_equal(rig.fake.releases, 0); /* those were not this daemon's */
    for (int i = 0; i < 4; i++)
        spdl_batch_unref(young[i]);
    for (int i = 0; i < 30; i++)
        rig_take(&rig);
    assert_int_equal(rig_map_count(), maps);
    rig_fini(&rig);
}

static void test_stopped(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 60, 0);
    rig_take(&rig);
    fake_pause(&rig.fake, 1);
    struct spdl_batch *batch;
    int rc;
    double begin = rig_now();
    while ((rc = spdl_next(rig.stream, 0.2, &batch)) == 0) {
        rig_check(&rig, batch);
        spdl_batch_unref(batch);
    }
    assert_int_equal(rc, -ETIMEDOUT);
    assert_true(rig_now() - begin < 5.0);
    char why[256];
    begin = rig_now();
    assert_int_equal(spdl_why(rig.stream, why, sizeof(why)), 0);
    assert_true(rig_now() - begin < 2.0);
    assert_non_null(strstr(why, "does not answer"));
    fake_pause(&rig.fake, 0);
    for (int i = 0; i < 20; i++)
        rig_take(&rig);
    rig_fini(&rig);
}

/* Releases that a stopped daemon does not take wait in the client, and none is lost. */
static void test_releases_wait(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 60, 0);
    for (int round = 0; round < 200; round++) {
        fake_pause(&rig.fake, round % 3 == 1);
        struct spdl_batch *batch;
        int rc = spdl_next(rig.stream, round % 3 == 1 ? 0.001 : 10.0, &batch);
        if (rc == 0) {
            rig_check(&rig, batch);
            spdl_batch_unref(batch);
        }
        assert_true(rc == 0 || rc == -ETIMEDOUT);
    }
    fake_pause(&rig.fake, 0);
    assert_int_equal(fake_await(&rig.fake, &rig.fake.releases, rig.next), rig.next);
    rig_fini(&rig);
}

struct killer {
    struct rig *rig;
    _Atomic int is_done;
    uint32_t seed;
};

static void *killer_thread(void *argument)
{
    struct killer *killer = argument;
    while (!atomic_load(&killer->is_done)) {
        killer->seed = killer->seed * 1664525u + 1013904223u;
        struct timespec wait = {.tv_nsec = (long)(killer->seed >> 8) % 3000000};
        nanosleep(&wait, NULL);
        fake_kill(&killer->rig->fake);
        fake_start(&killer->rig->fake);
    }
    return NULL;
}

static uint32_t opens(struct rig *rig)
{
    pthread_mutex_lock(&rig->fake.lock);
    uint32_t count = rig->fake.open_count;
    pthread_mutex_unlock(&rig->fake.lock);
    return count;
}

/* Killed and started again at random moments, some hundred times: every batch comes once and in
 * order. */
static void test_random_kills(void **state)
{
    (void)state;
    struct rig rig;
    rig_up(&rig, 60, 0);
    struct killer killer = {.rig = &rig, .seed = 7};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, killer_thread, &killer), 0);
    double end = rig_now() + 3.0;
    /* On a loaded machine a life of the daemon gives many batches: kills count, not time. */
    while (rig_now() < end || rig.next < 300 || opens(&rig) <= 20)
        rig_take(&rig);
    atomic_store(&killer.is_done, 1);
    pthread_join(thread, NULL);
    for (int i = 0; i < 20; i++)
        rig_take(&rig);
    rig_fini(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goes_on),        cmocka_unit_test(test_before_the_first),
        cmocka_unit_test(test_not_waited_for), cmocka_unit_test(test_window),
        cmocka_unit_test(test_changed),        cmocka_unit_test(test_refused_for_a_while),
        cmocka_unit_test(test_dies_on_open),   cmocka_unit_test(test_old_batches),
        cmocka_unit_test(test_stopped),        cmocka_unit_test(test_releases_wait),
        cmocka_unit_test(test_random_kills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
