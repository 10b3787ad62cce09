/* Forms of PNG, WebP, BMP and PNM that loaders are known to get wrong, with their right values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <webp/encode.h>

#include "decode/decode.h"
#include "tests/lib/codecs.h"
#include "tests/lib/picture_maker.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct decode_head head;
static struct decode_pixels pixels;
static struct decode_fault fault;

static enum spdl_class look(const struct file *file, uint64_t max_pixels)
{
    struct decode_packet packet = {file->data, file->bytes};
    fault = (struct decode_fault){.class_number = SPDL_CLASS_OK};
    const struct decode_ops *ops = decode_probe(&packet, &fault);
    if (ops == NULL)
        return fault.class_number;
    size_t i = 0;
    while (decode_table[i] != ops)
        i++;
    enum spdl_class class_number = ops->head(codec_contexts[i], &packet, max_pixels, &head, &fault);
    if (class_number != SPDL_CLASS_OK)
        return class_number;
    struct decode_region region = {0, 0, head.width, head.height};
    return ops->decode(codec_contexts[i], &packet, &region, false, &pixels, &fault);
}

static const uint8_t *pixel_at(int x, int y)
{
    return pixels.base + (size_t)(pixels.region_y + y) * pixels.stride +
           (size_t)(pixels.region_x + x) * 4;
}

static void expect_class(struct file *file, enum spdl_class wanted)
{
    enum spdl_class class_number = look(file, 1 << 26);
    if (class_number != wanted)
        fail_msg("%s (%s), wanted %s", spdl_class_name(class_number), fault.message,
                 spdl_class_name(wanted));
    free(file->data);
    *file = (struct file){0};
}

/* The pixels in the order of rows, 3 bytes each; frees the file. */
static void expect(struct file *file, int width, int height, const uint8_t *wanted)
{
    enum spdl_class class_number = look(file, 1 << 26);
    if (class_number != SPDL_CLASS_OK)
        fail_msg("%s: %s", spdl_class_name(class_number), fault.message);
    assert_int_equal(head.width, width);
    assert_int_equal(head.height, height);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            if (memcmp(pixel_at(x, y), wanted + 3 * (y * width + x), 3) != 0)
                fail_msg("pixel %d,%d is %d %d %d", x, y, pixel_at(x, y)[0], pixel_at(x, y)[1],
                         pixel_at(x, y)[2]);
    free(file->data);
    *file = (struct file){0};
}

static struct file png_of(uint32_t width, int depth, int colour_type, const void *row, size_t bytes)
{
    struct file file = {0};
    png_begin(&file, width, 1, depth, colour_type);
    png_pixels(&file, row, bytes, 1);
    png_end(&file);
    return file;
}

/* IMG-21: a small file that claims a giant size. */
static void test_giant(void **state)
{
    (void)state;
    struct file file = {0};
    png_begin(&file, 30000, 30000, 1, 0);
    png_pixels(&file, (const uint8_t *)"\0\0\0\0", 4, 1);
    png_end(&file);
    assert_int_equal(look(&file, 100000000), SPDL_CLASS_LIMIT);
    assert_string_equal(fault.message, "30000 x 30000 is more than 100000000 pixels");
    assert_int_equal(look(&file, 899999999), SPDL_CLASS_LIMIT);
    struct decode_packet packet = {file.data, file.bytes};
    assert_int_equal(decode_table[1]->head(codec_contexts[1], &packet, 900000000, &head, &fault),
                     SPDL_CLASS_OK);
    free(file.data);
    file = (struct file){0};
    png_begin(&file, INT32_MAX, INT32_MAX, 16,
              6); /* whose product has more than 64 bits of bytes */
    png_pixels(&file, (const uint8_t *)"\0\0\0\0", 4, 1);
    assert_int_equal(look(&file, 1 << 26), SPDL_CLASS_LIMIT);
    free(file.data);
    file = (struct file){0};
    file_add(&file, "P6 2147483647 2147483647 255\n1234", 33);
    expect_class(&file, SPDL_CLASS_LIMIT);
    file_add(&file, "P6 4294967295 4294967295 255\n1234", 33);
    expect_class(&file, SPDL_CLASS_LIMIT);
    file_add(&file, "P6 4294967297 1 255\n123", 23);
    expect_class(&file, SPDL_CLASS_CORRUPT);
    struct bmp_recipe recipe = {.width = INT32_MAX, .height = INT32_MIN, .bits = 24};
    file = bmp_make(&recipe);
    expect_class(&file, SPDL_CLASS_LIMIT);
    struct bmp_recipe runs = {1024, 1024, 8, 1, NULL, "\1\2\3\0", "\0\1", 0, 4, 2};
    for (int32_t height = 1024; height <= 2048; height += 1024) {
        runs.height = height; /* two bytes that leave all pixels out */
        file = bmp_make(&runs);
        expect_class(&file, height == 1024 ? SPDL_CLASS_OK : SPDL_CLASS_LIMIT);
    }
}

