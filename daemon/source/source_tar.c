/* Tar shards, as WebDataset writes them.
 *
 * The shards are the files that paths and patterns name, in byte order of their paths. A sample is
 * all the regular members of one shard that have its key: the member's path up to the first dot of
 * its base name. What is behind that dot, in lower case, names the part. Members of one sample need
 * not stand together. Samples are numbered shard by shard, in the order in which their first
 * members stand; the same key in two shards is two samples. Folders, links, devices, members
 * without a dot and hidden ones are ignored and counted.
 *
 * What is broken is left out and listed: a sample that has a part twice (DUPLICATE), one that the
 * end of its shard cuts (TRUNCATED), one with a sparse part (UNSUPPORTED), one beyond a limit
 * (LIMIT), one that lacks a part which a field needs (INCOMPLETE); what is behind a damaged header
 * (CORRUPT); a compressed shard (UNSUPPORTED); an empty file (EMPTY).
 *
 * The id is the hash of "spdl-tar 1\n", then for each shard of its size, its samples and the hash
 * of their keys and parts (docs/order.md). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/assert.h"
#include "item/class.h"
#include "source/source.h"
#include "source/source_index.h"
#include "source/source_need.h"
#include "source/source_reasons.h"
#include "source/source_tar.h"
#include "source/source_tar_parse.h"

extern const struct source_ops source_tar_ops;

enum { SHARD_NAMES_MAX = 64 }; /* names of a shard's parts that are looked at for part_names */
static const uint64_t SHARD_BYTES_MAX = (uint64_t)UINT32_MAX * SOURCE_BLOCK_UNIT;

/* Samples of a shard that lack a part which a field needs: they have no id. */
struct lacking {
    uint32_t *numbers; /* in the shard's block, ascending */
    uint32_t count;
};

struct source_tar {
    struct source source;
    struct source_index *index;
    int root_fd; /* "/" */
    struct source_need need;
    struct lacking *lacking; /* of each shard */
    uint64_t *first_samples; /* of each shard, and behind the last */
    uint64_t *first_faults;
    uint32_t name_count;
    const char *names[FIELD_MAX];
};

/* --- one shard --- */

/* A shard that is read, and how far. */
struct shard_reader {
    int fd;
    struct source_progress *progress; /* or NULL */
    uint64_t position;
};

static void reader_goes_on(struct shard_reader *reader, uint64_t position)
{
    if (!reader->progress || position <= reader->position)
        return;
    atomic_fetch_add_explicit(&reader->progress->bytes_done, position - reader->position,
                              memory_order_relaxed);
    reader->position = position;
}

static int shard_bytes_read(void *context, uint64_t offset, void *into, size_t bytes)
{
    struct shard_reader *reader = context;
    reader_goes_on(reader, offset);
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(reader->fd, (char *)into + done, bytes - done, (off_t)(offset + done));
        if (got > 0)
            done += (size_t)got;
        else if (got == 0)
            return -ENODATA;
        else if (errno != EINTR)
            return -errno;
    }
    return 0;
}

