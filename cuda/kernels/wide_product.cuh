/* Large products of 16-bit types whose activation, or its gradient, is worked out while the tensor cores
 * make another tile (Hopper). A cluster of two blocks has two tiles of 128 x 192 one above the other and shares
 * their columns' operand. In a block one thread brings operands and two warpgroups take tiles in turn: while one
 * multiplies, the other finishes its tile in pieces of 64 x 64, which the copy engine takes to memory. That engine
 * also brings what the gradient of an activation needs: a thread's own loads and stores get in the way of the
 * operands that the tensor cores read (each 16 bytes a thread stores take as long as 64 of theirs). The groups wait
 * for each other only where a tile's stages end and the next one's begin. */
#ifndef DLT_WIDE_PRODUCT_CUH
#define DLT_WIDE_PRODUCT_CUH

#include "cuda/kernels/act.cuh"
#include "cuda/kernels/hopper.cuh"

namespace wide
{
using namespace hopper;

enum {
    ROWS = 128,
    COLS = 192,
    DEPTH = 64, /* of a stage */
    STAGES = 4,
    GROUPS = 2, /* that multiply; one more brings */
    THREADS = (1 + GROUPS) * GROUP,
    HALF = ROWS / 2,         /* rows of one wgmma */
    SUMS = COLS / 2,         /* that a thread has of half a tile */
    STRIP = HALF / WARPS,    /* rows of it that a warp has, 16 */
    STRIPES = COLS / STRIPE, /* of a tile */
    PIECES = 2 * STRIPES,    /* of a tile, each [64][64] */
    PACK = 8,                /* elements of 16 bytes */
    PACKS = COLS / PACK,
    ROOMS = 4,          /* for pieces in shared memory, a group */
    COMING = ROOMS - 1, /* of them for pieces from memory */
    ALIGN = 1024        /* of shared memory, for the swizzle */
};
enum { A_BYTES = ROWS * DEPTH * 2, B_BYTES = COLS * DEPTH * 2, STAGE_BYTES = A_BYTES + B_BYTES };
enum { PIECE_BYTES = HALF * STRIPE * 2 };

/* A group's rooms for pieces on their way from and to memory, swizzled like the operands; in the last one also its
 * warps' column sums. */
union Rooms {
    unsigned char room[ROOMS][PIECE_BYTES];
    struct {
        unsigned char others[COMING][PIECE_BYTES];
        float column[WARPS][COLS];
    };
};
/* A block's shared memory; operands in rows of 128 bytes, swizzled by the copy engine. */
struct Shared {
    unsigned char stage[STAGES][STAGE_BYTES]; /* a [128][64], then b [192][64] or 3 of [64][64] */
    Rooms rooms[GROUPS];
    float bias[GROUPS][COLS];
    unsigned long long full[STAGES], empty[STAGES], turn[GROUPS], come[GROUPS][COMING];
};

/* a [m, k]; b [n, k], forward, or [k, n]; out: act(v) or dx; more: v or act(pre); pre: what went into the
 * activation; the last three [m, n]. Boxes [128][64] of a, [96][64] of b [n, k], [32][64] of b [k, n], [64][64]
 * of the others, all swizzled in 128 bytes. */
struct Maps {
    CUtensorMap a, b, out, more, pre;
};
struct Problem {
    int tiles_m, tiles_n, steps; /* pairs of tiles along m; tiles along n; stages of k */
    int n;
    bool more;   /* is wanted */
    In bias;     /* [n], f32 or of the operands' type; p NULL: none */
    float *part; /* gradient: column sums of dx [2 tiles_m, n], or NULL */
    float alpha;
};

__device__ __forceinline__ unsigned long long straight(const void *p)
{
    return operand(at(p));
}
__device__ __forceinline__ unsigned long long turned(const void *p)
{
    return operand(at(p), DEPTH * STRIPE * 2);
}

/* ---- tiles and stages ---- */

/* Where a block's tiles are: every cluster takes each gridDim.x / 2-th pair, columns first. */
struct Tiles {
    int pair, step, rank;
    __device__ __forceinline__ Tiles()
        : pair((int)blockIdx.x / 2), step((int)gridDim.x / 2), rank((int)blockIdx.x % 2)
    {
    }
    __device__ __forceinline__ bool inside(const Problem &p) const
    {
        return pair < p.tiles_m * p.tiles_n;
    }
    __device__ __forceinline__ int row(const Problem &p) const
    {
        return (pair / p.tiles_n * 2 + rank) * ROWS;
    }
    __device__ __forceinline__ int col(const Problem &p) const
    {
        return pair % p.tiles_n * COLS;
    }
};
/* One warp, whose first thread brings a and its half of b for every stage. */
template <int TURNED>
__device__ __forceinline__ void bring_operands(Shared &s, const Problem &p, const Maps &maps)
{
    constexpr int half = DEPTH / 2;
    Turn<STAGES> t;
    if (threadIdx.x != 0) return;
    for (Tiles w; w.inside(p); w.pair += w.step) {
        int row = w.row(p), col = w.col(p);
        for (int k = 0; k < p.steps; k++, t.next()) {
            unsigned char *a = s.stage[t.slot], *b = a + A_BYTES;
            void *full = &s.full[t.slot];
            bar_wait(&s.empty[t.slot], t.phase ^ 1);
            bar_expect(full, STAGE_BYTES);
            bring<false>(a, &maps.a, full, k * DEPTH, row);
            if (!TURNED)
                bring_both(b + w.rank * (B_BYTES / 2), &maps.b, full, k * DEPTH,
                           col + w.rank * (COLS / 2));
            for (int i = 0; TURNED && i < STRIPES; i++)
                bring_both(b + (i * DEPTH + w.rank * half) * STRIPE * 2, &maps.b, full,
                           col + i * STRIPE, k * DEPTH + w.rank * half);
        }
    }
}

/* Two threads of a multiplying group tell both blocks that a stage is free. */
__device__ __forceinline__ void release(Shared &s, int slot)
{
    if (threadIdx.x % GROUP < 2) bar_arrive_at(&s.empty[slot], (int)threadIdx.x % GROUP);
}

/* Products of one stage. */
template <typename T, int TURNED>
__device__ __forceinline__ void multiply_stage(Shared &s, int slot, float (&upper)[SUMS],
                                               float (&lower)[SUMS])
{
    const unsigned char *a = s.stage[slot], *b = a + A_BYTES;
    product_begin();
#pragma unroll
    for (int i = 0; i < DEPTH / 16; i++) {
        unsigned long long right = TURNED ? turned(b + i * 16 * STRIPE * 2) : straight(b + i * 32);
        multiply_192<T, TURNED>(upper, straight(a + i * 32), right);
        multiply_192<T, TURNED>(lower, straight(a + A_BYTES / 2 + i * 32), right);
    }
    product_end();
}

/* ---- what is done with sums ---- */

/* The bias of a tile's columns: two a thread of the group, the second for half of them. */
template <typename B> __device__ __forceinline__ float2 look_up(const B *bias, int first, int last)
{
    return make_float2(to_float(bias[min(first, last)]), to_float(bias[min(first + GROUP, last)]));
}
template <typename T> __device__ __forceinline__ float2 fetch_bias(const Problem &p, int col)
{
    int first = col + (int)threadIdx.x % GROUP, last = p.n - 1;
    if (!p.bias.p) return make_float2(0.0f, 0.0f);
    if (p.bias.dtype == DLT_F32) return look_up((const float *)p.bias.p, first, last);
    return look_up((const T *)p.bias.p, first, last);
}
__device__ __forceinline__ void put_bias(float *bias, float2 own, int group)
{
    int thread = (int)threadIdx.x % GROUP;
    group_barrier<GROUP>(1 + group); /* nobody reads the last tile's any more */
    bias[thread] = own.x;
    if (thread < COLS - GROUP) bias[thread + GROUP] = own.y;
    group_barrier<GROUP>(1 + group);
}

/* What a group has at hand when it finishes a tile. */
struct Finish {
    const Maps *maps;
    Rooms *rooms;
    const float *bias; /* of the tile's columns */
    unsigned long long *come;
    int group, lane; /* lane: of the group */
    int row, col;    /* of the tile */
    float alpha;
    bool more;
    __device__ __forceinline__ void together() const
    {
        group_barrier<GROUP>(1 + group);
    }
    /* Where piece c lies in the matrix. */
    __device__ __forceinline__ int x(int c) const
    {
        return col + c % STRIPES * STRIPE;
    }
    __device__ __forceinline__ int y(int c) const
    {
        return row + c / STRIPES * HALF;
    }
    /* Packs j and j + 1 of a lane's row of a piece, for 8 x 8 matrices: their order is j ^ (row % 8). */
    __device__ __forceinline__ unsigned pack(const void *room, int j) const
    {
        return at(room) + (unsigned)((lane / WARP * STRIP + lane % 16) * 128 +
                                     ((j + lane % WARP / 16) ^ lane % 8) * 16);
    }
};

/* Piece c, and the one beside it in the other matrix, to memory. */
__device__ __forceinline__ void take_piece(const Finish &f, int c, const void *out,
                                           const void *more)
{
    publish();
    f.together();
    if (threadIdx.x % GROUP == 0) {
        take_box<true>(&f.maps->out, out, f.x(c), f.y(c));
        if (f.more) take_box<true>(&f.maps->more, more, f.x(c), f.y(c));
        take_end();
    }
}

/* act(v) and v of piece c. d: its sums of a lane: d[4 j + ..]: columns 8 j + 2 (lane % 4) and the next, of row lane / 4, then
 * of the row 8 below. */
template <typename T, int FN>
__device__ __forceinline__ void finish_forward(const Finish &f, const float *d, int c)
{
    int lane = (int)threadIdx.x % WARP;
    unsigned char *out = f.rooms->room[c % 2 * 2], *more = f.rooms->room[c % 2 * 2 + 1];
    const float *bias = f.bias + c % STRIPES * STRIPE + lane % 4 * 2;
    if (threadIdx.x % GROUP == 0) take_wait<1>();
    f.together();
#pragma unroll
    for (int j = 0; j < STRIPE / PACK; j += 2) {
        unsigned v[4], y[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float2 b = *(const float2 *)(bias + (j + k / 2) * PACK);
            v[k] = pair<T>(d[4 * j + 2 * k] + b.x, d[4 * j + 2 * k + 1] + b.y);
            float2 s = apart(v[k], T());
            y[k] = pair<T>(act<FN>(s.x, f.alpha), act<FN>(s.y, f.alpha));
        }
        store_matrices(f.pack(out, j), y);
        if (f.more) store_matrices(f.pack(more, j), v);
    }
    take_piece(f, c, out, more);
}

/* Sums in pairs of columns. */
template <typename T>
__device__ __forceinline__ void round_sums(const float (*d)[SUMS], unsigned (*v)[SUMS / 2])
{
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < SUMS / 2; i++)
            v[h][i] = pair<T>(d[h][2 * i], d[h][2 * i + 1]);
}

