/* Writing JSON into a text. Commas come by themselves. The output is plain ASCII, so that no line
 * break of Unicode can stand inside a line. */
#ifndef SPDL_CTL_JSON_H
#define SPDL_CTL_JSON_H

#include "client/ctl/ctl_text.h"

void ctl_json_open(struct ctl_text *text, char bracket);  /* '{' or '[' */
void ctl_json_close(struct ctl_text *text, char bracket); /* '}' or ']' */
void ctl_json_key(struct ctl_text *text, const char *name);

/* A string of any bytes: what is not UTF-8 stands as \udcXX, as Python's surrogateescape has it. */
void ctl_json_bytes(struct ctl_text *text, const void *data, size_t bytes);
void ctl_json_string(struct ctl_text *text, const char *string); /* NULL is "" */
void ctl_json_unsigned(struct ctl_text *text, uint64_t value);
void ctl_json_signed(struct ctl_text *text, int64_t value);
void ctl_json_double(struct ctl_text *text, double value, int decimals); /* not finite: null */
void ctl_json_bool(struct ctl_text *text, bool value);
void ctl_json_null(struct ctl_text *text);

/* A key and its value. */
void ctl_json_key_string(struct ctl_text *text, const char *name, const char *string);
void ctl_json_key_unsigned(struct ctl_text *text, const char *name, uint64_t value);
void ctl_json_key_signed(struct ctl_text *text, const char *name, int64_t value);
void ctl_json_key_double(struct ctl_text *text, const char *name, double value, int decimals);

#endif
