/* Gradient of attention for heads of 64 on Hopper. A block takes whole heads, one after the other, and in a head
 * tiles of 128 keys, in ascending order; for each the queries pass by in steps of 64. Four warpgroups work at the
 * same time: one thread brings operands (TMA); two groups have 64 keys each and make scores, weights and the
 * gradients of keys and values, which stay in registers; one multiplies the gradients of the scores, passed through
 * shared memory, by the keys. Its sums for the queries wait in the block's own scratch, where one thread alone
 * adds to each in the order of the tiles: no other block, no order that changes, nothing to be cleared.
 * Dao 2023, algorithm 2; Shah et al. 2024, section 3. */
#ifndef DLT_FLASH_HOPPER_CUH
#define DLT_FLASH_HOPPER_CUH

#include "cuda/kernels/flash_square.cuh"

namespace flash_hopper
{
enum {
    STAGES = 4, /* of queries */
    SCORES = 2, /* of gradients of scores */
    THREADS = 4 * GROUP,
    HELD = 3 /* last steps whose sums stay in shared memory */
};

struct Shared {
    unsigned char key[2][TILE_BYTES], value[TILE_BYTES];              /* [128][64] */
    unsigned char query[STAGES][STEP_BYTES], d_o[STAGES][STEP_BYTES]; /* [64][64] */
    unsigned char score[SCORES][TILE_BYTES];                          /* [128 keys][64 queries] */
    unsigned char out[2][2][STEP_BYTES]; /* a group's dk, dv on their way out */
    float4 held[HELD][SUMS / 4][GROUP];
    float stats[STAGES][2][QUERIES];
    unsigned long long full[STAGES], empty[STAGES], made[SCORES], used[SCORES];
    unsigned long long key_full[2], key_empty[2], value_full, value_empty;
};

struct Problem {
    int batch, heads, tiles; /* of 128 along T */
    float scale, scale2;     /* scale2 = scale log2(e) */
    const float *stats;      /* [B H, T / 64, 2, 64]: -stats log2(e), delta */
    float *scratch;          /* [blocks, T, 64] */
    float *sums;             /* of columns: of dq [4 B, H 64], of d_o [B T / 128, H 64]; or NULL */
    void *dqkv;
};

struct Heads {
    int head;
    __device__ __forceinline__ Heads() : head((int)blockIdx.x)
    {
    }
    __device__ __forceinline__ bool inside(const Problem &p) const
    {
        return head < p.batch * p.heads;
    }
    __device__ __forceinline__ void next()
    {
        head += (int)gridDim.x;
    }
    __device__ __forceinline__ int row(const Problem &p) const
    {
        return head / p.heads * p.tiles * KEYS;
    }
    __device__ __forceinline__ int col(const Problem &p) const
    {
        return head % p.heads * D;
    }
};

/* One thread. */
template <bool CAUSAL>
__device__ __forceinline__ void bring_all(Shared &s, const Problem &p, const CUtensorMap *qkv,
                                          const CUtensorMap *d_o)
{
    Turn<STAGES> t;
    Turn<2> kt;
    Turn<1> vt;
    int width = p.heads * D, steps = 2 * p.tiles;
    for (Heads h; h.inside(p); h.next()) {
        int row = h.row(p), col = h.col(p);
        const float *stats = p.stats + (int64_t)h.head * steps * 2 * QUERIES;
        for (int j = 0; j < p.tiles; j++, kt.next(), vt.next()) {
            int r = row + j * KEYS;
            bar_wait(&s.key_empty[kt.slot], kt.phase ^ 1);
            bar_expect(&s.key_full[kt.slot], TILE_BYTES);
            bring<true>(s.key[kt.slot], qkv, &s.key_full[kt.slot], width + col, r);
            bring<true>(s.key[kt.slot] + STEP_BYTES, qkv, &s.key_full[kt.slot], width + col,
                        r + QUERIES);
            bar_wait(&s.value_empty, vt.phase ^ 1);
            bar_expect(&s.value_full, TILE_BYTES);
            bring<true>(s.value, qkv, &s.value_full, 2 * width + col, r);
            bring<true>(s.value + STEP_BYTES, qkv, &s.value_full, 2 * width + col, r + QUERIES);
            for (int i = CAUSAL ? 2 * j : 0; i < steps; i++, t.next()) {
                void *full = &s.full[t.slot];
                bar_wait(&s.empty[t.slot], t.phase ^ 1);
                bar_expect(full, 2 * STEP_BYTES + (int)sizeof s.stats[0]);
                bring<false>(s.query[t.slot], qkv, full, col, row + i * QUERIES);
                bring_bytes(s.stats[t.slot], stats + i * 2 * QUERIES, full, sizeof s.stats[0]);
                bring<false>(s.d_o[t.slot], d_o, full, col, row + i * QUERIES);
            }
        }
    }
}

/* d[4 j + ..]: columns 8 j + 2 (lane % 4) and the next, of row lane / 4 of the warp's 16, then of the row 8
 * below. */
__device__ __forceinline__ void mask_diagonal(float (&x)[SUMS])
{
    int lane = (int)threadIdx.x % WARP;
    int key = (int)threadIdx.x % GROUP / WARP * 16 + lane / 4, query = lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (key + k / 2 * 8 > query + 8 * j + k % 2) x[4 * j + k] = -INFINITY;
}
/* Scores to weights exp(s - stats), and those rounded. */
template <typename T>
__device__ __forceinline__ void weigh(float (&x)[SUMS], unsigned (&r)[16], const float *stats,
                                      float scale2)
{
    const float *from = stats + threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float2 m = *(const float2 *)(from + 8 * j);
        x[4 * j] = fast_exp2(fmaf(x[4 * j], scale2, m.x));
        x[4 * j + 1] = fast_exp2(fmaf(x[4 * j + 1], scale2, m.y));
        x[4 * j + 2] = fast_exp2(fmaf(x[4 * j + 2], scale2, m.x));
        x[4 * j + 3] = fast_exp2(fmaf(x[4 * j + 3], scale2, m.y));
        r[2 * j] = pair<T>(x[4 * j], x[4 * j + 1]);
        r[2 * j + 1] = pair<T>(x[4 * j + 2], x[4 * j + 3]);
    }
}
/* r = w (g - delta), rounded. */
template <typename T>
__device__ __forceinline__ void score_gradient(const float (&w)[SUMS], const float (&g)[SUMS],
                                               unsigned (&r)[16], const float *delta)
{
    const float *from = delta + threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float2 m = *(const float2 *)(from + 8 * j);
        r[2 * j] = pair<T>(w[4 * j] * (g[4 * j] - m.x), w[4 * j + 1] * (g[4 * j + 1] - m.y));
        r[2 * j + 1] =
            pair<T>(w[4 * j + 2] * (g[4 * j + 2] - m.x), w[4 * j + 3] * (g[4 * j + 3] - m.y));
    }
}

