/* The law of random crops and flips: which region of a picture a sample shows. Pure, exact on every CPU (no libm), the same words in
 * docs/order.md, frozen by tests/data/order_vectors.json. Boxes are in the picture as shown, after its orientation. */
#ifndef SPDLD_TRANSFORM_LAW_H
#define SPDLD_TRANSFORM_LAW_H

#include <stdbool.h>
#include <stdint.h>

struct law_box {
    int32_t x, y, width, height;
};

/* Where a draw comes from: Philox4x32-10 with key (seed low, seed high xor 0x9E3779B9 * op), op = 256 * field + operation, and counter
 * (position low, position high, epoch, draw / 4). */
struct law_draws {
    uint64_t seed;
    uint64_t position;
    uint32_t epoch;
    uint32_t field;
    uint32_t operation;
};

/* Draw number `draw` as 32 random bits, as a number in [0, 1) with 24 bits, and as an integer in [0, n). n = 0 gives 0. */
uint32_t law_bits(const struct law_draws *draws, uint32_t draw);
double law_uniform(const struct law_draws *draws, uint32_t draw);
uint32_t law_below(const struct law_draws *draws, uint32_t draw, uint32_t n);

/* torchvision's RandomResizedCrop: ten attempts, then the centre. width and height are at least 1; the box is always inside and not empty. */
struct law_box law_random_resized_crop(const struct law_draws *draws, int32_t width, int32_t height,
                                       const double scale[2], const double ratio[2]);

/* torchvision's RandomCrop without padding: draws 0 and 1 are y and x. Returns false when the picture is smaller than the crop. */
bool law_random_crop(const struct law_draws *draws, int32_t width, int32_t height, int32_t crop_width,
                     int32_t crop_height, struct law_box *ret_box);

/* True with probability p: draw 0 is below p. */
bool law_flip(const struct law_draws *draws, double p);

/* Python's round() of numerator / 2, halves to even: torchvision's centre. */
int32_t law_half_even(int32_t numerator);

#endif
