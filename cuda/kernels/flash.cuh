/* What the kernels of flash.cu share: tiles of heads in shared memory, products of a warp with them, our
 * dropout in the places of a product's sums, masks, and where a block works. */
#ifndef DLT_FLASH_CUH
#define DLT_FLASH_CUH

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

} // namespace

#endif
