/* Matrix products of small networks on the tensor cores, with the whole epilogue inside. A library's
 * kernels are made for large products: on a batch of 128 rows they start few blocks and leave bias,
 * activation and its gradient to further launches. Here a block makes a 32 x 32 tile with eight
 * warps: four places, and the chunks of K shared out between two groups, so that even a product of
 * 128 x 256 fills many multiprocessors. Operands stream through four stages of shared memory by
 * asynchronous copies. Products in bf16, f16 or tf32, sums in f32 in a fixed order. */
#include "cuda/kernels/act.cuh"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/shape.cuh"
#include <mma.h>

namespace
{

using namespace nvcuda;

enum { TILE = 32, THREADS = 256, GROUPS = 2, STAGES = 4, ROW_BYTES = 128 };

/* What differs between the element types: depth of one tensor core product, and its operand type. */
template <typename T> struct Unit {
    using Operand = T;
    static constexpr int depth = 16;
};
template <> struct Unit<float> {
    using Operand = wmma::precision::tf32;
    static constexpr int depth = 8;
};

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

/* Brings the window of R x C elements at (row, col) into shared memory, rows LD apart; what lies
 * outside becomes zero. */
template <typename T, int R, int C, int LD>
__device__ __forceinline__ void bring(T *tile, const Panel<T> &m, int64_t row, int64_t col)
{
    if (m.packed) {
        constexpr int N = Pack<T>::n, PER_ROW = C / N;
        for (int i = threadIdx.x; i < R * PER_ROW; i += THREADS) {
            int r = i / PER_ROW, c = i % PER_ROW * N;
            bool inside = row + r < m.rows && col + c < m.cols;
            copy16_async(tile + r * LD + c, inside ? m.p + (row + r) * m.cols + col + c : m.p,
                         inside);
        }
    } else {
        for (int i = threadIdx.x; i < R * C; i += THREADS) {
            int r = i / C, c = i % C;
            bool inside = row + r < m.rows && col + c < m.cols;
            tile[r * LD + c] = inside ? m.p[(row + r) * m.cols + col + c] : from_float<T>(0.0f);
        }
    }
}

struct Task {
    int64_t m, n, k;
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

/* c = epilogue(op(a) op(b)), one product.  a [M,K] (TA: [K,M]), b [K,N] (TB: [N,K]) T.  Grid: tiles
 * of N x tiles of M. */
template <typename T, bool TA, bool TB>
__global__ void __launch_bounds__(THREADS) small_k(Panel<T> a, Panel<T> b, Task t)
{
    begin();
    using SA = Shape<T, !TA>;
    using SB = Shape<T, TB>;
    using U = Unit<T>;
    using LayoutA = std::conditional_t<TA, wmma::col_major, wmma::row_major>;
    using LayoutB = std::conditional_t<TB, wmma::col_major, wmma::row_major>;
    constexpr int STAGE = SA::elements + SB::elements, SUM_LD = TILE + 4;
    constexpr int DEPTH = SA::depth, UNITS = DEPTH / U::depth;
    __shared__ __align__(128) T ring[STAGES * STAGE];
    static_assert(sizeof ring >= GROUPS * TILE * SUM_LD * sizeof(float), "sums fit in the ring");
    float *sums = reinterpret_cast<float *>(ring); /* once the ring is used up */
    int64_t m0 = (int64_t)blockIdx.y * TILE, n0 = (int64_t)blockIdx.x * TILE;
    int warp = threadIdx.x / WARP, place = warp % 4, group = warp / 4;
    int pm = place / 2 * 16, pn = place % 2 * 16;
    int chunks = (int)((t.k + DEPTH - 1) / DEPTH);
    auto fetch = [&](int chunk) {
        T *at = ring + chunk % STAGES * STAGE;
        int64_t k0 = (int64_t)chunk * DEPTH;
        if (chunk < chunks) {
            bring<T, SA::rows, SA::cols, SA::ld>(at, a, TA ? k0 : m0, TA ? m0 : k0);
            bring<T, SB::rows, SB::cols, SB::ld>(at + SA::elements, b, TB ? n0 : k0, TB ? k0 : n0);
        }
        async_commit();
    };
    wmma::fragment<wmma::accumulator, 16, 16, U::depth, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int i = 0; i < STAGES - 1; i++)
        fetch(i);
    for (int i = 0; i < chunks; i++) {
        async_wait<STAGES - 2>();
        __syncthreads(); /* chunk i is there, and the stage that fetch fills now is no longer read */
        fetch(i + STAGES - 1);
        const T *sa = ring + i % STAGES * STAGE, *sb = sa + SA::elements;
#pragma unroll
        for (int u = group; u < UNITS; u += GROUPS) {
            int k = u * U::depth;
            wmma::fragment<wmma::matrix_a, 16, 16, U::depth, typename U::Operand, LayoutA> fa;
            wmma::fragment<wmma::matrix_b, 16, 16, U::depth, typename U::Operand, LayoutB> fb;
            wmma::load_matrix_sync(fa, sa + (TA ? k * SA::ld + pm : pm * SA::ld + k), SA::ld);
            wmma::load_matrix_sync(fb, sb + (TB ? pn * SB::ld + k : k * SB::ld + pn), SB::ld);
            if constexpr (sizeof(T) == 4) {
                for (int e = 0; e < fa.num_elements; e++)
                    fa.x[e] = wmma::__float_to_tf32(fa.x[e]);
                for (int e = 0; e < fb.num_elements; e++)
                    fb.x[e] = wmma::__float_to_tf32(fb.x[e]);
            }
            wmma::mma_sync(sum, fa, fb, sum);
        }
    }
    async_wait<0>();
    __syncthreads();
    wmma::store_matrix_sync(sums + (group * TILE + pm) * SUM_LD + pn, sum, SUM_LD,
                            wmma::mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        int r = i / TILE, col = i % TILE;
        int64_t m = m0 + r, n = n0 + col, at = m * t.n + n;
        if (m >= t.m || n >= t.n) continue;
        float v = sums[r * SUM_LD + col] + sums[(TILE + r) * SUM_LD + col];
        if (t.bias.p) v += t.bias[n];
        if (t.pre.p) t.pre.set(at, v);
        v = act_any(t.ep.act, v);
        if (t.saved.p) v *= act_grad_any(t.ep.act_grad, t.saved[at]);
        t.c.set(at, v);
    }
}

template <typename T> static DltStatus launch_type(const DltCall *c, DltErr *err)
{
    const DltMatmul *attr = (const DltMatmul *)c->node->attr;
    DltGemm g = dlt_cuda_gemm(c->node);
    Task t = {g.m, g.n, g.k, input(c, 2), input(c, 3), output(c, 0), output(c, 1), attr->ep};
    Panel<T> a = {(const T *)c->in[0], attr->ta ? g.k : g.m, attr->ta ? g.m : g.k, false};
    Panel<T> b = {(const T *)c->in[1], attr->tb ? g.n : g.k, attr->tb ? g.k : g.n, false};
    a.packed = aligned16(a.p) && a.cols % Pack<T>::n == 0;
    b.packed = aligned16(b.p) && b.cols % Pack<T>::n == 0;
    dim3 grid((unsigned)ceil_div(g.n, TILE), (unsigned)ceil_div(g.m, TILE));
    auto kernel = attr->ta ? (attr->tb ? small_k<T, true, true> : small_k<T, true, false>)
                           : (attr->tb ? small_k<T, false, true> : small_k<T, false, false>);
    return enqueue(c, err, kernel, grid, THREADS, 0, a, b, t);
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