/* IMG-22: no bytes, no width, one pixel. */
static void test_degenerate(void **state)
{
    (void)state;
    struct file file = {0};
    expect_class(&file, SPDL_CLASS_EMPTY);
    file = png_of(1, 8, 2, "\x09\x08\x07", 3);
    expect(&file, 1, 1, (const uint8_t[]){9, 8, 7});
    file = png_of(0, 8, 2, "\x09\x08\x07", 3);
    expect_class(&file, SPDL_CLASS_CORRUPT);
    png_begin(&file, 1, 0, 8, 2);
    png_pixels(&file, (const uint8_t *)"\1\2\3", 3, 1);
    png_end(&file);
    expect_class(&file, SPDL_CLASS_CORRUPT);
    file_add(&file, "P5 0 1 255\n1", 12);
    expect_class(&file, SPDL_CLASS_CORRUPT);
    struct bmp_recipe recipe = {.width = 0, .height = 1, .bits = 24, .pixels = "1234", 0, 0, 4};
    file = bmp_make(&recipe);
    expect_class(&file, SPDL_CLASS_CORRUPT);
    recipe.width = -1;
    file = bmp_make(&recipe);
    expect_class(&file, SPDL_CLASS_CORRUPT);
}

/* IMG-24: 16 bits go to the nearest 8, neither cut nor clipped. */
static void test_16_bits(void **state)
{
    (void)state;
    static const uint8_t row[] = {0, 0, 0, 127, 0, 128, 0, 255, 100, 100, 255, 255};
    static const uint8_t nearest[] = {0, 0, 0, 1, 100, 255};
    uint8_t wanted[18], every[512];
    for (size_t i = 0; i < sizeof wanted; i++)
        wanted[i] = nearest[i / 3];
    struct file file = png_of(6, 16, 0, row, sizeof row);
    expect(&file, 6, 1, wanted);
    file = png_of(2, 16, 2, row, sizeof row); /* the same as colours */
    expect(&file, 2, 1, nearest);
    file_add(&file, "P5 6 1 65535\n", 13);
    file_add(&file, row, sizeof row);
    expect(&file, 6, 1, wanted);
    for (int high = 0; high < 256; high++) { /* every value */
        for (int low = 0; low < 256; low++) {
            every[2 * low] = (uint8_t)high;
            every[2 * low + 1] = (uint8_t)low;
        }
        file = png_of(256, 16, 0, every, sizeof every);
        assert_int_equal(look(&file, 256), SPDL_CLASS_OK);
        for (int low = 0; low < 256; low++)
            assert_int_equal(pixel_at(low, 0)[0], (high * 256 + low + 128) / 257);
        free(file.data);
    }
}

/* IMG-25: transparent colours of a palette, fewer than it has; and of other colour types. Alpha is
 * dropped: what is transparent keeps its colour. */
