/* GIF files that are damaged, each of its class, and the forms that Pillow does not write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decode/decode_gif.h"

static void *gif;

static int open_gif(void **state)
{
    (void)state;
    size_t bytes = (decode_gif_ops.ctx_bytes + 63) & ~(size_t)63;
    gif = aligned_alloc(64, bytes);
    memset(gif, 0, bytes);
    return decode_gif_ops.open(gif);
}

static int close_gif(void **state)
{
    (void)state;
    decode_gif_ops.close(gif);
    free(gif);
    return 0;
}

static struct decode_head head;
static struct decode_pixels pixels;
static struct decode_fault fault;

/* In memory of just its size. */
static enum spdl_class run(const void *data, size_t bytes, uint64_t max_pixels)
{
    uint8_t *copy = malloc(bytes);
    memcpy(copy, data, bytes);
    struct decode_packet packet = {copy, bytes};
    fault = (struct decode_fault){.class_number = SPDL_CLASS_OK};
    enum spdl_class class_number = decode_gif_ops.head(gif, &packet, max_pixels, &head, &fault);
    if (class_number == SPDL_CLASS_OK) {
        struct decode_region region = {0, 0, head.width, head.height};
        class_number = decode_gif_ops.decode(gif, &packet, &region, false, &pixels, &fault);
    }
    free(copy);
    return class_number;
}

/* 2 x 2, two colours, codes of 3 bits: clear 4, end 5. */
#define HEAD(width, height) "GIF89a" width "\0" height "\0\x80\0\0\1\2\3\7\x8\x9"
#define FRAME(width, height) ",\0\0\0\0" width "\0" height "\0\0\2"
#define CODES(a, b, c, d, e)                                                                       \
    (char)((a) | (b) << 3 | ((c)&3) << 6), (char)((c) >> 2 | (d) << 1 | (e) << 4)

static void codes_are(int a, int b, int c, int d, int e, enum spdl_class wanted)
{
    char file[64] = HEAD("\2", "\2") FRAME("\2", "\2") "\2";
    size_t used = sizeof HEAD("\2", "\2") FRAME("\2", "\2") "\2" - 1;
    const char codes[] = {CODES(a, b, c, d, e), 0, ';'};
    memcpy(file + used, codes, sizeof codes);
    enum spdl_class class_number = run(file, used + sizeof codes, 100);
    if (class_number != wanted)
        fail_msg("codes %d %d %d %d %d are %s: %s", a, b, c, d, e, spdl_class_name(class_number),
                 fault.message);
}

static void test_codes(void **state)
{
    (void)state;
    codes_are(4, 0, 1, 1, 0, SPDL_CLASS_OK);
    static const uint8_t first[4] = {1, 2, 3, 255}, second[4] = {7, 8, 9, 255};
    assert_memory_equal(pixels.base, first, 4);
    assert_memory_equal(pixels.base + 4, second, 4);
    assert_memory_equal(pixels.base + pixels.stride, second, 4);
    assert_memory_equal(pixels.base + pixels.stride + 4, first, 4);
    codes_are(0, 1, 1, 0, 5, SPDL_CLASS_OK);      /* without a clear code */
    codes_are(4, 1, 6, 0, 0, SPDL_CLASS_OK);      /* a code that is just being made */
    codes_are(4, 6, 0, 0, 0, SPDL_CLASS_CORRUPT); /* with nothing before it */
    codes_are(4, 0, 7, 0, 0, SPDL_CLASS_CORRUPT); /* that nothing makes */
    codes_are(4, 0, 1, 5, 0, SPDL_CLASS_CORRUPT); /* the end before the last pixel */
    codes_are(4, 0, 1, 2, 0, SPDL_CLASS_CORRUPT); /* a colour that there is not */
    codes_are(4, 0, 4, 4, 4, SPDL_CLASS_CORRUPT); /* no pixels any more */
}

static void test_damage(void **state)
{
    (void)state;
#define IS(file, wanted)                                                                           \
    assert_int_equal(run(file, sizeof(file) - 1, 100), (wanted));                                  \
    assert_true((wanted) == SPDL_CLASS_OK || fault.message[0])
    IS(HEAD("\2", "\2") ";", SPDL_CLASS_CORRUPT);
    IS(HEAD("\2", "\2") "x", SPDL_CLASS_CORRUPT);
    IS(HEAD("\2", "\2"), SPDL_CLASS_TRUNCATED);
    IS(HEAD("\2", "\2") "!", SPDL_CLASS_TRUNCATED);
    IS(HEAD("\2", "\2") "!\xf9\4\1\0\0", SPDL_CLASS_TRUNCATED);
    IS(HEAD("\2", "\2") ",\0\0\0\0\0\0\2\0\0\2", SPDL_CLASS_CORRUPT);
    IS(HEAD("\2", "\2") ",\0\0\0\0\2\0\2\0\0", SPDL_CLASS_TRUNCATED);
    IS(HEAD("\2", "\2") ",\0\0\0\0\2\0\2\0\0\0", SPDL_CLASS_CORRUPT);  /* codes of no bits */
    IS(HEAD("\2", "\2") ",\0\0\0\0\2\0\2\0\0\x9", SPDL_CLASS_CORRUPT); /* and of too many */
    IS(HEAD("\2", "\2") ",\0\0\0\0\2\0\2\0\x87\2\1\1", SPDL_CLASS_TRUNCATED);
    IS(HEAD("\2", "\2") ",\0\0\0\0\2\0\2\0\0\2\0", SPDL_CLASS_CORRUPT); /* without data */
    IS(HEAD("\x65", "\1") FRAME("\1", "\1") "\1\4", SPDL_CLASS_LIMIT);
    IS(HEAD("\2", "\2") ",\xff\xff\xff\xff\1\0\1\0\0\2", SPDL_CLASS_LIMIT);
    assert_false(decode_gif_ops.probe((const uint8_t *)"GIF88a", 6));
    assert_false(decode_gif_ops.probe((const uint8_t *)"GIF89a", 5));
}

/* Without any palette values are grey. */
static void test_no_palette(void **state)
{
    (void)state;
    IS("GIF87a\1\0\1\0\0\0\0,\0\0\0\0\1\0\1\0\0\7\2\x80\x05\0;", SPDL_CLASS_OK);
    static const uint8_t grey[4] = {5, 5, 5, 255};
    assert_memory_equal(pixels.base, grey, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes), cmocka_unit_test(test_damage),
                                       cmocka_unit_test(test_no_palette)};
    return cmocka_run_group_tests(tests, open_gif, close_gif);
}
