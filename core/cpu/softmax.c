/* Softmax over the last axis and its gradient, row by row; both may work in place. */
#include "cpu/plain.h"

static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    int64_t c = dlt_width(call->node->in[0]);
    for (int64_t r = begin; r < end; r++) {
        const DltReal *x = (const DltReal *)call->in[0] + r * c;
        DltReal *y = (DltReal *)call->out[0] + r * c;
        DltReal scale = (DltReal)(1 / dlt_exp_run(x, dlt_max(x, c), y, c));
        for (int64_t i = 0; i < c; i++)
            y[i] *= scale;
    }
}

/* y = exp(x - max) / sum exp(x - max) over the last axis.  x, y f32 [.., C].  norm.h */
static DltStatus forward(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltTensor *x = call->node->in[0];
    dlt_pool_for(call->stream, dlt_rows(x), dlt_grain(8 * dlt_width(x)), forward_task,
                 (void *)call);
    return DLT_OK;
}

static void backward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    int64_t c = dlt_width(call->node->in[0]);
    for (int64_t r = begin; r < end; r++) {
        const DltReal *dy = (const DltReal *)call->in[0] + r * c;
        const DltReal *y = (const DltReal *)call->in[1] + r * c;
        DltReal *dx = (DltReal *)call->out[0] + r * c;
        DltReal dot = (DltReal)dlt_dot(dy, y, c);
        for (int64_t i = 0; i < c; i++)
            dx[i] = y[i] * (dy[i] - dot);
    }
}

/* dx = y (dy - sum over the row of dy y).  dy, y, dx f32 [.., C].  norm.h */
static DltStatus backward(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltTensor *x = call->node->in[0];
    dlt_pool_for(call->stream, dlt_rows(x), dlt_grain(2 * dlt_width(x)), backward_task,
                 (void *)call);
    return DLT_OK;
}

static const DltKernel plain_forward = {.name = "softmax_fwd.cpu.plain", .launch = forward};
const DltKernel *const dlt_cpu_softmax_fwd[] = {&plain_forward, NULL};

static const DltKernel plain_backward = {.name = "softmax_bwd.cpu.plain", .launch = backward};
const DltKernel *const dlt_cpu_softmax_bwd[] = {&plain_backward, NULL};
