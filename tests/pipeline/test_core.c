/* The conductor's core, case by case: opens and refusals, the way of a batch, and how streams end.
 * The simulator (test_core_sim) does the rest. */
#include <errno.h>
#include <string.h>

#include "tests/pipeline/core_case.h"

/* --- opens --- */

static void test_open_refused(void **state)
{
    (void)state;
    core_make(1 << 20, 4, 2);
    uint32_t stream = 7;
    uint64_t free_bytes = 0;
    struct pipeline_stream_params good = stream_params(100, 4), p;
    p = good, p.slot_count = 1;
    assert_int_equal(pipeline_core_open(core, &p, &stream, &free_bytes), -EINVAL);
    p = good, p.slot_count = PIPELINE_SLOTS_MAX + 1;
    assert_int_equal(pipeline_core_open(core, &p, &stream, &free_bytes), -EINVAL);
    p = good, p.worker = PIPELINE_WORKERS_MAX;
    assert_int_equal(pipeline_core_open(core, &p, &stream, &free_bytes), -EINVAL);
    p = good, p.schedule.world = 0;
    assert_int_equal(pipeline_core_open(core, &p, &stream, &free_bytes), -EINVAL);
    p = good, p.schedule.world = 3;
    assert_int_equal(pipeline_core_open(core, &p, &stream, &free_bytes), -EINVAL);
    p = good, p.schedule.batch = 0;
    assert_int_equal(pipeline_core_open(core, &p, &stream, &free_bytes), -EINVAL);
    p = good, p.schedule.batch = PIPELINE_ROWS_MAX + 1;
    assert_int_equal(pipeline_core_open(core, &p, &stream, &free_bytes), -EINVAL);
    p = good, p.max_consecutive = 0;
    assert_int_equal(pipeline_core_open(core, &p, &stream, &free_bytes), -EINVAL);
    assert_int_equal(stream, 7);

    p = good, p.memory_bytes = 6000;
    assert_int_equal(pipeline_core_open(core, &p, &stream, &free_bytes), 0);
    assert_int_equal(stream, 0);
    assert_int_equal(pipeline_core_memory_used(core), 6000);
    p.memory_bytes = 4001;
    assert_int_equal(pipeline_core_open(core, &p, &stream, &free_bytes), -ENOSPC);
    assert_int_equal(free_bytes, 4000);
    p.memory_bytes = 4000;
    assert_int_equal(pipeline_core_open(core, &p, &stream, &free_bytes), 0);
    assert_int_equal(stream, 1);
    assert_int_equal(feed_stream(PIPELINE_EVENT_UNMAPPED, 0), 0);
    look();
    assert_int_equal(command_count, 1);
    assert_int_equal(commands[0].kind, PIPELINE_COMMAND_FORGET);
    assert_int_equal(pipeline_core_memory_used(core), 4000);
}

static void test_open_many(void **state)
{
    (void)state;
    core_make(1 << 20, 4, 2);
    struct pipeline_stream_params params = stream_params(100, 4);
    params.memory_bytes = 1;
    uint32_t stream;
    uint64_t free_bytes;
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < PIPELINE_STREAMS_MAX; i++) {
            assert_int_equal(pipeline_core_open(core, &params, &stream, &free_bytes), 0);
            assert_int_equal(stream, i);
        }
        assert_int_equal(pipeline_core_open(core, &params, &stream, &free_bytes), -EMFILE);
        assert_int_equal(look(), 0); /* they wait for START */
        for (uint32_t i = 0; i < PIPELINE_STREAMS_MAX; i++)
            assert_int_equal(feed_stream(PIPELINE_EVENT_UNMAPPED, i), 0);
        assert_int_equal(look(), PIPELINE_STREAMS_MAX);
        assert_int_equal(count_of(PIPELINE_COMMAND_FORGET), PIPELINE_STREAMS_MAX);
        assert_int_equal(pipeline_core_memory_used(core), 0);
    }
    assert_int_equal(feed_stream(PIPELINE_EVENT_START, 0), -EPROTO);
    pipeline_core_destroy(NULL);
}

/* --- the way of a batch --- */

