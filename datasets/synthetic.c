/* Made-up samples for tests and speed figures: a pure function of (seed, sample), so nothing is
 * stored. Classes are a prototype each, plus noise, so that a network can learn them; without
 * classes the target is a fixed linear function of the sample. */
#include "base/rng.h"
#include "datasets/reader.h"
#include <math.h>

enum { DTYPE_F32, DTYPE_U8 };
static const DltEnum dtypes[] = {{"f32", DTYPE_F32}, {"u8", DTYPE_U8}, {NULL, 0}};

typedef struct SyntheticOpts {
    DltDims shape;
    int64_t samples, classes, seed, first;
    double noise;
    int dtype;
} SyntheticOpts;

static const DltField fields[] = {
    DLT_DIMS(SyntheticOpts, shape, .required = true, .main = true, .lo = 1, .hi = 1 << 24,
             .help = "of one sample: [channels, height, width] or [features]",
             .example = "shape: [1, 28, 28]"),
    DLT_INT(SyntheticOpts, samples, .lo = 1, .hi = 1 << 30, .def = "1000",
            .help = "number of samples", .example = "samples: 50000"),
    DLT_INT(SyntheticOpts, classes, .lo = 0, .hi = 1 << 20, .def = "10",
            .help = "number of classes; 0: a value to regress", .example = "classes: 100"),
    DLT_FLOAT(SyntheticOpts, noise, .lo = 0, .hi = 100, .def = "1",
              .help = "standard deviation around a class prototype (prototypes have 1)",
              .example = "noise: 0.5"),
    DLT_INT(SyntheticOpts, seed, .lo = 0, .hi = 9e15, .def = "0",
            .help = "of prototypes and noise; val and test take the training set's seed",
            .example = "seed: 7"),
    DLT_INT(SyntheticOpts, first, .lo = 0, .hi = 1 << 30,
            .help = "number of the first sample; val and test begin behind the training set's last",
            .example = "first: 1000"),
    DLT_ENUM(SyntheticOpts, dtype, .choices = dtypes, .def = "f32",
             .help = "u8: bytes around 128, as images have them", .example = "dtype: u8"),
    DLT_FIELDS_END};

typedef struct SyntheticState {
    int64_t count, classes, first;
    uint64_t seed;
    float noise;
    int dtype;
} SyntheticState;

enum { STREAM_PROTOTYPE, STREAM_NOISE, STREAM_LABEL, STREAM_WEIGHT };

/* Four nearly normal numbers (mean 0, variance 1) from one Philox block: each is the sum of the
 * four bytes of a word, shifted and scaled. A byte has mean 127.5 and variance (256^2 - 1) / 12. */
static void normal4(uint64_t seed, int stream, uint64_t index, float out[4])
{
    const float rstd = 1.0f / 147.8015f; /* sqrt(4 * 65535 / 12) */
    DltRand4 r = dlt_philox(seed, dlt_rng_stream(DLT_RNG_SYNTHETIC, (uint64_t)stream), index);
    for (int i = 0; i < 4; i++) {
        uint32_t v = r.v[i];
        uint32_t sum = (v & 255) + (v >> 8 & 255) + (v >> 16 & 255) + (v >> 24);
        out[i] = ((float)sum - 510.0f) * rstd;
    }
}

static int64_t label_of(const SyntheticState *s, int64_t sample)
{
    uint64_t stream = dlt_rng_stream(DLT_RNG_SYNTHETIC, STREAM_LABEL);
    if (s->classes == 0) return 0;
    return dlt_rng_below(dlt_philox(s->seed, stream, (uint64_t)sample).v[0], (uint32_t)s->classes);
}

/* x[i] = prototype[label][i] + noise * normal; the value to regress is w . x / sqrt(count). Blocks
 * of four elements never straddle samples: each sample has its own blocks. */
