/* Sums: the reduce op over any set of axes, and bias_bwd. f32 sums in a fixed order. */
#include "cuda/kernels/channels.cuh"
#include "ops/elementwise.h"

namespace
{

/* ---- one axis kept: bias_bwd, and reduce where the kept axes are neighbours ---- */

template <typename T> struct Terms {
    template <int V> struct Load {
        const T *x;
        __device__ __forceinline__ Nothing look(int64_t) const
        {
            return Nothing();
        }
        __device__ __forceinline__ void operator()(int64_t at, int64_t, Nothing, float *acc) const
        {
            float v[V];
            load_v<T, V>(x + at, v);
#pragma unroll
            for (int k = 0; k < V; k++)
                acc[k] += v[k];
        }
    };
};
struct Store {
    Out y;
    float scale;
    __device__ __forceinline__ void operator()(int64_t c, const float *sum) const
    {
        y.set(c, sum[0] * scale);
    }
};

/* Blocks a multiprocessor: more reads under way pay when there is much to read. */
static int blocks_per_sm(Axis a)
{
    return a.outer * a.c * a.inner >= (int64_t)1 << 22 ? 4 : 2;
}
static ChannelPlan plan_for(const DltCall *c, const DltTensor *x, Axis a)
{
    int v = x->dtype == DLT_F32 ? 4 : 8;
    return channel_plan(a, aligned16(c->in[0]) ? v : 1, c->stream->dev->n_sm, blocks_per_sm(a));
}
static DltStatus sum_channels(const DltCall *c, DltErr *err, Axis a, float scale)
{
    const DltTensor *x = c->node->in[0];
    ChannelPlan p = plan_for(c, x, a);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(
        x->dtype, T,
        s = channel_reduce<1, Pack<T>::n, Terms<T>::template Load>(
            c, err, p, (float *)c->work, Store{output(c, 0), scale}, (const T *)c->in[0]));
    return s;
}

static bool accepts_bias_grad(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    return dlt_cuda_accepts_any(n, dev, why_not) &&
           rows_fit(axis_of(n->in[0], ((const DltBias *)n->attr)->axis), why_not);
}
static DltStatus prepare_bias_grad(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    Axis a = axis_of(n->in[0], ((const DltBias *)n->attr)->axis);
    p->work_bytes = channel_bytes(a, dev->n_sm, 1, blocks_per_sm(a));
    return DLT_OK;
}
static DltStatus launch_bias_grad(const DltCall *c, DltErr *err)
{
    return sum_channels(c, err, axis_of(c->node->in[0], ((const DltBias *)c->node->attr)->axis), 1);
}

/* ---- reduce ---- */

/* x's axes in memory order, neighbours of one kind merged: alternately kept and reduced. */
struct Runs {
    int n;
    int64_t dim[DLT_MAX_RANK];
    bool reduced[DLT_MAX_RANK];
};
static Runs runs_of(const DltNode *n)
{
    const DltTensor *x = n->in[0];
    uint32_t axes = ((const DltReduce *)n->attr)->axes, mask = 0;
    DltShape s = memory_shape(x);
    for (int i = 0; i < s.rank; i++)
        if (axes >> i & 1) mask |= 1u << memory_axis(x, i);
    Runs r = {};
    for (int i = 0; i < s.rank; i++) {
        bool reduced = mask >> i & 1;
        if (s.dim[i] == 1) continue;
        if (r.n == 0 || r.reduced[r.n - 1] != reduced) {
            r.dim[r.n] = 1;
            r.reduced[r.n++] = reduced;
        }
        r.dim[r.n - 1] *= s.dim[i];
    }
    return r;
}
static float scale_of(const DltNode *n)
{
    if (!((const DltReduce *)n->attr)->mean) return 1.0f;
    return (float)((double)count_of(n->out[0]) / (double)count_of(n->in[0]));
}
/* [R1, C, R2] with R1 or R2 possibly 1: the runs as channels. */
static bool as_axis(const Runs &r, Axis *a)
{
    *a = Axis{1, 1, 1};
    bool kept = false;
    for (int i = 0; i < r.n; i++) {
        if (!r.reduced[i]) {
            if (kept) return false;
            kept = true;
            a->c = r.dim[i];
        } else if (kept) {
            a->inner = r.dim[i];
        } else {
            a->outer = r.dim[i];
        }
    }
    if (!kept) *a = Axis{1, 1, a->outer}; /* one sum of everything */
    return true;
}
static bool is_float(const DltTensor *t)
{
    return t->dtype == DLT_F32 || t->dtype == DLT_BF16 || t->dtype == DLT_F16;
}

enum { ROW_MOST = 2048 }; /* longer rows get a block each */
static bool accepts_rows(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_same_layout(n, dev, why_not)) return false;
    Runs r = runs_of(n);
    if (is_float(n->in[0]) && r.n == 2 && !r.reduced[0] && r.dim[1] <= ROW_MOST) return true;
    return dlt_cuda_refuse(why_not, "not the sum of short contiguous rows");
}
/* y[r] = scale sum_k x[r, k].  x [R, K] T, y [R] any type; one warp a row. */
template <typename T>
__global__ void row_sum_k(const T *x, Out y, int64_t rows, int64_t k, float scale)
{
    begin();
    int lane = threadIdx.x % WARP;
    int64_t r = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (r >= rows) return;
    float sum = 0;
    for (int64_t i = lane; i < k; i += WARP)
        sum += to_float(x[r * k + i]);
    sum = warp_sum(sum);
    if (lane == 0) y.set(r, sum * scale);
}
static DltStatus launch_rows(const DltCall *c, DltErr *err)
{
    Runs r = runs_of(c->node);
    DltStatus s = DLT_OK;
    unsigned blocks = (unsigned)ceil_div(r.dim[0] * WARP, BLOCK);
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T,
                   s = enqueue(c, err, row_sum_k<T>, blocks, BLOCK, 0, (const T *)c->in[0],
                               output(c, 0), r.dim[0], r.dim[1], scale_of(c->node)));
    return s;
}

