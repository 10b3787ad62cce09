/* Tar archives for tests: see tar_maker.h. */
#include "tests/lib/tar_maker.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 512 };

static uint8_t *more(struct tar_maker *maker, size_t bytes)
{
    size_t padded = (bytes + BLOCK - 1) / BLOCK * BLOCK;
    if (maker->count + padded > maker->room) {
        maker->room = (maker->count + padded) * 2;
        maker->bytes = realloc(maker->bytes, maker->room);
        if (!maker->bytes)
            abort();
    }
    uint8_t *at = maker->bytes + maker->count;
    memset(at, 0, padded);
    maker->count += padded;
    return at;
}

void tar_maker_fini(struct tar_maker *maker)
{
    free(maker->bytes);
    *maker = (struct tar_maker){0};
}

static void name_put(const struct tar_maker *maker, uint8_t *at, const char *name)
{
    size_t bytes = strlen(name);
    const char *rest = name;
    if (bytes > 100 && maker->form == TAR_USTAR) {
        const char *slash = strchr(name + bytes - 101, '/');
        if (slash && slash - name <= 155) {
            memcpy(at + 345, name, (size_t)(slash - name));
            rest = slash + 1;
        }
    }
    bytes = strlen(rest);
    memcpy(at, rest, bytes < 100 ? bytes : 100);
}

void tar_sum(struct tar_maker *maker, size_t header)
{
    uint8_t *at = maker->bytes + header;
    uint32_t sum = 0;
    memset(at + 148, ' ', 8);
    for (int i = 0; i < BLOCK; i++)
        sum += at[i];
    snprintf((char *)at + 148, 8, "%06o", sum);
}

size_t tar_header(struct tar_maker *maker, const char *name, char type, uint64_t size)
{
    size_t header = maker->count;
    uint8_t *at = more(maker, BLOCK);
    name_put(maker, at, name);
    memcpy(at + 100, "0000644\0000001750\0000001750", 24);
    if (maker->base_256) {
        at[124] = 0x80;
        for (int i = 0; i < 8; i++)
            at[135 - i] = (uint8_t)(size >> 8 * i);
    } else {
        char text[16];
        snprintf(text, sizeof text, "%011llo", (unsigned long long)(size & 077777777777));
        memcpy(at + 124, text, 12);
    }
    memcpy(at + 136, "14524000000", 12);
    at[156] = (uint8_t)type;
    if (maker->form == TAR_USTAR)
        memcpy(at + 257, "ustar\00000", 8);
    else if (maker->form == TAR_GNU)
        memcpy(at + 257, "ustar  ", 8);
    tar_sum(maker, header);
    return header;
}

void tar_data(struct tar_maker *maker, const void *data, size_t bytes)
{
    if (bytes > 0)
        memcpy(more(maker, bytes), data, bytes);
}

void tar_file(struct tar_maker *maker, const char *name, const void *data, size_t bytes)
{
    tar_header(maker, name, '0', bytes);
    tar_data(maker, data, bytes);
}

void tar_text(struct tar_maker *maker, const char *name, const char *text)
{
    tar_file(maker, name, text, strlen(text));
}

void tar_pax(struct tar_maker *maker, char type, const char *key, const char *value)
{
    char *record = NULL;
    size_t length = strlen(key) + strlen(value) + 4;
    while (snprintf(NULL, 0, "%zu %s=%s\n", length, key, value) != (int)length)
        length++;
    if (asprintf(&record, "%zu %s=%s\n", length, key, value) < 0)
        abort();
    tar_header(maker, "PaxHeaders/0", type, length);
    tar_data(maker, record, length);
    free(record);
}

void tar_long_name(struct tar_maker *maker, const char *name)
{
    tar_header(maker, "././@LongLink", 'L', strlen(name) + 1);
    tar_data(maker, name, strlen(name) + 1);
}

void tar_end(struct tar_maker *maker)
{
    more(maker, 2 * BLOCK);
}

void tar_write(const struct tar_maker *maker, const char *path)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, maker->bytes, maker->count) != (ssize_t)maker->count)
        abort();
    close(fd);
}
