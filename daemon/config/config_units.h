/* Numbers with units, as people type them, and back. Pure. */
#ifndef SPDLD_CONFIG_UNITS_H
#define SPDLD_CONFIG_UNITS_H

#include <stddef.h>
#include <stdint.h>

enum { CONFIG_UNITS_TEXT_BYTES = 32 };

/* Each returns 0; -EINVAL: not such a number; -ERANGE: beyond 64 bits. A size without a unit is
 * bytes; a duration needs one. */
int config_units_count(const char *text, uint64_t *ret_count);
int config_units_size(const char *text, uint64_t *ret_bytes);  /* KiB MiB GiB KB MB GB */
int config_units_duration(const char *text, uint64_t *ret_ns); /* us ms s min h */
int config_units_double(const char *text, double *ret_value);  /* decimal, finite */

/* The shortest text that is read back as the same number. Returns text. */
const char *config_units_size_text(uint64_t bytes, char text[CONFIG_UNITS_TEXT_BYTES]);
const char *config_units_duration_text(uint64_t ns, char text[CONFIG_UNITS_TEXT_BYTES]);
const char *config_units_double_text(double value, char text[CONFIG_UNITS_TEXT_BYTES]);

#endif