static bool accepts_axis(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    Axis a;
    if (!dlt_cuda_accepts_same_layout(n, dev, why_not)) return false;
    if (is_float(n->in[0]) && as_axis(runs_of(n), &a)) return rows_fit(a, why_not);
    return dlt_cuda_refuse(why_not, "kept axes are no neighbours in memory");
}
static DltStatus prepare_axis(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    Axis a;
    (void)as_axis(runs_of(n), &a);
    p->work_bytes = channel_bytes(a, dev->n_sm, 1, blocks_per_sm(a));
    return DLT_OK;
}
static DltStatus launch_axis(const DltCall *c, DltErr *err)
{
    Axis a;
    (void)as_axis(runs_of(c->node), &a);
    return sum_channels(c, err, a, scale_of(c->node));
}

/* y[kept] = scale sum over the reduced walk.  Any axes, types and layouts; one thread an output. */
template <typename I>
__global__ void reduce_walk_k(Walk kept, Walk reduced, In x, Out y, I n, I terms, float scale)
{
    begin();
    for (I i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        I base[3], off[3] = {};
        kept.at(i, base, 2);
        float sum = 0;
        for (I j = 0; j < terms; j++) {
            if (reduced.rank == 1)
                off[0] = j * (I)reduced.stride[0][0];
            else
                reduced.at(j, off, 1);
            sum += x[(int64_t)(base[0] + off[0])];
        }
        y.set((int64_t)base[1], sum * scale);
    }
}
static DltStatus launch_walk(const DltCall *c, DltErr *err)
{
    const DltTensor *x = c->node->in[0], *y = c->node->out[0];
    uint32_t axes = ((const DltReduce *)c->node->attr)->axes;
    Walk kept = {}, reduced = {};
    for (int m = 0; m < x->shape.rank; m++)
        for (int a = 0; a < x->shape.rank; a++) {
            if (memory_axis(x, a) != m || x->shape.dim[a] == 1) continue;
            Walk *w = axes >> a & 1 ? &reduced : &kept;
            w->dim[w->rank] = x->shape.dim[a];
            w->stride[0][w->rank] = stride_of(x, a);
            w->stride[1][w->rank++] = stride_of(y, a);
        }
    walk_merge(&kept, 2);
    walk_merge(&reduced, 1);
    int64_t n = count_of(y), terms = n ? count_of(x) / n : 0;
    DltStatus s = DLT_OK;
    DLT_INDEX_TYPE(count_of(x), I,
                   s = enqueue(c, err, reduce_walk_k<I>, blocks_for(c, n, BLOCK), BLOCK, 0, kept,
                               reduced, input(c, 0), output(c, 0), (I)n, (I)terms,
                               scale_of(c->node)));
    return s;
}

DLT_CUDA_KERNEL(bias_grad, "bias_bwd.cuda.channels", accepts_bias_grad, prepare_bias_grad,
                launch_bias_grad);
DLT_CUDA_KERNEL(rows, "reduce.cuda.rows", accepts_rows, nullptr, launch_rows);
DLT_CUDA_KERNEL(channels, "reduce.cuda.channels", accepts_axis, prepare_axis, launch_axis);
DLT_CUDA_KERNEL(walk, "reduce.cuda.walk", dlt_cuda_accepts_any, nullptr, launch_walk);
} // namespace

extern "C" {
const DltKernel *const dlt_cuda_bias_bwd[] = {&bias_grad, nullptr};
const DltKernel *const dlt_cuda_reduce[] = {&rows, &channels, &walk, nullptr};
}
