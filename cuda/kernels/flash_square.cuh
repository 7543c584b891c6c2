/* Squares of 64 x 64 of a warpgroup on Hopper, for attention: operands and products, and what becomes of sums: rows in
 * memory or boxes for the copy engine, column sums. Tiles in shared memory are rows of 64 elements (128 bytes),
 * swizzled. */
#ifndef DLT_FLASH_SQUARE_CUH
#define DLT_FLASH_SQUARE_CUH

#include "cuda/kernels/hopper.cuh"

namespace flash_hopper
{
using namespace hopper;

enum {
    D = 64,
    KEYS = 128,
    QUERIES = 64,
    TILE_BYTES = KEYS * D * 2,
    STEP_BYTES = QUERIES * D * 2,
    SUMS = 32,    /* of a thread, of 64 x 64 */
    OPERAND = 16, /* the same in pairs of 16 bits */
    WARP_ROWS = 16
};

constexpr float LOG2E = 1.4426950408889634f;

/* The 16 bytes of depth k that a lane names in its group's tile [64][64], rows of 128 bytes, swizzled. */
__device__ __forceinline__ unsigned place(const unsigned char *tile, int k)
{
    int lane = (int)threadIdx.x % WARP, row = (int)threadIdx.x % GROUP / WARP * 16 + lane % 16;
    return at(tile) + (unsigned)row * 128 + (unsigned)((2 * k + lane / 16) ^ row % 8) * 16;
}
/* A group's 64 rows of keys or values as operand a: 4 depths of 16. */
__device__ __forceinline__ void load_operand_a(const unsigned char *tile, unsigned (&a)[OPERAND])
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        warp_load_at(a + 4 * k, place(tile, k));
}
/* d = a b^T: rows of b are rows of the step. */
template <typename T>
__device__ __forceinline__ void product_straight(float (&d)[SUMS], const unsigned (&a)[16],
                                                 const unsigned char *b)
{
    unsigned long long o = operand(at(b));
    multiply<T, 0, 0>(d, a, o);
#pragma unroll
    for (int k = 1; k < 4; k++)
        multiply<T, 0, 1>(d, a + 4 * k, o + (unsigned)(k * STRAIGHT_STEP >> 4));
}
/* d += a b. */
template <typename T>
__device__ __forceinline__ void product_turned(float (&d)[SUMS], const unsigned (&a)[16],
                                               const unsigned char *b)
{
    unsigned long long o = operand(at(b));
#pragma unroll
    for (int k = 0; k < 4; k++)
        multiply<T, 1, 1>(d, a + 4 * k, o + (unsigned)(k * TURNED_STEP >> 4));
}

/* 64 x 64 values of a group, a warp 16 rows, as rows of 128 bytes. */
__device__ __forceinline__ void put_square(unsigned char *tile, const unsigned (&r)[OPERAND])
{
#pragma unroll
    for (int k = 0; k < 4; k++)
        store_matrices(place(tile, k), r + 4 * k);
}
/* 64 x 64 sums times scale to rows of `width` elements. */
template <typename T>
__device__ __forceinline__ void store_sums(T *to, int64_t width, const float (&d)[SUMS],
                                           float scale)
{
    int lane = (int)threadIdx.x % WARP, row = (int)threadIdx.x % GROUP / WARP * 16 + lane / 4;
    to += row * width + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        *(unsigned *)(to + 8 * j) = pair<T>(d[4 * j] * scale, d[4 * j + 1] * scale);
        *(unsigned *)(to + 8 * width + 8 * j) = pair<T>(d[4 * j + 2] * scale, d[4 * j + 3] * scale);
    }
}

/* The same by way of shared memory: `tile` of the group goes to the boxes at that column and row of the result. */
template <typename T>
__device__ __forceinline__ void send_sums(unsigned char *tile, const CUtensorMap *to, int col,
                                          int row, const float (&d)[SUMS], float scale)
{
    int warp = (int)threadIdx.x % GROUP / WARP;
    unsigned r[OPERAND];
#pragma unroll
    for (int i = 0; i < OPERAND; i++)
        r[i] = pair<T>(d[2 * i] * scale, d[2 * i + 1] * scale);
    put_square(tile, r);
    publish();
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        take<true>(to, tile + warp * WARP_ROWS * 128, col, row + warp * WARP_ROWS);
}
/* What was sent before has left shared memory. */
__device__ __forceinline__ void wait_sent()
{
    if (threadIdx.x % WARP == 0) taken();
    __syncwarp();
}

/* Lanes that lie 4 HALF apart have sums of the same columns: the upper one takes the upper HALF of both, the
 * other the rest. */
template <int HALF> __device__ __forceinline__ void halve_columns(float (&s)[8])
{
    bool upper = threadIdx.x & 4 * HALF;
#pragma unroll
    for (int j = 0; j < HALF; j++) {
        float kept = upper ? s[j + HALF] : s[j], given = upper ? s[j] : s[j + HALF];
        s[j] = kept + __shfl_xor_sync(0xffffffffu, given, 4 * HALF);
    }
}
/* Column 2 lane + NEXT of 64: its sum over the 16 rows of a warp. */
template <int NEXT> __device__ __forceinline__ float sum_column(const float (&d)[SUMS])
{
    float s[8];
#pragma unroll
    for (int j = 0; j < 8; j++)
        s[j] = d[4 * j + NEXT] + d[4 * j + NEXT + 2];
    halve_columns<4>(s);
    halve_columns<2>(s);
    halve_columns<1>(s);
    return s[0];
}
/* The column sums of a warp's 16 rows, times scale, become (first) or are added to the 64 at `to`. Exact in order:
 * nobody else adds there. */
__device__ __forceinline__ void add_columns(float *to, const float (&d)[SUMS], float scale,
                                            bool first)
{
    float x = sum_column<0>(d) * scale, y = sum_column<1>(d) * scale;
    to += threadIdx.x % WARP * 2;
    if (first)
        __stcg((float2 *)to, make_float2(x, y));
    else
        asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1,%2};" ::"l"(to), "f"(x), "f"(y)
                     : "memory");
}

} // namespace flash_hopper

#endif
