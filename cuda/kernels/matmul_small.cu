/* Matrix products of small networks on the tensor cores, with the whole epilogue inside. A library's
 * kernels are made for large products: on a batch of 128 rows they start few blocks and leave bias,
 * activation and its gradient to further launches. Such a product lasts as long as its longest chain of
 * instructions, so the chain is kept short: a block makes a tile of 32 x 32, each of its warps the whole
 * tile from chunks of K of its own, which it brings and reads without waiting for others; the sums of
 * the warps meet once. Where multiprocessors are left over, a cluster of blocks shares out K and hands
 * its sums over through distributed shared memory. Products in bf16, f16 or tf32, sums in f32 in a fixed
 * order. */
#include "cuda/kernels/act.cuh"
#include "cuda/kernels/async.cuh"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/shape.cuh"
#include "cuda/kernels/warp_mma.cuh"

namespace
{

enum { TILE = 32, CHUNK_BYTES = 64, STAGES = 3, MAX_SLICES = 8, PASSES = 4 };

/* An operand in memory: rows x cols, row-major and dense. */
template <typename T> struct Panel {
    const T *p;
    int64_t rows, cols;
    bool packed; /* rows begin at multiples of 16 bytes */
};

struct Task {
    int64_t m, n, k;
    int slices, rounds; /* blocks of a cluster; chunks of K of each warp */
    int warp_bytes; /* of shared memory: stages for as many rounds as there are, three at most */
    bool quads;     /* c, pre, saved and bias allow accesses of four elements */
    In bias, saved;
    Out c, pre;
    DltEpilogue ep;
};

/* A chunk of an operand in shared memory, as it lies in memory: 64 bytes of K along the rows' direction, or
 * across. Rows are apart such that neither matrices nor single elements meet bank conflicts. */
template <typename T, bool K_ALONG> struct Chunk {
    static constexpr int depth = CHUNK_BYTES / (int)sizeof(T);
    static constexpr int rows = K_ALONG ? TILE : depth, cols = K_ALONG ? depth : TILE;
    static constexpr int ld = cols + (K_ALONG ? 16 / (int)sizeof(T) : 8);
    static constexpr int elements = rows * ld;
};

/* One of a warp's operands on its way into shared memory. A lane brings four packs of 16 bytes a chunk; its
 * addresses are worked out once and then only move on. */
template <typename T, bool K_ALONG> struct Bringer {
    using C = Chunk<T, K_ALONG>;
    static constexpr int N = Pack<T>::n, PER_ROW = C::cols / N, ROWS = WARP / PER_ROW;
    static_assert(ROWS * PASSES == C::rows, "four packs for every lane");
    const T *base, *from; /* the operand; this lane's first pack of the chunk at hand */
    int64_t step, pass;   /* elements to the next chunk's pack, and to the next of this chunk */
    int at;               /* place of the first pack in a stage */
    int k, k_step, k_end; /* K of the first pack */
    int fixed, end; /* row (column, unless K_ALONG) of the first pack, and how many there are */
    bool packed;

    __device__ __forceinline__ Bringer(const Panel<T> &m, int64_t tile, int chunk, int stride)
    {
        int lane = threadIdx.x % WARP, r = lane / PER_ROW, c = lane % PER_ROW * N;
        int k0 = chunk * C::depth;
        base = m.p;
        packed = m.packed;
        at = r * C::ld + c;
        k = k0 + (K_ALONG ? c : r);
        k_step = stride * C::depth;
        k_end = (int)(K_ALONG ? m.cols : m.rows);
        fixed = (int)tile + (K_ALONG ? r : c);
        end = (int)(K_ALONG ? m.rows : m.cols);
        from = m.p + (K_ALONG ? (int64_t)fixed * m.cols + k : (int64_t)k * m.cols + fixed);
        step = K_ALONG ? k_step : k_step * m.cols;
        pass = ROWS * m.cols;
    }
    __device__ __forceinline__ bool inside(int i, int e) const
    {
        return K_ALONG ? fixed + i * ROWS < end && k + e < k_end
                       : fixed + e < end && k + i * ROWS < k_end;
    }
    __device__ __forceinline__ void bring(T *stage)
    {
#pragma unroll
        for (int i = 0; i < PASSES; i++) {
            T *to = stage + at + i * ROWS * C::ld;
            bool there = inside(i, 0);
            if (packed)
                async_copy_or_zero(to, there ? from + i * pass : base, there);
            else
                for (int e = 0; e < N; e++)
                    to[e] = inside(i, e) ? from[i * pass + e] : from_float<T>(0.0f);
        }
        k += k_step;
        from += step;
    }
};

/* ---- 32 x 32 of a product by one warp ---- */

/* Operands of 16 x 16 bytes of T for two products of 16 x 8 (warp_mma.cuh): at rows of A [M, K] (TURNED:
 * [K, M]); of B [K, N] (TURNED: [N, K]) columns 0 to 7, then 8 to 15. */
template <bool TURNED, typename T>
__device__ __forceinline__ void load_a(uint32_t x[4], const T *a, int ld)
{
    int lane = threadIdx.x % WARP, low = lane % 8, odd = lane / 8 % 2, high = lane / 16;
    if constexpr (TURNED)
        warp_load_turned(x, a + (low + high * 8) * ld + odd * 8);
    else
        warp_load(x, a + (low + odd * 8) * ld + high * 8);
}
template <bool TURNED, typename T>
__device__ __forceinline__ void load_b(uint32_t y[4], const T *b, int ld)
{
    int lane = threadIdx.x % WARP, low = lane % 8, odd = lane / 8 % 2, high = lane / 16;
    if constexpr (TURNED)
        warp_load(y, b + (low + high * 8) * ld + odd * 8);
    else
        warp_load_turned(y, b + (low + odd * 8) * ld + high * 8);
}
/* f32: where pairs of 16 bits would be turned apart, element by element. */
template <bool TURNED> __device__ __forceinline__ void load_a(uint32_t x[4], const float *a, int ld)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    if constexpr (!TURNED) warp_load(x, a + lane % 16 * ld + lane / 16 * 4);
#pragma unroll
    for (int i = 0; i < 4; i++)
        x[i] = to_tf32(TURNED ? a[(t + i / 2 * 4) * ld + g + i % 2 * 8] : __uint_as_float(x[i]));
}
template <bool TURNED> __device__ __forceinline__ void load_b(uint32_t y[4], const float *b, int ld)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    if constexpr (TURNED) warp_load(y, b + (lane % 8 + lane / 16 * 8) * ld + lane / 8 % 2 * 4);
#pragma unroll
    for (int i = 0; i < 4; i++)
        y[i] = to_tf32(TURNED ? __uint_as_float(y[i]) : b[(t + i % 2 * 4) * ld + g + i / 2 * 8]);
}
template <typename T>
__device__ __forceinline__ void multiply(float sum[4], const uint32_t a[4], const uint32_t b[2])
{
    if constexpr (std::is_same<T, float>::value)
        warp_mma_tf32(sum, a, b);
    else
        warp_mma<T>(sum, a, b);
}

