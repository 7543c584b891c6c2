/* Attention on the tensor cores for what cuDNN does not take: dropout by our own random numbers, grouped
 * queries, windows. Scores live in registers only: a warp takes 16 rows of them, tiles of the other side
 * pass through shared memory. Backward is two kernels, over queries for dq and over keys for dk and dv, so
 * that every sum has one order and no scratch but delta is needed; the price is that scores are made twice.
 * Dao et al. 2022, algorithms 1 and 4; Dao 2023. */
#include "cuda/kernels/flash.cuh"

namespace
{

/* One tile of scores becomes weights exp2(x - m); the running maximum m and sum l of both rows and the
 * result o follow.  Milakov & Gimelshein 2018. */
template <int N, int D>
__device__ __forceinline__ void soften(float x[N / 8][4], float m[2], float l[2], float o[D / 8][4],
                                       float scale2)
{
    for (int h = 0; h < 2; h++) {
        float top = -INFINITY, sum = 0;
#pragma unroll
        for (int n = 0; n < N / 8; n++)
            top = fmaxf(top, fmaxf(x[n][2 * h], x[n][2 * h + 1]));
        top = fmaxf(m[h], quad_max(top) * scale2);
        float base = top == -INFINITY ? 0.0f : top, old = exp2f(m[h] - base);
#pragma unroll
        for (int n = 0; n < N / 8; n++)
            for (int i = 2 * h; i < 2 * h + 2; i++)
                sum += x[n][i] = exp2f(x[n][i] * scale2 - base);
        l[h] = l[h] * old + quad_sum(sum);
        m[h] = top;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            for (int i = 2 * h; i < 2 * h + 2; i++)
                o[n][i] *= old;
    }
}

/* o = softmax(scale q k^T) v with dropped weights, stats = log sum exp.  qkv [B,T,(Hq+2Hkv)D] T, o [B,T,Hq
 * D] T, stats f32 [B,Hq,T]. A block takes 64 queries of a head, a warp 16; D is head_dim rounded up.
 * ops/attention.h */
template <typename T, int D>
__global__ void __launch_bounds__(THREADS)
    flash_k(Shape s, const T *qkv, const DltStepState *state, T *o, float *stats)
{
    constexpr int N = 64;
    __shared__ __align__(16) T qs[ROWS * Tile<D>::ld], ks[N * Tile<D>::ld];
    T *vs = qs; /* queries move to registers first */
    begin();
    Place p = place_of(s, s.a.heads, LAST_FIRST);
    int lane = (int)threadIdx.x % WARP, i0 = p.first + (int)threadIdx.x / WARP * WARP_ROWS;
    int64_t kh = s.a.heads + p.head / s.group, vh = kh + s.a.kv_heads;
    int64_t rows = ((int64_t)p.b * s.a.heads + p.head) * s.t;
    float sum[D / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {};
    uint32_t q[D / 16][4];
    load_tile<T, D>(qs, in_qkv(s, qkv, p.b, p.head), s.width, p.first, ROWS, s);
    __syncthreads();
    for (int k = 0; k < D / 16; k++)
        load_a<T, D>(q[k], qs, i0 - p.first, k);
    int last = min(p.first + ROWS, s.t) - 1;
    int lo = (int)dlt_attention_keys(&s.a, p.first, s.t).lo / N * N;
    int hi = (int)dlt_attention_keys(&s.a, last, s.t).hi;
    for (int j = lo; j < hi; j += N) {
        float x[N / 8][4] = {};
        __syncthreads();
        load_tile<T, D>(ks, in_qkv(s, qkv, p.b, kh), s.width, j, N, s);
        load_tile<T, D>(vs, in_qkv(s, qkv, p.b, vh), s.width, j, N, s);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < D / 16; k++)
            for (int n = 0; n < N / 16; n++) {
                uint32_t fb[4];
                load_b<T, D>(fb, ks, n * 16, k);
                warp_mma<T>(x[2 * n], q[k], fb);
                warp_mma<T>(x[2 * n + 1], q[k], fb + 2);
            }
        if (needs_mask(s, p.first, ROWS, j, N)) mask_scores<N>(x, s, i0, j);
        soften<N, D>(x, m, l, sum, s.scale2);
        for (int n = 0; state && n < N / 8; n++) {
            float keep[4];
            keep_by_query(keep, s, state, rows, i0, j + n * 8);
            for (int i = 0; i < 4; i++)
                x[n][i] *= keep[i];
        }
        add_product<T, D, N>(sum, x, vs);
    }
    float scale[2] = {1.0f / l[0], 1.0f / l[1]};
    store_rows<T, D>(in_o(s, o, p.b, p.head), s.a.heads * s.a.head_dim, i0, sum, scale, s);
    for (int h = 0; h < 2; h++) {
        int i = i0 + lane / 4 + h * 8;
        if (lane % 4 == 0 && i < s.t) stats[rows + i] = (m[h] + log2f(l[h])) / LOG2E;
    }
}

/* ---- backward ---- */

template <typename T> struct Backward {
    const T *d_o, *qkv, *o;
    const float *stats;
    float *delta; /* [B, Hq, T] */
    const DltStepState *state;
    T *dqkv;
};

/* delta[b,h,i] = do . o over a head, written for attention_dkv too.  A warp a row.  Dao et al. 2022,
 * appendix B */
template <typename T> __global__ void delta_k(Shape s, Backward<T> x, int64_t rows)
{
    begin();
    int64_t row = (int64_t)blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP;
    if (row >= rows) return;
    int64_t i = row % s.t, h = row / s.t % s.a.heads, b = row / s.t / s.a.heads;
    int64_t at = ((b * s.t + i) * s.a.heads + h) * s.a.head_dim;
    float sum = 0;
    for (int c = (int)threadIdx.x % WARP; c < s.a.head_dim; c += WARP)
        sum += to_float(x.d_o[at + c]) * to_float(x.o[at + c]);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) x.delta[row] = sum;
}

