/* spdlctl preview: a contact sheet of one batch, as the trainer would see it. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "client/ctl/ctl_json.h"
#include "client/ctl/ctl_query.h"
#include "client/ctl/ctl_sheet.h"
#include "client/ctl/ctl_stream.h"
#include "client/ctl/ctl_verbs.h"

struct preview {
    const struct spdl_batch *batch;
    struct spdl_batch_info info;
    struct ctl_picture picture;
    struct spdl_tensor label;
    bool has_label;
    struct ctl_sheet sheet;
};

/* The first field of pictures, and the first of one whole number a row. */
static int preview_fields(struct preview *preview)
{
    bool found = false;
    for (uint32_t i = 0; i < preview->info.fields; i++) {
        struct spdl_tensor tensor;
        int rc = spdl_batch_tensor(preview->batch, i, &tensor);
        if (rc < 0)
            return rc;
        if (!found && ctl_picture_init(&preview->picture, &tensor) == 0)
            found = true;
        if (!preview->has_label && tensor.dtype == SPDL_INT64 && tensor.dims == 1 &&
            tensor.shape[0] == preview->info.rows) {
            preview->label = tensor;
            preview->has_label = true;
        }
    }
    return found ? 0 : -ENOTSUP;
}

static void preview_label(const struct preview *preview, uint32_t row, struct ctl_text *text)
{
    int64_t value;
    if (!preview->has_label || row >= preview->label.shape[0])
        return;
    memcpy(&value, (const char *)preview->label.data + row * sizeof value, sizeof value);
    ctl_text_printf(text, "%s %" PRId64, preview->label.name, value);
}

static int preview_row(struct preview *preview, uint32_t number)
{
    struct spdl_row row;
    int rc = spdl_batch_row(preview->batch, number, &row);
    if (rc < 0)
        return rc;
    bool substituted = row.failed_key && row.attempt > 0;
    bool masked = row.failed_key && row.attempt == 0;
    struct ctl_text key = {0}, label = {0};
    if (masked)
        ctl_text_safe(&key, row.failed_key, row.failed_key_bytes);
    else
        ctl_text_safe(&key, row.key, row.key_bytes);
    if (row.valid)
        preview_label(preview, number, &label);
    if (!row.valid && !masked)
        ctl_text_str(&label, "padding");
    if (substituted)
        ctl_text_printf(&label, "%sinstead of one that is %s", label.bytes ? ", " : "",
                        row.failed_class);
    ctl_text_put(&key, "", 1);
    ctl_text_put(&label, "", 1);
    if (!key.failed && !label.failed) {
        if (masked)
            ctl_sheet_missing(&preview->sheet, number, row.failed_class);
        else
            ctl_sheet_picture(&preview->sheet, number, &preview->picture, number);
        ctl_sheet_text(&preview->sheet, number, key.data, label.data);
    }
    rc = key.failed || label.failed ? -ENOMEM : 0;
    ctl_text_fini(&key);
    ctl_text_fini(&label);
    return rc;
}

static void preview_title(struct preview *preview, const struct ctl_options *options,
                          const struct spdl_stream_info *info)
{
    struct ctl_text title = {0};
    const char *name = options->source ? options->source : options->operands[0];
    ctl_text_safe(&title, name, strlen(name));
    ctl_text_printf(&title, "  epoch %u  step %" PRIu64 "  seed %" PRIu64 "  %u rows",
                    preview->info.epoch, preview->info.step, info->seed, preview->info.rows);
    if (preview->info.valid != preview->info.rows)
        ctl_text_printf(&title, ", %u valid", preview->info.valid);
    ctl_text_put(&title, "", 1);
    if (!title.failed)
        ctl_sheet_title(&preview->sheet, title.data);
    ctl_text_fini(&title);
}

static int preview_draw(struct preview *preview, const struct ctl_options *options,
                        const struct spdl_stream_info *info)
{
    int rc = preview_fields(preview);
    if (rc == -ENOTSUP)
        return ctl_fail(CTL_EXIT_FAILED, "no field of this dataset holds pictures ([rows, h, w, c] "
                                         "or [rows, c, h, w] with 1, 3 or 4 channels)");
    if (rc == 0)
        rc = ctl_sheet_create(&preview->sheet, preview->info.rows, preview->picture.width,
                              preview->picture.height);
    if (rc == -EFBIG)
        return ctl_fail(CTL_EXIT_USAGE,
                        "a sheet of %u rows would be too large; give a smaller "
                        "--batch",
                        preview->info.rows);
    for (uint32_t i = 0; i < preview->info.rows && rc == 0; i++)
        rc = preview_row(preview, i);
    if (rc == 0) {
        preview_title(preview, options, info);
        rc = ctl_sheet_write(&preview->sheet, options->out);
    }
    if (rc < 0)
        return ctl_fail(CTL_EXIT_FAILED, "-o %s: %s", options->out, strerror(-rc));
    return 0;
}

static int preview_say(const struct preview *preview, const struct ctl_options *options)
{
    struct ctl_text text = {0};
    if (options->json) {
        ctl_json_open(&text, '{');
        ctl_json_key_string(&text, "file", options->out);
        ctl_json_key_unsigned(&text, "width", preview->sheet.width);
        ctl_json_key_unsigned(&text, "height", preview->sheet.height);
        ctl_json_key_string(&text, "field", preview->picture.tensor.name);
        ctl_json_key_unsigned(&text, "epoch", preview->info.epoch);
        ctl_json_key_unsigned(&text, "step", preview->info.step);
        ctl_json_key_unsigned(&text, "rows", preview->info.rows);
        ctl_json_key_unsigned(&text, "valid", preview->info.valid);
        ctl_json_close(&text, '}');
        ctl_text_str(&text, "\n");
    } else {
        ctl_text_safe(&text, options->out, strlen(options->out));
        ctl_text_printf(&text, ": %u pictures, %u by %u dots\n", preview->info.rows,
                        preview->sheet.width, preview->sheet.height);
    }
    return ctl_print(&text);
}

static int preview_run(const struct ctl_options *options, struct spdl_connection *connection)
{
    struct spdl_stream *stream = NULL;
    struct spdl_stream_info info;
    struct spdl_batch *batch = NULL;
    struct preview preview = {0};
    uint64_t wait_ns = 0;
    struct ctl_slice slice = {
        .batch = options->batch ? options->batch : 16,
        .rank = (uint32_t)options->rank,
        .world = options->world ? (uint32_t)options->world : 1,
        .limit = 1,
    };
    int code = ctl_stream_open(options, &slice, connection, &stream);
    if (code != 0)
        return code;
    spdl_stream_info(stream, &info);
    int rc =
        ctl_stream_next(stream, options->has_timeout ? options->timeout_s : -1, &batch, &wait_ns);
    if (rc < 0) {
        code = ctl_stream_failed(stream, rc);
    } else {
        preview.batch = batch;
        spdl_batch_info(batch, &preview.info);
        code = preview_draw(&preview, options, &info);
        if (code == 0)
            code = preview_say(&preview, options);
        ctl_sheet_destroy(&preview.sheet);
        spdl_batch_unref(batch);
    }
    spdl_close(stream);
    return code;
}

int ctl_preview(const struct ctl_options *options)
{
    struct spdl_connection *connection = NULL;
    int code = ctl_stream_check(options, 16);
    if (code != 0)
        return code;
    if (!options->out)
        return ctl_fail(CTL_EXIT_USAGE, "preview: -o FILE is missing");
    ctl_signal_install();
    code = ctl_connect(options, &connection);
    if (code == 0)
        code = preview_run(options, connection);
    spdl_disconnect(connection);
    return code;
}
