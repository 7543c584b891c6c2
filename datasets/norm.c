/* Mean and standard deviation of each channel or feature over a split. u8 is summed in whole
 * numbers, which is exact; f32 in two passes of double sums (mean first, then squares around it),
 * in the order of the samples, so the result does not depend on threads. The deviation divides by
 * n. */
#include "datasets/reader.h"
#include <math.h>

/* x[sample][outer][count][inner]: element k belongs to mean (k / inner) % count. */
typedef struct Measure {
    int64_t elements, count, inner;
    double per_mean;       /* numbers that share a mean */
    int64_t *sum, *square; /* u8 */
    double *mean, *var;    /* sums while they are gathered */
} Measure;

int64_t dlt_norm_count(const DltDataset *ds)
{
    return ds->channel_axis >= 0 ? ds->x_shape.dim[ds->channel_axis] : 1;
}

static void add_bytes(Measure *m, const void *sample)
{
    const uint8_t *x = sample;
    for (int64_t k = 0; k < m->elements; k += m->inner) {
        int64_t c = k / m->inner % m->count;
        uint64_t sum = 0, square = 0;
        for (int64_t i = 0; i < m->inner; i++) {
            uint32_t v = x[k + i];
            sum += v;
            square += (uint64_t)v * v;
        }
        m->sum[c] += (int64_t)sum;
        m->square[c] += (int64_t)square;
    }
}

static void add_floats(Measure *m, const void *sample)
{
    const float *x = sample;
    for (int64_t k = 0; k < m->elements; k += m->inner) {
        double sum = 0;
        for (int64_t i = 0; i < m->inner; i++)
            sum += (double)x[k + i];
        m->mean[k / m->inner % m->count] += sum;
    }
}

static void add_squares(Measure *m, const void *sample)
{
    const float *x = sample;
    for (int64_t k = 0; k < m->elements; k += m->inner) {
        int64_t c = k / m->inner % m->count;
        double mean = m->mean[c], sum = 0;
        for (int64_t i = 0; i < m->inner; i++)
            sum += ((double)x[k + i] - mean) * ((double)x[k + i] - mean);
        m->var[c] += sum;
    }
}

typedef void (*AddFn)(Measure *m, const void *x);
typedef struct Pass {
    Measure *m;
    int64_t x_bytes;
    AddFn add;
} Pass;

static DltStatus add_samples(const DltSamples *c, DltErr *err)
{
    (void)err;
    Pass *p = c->ctx;
    for (int64_t i = 0; i < c->n; i++)
        p->add(p->m, (const char *)c->x + i * p->x_bytes);
    return DLT_OK;
}

static DltStatus walk(Measure *m, const DltSplit *s, AddFn add, DltErr *err)
{
    Pass p = {m, dlt_dataset_x_bytes(s->ds), add};
    return dlt_samples_each(s, add_samples, &p, err);
}

/* Squares around the nearest whole number c of the mean, sum(v^2) - 2 c sum(v) + n c^2: all whole,
 * and nothing cancels in var = that / n - (mean - c)^2. */
static DltStatus measure_bytes(Measure *m, const DltSplit *s, DltErr *err)
{
    DLT_TRY(walk(m, s, add_bytes, err));
    int64_t n = (int64_t)m->per_mean;
    for (int64_t k = 0; k < m->count; k++) {
        m->mean[k] = (double)m->sum[k] / m->per_mean;
        int64_t c = (int64_t)(m->mean[k] + 0.5);
        int64_t around = m->square[k] - 2 * c * m->sum[k] + n * c * c;
        double rest = m->mean[k] - (double)c;
        m->var[k] = (double)around / m->per_mean - rest * rest;
    }
    return DLT_OK;
}

static DltStatus measure_floats(Measure *m, const DltSplit *s, DltErr *err)
{
    DLT_TRY(walk(m, s, add_floats, err));
    for (int64_t c = 0; c < m->count; c++)
        m->mean[c] /= m->per_mean;
    DLT_TRY(walk(m, s, add_squares, err));
    for (int64_t c = 0; c < m->count; c++)
        m->var[c] /= m->per_mean;
    return DLT_OK;
}

DltStatus dlt_norm_measure(DltArena *arena, const DltSplit *s, double **mean, double **std,
                           DltErr *err)
{
    const DltDataset *ds = s->ds;
    int axis = ds->channel_axis;
    Measure m = {.elements = dlt_x_count(ds), .count = dlt_norm_count(ds)};
    m.inner = axis >= 0 ? dlt_shape_span(&ds->x_shape, axis + 1, ds->x_shape.rank) : m.elements;
    int64_t per_sample = m.elements / m.count;
    m.per_mean = (double)s->n * (double)per_sample;
    m.sum = DLT_NEW_ARRAY(arena, m.count, int64_t);
    m.square = DLT_NEW_ARRAY(arena, m.count, int64_t);
    m.mean = DLT_NEW_ARRAY(arena, m.count, double);
    m.var = DLT_NEW_ARRAY(arena, m.count, double);
    if (ds->x_dtype == DLT_U8) DLT_TRY(measure_bytes(&m, s, err));
    if (ds->x_dtype == DLT_F32) DLT_TRY(measure_floats(&m, s, err));
    for (int64_t c = 0; c < m.count; c++) {
        m.mean[c] *= (double)ds->x_scale;
        m.var[c] = sqrt(m.var[c]) * (double)ds->x_scale;
        if (m.var[c] == 0) m.var[c] = 1; /* a constant channel, or ids */
    }
    *mean = m.mean;
    *std = m.var;
    return DLT_OK;
}
