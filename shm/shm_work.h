/* What spdld and its worker share: a ring of commands (spdld writes, the worker maps it read-only)
 * and a ring of completions (the worker writes, spdld copies an entry before it looks at it).
 * Records have fixed sizes and hold offsets, never pointers.
 *
 * Commands: cell n mod SPDL_WORK_CELLS holds command n; `published` counts them. A thread of the
 * worker claims the next number in its own memory, copies the cell, and works on the copy. spdld
 * writes command n only when the completion of n - SPDL_WORK_CELLS was taken, so a cell is never
 * overwritten under a reader. Threads with nothing to do wait (FUTEX_WAIT works on a read-only
 * mapping) on the low half of `published`. Completions: a thread takes a number in its own memory,
 * fills cell number mod SPDL_WORK_CELLS, and stores number + 1 in its `turn` with release. spdld
 * reads at its own cursor. When `waiting` says that spdld sleeps, the thread then writes to the
 * eventfd it was given. There are never more than SPDL_WORK_CELLS commands without a completion, so
 * neither ring can overflow. */
#ifndef SPDL_SHM_WORK_H
#define SPDL_SHM_WORK_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    SPDL_WORK_VERSION = 4,
    SPDL_WORK_CELLS = 1024,   /* a power of two */
    SPDL_WORK_PARTS_MAX = 16, /* as many as a sample has at most */
    SPDL_WORK_DESTS_MAX = 2,
    SPDL_WORK_THREADS_MAX = 64,
    SPDL_WORK_MESSAGE_BYTES = 96,
    SPDL_WORK_NO_PART = 255,
    SPDL_WORK_FIELDS_MAX = 16
};

enum spdl_work_part_kind {
    SPDL_WORK_PART_BLOB = 1,    /* `bytes` bytes at `value` in the arena */
    SPDL_WORK_PART_INTEGER = 2, /* the number `value`, two's complement */
    SPDL_WORK_PART_MADE_UP = 3  /* made by the worker from the sample id `value` */
};

enum spdl_work_escape {
    SPDL_WORK_ESCAPE_NONE = 0,
    SPDL_WORK_ESCAPE_CSV = 1, /* "" is a quote */
    SPDL_WORK_ESCAPE_JSON = 2 /* a string of JSON, without its quotes */
};

struct spdl_work_part {
    uint32_t kind;   /* enum spdl_work_part_kind */
    uint32_t escape; /* BLOB: enum spdl_work_escape, how its bytes are written */
    uint64_t value;
    uint64_t bytes;
};

enum { SPDL_WORK_MAY_STOP_EARLY = 1u }; /* flags of a command: the sample was seen whole before */

/* Where a row goes: row `row` of slot `slot` of the stream that the worker knows under this number.
 */
struct spdl_work_dest {
    uint32_t stream;
    uint32_t slot;
    uint32_t row;
    uint32_t reserved;
};

struct spdl_work_command {
    uint64_t ticket;   /* comes back in the completion */
    uint64_t position; /* counter of the random draws */
    uint32_t epoch;
    uint32_t attempt;
    uint32_t flags; /* SPDL_WORK_MAY_STOP_EARLY */
    uint8_t part_count;
    uint8_t dest_count;
    uint8_t reserved0[2];
    uint8_t field_part[SPDL_WORK_FIELDS_MAX]; /* which part each field of the stream is made from;
                               SPDL_WORK_NO_PART: it is missing */
    uint64_t reserved1[2];
    struct spdl_work_dest dests[SPDL_WORK_DESTS_MAX];
    struct spdl_work_part parts[SPDL_WORK_PARTS_MAX];
};

enum {
    SPDL_WORK_SEEN_WHOLE = 1u,
    SPDL_WORK_DRAWS = 2u,
    SPDL_WORK_HFLIP = 4u,
    SPDL_WORK_VFLIP = 8u
}; /* flags of a completion */

struct spdl_work_completion {
    uint64_t ticket;
    uint32_t class_number; /* enum spdl_class */
    uint32_t flags;
    uint32_t field;       /* that failed */
    uint32_t cost_ns;     /* time of the thread for this row, a hint */
    uint64_t byte_offset; /* in the part, where the fault is; UINT64_MAX: not known */
    int32_t crop[4]; /* of the first image field: x, y, width, height in the picture as shown, with
                        SPDL_WORK_DRAWS */
    union {
        char message[SPDL_WORK_MESSAGE_BYTES]; /* of the failure, ends with 0 */
        /* class OK: bytes of the row in each ragged field; 0 in the others */
        uint32_t field_bytes[SPDL_WORK_FIELDS_MAX];
    };
};

struct spdl_work_command_segment {
    uint64_t magic;
    uint32_t version;
    uint32_t thread_count;
    uint64_t reserved0[14];
    _Alignas(128) _Atomic uint32_t published; /* W: conductor, release  R: worker threads, acquire;
                                                 also the futex word; wraps */
    uint32_t reserved1[31];
    _Alignas(128) _Atomic uint32_t
        waiting; /* W: conductor, seq_cst  R: worker threads, seq_cst: 1 while spdld sleeps */
    uint32_t reserved2[31];
    struct spdl_work_command cells[SPDL_WORK_CELLS];
};

struct spdl_work_completion_cell {
    _Atomic uint64_t turn; /* W: one worker thread, release  R: conductor, acquire: number of the
                              completion in it + 1 */
    struct spdl_work_completion record;
    uint64_t reserved[5];
};

struct spdl_work_completion_segment {
    _Atomic uint64_t working[SPDL_WORK_THREADS_MAX]; /* W: thread n, relaxed  R: conductor, after
                                                        the worker's death: ticket, 0: none */
    struct spdl_work_completion_cell cells[SPDL_WORK_CELLS];
};

#endif
