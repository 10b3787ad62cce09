/* The conductor's core, case by case: workers that die, how much is handed out, whose turn it is,
 * and the reasons why a stream waits. */
#include <errno.h>
#include <string.h>

#include "tests/pipeline/core_case.h"

/* --- workers --- */

static int worker_down(bool crashed, const uint64_t *suspects, uint32_t count)
{
    return feed((struct pipeline_event){.kind = PIPELINE_EVENT_WORKER_DOWN,
                                        .crashed = crashed,
                                        .suspects = suspects,
                                        .suspect_count = count});
}

static void worker_again(uint32_t stream)
{
    assert_int_equal(feed((struct pipeline_event){.kind = PIPELINE_EVENT_WORKER_UP}), 0);
    look();
    assert_int_equal(find(PIPELINE_COMMAND_ATTACH, 0)->stream, stream);
    assert_int_equal(feed_stream(PIPELINE_EVENT_ATTACHED, stream), 0);
    look();
}

static void test_crash(void **state)
{
    (void)state;
    core_make(1 << 20, 64, 64);
    struct pipeline_stream_params params = stream_params(100, 4);
    uint32_t stream = open_ready(&params);
    finish_all();
    uint64_t suspects[2] = {commands[1].ticket, commands[2].ticket};
    assert_int_equal(worker_down(true, suspects, 2), 0);
    assert_int_equal(look(), 0);
    assert_int_equal(pipeline_core_decoding(core, 0), 0);
    worker_again(stream);
    /* Those that nobody suspects come first, together; then the suspects, each alone. */
    while (count_of(PIPELINE_COMMAND_DECODE) > 1 || commands[0].id < 101 || commands[0].id > 102)
        assert_true(finish_all());
    uint64_t id = commands[0].id;
    assert_int_equal(worker_down(true, &commands[0].ticket, 1), 0);
    worker_again(stream);
    assert_int_equal(count_of(PIPELINE_COMMAND_DECODE), 1);
    assert_int_equal(commands[0].id, 203 - id); /* the other one */
    finish_all();
    while (count_of(PIPELINE_COMMAND_PUBLISH) == 0)
        assert_true(finish_all());
    for (uint32_t i = 0; i < 4; i++) {
        struct pipeline_row_view row;
        pipeline_core_row(core, stream, 0, i, &row);
        assert_int_equal(row.class_number, row.id == id ? SPDL_CLASS_CRASH : SPDL_CLASS_OK);
    }
}

static void test_deaths(void **state)
{
    (void)state;
    core_make(1 << 20, 64, 64);
    for (uint32_t i = 0; i < 2 * PIPELINE_DEATHS_MAX; i++) /* it serves nobody */
        assert_int_equal(worker_down(false, NULL, 0), 0);
    struct pipeline_stream_params params = stream_params(100, 4);
    uint32_t stream = open_ready(&params);
    finish_all();
    assert_int_equal(feed_done(PIPELINE_EVENT_DECODED, commands[0].ticket, SPDL_CLASS_OK), 0);
    for (uint32_t i = 1; i < PIPELINE_DEATHS_MAX; i++) {
        assert_int_equal(worker_down(false, NULL, 0), 0);
        worker_again(stream);
        assert_int_equal(count_of(PIPELINE_COMMAND_DECODE), 7);
    }
    assert_int_equal(worker_down(false, NULL, 0), 0);
    assert_int_equal(look(), 1);
    assert_int_equal(commands[0].kind, PIPELINE_COMMAND_END);
    assert_int_equal(commands[0].code, -ECHILD);
    assert_int_equal(pipeline_core_arena_used(core, 0), 0);
}

/* Work handed over ahead of the threads: a few rows each at first, then what some milliseconds
 * take, at least two each, never more than the queue holds. */
static void test_queue_depth(void **state)
{
    (void)state;
    core_make(1 << 20, 4, 4);
    struct pipeline_stream_params params = stream_params(100000, 2000);
    blob_bytes = 0;
    open_ready(&params);
    assert_int_equal(command_count, 16);
    struct pipeline_event event = {.kind = PIPELINE_EVENT_DECODED, .cost_ns = 100000000};
    for (uint32_t i = 0; i < 16; i++) {
        event.ticket = commands[i].ticket;
        assert_int_equal(feed(event), 0);
    }
    assert_int_equal(look(), 8); /* slow rows: two for each thread */
    pipeline_core_set_threads(core, 5);
    assert_int_equal(look(), 2);
    event.cost_ns = 1;
    for (uint32_t i = 0; pipeline_core_cost_ns(core, 0) > 1000; i++) {
        assert_true(i < 1000 && command_count > 0);
        event.ticket = commands[0].ticket;
        assert_int_equal(feed(event), 0);
        look();
    }
    look();
    assert_int_equal(pipeline_core_decoding(core, 0), PIPELINE_QUEUE_MAX);
}

