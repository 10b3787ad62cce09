/* Bytes and numbers through a real worker: what lies in the row, what the completion says of it,
 * and the class of what is not as the field wants it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decode/decode.h"
#include "item/class.h"
#include "tests/lib/worker_rig.h"

enum { ROOM = 16, FIELDS = 6 };

static struct field_spec field_of(const char *name, const char *decoder, uint64_t max_bytes,
                                  enum field_pad pad)
{
    struct field_spec field = {.from = {"x"}, .from_count = 1, .max_bytes = max_bytes, .pad = pad};
    struct err err = {0};
    memcpy(field.name, name, strlen(name) + 1);
    memcpy(field.decoder, decoder, strlen(decoder) + 1);
    if (field_finish(&field, &err) != 0)
        fail_msg("%s", err.text);
    field_set_largest(&field, 1000);
    return field;
}

static void fields_make(struct field_spec fields[FIELDS])
{
    fields[0] = field_of("raw", "raw", ROOM, FIELD_PAD_AUTO);   /* ragged */
    fields[1] = field_of("text", "text", ROOM, FIELD_PAD_AUTO); /* padded */
    fields[2] = field_of("json", "json", 0, FIELD_PAD_AUTO);    /* ragged, with the source's room */
    fields[3] = field_of("number", "int", 0, FIELD_PAD_AUTO);
    fields[4] = field_of("part", "float", 0, FIELD_PAD_AUTO);
    fields[5] = field_of("free", "text", ROOM, FIELD_PAD_NO); /* ragged */
}

/* Texts of the six parts. */
static struct spdl_work_completion run(struct worker_rig *rig, uint32_t stream, uint32_t row,
                                       const char *const texts[FIELDS])
{
    struct spdl_work_command command = rig_command_for(stream, 1, row);
    for (uint32_t f = 0; f < FIELDS; f++)
        rig_add_part(&command, f, rig_blob(rig, 4096 * (f + 1), texts[f], strlen(texts[f])));
    rig_put(rig, command);
    rig_publish(rig);
    return rig_wait_one(rig);
}

static void test_values(void **state)
{
    (void)state;
    struct worker_rig *rig = rig_ready(2);
    struct field_spec fields[FIELDS];
    fields_make(fields);
    struct worker_add add = rig_add_message(1, fields, FIELDS);
    rig_add_stream(rig, &add);
    for (uint32_t f = 0; f < FIELDS; f++) /* what an earlier batch left behind */
        memset(rig_row_of(rig, &add, f, 1, 3), 0xee, fields[f].row_bytes);
    static const char *const texts[FIELDS] = {"abc", "h\xc3\xa9llo \xff", "{\"a\": [1]} ", " -12\n",
                                              "0.5", "0123456789abcdef"};
    struct spdl_work_completion record = run(rig, 1, 3, texts);
    assert_int_equal(record.class_number, SPDL_CLASS_OK);
    static const uint32_t bytes[SPDL_WORK_FIELDS_MAX] = {3, 0, 11, 0, 0, 16};
    assert_memory_equal(record.field_bytes, bytes, sizeof bytes);
    assert_memory_equal(rig_row_of(rig, &add, 0, 1, 3), "abc\xee", 4);
    assert_memory_equal(rig_row_of(rig, &add, 1, 1, 3), "h\xc3\xa9llo \xff\0\0\0\0\0\0\0\0", ROOM);
    assert_memory_equal(rig_row_of(rig, &add, 2, 1, 3), texts[2], 11);
    int64_t number;
    float part;
    memcpy(&number, rig_row_of(rig, &add, 3, 1, 3), sizeof number);
    memcpy(&part, rig_row_of(rig, &add, 4, 1, 3), sizeof part);
    assert_int_equal(number, -12);
    assert_true(part == 0.5f);
    assert_memory_equal(rig_row_of(rig, &add, 5, 1, 3), texts[5], 16);
    for (uint32_t f = 0; f < FIELDS; f++) /* its neighbour is not touched */
        assert_int_equal(*rig_row_of(rig, &add, f, 1, 4), 0);
    /* No bytes are a text and a raw part too. */
    static const char *const none[FIELDS] = {"", "", "1", "0", "0", ""};
    record = run(rig, 1, 3, none);
    assert_int_equal(record.class_number, SPDL_CLASS_OK);
    static const uint32_t few[SPDL_WORK_FIELDS_MAX] = {0, 0, 1};
    assert_memory_equal(record.field_bytes, few, sizeof few);
    for (uint32_t i = 0; i < ROOM; i++)
        assert_int_equal(rig_row_of(rig, &add, 1, 1, 3)[i], 0);
    assert_int_equal(rig_end(rig), 0);
}

