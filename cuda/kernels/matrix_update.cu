/* Updates that look at a parameter as a whole: LAMB and Muon's own parts. One block walks over the
 * parameter twice with its sums in doubles: plain and in a fixed order; the products between Muon's two
 * parts are ordinary matmul nodes. */
#include "cuda/kernels/prim.cuh"
#include "cuda/kernels/shape.cuh"
#include "ops/step.h"
#include "ops/update_ops.h"

namespace
{

enum { WHOLE = 1024 };

/* r = mhat / (sqrt(vhat) + eps) + wd w */
__device__ __forceinline__ float lamb_direction(const DltUpdate &a, float c1, float c2, float m,
                                                float v, float w)
{
    return m / c1 / (sqrtf(v / c2) + (float)a.eps) + (float)a.weight_decay * w;
}

/* m, v, then w -= lr |w| / |r| r.  w, g, m, v f32 [n], low like w or missing.  One block.
 * ops/update_ops.h; You et al. 2020, algorithm 2 */
__global__ void lamb_k(DltUpdate a, float *w, const float *g, const float *coef,
                       const DltStepState *state, float *m, float *v, Out low, int64_t n)
{
    begin();
    if (coef[DLT_COEF_SKIP] != 0.0f) return;
    float scale = coef[DLT_COEF_SCALE], b1 = (float)a.beta1, b2 = (float)a.beta2;
    float c1 = (float)(1.0 - pow(a.beta1, (double)state->update));
    float c2 = (float)(1.0 - pow(a.beta2, (double)state->update));
    double ww = 0, rr = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        float d = g[i] * scale;
        m[i] = b1 * m[i] + (float)(1.0 - a.beta1) * d;
        v[i] = b2 * v[i] + (float)(1.0 - a.beta2) * d * d;
        float r = lamb_direction(a, c1, c2, m[i], v[i], w[i]);
        ww += (double)w[i] * (double)w[i];
        rr += (double)r * (double)r;
    }
    ww = block_sum(ww);
    rr = block_sum(rr);
    float lr = state->lr * (float)a.lr_factor;
    if (ww > 0 && rr > 0) lr *= (float)sqrt(ww / rr);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        w[i] -= lr * lamb_direction(a, c1, c2, m[i], v[i], w[i]);
        if (low.p) low.set(i, w[i]);
    }
}

/* buf, and x = its step of norm 1.  g, buf, x f32 [n].  One block.  ops/update_ops.h; Jordan 2024 */
__global__ void muon_momentum_k(DltUpdate a, const float *g, float *buf, const float *coef,
                                float *x, int64_t n)
{
    begin();
    bool skip = coef[DLT_COEF_SKIP] != 0.0f;
    float scale = coef[DLT_COEF_SCALE], keep = (float)a.momentum;
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        float d = skip ? 0.0f : g[i] * scale,
              b = skip ? 0.0f : buf[i] + (1.0f - keep) * (d - buf[i]);
        float u = a.nesterov ? d + keep * (b - d) : b;
        if (!skip) buf[i] = b;
        x[i] = u;
        sum += (double)u * (double)u;
    }
    float factor = (float)(1.0 / (sqrt(block_sum(sum)) + 1e-7));
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        x[i] *= factor;
}

/* w -= lr wd w + lr sqrt(max(1, R / C)) x.  w, x f32 [n], low like w or missing. */
__global__ void muon_k(DltUpdate a, float *w, const float *x, const float *coef,
                       const DltStepState *state, Out low, float ratio, int64_t n)
{
    begin();
    if (coef[DLT_COEF_SKIP] != 0.0f) return;
    float lr = state->lr * (float)a.lr_factor, shrink = 1.0f - lr * (float)a.weight_decay;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        w[i] = w[i] * shrink - lr * ratio * x[i];
        if (low.p) low.set(i, w[i]);
    }
}

static Out low_of(const DltCall *c)
{
    return Out{c->in[7], c->node->in[7] ? (int)c->node->in[7]->dtype : (int)DLT_F32};
}
static DltStatus lamb(const DltCall *c, DltErr *err)
{
    return enqueue(c, err, lamb_k, 1, WHOLE, 0, *(const DltUpdate *)c->node->attr,
                   (float *)c->in[0], (const float *)c->in[1], (const float *)c->in[2],
                   (const DltStepState *)c->in[3], (float *)c->in[4], (float *)c->in[5], low_of(c),
                   count_of(c->node->in[0]));
}
static DltStatus momentum(const DltCall *c, DltErr *err)
{
    return enqueue(c, err, muon_momentum_k, 1, WHOLE, 0, *(const DltUpdate *)c->node->attr,
                   (const float *)c->in[0], (float *)c->in[1], (const float *)c->in[2],
                   (float *)c->out[0], count_of(c->node->in[0]));
}
static DltStatus muon(const DltCall *c, DltErr *err)
{
    const DltShape *x = &c->node->in[1]->shape;
    double ratio = (double)x->dim[0] / (double)x->dim[1];
    int64_t n = count_of(c->node->in[1]);
    return enqueue(c, err, muon_k, blocks_for(c, n, BLOCK), BLOCK, 0,
                   *(const DltUpdate *)c->node->attr, (float *)c->in[0], (const float *)c->in[1],
                   (const float *)c->in[2], (const DltStepState *)c->in[3], low_of(c),
                   (float)sqrt(ratio > 1 ? ratio : 1), n);
}

/* All f32 but the low copy. */
static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    DltNode without_low = *n;
    without_low.in[7] = nullptr;
    if (!dlt_cuda_accepts_any(&without_low, dev, why_not)) return false;
    for (int i = 0; i < 7; i++)
        if (n->in[i] && dlt_dtype_is_float(n->in[i]->dtype) && n->in[i]->dtype != DLT_F32)
            return dlt_cuda_refuse(why_not, "input %d is not f32", i);
    return true;
}
DLT_CUDA_KERNEL(lamb_row, "lamb_update.cuda.block", accepts, nullptr, lamb);
DLT_CUDA_KERNEL(momentum_row, "muon_momentum.cuda.block", accepts, nullptr, momentum);
DLT_CUDA_KERNEL(muon_row, "muon_update.cuda.flat", accepts, nullptr, muon);

} // namespace

extern "C" {
const DltKernel *const dlt_cuda_lamb_update[] = {&lamb_row, nullptr};
const DltKernel *const dlt_cuda_muon_momentum[] = {&momentum_row, nullptr};
const DltKernel *const dlt_cuda_muon_update[] = {&muon_row, nullptr};
}