/* A stream has as many reads in flight as it may, and leaves some to others of its worker; reads
 * leave the decodes their places. */
static void test_reads_end(void **state)
{
    (void)state;
    core_make(1ull << 30, PIPELINE_DEPTH_MAX, 100);
    struct pipeline_stream_params params = stream_params(100000, 3000);
    uint32_t stream = open_ready(&params);
    assert_int_equal(count_of(PIPELINE_COMMAND_FETCH), PIPELINE_DEPTH_MAX);
    assert_int_equal(view_of(stream).reason, PIPELINE_REASON_READS);
    assert_int_equal(feed_done(PIPELINE_EVENT_FETCHED, commands[9].ticket, SPDL_CLASS_OK), 0);
    assert_int_equal(look(), 2); /* one goes, one comes; the row is decoded */
    assert_int_equal(count_of(PIPELINE_COMMAND_DECODE), 1);
    uint32_t least = UINT32_MAX, count;
    for (uint32_t i = 0; i < 16; i++) {
        open_ready(&params);
        count = count_of(PIPELINE_COMMAND_FETCH);
        assert_true(count >= 4 && count <= least);
        least = count;
    }
    assert_true(pipeline_core_fetching(core, 0) <= pipeline_core_reads_max(PIPELINE_DEPTH_MAX));
}

/* The worker of another user has an arena of its own, and its place among what is in flight. */
static void test_seats(void **state)
{
    (void)state;
    core_make(4 * BLOB_ROOM, 64, 64);
    uint64_t free_bytes = 0;
    assert_int_equal(pipeline_core_seat_open(core, 0, 4096, 0, &free_bytes), -EINVAL);
    assert_int_equal(pipeline_core_seat_open(core, PIPELINE_WORKERS_MAX, 4096, 0, &free_bytes),
                     -EINVAL);
    assert_int_equal(pipeline_core_seat_open(core, 1, 4096, 10001, &free_bytes), -ENOSPC);
    assert_int_equal(free_bytes, 10000);
    struct pipeline_stream_params params = stream_params(100, 8);
    open_ready(&params);
    assert_int_equal(count_of(PIPELINE_COMMAND_FETCH), 3); /* a quarter is left to others */
    assert_int_equal(view_of(0).reason, PIPELINE_REASON_MEMORY);
    params.worker = 1;
    uint32_t stream;
    assert_int_equal(pipeline_core_open(core, &params, &stream, &free_bytes), -EINVAL);
    assert_int_equal(pipeline_core_seat_open(core, 1, 16 * BLOB_ROOM, 7000, &free_bytes), 0);
    assert_int_equal(pipeline_core_memory_used(core), 7010);
    assert_int_equal(pipeline_core_open(core, &params, &stream, &free_bytes), 0);
    assert_int_equal(feed_stream(PIPELINE_EVENT_START, stream), 0);
    look();
    assert_int_equal(count_of(PIPELINE_COMMAND_FETCH), 12);
    assert_int_equal(pipeline_core_arena_used(core, 0), 3 * BLOB_ROOM);
    assert_int_equal(pipeline_core_arena_used(core, 1), 12 * BLOB_ROOM);
    uint64_t ticket = commands[0].ticket;
    assert_int_equal(feed_stream(PIPELINE_EVENT_UNMAPPED, stream), 0);
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(feed_done(PIPELINE_EVENT_FETCHED, commands[i].ticket, SPDL_CLASS_OK), 0);
    look();
    assert_int_equal(count_of(PIPELINE_COMMAND_FORGET), 1);
    pipeline_core_seat_close(core, 1);
    assert_int_equal(pipeline_core_memory_used(core), 10);
    assert_int_equal(pipeline_core_seat_open(core, 1, 4096, 0, &free_bytes), 0);
    struct pipeline_row_ref ref;
    assert_int_equal(pipeline_core_ticket_ref(core, ticket, &ref), -EPROTO);
}

