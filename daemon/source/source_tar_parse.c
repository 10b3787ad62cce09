/* Members of a tar archive: see source_tar_parse.h. */
#include "source/source_tar_parse.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "item/class.h"

enum {
    BLOCK = SOURCE_TAR_BLOCK_BYTES,
    WINDOW_BYTES = 256 << 10, /* read at once where members are small */
    NEAR_BYTES = 64 << 10,    /* members smaller than this are small */
    FAR_READ_BYTES = 4 << 10  /* read at once where they are not */
};
_Static_assert((int)SOURCE_TAR_EXTENDED_MAX <= (int)WINDOW_BYTES,
               "an extended header fits into the window");

/* Places in a header. */
enum {
    NAME_AT = 0,
    NAME_BYTES = 100,
    SIZE_AT = 124,
    SIZE_BYTES = 12,
    SUM_AT = 148,
    SUM_BYTES = 8,
    TYPE_AT = 156,
    MAGIC_AT = 257,
    PREFIX_AT = 345,
    PREFIX_BYTES = 155,
    SPARSE_MORE_AT = 482,    /* in a GNU sparse header: blocks of the map follow */
    SPARSE_MORE_MAP_AT = 504 /* in such a block: another one follows */
};

/* What extended headers say. */
struct attributes {
    bool has_path, has_size, sparse, long_path;
    uint32_t path_bytes;
    uint64_t size;
    char path[SOURCE_TAR_PATH_MAX + 1];
};

struct source_tar_parser {
    struct source_tar_input input;
    uint64_t position; /* of the next header */
    bool ended, begun;
    uint64_t window_at;
    size_t window_bytes;
    struct attributes global, local;
    bool has_long_name;                 /* of GNU's kind, into local_name */
    struct attributes long_name;        /* path alone */
    char path[SOURCE_TAR_PATH_MAX + 1]; /* of the member that was given last */
    uint8_t window[WINDOW_BYTES];
};

struct source_tar_parser *source_tar_create(const struct source_tar_input *input)
{
    struct source_tar_parser *parser = malloc(sizeof *parser);
    if (!parser)
        return NULL;
    memset(parser, 0, offsetof(struct source_tar_parser, window));
    parser->input = *input;
    return parser;
}

void source_tar_destroy(struct source_tar_parser *parser)
{
    free(parser);
}

/* `bytes` at `offset`, both inside the archive; bytes <= WINDOW_BYTES. Where the last jump was
 * short much is read at once, else little. */
static int look(struct source_tar_parser *parser, uint64_t offset, size_t bytes,
                const uint8_t **ret_bytes)
{
    uint64_t window_end = parser->window_at + parser->window_bytes;
    if (offset < parser->window_at || offset + bytes > window_end) {
        bool near = offset >= parser->window_at && offset < window_end + NEAR_BYTES;
        size_t want = near ? (size_t)WINDOW_BYTES : (size_t)FAR_READ_BYTES;
        uint64_t left = parser->input.bytes - offset;
        if (want < bytes)
            want = bytes;
        if (want > left)
            want = (size_t)left;
        parser->window_bytes = 0;
        int rc = parser->input.read(parser->input.context, offset, parser->window, want);
        if (rc < 0)
            return rc;
        parser->window_at = offset;
        parser->window_bytes = want;
    }
    *ret_bytes = parser->window + (offset - parser->window_at);
    return 0;
}

static int broken(struct source_tar_fault *ret_fault, uint32_t class_number, uint64_t offset,
                  const char *message)
{
    *ret_fault = (struct source_tar_fault){
        .class_number = class_number, .offset = offset, .message = message, .path = ""};
    return -EBADMSG;
}

