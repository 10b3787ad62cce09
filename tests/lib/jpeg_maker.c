/* Makes JPEG files for tests. */
#include "tests/lib/jpeg_maker.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

struct trap {
    struct jpeg_error_mgr errors;
    jmp_buf escape;
};

static void on_error(j_common_ptr info)
{
    longjmp(((struct trap *)info->client_data)->escape, 1);
}

static void on_message(j_common_ptr info, int level)
{
    if (level < 0)
        info->err->num_warnings++;
}

static void set_trap(struct trap *trap, j_common_ptr info)
{
    info->err = jpeg_std_error(&trap->errors);
    info->client_data = trap;
    trap->errors.error_exit = on_error;
    trap->errors.emit_message = on_message;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

static uint8_t pattern(const struct jpeg_recipe *recipe, int x, int y, int c, uint32_t *noise)
{
    static const uint8_t corner[4][4] = {
        {255, 0, 0, 0}, {0, 255, 0, 0}, {0, 0, 255, 0}, {255, 255, 255, 0}};
    if (recipe->fill != NULL)
        return recipe->fill[c];
    if (recipe->quadrants)
        return corner[(y * 2 >= recipe->height) * 2 + (x * 2 >= recipe->width)][c];
    int slope = (x * (3 + c) + y * (5 - c)) & 255;
    int block = ((x / 5 + y / 3 + c) % 3) * 60;
    return (uint8_t)((slope * 2 + block + (int)(next_random(noise) % 64)) / 3);
}

static J_COLOR_SPACE input_space(enum jpeg_maker_colour colour)
{
    switch (colour) {
    case JPEG_MAKER_GREY:
        return JCS_GRAYSCALE;
    case JPEG_MAKER_CMYK:
    case JPEG_MAKER_YCCK:
        return JCS_CMYK;
    case JPEG_MAKER_TWO:
        return JCS_UNKNOWN;
    case JPEG_MAKER_YCBCR:
    case JPEG_MAKER_RGB:
        break;
    }
    return JCS_RGB;
}

static void set_parameters(struct jpeg_compress_struct *info, const struct jpeg_recipe *recipe)
{
    info->image_width = (JDIMENSION)recipe->width;
    info->image_height = (JDIMENSION)recipe->height;
    info->in_color_space = input_space(recipe->colour);
    info->input_components = info->in_color_space == JCS_GRAYSCALE ? 1
                             : info->in_color_space == JCS_UNKNOWN ? 2
                             : info->in_color_space == JCS_CMYK    ? 4
                                                                   : 3;
    jpeg_set_defaults(info);
    if (recipe->colour == JPEG_MAKER_RGB)
        jpeg_set_colorspace(info, JCS_RGB);
    if (recipe->colour == JPEG_MAKER_YCCK)
        jpeg_set_colorspace(info, JCS_YCCK);
    jpeg_set_quality(info, recipe->quality == 0 ? 90 : recipe->quality, TRUE);
    for (int i = 0; i < info->num_components; i++) {
        info->comp_info[i].h_samp_factor = recipe->h[i] == 0 ? 1 : recipe->h[i];
        info->comp_info[i].v_samp_factor = recipe->v[i] == 0 ? 1 : recipe->v[i];
    }
    info->arith_code = recipe->arithmetic;
    info->restart_interval = (unsigned)recipe->restart;
    if (recipe->progressive)
        jpeg_simple_progression(info);
}

static void write_exif(struct jpeg_compress_struct *info, int orientation)
{
    uint8_t exif[] = {'E', 'x',  'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1,
                      1,   0x12, 0,   3,   0, 0, 0,   1,   0, 0,  0, 0, 0, 0, 0, 0};
    exif[25] = (uint8_t)orientation;
    jpeg_write_marker(info, JPEG_APP0 + 1, exif, sizeof exif);
}

/* Scans of the caller's; the script must live until the file is written. */
static void set_scans(struct jpeg_compress_struct *info, const struct jpeg_recipe *recipe,
                      jpeg_scan_info script[5])
{
    int count = 0;
    if (recipe->plain_progression) {
        script[count] = (jpeg_scan_info){.comps_in_scan = info->num_components};
        for (int i = 0; i < info->num_components; i++)
            script[count].component_index[i] = i;
        count++;
    }
    for (int i = 0; i < info->num_components; i++, count++)
        script[count] = (jpeg_scan_info){.comps_in_scan = 1,
                                         .component_index = {i},
                                         .Ss = recipe->plain_progression ? 1 : 0,
                                         .Se = 63};
    info->scan_info = script;
    info->num_scans = count;
}

static void write_file(struct jpeg_compress_struct *info, const struct jpeg_recipe *recipe,
                       uint8_t *row)
{
    jpeg_scan_info script[5];
    set_parameters(info, recipe);
    if (recipe->separate_scans || recipe->plain_progression)
        set_scans(info, recipe, script);
    jpeg_start_compress(info, TRUE);
    if (recipe->orientation != 0)
        write_exif(info, recipe->orientation);
    uint32_t noise = recipe->seed;
    for (int y = 0; y < recipe->height; y++) {
        for (int x = 0; x < recipe->width; x++)
            for (int c = 0; c < info->input_components; c++)
                row[x * info->input_components + c] = pattern(recipe, x, y, c, &noise);
        jpeg_write_scanlines(info, &row, 1);
    }
    jpeg_finish_compress(info);
}

uint8_t *jpeg_make(const struct jpeg_recipe *recipe, size_t *ret_bytes)
{
    static struct trap trap;
    static struct jpeg_compress_struct info;
    static unsigned char *file;
    static unsigned long bytes;
    uint8_t *row = malloc((size_t)recipe->width * 4);
    file = NULL;
    bytes = 0;
    set_trap(&trap, (j_common_ptr)&info);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &file, &bytes);
    if (row == NULL || setjmp(trap.escape) != 0) {
        jpeg_destroy_compress(&info);
        free(row);
        free(file);
        return NULL;
    }
    write_file(&info, recipe, row);
    jpeg_destroy_compress(&info);
    free(row);
    *ret_bytes = bytes;
    return file;
}

static void read_file(struct jpeg_decompress_struct *info, uint8_t **pixels)
{
    jpeg_read_header(info, TRUE);
    info->out_color_space = info->num_components == 4 ? JCS_CMYK : JCS_EXT_RGBX;
    jpeg_start_decompress(info);
    *pixels = malloc((size_t)info->output_width * info->output_height * 4);
    while (*pixels != NULL && info->output_scanline < info->output_height) {
        JSAMPROW row = *pixels + (size_t)info->output_scanline * info->output_width * 4;
        jpeg_read_scanlines(info, &row, 1);
    }
}

uint8_t *jpeg_decode_plainly(const uint8_t *file, size_t bytes, int *ret_width, int *ret_height)
{
    static struct trap trap;
    static struct jpeg_decompress_struct info;
    static uint8_t *pixels;
    pixels = NULL;
    set_trap(&trap, (j_common_ptr)&info);
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, file, bytes);
    if (setjmp(trap.escape) != 0) {
        jpeg_destroy_decompress(&info);
        free(pixels);
        return NULL;
    }
    read_file(&info, &pixels);
    *ret_width = (int)info.output_width;
    *ret_height = (int)info.output_height;
    jpeg_destroy_decompress(&info);
    return pixels;
}
