/* Products of 16 x 16 on the tensor cores for each element type, sums in f32. */
#ifndef DLT_TENSOR_CORE_CUH
#define DLT_TENSOR_CORE_CUH

#include "cuda/kernels/prim.cuh"
#include <mma.h>

using namespace nvcuda;

/* What differs between the element types: depth of one product, and its operand type (f32 is rounded
 * to tf32). */
template <typename T> struct Unit {
    using Operand = T;
    static constexpr int depth = 16;
    using Sum = wmma::fragment<wmma::accumulator, 16, 16, depth, float>;
    template <typename L> using A = wmma::fragment<wmma::matrix_a, 16, 16, depth, Operand, L>;
    template <typename L> using B = wmma::fragment<wmma::matrix_b, 16, 16, depth, Operand, L>;
};
template <> struct Unit<float> {
    using Operand = wmma::precision::tf32;
    static constexpr int depth = 8;
    using Sum = wmma::fragment<wmma::accumulator, 16, 16, depth, float>;
    template <typename L> using A = wmma::fragment<wmma::matrix_a, 16, 16, depth, Operand, L>;
    template <typename L> using B = wmma::fragment<wmma::matrix_b, 16, 16, depth, Operand, L>;
};

/* An operand from memory whose rows (columns, when column-major) are ld elements apart. */
template <typename T, typename F>
__device__ __forceinline__ void load_operand(F &f, const T *p, int ld)
{
    wmma::load_matrix_sync(f, p, (unsigned)ld);
    if constexpr (sizeof(T) == 4)
        for (int e = 0; e < f.num_elements; e++)
            f.x[e] = wmma::__float_to_tf32(f.x[e]);
}

#endif
