/* Matrix products of small networks on the tensor cores, with the whole epilogue inside. A library's
 * kernels are made for large products: on a batch of 128 rows they start few blocks and leave bias,
 * activation and its gradient to further launches. Such products last as long as one block needs for
 * its share of K, so K is shared out three times: a block makes a 32 x 32 tile with 16 warps, four
 * places with the chunks of K dealt to four groups; and where multiprocessors are left over, a
 * cluster of up to eight blocks makes the tile and adds its sums through distributed shared memory.
 * Operands stream through four stages of shared memory by asynchronous copies. Products in bf16, f16
 * or tf32, sums in f32 in a fixed order. */
#include "cuda/kernels/act.cuh"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/shape.cuh"
#include "cuda/kernels/tensor_core.cuh"

namespace
{

enum { TILE = 32, PLACES = 4, GROUPS = 4, THREADS = PLACES * GROUPS * WARP };
enum { STAGES = 4, ROW_BYTES = 256, SUM_LD = TILE + 4, MAX_SLICES = 8 };

/* Copies 16 bytes to shared memory without waiting; zeros when `inside` is false. */
__device__ __forceinline__ void copy16_async(void *dst, const void *src, bool inside)
{
#ifdef __CUDA_ARCH__
    unsigned to = (unsigned)__cvta_generic_to_shared(dst);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(src),
                 "r"(inside ? 16 : 0)
                 : "memory");
#else
    if (inside)
        memcpy(dst, src, 16);
    else
        memset(dst, 0, 16);
#endif
}
__device__ __forceinline__ void async_commit()
{
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* Waits until at most n of the newest groups are still under way. */
template <int n> __device__ __forceinline__ void async_wait()
{
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}

/* An operand in memory: rows x cols, row-major and dense. */
template <typename T> struct Panel {
    const T *p;
    int64_t rows, cols;
    bool packed; /* rows begin at multiples of 16 bytes */
};

/* One of a block's operands on its way into shared memory: R x C elements a chunk, rows LD apart, what
 * lies outside zero. Every thread brings one pack of 16 bytes a chunk, so its addresses are worked
 * out once and then only move on: along the rows (K_ALONG) or down by the chunk's depth. */
template <typename T, bool K_ALONG, int R, int C, int LD> struct Bringer {
    static constexpr int N = Pack<T>::n, PER_ROW = C / N, DEPTH = K_ALONG ? C : R;
    static_assert(R * PER_ROW == THREADS, "a pack for every thread");
    Panel<T> m;
    const T *from;  /* this thread's pack of the chunk at hand */
    int64_t step;   /* to the next chunk's */
    int at, depth;  /* place in the stage; K of the pack's first element */
    int64_t fixed0; /* first row (column, unless K_ALONG) of the block's tile */
    bool inside;    /* in the direction that is not K */

    __device__ __forceinline__ Bringer(const Panel<T> &panel, int64_t tile, int chunk) : m(panel)
    {
        int r = threadIdx.x / PER_ROW, c = threadIdx.x % PER_ROW * N;
        int64_t k0 = (int64_t)chunk * DEPTH, row = K_ALONG ? tile + r : k0 + r;
        int64_t col = K_ALONG ? k0 + c : tile + c;
        at = r * LD + c;
        depth = (int)(K_ALONG ? col : row);
        inside = K_ALONG ? row < m.rows : col < m.cols;
        from = inside ? m.p + row * m.cols + col : m.p;
        step = K_ALONG ? DEPTH : DEPTH * m.cols;
        fixed0 = tile;
    }
    __device__ __forceinline__ void bring(T *tile)
    {
        int end = (int)(K_ALONG ? m.cols : m.rows);
        if (m.packed) {
            bool there = inside && depth < end;
            copy16_async(tile + at, there ? from : m.p, there);
        } else {
            bring_single(tile);
        }
        depth += DEPTH;
        from += step;
    }
    /* Rows that do not begin at multiples of 16 bytes: element by element. */
    __device__ __forceinline__ void bring_single(T *tile)
    {
        int k0 = depth - (K_ALONG ? (int)threadIdx.x % PER_ROW * N : (int)threadIdx.x / PER_ROW);
        for (int i = threadIdx.x; i < R * C; i += THREADS) {
            int r = i / C, c = i % C;
            int64_t row = K_ALONG ? fixed0 + r : k0 + r, col = K_ALONG ? k0 + c : fixed0 + c;
            bool there = row < m.rows && col < m.cols;
            tile[r * LD + c] = there ? m.p[row * m.cols + col] : from_float<T>(0.0f);
        }
    }
};

struct Task {
    int64_t m, n, k;
    int slices; /* blocks of a cluster, each with its part of K */
    In bias, saved;
    Out c, pre;
    DltEpilogue ep;
};

/* The tile of op(a) [M, K] or op(b) [K, N] for one chunk of K as it lies in memory: with K along the
 * rows' direction or across. */
template <typename T, bool K_ALONG> struct Shape {
    static constexpr int depth = ROW_BYTES / (int)sizeof(T);
    static constexpr int rows = K_ALONG ? TILE : depth, cols = K_ALONG ? depth : TILE;
    static constexpr int ld = cols + 16 / (int)sizeof(T); /* 16 bytes more: no bank conflicts */
    static constexpr int elements = rows * ld;
};

/* The stages of a block, and later its sums. */
template <typename T, bool TA, bool TB> struct Ring {
    using SA = Shape<T, !TA>;
    using SB = Shape<T, TB>;
    static constexpr int stage = SA::elements + SB::elements;
    static constexpr size_t bytes = (size_t)STAGES * stage * sizeof(T);
    static_assert(bytes >= (size_t)GROUPS * TILE * SUM_LD * sizeof(float), "sums fit in the ring");
};

/* Element (m, n) of the tile's product through the epilogue into memory. */
__device__ __forceinline__ void put(const Task &t, int64_t m, int64_t n, float v)
{
    int64_t at = m * t.n + n;
    if (t.bias.p) v += t.bias[n];
    if (t.pre.p) t.pre.set(at, v);
    v = act_any(t.ep.act, v);
    if (t.saved.p) v *= act_grad_any(t.ep.act_grad, t.saved[at]);
    t.c.set(at, v);
}

__device__ __forceinline__ float sum_groups(const float *sums, int at)
{
    float v = sums[at];
#pragma unroll
    for (int g = 1; g < GROUPS; g++)
        v += sums[g * TILE * SUM_LD + at];
    return v;
}

/* The groups' sums, and those of the cluster's blocks, added in order; rows are shared out between
 * the blocks. */
__device__ __forceinline__ void finish(const Task &t, float *sums, int64_t m0, int64_t n0)
{
    int rows = TILE / t.slices, first = (int)blockIdx.z * rows;
    if (t.slices > 1) {
        for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
            int at = i / TILE * SUM_LD + i % TILE;
            sums[at] = sum_groups(sums, at); /* this thread alone reads and writes the element */
        }
        cluster_sync();
    }
    for (int i = threadIdx.x; i < rows * TILE; i += THREADS) {
        int r = first + i / TILE, c = i % TILE, at = r * SUM_LD + c;
        float v = t.slices > 1 ? cluster_read(sums + at, 0) : sum_groups(sums, at);
        for (int other = 1; other < t.slices; other++)
            v += cluster_read(sums + at, other);
        if (m0 + r < t.m && n0 + c < t.n) put(t, m0 + r, n0 + c, v);
    }
    if (t.slices > 1) cluster_sync(); /* the others have read this block's sums */
}

