/* Shared memory segments without a name: the one file that knows how they are made, sealed, opened
 * again read-only and checked. */
#ifndef SPDL_SHM_SEGMENT_H
#define SPDL_SHM_SEGMENT_H

#include <stdint.h>

enum spdl_shm_kind {
    SPDL_SHM_MEMFD = 1, /* sealed */
    SPDL_SHM_POSIX = 2  /* nameless object in /dev/shm: O_TMPFILE, else shm_open and unlink */
};

enum spdl_shm_use {
    SPDL_SHM_READ_BY_OTHERS =
        1, /* control segment, arena, commands: nobody but the maker ever maps it writable */
    SPDL_SHM_WRITTEN_BY_OTHERS =
        2 /* data segment, completions: a writable descriptor may be handed on; the size is fixed */
};

struct spdl_shm_segment {
    int fd;           /* read and write, close-on-exec; -1 when closed */
    int read_only_fd; /* opened anew, close-on-exec; for SCM_RIGHTS */
    uint64_t bytes;   /* a multiple of the page size */
    void *base;       /* mapped readable and writable in the maker */
};

/* Makes a segment of at least `bytes`, zeroed, mode 0600, all of its space reserved when `reserve`
 * is true, mapped, and sealed as its use allows (memfd). Returns 0, -ENOSPC with *ret_free_bytes
 * (how much /dev/shm has; UINT64_MAX when not known), -ENOMEM, -EMFILE, -ENOTSUP (memfd where /proc
 * is not mounted: it cannot be opened again read-only), -EINVAL, or another negative errno. On
 * failure the segment is closed. Blocks for the time it takes to reserve. */
int spdl_shm_segment_create(struct spdl_shm_segment *segment, enum spdl_shm_kind kind,
                            enum spdl_shm_use use, uint64_t bytes, int reserve,
                            uint64_t *ret_free_bytes);

/* Unmaps and closes; the memory is gone when nobody else maps it. Accepts a zeroed or closed
 * segment. */
void spdl_shm_segment_destroy(struct spdl_shm_segment *segment);

/* Maps a descriptor that another process sent. The descriptor's size must be at least `bytes`
 * (-EPROTO otherwise: a smaller file would mean SIGBUS). The mapping is not inherited by a forked
 * child when not_in_child is true. */
int spdl_shm_segment_map(int fd, uint64_t bytes, int writable, int not_in_child, void **ret_base);
void spdl_shm_segment_unmap(void *base, uint64_t bytes);

#endif
