/* The layout as bytes: where the words of a header stand in memory, and what an order entry says.
 * The offsets of all fields are asserted when shm_layout.c and shm_work.c are compiled; here the
 * values come back out of plain bytes, as another program would read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shm/shm_class.h"
#include "shm/shm_layout.h"
#include "shm/shm_work.h"

static uint64_t word(const void *memory, size_t offset, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, (const uint8_t *)memory + offset, bytes);
    return value;
}

static void test_header_bytes(void **state)
{
    (void)state;
    struct spdl_shm_header header;
    memset(&header, 0, sizeof header);
    header.magic = SPDL_SHM_MAGIC;
    header.major = SPDL_SHM_MAJOR;
    header.slot_count = 0x11;
    header.order_count = 0x22;
    header.slot_stride = 0x33;
    atomic_store(&header.ready, SPDL_SHM_MAGIC);
    assert_memory_equal(&header, "SPDLTRL1", 8);
    assert_int_equal(word(&header, 8, 4), 1);
    assert_int_equal(word(&header, 48, 4), 0x11);
    assert_int_equal(word(&header, 52, 4), 0x22);
    assert_int_equal(word(&header, 88, 8), 0x33);
    assert_memory_equal((const uint8_t *)&header + 128, "SPDLTRL1", 8);
}

static void test_order_entries(void **state)
{
    (void)state;
    assert_int_equal(spdl_shm_order_entry(0, 0), 0x100);
    assert_int_equal(spdl_shm_order_entry(0, 63), 0x13f);
    assert_int_equal(spdl_shm_order_entry(UINT64_C(1) << 40, 5),
                     ((UINT64_C(1) << 40) + 1) << 8 | 5);
    for (uint64_t k = 0; k < 1000; k++) { /* an entry is of one k and one slot alone, and never 0 */
        uint64_t entry = spdl_shm_order_entry(k, (uint32_t)(k % SPDL_SHM_SLOTS_MAX));
        assert_int_equal(entry >> 8, k + 1);
        assert_int_equal(entry & 0xff, k % SPDL_SHM_SLOTS_MAX);
    }
}

static void test_work_lines(void **state)
{
    (void)state;
    struct spdl_work_command_segment *segment = calloc(1, sizeof *segment + 128);
    assert_non_null(segment);
    atomic_store(&segment->published, 7);
    atomic_store(&segment->waiting, 1);
    segment->cells[1].ticket = 0x55;
    assert_int_equal(word(segment, 128, 4), 7);
    assert_int_equal(word(segment, 256, 4), 1);
    assert_int_equal(word(segment, 384 + 480, 8), 0x55);
    free(segment);
}

static void test_class_names(void **state)
{
    (void)state;
    assert_string_equal(spdl_class_name(SPDL_CLASS_OK), "OK");
    assert_string_equal(spdl_class_name(3), "TRUNCATED");
    assert_string_equal(spdl_class_name(12), "IO_ERROR");
    assert_string_equal(spdl_class_name(22), "CRASH");
    assert_string_equal(spdl_class_name(23), "UNKNOWN");
    assert_string_equal(spdl_class_name(UINT32_MAX), "UNKNOWN");
    for (unsigned i = 0; i < SPDL_CLASS_COUNT; i++)
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(spdl_class_name(i), spdl_class_name(k));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header_bytes),
        cmocka_unit_test(test_order_entries),
        cmocka_unit_test(test_work_lines),
        cmocka_unit_test(test_class_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
