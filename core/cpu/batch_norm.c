/* Batch normalisation over x seen as [outer, C, inner] in memory order (row-major, or NHWC with
 * inner 1). Statistics go channel by channel in double, two passes; the elementwise part goes row
 * by row. */
#include "cpu/plain.h"
#include "ops/norm.h"
#include <math.h>

enum { CHANNELS = 32 }; /* of one chunk of the statistics: whole cache lines of an NHWC row */

typedef struct Norm {
    DltSplitAxis s;
    const DltNorm *attr;
    const DltReal *dy, *x, *w, *b, *mean, *rstd, *res, *y_saved;
    DltReal *y, *dx, *dw, *db, *dres, *run_mean, *run_var, *mean_out, *rstd_out;
    double *sums; /* backward: [2][C], sum dy and sum dy xhat over all rows */
} Norm;

/* Calls row(n, index of its first element, elements, channel) for each run of channels [begin, end)
 * of each outer row; a run is one channel's inner elements, or all channels when inner is 1. */
typedef void (*Row)(const Norm *n, int64_t at, int64_t count, int64_t channel, double *sum);
static void each_row(const Norm *n, int64_t begin, int64_t end, Row row, double *sum)
{
    const DltSplitAxis *s = &n->s;
    for (int64_t o = 0; o < s->outer; o++) {
        int64_t first = o * s->axis * s->inner;
        if (s->inner == 1) {
            row(n, first + begin, end - begin, begin, sum);
            continue;
        }
        for (int64_t c = begin; c < end; c++) {
            row(n, first + c * s->inner, s->inner, c, sum + (c - begin));
        }
    }
}

static void add_row(const Norm *n, int64_t at, int64_t count, int64_t channel, double *sum)
{
    (void)channel;
    if (n->s.inner > 1) {
        *sum += dlt_sum(n->x + at, count);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        sum[i] += (double)n->x[at + i];
}

/* sum[CHANNELS + c] holds the channel's mean. */
static void add_squares_row(const Norm *n, int64_t at, int64_t count, int64_t channel, double *sum)
{
    (void)channel;
    const double *mean = sum + CHANNELS;
    if (n->s.inner > 1) {
        *sum += dlt_sum_squared_from(n->x + at, *mean, count);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        double d = (double)n->x[at + i] - mean[i];
        sum[i] += d * d;
    }
}

static void statistics_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *n = ctx;
    double count = (double)(n->s.outer * n->s.inner), momentum = (double)n->attr->momentum;
    double sum[2 * CHANNELS] = {0};
    double *mean = sum + CHANNELS;
    each_row(n, begin, end, add_row, sum);
    for (int64_t i = 0; i < end - begin; i++) {
        mean[i] = sum[i] / count;
        sum[i] = 0;
    }
    each_row(n, begin, end, add_squares_row, sum);
    for (int64_t c = begin; c < end; c++) {
        double var = sum[c - begin] / count;
        double unbiased = count > 1 ? sum[c - begin] / (count - 1) : var;
        n->mean_out[c] = (DltReal)mean[c - begin];
        n->rstd_out[c] = (DltReal)(1 / sqrt(var + (double)n->attr->eps));
        n->run_mean[c] =
            (DltReal)((1 - momentum) * (double)n->run_mean[c] + momentum * mean[c - begin]);
        n->run_var[c] = (DltReal)((1 - momentum) * (double)n->run_var[c] + momentum * unbiased);
    }
}

static void normalise_row(const Norm *n, int64_t at, int64_t count, int64_t channel)
{
    int64_t step = n->s.inner == 1 ? 1 : 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t c = channel + i * step;
        DltReal y = (n->x[at + i] - n->mean[c]) * n->rstd[c];
        if (n->w != NULL) y *= n->w[c];
        if (n->b != NULL) y += n->b[c];
        if (n->res != NULL) y += n->res[at + i];
        n->y[at + i] = n->attr->relu && y < 0 ? 0 : y;
    }
}

