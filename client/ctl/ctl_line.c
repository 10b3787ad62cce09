/* A batch as pull prints it. */
#include "client/ctl/ctl_line.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "client/ctl/ctl_json.h"

const char *ctl_dtype_name(enum spdl_dtype dtype)
{
    switch (dtype) {
    case SPDL_UINT8:
        return "uint8";
    case SPDL_INT64:
        return "int64";
    case SPDL_FLOAT32:
        return "float32";
    case SPDL_FLOAT16:
        return "float16";
    case SPDL_BFLOAT16:
        return "bfloat16";
    }
    return "unknown";
}

static void line_hash(struct ctl_text *text, const void *data, size_t bytes)
{
    char digits[17];
    uint64_t hash = XXH3_64bits(data, bytes);
    for (unsigned i = 0; i < 16; i++)
        digits[i] = "0123456789abcdef"[hash >> (60U - 4U * i) & 15U];
    ctl_json_bytes(text, digits, 16);
}

/* Where the rows of NAME.values begin: the tensor NAME.offsets. NULL: these are no such values. */
static const int64_t *line_offsets(const struct spdl_batch *batch, const struct spdl_tensor *values,
                                   uint32_t rows)
{
    static const char suffix[] = ".values", other[] = ".offsets";
    size_t bytes = strlen(values->name);
    char name[128];
    struct spdl_tensor offsets;
    if (bytes < sizeof suffix || bytes + sizeof other > sizeof name ||
        strcmp(values->name + bytes - (sizeof suffix - 1), suffix) != 0)
        return NULL;
    memcpy(name, values->name, bytes - (sizeof suffix - 1));
    memcpy(name + bytes - (sizeof suffix - 1), other, sizeof other);
    if (spdl_batch_find(batch, name, &offsets) < 0 || offsets.dtype != SPDL_INT64 ||
        offsets.dims != 1 || offsets.shape[0] != (uint64_t)rows + 1)
        return NULL;
    return offsets.data;
}

static void line_row_hashes(struct ctl_text *text, const struct spdl_tensor *tensor,
                            const int64_t *offsets, uint32_t rows)
{
    size_t row_bytes = rows ? tensor->bytes / rows : 0;
    ctl_json_key(text, "row_hashes");
    ctl_json_open(text, '[');
    for (uint32_t i = 0; i < rows; i++) {
        size_t at = offsets ? (size_t)offsets[i] : i * row_bytes;
        size_t bytes = offsets ? (size_t)(offsets[i + 1] - offsets[i]) : row_bytes;
        line_hash(text, (const char *)tensor->data + at, bytes);
    }
    ctl_json_close(text, ']');
}

/* offsets: where its rows begin when they differ in length, else NULL. */
static void line_field(struct ctl_text *text, const struct spdl_tensor *tensor,
                       const int64_t *offsets, uint32_t rows, bool hash)
{
    ctl_json_key(text, tensor->name);
    ctl_json_open(text, '{');
    ctl_json_key_string(text, "dtype", ctl_dtype_name(tensor->dtype));
    ctl_json_key(text, "shape");
    ctl_json_open(text, '[');
    for (uint32_t i = 0; i < tensor->dims && i < 9; i++)
        ctl_json_unsigned(text, tensor->shape[i]);
    ctl_json_close(text, ']');
    if (hash) {
        ctl_json_key(text, "hash");
        line_hash(text, tensor->data, tensor->bytes);
    }
    /* Offsets have one more than there are rows: there are no bytes of a row in them. */
    if (hash && (offsets || (tensor->dims && tensor->shape[0] == rows)))
        line_row_hashes(text, tensor, offsets, rows);
    ctl_json_close(text, '}');
}

static int line_fields(struct ctl_text *text, const struct spdl_batch *batch,
                       const struct spdl_batch_info *info, bool hash)
{
    ctl_json_key(text, "fields");
    ctl_json_open(text, '{');
    for (uint32_t i = 0; i < info->fields; i++) {
        struct spdl_tensor tensor;
        int rc = spdl_batch_tensor(batch, i, &tensor);
        if (rc < 0)
            return rc;
        const int64_t *offsets = line_offsets(batch, &tensor, info->rows);
        line_field(text, &tensor, offsets, info->rows, hash);
    }
    ctl_json_close(text, '}');
    return 0;
}

static void line_draws(struct ctl_text *text, const struct spdl_row *row)
{
    if (!row->has_draws) {
        ctl_json_null(text);
        return;
    }
    ctl_json_open(text, '{');
    ctl_json_key(text, "crop");
    ctl_json_open(text, '[');
    for (unsigned i = 0; i < 4; i++)
        ctl_json_signed(text, row->crop[i]);
    ctl_json_close(text, ']');
    ctl_json_key(text, "flip");
    ctl_json_bool(text, row->flipped);
    ctl_json_close(text, '}');
}

static void line_error(struct ctl_text *text, uint32_t number, const struct spdl_row *row,
                       bool with_class)
{
    ctl_json_open(text, '{');
    ctl_json_key_unsigned(text, "row", number);
    ctl_json_key(text, "key");
    ctl_json_bytes(text, row->failed_key, row->failed_key_bytes);
    if (with_class) {
        ctl_json_key_string(text, "class", row->failed_class);
        ctl_json_key_string(text, "message", row->message);
    }
    ctl_json_close(text, '}');
}

