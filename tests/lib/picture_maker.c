/* Makes picture files of every format that is decoded. */
#include "tests/lib/picture_maker.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <webp/encode.h>

#include "tests/lib/chance.h"
#include "tests/lib/jpeg_maker.h"

void file_add(struct file *file, const void *data, size_t bytes)
{
    if (bytes == 0)
        return;
    file->data = realloc(file->data, file->bytes + bytes);
    if (file->data == NULL)
        abort();
    memcpy(file->data + file->bytes, data, bytes);
    file->bytes += bytes;
}

void file_add_32_be(struct file *file, uint32_t value)
{
    uint8_t bytes[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                        (uint8_t)value};
    file_add(file, bytes, sizeof bytes);
}

void file_add_32_le(struct file *file, uint32_t value)
{
    file_add_32_be(file, __builtin_bswap32(value));
}

void file_add_16_le(struct file *file, uint32_t value)
{
    uint8_t bytes[2] = {(uint8_t)value, (uint8_t)(value >> 8)};
    file_add(file, bytes, sizeof bytes);
}

static uint32_t checksum(const uint8_t *data, size_t bytes)
{
    uint32_t sum = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        sum ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            sum = (sum & 1) != 0 ? sum >> 1 ^ UINT32_C(0xEDB88320) : sum >> 1;
    }
    return ~sum;
}

void png_chunk(struct file *file, const char *name, const void *data, size_t bytes)
{
    file_add_32_be(file, (uint32_t)bytes);
    file_add(file, name, 4);
    file_add(file, data, bytes);
    file_add_32_be(file, checksum(file->data + file->bytes - bytes - 4, bytes + 4));
}

void png_begin(struct file *file, uint32_t width, uint32_t height, int depth, int colour_type)
{
    struct file head = {0};
    uint8_t form[5] = {(uint8_t)depth, (uint8_t)colour_type, 0, 0, 0};
    file_add(file, "\x89PNG\r\n\x1a\n", 8);
    file_add_32_be(&head, width);
    file_add_32_be(&head, height);
    file_add(&head, form, sizeof form);
    png_chunk(file, "IHDR", head.data, head.bytes);
    free(head.data);
}

void png_pixels(struct file *file, const uint8_t *rows, size_t row_bytes, size_t row_count)
{
    struct file data = {0};
    uint32_t low = 1, high = 0;
    file_add(&data, "\x78\x01", 2);
    for (size_t y = 0; y < row_count; y++) {
        uint8_t last = y + 1 == row_count, filter = 0;
        file_add(&data, &last, 1);
        file_add_16_le(&data, (uint32_t)row_bytes + 1);
        file_add_16_le(&data, ~((uint32_t)row_bytes + 1));
        file_add(&data, &filter, 1);
        file_add(&data, rows + y * row_bytes, row_bytes);
        high = (high + low) % 65521;
        for (size_t i = 0; i < row_bytes; i++) {
            low = (low + rows[y * row_bytes + i]) % 65521;
            high = (high + low) % 65521;
        }
    }
    file_add_32_be(&data, high << 16 | low);
    png_chunk(file, "IDAT", data.data, data.bytes);
    free(data.data);
}

void png_end(struct file *file)
{
    png_chunk(file, "IEND", NULL, 0);
}

struct file bmp_make(const struct bmp_recipe *recipe)
{
    struct file file = {0};
    const size_t offset = 54 + recipe->masks_bytes + recipe->palette_bytes;
    file_add(&file, "BM", 2);
    file_add_32_le(&file, (uint32_t)(offset + recipe->pixels_bytes));
    file_add_32_le(&file, 0);
    file_add_32_le(&file, (uint32_t)offset);
    file_add_32_le(&file, 40);
    file_add_32_le(&file, (uint32_t)recipe->width);
    file_add_32_le(&file, (uint32_t)recipe->height);
    file_add_16_le(&file, 1);
    file_add_16_le(&file, recipe->bits);
    file_add_32_le(&file, recipe->packing);
    file_add_32_le(&file, (uint32_t)recipe->pixels_bytes);
    file_add_32_le(&file, 2835);
    file_add_32_le(&file, 2835);
    file_add_32_le(&file, (uint32_t)(recipe->palette_bytes / 4));
    file_add_32_le(&file, 0);
    file_add(&file, recipe->masks, recipe->masks_bytes);
    file_add(&file, recipe->palette, recipe->palette_bytes);
    file_add(&file, recipe->pixels, recipe->pixels_bytes);
    return file;
}