/* The sums of a lane: [16 rows][8 columns][place in the product]. */
struct Sums {
    float v[2][4][4];
};

/* sums += one chunk's product. */
template <bool TA, bool TB, typename T>
__device__ __forceinline__ void chunk_product(Sums &sums, const T *a, const T *b)
{
    constexpr int UNIT = 32 / (int)sizeof(T);
    constexpr int LDA = Chunk<T, !TA>::ld, LDB = Chunk<T, TB>::ld;
#pragma unroll
    for (int k = 0; k < Chunk<T, true>::depth; k += UNIT) {
        uint32_t x[2][4], y[2][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            load_a<TA>(x[i], a + (TA ? k * LDA + i * 16 : i * 16 * LDA + k), LDA);
            load_b<TB>(y[i], b + (TB ? i * 16 * LDB + k : k * LDB + i * 16), LDB);
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
            multiply<T>(sums.v[i / 4][i % 4], x[i / 4], y[i % 4 / 2] + i % 2 * 2);
    }
}

enum { SUM_LD = TILE + 4, QUADS = TILE * TILE / 4, QUADS_ROW = TILE / 4 };

__device__ __forceinline__ void store_sums(const Sums &sums, float *to)
{
    int lane = threadIdx.x % WARP;
    float *at = to + lane / 4 * SUM_LD + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 16; i++) { /* pairs */
        float *pair = at + (i / 8 * 16 + i % 2 * 8) * SUM_LD + i / 2 % 4 * 8;
        pair[0] = sums.v[i / 8][i / 2 % 4][i % 2 * 2];
        pair[1] = sums.v[i / 8][i / 2 % 4][i % 2 * 2 + 1];
    }
}

