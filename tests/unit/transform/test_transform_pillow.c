/* The whole way of a picture through the room, against Pillow: many seeded combinations of
 * operations and sizes are folded and run here, and carried out one by one by pillow_reference.py.
 * Skipped where Pillow is missing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/philox.h"
#include "transform/transform_scratch.h"

static const char SCRIPT[] = "tests/unit/transform/pillow_reference.py";
enum { SKIPPED = 77, CASE_MAX = 1300, TEXT_BYTES = 256 };

struct sample {
    int32_t width, height;
    struct field_spec field;
    struct law_draws draws;
    uint8_t *pixels; /* R G B X */
    int32_t out_width, out_height;
    uint8_t *expected;
    bool exact; /* every byte must be Pillow's */
    char text[TEXT_BYTES];
};

static struct sample samples[CASE_MAX];
static int sample_count;

static uint32_t random_below(uint32_t *state, uint32_t n)
{
    const uint32_t counter[4] = {(*state)++, 0, 0, 0}, key[2] = {2024, 7};
    uint32_t words[4];
    philox4x32(counter, key, words);
    return (uint32_t)((uint64_t)words[0] * n >> 32);
}

/* Noise, hard edges, a smooth slope, or black and white only. */
static void paint(struct sample *sample, uint32_t *state)
{
    uint32_t kind = random_below(state, 4), period = 1 + random_below(state, 9);
    size_t count = (size_t)sample->width * (size_t)sample->height;
    sample->pixels = calloc(count * 4 + 64, 1);
    assert_non_null(sample->pixels);
    uint32_t noise = random_below(state, UINT32_MAX);
    for (size_t i = 0; i < count; i++) {
        uint32_t x = (uint32_t)(i % (size_t)sample->width),
                 y = (uint32_t)(i / (size_t)sample->width);
        for (uint32_t c = 0; c < 4; c++) {
            noise = noise * 1664525 + 1013904223;
            uint32_t value = noise >> 24;
            if (kind == 1)
                value = ((x / period + y / period + c) & 1) * 255;
            else if (kind == 2)
                value = (x * (c + 1) + y * 2 + (noise >> 29)) & 255;
            else if (kind == 3)
                value = (noise >> 31) * 255;
            sample->pixels[4 * i + c] = (uint8_t)value;
        }
    }
}

__attribute__((format(printf, 2, 3))) static void add_text(struct sample *sample,
                                                           const char *format, ...)
{
    size_t used = strlen(sample->text);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(sample->text + used, TEXT_BYTES - used, format, args);
    va_end(args);
    assert_true(n > 0 && (size_t)n < TEXT_BYTES - used);
}

/* Adds an operation and the words that make Pillow do the same; width and height are what it sees,
 * and what it leaves. Returns false when the operation is not possible. */
static bool add_op(struct sample *sample, struct op_spec op, int32_t *width, int32_t *height)
{
    sample->draws.operation = sample->field.op_count;
    struct law_draws *draws = &sample->draws;
    const char *filter = op.filter == FIELD_FILTER_BICUBIC ? "bicubic" : "bilinear";
    struct law_box box;
    switch ((enum op_kind)op.kind) {
    case OP_RESIZE:
        add_text(sample, " resize:%d:%d:%s", op.height, op.width, filter);
        if (op.width == 0 && *width <= *height) {
            *height = (int32_t)((int64_t)op.height * *height / *width);
            *width = op.height;
        } else if (op.width == 0) {
            *width = (int32_t)((int64_t)op.height * *width / *height);
            *height = op.height;
        } else {
            *width = op.width;
            *height = op.height;
        }
        break;
    case OP_CENTER_CROP:
        add_text(sample, " center_crop:%d:%d", op.height, op.width);
        *width = op.width;
        *height = op.height;
        break;
    case OP_RANDOM_RESIZED_CROP:
        box = law_random_resized_crop(draws, *width, *height, op.scale, op.ratio);
        add_text(sample, " crop:%d:%d:%d:%d resize:%d:%d:%s", box.x, box.y, box.width, box.height,
                 op.height, op.width, filter);
        *width = op.width;
        *height = op.height;
        break;
    case OP_RANDOM_CROP:
        if (!law_random_crop(draws, *width, *height, op.width, op.height, &box))
            return false;
        add_text(sample, " crop:%d:%d:%d:%d", box.x, box.y, box.width, box.height);
        *width = op.width;
        *height = op.height;
        break;
    case OP_RANDOM_FLIP:
    case OP_VERTICAL_FLIP:
        if (law_flip(draws, op.p))
            add_text(sample, op.kind == OP_RANDOM_FLIP ? " hflip" : " vflip");
        break;
    case OP_KIND_COUNT:
        fail();
    }
    sample->field.ops[sample->field.op_count++] = op;
    return true;
}