static void test_transparency(void **state)
{
    (void)state;
    static const uint8_t palette[] = {17, 34, 51, 68, 85, 102, 119, 136, 153};
    struct file file = {0};
    png_begin(&file, 3, 1, 8, 3);
    png_chunk(&file, "PLTE", palette, sizeof palette);
    png_chunk(&file, "tRNS", "\0\x80", 2);
    png_pixels(&file, (const uint8_t *)"\0\1\2", 3, 1);
    png_end(&file);
    expect(&file, 3, 1, palette);
    png_begin(&file, 3, 1, 2, 3); /* packed indices, and one that the palette has not */
    png_chunk(&file, "PLTE", palette, sizeof palette);
    png_chunk(&file, "tRNS", "\0\x80", 2);
    png_pixels(&file, (const uint8_t *)"\x1c", 1, 1);
    png_end(&file);
    expect(&file, 3, 1, (const uint8_t[]){17, 34, 51, 68, 85, 102, 0, 0, 0});
    png_begin(&file, 3, 1, 8, 2);
    png_chunk(&file, "tRNS", "\0\x11\0\x22\0\x33", 6);
    png_pixels(&file, palette, 9, 1);
    png_end(&file);
    expect(&file, 3, 1, palette);
    png_begin(&file, 2, 1, 8, 0);
    png_chunk(&file, "tRNS", "\0\x07", 2);
    png_pixels(&file, (const uint8_t *)"\x07\x08", 2, 1);
    png_end(&file);
    expect(&file, 2, 1, (const uint8_t[]){7, 7, 7, 8, 8, 8});
    file = png_of(2, 8, 6, "\1\2\3\0\4\5\6\x80", 8);
    expect(&file, 2, 1, (const uint8_t[]){1, 2, 3, 4, 5, 6});
    file = png_of(2, 8, 4, "\1\0\2\xff", 4);
    expect(&file, 2, 1, (const uint8_t[]){1, 1, 1, 2, 2, 2});
    file = png_of(9, 1, 0, "\xaa\x80", 2); /* grey of 1, 2 and 4 bits */
    expect(&file, 9, 1,
           (const uint8_t[]){255, 255, 255, 0, 0,   0,   255, 255, 255, 0, 0,   0,   255, 255,
                             255, 0,   0,   0, 255, 255, 255, 0,   0,   0, 255, 255, 255});
    file = png_of(4, 2, 0, "\x1b", 1);
    expect(&file, 4, 1, (const uint8_t[]){0, 0, 0, 85, 85, 85, 170, 170, 170, 255, 255, 255});
    file = png_of(2, 4, 0, "\x1e", 1);
    expect(&file, 2, 1, (const uint8_t[]){17, 17, 17, 238, 238, 238});
    png_begin(&file, 1, 1, 8, 3); /* a palette that is missing */
    png_pixels(&file, (const uint8_t *)"\0", 1, 1);
    png_end(&file);
    expect_class(&file, SPDL_CLASS_CORRUPT);
}

/* IMG-34: gamma, profiles and whatever else is beside the pixels changes nothing, broken or not. */
static void test_beside_the_pixels(void **state)
{
    (void)state;
    struct file file = {0};
    uint8_t *junk = calloc(200000, 1);
    png_begin(&file, 1, 1, 8, 2);
    png_chunk(&file, "gAMA", "\0\1\x86\xa0", 4); /* 100000 */
    png_chunk(&file, "iCCP", "broken", 6);
    png_chunk(&file, "iCCP", junk, 200000);
    png_chunk(&file, "zTXt", junk, 200000);
    png_chunk(&file, "sBIT", "\x09\x09\x09", 3);
    png_chunk(&file, "teSt", "of our own", 10);
    png_chunk(&file, "tEXt", "Comment\0wrong sum", 17);
    file.data[file.bytes - 1] ^= 1;
    png_pixels(&file, (const uint8_t *)"\x40\x80\xc0", 3, 1);
    png_chunk(&file, "tEXt", "Comment\0behind", 14);
    png_end(&file);
    file_add(&file, junk, 60000); /* and zeros behind all */
    expect(&file, 1, 1, (const uint8_t[]){64, 128, 192});
    png_begin(&file, 1, 1, 8, 2);
    png_chunk(&file, "TEST", "must be known", 13);
    png_pixels(&file, (const uint8_t *)"\x40\x80\xc0", 3, 1);
    png_end(&file);
    expect_class(&file, SPDL_CLASS_CORRUPT);
    free(junk);
}