/* What a thread of a group has: sums of its 64 keys and the scores of the step, operands of the tile. */
struct Keys {
    float dk[SUMS], dv[SUMS], x[SUMS];
    unsigned k[OPERAND], v[OPERAND];
};
struct KeyTurns {
    Turn<STAGES> stage;
    Turn<SCORES> score;
    Turn<2> key;
    Turn<1> value;
};

/* Operands of the next tile; the first scores are left to be made. */
__device__ __forceinline__ void begin_tile(Shared &s, const KeyTurns &t, Keys &r, int group)
{
    bar_wait(&s.key_full[t.key.slot], t.key.phase);
    load_operand_a(s.key[t.key.slot] + group * STEP_BYTES, r.k);
    bar_wait(&s.value_full, t.value.phase);
    load_operand_a(s.value + group * STEP_BYTES, r.v);
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        r.dk[i] = r.dv[i] = 0;
}
/* A step of which the group sees nothing: its scores stay unread. */
__device__ __forceinline__ void skip_step(Shared &s, KeyTurns &t)
{
    bar_wait(&s.full[t.stage.slot], t.stage.phase);
    bar_arrive_warp(&s.empty[t.stage.slot]);
    bar_wait(&s.used[t.score.slot], t.score.phase ^ 1);
    bar_arrive_warp(&s.made[t.score.slot]);
    t.stage.next(), t.score.next();
}
/* The stage of the step before (-1: there was none) is free; with the first product of a tile, so are its keys and
 * values: not earlier, as until then they may be on their way into registers. */
__device__ __forceinline__ void release(Shared &s, const KeyTurns &t, int before)
{
    if (before >= 0) {
        bar_arrive_warp(&s.empty[before]);
    } else {
        bar_arrive_warp(&s.key_empty[t.key.slot]);
        bar_arrive_warp(&s.value_empty);
    }
}

