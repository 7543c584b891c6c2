/* Batch norm on channel-blocked images [N][C/blk][H W][blk], with residual and relu: one pass for the
 * statistics, one to apply. Sums run in f32 over one plane around the channel's first value and in double
 * across planes, in a fixed order. Formulas in ops/norm.h. */
#include "ops/norm.h"
#include "cpu/dnnl/fast.h"

#include <math.h>

enum { SPLITS = 8, MAX_BLOCK = 16 };

typedef struct Norm {
    int64_t n, blocks, hw, blk, splits; /* splits of N for the sums */
    const float *x, *y, *dy, *res;
    float *out, *dres;
    const float *w, *b;
    float *mean, *rstd;  /* [C] */
    double *sum;         /* [splits][2][C] */
    float *a1, *a2, *a3; /* [C] coefficients of the second pass */
    bool relu;
} Norm;

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    for (int i = 0; i < DLT_MAX_IN; i++) {
        const DltTensor *t = n->in[i];
        if (t && t->shape.rank == 4 && (t->layout != n->out[0]->layout)) {
            snprintf(why_not->text, sizeof why_not->text, "layouts differ");
            return false;
        }
    }
    if (dlt_fast_block(n->out[0]) > 0) return dlt_fast_f32(n, why_not);
    snprintf(why_not->text, sizeof why_not->text, "not channel-blocked");
    return false;
}

static Norm describe(const DltNode *n)
{
    const DltShape *s = &n->out[0]->shape;
    const DltNorm *a = n->attr;
    int64_t blk = dlt_fast_block(n->out[0]);
    return (Norm){.n = s->dim[0],
                  .blocks = s->dim[1] / blk,
                  .hw = s->dim[2] * s->dim[3],
                  .blk = blk,
                  .splits = s->dim[0] < SPLITS ? s->dim[0] : SPLITS,
                  .relu = a->relu};
}

/* Scratch: sums in double, then three vectors of coefficients. */
static void book(Norm *k, void *work)
{
    int64_t c = k->blocks * k->blk;
    k->sum = work;
    k->a1 = (float *)(void *)(k->sum + 2 * SPLITS * c);
    k->a2 = k->a1 + c;
    k->a3 = k->a2 + c;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    size_t c = (size_t)n->out[0]->shape.dim[1];
    p->work_bytes = c * (2 * SPLITS * sizeof(double) + 3 * sizeof(float));
    return DLT_OK;
}

/* sum (x - pivot), sum (x - pivot)^2 of one plane of blk channels. */
static inline __attribute__((always_inline)) void
plane_stats(const float *x, const float *pivot, int64_t hw, int blk, double *s, double *q)
{
    float sum[MAX_BLOCK] = {0}, square[MAX_BLOCK] = {0};
    for (int64_t i = 0; i < hw; i++)
        for (int j = 0; j < blk; j++) {
            float d = x[i * blk + j] - pivot[j];
            sum[j] += d;
            square[j] += d * d;
        }
    for (int j = 0; j < blk; j++) {
        s[j] += (double)sum[j];
        q[j] += (double)square[j];
    }
}

/* Task t: channel block t / splits, part t % splits of the samples. */
DLT_CLONES static void stats_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *k = ctx;
    int64_t c = k->blocks * k->blk;
    for (int64_t t = begin; t < end; t++) {
        int64_t cb = t / k->splits, part = t % k->splits;
        double *s = k->sum + part * 2 * c + cb * k->blk, *q = s + c;
        const float *pivot = k->x + cb * k->hw * k->blk;
        memset(s, 0, (size_t)k->blk * sizeof *s);
        memset(q, 0, (size_t)k->blk * sizeof *q);
        for (int64_t n = part * k->n / k->splits; n < (part + 1) * k->n / k->splits; n++) {
            const float *x = k->x + (n * k->blocks + cb) * k->hw * k->blk;
            if (k->blk == 8)
                plane_stats(x, pivot, k->hw, 8, s, q);
            else
                plane_stats(x, pivot, k->hw, 16, s, q);
        }
    }
}

static double total(const Norm *k, int which, int64_t channel)
{
    double sum = 0;
    int64_t c = k->blocks * k->blk;
    for (int64_t p = 0; p < k->splits; p++)
        sum += k->sum[(2 * p + which) * c + channel];
    return sum;
}

