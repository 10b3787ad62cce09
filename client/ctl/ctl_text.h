/* Text that grows, is made safe for a terminal, and is written in one piece; and the sentences of
 * spdlctl on standard error. */
#ifndef SPDL_CTL_TEXT_H
#define SPDL_CTL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What spdlctl ends with. */
enum ctl_exit {
    CTL_EXIT_DONE = 0,
    CTL_EXIT_FAILED = 1,
    CTL_EXIT_USAGE = 2,
    CTL_EXIT_NO_DAEMON = 3,
    CTL_EXIT_REFUSED = 4, /* rights, budget, or a daemon of another configuration */
    CTL_EXIT_LIMIT = 5    /* a limit of failures ended the stream */
};

/* Zeroed is empty. `failed` stays set once memory ran out; writing the text then reports it. */
struct ctl_text {
    char *data; /* owned; bytes characters, no final 0 */
    size_t bytes, capacity;
    bool failed;
};

void ctl_text_fini(struct ctl_text *text);
void ctl_text_clear(struct ctl_text *text);
void ctl_text_put(struct ctl_text *text, const void *data, size_t bytes);
void ctl_text_str(struct ctl_text *text, const char *string);
void ctl_text_printf(struct ctl_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds bytes of unknown origin so that they cannot steer a terminal: control characters and what is
 * not UTF-8 become \xNN. */
void ctl_text_safe(struct ctl_text *text, const void *data, size_t bytes);

/* Adds at most `columns` characters of a key or name, its end rather than its beginning, padded
 * with spaces where it is shorter. */
void ctl_text_column(struct ctl_text *text, const char *string, size_t columns);

/* Writes everything with as few calls as the descriptor allows, one as a rule. 0; -ENOMEM: the text
 * is not whole; another negative errno. */
int ctl_text_write(const struct ctl_text *text, int fd);

/* Length of the valid UTF-8 sequence that `data` begins with (1 … 4), 0 when there is none.
 * Surrogates and overlong forms are none. */
size_t ctl_utf8_sequence(const uint8_t *data, size_t bytes, uint32_t *ret_code_point);

/* Says "spdlctl: SENTENCE" on standard error and returns `code`. */
int ctl_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ctl_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