/* dq[i] = scale sum_j ds[i,j] k[j], ds = p (keep do.v - delta).  A block takes 64 queries of a head, a
 * warp 16.  ops/attention.h */
template <typename T, int D>
__global__ void __launch_bounds__(THREADS) flash_dq_k(Shape s, Backward<T> x)
{
    constexpr int N = D > 64 ? 16 : 32;
    __shared__ __align__(16) T qs[ROWS * Tile<D>::ld], ds[ROWS * Tile<D>::ld];
    __shared__ __align__(16) T ks[N * Tile<D>::ld], vs[N * Tile<D>::ld];
    begin();
    Place p = place_of(s, s.a.heads, LAST_FIRST);
    int lane = (int)threadIdx.x % WARP, r0 = (int)threadIdx.x / WARP * WARP_ROWS;
    int i0 = p.first + r0;
    int64_t kh = s.a.heads + p.head / s.group, vh = kh + s.a.kv_heads;
    int64_t rows = ((int64_t)p.b * s.a.heads + p.head) * s.t;
    float sum[D / 8][4] = {}, stats[2], delta[2];
    load_tile<T, D>(qs, in_qkv(s, x.qkv, p.b, p.head), s.width, p.first, ROWS, s);
    load_tile<T, D>(ds, in_o(s, x.d_o, p.b, p.head), s.a.heads * s.a.head_dim, p.first, ROWS, s);
    for (int h = 0; h < 2; h++) {
        int i = min(i0 + lane / 4 + h * 8, s.t - 1);
        stats[h] = x.stats[rows + i] * LOG2E;
        delta[h] = x.delta[rows + i];
    }
    int last = min(p.first + ROWS, s.t) - 1;
    int lo = (int)dlt_attention_keys(&s.a, p.first, s.t).lo / N * N;
    int hi = (int)dlt_attention_keys(&s.a, last, s.t).hi;
    for (int j = lo; j < hi; j += N) {
        float prob[N / 8][4], g[N / 8][4];
        __syncthreads();
        load_tile<T, D>(ks, in_qkv(s, x.qkv, p.b, kh), s.width, j, N, s);
        load_tile<T, D>(vs, in_qkv(s, x.qkv, p.b, vh), s.width, j, N, s);
        __syncthreads();
        product_t<T, D, N>(prob, qs, r0, ks);
        product_t<T, D, N>(g, ds, r0, vs);
        if (needs_mask(s, p.first, ROWS, j, N)) mask_scores<N>(prob, s, i0, j);
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
            float keep[4] = {1, 1, 1, 1};
            if (x.state) keep_by_query(keep, s, x.state, rows, i0, j + n * 8);
            for (int i = 0; i < 4; i++)
                g[n][i] = exp2f(prob[n][i] * s.scale2 - stats[i / 2]) *
                          (keep[i] * g[n][i] - delta[i / 2]);
        }
        add_product<T, D, N>(sum, g, ks);
    }
    float scale[2] = {(float)s.a.scale, (float)s.a.scale};
    store_rows<T, D>(in_qkv(s, x.dqkv, p.b, p.head), s.width, i0, sum, scale, s);
}

/* Scores of 16 keys against N queries are masked with queries as columns. */
template <int N>
__device__ __forceinline__ void mask_turned(float x[N / 8][4], const Shape &s, int i0, int j0)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
        for (int i = 0; i < 4; i++)
            if (hidden(s, i0 + n * 8 + lane % 4 * 2 + i % 2, j0 + lane / 4 + i / 2 * 8))
                x[n][i] = -INFINITY;
}

