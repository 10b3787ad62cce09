/* The conductor's core and samples that fail, case by case: substitutes, what is counted, and what
 * ends a stream. The simulator (test_core_sim) does the rest. */
#include <errno.h>
#include <string.h>

#include "tests/pipeline/core_case.h"

static struct pipeline_stream_params params_with(uint32_t policy, uint64_t batch)
{
    struct pipeline_stream_params params = stream_params(100, batch);
    params.policy = policy;
    return params;
}

static struct pipeline_row_view row_of(uint32_t stream, uint32_t slot, uint32_t row)
{
    struct pipeline_row_view view;
    pipeline_core_row(core, stream, slot, row, &view);
    return view;
}

/* A sample fails by its lookup, its first substitute too; another in its read, one in its decode.
 * Each row shows the next that is good, at its own position. */
static void test_substitutes(void **state)
{
    (void)state;
    core_make(1 << 20, 64, 64);
    limited_position = 1;
    limited_attempts = 2;
    struct pipeline_stream_params params = params_with(PIPELINE_POLICY_SUBSTITUTE, 4);
    params.limit = 1;
    uint32_t stream = open_ready(&params);
    assert_int_equal(count_of(PIPELINE_COMMAND_FETCH), 4);
    assert_int_equal(find(PIPELINE_COMMAND_FETCH, 1)->id, 2101);
    assert_int_equal(find(PIPELINE_COMMAND_FETCH, 1)->position, 1);
    struct pipeline_event event = {.kind = PIPELINE_EVENT_FETCHED,
                                   .ticket = commands[2].ticket,
                                   .class_number = SPDL_CLASS_IO_ERROR};
    struct pipeline_row_ref ref;
    assert_int_equal(pipeline_core_feed(core, &event, &ref), 0);
    assert_int_equal(ref.id, 102); /* what failed, not what comes instead */
    assert_int_equal(ref.attempt, 0);
    feed_done(PIPELINE_EVENT_FETCHED, commands[0].ticket, SPDL_CLASS_OK);
    feed_done(PIPELINE_EVENT_FETCHED, commands[1].ticket, SPDL_CLASS_OK);
    feed_done(PIPELINE_EVENT_FETCHED, commands[3].ticket, SPDL_CLASS_OK);
    look();
    assert_int_equal(count_of(PIPELINE_COMMAND_FETCH), 1);
    assert_int_equal(find(PIPELINE_COMMAND_FETCH, 0)->id, 1102);
    assert_int_equal(find(PIPELINE_COMMAND_FETCH, 0)->row, 2);
    assert_int_equal(find(PIPELINE_COMMAND_FETCH, 0)->position, 2);
    uint64_t read = find(PIPELINE_COMMAND_FETCH, 0)->ticket;
    feed_done(PIPELINE_EVENT_DECODED, find(PIPELINE_COMMAND_DECODE, 0)->ticket, SPDL_CLASS_CORRUPT);
    feed_done(PIPELINE_EVENT_DECODED, find(PIPELINE_COMMAND_DECODE, 1)->ticket, SPDL_CLASS_OK);
    feed_done(PIPELINE_EVENT_DECODED, find(PIPELINE_COMMAND_DECODE, 2)->ticket, SPDL_CLASS_OK);
    feed_done(PIPELINE_EVENT_FETCHED, read, SPDL_CLASS_OK);
    look();
    while (count_of(PIPELINE_COMMAND_PUBLISH) == 0)
        assert_true(finish_all());
    static const struct {
        uint64_t id, failed_id;
        uint32_t attempt;
        enum spdl_class class_number;
    } right[] = {{1100, 100, 1, SPDL_CLASS_CORRUPT},
                 {2101, 101, 2, SPDL_CLASS_LIMIT},
                 {1102, 102, 1, SPDL_CLASS_IO_ERROR},
                 {103, 103, 0, SPDL_CLASS_OK}};
    for (uint32_t r = 0; r < 4; r++) {
        struct pipeline_row_view row = row_of(stream, 0, r);
        assert_int_equal(row.id, right[r].id);
        assert_int_equal(row.failed_id, right[r].failed_id);
        assert_int_equal(row.attempt, right[r].attempt);
        assert_int_equal(row.class_number, right[r].class_number);
        assert_int_equal(row.position, r);
        assert_false(row.masked);
    }
    struct pipeline_stream_view view = view_of(stream);
    assert_int_equal(view.failures[SPDL_CLASS_LIMIT], 2);
    assert_int_equal(view.failures[SPDL_CLASS_CORRUPT], 1);
    assert_int_equal(view.failures[SPDL_CLASS_IO_ERROR], 1);
    assert_int_equal(view.counted_rows, 4);
    assert_int_equal(view.failed_rows, 3);
    assert_int_equal(view.consecutive_rows, 0);
    assert_int_equal(pipeline_core_arena_used(core, 0), 0);
}

