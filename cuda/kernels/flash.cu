/* Attention on the tensor cores for what cuDNN does not take: dropout by our own random numbers, grouped
 * queries, windows. Scores live in registers only: a warp takes 16 rows of them, tiles of the other side
 * pass through shared memory. Backward is two kernels, over queries for dq and over keys for dk and dv, so
 * that every sum has one order and no scratch but delta is needed; the price is that scores are made twice.
 * Dao et al. 2022, algorithms 1 and 4; Dao 2023. */
#include "cuda/kernels/shape.cuh"
#include "cuda/kernels/warp_mma.cuh"
#include "ops/attention.h"
#include "ops/step.h"

namespace
{

enum { ROWS = 64, THREADS = 128, WARP_ROWS = 16, MOST_DIM = 128 };
constexpr float LOG2E = 1.4426950408889634f;

/* A call's sizes; columns of a token in qkv are [queries | keys | values]. */
struct Shape {
    DltAttention a;
    int t, group, tiles;      /* tiles of ROWS rows in t */
    int64_t width;            /* of a token in qkv */
    float scale2, keep_scale; /* scale log2 e; 1 / (1 - p) */
    uint32_t threshold;
};
/* Where in the buffers a block works. */
struct Place {
    int b, head, first; /* query head or key head; first row */
};
/* Columns of heads in shared memory, padded against bank conflicts. */
template <int D> struct Tile {
    static constexpr int ld = D + 8;
};

/* Rows [first, first + n) of a head, zeros behind t and behind head_dim. src points at column 0 of the head
 * in row 0. */
template <typename T, int D>
__device__ __forceinline__ void load_tile(T *dst, const T *src, int64_t row_ld, int first, int n,
                                          const Shape &s)
{
    constexpr int PACKS = D / 8;
    for (int i = (int)threadIdx.x; i < n * PACKS; i += THREADS) {
        int r = i / PACKS, c = i % PACKS * 8;
        Pack<T> v = {};
        if (first + r < s.t && c < s.a.head_dim) v = load_pack(src + (first + r) * row_ld + c);
        store_pack(dst + r * Tile<D>::ld + c, v);
    }
}
/* Operand A: 16 rows, columns 16 k. */
template <typename T, int D>
__device__ __forceinline__ void load_a(uint32_t a[4], const T *tile, int row, int k)
{
    int lane = (int)threadIdx.x % WARP;
    warp_load(a, tile + (row + lane % 16) * Tile<D>::ld + k * 16 + lane / 16 * 8);
}
/* Operands B of two neighbouring products whose columns are rows [row, row + 16) of the tile. */
template <typename T, int D>
__device__ __forceinline__ void load_b(uint32_t b[4], const T *tile, int row, int k)
{
    int lane = (int)threadIdx.x % WARP, m = lane / 8;
    warp_load(b, tile + (row + m / 2 * 8 + lane % 8) * Tile<D>::ld + k * 16 + m % 2 * 8);
}
/* Operands B of two neighbouring products whose columns are columns [16 n, 16 n + 16) of rows [row, row
 * + 16). */
template <typename T, int D>
__device__ __forceinline__ void load_b_turned(uint32_t b[4], const T *tile, int row, int n)
{
    int lane = (int)threadIdx.x % WARP, m = lane / 8;
    warp_load_turned(b, tile + (row + m % 2 * 8 + lane % 8) * Tile<D>::ld + n * 16 + m / 2 * 8);
}
template <typename T> __device__ __forceinline__ uint32_t pack2(float x, float y)
{
    T v[2] = {from_float<T>(x), from_float<T>(y)};
    uint32_t r;
    memcpy(&r, v, sizeof r);
    return r;
}
/* Sums 2 k and 2 k + 1 of a warp as operand A. */
template <typename T> __device__ __forceinline__ void as_a(uint32_t a[4], const float x[][4], int k)
{
    for (int i = 0; i < 4; i++)
        a[i] = pack2<T>(x[2 * k + i / 2][i % 2 * 2], x[2 * k + i / 2][i % 2 * 2 + 1]);
}
/* sum[n] = a b^T: rows [row, row + 16) of tile a, rows of tile b as columns. */
template <typename T, int D, int N>
__device__ __forceinline__ void product_t(float sum[N / 8][4], const T *a, int row, const T *b)
{
#pragma unroll
    for (int n = 0; n < N / 8; n++)
        for (int i = 0; i < 4; i++)
            sum[n][i] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t fa[4], fb[4];
        load_a<T, D>(fa, a, row, k);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            load_b<T, D>(fb, b, n * 16, k);
            warp_mma<T>(sum[2 * n], fa, fb);
            warp_mma<T>(sum[2 * n + 1], fa, fb + 2);
        }
    }
}
/* sum[d] += x b: x [16, N] of a warp, rows of tile b. */
template <typename T, int D, int N>
__device__ __forceinline__ void add_product(float sum[D / 8][4], const float x[N / 8][4],
                                            const T *b)
{
#pragma unroll
    for (int k = 0; k < N / 16; k++) {
        uint32_t fa[4], fb[4];
        as_a<T>(fa, x, k);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            load_b_turned<T, D>(fb, b, k * 16, n);
            warp_mma<T>(sum[2 * n], fa, fb);
            warp_mma<T>(sum[2 * n + 1], fa, fb + 2);
        }
    }
}
/* 16 rows of sums to rows [row, row + 16) of a head. */
template <typename T, int D>
__device__ __forceinline__ void store_rows(T *dst, int64_t row_ld, int row,
                                           const float sum[D / 8][4], const float scale[2],
                                           const Shape &s)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
        for (int h = 0; h < 2; h++) {
            int r = row + lane / 4 + h * 8, c = n * 8 + lane % 4 * 2;
            if (r >= s.t || c >= s.a.head_dim) continue;
            uint32_t v = pack2<T>(sum[n][2 * h] * scale[h], sum[n][2 * h + 1] * scale[h]);
            memcpy(dst + r * row_ld + c, &v, sizeof v);
        }
}

