/* Names of sample classes: see shm_class.h. */
#include "shm/shm_class.h"

static const char *const names[SPDL_CLASS_COUNT] = {
    "OK",          "BAD_FORMAT", "EMPTY",        "TRUNCATED",       "CORRUPT",   "UNSUPPORTED",
    "LIMIT",       "NO_STREAM",  "OUT_OF_RANGE", "SHORT",           "DUPLICATE", "INCOMPLETE",
    "IO_ERROR",    "NET_ERROR",  "NO_RANGE",     "CHANGED",         "RESOURCE",  "TIMEOUT",
    "DAEMON_GONE", "FORKED",     "ALL_FAILED",   "ALREADY_RUNNING", "CRASH",
};

const char *spdl_class_name(unsigned number)
{
    return number < SPDL_CLASS_COUNT ? names[number] : "UNKNOWN";
}
