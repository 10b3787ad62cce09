/* Questions on a connection, as spdlctl asks them: answers, the daemon's errors, a daemon that was
 * started again in between. */
#include "tests/unit/client/client_rig.h"

#include "client/client_query.h"

static int ask_why(struct spdl_connection *connection, Spdl__V1__ToClient **reply)
{
    Spdl__V1__WhyRequest why = SPDL__V1__WHY_REQUEST__INIT;
    why.all = 1;
    Spdl__V1__ToDaemon request = SPDL__V1__TO_DAEMON__INIT;
    request.body_case = SPDL__V1__TO_DAEMON__BODY_WHY;
    request.why = &why;
    return spdl_client_query(connection, &request, reply);
}

static int ask_status(struct spdl_connection *connection, Spdl__V1__ToClient **reply)
{
    Spdl__V1__StatusRequest status = SPDL__V1__STATUS_REQUEST__INIT;
    Spdl__V1__ToDaemon request = SPDL__V1__TO_DAEMON__INIT;
    request.body_case = SPDL__V1__TO_DAEMON__BODY_STATUS;
    request.status = &status;
    return spdl_client_query(connection, &request, reply);
}

static void expect_answer(struct rig *rig)
{
    Spdl__V1__ToClient *reply = NULL;
    assert_int_equal(ask_why(rig->connection, &reply), 0);
    assert_non_null(reply);
    if (!reply)
        return;
    assert_int_equal(reply->body_case, SPDL__V1__TO_CLIENT__BODY_WHY);
    assert_int_equal(reply->why->n_streams, 2);
    spdl__v1__to_client__free_unpacked(reply, NULL);
}

static void test_answers(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    fake_start(&rig.fake);
    assert_int_equal(rig_connect(&rig, 0), 0);
    struct spdl_client_daemon daemon;
    spdl_client_daemon(rig.connection, &daemon);
    assert_int_equal(daemon.pid, getpid());
    assert_int_equal(daemon.generation, 1);
    assert_string_equal(daemon.version, "fake");
    assert_string_equal(daemon.socket, rig.socket);
    assert_false(daemon.is_private || daemon.was_started);
    for (int i = 0; i < 3; i++)
        expect_answer(&rig);
    Spdl__V1__ToClient *reply;
    assert_int_equal(ask_status(rig.connection, &reply), -ENOTSUP);
    assert_null(reply);
    assert_string_equal(spdl_connection_error(rig.connection), "the fake does not know this");
    assert_string_equal(spdl_client_error_class(rig.connection), "");
    expect_answer(&rig); /* an error is an answer like another */
    assert_int_equal(rig.fake.hellos, 1);
    rig_fini(&rig);
}

static void test_daemon_started_again(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    fake_start(&rig.fake);
    assert_int_equal(rig_connect(&rig, 0), 0);
    expect_answer(&rig);
    fake_kill(&rig.fake);
    Spdl__V1__ToClient *reply;
    assert_int_equal(ask_why(rig.connection, &reply), -ECONNREFUSED);
    assert_string_equal(spdl_client_error_class(rig.connection), "DAEMON_GONE");
    assert_non_null(strstr(spdl_connection_error(rig.connection), rig.socket));
    fake_start(&rig.fake);
    expect_answer(&rig);
    struct spdl_client_daemon daemon;
    spdl_client_daemon(rig.connection, &daemon);
    assert_int_equal(daemon.generation, 2);
    rig_fini(&rig);
}

/* What cannot be read ends the connection, not the program; the next question connects again. */
static void test_garbage(void **state)
{
    (void)state;
    static const enum fake_lie lies[] = {FAKE_LIE_GARBAGE, FAKE_LIE_OVERSIZED};
    for (size_t i = 0; i < 2; i++) {
        struct rig rig;
        rig_init(&rig);
        rig.fake.lie = lies[i];
        fake_start(&rig.fake);
        assert_int_equal(rig_connect(&rig, 0), 0);
        Spdl__V1__ToClient *reply;
        assert_int_equal(ask_why(rig.connection, &reply), -EPROTO);
        fake_kill(&rig.fake);
        rig.fake.lie = FAKE_TRUTH;
        fake_start(&rig.fake);
        expect_answer(&rig);
        rig_fini(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_daemon_started_again),
        cmocka_unit_test(test_garbage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
