/* Group norm: a block normalises the C/G channels of one sample and group. Works on NHWC and on
 * plain tensors [N, C, ...]. Wu & He 2018. */
#include "cuda/kernels/channels.cuh"
#include "ops/norm.h"

namespace
{

/* x seen as n samples of `channels` channels and `spatial` positions in groups of `width`. */
struct Groups {
    int64_t n, channels, spatial, groups, width;
    bool nhwc;
    /* Offset and channel of element e of group g of sample s. */
    template <typename I>
    __device__ __forceinline__ int64_t at(int64_t s, int64_t g, I e, int64_t *channel) const
    {
        if (nhwc) {
            I p = e / (I)width, c = e - p * (I)width;
            *channel = g * width + c;
            return (s * spatial + p) * channels + *channel;
        }
        *channel = g * width + e / (I)spatial;
        return (s * channels + g * width) * spatial + e;
    }
};
static Groups groups_of(const DltNode *n)
{
    const DltTensor *x = n->in[0];
    Groups g = {};
    g.n = x->shape.dim[0];
    g.channels = x->shape.dim[1];
    g.spatial = dlt_shape_span(&x->shape, 2, x->shape.rank);
    g.groups = ((const DltNorm *)n->attr)->groups;
    g.width = g.channels / g.groups;
    g.nhwc = x->layout == DLT_NHWC;
    return g;
}

/* y = (x - mean) rstd w + b.  x, y T; w, b [C]; mean, rstd [N, G] f32.  Grid: N * G. */
template <typename T, typename I>
__global__ void group_k(Groups d, const T *x, In w, In b, T *y, Out mean, Out rstd, float eps)
{
    begin();
    int64_t s = blockIdx.x / d.groups, g = blockIdx.x % d.groups, c;
    I n = (I)(d.width * d.spatial);
    float sum = 0, q = 0;
    for (I e = threadIdx.x; e < n; e += BLOCK)
        sum += to_float(x[d.at(s, g, e, &c)]);
    float m = block_sum(sum) / (float)n;
    for (I e = threadIdx.x; e < n; e += BLOCK) {
        float v = to_float(x[d.at(s, g, e, &c)]) - m;
        q += v * v;
    }
    float k = 1.0f / sqrtf(block_sum(q) / (float)n + eps);
    for (I e = threadIdx.x; e < n; e += BLOCK) {
        int64_t i = d.at(s, g, e, &c);
        y[i] = from_float<T>((to_float(x[i]) - m) * k * w[c] + b[c]);
    }
    if (threadIdx.x == 0) {
        mean.set(blockIdx.x, m);
        rstd.set(blockIdx.x, k);
    }
}

/* a = dy w, h = (x - mean) rstd:  dx = rstd (a - avg(a) - h avg(a h)), averages over the group. */
template <typename T, typename I>
__global__ void group_grad_k(Groups d, const T *dy, const T *x, In w, In mean, In rstd, T *dx)
{
    begin();
    int64_t s = blockIdx.x / d.groups, g = blockIdx.x % d.groups, c;
    I n = (I)(d.width * d.spatial);
    float m = mean[blockIdx.x], k = rstd[blockIdx.x], sa = 0, sah = 0;
    for (I e = threadIdx.x; e < n; e += BLOCK) {
        int64_t i = d.at(s, g, e, &c);
        float a = to_float(dy[i]) * w[c];
        sa += a;
        sah += a * (to_float(x[i]) - m) * k;
    }
    sa = block_sum(sa) / (float)n;
    sah = block_sum(sah) / (float)n;
    for (I e = threadIdx.x; e < n; e += BLOCK) {
        int64_t i = d.at(s, g, e, &c);
        float a = to_float(dy[i]) * w[c], h = (to_float(x[i]) - m) * k;
        dx[i] = from_float<T>(k * (a - sa - h * sah));
    }
}

/* Terms of dw and db: the statistics of a position are those of its sample and group. */
template <typename T> struct WeightTerms {
    template <int V> struct Load {
        const T *dy, *x;
        In mean, rstd;
        Groups d;
        __device__ __forceinline__ int64_t look(int64_t c) const
        {
            return c / d.width; /* the group */
        }
        __device__ __forceinline__ void operator()(int64_t at, int64_t r, int64_t group,
                                                   float *acc) const
        {
            int64_t i = r / d.spatial * d.groups + group;
            float g = to_float(dy[at]);
            acc[0] += g * (to_float(x[at]) - mean[i]) * rstd[i];
            acc[1] += g;
        }
    };
};
struct StoreWeights {
    Out dw, db;
    __device__ __forceinline__ void operator()(int64_t c, const float *sum) const
    {
        if (dw.p) dw.set(c, sum[0]);
        if (db.p) db.set(c, sum[1]);
    }
};

static DltStatus forward(const DltCall *c, DltErr *err)
{
    Groups d = groups_of(c->node);
    float eps = ((const DltNorm *)c->node->attr)->eps;
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(
        c->node->in[0]->dtype, T,
        DLT_INDEX_TYPE(d.width * d.spatial, I,
                       s = enqueue(c, err, group_k<T, I>, (unsigned)(d.n * d.groups), BLOCK, 0, d,
                                   (const T *)c->in[0], input(c, 1), input(c, 2), (T *)c->out[0],
                                   output(c, 1), output(c, 2), eps)));
    return s;
}

template <typename T> static DltStatus weight_grad(const DltCall *c, DltErr *err, const Groups &d)
{
    ChannelPlan p = channel_plan(axis_of(c->node->in[0], 1), 1, c->stream->dev->n_sm);
    StoreWeights done = {output(c, 1), output(c, 2)};
    return channel_reduce<2, 1, WeightTerms<T>::template Load>(
        c, err, p, (float *)c->work, done, (const T *)c->in[0], (const T *)c->in[1], input(c, 3),
        input(c, 4), d);
}

static DltStatus backward(const DltCall *c, DltErr *err)
{
    Groups d = groups_of(c->node);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T, {
        DLT_INDEX_TYPE(d.width * d.spatial, I,
                       s = enqueue(c, err, group_grad_k<T, I>, (unsigned)(d.n * d.groups), BLOCK, 0,
                                   d, (const T *)c->in[0], (const T *)c->in[1], input(c, 2),
                                   input(c, 3), input(c, 4), (T *)c->out[0]));
        if (s == DLT_OK && (c->out[1] || c->out[2])) s = weight_grad<T>(c, err, d);
    });
    return s;
}

static DltStatus prepare_grad(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    p->work_bytes = channel_bytes(axis_of(n->in[0], 1), dev->n_sm, 2);
    return DLT_OK;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_same_layout(n, dev, why_not)) return false;
    if (!rows_fit(axis_of(n->in[0], 1), why_not)) return false;
    if (n->in[0]->dtype == n->out[0]->dtype) return true;
    return dlt_cuda_refuse(why_not, "%s and %s differ in type", n->in[0]->name, n->out[0]->name);
}

DLT_CUDA_KERNEL(fwd, "group_norm_fwd.cuda.block", accepts, nullptr, forward);
DLT_CUDA_KERNEL(bwd, "group_norm_bwd.cuda.block", accepts, prepare_grad, backward);
} // namespace

extern "C" {
const DltKernel *const dlt_cuda_group_norm_fwd[] = {&fwd, nullptr};
const DltKernel *const dlt_cuda_group_norm_bwd[] = {&bwd, nullptr};
}
