/* Products of 16 x 8 x 16 by one warp with operands in registers (mma.sync, PTX ISA section
 * "mma.m16n8k16"), and loads of operands from shared memory (ldmatrix). What a lane holds, with g = lane
 * / 4 and c = 2 (lane % 4): of the sum, {(g, c), (g, c+1), (g+8, c), (g+8, c+1)}; of A, pairs at
 * {(g, c), (g+8, c), (g, c+8), (g+8, c+8)}; of B, pairs at rows {c, c+8} of column g. So two sums side by
 * side, packed, are an operand A. tests/emulate has the same by loops. */
#ifndef DLT_WARP_MMA_CUH
#define DLT_WARP_MMA_CUH

#include "cuda/kernels/prim.cuh"

/* sum += a b, a [16, 16], b [16, 8] of T. */
template <typename T>
__device__ __forceinline__ void warp_mma(float sum[4], const uint32_t a[4], const uint32_t b[2])
{
    if constexpr (std::is_same<T, bf16>::value)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                     "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                     "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* The bits of v rounded to tf32 (10 bits of mantissa, ties away from zero). */
__device__ __forceinline__ uint32_t to_tf32(float v)
{
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
    return bits;
}
/* sum += a b, a [16, 8], b [8, 8] of tf32 ("mma.m16n8k8"). With t = lane % 4 a lane holds of A {(g, t), (g+8, t),
 * (g, t+4), (g+8, t+4)} and of B rows {t, t+4} of column g. */
__device__ __forceinline__ void warp_mma_tf32(float sum[4], const uint32_t a[4],
                                              const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four 8 x 8 matrices: lane l names row l % 8 of matrix l / 8 (16 bytes, aligned; at: in shared memory). Each lane gets the
 * pair (g, c) of each, or with `turned` that of the transposed matrix. */
__device__ __forceinline__ void warp_load_at(uint32_t r[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
__device__ __forceinline__ void warp_load(uint32_t r[4], const void *row)
{
    warp_load_at(r, (unsigned)__cvta_generic_to_shared(row));
}
__device__ __forceinline__ void warp_load_turned(uint32_t r[4], const void *row)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

#endif
