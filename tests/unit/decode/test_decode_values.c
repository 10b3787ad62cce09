/* The small parts of decode: the probe, EXIF's orientation, raw bytes, labels, made-up bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decode/decode.h"
#include "decode/decode_exif.h"
#include "tests/lib/chance.h"

static struct decode_packet packet_of(const void *data, size_t bytes)
{
    return (struct decode_packet){data, bytes};
}

static void test_probe(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t count;
        enum spdl_class class_number;
        const char *word;
    } cases[] = {
        {"", 0, SPDL_CLASS_EMPTY, "no bytes"},
        {"II*\0\x08\0\0\0", 8, SPDL_CLASS_UNSUPPORTED, "TIFF"},
        {"MM\0*\0\0\0\x08", 8, SPDL_CLASS_UNSUPPORTED, "TIFF"},
        {"\0\0\0\x1c"
         "ftypavif",
         12, SPDL_CLASS_UNSUPPORTED, "AVIF"},
        {"RIFF\x10\0\0\0WAVEfmt ", 16, SPDL_CLASS_BAD_FORMAT, "no picture"},
        {"<!DOCTYPE html>", 15, SPDL_CLASS_BAD_FORMAT, "no picture"},
        {"GIF", 3, SPDL_CLASS_BAD_FORMAT, "no picture"},
        {"\xff", 1, SPDL_CLASS_BAD_FORMAT, "no picture"},
        {"\xff\xd9\xff", 3, SPDL_CLASS_BAD_FORMAT, "no picture"},
        {"BMW and other words", 19, SPDL_CLASS_BAD_FORMAT, "no picture"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct decode_packet packet = packet_of(cases[i].bytes, cases[i].count);
        struct decode_fault fault = {0};
        assert_null(decode_probe(&packet, &fault));
        assert_int_equal(fault.class_number, cases[i].class_number);
        assert_non_null(strstr(fault.message, cases[i].word));
    }
    static const struct {
        const char *bytes;
        size_t count;
        const char *name;
    } known[] = {
        {"\xff\xd8\xff\xe0", 4, "jpeg"},
        {"\xff\xd8", 2, "jpeg"},
        {"\x89PNG\r\n\x1a\n", 8, "png"},
        {"\x89PNG\n\n", 6, "png"}, /* damaged as text is */
        {"RIFF\x10\0\0\0WEBPVP8 ", 16, "webp"},
        {"BM\x46\0\0\0\0\0\0\0\x36\0", 12, "bmp"},
        {"BM\x46\0\0\0\1\0\1\0\x36\0\0\0\x28\0\0\0", 18, "bmp"},
        {"GIF89a", 6, "gif"},
        {"P1#\n", 4, "pnm"},
        {"P6 1", 4, "pnm"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct decode_packet packet = packet_of(known[i].bytes, known[i].count);
        struct decode_fault fault = {0};
        const struct decode_ops *ops = decode_probe(&packet, &fault);
        assert_non_null(ops);
        assert_string_equal(ops->name, known[i].name);
    }
}

static void test_orientation(void **state)
{
    (void)state;
    uint8_t big[] = {'M', 'M', 0, 42, 0,    0, 0, 8, 0, 2, 1, 0x0F, 0, 2, 0, 0, 0, 1, 'x',
                     0,   0,   0, 1,  0x12, 0, 3, 0, 0, 0, 1, 0,    6, 0, 0, 0, 0, 0, 0};
    uint8_t little[] = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3,
                        0,   1,   0,  0, 0, 8, 0, 0, 0, 0, 0,    0, 0};
    assert_int_equal(decode_exif_orientation(big, sizeof big), 6);
    assert_int_equal(decode_exif_orientation(little, sizeof little), 8);
    for (size_t n = 0; n < 22; n++) /* without the whole entry there is none */
        assert_int_equal(decode_exif_orientation(little, n), 1);
    for (int value = 0; value < 256; value++) {
        little[18] = (uint8_t)value;
        int32_t expected = value >= 1 && value <= 8 ? value : 1;
        assert_int_equal(decode_exif_orientation(little, sizeof little), expected);
    }
    little[18] = 3;
    little[12] = 2; /* a type that has no number */
    assert_int_equal(decode_exif_orientation(little, sizeof little), 1);
    little[12] = 4; /* a long */
    assert_int_equal(decode_exif_orientation(little, sizeof little), 3);
    little[14] = 2; /* two of them */
    assert_int_equal(decode_exif_orientation(little, sizeof little), 1);
    little[14] = 1;
    little[7] = 0xFF; /* the directory is far behind the end */
    assert_int_equal(decode_exif_orientation(little, sizeof little), 1);
    little[7] = 0;
    little[8] = little[9] = 0xFF; /* more entries than bytes */
    assert_int_equal(decode_exif_orientation(little, sizeof little), 3);
    little[2] = 43;
    assert_int_equal(decode_exif_orientation(little, sizeof little), 1);
}

static void test_orientation_of_garbage(void **state)
{
    (void)state;
    uint64_t luck = 11;
    for (int round = 0; round < 20000; round++) {
        size_t bytes = (size_t)chance_next(&luck) % 64;
        uint8_t *tiff = malloc(bytes + 1); /* of its own, so that a step too far is seen */
        for (size_t i = 0; i < bytes; i++)
            tiff[i] = (uint8_t)chance_next(&luck);
        if (bytes >= 8 && round % 2 == 0)
            memcpy(tiff, round % 4 == 0 ? "II*\0\x08\0\0" : "MM\0*\0\0\0\x08", 8);
        int32_t value = decode_exif_orientation(tiff, bytes);
        assert_true(value >= 1 && value <= 8);
        free(tiff);
    }
}

