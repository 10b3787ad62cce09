/* The classes a sample can end in. Numbers cross between processes and are never reused; names are
 * those of the configuration, the JSON and the C interface. C and C++. */
#ifndef SPDL_SHM_CLASS_H
#define SPDL_SHM_CLASS_H

#ifdef __cplusplus
extern "C" {
#endif

enum spdl_class {
    SPDL_CLASS_OK = 0,
    SPDL_CLASS_BAD_FORMAT = 1,  /* the first bytes belong to no format that the field takes */
    SPDL_CLASS_EMPTY = 2,       /* no bytes at all */
    SPDL_CLASS_TRUNCATED = 3,   /* ends before its content does */
    SPDL_CLASS_CORRUPT = 4,     /* damaged inside */
    SPDL_CLASS_UNSUPPORTED = 5, /* whole, but of a kind this build does not decode */
    SPDL_CLASS_LIMIT = 6,       /* above a fixed limit: pixels, scans, bytes */
    SPDL_CLASS_NO_STREAM = 7,
    SPDL_CLASS_OUT_OF_RANGE = 8, /* asked for a place the sample does not have */
    SPDL_CLASS_SHORT = 9,
    SPDL_CLASS_DUPLICATE = 10,
    SPDL_CLASS_INCOMPLETE = 11, /* a part that a field needs is not there */
    SPDL_CLASS_IO_ERROR = 12,   /* missing, forbidden, not a file */
    SPDL_CLASS_NET_ERROR = 13,
    SPDL_CLASS_NO_RANGE = 14,
    SPDL_CLASS_CHANGED = 15, /* other size or time of change than when it was listed */
    SPDL_CLASS_RESOURCE = 16,
    SPDL_CLASS_TIMEOUT = 17,
    SPDL_CLASS_DAEMON_GONE = 18,
    SPDL_CLASS_FORKED = 19,
    SPDL_CLASS_ALL_FAILED = 20,
    SPDL_CLASS_ALREADY_RUNNING = 21,
    SPDL_CLASS_CRASH = 22, /* a codec died on it twice */
    SPDL_CLASS_COUNT = 23
};

/* The name ("TRUNCATED"); "UNKNOWN" for a number outside the list. Static storage. */
const char *spdl_class_name(unsigned number);

#ifdef __cplusplus
}
#endif
#endif