static const uint8_t exif_6[] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0,
                                 3,   0,   0, 0,  1, 0, 6, 0, 0, 0, 0, 0,    0};

static void test_png_orientation(void **state)
{
    (void)state;
    for (int place = 0; place < 5; place++) {
        struct file file = {0};
        png_begin(&file, 2, 1, 8, 0);
        if (place == 0 || place == 3)
            png_chunk(&file, "eXIf", exif_6, sizeof exif_6);
        file.data[file.bytes - 1] ^= place == 3; /* a wrong checksum: nothing is known */
        png_pixels(&file, (const uint8_t *)"\1\2", 2, 1);
        if (place == 1)
            png_chunk(&file, "eXIf", exif_6, sizeof exif_6);
        if (place == 2) {
            uint8_t named[6 + sizeof exif_6] = "Exif";
            memcpy(named + 6, exif_6, sizeof exif_6);
            png_chunk(&file, "eXIf", named, sizeof named);
        }
        png_end(&file);
        assert_int_equal(look(&file, 2), SPDL_CLASS_OK);
        assert_int_equal(head.orientation, place <= 2 ? 6 : 1);
        free(file.data);
    }
}

/* Sums of the data itself, and data that ends too early or goes on. */
static void test_png_data(void **state)
{
    (void)state;
    struct file file = {0};
    static const uint8_t stored[] = {0x78, 1, 1, 4, 0, 0xfb, 0xff, 0, 1, 2, 3, 0, 14, 0, 7};
    uint8_t data[sizeof stored + 4];
    memcpy(data, stored, sizeof stored);
    for (int kind = 0; kind < 5; kind++) {
        size_t bytes = sizeof stored;
        data[14] = kind == 1 ? 8 : 7; /* the sum over all bytes */
        memset(data + sizeof stored, 1, 4);
        bytes = kind == 2 ? bytes + 4 : kind == 3 ? bytes - 4 : kind == 4 ? 9 : bytes;
        png_begin(&file, 1, 1, 8, 2);
        png_chunk(&file, "IDAT", data, bytes);
        png_end(&file);
        expect_class(&file, kind == 0 || kind == 2 ? SPDL_CLASS_OK : SPDL_CLASS_CORRUPT);
    }
    for (int sum = 7; sum <= 8; sum++) { /* the sum in a piece of its own, behind the last row */
        data[14] = (uint8_t)sum;
        png_begin(&file, 1, 1, 8, 2);
        png_chunk(&file, "IDAT", data, 11);
        png_chunk(&file, "IDAT", data + 11, 4);
        png_end(&file);
        expect_class(&file, sum == 7 ? SPDL_CLASS_OK : SPDL_CLASS_CORRUPT);
    }
    png_begin(&file, 1, 1, 8, 2); /* in two pieces, the second of them missing */
    png_chunk(&file, "IDAT", data, 9);
    expect_class(&file, SPDL_CLASS_TRUNCATED);
    png_begin(&file, 1, 1, 8, 2);
    png_chunk(&file, "IDAT", data, 13);
    expect_class(&file, SPDL_CLASS_TRUNCATED);
    png_begin(&file, 1, 1, 8, 2); /* no data at all */
    png_end(&file);
    expect_class(&file, SPDL_CLASS_CORRUPT);
}

/* IMG-32: rows red, green and blue, white in every form. */
static const uint8_t four[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255};
static const uint8_t colours[] = {0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 0, 255, 255, 255, 0};

