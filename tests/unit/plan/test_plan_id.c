/* Plan ids and the fields' canonical text: the vectors, what changes an id, what does not, what is
 * refused. */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

#include "plan/plan.h"
#include "tests/lib/vectors.h"

enum { TEXT_CAPACITY = 1 << 18 };

static void test_vectors_of_manifests(void **state)
{
    (void)state;
    struct vectors vectors;
    uint32_t rows = 0;
    vectors_open(&vectors);
    for (; vectors_next_of(&vectors, "manifest", 2); rows++) {
        size_t bytes;
        char *text = vectors_bytes(&vectors, 1, &bytes);
        XXH128_hash_t hash = XXH3_128bits(text, bytes);
        char id[PLAN_ID_TEXT_BYTES];
        plan_id_text((struct plan_id){.high = hash.high64, .low = hash.low64}, id);
        assert_string_equal(id, vectors.words[2]);
        free(text);
    }
    vectors_close(&vectors);
    assert_true(rows >= 6);
}

static void copy_name(char *to, size_t capacity, const char *from, size_t bytes)
{
    assert_true(bytes < capacity);
    memset(to, 0, capacity);
    memcpy(to, from, bytes);
}

/* The number of a name, by asking for the name of each number; "-" is 0. */
static uint32_t number_of(const char *name, const char *(*name_of)(uint32_t))
{
    if (strcmp(name, "-") == 0)
        return 0;
    for (uint32_t number = 1; number < 16; number++)
        if (name_of(number) && strcmp(name_of(number), name) == 0)
            return number;
    fail_msg("no such name: %s", name);
    return 0;
}

static void read_field(const struct vectors *vectors, struct field_spec *field)
{
    memset(field, 0, sizeof *field);
    copy_name(field->name, sizeof field->name, vectors->words[1], strlen(vectors->words[1]));
    copy_name(field->decoder, sizeof field->decoder, vectors->words[2], strlen(vectors->words[2]));
    for (const char *part = vectors->words[3]; part;) {
        const char *comma = strchr(part, ',');
        copy_name(field->from[field->from_count++], FIELD_PART_BYTES, part,
                  comma ? (size_t)(comma - part) : strlen(part));
        part = comma ? comma + 1 : NULL;
    }
    field->dtype = number_of(vectors->words[4], field_dtype_name);
    field->layout = number_of(vectors->words[5], field_layout_name);
    field->channels = vectors_u32(vectors, 6);
    field->ignore_orientation = vectors_u32(vectors, 7);
    field->bytes = vectors_u64(vectors, 8);
    field->max_pixels = vectors_u64(vectors, 9);
    field->normalize = vectors_u32(vectors, 10);
    for (uint32_t i = 0; i < 3; i++) {
        field->mean[i] = vectors_double(vectors, 11 + i);
        field->std[i] = vectors_double(vectors, 14 + i);
    }
}

static void read_op(const struct vectors *vectors, struct op_spec *op)
{
    *op = (struct op_spec){.kind = number_of(vectors->words[1], op_name),
                           .height = (int32_t)vectors_u32(vectors, 2),
                           .width = (int32_t)vectors_u32(vectors, 3),
                           .filter = number_of(vectors->words[4], field_filter_name),
                           .scale = {vectors_double(vectors, 5), vectors_double(vectors, 6)},
                           .ratio = {vectors_double(vectors, 7), vectors_double(vectors, 8)},
                           .p = vectors_double(vectors, 9)};
}

/* The row's text ends with the texts of the fields. */
static void check_texts(const struct vectors *vectors, const struct field_spec *fields,
                        uint32_t field_count)
{
    size_t bytes;
    char *text = vectors_bytes(vectors, 6, &bytes);
    char *all = malloc(TEXT_CAPACITY);
    assert_non_null(all);
    size_t used = 0;
    for (uint32_t i = 0; i < field_count; i++) {
        int n = field_canonical(&fields[i], all + used, TEXT_CAPACITY - used);
        assert_true(n > 0);
        used += (size_t)n;
        assert_int_equal(all[used], '\0');
    }
    assert_true(used < bytes);
    assert_memory_equal(text + bytes - used, all, used);
    free(all);
    free(text);
}

static void check_plan(const struct vectors *vectors, struct field_spec *fields,
                       uint32_t field_count)
{
    struct err err = {0};
    for (uint32_t i = 0; i < field_count; i++)
        if (field_finish(&fields[i], &err) != 0)
            fail_msg("%s", err.text);
    check_texts(vectors, fields, field_count);
    struct plan_id dataset;
    struct plan_id id;
    vectors_id(vectors, 1, &dataset.high, &dataset.low);
    const struct plan_spec spec = {.shuffle = number_of(vectors->words[2], plan_shuffle_name),
                                   .block_samples = vectors_u64(vectors, 3),
                                   .lanes = vectors_u32(vectors, 4),
                                   .last = number_of(vectors->words[5], plan_last_name)};
    assert_int_equal(plan_id_make(dataset, &spec, fields, field_count, &id, &err), 0);
    char text[PLAN_ID_TEXT_BYTES];
    plan_id_text(id, text);
    assert_string_equal(text, vectors->words[7]);
}