/* What is short is no fault of the sample: no other is shown instead. */
static void test_shortage_is_not_substituted(void **state)
{
    (void)state;
    core_make(1 << 20, 64, 64);
    struct pipeline_stream_params params = params_with(PIPELINE_POLICY_SUBSTITUTE, 1);
    open_ready(&params);
    uint64_t ticket = commands[0].ticket;
    feed_done(PIPELINE_EVENT_FETCHED, ticket, SPDL_CLASS_RESOURCE);
    look();
    assert_int_equal(count_of(PIPELINE_COMMAND_FETCH), 0);
    assert_int_equal(count_of(PIPELINE_COMMAND_END), 1);
}

/* No substitute is good: the stream ends behind the batches before it, and nothing behind that row
 * is made any more. */
static void test_all_substitutes_fail(void **state)
{
    (void)state;
    core_make(1 << 20, 64, 64);
    limited_position = 3;
    limited_attempts = 6;
    struct pipeline_stream_params params = params_with(PIPELINE_POLICY_SUBSTITUTE, 2);
    params.slot_count = 4;
    params.max_consecutive = 5;
    uint32_t stream = open_ready(&params);
    assert_int_equal(count_of(PIPELINE_COMMAND_FETCH), 3); /* positions 0, 1 and 2 */
    finish_all();
    finish_all();
    assert_int_equal(command_count, 2);
    assert_int_equal(commands[0].kind, PIPELINE_COMMAND_PUBLISH);
    assert_int_equal(commands[1].kind, PIPELINE_COMMAND_END);
    assert_int_equal(commands[1].code, -EBADMSG);
    assert_int_equal(commands[1].class_number, SPDL_CLASS_ALL_FAILED);
    assert_int_equal(commands[1].limit, PIPELINE_LIMIT_ATTEMPTS);
    assert_int_equal(commands[1].slot, 1);
    assert_int_equal(commands[1].row, 1);
    assert_int_equal(row_of(stream, 1, 1).failed_id, 103);
    assert_true(row_of(stream, 1, 1).masked);
    assert_int_equal(view_of(stream).failures[SPDL_CLASS_LIMIT], 6);

    /* One more substitute, and it goes on. */
    params.max_consecutive = 6;
    open_ready(&params);
    assert_int_equal(count_of(PIPELINE_COMMAND_FETCH), 8);
    assert_int_equal(find(PIPELINE_COMMAND_FETCH, 3)->id, 6103);
}

/* Makes all; the rows whose position has its bit in `bad` fail in their decode. */
static void finish_with(uint64_t bad)
{
    for (bool any = true; any;) {
        struct pipeline_command due[64];
        uint32_t count = 0;
        for (uint32_t i = 0; i < command_count; i++)
            if (commands[i].kind == PIPELINE_COMMAND_FETCH ||
                commands[i].kind == PIPELINE_COMMAND_DECODE)
                due[count++] = commands[i];
        for (uint32_t i = 0; i < count; i++) {
            bool fails = due[i].kind == PIPELINE_COMMAND_DECODE && (bad >> due[i].position & 1) &&
                         due[i].id < 1000;
            feed_done(due[i].kind == PIPELINE_COMMAND_FETCH ? PIPELINE_EVENT_FETCHED
                                                            : PIPELINE_EVENT_DECODED,
                      due[i].ticket, fails ? SPDL_CLASS_TRUNCATED : SPDL_CLASS_OK);
        }
        any = count > 0;
        if (any)
            look();
    }
}

