/* Frames of the control socket and the messages in them, both ways, from made-up bytes. */
#include <stdlib.h>
#include <string.h>

#include "proto/proto_frame.h"
#include "tests/fuzz/fuzz.h"

/* What can be read can be written, in as many bytes as it says. */
static void unpack(const uint8_t *payload, size_t bytes)
{
    Spdl__V1__ToDaemon *up = spdl__v1__to_daemon__unpack(NULL, bytes, payload);
    int body = spdl_proto_scan(payload, bytes);
    if (up != NULL && bytes <= SPDL_PROTO_FIELDS_MAX && body != (int)up->body_case)
        abort();
    if (up != NULL) {
        size_t bytes_wanted = spdl__v1__to_daemon__get_packed_size(up);
        uint8_t *packed = malloc(bytes_wanted + 1);
        if (packed == NULL || spdl__v1__to_daemon__pack(up, packed) != bytes_wanted)
            abort();
        spdl__v1__to_daemon__free_unpacked(up, NULL);
        free(packed);
    }
    Spdl__V1__ToClient *down = spdl__v1__to_client__unpack(NULL, bytes, payload);
    if (down != NULL)
        spdl__v1__to_client__free_unpacked(down, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct spdl_proto_in in = {.buffer = malloc(bytes + 1), .capacity = bytes + 1, .bytes = bytes};
    const uint8_t *payload;
    size_t count;
    if (in.buffer == NULL)
        abort();
    memcpy(in.buffer, data, bytes);
    while (spdl_proto_next(&in, &payload, &count) > 0) {
        if (payload < in.buffer || count > (size_t)(in.buffer + in.capacity - payload))
            abort();
        unpack(payload, count);
        spdl_proto_next_done(&in);
    }
    spdl_proto_in_fini(&in);
    return 0;
}
