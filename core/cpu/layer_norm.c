/* Layer norm and RMS norm over the last axis, one row at a time; RMS norm is the same without the
 * mean. The parameter gradients go by blocks of columns before dx, which may overwrite dy. */
#include "cpu/plain.h"
#include "ops/norm.h"
#include <math.h>

enum { COLUMNS = 64 }; /* of one chunk of the parameter gradients */

/* mean and b NULL: RMS norm. */
typedef struct Norm {
    int64_t rows, c;
    DltReal eps;
    const DltReal *dy, *x, *w, *b, *res, *dsum, *mean, *rstd;
    DltReal *y, *dx, *dw, *db, *dbias, *sum, *mean_out, *rstd_out;
} Norm;

static void forward_row(const Norm *n, int64_t r)
{
    const DltReal *x = n->x + r * n->c;
    DltReal *y = n->y + r * n->c;
    if (n->res != NULL) {
        DltReal *sum = n->sum + r * n->c;
        for (int64_t i = 0; i < n->c; i++)
            sum[i] = x[i] + n->res[r * n->c + i];
        x = sum;
    }
    double mean = n->mean_out != NULL ? dlt_sum(x, n->c) / (double)n->c : 0;
    double var = dlt_sum_squared_from(x, mean, n->c) / (double)n->c;
    DltReal m = (DltReal)mean, rstd = (DltReal)(1 / sqrt(var + (double)n->eps));
    if (n->mean_out != NULL) n->mean_out[r] = m;
    n->rstd_out[r] = rstd;
    for (int64_t i = 0; i < n->c; i++)
        y[i] = (x[i] - m) * rstd * n->w[i];
    for (int64_t i = 0; i < n->c && n->b != NULL; i++)
        y[i] += n->b[i];
}

static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++)
        forward_row(ctx, r);
}

static Norm norm_of(const DltCall *call, const DltTensor *x)
{
    const DltNorm *attr = call->node->attr;
    return (Norm){.rows = dlt_rows(x), .c = dlt_width(x), .eps = (DltReal)attr->eps};
}

/* v = x (+ res, then sum = v); mean, rstd of each row; y = (v - mean) rstd w + b.
 * x, res, y, sum f32 [.., C]; w, b f32[C] (b may be missing); mean, rstd f32 [rows].
 * norm.h; Ba et al. 2016, equation 4 */
static DltStatus layer_forward(const DltCall *call, DltErr *err)
{
    (void)err;
    Norm n = norm_of(call, call->node->in[0]);
    n.x = call->in[0];
    n.w = call->in[1];
    n.b = call->in[2];
    n.res = call->in[3];
    n.y = call->out[0];
    n.mean_out = call->out[1];
    n.rstd_out = call->out[2];
    n.sum = call->out[3];
    dlt_pool_for(call->stream, n.rows, dlt_grain(4 * n.c), forward_task, &n);
    return DLT_OK;
}

/* v = x (+ res, then sum = v); rstd = 1 / sqrt(mean v^2 + eps); y = v rstd w.  Shapes as above.
 * norm.h; Zhang & Sennrich 2019, equation 4 */
static DltStatus rms_forward(const DltCall *call, DltErr *err)
{
    (void)err;
    Norm n = norm_of(call, call->node->in[0]);
    n.x = call->in[0];
    n.w = call->in[1];
    n.res = call->in[2];
    n.y = call->out[0];
    n.rstd_out = call->out[1];
    n.sum = call->out[2];
    dlt_pool_for(call->stream, n.rows, dlt_grain(4 * n.c), forward_task, &n);
    return DLT_OK;
}

static DltReal row_mean(const Norm *n, int64_t r)
{
    return n->mean != NULL ? n->mean[r] : 0;
}

static void parameters_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *n = ctx;
    double dw[COLUMNS] = {0}, db[COLUMNS] = {0};
    for (int64_t r = 0; r < n->rows; r++) {
        const DltReal *dy = n->dy + r * n->c, *x = n->x + r * n->c;
        double mean = (double)row_mean(n, r), rstd = (double)n->rstd[r];
        for (int64_t c = begin; c < end; c++) {
            dw[c - begin] += (double)dy[c] * ((double)x[c] - mean) * rstd;
            db[c - begin] += (double)dy[c];
        }
    }
    for (int64_t c = begin; c < end; c++) {
        n->dw[c] = (DltReal)dw[c - begin];
        if (n->db != NULL) n->db[c] = (DltReal)db[c - begin];
    }
}