/* Piece c of pre into its room. */
__device__ __forceinline__ void fetch_piece(const Finish &f, int c)
{
    unsigned long long *bar = &f.come[c % COMING];
    bar_expect(bar, PIECE_BYTES);
    bring<true>(f.rooms->room[c % COMING], &f.maps->pre, bar, f.x(c), f.y(c));
}
__device__ __forceinline__ void fetch_first_pieces(const Finish &f)
{
    if (threadIdx.x % GROUP != 0) return;
    for (int c = 0; c < COMING; c++)
        fetch_piece(f, c);
}

/* dx = v act'(pre), act(pre) and column sums of dx. v as d forward, in pairs; sum[2 j + ..]: of columns
 * 8 j + 2 (lane % 4) and the next. dx goes where pre was. */
template <typename T, int FN>
__device__ __forceinline__ void finish_backward(const Finish &f, const unsigned *v, int c,
                                                float *sum)
{
    unsigned char *room = f.rooms->room[c % COMING], *more = f.rooms->room[COMING];
    unsigned y[STRIPE / 4]; /* pre, then act(pre) */
    bar_wait(&f.come[c % COMING], (unsigned)(c / COMING));
#pragma unroll
    for (int j = 0; j < STRIPE / PACK; j += 2)
        warp_load_at(y + 2 * j, f.pack(room, j));
#pragma unroll
    for (int j = 0; j < STRIPE / PACK; j += 2) {
        unsigned dx[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float2 x = apart(y[2 * j + k], T()), g = apart(v[2 * j + k], T()), again;
            g.x *= act_both<FN>(x.x, f.alpha, &again.x);
            g.y *= act_both<FN>(x.y, f.alpha, &again.y);
            float *s = sum + 2 * (j + k / 2);
            bool first = c < STRIPES && k % 2 == 0;
            s[0] = first ? g.x : s[0] + g.x;
            s[1] = first ? g.y : s[1] + g.y;
            dx[k] = pair<T>(g.x, g.y);
            y[2 * j + k] = pair<T>(again.x, again.y);
        }
        store_matrices(f.pack(room, j), dx);
    }
    if (threadIdx.x % GROUP == 0) {
        take_wait<0>();
        if (c >= 1 && c + 2 < PIECES) fetch_piece(f, c + 2); /* where piece c - 1 was */
    }
    f.together();
    for (int j = 0; f.more && j < STRIPE / PACK; j += 2)
        store_matrices(f.pack(more, j), y + 2 * j);
    take_piece(f, c, room, more);
}