enum line_list { LINE_KEYS, LINE_IDS, LINE_ERRORS, LINE_SUBSTITUTED, LINE_DRAWS };

/* One list of the line, over all rows. */
static int line_list(struct ctl_text *text, const struct spdl_batch *batch, uint32_t rows,
                     enum line_list list)
{
    static const char *const names[] = {"keys", "ids", "errors", "substituted", "draws"};
    ctl_json_key(text, names[list]);
    ctl_json_open(text, '[');
    for (uint32_t i = 0; i < rows; i++) {
        struct spdl_row row;
        int rc = spdl_batch_row(batch, i, &row);
        if (rc < 0)
            return rc;
        switch (list) {
        case LINE_KEYS:
            ctl_json_bytes(text, row.key, row.key_bytes);
            break;
        case LINE_IDS:
            ctl_json_unsigned(text, row.id);
            break;
        case LINE_ERRORS:
            if (row.failed_key)
                line_error(text, i, &row, true);
            break;
        case LINE_SUBSTITUTED:
            if (row.failed_key && row.attempt > 0)
                line_error(text, i, &row, false);
            break;
        case LINE_DRAWS:
            line_draws(text, &row);
            break;
        }
    }
    ctl_json_close(text, ']');
    return 0;
}

int ctl_line_json(const struct spdl_batch *batch, const struct ctl_line_options *options,
                  uint64_t wait_ns, struct ctl_text *text)
{
    struct spdl_batch_info info;
    spdl_batch_info(batch, &info);
    ctl_json_open(text, '{');
    ctl_json_key_unsigned(text, "epoch", info.epoch);
    ctl_json_key_unsigned(text, "step", info.step);
    ctl_json_key_unsigned(text, "rows", info.rows);
    ctl_json_key_unsigned(text, "valid", info.valid);
    int rc = line_list(text, batch, info.rows, LINE_KEYS);
    if (rc == 0)
        rc = line_list(text, batch, info.rows, LINE_IDS);
    if (rc == 0)
        rc = line_list(text, batch, info.errors ? info.rows : 0, LINE_ERRORS);
    if (rc == 0)
        rc = line_list(text, batch, info.errors ? info.rows : 0, LINE_SUBSTITUTED);
    if (rc == 0 && options->draws)
        rc = line_list(text, batch, info.rows, LINE_DRAWS);
    if (rc == 0)
        rc = line_fields(text, batch, &info, options->hash);
    ctl_json_key_unsigned(text, "wait_us", wait_ns / 1000);
    ctl_json_key_string(text, "state", info.state);
    ctl_json_close(text, '}');
    ctl_text_str(text, "\n");
    return rc;
}

static void line_people_rows(const struct spdl_batch *batch, uint32_t rows, bool draws,
                             struct ctl_text *text)
{
    for (uint32_t i = 0; i < rows; i++) {
        struct spdl_row row;
        if (spdl_batch_row(batch, i, &row) < 0)
            return;
        if (draws && row.has_draws) {
            ctl_text_printf(text, "\n  row %" PRIu32 "  ", i);
            ctl_text_safe(text, row.key, row.key_bytes);
            ctl_text_printf(text, "  crop %dx%d at %d,%d%s", row.crop[2], row.crop[3], row.crop[0],
                            row.crop[1], row.flipped ? "  flipped" : "");
        }
        if (row.failed_key) {
            ctl_text_printf(text, "\n  row %" PRIu32 "  %s  ", i, row.failed_class);
            ctl_text_safe(text, row.failed_key, row.failed_key_bytes);
            ctl_text_str(text, "  ");
            ctl_text_safe(text, row.message, strlen(row.message));
            if (row.attempt > 0) {
                ctl_text_str(text, "; shown instead: ");
                ctl_text_safe(text, row.key, row.key_bytes);
            }
        }
    }
}

int ctl_line_people(const struct spdl_batch *batch, const struct ctl_line_options *options,
                    uint64_t wait_ns, struct ctl_text *text)
{
    struct spdl_batch_info info;
    struct spdl_row first;
    spdl_batch_info(batch, &info);
    ctl_text_printf(text, "epoch %" PRIu32 " step %" PRIu64 "  %" PRIu32 " rows", info.epoch,
                    info.step, info.rows);
    if (info.valid != info.rows)
        ctl_text_printf(text, ", %" PRIu32 " valid", info.valid);
    ctl_text_printf(text, "  waited %.1f ms", (double)wait_ns * 1e-6);
    if (info.rows && spdl_batch_row(batch, 0, &first) == 0) {
        ctl_text_str(text, "  ");
        ctl_text_safe(text, first.key, first.key_bytes);
        if (info.rows > 1)
            ctl_text_str(text, " ...");
    }
    for (uint32_t i = 0; options->hash && i < info.fields; i++) {
        struct spdl_tensor tensor;
        int rc = spdl_batch_tensor(batch, i, &tensor);
        if (rc < 0)
            return rc;
        ctl_text_printf(text, "  %s %016" PRIx64, tensor.name,
                        (uint64_t)XXH3_64bits(tensor.data, tensor.bytes));
    }
    if (options->draws || info.errors)
        line_people_rows(batch, info.rows, options->draws, text);
    ctl_text_str(text, "\n");
    return 0;
}
