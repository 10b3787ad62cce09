/* What a rank sees of its stream: one control segment (this file) and one data segment (tensors).
 * spdld writes, the rank only reads. C only: _Atomic does not compile in C++. The picture is in
 * shm/README.md; shm_layout.c asserts every offset. Any change here is a change of SPDL_SHM_MAJOR,
 * or of SPDL_SHM_MINOR when it only takes reserved words.
 *
 * All integers are in the machine's byte order (both sides are on one machine); all offsets are
 * from the start of the segment they are in. Reserved words are zero. */
#ifndef SPDL_SHM_LAYOUT_H
#define SPDL_SHM_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

#define SPDL_SHM_MAGIC UINT64_C(0x314c52544c445053) /* "SPDLTRL1" read as bytes */

enum {
    SPDL_SHM_MAJOR = 1,
    SPDL_SHM_MINOR = 1,
    SPDL_SHM_SLOTS_MAX = 64,    /* slots of a stream */
    SPDL_SHM_ROWS_MAX = 65536,  /* rows of a slot */
    SPDL_SHM_FIELDS_MAX = 32,   /* fields of a stream; a ragged one counts twice */
    SPDL_SHM_DIMS_MAX = 8,      /* dimensions of a row of a field */
    SPDL_SHM_NAME_BYTES = 64,   /* a field's name with its final 0 */
    SPDL_SHM_KEY_BYTES = 1024,  /* longest key */
    SPDL_SHM_STATE_BYTES = 512, /* a state as text with its final 0 */
    SPDL_SHM_MESSAGES_MAX =
        64, /* messages of a slot: rows with errors behind the 64th have a class and no text */
    SPDL_SHM_MESSAGE_BYTES = 256, /* one message with its final 0 */
    SPDL_SHM_ALIGN = 256          /* of every tensor in the data segment */
};

enum spdl_shm_dtype {
    SPDL_DTYPE_UINT8 = 1,
    SPDL_DTYPE_INT64 = 2,
    SPDL_DTYPE_FLOAT32 = 3,
    SPDL_DTYPE_FLOAT16 = 4,
    SPDL_DTYPE_BFLOAT16 = 5
};

enum {
    SPDL_SHM_ROW_DRAWS = 1u,
    SPDL_SHM_ROW_HFLIP = 2u,
    SPDL_SHM_ROW_VFLIP = 4u
}; /* flags of a row */

enum spdl_shm_field_kind {
    SPDL_SHM_FIELD_ROWS = 0, /* [rows, dims...] */
    SPDL_SHM_FIELD_VALUES =
        1, /* [all bytes of all rows], one row behind the other; since minor 1 */
    SPDL_SHM_FIELD_OFFSETS = 2 /* [rows + 1]: where in its partner each row begins; the last is
                                  where the last ends; since minor 1 */
};

/* One field. Its tensor in slot s stands at data offset s.data_offset + slot_offset; offsets stand
 * in the control segment, at slot_offset from the start of the slot's descriptor, where no worker
 * can write. A field that is ragged in the configuration is two here: values, then offsets. Its
 * values have a row_bytes of 0, so that a client of minor 0, which would take them for rows of one
 * byte, refuses them. */
struct spdl_shm_field {
    char name[SPDL_SHM_NAME_BYTES];
    uint32_t dtype; /* enum spdl_shm_dtype */
    uint32_t dim_count;
    uint64_t dims[SPDL_SHM_DIMS_MAX]; /* of one row */
    uint64_t row_bytes;
    uint64_t slot_offset; /* a multiple of SPDL_SHM_ALIGN */
    uint32_t kind;        /* enum spdl_shm_field_kind */
    uint32_t partner;     /* values: number of the field of its offsets; offsets: of its values */
    uint64_t room_bytes;  /* values: of all rows of a slot together */
    uint64_t reserved[2];
};

/* The head of the control segment. Written whole before `ready`; constant afterwards. */
struct spdl_shm_header {
    uint64_t magic;
    uint32_t major;
    uint32_t minor;
    uint64_t control_bytes; /* size of this segment */
    uint64_t data_bytes;    /* size of the data segment */
    uint64_t generation;    /* of the daemon that made it */
    uint64_t stream_id;
    uint32_t slot_count;
    uint32_t order_count; /* entries of the order ring: a power of two, at least slot_count + 1 */
    uint32_t field_count;
    uint32_t row_count;     /* rows that a slot has room for */
    uint64_t fields_offset; /* struct spdl_shm_field[field_count] */
    uint64_t order_offset;  /* _Atomic uint64_t[order_count] */
    uint64_t slots_offset;  /* struct spdl_shm_slot, slot_stride apart */
    uint64_t slot_stride;
    uint64_t slot_data_bytes; /* of the data segment, a slot */
    uint64_t reserved0[3];
    _Alignas(128) _Atomic uint64_t ready; /* W: conductor, last, release  R: rank, acquire.
                                             SPDL_SHM_MAGIC when all else is in place */
    uint64_t reserved1[15];
};

/* Entry k mod order_count of the order ring tells the slot of the stream's k-th batch, k = 0, 1,
 * ...: (k + 1) << 8 | slot. Zero at first. W: conductor, release, after the slot's descriptor and
 * data  R: rank, acquire. A batch k is there when entry >> 8 == k + 1. */
static inline uint64_t spdl_shm_order_entry(uint64_t k, uint32_t slot)
{
    return (k + 1) << 8 | slot;
}

/* One row of a batch. */
struct spdl_shm_row {
    uint64_t id;         /* sample shown */
    uint64_t failed_id;  /* sample that failed first; equal to id when none did */
    uint32_t key_offset; /* from the start of the slot's text */
    uint32_t key_bytes;
    uint32_t failed_key_offset;
    uint32_t failed_key_bytes; /* 0: no failure */
    uint32_t class_number;     /* enum spdl_class of the failure; 0: none */
    uint32_t attempt;          /* 0: the sample of the order itself */
    uint32_t message;          /* 1 + number of the message; 0: none */
    uint32_t valid;            /* 1 or 0 */
    uint32_t flags;            /* SPDL_SHM_ROW_… */
    int32_t crop[4]; /* x, y, width, height in the picture as shown, with SPDL_SHM_ROW_DRAWS */
    uint32_t reserved[5];
};

/* One slot: its descriptor, then its rows, messages and text at the offsets given here (from the
 * start of the control segment). */
struct spdl_shm_slot {
    uint64_t sequence; /* of the batch in it, in the stream: 0, 1, ...; never repeats */
    uint32_t epoch;
    uint32_t rows;  /* of this rank */
    uint32_t valid; /* rows with valid = 1 */
    uint32_t error_count;
    uint64_t step;          /* in its epoch */
    uint64_t position;      /* of the global batch's first sample */
    uint64_t next_position; /* what the state says: where the next batch begins */
    uint64_t next_step;
    uint32_t next_epoch;
    uint32_t state_bytes;     /* without the final 0 */
    uint64_t publish_ns;      /* CLOCK_MONOTONIC just before the order entry was stored */
    uint64_t data_offset;     /* of the slot in the data segment */
    uint64_t rows_offset;     /* struct spdl_shm_row[row_count] */
    uint64_t messages_offset; /* char[SPDL_SHM_MESSAGES_MAX][SPDL_SHM_MESSAGE_BYTES] */
    uint64_t text_offset;     /* keys, one behind the other, no final 0 */
    uint64_t text_bytes;      /* room */
    uint64_t hash;            /* reserved: 0 */
    uint64_t reserved[8];
    char state[SPDL_SHM_STATE_BYTES]; /* of the position behind this batch */
};

#endif