static struct op_spec random_op(uint32_t *state, uint32_t *resizes, uint32_t filter)
{
    struct op_spec op = {.filter = filter, .scale = {0.08, 1}, .ratio = {0.75, 4.0 / 3}, .p = 0.5};
    op.kind = 1 + random_below(state, OP_KIND_COUNT - 1);
    if (*resizes > 0 && (op.kind == OP_RESIZE || op.kind == OP_RANDOM_RESIZED_CROP))
        op.kind = OP_RANDOM_FLIP;
    *resizes += op.kind == OP_RESIZE || op.kind == OP_RANDOM_RESIZED_CROP;
    op.width = 1 + (int32_t)random_below(state, 90);
    op.height = 1 + (int32_t)random_below(state, 90);
    if (op.kind == OP_RESIZE && random_below(state, 3) == 0)
        op.width = 0;
    return op;
}

static struct sample *begin(uint32_t width, uint32_t height)
{
    assert_true(sample_count < CASE_MAX);
    struct sample *sample = &samples[sample_count];
    memset(sample, 0, sizeof *sample);
    sample->width = (int32_t)width;
    sample->height = (int32_t)height;
    sample->draws = (struct law_draws){.seed = 99, .position = (uint64_t)sample_count, .field = 3};
    sample->field =
        (struct field_spec){.dtype = FIELD_DTYPE_UINT8, .layout = FIELD_LAYOUT_NHWC, .channels = 3};
    add_text(sample, "%d %d", sample->width, sample->height);
    return sample;
}

static void finish(struct sample *sample, uint32_t *state, int32_t width, int32_t height)
{
    paint(sample, state);
    sample->out_width = width;
    sample->out_height = height;
    sample->field.row_bytes = 3 * (uint64_t)width * (uint64_t)height;
    sample_count++;
}

/* Any operations in any order on small pictures. */
static void make_mixed(uint32_t *state, uint32_t filter, int count)
{
    for (int made = 0; made < count;) {
        uint32_t w = 1 + random_below(state, 120), h = 1 + random_below(state, 120);
        struct sample *sample = begin(w, h);
        int32_t width = sample->width, height = sample->height;
        uint32_t ops = 1 + random_below(state, 4), resizes = 0;
        bool possible = true;
        for (uint32_t i = 0; i < ops && possible; i++)
            possible = add_op(sample, random_op(state, &resizes, filter), &width, &height);
        if (!possible || (int64_t)width * height > 300000)
            continue;
        finish(sample, state, width, height);
        made++;
    }
}

/* The recipes: a crop to 224, and the centre of 256. */
static void make_recipes(uint32_t *state, uint32_t filter, int count)
{
    const struct op_spec crop = {.kind = OP_RANDOM_RESIZED_CROP,
                                 .filter = filter,
                                 .height = 224,
                                 .width = 224,
                                 .scale = {0.08, 1},
                                 .ratio = {0.75, 4.0 / 3}};
    const struct op_spec flip = {.kind = OP_RANDOM_FLIP, .p = 0.5};
    const struct op_spec shrink = {.kind = OP_RESIZE, .filter = filter, .height = 256};
    const struct op_spec centre = {.kind = OP_CENTER_CROP, .height = 224, .width = 224};
    for (int i = 0; i < count; i++) {
        uint32_t w = 200 + random_below(state, 400), h = 200 + random_below(state, 400);
        struct sample *sample = begin(w, h);
        int32_t width = sample->width, height = sample->height;
        assert_true(add_op(sample, i % 2 ? crop : shrink, &width, &height));
        assert_true(add_op(sample, i % 2 ? flip : centre, &width, &height));
        sample->exact = filter == FIELD_FILTER_BICUBIC && i % 2 == 0;
        finish(sample, state, width, height);
    }
}

/* Ratios far from 1, both ways, and the narrowest pictures. */
static void make_extremes(uint32_t *state, uint32_t filter)
{
    static const int32_t sizes[][4] = {
        /* width, height, to width, to height */
        {4096, 300, 224, 224}, {300, 4096, 224, 224}, {2688, 2688, 224, 224}, {2700, 64, 224, 224},
        {1, 2000, 224, 224},   {2000, 1, 224, 224},   {1, 1, 224, 224},       {3, 2, 500, 700},
        {65535, 2, 224, 3},    {2, 65535, 3, 224},    {5000, 3, 1, 1},        {224, 300, 224, 224},
        {300, 224, 224, 224},  {224, 224, 224, 224},  {7, 9, 2000, 1},        {640, 480, 17, 480},
        {448, 448, 224, 224},  {450, 449, 225, 223}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct sample *sample = begin((uint32_t)sizes[i][0], (uint32_t)sizes[i][1]);
        const struct op_spec op = {
            .kind = OP_RESIZE, .filter = filter, .width = sizes[i][2], .height = sizes[i][3]};
        int32_t width = sample->width, height = sample->height;
        assert_true(add_op(sample, op, &width, &height));
        sample->exact = filter == FIELD_FILTER_BICUBIC;
        finish(sample, state, width, height);
    }
}

