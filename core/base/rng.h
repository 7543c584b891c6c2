/* Counter-based random numbers (Philox4x32-10, Salmon et al. 2011): a number is a pure function of
 * (seed, stream, index), so results do not depend on threads, devices or resumes. Header-only where
 * kernels need it; the same code compiles in C, C++ and CUDA. */
#ifndef DLT_RNG_H
#define DLT_RNG_H

#include <stdint.h>

#ifdef __CUDACC__
#define DLT_HD __host__ __device__ static inline
#else
#define DLT_HD static inline
#endif

/* Purposes keep streams of one seed apart; `stream` = purpose << 40 | detail. */
enum {
    DLT_RNG_INIT = 1,
    DLT_RNG_DROPOUT = 2,
    DLT_RNG_AUGMENT = 3,
    DLT_RNG_ORDER = 4,
    DLT_RNG_SYNTHETIC = 5,
    DLT_RNG_SAMPLE = 6,
    DLT_RNG_MASK = 7
};

typedef struct DltRand4 {
    uint32_t v[4];
} DltRand4;

/* out = philox4x32-10(counter = {index lo, index hi, stream lo, stream hi}, key = {seed lo, hi}).
 */
DLT_HD DltRand4 dlt_philox(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0;
        c1 = (uint32_t)p1;
        c2 = n2;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    DltRand4 r;
    r.v[0] = c0;
    r.v[1] = c1;
    r.v[2] = c2;
    r.v[3] = c3;
    return r;
}

DLT_HD uint64_t dlt_rng_stream(int purpose, uint64_t detail)
{
    return (uint64_t)purpose << 40 | (detail & 0xFFFFFFFFFFull);
}

/* [0, 1) with 24 bits. */
DLT_HD float dlt_rng_unit(uint32_t bits)
{
    return (float)(bits >> 8) * (1.0f / 16777216.0f);
}

/* Uniform integer in [0, n), n > 0 (multiply-shift; bias below 2^-32 n). */
DLT_HD uint32_t dlt_rng_below(uint32_t bits, uint32_t n)
{
    return (uint32_t)(((uint64_t)bits * n) >> 32);
}

#ifdef __cplusplus
extern "C" {
#endif
/* i-th standard normal of a stream, by Box-Muller in double. */
double dlt_rng_normal(uint64_t seed, uint64_t stream, uint64_t i);
/* i-th uniform double in [0, 1) of a stream, 53 bits. */
double dlt_rng_uniform(uint64_t seed, uint64_t stream, uint64_t i);
/* Keyed permutation of [0, n): position -> element, by cycle-walking a Feistel network, O(1) per
 * query for any n >= 1. */
int64_t dlt_rng_permute(uint64_t seed, uint64_t stream, int64_t n, int64_t position);
/* The same for many positions of one permutation: its keys are made once. */
enum { DLT_PERMUTE_ROUNDS = 8 };
typedef struct DltPermutation {
    int64_t n;
    unsigned half_bits;
    uint64_t key[DLT_PERMUTE_ROUNDS];
} DltPermutation;
void dlt_rng_permutation(DltPermutation *p, uint64_t seed, uint64_t stream, int64_t n);
int64_t dlt_rng_permuted(const DltPermutation *p, int64_t position);
/* A stable 64-bit hash of bytes (FNV-1a followed by a finalizer). */
uint64_t dlt_hash(const void *bytes, unsigned long n, uint64_t basis);
#ifdef __cplusplus
}
#endif

#endif