static void test_bmp_forms(void **state)
{
    (void)state;
    static const uint8_t up[] = {255, 0, 0, 255, 255, 255, 0, 0, 0, 0, 255, 0, 255, 0, 0, 0};
    static const uint8_t down[] = {0, 0, 255, 0, 255, 0, 0, 0, 255, 0, 0, 255, 255, 255, 0, 0};
    static const uint8_t in_565[] = {0x1f, 0, 0xff, 0xff, 0, 0xf8, 0xe0, 7};
    static const uint8_t in_555[] = {0x1f, 0, 0xff, 0x7f, 0, 0x7c, 0xe0, 3};
    static const uint8_t in_32[] = {255, 0, 0, 0, 255, 255, 255, 0, 0, 0, 255, 0, 0, 255, 0, 0};
    static const uint8_t masks_565[] = {0, 0xf8, 0, 0, 0xe0, 7, 0, 0, 0x1f, 0, 0, 0};
    static const uint8_t masks_555[] = {0, 0x7c, 0, 0, 0xe0, 3, 0, 0, 0x1f, 0, 0, 0};
    static const uint8_t masks_32[] = {0, 0, 0xff, 0, 0, 0xff, 0, 0, 0xff, 0, 0, 0};
    static const uint8_t nibbles[] = {0x23, 0, 0, 0, 0x01, 0, 0, 0};
    const struct bmp_recipe recipes[] = {
        {2, 2, 24, 0, NULL, NULL, up, 0, 0, 16},
        {2, -2, 24, 0, NULL, NULL, down, 0, 0, 16},
        {2, 2, 16, 3, masks_565, NULL, in_565, 12, 0, 8},
        {2, 2, 16, 3, masks_555, NULL, in_555, 12, 0, 8},
        {2, 2, 16, 0, NULL, NULL, in_555, 0, 0, 8},
        {2, 2, 32, 0, NULL, NULL, in_32, 0, 0, 16},
        {2, 2, 32, 3, masks_32, NULL, in_32, 12, 0, 16},
        {2, 2, 4, 0, NULL, colours, nibbles, 0, 16, 8},
        {2, 2, 4, 2, NULL, colours, "\2\x23\0\0\2\x01\0\1", 0, 16, 8},
        {2, 2, 8, 1, NULL, colours, "\1\2\1\3\0\0\1\0\1\1\0\1", 0, 16, 12},
    };
    for (size_t i = 0; i < COUNT(recipes); i++) {
        struct file file = bmp_make(&recipes[i]);
        expect(&file, 2, 2, four);
    }
    struct bmp_recipe runs = {4, 2, 8, 1, NULL, colours, "\2\2\2\3\0\0\2\0\2\1\0\1", 0, 16, 12};
    static const uint8_t wide[] = {255, 0, 0,   255, 0, 0,   0,   255, 0,   0,   255, 0,
                                   0,   0, 255, 0,   0, 255, 255, 255, 255, 255, 255, 255};
    struct file file = bmp_make(&runs);
    expect(&file, 4, 2, wide);
    runs.pixels = "\0\4\2\2\3\3\0\0\0\4\0\0\1\1\0\1"; /* the same, one by one */
    runs.pixels_bytes = 16;
    file = bmp_make(&runs);
    expect(&file, 4, 2, wide);
    runs.pixels = "\0\2\2\1\2\1\0\1"; /* a step over what is then the first colour */
    runs.pixels_bytes = 8;
    static const uint8_t stepped[] = {255, 0, 0, 255, 0, 0, 0,   255, 0, 0,   255, 0,
                                      255, 0, 0, 255, 0, 0, 255, 0,   0, 255, 0,   0};
    file = bmp_make(&runs);
    expect(&file, 4, 2, stepped);
}