/* Adds over the lanes that have the same columns: of twice LEFT sums a lane keeps LEFT. */
template <int LEFT> __device__ __forceinline__ void halve(float *sum, int mask)
{
    bool upper = (threadIdx.x & mask) != 0;
#pragma unroll
    for (int i = 0; i < LEFT; i++) {
        float keep = upper ? sum[LEFT + i] : sum[i], send = upper ? sum[i] : sum[LEFT + i];
        sum[i] = keep + __shfl_xor_sync(0xffffffffu, send, mask);
    }
}
/* Column sums of a tile from those of the group's lanes. */
__device__ __forceinline__ void finish_sums(Rooms &rooms, const Problem &p, int group, int row,
                                            int col, float *sum)
{
    int thread = (int)threadIdx.x % GROUP, warp = thread / WARP, lane = thread % WARP;
    halve<PACKS>(sum, 16);
    halve<PACKS / 2>(sum, 8);
    halve<PACKS / 4>(sum, 4);
    int first =
        (lane & 16 ? PACKS / 2 : 0) + (lane & 8 ? PACKS / 4 : 0) + (lane & 4 ? PACKS / 8 : 0);
#pragma unroll
    for (int i = 0; i < PACKS / 8; i++)
        *(float2 *)(rooms.column[warp] + (first + i) * PACK + lane % 4 * 2) =
            make_float2(sum[2 * i], sum[2 * i + 1]);
    group_barrier<GROUP>(1 + group);
    for (int c = thread; c < COLS && col + c < p.n; c += GROUP) {
        float s = 0;
        for (int w = 0; w < WARPS; w++)
            s += rooms.column[w][c];
        p.part[(int64_t)(row / ROWS) * p.n + col + c] = s;
    }
    group_barrier<GROUP>(1 + group);
}