/* --- whose turn, and why --- */

/* Of two streams the one whose rank is closer to starving goes first. */
static void test_turns(void **state)
{
    (void)state;
    core_make(1 << 20, 2, 1);
    struct pipeline_stream_params params = stream_params(100, 1);
    params.slot_count = 4;
    uint32_t full = open_ready(&params);
    while (view_of(full).published < 4)
        assert_true(finish_all());
    params = stream_params(100, 4);
    uint32_t empty = open_ready(&params);
    assert_int_equal(count_of(PIPELINE_COMMAND_FETCH), 2);
    uint64_t tickets[2] = {commands[0].ticket, commands[1].ticket};
    assert_int_equal(feed_release(full, 0), 0); /* it has three batches ready, the other none */
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(feed_done(PIPELINE_EVENT_FETCHED, tickets[i], SPDL_CLASS_OK), 0);
    look();
    assert_int_equal(count_of(PIPELINE_COMMAND_FETCH), 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(find(PIPELINE_COMMAND_FETCH, i)->stream, i < 2 ? empty : full);
    while (view_of(full).published < 5)
        assert_true(finish_all());
}

static void test_reasons(void **state)
{
    (void)state;
    core_make(4 * BLOB_ROOM, 64, 2);
    struct pipeline_stream_params params = stream_params(100, 4);
    uint32_t stream;
    uint64_t free_bytes;
    assert_int_equal(pipeline_core_open(core, &params, &stream, &free_bytes), 0);
    assert_int_equal(feed_stream(PIPELINE_EVENT_START, stream), 0);
    look();
    assert_int_equal(pipeline_core_reason(core, stream), PIPELINE_REASON_OPENING);
    assert_int_equal(command_count, 3); /* there is room for three blobs */
    uint64_t fetches[3] = {commands[0].ticket, commands[1].ticket, commands[2].ticket};
    assert_int_equal(feed((struct pipeline_event){.kind = PIPELINE_EVENT_WORKER_UP}), 0);
    look();
    assert_int_equal(feed_stream(PIPELINE_EVENT_ATTACHED, stream), 0);
    assert_int_equal(feed_stream(PIPELINE_EVENT_ATTACHED, stream), -EPROTO);
    look();
    assert_int_equal(pipeline_core_reason(core, stream), PIPELINE_REASON_MEMORY);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(feed_done(PIPELINE_EVENT_FETCHED, fetches[i], SPDL_CLASS_OK), 0);
    look();
    assert_int_equal(count_of(PIPELINE_COMMAND_DECODE), 3);
    assert_int_equal(pipeline_core_reason(core, stream), PIPELINE_REASON_DECODE);
    finish_all(); /* and more is read, now that there is room; the last row of its oldest batch */
    assert_int_equal(pipeline_core_reason(core, stream), PIPELINE_REASON_READS);
    while (view_of(stream).published < 2)
        assert_true(finish_all());
    assert_int_equal(pipeline_core_reason(core, stream), PIPELINE_REASON_RANK);
    assert_int_equal(worker_down(false, NULL, 0), 0);
    assert_int_equal(pipeline_core_reason(core, stream), PIPELINE_REASON_RANK);
    assert_int_equal(feed_release(stream, 0), 0);
    look();
    assert_int_equal(pipeline_core_reason(core, stream), PIPELINE_REASON_OPENING);
    assert_int_equal(feed_stream(PIPELINE_EVENT_CLOSE, stream), 0);
    assert_int_equal(pipeline_core_reason(core, stream), PIPELINE_REASON_NONE);
}

/* All rows of the batch are read, and fewer are being decoded than there are threads. */
static void test_reason_decode(void **state)
{
    (void)state;
    core_make(1 << 20, 64, 8);
    struct pipeline_stream_params params = stream_params(100, 2);
    uint32_t stream = open_ready(&params);
    assert_int_equal(pipeline_core_reason(core, stream), PIPELINE_REASON_READS);
    finish_all();
    assert_int_equal(count_of(PIPELINE_COMMAND_DECODE), 4);
    assert_int_equal(pipeline_core_reason(core, stream), PIPELINE_REASON_DECODE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_crash), CASE(test_deaths), CASE(test_queue_depth), CASE(test_reads_end),
        CASE(test_seats), CASE(test_turns),  CASE(test_reasons),     CASE(test_reason_decode)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
