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
    const DltReal *dy, *dy2, *x, *w, *b, *mean, *rstd, *res, *y_saved;
    uint8_t *bits; /* of relu, DltNorm.bits: in place of y_saved */
    DltReal *y, *dx, *dw, *db, *dres, *run_mean, *run_var, *mean_out, *rstd_out;
    DltReal *scale, *mean_dy, *slope; /* backward: [C] each, in the workspace */
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

/* y = (x - mean) rstd w + b (+ res) (relu) for one channel's inner elements, or one row of channels */
static void normalise_row(const Norm *n, int64_t at, int64_t count, int64_t channel)
{
    const DltReal *x = n->x + at, *mean = n->mean + channel, *rstd = n->rstd + channel;
    const DltReal *w = n->w != NULL ? n->w + channel : NULL,
                  *b = n->b != NULL ? n->b + channel : NULL;
    DltReal *y = n->y + at;
    if (n->s.inner == 1) {
        for (int64_t i = 0; i < count; i++)
            y[i] = (x[i] - mean[i]) * rstd[i];
        for (int64_t i = 0; i < count && w != NULL; i++)
            y[i] *= w[i];
        for (int64_t i = 0; i < count && b != NULL; i++)
            y[i] += b[i];
    } else {
        DltReal m = *mean, scale = w != NULL ? *rstd * *w : *rstd, shift = b != NULL ? *b : 0;
        for (int64_t i = 0; i < count; i++)
            y[i] = (x[i] - m) * scale + shift;
    }
    for (int64_t i = 0; i < count && n->res != NULL; i++)
        y[i] += n->res[at + i];
    for (int64_t i = 0; i < count && n->attr->relu; i++)
        y[i] = y[i] < 0 ? 0 : y[i];
}

static void normalise_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *n = ctx;
    int64_t width = n->s.inner == 1 ? n->s.axis : n->s.inner;
    for (int64_t r = begin; r < end; r++) {
        normalise_row(n, r * width, width, n->s.inner == 1 ? 0 : r % n->s.axis);
    }
}

static int64_t bytes_of_bits(const Norm *n)
{
    return (n->s.axis + 7) / 8 * n->s.inner;
}

/* Bit of element `at` (in memory order): byte and position. */
static int64_t bit_place(const Norm *n, int64_t at, int *bit)
{
    const DltSplitAxis *s = &n->s;
    int64_t i = at % s->inner, c = at / s->inner % s->axis, o = at / s->inner / s->axis;
    *bit = (int)(c % 8);
    return o * bytes_of_bits(n) + c / 8 * s->inner + i;
}

/* The bits of outer rows [begin, end): set where y > 0. */
static void bits_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *n = ctx;
    int64_t width = n->s.axis * n->s.inner, bytes = bytes_of_bits(n);
    memset(n->bits + begin * bytes, 0, (size_t)((end - begin) * bytes));
    for (int64_t at = begin * width; at < end * width; at++) {
        int bit = 0;
        int64_t place = bit_place(n, at, &bit);
        if (n->y[at] > 0) n->bits[place] |= (uint8_t)(1u << bit);
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

/* mean, rstd over all but C; y = act((x - mean) rstd w + b + res), bits of y > 0; run_mean and run_var follow with
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
    n.bits = call->out[3];
    all_channels(call, &n, statistics_task);
    all_rows(call, &n, normalise_task);
    if (n.bits) dlt_pool_for(call->stream, n.s.outer, 1, bits_task, &n);
    return DLT_OK;
}

static DltReal masked(const Norm *n, int64_t at)
{
    bool kept = n->y_saved == NULL || n->y_saved[at] > 0;
    if (n->bits != NULL) {
        int bit = 0;
        int64_t place = bit_place(n, at, &bit);
        kept = n->bits[place] >> bit & 1;
    }
    if (!kept) return 0;
    return n->dy2 != NULL ? n->dy[at] + n->dy2[at] : n->dy[at];
}

/* *dy += sum g, *dy_x += sum g x over one channel's run, g = 0 where y is not positive */
static void add_masked(const Norm *n, int64_t at, int64_t count, double *dy, double *dy_x)
{
    const DltReal *g = n->dy + at, *x = n->x + at, *y = n->y_saved + at;
    double lane[8] = {0}, lane_x[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        for (int k = 0; k < 8; k++) {
            double kept = y[i + k] > 0 ? (double)g[i + k] : 0;
            lane[k] += kept;
            lane_x[k] += kept * (double)x[i + k];
        }
    }
    for (int k = 0; i + k < count; k++) {
        double kept = y[i + k] > 0 ? (double)g[i + k] : 0;
        lane[k] += kept;
        lane_x[k] += kept * (double)x[i + k];
    }
    *dy += dlt_lanes_total(lane);
    *dy_x += dlt_lanes_total(lane_x);
}

/* sum[c] += g, sum[CHANNELS + c] += g x */
static void add_gradients_row(const Norm *n, int64_t at, int64_t count, int64_t channel,
                              double *sum)
{
    (void)channel;
    if (n->s.inner == 1 || n->bits != NULL || n->dy2 != NULL) {
        for (int64_t i = 0; i < count; i++) {
            int64_t c = n->s.inner == 1 ? i : 0;
            double g = (double)masked(n, at + i);
            sum[c] += g;
            sum[CHANNELS + c] += g * (double)n->x[at + i];
        }
    } else if (n->y_saved != NULL) {
        add_masked(n, at, count, sum, sum + CHANNELS);
    } else {
        sum[0] += dlt_sum(n->dy + at, count);
        sum[CHANNELS] += dlt_dot(n->dy + at, n->x + at, count);
    }
}

/* dw, db and the three factors of dx = scale (g - mean_dy - (x - mean) slope). */
static void gradient_sums_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *n = ctx;
    double sum[2 * CHANNELS] = {0}, count = (double)(n->s.outer * n->s.inner);
    each_row(n, begin, end, add_gradients_row, sum);
    for (int64_t c = begin; c < end; c++) {
        double dy = sum[c - begin], rstd = (double)n->rstd[c];
        double dy_xhat = (sum[CHANNELS + c - begin] - (double)n->mean[c] * dy) * rstd;
        n->db[c] = (DltReal)dy;
        n->dw[c] = (DltReal)dy_xhat;
        n->scale[c] = n->w[c] * n->rstd[c];
        n->mean_dy[c] = (DltReal)(dy / count);
        n->slope[c] = (DltReal)(dy_xhat / count * rstd);
    }
}

