/* The layout of a stream's segments, held in place: one assertion per offset and per size. A change
 * that trips one is a change of SPDL_SHM_MAJOR, or it takes a reserved word and SPDL_SHM_MINOR goes
 * up. No code. */
#include "shm/shm_layout.h"

#include <stddef.h>

#define OFFSET(type, field, bytes)                                                                 \
    _Static_assert(offsetof(struct type, field) == (bytes), #type "." #field " has moved")
#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type " has another size")

_Static_assert(sizeof(_Atomic uint64_t) == sizeof(uint64_t),
               "an atomic word is a plain word in memory");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_LONG_LOCK_FREE == 2, "64 bits without a lock");
_Static_assert((SPDL_SHM_ALIGN & (SPDL_SHM_ALIGN - 1)) == 0, "a power of two");
_Static_assert(SPDL_SHM_SLOTS_MAX <= 256, "a slot's number fits in the low byte of an order entry");

OFFSET(spdl_shm_field, name, 0);
OFFSET(spdl_shm_field, dtype, 64);
OFFSET(spdl_shm_field, dim_count, 68);
OFFSET(spdl_shm_field, dims, 72);
OFFSET(spdl_shm_field, row_bytes, 136);
OFFSET(spdl_shm_field, slot_offset, 144);
OFFSET(spdl_shm_field, kind, 152);
OFFSET(spdl_shm_field, partner, 156);
OFFSET(spdl_shm_field, room_bytes, 160);
OFFSET(spdl_shm_field, reserved, 168);
SIZE(spdl_shm_field, 184);

OFFSET(spdl_shm_header, magic, 0);
OFFSET(spdl_shm_header, major, 8);
OFFSET(spdl_shm_header, minor, 12);
OFFSET(spdl_shm_header, control_bytes, 16);
OFFSET(spdl_shm_header, data_bytes, 24);
OFFSET(spdl_shm_header, generation, 32);
OFFSET(spdl_shm_header, stream_id, 40);
OFFSET(spdl_shm_header, slot_count, 48);
OFFSET(spdl_shm_header, order_count, 52);
OFFSET(spdl_shm_header, field_count, 56);
OFFSET(spdl_shm_header, row_count, 60);
OFFSET(spdl_shm_header, fields_offset, 64);
OFFSET(spdl_shm_header, order_offset, 72);
OFFSET(spdl_shm_header, slots_offset, 80);
OFFSET(spdl_shm_header, slot_stride, 88);
OFFSET(spdl_shm_header, slot_data_bytes, 96);
OFFSET(spdl_shm_header, reserved0, 104);
OFFSET(spdl_shm_header, ready, 128);
OFFSET(spdl_shm_header, reserved1, 136);
SIZE(spdl_shm_header, 256);

OFFSET(spdl_shm_row, id, 0);
OFFSET(spdl_shm_row, failed_id, 8);
OFFSET(spdl_shm_row, key_offset, 16);
OFFSET(spdl_shm_row, key_bytes, 20);
OFFSET(spdl_shm_row, failed_key_offset, 24);
OFFSET(spdl_shm_row, failed_key_bytes, 28);
OFFSET(spdl_shm_row, class_number, 32);
OFFSET(spdl_shm_row, attempt, 36);
OFFSET(spdl_shm_row, message, 40);
OFFSET(spdl_shm_row, valid, 44);
OFFSET(spdl_shm_row, flags, 48);
OFFSET(spdl_shm_row, crop, 52);
OFFSET(spdl_shm_row, reserved, 68);
SIZE(spdl_shm_row, 88);

OFFSET(spdl_shm_slot, sequence, 0);
OFFSET(spdl_shm_slot, epoch, 8);
OFFSET(spdl_shm_slot, rows, 12);
OFFSET(spdl_shm_slot, valid, 16);
OFFSET(spdl_shm_slot, error_count, 20);
OFFSET(spdl_shm_slot, step, 24);
OFFSET(spdl_shm_slot, position, 32);
OFFSET(spdl_shm_slot, next_position, 40);
OFFSET(spdl_shm_slot, next_step, 48);
OFFSET(spdl_shm_slot, next_epoch, 56);
OFFSET(spdl_shm_slot, state_bytes, 60);
OFFSET(spdl_shm_slot, publish_ns, 64);
OFFSET(spdl_shm_slot, data_offset, 72);
OFFSET(spdl_shm_slot, rows_offset, 80);
OFFSET(spdl_shm_slot, messages_offset, 88);
OFFSET(spdl_shm_slot, text_offset, 96);
OFFSET(spdl_shm_slot, text_bytes, 104);
OFFSET(spdl_shm_slot, hash, 112);
OFFSET(spdl_shm_slot, reserved, 120);
OFFSET(spdl_shm_slot, state, 184);
SIZE(spdl_shm_slot, 696);
