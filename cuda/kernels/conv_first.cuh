/* What the kernels of first convolutions share: their dims and strides, and the sum of the shares that
 * blocks leave of the filters' gradient. */
#ifndef DLT_CONV_FIRST_CUH
#define DLT_CONV_FIRST_CUH

#include "cuda/kernels/act.cuh"
#include "cuda/kernels/channels.cuh"
#include "ops/conv.h"

namespace
{

struct First {
    int n, c, h, w, k, p, q, r, s, sh, sw, dh, dw, top, left;
    int64_t xs[4]; /* strides of x: N, C, H, W */
};

static inline First first_of(const DltNode *n, const DltTensor *x, const DltTensor *y)
{
    const DltConv *a = (const DltConv *)n->attr;
    First d = {};
    d.n = (int)x->shape.dim[0], d.c = (int)x->shape.dim[1];
    d.h = (int)x->shape.dim[2], d.w = (int)x->shape.dim[3];
    d.k = (int)y->shape.dim[1], d.p = (int)y->shape.dim[2], d.q = (int)y->shape.dim[3];
    d.r = (int)a->kernel[0], d.s = (int)a->kernel[1];
    d.sh = (int)a->stride[0], d.sw = (int)a->stride[1];
    d.dh = (int)a->dilation[0], d.dw = (int)a->dilation[1];
    d.top = (int)a->pad[0], d.left = (int)a->pad[2];
    for (int i = 0; i < 4; i++)
        d.xs[i] = stride_of(x, i);
    return d;
}
static inline bool small_dims(const DltTensor *t)
{
    for (int i = 0; i < t->shape.rank; i++)
        if (t->shape.dim[i] > 65535) return false;
    return true;
}

/* Rows of partial sums, and their total: a sum over the first axis. */
template <int V> struct Parts {
    const float *part;
    __device__ __forceinline__ Nothing look(int64_t) const
    {
        return Nothing();
    }
    __device__ __forceinline__ void operator()(int64_t at, int64_t, Nothing, float *acc) const
    {
        for (int k = 0; k < V; k++)
            acc[k] += part[at + k];
    }
};
struct Put {
    Out dw;
    __device__ __forceinline__ void operator()(int64_t i, const float *sum) const
    {
        dw.set(i, sum[0]);
    }
};

/* Bytes behind `blocks` shares of `count` sums that adding them takes. */
static inline size_t parts_bytes(const DltDevice *dev, int64_t blocks, int64_t count)
{
    return channel_bytes(Axis{blocks, count, 1}, dev->n_sm, 1);
}
/* dw = the sum of the shares f32[blocks, count] at the beginning of the scratch. */
static inline DltStatus add_parts(const DltCall *c, DltErr *err, int64_t blocks, int64_t count)
{
    float *part = (float *)c->work;
    ChannelPlan p = channel_plan(Axis{blocks, count, 1}, 1, c->stream->dev->n_sm);
    return channel_reduce<1, 1, Parts>(c, err, p, part + blocks * count, Put{output(c, 0)},
                                       (const float *)part);
}

} // namespace

#endif
