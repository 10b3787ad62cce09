/* A tar archive of made-up bytes: header after header, and the whole of it into a block as an index
 * keeps it. Whatever it is, each part lies inside the archive, each fault too, and a second reading
 * gives the same. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "item/class.h"
#include "source/source_tar.h"
#include "source/source_tar_parse.h"
#include "tests/fuzz/fuzz.h"

enum { ROOM = 1 << 20 };
static const uint8_t *archive;

static void require(int condition)
{
    if (!condition)
        abort();
}

static int memory_read(void *context, uint64_t offset, void *into, size_t bytes)
{
    const size_t *room = context;
    require(offset <= *room && bytes <= *room - offset);
    memcpy(into, archive + offset, bytes);
    return 0;
}

static void parse(size_t bytes)
{
    struct source_tar_input input = {.read = memory_read, .context = &bytes, .bytes = bytes};
    struct source_tar_parser *parser = source_tar_create(&input);
    struct source_tar_member member;
    struct source_tar_fault fault;
    uint64_t last = 0;
    int rc;
    require(parser != NULL);
    while ((rc = source_tar_next(parser, &member, &fault)) == 1) {
        require(member.header_offset >= last && member.header_offset % 512 == 0);
        require(member.data_offset % 512 == 0 && member.data_offset <= bytes);
        require(member.cut || member.bytes <= bytes - member.data_offset);
        require(member.path_bytes <= SOURCE_TAR_PATH_MAX && !member.path[member.path_bytes]);
        last = member.header_offset + 512;
    }
    if (rc < 0)
        require(fault.offset <= bytes && fault.message && fault.path &&
                (fault.class_number == SPDL_CLASS_TRUNCATED ||
                 fault.class_number == SPDL_CLASS_CORRUPT));
    source_tar_destroy(parser);
}

static void block_check(const struct source_block *block, size_t bytes)
{
    static const uint32_t has[1] = {1};
    uint32_t *numbers = NULL;
    require(source_block_check(block, block->bytes));
    for (uint32_t i = 0; i < block->sample_count; i++) {
        struct source_sample sample;
        source_block_sample(block, i, &sample);
        require(sample.part_count > 0 && sample.key_bytes <= SOURCE_KEY_BYTES);
        for (uint32_t p = 0; p < sample.part_count; p++) {
            const struct source_part *part = &sample.parts[p];
            require(part->offset <= bytes && part->bytes <= bytes - part->offset);
            require(part->name[0] != 0);
            for (uint32_t q = 0; q < p; q++)
                require(strcmp(part->name, sample.parts[q].name) != 0);
        }
    }
    for (uint32_t i = 0; i < block->fault_count; i++) {
        struct source_fault fault;
        source_block_fault(block, i, &fault);
        require(fault.class_number > 0 && fault.class_number < SPDL_CLASS_COUNT);
        require(fault.offset <= bytes && fault.message[0]);
    }
    if (block->name_count == 1) {
        require(source_block_lacking(block, has, 1, &numbers) == 0);
        free(numbers);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static int fd = -1;
    struct source_block *block = NULL, *again = NULL;
    struct err err = {0};
    if (bytes > ROOM)
        return 0;
    if (fd < 0)
        fd = memfd_create("fuzz-tar", MFD_CLOEXEC);
    archive = data;
    parse(bytes);
    require(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    require(pwrite(fd, data, bytes, 0) == (ssize_t)bytes);
    struct source_progress progress = {0};
    require(source_tar_build(fd, bytes, &progress, &block, &err) == 0);
    require(source_tar_build(fd, bytes, NULL, &again, &err) == 0);
    require(progress.bytes_done == bytes);
    block_check(block, bytes);
    require(block->bytes == again->bytes && memcmp(block, again, block->bytes) == 0);
    free(block);
    free(again);
    return 0;
}