static void test_raw(void **state)
{
    (void)state;
    uint8_t row[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    struct decode_fault fault = {0};
    struct decode_packet packet = packet_of("abcd", 4);
    assert_int_equal(decode_raw(&packet, 4, row, &fault), SPDL_CLASS_OK);
    assert_memory_equal(row, "abcd\x09\x09", 6);
    assert_int_equal(decode_raw(&packet, 5, row, &fault), SPDL_CLASS_SHORT);
    assert_string_equal(fault.message, "it has 4 bytes, a row has 5");
    assert_int_equal(fault.byte_offset, 4);
    assert_int_equal(decode_raw(&packet, 3, row, &fault), SPDL_CLASS_LIMIT);
    packet.bytes = 0;
    assert_int_equal(decode_raw(&packet, 3, row, &fault), SPDL_CLASS_EMPTY);
    assert_memory_equal(row, "abcd\x09\x09", 6);
}

static void test_class(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum spdl_class class_number;
        int64_t value;
    } cases[] = {{"0", SPDL_CLASS_OK, 0},
                 {"17", SPDL_CLASS_OK, 17},
                 {" -3\r\n", SPDL_CLASS_OK, -3},
                 {"+0012\t", SPDL_CLASS_OK, 12},
                 {"9223372036854775807", SPDL_CLASS_OK, INT64_MAX},
                 {"-9223372036854775808", SPDL_CLASS_OK, INT64_MIN},
                 {"9223372036854775808", SPDL_CLASS_LIMIT, 0},
                 {"-9223372036854775809", SPDL_CLASS_LIMIT, 0},
                 {"99999999999999999999999", SPDL_CLASS_LIMIT, 0},
                 {"", SPDL_CLASS_EMPTY, 0},
                 {" \n", SPDL_CLASS_EMPTY, 0},
                 {"-", SPDL_CLASS_BAD_FORMAT, 0},
                 {"1 2", SPDL_CLASS_BAD_FORMAT, 0},
                 {"0x10", SPDL_CLASS_BAD_FORMAT, 0},
                 {"--1", SPDL_CLASS_BAD_FORMAT, 0},
                 {"cat", SPDL_CLASS_BAD_FORMAT, 0},
                 {"1.5", SPDL_CLASS_BAD_FORMAT, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct decode_packet packet = packet_of(cases[i].text, strlen(cases[i].text));
        struct decode_fault fault = {0};
        int64_t value = 0;
        assert_int_equal(decode_class_text(&packet, &value, &fault), cases[i].class_number);
        assert_true(value == cases[i].value);
    }
}

/* The definition once more, byte by byte; and values that must never change. */
static void test_made_up(void **state)
{
    (void)state;
    uint8_t row[67], again[67];
    const uint64_t step = UINT64_C(0x9e3779b97f4a7c15);
    for (uint64_t id = 0; id < 50; id++) {
        decode_made_up(id, sizeof row, row);
        for (uint64_t i = 0; i < sizeof row; i++) {
            uint64_t z[2] = {id + step, 0};
            for (int pass = 0; pass < 2; pass++) {
                uint64_t m = pass == 0 ? z[0] : z[1] + i / 8 * step;
                m = (m ^ (m >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
                m = (m ^ (m >> 27)) * UINT64_C(0x94d049bb133111eb);
                z[1] = m ^ (m >> 31);
            }
            assert_int_equal(row[i], (z[1] >> i % 8 * 8) & 255);
        }
        for (uint64_t bytes = 0; bytes <= sizeof row; bytes++) {
            memset(again, 0xAA, sizeof again);
            decode_made_up(id, bytes, again);
            assert_memory_equal(again, row, bytes);
            for (uint64_t i = bytes; i < sizeof again; i++)
                assert_int_equal(again[i], 0xAA);
        }
    }
    /* Computed by another program; they must never change. */
    static const uint8_t of_0[20] = {0xBF, 0xD4, 0x3C, 0xFF, 0x26, 0x82, 0x21, 0x48, 0x6F, 0x7E,
                                     0x19, 0x4D, 0x2F, 0xDD, 0x06, 0xA7, 0x5E, 0x4F, 0x41, 0xF4};
    static const uint8_t of_123456789[20] = {0x7B, 0x1E, 0x3E, 0x8C, 0x90, 0x06, 0xFA,
                                             0x89, 0x76, 0x77, 0x10, 0x4B, 0x19, 0x43,
                                             0x03, 0x80, 0x15, 0x33, 0xFC, 0xD9};
    static const uint8_t of_last[20] = {0x78, 0x0B, 0x81, 0x05, 0xE3, 0x18, 0x50, 0x44, 0x37, 0x71,
                                        0xA2, 0xB2, 0xA7, 0x0A, 0xC2, 0x5D, 0x9C, 0x04, 0xD7, 0x01};
    decode_made_up(0, 20, row);
    assert_memory_equal(row, of_0, 20);
    decode_made_up(123456789, 20, row);
    assert_memory_equal(row, of_123456789, 20);
    decode_made_up(UINT64_MAX, 20, row);
    assert_memory_equal(row, of_last, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_orientation),
        cmocka_unit_test(test_orientation_of_garbage),
        cmocka_unit_test(test_raw),
        cmocka_unit_test(test_class),
        cmocka_unit_test(test_made_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
