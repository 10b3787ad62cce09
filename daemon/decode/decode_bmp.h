/* BMP: the codec's row of the table. */
#ifndef SPDLD_DECODE_BMP_H
#define SPDLD_DECODE_BMP_H

#include "decode/decode.h"

extern const struct decode_ops decode_bmp_ops;

#endif