/* out = act(x * a1 + a2 + res) of one plane. */
static inline __attribute__((always_inline)) void
apply_plane(const Norm *k, int64_t offset, const float *a1, const float *a2, int blk)
{
    const float *x = k->x + offset, *res = k->res ? k->res + offset : NULL;
    float *y = k->out + offset, low = k->relu ? 0.0f : -INFINITY;
    for (int64_t i = 0; i < k->hw; i++)
        for (int j = 0; j < blk; j++) {
            float v = x[i * blk + j] * a1[j] + a2[j];
            if (res) v += res[i * blk + j];
            y[i * blk + j] = v < low ? low : v;
        }
}

DLT_CLONES static void apply_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *k = ctx;
    for (int64_t p = begin; p < end; p++) {
        int64_t cb = p % k->blocks * k->blk, offset = p * k->hw * k->blk;
        if (k->blk == 8)
            apply_plane(k, offset, k->a1 + cb, k->a2 + cb, 8);
        else
            apply_plane(k, offset, k->a1 + cb, k->a2 + cb, 16);
    }
}

static DltStatus fwd(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltNorm *a = call->node->attr;
    Norm k = describe(call->node);
    book(&k, call->work);
    k.x = call->in[0], k.w = call->in[1], k.b = call->in[2], k.res = call->in[5];
    k.out = call->out[0], k.mean = call->out[1], k.rstd = call->out[2];
    float *run_mean = call->in[3], *run_var = call->in[4];
    dlt_pool_for(call->stream, k.blocks * k.splits, 1, stats_task, &k);
    double count = (double)(k.n * k.hw);
    for (int64_t c = 0; c < k.blocks * k.blk; c++) {
        double pivot = (double)k.x[c / k.blk * k.hw * k.blk + c % k.blk];
        double shift = total(&k, 0, c) / count, mean = pivot + shift;
        double var = total(&k, 1, c) / count - shift * shift;
        if (var < 0) var = 0;
        double rstd = 1.0 / sqrt(var + (double)a->eps), m = (double)a->momentum;
        k.mean[c] = (float)mean;
        k.rstd[c] = (float)rstd;
        run_mean[c] = (float)((1 - m) * (double)run_mean[c] + m * mean);
        run_var[c] =
            (float)((1 - m) * (double)run_var[c] + m * var * count / (count > 1 ? count - 1 : 1));
        k.a1[c] = (float)((double)k.w[c] * rstd);
        k.a2[c] = (float)((double)k.b[c] - mean * (double)k.w[c] * rstd);
    }
    dlt_pool_for(call->stream, k.n * k.blocks, 4, apply_task, &k);
    return DLT_OK;
}

static DltStatus infer(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltNorm *a = call->node->attr;
    Norm k = describe(call->node);
    book(&k, call->work);
    const float *w = call->in[1], *b = call->in[2], *mean = call->in[3], *var = call->in[4];
    k.x = call->in[0], k.res = call->in[5], k.out = call->out[0];
    for (int64_t c = 0; c < k.blocks * k.blk; c++) {
        double scale = (double)w[c] / sqrt((double)var[c] + (double)a->eps);
        k.a1[c] = (float)scale;
        k.a2[c] = (float)((double)b[c] - (double)mean[c] * scale);
    }
    dlt_pool_for(call->stream, k.n * k.blocks, 4, apply_task, &k);
    return DLT_OK;
}

/* sum d, sum d (x - mean) of one plane; d = dy where y > 0 (relu), else dy. */
static inline __attribute__((always_inline)) void
plane_grad_sums(const Norm *k, int64_t offset, const float *mean, int blk, double *s, double *q)
{
    const float *x = k->x + offset, *dy = k->dy + offset, *y = k->relu ? k->y + offset : NULL;
    float sum[MAX_BLOCK] = {0}, product[MAX_BLOCK] = {0};
    for (int64_t i = 0; i < k->hw; i++)
        for (int j = 0; j < blk; j++) {
            float d = dy[i * blk + j];
            if (y) d = y[i * blk + j] > 0 ? d : 0.0f;
            sum[j] += d;
            product[j] += d * (x[i * blk + j] - mean[j]);
        }
    for (int j = 0; j < blk; j++) {
        s[j] += (double)sum[j];
        q[j] += (double)product[j];
    }
}