/* ---- the multiplying groups ---- */

/* All products of a tile; t is left behind its last stage. Whoever has seen the last stage filled lets the other
 * group look at the stages: a barrier tells a phase from the next one, but not from the one after that. */
template <typename T, int TURNED>
__device__ __forceinline__ void multiply_tile(Shared &s, const Problem &p, int group,
                                              Turn<STAGES> &t, float (&upper)[SUMS],
                                              float (&lower)[SUMS])
{
    for (int k = 0; k < p.steps; k++) {
        bar_wait(&s.full[t.slot], t.phase);
        if (k == p.steps - 1 && threadIdx.x % GROUP == 0) bar_arrive(&s.turn[1 - group]);
        multiply_stage<T, TURNED>(s, t.slot, upper, lower);
        product_wait<1>();
        if (k > 0) release(s, t.slot == 0 ? STAGES - 1 : t.slot - 1);
        t.next();
    }
}

/* Each multiplying group has every other tile of its block. */
template <typename T, int FN, bool GRADIENT>
__device__ __forceinline__ void make_tiles(Shared &s, const Problem &p, const Maps &maps, int group)
{
    float d[2][SUMS];
    int thread = (int)threadIdx.x % GROUP;
    unsigned turn = group == 0;
    Finish f = {&maps, &s.rooms[group], s.bias[group], s.come[group], group, thread, 0,
                0,     p.alpha,         p.more};
    Turn<STAGES> t;
    Tiles w;
    float2 bias = make_float2(0.0f, 0.0f);
    w.pair += group * w.step;
    t.skip(group * p.steps);
    f.row = w.row(p), f.col = w.col(p);
    if (w.inside(p)) {
        if (GRADIENT)
            fetch_first_pieces(f);
        else
            bias = fetch_bias<T>(p, f.col);
    }
    for (; w.inside(p); t.skip(p.steps), turn ^= 1) {
        int row = w.row(p), col = w.col(p);
        if (!GRADIENT) put_bias(s.bias[group], bias, group);
#pragma unroll
        for (int i = 0; i < SUMS; i++)
            d[0][i] = d[1][i] = 0.0f;
        settle(d[0]);
        settle(d[1]);
        bar_wait(&s.turn[group], turn);
        multiply_tile<T, GRADIENT>(s, p, group, t, d[0], d[1]);
        product_wait<0>();
        settle(d[0]);
        settle(d[1]);
        release(s, t.slot == 0 ? STAGES - 1 : t.slot - 1);
        w.pair += GROUPS * w.step;
        /* or places would be worked out ahead of the products, in registers that these need */
        asm volatile("" : "+r"(f.lane));
        float sum[2 * PACKS];
        unsigned v[2][SUMS / 2];
        if (GRADIENT)
            round_sums<T>(d, v);
        else if (w.inside(p))
            bias = fetch_bias<T>(p, w.col(p));
#pragma unroll
        for (int c = 0; c < PIECES; c++) {
            int half = c / STRIPES, stripe = c % STRIPES;
            if (GRADIENT)
                finish_backward<T, FN>(f, v[half] + stripe * (STRIPE / 4), c,
                                       sum + stripe * (STRIPE / 4));
            else
                finish_forward<T, FN>(f, d[half] + stripe * (STRIPE / 2), c);
        }
        if (thread == 0) take_wait<0>();
        f.together();
        f.row = w.row(p), f.col = w.col(p);
        if (GRADIENT && w.inside(p)) fetch_first_pieces(f);
        if (GRADIENT && p.part) finish_sums(s.rooms[group], p, group, row, col, sum);
    }
    take_wait_written();
}

