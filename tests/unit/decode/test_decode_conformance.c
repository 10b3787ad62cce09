/* What every codec of decode_table keeps: any bytes do no harm; a picture that is not whole is
 * never good, whatever part of it is asked for; a region has the bytes of the whole picture; limits
 * hold; nothing of one picture is seen in the next, nor of one thread in another. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decode/decode.h"
#include "decode/decode_buffer.h"
#include "tests/lib/chance.h"
#include "tests/lib/picture_maker.h"

enum { CODECS_MAX = 8, WIDTH = 37, HEIGHT = 23 };

/* A thread's contexts, in the order of decode_table. */
struct bench {
    void *ctx[CODECS_MAX];
};

static struct bench bench;

static void bench_open(struct bench *to)
{
    for (size_t i = 0; decode_table[i] != NULL; i++) {
        size_t bytes = (decode_table[i]->ctx_bytes + 63) & ~(size_t)63;
        assert_true(i < CODECS_MAX);
        to->ctx[i] = aligned_alloc(64, bytes);
        assert_non_null(to->ctx[i]);
        memset(to->ctx[i], 0, bytes);
        assert_int_equal(decode_table[i]->open(to->ctx[i]), 0);
    }
}

static void bench_close(struct bench *to)
{
    for (size_t i = 0; decode_table[i] != NULL; i++) {
        decode_table[i]->close(to->ctx[i]);
        free(to->ctx[i]);
    }
}

static int open_all(void **state)
{
    (void)state;
    bench_open(&bench);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    bench_close(&bench);
    return 0;
}

struct result {
    enum spdl_class class_number;
    struct decode_head head;
    struct decode_region region;
    struct decode_pixels pixels;
    const char *codec;
    char message[96];
};

/* Where: 0 the whole picture, 1 its first pixel, 2 its last, else a part of it by chance. */
static struct decode_region choose_region(const struct decode_head *head, int where, uint64_t *luck)
{
    struct decode_region region = {0, 0, head->width, head->height};
    if (where == 0)
        return region;
    region.width = region.height = 1;
    if (where == 2) {
        region.x = head->width - 1;
        region.y = head->height - 1;
    } else if (where > 2) {
        region.x = chance_below(luck, head->width);
        region.y = chance_below(luck, head->height);
        region.width = 1 + chance_below(luck, head->width - region.x);
        region.height = 1 + chance_below(luck, head->height - region.y);
    }
    return region;
}

static size_t number_of(const struct decode_ops *ops)
{
    size_t i = 0;
    while (i < CODECS_MAX && decode_table[i] != NULL && decode_table[i] != ops)
        i++;
    if (i == CODECS_MAX || decode_table[i] == NULL)
        abort();
    return i;
}

static struct result look(struct bench *with, const uint8_t *data, size_t bytes, int where,
                          uint64_t *luck)
{
    struct decode_packet packet = {data, bytes};
    struct decode_fault fault = {.class_number = SPDL_CLASS_OK};
    struct result result = {0};
    const struct decode_ops *ops = decode_probe(&packet, &fault);
    if (ops == NULL) {
        result.class_number = fault.class_number;
        return result;
    }
    void *ctx = with->ctx[number_of(ops)];
    result.codec = ops->name;
    result.class_number = ops->head(ctx, &packet, 1 << 22, &result.head, &fault);
    if (result.class_number == SPDL_CLASS_OK) {
        assert_true(result.head.width > 0 && result.head.height > 0);
        assert_true(result.head.orientation >= 1 && result.head.orientation <= 8);
        result.region = choose_region(&result.head, where, luck);
        result.class_number =
            ops->decode(ctx, &packet, &result.region, false, &result.pixels, &fault);
    }
    if (result.class_number != SPDL_CLASS_OK) {
        assert_int_equal(result.class_number, fault.class_number);
        assert_true(fault.message[0] != '\0');
        memcpy(result.message, fault.message, sizeof result.message);
    }
    return result;
}

static const uint8_t *row_of(const struct result *result, int32_t y)
{
    return result->pixels.base + (size_t)(result->pixels.region_y + y) * result->pixels.stride +
           (size_t)result->pixels.region_x * 4;
}

