/* Philox against the known-answer vectors of Random123 (Salmon et al. 2011, kat_vectors: philox4x32
 * 10), moments of the derived numbers, and the permutation as a bijection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/sys.h"
#include <math.h>

static void philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < 3; i++) {
        const uint32_t *c = rows[i].counter, *k = rows[i].key;
        DltRand4 r = dlt_philox((uint64_t)k[1] << 32 | k[0], (uint64_t)c[3] << 32 | c[2],
                                (uint64_t)c[1] << 32 | c[0]);
        assert_memory_equal(r.v, rows[i].out, sizeof r.v);
    }
}

static void streams_keep_purposes_apart(void **state)
{
    (void)state;
    assert_true(dlt_rng_stream(DLT_RNG_INIT, 7) == (1ull << 40 | 7));
    assert_true(dlt_rng_stream(2, 1ull << 40 | 3) == (2ull << 40 | 3));
    assert_true(dlt_rng_below(0, 10) == 0 && dlt_rng_below(~0u, 10) == 9);
    assert_true(dlt_rng_unit(0) == 0.0f && dlt_rng_unit(~0u) < 1.0f);
}

/* Mean, variance and third and fourth moments over n draws; bounds are 5 standard errors. */
static void normals_have_the_moments_of_a_normal(void **state)
{
    (void)state;
    enum { N = 200000 };
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    for (uint64_t i = 0; i < N; i++) {
        double x = dlt_rng_normal(1, 2, i);
        m1 += x;
        m2 += x * x;
        m3 += x * x * x;
        m4 += x * x * x * x;
    }
    double root = sqrt((double)N);
    assert_true(fabs(m1 / N) < 5.0 / root);
    assert_true(fabs(m2 / N - 1) < 5.0 * sqrt(2.0) / root);
    assert_true(fabs(m3 / N) < 5.0 * sqrt(15.0) / root);
    assert_true(fabs(m4 / N - 3) < 5.0 * sqrt(96.0) / root);
}

static void uniforms_fill_the_unit_interval(void **state)
{
    (void)state;
    enum { N = 100000, BINS = 100 };
    int count[BINS] = {0};
    for (uint64_t i = 0; i < N; i++) {
        double u = dlt_rng_uniform(3, 4, i);
        assert_true(u >= 0.0 && u < 1.0);
        count[(int)(u * BINS)]++;
    }
    double chi2 = 0, expected = (double)N / BINS;
    for (int i = 0; i < BINS; i++)
        chi2 += (count[i] - expected) * (count[i] - expected) / expected;
    assert_true(chi2 < 99 + 5 * sqrt(2.0 * 99)); /* 99 degrees of freedom, 5 sigma */
}

static void check_bijection(int64_t n, uint64_t seed)
{
    unsigned char *seen = dlt_sys_alloc((size_t)n);
    assert_non_null(seen);
    memset(seen, 0, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t to = dlt_rng_permute(seed, 5, n, i);
        assert_true(to >= 0 && to < n);
        assert_int_equal(seen[to], 0);
        seen[to] = 1;
    }
    dlt_sys_free(seen);
}

static void permutation_is_a_bijection(void **state)
{
    (void)state;
    static const int64_t large[] = {1023, 1024, 1025, 4096, 4097, 50000, 60000, 65537, 100003};
    for (int64_t n = 1; n <= 300; n++)
        check_bijection(n, (uint64_t)n);
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        check_bijection(large[i], 9);
    int64_t huge = INT64_MAX, to = dlt_rng_permute(1, 2, huge, huge - 1);
    assert_true(to >= 0 && to < huge);
    assert_true(to != dlt_rng_permute(1, 2, huge, 0));
}

/* All orders of few elements, equally often: chi-square over 24 permutations, 5 sigma. */
static void permutations_are_equally_likely(void **state)
{
    (void)state;
    enum { N = 4, ORDERS = 24, DRAWS = 24000 };
    int count[N * N * N * N] = {0};
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        int64_t code = 0;
        for (int64_t i = 0; i < N; i++)
            code = N * code + dlt_rng_permute(seed, 5, N, i);
        count[code]++;
    }
    double chi2 = 0, expected = (double)DRAWS / ORDERS;
    int n_order = 0;
    for (int i = 0; i < N * N * N * N; i++) {
        if (count[i] == 0) continue; /* no permutation, or one never seen */
        n_order++;
        chi2 += (count[i] - expected) * (count[i] - expected) / expected;
    }
    assert_int_equal(n_order, ORDERS);
    assert_true(chi2 < 23 + 5 * sqrt(2.0 * 23));
}

/* Where position 0 goes, over seeds: chi-square over 10 places; and no two epochs alike. */
static void permutation_depends_on_seed_and_stream(void **state)
{
    (void)state;
    enum { N = 10, DRAWS = 20000 };
    int count[N] = {0}, equal = 0;
    for (uint64_t seed = 0; seed < DRAWS; seed++)
        count[dlt_rng_permute(seed, 5, N, 0)]++;
    double chi2 = 0, expected = (double)DRAWS / N;
    for (int i = 0; i < N; i++)
        chi2 += (count[i] - expected) * (count[i] - expected) / expected;
    assert_true(chi2 < 9 + 5 * sqrt(2.0 * 9));
    for (int64_t i = 0; i < 10000; i++) {
        equal += dlt_rng_permute(1, 5, 10000, i) == dlt_rng_permute(1, 6, 10000, i);
    }
    assert_true(equal < 10); /* 1 expected, Poisson */
}

static void hash_tells_bytes_apart(void **state)
{
    (void)state;
    /* FNV-1a of "" is the offset basis; the finalizer is MurmurHash3's fmix64 */
    uint64_t x = 0xcbf29ce484222325u;
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
    assert_true(dlt_hash("", 0, 0) == (x ^ x >> 33));
    assert_true(dlt_hash("a", 1, 0) != dlt_hash("b", 1, 0));
    assert_true(dlt_hash("a", 1, 0) != dlt_hash("a", 1, 1));
    assert_true(dlt_hash("ab", 2, 0) != dlt_hash("ba", 2, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(streams_keep_purposes_apart),
        cmocka_unit_test(normals_have_the_moments_of_a_normal),
        cmocka_unit_test(uniforms_fill_the_unit_interval),
        cmocka_unit_test(permutation_is_a_bijection),
        cmocka_unit_test(permutations_are_equally_likely),
        cmocka_unit_test(permutation_depends_on_seed_and_stream),
        cmocka_unit_test(hash_tells_bytes_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