static void normalise_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *n = ctx;
    int64_t width = n->s.inner == 1 ? n->s.axis : n->s.inner;
    for (int64_t r = begin; r < end; r++) {
        normalise_row(n, r * width, width, n->s.inner == 1 ? 0 : r % n->s.axis);
    }
}

/* Elementwise work over all rows. */
static void all_rows(const DltCall *call, Norm *n, DltTask task)
{
    int64_t rows = n->s.inner == 1 ? n->s.outer : n->s.outer * n->s.axis;
    dlt_pool_for(call->stream, rows, dlt_grain(n->s.inner == 1 ? n->s.axis : n->s.inner), task, n);
}

static void all_channels(const DltCall *call, Norm *n, DltTask task)
{
    int64_t grain = dlt_grain(n->s.outer * n->s.inner);
    dlt_pool_for(call->stream, n->s.axis, grain < CHANNELS ? grain : CHANNELS, task, n);
}

/* mean, rstd over all but C; y = act((x - mean) rstd w + b + res); run_mean and run_var follow with
 * momentum, run_var by the unbiased variance.  x, y, res f32 [N,C,..] PLAIN or NHWC, others f32[C].
 * norm.h; Ioffe & Szegedy 2015, algorithm 1 */
static DltStatus forward(const DltCall *call, DltErr *err)
{
    (void)err;
    Norm n = {.s = dlt_split_channels(call->node->in[0], 1), .attr = call->node->attr};
    n.x = call->in[0];
    n.w = call->in[1];
    n.b = call->in[2];
    n.run_mean = call->in[3];
    n.run_var = call->in[4];
    n.res = call->in[5];
    n.y = call->out[0];
    n.mean = n.mean_out = call->out[1];
    n.rstd = n.rstd_out = call->out[2];
    all_channels(call, &n, statistics_task);
    all_rows(call, &n, normalise_task);
    return DLT_OK;
}

static DltReal masked(const Norm *n, int64_t at)
{
    return n->y_saved != NULL && !(n->y_saved[at] > 0) ? 0 : n->dy[at];
}

/* sum[c] += dy, sum[CHANNELS + c] += dy (x - mean) */
static void add_gradients_row(const Norm *n, int64_t at, int64_t count, int64_t channel,
                              double *sum)
{
    int64_t step = n->s.inner == 1 ? 1 : 0;
    for (int64_t i = 0; i < count; i++) {
        double g = (double)masked(n, at + i);
        sum[i * step] += g;
        sum[CHANNELS + i * step] +=
            g * ((double)n->x[at + i] - (double)n->mean[channel + i * step]);
    }
}

static void gradient_sums_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *n = ctx;
    double sum[2 * CHANNELS] = {0};
    each_row(n, begin, end, add_gradients_row, sum);
    for (int64_t c = begin; c < end; c++) {
        double dy = sum[c - begin], dy_xhat = sum[CHANNELS + c - begin] * (double)n->rstd[c];
        n->sums[c] = dy;
        n->sums[n->s.axis + c] = dy_xhat;
        n->db[c] = (DltReal)dy;
        n->dw[c] = (DltReal)dy_xhat;
    }
}

static void gradient_row(const Norm *n, int64_t at, int64_t count, int64_t channel)
{
    int64_t step = n->s.inner == 1 ? 1 : 0;
    double total = (double)(n->s.outer * n->s.inner);
    for (int64_t i = 0; i < count; i++) {
        int64_t c = channel + i * step;
        DltReal g = masked(n, at + i);
        DltReal xhat = (n->x[at + i] - n->mean[c]) * n->rstd[c];
        DltReal mean_dy = (DltReal)(n->sums[c] / total);
        DltReal mean_dy_xhat = (DltReal)(n->sums[n->s.axis + c] / total);
        if (n->dres != NULL) n->dres[at + i] = g;
        n->dx[at + i] = n->w[c] * n->rstd[c] * (g - mean_dy - xhat * mean_dy_xhat);
    }
}