/* Three bytes a pixel of the region; free them. Reads all that may be read. */
static uint8_t *copy_of(const struct result *result)
{
    const struct decode_region *region = &result->region;
    uint8_t *copy = calloc((size_t)region->width * (size_t)region->height + 1, 3), *to = copy;
    if (copy == NULL)
        abort();
    assert_int_equal((uintptr_t)result->pixels.base % 64, 0);
    assert_int_equal(result->pixels.stride % 64, 0);
    for (int32_t y = 0; y < region->height; y++)
        for (int32_t x = 0; x < region->width; x++, to += 3)
            memcpy(to, row_of(result, y) + (size_t)x * 4, 3);
    (void)*(const volatile uint8_t *)(row_of(result, region->height - 1) +
                                      (size_t)region->width * 4 + 63);
    return copy;
}

static void test_every_codec_has_pictures(void **state)
{
    (void)state;
    for (size_t i = 0; decode_table[i] != NULL; i++) {
        size_t count = 0;
        for (size_t k = 0; k < picture_kind_count; k++)
            count += strcmp(picture_kinds[k].codec, decode_table[i]->name) == 0;
        assert_true(count > 0);
    }
}

/* Each kind, whole: the right codec and, where nothing is lost, the right pixels. */
static void test_pixels(void **state)
{
    (void)state;
    for (size_t k = 0; k < picture_kind_count; k++) {
        const struct picture_kind *kind = &picture_kinds[k];
        struct file file = kind->make(kind, WIDTH, HEIGHT, 5);
        struct result result = look(&bench, file.data, file.bytes, 0, NULL);
        if (result.class_number != SPDL_CLASS_OK)
            fail_msg("%s: %s", kind->name, result.message);
        assert_string_equal(result.codec, kind->codec);
        assert_int_equal(result.head.width, WIDTH);
        assert_int_equal(result.head.height, HEIGHT);
        assert_int_equal(result.head.orientation, 1);
        uint8_t *pixels = copy_of(&result), *wanted = picture_pixels(WIDTH, HEIGHT, 5);
        bool grey = pixels[0] == pixels[1] && pixels[3] == pixels[4] && pixels[6] == pixels[7];
        for (size_t i = 0; kind->exact && i < (size_t)WIDTH * HEIGHT * 3; i++)
            if (pixels[i] != wanted[grey ? i / 3 * 3 + 1 : i])
                fail_msg("%s: value %zu is %d", kind->name, i, pixels[i]);
        free(wanted);
        free(pixels);
        free(file.data);
    }
}

/* A copy of the file's beginning, so that a step too far is seen. */
static uint8_t *cut_of(const struct file *file, size_t bytes)
{
    uint8_t *cut = calloc(bytes == 0 ? 1 : bytes, 1);
    if (cut == NULL)
        abort();
    memcpy(cut, file->data, bytes);
    return cut;
}

static void test_cut_at_every_length(void **state)
{
    (void)state;
    for (size_t k = 0; k < picture_kind_count; k++) {
        const struct picture_kind *kind = &picture_kinds[k];
        struct file file = kind->make(kind, WIDTH, 11, 6);
        for (size_t bytes = 0; bytes < file.bytes; bytes++) {
            uint8_t *cut = cut_of(&file, bytes);
            enum spdl_class whole = look(&bench, cut, bytes, 0, NULL).class_number;
            enum spdl_class first = look(&bench, cut, bytes, 1, NULL).class_number;
            free(cut);
            bool good = bytes + kind->spare >= file.bytes;
            bool right = good         ? whole == SPDL_CLASS_OK
                         : bytes == 0 ? whole == SPDL_CLASS_EMPTY
                         : bytes < 12
                             ? whole == SPDL_CLASS_TRUNCATED || whole == SPDL_CLASS_BAD_FORMAT
                             : whole == SPDL_CLASS_TRUNCATED;
            if (!right || first != whole)
                fail_msg("%s cut at %zu of %zu: %s, its first pixel alone: %s", kind->name, bytes,
                         file.bytes, spdl_class_name(whole), spdl_class_name(first));
        }
        free(file.data);
    }
}

