/* Whether a call about a file can hang. Calls on a file system of this machine end soon; on a
 * network or user-space file system even an open or a stat may wait for ever, so they must not be
 * made by a thread that others wait for. Private to the room. */
#ifndef SPDLD_FETCH_LOCAL_H
#define SPDLD_FETCH_LOCAL_H

#include <stdint.h>

enum fetch_place {
    FETCH_PLACE_REMOTE = 1, /* or not known */
    FETCH_PLACE_DISK,       /* of this machine */
    FETCH_PLACE_MEMORY      /* reads never wait for a device */
};

enum { FETCH_LOCAL_MOUNTS = 16 };

/* What is known of mounts. Zeroed at first; one thread. */
struct fetch_local {
    struct {
        uint64_t mount;
        enum fetch_place place;
    } known[FETCH_LOCAL_MOUNTS];
    uint32_t count, oldest;
};

/* The place of the mount that the open folder is on. Asks no file system; reads /proc for a mount
 * that it has not met. */
enum fetch_place fetch_local_find(struct fetch_local *local, int root_fd);

#endif
