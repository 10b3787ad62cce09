/* PNG: the codec's row of the table. */
#ifndef SPDLD_DECODE_PNG_H
#define SPDLD_DECODE_PNG_H

#include "decode/decode.h"

extern const struct decode_ops decode_png_ops;

#endif
