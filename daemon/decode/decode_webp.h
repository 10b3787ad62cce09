/* WebP: the codec's row of the table. */
#ifndef SPDLD_DECODE_WEBP_H
#define SPDLD_DECODE_WEBP_H

#include "decode/decode.h"

extern const struct decode_ops decode_webp_ops;

#endif
