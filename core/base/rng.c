/* Numbers derived from Philox blocks: doubles, normals, a keyed permutation; and a byte hash.
 * Each is a pure function of its arguments. */
#include "base/rng.h"
#include "base/err.h"
#include <math.h>

static double unit53(uint32_t hi, uint32_t lo)
{
    uint64_t bits = ((uint64_t)hi << 32 | lo) >> 11;
    return (double)bits * 0x1p-53;
}

double dlt_rng_uniform(uint64_t seed, uint64_t stream, uint64_t i)
{
    DltRand4 r = dlt_philox(seed, stream, i / 2);
    unsigned pair = (unsigned)(i % 2) * 2;
    return unit53(r.v[pair], r.v[pair + 1]);
}

double dlt_rng_normal(uint64_t seed, uint64_t stream, uint64_t i)
{
    DltRand4 r = dlt_philox(seed, stream, i / 2);
    double radius = sqrt(-2.0 * log(1.0 - unit53(r.v[0], r.v[1])));
    double angle = 2.0 * 3.14159265358979323846 * unit53(r.v[2], r.v[3]);
    return radius * (i % 2 == 0 ? cos(angle) : sin(angle));
}

/* MurmurHash3's 64-bit finalizer: every input bit changes every output bit half of the time. */
static uint64_t mix64(uint64_t x)
{
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCDu;
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53u;
    return x ^ x >> 33;
}

/* A balanced Feistel network permutes [0, 4^half_bits), at most 4 n; numbers that land outside
 * [0, n) walk on along their cycle until they are inside (Black & Rogaway 2002, "cycle walking"),
 * fewer than four steps on average. Round keys come from two Philox blocks. */
void dlt_rng_permutation(DltPermutation *p, uint64_t seed, uint64_t stream, int64_t n)
{
    DLT_BUG_ON(n < 1);
    p->n = n;
    p->half_bits = 1;
    while (p->half_bits < 32 && (uint64_t)n > (uint64_t)1 << 2 * p->half_bits)
        p->half_bits++;
    for (unsigned i = 0; i < DLT_PERMUTE_ROUNDS; i++)
        p->key[i] = (uint64_t)dlt_philox(seed, stream, i / 4).v[i % 4] << 32;
}

int64_t dlt_rng_permuted(const DltPermutation *p, int64_t position)
{
    DLT_BUG_ON(position < 0 || position >= p->n);
    uint64_t mask = ((uint64_t)1 << p->half_bits) - 1;
    uint64_t x = (uint64_t)position;
    do {
        uint64_t left = x >> p->half_bits, right = x & mask;
        for (unsigned i = 0; i < DLT_PERMUTE_ROUNDS; i++) {
            uint64_t next = (left ^ mix64(p->key[i] | right) >> 17) & mask;
            left = right;
            right = next;
        }
        x = left << p->half_bits | right;
    } while (x >= (uint64_t)p->n);
    return (int64_t)x;
}

int64_t dlt_rng_permute(uint64_t seed, uint64_t stream, int64_t n, int64_t position)
{
    DltPermutation p;
    dlt_rng_permutation(&p, seed, stream, n);
    return dlt_rng_permuted(&p, position);
}

uint64_t dlt_hash(const void *bytes, unsigned long n, uint64_t basis)
{
    const unsigned char *at = bytes;
    uint64_t h = 0xCBF29CE484222325u ^ basis;
    for (unsigned long i = 0; i < n; i++)
        h = (h ^ at[i]) * 0x100000001B3u;
    return mix64(h);
}
