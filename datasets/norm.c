/* Mean and standard deviation of a split, channel by channel, in double. */
#include "api/dataset.h"

#include <math.h>

int64_t dlt_norm_count(const DltDataset *ds)
{
    return ds->channel_axis < 0 ? 1 : ds->x_shape.dim[ds->channel_axis];
}

typedef struct Sums {
    double *sum, *square;           /* of x and x^2 [channels], x raw */
    int64_t channels, inner, count; /* elements of one sample */
} Sums;

static double raw(const DltDataset *ds, const void *x, int64_t i)
{
    const uint8_t *u8 = x;
    const float *f32 = x;
    return ds->x_dtype == DLT_U8 ? (double)u8[i] : (double)f32[i];
}

static void add_sample(Sums *s, const DltDataset *ds, const void *x, const double *pivot)
{
    for (int64_t i = 0; i < s->count; i++) {
        int64_t c = i / s->inner % s->channels;
        double d = raw(ds, x, i) - pivot[c];
        s->sum[c] += d;
        s->square[c] += d * d;
    }
}

/* Sums around the first sample's value of each channel, so that large means lose no digits. */
DltStatus dlt_norm_measure(DltArena *arena, const DltSplit *split, double **mean, double **std,
                           DltErr *err)
{
    const DltDataset *ds = split->ds;
    DLT_BUG_ON(ds->x_dtype != DLT_U8 && ds->x_dtype != DLT_F32);
    int64_t c = dlt_norm_count(ds);
    int axis = ds->channel_axis < 0 ? 0 : ds->channel_axis;
    Sums s = {DLT_NEW_ARRAY(arena, c, double), DLT_NEW_ARRAY(arena, c, double), c,
              ds->channel_axis < 0 ? 1 : dlt_shape_span(&ds->x_shape, axis + 1, ds->x_shape.rank),
              dlt_shape_count(&ds->x_shape)};
    double *pivot = DLT_NEW_ARRAY(arena, c, double);
    void *x = dlt_arena_new_bytes(arena, 1, (size_t)dlt_dataset_x_bytes(ds));
    void *y = dlt_arena_new_bytes(arena, 1, (size_t)dlt_dataset_y_bytes(ds) + 1);
    for (int64_t i = 0; i < split->n; i++) {
        int64_t id = split->id ? split->id[i] : i;
        DLT_TRY(ds->def->read(ds, &id, 1, x, y, err));
        for (int64_t k = 0; i == 0 && k < c; k++)
            pivot[k] = raw(ds, x, k * s.inner % s.count);
        add_sample(&s, ds, x, pivot);
    }
    double n = (double)split->n * (double)s.count / (double)c, scale = (double)ds->x_scale;
    *mean = DLT_NEW_ARRAY(arena, c, double);
    *std = DLT_NEW_ARRAY(arena, c, double);
    for (int64_t k = 0; k < c; k++) {
        double shift = s.sum[k] / n, var = s.square[k] / n - shift * shift;
        (*mean)[k] = (pivot[k] + shift) * scale;
        double deviation = var > 0 ? sqrt(var) * scale : 0;
        (*std)[k] = deviation > 0 ? deviation : 1.0; /* a constant channel stays as it is */
    }
    return DLT_OK;
}
