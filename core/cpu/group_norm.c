/* Group normalisation: x is [N, G, C/G, inner], and a group of one sample is one run of memory. */
#include "cpu/plain.h"
#include "ops/norm.h"
#include <math.h>

typedef struct Norm {
    int64_t n, groups, channels, inner; /* channels of one group */
    DltReal eps;
    const DltReal *dy, *x, *w, *b, *mean, *rstd;
    DltReal *y, *dx, *dw, *db, *mean_out, *rstd_out;
} Norm;

static Norm norm_of(const DltCall *call, const DltTensor *x)
{
    const DltNorm *attr = call->node->attr;
    return (Norm){.n = x->shape.dim[0],
                  .groups = attr->groups,
                  .channels = x->shape.dim[1] / attr->groups,
                  .inner = dlt_shape_span(&x->shape, 2, x->shape.rank),
                  .eps = (DltReal)attr->eps};
}

static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *n = ctx;
    int64_t count = n->channels * n->inner;
    for (int64_t i = begin; i < end; i++) { /* n, g */
        const DltReal *x = n->x + i * count;
        double mean = dlt_sum(x, count) / (double)count;
        double var = dlt_sum_squared_from(x, mean, count) / (double)count;
        DltReal m = (DltReal)mean, rstd = (DltReal)(1 / sqrt(var + (double)n->eps));
        n->mean_out[i] = m;
        n->rstd_out[i] = rstd;
        for (int64_t k = 0; k < n->channels; k++) {
            int64_t c = i % n->groups * n->channels + k;
            DltReal scale = n->w != NULL ? rstd * n->w[c] : rstd,
                    shift = n->b != NULL ? n->b[c] : 0;
            const DltReal *from = x + k * n->inner;
            DltReal *to = n->y + i * count + k * n->inner;
            for (int64_t j = 0; j < n->inner; j++)
                to[j] = (from[j] - m) * scale + shift;
        }
    }
}

/* mean, rstd of each sample's group of channels; y = (x - mean) rstd w + b.  x, y f32 [N,C,..];
 * w, b f32[C]; mean, rstd f32 [N,G].  norm.h; Wu & He 2018, equation 7 */
static DltStatus forward(const DltCall *call, DltErr *err)
{
    (void)err;
    Norm n = norm_of(call, call->node->in[0]);
    n.x = call->in[0];
    n.w = call->in[1];
    n.b = call->in[2];
    n.y = call->out[0];
    n.mean_out = call->out[1];
    n.rstd_out = call->out[2];
    dlt_pool_for(call->stream, n.n * n.groups, dlt_grain(4 * n.channels * n.inner), forward_task,
                 &n);
    return DLT_OK;
}

static void parameters_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *n = ctx;
    int64_t all = n->groups * n->channels;
    for (int64_t c = begin; c < end; c++) {
        double dw = 0, db = 0;
        for (int64_t s = 0; s < n->n; s++) {
            const DltReal *dy = n->dy + (s * all + c) * n->inner,
                          *x = n->x + (s * all + c) * n->inner;
            int64_t group = s * n->groups + c / n->channels;
            double sum = dlt_sum(dy, n->inner);
            db += sum;
            dw +=
                (dlt_dot(dy, x, n->inner) - (double)n->mean[group] * sum) * (double)n->rstd[group];
        }
        n->dw[c] = (DltReal)dw;
        n->db[c] = (DltReal)db;
    }
}

static void backward_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *n = ctx;
    int64_t count = n->channels * n->inner;
    for (int64_t i = begin; i < end; i++) { /* n, g */
        const DltReal *dy = n->dy + i * count, *x = n->x + i * count;
        const DltReal *w = n->w + i % n->groups * n->channels;
        DltReal mean = n->mean[i], rstd = n->rstd[i];
        double sum_g = 0, sum_g_x = 0;
        for (int64_t k = 0; k < n->channels; k++) {
            sum_g += (double)w[k] * dlt_sum(dy + k * n->inner, n->inner);
            sum_g_x += (double)w[k] * dlt_dot(dy + k * n->inner, x + k * n->inner, n->inner);
        }
        double sum_g_xhat = (sum_g_x - (double)mean * sum_g) * (double)rstd;
        DltReal mean_g = (DltReal)(sum_g / (double)count);
        DltReal slope = (DltReal)(sum_g_xhat / (double)count) * rstd;
        for (int64_t k = 0; k < n->channels; k++) {
            int64_t at = k * n->inner;
            DltReal *dx = n->dx + i * count + at;
            for (int64_t j = 0; j < n->inner; j++) {
                dx[j] = rstd * (dy[at + j] * w[k] - mean_g - (x[at + j] - mean) * slope);
            }
        }
    }
}

/* With g = dy w, xhat = (x - mean) rstd and means over a group: db = sum dy, dw = sum dy xhat,
 * dx = rstd (g - mean g - xhat mean(g xhat)).  dy, x, dx f32 [N,C,..]; w, dw, db f32[C].  norm.h */
static DltStatus backward(const DltCall *call, DltErr *err)
{
    (void)err;
    Norm n = norm_of(call, call->node->in[1]);
    n.dy = call->in[0];
    n.x = call->in[1];
    n.w = call->in[2];
    n.mean = call->in[3];
    n.rstd = call->in[4];
    n.dx = call->out[0];
    n.dw = call->out[1];
    n.db = call->out[2];
    dlt_pool_for(call->stream, n.groups * n.channels, dlt_grain(2 * n.n * n.inner), parameters_task,
                 &n);
    dlt_pool_for(call->stream, n.n * n.groups, dlt_grain(8 * n.channels * n.inner), backward_task,
                 &n);
    return DLT_OK;
}

static const DltKernel plain_forward = {.name = "group_norm_fwd.cpu.plain", .launch = forward};
const DltKernel *const dlt_cpu_group_norm_fwd[] = {&plain_forward, NULL};

static const DltKernel plain_backward = {.name = "group_norm_bwd.cpu.plain", .launch = backward};
const DltKernel *const dlt_cpu_group_norm_bwd[] = {&plain_backward, NULL};