/* c = epilogue(op(a) op(b)), one product.  a [M,K] (TA: [K,M]), b [K,N] (TB: [N,K]) T.  Grid: tiles
 * of N x tiles of M x slices of K, the slices of a tile in one cluster. */
template <typename T, bool TA, bool TB>
__global__ void __launch_bounds__(THREADS) small_k(Panel<T> a, Panel<T> b, Task t)
{
    begin();
    using SA = Shape<T, !TA>;
    using SB = Shape<T, TB>;
    using U = Unit<T>;
    using LayoutA = std::conditional_t<TA, wmma::col_major, wmma::row_major>;
    using LayoutB = std::conditional_t<TB, wmma::col_major, wmma::row_major>;
    constexpr int STAGE = Ring<T, TA, TB>::stage, DEPTH = SA::depth, UNITS = DEPTH / U::depth;
    DLT_DYNAMIC_SHARED(unsigned char, bytes);
    T *ring = reinterpret_cast<T *>(bytes);
    int64_t m0 = (int64_t)blockIdx.y * TILE, n0 = (int64_t)blockIdx.x * TILE;
    int warp = threadIdx.x / WARP, place = warp % PLACES, group = warp / PLACES;
    int pm = place / 2 * 16, pn = place % 2 * 16;
    int chunks = (int)((t.k + DEPTH - 1) / DEPTH), slice = blockIdx.z;
    int first = (int)((int64_t)chunks * slice / t.slices);
    int end = (int)((int64_t)chunks * (slice + 1) / t.slices);
    Bringer<T, !TA, SA::rows, SA::cols, SA::ld> of_a(a, m0, first);
    Bringer<T, TB, SB::rows, SB::cols, SB::ld> of_b(b, n0, first);
    auto fetch = [&](int chunk) {
        T *at = ring + chunk % STAGES * STAGE;
        if (chunk < end) {
            of_a.bring(at);
            of_b.bring(at + SA::elements);
        }
        async_commit();
    };
    typename U::Sum sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int i = 0; i < STAGES - 1; i++)
        fetch(first + i);
    for (int i = first; i < end; i++) {
        async_wait<STAGES - 2>();
        __syncthreads(); /* chunk i is there, and the stage that fetch fills now is no longer read */
        fetch(i + STAGES - 1);
        const T *sa = ring + i % STAGES * STAGE, *sb = sa + SA::elements;
#pragma unroll
        for (int u = group; u < UNITS; u += GROUPS) {
            int k = u * U::depth;
            typename U::template A<LayoutA> fa;
            typename U::template B<LayoutB> fb;
            load_operand<T>(fa, sa + (TA ? k * SA::ld + pm : pm * SA::ld + k), SA::ld);
            load_operand<T>(fb, sb + (TB ? pn * SB::ld + k : k * SB::ld + pn), SB::ld);
            wmma::mma_sync(sum, fa, fb, sum);
        }
    }
    async_wait<0>();
    __syncthreads();
    float *sums = reinterpret_cast<float *>(bytes); /* the ring is used up */
    wmma::store_matrix_sync(sums + (group * TILE + pm) * SUM_LD + pn, sum, SUM_LD,
                            wmma::mem_row_major);
    __syncthreads();
    finish(t, sums, m0, n0);
}

