/* An error with a number and a sentence. Set-up, configuration and control calls take one as their
 * last parameter; the hot path never does. The sentence says what, where and what to do, and is
 * built outward: the caller may put its own words in front. */
#ifndef SPDLD_BASE_ERR_H
#define SPDLD_BASE_ERR_H

enum { ERR_TEXT_BYTES = 1024 };

struct err {
    int code;                  /* negative errno; 0 while nothing has gone wrong */
    char text[ERR_TEXT_BYTES]; /* ends with 0; never with a full stop or newline */
};

/* Stores code and the formatted sentence in reterr (may be NULL) and returns code, which is a
 * negative errno. */
int err_set(struct err *reterr, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts the formatted words in front of what is there already ("photos: " + "folder is missing") and
 * returns the code. */
int err_prefix(struct err *reterr, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
