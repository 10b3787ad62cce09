/* Members of a tar archive, one after the other: ustar, GNU and PAX headers, old V7 ones too. Reads
 * headers only and skips what lies between them. Bytes are hostile: all is bounded, nothing is
 * trusted before it is checked. Non-logging; any thread, one parser each. */
#ifndef SPDLD_SOURCE_TAR_PARSE_H
#define SPDLD_SOURCE_TAR_PARSE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    SOURCE_TAR_BLOCK_BYTES = 512,
    SOURCE_TAR_PATH_MAX = 4096,         /* bytes of a member's path */
    SOURCE_TAR_EXTENDED_MAX = 256 << 10 /* bytes of an extended header */
};

/* Where the archive's bytes are from. `read` fills `bytes` at `offset`, all of which lie inside the
 * archive; 0, or a negative errno (-ENODATA: it has become shorter). */
struct source_tar_input {
    int (*read)(void *context, uint64_t offset, void *into, size_t bytes);
    void *context;
    uint64_t bytes; /* of the archive */
};

enum source_tar_kind {
    SOURCE_TAR_FILE,  /* a regular file */
    SOURCE_TAR_OTHER, /* a folder, link, device, pipe or a kind that is not known */
    SOURCE_TAR_SPARSE /* a regular file with holes: its bytes are not there as they are */
};

struct source_tar_member {
    enum source_tar_kind kind;
    const char *path; /* ends with 0; borrowed until the next call */
    uint32_t path_bytes;
    uint64_t header_offset; /* of its own header */
    uint64_t data_offset;   /* a multiple of SOURCE_TAR_BLOCK_BYTES */
    uint64_t bytes;
    int cut;       /* the archive ends inside its bytes; it is the last one */
    int long_path; /* the path is longer than SOURCE_TAR_PATH_MAX: it is cut there */
};

/* Why an archive cannot be read on. */
struct source_tar_fault {
    uint32_t class_number; /* enum spdl_class: TRUNCATED CORRUPT */
    uint64_t offset;
    const char *message; /* static */
    /* TRUNCATED: as much of the name of the member that is cut as there is, "" where nothing is
     * known of it; borrowed from the parser. */
    const char *path;
};

struct source_tar_parser;

struct source_tar_parser *
source_tar_create(const struct source_tar_input *input);   /* NULL: ENOMEM */
void source_tar_destroy(struct source_tar_parser *parser); /* accepts NULL */

/* 1: the next member; 0: the archive's end; -EBADMSG: it is broken from here on, *ret_fault says
 * how; another negative errno: it could not be read. After anything but 1 there is no next. */
int source_tar_next(struct source_tar_parser *parser, struct source_tar_member *ret_member,
                    struct source_tar_fault *ret_fault);

#endif
