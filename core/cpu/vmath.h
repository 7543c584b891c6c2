/* exp, tanh and erf of DltReal as branch-free expressions that a compiler can vectorise in a loop;
 * the C library's cost 5 to 20 ns a call. Single precision: relative error below 1e-7 for exp, 2e-7
 * for tanh and erf (tests/unit/test_vmath.c), infinities and NaN as in the library. The double build
 * is the specification and calls the library. Method: Cephes (Moshier 1989), expf, tanhf, ndtrf. */
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
static inline double dlt_erf(double x)
{
    return erf(x);
}
#else

/* 2^n for n in [-126, 127] */
static inline float dlt_power_of_two(int32_t n)
{
    uint32_t bits = (uint32_t)(n + 127) << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* exp(x) = 2^n exp(r), |r| <= log(2) / 2; 2^n in two factors, so that both ends of the range round
 * as they should. */
static inline float dlt_exp(float x)
{
    const float low = -104, high = 89; /* beyond them: 0 and infinity */
    const float log2e = 1.44269504F, log2_head = 0.693359375F, log2_tail = -2.12194440e-4F;
    const float rounder = 12582912; /* 1.5 2^23: adding it rounds to a whole number */
    float c = x > high ? high : x;
    c = c < low ? low : c;
    float n = c * log2e + rounder - rounder;
    float r = c - n * log2_head - n * log2_tail;
    float p = 1.9875691500e-4F;
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * r * r + r + 1;
    int32_t whole = n == n ? (int32_t)n : 0; /* NaN stays in p */
    int32_t half = whole >> 1;
    return p * dlt_power_of_two(half) * dlt_power_of_two(whole - half);
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

/* x T(x^2) below 1, else 1 - exp(-x^2) / |x| P(1 / x^2), with one P below 2 and one above. */
static inline float dlt_erf(float x)
{
    float a = fabsf(x), z = x * x;
    float t = 7.853861353153693e-5F;
    t = t * z - 8.010193625184903e-4F;
    t = t * z + 5.188327685732524e-3F;
    t = t * z - 2.685381193529856e-2F;
    t = t * z + 1.128358514861418e-1F;
    t = t * z - 3.761262582423300e-1F;
    t = t * z + 1.128379165726710F;
    float q = 1 / (a < 1 ? 1 : a), y = q * q;
    float near = 2.326819970068386e-2F;
    near = near * y - 1.387039388740657e-1F;
    near = near * y + 3.687424674597105e-1F;
    near = near * y - 5.824733027278666e-1F;
    near = near * y + 6.210004621745983e-1F;
    near = near * y - 4.944515323274145e-1F;
    near = near * y + 3.404879937665872e-1F;
    near = near * y - 2.741127028184656e-1F;
    near = near * y + 5.638259427386472e-1F;
    float far = -1.047766399936249e+1F;
    far = far * y + 1.297719955372516e+1F;
    far = far * y - 7.495518717768503F;
    far = far * y + 2.921019019210786F;
    far = far * y - 1.015265279202700F;
    far = far * y + 4.218463358204948e-1F;
    far = far * y - 2.820767439740514e-1F;
    far = far * y + 5.641895067754075e-1F;
    float tail = 1 - dlt_exp(-z) * q * (a < 2 ? near : far);
    return a < 1 ? x * t : copysignf(tail, x);
}
#endif

#endif
