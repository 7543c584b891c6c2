/* Gated units, elementwise; and expand, which repeats axes of size 1. */
#include "cuda/kernels/act.cuh"
#include "cuda/kernels/shape.cuh"
#include "ops/gated.h"
#include "ops/shape_ops.h"

namespace
{

/* y = act(g) u.  g, u, y [n] T.  ops/gated.h */
template <typename T> __global__ void gated_k(DltUnary a, const T *g, const T *u, T *y, int64_t n)
{
    begin();
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        y[i] = from_float<T>(act_any(a, to_float(g[i])) * to_float(u[i]));
}
/* dg = dy u act'(g), du = dy act(g).  all [n] T.  ops/gated.h */
template <typename T>
__global__ void gated_grad_k(DltUnary a, const T *dy, const T *g, const T *u, T *dg, T *du,
                             int64_t n)
{
    begin();
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        float d = to_float(dy[i]), x = to_float(g[i]);
        dg[i] = from_float<T>(d * to_float(u[i]) * act_grad_any(a, x));
        du[i] = from_float<T>(d * act_any(a, x));
    }
}

static DltStatus forward(const DltCall *c, DltErr *err)
{
    int64_t n = count_of(c->node->in[0]);
    DltUnary a = *(const DltUnary *)c->node->attr;
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T,
                   s = enqueue(c, err, gated_k<T>, blocks_for(c, n, BLOCK), BLOCK, 0, a,
                               (const T *)c->in[0], (const T *)c->in[1], (T *)c->out[0], n));
    return s;
}
static DltStatus backward(const DltCall *c, DltErr *err)
{
    int64_t n = count_of(c->node->in[0]);
    DltUnary a = *(const DltUnary *)c->node->attr;
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T,
                   s = enqueue(c, err, gated_grad_k<T>, blocks_for(c, n, BLOCK), BLOCK, 0, a,
                               (const T *)c->in[0], (const T *)c->in[1], (const T *)c->in[2],
                               (T *)c->out[0], (T *)c->out[1], n));
    return s;
}
static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    for (int i = 0; i < DLT_MAX_IN + DLT_MAX_OUT; i++) {
        const DltTensor *t = i < DLT_MAX_IN ? n->in[i] : n->out[i - DLT_MAX_IN];
        if (t && t->dtype != n->in[0]->dtype)
            return dlt_cuda_refuse(why_not, "tensors differ in type");
    }
    return true;
}
DLT_CUDA_KERNEL(fwd, "gated_fwd.cuda.flat", accepts, nullptr, forward);
DLT_CUDA_KERNEL(bwd, "gated_bwd.cuda.flat", accepts, nullptr, backward);

/* y[i] = x[walk(i)], stride 0 along repeated axes.  x, y of one size of element. */
template <typename T> __global__ void expand_k(Walk w, const T *x, T *y, uint64_t n)
{
    begin();
    uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        uint64_t off[3];
        w.at(i, off, 1);
        y[i] = x[off[0]];
    }
}
static DltStatus expand_launch(const DltCall *c, DltErr *err)
{
    const DltTensor *x = c->node->in[0], *y = c->node->out[0];
    Walk w = walk_like(y, &x, 1);
    int64_t n = count_of(y);
    DltStatus s = DLT_OK;
    DLT_SIZED_TYPE(dlt_dtype_bytes(x->dtype), T,
                   s = enqueue(c, err, expand_k<T>, blocks_for(c, n, BLOCK), BLOCK, 0, w,
                               (const T *)c->in[0], (T *)c->out[0], (uint64_t)n));
    return s;
}
static bool expand_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_any(n, dev, why_not)) return false;
    if (n->in[0]->dtype == n->out[0]->dtype) return true;
    return dlt_cuda_refuse(why_not, "x and y differ in type");
}
DLT_CUDA_KERNEL(expand, "expand.cuda.walk", expand_accepts, nullptr, expand_launch);

} // namespace

extern "C" {
const DltKernel *const dlt_cuda_gated_fwd[] = {&fwd, nullptr};
const DltKernel *const dlt_cuda_gated_bwd[] = {&bwd, nullptr};
const DltKernel *const dlt_cuda_expand[] = {&expand, nullptr};
}
