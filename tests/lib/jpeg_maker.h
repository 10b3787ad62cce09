/* Makes JPEG files for tests, of every kind that libjpeg can write, from a picture that is
 * computed. */
#ifndef SPDL_TESTS_JPEG_MAKER_H
#define SPDL_TESTS_JPEG_MAKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum jpeg_maker_colour {
    JPEG_MAKER_YCBCR = 0, /* from RGB */
    JPEG_MAKER_GREY,
    JPEG_MAKER_RGB, /* stored as RGB */
    JPEG_MAKER_CMYK,
    JPEG_MAKER_YCCK,
    JPEG_MAKER_TWO /* two components, which no colour has */
};

struct jpeg_recipe {
    int width, height;
    enum jpeg_maker_colour colour;
    int h[4], v[4]; /* sampling factors; 0: 1 */
    bool progressive, arithmetic;
    bool separate_scans;    /* sequential, one scan a component */
    bool plain_progression; /* progressive without refinement: DC, then AC of each component */
    int restart;            /* MCUs between restart markers; 0: none */
    int quality;            /* 0: 90 */
    int orientation;        /* 0: no EXIF part */
    const uint8_t *fill; /* one colour for the whole picture, else a pattern with edges and noise */
    uint32_t seed;       /* of the pattern */
    bool quadrants;      /* red, green, blue, white instead */
};

/* Returns the file (free it); NULL when libjpeg refuses the recipe. */
uint8_t *jpeg_make(const struct jpeg_recipe *recipe, size_t *ret_bytes);

/* Decodes the whole file with plain libjpeg calls to 4 bytes a pixel (free it), as it is stored.
 * NULL on an error. */
uint8_t *jpeg_decode_plainly(const uint8_t *file, size_t bytes, int *ret_width, int *ret_height);

#endif
