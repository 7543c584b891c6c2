/* Small device functions that every kernel family uses: 16-byte packs, reductions over a warp and a
 * block, and the hand-over to the last block of a grid. All sums have a fixed order: the same input
 * gives the same bits. */
#ifndef DLT_PRIM_CUH
#define DLT_PRIM_CUH

#include "cuda/kernels/dispatch.cuh"

enum { WARP = 32, BLOCK = 256 };

/* 16 bytes of T, loaded and stored at once. */
template <typename T> struct alignas(16) Pack {
    static constexpr int n = 16 / (int)sizeof(T);
    T v[n];
};
template <typename T> __device__ __forceinline__ Pack<T> load_pack(const T *p)
{
    Pack<T> v;
    uint4 raw = *reinterpret_cast<const uint4 *>(p);
    memcpy(&v, &raw, sizeof raw);
    return v;
}
template <typename T> __device__ __forceinline__ void store_pack(T *p, const Pack<T> &v)
{
    uint4 raw;
    memcpy(&raw, &v, sizeof raw);
    *reinterpret_cast<uint4 *>(p) = raw;
}
/* V neighbours as floats: one element, or packs. */
template <typename T, int V> __device__ __forceinline__ void load_v(const T *p, float v[V])
{
    if constexpr (V == 1) {
        v[0] = to_float(*p);
    } else {
#pragma unroll
        for (int j = 0; j < V; j += Pack<T>::n) {
            Pack<T> a = load_pack(p + j);
#pragma unroll
            for (int k = 0; k < Pack<T>::n; k++)
                v[j + k] = to_float(a.v[k]);
        }
    }
}
template <typename T, int V> __device__ __forceinline__ void store_v(T *p, const float v[V])
{
    if constexpr (V == 1) {
        *p = from_float<T>(v[0]);
    } else {
#pragma unroll
        for (int j = 0; j < V; j += Pack<T>::n) {
            Pack<T> a;
#pragma unroll
            for (int k = 0; k < Pack<T>::n; k++)
                a.v[k] = from_float<T>(v[j + k]);
            store_pack(p + j, a);
        }
    }
}
/* True when 16-byte accesses work for all the pointers (NULL counts as aligned). */
template <typename... P> static bool aligned16(P... p)
{
    uintptr_t all = 0;
    ((all |= (uintptr_t)p), ...);
    return all % 16 == 0;
}

struct Add {
    template <typename T> __device__ __forceinline__ T operator()(T a, T b) const
    {
        return a + b;
    }
};
struct Max {
    template <typename T> __device__ __forceinline__ T operator()(T a, T b) const
    {
        return a > b ? a : b; /* b when a is NaN; the callers' sums still carry the NaN */
    }
};

/* Result in all 32 lanes. */
template <typename T, typename F> __device__ __forceinline__ T warp_reduce(T v, F f)
{
#pragma unroll
    for (int o = WARP / 2; o > 0; o >>= 1)
        v = f(v, __shfl_xor_sync(0xffffffffu, v, o));
    return v;
}
template <typename T> __device__ __forceinline__ T warp_sum(T v)
{
    return warp_reduce(v, Add());
}
template <typename T> __device__ __forceinline__ T warp_max(T v)
{
    return warp_reduce(v, Max());
}

/* Result in all threads. The block has a multiple of 32 threads, at most 1024, in one dimension.
 * `identity` is what missing warps count as. */
template <typename T, typename F> __device__ __forceinline__ T block_reduce(T v, F f, T identity)
{
    __shared__ T part[WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, n_warp = blockDim.x / WARP;
    v = warp_reduce(v, f);
    __syncthreads(); /* the last use of part is over */
    if (lane == 0) part[warp] = v;
    __syncthreads();
    v = lane < n_warp ? part[lane] : identity;
    return warp_reduce(v, f);
}
template <typename T> __device__ __forceinline__ T block_sum(T v)
{
    return block_reduce(v, Add(), (T)0);
}
template <typename T> __device__ __forceinline__ T block_max(T v)
{
    return block_reduce(v, Max(), (T)-INFINITY);
}

/* Call by all threads after a block has written its partial results. True in the block of the group
 * that arrives last; it then sees the partials of all `n` blocks (read them with __ldcg) and may
 * sum them in block order. The ticket is back at zero when the kernel ends. */
__device__ __forceinline__ bool last_block(unsigned *ticket, unsigned n)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        last = atomicAdd(ticket, 1u) == n - 1;
        if (last) *ticket = 0;
    }
    __syncthreads();
    if (last) __threadfence();
    return last;
}

#endif
