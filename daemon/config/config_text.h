/* Strings on their way into YAML. Pure. */
#ifndef SPDLD_CONFIG_TEXT_H
#define SPDLD_CONFIG_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* For what did not come through YAML: command lines, names of files. */
bool config_text_is_utf8(const char *text);

/* A UTF-8 string as a YAML scalar, quoted and escaped where it needs that. Returns the length
 * without the final 0, cut at capacity. */
size_t config_text_quote(const char *string, char *text, size_t capacity);

#endif