static void make(const SyntheticState *s, int64_t sample, void *x, void *y)
{
    int64_t label = label_of(s, sample), blocks = (s->count + 3) / 4;
    double dot = 0;
    for (int64_t b = 0; b < blocks; b++) {
        float proto[4] = {0}, noise[4], w[4] = {0};
        normal4(s->seed, STREAM_NOISE, (uint64_t)(sample * blocks + b), noise);
        if (s->classes > 0)
            normal4(s->seed, STREAM_PROTOTYPE, (uint64_t)(label * blocks + b), proto);
        else
            normal4(s->seed, STREAM_WEIGHT, (uint64_t)b, w);
        for (int64_t k = 0; k < 4 && 4 * b + k < s->count; k++) {
            float v = proto[k] + s->noise * noise[k];
            float byte = 128.0f + 32.0f * v;
            dot += (double)w[k] * (double)v;
            if (s->dtype == DTYPE_F32)
                ((float *)x)[4 * b + k] = v;
            else
                ((uint8_t *)x)[4 * b + k] = (uint8_t)(byte < 0 ? 0 : byte > 255 ? 255 : byte);
        }
    }
    if (s->classes > 0)
        *(int32_t *)y = (int32_t)label;
    else
        *(float *)y = (float)(dot / sqrt((double)s->count));
}

static DltStatus read_synthetic(const DltDataset *ds, const int64_t *id, int64_t n, void *x,
                                void *y, DltErr *err)
{
    (void)err;
    const SyntheticState *s = ds->state;
    int64_t bytes = dlt_dataset_x_bytes(ds);
    for (int64_t i = 0; i < n; i++)
        make(s, s->first + id[i], (char *)x + i * bytes, (int32_t *)y + i);
    return DLT_OK;
}

/* The seed is the training set's, and the samples are others, unless the config says so. */
static DltStatus follow(const DltOpts *o, const DltDataset *like, SyntheticState *s, DltErr *err)
{
    if (like == NULL || like->def != &dlt_dataset_synthetic) return DLT_OK;
    const SyntheticState *train = like->state;
    if (dlt_opts_given(o, offsetof(SyntheticOpts, seed)) && s->seed != train->seed)
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(SyntheticOpts, seed)),
                          "seed: %llu here, %llu in the training set; another seed has other "
                          "prototypes, so nothing could be learnt",
                          (unsigned long long)s->seed, (unsigned long long)train->seed);
    s->seed = train->seed;
    if (!dlt_opts_given(o, offsetof(SyntheticOpts, first))) s->first = train->first + like->n;
    return DLT_OK;
}

static DltStatus open_synthetic(DltArena *arena, const DltOpts *o, const char *folder,
                                const DltDataset *like, DltDataset *ds, DltErr *err)
{
    (void)folder;
    const SyntheticOpts *opts = o->v;
    SyntheticState *s = DLT_NEW(arena, SyntheticState);
    int64_t total, blocks;
    *ds = (DltDataset){.def = &dlt_dataset_synthetic, .state = s, .path = "synthetic"};
    ds->n = opts->samples;
    ds->x_shape.rank = opts->shape.n;
    memcpy(ds->x_shape.dim, opts->shape.v, (size_t)opts->shape.n * sizeof opts->shape.v[0]);
    ds->x_dtype = opts->dtype == DTYPE_U8 ? DLT_U8 : DLT_F32;
    ds->x_scale = opts->dtype == DTYPE_U8 ? 1.0f / 255.0f : 1.0f;
    ds->y_dtype = opts->classes > 0 ? DLT_I32 : DLT_F32;
    ds->classes = opts->classes;
    if (!dlt_shape_bytes(&ds->x_shape, 4, &total) ||
        __builtin_mul_overflow(total, 2 * ds->n, &blocks))
        return dlt_err_at(err, DLT_E_CONFIG, dlt_opts_mark(o, offsetof(SyntheticOpts, shape)),
                          "shape: that many samples of that size are more than can be counted");
    *s = (SyntheticState){.count = dlt_x_count(ds),
                          .classes = opts->classes,
                          .first = opts->first,
                          .seed = (uint64_t)opts->seed,
                          .noise = (float)opts->noise,
                          .dtype = opts->dtype};
    DLT_TRY(follow(o, like, s, err));
    return dlt_like_check(ds, like, err);
}

static DltStatus load_synthetic(DltArena *arena, DltDataset *ds, DltErr *err)
{
    (void)arena;
    return dlt_fingerprint(ds, err);
}

const DltDatasetDef dlt_dataset_synthetic = {
    .name = "synthetic",
    .help = "made-up samples around class prototypes, for tests and speed figures",
    .fields = fields,
    .opt_size = sizeof(SyntheticOpts),
    .open = open_synthetic,
    .load = load_synthetic,
    .read = read_synthetic,
};
