/* The layout of what spdld and its worker share, held in place: one assertion per offset and per
 * size. A change that trips one is a change of SPDL_WORK_VERSION. No code. */
#include "shm/shm_work.h"

#include <stddef.h>

#define OFFSET(type, field, bytes)                                                                 \
    _Static_assert(offsetof(struct type, field) == (bytes), #type "." #field " has moved")
#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type " has another size")

_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "32 bits without a lock");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_LONG_LOCK_FREE == 2, "64 bits without a lock");
_Static_assert(sizeof(_Atomic uint32_t) == 4, "a futex word has 32 bits");
_Static_assert((SPDL_WORK_CELLS & (SPDL_WORK_CELLS - 1)) == 0, "a power of two: numbers wrap");

OFFSET(spdl_work_part, kind, 0);
OFFSET(spdl_work_part, escape, 4);
OFFSET(spdl_work_part, value, 8);
OFFSET(spdl_work_part, bytes, 16);
SIZE(spdl_work_part, 24);

OFFSET(spdl_work_dest, stream, 0);
OFFSET(spdl_work_dest, slot, 4);
OFFSET(spdl_work_dest, row, 8);
OFFSET(spdl_work_dest, reserved, 12);
SIZE(spdl_work_dest, 16);

OFFSET(spdl_work_command, ticket, 0);
OFFSET(spdl_work_command, position, 8);
OFFSET(spdl_work_command, epoch, 16);
OFFSET(spdl_work_command, attempt, 20);
OFFSET(spdl_work_command, flags, 24);
OFFSET(spdl_work_command, part_count, 28);
OFFSET(spdl_work_command, dest_count, 29);
OFFSET(spdl_work_command, reserved0, 30);
OFFSET(spdl_work_command, field_part, 32);
OFFSET(spdl_work_command, reserved1, 48);
OFFSET(spdl_work_command, dests, 64);
OFFSET(spdl_work_command, parts, 96);
SIZE(spdl_work_command, 480);

OFFSET(spdl_work_completion, ticket, 0);
OFFSET(spdl_work_completion, class_number, 8);
OFFSET(spdl_work_completion, flags, 12);
OFFSET(spdl_work_completion, field, 16);
OFFSET(spdl_work_completion, cost_ns, 20);
OFFSET(spdl_work_completion, byte_offset, 24);
OFFSET(spdl_work_completion, crop, 32);
OFFSET(spdl_work_completion, message, 48);
OFFSET(spdl_work_completion, field_bytes, 48);
SIZE(spdl_work_completion, 144);

OFFSET(spdl_work_command_segment, magic, 0);
OFFSET(spdl_work_command_segment, version, 8);
OFFSET(spdl_work_command_segment, thread_count, 12);
OFFSET(spdl_work_command_segment, reserved0, 16);
OFFSET(spdl_work_command_segment, published, 128);
OFFSET(spdl_work_command_segment, reserved1, 132);
OFFSET(spdl_work_command_segment, waiting, 256);
OFFSET(spdl_work_command_segment, reserved2, 260);
OFFSET(spdl_work_command_segment, cells, 384);
SIZE(spdl_work_command_segment, 491904);

OFFSET(spdl_work_completion_cell, turn, 0);
OFFSET(spdl_work_completion_cell, record, 8);
OFFSET(spdl_work_completion_cell, reserved, 152);
SIZE(spdl_work_completion_cell, 192);

OFFSET(spdl_work_completion_segment, working, 0);
OFFSET(spdl_work_completion_segment, cells, 512);
SIZE(spdl_work_completion_segment, 197120);
