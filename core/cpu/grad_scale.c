/* Between gradients and updates: accumulation over micro batches, the global norm, and the one
 * factor that updates apply to gradients. */
#include "cpu/device.h"
#include "cpu/plain.h"
#include "ops/step.h"
#include "ops/update_ops.h"
#include <math.h>

enum { GRAIN = 16384 }; /* elements of one partial sum */

static void accumulate_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    DltReal *sum = call->in[0];
    const DltReal *g = call->in[1];
    for (int64_t i = begin; i < end; i++)
        sum[i] += g[i];
}

static void accumulate_double_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    double *sum = call->in[0];
    const double *g = call->in[1];
    for (int64_t i = begin; i < end; i++)
        sum[i] += g[i];
}

static void copy_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    size_t bytes = dlt_dtype_bytes(call->node->in[0]->dtype);
    memcpy((char *)call->in[0] + (size_t)begin * bytes,
           (const char *)call->in[1] + (size_t)begin * bytes, (size_t)(end - begin) * bytes);
}

/* sum = step.micro == 0 ? g : sum + g.  sum, g f32 or f64 of one shape.  update_ops.h */
static DltStatus accumulate(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltStepState *step = call->in[2];
    const DltTensor *sum = call->node->in[0];
    DltTask add = sum->dtype == DLT_F64 ? accumulate_double_task : accumulate_task;
    dlt_pool_for(call->stream, dlt_count(sum), GRAIN, step->micro == 0 ? copy_task : add,
                 (void *)call);
    return DLT_OK;
}

typedef struct Squares {
    const DltReal *x;
    double *partial;
} Squares;

static void squares_task(void *ctx, int64_t begin, int64_t end)
{
    const Squares *s = ctx;
    s->partial[begin / GRAIN] = dlt_cpu_squares(s->x + begin, end - begin);
}

/* Sum of the squares of a node's operand i, in a fixed order. */
static double squares_of(const DltCall *call, int i)
{
    Squares s = {call->in[i], call->work};
    int64_t n = dlt_count(call->node->in[i]);
    double sum = 0;
    dlt_pool_for(call->stream, n, GRAIN, squares_task, &s);
    for (int64_t k = 0; k < dlt_chunks(n, GRAIN); k++)
        sum += s.partial[k];
    return sum;
}

/* sumsq f64[1] = sum x^2, in a fixed order.  x f32 of any shape.  update_ops.h */
static DltStatus sum_squares(const DltCall *call, DltErr *err)
{
    (void)err;
    *(double *)call->out[0] = squares_of(call, 0);
    return DLT_OK;
}

static void squares_work(const DltTensor *x, DltPrep *p)
{
    if (x) p->work_bytes = (size_t)dlt_chunks(dlt_count(x), GRAIN) * sizeof(double);
}

static DltStatus squares_prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    squares_work(n->in[0], p);
    return DLT_OK;
}

static DltStatus scale_prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    squares_work(n->in[1], p);
    return DLT_OK;
}

/* step.loss_scale = scaler[SCALE].  step u8[sizeof(DltStepState)], scaler f32[3].  update_ops.h */
static DltStatus scale_loss(const DltCall *call, DltErr *err)
{
    (void)err;
    DltStepState *step = call->in[0];
    step->loss_scale = (float)((const DltReal *)call->in[1])[DLT_SCALER_SCALE];
    return DLT_OK;
}

/* What coef[SKIP] becomes of an update whose numbers are finite or not; moves the scaler on. */
static int skip_of(const DltGradScale *attr, DltReal *scaler, bool finite)
{
    double s[DLT_SCALER];
    if (scaler == NULL) return finite ? DLT_SKIP_NONE : DLT_SKIP_NONFINITE;
    for (int i = 0; i < DLT_SCALER; i++)
        s[i] = (double)scaler[i];
    int skip = dlt_scaler_next(attr, finite, s);
    for (int i = 0; i < DLT_SCALER; i++)
        scaler[i] = (DltReal)s[i];
    return skip == DLT_SKIP_NONE && !finite ? DLT_SKIP_NONFINITE : skip;
}

/* coef[SCALE] = sample_weight / (loss[1] loss_scale), 0 without weight, clipped to a global norm;
 * coef[NORM] = norm of the mean gradient before clipping; coef[LOSS] = the mean loss; coef[SKIP] = 1
 * when loss or norm is not finite (3 when that is an overflow of f16), 2 when the loss is above
 * step.loss_limit.  loss f64[2], g f32 or missing, states f64[1] or missing, step u8, scaler f32[3] or
 * missing, coef f32[4].  update_ops.h */
static DltStatus grad_scale(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltGradScale *attr = call->node->attr;
    const double *loss = call->in[0], *states = call->in[3];
    double sumsq = call->in[1] != NULL ? squares_of(call, 1) : 0;
    const DltStepState *step = call->in[2];
    DltReal *coef = call->out[0];
    double scale = loss[1] != 0 ? step->sample_weight / (loss[1] * (double)step->loss_scale) : 0;
    double norm = sqrt(sumsq) * scale;
    bool finite = isfinite(loss[0]) && isfinite(loss[1]) && isfinite(sumsq) &&
                  (states == NULL || isfinite(*states));
    double clip = (double)attr->clip;
    if (clip > 0 && norm > clip) scale *= clip / norm;
    coef[DLT_COEF_SCALE] = (DltReal)scale;
    coef[DLT_COEF_NORM] = (DltReal)norm;
    coef[DLT_COEF_LOSS] = (DltReal)(loss[1] != 0 ? loss[0] / loss[1] : 0);
    bool spike = step->loss_limit > 0 && (float)coef[DLT_COEF_LOSS] > step->loss_limit;
    int skip = skip_of(attr, call->in[4], finite && isfinite(norm));
    coef[DLT_COEF_SKIP] = (DltReal)(skip == DLT_SKIP_NONE && spike ? DLT_SKIP_SPIKE : skip);
    return DLT_OK;
}

static const DltKernel plain_accumulate = {.name = "accumulate.cpu.plain", .launch = accumulate};
const DltKernel *const dlt_cpu_accumulate[] = {&plain_accumulate, NULL};

static const DltKernel plain_squares = {
    .name = "sum_squares.cpu.plain", .prepare = squares_prepare, .launch = sum_squares};
const DltKernel *const dlt_cpu_sum_squares[] = {&plain_squares, NULL};

static const DltKernel plain_scale_loss = {.name = "scale_loss.cpu.plain", .launch = scale_loss};
const DltKernel *const dlt_cpu_scale_loss[] = {&plain_scale_loss, NULL};

static const DltKernel plain_scale = {
    .name = "grad_scale.cpu.plain", .prepare = scale_prepare, .launch = grad_scale};
const DltKernel *const dlt_cpu_grad_scale[] = {&plain_scale, NULL};