DLT_CLONES static void grad_sums_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *k = ctx;
    int64_t c = k->blocks * k->blk;
    for (int64_t t = begin; t < end; t++) {
        int64_t cb = t / k->splits, part = t % k->splits;
        double *s = k->sum + part * 2 * c + cb * k->blk, *q = s + c;
        memset(s, 0, (size_t)k->blk * sizeof *s);
        memset(q, 0, (size_t)k->blk * sizeof *q);
        for (int64_t n = part * k->n / k->splits; n < (part + 1) * k->n / k->splits; n++) {
            int64_t offset = (n * k->blocks + cb) * k->hw * k->blk;
            if (k->blk == 8)
                plane_grad_sums(k, offset, k->mean + cb * 8, 8, s, q);
            else
                plane_grad_sums(k, offset, k->mean + cb * 16, 16, s, q);
        }
    }
}

/* dx = a1 d + a2 x + a3 of one plane, and dres = d. */
static inline __attribute__((always_inline)) void grad_plane(const Norm *k, int64_t offset,
                                                             int64_t c, int blk)
{
    const float *x = k->x + offset, *dy = k->dy + offset, *y = k->relu ? k->y + offset : NULL;
    const float *a1 = k->a1 + c, *a2 = k->a2 + c, *a3 = k->a3 + c;
    float *dx = k->out + offset, *dres = k->dres ? k->dres + offset : NULL;
    for (int64_t i = 0; i < k->hw; i++)
        for (int j = 0; j < blk; j++) {
            float d = dy[i * blk + j];
            if (y) d = y[i * blk + j] > 0 ? d : 0.0f;
            dx[i * blk + j] = a1[j] * d + a2[j] * x[i * blk + j] + a3[j];
            if (dres) dres[i * blk + j] = d;
        }
}

DLT_CLONES static void grad_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *k = ctx;
    for (int64_t p = begin; p < end; p++) {
        int64_t c = p % k->blocks * k->blk, offset = p * k->hw * k->blk;
        if (k->blk == 8)
            grad_plane(k, offset, c, 8);
        else
            grad_plane(k, offset, c, 16);
    }
}

static DltStatus bwd(const DltCall *call, DltErr *err)
{
    (void)err;
    Norm k = describe(call->node);
    book(&k, call->work);
    k.dy = call->in[0], k.x = call->in[1], k.w = call->in[2], k.mean = call->in[3],
    k.rstd = call->in[4];
    k.y = call->in[5], k.out = call->out[0], k.dres = call->out[3];
    float *dw = call->out[1], *db = call->out[2];
    dlt_pool_for(call->stream, k.blocks * k.splits, 1, grad_sums_task, &k);
    double count = (double)(k.n * k.hw);
    for (int64_t c = 0; c < k.blocks * k.blk; c++) {
        double s = total(&k, 0, c), q = total(&k, 1, c), r = (double)k.rstd[c],
               g = (double)k.w[c] * r;
        dw[c] = (float)(q * r);
        db[c] = (float)s;
        /* dx = g (d - s/count - (x - mean) r^2 q/count) */
        double slope = -g * r * r * q / count;
        k.a1[c] = (float)g;
        k.a2[c] = (float)slope;
        k.a3[c] = (float)(-g * s / count - slope * (double)k.mean[c]);
    }
    dlt_pool_for(call->stream, k.n * k.blocks, 4, grad_task, &k);
    return DLT_OK;
}

static const DltKernel fwd_k = {"batch_norm_fwd.cpu.blocked", accepts, prepare, fwd};
static const DltKernel bwd_k = {"batch_norm_bwd.cpu.blocked", accepts, prepare, bwd};
static const DltKernel infer_k = {"batch_norm_infer.cpu.blocked", accepts, prepare, infer};
const DltKernel *const dlt_fast_batch_norm_fwd[] = {&fwd_k, NULL};
const DltKernel *const dlt_fast_batch_norm_bwd[] = {&bwd_k, NULL};
const DltKernel *const dlt_fast_batch_norm_infer[] = {&infer_k, NULL};
