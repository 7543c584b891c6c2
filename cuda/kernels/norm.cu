/* Layer norm and RMS norm over the last axis. Statistics in f32 by two passes over a row that lies
 * in the cache after the first. dw and db are sums over rows by channels.cuh. Ba et al. 2016;
 * Zhang & Sennrich 2019. */
#include "cuda/kernels/channels.cuh"
#include "cuda/kernels/rows.cuh"
#include "ops/norm.h"

namespace
{

/* v = x (+ res, kept in sum);  CENTER: y = (v - mean) rstd w + b, else y = v rstd w.
 * x, res, sum, y [rows, C] T; w, b [C] any float; mean, rstd [rows] f32, saved for the gradient. */
template <typename T, int W, bool CENTER>
__global__ void norm_k(const T *x, const T *res, In w, In b, T *sum, T *y, Out mean, Out rstd,
                       int64_t rows, int64_t n, float eps)
{
    begin();
    using R = Row<W>;
    int64_t r = R::index();
    if (r >= rows) return;
    auto value = [=](int64_t i) {
        return to_float(x[r * n + i]) + (res ? to_float(res[r * n + i]) : 0.0f);
    };
    float s = 0, q = 0;
    for (int64_t i = R::lane(); i < n; i += W) {
        float v = value(i);
        if (res) sum[r * n + i] = from_float<T>(v);
        s += v;
    }
    float m = CENTER ? R::sum(s) / (float)n : 0.0f;
    for (int64_t i = R::lane(); i < n; i += W) {
        float d = value(i) - m;
        q += d * d;
    }
    float k = 1.0f / sqrtf(R::sum(q) / (float)n + eps);
    for (int64_t i = R::lane(); i < n; i += W) {
        float o = (value(i) - m) * k * (w.p ? w[i] : 1.0f);
        y[r * n + i] = from_float<T>(CENTER && b.p ? o + b[i] : o);
    }
    if (R::lane() != 0) return;
    if (CENTER) mean.set(r, m);
    rstd.set(r, k);
}

/* g = dy w;  h = (x - mean) rstd;  dx = rstd (g - [CENTER] avg(g) - h avg(g h)) (+ dsum).
 * dy, x, dsum, dx [rows, C] T; w [C]; mean, rstd [rows] f32. */
template <typename T, int W, bool CENTER>
__global__ void norm_grad_k(const T *dy, const T *x, In w, In mean, In rstd, const T *dsum, T *dx,
                            int64_t rows, int64_t n)
{
    begin();
    using R = Row<W>;
    int64_t r = R::index();
    if (r >= rows) return;
    float m = CENTER ? mean[r] : 0.0f, k = rstd[r], sg = 0, sgh = 0;
    for (int64_t i = R::lane(); i < n; i += W) {
        float g = to_float(dy[r * n + i]) * (w.p ? w[i] : 1.0f);
        sg += g;
        sgh += g * (to_float(x[r * n + i]) - m) * k;
    }
    sg = CENTER ? R::sum(sg) / (float)n : 0.0f;
    sgh = R::sum(sgh) / (float)n;
    for (int64_t i = R::lane(); i < n; i += W) {
        float g = to_float(dy[r * n + i]) * (w.p ? w[i] : 1.0f);
        float h = (to_float(x[r * n + i]) - m) * k;
        float d = k * (g - sg - h * sgh);
        if (dsum) d += to_float(dsum[r * n + i]);
        dx[r * n + i] = from_float<T>(d);
    }
}

/* Terms of dw = sum dy h and db = sum dy over rows. */
template <typename T> struct WeightTerms {
    template <int V> struct Load {
        const T *dy, *x;
        In mean, rstd;
        __device__ __forceinline__ Nothing look(int64_t) const
        {
            return Nothing();
        }
        __device__ __forceinline__ void operator()(int64_t at, int64_t r, Nothing, float *acc) const
        {
            float m = mean.p ? mean[r] : 0.0f, k = rstd[r], g[V], v[V];
            load_v<T, V>(dy + at, g);
            load_v<T, V>(x + at, v);
#pragma unroll
            for (int i = 0; i < V; i++) {
                acc[i] += g[i] * (v[i] - m) * k;
                acc[V + i] += g[i];
            }
        }
    };
};
/* Terms of the gradient of a bias in front: dx. */
template <typename T> struct BiasTerms {
    template <int V> struct Load {
        const T *dx;
        __device__ __forceinline__ Nothing look(int64_t) const
        {
            return Nothing();
        }
        __device__ __forceinline__ void operator()(int64_t at, int64_t, Nothing, float *acc) const
        {
            float v[V];
            load_v<T, V>(dx + at, v);
#pragma unroll
            for (int i = 0; i < V; i++)
                acc[i] += v[i];
        }
    };
};
struct StoreBias {
    Out db;
    __device__ __forceinline__ void operator()(int64_t c, const float *sum) const
    {
        db.set(c, sum[0]);
    }
};
struct StoreWeights {
    Out dw, db;
    __device__ __forceinline__ void operator()(int64_t c, const float *sum) const
    {
        if (dw.p) dw.set(c, sum[0]);
        if (db.p) db.set(c, sum[1]);
    }
};

template <typename T, bool CENTER> static DltStatus forward(const DltCall *c, DltErr *err)
{
    int64_t n = last_dim(c->node->in[0]), rows = count_of(c->node->in[0]) / n;
    float eps = ((const DltNorm *)c->node->attr)->eps;
    int res = CENTER ? 3 : 2, stats = CENTER ? 2 : 1;
    const T *x = (const T *)c->in[0], *r = (const T *)c->in[res];
    T *y = (T *)c->out[0], *sum = (T *)c->out[stats + 1];
    In b = CENTER ? input(c, 2) : In{nullptr, DLT_F32};
    bool wide = n > SHORT_ROW;
    auto kernel = wide ? norm_k<T, BLOCK, CENTER> : norm_k<T, WARP, CENTER>;
    return enqueue(c, err, kernel, row_blocks(rows, wide ? BLOCK : WARP), BLOCK, 0, x, r,
                   input(c, 1), b, sum, y, output(c, 1), output(c, stats), rows, n, eps);
}

template <typename T, bool CENTER> static DltStatus weight_grad(const DltCall *c, DltErr *err)
{
    int64_t n = last_dim(c->node->in[0]), rows = count_of(c->node->in[0]) / n;
    const T *dy = (const T *)c->in[0], *x = (const T *)c->in[1];
    In mean = CENTER ? input(c, 3) : In{nullptr, DLT_F32}, rstd = input(c, CENTER ? 4 : 3);
    int v = aligned16(dy, x) ? Pack<T>::n : 1;
    ChannelPlan p = channel_plan(Axis{rows, n, 1}, v, c->stream->dev->n_sm);
    StoreWeights done = {output(c, 1), CENTER ? output(c, 2) : Out{nullptr, DLT_F32}};
    return channel_reduce<2, Pack<T>::n, WeightTerms<T>::template Load>(c, err, p, (float *)c->work,
                                                                        done, dy, x, mean, rstd);
}

template <typename T> static DltStatus bias_grad(const DltCall *c, int out, DltErr *err)
{
    int64_t n = last_dim(c->node->in[0]), rows = count_of(c->node->in[0]) / n;
    const T *dx = (const T *)c->out[0];
    ChannelPlan p =
        channel_plan(Axis{rows, n, 1}, aligned16(dx) ? Pack<T>::n : 1, c->stream->dev->n_sm);
    return channel_reduce<1, Pack<T>::n, BiasTerms<T>::template Load>(
        c, err, p, (float *)c->work, StoreBias{output(c, out)}, dx);
}

/* The weights' gradients first: dx may lie where dy did. */
template <typename T, bool CENTER> static DltStatus backward(const DltCall *c, DltErr *err)
{
    int64_t n = last_dim(c->node->in[0]), rows = count_of(c->node->in[0]) / n;
    In mean = CENTER ? input(c, 3) : In{nullptr, DLT_F32}, rstd = input(c, CENTER ? 4 : 3);
    if (c->out[1] || c->out[2]) DLT_TRY((weight_grad<T, CENTER>(c, err)));
    bool wide = n > SHORT_ROW;
    auto kernel = wide ? norm_grad_k<T, BLOCK, CENTER> : norm_grad_k<T, WARP, CENTER>;
    DLT_TRY(enqueue(c, err, kernel, row_blocks(rows, wide ? BLOCK : WARP), BLOCK, 0,
                    (const T *)c->in[0], (const T *)c->in[1], input(c, 2), mean, rstd,
                    (const T *)c->in[CENTER ? 5 : 4], (T *)c->out[0], rows, n));
    int bias = CENTER ? 3 : 2;
    return c->out[bias] ? bias_grad<T>(c, bias, err) : DLT_OK;
}

static DltStatus prepare_grad(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    int64_t c = last_dim(n->in[0]);
    p->work_bytes = channel_bytes(Axis{count_of(n->in[0]) / c, c, 1}, dev->n_sm, 2);
    return DLT_OK;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    int64_t c = last_dim(n->in[0]);
    if (!rows_fit(Axis{count_of(n->in[0]) / c, c, 1}, why_not)) return false;
    if (n->in[0]->dtype == n->out[0]->dtype) return true;
    return dlt_cuda_refuse(why_not, "%s and %s differ in type", n->in[0]->name, n->out[0]->name);
}

static DltStatus layer_fwd(const DltCall *c, DltErr *err)
{
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T, s = (forward<T, true>(c, err)));
    return s;
}
static DltStatus layer_bwd(const DltCall *c, DltErr *err)
{
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T, s = (backward<T, true>(c, err)));
    return s;
}
static DltStatus rms_fwd(const DltCall *c, DltErr *err)
{
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T, s = (forward<T, false>(c, err)));
    return s;
}
static DltStatus rms_bwd(const DltCall *c, DltErr *err)
{
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T, s = (backward<T, false>(c, err)));
    return s;
}

