/* A contact sheet, drawn into memory and written as PNG. */
#include "client/ctl/ctl_sheet.h"

#include <errno.h>
#include <png.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/ctl_font.h"

enum {
    SHEET_GAP = 12,
    SHEET_TITLE = 40,     /* height of the title */
    SHEET_TEXT = 30,      /* height of the lines under a tile */
    SHEET_TILE_MIN = 128, /* smaller pictures are enlarged by a whole factor */
    SHEET_TILE_MAX = 256  /* larger ones are made smaller */
};

struct sheet_colour {
    uint8_t rgb[3];
};
static const struct sheet_colour sheet_paper = {{250, 250, 248}};
static const struct sheet_colour sheet_ink = {{40, 44, 52}};
static const struct sheet_colour sheet_faint = {{120, 126, 136}};
static const struct sheet_colour sheet_empty = {{224, 224, 220}};
static const struct sheet_colour sheet_red = {{200, 40, 40}};

int ctl_sheet_create(struct ctl_sheet *sheet, uint32_t tiles, uint32_t picture_width,
                     uint32_t picture_height)
{
    const uint64_t bytes_max = 256U << 20;
    memset(sheet, 0, sizeof *sheet);
    uint32_t longest = picture_width > picture_height ? picture_width : picture_height;
    if (longest == 0)
        return -EINVAL;
    double scale = 1;
    if (longest > SHEET_TILE_MAX)
        scale = (double)SHEET_TILE_MAX / longest;
    else if (longest < SHEET_TILE_MIN)
        scale = (double)(uint32_t)((SHEET_TILE_MIN + longest - 1) / longest); /* whole */
    sheet->tile_width = (uint32_t)(picture_width * scale);
    sheet->tile_height = (uint32_t)(picture_height * scale);
    sheet->tile_width += sheet->tile_width == 0;
    sheet->tile_height += sheet->tile_height == 0;
    while (sheet->columns * sheet->columns < tiles && sheet->columns < 16)
        sheet->columns++;
    sheet->columns += sheet->columns == 0;
    uint64_t lines = ((uint64_t)tiles + sheet->columns - 1) / sheet->columns;
    uint64_t height = SHEET_TITLE + lines * (sheet->tile_height + SHEET_TEXT + SHEET_GAP);
    uint64_t width = SHEET_GAP + (uint64_t)sheet->columns * (sheet->tile_width + SHEET_GAP);
    if (height * width * 3 > bytes_max)
        return -EFBIG;
    sheet->width = (uint32_t)width;
    sheet->height = (uint32_t)height;
    sheet->pixels = malloc((size_t)(height * width * 3));
    if (!sheet->pixels)
        return -ENOMEM;
    for (size_t i = 0; i < (size_t)(height * width); i++)
        memcpy(sheet->pixels + 3 * i, sheet_paper.rgb, 3);
    return 0;
}

void ctl_sheet_destroy(struct ctl_sheet *sheet)
{
    free(sheet->pixels);
    memset(sheet, 0, sizeof *sheet);
}

static void sheet_dot(struct ctl_sheet *sheet, uint32_t x, uint32_t y, struct sheet_colour colour)
{
    if (x < sheet->width && y < sheet->height)
        memcpy(sheet->pixels + ((size_t)y * sheet->width + x) * 3, colour.rgb, 3);
}

static void sheet_fill(struct ctl_sheet *sheet, const uint32_t box[4], struct sheet_colour colour)
{
    for (uint32_t y = 0; y < box[3]; y++) {
        for (uint32_t x = 0; x < box[2]; x++)
            sheet_dot(sheet, box[0] + x, box[1] + y, colour);
    }
}

static void sheet_letter(struct ctl_sheet *sheet, const uint32_t at[2], char letter, uint32_t scale,
                         struct sheet_colour colour)
{
    for (unsigned row = 0; row < CTL_FONT_ROWS; row++) {
        for (unsigned column = 0; column < CTL_FONT_COLUMNS; column++) {
            const uint32_t box[4] = {at[0] + column * scale, at[1] + row * scale, scale, scale};
            if (ctl_font_dot(letter, row, column))
                sheet_fill(sheet, box, colour);
        }
    }
}

/* A line of text in at most `width` dots: a longer one keeps its end. A character of several bytes
 * becomes one question mark. */
static void sheet_line(struct ctl_sheet *sheet, const uint32_t box[3], const char *text,
                       uint32_t scale, struct sheet_colour colour)
{
    char letters[256];
    uint32_t count = 0, room = box[2] / (CTL_FONT_ADVANCE * scale);
    for (; *text && count < sizeof letters; text++) {
        if ((*text & 0xc0) != 0x80)
            letters[count++] = *text;
    }
    uint32_t skip = count > room ? count - room : 0;
    for (uint32_t i = skip; i < count; i++) {
        const uint32_t at[2] = {box[0] + (i - skip) * CTL_FONT_ADVANCE * scale, box[1]};
        bool cut = skip && i < skip + 2;
        sheet_letter(sheet, at, cut ? '.' : letters[i], scale, colour);
    }
}

static void sheet_place(const struct ctl_sheet *sheet, uint32_t tile, uint32_t at[2])
{
    at[0] = SHEET_GAP + tile % sheet->columns * (sheet->tile_width + SHEET_GAP);
    at[1] = SHEET_TITLE +
            tile / sheet->columns * (sheet->tile_height + SHEET_TEXT + (uint32_t)SHEET_GAP);
}

