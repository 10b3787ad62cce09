/* Carries a geometry out: see transform.h. One thread's scratch and the three ways of a row: a
 * copy, a fast resize (rows first) and an exact one (columns first). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transform/transform.h"
#include "transform/transform_emit.h"
#include "transform/transform_gray.h"
#include "transform/transform_resize.h"
#include "transform/transform_scratch.h"

struct buffer {
    uint8_t *bytes; /* 64-byte aligned */
    size_t capacity;
};

struct transform {
    const struct resize_kernels *kernels;
    struct resize_axis columns, rows;
    struct buffer table;  /* the kernels' own for the columns */
    struct buffer planes; /* a mixed row of the fast form */
    struct buffer ring;   /* finished rows of columns of the exact form */
    struct buffer places; /* where the rows of the ring that are mixed begin */
    struct buffer line;   /* a line of bytes that are not yet the row */
    struct emit emit;
};

/* One run. Lines and columns of the delivered picture outside [from, to) are padding. */
struct job {
    struct transform *transform;
    const struct transform_geometry *geometry;
    const uint8_t *source; /* the box's first pixel */
    size_t stride;
    int32_t before; /* pixels of the buffer before the box's in a row */
    int32_t x_from, x_to, y_from, y_to;
    uint8_t *row;
    bool is_gray; /* one channel */
};

struct transform *transform_create(void)
{
    struct transform *transform = calloc(1, sizeof *transform);
    if (transform)
        transform->kernels = transform_resize_choice(0);
    return transform;
}

void transform_use(struct transform *transform, const struct resize_kernels *kernels)
{
    transform->kernels = kernels;
}

void transform_destroy(struct transform *transform)
{
    if (!transform)
        return;
    transform_axis_free(&transform->columns);
    transform_axis_free(&transform->rows);
    free(transform->table.bytes);
    free(transform->planes.bytes);
    free(transform->ring.bytes);
    free(transform->places.bytes);
    free(transform->line.bytes);
    free(transform);
}

/* Content is not kept; new bytes are 0. */
static int reserve(struct buffer *buffer, size_t bytes)
{
    if (bytes <= buffer->capacity)
        return 0;
    size_t capacity = (bytes + bytes / 4 + 63) & ~(size_t)63;
    uint8_t *fresh = aligned_alloc(64, capacity);
    if (!fresh)
        return -ENOMEM;
    memset(fresh, 0, capacity);
    free(buffer->bytes);
    buffer->bytes = fresh;
    buffer->capacity = capacity;
    return 0;
}

/* Where line y of the delivered picture is put together: its place in the row, or the scratch line.
 */
static uint8_t *line_begin(const struct job *job, int32_t y)
{
    if (!job->is_gray && transform_emit_is_plain(&job->transform->emit))
        return job->row + EMIT_CHANNELS * (size_t)job->geometry->window.width * (size_t)y;
    return job->transform->line.bytes;
}

static void line_end(const struct job *job, int32_t y, uint8_t *line)
{
    const struct law_box *window = &job->geometry->window;
    const size_t left = (size_t)job->x_from, right = (size_t)(window->width - job->x_to);
    if (left > 0)
        memset(line, 0, EMIT_CHANNELS * left);
    if (right > 0)
        memset(line + EMIT_CHANNELS * (size_t)job->x_to, 0, EMIT_CHANNELS * right);
    if (line != job->transform->line.bytes)
        return;
    if (job->is_gray)
        transform_gray_line(&job->transform->emit, line, window->width, y, job->row);
    else
        transform_emit_line(&job->transform->emit, line, window->width, window->height, y,
                            job->row);
}

static void line_empty(const struct job *job, int32_t y)
{
    uint8_t *line = line_begin(job, y);
    memset(line, 0, EMIT_CHANNELS * (size_t)job->geometry->window.width);
    line_end(job, y, line);
}

