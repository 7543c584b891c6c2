/* The activation functions of ops/elementwise.h and their derivatives, in f32. act<FN>(x, a) is the
 * function; act_grad<FN>(s, a) its derivative written in what the op saves: y where
 * dlt_unary_saves_y says so, x elsewhere. NaN goes through all of them. */
#ifndef DLT_ACT_CUH
#define DLT_ACT_CUH

#include "cuda/kernels/fast.cuh"
#include "cuda/kernels/prim.cuh"
#include "ops/matmul.h"

__device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
/* (1 + tanh u) / 2 = 1 / (1 + exp(-2 u)) for u = sqrt(2/pi) (x + 0.044715 x^3), Hendrycks & Gimpel 2016. Few
 * instructions, since otherwise gelu takes longer than its memory: exp2 and 1 / x of the hardware. */
__device__ __forceinline__ float gelu_gate(float x)
{
    constexpr float k = -2.0f * 0.7978845608028654f * 1.4426950408889634f;
    return fast_reciprocal(1.0f + fast_exp2(x * (k + k * 0.044715f * x * x)));
}

template <int FN> __device__ __forceinline__ float act(float x, float alpha)
{
    if constexpr (FN == DLT_FN_RELU) return x < 0 ? 0.0f : x;
    if constexpr (FN == DLT_FN_LEAKY_RELU) return x > 0 ? x : alpha * x;
    if constexpr (FN == DLT_FN_GELU) return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f));
    if constexpr (FN == DLT_FN_GELU_TANH) return x * gelu_gate(x);
    if constexpr (FN == DLT_FN_SILU) return x * sigmoid(x);
    if constexpr (FN == DLT_FN_SIGMOID) return sigmoid(x);
    if constexpr (FN == DLT_FN_TANH) return tanhf(x);
    if constexpr (FN == DLT_FN_SOFTPLUS)
        return alpha * x > 20.0f ? x : log1pf(expf(alpha * x)) / alpha;
    if constexpr (FN == DLT_FN_ELU) return x > 0 ? x : alpha * expm1f(x);
    if constexpr (FN == DLT_FN_SCALE) return alpha == 0.0f ? 0.0f : alpha * x;
    if constexpr (FN == DLT_FN_EXP) return expf(x);
    if constexpr (FN == DLT_FN_SQUARE) return x * x;
    if constexpr (FN == DLT_FN_SQRT) return sqrtf(x);
    if constexpr (FN == DLT_FN_ABS) return fabsf(x);
    return x;
}

template <int FN> __device__ __forceinline__ float act_grad(float s, float alpha)
{
    if constexpr (FN == DLT_FN_RELU) return s > 0 ? 1.0f : 0.0f;
    if constexpr (FN == DLT_FN_LEAKY_RELU) return s > 0 ? 1.0f : alpha;
    if constexpr (FN == DLT_FN_GELU)
        return 0.5f * (1.0f + erff(s * 0.7071067811865476f)) +
               s * 0.3989422804014327f * expf(-0.5f * s * s);
    if constexpr (FN == DLT_FN_GELU_TANH) {
        float g = gelu_gate(s);
        float inner = 2.0f * 0.7978845608028654f * (1.0f + 3.0f * 0.044715f * s * s);
        return g + s * g * (1.0f - g) * inner;
    }
    if constexpr (FN == DLT_FN_SILU) {
        float g = sigmoid(s);
        return g * (1.0f + s * (1.0f - g));
    }
    if constexpr (FN == DLT_FN_SIGMOID) return s * (1.0f - s);
    if constexpr (FN == DLT_FN_TANH) return 1.0f - s * s;
    if constexpr (FN == DLT_FN_SOFTPLUS) return alpha * s > 20.0f ? 1.0f : sigmoid(alpha * s);
    if constexpr (FN == DLT_FN_ELU) return s > 0 ? 1.0f : alpha * expf(s);
    if constexpr (FN == DLT_FN_SCALE) return alpha;
    if constexpr (FN == DLT_FN_EXP) return s;
    if constexpr (FN == DLT_FN_SQUARE) return 2.0f * s;
    if constexpr (FN == DLT_FN_SQRT) return 0.5f / s;
    if constexpr (FN == DLT_FN_ABS) return s > 0 ? 1.0f : s < 0 ? -1.0f : 0.0f;
    return 1.0f;
}

/* Derivative and, in *y, the function of x, for functions that save x. */
template <int FN> __device__ __forceinline__ float act_both(float x, float alpha, float *y)
{
    if constexpr (FN == DLT_FN_GELU_TANH) {
        float g = gelu_gate(x), inner = 2.0f * 0.7978845608028654f;
        *y = x * g;
        return g + *y * (inner + inner * 3.0f * 0.044715f * (x * x)) * (1.0f - g);
    }
    *y = act<FN>(x, alpha);
    return act_grad<FN>(x, alpha);
}

/* Calls body(std::integral_constant<int, fn>) inside a kernel, so that the choice is made once a
 * thread and the loop inside knows its function. */
template <typename B> __device__ __forceinline__ void with_fn(DltUnaryFn fn, B body)
{
    switch (fn) {
#define F(id, name, y)                                                                             \
    case DLT_FN_##id:                                                                              \
        body(std::integral_constant<int, DLT_FN_##id>());                                          \
        break;
        DLT_UNARY_TABLE(F)
#undef F
    default:
        body(std::integral_constant<int, DLT_FN_NONE>());
        break;
    }
}

/* One value at a time, for epilogues. */
__device__ __forceinline__ float act_any(DltUnary u, float x)
{
    float y = x;
    with_fn(u.fn, [&](auto fn) { y = act<decltype(fn)::value>(x, (float)u.alpha); });
    return y;
}
__device__ __forceinline__ float act_grad_any(DltUnary u, float s)
{
    float d = 1.0f;
    with_fn(u.fn, [&](auto fn) { d = act_grad<decltype(fn)::value>(s, (float)u.alpha); });
    return d;
}

#endif