uint8_t *picture_pixels(int32_t width, int32_t height, uint32_t seed)
{
    uint8_t *pixels = malloc((size_t)width * (size_t)height * 3 + 1);
    uint64_t luck = seed;
    if (pixels == NULL)
        abort();
    for (int32_t y = 0; y < height; y++)
        for (int32_t x = 0; x < width; x++)
            for (int32_t c = 0; c < 3; c++) {
                int value = x * (7 + c) + y * (5 - c) + (x / 9 + y / 6) % 2 * 90;
                pixels[((size_t)y * (size_t)width + (size_t)x) * 3 + (size_t)c] =
                    (uint8_t)(value + chance_below(&luck, 16));
            }
    return pixels;
}

static struct file make_jpeg(const struct picture_kind *kind, int32_t width, int32_t height,
                             uint32_t seed)
{
    struct jpeg_recipe recipe = {.width = width,
                                 .height = height,
                                 .seed = seed,
                                 .progressive = kind->option == 1,
                                 .h = {2, 1, 1},
                                 .v = {2, 1, 1}};
    struct file file = {0};
    file.data = jpeg_make(&recipe, &file.bytes);
    return file;
}

static void on_png_write(png_structp writer, png_bytep data, size_t bytes)
{
    file_add(png_get_io_ptr(writer), data, bytes);
}

static void on_png_flush(png_structp writer)
{
    (void)writer;
}