/* Delivered positions of the window's side that are live. */
static void delivered(const struct job *job, bool upright, int32_t *ret_from, int32_t *ret_to)
{
    const struct transform_geometry *g = job->geometry;
    const bool flip = upright ? g->vflip : g->hflip;
    const int32_t size = upright ? g->window.height : g->window.width;
    const int32_t from = upright ? g->live.y - g->window.y : g->live.x - g->window.x;
    const int32_t count = upright ? g->live.height : g->live.width;
    *ret_from = count == 0 ? 0 : flip ? size - from - count : from;
    *ret_to = *ret_from + count;
}

static struct axis_request columns_request(const struct job *job, bool exact)
{
    const struct transform_geometry *g = job->geometry;
    int32_t first = g->hflip ? g->window.width - job->x_to : job->x_from;
    return (struct axis_request){.in_size = g->frame.width,
                                 .out_size = g->width,
                                 .out_from = g->window.x + first,
                                 .outputs = job->x_to - job->x_from,
                                 .real_from = g->box.x - g->frame.x,
                                 .real_to = g->box.x + g->box.width - g->frame.x,
                                 .filter = g->filter,
                                 .exact = exact,
                                 .reverse = g->hflip};
}

static struct axis_request rows_request(const struct job *job, bool exact)
{
    const struct transform_geometry *g = job->geometry;
    int32_t first = g->vflip ? g->window.height - job->y_to : job->y_from;
    return (struct axis_request){.in_size = g->frame.height,
                                 .out_size = g->height,
                                 .out_from = g->window.y + first,
                                 .outputs = job->y_to - job->y_from,
                                 .real_from = g->box.y - g->frame.y,
                                 .real_to = g->box.y + g->box.height - g->frame.y,
                                 .filter = g->filter,
                                 .exact = exact,
                                 .reverse = false};
}

static int build_axes(const struct job *job, bool exact)
{
    struct transform *t = job->transform;
    const struct axis_request columns = columns_request(job, exact);
    const struct axis_request rows = rows_request(job, exact);
    if (transform_axis_build(&t->columns, &columns) != 0 ||
        transform_axis_build(&t->rows, &rows) != 0)
        return -ENOMEM;
    return 0;
}

/* Delivered line of the i-th computed one, which are in the order of the source. */
static int32_t line_of(const struct job *job, int32_t i)
{
    return job->geometry->vflip ? job->y_to - 1 - i : job->y_from + i;
}

/* The pixels [low, high) of a source row that some output needs: only these are mixed. low goes
 * down to where the rows are aligned, below 0 even, when the buffer has those pixels too. The
 * columns' first pixels are counted from low then. */
static void find_columns(const struct job *job, int32_t *ret_low, int32_t *ret_high)
{
    struct resize_axis *columns = &job->transform->columns;
    int32_t low = INT32_MAX, high = 0;
    for (int32_t i = 0; i < columns->outputs; i++) {
        int32_t end = columns->first[i] + columns->count[i];
        low = columns->first[i] < low ? columns->first[i] : low;
        high = end > high ? end : high;
    }
    int32_t extra = (int32_t)(((uintptr_t)job->source + 4 * (size_t)low) % 64 / 4);
    if (job->stride % 64 == 0 && extra <= job->before + low)
        low -= extra;
    for (int32_t i = 0; i < columns->outputs; i++)
        columns->first[i] -= low;
    *ret_low = low;
    *ret_high = high;
}

/* The row is mostly in no cache yet: its lines come while the rows are mixed. */
static void prefetch(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i += 64)
        __builtin_prefetch(bytes + i, 1);
}

