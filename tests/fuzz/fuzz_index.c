/* The file of an index of made-up bytes, and every look-up in it. Its sums are made right first, so
 * that what they protect is looked at too. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "source/source_index_file.h"
#include "tests/fuzz/fuzz.h"

/* Places in the head of the file. */
enum { BYTES_AT = 48, SUM_AT = 56, HEAD_SUM_AT = 80, HEAD_BYTES = 88, SAMPLES_MAX = 2000 };

static volatile unsigned looked; /* so that what is looked at is read */

static void require(int condition)
{
    if (!condition)
        abort();
}

static void sums_make(uint8_t *copy, size_t bytes)
{
    uint64_t length = bytes, sum[2];
    if (bytes < HEAD_BYTES)
        return;
    XXH128_hash_t hash = XXH3_128bits(copy + HEAD_BYTES, bytes - HEAD_BYTES);
    sum[0] = hash.high64;
    sum[1] = hash.low64;
    memcpy(copy + BYTES_AT, &length, sizeof length);
    memcpy(copy + SUM_AT, sum, sizeof sum);
    sum[0] = XXH3_64bits(copy, HEAD_SUM_AT);
    memcpy(copy + HEAD_SUM_AT, sum, sizeof *sum);
}

static void touch(const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        looked += (unsigned char)bytes[i];
}

static void block_look(const struct source_block *block)
{
    uint32_t *numbers = NULL, *has = calloc((size_t)block->name_count + 1, sizeof *has);
    require(has != NULL);
    for (uint32_t i = 0; i < block->name_count; i++) {
        const char *name = source_block_name(block, i);
        touch(name, strlen(name));
        has[i] = i % 4;
    }
    uint32_t lacking = source_block_lacking(block, has, 3, &numbers);
    require(lacking <= block->sample_count);
    for (uint32_t i = 1; i < lacking; i++)
        require(numbers[i - 1] < numbers[i]);
    free(numbers);
    free(has);
    for (uint32_t i = 0; i <= block->sample_count && i < SAMPLES_MAX; i++) {
        struct source_sample sample;
        source_block_warm(block, i, i % 2);
        source_block_sample(block, i, &sample);
        require(sample.part_count <= SOURCE_PARTS_MAX);
        touch(sample.key, sample.key_bytes);
        for (uint32_t p = 0; p < sample.part_count; p++)
            touch(sample.parts[p].name, strlen(sample.parts[p].name));
    }
    for (uint32_t i = 0; i <= block->fault_count && i < SAMPLES_MAX; i++) {
        struct source_fault fault;
        source_block_fault(block, i, &fault);
        touch(fault.key, fault.key_bytes);
        touch(fault.message, strlen(fault.message));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static int fd = -1;
    struct source_index_map map;
    uint8_t *copy = malloc(bytes + 1);
    const char *path;
    require(copy != NULL);
    memcpy(copy, data, bytes);
    if (bytes > 0 && data[bytes - 1] != 0xff) /* sometimes they stay wrong */
        sums_make(copy, bytes);
    if (fd < 0)
        fd = memfd_create("fuzz-index", MFD_CLOEXEC);
    require(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    require(pwrite(fd, copy, bytes, 0) == (ssize_t)bytes);
    if (source_index_map_fd(fd, "tar", &map) == 0) {
        for (uint64_t i = 0; i < source_index_map_count(&map); i++) {
            const struct source_index_entry *entry = source_index_map_entry(&map, i, &path);
            touch(path, entry->path_bytes);
            block_look(source_index_map_block(&map, entry));
        }
        source_index_map_close(&map);
    }
    free(copy);
    return 0;
}