/* Packed and filtered; option: the colour type, with 256 for interlace and 512 for 16 bits. */
static struct file make_png(const struct picture_kind *kind, int32_t width, int32_t height,
                            uint32_t seed)
{
    struct file file = {0};
    const int colour = kind->option & 255, channels = (colour & 2 ? 3 : 1) + (colour & 4 ? 1 : 0);
    const bool wide = (kind->option & 512) != 0;
    uint8_t *pixels = picture_pixels(width, height, seed);
    const size_t row_bytes = (size_t)width * (size_t)channels * (wide ? 2 : 1);
    uint8_t *rows = malloc(row_bytes * (size_t)height);
    size_t at = 0;
    for (size_t i = 0; i < (size_t)width * (size_t)height; i++)
        for (int c = 0; c < channels; c++)
            for (int byte = 0; byte < (wide ? 2 : 1); byte++) {
                bool alpha = (colour & 4) != 0 && c == channels - 1;
                rows[at++] =
                    alpha ? (uint8_t)(i * 5) : pixels[3 * i + (colour & 2 ? (size_t)c : 1)];
            }
    png_structp writer = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(writer);
    if (setjmp(png_jmpbuf(writer)) != 0)
        abort();
    png_set_write_fn(writer, &file, on_png_write, on_png_flush);
    png_set_IHDR(writer, info, (uint32_t)width, (uint32_t)height, wide ? 16 : 8, colour,
                 kind->option & 256 ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_set_compression_buffer_size(writer, 700); /* several chunks */
    png_write_info(writer, info);
    int passes = png_set_interlace_handling(writer);
    for (int pass = 0; pass < passes; pass++)
        for (int32_t y = 0; y < height; y++)
            png_write_row(writer, rows + (size_t)y * row_bytes);
    png_write_end(writer, info);
    png_destroy_write_struct(&writer, &info);
    free(rows);
    free(pixels);
    return file;
}

/* Option 1: without loss. */
static struct file make_webp(const struct picture_kind *kind, int32_t width, int32_t height,
                             uint32_t seed)
{
    uint8_t *pixels = picture_pixels(width, height, seed), *made = NULL;
    size_t bytes = kind->option == 1
                       ? WebPEncodeLosslessRGB(pixels, width, height, width * 3, &made)
                       : WebPEncodeRGB(pixels, width, height, width * 3, 80, &made);
    struct file file = {0};
    file_add(&file, made, bytes);
    WebPFree(made);
    free(pixels);
    return file;
}

/* Bits of the green, as indices or as grey. */
static void pack_bits(uint8_t *row, int32_t x, uint32_t bits, uint8_t value)
{
    size_t bit = (size_t)x * bits;
    row[bit / 8] |= (uint8_t)((uint32_t)(value >> (8 - bits)) << (8 - bits - bit % 8));
}

/* Option: bits a pixel; below 0: rows from above. A palette is a slope of grey. */
static struct file make_bmp(const struct picture_kind *kind, int32_t width, int32_t height,
                            uint32_t seed)
{
    const bool above = kind->option < 0;
    const uint32_t bits = (uint32_t)abs(kind->option), colours = bits <= 8 ? 1u << bits : 0;
    uint8_t *pixels = picture_pixels(width, height, seed), palette[1024];
    const size_t row_bytes = ((size_t)width * bits + 31) / 32 * 4;
    uint8_t *rows = calloc(row_bytes, (size_t)height);
    for (int32_t y = 0; y < height; y++) {
        uint8_t *row = rows + (size_t)(above ? y : height - 1 - y) * row_bytes;
        for (int32_t x = 0; x < width; x++) {
            const uint8_t *from = pixels + ((size_t)y * (size_t)width + (size_t)x) * 3;
            for (size_t c = 0; bits >= 24 && c < 3; c++)
                row[(size_t)x * (bits / 8) + c] = from[2 - c];
            if (bits <= 8)
                pack_bits(row, x, bits, from[1]);
        }
    }
    for (uint32_t i = 0; i < colours; i++)
        memset(palette + (size_t)4 * i, (int)(i * 255 / (colours - 1)), 4);
    struct bmp_recipe recipe = {.width = width,
                                .height = above ? -height : height,
                                .bits = bits,
                                .palette = palette,
                                .palette_bytes = (size_t)4 * colours,
                                .pixels = rows,
                                .pixels_bytes = row_bytes * (size_t)height};
    struct file file = bmp_make(&recipe);
    free(rows);
    free(pixels);
    return file;
}

/* Runs of 8 bits: pieces of equal and of single pixels, by turns. */
static struct file make_bmp_runs(const struct picture_kind *kind, int32_t width, int32_t height,
                                 uint32_t seed)
{
    (void)kind;
    uint8_t *pixels = picture_pixels(width, height, seed), palette[1024];
    struct file runs = {0};
    for (int32_t y = height - 1; y >= 0; y--) {
        for (int32_t x = 0; x < width;) {
            const uint8_t *from = pixels + ((size_t)y * (size_t)width + (size_t)x) * 3;
            int32_t single = width - x < 5 ? width - x : 5;
            if (single >= 3 && (x + y) % 2 == 0) {
                uint8_t head[2] = {0, (uint8_t)single}, some[6] = {0};
                for (int32_t i = 0; i < single; i++)
                    some[i] = from[3 * i + 1];
                file_add(&runs, head, 2);
                file_add(&runs, some, (size_t)(single + (single & 1)));
                x += single;
            } else {
                uint8_t run[2] = {1, from[1]};
                file_add(&runs, run, 2);
                x++;
            }
        }
        file_add(&runs, "\0\0", 2);
    }
    file_add(&runs, "\0\1", 2);
    for (size_t i = 0; i < 256; i++)
        memset(palette + 4 * i, (int)i, 4);
    struct bmp_recipe recipe = {.width = width,
                                .height = height,
                                .bits = 8,
                                .packing = 1,
                                .palette = palette,
                                .palette_bytes = sizeof palette,
                                .pixels = runs.data,
                                .pixels_bytes = runs.bytes};
    struct file file = bmp_make(&recipe);
    free(runs.data);
    free(pixels);
    return file;
}

/* Codes of 9 bits, lowest first, in blocks of up to 255 bytes. */
struct gif_codes {
    struct file bytes;
    uint32_t held, held_bits, since_clear;
};

static void gif_code(struct gif_codes *codes, uint32_t code)
{
    codes->held |= code << codes->held_bits;
    for (codes->held_bits += 9; codes->held_bits >= 8; codes->held_bits -= 8, codes->held >>= 8) {
        uint8_t byte = (uint8_t)codes->held;
        file_add(&codes->bytes, &byte, 1);
    }
}

static void gif_row(struct gif_codes *codes, const uint8_t *pixels, int32_t width)
{
    for (int32_t x = 0; x < width; x++) {
        if (codes->since_clear++ % 250 == 0) /* so that codes stay as long as they are */
            gif_code(codes, 256);
        gif_code(codes, pixels[3 * x + 1]);
    }
}

/* Option 1: interlaced. Its palette is a slope of grey. There is no end code. */
static struct file make_gif(const struct picture_kind *kind, int32_t width, int32_t height,
                            uint32_t seed)
{
    static const int32_t starts[] = {0, 4, 2, 1}, steps[] = {8, 8, 4, 2};
    uint8_t *pixels = picture_pixels(width, height, seed);
    struct file file = {0};
    struct gif_codes codes = {0};
    const size_t row_bytes = (size_t)width * 3;
    file_add(&file, "GIF89a", 6);
    file_add_16_le(&file, (uint32_t)width);
    file_add_16_le(&file, (uint32_t)height);
    file_add(&file, "\xf7\0\0", 3);
    for (int i = 0; i < 256; i++) {
        uint8_t grey[3] = {(uint8_t)i, (uint8_t)i, (uint8_t)i};
        file_add(&file, grey, 3);
    }
    file_add(&file, "!\xfe\4made\0!\xf9\4\1\0\0\7\0,\0\0\0\0", 21);
    file_add_16_le(&file, (uint32_t)width);
    file_add_16_le(&file, (uint32_t)height);
    file_add(&file, kind->option ? "\x40\x08" : "\0\x08", 2);
    for (int pass = 0; pass < 4 && kind->option; pass++)
        for (int32_t y = starts[pass]; y < height; y += steps[pass])
            gif_row(&codes, pixels + (size_t)y * row_bytes, width);
    for (int32_t y = 0; y < height && !kind->option; y++)
        gif_row(&codes, pixels + (size_t)y * row_bytes, width);
    if (codes.held_bits > 0) {
        uint8_t rest = (uint8_t)codes.held;
        file_add(&codes.bytes, &rest, 1);
    }
    for (size_t at = 0; at < codes.bytes.bytes; at += 255) {
        size_t left = codes.bytes.bytes - at;
        uint8_t count = (uint8_t)(left < 255 ? left : 255);
        file_add(&file, &count, 1);
        file_add(&file, codes.bytes.data + at, count);
    }
    file_add(&file, "\0;", 2);
    free(codes.bytes.data);
    free(pixels);
    return file;
}

static void add_text(struct file *file, int value)
{
    char text[16];
    int count = snprintf(text, sizeof text, "%d\n", value);
    file_add(file, text, (size_t)count);
}

/* Option: the digit of its name. */
static struct file make_pnm(const struct picture_kind *kind, int32_t width, int32_t height,
                            uint32_t seed)
{
    const int digit = kind->option, form = (digit - 1) % 3;
    uint8_t *pixels = picture_pixels(width, height, seed);
    struct file file = {0};
    char head[64];
    int count = snprintf(head, sizeof head, "P%d\n# made\n%d %d\n%s", digit, width, height,
                         form == 0 ? "" : "255\n");
    file_add(&file, head, (size_t)count);
    for (int32_t y = 0; y < height; y++) {
        uint8_t row[64] = {0};
        for (int32_t x = 0; x < width; x++) {
            const uint8_t *from = pixels + ((size_t)y * (size_t)width + (size_t)x) * 3;
            int first = form == 2 ? 0 : 1, last = form == 2 ? 2 : 1;
            for (int c = first; form != 0 && c <= last; c++) {
                if (digit <= 3)
                    add_text(&file, from[c]);
                else
                    file_add(&file, &from[c], 1);
            }
            if (digit == 1)
                file_add(&file, from[1] < 128 ? "1" : "0", 1);
            else if (digit == 4)
                pack_bits(row, x, 1, from[1] < 128 ? 255 : 0);
        }
        if (digit == 4)
            file_add(&file, row, ((size_t)width + 7) / 8);
    }
    free(pixels);
    return file;
}

const struct picture_kind picture_kinds[] = {
    {"jpeg", "jpeg", 2, false, make_jpeg, 0},
    {"progressive jpeg", "jpeg", 2, false, make_jpeg, 1},
    {"png grey", "png", 12, true, make_png, 0},
    {"png colour", "png", 12, true, make_png, 2},
    {"png grey alpha", "png", 12, true, make_png, 4},
    {"png colour alpha", "png", 12, true, make_png, 6},
    {"png interlaced", "png", 12, true, make_png, 256 + 2},
    {"png 16 bits", "png", 12, true, make_png, 512 + 2},
    {"png 16 bits grey alpha interlaced", "png", 12, true, make_png, 512 + 256 + 4},
    {"webp", "webp", 0, false, make_webp, 0},
    {"webp lossless", "webp", 0, true, make_webp, 1},
    {"bmp 1 bit", "bmp", 3, false, make_bmp, 1},
    {"bmp 4 bits", "bmp", 1, false, make_bmp, 4},
    {"bmp 8 bits", "bmp", 3, true, make_bmp, 8},
    {"bmp 24 bits", "bmp", 1, true, make_bmp, 24},
    {"bmp 32 bits from above", "bmp", 0, true, make_bmp, -32},
    {"bmp runs", "bmp", 4, true, make_bmp_runs, 0},
    {"gif", "gif", 2, true, make_gif, 0},
    {"gif interlaced", "gif", 2, true, make_gif, 1},
    {"pnm bits as text", "pnm", 0, false, make_pnm, 1},
    {"pnm grey as text", "pnm", 0, true, make_pnm, 2},
    {"pnm colour as text", "pnm", 0, true, make_pnm, 3},
    {"pnm bits", "pnm", 0, false, make_pnm, 4},
    {"pnm grey", "pnm", 0, true, make_pnm, 5},
    {"pnm colour", "pnm", 0, true, make_pnm, 6},
};
const size_t picture_kind_count = sizeof picture_kinds / sizeof picture_kinds[0];