static void test_way_of_a_batch(void **state)
{
    (void)state;
    core_make(1 << 20, 64, 64);
    struct pipeline_stream_params params = stream_params(100, 4);
    uint32_t stream = open_ready(&params);
    assert_int_equal(count_of(PIPELINE_COMMAND_FETCH), 8); /* two slots of four rows */
    assert_int_equal(pipeline_core_fetching(core, 0), 8);
    assert_int_equal(pipeline_core_arena_used(core, 0), 8 * BLOB_ROOM);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(commands[i].id, 100 + i);
        assert_int_equal(commands[i].position, i);
        assert_int_equal(commands[i].slot, i / 4);
        assert_int_equal(commands[i].row, i % 4);
    }
    struct pipeline_row_ref ref;
    assert_int_equal(pipeline_core_ticket_ref(core, commands[5].ticket, &ref), 0);
    assert_int_equal(ref.slot, 1);
    assert_int_equal(ref.row, 1);
    finish_all();
    assert_int_equal(count_of(PIPELINE_COMMAND_DECODE), 8);
    assert_int_equal(pipeline_core_decoding(core, 0), 8);
    assert_int_equal(feed_release(stream, 0), -EPROTO); /* it is not published */
    finish_all();
    assert_int_equal(command_count, 2);
    assert_int_equal(find(PIPELINE_COMMAND_PUBLISH, 0)->slot, 0);
    assert_int_equal(find(PIPELINE_COMMAND_PUBLISH, 1)->slot, 1);
    assert_int_equal(pipeline_core_arena_used(core, 0), 0);
    assert_int_equal(pipeline_core_cost_ns(core, 0), 1000);
    assert_int_equal(view_of(stream).held_slots, 2);
    assert_int_equal(view_of(stream).samples, 8);
    assert_int_equal(view_of(stream).next_batch.first_position, 8);
    assert_int_equal(view_of(stream).reason, PIPELINE_REASON_RANK);

    assert_int_equal(feed_release(stream, 1), 0); /* out of order */
    assert_int_equal(feed_release(stream, 1), -EPROTO);
    assert_int_equal(feed_release(stream, 2), -EPROTO);
    look();
    assert_int_equal(count_of(PIPELINE_COMMAND_FETCH), 4);
    assert_int_equal(commands[0].slot, 1);
    assert_int_equal(commands[0].position, 8);
    assert_int_equal(feed_done(PIPELINE_EVENT_DECODED, commands[0].ticket, SPDL_CLASS_OK), -EPROTO);
    assert_int_equal(feed_done(PIPELINE_EVENT_FETCHED, commands[0].ticket, SPDL_CLASS_OK), 0);
    assert_int_equal(feed_done(PIPELINE_EVENT_FETCHED, commands[0].ticket, SPDL_CLASS_OK), -EPROTO);
    assert_int_equal(pipeline_core_ticket_ref(core, commands[0].ticket, &ref), -EPROTO);
    assert_int_equal(pipeline_core_ticket_ref(core, UINT32_MAX, &ref), -EPROTO);
}

static void test_padded_rows(void **state)
{
    (void)state;
    core_make(1 << 20, 64, 64);
    struct pipeline_stream_params params = stream_params(5, 4);
    params.schedule.last = PLAN_LAST_PAD;
    uint32_t stream = open_ready(&params);
    assert_int_equal(count_of(PIPELINE_COMMAND_FETCH), 8);
    struct pipeline_row_view row;
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(commands[4 + i].id, 100 + (4 + i) % 5); /* from the beginning again */
        pipeline_core_row(core, stream, 1, i, &row);
        assert_int_equal(row.padded, i > 0);
        assert_int_equal(row.position, 4 + i);
    }
    finish_all();
    finish_all();
    assert_int_equal(count_of(PIPELINE_COMMAND_PUBLISH), 2);
    assert_int_equal(feed_release(stream, 0), 0);
    look();
    assert_int_equal(commands[0].epoch, 1);
    assert_int_equal(commands[0].position, 0);
}

/* The last batch of an epoch has no row for this rank: it is published all the same, at once, and
 * in its turn. */
