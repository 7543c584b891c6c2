/* The small floats, exhaustively: every pattern widens to the value of its definition and comes back;
 * rounding is checked against the nearest pattern found by search in the table of all values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "cpu/plain.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

typedef struct Format {
    const char *name;
    int man_bits, exp_bits, bias;
    unsigned max;   /* largest finite pattern without sign */
    bool has_inf;   /* max + 1 is infinity */
    bool saturates; /* what rounds beyond max becomes max, else infinity */
    unsigned (*from)(float x);
    float (*to)(unsigned h);
} Format;

static unsigned bf16_from(float x)
{
    return dlt_bf16_from(x);
}

static float bf16_to(unsigned h)
{
    return dlt_bf16_to((uint16_t)h);
}

static unsigned f16_from(float x)
{
    return dlt_f16_from(x);
}

static float f16_to(unsigned h)
{
    return dlt_f16_to((uint16_t)h);
}

static unsigned e4m3_from(float x)
{
    return dlt_f8e4m3_from(x);
}

static float e4m3_to(unsigned h)
{
    return dlt_f8e4m3_to((uint8_t)h);
}

static unsigned e5m2_from(float x)
{
    return dlt_f8e5m2_from(x);
}

static float e5m2_to(unsigned h)
{
    return dlt_f8e5m2_to((uint8_t)h);
}

static const Format formats[] = {
    {"bf16", 7, 8, 127, 0x7F7F, true, false, bf16_from, bf16_to},
    {"f16", 10, 5, 15, 0x7BFF, true, false, f16_from, f16_to},
    {"f8e4m3", 3, 4, 7, 0x7E, false, true, e4m3_from, e4m3_to},
    {"f8e5m2", 2, 5, 15, 0x7B, true, true, e5m2_from, e5m2_to},
};
enum { N_FORMAT = 4 };

/* (-1)^s 2^(e - bias) (1 + m / 2^M), or 2^(1 - bias) m / 2^M where e is 0. */
static double value_of(const Format *f, unsigned pattern)
{
    unsigned bits = (unsigned)(f->man_bits + f->exp_bits);
    unsigned m = pattern & ((1u << f->man_bits) - 1);
    unsigned e = (pattern >> f->man_bits) & ((1u << f->exp_bits) - 1);
    double v = e == 0 ? ldexp(m, 1 - f->bias - f->man_bits)
                      : ldexp(m + (1u << f->man_bits), (int)e - f->bias - f->man_bits);
    return (pattern >> bits) != 0 ? -v : v;
}

static void patterns_widen_and_come_back(void **state)
{
    (void)state;
    for (const Format *f = formats; f < formats + N_FORMAT; f++) {
        unsigned sign = 1u << (f->man_bits + f->exp_bits);
        for (unsigned h = 0; h < 2 * sign; h++) {
            float x = f->to(h);
            unsigned magnitude = h & (sign - 1);
            bool is_inf = f->has_inf && magnitude == f->max + 1;
            if (magnitude > f->max && !is_inf) {
                assert_true(isnan(x));
                assert_true(isnan(f->to(f->from(x))));
                continue;
            }
            if (is_inf)
                assert_true(isinf(x) && (signbit(x) != 0) == (h >= sign));
            else
                assert_true((double)x == value_of(f, h) && (signbit(x) != 0) == (h >= sign));
            unsigned back = is_inf && f->saturates ? (h & sign) | f->max : h;
            if (f->from(x) != back)
                fail_msg("%s %x -> %a -> %x", f->name, h, (double)x, f->from(x));
        }
    }
}

/* The pattern nearest to |x| by bisection over the ordered patterns, ties to the even one. */
static unsigned nearest(const Format *f, double x)
{
    double a = fabs(x);
    unsigned lo = 0, hi = f->max;
    while (lo + 1 < hi) {
        unsigned mid = (lo + hi) / 2;
        if (value_of(f, mid) <= a)
            lo = mid;
        else
            hi = mid;
    }
    double below = a - value_of(f, lo), above = value_of(f, hi) - a;
    double step = value_of(f, f->max) - value_of(f, f->max - 1);
    if (a >= value_of(f, f->max) + step / 2) return f->saturates ? f->max : f->max + 1;
    if (a >= value_of(f, hi)) return hi;
    if (below < above || (below == above && lo % 2 == 0)) return lo;
    return hi;
}

static void check(const Format *f, float x)
{
    unsigned sign = signbit(x) ? 1u << (f->man_bits + f->exp_bits) : 0, got = f->from(x);
    unsigned want = sign | nearest(f, (double)x);
    if (got != want) fail_msg("%s: %a gave %x, not %x", f->name, (double)x, got, want);
}

static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    for (const Format *f = formats; f < formats + N_FORMAT; f++) {
        for (unsigned h = 0; h < f->max; h++) {
            float middle = (float)((value_of(f, h) + value_of(f, h + 1)) / 2);
            check(f, middle);
            check(f, nextafterf(middle, INFINITY));
            check(f, nextafterf(middle, 0.0f));
            check(f, -middle);
        }
        for (uint64_t i = 0; i < 100000; i++) {
            DltRand4 r = dlt_philox(1, 2, i);
            float x = (float)ldexp((double)r.v[0] - 0x1p31, (int)(r.v[1] % 60) - 61);
            check(f, x);
        }
    }
}

static void the_ends_of_the_range(void **state)
{
    (void)state;
    assert_int_equal(dlt_f16_from(65519.996f), 0x7BFF);
    assert_int_equal(dlt_f16_from(65520.0f), 0x7C00);
    assert_int_equal(dlt_f16_from(-INFINITY), 0xFC00);
    assert_int_equal(dlt_bf16_from(3.4028235e38f), 0x7F80);
    assert_int_equal(dlt_f8e4m3_from(1e9f), 0x7E);
    assert_int_equal(dlt_f8e4m3_from(-INFINITY), 0xFE);
    assert_true(dlt_f8e4m3_to(0x7E) == 448.0f);
    assert_int_equal(dlt_f8e5m2_from(INFINITY), 0x7B);
    assert_true(dlt_f8e5m2_to(0x7B) == 57344.0f);
    assert_int_equal(dlt_f16_from(0x1p-25f), 0); /* half the smallest: a tie, to even */
    assert_int_equal(dlt_f16_from(0x1.8p-25f), 1);
    assert_int_equal(dlt_f16_from(0x1p-149f), 0); /* the smallest float */
    assert_int_equal(dlt_bf16_from(-0.0f), 0x8000);
}

enum { RUN = 1100 };

/* Runs round as single numbers do: every upper half (NaN, infinities, subnormal ones) with lower halves around ties, in
 * runs of all lengths. Nothing behind a run is written. */
static void runs_round_alike(void **state)
{
    (void)state;
    static const uint32_t lower[] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
    static float x[RUN];
    static uint16_t y[RUN + 1];
    uint32_t upper = 0;
    for (int64_t n = 1; upper < 0x10000; n = n % RUN + 1)
        for (size_t k = 0; k < sizeof lower / sizeof *lower; k++) {
            for (int64_t i = 0; i < n; i++) {
                uint32_t bits = ((upper + (uint32_t)i) & 0xFFFF) << 16 | lower[k];
                memcpy(&x[i], &bits, sizeof bits);
            }
            y[n] = 0x1234;
            dlt_narrow_run(x, y, n);
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(y[i], dlt_bf16_from(x[i]));
            assert_int_equal(y[n], 0x1234);
            if (k + 1 == sizeof lower / sizeof *lower) upper += (uint32_t)n;
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_widen_and_come_back),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(the_ends_of_the_range),
        cmocka_unit_test(runs_round_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
