/* Weights of a resize: see transform_axis.h. The exact form follows the steps of Pillow's
 * resampling one by one, so that its weights come out the same to the last bit. */
#include "transform/transform_axis.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "item/field.h"

struct kernel {
    double scale;   /* source pixels per output */
    double support; /* half the filter's width, in source pixels */
    double step;    /* filter units per source pixel */
};

static struct kernel kernel_of(const struct axis_request *request)
{
    struct kernel kernel;
    kernel.scale = (double)request->in_size / (double)request->out_size;
    double stretch = kernel.scale < 1 ? 1 : kernel.scale;
    kernel.support = (request->filter == FIELD_FILTER_BICUBIC ? 2.0 : 1.0) * stretch;
    kernel.step = 1.0 / stretch;
    return kernel;
}

static void span_of(const struct kernel *kernel, int32_t in_size, double centre, int32_t *ret_from,
                    int32_t *ret_to)
{
    int32_t from = (int32_t)(centre - kernel->support + 0.5);
    int32_t to = (int32_t)(centre + kernel->support + 0.5);
    *ret_from = from < 0 ? 0 : from;
    *ret_to = to > in_size ? in_size : to;
}

void transform_axis_span(const struct axis_request *request, int32_t out, int32_t *ret_from,
                         int32_t *ret_to)
{
    struct kernel kernel = kernel_of(request);
    span_of(&kernel, request->in_size, (out + 0.5) * kernel.scale, ret_from, ret_to);
}

static double triangle(double x)
{
    x = x < 0 ? -x : x;
    return x < 1 ? 1 - x : 0;
}

static double cubic(double x)
{
    const double a = -0.5;
    x = x < 0 ? -x : x;
    if (x < 1)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

/* Raw weights of the taps [from, to); their sum is returned. */
static double weigh(const struct kernel *kernel, uint32_t filter, double centre, int32_t from,
                    int32_t to, double *weights)
{
    double sum = 0;
    if (filter == FIELD_FILTER_BICUBIC) {
        for (int32_t x = from; x < to; x++)
            sum += weights[x - from] = cubic((x - centre + 0.5) * kernel->step);
    } else {
        for (int32_t x = from; x < to; x++)
            sum += weights[x - from] = triangle((x - centre + 0.5) * kernel->step);
    }
    return sum;
}

/* 16-bit weights whose sum is exactly AXIS_FAST_ONE: what rounding left over goes to the largest.
 */
static void round_fast(const double *weights, double sum, int32_t count, uint32_t *ret_weights)
{
    const double factor = AXIS_FAST_ONE / sum;
    int32_t rest = AXIS_FAST_ONE, largest = 0;
    for (int32_t k = 0; k < count; k++) {
        int32_t w = (int32_t)(weights[k] * factor + 0.5);
        rest -= w;
        ret_weights[k] = (uint32_t)w;
        if (ret_weights[k] > ret_weights[largest])
            largest = k;
    }
    ret_weights[largest] += (uint32_t)rest;
    if (ret_weights[largest] == AXIS_FAST_ONE)
        ret_weights[largest] = AXIS_FAST_ONE - 1;
    for (int32_t k = 0; k < count; k++)
        ret_weights[k] *= 0x10001u;
}

static void round_exact(const double *weights, double sum, int32_t count, uint32_t *ret_weights)
{
    for (int32_t k = 0; k < count; k++) {
        double w = (sum != 0.0 ? weights[k] / sum : weights[k]) * (1 << AXIS_EXACT_SHIFT);
        ret_weights[k] = (uint32_t)(int32_t)(w < 0 ? -0.5 + w : 0.5 + w);
    }
}

/* Leaves out the taps beyond the pixels that exist and those of weight 0 at both ends, and moves
 * the rest to the front. */
static void trim(struct resize_axis *axis, const struct axis_request *request, int32_t out,
                 int32_t from, int32_t count)
{
    uint32_t *weight = axis->weight + (size_t)out * (size_t)axis->taps;
    int32_t low = 0, high = count;
    if (from < request->real_from)
        low = request->real_from - from;
    if (from + high > request->real_to)
        high = request->real_to - from;
    while (!request->exact && low < high && weight[low] == 0)
        low++;
    while (!request->exact && low < high && weight[high - 1] == 0)
        high--;
    if (low >= high) { /* nothing but padding: one pixel, counted nothing */
        axis->first[out] = 0;
        axis->count[out] = 1;
        memset(weight, 0, (size_t)axis->taps * sizeof *weight);
        return;
    }
    axis->first[out] = from + low - request->real_from;
    axis->count[out] = high - low;
    if (axis->most < high - low)
        axis->most = high - low;
    if (low > 0)
        memmove(weight, weight + low, (size_t)(high - low) * sizeof *weight);
    for (int32_t k = high - low; k < axis->taps; k++)
        weight[k] = 0;
}

static int reserve(struct resize_axis *axis, int32_t outputs, int32_t taps)
{
    const size_t n = (size_t)outputs, t = (size_t)taps;
    const size_t bytes = t * sizeof(double) + n * (2 * sizeof(int32_t) + t * sizeof(uint32_t));
    if (bytes > axis->memory_bytes) {
        void *memory = realloc(axis->memory, bytes + bytes / 4);
        if (!memory)
            return -ENOMEM;
        axis->memory = memory;
        axis->memory_bytes = bytes + bytes / 4;
    }
    axis->outputs = outputs;
    axis->taps = taps;
    axis->most = 1;
    uint8_t *next = (uint8_t *)axis->memory + t * sizeof(double);
    axis->first = (int32_t *)(void *)next;
    axis->count = axis->first + n;
    axis->weight = (uint32_t *)(void *)(axis->count + n);
    return 0;
}

int transform_axis_build(struct resize_axis *axis, const struct axis_request *request)
{
    const struct kernel kernel = kernel_of(request);
    int64_t bound = 2 * ((int64_t)kernel.support + 1) + 1;
    if (bound > request->in_size)
        bound = request->in_size;
    if (reserve(axis, request->outputs, (int32_t)bound) != 0)
        return -ENOMEM;
    double *weights = axis->memory;
    for (int32_t i = 0; i < request->outputs; i++) {
        int32_t out = request->out_from + (request->reverse ? request->outputs - 1 - i : i);
        double centre = (out + 0.5) * kernel.scale;
        int32_t from, to;
        span_of(&kernel, request->in_size, centre, &from, &to);
        double sum = weigh(&kernel, request->filter, centre, from, to, weights);
        uint32_t *rounded = axis->weight + (size_t)i * (size_t)axis->taps;
        if (request->exact)
            round_exact(weights, sum, to - from, rounded);
        else
            round_fast(weights, sum, to - from, rounded);
        trim(axis, request, i, from, to - from);
    }
    return 0;
}

void transform_axis_free(struct resize_axis *axis)
{
    free(axis->memory);
    memset(axis, 0, sizeof *axis);
}