static void test_values_that_are_none(void **state)
{
    (void)state;
    struct worker_rig *rig = rig_ready(1);
    struct field_spec fields[FIELDS];
    fields_make(fields);
    struct worker_add add = rig_add_message(0, fields, FIELDS);
    rig_add_stream(rig, &add);
    static const char too_long[] = "0123456789abcdefg";
    static const struct {
        const char *text;
        uint64_t offset;
        uint32_t field;
        enum spdl_class class_number;
    } cases[] = {
        {too_long, 16, 0, SPDL_CLASS_LIMIT},     {too_long, 16, 1, SPDL_CLASS_LIMIT},
        {too_long, 16, 5, SPDL_CLASS_LIMIT},     {"", 0, 2, SPDL_CLASS_EMPTY},
        {"{\"a\":", 5, 2, SPDL_CLASS_TRUNCATED}, {"[1,]", 3, 2, SPDL_CLASS_CORRUPT},
        {"1.5", 1, 3, SPDL_CLASS_BAD_FORMAT},    {"", 0, 3, SPDL_CLASS_EMPTY},
        {"one", 0, 4, SPDL_CLASS_BAD_FORMAT},    {"1e99", 0, 4, SPDL_CLASS_LIMIT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *texts[FIELDS] = {"abc", "def", "{}", "1", "2", "ghi"};
        texts[cases[i].field] = cases[i].text;
        struct spdl_work_completion record = run(rig, 0, 2, texts);
        assert_int_equal(record.class_number, cases[i].class_number);
        assert_int_equal(record.field, cases[i].field);
        assert_int_equal(record.byte_offset, cases[i].offset);
        assert_true(strlen(record.message) > 5);
    }
    assert_int_equal(rig_end(rig), 0);
}

/* Parts that are no bytes of a file. */
static void test_other_parts(void **state)
{
    (void)state;
    struct worker_rig *rig = rig_ready(1);
    struct field_spec all[FIELDS];
    fields_make(all);
    for (uint32_t f = 0; f < FIELDS; f++) {
        struct worker_add add = rig_add_message(f % 3, &all[f], 1);
        rig_add_stream(rig, &add);
        struct spdl_work_command number = rig_command_for(f % 3, 0, 0);
        struct spdl_work_command made_up = number, large = number;
        rig_add_part(&number, 0, (struct spdl_work_part){SPDL_WORK_PART_INTEGER, 0, 7, 0});
        rig_add_part(&made_up, 0, (struct spdl_work_part){SPDL_WORK_PART_MADE_UP, 0, 7, 9});
        rig_add_part(&large, 0, (struct spdl_work_part){SPDL_WORK_PART_MADE_UP, 0, 7, 1001});
        bool is_number = f == 3 || f == 4, is_json = f == 2;
        rig_put(rig, number);
        rig_publish(rig);
        assert_int_equal(rig_wait_one(rig).class_number,
                         is_number ? SPDL_CLASS_OK : SPDL_CLASS_BAD_FORMAT);
        if (is_number) {
            const int64_t seven = 7;
            const float same = 7.0f;
            assert_memory_equal(rig_row_of(rig, &add, 0, 0, 0),
                                f == 3 ? (const void *)&seven : (const void *)&same,
                                f == 3 ? 8 : 4);
        }
        rig_put(rig, made_up);
        rig_publish(rig);
        struct spdl_work_completion record = rig_wait_one(rig);
        assert_int_equal(record.class_number,
                         is_number || is_json ? SPDL_CLASS_BAD_FORMAT : SPDL_CLASS_OK);
        if (record.class_number == SPDL_CLASS_OK) {
            uint8_t expected[9];
            decode_made_up(7, 9, expected);
            assert_memory_equal(rig_row_of(rig, &add, 0, 0, 0), expected, 9);
            assert_int_equal(record.field_bytes[0], all[f].ragged ? 9 : 0);
            rig_put(rig, large);
            rig_publish(rig);
            assert_int_equal(rig_wait_one(rig).class_number, SPDL_CLASS_LIMIT);
        }
        const struct worker_message_head drop = {WORKER_DROP, f % 3};
        rig_send_message(rig, &drop, sizeof drop, NULL, 0);
        rig_expect_reply(rig, WORKER_DROPPED, f % 3);
        spdl_shm_segment_destroy(&rig->data[f % 3]);
        rig->data[f % 3].base = NULL;
    }
    assert_int_equal(rig_end(rig), 0);
}

/* Values that their list writes in another way come as they are meant; so long that the memory for
 * them grows, and those that are not written so fail alone. */
static void test_escaped(void **state)
{
    (void)state;
    struct worker_rig *rig = rig_ready(1);
    struct field_spec fields[FIELDS];
    fields_make(fields);
    struct worker_add add = rig_add_message(0, fields, FIELDS);
    rig_add_stream(rig, &add);
    static const struct {
        const char *text;
        uint64_t escape;
    } parts[FIELDS] = {{"a\"\"b", SPDL_WORK_ESCAPE_CSV},      {"\\u00e9\\n", SPDL_WORK_ESCAPE_JSON},
                       {"[\"\"x\"\"]", SPDL_WORK_ESCAPE_CSV}, {"\\u0034", SPDL_WORK_ESCAPE_JSON},
                       {"0.5", SPDL_WORK_ESCAPE_CSV},         {"", SPDL_WORK_ESCAPE_JSON}};
    struct spdl_work_command command = rig_command_for(0, 1, 3);
    for (uint32_t f = 0; f < FIELDS; f++) {
        struct spdl_work_part part =
            rig_blob(rig, 4096 * (f + 1), parts[f].text, strlen(parts[f].text));
        part.escape = (uint32_t)parts[f].escape;
        rig_add_part(&command, f, part);
    }
    rig_put(rig, command);
    rig_publish(rig);
    struct spdl_work_completion record = rig_wait_one(rig);
    assert_int_equal(record.class_number, SPDL_CLASS_OK);
    static const uint32_t bytes[SPDL_WORK_FIELDS_MAX] = {3, 0, 5};
    assert_memory_equal(record.field_bytes, bytes, sizeof bytes);
    assert_memory_equal(rig_row_of(rig, &add, 0, 1, 3), "a\"b", 3);
    assert_memory_equal(rig_row_of(rig, &add, 1, 1, 3), "\xc3\xa9\n\0\0", 5);
    assert_memory_equal(rig_row_of(rig, &add, 2, 1, 3), "[\"x\"]", 5);
    int64_t number;
    memcpy(&number, rig_row_of(rig, &add, 3, 1, 3), sizeof number);
    assert_int_equal(number, 4);
    command.parts[0] = rig_blob(rig, 4096, "a\"b", 3);
    command.parts[0].escape = SPDL_WORK_ESCAPE_CSV;
    rig_put(rig, command);
    rig_publish(rig);
    assert_int_equal(rig_wait_one(rig).class_number, SPDL_CLASS_CORRUPT);
    assert_int_equal(rig_end(rig), 0);
}

/* Two readers of one row: both get its bytes, and no more than it has. */
static void test_two_destinations(void **state)
{
    (void)state;
    struct worker_rig *rig = rig_ready(1);
    struct field_spec field = field_of("raw", "raw", ROOM, FIELD_PAD_AUTO);
    struct worker_add first = rig_add_message(0, &field, 1), second = rig_add_message(1, &field, 1);
    rig_add_stream(rig, &first);
    rig_add_stream(rig, &second);
    struct spdl_work_command command = rig_command_for(0, 0, 1);
    command.dest_count = 2;
    command.dests[1] = (struct spdl_work_dest){.stream = 1, .slot = 1, .row = 5};
    rig_add_part(&command, 0, rig_blob(rig, 512, "four", 4));
    rig_put(rig, command);
    rig_publish(rig);
    assert_int_equal(rig_wait_one(rig).class_number, SPDL_CLASS_OK);
    assert_memory_equal(rig_row_of(rig, &second, 0, 1, 5), "four\0", 5);
    assert_memory_equal(rig_row_of(rig, &first, 0, 0, 1), "four\0", 5);
    assert_int_equal(rig_end(rig), 0);
}

/* A ragged field whose room is not known, or is not what follows from it, is refused. */
static void refused(void (*change)(struct field_spec *))
{
    struct worker_rig *rig = rig_ready(1);
    struct field_spec field = field_of("raw", "raw", ROOM, FIELD_PAD_AUTO);
    struct worker_add add = rig_add_message(0, &field, 1);
    change(&add.fields[0]);
    rig_make_segment(&rig->data[0], SPDL_SHM_WRITTEN_BY_OTHERS, add.data_bytes);
    rig_send_message(rig, &add, sizeof add, &rig->data[0].fd, 1);
    assert_int_equal(rig_end(rig), 2);
}

static void no_room(struct field_spec *field)
{
    field->max_bytes = field->largest_bytes = field->row_bytes = 0;
}

static void more_room(struct field_spec *field)
{
    field->row_bytes++;
}

static void not_ragged(struct field_spec *field)
{
    field->ragged = 0;
}

static void test_form_is_checked(void **state)
{
    (void)state;
    refused(no_room);
    refused(more_room);
    refused(not_ragged);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),           cmocka_unit_test(test_values_that_are_none),
        cmocka_unit_test(test_other_parts),      cmocka_unit_test(test_escaped),
        cmocka_unit_test(test_two_destinations), cmocka_unit_test(test_form_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
