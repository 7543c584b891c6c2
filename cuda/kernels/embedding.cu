/* Embedding lookup and its gradient. The gradient gathers: a block per row of the table looks for
 * its id among all ids in order, so the additions have a fixed order and rows nobody used become
 * zero. */
#include "cuda/kernels/prim.cuh"
#include "cuda/kernels/shape.cuh"
#include "ops/shape_ops.h"

namespace
{

/* y[t, :] = w[ids[t], :]; an id outside the table gives NaN.  ids i32[T], w [V, D], y [T, D] T. */
template <typename T>
__global__ void lookup_k(const int32_t *ids, const T *w, T *y, int64_t n, int64_t d, int64_t vocab)
{
    begin();
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n * d; i += step) {
        int64_t t = i / d, e = i - t * d, id = ids[t];
        y[i] = id >= 0 && id < vocab ? w[id * d + e] : from_float<T>(NAN);
    }
}

/* dw[v, :] = (base[v, :] +) sum of dy[t, :] over ids[t] == v, t ascending.  dy [T, D] T, base, dw [V, D] any float.
 * Grid: V. Each round looks at BLOCK ids; the matches are added one after the other. */
template <typename T>
__global__ void lookup_grad_k(const T *dy, const int32_t *ids, In base, Out dw, int64_t n,
                              int64_t d)
{
    begin();
    DLT_DYNAMIC_SHARED(float, sum);
    __shared__ unsigned hit[BLOCK / WARP];
    int32_t v = (int32_t)blockIdx.x;
    for (int64_t e = threadIdx.x; e < d; e += BLOCK)
        sum[e] = base.p ? base[(int64_t)v * d + e] : 0.0f;
    for (int64_t t0 = 0; t0 < n; t0 += BLOCK) {
        int64_t t = t0 + threadIdx.x;
        unsigned mine = __ballot_sync(0xffffffffu, t < n && ids[t] == v);
        if (!__syncthreads_or(mine != 0)) continue;
        if (threadIdx.x % WARP == 0) hit[threadIdx.x / WARP] = mine;
        __syncthreads();
        for (int k = 0; k < BLOCK / WARP; k++)
            for (unsigned m = hit[k]; m; m &= m - 1) {
                int64_t row = t0 + k * WARP + (__ffs((int)m) - 1);
                for (int64_t e = threadIdx.x; e < d; e += BLOCK)
                    sum[e] += to_float(dy[row * d + e]);
            }
        __syncthreads();
    }
    for (int64_t e = threadIdx.x; e < d; e += BLOCK)
        dw.set((int64_t)v * d + e, sum[e]);
}

static DltStatus forward(const DltCall *c, DltErr *err)
{
    const DltTensor *w = c->node->in[1];
    int64_t n = count_of(c->node->in[0]), d = w->shape.dim[1];
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(w->dtype, T,
                   s = enqueue(c, err, lookup_k<T>, blocks_for(c, n * d, BLOCK), BLOCK, 0,
                               (const int32_t *)c->in[0], (const T *)c->in[1], (T *)c->out[0], n, d,
                               w->shape.dim[0]));
    return s;
}
static DltStatus backward(const DltCall *c, DltErr *err)
{
    const DltTensor *dw = c->node->out[0];
    int64_t n = count_of(c->node->in[1]), d = dw->shape.dim[1];
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T,
                   s = enqueue(c, err, lookup_grad_k<T>, (unsigned)dw->shape.dim[0], BLOCK,
                               (size_t)d * sizeof(float), (const T *)c->in[0],
                               (const int32_t *)c->in[1], input(c, 2), output(c, 0), n, d));
    return s;
}
static bool accepts_fwd(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (n->in[1]->dtype == n->out[0]->dtype) return true;
    return dlt_cuda_refuse(why_not, "table and result differ in type");
}
static bool accepts_bwd(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if ((size_t)n->out[0]->shape.dim[1] * sizeof(float) <= dev->shared_bytes - 1024) return true;
    return dlt_cuda_refuse(why_not, "rows of %lld elements do not fit in shared memory",
                           (long long)n->out[0]->shape.dim[1]);
}

DLT_CUDA_KERNEL(fwd, "embedding_fwd.cuda.flat", accepts_fwd, nullptr, forward);
DLT_CUDA_KERNEL(bwd, "embedding_bwd.cuda.gather", accepts_bwd, nullptr, backward);

} // namespace

extern "C" {
extern const DltKernel dlt_cuda_embedding_bwd_sorted; /* embedding_sorted.cu */
const DltKernel *const dlt_cuda_embedding_fwd[] = {&fwd, nullptr};
const DltKernel *const dlt_cuda_embedding_bwd[] = {&dlt_cuda_embedding_bwd_sorted, &bwd, nullptr};
}
