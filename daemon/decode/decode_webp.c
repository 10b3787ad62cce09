/* WebP with libwebp: lossy and lossless. Alpha is dropped, not blended. Of an animation the first
 * frame counts, at its place on a canvas that is otherwise black, as Pillow shows it.
 *
 * The whole file is gone through before anything is decoded, and the whole picture is decoded
 * whatever the region is: so what is wrong anywhere is found. */
#include "decode/decode_webp.h"

#include <string.h>
#include <webp/decode.h>
#include <webp/demux.h>

#include "base/assert.h"
#include "decode/decode_buffer.h"
#include "decode/decode_exif.h"

enum { PROBE_BYTES = 12, RIFF_HEAD_BYTES = 8 };

struct decode_webp {
    WebPDemuxer *parts; /* of the packet, from head to the end of decode */
    struct decode_packet packet;
    int32_t width, height; /* of the canvas */
    uint64_t frame_at;     /* in the packet: what is looked at */
    struct decode_buffer rows;
};

static bool webp_probe(const uint8_t *head, size_t bytes)
{
    return bytes >= PROBE_BYTES && memcmp(head, "RIFF", 4) == 0 && memcmp(head + 8, "WEBP", 4) == 0;
}

static void forget(struct decode_webp *webp)
{
    WebPDemuxDelete(webp->parts);
    webp->parts = NULL;
}

static enum spdl_class class_of_status(VP8StatusCode status, bool whole)
{
    switch (status) {
    case VP8_STATUS_OK:
        return SPDL_CLASS_OK;
    case VP8_STATUS_OUT_OF_MEMORY:
        return SPDL_CLASS_RESOURCE;
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return SPDL_CLASS_UNSUPPORTED;
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA: /* of a file that has all that it says, it is damage */
        return whole ? SPDL_CLASS_CORRUPT : SPDL_CLASS_TRUNCATED;
    case VP8_STATUS_BITSTREAM_ERROR:
    case VP8_STATUS_INVALID_PARAM:
    case VP8_STATUS_USER_ABORT:
        break;
    }
    return SPDL_CLASS_CORRUPT;
}

static enum spdl_class fail(const struct decode_webp *webp, enum spdl_class class_number,
                            struct decode_fault *fault)
{
    const char *message =
        class_number == SPDL_CLASS_TRUNCATED     ? "the file ends before its picture does"
        : class_number == SPDL_CLASS_RESOURCE    ? "no memory for the picture"
        : class_number == SPDL_CLASS_UNSUPPORTED ? "it is a kind of WebP that is not known"
                                                 : "its parts or its data make no sense";
    uint64_t offset = class_number == SPDL_CLASS_TRUNCATED ? webp->packet.bytes : webp->frame_at;
    return decode_fault_set(fault, class_number, offset, "%s", message);
}

/* Does the file say that it is longer than it is? */
static bool is_cut(const struct decode_packet *packet)
{
    const uint8_t *size = packet->data + 4;
    uint64_t riff_bytes = (uint32_t)size[0] | (uint32_t)size[1] << 8 | (uint32_t)size[2] << 16 |
                          (uint32_t)size[3] << 24;
    return riff_bytes + RIFF_HEAD_BYTES > packet->bytes;
}

static int32_t orientation_of(const WebPDemuxer *parts)
{
    WebPChunkIterator chunk;
    int32_t orientation = 1;
    if (WebPDemuxGetChunk(parts, "EXIF", 1, &chunk))
        orientation = decode_exif_orientation_named(chunk.chunk.bytes, chunk.chunk.size);
    WebPDemuxReleaseChunkIterator(&chunk);
    return orientation;
}

static enum spdl_class webp_head(void *ctx, const struct decode_packet *packet, uint64_t max_pixels,
                                 struct decode_head *ret_head, struct decode_fault *ret_fault)
{
    struct decode_webp *webp = ctx;
    WebPBitstreamFeatures features;
    forget(webp);
    webp->packet = *packet;
    webp->frame_at = PROBE_BYTES;
    bool cut = is_cut(packet);
    VP8StatusCode status = WebPGetFeatures(packet->data, packet->bytes, &features);
    if (status != VP8_STATUS_OK)
        return fail(webp, class_of_status(status, !cut), ret_fault);
    enum spdl_class class_number = decode_size_check(
        (uint32_t)features.width, (uint32_t)features.height, max_pixels, PROBE_BYTES, ret_fault);
    if (class_number != SPDL_CLASS_OK)
        return class_number;
    WebPDemuxState state;
    const WebPData data = {packet->data, packet->bytes};
    webp->parts = WebPDemuxPartial(&data, &state);
    if (webp->parts == NULL || state != WEBP_DEMUX_DONE) {
        forget(webp);
        return fail(webp, cut ? SPDL_CLASS_TRUNCATED : SPDL_CLASS_CORRUPT, ret_fault);
    }
    webp->width = (int32_t)WebPDemuxGetI(webp->parts, WEBP_FF_CANVAS_WIDTH);
    webp->height = (int32_t)WebPDemuxGetI(webp->parts, WEBP_FF_CANVAS_HEIGHT);
    if (webp->width != features.width || webp->height != features.height) {
        forget(webp);
        return fail(webp, SPDL_CLASS_CORRUPT, ret_fault);
    }
    *ret_head = (struct decode_head){.width = webp->width,
                                     .height = webp->height,
                                     .orientation = orientation_of(webp->parts),
                                     .channels = features.has_alpha ? 4 : 3};
    return SPDL_CLASS_OK;
}

