/* A data gradient and the gradient of the activation in front of it, by definition: the product, in
 * place of which the activation's gradient then writes. */
#include "cpu/plain.h"
#include "ops/matmul.h"

/* out[0] = dz w, sums in double. */
static void product_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    DltGemm g = dlt_linear_gemm(call->node);
    const DltReal *dz = call->in[0], *w = call->in[1];
    DltReal *out = call->out[0];
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = 0; j < g.n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < g.k; k++)
                sum += (double)dz[r * g.k + k] * (double)w[k * g.n + j];
            out[r * g.n + j] = (DltReal)sum;
        }
}

/* dx = (dz w) f'(x), y = f(x) and db = column sums of dx where they are asked for.  dz f32[.., K], w f32[K,N],
 * x, dx, y f32[.., N], db f32[N].  matmul.h */
static DltStatus launch(const DltCall *call, DltErr *err)
{
    DltGemm g = dlt_linear_gemm(call->node);
    dlt_pool_for(call->stream, g.m, dlt_grain(g.n * g.k), product_task, (void *)call);
    void *in[DLT_MAX_IN] = {call->out[0], call->in[2]};
    DltNode rest = *call->node;
    rest.in[0] = rest.in[1] = call->node->in[2];
    rest.in[2] = NULL;
    DltCall own = {.node = &rest, .in = in, .out = call->out, .stream = call->stream};
    return dlt_cpu_act_bwd[0]->launch(&own, err);
}

static const DltKernel plain = {.name = "linear_act_bwd.cpu.plain", .launch = launch};
const DltKernel *const dlt_cpu_linear_act_bwd[] = {&plain, NULL};