/* One step: its scores are in r.x, and so are the next one's behind it (anything if there is none). */
template <typename T>
__device__ __forceinline__ void make_step(Shared &s, const Problem &p, KeyTurns &t, Keys &r,
                                          int group, int before, bool diagonal, bool more)
{
    float g[SUMS];
    unsigned w[OPERAND], ds[OPERAND];
    int now = t.stage.slot;
    product_begin();
    product_straight<T>(g, r.v, s.d_o[now]);
    product_end();
    if (diagonal) mask_diagonal(r.x);
    weigh<T>(r.x, w, s.stats[now][0], p.scale2);
    settle(w);
    product_begin();
    product_turned<T>(r.dv, w, s.d_o[now]);
    product_end();
    product_wait<1>();
    settle(g);
    release(s, t, before);
    score_gradient<T>(r.x, g, ds, s.stats[now][1]);
    settle(ds);
    t.stage.next();
    if (more) bar_wait(&s.full[t.stage.slot], t.stage.phase);
    product_begin();
    product_straight<T>(r.x, r.k, s.query[more ? t.stage.slot : now]);
    product_end();
    product_begin();
    product_turned<T>(r.dk, ds, s.query[now]);
    product_end();
    bar_wait(&s.used[t.score.slot], t.score.phase ^ 1);
    put_square(s.score[t.score.slot] + group * STEP_BYTES, ds);
    publish();
    bar_arrive_warp(&s.made[t.score.slot]);
    t.score.next();
    product_wait<0>();
    settle(r.x), settle(r.dk), settle(r.dv);
}

/* A group's 64 keys of each tile: gradients of keys and values. */
template <typename T, bool CAUSAL>
__device__ __forceinline__ void make_keys(Shared &s, const Problem &p, const CUtensorMap *out,
                                          int group)
{
    KeyTurns t;
    int width = p.heads * D, steps = 2 * p.tiles;
    for (Heads h; h.inside(p); h.next()) {
        for (int j = 0; j < p.tiles; j++, t.key.next(), t.value.next()) {
            Keys r;
            int i = CAUSAL ? 2 * j : 0, before = -1;
            begin_tile(s, t, r, group);
            if (CAUSAL && group == 1) skip_step(s, t), i++;
            bar_wait(&s.full[t.stage.slot], t.stage.phase);
            settle(r.dk), settle(r.dv), settle(r.k), settle(r.v);
            product_begin();
            product_straight<T>(r.x, r.k, s.query[t.stage.slot]);
            product_end();
            product_wait<0>();
            settle(r.x);
            for (; i < steps; i++) {
                int now = t.stage.slot;
                make_step<T>(s, p, t, r, group, before, CAUSAL && before < 0, i + 1 < steps);
                before = now;
            }
            bar_arrive_warp(&s.empty[before]);
            int row = h.row(p) + j * KEYS + group * 64;
            wait_sent();
            send_sums<T>(s.out[group][0], out, width + h.col(p), row, r.dk, p.scale);
            send_sums<T>(s.out[group][1], out, 2 * width + h.col(p), row, r.dv, 1.0f);
        }
    }
    wait_sent();
}

/* dq += scores^T keys over the first DEPTHS x 16 keys, to the end. */
template <typename T, int DEPTHS>
__device__ __forceinline__ void product_keys(float (&dq)[SUMS], const unsigned char *score,
                                             const unsigned char *key)
{
    unsigned long long a = operand(at(score)), b = operand(at(key));
    product_begin();
#pragma unroll
    for (int k = 0; k < DEPTHS; k++)
        multiply_shared<T, 1>(dq, a + (unsigned)(k * TURNED_STEP >> 4),
                              b + (unsigned)(k * TURNED_STEP >> 4));
    product_end();
    product_wait<0>();
}

/* Exact: nobody else adds there. */
__device__ __forceinline__ void add_to(float4 *p, float4 v)
{
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(p), "f"(v.x),
                 "f"(v.y), "f"(v.z), "f"(v.w)
                 : "memory");
}
/* Where a thread's sums for the queries of a step wait for the next tile; they lie in the order of its registers. */
struct Place {
    float4 *scratch, *own; /* own: in shared memory, of a step that is held */
    bool held, first, last;
};
__device__ __forceinline__ void take_sums(const Place &at, float (&dq)[SUMS])
{
#pragma unroll
    for (int k = 0; k < SUMS / 4; k++) {
        float4 v = make_float4(0, 0, 0, 0);
        if (!at.first && at.held)
            v = at.own[k * GROUP];
        else if (!at.first && at.last) /* what came before the last went there unseen */
            v = __ldcg(at.scratch + k * GROUP);
        dq[4 * k] = v.x, dq[4 * k + 1] = v.y, dq[4 * k + 2] = v.z, dq[4 * k + 3] = v.w;
    }
}
__device__ __forceinline__ void leave_sums(const Place &at, const float (&dq)[SUMS])
{
#pragma unroll
    for (int k = 0; k < SUMS / 4; k++) {
        float4 v = make_float4(dq[4 * k], dq[4 * k + 1], dq[4 * k + 2], dq[4 * k + 3]);
        if (at.held)
            at.own[k * GROUP] = v;
        else if (at.first)
            __stcg(at.scratch + k * GROUP, v);
        else
            add_to(at.scratch + k * GROUP, v);
    }
}

