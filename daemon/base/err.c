/* Errors with sentences: see err.h. Non-logging, any role. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *reterr, int code, const char *format, ...)
{
    if (reterr) {
        va_list args;
        va_start(args, format);
        vsnprintf(reterr->text, sizeof reterr->text, format, args);
        va_end(args);
        reterr->code = code;
    }
    return code;
}

int err_prefix(struct err *reterr, const char *format, ...)
{
    if (!reterr)
        return -1;
    char old[ERR_TEXT_BYTES];
    memcpy(old, reterr->text, sizeof old);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(reterr->text, sizeof reterr->text, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof reterr->text)
        snprintf(reterr->text + n, sizeof reterr->text - (size_t)n, "%s", old);
    return reterr->code;
}