/* Decodes the frame to its place. */
static enum spdl_class decode_frame(struct decode_webp *webp, const WebPIterator *frame,
                                    size_t stride)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return SPDL_CLASS_UNSUPPORTED;
    webp->frame_at = (uint64_t)(frame->fragment.bytes - webp->packet.data);
    size_t offset = (size_t)frame->y_offset * stride + (size_t)frame->x_offset * 4;
    config.output.colorspace = MODE_RGBA;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = webp->rows.base + offset;
    config.output.u.RGBA.stride = (int)stride;
    config.output.u.RGBA.size = stride * (size_t)webp->height - offset;
    VP8StatusCode status = WebPDecode(frame->fragment.bytes, frame->fragment.size, &config);
    bool fits = status != VP8_STATUS_OK ||
                (config.output.width == frame->width && config.output.height == frame->height);
    WebPFreeDecBuffer(&config.output);
    return fits ? class_of_status(status, true) : SPDL_CLASS_CORRUPT;
}

static enum spdl_class decode_canvas(struct decode_webp *webp, size_t stride)
{
    WebPIterator frame;
    if (!WebPDemuxGetFrame(webp->parts, 1, &frame)) {
        WebPDemuxReleaseIterator(&frame);
        return SPDL_CLASS_CORRUPT;
    }
    enum spdl_class class_number = SPDL_CLASS_CORRUPT;
    if (frame.x_offset >= 0 && frame.y_offset >= 0 && frame.width > 0 && frame.height > 0 &&
        frame.width <= webp->width - frame.x_offset &&
        frame.height <= webp->height - frame.y_offset) {
        if (frame.width != webp->width || frame.height != webp->height)
            memset(webp->rows.base, 0, stride * (size_t)webp->height);
        class_number = decode_frame(webp, &frame, stride);
    }
    WebPDemuxReleaseIterator(&frame);
    return class_number;
}

static enum spdl_class webp_decode(void *ctx, const struct decode_packet *packet,
                                   const struct decode_region *region, bool may_stop_early,
                                   struct decode_pixels *ret_pixels, struct decode_fault *ret_fault)
{
    struct decode_webp *webp = ctx;
    (void)may_stop_early;
    ASSERT(webp->parts != NULL && webp->packet.data == packet->data &&
           webp->packet.bytes == packet->bytes);
    ASSERT(decode_region_fits(region, (uint32_t)webp->width, (uint32_t)webp->height));
    const size_t stride = decode_stride(webp->width);
    enum spdl_class class_number = SPDL_CLASS_RESOURCE;
    if (stride <= INT32_MAX && decode_buffer_reserve(&webp->rows, stride, (size_t)webp->height))
        class_number = decode_canvas(webp, stride);
    forget(webp);
    if (class_number != SPDL_CLASS_OK)
        return fail(webp, class_number, ret_fault);
    *ret_pixels = (struct decode_pixels){webp->rows.base, stride, region->x, region->y};
    return SPDL_CLASS_OK;
}

static int webp_open(void *ctx)
{
    (void)ctx; /* all that a picture needs comes with it */
    return 0;
}

static void webp_close(void *ctx)
{
    struct decode_webp *webp = ctx;
    forget(webp);
    decode_buffer_free(&webp->rows);
}

static void webp_trim(void *ctx)
{
    struct decode_webp *webp = ctx;
    decode_buffer_trim(&webp->rows);
}

const struct decode_ops decode_webp_ops = {
    .name = "webp",
    .ctx_bytes = sizeof(struct decode_webp),
    .probe = webp_probe,
    .open = webp_open,
    .close = webp_close,
    .head = webp_head,
    .decode = webp_decode,
    .trim = webp_trim,
};
