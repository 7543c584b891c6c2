/* Batch norm: one pass that sums, one that writes, each over all channels with whole lines of
 * memory (NHWC), relu and the residual inside. Statistics are sums of differences from the
 * channel's first value, so that a mean far from zero costs no digits. Ioffe & Szegedy 2015. */
#include "cuda/kernels/channels.cuh"
#include "ops/norm.h"

namespace
{

/* Threads of a block and rows a thread loads before it uses them: enough bytes in flight on each
 * multiprocessor for the memory's latency, within the registers. V is 8 (two packs in f32), so
 * that a thread owns a whole byte of relu's bits. */
enum { V_MOST = 8, STAT_BLOCK = 1024, GRAD_BLOCK = 512, STAT_ROWS = 4, GRAD_ROWS = 2 };
enum { APPLY_BLOCK = 256, APPLY_PER_SM = 3 };
template <typename T> constexpr int apply_rows = sizeof(T) == 4 ? 1 : 2;

/* V neighbours of a small tensor, all loads at once where it is f32 (always, but for odd calls). */
template <int V> __device__ __forceinline__ void load_in(const In &in, int64_t c, float v[V])
{
    if (in.dtype == DLT_F32) {
        const float *p = (const float *)in.p + c;
#pragma unroll
        for (int k = 0; k < V; k++)
            v[k] = p[k];
        return;
    }
    for (int k = 0; k < V; k++)
        v[k] = in[c + k];
}

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
        template <int U>
        __device__ __forceinline__ void rows(int64_t at, int64_t step, const Kept &kept,
                                             float *acc) const
        {
            float v[U][V];
#pragma unroll
            for (int u = 0; u < U; u++)
                load_v<T, V>(x + at + u * step, v[u]);
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int k = 0; k < V; k++) {
                    float d = v[u][k] - kept.first[k];
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
        In was_mean = {run_mean.p, run_mean.dtype}, was_var = {run_var.p, run_var.dtype};
        float first, old_mean, old_var;
        load_in<1>(was_mean, c, &old_mean);
        load_in<1>(was_var, c, &old_var);
        first = to_float(x[c * inner]);
        float d = sum[0] / n, m = first + d;
        float var = fmaxf(sum[1] / n - d * d, 0.0f);
        if (sum[1] != sum[1]) var = sum[1]; /* fmaxf would hide NaN */
        mean.set(c, m);
        rstd.set(c, 1.0f / sqrtf(var + eps));
        float unbiased = n > 1 ? var * (n / (n - 1)) : var;
        run_mean.set(c, (1 - momentum) * old_mean + momentum * m);
        run_var.set(c, (1 - momentum) * old_var + momentum * unbiased);
    }
};

/* ---- the pass that writes ---- */

/* What both directions need of the channels a thread works on, looked up once. */
template <int V> struct Scale {
    float a[V], b[V], c[V];
};
/* y = act((x - c) a + b + res):  a = rstd w, b = bias, c = mean. bits: where y > 0, or NULL. */
template <typename T> struct Apply {
    template <int V> struct Body {
        static constexpr int U = apply_rows<T>;
        const T *x, *res;
        T *y;
        uint8_t *bits;
        In w, bias, mean, rstd;
        float eps; /* rstd holds a variance when >= 0 */
        bool relu;
        __device__ __forceinline__ Scale<V> look(int64_t c) const
        {
            Scale<V> s;
            float r[V];
            load_in<V>(rstd, c, r);
            load_in<V>(w, c, s.a);
            load_in<V>(bias, c, s.b);
            load_in<V>(mean, c, s.c);
#pragma unroll
            for (int k = 0; k < V; k++)
                s.a[k] *= eps >= 0 ? 1.0f / sqrtf(r[k] + eps) : r[k];
            return s;
        }
        template <int N>
        __device__ __forceinline__ void rows(int64_t at, int64_t step, const Scale<V> &s) const
        {
            float v[N][V], r[N][V];
#pragma unroll
            for (int u = 0; u < N; u++)
                load_v<T, V>(x + at + u * step, v[u]);
            if (res)
#pragma unroll
                for (int u = 0; u < N; u++)
                    load_v<T, V>(res + at + u * step, r[u]);
#pragma unroll
            for (int u = 0; u < N; u++) {
                unsigned positive = 0;
#pragma unroll
                for (int k = 0; k < V; k++) {
                    float o = (v[u][k] - s.c[k]) * s.a[k] + s.b[k];
                    if (res) o += r[u][k];
                    if (relu) o = o < 0 ? 0.0f : o;
                    v[u][k] = o;
                    positive |= (o > 0 ? 1u : 0u) << k;
                }
                store_v<T, V>(y + at + u * step, v[u]);
                if (bits) bits[(at + u * step) / 8] = (uint8_t)positive;
            }
        }
    };
};