void ctl_sheet_title(struct ctl_sheet *sheet, const char *title)
{
    uint32_t letters = (uint32_t)strlen(title) * CTL_FONT_ADVANCE;
    uint32_t room = sheet->width - 2 * SHEET_GAP;
    const uint32_t box[3] = {SHEET_GAP, letters * 2 <= room ? 12 : 16, room};
    sheet_line(sheet, box, title, letters * 2 <= room ? 2 : 1, sheet_ink);
}

void ctl_sheet_picture(struct ctl_sheet *sheet, uint32_t tile, const struct ctl_picture *picture,
                       uint32_t row)
{
    uint32_t at[2];
    sheet_place(sheet, tile, at);
    for (uint32_t y = 0; y < sheet->tile_height; y++) {
        for (uint32_t x = 0; x < sheet->tile_width; x++) {
            struct sheet_colour colour = {{0}};
            const uint32_t span[4] = {
                (uint32_t)((uint64_t)x * picture->width / sheet->tile_width),
                (uint32_t)((uint64_t)y * picture->height / sheet->tile_height),
                (uint32_t)(((uint64_t)x + 1) * picture->width / sheet->tile_width),
                (uint32_t)(((uint64_t)y + 1) * picture->height / sheet->tile_height),
            };
            ctl_picture_sample(picture, row, span, colour.rgb);
            sheet_dot(sheet, at[0] + x, at[1] + y, colour);
        }
    }
}

/* Both diagonals, five dots thick. */
static void sheet_cross(struct ctl_sheet *sheet, const uint32_t at[2])
{
    uint32_t longest =
        sheet->tile_width > sheet->tile_height ? sheet->tile_width : sheet->tile_height;
    uint32_t thick = sheet->tile_width > 8 ? 5 : 1;
    for (uint32_t i = 0; i < longest; i++) {
        uint32_t x = (uint32_t)((uint64_t)i * (sheet->tile_width - thick) / longest);
        uint32_t y = (uint32_t)((uint64_t)i * (sheet->tile_height - thick) / longest);
        const uint32_t down[4] = {at[0] + x, at[1] + y, thick, thick};
        const uint32_t up[4] = {at[0] + x, at[1] + sheet->tile_height - thick - y, thick, thick};
        sheet_fill(sheet, down, sheet_red);
        sheet_fill(sheet, up, sheet_red);
    }
}

void ctl_sheet_missing(struct ctl_sheet *sheet, uint32_t tile, const char *word)
{
    uint32_t at[2];
    sheet_place(sheet, tile, at);
    const uint32_t whole[4] = {at[0], at[1], sheet->tile_width, sheet->tile_height};
    sheet_fill(sheet, whole, sheet_empty);
    sheet_cross(sheet, at);
    uint32_t letters = (uint32_t)strlen(word) * CTL_FONT_ADVANCE;
    uint32_t scale = letters * 2 + 16 <= sheet->tile_width ? 2 : 1;
    uint32_t width = letters * scale + 12;
    uint32_t height = CTL_FONT_ROWS * scale + 10;
    if (width > sheet->tile_width || height > sheet->tile_height)
        return;
    const uint32_t plate[4] = {at[0] + (sheet->tile_width - width) / 2,
                               at[1] + (sheet->tile_height - height) / 2, width, height};
    const uint32_t line[3] = {plate[0] + 6 + scale / 2, plate[1] + 6, width - 12};
    sheet_fill(sheet, plate, sheet_paper);
    sheet_line(sheet, line, word, scale, sheet_red);
}

void ctl_sheet_text(struct ctl_sheet *sheet, uint32_t tile, const char *key, const char *label)
{
    uint32_t at[2];
    sheet_place(sheet, tile, at);
    const uint32_t first[3] = {at[0], at[1] + sheet->tile_height + 5, sheet->tile_width};
    const uint32_t second[3] = {at[0], at[1] + sheet->tile_height + 17, sheet->tile_width};
    sheet_line(sheet, first, key, 1, sheet_ink);
    sheet_line(sheet, second, label, 1, sheet_faint);
}

static int sheet_put(const struct ctl_sheet *sheet, const char *path)
{
    FILE *file = fopen(path, "wbe");
    if (!file)
        return -errno;
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = sheet->width,
                       .height = sheet->height,
                       .format = PNG_FORMAT_RGB};
    int rc = png_image_write_to_stdio(&image, file, 0, sheet->pixels, 0, NULL) ? 0 : -EIO;
    if (fclose(file) != 0 && rc == 0)
        rc = -errno;
    return rc;
}

int ctl_sheet_write(const struct ctl_sheet *sheet, const char *path)
{
    struct stat there;
    if (lstat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return sheet_put(sheet, path); /* a device, a pipe or a link: it stays what it is */
    char temporary[4096];
    int length = snprintf(temporary, sizeof temporary, "%s.%d.tmp", path, (int)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary)
        return -ENAMETOOLONG;
    int rc = sheet_put(sheet, temporary);
    if (rc == 0 && rename(temporary, path) < 0)
        rc = -errno;
    if (rc < 0)
        (void)unlink(temporary);
    return rc;
}