static void test_no_rows(void **state)
{
    (void)state;
    core_make(1 << 20, 64, 64);
    struct pipeline_stream_params params = stream_params(5, 4);
    params.schedule.world = 2;
    params.schedule.rank = 1;
    params.schedule.last = PLAN_LAST_PARTIAL;
    uint32_t stream = open_ready(&params);
    assert_int_equal(command_count, 2); /* two rows of batch 0; batch 1 waits for batch 0 */
    finish_all();
    finish_all();
    assert_int_equal(command_count, 2);
    assert_int_equal(commands[0].kind, PIPELINE_COMMAND_PUBLISH);
    assert_int_equal(commands[1].kind, PIPELINE_COMMAND_PUBLISH);
    struct pipeline_slot_view slot;
    pipeline_core_slot(core, stream, 1, &slot);
    assert_int_equal(slot.sequence, 1);
    assert_int_equal(slot.batch.rows, 0);
    assert_int_equal(view_of(stream).samples, 2);

    /* Nothing but such batches: each is published as soon as it is begun. */
    params.schedule.samples = 2;
    stream = open_ready(&params);
    assert_int_equal(command_count, 2);
    assert_int_equal(count_of(PIPELINE_COMMAND_PUBLISH), 2);
    assert_int_equal(feed_release(stream, 0), 0);
    assert_int_equal(look(), 1);
    pipeline_core_slot(core, stream, commands[0].slot, &slot);
    assert_int_equal(slot.sequence, 2);
}

/* --- ends --- */

static void test_limit(void **state)
{
    (void)state;
    core_make(1 << 20, 64, 64);
    struct pipeline_stream_params params = stream_params(100, 4);
    params.limit = 3;
    uint32_t stream = open_ready(&params);
    finish_all();
    finish_all();
    assert_int_equal(count_of(PIPELINE_COMMAND_PUBLISH), 2);
    assert_int_equal(feed_release(stream, 0), 0);
    assert_int_equal(feed_release(stream, 1), 0);
    look();
    assert_int_equal(count_of(PIPELINE_COMMAND_FETCH), 4); /* and not those of a fourth batch */
    finish_all();
    finish_all();
    assert_int_equal(command_count, 2);
    assert_int_equal(commands[0].kind, PIPELINE_COMMAND_PUBLISH);
    assert_int_equal(commands[1].kind, PIPELINE_COMMAND_END);
    assert_int_equal(commands[1].code, 0);
    assert_true(view_of(stream).ended);
    assert_int_equal(view_of(stream).reason, PIPELINE_REASON_NONE);
    assert_int_equal(feed_release(stream, 2), 0);
    assert_int_equal(look(), 0);
    assert_int_equal(feed_stream(PIPELINE_EVENT_CLOSE, stream), 0);
    assert_int_equal(feed_stream(PIPELINE_EVENT_CLOSE, stream), 0);
    assert_int_equal(look(), 1);
    assert_int_equal(commands[0].kind, PIPELINE_COMMAND_DETACH);
    assert_int_equal(feed_stream(PIPELINE_EVENT_UNMAPPED, stream), 0);
    assert_int_equal(look(), 0);
    assert_int_equal(feed_stream(PIPELINE_EVENT_DETACHED, stream), 0);
    assert_int_equal(look(), 1);
    assert_int_equal(commands[0].kind, PIPELINE_COMMAND_FORGET);
}

/* A row of batch 1 fails before batch 0 is done: batch 0 comes first, then the end. */
static void test_policy_fail(void **state)
{
    (void)state;
    core_make(1 << 20, 64, 64);
    struct pipeline_stream_params params = stream_params(100, 2);
    params.policy = PIPELINE_POLICY_FAIL;
    uint32_t stream = open_ready(&params);
    uint64_t first = commands[0].ticket, second = commands[1].ticket, late = commands[2].ticket;
    assert_int_equal(feed_done(PIPELINE_EVENT_FETCHED, late, SPDL_CLASS_OK), 0);
    assert_int_equal(feed_done(PIPELINE_EVENT_FETCHED, commands[3].ticket, SPDL_CLASS_IO_ERROR), 0);
    look();
    assert_int_equal(feed_done(PIPELINE_EVENT_DECODED, commands[0].ticket, SPDL_CLASS_CORRUPT), 0);
    assert_int_equal(look(), 0);
    feed_done(PIPELINE_EVENT_FETCHED, first, SPDL_CLASS_OK);
    feed_done(PIPELINE_EVENT_FETCHED, second, SPDL_CLASS_OK);
    look();
    finish_all();
    assert_int_equal(command_count, 2);
    assert_int_equal(commands[0].kind, PIPELINE_COMMAND_PUBLISH);
    assert_int_equal(commands[1].kind, PIPELINE_COMMAND_END);
    assert_int_equal(commands[1].code, -EBADMSG);
    assert_int_equal(commands[1].class_number, SPDL_CLASS_CORRUPT); /* the first in the batch */
    assert_true(commands[1].has_row);
    assert_int_equal(commands[1].slot, 1);
    assert_int_equal(commands[1].row, 0);
    assert_int_equal(view_of(stream).published, 1);
}