/* dk[j] = scale sum_i ds[i,j] q[i], dv[j] = sum_i keep p[i,j] do[i], over the queries of the key's group
 * that see it.  A block takes 64 keys of a key head, a warp 16.  ops/attention.h */
template <typename T, int D>
__global__ void __launch_bounds__(THREADS) flash_dkv_k(Shape s, Backward<T> x)
{
    constexpr int N = D > 64 ? 16 : 32;
    __shared__ __align__(16) T ks[ROWS * Tile<D>::ld], vs[ROWS * Tile<D>::ld];
    __shared__ __align__(16) T qs[N * Tile<D>::ld], ds[N * Tile<D>::ld];
    __shared__ float stats[N], delta[N];
    begin();
    Place p = place_of(s, s.a.kv_heads, FIRST_FIRST);
    int lane = (int)threadIdx.x % WARP, r0 = (int)threadIdx.x / WARP * WARP_ROWS;
    int j0 = p.first + r0;
    int64_t kh = s.a.heads + p.head, vh = kh + s.a.kv_heads;
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    load_tile<T, D>(ks, in_qkv(s, x.qkv, p.b, kh), s.width, p.first, ROWS, s);
    load_tile<T, D>(vs, in_qkv(s, x.qkv, p.b, vh), s.width, p.first, ROWS, s);
    int last = min(p.first + ROWS, s.t) - 1;
    int lo = (int)dlt_attention_queries(&s.a, p.first, s.t).lo / N * N;
    int hi = (int)dlt_attention_queries(&s.a, last, s.t).hi;
    for (int h = p.head * s.group; h < (p.head + 1) * s.group; h++) {
        int64_t rows = ((int64_t)p.b * s.a.heads + h) * s.t;
        for (int i = lo; i < hi; i += N) {
            float prob[N / 8][4], g[N / 8][4];
            __syncthreads();
            load_tile<T, D>(qs, in_qkv(s, x.qkv, p.b, h), s.width, i, N, s);
            load_tile<T, D>(ds, in_o(s, x.d_o, p.b, h), s.a.heads * s.a.head_dim, i, N, s);
            if (threadIdx.x < N) {
                int at = min(i + (int)threadIdx.x, s.t - 1);
                stats[threadIdx.x] = x.stats[rows + at] * LOG2E;
                delta[threadIdx.x] = x.delta[rows + at];
            }
            __syncthreads();
            product_t<T, D, N>(prob, ks, r0, qs);
            product_t<T, D, N>(g, vs, r0, ds);
            if (needs_mask(s, i, N, p.first, ROWS)) mask_turned<N>(prob, s, i, j0);
#pragma unroll
            for (int n = 0; n < N / 8; n++) {
                float keep[4] = {1, 1, 1, 1};
                if (x.state) keep_by_key(keep, s, x.state, rows, i + n * 8, j0);
                for (int k = 0; k < 4; k++) {
                    int c = n * 8 + lane % 4 * 2 + k % 2;
                    float w = exp2f(prob[n][k] * s.scale2 - stats[c]);
                    g[n][k] = w * (keep[k] * g[n][k] - delta[c]);
                    prob[n][k] = w * keep[k];
                }
            }
            add_product<T, D, N>(dv, prob, ds);
            add_product<T, D, N>(dk, g, qs);
        }
    }
    float scale[2] = {(float)s.a.scale, (float)s.a.scale}, one[2] = {1, 1};
    store_rows<T, D>(in_qkv(s, x.dqkv, p.b, kh), s.width, j0, dk, scale, s);
    store_rows<T, D>(in_qkv(s, x.dqkv, p.b, vh), s.width, j0, dv, one, s);
}

/* ---- launching ---- */

static Shape shape_of(const DltNode *n, const DltTensor *qkv)
{
    Shape s;
    s.a = *(const DltAttention *)n->attr;
    s.t = (int)qkv->shape.dim[1];
    s.group = (int)(s.a.heads / s.a.kv_heads);
    s.tiles = (int)ceil_div(s.t, ROWS);
    s.width = qkv->shape.dim[2];
    s.scale2 = (float)s.a.scale * LOG2E;
    s.keep_scale = 1.0f / (1.0f - s.a.drop.p);
    s.threshold = dlt_dropout_threshold(s.a.drop.p);
    return s;
}

