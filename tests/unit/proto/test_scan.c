/* The look at a message before it is unpacked: names the body, counts fields inside fields, and
 * lets pass whatever unpacks and is modest. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/proto_frame.h"

enum { ROOM = 1 << 16 };

struct text {
    size_t bytes;
    uint8_t data[ROOM];
};

static void put(struct text *text, const void *data, size_t bytes)
{
    assert_true(bytes <= ROOM - text->bytes);
    memcpy(text->data + text->bytes, data, bytes);
    text->bytes += bytes;
}

static void put_varint(struct text *text, uint64_t value)
{
    do {
        uint8_t byte = (uint8_t)((value & 127) | (value > 127 ? 128 : 0));
        put(text, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

static void put_inner(struct text *text, unsigned field, const struct text *inner)
{
    put_varint(text, (uint64_t)field << 3 | 2);
    put_varint(text, inner->bytes);
    put(text, inner->data, inner->bytes);
}

static void put_numbers(struct text *text, unsigned field, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        put_varint(text, (uint64_t)field << 3);
        put_varint(text, 1);
    }
}

/* `count` fields that nobody knows, inside the messages of `way` (0 ends it), the outermost last.
 */
static int scan_of(const unsigned *way, unsigned count)
{
    static struct text inner, outer;
    inner.bytes = 0;
    put_numbers(&inner, 99, count);
    for (; *way; way++) {
        outer.bytes = 0;
        put_inner(&outer, *way, &inner);
        inner = outer;
    }
    return spdl_proto_scan(inner.data, inner.bytes);
}

static void test_fields_are_counted(void **state)
{
    (void)state;
    static const unsigned ways[][5] = {{8, 0},     {3, 0}, {7, 3, 0}, {3, 15, 0},
                                       {1, 15, 0}, {9, 0}, {12, 0},   {7, 1, 15, 0}};
    const int most = SPDL_PROTO_FIELDS_MAX;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        int depth = 0;
        while (ways[i][depth])
            depth++;
        bool is_known = i != 3; /* nobody knows field 2 of a PlanRequest: it is bytes */
        int body = (int)ways[i][depth - 1];
        assert_int_equal(scan_of(ways[i], (unsigned)(most - depth)), body);
        if (is_known)
            assert_int_equal(scan_of(ways[i], (unsigned)(most - depth + 1)), -EPROTO);
    }
    assert_int_equal(scan_of((const unsigned[]){0}, 3), 0);
    assert_int_equal(scan_of((const unsigned[]){0}, SPDL_PROTO_FIELDS_MAX + 1), -EPROTO);
}

static void test_messages_about_streams_are_small(void **state)
{
    (void)state;
    for (unsigned body = 2; body <= 8; body++) {
        bool is_of_a_stream = body >= 4 && body <= 6;
        static struct text inner, outer;
        inner.bytes = outer.bytes = 0;
        put_varint(&inner, 2 << 3 | 2); /* packed numbers: one field */
        put_varint(&inner, SPDL_PROTO_STREAM_MAX);
        inner.bytes += SPDL_PROTO_STREAM_MAX;
        put_inner(&outer, body, &inner);
        assert_int_equal(spdl_proto_scan(outer.data, outer.bytes),
                         is_of_a_stream ? -EPROTO : (int)body);
    }
}

/* Whatever unpacks passes, and its body is named as it unpacks. */
static void test_cut_and_made_up(void **state)
{
    (void)state;
    uint32_t seed = 5;
    for (int round = 0; round < 20000; round++) {
        uint8_t bytes[40];
        seed = seed * 1664525u + 1013904223u;
        size_t count = 1 + seed % sizeof bytes;
        for (size_t i = 0; i < count; i++) {
            seed = seed * 1664525u + 1013904223u;
            bytes[i] = (uint8_t)(round % 3 ? (seed >> 24) & 0x3f : seed >> 24);
        }
        Spdl__V1__ToDaemon *message = spdl__v1__to_daemon__unpack(NULL, count, bytes);
        int body = spdl_proto_scan(bytes, count);
        if (message)
            assert_int_equal(body, message->body_case);
        if (message)
            spdl__v1__to_daemon__free_unpacked(message, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields_are_counted),
        cmocka_unit_test(test_messages_about_streams_are_small),
        cmocka_unit_test(test_cut_and_made_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
