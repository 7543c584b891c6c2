/* Batch norm: one pass that sums, one that writes, each over all channels with whole lines of
 * memory (NHWC), relu and the residual inside. Statistics are sums of differences from the
 * channel's first value, so that a mean far from zero costs no digits. Ioffe & Szegedy 2015. */
#include "cuda/kernels/channels.cuh"
#include "ops/norm.h"

namespace
{

/* ---- forward: statistics ---- */

template <typename T> struct Spread {
    template <int V> struct Load {
        const T *x;
        int64_t inner; /* the channel's first value lies at c * inner */
        struct Kept {
            float first[V];
        };
        __device__ __forceinline__ Kept look(int64_t c) const
        {
            Kept k;
#pragma unroll
            for (int i = 0; i < V; i++)
                k.first[i] = to_float(x[(c + i) * inner]);
            return k;
        }
        __device__ __forceinline__ void operator()(int64_t at, int64_t, const Kept &kept,
                                                   float *acc) const
        {
            float v[V];
            load_v<T, V>(x + at, v);
#pragma unroll
            for (int k = 0; k < V; k++) {
                float d = v[k] - kept.first[k];
                acc[k] += d;
                acc[V + k] += d * d;
            }
        }
    };
};
template <typename T> struct Finish {
    const T *x;
    int64_t inner;
    float n, eps, momentum;
    Out mean, rstd, run_mean, run_var;
    __device__ __forceinline__ void operator()(int64_t c, const float *sum) const
    {
        float d = sum[0] / n, m = to_float(x[c * inner]) + d;
        float var = fmaxf(sum[1] / n - d * d, 0.0f);
        if (sum[1] != sum[1]) var = sum[1]; /* fmaxf would hide NaN */
        mean.set(c, m);
        rstd.set(c, 1.0f / sqrtf(var + eps));
        float unbiased = n > 1 ? var * (n / (n - 1)) : var;
        In old_mean = {run_mean.p, run_mean.dtype}, old_var = {run_var.p, run_var.dtype};
        run_mean.set(c, (1 - momentum) * old_mean[c] + momentum * m);
        run_var.set(c, (1 - momentum) * old_var[c] + momentum * unbiased);
    }
};

/* ---- the pass that writes ---- */

/* What both directions need of the channels a thread works on, looked up once. */
template <int V> struct Scale {
    float a[V], b[V], c[V], mean[V];
};
/* y = act(x a + b + res):  a = rstd w, b = bias - mean rstd w. */
template <typename T> struct Apply {
    template <int V> struct Body {
        const T *x, *res;
        T *y;
        In w, bias, mean, rstd;
        float eps; /* rstd holds a variance when >= 0 */
        bool relu;
        __device__ __forceinline__ Scale<V> scale(int64_t c) const
        {
            Scale<V> s;
#pragma unroll
            for (int k = 0; k < V; k++) {
                float r = rstd[c + k];
                if (eps >= 0) r = 1.0f / sqrtf(r + eps);
                s.a[k] = r * w[c + k];
                s.b[k] = bias[c + k];
                s.mean[k] = mean[c + k];
            }
            return s;
        }
        __device__ __forceinline__ void operator()(int64_t at, const Scale<V> &s) const
        {
            float v[V], r[V];
            load_v<T, V>(x + at, v);
            if (res) load_v<T, V>(res + at, r);
#pragma unroll
            for (int k = 0; k < V; k++) {
                v[k] = (v[k] - s.mean[k]) * s.a[k] + s.b[k];
                if (res) v[k] += r[k];
                if (relu) v[k] = v[k] < 0 ? 0.0f : v[k];
            }
            store_v<T, V>(y + at, v);
        }
    };
};

/* g = dy, or 0 where y <= 0 (relu).  Terms of dw = sum g h and db = sum g, h = (x - mean) rstd. */
template <typename T> struct Terms {
    template <int V> struct Load {
        const T *dy, *x, *y; /* y: NULL without relu */
        In mean;
        struct Kept {
            float mean[V];
        };
        __device__ __forceinline__ Kept look(int64_t c) const
        {
            Kept k;
#pragma unroll
            for (int i = 0; i < V; i++)
                k.mean[i] = mean[c + i];
            return k;
        }
        __device__ __forceinline__ void operator()(int64_t at, int64_t, const Kept &kept,
                                                   float *acc) const
        {
            float g[V], v[V], o[V];
            load_v<T, V>(dy + at, g);
            load_v<T, V>(x + at, v);
            if (y) load_v<T, V>(y + at, o);
#pragma unroll
            for (int k = 0; k < V; k++) {
                float d = y && !(o[k] > 0) ? 0.0f : g[k];
                acc[k] += d * (v[k] - kept.mean[k]);
                acc[V + k] += d;
            }
        }
    };
};
struct FinishGrad {
    Out dw, db;
    In rstd;
    float *sum; /* [2, C] f32: the same two for the next pass */
    int64_t channels;
    __device__ __forceinline__ void operator()(int64_t c, const float *s) const
    {
        float w = s[0] * rstd[c];
        sum[c] = w;
        sum[channels + c] = s[1];
        if (dw.p) dw.set(c, w);
        if (db.p) db.set(c, s[1]);
    }
};
/* dx = w rstd (g - db / R - h dw / R), dres = g. */
template <typename T> struct ApplyGrad {
    template <int V> struct Body {
        const T *dy, *x, *y;
        T *dx, *dres;
        In w, mean, rstd;
        const float *sum;
        int64_t channels;
        float inv_rows;
        __device__ __forceinline__ Scale<V> scale(int64_t c) const
        {
            Scale<V> s; /* dx = a g + b + c (x - mean) */
#pragma unroll
            for (int k = 0; k < V; k++) {
                float r = rstd[c + k], dw = sum[c + k], db = sum[channels + c + k];
                s.a[k] = r * w[c + k];
                s.c[k] = -s.a[k] * r * dw * inv_rows;
                s.b[k] = -s.a[k] * db * inv_rows;
                s.mean[k] = mean[c + k];
            }
            return s;
        }
        __device__ __forceinline__ void operator()(int64_t at, const Scale<V> &s) const
        {
            float g[V], v[V], o[V];
            load_v<T, V>(dy + at, g);
            load_v<T, V>(x + at, v);
            if (y) load_v<T, V>(y + at, o);
#pragma unroll
            for (int k = 0; k < V; k++) {
                if (y && !(o[k] > 0)) g[k] = 0.0f;
                v[k] = s.a[k] * g[k] + s.b[k] + s.c[k] * (v[k] - s.mean[k]);
            }
            store_v<T, V>(dx + at, v);
            if (dres) store_v<T, V>(dres + at, g);
        }
    };
};

/* Calls body for every place of a channel plan; a thread stays on its channels. */
template <int V, typename B> __global__ void places_k(ChannelPlan p, B body)
{
    begin();
    int64_t channels = p.channels;
    int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (c >= channels) return;
    auto scale = body.scale(c);
    uint32_t row = (uint32_t)(blockIdx.y * p.chunk_rows), inner = (uint32_t)p.inner;
    uint32_t end = (uint32_t)min(p.rows, (int64_t)row + p.chunk_rows);
    if (inner == 1) {
#pragma unroll 4
        for (uint32_t r = row + threadIdx.y; r < end; r += blockDim.y)
            body(r * channels + c, scale);
        return;
    }
    for (uint32_t r = row + threadIdx.y; r < end; r += blockDim.y) {
        uint32_t o = r / inner, i = r - o * inner;
        body((o * channels + c) * inner + i, scale);
    }
}
enum { APPLY_PER_SM = 8, SUM_PER_SM = 2 }; /* blocks on a multiprocessor */
template <int N, template <int> class B, typename... A>
static DltStatus places(const DltCall *c, DltErr *err, Axis a, int v, A... body)
{
    ChannelPlan p = channel_plan(a, v, c->stream->dev->n_sm, APPLY_PER_SM);
    dim3 grid(p.tiles, p.chunks), block(p.tx, p.ty);
    if (p.v == 1) return enqueue(c, err, places_k<1, B<1>>, grid, block, 0, p, B<1>{body...});
    return enqueue(c, err, places_k<N, B<N>>, grid, block, 0, p, B<N>{body...});
}

template <typename T> static DltStatus forward(const DltCall *c, DltErr *err)
{
    const DltNorm *a = (const DltNorm *)c->node->attr;
    const T *x = (const T *)c->in[0], *res = (const T *)c->in[5];
    T *y = (T *)c->out[0];
    Axis axis = axis_of(c->node->in[0], 1);
    int v = aligned16(x, res, y) ? Pack<T>::n : 1;
    Finish<T> done = {x,
                      axis.inner,
                      (float)(axis.outer * axis.inner),
                      a->eps,
                      a->momentum,
                      output(c, 1),
                      output(c, 2),
                      Out{c->in[3], (int)c->node->in[3]->dtype},
                      Out{c->in[4], (int)c->node->in[4]->dtype}};
    ChannelPlan p = channel_plan(axis, v, c->stream->dev->n_sm, SUM_PER_SM);
    DLT_TRY((channel_reduce<2, Pack<T>::n, Spread<T>::template Load>(c, err, p, (float *)c->work,
                                                                     done, x, axis.inner)));
    In mean = {c->out[1], DLT_F32}, rstd = {c->out[2], DLT_F32};
    return places<Pack<T>::n, Apply<T>::template Body>(c, err, axis, v, x, res, y, input(c, 1),
                                                       input(c, 2), mean, rstd, -1.0f, a->relu);
}
template <typename T> static DltStatus infer(const DltCall *c, DltErr *err)
{
    const DltNorm *a = (const DltNorm *)c->node->attr;
    const T *x = (const T *)c->in[0], *res = (const T *)c->in[5];
    T *y = (T *)c->out[0];
    int v = aligned16(x, res, y) ? Pack<T>::n : 1;
    return places<Pack<T>::n, Apply<T>::template Body>(c, err, axis_of(c->node->in[0], 1), v, x,
                                                       res, y, input(c, 1), input(c, 2),
                                                       input(c, 3), input(c, 4), a->eps, a->relu);
}
/* Scratch: [2, C] sums of this pass, then the partial ones. */
template <typename T> static DltStatus backward(const DltCall *c, DltErr *err)
{
    const T *dy = (const T *)c->in[0], *x = (const T *)c->in[1], *y = (const T *)c->in[5];
    T *dx = (T *)c->out[0], *dres = (T *)c->out[3];
    Axis axis = axis_of(c->node->in[1], 1);
    int v = aligned16(dy, x, y, dx, dres) ? Pack<T>::n : 1;
    float *sum = (float *)c->work;
    FinishGrad done = {output(c, 1), output(c, 2), input(c, 4), sum, axis.c};
    ChannelPlan p = channel_plan(axis, v, c->stream->dev->n_sm, SUM_PER_SM);
    DLT_TRY((channel_reduce<2, Pack<T>::n, Terms<T>::template Load>(c, err, p, sum + 2 * axis.c,
                                                                    done, dy, x, y, input(c, 3))));
    return places<Pack<T>::n, ApplyGrad<T>::template Body>(
        c, err, axis, v, dy, x, y, dx, dres, input(c, 2), input(c, 3), input(c, 4),
        (const float *)sum, axis.c, 1.0f / (float)(axis.outer * axis.inner));
}

static DltStatus launch_fwd(const DltCall *c, DltErr *err)
{
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T, s = forward<T>(c, err));
    return s;
}
static DltStatus launch_bwd(const DltCall *c, DltErr *err)
{
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T, s = backward<T>(c, err));
    return s;
}
static DltStatus launch_infer(const DltCall *c, DltErr *err)
{
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T, s = infer<T>(c, err));
    return s;
}
static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    int x = n->kind == DLT_OP_batch_norm_bwd ? 1 : 0;
    Axis a = axis_of(n->in[x], 1);
    p->work_bytes = 2 * (size_t)a.c * sizeof(float) + channel_bytes(a, dev->n_sm, 2);
    return DLT_OK;
}
/* x-like tensors share one type; parameters and statistics may have their own. */
static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_same_layout(n, dev, why_not)) return false;
    const DltTensor *like[] = {n->in[0], n->in[5], n->out[0], n->out[3],
                               n->kind == DLT_OP_batch_norm_bwd ? n->in[1] : NULL};
    for (const DltTensor *t : like)
        if (t && t->dtype != n->in[0]->dtype)
            return dlt_cuda_refuse(why_not, "%s and %s differ in type", n->in[0]->name, t->name);
    return rows_fit(axis_of(n->in[0], 1), why_not);
}

DLT_CUDA_KERNEL(fwd, "batch_norm_fwd.cuda.channels", accepts, prepare, launch_fwd);
DLT_CUDA_KERNEL(bwd, "batch_norm_bwd.cuda.channels", accepts, prepare, launch_bwd);
DLT_CUDA_KERNEL(inference, "batch_norm_infer.cuda.channels", accepts, nullptr, launch_infer);

} // namespace

extern "C" {
const DltKernel *const dlt_cuda_batch_norm_fwd[] = {&fwd, nullptr};
const DltKernel *const dlt_cuda_batch_norm_bwd[] = {&bwd, nullptr};
const DltKernel *const dlt_cuda_batch_norm_infer[] = {&inference, nullptr};
}
