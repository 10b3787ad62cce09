/* Text that grows, is made safe for a terminal, and is written in one piece. */
#include "client/ctl/ctl_text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void ctl_text_fini(struct ctl_text *text)
{
    free(text->data);
    *text = (struct ctl_text){0};
}

void ctl_text_clear(struct ctl_text *text)
{
    text->bytes = 0;
    text->failed = false;
}

/* Room for `more` bytes behind what is there, or NULL. */
static char *text_room(struct ctl_text *text, size_t more)
{
    if (text->failed || more > SIZE_MAX / 4 || text->bytes > SIZE_MAX / 4) {
        text->failed = true;
        return NULL;
    }
    if (text->capacity - text->bytes < more) {
        size_t capacity = text->capacity < 1024 ? 1024 : text->capacity;
        while (capacity - text->bytes < more)
            capacity *= 2;
        char *data = realloc(text->data, capacity);
        if (!data) {
            text->failed = true;
            return NULL;
        }
        text->data = data;
        text->capacity = capacity;
    }
    return text->data + text->bytes;
}

void ctl_text_put(struct ctl_text *text, const void *data, size_t bytes)
{
    char *at = bytes ? text_room(text, bytes) : NULL;
    if (!at)
        return;
    memcpy(at, data, bytes);
    text->bytes += bytes;
}

void ctl_text_str(struct ctl_text *text, const char *string)
{
    ctl_text_put(text, string, strlen(string));
}

__attribute__((format(printf, 2, 0))) static void text_vprintf(struct ctl_text *text,
                                                               const char *format, va_list list)
{
    va_list again;
    va_copy(again, list);
    int length = vsnprintf(NULL, 0, format, list);
    char *at = length < 0 ? NULL : text_room(text, (size_t)length + 1);
    if (at) {
        vsnprintf(at, (size_t)length + 1, format, again);
        text->bytes += (size_t)length;
    }
    va_end(again);
}

void ctl_text_printf(struct ctl_text *text, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    text_vprintf(text, format, list);
    va_end(list);
}

size_t ctl_utf8_sequence(const uint8_t *data, size_t bytes, uint32_t *ret_code_point)
{
    if (bytes == 0)
        return 0;
    uint32_t lead = data[0];
    if (lead < 0x80) {
        *ret_code_point = lead;
        return 1;
    }
    size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || bytes < length)
        return 0;
    uint32_t code = lead & (0x7fU >> length);
    for (size_t i = 1; i < length; i++) {
        if ((data[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (data[i] & 0x3fU);
    }
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < smallest[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 0;
    *ret_code_point = code;
    return length;
}

void ctl_text_safe(struct ctl_text *text, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    while (bytes > 0) {
        uint32_t code = 0;
        size_t length = ctl_utf8_sequence(at, bytes, &code);
        bool shown = length > 0 && code >= 0x20 && (code < 0x7f || code > 0x9f);
        /* Marks that turn the direction of writing can make a name look like another one. */
        if ((code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069))
            shown = false;
        if (shown) {
            ctl_text_put(text, at, length);
        } else {
            length = length ? length : 1;
            for (size_t i = 0; i < length; i++)
                ctl_text_printf(text, "\\x%02x", (unsigned)at[i]);
        }
        at += length;
        bytes -= length;
    }
}

void ctl_text_column(struct ctl_text *text, const char *string, size_t columns)
{
    struct ctl_text safe = {0};
    ctl_text_safe(&safe, string, strlen(string));
    size_t width = 0;
    for (size_t i = 0; i < safe.bytes; i++)
        width += (safe.data[i] & 0xc0) != 0x80;
    size_t skip = width > columns ? width - columns + 2 : 0;
    if (skip)
        ctl_text_str(text, "..");
    size_t at = 0;
    for (size_t seen = 0; at < safe.bytes; at++) {
        bool begins = (safe.data[at] & 0xc0) != 0x80;
        if (begins && seen++ >= skip)
            break;
    }
    ctl_text_put(text, safe.data ? safe.data + at : "", safe.bytes - at);
    for (; width < columns; width++)
        ctl_text_str(text, " ");
    ctl_text_fini(&safe);
}

int ctl_text_write(const struct ctl_text *text, int fd)
{
    if (text->failed)
        return -ENOMEM;
    for (size_t done = 0; done < text->bytes;) {
        ssize_t written = write(fd, text->data + done, text->bytes - done);
        if (written < 0 && errno != EINTR)
            return -errno;
        if (written > 0)
            done += (size_t)written;
    }
    return 0;
}

__attribute__((format(printf, 1, 0))) static void text_say(const char *format, va_list list)
{
    struct ctl_text raw = {0}, line = {0};
    text_vprintf(&raw, format, list);
    ctl_text_str(&line, "spdlctl: ");
    const char *at = raw.data;
    for (size_t left = raw.bytes; left > 0;) {
        const char *end = memchr(at, '\n', left);
        size_t bytes = end ? (size_t)(end - at) : left;
        ctl_text_safe(&line, at, bytes);
        ctl_text_str(&line, "\n");
        bytes += end ? 1 : 0;
        at += bytes;
        left -= bytes;
    }
    if (raw.bytes == 0)
        ctl_text_str(&line, "\n");
    ctl_text_write(&line, STDERR_FILENO);
    ctl_text_fini(&raw);
    ctl_text_fini(&line);
}

int ctl_fail(int code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    text_say(format, list);
    va_end(list);
    return code;
}

void ctl_warn(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    text_say(format, list);
    va_end(list);
}
