/* The gradient of an activation, the activation again and the column sums of the gradient, in one pass over
 * memory: ops/elementwise.h. */
#include "cuda/kernels/act.cuh"
#include "cuda/kernels/channels.cuh"
#include "cuda/kernels/kernels.h"

namespace
{

enum { PER_SM = 4 }; /* blocks: each element is read once, so many reads must be under way */

/* dx = dy f'(x), y = f(x) or NULL; terms of db: dx as it is stored.  dy, x, dx, y [rows, C] T; dx may be dy's
 * memory. */
template <typename T> struct Terms {
    template <int V> struct Load {
        DltUnary f;
        const T *dy, *x;
        T *dx, *y;
        __device__ __forceinline__ Nothing look(int64_t) const
        {
            return Nothing();
        }
        __device__ __forceinline__ void operator()(int64_t at, int64_t, Nothing, float *acc) const
        {
            float d[V], s[V], again[V];
            load_v<T, V>(dy + at, d);
            load_v<T, V>(x + at, s);
            with_fn(f.fn, [&](auto fn) {
#pragma unroll
                for (int k = 0; k < V; k++)
                    d[k] *= act_both<decltype(fn)::value>(s[k], (float)f.alpha, &again[k]);
            });
            store_v<T, V>(dx + at, d);
            if (y) store_v<T, V>(y + at, again);
#pragma unroll
            for (int k = 0; k < V; k++)
                acc[k] += to_float(from_float<T>(d[k]));
        }
    };
};
struct Store {
    Out db;
    __device__ __forceinline__ void operator()(int64_t c, const float *sum) const
    {
        if (db.p) db.set(c, sum[0]);
    }
};

static Axis rows_of(const DltTensor *t)
{
    int64_t c = last_dim(t);
    return Axis{count_of(t) / c, c, 1};
}

static DltStatus run(const DltCall *c, DltErr *err)
{
    const DltTensor *t = c->node->in[0];
    DltUnary f = ((const DltActBwd *)c->node->attr)->unary;
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(t->dtype, T, {
        int v = aligned16(c->in[0], c->in[1], c->out[0], c->out[1]) ? Pack<T>::n : 1;
        ChannelPlan p = channel_plan(rows_of(t), v, c->stream->dev->n_sm, PER_SM);
        s = (channel_reduce<1, Pack<T>::n, Terms<T>::template Load>(
            c, err, p, (float *)c->work, Store{output(c, 2)}, f, (const T *)c->in[0],
            (const T *)c->in[1], (T *)c->out[0], (T *)c->out[1]));
    });
    return s;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    p->work_bytes = dlt_cuda_act_bwd_bytes(n, dev);
    return DLT_OK;
}
static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (!rows_fit(rows_of(n->in[0]), why_not)) return false;
    DltDtype type = n->in[0]->dtype;
    if (n->in[1]->dtype == type && n->out[0]->dtype == type &&
        (!n->out[1] || n->out[1]->dtype == type))
        return true;
    return dlt_cuda_refuse(why_not, "tensors differ in type");
}
DLT_CUDA_KERNEL(channels, "act_bwd.cuda.channels", accepts, prepare, run);

} // namespace

extern "C" size_t dlt_cuda_act_bwd_bytes(const DltNode *n, const DltDevice *dev)
{
    return channel_bytes(rows_of(n->in[0]), dev->n_sm, 1, PER_SM);
}
extern "C" DltStatus dlt_cuda_act_bwd_launch(const DltCall *c, DltErr *err)
{
    return run(c, err);
}

extern "C" {
const DltKernel *const dlt_cuda_act_bwd[] = {&channels, nullptr};
}