static void test_vectors_of_plans(void **state)
{
    (void)state;
    struct vectors vectors;
    struct field_spec *fields = calloc(FIELD_MAX, sizeof *fields);
    assert_non_null(fields);
    uint32_t field_count = 0;
    uint32_t plans = 0;
    vectors_open(&vectors);
    while (vectors_next(&vectors)) {
        if (strcmp(vectors.words[0], "plan_field") == 0) {
            assert_true(field_count < FIELD_MAX);
            read_field(&vectors, &fields[field_count++]);
        } else if (strcmp(vectors.words[0], "plan_op") == 0) {
            struct field_spec *field = &fields[field_count - 1];
            read_op(&vectors, &field->ops[field->op_count++]);
        } else if (strcmp(vectors.words[0], "plan") == 0) {
            check_plan(&vectors, fields, field_count);
            field_count = 0;
            plans++;
        }
    }
    vectors_close(&vectors);
    free(fields);
    assert_true(plans >= 14);
}

static struct field_spec picture(void)
{
    struct field_spec field = {
        .name = "image",
        .decoder = "image",
        .from = {"jpg"},
        .from_count = 1,
        .dtype = FIELD_DTYPE_FLOAT32,
        .layout = FIELD_LAYOUT_NCHW,
        .op_count = 2,
        .ops = {{.kind = OP_RANDOM_RESIZED_CROP,
                 .filter = FIELD_FILTER_BILINEAR,
                 .height = 224,
                 .width = 160,
                 .scale = {0.08, 1.0},
                 .ratio = {0.75, 4.0 / 3.0}},
                {.kind = OP_RANDOM_FLIP, .p = 0.5}},
        .normalize = 1,
        .mean = {0.5, 0.4, 0.3},
        .std = {0.1, 0.2, 0.3},
    };
    assert_int_equal(field_finish(&field, NULL), 0);
    return field;
}

static const struct plan_id dataset_id = {1, 2};
static const struct plan_spec global = {.shuffle = PLAN_SHUFFLE_GLOBAL, .last = PLAN_LAST_DROP};
static const struct plan_spec block = {
    .shuffle = PLAN_SHUFFLE_BLOCK, .last = PLAN_LAST_DROP, .block_samples = 100, .lanes = 2};

static struct plan_id id_of(struct field_spec field)
{
    struct plan_id id = {0};
    assert_int_equal(field_finish(&field, NULL), 0);
    assert_int_equal(plan_id_make(dataset_id, &global, &field, 1, &id, NULL), 0);
    return id;
}

static int is_same(struct plan_id a, struct plan_id b)
{
    return a.high == b.high && a.low == b.low;
}

#define CHANGED(...)                                                                               \
    do {                                                                                           \
        struct field_spec f = picture();                                                           \
        __VA_ARGS__;                                                                               \
        assert_false(is_same(id_of(f), base));                                                     \
    } while (0)

#define UNCHANGED(...)                                                                             \
    do {                                                                                           \
        struct field_spec f = picture();                                                           \
        __VA_ARGS__;                                                                               \
        assert_true(is_same(id_of(f), base));                                                      \
    } while (0)

static void test_what_changes_an_id(void **state)
{
    (void)state;
    const struct plan_id base = id_of(picture());
    CHANGED(f.name[0] = 'I');
    CHANGED(memcpy(f.from[0], "png", 4));
    CHANGED(memcpy(f.from[1], "png", 4), f.from_count = 2);
    CHANGED(f.dtype = FIELD_DTYPE_FLOAT16);
    CHANGED(f.layout = FIELD_LAYOUT_NHWC);
    CHANGED(f.normalize = 0);
    CHANGED(f.mean[2] = 0.31);
    CHANGED(f.std[0] = 0.11);
    CHANGED(f.ignore_orientation = 1);
    CHANGED(f.max_pixels = 1000000);
    CHANGED(f.ops[0].filter = FIELD_FILTER_BICUBIC);
    CHANGED(f.ops[0].height = 225);
    CHANGED(f.ops[0].width = 161);
    CHANGED(f.ops[0].scale[0] = 0.09);
    CHANGED(f.ops[0].scale[1] = 0.99);
    CHANGED(f.ops[0].ratio[0] = 0.76);
    CHANGED(f.ops[0].ratio[1] = 1.34);
    CHANGED(f.ops[1].p = 0.25);
    CHANGED(f.ops[1].kind = OP_VERTICAL_FLIP);
    CHANGED(f.op_count = 1);
    /* What an operation or a field does not have does not count, nor does a default that is written
     * out. */
    UNCHANGED(f.ops[0].p = 0.25);
    UNCHANGED(f.ops[1].height = 7, f.ops[1].filter = 2, f.ops[1].scale[0] = 3);
    UNCHANGED(f.mean[3] = 7, f.std[3] = 7);
    UNCHANGED(f.max_pixels = 0);
    UNCHANGED(f.channels = 0);
    UNCHANGED(memset(f.name + 6, 'x', sizeof f.name - 6));
}