static void test_mask_and_limits(void **state)
{
    (void)state;
    core_make(1 << 20, 64, 64);
    limited_position = 1;
    struct pipeline_stream_params params = stream_params(100, 2);
    uint32_t stream = open_ready(&params);
    assert_int_equal(count_of(PIPELINE_COMMAND_FETCH), 3); /* it is not read at all */
    finish_all();
    finish_all();
    assert_int_equal(count_of(PIPELINE_COMMAND_PUBLISH), 2);
    struct pipeline_row_view row;
    pipeline_core_row(core, stream, 0, 1, &row);
    assert_int_equal(row.class_number, SPDL_CLASS_LIMIT);
    assert_int_equal(row.id, 101);
    assert_int_equal(view_of(stream).failures[SPDL_CLASS_LIMIT], 1);
    assert_int_equal(view_of(stream).failures[SPDL_CLASS_OK], 0);
}

/* What is larger than the whole arena can never be read here: the stream ends, and says by which
 * row; the sample is not to blame. */
static void test_larger_than_arena(void **state)
{
    (void)state;
    core_make(8192, 64, 64);
    blob_bytes = 8192;
    struct pipeline_stream_params params = stream_params(100, 1);
    uint32_t stream = open_ready(&params);
    assert_int_equal(count_of(PIPELINE_COMMAND_FETCH), 1);
    blob_bytes = 8193;
    finish_all();
    finish_all(); /* its blob is given back, the row behind it is looked up */
    assert_int_equal(pipeline_core_reason(core, stream), PIPELINE_REASON_NONE);
    const struct pipeline_command *end = find(PIPELINE_COMMAND_END, 0);
    assert_int_equal(end->code, -ENOSPC);
    assert_int_equal(end->class_number, SPDL_CLASS_RESOURCE);
    assert_true(end->has_row);
    assert_int_equal(end->slot, 1);
    assert_int_equal(end->row, 0);
    struct pipeline_row_view row;
    pipeline_core_row(core, stream, end->slot, end->row, &row);
    assert_int_equal(row.id, 101);
}

/* An outage: the stream ends with the cause, what is in flight comes in as orphans. */
static void test_outage(void **state)
{
    (void)state;
    core_make(1 << 20, 64, 64);
    struct pipeline_stream_params params = stream_params(100, 2);
    uint32_t stream = open_ready(&params);
    uint64_t tickets[4];
    for (uint32_t i = 0; i < 4; i++)
        tickets[i] = commands[i].ticket;
    struct pipeline_event outage = {.kind = PIPELINE_EVENT_FAIL,
                                    .stream = stream,
                                    .code = -ESTALE,
                                    .class_number = SPDL_CLASS_IO_ERROR};
    assert_int_equal(feed(outage), 0);
    outage.code = -EIO; /* the first cause counts */
    assert_int_equal(feed(outage), 0);
    assert_int_equal(look(), 1);
    assert_int_equal(commands[0].kind, PIPELINE_COMMAND_END);
    assert_int_equal(commands[0].code, -ESTALE);
    assert_int_equal(pipeline_core_arena_used(core, 0), 4 * BLOB_ROOM);
    for (uint32_t i = 0; i < 4; i++) {
        struct pipeline_event event = {.kind = PIPELINE_EVENT_FETCHED, .ticket = tickets[i]};
        struct pipeline_row_ref ref;
        assert_int_equal(pipeline_core_feed(core, &event, &ref), 0);
        assert_true(ref.orphan);
    }
    assert_int_equal(pipeline_core_arena_used(core, 0), 0);
    assert_int_equal(look(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(test_open_refused),      CASE(test_open_many),
                                       CASE(test_way_of_a_batch),    CASE(test_padded_rows),
                                       CASE(test_no_rows),           CASE(test_limit),
                                       CASE(test_policy_fail),       CASE(test_mask_and_limits),
                                       CASE(test_larger_than_arena), CASE(test_outage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
