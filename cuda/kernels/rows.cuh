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
/* Plain tensors whose in[1] are labels in i32. */
static inline bool accepts_labels(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (n->in[1]->dtype == DLT_I32) return true;
    return dlt_cuda_refuse(why_not, "labels are %s, not i32", dlt_dtype_name(n->in[1]->dtype));
}
enum { SHORT_ROW = 1024 };
static inline unsigned row_blocks(int64_t rows, int width)
{
    return (unsigned)ceil_div(rows * width, BLOCK);
}

#endif
