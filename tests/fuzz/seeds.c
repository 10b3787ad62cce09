/* Writes what the fuzzed parsers begin with: right inputs of every kind.
 *
 * usage: fuzz_seeds FOLDER      FOLDER/TARGET/NAME */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "plan/plan.h"
#include "proto/proto_frame.h"
#include "tests/fuzz/seeds_tar.h"
#include "tests/lib/picture_maker.h"

static const char *root;

static void make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        perror(path);
        exit(1);
    }
}

static void write_seed(const char *target, const char *name, const void *data, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", root, target);
    make_folder(path);
    snprintf(path, sizeof path, "%s/%s/%s", root, target, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

static void write_pictures(void)
{
    char name[32];
    for (size_t k = 0; k < picture_kind_count; k++) {
        struct file file = picture_kinds[k].make(&picture_kinds[k], 19, 9, 1);
        snprintf(name, sizeof name, "kind-%zu", k);
        write_seed(picture_kinds[k].codec, name, file.data, file.bytes);
        free(file.data);
    }
    struct file palette = {0};
    png_begin(&palette, 3, 1, 8, 3);
    png_chunk(&palette, "PLTE", "\1\2\3\4\5\6\7\x8\x9", 9);
    png_chunk(&palette, "tRNS", "\0\x80", 2);
    png_pixels(&palette, (const uint8_t *)"\0\1\2", 3, 1);
    png_chunk(&palette, "eXIf", "II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0", 26);
    png_end(&palette);
    write_seed("png", "palette", palette.data, palette.bytes);
    free(palette.data);
    struct bmp_recipe masks = {2,    1,      16, 3, "\0\xf8\0\0\xe0\7\0\0\x1f\0\0\0",
                               NULL, "1234", 12, 0, 4};
    struct file bmp = bmp_make(&masks);
    write_seed("bmp", "masks", bmp.data, bmp.bytes);
    free(bmp.data);
}

static void write_messages(void)
{
    Spdl__V1__Hello hello;
    Spdl__V1__Open open;
    Spdl__V1__Release release;
    Spdl__V1__ToDaemon message;
    struct spdl_proto_out out = {.limit = 1 << 16};
    uint64_t sequences[2] = {1, 2};
    spdl__v1__hello__init(&hello);
    spdl__v1__open__init(&open);
    spdl__v1__release__init(&release);
    spdl__v1__to_daemon__init(&message);
    message.body_case = SPDL__V1__TO_DAEMON__BODY_HELLO;
    message.hello = &hello;
    if (spdl_proto_queue_to_daemon(&out, &message) != 0)
        exit(1);
    write_seed("message", "hello", out.buffer, out.bytes);
    message.body_case = SPDL__V1__TO_DAEMON__BODY_OPEN;
    message.open = &open;
    if (spdl_proto_queue_to_daemon(&out, &message) != 0)
        exit(1);
    release.n_sequences = 2;
    release.sequences = sequences;
    message.body_case = SPDL__V1__TO_DAEMON__BODY_RELEASE;
    message.release = &release;
    if (spdl_proto_queue_to_daemon(&out, &message) != 0)
        exit(1);
    write_seed("message", "several", out.buffer, out.bytes);
    spdl_proto_out_fini(&out);
}

static void write_texts(void)
{
    static const char dataset[] =
        "source: {folder: /a}\nseed: 3\norder: {shuffle: global}\nlast: pad\nfields:\n  image:\n"
        "    from: [jpg, png]\n    decode: image\n    ops:\n      - random_resized_crop: {size: "
        "224, "
        "scale: [0.08, 1]}\n      - random_flip: {p: 0.5}\n    normalize: imagenet\n"
        "    dtype: float32\n    layout: nchw\n  label: {decode: class}\non_error: mask\n";
    static const char preset[] =
        "source: {synthetic: {samples: 10, bytes: 4}}\npreset: clip-eval\n";
    write_seed("config", "fields", dataset, sizeof dataset - 1);
    write_seed("config", "preset", preset, sizeof preset - 1);
    struct plan_state state = {.format = PLAN_STATE_FORMAT,
                               .decode_version = PLAN_DECODE_VERSION,
                               .seed = 7,
                               .epoch = 3,
                               .position = 1000,
                               .step = 10,
                               .batch = 100};
    char text[PLAN_STATE_TEXT_BYTES];
    plan_state_encode(&state, text);
    write_seed("state", "one", text, strlen(text));
    static const char exif[] = "II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0";
    write_seed("exif", "little", exif, sizeof exif);
    write_seed("exif", "named", "Exif\0\0MM\0*\0\0\0\x08\0\0", 16);
}

/* The first byte says the form: fuzz_list.c. */
static void write_lists(void)
{
    static const char csv[] = "\1path,label,caption\na.jpg,0,\"x \"\"y\"\",\nz\"\r\nb.jpg,cat,\n";
    static const char tsv[] = "\3path\tlabel\na.jpg\t0\n\"b\tc\"\t1\n";
    static const char json[] = "\5{\"path\": \"a\\u00e9.jpg\", \"label\": 1, \"m\": [1, {\"x\": "
                               "null}]}\n{\"path\":\"b\",\"t\":-1.5e3}\n";
    write_seed("list", "csv", csv, sizeof csv - 1);
    write_seed("list", "tsv", tsv, sizeof tsv - 1);
    write_seed("list", "json", json, sizeof json - 1);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    root = argv[1];
    make_folder(root);
    write_pictures();
    write_messages();
    write_texts();
    write_lists();
    seeds_tar(root, write_seed);
    return 0;
}