/* All sums of the queries of a step are there; a row of column sums for each of the 4 warps. */
template <typename T>
__device__ __forceinline__ void finish_queries(const Problem &p, const Heads &h, int step,
                                               const float (&dq)[SUMS])
{
    int64_t width = (int64_t)p.heads * D, row = h.row(p) + step * QUERIES;
    store_sums<T>((T *)p.dqkv + row * 3 * width + h.col(p), 3 * width, dq, p.scale);
    int line = h.head / p.heads * WARPS + (int)threadIdx.x % GROUP / WARP;
    if (p.sums) add_columns(p.sums + line * width + h.col(p), dq, p.scale, step == 0);
}
/* Gradients of the queries. */
template <typename T, bool CAUSAL>
__device__ __forceinline__ void make_queries(Shared &s, const Problem &p)
{
    Turn<SCORES> d;
    Turn<2> kt;
    int steps = 2 * p.tiles, thread = (int)threadIdx.x % GROUP;
    float4 *scratch = (float4 *)p.scratch + (int64_t)blockIdx.x * p.tiles * KEYS * D / 4 + thread;
    for (Heads h; h.inside(p); h.next()) {

        for (int j = 0; j < p.tiles; j++, kt.next()) {
            bar_wait(&s.key_full[kt.slot], kt.phase);
            for (int i = CAUSAL ? 2 * j : 0; i < steps; i++, d.next()) {
                int of_held = i - steps + HELD;
                Place at = {scratch + i * (SUMS / 4 * GROUP), s.held[max(of_held, 0)][0] + thread,
                            of_held >= 0, j == 0, CAUSAL ? i / 2 == j : j == p.tiles - 1};
                float dq[SUMS];
                take_sums(at, dq);
                bar_wait(&s.made[d.slot], d.phase);
                settle(dq);
                if (CAUSAL && i == 2 * j) /* the second group saw nothing */
                    product_keys<T, 4>(dq, s.score[d.slot], s.key[kt.slot]);
                else
                    product_keys<T, 8>(dq, s.score[d.slot], s.key[kt.slot]);
                settle(dq);
                bar_arrive_warp(&s.used[d.slot]);
                if (at.last)
                    finish_queries<T>(p, h, i, dq);
                else
                    leave_sums(at, dq);
            }
            bar_arrive_warp(&s.key_empty[kt.slot]);
        }
    }
}

__device__ __forceinline__ void init_barriers(Shared &s)
{
    for (int i = 0; i < STAGES; i++)
        bar_init(&s.full[i], 1), bar_init(&s.empty[i], 2 * WARPS);
    for (int i = 0; i < SCORES; i++)
        bar_init(&s.made[i], 2 * WARPS), bar_init(&s.used[i], WARPS);
    for (int i = 0; i < 2; i++)
        bar_init(&s.key_full[i], 1), bar_init(&s.key_empty[i], 3 * WARPS);
    bar_init(&s.value_full, 1), bar_init(&s.value_empty, 2 * WARPS);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* dqkv from qkv [B T, 3 H 64] and d_o [B T, H 64], both as tensor maps of boxes [64][64], swizzled in 128
 * bytes; T a multiple of 128. */
template <typename T, bool CAUSAL>
__global__ void __launch_bounds__(THREADS, 1)
    backward_k(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap d_o,
               const __grid_constant__ CUtensorMap dqkv, const __grid_constant__ Problem p)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    Shared &s = *(Shared *)shared_bytes;
    /* by way of a shuffle the compiler knows that all threads of a warp agree */
    int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / GROUP, 0);
    if (threadIdx.x == 0) init_barriers(s);
    begin();
    __syncthreads();
    if (group == 0) {
        fewer_registers<24>();
        if (threadIdx.x == 0) bring_all<CAUSAL>(s, p, &qkv, &d_o);
    } else if (group == 1) {
        fewer_registers<72>();
        make_queries<T, CAUSAL>(s, p);
    } else {
        more_registers<208>();
        make_keys<T, CAUSAL>(s, p, &dqkv, group - 2);
    }
#endif
}

} // namespace flash_hopper

#endif
