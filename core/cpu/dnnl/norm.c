/* Batch norm on channel-blocked images [N][C/blk][H W][blk], with residual and relu: one pass for the
 * statistics, one to apply. Sums run in f32 over one plane around the channel's first value and in double
 * across planes, in a fixed order. Formulas in ops/norm.h. */
#include "ops/norm.h"
#include "cpu/dnnl/tile.h"

#include <math.h>

enum { SPLITS = 8, STRANDS = 4 /* sums side by side, for the adder's latency */ };

typedef struct Norm {
    int64_t n, blocks, hw, blk, splits; /* splits of N for the sums */
    const float *x, *y, *dy, *dy2, *res;
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
    if (((const DltNorm *)n->attr)->bits) {
        snprintf(why_not->text, sizeof why_not->text, "relu's mask is bits");
        return false;
    }
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

/* s, q += the strands' sums of eight channels, strand by strand */
DLT_INLINE void add_strands(const DltV8 sum[STRANDS], const DltV8 square[STRANDS], double *s,
                            double *q)
{
    DltV8 a = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    DltV8 b = (square[0] + square[1]) + (square[2] + square[3]);
    for (int j = 0; j < 8; j++) {
        s[j] += (double)a[j];
        q[j] += (double)b[j];
    }
}

/* sum (x - pivot), sum (x - pivot)^2 of eight channels of a plane. */
DLT_INLINE void plane_stats(const float *x, const float *pivot, int64_t hw, int blk, double *s,
                            double *q)
{
    DltV8 sum[STRANDS] = {{0}}, square[STRANDS] = {{0}}, p = *(const DltV8 *)pivot;
    int64_t i = 0;
    for (; i + STRANDS <= hw; i += STRANDS)
#pragma GCC unroll 4
        for (int k = 0; k < STRANDS; k++) {
            DltV8 d = *(const DltV8 *)(x + (i + k) * blk) - p;
            sum[k] += d;
            square[k] += d * d;
        }
    for (; i < hw; i++) {
        DltV8 d = *(const DltV8 *)(x + i * blk) - p;
        sum[0] += d;
        square[0] += d * d;
    }
    add_strands(sum, square, s, q);
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
            if (k->blk == 8) {
                plane_stats(x, pivot, k->hw, 8, s, q);
            } else {
                plane_stats(x, pivot, k->hw, 16, s, q);
                plane_stats(x + 8, pivot + 8, k->hw, 16, s + 8, q + 8);
            }
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

/* out = act(x * a1 + a2 + res) of eight channels of a plane. */
DLT_INLINE void apply_half(const Norm *k, int64_t offset, int64_t c, int blk, bool has_res,
                           bool relu)
{
    const float *x = k->x + offset, *res = k->res + (has_res ? offset : 0);
    float *y = k->out + offset;
    DltV8 a1 = *(const DltV8 *)(k->a1 + c), a2 = *(const DltV8 *)(k->a2 + c);
    for (int64_t i = 0; i < k->hw * blk; i += blk) {
        DltV8 v = *(const DltV8 *)(x + i) * a1 + a2;
        if (has_res) v += *(const DltV8 *)(res + i);
        if (relu) dlt_v8_relu(&v);
        *(DltV8 *)(y + i) = v;
    }
}

DLT_INLINE void apply_plane(const Norm *k, int64_t offset, int64_t c, int blk)
{
    for (int half = 0; half < blk; half += 8) {
        if (k->res && k->relu)
            apply_half(k, offset + half, c + half, blk, true, true);
        else if (k->res)
            apply_half(k, offset + half, c + half, blk, true, false);
        else if (k->relu)
            apply_half(k, offset + half, c + half, blk, false, true);
        else
            apply_half(k, offset + half, c + half, blk, false, false);
    }
}

DLT_CLONES static void apply_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *k = ctx;
    for (int64_t p = begin; p < end; p++) {
        int64_t cb = p % k->blocks * k->blk, offset = p * k->hw * k->blk;
        if (k->blk == 8)
            apply_plane(k, offset, cb, 8);
        else
            apply_plane(k, offset, cb, 16);
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

/* d = dy (+ dy2) where y > 0 (relu), else dy (+ dy2) */
DLT_INLINE void masked(const Norm *k, const float *dy2, int64_t at, bool relu, DltV8 *d)
{
    *d = *(const DltV8 *)(k->dy + at);
    if (dy2) *d += *(const DltV8 *)(dy2 + at);
    if (relu) *d = (DltV8)((DltI8)*d & (*(const DltV8 *)(k->y + at) > 0.0F));
}

/* sum d, sum d (x - mean) of eight channels of a plane. */
DLT_INLINE void grad_sums_half(const Norm *k, int64_t offset, int64_t c, int blk, bool relu,
                               double *s, double *q)
{
    DltV8 sum[STRANDS] = {{0}}, product[STRANDS] = {{0}}, mean = *(const DltV8 *)(k->mean + c), d;
    const float *dy2 = k->dy2;
    int64_t i = 0;
    for (; i + STRANDS <= k->hw; i += STRANDS)
#pragma GCC unroll 4
        for (int j = 0; j < STRANDS; j++) {
            int64_t at = offset + (i + j) * blk;
            masked(k, dy2, at, relu, &d);
            sum[j] += d;
            product[j] += d * (*(const DltV8 *)(k->x + at) - mean);
        }
    for (; i < k->hw; i++) {
        masked(k, dy2, offset + i * blk, relu, &d);
        sum[0] += d;
        product[0] += d * (*(const DltV8 *)(k->x + offset + i * blk) - mean);
    }
    add_strands(sum, product, s, q);
}

DLT_INLINE void plane_grad_sums(const Norm *k, int64_t offset, int64_t c, int blk, double *s,
                                double *q)
{
    for (int half = 0; half < blk; half += 8) {
        if (k->relu)
            grad_sums_half(k, offset + half, c + half, blk, true, s + half, q + half);
        else
            grad_sums_half(k, offset + half, c + half, blk, false, s + half, q + half);
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
                plane_grad_sums(k, offset, cb * 8, 8, s, q);
            else
                plane_grad_sums(k, offset, cb * 16, 16, s, q);
        }
    }
}

/* dx = a1 d + a2 x + a3 of eight channels of a plane, and dres = d. */
DLT_INLINE void grad_half(const Norm *k, int64_t offset, int64_t c, int blk, bool relu,
                          bool has_res)
{
    DltV8 a1 = *(const DltV8 *)(k->a1 + c), a2 = *(const DltV8 *)(k->a2 + c);
    DltV8 a3 = *(const DltV8 *)(k->a3 + c), d;
    const float *dy2 = k->dy2;
    for (int64_t at = offset; at < offset + k->hw * blk; at += blk) {
        masked(k, dy2, at, relu, &d);
        *(DltV8 *)(k->out + at) = a1 * d + (a2 * *(const DltV8 *)(k->x + at) + a3);
        if (has_res) *(DltV8 *)(k->dres + at) = d;
    }
}

DLT_INLINE void grad_plane(const Norm *k, int64_t offset, int64_t c, int blk)
{
    for (int half = 0; half < blk; half += 8) {
        if (k->relu && k->dres)
            grad_half(k, offset + half, c + half, blk, true, true);
        else if (k->relu)
            grad_half(k, offset + half, c + half, blk, true, false);
        else if (k->dres)
            grad_half(k, offset + half, c + half, blk, false, true);
        else
            grad_half(k, offset + half, c + half, blk, false, false);
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
    k.y = call->in[5], k.dy2 = call->in[6], k.out = call->out[0], k.dres = call->out[3];
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