/* ---- epilogue ---- */

/* Elements (m, n) to (m, n + 3) of the product through the epilogue into memory. */
__device__ __forceinline__ void put(const Task &t, int64_t m, int64_t n, const float4 &sum)
{
    float v[4] = {sum.x, sum.y, sum.z, sum.w}, other[4];
    int64_t at = m * t.n + n;
    int width = t.quads ? 4 : (int)min((int64_t)4, t.n - n);
    auto read = [&](const In &x, int64_t from) {
        if (t.quads)
            x.quad(from, other);
        else
#pragma unroll
            for (int i = 0; i < 4; i++)
                other[i] = i < width ? x[from + i] : 0.0f;
    };
    auto write = [&](const Out &x) {
        if (t.quads)
            x.set_quad(at, v);
        else
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (i < width) x.set(at + i, v[i]);
    };
    if (t.bias.p) {
        read(t.bias, n);
        for (int i = 0; i < 4; i++)
            v[i] += other[i];
    }
    if (t.pre.p) write(t.pre);
    if (t.ep.act.fn != DLT_FN_NONE)
        for (int i = 0; i < 4; i++)
            v[i] = act_any(t.ep.act, v[i]);
    if (t.saved.p) {
        read(t.saved, at);
        for (int i = 0; i < 4; i++)
            v[i] *= act_grad_any(t.ep.act_grad, other[i]);
    }
    write(t.c);
}

__device__ __forceinline__ void add(float4 &a, const float4 &b)
{
    a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w;
}

/* The sums of the block's warps, and those of the cluster's blocks, added in order; each block of a
 * cluster gets the others' sums for a part of the rows. */
template <int WARPS>
__device__ __forceinline__ void finish(const Task &t, const unsigned char *sums, float4 *handed,
                                       int64_t m0, int64_t n0)
{
    int part = QUADS / t.slices, slice = (int)blockIdx.z;
#pragma unroll
    for (int q = threadIdx.x; q < QUADS; q += WARPS * WARP) {
        int r = q / QUADS_ROW, c = q % QUADS_ROW * 4;
        const unsigned char *own = sums + (r * SUM_LD + c) * sizeof(float);
        float4 v = *(const float4 *)own;
#pragma unroll
        for (int w = 1; w < WARPS; w++)
            add(v, *(const float4 *)(own + w * t.warp_bytes));
        if (t.slices > 1)
            cluster_write(handed + slice * part + q % part, q / part, v);
        else if (m0 + r < t.m && n0 + c < t.n)
            put(t, m0 + r, n0 + c, v);
    }
    if (t.slices == 1) return;
    cluster_arrive();
    cluster_wait();
    for (int i = threadIdx.x; i < part; i += WARPS * WARP) {
        int q = slice * part + i, r = q / QUADS_ROW, c = q % QUADS_ROW * 4;
        float4 v = handed[i];
        for (int other = 1; other < t.slices; other++)
            add(v, handed[other * part + i]);
        if (m0 + r < t.m && n0 + c < t.n) put(t, m0 + r, n0 + c, v);
    }
}