static void write_cases(int fd)
{
    FILE *file = fdopen(fd, "wb");
    assert_non_null(file);
    for (int i = 0; i < sample_count; i++) {
        const struct sample *sample = &samples[i];
        fprintf(file, "%s\n", sample->text);
        for (size_t p = 0; p < (size_t)sample->width * (size_t)sample->height; p++)
            fwrite(sample->pixels + 4 * p, 1, 3, file);
    }
    assert_int_equal(fclose(file), 0);
}

/* Starts the script; its output is read from ret_answer. */
static pid_t start_script(const char *path, FILE **ret_answer)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/usr/bin/python3", "python3", SCRIPT, path, (char *)NULL);
        _exit(SKIPPED);
    }
    close(ends[1]);
    *ret_answer = fdopen(ends[0], "rb");
    assert_non_null(*ret_answer);
    return pid;
}

static void ask_pillow(void)
{
    char path[] = "/tmp/spdl-pillow-XXXXXX";
    int fd = mkstemp(path), status;
    assert_true(fd >= 0);
    write_cases(fd);
    FILE *answer;
    pid_t pid = start_script(path, &answer);
    bool whole = true;
    for (int i = 0; i < sample_count && whole; i++) {
        struct sample *sample = &samples[i];
        const size_t bytes = sample->field.row_bytes;
        sample->expected = malloc(bytes);
        assert_non_null(sample->expected);
        whole = fread(sample->expected, 1, bytes, answer) == bytes;
    }
    whole = whole && fgetc(answer) == EOF;
    fclose(answer);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    unlink(path);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
        exit(SKIPPED);
    assert_int_equal(status, 0);
    assert_true(whole);
}

/* Copies the box alone into a tight buffer, as a decoder would leave it, with a margin of one
 * pixel. */
static uint8_t *cut_box(const struct sample *sample, const struct law_box *box, size_t *ret_stride)
{
    *ret_stride = 4 * ((size_t)box->width + 2);
    uint8_t *buffer = malloc(*ret_stride * (size_t)box->height + 64);
    assert_non_null(buffer);
    memset(buffer, 0xA5, *ret_stride * (size_t)box->height + 64);
    for (int32_t y = 0; y < box->height; y++)
        memcpy(buffer + *ret_stride * (size_t)y + 4,
               sample->pixels + 4 * ((size_t)(box->y + y) * (size_t)sample->width + (size_t)box->x),
               4 * (size_t)box->width);
    return buffer;
}

static void check_sample(struct transform *transform, const char *name, struct sample *sample)
{
    struct transform_geometry geometry;
    sample->draws.operation = 0; /* of the first; those of the others follow */
    enum spdl_class class_number =
        transform_fold(&sample->field, 3, &sample->draws, sample->width, sample->height, &geometry);
    assert_int_equal(class_number, SPDL_CLASS_OK);
    const struct law_box *box = &geometry.box;
    assert_true(box->x >= 0 && box->y >= 0 && box->width > 0 && box->height > 0);
    assert_true(box->x + box->width <= sample->width && box->y + box->height <= sample->height);
    size_t stride;
    uint8_t *buffer = cut_box(sample, box, &stride);
    uint8_t *row = malloc(sample->field.row_bytes);
    assert_non_null(row);
    memset(row, 0x5A, sample->field.row_bytes);
    const struct transform_pixels pixels = {buffer, stride, 1, 0};
    assert_int_equal(transform_run(transform, &sample->field, &geometry, &pixels, row), 0);
    int worst = 0;
    for (size_t i = 0; i < sample->field.row_bytes; i++) {
        int difference = abs(row[i] - sample->expected[i]);
        worst = difference > worst ? difference : worst;
    }
    if (worst > (sample->exact ? 0 : 1))
        fail_msg("%s differs by %d: %s", name, worst, sample->text);
    free(row);
    free(buffer);
}

static void test_all(void **state)
{
    (void)state;
    for (unsigned k = 0; transform_resize_choice(k); k++) {
        struct transform *transform = transform_create();
        assert_non_null(transform);
        transform_use(transform, transform_resize_choice(k));
        for (int i = 0; i < sample_count; i++)
            check_sample(transform, transform_resize_choice(k)->name, &samples[i]);
        transform_destroy(transform);
    }
}

static int make_all(void **state)
{
    (void)state;
    uint32_t random = 0;
    make_mixed(&random, FIELD_FILTER_BILINEAR, 500);
    make_mixed(&random, FIELD_FILTER_BICUBIC, 500);
    make_recipes(&random, FIELD_FILTER_BILINEAR, 30);
    make_recipes(&random, FIELD_FILTER_BICUBIC, 30);
    make_extremes(&random, FIELD_FILTER_BILINEAR);
    make_extremes(&random, FIELD_FILTER_BICUBIC);
    ask_pillow();
    return 0;
}

static int drop_all(void **state)
{
    (void)state;
    for (int i = 0; i < sample_count; i++) {
        free(samples[i].pixels);
        free(samples[i].expected);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
    return cmocka_run_group_tests(tests, make_all, drop_all);
}