/* Octal digits, perhaps behind blanks, up to a blank, a 0 or the end; or GNU's base 256. */
static bool number(const uint8_t *at, size_t bytes, uint64_t *ret_value)
{
    uint64_t value = 0;
    size_t i = 0;
    if (at[0] & 0x80) {
        if (at[0] != 0x80)
            return false; /* negative, or beyond 2^88 */
        for (i = 1; i < bytes; i++) {
            if (value >> 55)
                return false;
            value = value << 8 | at[i];
        }
        *ret_value = value;
        return true;
    }
    while (i < bytes && at[i] == ' ')
        i++;
    for (; i < bytes && at[i] != 0 && at[i] != ' '; i++) {
        if (at[i] < '0' || at[i] > '7' || value >> 60)
            return false;
        value = value << 3 | (uint64_t)(at[i] - '0');
    }
    *ret_value = value;
    return true;
}

/* Sums of the header's bytes with blanks in place of the sum itself; old writers summed signed
 * bytes. */
static bool sum_is_right(const uint8_t *header)
{
    uint64_t said;
    uint32_t sum = 0, high = 0;
    if (!number(header + SUM_AT, SUM_BYTES, &said))
        return false;
    for (size_t i = 0; i < BLOCK; i++) {
        sum += header[i];
        high += header[i] >> 7;
    }
    for (size_t i = SUM_AT; i < SUM_AT + SUM_BYTES; i++) {
        sum += (uint32_t)' ' - header[i];
        high -= header[i] >> 7;
    }
    return said == sum || (int64_t)said == (int64_t)sum - 256 * (int64_t)high;
}

static bool is_zero(const uint8_t *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i])
            return false;
    return true;
}

static void path_set(struct attributes *attributes, const uint8_t *path, size_t bytes)
{
    attributes->has_path = bytes > 0; /* an empty one takes back what stood before */
    attributes->long_path = bytes > SOURCE_TAR_PATH_MAX;
    if (attributes->long_path)
        bytes = SOURCE_TAR_PATH_MAX;
    memcpy(attributes->path, path, bytes);
    attributes->path[bytes] = 0;
    attributes->path_bytes = (uint32_t)bytes;
}

static bool is_key(const uint8_t *key, size_t bytes, const char *name)
{
    return strlen(name) == bytes && memcmp(key, name, bytes) == 0;
}

static bool attribute_set(struct attributes *attributes, const uint8_t *key, size_t key_bytes,
                          const uint8_t *value, size_t value_bytes)
{
    static const char sparse[] = "GNU.sparse.";
    bool is_sparse = key_bytes >= sizeof sparse - 1 && memcmp(key, sparse, sizeof sparse - 1) == 0;
    if (is_sparse)
        attributes->sparse = true;
    if (is_key(key, key_bytes, "path") || is_key(key, key_bytes, "GNU.sparse.name")) {
        if (memchr(value, 0, value_bytes))
            return false;
        path_set(attributes, value, value_bytes);
    } else if (is_key(key, key_bytes, "size")) {
        uint64_t size = 0;
        for (size_t i = 0; i < value_bytes; i++) {
            if (value[i] < '0' || value[i] > '9' || size > UINT64_MAX / 20)
                return false;
            size = size * 10 + (uint64_t)(value[i] - '0');
        }
        attributes->has_size = value_bytes > 0;
        attributes->size = size;
    }
    return true;
}

/* Records "LENGTH KEY=VALUE\n" one behind the other. False: they are malformed. */
static bool attributes_read(struct attributes *attributes, const uint8_t *at, size_t bytes)
{
    const uint8_t *end = at + bytes;
    while (at < end && *at) {
        size_t length = 0;
        const uint8_t *digit = at;
        for (; digit < end && *digit >= '0' && *digit <= '9' && digit - at < 8; digit++)
            length = length * 10 + (size_t)(*digit - '0');
        if (digit == at || digit == end || *digit != ' ' || length > (size_t)(end - at) ||
            length < (size_t)(digit - at) + 3 || at[length - 1] != '\n')
            return false;
        const uint8_t *key = digit + 1, *last = at + length - 1;
        const uint8_t *equals = memchr(key, '=', (size_t)(last - key));
        if (!equals || equals == key ||
            !attribute_set(attributes, key, (size_t)(equals - key), equals + 1,
                           (size_t)(last - equals - 1)))
            return false;
        at += length;
    }
    return true;
}

