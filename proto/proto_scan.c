/* A look at a message before it is unpacked (see proto_frame.h): a megabyte of tiny fields that
 * nobody knows would be half a million allocations. Only the way down to the fields that are
 * messages themselves is known here. No role of its own. */
#include <errno.h>

#include "proto/proto_frame.h"

/* Messages inside messages, as in spdl_control.proto. */
enum kind { KIND_NONE, KIND_TO_DAEMON, KIND_OPEN, KIND_PLAN, KIND_FLAT };

enum {
    LEVELS_MAX = 4, /* ToDaemon, PlanRequest, Open, Place */
    FIELD_ID = 1,
    FIELD_OPEN = 3,
    FIELD_RELEASE = 4,
    FIELD_CLOSE = 5,
    FIELD_UNMAPPED = 6,
    FIELD_PLAN = 15,
    PLAN_FIELD_OPEN = 1,
    OPEN_FIELD_PLACE = 7,
    WIRE_VARINT = 0,
    WIRE_64 = 1,
    WIRE_BYTES = 2,
    WIRE_32 = 5
};

struct level {
    size_t end;
    enum kind kind;
};

static enum kind kind_inside(enum kind kind, uint64_t field)
{
    switch (kind) {
    case KIND_TO_DAEMON:
        return field == FIELD_ID     ? KIND_NONE
               : field == FIELD_OPEN ? KIND_OPEN
               : field == FIELD_PLAN ? KIND_PLAN
                                     : KIND_FLAT;
    case KIND_PLAN:
        return field == PLAN_FIELD_OPEN ? KIND_OPEN : KIND_NONE;
    case KIND_OPEN:
        return field == OPEN_FIELD_PLACE ? KIND_FLAT : KIND_NONE;
    case KIND_FLAT:
    case KIND_NONE:
        break;
    }
    return KIND_NONE;
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
    return body == FIELD_RELEASE || body == FIELD_CLOSE || body == FIELD_UNMAPPED;
}

int spdl_proto_scan(const uint8_t *payload, size_t bytes)
{
    struct level levels[LEVELS_MAX] = {{.end = bytes, .kind = KIND_TO_DAEMON}};
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
        enum kind inside = wire == WIRE_BYTES ? kind_inside(level->kind, key >> 3) : KIND_NONE;
        if (top == 0 && (key >> 3) > FIELD_ID && (key >> 3) <= FIELD_PLAN)
            body = key >> 3;
        if (inside != KIND_NONE && top + 1 < LEVELS_MAX)
            levels[++top] = (struct level){.end = at + (size_t)value, .kind = inside};
        else
            at += (size_t)value;
    }
    return is_of_a_stream(body) && bytes > SPDL_PROTO_STREAM_MAX ? -EPROTO : (int)body;
}
