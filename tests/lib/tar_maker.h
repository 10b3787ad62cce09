/* Tar archives for tests, header by header, so that each form can be made and spoilt. */
#ifndef SPDL_TESTS_TAR_MAKER_H
#define SPDL_TESTS_TAR_MAKER_H

#include <stddef.h>
#include <stdint.h>

enum tar_form { TAR_USTAR, TAR_GNU, TAR_V7 };

struct tar_maker {
    uint8_t *bytes;
    size_t count, room;
    enum tar_form form; /* of the headers that are made */
    int base_256;       /* 1: sizes are written so */
};

void tar_maker_fini(struct tar_maker *maker);

/* A header alone: `size` stands in it. Names above 100 bytes are split for ustar, else cut. Returns
 * where it begins. */
size_t tar_header(struct tar_maker *maker, const char *name, char type, uint64_t size);
void tar_sum(struct tar_maker *maker, size_t header); /* writes its checksum anew */
void tar_data(struct tar_maker *maker, const void *data, size_t bytes); /* with padding */
/* A regular file. */
void tar_file(struct tar_maker *maker, const char *name, const void *data, size_t bytes);
void tar_text(struct tar_maker *maker, const char *name, const char *text);
void tar_pax(struct tar_maker *maker, char type, const char *key, const char *value);
void tar_long_name(struct tar_maker *maker, const char *name); /* GNU's; for the next header */
void tar_end(struct tar_maker *maker);                         /* two blocks of zeros */
void tar_write(const struct tar_maker *maker, const char *path);

#endif
