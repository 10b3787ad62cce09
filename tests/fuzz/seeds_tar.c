/* Seeds of shards (more of them, by real programs, are in tests/fuzz/seeds/tar), of their index and
 * of a quarantine. */
#include "tests/fuzz/seeds_tar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/pipeline_quarantine.h"
#include "source/source.h"
#include "tests/lib/tar_maker.h"

static void archive_make(struct tar_maker *maker, int kind)
{
    maker->form = kind == 1 ? TAR_GNU : kind == 2 ? TAR_V7 : TAR_USTAR;
    maker->base_256 = kind == 1;
    tar_text(maker, "a/0.jpg", "picture");
    if (kind == 0) {
        tar_pax(maker, 'g', "comment", "x");
        tar_pax(maker, 'x', "path", "a/0.Seg.PNG");
        tar_pax(maker, 'x', "GNU.sparse.name", "a/9.bin");
        tar_text(maker, "short", "parts");
    }
    if (kind == 1)
        tar_long_name(maker, "a/long.cls");
    tar_text(maker, "a/0.cls", "1");
    tar_text(maker, "a/1.jpg", "more");
    tar_text(maker, "a/1.jpg", "twice");
    tar_header(maker, "a/folder/", '5', 0);
    tar_header(maker, "a/sparse.jpg", 'S', 512);
    if (kind != 2)
        tar_end(maker);
    else
        tar_header(maker, "a/cut.jpg", '0', 5000);
}

static void *file_read(const char *path, size_t *ret_bytes)
{
    enum { ROOM = 1 << 20 };
    FILE *file = fopen(path, "rb");
    void *bytes = malloc(ROOM);
    if (!file || !bytes) {
        perror(path);
        exit(1);
    }
    *ret_bytes = fread(bytes, 1, ROOM, file);
    (void)fclose(file);
    return bytes;
}

/* Indexes of the archives that were written. */
static void indexes_write(const char *root, seed_write *write)
{
    static const char *const patterns[] = {"made-0", "made-?"};
    static struct source_spec spec = {.kind = "tar"};
    for (size_t i = 0; i < 2; i++) {
        struct source *source = NULL;
        struct source_kept kept;
        struct err err = {0};
        char name[16];
        size_t bytes = 0;
        snprintf(spec.path, sizeof spec.path, "%s/tar/%s", root, patterns[i]);
        snprintf(spec.index_dir, sizeof spec.index_dir, "%s/made", root);
        if (source_open(&spec, &source, &err) < 0 || !source_kept(source, &kept)) {
            fprintf(stderr, "%s\n", err.text);
            exit(1);
        }
        void *index = file_read(kept.file, &bytes);
        snprintf(name, sizeof name, "made-%zu", i);
        write("index", name, index, bytes);
        free(index);
        source_close(source);
    }
}

static void quarantine_write(seed_write *write)
{
    struct pipeline_quarantine *list = NULL;
    struct pipeline_quarantined sample = {.key = "a/0",
                                          .key_bytes = 3,
                                          .path = "x.tar",
                                          .class_number = SPDL_CLASS_CORRUPT,
                                          .message = "damaged"};
    uint64_t bytes = 0;
    for (int i = 0; i < 3; i++) {
        sample.offset = (uint64_t)i * 512;
        pipeline_quarantine_note(&list, &sample, 1000);
    }
    void *packed = pipeline_quarantine_pack(list, &bytes);
    if (!packed)
        exit(1);
    write("kept", "three", packed, bytes);
    free(packed);
    pipeline_quarantine_destroy(list);
}

void seeds_tar(const char *root, seed_write *write)
{
    for (int kind = 0; kind < 3; kind++) {
        struct tar_maker maker = {0};
        char name[16];
        archive_make(&maker, kind);
        snprintf(name, sizeof name, "made-%d", kind);
        write("tar", name, maker.bytes, maker.count);
        tar_maker_fini(&maker);
    }
    indexes_write(root, write);
    quarantine_write(write);
}