static int run_fast(const struct job *job)
{
    struct transform *t = job->transform;
    const struct resize_kernels *kernels = t->kernels;
    if (build_axes(job, false) != 0)
        return -ENOMEM;
    int32_t low, high;
    find_columns(job, &low, &high);
    const size_t plane = ((size_t)(high - low) + RESIZE_LINE_SLACK + 15) & ~(size_t)15;
    if (reserve(&t->planes, 2 * plane * sizeof(uint32_t)) != 0 ||
        reserve(&t->table, kernels->columns_bytes(&t->columns)) != 0)
        return -ENOMEM;
    kernels->columns_prepare(&t->columns, t->table.bytes);
    struct resize_planes planes;
    planes.even = (uint32_t *)(void *)t->planes.bytes;
    planes.odd = planes.even + plane;
    const uint8_t *source = job->source + 4 * (ptrdiff_t)low;
    for (int32_t i = 0; i < t->rows.outputs; i++) {
        const struct resize_lines lines = {source + (size_t)t->rows.first[i] * job->stride,
                                           job->stride, high - low};
        int32_t y = line_of(job, i);
        uint8_t *line = line_begin(job, y);
        prefetch(line + EMIT_CHANNELS * (size_t)job->x_from,
                 EMIT_CHANNELS * (size_t)t->columns.outputs);
        kernels->mix_rows(&lines, t->rows.weight + (size_t)i * (size_t)t->rows.taps,
                          t->rows.count[i], planes);
        kernels->mix_columns(&t->columns, t->table.bytes, planes,
                             line + EMIT_CHANNELS * (size_t)job->x_from);
        line_end(job, y, line);
    }
    return 0;
}

static int run_exact(const struct job *job)
{
    struct transform *t = job->transform;
    const struct resize_kernels *kernels = t->kernels;
    if (build_axes(job, true) != 0)
        return -ENOMEM;
    const size_t bytes = EMIT_CHANNELS * (size_t)t->columns.outputs;
    const size_t step = (bytes + RESIZE_BYTE_SLACK + 63) & ~(size_t)63;
    const size_t slots = (size_t)t->rows.most;
    if (reserve(&t->ring, slots * step) != 0 ||
        reserve(&t->places, slots * sizeof(uint8_t *)) != 0 ||
        reserve(&t->table, kernels->exact_bytes(&t->columns)) != 0)
        return -ENOMEM;
    kernels->exact_prepare(&t->columns, t->table.bytes);
    const uint8_t **places = (const uint8_t **)(void *)t->places.bytes;
    int32_t done = 0; /* source rows below it have been in the ring */
    for (int32_t i = 0; i < t->rows.outputs; i++) {
        const int32_t first = t->rows.first[i], count = t->rows.count[i];
        done = done < first ? first : done;
        for (; done < first + count; done++)
            kernels->exact_columns(&t->columns, t->table.bytes,
                                   job->source + (size_t)done * job->stride,
                                   t->ring.bytes + (size_t)done % slots * step);
        for (int32_t k = 0; k < count; k++)
            places[k] = t->ring.bytes + (size_t)(first + k) % slots * step;
        int32_t y = line_of(job, i);
        uint8_t *line = line_begin(job, y);
        kernels->exact_rows(places, t->rows.weight + (size_t)i * (size_t)t->rows.taps, count, bytes,
                            line + EMIT_CHANNELS * (size_t)job->x_from);
        line_end(job, y, line);
    }
    return 0;
}

static void copy_pixels(const uint8_t *source, int32_t count, bool flip, uint8_t *out)
{
    const uint8_t *pixel = flip ? source + 4 * (size_t)(count - 1) : source;
    for (int32_t x = 0; x < count; x++, out += EMIT_CHANNELS) {
        out[0] = pixel[0];
        out[1] = pixel[1];
        out[2] = pixel[2];
        pixel += flip ? -4 : 4;
    }
}

