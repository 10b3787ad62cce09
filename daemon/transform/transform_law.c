/* The law of random crops and flips: see transform_law.h and docs/order.md. Frozen by test vectors;
 * a change of one bit here is a new version of the order. */
#include "transform/transform_law.h"

#include "base/exact.h"
#include "base/philox.h"

static void law_block(const struct law_draws *draws, uint32_t block, uint32_t ret_words[4])
{
    const uint32_t op = 256 * draws->field + draws->operation;
    const uint32_t key[2] = {(uint32_t)draws->seed,
                             (uint32_t)(draws->seed >> 32) ^ (0x9E3779B9u * op)};
    const uint32_t counter[4] = {(uint32_t)draws->position, (uint32_t)(draws->position >> 32),
                                 draws->epoch, block};
    philox4x32(counter, key, ret_words);
}

static double unit_of(uint32_t bits)
{
    return (double)(bits >> 8) * 0x1p-24;
}

static uint32_t below_of(uint32_t bits, uint32_t n)
{
    return (uint32_t)((uint64_t)bits * n >> 32);
}

uint32_t law_bits(const struct law_draws *draws, uint32_t draw)
{
    uint32_t words[4];
    law_block(draws, draw / 4, words);
    return words[draw % 4];
}

double law_uniform(const struct law_draws *draws, uint32_t draw)
{
    return unit_of(law_bits(draws, draw));
}

uint32_t law_below(const struct law_draws *draws, uint32_t draw, uint32_t n)
{
    return below_of(law_bits(draws, draw), n);
}

static int32_t inside(int64_t side, int32_t limit)
{
    if (side < 1)
        return 1;
    return side > limit ? limit : (int32_t)side;
}

static struct law_box central_box(int32_t width, int32_t height, const double ratio[2])
{
    double low = ratio[0] < ratio[1] ? ratio[0] : ratio[1];
    double high = ratio[0] < ratio[1] ? ratio[1] : ratio[0];
    double own = (double)width / (double)height;
    struct law_box box = {0, 0, width, height};
    if (own < low)
        box.height = inside(exact_round((double)width / low), height);
    else if (own > high)
        box.width = inside(exact_round((double)height * high), width);
    box.x = (width - box.width) / 2;
    box.y = (height - box.height) / 2;
    return box;
}

struct law_box law_random_resized_crop(const struct law_draws *draws, int32_t width, int32_t height,
                                       const double scale[2], const double ratio[2])
{
    const double area = (double)((int64_t)width * height);
    const double log_range = exact_log(ratio[1] / ratio[0]);
    for (uint32_t attempt = 0; attempt < 10; attempt++) {
        uint32_t words[4];
        law_block(draws, attempt, words);
        double part = scale[0] + unit_of(words[0]) * (scale[1] - scale[0]);
        double target = area * part;
        double aspect = ratio[0] * exact_exp(unit_of(words[1]) * log_range);
        int64_t w = exact_round(exact_sqrt(target * aspect));
        int64_t h = exact_round(exact_sqrt(target / aspect));
        if (w > 0 && w <= width && h > 0 && h <= height) {
            int32_t y = (int32_t)below_of(words[2], (uint32_t)(height - (int32_t)h + 1));
            int32_t x = (int32_t)below_of(words[3], (uint32_t)(width - (int32_t)w + 1));
            return (struct law_box){x, y, (int32_t)w, (int32_t)h};
        }
    }
    return central_box(width, height, ratio);
}

bool law_random_crop(const struct law_draws *draws, int32_t width, int32_t height,
                     int32_t crop_width, int32_t crop_height, struct law_box *ret_box)
{
    if (crop_width > width || crop_height > height)
        return false;
    uint32_t words[4];
    law_block(draws, 0, words);
    *ret_box = (struct law_box){(int32_t)below_of(words[1], (uint32_t)(width - crop_width + 1)),
                                (int32_t)below_of(words[0], (uint32_t)(height - crop_height + 1)),
                                crop_width, crop_height};
    return true;
}

bool law_flip(const struct law_draws *draws, double p)
{
    return law_uniform(draws, 0) < p;
}

int32_t law_half_even(int32_t numerator)
{
    int32_t down = numerator / 2 - (numerator < 0 && numerator % 2 != 0);
    return down + (numerator % 2 != 0 && down % 2 != 0);
}
