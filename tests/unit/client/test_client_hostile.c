/* A daemon with a fault: words of the segments that lie, descriptors that are not what they should
 * be, messages that cannot be read. The client says -EPROTO or goes on; it never reads outside its
 * mappings. */
#include "tests/unit/client/client_rig.h"

enum { FIELDS_AT = 512, ORDER_AT = 1024, SLOTS_AT = 4096 };

/* Writes `bytes` bytes of value at `at` of the control segment. */
struct change {
    size_t at, bytes;
    uint64_t value;
};

static void apply(void *argument, unsigned char *control)
{
    const struct change *change = argument;
    memcpy(control + change->at, &change->value, change->bytes);
}

static int open_with(struct rig *rig, struct change *change)
{
    rig_init(rig);
    rig->fake.mutate = change ? apply : NULL;
    rig->fake.mutate_argument = change;
    fake_start(&rig->fake);
    assert_int_equal(rig_connect(rig, 0), 0);
    return rig_open(rig, 0);
}

#define HEADER(member, value)                                                                      \
    {                                                                                              \
        offsetof(struct spdl_shm_header, member), sizeof(((struct spdl_shm_header *)0)->member),   \
            value                                                                                  \
    }
#define FIELD(member, value)                                                                       \
    {                                                                                              \
        FIELDS_AT + offsetof(struct spdl_shm_field, member), 8, value                              \
    }

static void test_header(void **state)
{
    (void)state;
    static struct change changes[] = {
        HEADER(magic, 0),
        HEADER(major, 2),
        HEADER(control_bytes, 4096),
        HEADER(control_bytes, UINT64_MAX),
        HEADER(data_bytes, 0),
        HEADER(data_bytes, UINT64_MAX),
        HEADER(slot_count, 0),
        HEADER(slot_count, 65),
        HEADER(slot_count, UINT32_MAX),
        HEADER(order_count, 0),
        HEADER(order_count, 4),
        HEADER(order_count, 12),
        HEADER(order_count, 1u << 31),
        HEADER(field_count, 0),
        HEADER(field_count, SPDL_SHM_FIELDS_MAX + 1),
        HEADER(row_count, 0),
        HEADER(row_count, UINT32_MAX),
        HEADER(row_count, 40),
        HEADER(fields_offset, 4),
        HEADER(fields_offset, UINT64_MAX - 7),
        HEADER(order_offset, UINT64_MAX - 7),
        HEADER(order_offset, 1028),
        HEADER(slots_offset, UINT64_MAX - 7),
        HEADER(slot_stride, 0),
        HEADER(slot_stride, UINT64_MAX - 7),
        HEADER(slot_stride, UINT64_C(1) << 62),
        HEADER(slot_data_bytes, 270),
        HEADER(ready, 0),
        FIELD(name, UINT64_C(0)),
        {FIELDS_AT + offsetof(struct spdl_shm_field, dtype), 4, 0},
        {FIELDS_AT + offsetof(struct spdl_shm_field, dtype), 4, 6},
        {FIELDS_AT + offsetof(struct spdl_shm_field, dtype), 4, UINT32_MAX},
        {FIELDS_AT + offsetof(struct spdl_shm_field, dim_count), 4, 9},
        {FIELDS_AT + offsetof(struct spdl_shm_field, dim_count), 4, 2},
        FIELD(dims[0], UINT64_MAX),
        FIELD(dims[1], UINT64_C(1) << 63),
        FIELD(dims[2], 4),
        FIELD(row_bytes, 13),
        FIELD(row_bytes, UINT64_MAX),
        {FIELDS_AT + offsetof(struct spdl_shm_field, kind), 4, SPDL_SHM_FIELD_VALUES},
        {FIELDS_AT + offsetof(struct spdl_shm_field, kind), 4, SPDL_SHM_FIELD_OFFSETS},
        {FIELDS_AT + offsetof(struct spdl_shm_field, kind), 4, 3},
        {FIELDS_AT + offsetof(struct spdl_shm_field, kind), 4, UINT32_MAX},
        FIELD(slot_offset, UINT64_MAX - 255),
        FIELD(slot_offset, 512),
        FIELD(slot_offset, 8),
    };
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct rig rig;
        int rc = open_with(&rig, &changes[i]);
        if (rc != -EPROTO)
            fail_msg("change %zu at %zu: %d", i, changes[i].at, rc);
        assert_non_null(strstr(spdl_connection_error(rig.connection), "what it should be"));
        rig_fini(&rig);
    }
}