static void test_bmp_heads(void **state)
{
    (void)state;
    struct file file = {0};
    file_add(&file, "BM\x26\0\0\0\0\0\0\0\x20\0\0\0\x0c\0\0\0\2\0\1\0\1\0\1\0", 26); /* OS/2 */
    file_add(&file, "\x03\x02\x01\x06\x05\x04\x40\0\0\0", 10);
    expect(&file, 2, 1, (const uint8_t[]){1, 2, 3, 4, 5, 6});
    struct bmp_recipe recipe = {2, 1, 8, 0, NULL, colours, "\3\x40\0\0", 0, 16, 4};
    file = bmp_make(&recipe); /* a colour that the palette has not */
    expect(&file, 2, 1, (const uint8_t[]){255, 255, 255, 0, 0, 0});
    static const struct {
        size_t at;
        uint8_t value;
        enum spdl_class class_number;
    } changes[] = {
        {30, 4, SPDL_CLASS_UNSUPPORTED}, /* a JPEG in it */
        {28, 7, SPDL_CLASS_CORRUPT},     /* bits a pixel */
        {28, 0, SPDL_CLASS_CORRUPT},     {30, 1, SPDL_CLASS_OK},
        {10, 20, SPDL_CLASS_CORRUPT}, /* pixels in the head */
        {10, 200, SPDL_CLASS_TRUNCATED}, {18, 20, SPDL_CLASS_TRUNCATED},
        {14, 41, SPDL_CLASS_BAD_FORMAT}, {22, 0, SPDL_CLASS_CORRUPT},
    };
    for (size_t i = 0; i < COUNT(changes); i++) {
        file = bmp_make(&(struct bmp_recipe){2, 1, 8, 0, NULL, colours, "\2\1\0\1", 0, 16, 4});
        file.data[changes[i].at] = changes[i].value;
        expect_class(&file, changes[i].class_number);
    }
    struct bmp_recipe holes = {2,    1,      16, 3, "\0\xa8\0\0\xe0\7\0\0\x1f\0\0\0",
                               NULL, "1234", 12, 0, 4};
    file = bmp_make(&holes);
    expect_class(&file, SPDL_CLASS_CORRUPT);
    struct bmp_recipe above = {2, 1, 8, 1, NULL, colours, "\2\1\2\1\0\1", 0, 16, 6};
    file = bmp_make(&above); /* runs beyond the row are left out */
    expect(&file, 2, 1, (const uint8_t[]){0, 255, 0, 0, 255, 0});
    above.pixels = "\2\1\0\0\1\1";
    file = bmp_make(&above); /* beyond the picture they are damage */
    expect_class(&file, SPDL_CLASS_CORRUPT);
}

static void expect_pnm(const char *text, size_t bytes, int width, const uint8_t *wanted)
{
    struct file file = {0};
    file_add(&file, text, bytes);
    expect(&file, width, 1, wanted);
}

static void test_pnm_forms(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t bytes;
        enum spdl_class class_number;
    } wrong[] = {
        {"P5 1 1 0\n1", 10, SPDL_CLASS_CORRUPT},
        {"P5 1 1 65536\n12", 15, SPDL_CLASS_CORRUPT},
        {"P5 1 -1 255\n12", 14, SPDL_CLASS_CORRUPT},
        {"P5 1 1 255x12", 13, SPDL_CLASS_CORRUPT},
        {"P2 1 1 100 101\n", 15, SPDL_CLASS_CORRUPT},
        {"P2 1 1 100 1x\n", 14, SPDL_CLASS_OK}, /* a number ends where it ends */
        {"P2 2 1 100 1x 2\n", 16, SPDL_CLASS_CORRUPT},
        {"P1 2 1 12\n", 10, SPDL_CLASS_CORRUPT},
        {"P2 1 1 255 25", 13, SPDL_CLASS_TRUNCATED}, /* of 255, maybe */
        {"P7\nWIDTH 1\n", 11, SPDL_CLASS_UNSUPPORTED},
        {"P8 1 1 255\n1", 12, SPDL_CLASS_BAD_FORMAT},
        {"Pnothing", 8, SPDL_CLASS_BAD_FORMAT},
    };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct file file = {0};
        file_add(&file, wrong[i].text, wrong[i].bytes);
        expect_class(&file, wrong[i].class_number);
    }
    expect_pnm("P1#\n2 1\n10", 10, 2, (const uint8_t[]){0, 0, 0, 255, 255, 255});
    expect_pnm("P2\n2 # wide\n1\n3\n1 2\n", 20, 2, (const uint8_t[]){85, 85, 85, 170, 170, 170});
    expect_pnm("P3 1 1 15 0 # c\n 5 15\n", 22, 1, (const uint8_t[]){0, 85, 255});
    expect_pnm("P4 2 1\n\x40", 8, 2, (const uint8_t[]){255, 255, 255, 0, 0, 0});
    expect_pnm("P5\t2\v1\f100\r\x32\xff", 13, 2, (const uint8_t[]){128, 128, 128, 255, 255, 255});
    expect_pnm("P6 1 1 255#c\n\n#\x20", 16, 1, (const uint8_t[]){'\n', '#', ' '});
    expect_pnm("P6 1 1 1023\n\0\0\2\0\3\xff", 18, 1, (const uint8_t[]){0, 128, 255});
}

