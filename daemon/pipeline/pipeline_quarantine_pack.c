/* A quarantine's list as bytes that are kept in a file, and back:
 *
 *   count | count times: record, key, path, message | …
 *
 * Numbers are those of the machine. What comes back is checked as if anybody had written it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/pipeline_quarantine.h"

struct record {
    uint64_t offset, fault, count;
    int64_t first_s, last_s;
    uint32_t class_number, key_bytes, path_bytes, message_bytes;
};

static char *put(char *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return to + bytes;
}

void *pipeline_quarantine_pack(const struct pipeline_quarantine *list, uint64_t *ret_bytes)
{
    const uint32_t count = pipeline_quarantine_count(list);
    struct pipeline_quarantined sample;
    uint64_t bytes = sizeof count;
    for (uint32_t i = 0; i < count; i++) {
        pipeline_quarantine_at(list, i, &sample);
        bytes +=
            sizeof(struct record) + sample.key_bytes + strlen(sample.path) + strlen(sample.message);
    }
    char *packed = malloc(bytes);
    if (!packed)
        return NULL;
    char *to = put(packed, &count, sizeof count);
    for (uint32_t i = 0; i < count; i++) {
        pipeline_quarantine_at(list, i, &sample);
        struct record record = {.offset = sample.offset,
                                .fault = sample.fault,
                                .count = sample.count,
                                .first_s = sample.first_s,
                                .last_s = sample.last_s,
                                .class_number = sample.class_number,
                                .key_bytes = sample.key_bytes,
                                .path_bytes = (uint32_t)strlen(sample.path),
                                .message_bytes = (uint32_t)strlen(sample.message)};
        to = put(to, &record, sizeof record);
        to = put(to, sample.key, record.key_bytes);
        to = put(to, sample.path, record.path_bytes);
        to = put(to, sample.message, record.message_bytes);
    }
    *ret_bytes = bytes;
    return packed;
}

/* A text of its own with a final 0; letters alone where it is for people. */
static bool text_take(char *to, size_t room, const char *from, uint32_t bytes, bool printable)
{
    if (bytes >= room || memchr(from, 0, bytes))
        return false;
    memcpy(to, from, bytes);
    to[bytes] = 0;
    for (uint32_t i = 0; printable && i < bytes; i++)
        if ((unsigned char)to[i] < ' ' || (unsigned char)to[i] > '~')
            to[i] = '?';
    return true;
}

int pipeline_quarantine_unpack(const void *bytes, uint64_t count,
                               struct pipeline_quarantine **ret_list)
{
    static const size_t PATH_ROOM = 65536;
    const char *at = bytes;
    uint32_t samples;
    int rc = 0;
    *ret_list = NULL;
    if (count < sizeof samples)
        return -EBADMSG;
    memcpy(&samples, at, sizeof samples);
    at += sizeof samples;
    count -= sizeof samples;
    char message[PIPELINE_QUARANTINE_MESSAGE_BYTES], *path = malloc(PATH_ROOM);
    if (!path)
        return -ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < samples; i++) {
        struct record record;
        if (i == PIPELINE_QUARANTINE_MAX || count < sizeof record) {
            rc = -EBADMSG;
            break;
        }
        memcpy(&record, at, sizeof record);
        at += sizeof record;
        count -= sizeof record;
        uint64_t texts = (uint64_t)record.key_bytes + record.path_bytes + record.message_bytes;
        if (texts > count || record.class_number >= SPDL_CLASS_COUNT || record.count == 0 ||
            !text_take(path, PATH_ROOM, at + record.key_bytes, record.path_bytes, false) ||
            !text_take(message, sizeof message, at + record.key_bytes + record.path_bytes,
                       record.message_bytes, true)) {
            rc = -EBADMSG;
            break;
        }
        struct pipeline_quarantined sample = {.key = at,
                                              .key_bytes = record.key_bytes,
                                              .path = path,
                                              .offset = record.offset,
                                              .fault = record.fault,
                                              .class_number = (enum spdl_class)record.class_number,
                                              .message = message,
                                              .count = record.count,
                                              .first_s = record.first_s,
                                              .last_s = record.last_s};
        pipeline_quarantine_add(ret_list, &sample);
        at += texts;
        count -= texts;
    }
    free(path);
    if (rc == 0 && count > 0)
        rc = -EBADMSG;
    if (rc < 0) {
        pipeline_quarantine_destroy(*ret_list);
        *ret_list = NULL;
    }
    return rc;
}
