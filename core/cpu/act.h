/* The activation functions, one row each: y of x (and a), and the slope in terms of what is saved (s: x
 * or y, ops/elementwise.h). Branch-free where the formula allows, so that a loop around a row
 * vectorises; the plain kernels and the fast ones expand the same table. */
#ifndef DLT_CPU_ACT_H
#define DLT_CPU_ACT_H

#include "cpu/vmath.h"
#include <tgmath.h>

static const DltReal dlt_inv_sqrt_two_pi = (DltReal)0.39894228040143267794;  /* 1 / sqrt(2 pi) */
static const DltReal dlt_sqrt_two_over_pi = (DltReal)0.79788456080286535588; /* sqrt(2 / pi) */
static const DltReal dlt_gelu_cubic = (DltReal)0.044715; /* Hendrycks & Gimpel 2016, section 2 */
static const DltReal dlt_softplus_linear = 20;           /* log(1 + exp(20)) - 20 < 2.1e-9 */

static inline DltReal dlt_sigmoid(DltReal x)
{
    return 1 / (1 + dlt_exp(-x));
}

static inline DltReal dlt_gelu_grad(DltReal x)
{
    return dlt_normal_cdf(x) + x * dlt_inv_sqrt_two_pi * dlt_exp_down(x * x * (DltReal)-0.5);
}

static inline DltReal dlt_gelu_tanh(DltReal x)
{
    return x * (1 + dlt_tanh(dlt_sqrt_two_over_pi * (x + dlt_gelu_cubic * x * x * x))) / 2;
}

static inline DltReal dlt_gelu_tanh_grad(DltReal x)
{
    DltReal t = dlt_tanh(dlt_sqrt_two_over_pi * (x + dlt_gelu_cubic * x * x * x));
    DltReal slope = dlt_sqrt_two_over_pi * (1 + 3 * dlt_gelu_cubic * x * x);
    return (1 + t) / 2 + x * (1 - t * t) * slope / 2;
}

static inline DltReal dlt_silu_grad(DltReal x)
{
    DltReal y = dlt_sigmoid(x);
    return y * (1 + x * (1 - y));
}

static inline DltReal dlt_softplus(DltReal x, DltReal a)
{
    return a * x > dlt_softplus_linear ? x : log1p(exp(a * x)) / a;
}

static inline DltReal dlt_softplus_grad(DltReal x, DltReal a)
{
    return a * x > dlt_softplus_linear ? 1 : dlt_sigmoid(a * x);
}

/* R(id, y of x and a, slope of s and a). */
#define DLT_ACT_TABLE(R)                                                                           \
    R(RELU, x<0 ? 0 : x, s> 0 ? 1 : 0) /* NaN stays NaN */                                         \
    R(LEAKY_RELU, x > 0 ? x : a * x, s > 0 ? 1 : a)                                                \
    R(GELU, x *dlt_normal_cdf(x), dlt_gelu_grad(s))                                                \
    R(GELU_TANH, dlt_gelu_tanh(x), dlt_gelu_tanh_grad(s))                                          \
    R(SILU, x *dlt_sigmoid(x), dlt_silu_grad(s))                                                   \
    R(SIGMOID, dlt_sigmoid(x), s *(1 - s))                                                         \
    R(TANH, dlt_tanh(x), 1 - s * s)                                                                \
    R(SOFTPLUS, dlt_softplus(x, a), dlt_softplus_grad(s, a))                                       \
    R(ELU, x > 0 ? x : a * expm1(x), s > 0 ? 1 : a * dlt_exp(s))                                   \
    R(SCALE, a == 0 ? 0 : a * x, a) /* 0 for every x */                                            \
    R(EXP, dlt_exp(x), s)                                                                          \
    R(SQUARE, x *x, 2 * s)                                                                         \
    R(SQRT, sqrt(x), 1 / (2 * s))                                                                  \
    R(ABS, fabs(x), s > 0 ? 1 : s < 0 ? -1 : 0)

#endif