/* Runs the statement with T one of the 16-bit types and D the width heads are padded to. */
#define DLT_FLASH(dtype, dim, ...)                                                                 \
    if ((dtype) == DLT_BF16) {                                                                     \
        using T = bf16;                                                                            \
        DLT_FLASH_DIM(dim, __VA_ARGS__)                                                            \
    } else {                                                                                       \
        using T = f16;                                                                             \
        DLT_FLASH_DIM(dim, __VA_ARGS__)                                                            \
    }
#define DLT_FLASH_DIM(dim, ...)                                                                    \
    if ((dim) <= 32) {                                                                             \
        constexpr int D = 32;                                                                      \
        __VA_ARGS__;                                                                               \
    } else if ((dim) <= 64) {                                                                      \
        constexpr int D = 64;                                                                      \
        __VA_ARGS__;                                                                               \
    } else {                                                                                       \
        constexpr int D = MOST_DIM;                                                                \
        __VA_ARGS__;                                                                               \
    }

static DltStatus forward(const DltCall *c, DltErr *err)
{
    const DltTensor *qkv = c->node->in[0];
    Shape s = shape_of(c->node, qkv);
    unsigned blocks = (unsigned)(qkv->shape.dim[0] * s.a.heads * s.tiles);
    const DltStepState *state = s.a.drop.p > 0 ? (const DltStepState *)c->in[1] : nullptr;
    DltStatus r = DLT_OK;
    DLT_FLASH(qkv->dtype, s.a.head_dim,
              r = enqueue(c, err, flash_k<T, D>, blocks, THREADS, 0, s, (const T *)c->in[0], state,
                          (T *)c->out[0], (float *)c->out[1]))
    return r;
}

static DltStatus prepare_backward(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev, (void)err;
    p->work_bytes = (size_t)dlt_shape_count(&n->in[3]->shape) * sizeof(float);
    return DLT_OK;
}

template <typename T, int D>
DltStatus backward_as(const DltCall *c, const Shape &s, const Backward<T> &x, DltErr *err)
{
    int64_t batch = c->node->in[1]->shape.dim[0], rows = batch * s.a.heads * s.t;
    unsigned of_q = (unsigned)(batch * s.a.heads * s.tiles);
    unsigned of_k = (unsigned)(batch * s.a.kv_heads * s.tiles);
    DLT_TRY(
        enqueue(c, err, delta_k<T>, (unsigned)ceil_div(rows, BLOCK / WARP), BLOCK, 0, s, x, rows));
    DLT_TRY(enqueue(c, err, flash_dq_k<T, D>, of_q, THREADS, 0, s, x));
    return enqueue(c, err, flash_dkv_k<T, D>, of_k, THREADS, 0, s, x);
}

static DltStatus backward(const DltCall *c, DltErr *err)
{
    const DltTensor *qkv = c->node->in[1];
    Shape s = shape_of(c->node, qkv);
    const DltStepState *state = s.a.drop.p > 0 ? (const DltStepState *)c->in[4] : nullptr;
    DltStatus r = DLT_OK;
    DLT_FLASH(qkv->dtype, s.a.head_dim, {
        Backward<T> x = {(const T *)c->in[0],     (const T *)c->in[1], (const T *)c->in[2],
                         (const float *)c->in[3], (float *)c->work,    state,
                         (T *)c->out[0]};
        r = (backward_as<T, D>(c, s, x, err));
    })
    return r;
}

} // namespace

extern "C" {
extern const DltKernel dlt_cuda_attention_fwd_plain;

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltAttention *a = (const DltAttention *)n->attr;
    const DltTensor *qkv = n->kind == DLT_OP_attention_bwd ? n->in[1] : n->in[0];
    if (!dlt_cuda_attention_fwd_plain.accepts(n, dev, why_not)) return false;
    if (qkv->dtype != DLT_BF16 && qkv->dtype != DLT_F16)
        return dlt_cuda_refuse(why_not, "tensor cores take 16-bit types, not %s",
                               dlt_dtype_name(qkv->dtype));
    if (a->head_dim % 8 != 0 || a->head_dim > MOST_DIM)
        return dlt_cuda_refuse(why_not, "heads of width %lld: a multiple of 8 up to %d is needed",
                               (long long)a->head_dim, (int)MOST_DIM);
    if (qkv->shape.dim[0] * a->heads * ((qkv->shape.dim[1] + ROWS - 1) / ROWS) < INT32_MAX &&
        qkv->shape.dim[1] < INT32_MAX - 2 * ROWS)
        return true;
    return dlt_cuda_refuse(why_not, "more than 2^31 blocks");
}
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_attention_fwd_flash, "attention_fwd.cuda.flash", accepts, nullptr,
                         forward);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_attention_bwd_flash, "attention_bwd.cuda.flash", accepts,
                         prepare_backward, backward);
}
