/* GIF: the codec's row of the table. */
#ifndef SPDLD_DECODE_GIF_H
#define SPDLD_DECODE_GIF_H

#include "decode/decode.h"

extern const struct decode_ops decode_gif_ops;

#endif
