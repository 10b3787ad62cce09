/* What a field is made from and how: the decoder, the operations in order, and the form of the
 * result. Plain data without pointers: the configuration fills it, the plan id hashes it, and the
 * worker gets it as it stands. */
#ifndef SPDLD_ITEM_FIELD_H
#define SPDLD_ITEM_FIELD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    FIELD_MAX = 16,        /* fields of a dataset */
    FIELD_NAME_BYTES = 64, /* with the final 0: also of part and decoder names */
    FIELD_PART_BYTES = 32,
    FIELD_FROM_MAX = 16,
    FIELD_OPS_MAX = 16,
    FIELD_VIEWS_MAX = 16,
    FIELD_DIMS_MAX = 8,
    FIELD_CHANNELS_MAX = 4,
    FIELD_MAX_BYTES_LIMIT = 64 << 20 /* of a row of bytes whose length differs */
};

/* Numbers of enum spdl_shm_dtype. */
enum field_dtype {
    FIELD_DTYPE_UINT8 = 1,
    FIELD_DTYPE_INT64 = 2,
    FIELD_DTYPE_FLOAT32 = 3,
    FIELD_DTYPE_FLOAT16 = 4,
    FIELD_DTYPE_BFLOAT16 = 5
};
enum field_layout { FIELD_LAYOUT_NHWC = 1, FIELD_LAYOUT_NCHW = 2 };
/* Rows of bytes: behind the bytes of each come zeroes up to max_bytes, or they are ragged. */
enum field_pad { FIELD_PAD_AUTO = 0, FIELD_PAD_YES = 1, FIELD_PAD_NO = 2 };
enum field_filter { FIELD_FILTER_BILINEAR = 1, FIELD_FILTER_BICUBIC = 2 };

enum op_kind {
    OP_RESIZE = 1,          /* size, filter */
    OP_CENTER_CROP,         /* size */
    OP_RANDOM_RESIZED_CROP, /* size, scale, ratio, filter */
    OP_RANDOM_CROP,         /* size */
    OP_RANDOM_FLIP,         /* p: left and right are swapped */
    OP_VERTICAL_FLIP,       /* p: top and bottom are swapped */
    OP_KIND_COUNT
};

/* One operation. Its number in the field's list is its `operation` in the key of its random draws.
 */
struct op_spec {
    uint32_t kind;   /* enum op_kind */
    uint32_t filter; /* enum field_filter; 0 where the operation has none */
    int32_t height;  /* pixels; 1 … 16,384 */
    int32_t width;   /* 0 with resize: `height` is asked of the short side, the long side follows */
    double scale[2]; /* of the area */
    double ratio[2]; /* width / height */
    double p;
};

struct field_spec {
    char name[FIELD_NAME_BYTES];
    char decoder[FIELD_PART_BYTES]; /* as in the configuration: image class raw text … */
    /* Part names; the first that a sample has is taken. */
    char from[FIELD_FROM_MAX][FIELD_PART_BYTES];
    uint32_t from_count;
    uint32_t dtype;  /* enum field_dtype */
    uint32_t layout; /* enum field_layout; 0 where there is none */
    uint32_t channels;
    uint32_t normalize;          /* 1: (value / 255 - mean) / std */
    uint32_t ignore_orientation; /* 1: EXIF orientation is not applied */
    uint32_t views; /* image: so many draws of the same picture in a row; 0: one, and rows without
                       that dimension */
    uint32_t reserved;
    double mean[FIELD_CHANNELS_MAX];
    double std[FIELD_CHANNELS_MAX];
    uint64_t bytes;      /* raw: size of every row; 0: it differs */
    uint64_t max_bytes;  /* raw text json: above it class LIMIT; 0: as many as a part can have */
    uint64_t max_pixels; /* image: above it class LIMIT */
    uint32_t op_count;
    uint32_t pad;           /* enum field_pad; field_finish settles it */
    uint32_t missing_empty; /* raw text json; 1: a sample without such a part has a row of no bytes;
                               0: it is left out */
    struct op_spec ops[FIELD_OPS_MAX];
    /* Ragged rows: bytes of the largest part of the source, once that is known. Makes their room
     * smaller, changes no byte, and is no part of the plan id. */
    uint64_t largest_bytes;
    /* What follows is worked out by field_finish. */
    uint32_t dim_count;
    uint32_t ragged; /* 1: rows have a length of their own and come as values and offsets */
    uint64_t dims[FIELD_DIMS_MAX]; /* of one row; none when ragged */
    uint64_t row_bytes;            /* ragged: the room of a row; 0: not known yet */
};

/* Checks that the parts of the field go together (dtype, layout, operations, a size that is the
 * same for every sample) and works out dims and row_bytes. Returns 0 or -EINVAL with a sentence
 * that names the field and what to change. Pure. */
int field_finish(struct field_spec *field, struct err *reterr);

/* The dataset's source is known: the room of a ragged row follows from its largest part. Others
 * stay as they are. The field was finished. */
void field_set_largest(struct field_spec *field, uint64_t largest_bytes);

/* Writes the canonical text of all that can change a sample's bytes, for the plan id: not the name
 * of a file, not a default that was left out. Doubles are written as their 16 hexadecimal digits.
 * Returns the text's length, or -ENOSPC. Format: docs/order.md. Pure. */
int field_canonical(const struct field_spec *field, char *text, size_t capacity);

/* What is wrong with a sample that has none of the field's parts: the field and their names, with
 * "or
 * ..." for those that have no room. `room` >= 96. Pure. */
void field_missing_text(const struct field_spec *field, char *text, size_t room);

/* Names, as in the configuration; NULL for a number outside the enumeration. Static storage. */
const char *field_dtype_name(uint32_t dtype);
const char *field_layout_name(uint32_t layout);
const char *field_filter_name(uint32_t filter);
const char *op_name(uint32_t kind);
size_t field_dtype_bytes(uint32_t dtype);

#endif