/* g = dy + dy2, or 0 where relu cut y: y <= 0, or the bit is clear. */
template <typename T> struct Gradient {
    const T *dy, *dy2, *y;
    const uint8_t *bits;
    template <int U, int V>
    __device__ __forceinline__ void get(int64_t at, int64_t step, float g[U][V]) const
    {
        float other[U][V];
        unsigned kept[U];
#pragma unroll
        for (int u = 0; u < U; u++)
            load_v<T, V>(dy + at + u * step, g[u]);
        if (bits)
#pragma unroll
            for (int u = 0; u < U; u++)
                kept[u] = bits[(at + u * step) / 8] >> (V == 1 ? at % 8 : 0);
        if (dy2) {
#pragma unroll
            for (int u = 0; u < U; u++)
                load_v<T, V>(dy2 + at + u * step, other[u]);
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int k = 0; k < V; k++)
                    g[u][k] += other[u][k];
        }
        if (y) {
#pragma unroll
            for (int u = 0; u < U; u++)
                load_v<T, V>(y + at + u * step, other[u]);
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int k = 0; k < V; k++)
                    if (!(other[u][k] > 0)) g[u][k] = 0.0f;
        }
        if (bits)
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int k = 0; k < V; k++)
                    if (!(kept[u] >> k & 1)) g[u][k] = 0.0f;
    }
};

