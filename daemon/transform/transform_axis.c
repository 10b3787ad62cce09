/* Weights of a resize: see transform_axis.h. The exact form follows the steps of Pillow's
 * resampling one by one, so that its weights come out the same to the last bit. The fast form is
 * made for every picture anew and is whole numbers but for one division an output. */
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

static void round_exact(const double *weights, double sum, int32_t count, uint32_t *ret_weights)
{
    for (int32_t k = 0; k < count; k++) {
        double w = (sum != 0.0 ? weights[k] / sum : weights[k]) * (1 << AXIS_EXACT_SHIFT);
        ret_weights[k] = (uint32_t)(int32_t)(w < 0 ? -0.5 + w : 0.5 + w);
    }
}

/* Of the taps [low, high) of an output, the first of which is pixel `from`, keeps those whose
 * pixels exist, moved to the front. (Weights of 0 stay: without the cubic's zeros inside its span,
 * `first` would not rise from output to output.) */
static void keep_real(struct resize_axis *axis, const struct axis_request *request, int32_t out,
                      int32_t from, int32_t count)
{
    uint32_t *weight = axis->weight + (size_t)out * (size_t)axis->taps;
    int32_t low = from < request->real_from ? request->real_from - from : 0;
    int32_t high = from + count > request->real_to ? request->real_to - from : count;
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

static int build_exact(struct resize_axis *axis, const struct axis_request *request)
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
        round_exact(weights, sum, to - from, axis->weight + (size_t)i * (size_t)axis->taps);
        keep_real(axis, request, i, from, to - from);
    }
    return 0;
}

/* The fast form counts in units of 1 / (2 * out_size) source pixels, in which all is whole: output
 * o is at (2 * o + 1) * in_size, pixel x at (2 * x + 1) * out_size, and the triangle reaches
 * `reach` to either side. */
struct fast {
    int32_t unit;  /* 2 * out_size: from pixel to pixel */
    int32_t reach; /* 2 * max(in_size, out_size) */
    int32_t taps;  /* at most so many pixels are nearer than `reach` */
};

/* Weighs the taps [low, high) of an output; start is the distance of tap 0. The heaviest one takes
 * what rounding leaves over. Returns the number of taps up to the last that weighs something. */
static int32_t weigh_fast(const struct fast *fast, int32_t start, int32_t low, int32_t high,
                          uint32_t *weights)
{
    int32_t sum = 0;
    for (int32_t k = low, distance = start + low * fast->unit; k < high;
         k++, distance += fast->unit) {
        int32_t height = fast->reach - (distance < 0 ? -distance : distance);
        height = height < 0 ? 0 : height;
        sum += height;
        weights[k - low] = (uint32_t)height;
    }
    const float factor = (float)AXIS_FAST_ONE / (float)sum;
    int32_t rest = AXIS_FAST_ONE, heaviest = 0;
    uint32_t most = 0;
    for (int32_t k = 0; k < high - low; k++) {
        uint32_t weight = (uint32_t)(int32_t)((float)(int32_t)weights[k] * factor + 0.5f);
        rest -= (int32_t)weight;
        heaviest = weight > most ? k : heaviest;
        most = weight > most ? weight : most;
        weights[k] = weight * 0x10001u;
    }
    most = (uint32_t)((int32_t)most + rest);
    weights[heaviest] = (most < AXIS_FAST_ONE ? most : AXIS_FAST_ONE - 1) * 0x10001u;
    int32_t count = high - low;
    return count - (weights[count - 1] == 0); /* a single one weighs all */
}

static int build_fast(struct resize_axis *axis, const struct axis_request *request)
{
    const int32_t in = request->in_size, out = request->out_size, larger = in > out ? in : out;
    const struct fast fast = {2 * out, 2 * larger, (2 * larger + out - 1) / out};
    if (reserve(axis, request->outputs, fast.taps) != 0)
        return -ENOMEM;
    /* The first tap of output o is the pixel behind (o's place - reach - out_size) / unit. */
    int64_t behind = ((int64_t)2 * request->out_from + 1) * in - fast.reach - out;
    int64_t whole = behind / fast.unit - (behind % fast.unit < 0);
    int32_t part = (int32_t)(behind - whole * fast.unit), from = (int32_t)whole + 1;
    const int32_t step = in / out, step_part = 2 * (in % out);
    for (int32_t n = 0; n < request->outputs; n++) {
        const int32_t i = request->reverse ? request->outputs - 1 - n : n;
        const int32_t low = from < 0 ? -from : 0;
        const int32_t high = from + fast.taps > in ? in - from : fast.taps;
        uint32_t *weights = axis->weight + (size_t)i * (size_t)fast.taps;
        int32_t count = weigh_fast(&fast, fast.unit - part - fast.reach, low, high, weights);
        if (from + low < request->real_from || from + low + count > request->real_to) {
            keep_real(axis, request, i, from + low, count);
        } else {
            axis->first[i] = from + low - request->real_from;
            axis->count[i] = count;
            axis->most = axis->most < count ? count : axis->most;
            for (int32_t k = high - low; k < fast.taps; k++)
                weights[k] = 0;
        }
        part += step_part;
        const int32_t carry = part >= fast.unit;
        part -= carry ? fast.unit : 0;
        from += step + carry;
    }
    return 0;
}

int transform_axis_build(struct resize_axis *axis, const struct axis_request *request)
{
    return request->exact ? build_exact(axis, request) : build_fast(axis, request);
}

void transform_axis_free(struct resize_axis *axis)
{
    free(axis->memory);
    memset(axis, 0, sizeof *axis);
}