/* A stage of a warp's shared memory, in elements; the first is used for its sums in the end. */
template <typename T, bool TA, bool TB> struct Ring {
    static constexpr int a = Chunk<T, !TA>::elements, stage = a + Chunk<T, TB>::elements;
    static constexpr int bytes = stage * (int)sizeof(T);
    static_assert(bytes >= TILE * SUM_LD * (int)sizeof(float) && bytes % 16 == 0, "sums fit");
};

/* c = epilogue(op(a) op(b)), one product.  a [M,K] (TA: [K,M]), b [K,N] (TB: [N,K]) T.  Grid: tiles
 * of N x tiles of M x slices of K, the slices of a tile in one cluster. */
template <typename T, bool TA, bool TB, int WARPS>
__global__ void __launch_bounds__(WARPS *WARP) small_k(Panel<T> a, Panel<T> b, Task t)
{
    begin();
    using R = Ring<T, TA, TB>;
    DLT_DYNAMIC_SHARED(unsigned char, bytes);
    int64_t m0 = (int64_t)blockIdx.y * TILE, n0 = (int64_t)blockIdx.x * TILE;
    int warp = threadIdx.x / WARP, stride = WARPS * t.slices;
    int first = (int)blockIdx.z * WARPS + warp;
    T *ring = (T *)(bytes + warp * t.warp_bytes);
    if (t.slices > 1) cluster_arrive(); /* a block's shared memory may be written once it runs */
    Bringer<T, !TA> of_a(a, m0, first, stride);
    Bringer<T, TB> of_b(b, n0, first, stride);
    auto fetch = [&](int round) {
        T *to = ring + round % STAGES * R::stage;
        if (round < t.rounds) {
            of_a.bring(to);
            of_b.bring(to + R::a);
        }
        async_commit();
    };
    Sums sums = {};
#pragma unroll 1
    for (int i = 0; i < STAGES; i++)
        fetch(i);
#pragma unroll 1
    for (int i = 0; i < t.rounds; i++) {
        const T *at = ring + i % STAGES * R::stage;
        async_wait<STAGES - 1>();
        __syncwarp(); /* every lane's packs of this round are there */
        chunk_product<TA, TB>(sums, at, at + R::a);
        if (i + STAGES < t.rounds) __syncwarp(); /* and read: the stage is free */
        fetch(i + STAGES);
    }
    __syncwarp();
    store_sums(sums, (float *)ring); /* the ring is used up */
    __syncthreads();
    if (t.slices > 1) cluster_wait();
    finish<WARPS>(t, bytes, (float4 *)(bytes + WARPS * t.warp_bytes), m0, n0);
}

/* Blocks of a cluster: a warp shall have two rounds, while every block has a multiprocessor. */
static int slices_for(const DltCall *c, int64_t tiles, int64_t chunks, int warps)
{
    int slices = 1;
    while (has_clusters(c) && slices < MAX_SLICES && chunks > 2 * warps * slices &&
           tiles * slices * 2 <= c->stream->dev->n_sm)
        slices *= 2;
    return slices;
}

static bool quads(const In &x)
{
    return (uintptr_t)x.p % (4 * dlt_dtype_bytes((DltDtype)x.dtype)) == 0;
}