/* The sentence for a shard that is compressed; NULL: it is not. */
static const char *compression(const uint8_t *head, size_t bytes)
{
    static const struct {
        const char *magic;
        size_t bytes;
        const char *message;
    } kinds[] = {
        {"\x1f\x8b", 2, "it is compressed (gzip), which is not supported: unpack it"},
        {"\x28\xb5\x2f\xfd", 4, "it is compressed (zstd), which is not supported: unpack it"},
        {"BZh", 3, "it is compressed (bzip2), which is not supported: unpack it"},
        {"\xfd"
         "7zXZ",
         6, "it is compressed (xz), which is not supported: unpack it"},
        {"\x04\x22\x4d\x18", 4, "it is compressed (lz4), which is not supported: unpack it"}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (bytes >= kinds[i].bytes && memcmp(head, kinds[i].magic, kinds[i].bytes) == 0)
            return kinds[i].message;
    return NULL;
}

static int member_add(struct source_builder *builder, const struct source_tar_member *member)
{
    struct source_builder_member part = {.path = member->path,
                                         .path_bytes = member->path_bytes,
                                         .header_offset = member->header_offset,
                                         .data_offset = member->data_offset,
                                         .bytes = member->bytes};
    if (member->kind == SOURCE_TAR_OTHER && !member->cut) {
        source_builder_ignore(builder);
        return 0;
    }
    if (member->cut) {
        part.class_number = SPDL_CLASS_TRUNCATED;
        part.message = "the shard ends inside the part %s";
    } else if (member->kind == SOURCE_TAR_SPARSE) {
        part.class_number = SPDL_CLASS_UNSUPPORTED;
        part.message = "the part %s is a sparse file (tar --sparse), which is not supported";
    } else if (member->long_path) {
        part.class_number = SPDL_CLASS_LIMIT;
        part.message = "the path of a member is longer than 4096 bytes";
    }
    return source_builder_member(builder, &part);
}

static int members_read(struct source_tar_parser *parser, struct source_builder *builder)
{
    struct source_tar_member member;
    struct source_tar_fault fault;
    int rc;
    while ((rc = source_tar_next(parser, &member, &fault)) == 1) {
        rc = member_add(builder, &member);
        if (rc < 0)
            return rc;
    }
    if (rc == -EBADMSG && fault.class_number == SPDL_CLASS_TRUNCATED)
        rc = source_builder_cut(builder, fault.offset, fault.path, fault.message);
    else if (rc == -EBADMSG)
        rc = source_builder_fault(builder, fault.class_number, fault.offset, fault.message);
    return rc;
}

static int shard_fill(struct shard_reader *reader, uint64_t bytes, struct source_builder *builder,
                      struct err *reterr)
{
    uint8_t head[8];
    size_t head_bytes = bytes < sizeof head ? (size_t)bytes : sizeof head;
    int rc = shard_bytes_read(reader, 0, head, head_bytes);
    if (rc < 0)
        return rc;
    const char *compressed = compression(head, head_bytes);
    if (compressed)
        return source_builder_fault(builder, SPDL_CLASS_UNSUPPORTED, 0, compressed);
    if (bytes == 0)
        return source_builder_fault(builder, SPDL_CLASS_EMPTY, 0, "the file is empty");
    struct source_tar_input input = {.read = shard_bytes_read, .context = reader, .bytes = bytes};
    struct source_tar_parser *parser = source_tar_create(&input);
    rc = parser ? members_read(parser, builder) : -ENOMEM;
    source_tar_destroy(parser);
    if (rc == -ENODATA)
        err_set(reterr, rc, "it became shorter while it was read");
    else if (rc == -EFBIG)
        err_set(reterr, rc, "it has more samples than an index can hold: split it");
    return rc;
}

int source_tar_build(int fd, uint64_t bytes, struct source_progress *progress,
                     struct source_block **ret_block, struct err *reterr)
{
    struct shard_reader reader = {.fd = fd, .progress = progress};
    if (bytes > SHARD_BYTES_MAX)
        return err_set(reterr, -EFBIG, "it is larger than 2 TiB: split it");
    struct source_builder *builder = source_builder_create();
    int rc = builder ? shard_fill(&reader, bytes, builder, reterr) : -ENOMEM;
    if (rc == 0) {
        *ret_block = source_builder_finish(builder);
        rc = *ret_block ? 0 : -ENOMEM;
    }
    source_builder_destroy(builder);
    reader_goes_on(&reader, bytes);
    return rc;
}

/* --- all of them --- */

static void tar_close(struct source *source)
{
    struct source_tar *tar = (struct source_tar *)source;
    for (uint32_t i = 0; tar->lacking && i < tar->index->shard_count; i++)
        free(tar->lacking[i].numbers);
    free(tar->lacking);
    source_need_fini(&tar->need);
    source_index_close(tar->index);
    if (tar->root_fd >= 0)
        close(tar->root_fd);
    free(tar->first_samples);
    free(tar->first_faults);
    free(tar);
}

static void names_join(struct source_tar *tar, const struct source_block *block)
{
    for (uint32_t i = 0; i < block->name_count && i < SHARD_NAMES_MAX; i++) {
        const char *name = source_block_name(block, i);
        uint32_t n = 0;
        while (n < tar->name_count && strcmp(tar->names[n], name) != 0)
            n++;
        if (n == tar->name_count && n < FIELD_MAX)
            tar->names[tar->name_count++] = name;
    }
}

/* Finds the samples of a shard that lack something. */
static int lacking_find(struct source_tar *tar, uint32_t shard)
{
    const struct source_block *block = tar->index->shards[shard].block;
    struct lacking *lacking = &tar->lacking[shard];
    if (tar->need.all == 0 || block->name_count == 0)
        return 0;
    uint32_t *has = calloc(block->name_count, sizeof *has);
    if (!has)
        return -ENOMEM;
    for (uint32_t i = 0; i < block->name_count; i++)
        has[i] = source_need_bits(&tar->need, source_block_name(block, i));
    uint32_t count = source_block_lacking(block, has, tar->need.all, &lacking->numbers);
    free(has);
    if (count == UINT32_MAX)
        return -ENOMEM;
    lacking->count = count;
    return 0;
}

/* The number in the shard's block of the sample that is number `at` of those that lack nothing. */
static uint32_t number_of(const struct lacking *lacking, uint32_t at)
{
    uint32_t low = 0, high = lacking->count;
    while (low < high) { /* how many that lack something stand before it */
        uint32_t middle = low + (high - low) / 2;
        if (lacking->numbers[middle] - middle <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return at + low;
}

static void lacking_fault(const struct source_tar *tar, const struct source_block *block,
                          uint32_t number, struct source_fault *ret_fault)
{
    struct source_sample sample;
    uint32_t bits = 0;
    source_block_sample(block, number, &sample);
    for (uint32_t i = 0; i < sample.part_count; i++)
        bits |= source_need_bits(&tar->need, sample.parts[i].name);
    *ret_fault = (struct source_fault){.class_number = SPDL_CLASS_INCOMPLETE,
                                       .key = sample.key,
                                       .key_bytes = sample.key_bytes,
                                       .message = source_need_message(&tar->need, bits)};
    if (sample.part_count > 0)
        ret_fault->offset = sample.parts[0].offset - SOURCE_BLOCK_UNIT; /* its header */
}

/* Sums over the shards, and the id. */
static int take_measure(struct source_tar *tar)
{
    static const char head[] = "spdl-tar 1\n";
    struct source_counts *counts = &tar->source.counts;
    ASSERT(tar->index);
    uint32_t shard_count = tar->index->shard_count;
    tar->first_samples = calloc((size_t)shard_count + 1, sizeof *tar->first_samples);
    tar->first_faults = calloc((size_t)shard_count + 1, sizeof *tar->first_faults);
    tar->lacking = calloc((size_t)shard_count + 1, sizeof *tar->lacking);
    XXH3_state_t *state = XXH3_createState();
    int rc = tar->first_samples && tar->first_faults && tar->lacking && state ? 0 : -ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < shard_count; i++)
        rc = lacking_find(tar, i);
    if (rc < 0) {
        XXH3_freeState(state);
        return rc;
    }
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, head, sizeof head - 1);
    for (uint32_t i = 0; i < shard_count; i++) {
        const struct source_index_shard *shard = &tar->index->shards[i];
        const struct source_block *block = shard->block;
        const uint32_t samples = block->sample_count - tar->lacking[i].count;
        char text[96];
        int bytes =
            snprintf(text, sizeof text, "%" PRIu64 " %" PRIu32 " %016" PRIx64 "%016" PRIx64 "\n",
                     shard->bytes, samples, block->digest_high, block->digest_low);
        XXH3_128bits_update(state, text, (size_t)bytes);
        counts->samples += samples;
        counts->broken += block->fault_count + tar->lacking[i].count;
        counts->ignored += block->ignored;
        if (block->largest_bytes > counts->largest_bytes)
            counts->largest_bytes = block->largest_bytes;
        if (block->longest_key_bytes > counts->longest_key_bytes)
            counts->longest_key_bytes = block->longest_key_bytes;
        tar->first_samples[i + 1] = counts->samples;
        tar->first_faults[i + 1] = counts->broken;
        names_join(tar, block);
    }
    counts->shards = shard_count;
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    tar->source.id_high = hash.high64;
    tar->source.id_low = hash.low64;
    return 0;
}

static const char *tar_damaged(const struct source *source)
{
    return source_index_damaged(((const struct source_tar *)source)->index, "tar");
}

static int tar_open(const struct source_spec *spec, struct source **ret_source, struct err *reterr)
{
    if (!memchr(spec->path, 0, sizeof spec->path) ||
        !memchr(spec->index_dir, 0, sizeof spec->index_dir))
        return err_set(reterr, -EINVAL, "tar: its paths are longer than %d bytes",
                       SOURCE_PATH_BYTES - 1);
    struct source_tar *tar = calloc(1, sizeof *tar);
    if (!tar)
        return err_set(reterr, -ENOMEM, "tar: no memory");
    tar->source.ops = &source_tar_ops;
    tar->root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct source_index_params params = {.kind = "tar",
                                         .patterns = spec->path,
                                         .dir = spec->index_dir,
                                         .progress = spec->progress,
                                         .build = source_tar_build};
    int rc = tar->root_fd < 0 ? err_set(reterr, -errno, "tar: /: %s", strerror(errno))
                              : source_index_open(&params, &tar->index, reterr);
    if (rc == 0) {
        rc = source_need_init(spec, &tar->need);
        if (rc == 0)
            rc = take_measure(tar);
        if (rc < 0)
            err_set(reterr, rc, "tar: no memory");
    }
    if (rc == 0)
        source_reasons_note(&tar->source, "");
    const char *damaged = rc == 0 ? tar_damaged(&tar->source) : NULL;
    if (damaged)
        rc = err_set(reterr, -ESTALE,
                     "tar: the index file %s was cut or written over while it was read; try again",
                     damaged);
    if (rc == 0 && tar->source.counts.samples == 0)
        rc = err_set(reterr, -ENODATA, "tar: no sample in %u shards, the first of them %s%s%s",
                     tar->index->shard_count, tar->index->shards[0].path,
                     tar->source.counts.note[0] ? "; " : "", tar->source.counts.note);
    if (rc < 0) {
        tar_close(&tar->source);
        return rc;
    }
    *ret_source = &tar->source;
    return 0;
}

/* The shard that holds number `id` of those that `firsts` counts. */
static uint32_t shard_of(const struct source_tar *tar, const uint64_t *firsts, uint64_t id)
{
    uint32_t low = 0, high = tar->index->shard_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (firsts[middle] <= id)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void tar_sample(const struct source *source, uint64_t id, struct source_sample *ret_sample)
{
    const struct source_tar *tar = (const struct source_tar *)source;
    uint32_t number = shard_of(tar, tar->first_samples, id);
    const struct source_index_shard *shard = &tar->index->shards[number];
    uint32_t at = number_of(&tar->lacking[number], (uint32_t)(id - tar->first_samples[number]));
    source_block_sample(shard->block, at, ret_sample);
    for (uint32_t i = 0; i < ret_sample->part_count; i++) {
        struct source_part *part = &ret_sample->parts[i];
        part->root_fd = tar->root_fd;
        part->path = shard->real;
        part->file = (int32_t)number;
        part->file_bytes = shard->bytes;
        part->mtime_ns = shard->mtime_ns;
        if (part->offset > shard->bytes || part->bytes > shard->bytes - part->offset)
            ret_sample->part_count = 0; /* the index was damaged under us */
    }
}

static void tar_warm(const struct source *source, uint64_t id, enum source_warmth warmth)
{
    const struct source_tar *tar = (const struct source_tar *)source;
    uint32_t number = shard_of(tar, tar->first_samples, id);
    uint32_t at = number_of(&tar->lacking[number], (uint32_t)(id - tar->first_samples[number]));
    source_block_warm(tar->index->shards[number].block, at, warmth == SOURCE_NEAR);
}

static void tar_fault(const struct source *source, uint64_t index, struct source_fault *ret_fault)
{
    const struct source_tar *tar = (const struct source_tar *)source;
    uint32_t number = shard_of(tar, tar->first_faults, index);
    const struct source_index_shard *shard = &tar->index->shards[number];
    uint32_t at = (uint32_t)(index - tar->first_faults[number]);
    uint32_t of_block = shard->block->fault_count;
    if (at < of_block)
        source_block_fault(shard->block, at, ret_fault);
    else
        lacking_fault(tar, shard->block, tar->lacking[number].numbers[at - of_block], ret_fault);
    ret_fault->path = shard->path;
}

static uint32_t tar_part_names(const struct source *source, const char **names, uint32_t max)
{
    const struct source_tar *tar = (const struct source_tar *)source;
    uint32_t count = tar->name_count < max ? tar->name_count : max;
    memcpy(names, tar->names, count * sizeof *names);
    return count;
}

static const uint64_t *tar_shards(const struct source *source)
{
    return ((const struct source_tar *)source)->first_samples;
}

static void tar_kept(const struct source *source, struct source_kept *ret_kept)
{
    const struct source_index *index = ((const struct source_tar *)source)->index;
    *ret_kept = (struct source_kept){.file = index->kept ? index->file : "",
                                     .read_shards = index->parsed_count,
                                     .is_kept = index->kept};
    for (uint32_t i = 0; i < index->shard_count; i++)
        ret_kept->bytes += index->shards[i].block->bytes;
}

static int tar_publish(const struct source *source, const char **ret_file, struct err *reterr)
{
    const struct source_index *index = ((const struct source_tar *)source)->index;
    *ret_file = index->published;
    return source_index_publish(index, "tar", reterr);
}

const struct source_ops source_tar_ops = {.kind = "tar",
                                          .open = tar_open,
                                          .close = tar_close,
                                          .sample = tar_sample,
                                          .part_names = tar_part_names,
                                          .shards = tar_shards,
                                          .fault = tar_fault,
                                          .warm = tar_warm,
                                          .kept = tar_kept,
                                          .publish = tar_publish,
                                          .damaged = tar_damaged};