/* Terms of dw = sum g h and db = sum g, h = (x - mean) rstd. kept_g = g, where that is wanted. */
template <typename T> struct Terms {
    template <int V> struct Load {
        Gradient<T> gradient;
        const T *x;
        T *kept_g;
        In mean;
        struct Kept {
            float mean[V];
        };
        __device__ __forceinline__ Kept look(int64_t c) const
        {
            Kept k;
            load_in<V>(mean, c, k.mean);
            return k;
        }
        template <int U>
        __device__ __forceinline__ void rows(int64_t at, int64_t step, const Kept &kept,
                                             float *acc) const
        {
            float g[U][V], v[U][V];
#pragma unroll
            for (int u = 0; u < U; u++)
                load_v<T, V>(x + at + u * step, v[u]);
            gradient.template get<U, V>(at, step, g);
#pragma unroll
            for (int u = 0; u < U; u++) {
                if (kept_g) store_v<T, V>(kept_g + at + u * step, g[u]);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    acc[k] += g[u][k] * (v[u][k] - kept.mean[k]);
                    acc[V + k] += g[u][k];
                }
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
/* dx = w rstd (g - db / R - h dw / R). */
template <typename T> struct ApplyGrad {
    template <int V> struct Body {
        static constexpr int U = apply_rows<T>;
        Gradient<T> gradient;
        const T *x;
        T *dx;
        In w, mean, rstd;
        const float *sum;
        int64_t channels;
        float inv_rows;
        __device__ __forceinline__ Scale<V> look(int64_t c) const
        {
            Scale<V> s; /* dx = a g + b + c x */
            float r[V], m[V], dw[V], db[V];
            load_in<V>(rstd, c, r);
            load_in<V>(mean, c, m);
            load_in<V>(w, c, s.a);
#pragma unroll
            for (int k = 0; k < V; k++) {
                dw[k] = sum[c + k];
                db[k] = sum[channels + c + k];
            }
#pragma unroll
            for (int k = 0; k < V; k++) {
                s.a[k] *= r[k];
                s.c[k] = -s.a[k] * r[k] * dw[k] * inv_rows;
                s.b[k] = -s.a[k] * db[k] * inv_rows - s.c[k] * m[k];
            }
            return s;
        }
        template <int N>
        __device__ __forceinline__ void rows(int64_t at, int64_t step, const Scale<V> &s) const
        {
            float g[N][V], v[N][V];
#pragma unroll
            for (int u = 0; u < N; u++)
                load_v<T, V>(x + at + u * step, v[u]);
            gradient.template get<N, V>(at, step, g);
#pragma unroll
            for (int u = 0; u < N; u++) {
#pragma unroll
                for (int k = 0; k < V; k++)
                    v[u][k] = s.a[k] * g[u][k] + s.b[k] + s.c[k] * v[u][k];
                store_v<T, V>(dx + at + u * step, v[u]);
            }
        }
    };
};

/* ---- the walk over rows that both passes share ---- */

/* body(offset, step) for the rows of a block that a thread owns, U at a time. */
template <int U, typename B>
__device__ __forceinline__ void walk_rows(const ChannelPlan &p, int64_t c, const B &body)
{
    int64_t channels = p.channels, step = (int64_t)blockDim.y * channels;
    uint32_t row = (uint32_t)(blockIdx.y * p.chunk_rows), inner = (uint32_t)p.inner;
    uint32_t end = (uint32_t)min(p.rows, (int64_t)row + p.chunk_rows);
    uint32_t r = row + threadIdx.y;
    if (inner == 1) {
        for (; r + (U - 1) * blockDim.y < end; r += U * blockDim.y)
            body(r * channels + c, step, std::integral_constant<int, U>());
        for (; r < end; r += blockDim.y)
            body(r * channels + c, step, std::integral_constant<int, 1>());
        return;
    }
    for (; r < end; r += blockDim.y) {
        uint32_t o = r / inner, i = r - o * inner;
        body((o * channels + c) * inner + i, 0, std::integral_constant<int, 1>());
    }
}

template <int V, int BLOCK_SIZE, int U, typename L, typename D>
__global__ void __launch_bounds__(BLOCK_SIZE)
    sums_k(ChannelPlan p, float *part, unsigned *ticket, L load, D done)
{
    begin();
    int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    float acc[2 * V] = {};
    if (c < p.channels) {
        auto kept = load.look(c);
        walk_rows<U>(p, c, [&](int64_t at, int64_t step, auto u) {
            load.template rows<decltype(u)::value>(at, step, kept, acc);
        });
    }
    channel_finish<2, V>(p, part, ticket, acc, done);
}
template <int V, typename B>
__global__ void __launch_bounds__(APPLY_BLOCK, APPLY_PER_SM) places_k(ChannelPlan p, B body)
{
    begin();
    int64_t c = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (c >= p.channels) return;
    auto scale = body.look(c);
    walk_rows<B::U>(p, c, [&](int64_t at, int64_t step, auto u) {
        body.template rows<decltype(u)::value>(at, step, scale);
    });
}

/* Scratch of the sums: [2, C] for the second pass, then the partial ones. */
static size_t sums_bytes(Axis a, int n_sm, int block)
{
    return 2 * (size_t)a.c * sizeof(float) + channel_bytes(a, n_sm, 2, 1, block);
}
template <int BLOCK_SIZE, int U, template <int> class L, typename D, typename... A>
static DltStatus sums(const DltCall *c, DltErr *err, Axis a, int v, D done, A... load)
{
    ChannelPlan p = channel_plan(a, v, c->stream->dev->n_sm, 1, BLOCK_SIZE);
    dim3 grid(p.tiles, p.chunks), block(p.tx, p.ty);
    float *part = (float *)c->work + 2 * a.c;
    unsigned *ticket = c->stream->ticket;
    if (p.v == 1)
        return enqueue(c, err, sums_k<1, BLOCK_SIZE, U, L<1>, D>, grid, block, channel_shared(p, 2),
                       p, part, ticket, L<1>{load...}, done);
    return enqueue(c, err, sums_k<V_MOST, BLOCK_SIZE, U, L<V_MOST>, D>, grid, block,
                   channel_shared(p, 2), p, part, ticket, L<V_MOST>{load...}, done);
}
template <template <int> class B, typename... A>
static DltStatus places(const DltCall *c, DltErr *err, Axis a, int v, A... body)
{
    ChannelPlan p = channel_plan(a, v, c->stream->dev->n_sm, APPLY_PER_SM, APPLY_BLOCK);
    dim3 grid(p.tiles, p.chunks), block(p.tx, p.ty);
    if (p.v == 1) return enqueue(c, err, places_k<1, B<1>>, grid, block, 0, p, B<1>{body...});
    return enqueue(c, err, places_k<V_MOST, B<V_MOST>>, grid, block, 0, p, B<V_MOST>{body...});
}

template <typename T> static DltStatus forward(const DltCall *c, DltErr *err)
{
    const DltNorm *a = (const DltNorm *)c->node->attr;
    const T *x = (const T *)c->in[0], *res = (const T *)c->in[5];
    T *y = (T *)c->out[0];
    Axis axis = axis_of(c->node->in[0], 1);
    int v = aligned16(x, res, y) ? V_MOST : 1;
    DLT_BUG_ON(a->bits && v == 1); /* tensors with bits are no views */
    Finish<T> done = {x,
                      axis.inner,
                      (float)(axis.outer * axis.inner),
                      a->eps,
                      a->momentum,
                      output(c, 1),
                      output(c, 2),
                      Out{c->in[3], (int)c->node->in[3]->dtype},
                      Out{c->in[4], (int)c->node->in[4]->dtype}};
    DLT_TRY((sums<STAT_BLOCK, STAT_ROWS, Spread<T>::template Load>(c, err, axis, v, done, x,
                                                                   axis.inner)));
    In mean = {c->out[1], DLT_F32}, rstd = {c->out[2], DLT_F32};
    return places<Apply<T>::template Body>(c, err, axis, v, x, res, y, (uint8_t *)c->out[3],
                                           input(c, 1), input(c, 2), mean, rstd, -1.0f, a->relu);
}
template <typename T> static DltStatus infer(const DltCall *c, DltErr *err)
{
    const DltNorm *a = (const DltNorm *)c->node->attr;
    const T *x = (const T *)c->in[0], *res = (const T *)c->in[5];
    T *y = (T *)c->out[0];
    int v = aligned16(x, res, y) ? V_MOST : 1;
    return places<Apply<T>::template Body>(c, err, axis_of(c->node->in[0], 1), v, x, res, y,
                                           (uint8_t *)nullptr, input(c, 1), input(c, 2),
                                           input(c, 3), input(c, 4), a->eps, a->relu);
}
/* Where the residual wants g, the first pass writes it and the second reads nothing else. */
template <typename T> static DltStatus backward(const DltCall *c, DltErr *err)
{
    const DltNorm *a = (const DltNorm *)c->node->attr;
    const T *dy = (const T *)c->in[0], *dy2 = (const T *)c->in[6], *x = (const T *)c->in[1];
    const void *saved = c->in[5];
    T *dx = (T *)c->out[0], *dres = (T *)c->out[3];
    Axis axis = axis_of(c->node->in[1], 1);
    int v = aligned16(dy, dy2, x, a->bits ? nullptr : saved, dx, dres) ? V_MOST : 1;
    float *sum = (float *)c->work;
    FinishGrad done = {output(c, 1), output(c, 2), input(c, 4), sum, axis.c};
    Gradient<T> g = {dy, dy2, a->bits ? nullptr : (const T *)saved,
                     a->bits ? (const uint8_t *)saved : nullptr};
    DLT_TRY((sums<GRAD_BLOCK, GRAD_ROWS, Terms<T>::template Load>(c, err, axis, v, done, g, x, dres,
                                                                  input(c, 3))));
    if (dres) g = {dres, nullptr, nullptr, nullptr};
    return places<ApplyGrad<T>::template Body>(c, err, axis, v, g, x, dx, input(c, 2), input(c, 3),
                                               input(c, 4), (const float *)sum, axis.c,
                                               1.0f / (float)(axis.outer * axis.inner));
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
    bool bwd = n->kind == DLT_OP_batch_norm_bwd;
    p->work_bytes =
        sums_bytes(axis_of(n->in[bwd ? 1 : 0], 1), dev->n_sm, bwd ? GRAD_BLOCK : STAT_BLOCK);
    return DLT_OK;
}
/* x-like tensors share one type; parameters and statistics may have their own. */
static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_same_layout(n, dev, why_not)) return false;
    const DltNorm *a = (const DltNorm *)n->attr;
    bool bwd = n->kind == DLT_OP_batch_norm_bwd;
    const DltTensor *like[] = {n->in[0],
                               bwd ? n->in[6] : NULL,
                               bwd && a->bits ? NULL : n->in[5],
                               n->out[0],
                               !bwd && a->bits ? NULL : n->out[3],
                               bwd ? n->in[1] : NULL};
    for (const DltTensor *t : like)
        if (t && t->dtype != n->in[0]->dtype)
            return dlt_cuda_refuse(why_not, "%s and %s differ in type", n->in[0]->name, t->name);
    Axis x = axis_of(n->in[0], 1);
    if (a->bits && (x.inner != 1 || x.c % 8 != 0))
        return dlt_cuda_refuse(why_not, "a byte of bits needs 8 neighbouring channels");
    return rows_fit(x, why_not);
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