static void backward_row(const Norm *n, int64_t r)
{
    const DltReal *dy = n->dy + r * n->c, *x = n->x + r * n->c, *w = n->w;
    DltReal *dx = n->dx + r * n->c;
    DltReal mean = row_mean(n, r), rstd = n->rstd[r];
    double sum_g = dlt_dot(dy, w, n->c);
    double sum_g_xhat = (dlt_dot3(dy, w, x, n->c) - (double)mean * sum_g) * (double)rstd;
    DltReal mean_g = n->mean != NULL ? (DltReal)(sum_g / (double)n->c) : 0;
    DltReal slope = (DltReal)(sum_g_xhat / (double)n->c) * rstd;
    for (int64_t i = 0; i < n->c; i++) {
        dx[i] = rstd * (dy[i] * w[i] - mean_g - (x[i] - mean) * slope);
    }
    for (int64_t i = 0; i < n->c && n->dsum != NULL; i++)
        dx[i] += n->dsum[r * n->c + i];
}

static void backward_task(void *ctx, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++)
        backward_row(ctx, r);
}

/* dbias[c] = sum over rows of dx, as it was stored. */
static void bias_task(void *ctx, int64_t begin, int64_t end)
{
    const Norm *n = ctx;
    double sum[COLUMNS] = {0};
    for (int64_t r = 0; r < n->rows; r++)
        for (int64_t c = begin; c < end; c++)
            sum[c - begin] += (double)n->dx[r * n->c + c];
    for (int64_t c = begin; c < end; c++)
        n->dbias[c] = (DltReal)sum[c - begin];
}

static void backward_run(const DltCall *call, Norm *n)
{
    int64_t grain = dlt_grain(2 * n->rows);
    grain = grain < COLUMNS ? grain : COLUMNS;
    dlt_pool_for(call->stream, n->c, grain, parameters_task, n);
    dlt_pool_for(call->stream, n->rows, dlt_grain(4 * n->c), backward_task, n);
    if (n->dbias != NULL) dlt_pool_for(call->stream, n->c, grain, bias_task, n);
}

/* With g = dy w, xhat = (x - mean) rstd and means over a row: db = sum dy, dw = sum dy xhat,
 * dx = rstd (g - mean g - xhat mean(g xhat)) + dsum.  dy, x, dx, dsum f32 [.., C]; w, dw, db
 * f32[C]; mean, rstd f32 [rows]; dsum may be missing. dbias f32[C] = sum dx, may be missing.  norm.h */
static DltStatus layer_backward(const DltCall *call, DltErr *err)
{
    (void)err;
    Norm n = norm_of(call, call->node->in[1]);
    n.dy = call->in[0];
    n.x = call->in[1];
    n.w = call->in[2];
    n.mean = call->in[3];
    n.rstd = call->in[4];
    n.dsum = call->in[5];
    n.dx = call->out[0];
    n.dw = call->out[1];
    n.db = call->out[2];
    n.dbias = call->out[3];
    backward_run(call, &n);
    return DLT_OK;
}

/* The same without mean: dx = rstd (g - xhat mean(g xhat)) + dsum, dw = sum dy xhat.  norm.h */
static DltStatus rms_backward(const DltCall *call, DltErr *err)
{
    (void)err;
    Norm n = norm_of(call, call->node->in[1]);
    n.dy = call->in[0];
    n.x = call->in[1];
    n.w = call->in[2];
    n.rstd = call->in[3];
    n.dsum = call->in[4];
    n.dx = call->out[0];
    n.dw = call->out[1];
    n.dbias = call->out[2];
    backward_run(call, &n);
    return DLT_OK;
}

static const DltKernel plain_layer_fwd = {.name = "layer_norm_fwd.cpu.plain",
                                          .launch = layer_forward};
const DltKernel *const dlt_cpu_layer_norm_fwd[] = {&plain_layer_fwd, NULL};

static const DltKernel plain_layer_bwd = {.name = "layer_norm_bwd.cpu.plain",
                                          .launch = layer_backward};
const DltKernel *const dlt_cpu_layer_norm_bwd[] = {&plain_layer_bwd, NULL};

static const DltKernel plain_rms_fwd = {.name = "rms_norm_fwd.cpu.plain", .launch = rms_forward};
const DltKernel *const dlt_cpu_rms_norm_fwd[] = {&plain_rms_fwd, NULL};

static const DltKernel plain_rms_bwd = {.name = "rms_norm_bwd.cpu.plain", .launch = rms_backward};
const DltKernel *const dlt_cpu_rms_norm_bwd[] = {&plain_rms_bwd, NULL};
