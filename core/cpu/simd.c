/* The one file of the CPU backend that knows instruction sets: a register tile for AVX2 with fused
 * multiply-add (Intel Haswell, AMD Zen and later), sums of squares, bytes normalised, conversions to and from bf16, and
 * the pause of a spinning thread. Chosen when a kernel is selected, by what the processor says; other machines use the
 * portable forms. */
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

#if defined(__x86_64__)
#ifdef __SANITIZE_THREAD__ /* the choice among clones runs before the sanitizer is ready */
#define CLONES
#else
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif
#else
#define CLONES
#endif

enum { LANES = 32 }; /* so many sums hide how long an addition takes */

CLONES double dlt_cpu_squares(const DltReal *x, int64_t n)
{
    double lane[LANES] = {0}, eight[8] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += (double)x[i + k] * (double)x[i + k];
    for (int k = 0; i + k < n; k++)
        lane[k] += (double)x[i + k] * (double)x[i + k];
    for (int k = 0; k < LANES; k++)
        eight[k % 8] += lane[k];
    return dlt_lanes_total(eight);
}

CLONES void dlt_cpu_normalize_bytes(const uint8_t *restrict x, DltReal *restrict y, int64_t n,
                                    DltReal scale, DltReal mean, DltReal rstd)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = ((DltReal)x[i] * scale - mean) * rstd;
}

/* The rounding of dlt_bf16_from without branches. */
CLONES static void narrow_any(const DltReal *restrict x, uint16_t *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float v = (float)x[i];
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
        y[i] = (uint16_t)(v == v ? rounded : quiet);
    }
}

#if defined(__x86_64__) && !defined(DLT_REAL_DOUBLE)

enum { PAIR = 32, SUBNORMAL = 0x20, PIECE = 1024 };

/* Whole pairs of vectors by the processor's own conversion, which rounds alike but makes subnormal numbers 0: false where
 * there was one. Four operations for 32 numbers in place of 22. */
__attribute__((target("avx512f,avx512bw,avx512dq,avx512bf16"))) static bool
narrow_pairs(const float *x, uint16_t *y, int64_t n)
{
    unsigned tiny = 0;
    for (int64_t i = 0; i + PAIR <= n; i += PAIR) {
        __m512 low = _mm512_loadu_ps(x + i), high = _mm512_loadu_ps(x + i + PAIR / 2);
        tiny |= _mm512_fpclass_ps_mask(low, SUBNORMAL) | _mm512_fpclass_ps_mask(high, SUBNORMAL);
        _mm512_storeu_si512(y + i, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
    return tiny == 0;
}

void dlt_narrow_run(const DltReal *x, uint16_t *y, int64_t n)
{
    bool fast = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512dq");
    for (int64_t i = 0, count; i < n; i += count) {
        count = n - i < PIECE ? n - i : PIECE;
        int64_t whole = fast && narrow_pairs(x + i, y + i, count) ? count / PAIR * PAIR : 0;
        if (whole < count) narrow_any(x + i + whole, y + i + whole, count - whole);
    }
}

#else

void dlt_narrow_run(const DltReal *x, uint16_t *y, int64_t n)
{
    narrow_any(x, y, n);
}

#endif

CLONES void dlt_widen_run(const uint16_t *restrict x, DltReal *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)x[i] << 16;
        float v;
        memcpy(&v, &bits, sizeof v);
        y[i] = (DltReal)v;
    }
}

#if defined(__x86_64__) && !defined(DLT_REAL_DOUBLE)

enum { MR = DLT_GEMM_MR, NR = DLT_GEMM_NR };

__attribute__((target("avx2,fma"))) static inline void store_row(float *out, int64_t row,
                                                                 __m256 left, __m256 right)
{
    _mm256_storeu_ps(out + row * NR, left);
    _mm256_storeu_ps(out + row * NR + 8, right);
}

/* out[6][16] = sum over k of a[k][6] b[k][16], f32. Row i's sums are l<i> and r<i>, by name, because
 * gcc 12 stores an array of them in every turn: 26 instead of 45 GFLOP/s for [128,784] [512,784] on
 * two busy cores of a Zen 3. */
__attribute__((target("avx2,fma"))) static void tile_avx2(int64_t kc, const float *a,
                                                          const float *b, float *out)
{
    __m256 l0 = _mm256_setzero_ps(), l1 = l0, l2 = l0, l3 = l0, l4 = l0, l5 = l0;
    __m256 r0 = l0, r1 = l0, r2 = l0, r3 = l0, r4 = l0, r5 = l0;
    for (int64_t k = 0; k < kc; k++) {
        __m256 left = _mm256_loadu_ps(b + k * NR), right = _mm256_loadu_ps(b + k * NR + 8), x;
        x = _mm256_broadcast_ss(a + k * MR + 0);
        l0 = _mm256_fmadd_ps(x, left, l0);
        r0 = _mm256_fmadd_ps(x, right, r0);
        x = _mm256_broadcast_ss(a + k * MR + 1);
        l1 = _mm256_fmadd_ps(x, left, l1);
        r1 = _mm256_fmadd_ps(x, right, r1);
        x = _mm256_broadcast_ss(a + k * MR + 2);
        l2 = _mm256_fmadd_ps(x, left, l2);
        r2 = _mm256_fmadd_ps(x, right, r2);
        x = _mm256_broadcast_ss(a + k * MR + 3);
        l3 = _mm256_fmadd_ps(x, left, l3);
        r3 = _mm256_fmadd_ps(x, right, r3);
        x = _mm256_broadcast_ss(a + k * MR + 4);
        l4 = _mm256_fmadd_ps(x, left, l4);
        r4 = _mm256_fmadd_ps(x, right, r4);
        x = _mm256_broadcast_ss(a + k * MR + 5);
        l5 = _mm256_fmadd_ps(x, left, l5);
        r5 = _mm256_fmadd_ps(x, right, r5);
    }
    store_row(out, 0, l0, r0);
    store_row(out, 1, l1, r1);
    store_row(out, 2, l2, r2);
    store_row(out, 3, l3, r3);
    store_row(out, 4, l4, r4);
    store_row(out, 5, l5, r5);
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
