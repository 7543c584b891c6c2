/* Layer norm and RMS norm over the last axis in f32 vectors; RMS norm is the same without the mean. Rows of bf16 are
 * widened on the stack, and what is made of them is rounded once. Backward goes over the rows once: dx of a row, and the row's share of the parameter gradients into the
 * partial sums of its band. Bands are fixed by the shape, so results do not depend on the threads. */
#include "cpu/dnnl/tile.h"
#include "ops/norm.h"

#include <math.h>

enum { BANDS = 16, LANES = 16, MAX_LOW = 4096 /* width of a bf16 row */ };

/* mean, b, mean_out NULL: RMS norm, or no bias. Tensors of x's shape are f32 or (low) bf16, the others f32. */
typedef struct Norm {
    int64_t rows, c;
    float eps;
    bool low;
    const float *w, *b, *mean, *rstd;
    const void *x, *res, *dy, *dsum;
    void *y, *dx, *sum;
    float *dw, *db, *mean_out, *rstd_out;
    float *part; /* [BANDS][2][c] */
} Norm;

/* The rows that a row of output is made of, in f32. */
typedef struct Row {
    const float *x, *res, *dy, *dsum;
    float *y, *dx, *sum;
} Row;

/* Row r of a tensor, NULL where that is: where it lies, or widened into `copy`. */
static const float *row_in(const Norm *n, const void *t, int64_t r, float *copy)
{
    if (!t) return NULL;
    if (!n->low) return (const float *)t + r * n->c;
    dlt_widen_run((const uint16_t *)t + r * n->c, copy, n->c);
    return copy;
}

/* Where to write it, and what rounds it when it is written. */
static float *row_out(const Norm *n, void *t, int64_t r, float *copy)
{
    return !t || n->low ? copy : (float *)t + r * n->c;
}

static void row_done(const Norm *n, void *t, int64_t r, const float *copy)
{
    if (t && n->low) dlt_narrow_run(copy, (uint16_t *)t + r * n->c, n->c);
}

static Norm norm_of(const DltCall *call, const DltTensor *x)
{
    const DltNorm *attr = call->node->attr;
    return (Norm){
        .rows = dlt_rows(x), .c = dlt_width(x), .eps = attr->eps, .low = x->dtype == DLT_BF16};
}

DLT_INLINE float lanes_total(const float lane[LANES])
{
    float half[8];
    for (int k = 0; k < 8; k++)
        half[k] = lane[k] + lane[k + 8];
    return ((half[0] + half[4]) + (half[1] + half[5])) +
           ((half[2] + half[6]) + (half[3] + half[7]));
}

/* Adds (x - from)^power of eight to a sum. */
DLT_INLINE void add_power(const float *x, float from, int power, DltV8 *sum)
{
    DltV8 d = *(const DltV8 *)x - from;
    if (power == 2) d *= d;
    *sum += d;
}

/* sum of (x - from)^power, power 1 or 2; four sums at once, so that none waits for the one before. */
DLT_INLINE float power_sum(const float *x, float from, int power, int64_t n)
{
    DltV8 sum[4] = {{0}};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES)
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            add_power(x + i + 8 * k, from, power, &sum[k]);
    for (; i + LANES <= n; i += LANES)
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++)
            add_power(x + i + 8 * k, from, power, &sum[k]);
    float lane[LANES];
    *(DltV8 *)lane = sum[0] + sum[2];
    *(DltV8 *)(lane + 8) = sum[1] + sum[3];
    for (int k = 0; i + k < n; k++) {
        float d = x[i + k] - from;
        lane[k] += power == 2 ? d * d : d;
    }
    return lanes_total(lane);
}

DLT_CLONES static void forward_row(const Norm *n, int64_t r, const Row *row)
{
    const float *x = row->x, *w = n->w, *b = n->b;
    float *y = row->y, mean = 0;
    if (row->res) {
        const float *res = row->res;
        float *sum = row->sum;
#pragma GCC ivdep
        for (int64_t i = 0; i < n->c; i++)
            sum[i] = x[i] + res[i];
        x = sum;
    }
    if (n->mean_out) {
        /* the mean of what is left after a first mean: its rounding does not grow with the mean */
        mean = power_sum(x, 0, 1, n->c) / (float)n->c;
        mean += power_sum(x, mean, 1, n->c) / (float)n->c;
        n->mean_out[r] = mean;
    }
    float var = power_sum(x, mean, 2, n->c) / (float)n->c;
    float rstd = (float)(1 / sqrt((double)var + (double)n->eps));
    n->rstd_out[r] = rstd;
    if (b) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n->c; i++)
            y[i] = (x[i] - mean) * rstd * w[i] + b[i];
        return;
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < n->c; i++)
        y[i] = (x[i] - mean) * rstd * w[i];
}