DLT_CUDA_KERNEL(layer_fwd_row, "layer_norm_fwd.cuda.row", accepts, nullptr, layer_fwd);
DLT_CUDA_KERNEL(layer_bwd_row, "layer_norm_bwd.cuda.row", accepts, prepare_grad, layer_bwd);
DLT_CUDA_KERNEL(rms_fwd_row, "rms_norm_fwd.cuda.row", accepts, nullptr, rms_fwd);
DLT_CUDA_KERNEL(rms_bwd_row, "rms_norm_bwd.cuda.row", accepts, prepare_grad, rms_bwd);
} // namespace

extern "C" {
/* norm_pack.cu, norm_warp.cu */
extern const DltKernel dlt_cuda_layer_fwd_pack, dlt_cuda_layer_bwd_pack, dlt_cuda_rms_fwd_pack,
    dlt_cuda_rms_bwd_pack, dlt_cuda_layer_bwd_warp, dlt_cuda_rms_bwd_warp;
const DltKernel *const dlt_cuda_layer_norm_fwd[] = {&dlt_cuda_layer_fwd_pack, &layer_fwd_row,
                                                    nullptr};
const DltKernel *const dlt_cuda_layer_norm_bwd[] = {
    &dlt_cuda_layer_bwd_warp, &dlt_cuda_layer_bwd_pack, &layer_bwd_row, nullptr};
const DltKernel *const dlt_cuda_rms_norm_fwd[] = {&dlt_cuda_rms_fwd_pack, &rms_fwd_row, nullptr};
const DltKernel *const dlt_cuda_rms_norm_bwd[] = {&dlt_cuda_rms_bwd_warp, &dlt_cuda_rms_bwd_pack,
                                                  &rms_bwd_row, nullptr};
}
