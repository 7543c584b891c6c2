/* Losses that compare outputs and targets element by element. */
#include "cpu/plain.h"
#include "ops/loss_ops.h"
#include "ops/step.h"
#include <tgmath.h>

typedef struct LossRow {
    double (*sum)(const DltReal *p, const DltReal *t, int64_t n, DltReal delta);
    void (*slope)(const DltReal *p, const DltReal *t, DltReal *dp, int64_t n, DltReal delta);
} LossRow;

static DltReal clip(DltReal x, DltReal limit)
{
    return x > limit ? limit : x < -limit ? -limit : x;
}

static DltReal huber(DltReal d, DltReal delta)
{
    return fabs(d) <= delta ? d * d / 2 : delta * (fabs(d) - delta / 2);
}

static DltReal sign(DltReal x)
{
    return x > 0 ? 1 : x < 0 ? -1 : 0;
}

/* -t log sigmoid(x) - (1 - t) log(1 - sigmoid(x)), without overflow */
static DltReal bce(DltReal x, DltReal t)
{
    return (x > 0 ? x : 0) - x * t + log1p(exp(-fabs(x)));
}

/* Value and slope in terms of output p, target t, d = p - t and delta. */
#define ROW(id, value, slope_of_p)                                                                 \
    static double id##_sum(const DltReal *pp, const DltReal *pt, int64_t n, DltReal delta)         \
    {                                                                                              \
        double sum = 0;                                                                            \
        for (int64_t i = 0; i < n; i++) {                                                          \
            DltReal p = pp[i], t = pt[i], d = p - t;                                               \
            (void)d, (void)delta;                                                                  \
            sum += (double)(value);                                                                \
        }                                                                                          \
        return sum;                                                                                \
    }                                                                                              \
    static void id##_slope(const DltReal *pp, const DltReal *pt, DltReal *dp, int64_t n,           \
                           DltReal delta)                                                          \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            DltReal p = pp[i], t = pt[i], d = p - t;                                               \
            (void)d, (void)delta;                                                                  \
            dp[i] = (slope_of_p);                                                                  \
        }                                                                                          \
    }
ROW(mse, d *d, 2 * d)
ROW(mae, fabs(d), sign(d))
ROW(huber, huber(d, delta), clip(d, delta))
ROW(bce, bce(p, t), 1 / (1 + exp(-p)) - t)
#undef ROW

static const LossRow rows[DLT_N_POINTWISE] = {
    [DLT_LOSS_MSE] = {mse_sum, mse_slope},
    [DLT_LOSS_MAE] = {mae_sum, mae_slope},
    [DLT_LOSS_HUBER] = {huber_sum, huber_slope},
    [DLT_LOSS_BCE] = {bce_sum, bce_slope},
};

enum { BLOCK = 256, GRAIN = 4096 }; /* elements: converted targets at once; of one chunk */

typedef struct Loss {
    const LossRow *row;
    DltReal delta;
    int64_t per_sample;
    const DltReal *p, *w;
    DltDtype target_dtype;
    const char *t;
    DltReal *dp; /* NULL: forward */
    DltReal scale;
    double *partial; /* [chunks][2] */
} Loss;

/* Elements [begin, end) of one sample, at most BLOCK. */
static void piece(const Loss *l, int64_t begin, int64_t end, double sum[2])
{
    DltReal t[BLOCK];
    int64_t n = end - begin;
    DltReal w = l->w[begin / l->per_sample];
    dlt_cast_run(l->target_dtype, l->t + (size_t)begin * dlt_dtype_bytes(l->target_dtype), DLT_F32,
                 t, n);
    if (l->dp == NULL) {
        if (w != 0) sum[0] += (double)w * l->row->sum(l->p + begin, t, n, l->delta);
        sum[1] += (double)w * (double)n;
        return;
    }
    if (w == 0) {
        memset(l->dp + begin, 0, (size_t)n * sizeof *l->dp);
        return;
    }
    l->row->slope(l->p + begin, t, l->dp + begin, n, l->delta);
    for (int64_t i = begin; i < end; i++)
        l->dp[i] *= w * l->scale;
}

static void task(void *ctx, int64_t begin, int64_t end)
{
    const Loss *l = ctx;
    double sum[2] = {0, 0};
    for (int64_t i = begin; i < end;) {
        int64_t stop = (i / l->per_sample + 1) * l->per_sample;
        if (stop > end) stop = end;
        if (stop > i + BLOCK) stop = i + BLOCK;
        piece(l, i, stop, sum);
        i = stop;
    }
    if (l->dp != NULL) return;
    l->partial[begin / GRAIN * 2] = sum[0];
    l->partial[begin / GRAIN * 2 + 1] = sum[1];
}

static Loss loss_of(const DltCall *call)
{
    const DltNode *n = call->node;
    const DltPointwiseLoss *attr = n->attr;
    const DltStepState *step = call->in[3];
    return (Loss){.row = &rows[attr->kind],
                  .delta = (DltReal)attr->delta,
                  .per_sample = dlt_count(n->in[0]) / dlt_count(n->in[2]),
                  .p = call->in[0],
                  .w = call->in[2],
                  .target_dtype = n->in[1]->dtype,
                  .t = call->in[1],
                  .scale = (DltReal)((double)step->loss_scale / step->sample_weight),
                  .partial = call->work};
}

/* loss f64[2] = (sum of w f(p, t), sum of w over elements).  p f32 [N,..], t f32|i32 of as many
 * elements, w f32[N], step u8.  loss_ops.h */
static DltStatus forward(const DltCall *call, DltErr *err)
{
    (void)err;
    Loss l = loss_of(call);
    int64_t count = dlt_count(call->node->in[0]);
    double *loss = call->out[0];
    dlt_pool_for(call->stream, count, GRAIN, task, &l);
    loss[0] = loss[1] = 0;
    for (int64_t i = 0; i < dlt_chunks(count, GRAIN); i++) {
        loss[0] += l.partial[2 * i];
        loss[1] += l.partial[2 * i + 1];
    }
    return DLT_OK;
}

/* dp f32 = w f'(p, t) loss_scale / sample_weight.  loss_ops.h */
static DltStatus backward(const DltCall *call, DltErr *err)
{
    (void)err;
    Loss l = loss_of(call);
    l.dp = call->out[0];
    dlt_pool_for(call->stream, dlt_count(call->node->in[0]), GRAIN, task, &l);
    return DLT_OK;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    p->work_bytes = (size_t)dlt_chunks(dlt_count(n->in[0]), GRAIN) * 2 * sizeof(double);
    return DLT_OK;
}

static const DltKernel plain_forward = {
    .name = "pointwise_loss_fwd.cpu.plain", .prepare = prepare, .launch = forward};
const DltKernel *const dlt_cpu_pointwise_loss_fwd[] = {&plain_forward, NULL};

static const DltKernel plain_backward = {.name = "pointwise_loss_bwd.cpu.plain",
                                         .launch = backward};
const DltKernel *const dlt_cpu_pointwise_loss_bwd[] = {&plain_backward, NULL};