static struct plan_id id_of_spec(struct plan_spec spec)
{
    const struct field_spec field = picture();
    struct plan_id id = {0};
    assert_int_equal(plan_id_make(dataset_id, &spec, &field, 1, &id, NULL), 0);
    return id;
}

/* The id of `spec` changed by the rest is another one, or the same one. */
#define OTHER_ORDER(from, ...)                                                                     \
    do {                                                                                           \
        struct plan_spec s = from;                                                                 \
        __VA_ARGS__;                                                                               \
        assert_false(is_same(id_of_spec(s), id_of_spec(from)));                                    \
    } while (0)
#define SAME_ORDER(from, ...)                                                                      \
    do {                                                                                           \
        struct plan_spec s = from;                                                                 \
        __VA_ARGS__;                                                                               \
        assert_true(is_same(id_of_spec(s), id_of_spec(from)));                                     \
    } while (0)

static void test_order_counts_too(void **state)
{
    (void)state;
    const struct field_spec field = picture();
    const struct plan_id base = id_of(field);
    struct plan_id id;
    OTHER_ORDER(global, s.shuffle = PLAN_SHUFFLE_NONE);
    OTHER_ORDER(global, s.last = PLAN_LAST_PAD);
    OTHER_ORDER(global, s.shuffle = PLAN_SHUFFLE_BLOCK, s.block_samples = 100);
    OTHER_ORDER(block, s.block_samples = 101);
    OTHER_ORDER(block, s.lanes = 4);
    OTHER_ORDER(block, s.lanes = 1);
    OTHER_ORDER(block, s.shuffle = PLAN_SHUFFLE_NONE);
    SAME_ORDER(global, s.lanes = 1, s.block_samples = 100);
    assert_int_equal(plan_id_make((struct plan_id){1, 3}, &global, &field, 1, &id, NULL), 0);
    assert_false(is_same(id, base));
    assert_int_equal(plan_id_make(dataset_id, &global, &field, 0, &id, NULL), 0);
    assert_false(is_same(id, base));
}

#define REFUSED(from, count, words, ...)                                                           \
    do {                                                                                           \
        struct plan_spec s = from;                                                                 \
        __VA_ARGS__;                                                                               \
        check_refused(&s, count, words);                                                           \
    } while (0)

static void check_refused(const struct plan_spec *spec, uint32_t field_count, const char *words)
{
    const struct field_spec field = picture();
    struct err err = {0};
    struct plan_id id = {7, 8};
    assert_int_equal(plan_id_make(dataset_id, spec, &field, field_count, &id, &err), -EINVAL);
    assert_non_null(strstr(err.text, words));
    assert_true(id.high == 7 && id.low == 8);
}

static void test_refusals(void **state)
{
    (void)state;
    REFUSED(global, 1, "none of none, global and block", s.shuffle = 0);
    REFUSED(global, 1, "none of none, global and block", s.shuffle = 9);
    REFUSED(global, 1, "none of drop, pad and partial", s.last = 0);
    REFUSED(global, FIELD_MAX + 1, "17 fields", s.last = PLAN_LAST_DROP);
    REFUSED(block, 1, "block_samples: 0 is not", s.block_samples = 0);
    REFUSED(block, 1, "281474976710657", s.block_samples = (UINT64_C(1) << 48) + 1);
    REFUSED(block, 1, "65537 lanes", s.lanes = 65537);
    REFUSED(global, 1, "2 lanes with shuffle: global", s.lanes = 2);
}

static void test_text_of_an_id(void **state)
{
    (void)state;
    char text[PLAN_ID_TEXT_BYTES];
    plan_id_text((struct plan_id){.high = 0x1, .low = 0xFEDCBA9876543210}, text);
    assert_string_equal(text, "0000000000000001fedcba9876543210");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_of_manifests),
        cmocka_unit_test(test_vectors_of_plans),
        cmocka_unit_test(test_what_changes_an_id),
        cmocka_unit_test(test_order_counts_too),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_text_of_an_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
