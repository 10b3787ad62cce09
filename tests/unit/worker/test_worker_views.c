/* Several views of a picture and several fields from one: made from one decode, equal to those made
 * alone from a whole decode, each with draws of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decode/decode.h"
#include "item/class.h"
#include "tests/lib/jpeg_maker.h"
#include "tests/lib/worker_rig.h"
#include "transform/transform.h"

enum { FIELDS = 4, VIEWS = 3, SIDE = 24, POSITION = 12345, EPOCH = 2 };

static void fields_make(struct field_spec fields[FIELDS])
{
    for (uint32_t f = 0; f < FIELDS; f++) {
        fields[f] = rig_image_field(OP_RANDOM_RESIZED_CROP);
        fields[f].name[0] = (char)('a' + f);
        fields[f].ops[1] = (struct op_spec){.kind = OP_RANDOM_FLIP, .p = 0.5};
        fields[f].op_count = 2;
    }
    fields[0].views = VIEWS;
    fields[1].dtype = FIELD_DTYPE_FLOAT32;
    fields[1].layout = FIELD_LAYOUT_NCHW;
    fields[2].op_count = 1;
    fields[2].ops[0] = (struct op_spec){.kind = OP_CENTER_CROP, .height = SIDE, .width = SIDE};
    fields[3].views = 1;
    for (uint32_t f = 0; f < FIELDS; f++)
        assert_int_equal(field_finish(&fields[f], NULL), 0);
    assert_int_equal(fields[0].dim_count, 4);
    assert_int_equal(fields[0].dims[0], VIEWS);
    assert_int_equal(fields[0].row_bytes, VIEWS * RIG_SIDE * RIG_SIDE * 3);
    assert_int_equal(fields[3].dims[0], 1);
    assert_int_equal(fields[1].dim_count, 3);
}

/* A view of a field, made from the whole picture. Returns the box. */
static struct law_box view_make(const struct field_spec *field, const struct law_draws *draws,
                                const struct decode_pixels *pixels, const struct decode_head *head,
                                uint8_t *to)
{
    struct transform_geometry geometry;
    assert_int_equal(
        transform_fold(field, draws->field, draws, head->width, head->height, &geometry),
        SPDL_CLASS_OK);
    struct transform_pixels own = {pixels->base, pixels->stride, pixels->region_x + geometry.box.x,
                                   pixels->region_y + geometry.box.y};
    struct transform *transform = transform_create();
    assert_non_null(transform);
    assert_int_equal(transform_run(transform, field, &geometry, &own, to), 0);
    transform_destroy(transform);
    if (field->ops[0].kind == OP_RANDOM_RESIZED_CROP) { /* the law, with docs/order.md's number */
        struct law_box box = law_random_resized_crop(draws, head->width, head->height,
                                                     field->ops[0].scale, field->ops[0].ratio);
        assert_memory_equal(&box, &geometry.box, sizeof box);
    }
    return geometry.box;
}

static void check_all(struct worker_rig *rig, const struct worker_add *add,
                      const struct field_spec *fields, const uint8_t *file, size_t bytes)
{
    const struct decode_ops *ops = decode_table[0];
    struct decode_packet packet = {file, bytes};
    struct decode_fault fault = {0};
    struct decode_head head;
    struct decode_pixels pixels;
    void *ctx = aligned_alloc(64, (ops->ctx_bytes + 63) / 64 * 64);
    assert_non_null(ctx);
    memset(ctx, 0, ops->ctx_bytes);
    assert_int_equal(ops->open(ctx), 0);
    assert_int_equal(ops->head(ctx, &packet, 1 << 20, &head, &fault), SPDL_CLASS_OK);
    struct decode_region whole = {0, 0, head.width, head.height};
    assert_int_equal(ops->decode(ctx, &packet, &whole, false, &pixels, &fault), SPDL_CLASS_OK);
    for (uint32_t f = 0; f < FIELDS; f++) {
        uint32_t views = fields[f].views > 0 ? fields[f].views : 1;
        size_t view_bytes = fields[f].row_bytes / views;
        uint8_t *expected = malloc(view_bytes);
        assert_non_null(expected);
        struct law_box boxes[VIEWS];
        for (uint32_t v = 0; v < views; v++) {
            struct law_draws draws = {
                .seed = 7, .position = POSITION, .epoch = EPOCH, .field = f, .operation = 16 * v};
            boxes[v] = view_make(&fields[f], &draws, &pixels, &head, expected);
            assert_memory_equal(rig_row_of(rig, add, f, 0, 3) + v * view_bytes, expected,
                                view_bytes);
            for (uint32_t u = 0; u < v; u++)
                assert_memory_not_equal(&boxes[u], &boxes[v], sizeof boxes[0]);
        }
        free(expected);
    }
    ops->close(ctx);
    free(ctx);
}