static const struct pipeline_command *end_with(uint32_t policy, uint64_t bad, uint32_t max_rate,
                                               uint32_t max_consecutive)
{
    core_free(NULL);
    core_make(1 << 20, 64, 64);
    struct pipeline_stream_params params = params_with(policy, 4);
    params.slot_count = 4;
    params.max_rate = max_rate;
    params.max_consecutive = max_consecutive;
    open_ready(&params);
    finish_with(bad);
    return count_of(PIPELINE_COMMAND_END) > 0 ? find(PIPELINE_COMMAND_END, 0) : NULL;
}

/* Ten rows before the rate is looked at; one of ten is 0.1. */
static void test_rate(void **state)
{
    (void)state;
    const uint32_t tenth = PIPELINE_RATE_UNIT / 10;
    for (uint32_t policy = PIPELINE_POLICY_MASK; policy <= PIPELINE_POLICY_SUBSTITUTE;
         policy += 2) {
        assert_null(end_with(policy, 1 << 9, tenth, 100));
        const struct pipeline_command *end = end_with(policy, 1 << 9, tenth - 1, 100);
        assert_non_null(end);
        assert_int_equal(end->limit, PIPELINE_LIMIT_RATE);
        assert_int_equal(end->class_number, SPDL_CLASS_TRUNCATED);
        assert_int_equal(end->slot, 2); /* row 9 is the tenth */
        assert_int_equal(end->row, 1);
        end =
            end_with(policy, 7, tenth, 100); /* three at once: looked at by the tenth, not before */
        assert_non_null(end);
        assert_int_equal(end->slot, 2);
        assert_int_equal(end->row, 1);
    }
}

static void test_consecutive(void **state)
{
    (void)state;
    const uint32_t all = PIPELINE_RATE_UNIT;
    for (uint32_t policy = PIPELINE_POLICY_MASK; policy <= PIPELINE_POLICY_SUBSTITUTE;
         policy += 2) {
        assert_null(end_with(policy, 0x77 << 2, all, 3)); /* three, a good one, three */
        const struct pipeline_command *end = end_with(policy, 0xf << 2, all, 3);
        assert_non_null(end);
        assert_int_equal(end->limit, PIPELINE_LIMIT_CONSECUTIVE);
        assert_int_equal(end->class_number, SPDL_CLASS_TRUNCATED);
        assert_int_equal(end->slot, 1);
        assert_int_equal(end->row, 1);
    }
    /* Not one was good from the first row on. */
    const struct pipeline_command *end = end_with(PIPELINE_POLICY_MASK, 0xff, all, 3);
    assert_non_null(end);
    assert_int_equal(end->class_number, SPDL_CLASS_ALL_FAILED);
    end = end_with(PIPELINE_POLICY_SUBSTITUTE, 0xff, all, 3); /* something was shown */
    assert_non_null(end);
    assert_int_equal(end->class_number, SPDL_CLASS_TRUNCATED);
}

/* A batch that is done and that the rank is not to have ends its stream; those before it stand. */
static void test_not_ready(void **state)
{
    (void)state;
    struct pipeline_stream_params params = stream_params(8, 2);
    struct pipeline_stream_view view;
    core_make(8192, 8, 1);
    blob_bytes = 0;
    refused_batch = 1;
    uint32_t stream = open_ready(&params);
    uint64_t tickets[4]; /* of two batches */
    for (uint32_t i = 0; i < 4; i++)
        tickets[i] = find(PIPELINE_COMMAND_DECODE, i)->ticket;
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(feed_done(PIPELINE_EVENT_DECODED, tickets[i], SPDL_CLASS_OK), 0);
        look();
        assert_int_equal(count_of(PIPELINE_COMMAND_PUBLISH), i == 1);
    }
    assert_int_equal(find(PIPELINE_COMMAND_END, 0)->class_number, SPDL_CLASS_CHANGED);
    assert_int_equal(find(PIPELINE_COMMAND_END, 0)->code, -ESTALE);
    pipeline_core_stream(core, stream, &view);
    assert_int_equal(view.published, 1);
    look();
    assert_int_equal(command_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_substitutes),          CASE(test_shortage_is_not_substituted),
        CASE(test_all_substitutes_fail), CASE(test_rate),
        CASE(test_consecutive),          CASE(test_not_ready)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