static void gradient_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *n = ctx;
    int64_t width = n->s.inner == 1 ? n->s.axis : n->s.inner;
    for (int64_t r = begin; r < end; r++) {
        gradient_row(n, r * width, width, n->s.inner == 1 ? 0 : r % n->s.axis);
    }
}

/* With g = dy (0 where relu cut y), xhat = (x - mean) rstd and means over all but C:
 * db = sum g, dw = sum g xhat, dx = w rstd (g - mean g - xhat mean(g xhat)), dres = g.
 * dy, x, y, dx, dres f32 PLAIN or NHWC, others f32[C].  norm.h */
static DltStatus backward(const DltCall *call, DltErr *err)
{
    (void)err;
    Norm n = {.s = dlt_split_channels(call->node->in[1], 1), .attr = call->node->attr};
    n.dy = call->in[0];
    n.x = call->in[1];
    n.w = call->in[2];
    n.mean = call->in[3];
    n.rstd = call->in[4];
    n.y_saved = call->in[5];
    n.dx = call->out[0];
    n.dw = call->out[1];
    n.db = call->out[2];
    n.dres = call->out[3];
    n.sums = call->work;
    all_channels(call, &n, gradient_sums_task);
    all_rows(call, &n, gradient_task);
    return DLT_OK;
}

static DltStatus backward_prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    p->work_bytes = (size_t)n->in[1]->shape.dim[1] * 2 * sizeof(double);
    return DLT_OK;
}

static void rstd_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *n = ctx;
    for (int64_t c = begin; c < end; c++) {
        n->rstd_out[c] = (DltReal)(1 / sqrt((double)n->run_var[c] + (double)n->attr->eps));
    }
}

/* y = act((x - mean) / sqrt(var + eps) w + b + res) with the running statistics.  x, y, res f32
 * [N,C,..] PLAIN or NHWC, others f32[C].  norm.h */
static DltStatus infer(const DltCall *call, DltErr *err)
{
    (void)err;
    Norm n = {.s = dlt_split_channels(call->node->in[0], 1), .attr = call->node->attr};
    n.x = call->in[0];
    n.w = call->in[1];
    n.b = call->in[2];
    n.mean = call->in[3];
    n.run_var = call->in[4];
    n.res = call->in[5];
    n.y = call->out[0];
    n.rstd = n.rstd_out = call->work;
    rstd_task(&n, 0, n.s.axis);
    all_rows(call, &n, normalise_task);
    return DLT_OK;
}

static DltStatus infer_prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    p->work_bytes = (size_t)n->in[0]->shape.dim[1] * sizeof(DltReal);
    return DLT_OK;
}

/* All f32; the tensors of x's shape in one layout, PLAIN or NHWC. */
static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltTensor *x = n->out[0]; /* y or dx */
    (void)dev;
    for (int i = 0; i < DLT_MAX_IN + DLT_MAX_OUT; i++) {
        const DltTensor *t = i < DLT_MAX_IN ? n->in[i] : n->out[i - DLT_MAX_IN];
        if (t == NULL) continue;
        bool fits = t->shape.rank < 2 || (t->layout == x->layout && t->layout <= DLT_NHWC);
        if (t->dtype != DLT_F32 || !fits) {
            return dlt_cpu_refuse(why_not, "wants f32, all row-major or all NHWC");
        }
    }
    return true;
}

static const DltKernel plain_forward = {
    .name = "batch_norm_fwd.cpu.plain", .accepts = accepts, .launch = forward};
const DltKernel *const dlt_cpu_batch_norm_fwd[] = {&plain_forward, NULL};

static const DltKernel plain_backward = {.name = "batch_norm_bwd.cpu.plain",
                                         .accepts = accepts,
                                         .prepare = backward_prepare,
                                         .launch = backward};
const DltKernel *const dlt_cpu_batch_norm_bwd[] = {&plain_backward, NULL};

static const DltKernel plain_infer = {.name = "batch_norm_infer.cpu.plain",
                                      .accepts = accepts,
                                      .prepare = infer_prepare,
                                      .launch = infer};
const DltKernel *const dlt_cpu_batch_norm_infer[] = {&plain_infer, NULL};
