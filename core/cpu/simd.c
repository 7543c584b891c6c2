/* The one file of the CPU backend that knows instruction sets: a register tile for AVX2 with fused
 * multiply-add (Intel Haswell, AMD Zen and later) and the pause of a spinning thread. Chosen when a
 * kernel is selected, by what the processor says; other machines use the portable forms. */
#include "cpu/device.h"
#include "cpu/gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

void dlt_cpu_relax(void)
{
    _mm_pause();
}
#else
void dlt_cpu_relax(void)
{
}
#endif

#if defined(__x86_64__) && !defined(DLT_REAL_DOUBLE)

enum { MR = DLT_GEMM_MR, NR = DLT_GEMM_NR };

/* out[6][16] = sum over k of a[k][6] b[k][16], f32; two vectors a row, twelve accumulators. */
__attribute__((target("avx2,fma"))) static void tile_avx2(int64_t kc, const float *a,
                                                          const float *b, float *out)
{
    __m256 sum[MR][2];
    for (int i = 0; i < MR; i++)
        sum[i][0] = sum[i][1] = _mm256_setzero_ps();
    for (int64_t k = 0; k < kc; k++) {
        __m256 left = _mm256_loadu_ps(b + k * NR), right = _mm256_loadu_ps(b + k * NR + 8);
        for (int i = 0; i < MR; i++) {
            __m256 x = _mm256_broadcast_ss(a + k * MR + i);
            sum[i][0] = _mm256_fmadd_ps(x, left, sum[i][0]);
            sum[i][1] = _mm256_fmadd_ps(x, right, sum[i][1]);
        }
    }
    for (int i = 0; i < MR; i++) {
        _mm256_storeu_ps(out + i * NR, sum[i][0]);
        _mm256_storeu_ps(out + i * NR + 8, sum[i][1]);
    }
}

DltTile dlt_tile_simd(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? tile_avx2 : NULL;
}

#else

DltTile dlt_tile_simd(void)
{
    return NULL; /* the double build is the specification, not a fast path */
}

#endif