/* Dimensions whose product is 0 while a stride would overflow. */
static void no_bytes(void *argument, unsigned char *control)
{
    (void)argument;
    struct spdl_shm_field field;
    memcpy(&field, control + FIELDS_AT, sizeof(field));
    field.dims[0] = 0;
    field.dims[1] = UINT64_C(1) << 40;
    field.dims[2] = UINT64_C(1) << 40;
    field.row_bytes = 0;
    memcpy(control + FIELDS_AT, &field, sizeof(field));
}

static void long_name(void *argument, unsigned char *control)
{
    (void)argument;
    memset(control + FIELDS_AT, 'n', SPDL_SHM_NAME_BYTES);
}

static void test_field_corners(void **state)
{
    (void)state;
    void (*const mutates[])(void *, unsigned char *) = {no_bytes, long_name};
    for (size_t i = 0; i < 2; i++) {
        struct rig rig;
        rig_init(&rig);
        rig.fake.mutate = mutates[i];
        fake_start(&rig.fake);
        assert_int_equal(rig_connect(&rig, 0), 0);
        assert_int_equal(rig_open(&rig, 0), -EPROTO);
        rig_fini(&rig);
    }
}

/* Reads all that a batch shows, to the last byte. Returns a sum so that nothing is left out. */
static uint64_t read_all(const struct spdl_batch *batch)
{
    uint64_t sum = 0;
    struct spdl_batch_info info;
    spdl_batch_info(batch, &info);
    sum += strlen(info.state);
    for (uint32_t i = 0; i < info.fields; i++) {
        struct spdl_tensor t;
        assert_int_equal(spdl_batch_tensor(batch, i, &t), 0);
        sum += strlen(t.name);
        const unsigned char *bytes = t.data;
        for (size_t b = 0; b < t.bytes; b++)
            sum += bytes[b];
    }
    for (uint32_t r = 0; r < info.rows; r++) {
        struct spdl_row row;
        int rc = spdl_batch_row(batch, r, &row);
        assert_true(rc == 0 || rc == -EPROTO);
        for (uint32_t b = 0; b < row.key_bytes; b++)
            sum += (unsigned char)row.key[b];
        for (uint32_t b = 0; b < row.failed_key_bytes; b++)
            sum += (unsigned char)row.failed_key[b];
        if (rc == 0)
            sum += strlen(row.message) + strlen(row.failed_class);
    }
    return sum;
}

#define SLOT(member, value)                                                                        \
    {                                                                                              \
        SLOTS_AT + offsetof(struct spdl_shm_slot, member),                                         \
            sizeof(((struct spdl_shm_slot *)0)->member), value                                     \
    }

static void test_slot(void **state)
{
    (void)state;
    static struct change changes[] = {
        SLOT(sequence, 1),
        SLOT(rows, 4),
        SLOT(rows, UINT32_MAX),
        SLOT(valid, 4),
        SLOT(error_count, 4),
        SLOT(state_bytes, 512),
        SLOT(state_bytes, UINT32_MAX),
        SLOT(state_bytes, 3),
        SLOT(data_offset, UINT64_MAX - 255),
        SLOT(data_offset, 8),
        SLOT(data_offset, 2048),
        SLOT(rows_offset, UINT64_MAX - 7),
        SLOT(rows_offset, 4),
        SLOT(messages_offset, UINT64_MAX),
        SLOT(messages_offset, UINT64_C(1) << 20),
        SLOT(text_offset, UINT64_MAX),
        SLOT(text_bytes, UINT64_MAX),
    };
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct rig rig;
        rig_init(&rig);
        rig.fake.mutate = apply;
        rig.fake.mutate_argument = &changes[i];
        rig.fake.mutate_slot = 1;
        rig.fake.allowed = 1;
        fake_start(&rig.fake);
        assert_int_equal(rig_connect(&rig, 0), 0);
        assert_int_equal(rig_open(&rig, 0), 0);
        struct spdl_batch *batch;
        int rc = spdl_next(rig.stream, 10.0, &batch);
        if (rc != -EPROTO)
            fail_msg("change %zu at %zu: %d", i, changes[i].at, rc);
        assert_int_equal(spdl_next(rig.stream, 10.0, &batch), -EPROTO);
        rig_fini(&rig);
    }
}

