/* Causal attention of heads of 64 on Hopper. A block takes tiles of 128 queries: one thread brings operands (TMA), two
 * warpgroups have 64 queries each and take turns at the tensor cores, each with the scores of the next 128 keys and
 * the values of those before, so that one makes weights while the other multiplies. Squares of 64 above the diagonal
 * are left out. Whole heads go to a block each as long as all blocks have one; the tiles of those that are left are
 * dealt out, long ones first, to and fro. Shah et al. 2024, algorithm 2. */
#ifndef DLT_FLASH_FORWARD_CUH
#define DLT_FLASH_FORWARD_CUH

#include "cuda/kernels/flash_square.cuh"

namespace flash_forward
{
using namespace flash_hopper;

enum {
    RING = 4, /* tiles of keys, and of values, on their way */
    THREADS = 3 * GROUP
};

struct Tiles {
    unsigned char query[TILE_BYTES], key[RING][TILE_BYTES], value[RING][TILE_BYTES]; /* [128][64] */
    unsigned char out[2][STEP_BYTES];
    unsigned long long query_full, query_empty, key_full[RING], key_empty[RING], value_full[RING],
        value_empty[RING];
};

struct Forward {
    int batch, heads, tiles; /* of 128 along T */
    float scale2;            /* scale log2(e) */
    float *lse;              /* [B H, T] */
};

/* The tiles of queries of a block. */
struct Work {
    int turn = 0, head, tile;
    __device__ __forceinline__ explicit Work(const Forward &p)
    {
        look(p);
    }
    __device__ __forceinline__ void look(const Forward &p)
    {
        int blocks = (int)gridDim.x, all = p.batch * p.heads, rounds = all / blocks;
        int round = turn / p.tiles, left = all - rounds * blocks;
        head = round * blocks + (int)blockIdx.x;
        tile = p.tiles - 1 - turn % p.tiles;
        if (round < rounds) return;
        int k = turn - rounds * p.tiles;
        int place = k * blocks + (k % 2 ? blocks - 1 - (int)blockIdx.x : (int)blockIdx.x);
        head = rounds * blocks + place % max(left, 1);
        tile = left ? p.tiles - 1 - place / left : -1;
    }
    /* If not, none will follow. */
    __device__ __forceinline__ bool inside() const
    {
        return tile >= 0;
    }
    __device__ __forceinline__ void next(const Forward &p)
    {
        turn++;
        look(p);
    }
};

__device__ __forceinline__ void bring_tile(unsigned char *to, const CUtensorMap *from, void *full,
                                           int col, int row)
{
    bar_expect(full, TILE_BYTES);
    bring<false>(to, from, full, col, row);
    bring<false>(to + STEP_BYTES, from, full, col, row + QUERIES);
}
/* One thread. Tiles of keys from the last one that is seen to the first. */
__device__ __forceinline__ void bring_work(Tiles &s, const Forward &p, const CUtensorMap *qkv)
{
    Turn<RING> t;
    Turn<1> qt;
    int width = p.heads * D;
    for (Work w(p); w.inside(); w.next(p), qt.next()) {
        int row = w.head / p.heads * p.tiles * KEYS, col = w.head % p.heads * D;
        bar_wait(&s.query_empty, qt.phase ^ 1);
        bring_tile(s.query, qkv, &s.query_full, col, row + w.tile * KEYS);
        for (int j = w.tile; j >= 0; j--, t.next()) {
            bar_wait(&s.key_empty[t.slot], t.phase ^ 1);
            bring_tile(s.key[t.slot], qkv, &s.key_full[t.slot], width + col, row + j * KEYS);
            bar_wait(&s.value_empty[t.slot], t.phase ^ 1);
            bring_tile(s.value[t.slot], qkv, &s.value_full[t.slot], 2 * width + col,
                       row + j * KEYS);
        }
    }
}

/* Of a thread's two rows: what was taken from the scores, sums of its weights, and the factor of what was there. */
struct Rows {
    float top[2], sum[2], keep[2];
};

template <typename T, int HALVES>
__device__ __forceinline__ void make_scores(float (&x)[2][SUMS], const unsigned (&q)[OPERAND],
                                            const unsigned char *key)
{
    product_begin();
#pragma unroll
    for (int h = 0; h < HALVES; h++)
        product_straight<T>(x[h], q, key + h * STEP_BYTES);
    product_end();
}
template <typename T, int HALVES>
__device__ __forceinline__ void add_values(float (&o)[SUMS], const unsigned (&w)[2][OPERAND],
                                           const unsigned char *value)
{
    product_begin();
#pragma unroll
    for (int h = 0; h < HALVES; h++)
        product_turned<T>(o, w[h], value + h * STEP_BYTES);
    product_end();
}
/* Keys behind the query, in a square on the diagonal. */
__device__ __forceinline__ void mask_square(float (&x)[SUMS])
{
    int lane = (int)threadIdx.x % WARP;
    int query = (int)threadIdx.x % GROUP / WARP * 16 + lane / 4, key = lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (key + 8 * j + k % 2 > query + k / 2 * 8) x[4 * j + k] = -INFINITY;
}
/* Scores to weights 2^(scale2 s - top). The top moves only when it is 2^8 too low: until then nothing overflows. */
template <int HALVES>
__device__ __forceinline__ void make_weights(float (&x)[2][SUMS], Rows &r, float scale2)
{
#pragma unroll
    for (int k = 0; k < 2; k++) {
        float most = -INFINITY, sum = 0;
#pragma unroll
        for (int h = 0; h < HALVES; h++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                most = fmaxf(most, fmaxf(x[h][4 * j + 2 * k], x[h][4 * j + 2 * k + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2)) * scale2;
        float top = most > r.top[k] + 8 ? most : r.top[k];
        r.keep[k] = fast_exp2(r.top[k] - top);
        r.top[k] = top;
#pragma unroll
        for (int h = 0; h < HALVES; h++)
#pragma unroll
            for (int j = 0; j < 8; j++) {
                float *at = &x[h][4 * j + 2 * k];
                at[0] = fast_exp2(fmaf(at[0], scale2, -top));
                at[1] = fast_exp2(fmaf(at[1], scale2, -top));
                sum += at[0] + at[1];
            }
        r.sum[k] = r.sum[k] * r.keep[k] + sum;
    }
}
template <typename T, int HALVES>
__device__ __forceinline__ void round_weights(const float (&x)[2][SUMS], unsigned (&w)[2][OPERAND])
{
#pragma unroll
    for (int h = 0; h < HALVES; h++)
#pragma unroll
        for (int i = 0; i < OPERAND; i++)
            w[h][i] = pair<T>(x[h][2 * i], x[h][2 * i + 1]);
}
__device__ __forceinline__ void scale_rows(float (&o)[SUMS], float upper, float lower)
{
#pragma unroll
    for (int j = 0; j < SUMS; j++)
        o[j] *= j / 2 % 2 ? lower : upper;
}

/* What a thread of a group has. */
struct Queries {
    float o[SUMS], x[2][SUMS];
    unsigned q[OPERAND], w[2][OPERAND];
    Rows r;
};

/* The first tile of keys, with a square on the diagonal: HALVES of it are seen. */
template <typename T, int HALVES>
__device__ __forceinline__ void begin_queries(Tiles &s, const Forward &p, Queries &a, int slot)
{
    settle(a.q), settle(a.x[0]), settle(a.x[1]);
    make_scores<T, HALVES>(a.x, a.q, s.key[slot]);
    product_wait<0>();
    settle(a.x[0]), settle(a.x[1]);
    bar_arrive_warp(&s.query_empty);
    bar_arrive_warp(&s.key_empty[slot]);
    mask_square(a.x[HALVES - 1]);
    make_weights<HALVES>(a.x, a.r, p.scale2);
    round_weights<T, HALVES>(a.x, a.w);
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        a.o[i] = 0;
}
/* The barrier at which a group waits for its turn at the tensor cores. */
__device__ __forceinline__ int turn_of(int group)
{
    return 1 + group;
}
/* The values of the tile before, and the scores of the next. Both groups make as many steps. */
template <typename T, int HALVES>
__device__ __forceinline__ void step_queries(Tiles &s, const Forward &p, Queries &a, Turn<RING> &t,
                                             int group)
{
    Turn<RING> before = t;
    t.next();
    bar_wait(&s.key_full[t.slot], t.phase);
    group_barrier<2 * GROUP>(turn_of(group));
    settle(a.x[0]), settle(a.x[1]);
    make_scores<T, 2>(a.x, a.q, s.key[t.slot]);
    bar_wait(&s.value_full[before.slot], before.phase);
    settle(a.w[0]), settle(a.w[1]), settle(a.o);
    add_values<T, HALVES>(a.o, a.w, s.value[before.slot]);
    group_arrive<2 * GROUP>(turn_of(1 - group));
    product_wait<1>();
    settle(a.x[0]), settle(a.x[1]);
    bar_arrive_warp(&s.key_empty[t.slot]);
    make_weights<2>(a.x, a.r, p.scale2);
    settle(a.x[0]), settle(a.x[1]);
    product_wait<0>();
    settle(a.o);
    bar_arrive_warp(&s.value_empty[before.slot]);
    if (!__all_sync(0xffffffffu, a.r.keep[0] == 1 && a.r.keep[1] == 1))
        scale_rows(a.o, a.r.keep[0], a.r.keep[1]);
    round_weights<T, 2>(a.x, a.w);
}
/* A group's 64 queries, to their place, and their stats. */
template <typename T>
__device__ __forceinline__ void end_queries(Tiles &s, const Forward &p, Queries &a,
                                            const CUtensorMap *out, const Work &w, int group)
{
    int lane = (int)threadIdx.x % WARP, row = w.tile * KEYS + group * QUERIES;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        float sum = a.r.sum[k];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        a.r.sum[k] = sum + __shfl_xor_sync(0xffffffffu, sum, 2);
        int at = row + (int)threadIdx.x % GROUP / WARP * 16 + lane / 4 + 8 * k;
        if (lane % 4 == 0)
            p.lse[(int64_t)w.head * p.tiles * KEYS + at] =
                (a.r.top[k] + log2f(a.r.sum[k])) * (1 / LOG2E);
    }
    scale_rows(a.o, 1 / a.r.sum[0], 1 / a.r.sum[1]);
    wait_sent();
    send_sums<T>(s.out[group], out, w.head % p.heads * D, w.head / p.heads * p.tiles * KEYS + row,
                 a.o, 1.0f);
}

template <typename T>
__device__ __forceinline__ void make_queries(Tiles &s, const Forward &p, const CUtensorMap *out,
                                             int group)
{
    if (group == 1) group_arrive<2 * GROUP>(turn_of(0));
    Turn<RING> t;
    Turn<1> qt;
    for (Work w(p); w.inside(); w.next(p), qt.next(), t.next()) {
        Queries a;
        a.r.top[0] = a.r.top[1] = -1e30f, a.r.sum[0] = a.r.sum[1] = 0;
        bar_wait(&s.query_full, qt.phase);
        load_operand_a(s.query + group * STEP_BYTES, a.q);
        bar_wait(&s.key_full[t.slot], t.phase);
        bool half = group == 0; /* the tile's second half is seen by the second group alone */
        if (half)
            begin_queries<T, 1>(s, p, a, t.slot);
        else
            begin_queries<T, 2>(s, p, a, t.slot);
        for (int n = w.tile; n > 0; n--, half = false)
            if (half)
                step_queries<T, 1>(s, p, a, t, group);
            else
                step_queries<T, 2>(s, p, a, t, group);
        bar_wait(&s.value_full[t.slot], t.phase);
        settle(a.w[0]), settle(a.w[1]), settle(a.o);
        if (half)
            add_values<T, 1>(a.o, a.w, s.value[t.slot]);
        else
            add_values<T, 2>(a.o, a.w, s.value[t.slot]);
        product_wait<0>();
        settle(a.o);
        bar_arrive_warp(&s.value_empty[t.slot]);
        end_queries<T>(s, p, a, out, w, group);
    }
    if (group == 0) group_barrier<2 * GROUP>(turn_of(0)); /* the turn that nobody takes */
    wait_sent();
}

/* o [B T, H 64] and stats [B H, T] from qkv [B T, 3 H 64]; qkv as a tensor map of boxes [64][64], o of boxes
 * [16][64], swizzled in 128 bytes; T a multiple of 128. */
template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    forward_k(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap o,
              const __grid_constant__ Forward p)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Tiles &s = *(Tiles *)shared_bytes;
    int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / GROUP, 0);
    if (threadIdx.x == 0) {
        bar_init(&s.query_full, 1), bar_init(&s.query_empty, 2 * WARPS);
        for (int i = 0; i < RING; i++) {
            bar_init(&s.key_full[i], 1), bar_init(&s.key_empty[i], 2 * WARPS);
            bar_init(&s.value_full[i], 1), bar_init(&s.value_empty[i], 2 * WARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    begin();
    __syncthreads();
    if (group == 0) {
        fewer_registers<24>();
        if (threadIdx.x == 0) bring_work(s, p, &qkv);
    } else {
        more_registers<240>();
        make_queries<T>(s, p, &o, group - 1);
    }
#endif
}

} // namespace flash_forward

#endif