/* ---- dropout ---- */

__device__ __forceinline__ DltRand4 draw(const Shape &s, const DltStepState *state, int64_t row,
                                         int j)
{
    uint64_t e = dlt_attention_draw(row, s.t) + (uint64_t)j;
    return dlt_dropout_draw(state->seed, s.a.drop.id, state->batch, e / 4);
}
/* keep[i] of the four sums a lane holds, where rows of the product are queries from `i0` on and its 8 columns
 * keys from `j0` on: four neighbouring keys are of one draw, so two lanes share the draws of their two
 * rows. rows: number of query 0 of this batch and head among all. */
__device__ __forceinline__ void keep_by_query(float keep[4], const Shape &s,
                                              const DltStepState *state, int64_t rows, int i0,
                                              int j0)
{
    int lane = (int)threadIdx.x % WARP, odd = lane % 2;
    DltRand4 r = draw(s, state, rows + i0 + lane / 4 + odd * 8, j0 + lane % 4 / 2 * 4);
    for (int k = 0; k < 2; k++) {
        /* even lanes hold row g and need columns 0, 1 of g + 8; odd ones need 2, 3 of g */
        uint32_t give = odd ? r.v[k] : r.v[2 + k];
        uint32_t got = __shfl_xor_sync(0xffffffffu, give, 1);
        uint32_t own = odd ? r.v[2 + k] : r.v[k];
        keep[k] = (odd ? got : own) >= s.threshold ? s.keep_scale : 0.0f;
        keep[2 + k] = (odd ? own : got) >= s.threshold ? s.keep_scale : 0.0f;
    }
}
__device__ __forceinline__ uint32_t pick(const uint32_t v[4], int i)
{
    uint32_t lo = i & 1 ? v[1] : v[0], hi = i & 1 ? v[3] : v[2];
    return i & 2 ? hi : lo;
}
/* The same where rows of the product are keys and columns queries: four lanes hold neighbouring keys, and
 * each draws for one of the four (key half, query) pairs. */
__device__ __forceinline__ void keep_by_key(float keep[4], const Shape &s,
                                            const DltStepState *state, int64_t rows, int i0, int j0)
{
    int lane = (int)threadIdx.x % WARP, own = lane / 4 % 4;
    DltRand4 r =
        draw(s, state, rows + i0 + lane % 4 * 2 + own % 2, j0 + lane / 16 * 4 + own / 2 * 8);
    uint32_t got[4];
#pragma unroll
    for (int x = 0; x < 4; x++)
        got[x] = __shfl_xor_sync(0xffffffffu, pick(r.v, own ^ x), x * 4);
    for (int i = 0; i < 4; i++)
        keep[i] = pick(got, own ^ i) >= s.threshold ? s.keep_scale : 0.0f;
}

/* ---- which keys ---- */

/* True where query i does not see key j. */
__device__ __forceinline__ bool hidden(const Shape &s, int i, int j)
{
    DltKeys k = dlt_attention_keys(&s.a, i, s.t);
    return i >= s.t || j < k.lo || j >= k.hi;
}
/* Scores of unseen keys become -inf. Rows i0.., columns j0.. of the product. */
template <int N>
__device__ __forceinline__ void mask_scores(float x[N / 8][4], const Shape &s, int i0, int j0)
{
    int lane = (int)threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < N / 8; n++)
        for (int i = 0; i < 4; i++)
            if (hidden(s, i0 + lane / 4 + i / 2 * 8, j0 + n * 8 + lane % 4 * 2 + i % 2))
                x[n][i] = -INFINITY;
}
/* Whether some query of [i0, i0 + ni) does not see some key of [j0, j0 + nj). */
__device__ __forceinline__ bool needs_mask(const Shape &s, int i0, int ni, int j0, int nj)
{
    return hidden(s, i0, j0) || hidden(s, i0, j0 + nj - 1) || hidden(s, i0 + ni - 1, j0) ||
           hidden(s, i0 + ni - 1, j0 + nj - 1);
}

/* Long rows are begun first: the last queries see most keys, the first keys are seen most. */
enum Order { FIRST_FIRST, LAST_FIRST };
__device__ __forceinline__ Place place_of(const Shape &s, int64_t heads, Order order)
{
    Place p;
    int64_t n = blockIdx.x, of_head = n % (gridDim.x / s.tiles);
    int tile = (int)(n / (gridDim.x / s.tiles));
    p.first = (order == LAST_FIRST ? s.tiles - 1 - tile : tile) * ROWS;
    p.head = (int)(of_head % heads);
    p.b = (int)(of_head / heads);
    return p;
}
/* Column 0 of a head (counted over queries, keys, values) in token 0 of batch b. */
template <typename T>
__device__ __forceinline__ T *in_qkv(const Shape &s, T *qkv, int b, int64_t head)
{
    return qkv + (int64_t)b * s.t * s.width + head * s.a.head_dim;
}
template <typename T> __device__ __forceinline__ T *in_o(const Shape &s, T *o, int b, int64_t head)
{
    return o + ((int64_t)b * s.t * s.a.heads + head) * s.a.head_dim;
}

__device__ __forceinline__ float quad_sum(float v)
{
    v += __shfl_xor_sync(0xffffffffu, v, 1);
    return v + __shfl_xor_sync(0xffffffffu, v, 2);
}
__device__ __forceinline__ float quad_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

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
