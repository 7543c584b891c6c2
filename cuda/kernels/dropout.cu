/* Dropout: the mask is a function of (seed, layer, micro batch, element), so nothing is stored and
 * the gradient is the same kernel. Elements are counted in logical order: a NHWC tensor drops the
 * same ones as a plain tensor on the CPU. Srivastava et al. 2014. */
#include "cuda/kernels/prim.cuh"
#include "cuda/kernels/shape.cuh"
#include "ops/dropout.h"
#include "ops/step.h"

namespace
{

/* y = keep ? x / (1 - p) : 0, four elements a draw.  x, y [n] T in one order. */
template <typename T>
__global__ void dropout_k(DltDropout a, const T *x, const DltStepState *state, T *y, int64_t n)
{
    begin();
    uint32_t limit = dlt_dropout_threshold(a.p);
    float scale = 1.0f / (1.0f - a.p);
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t q = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; q * 4 < n; q += step) {
        DltRand4 r = dlt_dropout_draw(state->seed, a.id, state->batch, (uint64_t)q);
        for (int k = 0; k < 4; k++) {
            int64_t i = q * 4 + k;
            if (i < n) y[i] = from_float<T>(r.v[k] >= limit ? to_float(x[i]) * scale : 0.0f);
        }
    }
}
/* The same on NHWC memory: element (n, c, h, w) is number ((n C + c) HW + p). */
template <typename T>
__global__ void dropout_nhwc_k(DltDropout a, const T *x, const DltStepState *state, T *y, int64_t n,
                               int64_t channels, int64_t area)
{
    begin();
    uint32_t limit = dlt_dropout_threshold(a.p);
    float scale = 1.0f / (1.0f - a.p);
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t row = i / channels, c = i - row * channels, s = row / area, p = row - s * area;
        int64_t e = (s * channels + c) * area + p;
        DltRand4 r = dlt_dropout_draw(state->seed, a.id, state->batch, (uint64_t)(e / 4));
        y[i] = from_float<T>(r.v[e % 4] >= limit ? to_float(x[i]) * scale : 0.0f);
    }
}

static DltStatus launch(const DltCall *c, DltErr *err)
{
    const DltTensor *x = c->node->in[0];
    int64_t n = count_of(x);
    DltDropout a = *(const DltDropout *)c->node->attr;
    const DltStepState *state = (const DltStepState *)c->in[1];
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(x->dtype, T, {
        const T *in = (const T *)c->in[0];
        T *out = (T *)c->out[0];
        if (x->layout == DLT_NHWC)
            s = enqueue(c, err, dropout_nhwc_k<T>, blocks_for(c, n, BLOCK), BLOCK, 0, a, in, state,
                        out, n, x->shape.dim[1], x->shape.dim[2] * x->shape.dim[3]);
        else
            s = enqueue(c, err, dropout_k<T>, blocks_for(c, n, BLOCK * 4), BLOCK, 0, a, in, state,
                        out, n);
    });
    return s;
}
static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_same_layout(n, dev, why_not)) return false;
    if (n->in[0]->dtype == n->out[0]->dtype) return true;
    return dlt_cuda_refuse(why_not, "x and y differ in type");
}
DLT_CUDA_KERNEL(kernel, "dropout.cuda.philox", accepts, nullptr, launch);

} // namespace

extern "C" {
const DltKernel *const dlt_cuda_dropout[] = {&kernel, nullptr};
}