static size_t text_bytes(const uint8_t *at, size_t room)
{
    const uint8_t *end = memchr(at, 0, room);
    return end ? (size_t)(end - at) : room;
}

/* Takes an extended header of `size` bytes behind the header at the position. */
static int extended_take(struct source_tar_parser *parser, uint8_t type, uint64_t size,
                         struct source_tar_fault *ret_fault)
{
    uint64_t header = parser->position, data = header + BLOCK;
    const uint8_t *at = NULL;
    if (size > parser->input.bytes - data)
        return broken(ret_fault, SPDL_CLASS_TRUNCATED, header,
                      "the shard ends inside an extended header");
    if (size > SOURCE_TAR_EXTENDED_MAX)
        return broken(ret_fault, SPDL_CLASS_CORRUPT, header,
                      "an extended header is larger than 256 KiB");
    int rc = size > 0 ? look(parser, data, (size_t)size, &at) : 0;
    if (rc < 0)
        return rc;
    if (type == 'L') {
        parser->has_long_name = size > 0;
        if (size > 0)
            path_set(&parser->long_name, at, text_bytes(at, (size_t)size));
    } else if (type != 'K' && size > 0 &&
               !attributes_read(type == 'g' ? &parser->global : &parser->local, at, (size_t)size)) {
        return broken(ret_fault, SPDL_CLASS_CORRUPT, header, "an extended header is malformed");
    }
    uint64_t padded = (size + BLOCK - 1) & ~(uint64_t)(BLOCK - 1);
    uint64_t left = parser->input.bytes - data;
    parser->position = data + (padded < left ? padded : left);
    return 0;
}

static bool is_extended(uint8_t type)
{
    return type == 'x' || type == 'X' || type == 'g' || type == 'L' || type == 'K';
}

/* Path of the member: what extended headers say, else prefix and name of its own. */
static void path_make(struct source_tar_parser *parser, const uint8_t *header,
                      struct source_tar_member *member)
{
    const struct attributes *from = parser->local.has_path    ? &parser->local
                                    : parser->has_long_name   ? &parser->long_name
                                    : parser->global.has_path ? &parser->global
                                                              : NULL;
    size_t bytes = 0;
    if (from) {
        bytes = from->path_bytes;
        memcpy(parser->path, from->path, bytes);
        member->long_path = from->long_path;
    } else {
        bool has_prefix = memcmp(header + MAGIC_AT, "ustar", 6) == 0 && header[PREFIX_AT];
        if (has_prefix) {
            bytes = text_bytes(header + PREFIX_AT, PREFIX_BYTES);
            memcpy(parser->path, header + PREFIX_AT, bytes);
            parser->path[bytes++] = '/';
        }
        size_t name_bytes = text_bytes(header + NAME_AT, NAME_BYTES);
        memcpy(parser->path + bytes, header + NAME_AT, name_bytes);
        bytes += name_bytes;
    }
    parser->path[bytes] = 0;
    member->path = parser->path;
    member->path_bytes = (uint32_t)bytes;
}

/* Goes over the blocks of a GNU sparse map, which stand between header and data. */
static int sparse_map_skip(struct source_tar_parser *parser, const uint8_t *header,
                           uint64_t *data_offset)
{
    bool more = header[SPARSE_MORE_AT] != 0;
    while (more && *data_offset + BLOCK <= parser->input.bytes) {
        const uint8_t *map;
        int rc = look(parser, *data_offset, BLOCK, &map);
        if (rc < 0)
            return rc;
        more = map[SPARSE_MORE_MAP_AT] != 0;
        *data_offset += BLOCK;
    }
    return 0;
}

