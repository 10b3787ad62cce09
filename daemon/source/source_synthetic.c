/* Samples that are made up from their number: for measurements and for plans of any size. Keeps
 * nothing per sample.
 *
 * Sample i has the key i in decimal, at least nine digits, and one part "bin" of the size that the
 * configuration says. Its id is the hash of "spdl-synthetic 1\n" and "SAMPLES BYTES\n". */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "source/source.h"

extern const struct source_ops source_synthetic_ops;

#define SAMPLES_MAX (UINT64_C(1) << 62)
#define BYTES_MAX (UINT64_C(1) << 40)

struct source_synthetic {
    struct source source;
    uint64_t bytes;
};

static int synthetic_open(const struct source_spec *spec, struct source **ret_source,
                          struct err *reterr)
{
    if (spec->samples == 0)
        return err_set(reterr, -ENODATA, "a synthetic source of 0 samples has nothing to give");
    if (spec->samples > SAMPLES_MAX)
        return err_set(reterr, -EINVAL, "synthetic: %" PRIu64 " samples are more than 2^62",
                       spec->samples);
    if (spec->bytes == 0 || spec->bytes > BYTES_MAX)
        return err_set(reterr, -EINVAL,
                       "synthetic: samples of %" PRIu64 " bytes; they have 1 to 2^40", spec->bytes);
    struct source_synthetic *synthetic = calloc(1, sizeof *synthetic);
    if (!synthetic)
        return err_set(reterr, -ENOMEM, "synthetic: no memory");
    synthetic->bytes = spec->bytes;
    synthetic->source.ops = &source_synthetic_ops;

    char text[96], key[32];
    int text_bytes = snprintf(text, sizeof text, "spdl-synthetic 1\n%" PRIu64 " %" PRIu64 "\n",
                              spec->samples, spec->bytes);
    XXH128_hash_t hash = XXH3_128bits(text, (size_t)text_bytes);
    synthetic->source.id_high = hash.high64;
    synthetic->source.id_low = hash.low64;

    int key_bytes = snprintf(key, sizeof key, "%09" PRIu64, spec->samples - 1);
    synthetic->source.counts = (struct source_counts){.samples = spec->samples,
                                                      .largest_bytes = spec->bytes,
                                                      .longest_key_bytes = (uint32_t)key_bytes};
    *ret_source = &synthetic->source;
    return 0;
}

static void synthetic_close(struct source *source)
{
    free(source);
}

static void synthetic_sample(const struct source *source, uint64_t id,
                             struct source_sample *ret_sample)
{
    const struct source_synthetic *synthetic = (const struct source_synthetic *)source;
    char digits[32];
    unsigned count = 0;
    for (uint64_t rest = id; rest > 0 || count < 9; rest /= 10)
        digits[count++] = (char)('0' + rest % 10);
    for (unsigned i = 0; i < count; i++)
        ret_sample->key_space[i] = digits[count - 1 - i];
    ret_sample->key_space[count] = 0;
    ret_sample->key = ret_sample->key_space;
    ret_sample->key_bytes = count;
    ret_sample->part_count = 1;
    ret_sample->parts[0] = (struct source_part){
        .kind = SOURCE_PART_MADE_UP, .name = "bin", .root_fd = -1, .bytes = synthetic->bytes};
}

static uint32_t synthetic_part_names(const struct source *source, const char **names, uint32_t max)
{
    (void)source;
    if (max == 0)
        return 0;
    names[0] = "bin";
    return 1;
}

const struct source_ops source_synthetic_ops = {.kind = "synthetic",
                                                .open = synthetic_open,
                                                .close = synthetic_close,
                                                .sample = synthetic_sample,
                                                .part_names = synthetic_part_names};
