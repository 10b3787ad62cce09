/* One axis of a resize: for every output, which source pixels it is mixed from and with what
 * weights. The weights are Pillow's (antialiased: the filter widens with the ratio). Plain IEEE
 * doubles in a fixed order, so the same on every CPU. */
#ifndef SPDLD_TRANSFORM_AXIS_H
#define SPDLD_TRANSFORM_AXIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    AXIS_FAST_ONE = 65536,       /* sum of an output's weights in the fast form */
    AXIS_EXACT_SHIFT = 22,       /* weights of the exact form have this many binary places */
    AXIS_FAST_SCALE_MAX = 12,    /* beyond it the fast form is not fine enough to stay within 1 */
    AXIS_FAST_SIZE_MAX = 1 << 20 /* beyond it the fast form's numbers do not fit */
};

/* What is asked for. */
struct axis_request {
    int32_t in_size, out_size; /* of the whole frame, before and after */
    int32_t out_from;          /* the outputs wanted: out_from … out_from + outputs - 1 */
    int32_t outputs;
    int32_t real_from, real_to; /* of the frame's pixels only these exist; the others are 0 */
    uint32_t filter;            /* enum field_filter */
    bool exact;                 /* form of the weights; the fast one is for bilinear only */
    bool reverse;               /* outputs in falling order: a flip */
};

struct resize_axis {
    int32_t outputs;
    int32_t taps;   /* the stride of `weight` */
    int32_t most;   /* the most taps that an output has; at most `taps` */
    int32_t *first; /* of each output: its first source pixel, counted from real_from */
    int32_t *count; /* of each output: its taps, 1 … taps; first + count <= real_to - real_from */
    uint32_t *weight; /* [outputs][taps], 0 behind count. Fast: 16 bits, twice in a word, with the
                         sum 65,536 (65,535 for a single tap); never negative. Exact: int32_t with
                         22 binary places, as Pillow rounds them */
    void *memory;     /* owned */
    size_t memory_bytes;
};

/* Source pixels [ret_from, ret_to) of the frame that output `out` is mixed from; never empty. */
void transform_axis_span(const struct axis_request *request, int32_t out, int32_t *ret_from,
                         int32_t *ret_to);

/* Fills the axis; it grows as needed and never shrinks. 0 or -ENOMEM. */
int transform_axis_build(struct resize_axis *axis, const struct axis_request *request);
void transform_axis_free(struct resize_axis *axis);

#endif