/* Blocks of a cluster: as many as multiprocessors have room for (two blocks each) while every block
 * keeps two chunks of K. */
static int slices_for(const DltCall *c, int64_t tiles, int64_t chunks)
{
    int slices = 1;
    while (has_clusters(c) && slices < MAX_SLICES && chunks >= 4 * slices &&
           tiles * slices <= c->stream->dev->n_sm)
        slices *= 2;
    return slices;
}

template <typename T> static DltStatus launch_type(const DltCall *c, DltErr *err)
{
    const DltMatmul *attr = (const DltMatmul *)c->node->attr;
    DltGemm g = dlt_cuda_gemm(c->node);
    Task t = {g.m, g.n, g.k, 1, input(c, 2), input(c, 3), output(c, 0), output(c, 1), attr->ep};
    Panel<T> a = {(const T *)c->in[0], attr->ta ? g.k : g.m, attr->ta ? g.m : g.k, false};
    Panel<T> b = {(const T *)c->in[1], attr->tb ? g.n : g.k, attr->tb ? g.k : g.n, false};
    a.packed = aligned16(a.p) && a.cols % Pack<T>::n == 0;
    b.packed = aligned16(b.p) && b.cols % Pack<T>::n == 0;
    dim3 grid((unsigned)ceil_div(g.n, TILE), (unsigned)ceil_div(g.m, TILE));
    t.slices = slices_for(c, (int64_t)grid.x * grid.y, ceil_div(g.k, Shape<T, true>::depth));
    grid.z = (unsigned)t.slices;
    struct {
        void (*kernel)(Panel<T>, Panel<T>, Task);
        size_t shared;
    } choice[2][2] = {{{small_k<T, false, false>, Ring<T, false, false>::bytes},
                       {small_k<T, false, true>, Ring<T, false, true>::bytes}},
                      {{small_k<T, true, false>, Ring<T, true, false>::bytes},
                       {small_k<T, true, true>, Ring<T, true, true>::bytes}}};
    auto best = choice[attr->ta ? 1 : 0][attr->tb ? 1 : 0];
    return enqueue_clusters(c, err, best.kernel, grid, THREADS, best.shared, grid.z, a, b, t);
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
    if (ceil_div(g.m, TILE) > 65535 || g.k > INT32_MAX)
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