static void add_webp_chunk(struct file *file, const char *name, const void *data, size_t bytes)
{
    file_add(file, name, 4);
    file_add_32_le(file, (uint32_t)bytes);
    file_add(file, data, bytes);
    if (bytes % 2 != 0)
        file_add(file, "", 1);
}

static struct file riff_of(struct file *chunks)
{
    struct file file = {0};
    file_add(&file, "RIFF", 4);
    file_add_32_le(&file, (uint32_t)chunks->bytes + 4);
    file_add(&file, "WEBP", 4);
    file_add(&file, chunks->data, chunks->bytes);
    free(chunks->data);
    return file;
}

/* A WebP without loss, as its one chunk. */
static struct file webp_chunk(int width, int height, const uint8_t *rgba)
{
    uint8_t *made = NULL;
    struct file chunk = {0};
    size_t bytes = WebPEncodeLosslessRGBA(rgba, width, height, width * 4, &made);
    file_add(&chunk, made + 12, bytes - 12);
    WebPFree(made);
    return chunk;
}

static void test_webp_forms(void **state)
{
    (void)state;
    static const uint8_t half[] = {10, 20, 30, 128, 40, 50, 60, 255};
    struct file chunk = webp_chunk(2, 1, half), chunks = {0}, frame = {0};
    file_add(&chunks, chunk.data, chunk.bytes);
    struct file file = riff_of(&chunks);
    expect(&file, 2, 1, (const uint8_t[]){10, 20, 30, 40, 50, 60}); /* alpha is dropped */
    chunks = (struct file){0};
    add_webp_chunk(&chunks, "VP8X", "\x18\0\0\0\1\0\0\0\0\0", 10); /* alpha and EXIF; 2 x 1 */
    file_add(&chunks, chunk.data, chunk.bytes);
    add_webp_chunk(&chunks, "EXIF", exif_6, sizeof exif_6);
    file = riff_of(&chunks);
    assert_int_equal(look(&file, 2), SPDL_CLASS_OK);
    assert_int_equal(head.orientation, 6);
    free(file.data);
    chunks = (struct file){0}; /* an animation: the first frame at 2, 2 of 6 x 4 */
    add_webp_chunk(&chunks, "VP8X", "\x12\0\0\0\5\0\0\3\0\0", 10);
    add_webp_chunk(&chunks, "ANIM", "\xff\xff\xff\xff\0\0", 6);
    file_add(&frame, "\1\0\0\1\0\0\1\0\0\0\0\0\x64\0\0\0", 16);
    file_add(&frame, chunk.data, chunk.bytes);
    add_webp_chunk(&chunks, "ANMF", frame.data, frame.bytes);
    frame.data[0] = 0; /* and a second elsewhere */
    add_webp_chunk(&chunks, "ANMF", frame.data, frame.bytes);
    file = riff_of(&chunks);
    uint8_t wanted[72] = {0};
    memcpy(wanted + 3 * (2 * 6 + 2), (const uint8_t[]){10, 20, 30, 40, 50, 60}, 6);
    struct file again = {0};
    file_add(&again, file.data, file.bytes);
    expect(&file, 6, 4, wanted);
    again.bytes -= 4;
    expect_class(&again, SPDL_CLASS_TRUNCATED);
    free(frame.data);
    free(chunk.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_giant),
        cmocka_unit_test(test_degenerate),
        cmocka_unit_test(test_16_bits),
        cmocka_unit_test(test_transparency),
        cmocka_unit_test(test_beside_the_pixels),
        cmocka_unit_test(test_png_orientation),
        cmocka_unit_test(test_png_data),
        cmocka_unit_test(test_bmp_forms),
        cmocka_unit_test(test_bmp_heads),
        cmocka_unit_test(test_pnm_forms),
        cmocka_unit_test(test_webp_forms),
    };
    return cmocka_run_group_tests(tests, codecs_open, codecs_close);
}
