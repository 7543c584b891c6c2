/* Augmentations: one row each, in the order in which the fetch op applies them. */
#include "spec/read.h"

typedef struct PadCrop {
    int64_t pad;
} PadCrop;
typedef struct Flip {
    int axis;
} Flip;
typedef struct Cutout {
    int64_t size;
} Cutout;

enum { FLIP_HORIZONTAL };
static const DltEnum flip_choices[] = {
    {"horizontal", FLIP_HORIZONTAL},
    {NULL, 0},
};

static const DltField pad_crop_fields[] = {
    DLT_INT(PadCrop, pad, .required = true, .main = true, .lo = 1, .hi = 512, .unit = "pixels",
            .help = "zeros added on each side before the crop", .example = "pad_crop: 4"),
    DLT_FIELDS_END,
};
static const DltField flip_fields[] = {
    DLT_ENUM(Flip, axis, .required = true, .main = true, .choices = flip_choices,
             .help = "left and right change places with probability 1/2",
             .example = "flip: horizontal"),
    DLT_FIELDS_END,
};
static const DltField cutout_fields[] = {
    DLT_INT(Cutout, size, .required = true, .main = true, .lo = 1, .hi = 512, .unit = "pixels",
            .help = "side of the square that is set to 0 after normalisation",
            .example = "cutout: 8"),
    DLT_FIELDS_END,
};

static void set_pad_crop(DltFetch *fetch, const void *opts)
{
    fetch->pad = (int32_t)((const PadCrop *)opts)->pad;
    fetch->augment = 1;
}

static void set_flip(DltFetch *fetch, const void *opts)
{
    fetch->flip = ((const Flip *)opts)->axis == FLIP_HORIZONTAL;
    fetch->augment = 1;
}

static void set_cutout(DltFetch *fetch, const void *opts)
{
    fetch->cutout = (int32_t)((const Cutout *)opts)->size;
    fetch->augment = 1;
}

const DltAugmentDef dlt_augments[DLT_N_AUGMENT + 1] = {
    {"pad_crop", "pad with zeros and crop back at a random place", pad_crop_fields, sizeof(PadCrop),
     set_pad_crop},
    {"flip", "mirror at random", flip_fields, sizeof(Flip), set_flip},
    {"cutout", "erase a square around a random centre (DeVries & Taylor 2017)", cutout_fields,
     sizeof(Cutout), set_cutout},
    {NULL, NULL, NULL, 0, NULL},
};
