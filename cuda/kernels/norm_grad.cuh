/* What the gradients of layer norm and RMS norm share that take rows in packs of 8: their operands, and the
 * second kernel, which adds the blocks' column sums. */
#ifndef DLT_NORM_GRAD_CUH
#define DLT_NORM_GRAD_CUH

#include "cuda/kernels/async.cuh"
#include "cuda/kernels/rows.cuh"
#include "ops/norm.h"

namespace
{

enum { DY, X, DSUM, OPERANDS }; /* what is copied ahead of each row */

template <typename T> struct Gradient {
    const T *dy, *x, *dsum;
    const float *w, *mean, *rstd;
    T *dx;
    float *part; /* [blocks, 3, n] */
    int64_t rows;
    int n;
};

template <typename T, bool CENTER> static Gradient<T> gradient_of(const DltCall *c)
{
    const DltTensor *t = c->node->in[0];
    int64_t n = last_dim(t);
    return Gradient<T>{(const T *)c->in[0],
                       (const T *)c->in[1],
                       (const T *)c->in[CENTER ? 5 : 4],
                       (const float *)c->in[2],
                       CENTER ? (const float *)c->in[3] : nullptr,
                       (const float *)c->in[CENTER ? 4 : 3],
                       (T *)c->out[0],
                       (float *)c->work,
                       count_of(t) / n,
                       (int)n};
}

enum { GROUPS = 16, AHEAD = 16 };

/* The blocks' sums in order: column c of [blocks, 3 n] to out[c / n][c % n].  32 columns a block, GROUPS of
 * blocks side by side, each AHEAD reads at once: it is latency that this costs. */
__global__ void __launch_bounds__(GROUPS *WARP)
    norm_total_k(const float *part, int blocks, int n, Out dw, Out db, Out dxs)
{
    begin();
    __shared__ float group[GROUPS][WARP];
    int lane = (int)threadIdx.x % WARP, g = (int)threadIdx.x / WARP;
    int c = (int)blockIdx.x * WARP + lane, width = 3 * n;
    float sum = 0;
    for (int i = g; i < blocks && c < width; i += GROUPS * AHEAD) {
        float v[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int from = i + k * GROUPS;
            v[k] = from < blocks ? part[(int64_t)from * width + c] : 0.0f;
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            sum += v[k];
    }
    group[g][lane] = sum;
    __syncthreads();
    if (g != 0 || c >= width) return;
    sum = 0;
    for (int i = 0; i < GROUPS; i++)
        sum += group[i][lane];
    Out to = c < n ? dw : c < 2 * n ? db : dxs;
    if (to.p) to.set(c % n, sum);
}

template <bool CENTER> static DltStatus norm_total(const DltCall *c, unsigned blocks, DltErr *err)
{
    int n = (int)last_dim(c->node->in[0]);
    Out none = {nullptr, DLT_F32};
    return enqueue(c, err, norm_total_k, (unsigned)ceil_div(3 * n, WARP), GROUPS * WARP, 0,
                   (const float *)c->work, (int)blocks, n, output(c, 1),
                   CENTER ? output(c, 2) : none, output(c, CENTER ? 3 : 2));
}

/* Plain tensors of one float type but for the statistics, whose rows are a multiple of 8 up to `most`. */
static bool accepts_packs(const DltNode *n, const DltDevice *dev, int64_t most, DltWhy *why_not)
{
    int64_t c = last_dim(n->in[0]);
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (c % 8 != 0 || c > most)
        return dlt_cuda_refuse(why_not, "rows of %lld: a multiple of 8 up to %lld is needed",
                               (long long)c, (long long)most);
    for (int i = 0; i < DLT_MAX_IN; i++) {
        const DltTensor *t = n->in[i];
        bool row = t && dlt_shape_count(&t->shape) == count_of(n->in[0]);
        if (t && t->dtype != (row ? n->in[0]->dtype : DLT_F32))
            return dlt_cuda_refuse(why_not, "%s is %s", t->name, dlt_dtype_name(t->dtype));
    }
    if (n->in[0]->dtype == n->out[0]->dtype) return true;
    return dlt_cuda_refuse(why_not, "%s and %s differ in type", n->in[0]->name, n->out[0]->name);
}

} // namespace

#endif
