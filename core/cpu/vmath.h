/* exp, tanh and the normal distribution of DltReal as branch-free expressions that a compiler can vectorise in
 * a loop; the C library's cost 5 to 20 ns a call. Single precision: relative error below 1e-7 for exp,
 * 2e-7 for tanh, absolute error below 2.5e-7 for the distribution (tests/unit/test_vmath.c), infinities
 * and NaN as in the library. The double build is the specification and calls the library. Method:
 * Cephes (Moshier 1989), expf and tanhf; Hastings 1955 for the distribution. */
#ifndef DLT_CPU_VMATH_H
#define DLT_CPU_VMATH_H

#include "base/dtype.h"
#include <math.h>
#include <string.h>

#ifdef DLT_REAL_DOUBLE
static inline double dlt_exp(double x)
{
    return exp(x);
}
static inline double dlt_tanh(double x)
{
    return tanh(x);
}
static inline double dlt_exp_down(double x)
{
    return exp(x);
}
static inline double dlt_normal_cdf(double x)
{
    return (1 + erf(x * 0.70710678118654752440)) / 2;
}
#else

/* 2^n for n in [-126, 127], modulo 2^32 */
static inline float dlt_power_of_two(uint32_t n)
{
    uint32_t bits = (n + 127) << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* exp(c) = 2^n p: p, and n as an integer. Adding 1.5 2^23 rounds c / log(2) to a whole number, which then
 * stands in the last bits; |r| <= log(2) / 2. */
static inline float dlt_exp_parts(float c, int32_t *n)
{
    const float log2e = 1.44269504F, log2_head = 0.693359375F, log2_tail = -2.12194440e-4F;
    const float rounder = 12582912;
    float sum = c * log2e + rounder, whole = sum - rounder;
    int32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    *n = (int32_t)((uint32_t)bits - 0x4B400000U);
    float r = c - whole * log2_head - whole * log2_tail;
    float p = 1.9875691500e-4F;
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    return p * r * r + r + 1;
}

/* exp(x), 2^n in two factors, so that both ends of the range round as they should; NaN stays in p. */
static inline float dlt_exp(float x)
{
    const float low = -104, high = 89; /* beyond them: 0 and infinity */
    float c = x > high ? high : x;
    c = c < low ? low : c;
    int32_t n;
    float p = dlt_exp_parts(c, &n);
    uint32_t half = (uint32_t)(n >> 1), rest = (uint32_t)n - half;
    return p * dlt_power_of_two(half) * dlt_power_of_two(rest);
}

/* exp(x) for x <= 0, a little cheaper; 0 below -87. */
static inline float dlt_exp_down(float x)
{
    const float low = -87;
    int32_t n;
    float p = dlt_exp_parts(x < low ? low : x, &n);
    return x < low ? 0 : p * dlt_power_of_two((uint32_t)n);
}

/* A polynomial below 0.625, else 1 - 2 / (exp(2 |x|) + 1). */
static inline float dlt_tanh(float x)
{
    float a = fabsf(x), z = x * x;
    float p = -5.70498872745e-3F;
    p = p * z + 2.06390887954e-2F;
    p = p * z - 5.37397155531e-2F;
    p = p * z + 1.33314422036e-1F;
    p = p * z - 3.33332819422e-1F;
    p = p * z * x + x;
    float far = 1 - 2 / (dlt_exp(2 * a) + 1);
    return a < 0.625F ? p : copysignf(far, x);
}

/* Gaussian distribution function: exp(-x^2 / 2) P(t) with t = 1 / (1 + 0.275 |x|) is the tail on x's side; P of degree 6
 * fitted to 1.1e-8 in x times the function. */
static inline float dlt_normal_cdf(float x)
{
    float t = 1 / (1 + 0.275F * fabsf(x));
    float p = -1.1416610330343246e-1F;
    p = p * t + 4.491667151451111e-1F;
    p = p * t - 3.263920545578003e-1F;
    p = p * t + 3.302221000194550e-1F;
    p = p * t + 4.359564185142517e-2F;
    p = p * t + 1.175736933946610e-1F;
    float tail = p * t * dlt_exp_down(x * x * -0.5F);
    return x > 0 ? 1 - tail : tail;
}
#endif

#endif
