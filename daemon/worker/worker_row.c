/* The row executor. Fields are made one after the other; the first that fails is the row's failure.
 */
#include "worker/worker_row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/escape.h"
#include "decode/decode.h"
#include "shm/shm_failpoint.h"
#include "transform/transform.h"
#include "worker/worker_orient.h"
#include "worker/worker_probe.h"
#include "worker/worker_value.h"

_Static_assert((int)SPDL_WORK_FIELDS_MAX == (int)FIELD_MAX, "one number of fields");
_Static_assert((int)SPDL_WORK_ESCAPE_CSV == (int)ESCAPE_CSV &&
                   (int)SPDL_WORK_ESCAPE_JSON == (int)ESCAPE_JSON,
               "one number of escapes");

enum {
    CODECS_MAX = 8,
    ALIGN = 64,
    TARGETS_MAX = 64,                   /* made from one decode of a picture */
    SPARE_BYTES = 64,                   /* that the transform may read behind the last pixel */
    SHOWN_KEEP_BYTES = 64 * 1024 * 1024 /* more is given back after the picture */
};

/* One view of one field, made from a picture that others may be made from too. */
struct target {
    const struct field_spec *field;
    struct transform_geometry geometry;
    uint8_t *to;
};

struct worker_row {
    void *codecs[CODECS_MAX]; /* contexts, in the order of decode_table */
    struct transform *transform;
    uint8_t *shown; /* pixels turned as they are shown */
    size_t shown_bytes;
    uint8_t *text; /* an escaped value as it is meant */
    size_t text_bytes;
    struct target targets[TARGETS_MAX];
    uint32_t target_count;
};

/* What one field is made of. */
struct field_job {
    const struct worker_job *job;
    const struct field_spec *field;
    const struct spdl_work_part *part;
    struct spdl_work_part meant; /* `part`, where that is an escaped value */
    struct decode_packet packet; /* of a part that is a blob */
    uint32_t number;
    uint8_t *to;
    struct spdl_work_completion *completion;
    bool first_image;
    uint32_t ragged_bytes; /* of the row, when it was made and is ragged */
    uint32_t made;         /* bits of the fields that were made with this one */
};

void worker_row_destroy(struct worker_row *row)
{
    if (row == NULL)
        return;
    for (size_t i = 0; decode_table[i] != NULL; i++)
        if (row->codecs[i] != NULL) {
            decode_table[i]->close(row->codecs[i]);
            free(row->codecs[i]);
        }
    transform_destroy(row->transform);
    free(row->shown);
    free(row->text);
    free(row);
}