static void test_rows(void **state)
{
    (void)state;
    enum { ROW_AT = SLOTS_AT + 1024 }; /* row 0 of slot 0 */
    static struct change changes[] = {
        {ROW_AT + offsetof(struct spdl_shm_row, key_offset), 4, UINT32_MAX},
        {ROW_AT + offsetof(struct spdl_shm_row, key_bytes), 4, 1025},
        {ROW_AT + offsetof(struct spdl_shm_row, key_bytes), 4, 257},
        {ROW_AT + offsetof(struct spdl_shm_row, failed_key_bytes), 4, UINT32_MAX},
        {ROW_AT + offsetof(struct spdl_shm_row, class_number), 4, SPDL_SHM_ROWS_MAX},
        {ROW_AT + offsetof(struct spdl_shm_row, message), 4, 65},
        {ROW_AT + offsetof(struct spdl_shm_row, message), 4, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct rig rig;
        rig_init(&rig);
        rig.fake.mutate = apply;
        rig.fake.mutate_argument = &changes[i];
        rig.fake.mutate_slot = 1;
        rig.fake.allowed = 1;
        fake_start(&rig.fake);
        assert_int_equal(rig_connect(&rig, 0), 0);
        assert_int_equal(rig_open(&rig, 0), 0);
        struct spdl_batch *batch;
        struct spdl_row row;
        assert_int_equal(spdl_next(rig.stream, 10.0, &batch), 0);
        assert_int_equal(spdl_batch_row(batch, 0, &row), -EPROTO);
        assert_int_equal(spdl_batch_row(batch, 1, &row), 0);
        read_all(batch);
        spdl_batch_unref(batch);
        rig_fini(&rig);
    }
}

struct tally {
    uint64_t opened, taken, refused;
};

/* Opens the stream with one word changed and reads what comes of it. */
static void try_change(struct rig *rig, struct tally *tally)
{
    int rc = rig_open(rig, 0);
    tally->opened += rc == 0;
    tally->refused += rc == -EPROTO;
    assert_true(rc == 0 || rc == -EPROTO);
    for (int i = 0; rc == 0 && i < 2; i++) {
        struct spdl_batch *batch;
        rc = spdl_next(rig->stream, 0.01, &batch);
        if (rc == 0) {
            read_all(batch);
            tally->taken++;
            spdl_batch_unref(batch);
        }
    }
    spdl_close(rig->stream);
    rig->stream = NULL;
}

/* Every word of the control segment's used parts takes hostile values in turn; nothing but an error
 * or a batch may come of it. */
static void test_every_word(void **state)
{
    (void)state;
    static const uint64_t values[] = {
        0, 1, 0x7fffffff, UINT64_MAX, UINT64_C(0xfffffffffffff000), UINT64_C(0x8000000000000000)};
    enum { VALUES = sizeof(values) / sizeof(values[0]) };
    static const size_t ranges[][2] = {{0, 128},
                                       {128, 136},
                                       {FIELDS_AT, FIELDS_AT + 2 * sizeof(struct spdl_shm_field)},
                                       {ORDER_AT, ORDER_AT + 16},
                                       {SLOTS_AT, SLOTS_AT + 176},
                                       {SLOTS_AT + 1024, SLOTS_AT + 1024 + 160}};
    struct rig rig;
    rig_init(&rig);
    struct change change = {0};
    rig.fake.mutate = apply;
    rig.fake.mutate_argument = &change;
    rig.fake.mutate_slot = 1;
    rig.fake.slots = 2;
    fake_start(&rig.fake);
    assert_int_equal(rig_connect(&rig, 0), 0);
    struct tally tally = {0};
    for (size_t range = 0; range < sizeof(ranges) / sizeof(ranges[0]); range++) {
        size_t words = (ranges[range][1] - ranges[range][0]) / 4;
        for (size_t n = 0; n < words * VALUES; n++) {
            size_t at = ranges[range][0] + n / VALUES * 4, v = n % VALUES;
            pthread_mutex_lock(&rig.fake.lock);
            change = (struct change){at, at % 8 == 0 && v % 2 == 1 ? 8 : 4, values[v]};
            pthread_mutex_unlock(&rig.fake.lock);
            try_change(&rig, &tally);
        }
    }
    assert_true(tally.opened > 100 && tally.taken > 100 && tally.refused > 100);
    rig_fini(&rig);
}

static void test_lies(void **state)
{
    (void)state;
    static const struct {
        enum fake_lie lie;
        int connect_rc, open_rc;
    } cases[] = {
        {FAKE_LIE_PROTOCOL, -EPROTO, 0}, {FAKE_LIE_SMALL_DATA, 0, -EPROTO},
        {FAKE_LIE_TWO_FDS, 0, -EPROTO},  {FAKE_LIE_PIPE, 0, -EPROTO},
        {FAKE_LIE_GARBAGE, 0, -EPIPE},   {FAKE_LIE_OVERSIZED, 0, -EPIPE},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rig rig;
        rig_init(&rig);
        rig.fake.lie = cases[i].lie;
        fake_start(&rig.fake);
        int fds = rig_fd_count();
        assert_int_equal(rig_connect(&rig, 0), cases[i].connect_rc);
        if (cases[i].connect_rc == 0)
            assert_int_equal(rig_open(&rig, 0), cases[i].open_rc);
        assert_true(strlen(spdl_connection_error(rig.connection)) > 10);
        spdl_disconnect(rig.connection);
        rig.connection = NULL;
        fake_kill(&rig.fake);
        assert_int_equal(rig_fd_count(), fds - 1); /* that of the listener */
        rig_fini(&rig);
    }
}

/* A slot that is held is published again: the stream ends, the batch held is not touched. */
static void test_slot_twice(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.fake.lie = FAKE_LIE_SLOT_TWICE;
    rig.fake.slots = 2;
    rig.fake.allowed = 2;
    fake_start(&rig.fake);
    assert_int_equal(rig_connect(&rig, 0), 0);
    assert_int_equal(rig_open(&rig, 0), 0);
    struct spdl_batch *first, *batch;
    assert_int_equal(spdl_next(rig.stream, 10.0, &first), 0);
    rig.next = 1;
    rig_take(&rig);
    fake_await(&rig.fake, &rig.fake.releases, 1);
    fake_allow(&rig.fake, 2); /* the second of them in slot 0 */
    int rc;
    while ((rc = spdl_next(rig.stream, 10.0, &batch)) == 0)
        spdl_batch_unref(batch);
    assert_int_equal(rc, -EPROTO);
    spdl_batch_unref(first);
    rig_fini(&rig);
}

/* Nobody answers Hello: connecting ends in time (10 s), not never. */
static void test_silence(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.fake.lie = FAKE_LIE_SILENCE;
    fake_start(&rig.fake);
    double begin = rig_now();
    assert_int_equal(rig_connect(&rig, 0), -ETIMEDOUT);
    double took = rig_now() - begin;
    assert_true(took >= 9.9 && took < 20.0);
    rig_fini(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),     cmocka_unit_test(test_field_corners),
        cmocka_unit_test(test_slot),       cmocka_unit_test(test_rows),
        cmocka_unit_test(test_every_word), cmocka_unit_test(test_lies),
        cmocka_unit_test(test_slot_twice), cmocka_unit_test(test_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