/* m a multiple of 256, n and k of 64. */
template <typename T, int FN, bool GRADIENT>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS, 1)
    product_k(const __grid_constant__ Maps maps, const __grid_constant__ Problem p)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    begin();
    extern __shared__ unsigned char shared_bytes[];
    Shared &s = *(Shared *)(((uintptr_t)shared_bytes + ALIGN - 1) / ALIGN * ALIGN);
    /* by way of a shuffle the compiler knows that all threads of a warp agree */
    int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / GROUP, 0);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            bar_init(&s.full[i], 1);
            bar_init(&s.empty[i], 2); /* the group that had it, of either block */
        }
        for (int i = 0; i < GROUPS; i++)
            bar_init(&s.turn[i], 1);
        for (int i = 0; i < GROUPS * COMING; i++)
            bar_init(&s.come[0][i], 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_arrive();
    cluster_wait();
    if (group == 0) {
        fewer_registers<24>();
        if (threadIdx.x < WARP) bring_operands<GRADIENT>(s, p, maps);
    } else {
        more_registers<240>();
        make_tiles<T, FN, GRADIENT>(s, p, maps, group - 1);
    }
    __syncwarp();
    cluster_arrive(); /* no block ends while the other may write into it */
    cluster_wait();
#endif
}

} // namespace wide

#endif