/* No resize: the frame is the window, of which the box is what exists. */
static int run_copy(struct job *job)
{
    const struct transform_geometry *g = job->geometry;
    for (int32_t y = job->y_from; y < job->y_to; y++) {
        int32_t x0 = g->hflip ? g->window.width - job->x_to : job->x_from;
        int32_t y0 = g->vflip ? g->window.height - 1 - y : y;
        size_t sx = (size_t)(g->frame.x + g->window.x + x0 - g->box.x);
        size_t sy = (size_t)(g->frame.y + g->window.y + y0 - g->box.y);
        uint8_t *line = line_begin(job, y);
        copy_pixels(job->source + sy * job->stride + 4 * sx, job->x_to - job->x_from, g->hflip,
                    line + EMIT_CHANNELS * (size_t)job->x_from);
        line_end(job, y, line);
    }
    return 0;
}

/* Narrows the delivered part of a copy to the pixels that exist. */
static void narrow(int32_t start, int32_t size, bool flip, struct law_box side, int32_t *from,
                   int32_t *to)
{
    /* side.x, side.width: the box along this axis; start: the picture's pixel at window position 0.
     */
    int64_t low = (int64_t)side.x - start, high = low + side.width;
    int64_t first = flip ? size - high : low, last = flip ? size - low : high;
    *from = first > *from ? (int32_t)(first > size ? size : first) : *from;
    *to = last < *to ? (int32_t)(last < 0 ? 0 : last) : *to;
    if (*from >= *to)
        *from = *to = 0;
}

static bool is_copy(const struct transform_geometry *g)
{
    return g->filter == 0 || (g->frame.width == g->width && g->frame.height == g->height);
}

static bool is_exact(const struct transform_geometry *g)
{
    return g->filter != FIELD_FILTER_BILINEAR || g->width > AXIS_FAST_SIZE_MAX ||
           g->height > AXIS_FAST_SIZE_MAX ||
           g->frame.width > (int64_t)AXIS_FAST_SCALE_MAX * g->width ||
           g->frame.height > (int64_t)AXIS_FAST_SCALE_MAX * g->height;
}

static bool fits(const struct field_spec *field, const struct transform_geometry *g)
{
    const uint64_t value_bytes = transform_emit_value_bytes(field->dtype);
    if (g->window.width < 1 || g->window.height < 1 || value_bytes == 0)
        return false;
    return value_bytes * field->channels * (uint64_t)g->window.width * (uint64_t)g->window.height ==
           field->row_bytes / (field->views > 0 ? field->views : 1);
}

int transform_run(struct transform *transform, const struct field_spec *field,
                  const struct transform_geometry *geometry, const struct transform_pixels *pixels,
                  uint8_t *row)
{
    const struct transform_geometry *g = geometry;
    if (!fits(field, g))
        return -EINVAL;
    transform_emit_prepare(&transform->emit, field);
    if (reserve(&transform->line, EMIT_CHANNELS * (size_t)g->window.width + RESIZE_BYTE_SLACK) != 0)
        return -ENOMEM;
    struct job job = {.transform = transform,
                      .geometry = g,
                      .stride = pixels->stride,
                      .before = pixels->box_x,
                      .row = row,
                      .is_gray = field->channels == 1};
    job.source = pixels->base + (size_t)pixels->box_y * pixels->stride + 4 * (size_t)pixels->box_x;
    delivered(&job, false, &job.x_from, &job.x_to);
    delivered(&job, true, &job.y_from, &job.y_to);
    if (is_copy(g)) {
        narrow(g->frame.x + g->window.x, g->window.width, g->hflip, g->box, &job.x_from, &job.x_to);
        struct law_box upright = {g->box.y, 0, g->box.height, 0};
        narrow(g->frame.y + g->window.y, g->window.height, g->vflip, upright, &job.y_from,
               &job.y_to);
    }
    if (job.x_from == job.x_to)
        job.y_from = job.y_to = 0;
    for (int32_t y = 0; y < job.y_from; y++)
        line_empty(&job, y);
    for (int32_t y = job.y_to; y < g->window.height; y++)
        line_empty(&job, y);
    if (job.y_from == job.y_to)
        return 0;
    if (is_copy(g))
        return run_copy(&job);
    return is_exact(g) ? run_exact(&job) : run_fast(&job);
}
