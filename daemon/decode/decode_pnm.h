/* PNM (PBM, PGM and PPM, as text and as bytes): the codec's row of the table. */
#ifndef SPDLD_DECODE_PNM_H
#define SPDLD_DECODE_PNM_H

#include "decode/decode.h"

extern const struct decode_ops decode_pnm_ops;

#endif
