/* The law of random crops and flips: which region of a picture a sample shows. Pure, exact on every
 * CPU (base/exact.h, no libm), the same words in docs/order.md, frozen by
 * tests/data/order_vectors.json. Boxes are in the picture as shown, after its orientation. */
#ifndef SPDLD_TRANSFORM_LAW_H
#define SPDLD_TRANSFORM_LAW_H

#include <stdbool.h>
#include <stdint.h>

struct law_box {
    int32_t x, y, width, height;
};

/* Where a draw comes from: Philox4x32-10 with key (seed low, seed high xor (0x9E3779B9 * op mod
 * 2^32)), op = 256 * field + operation, and counter (position low, position high, epoch, draw / 4);
 * the draw is word draw mod 4 of the block. */
struct law_draws {
    uint64_t seed;
    uint64_t position;
    uint32_t epoch;
    uint32_t field;
    uint32_t operation;
};

/* Draw number `draw` as 32 random bits b, as a number in [0, 1) with 24 bits, (b >> 8) / 2^24, and
 * as an integer in [0, n), b * n / 2^32 rounded down. n = 0 gives 0. */
uint32_t law_bits(const struct law_draws *draws, uint32_t draw);
double law_uniform(const struct law_draws *draws, uint32_t draw);
uint32_t law_below(const struct law_draws *draws, uint32_t draw, uint32_t n);

/* torchvision's RandomResizedCrop: ten attempts, then the centre. width and height are at least 1;
 * the box is always inside and not empty. In doubles, one operation a step, with u(d) and below(d,
 * n) as above: range = log(ratio[1] / ratio[0]) attempt k = 0 … 9: target = (width * height) *
 * (scale[0] + u(4k) * (scale[1] - scale[0])) aspect = ratio[0] * exp(u(4k + 1) * range) w =
 * round(sqrt(target * aspect)), h = round(sqrt(target / aspect)), halves to even taken if 0 < w <=
 * width and 0 < h <= height: y = below(4k + 2, height - h + 1), x = below(4k + 3, width - w + 1)
 *   none taken: low, high = the smaller and the larger ratio, own = width / height
 *     own < low:  w = width, h = round(width / low)
 *     own > high: h = height, w = round(height * high)
 *     else:       w = width, h = height
 *     w and h are clipped to 1 … width and 1 … height; x = (width - w) / 2, y = (height - h) / 2,
 *     rounded down.
 * Equal ratios give just that ratio, because exp(0) is 1. */
struct law_box law_random_resized_crop(const struct law_draws *draws, int32_t width, int32_t height,
                                       const double scale[2], const double ratio[2]);

/* torchvision's RandomCrop without padding: y = below(0, height - crop_height + 1), x = below(1,
 * width
 * - crop_width + 1). Returns false when the picture is smaller than the crop. */
bool law_random_crop(const struct law_draws *draws, int32_t width, int32_t height,
                     int32_t crop_width, int32_t crop_height, struct law_box *ret_box);

/* True with probability p: u(0) is below p. */
bool law_flip(const struct law_draws *draws, double p);

/* Python's round() of numerator / 2, halves to even: torchvision's centre. */
int32_t law_half_even(int32_t numerator);

#endif
