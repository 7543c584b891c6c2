/* Gated units in blocks that stay in the first cache: act(g) is made again in the gradient. */
#include "ops/gated.h"
#include "cpu/plain.h"

enum { BLOCK = 256 };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltReal *g = call->in[0], *u = call->in[1];
    DltReal *y = call->out[0], act[BLOCK];
    for (int64_t i = begin; i < end; i += BLOCK) {
        int64_t n = least(BLOCK, end - i);
        dlt_unary_run(call->node->attr, g + i, act, n);
        for (int64_t k = 0; k < n; k++)
            y[i + k] = act[k] * u[i + k];
    }
}

/* y = act(g) u.  g, u, y f32 of one shape.  gated.h */
static DltStatus forward(const DltCall *call, DltErr *err)
{
    (void)err;
    dlt_pool_for(call->stream, dlt_count(call->node->in[0]), dlt_grain(8), forward_task,
                 (void *)call);
    return DLT_OK;
}

static void backward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltReal *dy = call->in[0], *g = call->in[1], *u = call->in[2];
    DltReal *dg = call->out[0], *du = call->out[1], d[BLOCK], act[BLOCK];
    for (int64_t i = begin; i < end; i += BLOCK) {
        int64_t n = least(BLOCK, end - i);
        dlt_unary_run(call->node->attr, g + i, act, n);
        for (int64_t k = 0; k < n; k++) {
            d[k] = dy[i + k] * u[i + k];
            du[i + k] = dy[i + k] * act[k];
        }
        dlt_unary_grad_run(call->node->attr, d, g + i, dg + i, n);
    }
}

/* dg = dy u act'(g), du = dy act(g).  all f32 of one shape.  gated.h */
static DltStatus backward(const DltCall *call, DltErr *err)
{
    (void)err;
    dlt_pool_for(call->stream, dlt_count(call->node->in[0]), dlt_grain(8), backward_task,
                 (void *)call);
    return DLT_OK;
}

static const DltKernel plain_forward = {.name = "gated_fwd.cpu.plain", .launch = forward};
const DltKernel *const dlt_cpu_gated_fwd[] = {&plain_forward, NULL};

static const DltKernel plain_backward = {.name = "gated_bwd.cpu.plain", .launch = backward};
const DltKernel *const dlt_cpu_gated_bwd[] = {&plain_backward, NULL};
