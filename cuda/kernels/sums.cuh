/* Sums of a whole grid in doubles: losses, metrics, gradient norms. Each block leaves K partial
 * sums in scratch, the last block adds them in order. */
#ifndef DLT_SUMS_CUH
#define DLT_SUMS_CUH

#include "cuda/kernels/prim.cuh"

/* Blocks of such a kernel for n items, per_block of them at a time. */
static inline unsigned sum_blocks(int n_sm, int64_t n, int per_block)
{
    int64_t all = ceil_div(n, per_block), most = 2 * (int64_t)n_sm;
    return (unsigned)(all < 1 ? 1 : all < most ? all : most);
}
static inline size_t sum_bytes(int n_sm, int k)
{
    return 2 * (size_t)n_sm * (size_t)k * sizeof(double);
}

/* sum[K]: this thread's share. True in every thread of the last block, which then has the totals in
 * sum. blockDim is one-dimensional and a multiple of 32; ticket is one of the lane's. */
template <int K>
__device__ __forceinline__ bool grid_sum(double *sum, double *part, unsigned *ticket)
{
    for (int k = 0; k < K; k++)
        sum[k] = block_sum(sum[k]);
    if (gridDim.x == 1) return true;
    if (threadIdx.x == 0)
        for (int k = 0; k < K; k++)
            part[(int64_t)blockIdx.x * K + k] = sum[k];
    if (!last_block(ticket, gridDim.x)) return false;
    for (int k = 0; k < K; k++) {
        double s = 0;
        for (unsigned j = threadIdx.x; j < gridDim.x; j += blockDim.x)
            s += __ldcg(part + (int64_t)j * K + k);
        sum[k] = block_sum(s);
    }
    return true;
}

#endif
