/* What the cases of the conductor's core share: one core, its commands of the last look, events in
 * a word. Each test program that includes this has its own. */
#ifndef SPDLD_TESTS_PIPELINE_CORE_CASE_H
#define SPDLD_TESTS_PIPELINE_CORE_CASE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "pipeline/pipeline_arena.h"
#include "pipeline/pipeline_core.h"

enum {
    COMMANDS_MAX = 8192,
    BLOB_BYTES = 5000,
    BLOB_ROOM = (BLOB_BYTES + PIPELINE_ARENA_ALIGN - 1) / PIPELINE_ARENA_ALIGN *
                PIPELINE_ARENA_ALIGN /* that it takes in the arena */
};

static uint64_t blob_bytes;       /* of every sample */
static uint64_t limited_position; /* its sample is above a limit, */
static uint32_t limited_attempts; /* and so are this many less one of its substitutes */

/* Sample 100 + position; its substitutes are 1000 higher each. */
static inline void lookup(void *context, uint32_t stream, const struct pipeline_place *place,
                          struct pipeline_sample *ret_sample)
{
    (void)context;
    (void)stream;
    *ret_sample = (struct pipeline_sample){.id = 1000u * place->attempt + place->position + 100,
                                           .blob_bytes = blob_bytes};
    if (place->position == limited_position && place->attempt < limited_attempts)
        ret_sample->class_number = SPDL_CLASS_LIMIT;
}

static uint64_t refused_batch; /* which of those that are done the rank is not to have */

static inline bool ready(void *context, uint32_t stream, uint32_t slot)
{
    (void)context;
    (void)stream;
    (void)slot;
    return refused_batch-- != 0;
}

static struct pipeline_core *core;
static struct pipeline_command commands[COMMANDS_MAX]; /* of the last look */
static uint32_t command_count;

static inline void core_make(uint64_t arena_bytes, uint32_t fetch_depth, uint32_t threads)
{
    struct pipeline_core_params params = {.memory_bytes = 10000,
                                          .fetch_depth = fetch_depth,
                                          .threads = threads,
                                          .rate_rows = 10,
                                          .lookup = lookup,
                                          .ready = ready};
    refused_batch = UINT64_MAX;
    blob_bytes = BLOB_BYTES;
    limited_position = UINT64_MAX;
    limited_attempts = 1;
    core = pipeline_core_create(&params);
    assert_non_null(core);
    uint64_t free_bytes;
    assert_int_equal(pipeline_core_seat_open(core, 0, arena_bytes, 0, &free_bytes), 0);
}

static inline int core_free(void **state)
{
    (void)state;
    pipeline_core_destroy(core);
    core = NULL;
    return 0;
}

static inline struct pipeline_stream_params stream_params(uint64_t samples, uint64_t batch)
{
    return (struct pipeline_stream_params){
        .schedule = {.samples = samples, .batch = batch, .world = 1, .last = PLAN_LAST_DROP},
        .slot_count = 2,
        .policy = PIPELINE_POLICY_MASK,
        .max_rate = PIPELINE_RATE_UNIT,
        .max_consecutive = 100,
        .memory_bytes = 10};
}

static inline uint32_t look(void)
{
    for (command_count = 0; pipeline_core_next(core, &commands[command_count]); command_count++)
        assert_true(command_count + 1 < COMMANDS_MAX);
    return command_count;
}

static inline uint32_t count_of(enum pipeline_command_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < command_count; i++)
        count += commands[i].kind == kind;
    return count;
}

static inline const struct pipeline_command *find(enum pipeline_command_kind kind, uint32_t index)
{
    for (uint32_t i = 0; i < command_count; i++)
        if (commands[i].kind == kind && index-- == 0)
            return &commands[i];
    fail_msg("there is no such command of kind %d", (int)kind);
    return &commands[COMMANDS_MAX - 1];
}

static inline int feed(struct pipeline_event event)
{
    return pipeline_core_feed(core, &event, NULL);
}

static inline int feed_stream(enum pipeline_event_kind kind, uint32_t stream)
{
    return feed((struct pipeline_event){.kind = kind, .stream = stream});
}

static inline int feed_done(enum pipeline_event_kind kind, uint64_t ticket,
                            enum spdl_class class_number)
{
    return feed((struct pipeline_event){
        .kind = kind, .ticket = ticket, .class_number = class_number, .cost_ns = 1000});
}

static inline int feed_release(uint32_t stream, uint64_t sequence)
{
    return feed((struct pipeline_event){
        .kind = PIPELINE_EVENT_RELEASE, .stream = stream, .sequence = sequence});
}

/* A stream whose worker is up and has mapped it; what the core wants next lies in `commands`. */
static inline uint32_t open_ready(const struct pipeline_stream_params *params)
{
    uint32_t stream = UINT32_MAX;
    uint64_t free_bytes = 0;
    assert_int_equal(pipeline_core_open(core, params, &stream, &free_bytes), 0);
    assert_int_equal(feed((struct pipeline_event){.kind = PIPELINE_EVENT_WORKER_UP}), 0);
    look();
    assert_int_equal(feed_stream(PIPELINE_EVENT_START, stream), 0);
    struct pipeline_command command;
    assert_true(pipeline_core_next(core, &command));
    assert_int_equal(command.kind, PIPELINE_COMMAND_ATTACH);
    assert_int_equal(feed_stream(PIPELINE_EVENT_ATTACHED, stream), 0);
    look();
    return stream;
}

/* All reads and decodes of the last look end well; then the next look. False: there were none. */
static inline bool finish_all(void)
{
    bool any = false;
    for (uint32_t i = 0; i < command_count; i++) {
        if (commands[i].kind == PIPELINE_COMMAND_FETCH)
            assert_int_equal(feed_done(PIPELINE_EVENT_FETCHED, commands[i].ticket, SPDL_CLASS_OK),
                             0);
        else if (commands[i].kind == PIPELINE_COMMAND_DECODE)
            assert_int_equal(feed_done(PIPELINE_EVENT_DECODED, commands[i].ticket, SPDL_CLASS_OK),
                             0);
        else
            continue;
        any = true;
    }
    look();
    return any;
}

static inline struct pipeline_stream_view view_of(uint32_t stream)
{
    struct pipeline_stream_view view;
    pipeline_core_stream(core, stream, &view);
    return view;
}

#define CASE(name) cmocka_unit_test_teardown(name, core_free)

#endif