static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *n = ctx;
    float x[MAX_LOW], res[MAX_LOW], y[MAX_LOW], sum[MAX_LOW];
    for (int64_t r = begin; r < end; r++) {
        Row row = {.x = row_in(n, n->x, r, x), .res = row_in(n, n->res, r, res)};
        row.y = row_out(n, n->y, r, y);
        row.sum = row_out(n, n->sum, r, sum);
        forward_row(n, r, &row);
        row_done(n, n->y, r, y);
        row_done(n, n->sum, r, sum);
    }
}

/* norm.h; Ba et al. 2016, equation 4: shapes as in cpu/layer_norm.c, f32. */
static DltStatus layer_forward(const DltCall *call, DltErr *err)
{
    (void)err;
    Norm n = norm_of(call, call->node->in[0]);
    n.x = call->in[0], n.w = call->in[1], n.b = call->in[2], n.res = call->in[3];
    n.y = call->out[0], n.mean_out = call->out[1], n.rstd_out = call->out[2];
    n.sum = call->out[3];
    dlt_pool_for(call->stream, n.rows, dlt_grain(n.c), forward_task, &n);
    return DLT_OK;
}

/* norm.h; Zhang & Sennrich 2019, equation 4. */
static DltStatus rms_forward(const DltCall *call, DltErr *err)
{
    (void)err;
    Norm n = norm_of(call, call->node->in[0]);
    n.x = call->in[0], n.w = call->in[1], n.res = call->in[2];
    n.y = call->out[0], n.rstd_out = call->out[1], n.sum = call->out[2];
    dlt_pool_for(call->stream, n.rows, dlt_grain(n.c), forward_task, &n);
    return DLT_OK;
}

/* dx of a row, and dw += dy xhat, db += dy. dx may lie where dy lies. */
DLT_CLONES static void backward_row(const Norm *n, int64_t r, const Row *row, float *dw, float *db)
{
    const float *dy = row->dy, *x = row->x, *w = n->w, *dsum = row->dsum;
    float *dx = row->dx, mean = n->mean ? n->mean[r] : 0, rstd = n->rstd[r];
    float g_lane[LANES], gx_lane[LANES];
    DltV8 g_sum[2] = {{0}}, gx_sum[2] = {{0}};
    int64_t i = 0;
    for (; i + LANES <= n->c; i += LANES)
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            int64_t at = i + 8 * k;
            DltV8 g = *(const DltV8 *)(dy + at) * *(const DltV8 *)(w + at);
            g_sum[k] += g;
            gx_sum[k] += g * (*(const DltV8 *)(x + at) - mean);
        }
    memcpy(g_lane, g_sum, sizeof g_lane);
    memcpy(gx_lane, gx_sum, sizeof gx_lane);
    for (int k = 0; i + k < n->c; k++) {
        float g = dy[i + k] * w[i + k];
        g_lane[k] += g;
        gx_lane[k] += g * (x[i + k] - mean);
    }
    float mean_g = n->mean ? lanes_total(g_lane) / (float)n->c : 0;
    float slope = lanes_total(gx_lane) / (float)n->c * rstd * rstd;
#pragma GCC ivdep
    for (int64_t c = 0; c < n->c; c++) {
        float d = dy[c], centred = x[c] - mean;
        dw[c] += d * centred * rstd;
        db[c] += d;
        dx[c] = rstd * (d * w[c] - mean_g - centred * slope);
    }
    if (!dsum) return;
#pragma GCC ivdep
    for (int64_t c = 0; c < n->c; c++)
        dx[c] += dsum[c];
}

