/* What spdlctl writes into files: NPY, and the sheets of preview. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <png.h>

#include "client/ctl/ctl_font.h"
#include "client/ctl/ctl_npy.h"
#include "client/ctl/ctl_sheet.h"

#define PYTHON "/usr/bin/python3"

static char folder[256];

/* Runs a program and returns its exit code, -1 when it cannot be started. */
static int run(const char *const words[])
{
    pid_t pid;
    int status;
    union {
        const char *const *plain;
        char *const *wanted; /* what posix_spawn wants of words that it does not change */
    } arguments = {.plain = words};
    if (posix_spawn(&pid, words[0], NULL, NULL, arguments.wanted, environ) != 0 ||
        waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

static int make_folder(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/ctl-files-XXXXXX", base ? base : P_tmpdir);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return run((const char *const[]){"/bin/rm", "-rf", folder, NULL});
}

static void header_is(enum spdl_dtype dtype, uint32_t dims, const char *wanted)
{
    struct spdl_tensor tensor = {.dtype = dtype, .dims = dims, .shape = {64, 224, 3}};
    char header[CTL_NPY_HEADER_MAX];
    size_t bytes;
    assert_int_equal(ctl_npy_header(&tensor, header, &bytes), 0);
    assert_int_equal(bytes % 64, 0);
    assert_memory_equal(header, "\x93NUMPY\x01\x00", 8);
    assert_int_equal((uint8_t)header[8] + 256 * (uint8_t)header[9], bytes - 10);
    assert_memory_equal(header + 10, wanted, strlen(wanted));
    for (size_t i = 10 + strlen(wanted); i < bytes - 1; i++)
        assert_int_equal(header[i], ' ');
    assert_int_equal(header[bytes - 1], '\n');
}

static void test_npy_header(void **state)
{
    (void)state;
    header_is(SPDL_UINT8, 3, "{'descr': '|u1', 'fortran_order': False, 'shape': (64, 224, 3), }");
    header_is(SPDL_INT64, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (64,), }");
    header_is(SPDL_FLOAT32, 2, "{'descr': '<f4', 'fortran_order': False, 'shape': (64, 224), }");
    header_is(SPDL_FLOAT16, 0, "{'descr': '<f2', 'fortran_order': False, 'shape': (), }");
    header_is(SPDL_BFLOAT16, 1, "{'descr': '<u2', 'fortran_order': False, 'shape': (64,), }");
    struct spdl_tensor tensor = {.dtype = SPDL_UINT8, .dims = 9};
    char header[CTL_NPY_HEADER_MAX];
    size_t bytes;
    memset(tensor.shape, 0xff, sizeof tensor.shape);
    assert_int_equal(ctl_npy_header(&tensor, header, &bytes), 0);
    assert_true(bytes <= sizeof header);
    tensor.dims = 10;
    assert_int_equal(ctl_npy_header(&tensor, header, &bytes), -EINVAL);
    tensor.dims = 1;
    tensor.dtype = (enum spdl_dtype)77;
    assert_int_equal(ctl_npy_header(&tensor, header, &bytes), -EINVAL);
}

/* NumPy reads what was written; skipped where there is none. */
static void test_npy_numpy(void **state)
{
    (void)state;
    if (run((const char *const[]){PYTHON, "-c", "import numpy", NULL}) != 0)
        skip();
    float values[6] = {0, 1, 2, 3, 4, 5.5F};
    int64_t labels[2] = {-1, INT64_MAX};
    struct spdl_tensor image = {.name = "image",
                                .dtype = SPDL_FLOAT32,
                                .dims = 3,
                                .shape = {2, 1, 3},
                                .data = values,
                                .bytes = sizeof values};
    struct spdl_tensor label = {.name = "label",
                                .dtype = SPDL_INT64,
                                .dims = 1,
                                .shape = {2},
                                .data = labels,
                                .bytes = sizeof labels};
    char path[300];
    snprintf(path, sizeof path, "%s/some/where", folder);
    int fd = ctl_npy_folder(path);
    assert_true(fd >= 0);
    assert_int_equal(ctl_npy_write(fd, 3, 1234567890, &image), 0);
    assert_int_equal(ctl_npy_write(fd, 3, 1234567890, &image), 0);
    assert_int_equal(ctl_npy_write(fd, 0, 7, &label), 0);
    label.name = "../label";
    assert_int_equal(ctl_npy_write(fd, 0, 7, &label), -EINVAL);
    close(fd);
    static const char script[] =
        "import numpy as np, os, sys; os.chdir(sys.argv[1])\n"
        "a = np.load('0003-1234567890.image.npy'); b = np.load('0000-00000007.label.npy')\n"
        "assert a.dtype == np.float32 and a.tolist() == [[[0, 1, 2]], [[3, 4, 5.5]]], a\n"
        "assert b.dtype == np.int64 and b.tolist() == [-1, 2 ** 63 - 1], b\n"
        "assert len(os.listdir('.')) == 2, os.listdir('.')";
    assert_int_equal(run((const char *const[]){PYTHON, "-c", script, path, NULL}), 0);
}

static void test_npy_refused(void **state)
{
    (void)state;
    char path[300];
    snprintf(path, sizeof path, "%s/file", folder);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ctl_npy_folder(path), -ENOTDIR);
    snprintf(path, sizeof path, "%s/file/below", folder);
    assert_int_equal(ctl_npy_folder(path), -ENOTDIR);
}

static void test_font(void **state)
{
    (void)state;
    /* Every letter but the space has ink, no two look alike, and none leaves its box. */
    uint64_t seen[95];
    for (int letter = 32; letter < 127; letter++) {
        uint64_t dots = 0;
        for (unsigned row = 0; row < CTL_FONT_ROWS; row++) {
            for (unsigned column = 0; column < CTL_FONT_COLUMNS; column++)
                dots = dots << 1 | ctl_font_dot((char)letter, row, column);
        }
        assert_true((dots != 0) == (letter != ' '));
        for (int other = 32; other < letter; other++)
            assert_true(seen[other - 32] != dots);
        seen[letter - 32] = dots;
    }
    assert_false(ctl_font_dot('M', CTL_FONT_ROWS, 0));
    assert_false(ctl_font_dot('M', 0, CTL_FONT_COLUMNS));
    for (unsigned row = 0; row < CTL_FONT_ROWS; row++)
        assert_int_equal(ctl_font_dot('\xff', row, 2), ctl_font_dot('?', row, 2));
}

enum { SIDE_Y = 160, SIDE_X = 200 };

static void sheet_pixel_is(const struct ctl_sheet *sheet, uint32_t x, uint32_t y,
                           const uint8_t rgb[3])
{
    assert_memory_equal(sheet->pixels + 3 * ((size_t)y * sheet->width + x), rgb, 3);
}

/* A picture comes out dot by dot in either layout, at its place, and the PNG holds the same. */
static void test_sheet(void **state)
{
    (void)state;
    static uint8_t nhwc[2][SIDE_Y][SIDE_X][3], nchw[2][3][SIDE_Y][SIDE_X];
    for (unsigned i = 0; i < 2 * SIDE_Y * SIDE_X * 3; i++) {
        unsigned c = i % 3, x = i / 3 % SIDE_X, y = i / 3 / SIDE_X % SIDE_Y;
        unsigned row = i / 3 / SIDE_X / SIDE_Y;
        uint8_t value = (uint8_t)(x + 3 * y + 70 * c + 11 * row);
        nhwc[row][y][x][c] = value;
        nchw[row][c][y][x] = value;
    }
    struct spdl_tensor tensors[2] = {
        {.dtype = SPDL_UINT8, .dims = 4, .shape = {2, SIDE_Y, SIDE_X, 3}, .data = nhwc},
        {.dtype = SPDL_UINT8, .dims = 4, .shape = {2, 3, SIDE_Y, SIDE_X}, .data = nchw}};
    struct ctl_sheet sheets[2];
    for (unsigned i = 0; i < 2; i++) {
        struct ctl_picture picture;
        assert_int_equal(ctl_picture_init(&picture, &tensors[i]), 0);
        assert_int_equal(ctl_sheet_create(&sheets[i], 2, picture.width, picture.height), 0);
        ctl_sheet_title(&sheets[i], "title");
        for (uint32_t row = 0; row < 2; row++) {
            ctl_sheet_picture(&sheets[i], row, &picture, row);
            ctl_sheet_text(&sheets[i], row, "a/very/long/key/that/does/not/fit/0001.jpg", "label");
        }
        sheet_pixel_is(&sheets[i], 12 + 5, 40 + 7, nhwc[0][7][5]);
        sheet_pixel_is(&sheets[i], 12 + SIDE_X + 12 + 199, 40 + 159, nhwc[1][159][199]);
    }
    size_t bytes = (size_t)sheets[0].width * sheets[0].height * 3;
    assert_memory_equal(sheets[0].pixels, sheets[1].pixels, bytes);

    char path[300];
    snprintf(path, sizeof path, "%s/sheet.png", folder);
    assert_int_equal(ctl_sheet_write(&sheets[0], path), 0);
    png_image image = {.version = PNG_IMAGE_VERSION};
    assert_true(png_image_begin_read_from_file(&image, path));
    assert_int_equal(image.width, sheets[0].width);
    assert_int_equal(image.height, sheets[0].height);
    image.format = PNG_FORMAT_RGB;
    uint8_t *back = malloc(bytes);
    assert_non_null(back);
    assert_true(png_image_finish_read(&image, NULL, back, 0, NULL));
    assert_memory_equal(back, sheets[0].pixels, bytes);
    free(back);
    snprintf(path, sizeof path, "%s/none/sheet.png", folder);
    assert_int_equal(ctl_sheet_write(&sheets[0], path), -ENOENT);
    snprintf(path, sizeof path, "%s/link.png", folder);
    assert_int_equal(symlink("aim.png", path), 0); /* what is no plain file stays what it is */
    assert_int_equal(ctl_sheet_write(&sheets[0], path), 0);
    struct stat there;
    assert_int_equal(lstat(path, &there), 0);
    assert_true(S_ISLNK(there.st_mode));
    assert_int_equal(stat(path, &there), 0);
    assert_true(S_ISREG(there.st_mode) && there.st_size > 100);
    ctl_sheet_destroy(&sheets[0]);
    ctl_sheet_destroy(&sheets[1]);
}

static void test_sheet_odd(void **state)
{
    (void)state;
    static const uint32_t sizes[][2] = {{1, 1}, {3, 1}, {127, 128}, {4000, 10}, {10, 4000}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint32_t width = sizes[i][0], height = sizes[i][1];
        uint8_t *data = calloc((size_t)width * height, 3);
        struct spdl_tensor tensor = {
            .dtype = SPDL_UINT8, .dims = 4, .shape = {1, height, width, 3}, .data = data};
        struct ctl_picture picture;
        struct ctl_sheet sheet;
        assert_non_null(data);
        assert_int_equal(ctl_picture_init(&picture, &tensor), 0);
        assert_int_equal(ctl_sheet_create(&sheet, 3, width, height), 0);
        ctl_sheet_picture(&sheet, 0, &picture, 0);
        ctl_sheet_missing(&sheet, 1, "TRUNCATED");
        ctl_sheet_missing(&sheet, 2, "BAD_FORMAT");
        for (uint32_t tile = 0; tile < 3; tile++)
            ctl_sheet_text(&sheet, tile, "k", "");
        ctl_sheet_destroy(&sheet);
        free(data);
    }
    struct ctl_sheet sheet;
    assert_int_equal(ctl_sheet_create(&sheet, 0, 10, 10), 0);
    ctl_sheet_destroy(&sheet);
    assert_int_equal(ctl_sheet_create(&sheet, 1000000, 200, 200), -EFBIG);
}

static void sample_is(const struct ctl_picture *picture, uint32_t x, const uint8_t rgb[3])
{
    uint8_t got[3];
    const uint32_t span[4] = {x, 0, x + 1, 1};
    ctl_picture_sample(picture, 0, span, got);
    assert_memory_equal(got, rgb, 3);
}

/* Floats are stretched over each channel's own range, in every kind of float; a value that is no
 * number harms nobody. */
static void test_picture_floats(void **state)
{
    (void)state;
    static const uint8_t black_red[3] = {255, 0, 0}, white[3] = {0, 255, 255};
    float full[2][3] = {{2.5F, -1, 0}, {-2, 3, 1}};
    uint16_t half[2][3] = {{0x4100, 0xbc00, 0}, {0xc000, 0x4200, 0x3c00}};
    uint16_t brain[2][3] = {{0x4020, 0xbf80, 0}, {0xc000, 0x4040, 0x3f80}};
    struct spdl_tensor tensors[3] = {
        {.dtype = SPDL_FLOAT32, .dims = 4, .shape = {1, 1, 2, 3}, .data = full},
        {.dtype = SPDL_FLOAT16, .dims = 4, .shape = {1, 1, 2, 3}, .data = half},
        {.dtype = SPDL_BFLOAT16, .dims = 4, .shape = {1, 1, 2, 3}, .data = brain}};
    struct ctl_picture picture;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(ctl_picture_init(&picture, &tensors[i]), 0);
        sample_is(&picture, 0, black_red);
        sample_is(&picture, 1, white);
    }
    memset(full, 0xff, sizeof full);
    uint8_t rgb[3];
    const uint32_t span[4] = {0, 0, 2, 1};
    assert_int_equal(ctl_picture_init(&picture, &tensors[0]), 0);
    ctl_picture_sample(&picture, 0, span, rgb);
    tensors[0].dtype = SPDL_INT64;
    assert_int_equal(ctl_picture_init(&picture, &tensors[0]), -ENOTSUP);
    tensors[1].dims = 3;
    assert_int_equal(ctl_picture_init(&picture, &tensors[1]), -ENOTSUP);
    tensors[2].shape[3] = 2;
    tensors[2].shape[1] = 5;
    assert_int_equal(ctl_picture_init(&picture, &tensors[2]), -ENOTSUP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npy_header),     cmocka_unit_test(test_npy_numpy),
        cmocka_unit_test(test_npy_refused),    cmocka_unit_test(test_font),
        cmocka_unit_test(test_sheet),          cmocka_unit_test(test_sheet_odd),
        cmocka_unit_test(test_picture_floats),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