static void *open_codec(const struct decode_ops *ops)
{
    size_t bytes = (ops->ctx_bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    void *ctx = aligned_alloc(ALIGN, bytes);
    if (ctx == NULL)
        return NULL;
    memset(ctx, 0, bytes);
    if (ops->open(ctx) != 0) {
        free(ctx);
        return NULL;
    }
    return ctx;
}

struct worker_row *worker_row_create(void)
{
    struct worker_row *row = calloc(1, sizeof *row);
    if (row == NULL)
        return NULL;
    row->transform = transform_create();
    bool ready = row->transform != NULL;
    for (size_t i = 0; ready && decode_table[i] != NULL; i++) {
        ASSERT(i < CODECS_MAX);
        row->codecs[i] = open_codec(decode_table[i]);
        ready = row->codecs[i] != NULL;
    }
    if (!ready) {
        worker_row_destroy(row);
        return NULL;
    }
    return row;
}

static enum spdl_class fault_set(struct decode_fault *fault, enum spdl_class class_number,
                                 const char *message)
{
    fault->class_number = class_number;
    fault->byte_offset = UINT64_MAX;
    snprintf(fault->message, sizeof fault->message, "%s", message);
    return class_number;
}

/* The bytes of the job's part, as they are meant. */
static enum spdl_class part_open(struct worker_row *row, struct field_job *job,
                                 struct decode_fault *fault)
{
    const struct spdl_work_part *part = job->part;
    job->packet = (struct decode_packet){NULL, 0};
    if (part->kind != SPDL_WORK_PART_BLOB)
        return SPDL_CLASS_OK;
    job->packet = (struct decode_packet){job->job->arena + part->value, part->bytes};
    SPDL_CRASHPOINT(job->packet.data, job->packet.bytes);
    WORKER_PROBE(job->packet.data, job->packet.bytes);
    if (part->escape == SPDL_WORK_ESCAPE_NONE)
        return SPDL_CLASS_OK;
    if (part->bytes > row->text_bytes || row->text == NULL) {
        free(row->text);
        row->text_bytes = part->bytes + SPARE_BYTES;
        row->text = malloc(row->text_bytes);
        if (row->text == NULL) {
            row->text_bytes = 0;
            return fault_set(fault, SPDL_CLASS_RESOURCE, "no memory for the value");
        }
    }
    size_t bytes;
    if (!escape_undo((enum escape)part->escape, job->packet.data, part->bytes, row->text, &bytes))
        return fault_set(fault, SPDL_CLASS_CORRUPT, "a value that its list writes wrong");
    job->meant = *part;
    job->meant.bytes = bytes;
    job->part = &job->meant;
    job->packet = (struct decode_packet){row->text, bytes};
    return SPDL_CLASS_OK;
}

/* The turned pixels of the region, in the thread's own memory. */
static bool turn_pixels(struct worker_row *row, int32_t orientation,
                        const struct decode_region *region, const struct decode_pixels *stored,
                        struct transform_pixels *ret_pixels)
{
    int32_t width, height;
    worker_orient_size(orientation, region->width, region->height, &width, &height);
    size_t stride = ((size_t)width * 4 + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    size_t bytes = stride * (size_t)height + SPARE_BYTES;
    if (bytes > row->shown_bytes) {
        free(row->shown);
        row->shown = aligned_alloc(ALIGN, bytes);
        row->shown_bytes = row->shown == NULL ? 0 : bytes;
        if (row->shown == NULL)
            return false;
    }
    worker_orient_copy(orientation, stored, region, row->shown, stride);
    *ret_pixels = (struct transform_pixels){row->shown, stride, 0, 0};
    return true;
}

/* After an unusually large picture its memory goes. */
static void give_back(struct worker_row *row, size_t codec)
{
    decode_table[codec]->trim(row->codecs[codec]);
    if (row->shown_bytes <= SHOWN_KEEP_BYTES)
        return;
    free(row->shown);
    row->shown = NULL;
    row->shown_bytes = 0;
}

static void note_geometry(const struct field_job *job, const struct transform_geometry *geometry)
{
    struct spdl_work_completion *completion = job->completion;
    if (!job->first_image)
        return;
    completion->crop[0] = geometry->box.x;
    completion->crop[1] = geometry->box.y;
    completion->crop[2] = geometry->box.width;
    completion->crop[3] = geometry->box.height;
    completion->flags |= (geometry->has_draws ? SPDL_WORK_DRAWS : 0u) |
                         (geometry->hflip ? SPDL_WORK_HFLIP : 0u) |
                         (geometry->vflip ? SPDL_WORK_VFLIP : 0u);
}

/* The views of one field of a picture of width x height as shown. They are added to the row's
 * targets when all of them can be made. */
static enum spdl_class fold(struct worker_row *row, const struct worker_job *job, uint32_t number,
                            int32_t width, int32_t height)
{
    const struct worker_stream *stream = job->streams[0];
    const struct spdl_work_dest *dest = &job->command->dests[0];
    const struct field_spec *field = &stream->add.fields[number];
    uint32_t views = field->views > 0 ? field->views : 1;
    if (views > TARGETS_MAX - row->target_count)
        return SPDL_CLASS_RESOURCE;
    for (uint32_t v = 0; v < views; v++) {
        struct target *target = &row->targets[row->target_count + v];
        const struct law_draws draws = {.seed = stream->add.seed,
                                        .position = job->command->position,
                                        .epoch = job->command->epoch,
                                        .operation = v * FIELD_OPS_MAX};
        enum spdl_class class_number =
            transform_fold(field, number, &draws, width, height, &target->geometry);
        if (class_number != SPDL_CLASS_OK)
            return class_number;
        target->field = field;
        target->to = worker_stream_row(stream, number, dest->slot, dest->row) +
                     v * (field->row_bytes / views);
    }
    row->target_count += views;
    return SPDL_CLASS_OK;
}

/* The field of the job, then those behind it that are made from the same picture in the same
 * orientation under the same limit. One that cannot be made is left to its own turn. */
static enum spdl_class gather(struct worker_row *row, struct field_job *job, int32_t width,
                              int32_t height, struct decode_fault *fault)
{
    const struct worker_stream *stream = job->job->streams[0];
    const uint8_t *field_part = job->job->command->field_part;
    row->target_count = 0;
    enum spdl_class class_number = fold(row, job->job, job->number, width, height);
    if (class_number != SPDL_CLASS_OK) {
        fault->class_number = class_number;
        fault->byte_offset = UINT64_MAX;
        snprintf(fault->message, sizeof fault->message, "%d x %d is too %s for its operations",
                 width, height, class_number == SPDL_CLASS_LIMIT ? "large" : "small");
        return class_number;
    }
    for (uint32_t f = job->number + 1; f < stream->add.field_count; f++) {
        const struct field_spec *other = &stream->add.fields[f];
        bool is_same = stream->decoders[f] == WORKER_DECODER_IMAGE &&
                       field_part[f] == field_part[job->number] &&
                       other->ignore_orientation == job->field->ignore_orientation &&
                       other->channels == job->field->channels &&
                       other->max_pixels == job->field->max_pixels;
        if (is_same && fold(row, job->job, f, width, height) == SPDL_CLASS_OK)
            job->made |= 1u << f;
    }
    return SPDL_CLASS_OK;
}

/* The smallest box around those of all targets. */
static struct law_box box_around(const struct worker_row *row)
{
    struct law_box around = row->targets[0].geometry.box;
    for (uint32_t t = 1; t < row->target_count; t++) {
        const struct law_box *box = &row->targets[t].geometry.box;
        int32_t right = around.x + around.width, bottom = around.y + around.height;
        right = box->x + box->width > right ? box->x + box->width : right;
        bottom = box->y + box->height > bottom ? box->y + box->height : bottom;
        around.x = box->x < around.x ? box->x : around.x;
        around.y = box->y < around.y ? box->y : around.y;
        around.width = right - around.x;
        around.height = bottom - around.y;
    }
    return around;
}

/* pixels begin at the corner of `around`. */
static bool make_targets(struct worker_row *row, const struct law_box *around,
                         const struct transform_pixels *pixels)
{
    for (uint32_t t = 0; t < row->target_count; t++) {
        const struct target *target = &row->targets[t];
        struct transform_pixels own = *pixels;
        own.box_x += target->geometry.box.x - around->x;
        own.box_y += target->geometry.box.y - around->y;
        if (transform_run(row->transform, target->field, &target->geometry, &own, target->to) != 0)
            return false;
    }
    return true;
}

static enum spdl_class run_codec(struct worker_row *row, struct field_job *job, size_t codec,
                                 struct decode_fault *fault)
{
    const struct decode_packet *packet = &job->packet;
    const struct decode_ops *ops = decode_table[codec];
    void *ctx = row->codecs[codec];
    struct decode_head head;
    struct decode_pixels stored;
    enum spdl_class class_number = ops->head(ctx, packet, job->field->max_pixels, &head, fault);
    if (class_number != SPDL_CLASS_OK)
        return class_number;
    int32_t orientation = job->field->ignore_orientation ? 1 : head.orientation, width, height;
    worker_orient_size(orientation, head.width, head.height, &width, &height);
    class_number = gather(row, job, width, height, fault);
    if (class_number != SPDL_CLASS_OK)
        return class_number;
    const struct law_box around = box_around(row);
    const struct decode_region region =
        worker_orient_region(orientation, head.width, head.height, &around);
    bool may_stop_early = (job->job->command->flags & SPDL_WORK_MAY_STOP_EARLY) != 0;
    class_number = ops->decode(ctx, packet, &region, may_stop_early, &stored, fault);
    if (class_number != SPDL_CLASS_OK)
        return class_number;
    struct transform_pixels pixels = {stored.base, stored.stride, stored.region_x, stored.region_y};
    const bool is_gray = job->field->channels == 1;
    bool done =
        (orientation == 1 && !is_gray) || turn_pixels(row, orientation, &region, &stored, &pixels);
    if (done && is_gray) /* pixels are row->shown, which the stored ones were copied to */
        transform_gray(row->shown, pixels.stride, around.width, around.height);
    if (done)
        done = make_targets(row, &around, &pixels);
    give_back(row, codec);
    if (!done)
        return fault_set(fault, SPDL_CLASS_RESOURCE, "no memory for the picture's resize");
    note_geometry(job, &row->targets[0].geometry);
    return SPDL_CLASS_OK;
}

static enum spdl_class run_image(struct worker_row *row, struct field_job *job,
                                 struct decode_fault *fault)
{
    if (job->part->kind != SPDL_WORK_PART_BLOB)
        return fault_set(fault, SPDL_CLASS_BAD_FORMAT, "it is no picture but a number");
    const struct decode_ops *ops = decode_probe(&job->packet, fault);
    if (ops == NULL)
        return fault->class_number;
    size_t codec = 0;
    while (decode_table[codec] != ops)
        codec++;
    return run_codec(row, job, codec, fault);
}

static bool same_form(const struct worker_stream *a, const struct worker_stream *b)
{
    if (a->add.field_count != b->add.field_count)
        return false;
    for (uint32_t f = 0; f < a->add.field_count; f++)
        if (a->add.fields[f].row_bytes != b->add.fields[f].row_bytes ||
            a->add.fields[f].ragged != b->add.fields[f].ragged)
            return false;
    return true;
}

bool worker_row_fits(const struct worker_job *job)
{
    const struct spdl_work_command *command = job->command;
    if (command->dest_count == 0 || command->dest_count > SPDL_WORK_DESTS_MAX ||
        command->part_count > SPDL_WORK_PARTS_MAX)
        return false;
    for (uint32_t d = 0; d < command->dest_count; d++) {
        const struct worker_stream *stream = job->streams[d];
        if (stream == NULL || command->dests[d].slot >= stream->add.slot_count ||
            command->dests[d].row >= stream->add.row_count || !same_form(job->streams[0], stream))
            return false;
    }
    for (uint32_t p = 0; p < command->part_count; p++) {
        const struct spdl_work_part *part = &command->parts[p];
        if (part->kind < SPDL_WORK_PART_BLOB || part->kind > SPDL_WORK_PART_MADE_UP)
            return false;
        if (part->kind == SPDL_WORK_PART_BLOB &&
            (part->value > job->arena_bytes || part->bytes > job->arena_bytes - part->value ||
             part->escape > SPDL_WORK_ESCAPE_JSON))
            return false;
    }
    return true;
}

static enum spdl_class run_field(struct worker_row *row, struct field_job *job,
                                 enum worker_decoder decoder, struct decode_fault *fault)
{
    if (decoder == WORKER_DECODER_IMAGE)
        return run_image(row, job, fault);
    struct worker_value value = {.field = job->field,
                                 .decoder = decoder,
                                 .packet = job->packet,
                                 .part = job->part,
                                 .to = job->to};
    return worker_value_run(&value, &job->ragged_bytes, fault);
}

static void copy_printable(char *to, size_t capacity, const char *from)
{
    size_t i = 0;
    for (; i + 1 < capacity && from[i] != '\0'; i++)
        to[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
    to[i] = '\0';
}

static void note_fault(struct spdl_work_completion *completion, uint32_t field,
                       const struct decode_fault *fault)
{
    completion->class_number = fault->class_number;
    completion->flags = 0;
    completion->field = field;
    completion->byte_offset = fault->byte_offset;
    copy_printable(completion->message, sizeof completion->message, fault->message);
}

/* Decoded once, read by several: further destinations get a copy. */
static void copy_row(const struct worker_job *job, const uint32_t *ragged_bytes)
{
    const struct spdl_work_command *command = job->command;
    const struct spdl_work_dest *from = &command->dests[0];
    for (uint32_t d = 1; d < command->dest_count; d++) {
        const struct spdl_work_dest *to = &command->dests[d];
        for (uint32_t f = 0; f < job->streams[0]->add.field_count; f++) {
            const struct field_spec *field = &job->streams[0]->add.fields[f];
            memmove(worker_stream_row(job->streams[d], f, to->slot, to->row),
                    worker_stream_row(job->streams[0], f, from->slot, from->row),
                    field->ragged ? ragged_bytes[f] : field->row_bytes);
        }
    }
}

/* A field for which the sample has no part: whether that is a row of no bytes, which is made. */
static bool may_be_empty(const struct field_job *job)
{
    if (job->field->missing_empty && !job->field->ragged)
        memset(job->to, 0, job->field->row_bytes);
    return job->field->missing_empty != 0;
}

void worker_row_run(struct worker_row *row, const struct worker_job *job,
                    struct spdl_work_completion *ret_completion)
{
    const struct spdl_work_command *command = job->command;
    const struct worker_stream *stream = job->streams[0];
    bool seen_image = false;
    uint32_t ragged_bytes[SPDL_WORK_FIELDS_MAX] = {0}, made = 0;
    *ret_completion =
        (struct spdl_work_completion){.ticket = command->ticket, .byte_offset = UINT64_MAX};
    for (uint32_t f = 0; f < stream->add.field_count; f++) {
        if (made & 1u << f)
            continue;
        bool is_image = stream->decoders[f] == WORKER_DECODER_IMAGE;
        struct decode_fault fault = {.byte_offset = UINT64_MAX};
        struct field_job field_job = {
            .job = job,
            .field = &stream->add.fields[f],
            .number = f,
            .to = worker_stream_row(stream, f, command->dests[0].slot, command->dests[0].row),
            .completion = ret_completion,
            .first_image = is_image && !seen_image,
        };
        enum spdl_class class_number;
        if (command->field_part[f] >= command->part_count && may_be_empty(&field_job))
            continue;
        if (command->field_part[f] >= command->part_count) {
            class_number = fault_set(&fault, SPDL_CLASS_INCOMPLETE, "");
            field_missing_text(field_job.field, fault.message, sizeof fault.message);
        } else {
            field_job.part = &command->parts[command->field_part[f]];
            class_number = part_open(row, &field_job, &fault);
            if (class_number == SPDL_CLASS_OK)
                class_number = run_field(row, &field_job, stream->decoders[f], &fault);
        }
        if (class_number != SPDL_CLASS_OK) {
            note_fault(ret_completion, f, &fault);
            return;
        }
        ragged_bytes[f] = field_job.ragged_bytes;
        made |= field_job.made;
        seen_image = seen_image || is_image;
    }
    if (seen_image && (command->flags & SPDL_WORK_MAY_STOP_EARLY) == 0)
        ret_completion->flags |= SPDL_WORK_SEEN_WHOLE;
    memcpy(ret_completion->field_bytes, ragged_bytes, sizeof ragged_bytes);
    copy_row(job, ragged_bytes);
}
