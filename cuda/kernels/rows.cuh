/* Work on the last axis, one row at a time: a warp a row where rows are short, a block where they
 * are long. */
#ifndef DLT_ROWS_CUH
#define DLT_ROWS_CUH

#include "cuda/kernels/prim.cuh"
#include "cuda/kernels/shape.cuh"

/* Threads of a row: W is WARP or BLOCK. */
template <int W> struct Row {
    static __device__ __forceinline__ int64_t index()
    {
        return ((int64_t)blockIdx.x * BLOCK + threadIdx.x) / W;
    }
    static __device__ __forceinline__ int lane()
    {
        return threadIdx.x % W;
    }
    template <typename T> static __device__ __forceinline__ T sum(T v)
    {
        if constexpr (W == WARP)
            return warp_sum(v);
        else
            return block_sum(v);
    }
    template <typename T> static __device__ __forceinline__ T max(T v)
    {
        if constexpr (W == WARP)
            return warp_max(v);
        else
            return block_max(v);
    }
};
enum { SHORT_ROW = 1024 };
static inline unsigned row_blocks(int64_t rows, int width)
{
    return (unsigned)ceil_div(rows * width, BLOCK);
}

#endif