static void test_regions(void **state)
{
    (void)state;
    uint64_t luck = 7;
    for (size_t k = 0; k < picture_kind_count; k++) {
        const struct picture_kind *kind = &picture_kinds[k];
        struct file file = kind->make(kind, WIDTH, HEIGHT, 7);
        struct result all = look(&bench, file.data, file.bytes, 0, NULL);
        assert_int_equal(all.class_number, SPDL_CLASS_OK);
        uint8_t *whole = copy_of(&all);
        for (int round = 1; round < 60; round++) {
            struct result part = look(&bench, file.data, file.bytes, round, &luck);
            assert_int_equal(part.class_number, SPDL_CLASS_OK);
            const struct decode_region *region = &part.region;
            uint8_t *pixels = copy_of(&part);
            size_t row_bytes = (size_t)region->width * 3;
            for (int32_t y = 0; y < region->height; y++)
                if (memcmp(pixels + (size_t)y * row_bytes,
                           whole + ((size_t)(region->y + y) * WIDTH + (size_t)region->x) * 3,
                           row_bytes) != 0)
                    fail_msg("%s: row %d of %d,%d %dx%d differs", kind->name, y, region->x,
                             region->y, region->width, region->height);
            free(pixels);
        }
        free(whole);
        free(file.data);
    }
}

/* Damage anywhere is harmless, and found or not found whatever the region is. */
static void test_damage(void **state)
{
    (void)state;
    uint64_t luck = 8;
    int found = 0;
    for (size_t k = 0; k < picture_kind_count; k++) {
        const struct picture_kind *kind = &picture_kinds[k];
        struct file file = kind->make(kind, WIDTH, 11, 8);
        for (int round = 0; round < 250; round++) {
            uint8_t *copy = cut_of(&file, file.bytes);
            for (int flips = 1 + chance_below(&luck, 3); flips > 0; flips--)
                copy[chance_below(&luck, (int)file.bytes)] ^=
                    (uint8_t)(1 << chance_below(&luck, 8));
            struct result whole = look(&bench, copy, file.bytes, 0, NULL);
            struct result part = look(&bench, copy, file.bytes, 3, &luck);
            if (whole.class_number != part.class_number)
                fail_msg("%s, round %d: %s, but a region %s", kind->name, round,
                         spdl_class_name(whole.class_number), spdl_class_name(part.class_number));
            found += whole.class_number != SPDL_CLASS_OK;
            free(copy);
        }
        free(file.data);
    }
    assert_true(found > 1500);
}

/* PNG has checksums: one flipped bit in what makes the pixels is always found. */
static void test_png_bits(void **state)
{
    (void)state;
    struct file file = picture_kinds[3].make(&picture_kinds[3], 9, 5, 9);
    for (size_t bit = 64; bit < (file.bytes - 12) * 8; bit++) {
        uint8_t *copy = cut_of(&file, file.bytes); /* all of it */
        copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
        enum spdl_class class_number = look(&bench, copy, file.bytes, 1, NULL).class_number;
        assert_true(class_number == SPDL_CLASS_CORRUPT || class_number == SPDL_CLASS_TRUNCATED);
        free(copy);
    }
    free(file.data);
}

static void test_garbage(void **state)
{
    (void)state;
    uint64_t luck = 10;
    static const struct {
        const char *bytes;
        size_t count;
    } heads[] = {{"", 0},
                 {"\xff\xd8\xff", 3},
                 {"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x09\0\0\0\x09\x08\x02\0\0\0", 29},
                 {"RIFF\x40\0\0\0WEBPVP8L", 16},
                 {"RIFF\x40\0\0\0WEBPVP8X\x0a\0\0\0", 20},
                 {"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x05\0\0\0\x05\0\0\0\x01\0", 28},
                 {"P3 3 3 255 ", 11},
                 {"P", 1}};
    for (int round = 0; round < 12000; round++) {
        size_t kind = (size_t)round % (sizeof heads / sizeof heads[0]);
        size_t bytes = heads[kind].count + (size_t)chance_below(&luck, 120);
        uint8_t *data = malloc(bytes + 1);
        memcpy(data, heads[kind].bytes, heads[kind].count);
        for (size_t i = heads[kind].count; i < bytes; i++)
            data[i] = (uint8_t)chance_next(&luck);
        look(&bench, data, bytes, 3, &luck);
        free(data);
    }
}