static int member_take(struct source_tar_parser *parser, const uint8_t *header, uint64_t size,
                       struct source_tar_member *member)
{
    uint8_t type = header[TYPE_AT];
    *member = (struct source_tar_member){.kind = SOURCE_TAR_OTHER,
                                         .header_offset = parser->position,
                                         .data_offset = parser->position + BLOCK};
    path_make(parser, header, member);
    bool is_file = type == '0' || type == 0 || type == '7';
    bool is_folder =
        is_file && (member->path_bytes == 0 || member->path[member->path_bytes - 1] == '/');
    bool has_data = (type < '1' || type > '6') && !(type == 0 && is_folder);
    if (is_file && !is_folder)
        member->kind =
            parser->local.sparse || parser->global.sparse ? SOURCE_TAR_SPARSE : SOURCE_TAR_FILE;
    if (type == 'S') {
        member->kind = SOURCE_TAR_SPARSE;
        int rc = sparse_map_skip(parser, header, &member->data_offset);
        if (rc < 0)
            return rc;
    }
    member->bytes = !has_data                 ? 0
                    : parser->local.has_size  ? parser->local.size
                    : parser->global.has_size ? parser->global.size
                                              : size;
    uint64_t left = parser->input.bytes - member->data_offset;
    member->cut = member->bytes > left;
    uint64_t padded = member->cut ? left : (member->bytes + BLOCK - 1) & ~(uint64_t)(BLOCK - 1);
    parser->position = member->data_offset + (padded < left ? padded : left);
    return 1;
}

/* A header, or what stands in its place. 1: a header; 0: the end. */
static int header_read(struct source_tar_parser *parser, const uint8_t **ret_header,
                       struct source_tar_fault *ret_fault)
{
    uint64_t left = parser->input.bytes - parser->position;
    size_t bytes = left < BLOCK ? (size_t)left : (size_t)BLOCK;
    if (bytes == 0)
        return 0;
    int rc = look(parser, parser->position, bytes, ret_header);
    if (rc < 0)
        return rc;
    if ((*ret_header)[0] == 0 && is_zero(*ret_header, bytes))
        return 0;
    if (bytes < BLOCK) {
        rc = broken(ret_fault, SPDL_CLASS_TRUNCATED, parser->position,
                    "the shard ends inside a header");
        bytes = text_bytes(*ret_header, bytes < NAME_BYTES ? bytes : (size_t)NAME_BYTES);
        memcpy(parser->path, *ret_header, bytes);
        parser->path[bytes] = 0;
        ret_fault->path = parser->path;
        return rc;
    }
    if (!sum_is_right(*ret_header))
        return broken(ret_fault, SPDL_CLASS_CORRUPT, parser->position,
                      parser->begun ? "a header's checksum is wrong: what follows is not read"
                                    : "it is no tar file: its first header's checksum is wrong");
    parser->begun = true;
    return 1;
}

int source_tar_next(struct source_tar_parser *parser, struct source_tar_member *ret_member,
                    struct source_tar_fault *ret_fault)
{
    parser->local.has_path = parser->local.has_size = parser->local.sparse = false;
    parser->has_long_name = false;
    bool expects_member = false;
    while (!parser->ended) {
        const uint8_t *header = NULL;
        uint64_t size = 0;
        int rc = header_read(parser, &header, ret_fault);
        if (rc == 0 && expects_member)
            rc = broken(ret_fault, SPDL_CLASS_TRUNCATED, parser->position,
                        "the shard ends behind an extended header, before its member");
        if (rc == 1 && !number(header + SIZE_AT, SIZE_BYTES, &size))
            rc = broken(ret_fault, SPDL_CLASS_CORRUPT, parser->position,
                        "a header's size is no number: what follows is not read");
        uint8_t header_type = rc == 1 ? header[TYPE_AT] : 0;
        if (rc == 1 && is_extended(header_type)) {
            rc = extended_take(parser, header_type, size, ret_fault);
            if (rc == 0) {
                expects_member = header_type != 'g';
                continue;
            }
        } else if (rc == 1) {
            rc = member_take(parser, header, size, ret_member);
        }
        parser->ended = rc != 1 || ret_member->cut;
        return rc;
    }
    return 0;
}
