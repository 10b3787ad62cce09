/* A look at a message before it is unpacked (see proto_frame.h): a megabyte of tiny fields that
 * nobody knows would be half a million allocations. No role of its own. */
#include <errno.h>

#include "proto/proto_frame.h"

enum {
    LEVELS_MAX = 8, /* messages in messages in messages … */
    WIRE_VARINT = 0,
    WIRE_64 = 1,
    WIRE_BYTES = 2,
    WIRE_32 = 5
};

struct level {
    size_t end;
    const ProtobufCMessageDescriptor *kind;
};

/* The message that is inside a field; NULL: none, or nobody knows the field. */
static const ProtobufCMessageDescriptor *kind_inside(const ProtobufCMessageDescriptor *kind,
                                                     uint64_t field)
{
    const ProtobufCFieldDescriptor *found =
        field <= UINT32_MAX ? protobuf_c_message_descriptor_get_field(kind, (unsigned)field) : NULL;
    return found && found->type == PROTOBUF_C_TYPE_MESSAGE ? found->descriptor : NULL;
}

/* A varint before `end`. */
static int varint(const uint8_t *data, size_t *at, size_t end, uint64_t *ret_value)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
        uint8_t byte = data[(*at)++];
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *ret_value = value;
            return 0;
        }
    }
    return -EPROTO;
}

/* How many bytes the value of a field has from *at on; a length in front of it is taken. */
static int value_bytes(const uint8_t *data, size_t *at, size_t end, unsigned wire,
                       uint64_t *ret_bytes)
{
    uint64_t ignored;
    int rc = 0;
    *ret_bytes = 0;
    if (wire == WIRE_VARINT)
        rc = varint(data, at, end, &ignored);
    else if (wire == WIRE_BYTES)
        rc = varint(data, at, end, ret_bytes);
    else if (wire == WIRE_64 || wire == WIRE_32)
        *ret_bytes = wire == WIRE_64 ? 8 : 4;
    else
        rc = -EPROTO;
    return rc == 0 && *ret_bytes > end - *at ? -EPROTO : rc;
}

static int is_of_a_stream(uint64_t body)
{
    return body == SPDL__V1__TO_DAEMON__BODY_RELEASE || body == SPDL__V1__TO_DAEMON__BODY_CLOSE ||
           body == SPDL__V1__TO_DAEMON__BODY_UNMAPPED;
}

int spdl_proto_scan(const uint8_t *payload, size_t bytes)
{
    struct level levels[LEVELS_MAX] = {{.end = bytes, .kind = &spdl__v1__to_daemon__descriptor}};
    size_t at = 0;
    uint64_t key, body = 0, value;
    unsigned top = 0, count = 0;
    while (at < bytes) {
        while (at == levels[top].end)
            top--; /* the outermost ends with the bytes */
        const struct level *level = &levels[top];
        if (varint(payload, &at, level->end, &key) < 0 || ++count > SPDL_PROTO_FIELDS_MAX)
            return -EPROTO;
        unsigned wire = (unsigned)(key & 7);
        if (value_bytes(payload, &at, level->end, wire, &value) < 0)
            return -EPROTO;
        const ProtobufCMessageDescriptor *inside =
            wire == WIRE_BYTES ? kind_inside(level->kind, key >> 3) : NULL;
        if (inside && top == 0)
            body = key >> 3;
        if (inside && top + 1 == LEVELS_MAX)
            return -EPROTO;
        if (inside)
            levels[++top] = (struct level){.end = at + (size_t)value, .kind = inside};
        else
            at += (size_t)value;
    }
    return is_of_a_stream(body) && bytes > SPDL_PROTO_STREAM_MAX ? -EPROTO : (int)body;
}