static void test_limit(void **state)
{
    (void)state;
    struct decode_head head;
    for (size_t k = 0; k < picture_kind_count; k++) {
        const struct picture_kind *kind = &picture_kinds[k];
        struct file file = kind->make(kind, WIDTH, HEIGHT, 11);
        struct decode_packet packet = {file.data, file.bytes};
        struct decode_fault fault = {0};
        const struct decode_ops *ops = decode_probe(&packet, &fault);
        uint64_t exact = (uint64_t)WIDTH * HEIGHT;
        assert_int_equal(ops->head(bench.ctx[number_of(ops)], &packet, exact - 1, &head, &fault),
                         SPDL_CLASS_LIMIT);
        assert_non_null(strstr(fault.message, "850 pixels"));
        assert_int_equal(ops->head(bench.ctx[number_of(ops)], &packet, exact, &head, &fault),
                         SPDL_CLASS_OK);
        free(file.data);
    }
}

struct share {
    const struct file *files; /* of every kind */
    uint64_t sums[64];
};

static void *run_thread(void *argument)
{
    struct share *share = argument;
    struct bench own = {0};
    uint64_t luck = 12;
    bench_open(&own);
    for (int round = 0; round < 8; round++)
        for (size_t k = 0; k < picture_kind_count; k++) {
            const struct file *file = &share->files[k];
            struct result result = look(&own, file->data, file->bytes, round, &luck);
            uint8_t *pixels = copy_of(&result);
            size_t bytes = (size_t)result.region.width * (size_t)result.region.height * 3;
            for (size_t i = 0; i < bytes; i++)
                share->sums[k] = share->sums[k] * 31 + pixels[i];
            free(pixels);
        }
    bench_close(&own);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    static struct share shares[4];
    struct file files[64];
    pthread_t threads[3];
    assert_true(picture_kind_count <= 64);
    for (size_t k = 0; k < picture_kind_count; k++)
        files[k] = picture_kinds[k].make(&picture_kinds[k], WIDTH, HEIGHT, 13);
    for (size_t t = 0; t < 4; t++)
        shares[t] = (struct share){.files = files};
    run_thread(&shares[3]);
    for (size_t t = 0; t < 3; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, run_thread, &shares[t]), 0);
    for (size_t t = 0; t < 3; t++) {
        pthread_join(threads[t], NULL);
        assert_memory_equal(shares[t].sums, shares[3].sums, sizeof shares[3].sums);
    }
    for (size_t k = 0; k < picture_kind_count; k++)
        free(files[k].data);
}

static void test_buffer(void **state)
{
    (void)state;
    struct decode_buffer buffer = {0};
    assert_int_equal(decode_stride(1), 64);
    assert_int_equal(decode_stride(16), 64);
    assert_int_equal(decode_stride(17), 128);
    assert_true(decode_buffer_reserve(&buffer, 64, 3));
    assert_int_equal(buffer.bytes, 64 * 3 + 64);
    const uint8_t *base = buffer.base;
    assert_true(decode_buffer_reserve(&buffer, 64, 2)); /* fits: stays where it is */
    assert_ptr_equal(buffer.base, base);
    decode_buffer_trim(&buffer);
    assert_ptr_equal(buffer.base, base);
    assert_true(decode_buffer_reserve(&buffer, 1024, 65536)); /* 64 MiB and the spare */
    decode_buffer_trim(&buffer);
    assert_null(buffer.base);
    assert_int_equal(buffer.bytes, 0);
    assert_false(decode_buffer_reserve(&buffer, SIZE_MAX / 2, 3));
    decode_buffer_free(&buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_codec_has_pictures),
        cmocka_unit_test(test_pixels),
        cmocka_unit_test(test_cut_at_every_length),
        cmocka_unit_test(test_regions),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_png_bits),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_buffer),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