static void backward_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *n = ctx;
    float x[MAX_LOW], dy[MAX_LOW], dsum[MAX_LOW], dx[MAX_LOW];
    for (int64_t band = begin; band < end; band++) {
        float *dw = n->part + band * 2 * n->c;
        memset(dw, 0, (size_t)(2 * n->c) * sizeof *dw);
        for (int64_t r = band * n->rows / BANDS; r < (band + 1) * n->rows / BANDS; r++) {
            Row row = {.x = row_in(n, n->x, r, x), .dy = row_in(n, n->dy, r, dy)};
            row.dsum = row_in(n, n->dsum, r, dsum);
            row.dx = row_out(n, n->dx, r, dx);
            backward_row(n, r, &row, dw, dw + n->c);
            row_done(n, n->dx, r, dx);
        }
    }
}

DLT_CLONES static void sum_bands(const float *part, int64_t c, float *to)
{
    memcpy(to, part, (size_t)c * sizeof *to);
    for (int64_t band = 1; band < BANDS; band++)
        for (int64_t i = 0; i < c; i++)
            to[i] += part[band * 2 * c + i];
}

static DltStatus backward_run(const DltCall *call, Norm *n)
{
    n->part = call->work;
    n->dx = call->out[0];
    dlt_pool_for(call->stream, BANDS, 1, backward_task, n);
    sum_bands(n->part, n->c, call->out[1]);
    if (call->out[2]) sum_bands(n->part + n->c, n->c, call->out[2]);
    return DLT_OK;
}

/* Formulas and shapes of cpu/layer_norm.c, f32. */
static DltStatus layer_backward(const DltCall *call, DltErr *err)
{
    (void)err;
    Norm n = norm_of(call, call->node->in[1]);
    n.dy = call->in[0], n.x = call->in[1], n.w = call->in[2];
    n.mean = call->in[3], n.rstd = call->in[4], n.dsum = call->in[5];
    return backward_run(call, &n);
}

static DltStatus rms_backward(const DltCall *call, DltErr *err)
{
    (void)err;
    Norm n = norm_of(call, call->node->in[1]);
    n.dy = call->in[0], n.x = call->in[1], n.w = call->in[2];
    n.rstd = call->in[3], n.dsum = call->in[4];
    return backward_run(call, &n);
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    p->work_bytes = BANDS * 2 * (size_t)dlt_width(n->in[1]) * sizeof(float);
    return DLT_OK;
}

static const DltTensor *x_of(const DltNode *n)
{
    bool forward = n->kind == DLT_OP_layer_norm_fwd || n->kind == DLT_OP_rms_norm_fwd;
    return n->in[forward ? 0 : 1];
}

/* bf16: every tensor of x's shape, and nothing else. */
static bool all_low(const DltNode *n)
{
    const DltTensor *x = x_of(n);
    for (int i = 0; i < DLT_MAX_IN + DLT_MAX_OUT; i++) {
        const DltTensor *t = i < DLT_MAX_IN ? n->in[i] : n->out[i - DLT_MAX_IN];
        if (!t) continue;
        bool like_x = dlt_shape_equal(&t->shape, &x->shape);
        if (t->layout != DLT_PLAIN || t->dtype != (like_x ? DLT_BF16 : DLT_F32)) return false;
    }
    return dlt_width(x) <= MAX_LOW;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    if (!((const DltNorm *)n->attr)->bias)
        return all_low(n) || dlt_kernel_accepts_plain(n, why_not);
    snprintf(why_not->text, sizeof why_not->text, "column sums of dx");
    return false;
}

static const DltKernel layer_fwd_k = {"layer_norm_fwd.cpu.vector", accepts, NULL, layer_forward};
static const DltKernel layer_bwd_k = {"layer_norm_bwd.cpu.vector", accepts, prepare,
                                      layer_backward};
static const DltKernel rms_fwd_k = {"rms_norm_fwd.cpu.vector", accepts, NULL, rms_forward};
static const DltKernel rms_bwd_k = {"rms_norm_bwd.cpu.vector", accepts, prepare, rms_backward};
const DltKernel *const dlt_fast_layer_norm_fwd[] = {&layer_fwd_k, NULL};
const DltKernel *const dlt_fast_layer_norm_bwd[] = {&layer_bwd_k, NULL};
const DltKernel *const dlt_fast_rms_norm_fwd[] = {&rms_fwd_k, NULL};
const DltKernel *const dlt_fast_rms_norm_bwd[] = {&rms_bwd_k, NULL};
