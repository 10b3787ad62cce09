/* The recipes of the field by name. What an operation does is the transform room's; here are only
 * their numbers. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "config/config_dataset.h"

const struct config_normalization config_normalizations[] = {
    {"imagenet", {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}},
    {"clip", {0.48145466, 0.4578275, 0.40821073}, {0.26862954, 0.26130258, 0.27577711}},
    {.name = NULL},
};

#define RESIZED_CROP(area, kernel)                                                                 \
    {                                                                                              \
        .kind = OP_RANDOM_RESIZED_CROP, .filter = (kernel), .height = 224, .width = 224,           \
        .scale = {(area), 1.0}, .ratio = {                                                         \
            3.0 / 4.0,                                                                             \
            4.0 / 3.0                                                                              \
        }                                                                                          \
    }
#define RESIZE(side, kernel)                                                                       \
    {                                                                                              \
        .kind = OP_RESIZE, .filter = (kernel), .height = (side)                                    \
    }
#define CENTER_CROP(side)                                                                          \
    {                                                                                              \
        .kind = OP_CENTER_CROP, .height = (side), .width = (side)                                  \
    }
#define RANDOM_FLIP(chance)                                                                        \
    {                                                                                              \
        .kind = OP_RANDOM_FLIP, .p = (chance)                                                      \
    }

const struct config_preset config_presets[] = {
    {"imagenet-train",
     CONFIG_SHUFFLE_GLOBAL,
     CONFIG_LAST_DROP,
     NULL,
     FIELD_DTYPE_UINT8,
     FIELD_LAYOUT_NHWC,
     {RESIZED_CROP(0.08, FIELD_FILTER_BILINEAR), RANDOM_FLIP(0.5)}},
    {"imagenet-eval",
     CONFIG_SHUFFLE_NONE,
     CONFIG_LAST_PARTIAL,
     NULL,
     FIELD_DTYPE_UINT8,
     FIELD_LAYOUT_NHWC,
     {RESIZE(256, FIELD_FILTER_BILINEAR), CENTER_CROP(224)}},
    {"clip-train",
     CONFIG_SHUFFLE_GLOBAL,
     CONFIG_LAST_DROP,
     "clip",
     FIELD_DTYPE_FLOAT32,
     FIELD_LAYOUT_NCHW,
     {RESIZED_CROP(0.9, FIELD_FILTER_BICUBIC)}},
    {"clip-eval",
     CONFIG_SHUFFLE_NONE,
     CONFIG_LAST_PARTIAL,
     "clip",
     FIELD_DTYPE_FLOAT32,
     FIELD_LAYOUT_NCHW,
     {RESIZE(224, FIELD_FILTER_BICUBIC), CENTER_CROP(224)}},
    {.name = NULL},
};

/* Every kind of file that people keep pictures in, so that what this version cannot decode is
 * reported and not overlooked. */
static const char *const picture_parts[] = {"jpg",  "jpeg", "png", "webp", "bmp",  "gif", "tif",
                                            "tiff", "ppm",  "pgm", "pnm",  "avif", "heic"};

void config_normalize_set(const struct config_normalization *normalization,
                          struct field_spec *field)
{
    field->normalize = 1;
    for (uint32_t i = 0; i < 3; i++) {
        field->mean[i] = normalization->mean[i];
        field->std[i] = normalization->std[i];
    }
}

void config_preset_fill(const struct config_preset *preset, uint64_t max_pixels,
                        struct config_dataset *dataset)
{
    static const struct field_spec none;
    struct field_spec *image = &dataset->fields[0];
    struct field_spec *label = &dataset->fields[1];
    *image = none;
    *label = none;
    dataset->field_count = 2;
    dataset->shuffle = preset->shuffle;
    dataset->last = preset->last;

    snprintf(image->name, sizeof image->name, "image");
    snprintf(image->decoder, sizeof image->decoder, "image");
    for (size_t i = 0; i < sizeof picture_parts / sizeof picture_parts[0]; i++)
        snprintf(image->from[image->from_count++], FIELD_PART_BYTES, "%s", picture_parts[i]);
    image->dtype = preset->dtype;
    image->layout = preset->layout;
    image->channels = 3;
    image->max_pixels = max_pixels;
    for (uint32_t i = 0; i < sizeof preset->ops / sizeof preset->ops[0] && preset->ops[i].kind; i++)
        image->ops[image->op_count++] = preset->ops[i];
    for (const struct config_normalization *row = config_normalizations;
         preset->normalization && row->name; row++) {
        if (strcmp(row->name, preset->normalization) == 0)
            config_normalize_set(row, image);
    }
    ASSERT(!preset->normalization || image->normalize);

    snprintf(label->name, sizeof label->name, "label");
    snprintf(label->decoder, sizeof label->decoder, "class");
    snprintf(label->from[label->from_count++], FIELD_PART_BYTES, "cls");
    label->dtype = FIELD_DTYPE_INT64;
    label->max_pixels = max_pixels;
}