static void gradient_row(const Norm *n, int64_t at, int64_t count, int64_t channel)
{
    const DltReal *x = n->x + at, *mean = n->mean + channel, *scale = n->scale + channel;
    const DltReal *mean_dy = n->mean_dy + channel, *slope = n->slope + channel;
    DltReal *dx = n->dx + at;
    for (int64_t i = 0; i < count; i++)
        dx[i] = masked(n, at + i); /* dy may lie there */
    if (n->dres != NULL) memcpy(n->dres + at, dx, (size_t)count * sizeof *dx);
    if (n->s.inner == 1) {
        for (int64_t i = 0; i < count; i++) {
            dx[i] = scale[i] * (dx[i] - mean_dy[i] - (x[i] - mean[i]) * slope[i]);
        }
        return;
    }
    DltReal a = *scale, g = *mean_dy, m = *mean, b = *slope;
    for (int64_t i = 0; i < count; i++)
        dx[i] = a * (dx[i] - g - (x[i] - m) * b);
}

static void gradient_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *n = ctx;
    int64_t width = n->s.inner == 1 ? n->s.axis : n->s.inner;
    for (int64_t r = begin; r < end; r++) {
        gradient_row(n, r * width, width, n->s.inner == 1 ? 0 : r % n->s.axis);
    }
}

/* With g = dy + dy2 (0 where relu cut y), xhat = (x - mean) rstd and means over all but C:
 * db = sum g, dw = sum g xhat, dx = w rstd (g - mean g - xhat mean(g xhat)), dres = g.
 * dy, dy2, x, y, dx, dres f32 PLAIN or NHWC, others f32[C].  norm.h */
static DltStatus backward(const DltCall *call, DltErr *err)
{
    (void)err;
    Norm n = {.s = dlt_split_channels(call->node->in[1], 1), .attr = call->node->attr};
    n.dy = call->in[0];
    n.x = call->in[1];
    n.w = call->in[2];
    n.mean = call->in[3];
    n.rstd = call->in[4];
    if (n.attr->bits)
        n.bits = call->in[5];
    else
        n.y_saved = call->in[5];
    n.dy2 = call->in[6];
    n.dx = call->out[0];
    n.dw = call->out[1];
    n.db = call->out[2];
    n.dres = call->out[3];
    n.scale = call->work;
    n.mean_dy = n.scale + n.s.axis;
    n.slope = n.mean_dy + n.s.axis;
    all_channels(call, &n, gradient_sums_task);
    all_rows(call, &n, gradient_task);
    return DLT_OK;
}

static DltStatus backward_prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    p->work_bytes = (size_t)n->in[1]->shape.dim[1] * 3 * sizeof(DltReal);
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
        if ((t->dtype != DLT_F32 && t->dtype != DLT_U8) || !fits) {
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