template <typename T, int WARPS>
static DltStatus launch_warps(const DltCall *c, DltErr *err, const Panel<T> &a, const Panel<T> &b,
                              Task t)
{
    const DltMatmul *attr = (const DltMatmul *)c->node->attr;
    int64_t chunks = ceil_div(t.k, Chunk<T, true>::depth);
    dim3 grid((unsigned)ceil_div(t.n, TILE), (unsigned)ceil_div(t.m, TILE));
    t.slices = slices_for(c, (int64_t)grid.x * grid.y, chunks, WARPS);
    t.rounds = (int)ceil_div(chunks, (int64_t)WARPS * t.slices);
    grid.z = (unsigned)t.slices;
    struct {
        void (*kernel)(Panel<T>, Panel<T>, Task);
        int stage_bytes;
    } choice[2][2] = {{{small_k<T, false, false, WARPS>, Ring<T, false, false>::bytes},
                       {small_k<T, false, true, WARPS>, Ring<T, false, true>::bytes}},
                      {{small_k<T, true, false, WARPS>, Ring<T, true, false>::bytes},
                       {small_k<T, true, true, WARPS>, Ring<T, true, true>::bytes}}};
    auto best = choice[attr->ta ? 1 : 0][attr->tb ? 1 : 0];
    t.warp_bytes = best.stage_bytes * (t.rounds < STAGES ? t.rounds : (int)STAGES);
    size_t shared = (size_t)WARPS * t.warp_bytes + (t.slices > 1 ? QUADS * sizeof(float4) : 0);
    return enqueue_clusters(c, err, best.kernel, grid, WARPS * WARP, shared, grid.z, a, b, t);
}

template <typename T> static DltStatus launch_type(const DltCall *c, DltErr *err)
{
    const DltMatmul *attr = (const DltMatmul *)c->node->attr;
    DltGemm g = dlt_cuda_gemm(c->node);
    In bias = input(c, 2), saved = input(c, 3);
    Out to = output(c, 0), pre = output(c, 1);
    bool by_four = g.n % 4 == 0 && quads(bias) && quads(saved) && quads(In{to.p, to.dtype}) &&
                   quads(In{pre.p, pre.dtype});
    Task t = {g.m, g.n, g.k, 1, 1, 0, by_four, bias, saved, to, pre, attr->ep};
    Panel<T> a = {(const T *)c->in[0], attr->ta ? g.k : g.m, attr->ta ? g.m : g.k, false};
    Panel<T> b = {(const T *)c->in[1], attr->tb ? g.n : g.k, attr->tb ? g.k : g.n, false};
    a.packed = aligned16(a.p) && a.cols % Pack<T>::n == 0;
    b.packed = aligned16(b.p) && b.cols % Pack<T>::n == 0;
    /* Many tiles fill the device by themselves: fewer warps then, which have less to add up. */
    bool many = ceil_div(g.m, TILE) * ceil_div(g.n, TILE) > 2 * (int64_t)c->stream->dev->n_sm;
    bool shallow = g.k <= 4 * Chunk<T, true>::depth;
    return many || shallow ? launch_warps<T, 4>(c, err, a, b, t)
                           : launch_warps<T, 8>(c, err, a, b, t);
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (n->in[0]->dtype != n->in[1]->dtype)
        return dlt_cuda_refuse(why_not, "%s and %s differ in type", n->in[0]->name, n->in[1]->name);
    if (n->in[0]->dtype == DLT_F32 && !dev->option.tf32)
        return dlt_cuda_refuse(why_not, "tf32 is switched off");
    DltGemm g = dlt_cuda_gemm(n);
    if (g.batch != 1) return dlt_cuda_refuse(why_not, "a batch of products");
    const int64_t most = INT32_MAX - TILE;
    if (ceil_div(g.m, TILE) > 65535 || g.m > most || g.n > most || g.k > most)
        return dlt_cuda_refuse(why_not, "too large a product");
    return true;
}

} // namespace

extern "C" {
DltStatus dlt_cuda_matmul_small_launch(const DltCall *c, DltErr *err)
{
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T, s = launch_type<T>(c, err));
    return s;
}
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_matmul_small, "matmul.cuda.small", accepts, nullptr,
                         dlt_cuda_matmul_small_launch);
}
