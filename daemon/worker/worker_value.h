/* Fields that are no pictures: from a part to bytes or a number in the row. Decoder role. */
#ifndef SPDLD_WORKER_VALUE_H
#define SPDLD_WORKER_VALUE_H

#include <stdint.h>

#include "decode/decode.h"
#include "shm/shm_work.h"
#include "worker/worker_stream.h"

struct worker_value {
    const struct field_spec *field;
    enum worker_decoder decoder; /* any but WORKER_DECODER_IMAGE */
    struct decode_packet packet; /* of a part that is a blob */
    const struct spdl_work_part *part;
    uint8_t *to; /* field->row_bytes of room */
};

/* Makes the value; fills the rest of a row that is padded with zeroes. *ret_bytes: of a ragged row.
 * OK or fills ret_fault. */
enum spdl_class worker_value_run(const struct worker_value *value, uint32_t *ret_bytes,
                                 struct decode_fault *ret_fault);

#endif