/* Row `row` of stream 0. */
static struct spdl_work_completion run(struct worker_rig *rig, uint32_t row, const uint8_t *file,
                                       size_t bytes, bool shared)
{
    struct spdl_work_command command = rig_command_for(0, 0, row);
    command.position = POSITION;
    command.epoch = EPOCH;
    struct spdl_work_part part = rig_blob(rig, 4096, file, bytes);
    for (uint32_t f = 0; f < FIELDS; f++) {
        if (f == 0 || !shared)
            rig_add_part(&command, f, part);
        else
            command.field_part[f] = 0;
    }
    rig_put(rig, command);
    rig_publish(rig);
    return rig_wait_one(rig);
}

static void test_one_decode(void **state)
{
    (void)state;
    struct worker_rig *rig = rig_ready(1);
    struct field_spec fields[FIELDS];
    fields_make(fields);
    struct worker_add add = rig_add_message(0, fields, FIELDS);
    rig_add_stream(rig, &add);
    for (int orientation = 1; orientation <= 8; orientation++) {
        struct jpeg_recipe recipe = {
            .width = 160, .height = 120, .quality = 90, .orientation = orientation};
        size_t bytes;
        uint8_t *file = jpeg_make(&recipe, &bytes);
        struct spdl_work_completion record = run(rig, 3, file, bytes, true);
        assert_int_equal(record.class_number, SPDL_CLASS_OK);
        if (orientation == 1)
            check_all(rig, &add, fields, file, bytes);
        /* The same picture as four parts is decoded four times. */
        struct spdl_work_completion alone = run(rig, 5, file, bytes, false);
        assert_int_equal(alone.class_number, SPDL_CLASS_OK);
        assert_memory_equal(alone.crop, record.crop, sizeof record.crop);
        assert_int_equal(alone.flags, record.flags);
        for (uint32_t f = 0; f < FIELDS; f++)
            assert_memory_equal(rig_row_of(rig, &add, f, 0, 3), rig_row_of(rig, &add, f, 0, 5),
                                fields[f].row_bytes);
        free(file);
    }
    assert_int_equal(rig_end(rig), 0);
}

/* A field that cannot be made from the picture does not spoil those before it: it fails by itself,
 * with its number, also behind a field of another kind that fails first. */
static void test_faults_keep_their_field(void **state)
{
    (void)state;
    struct worker_rig *rig = rig_ready(1);
    struct field_spec fields[3] = {rig_image_field(OP_CENTER_CROP), rig_class_field(),
                                   rig_image_field(OP_RANDOM_CROP)};
    fields[2].name[0] = 'z';
    fields[2].ops[0].height = fields[2].ops[0].width = 500; /* larger than the picture */
    assert_int_equal(field_finish(&fields[2], NULL), 0);
    struct worker_add add = rig_add_message(0, fields, 3);
    rig_add_stream(rig, &add);
    struct jpeg_recipe recipe = {.width = 64, .height = 64, .quality = 90};
    size_t bytes;
    uint8_t *file = jpeg_make(&recipe, &bytes);
    for (int good_label = 0; good_label < 2; good_label++) {
        struct spdl_work_command command = rig_command_for(0, 0, 0);
        rig_add_part(&command, 0, rig_blob(rig, 4096, file, bytes));
        rig_add_part(&command, 1, rig_blob(rig, 64, good_label ? "1" : "x", 1));
        command.field_part[2] = 0;
        rig_put(rig, command);
        rig_publish(rig);
        struct spdl_work_completion record = rig_wait_one(rig);
        assert_int_equal(record.class_number,
                         good_label ? SPDL_CLASS_OUT_OF_RANGE : SPDL_CLASS_BAD_FORMAT);
        assert_int_equal(record.field, good_label ? 2 : 1);
    }
    free(file);
    assert_int_equal(rig_end(rig), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_decode),
        cmocka_unit_test(test_faults_keep_their_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
