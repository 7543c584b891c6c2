/* What updates are made of, for the kernels of update.cu and the chains of chain.cu: four elements at a
 * time, the rules of each optimizer, and the coefficients of an update. Formulas: ops/update_ops.h. */
#ifndef DLT_UPDATE_CUH
#define DLT_UPDATE_CUH

#include "cuda/kernels/shape.cuh"
#include "cuda/kernels/sums.cuh"
#include "ops/step.h"
#include "ops/update_ops.h"

enum { GROUP = 4 };

/* Four neighbours at i of a tensor of any float type; the last group of a slab may be shorter. */
__device__ __forceinline__ void load4(In t, int64_t i, int64_t n, bool packed, float v[GROUP])
{
    if (packed && t.dtype == DLT_F32 && i + GROUP <= n) {
        float4 q = *reinterpret_cast<const float4 *>((const float *)t.p + i);
        v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
        return;
    }
    for (int k = 0; k < GROUP; k++)
        v[k] = i + k < n ? t[i + k] : 0.0f;
}
__device__ __forceinline__ void store4(Out t, int64_t i, int64_t n, bool packed,
                                       const float v[GROUP])
{
    if (packed && t.dtype == DLT_F32 && i + GROUP <= n) {
        *reinterpret_cast<float4 *>((float *)t.p + i) = make_float4(v[0], v[1], v[2], v[3]);
        return;
    }
    for (int k = 0; k < GROUP && i + k < n; k++)
        t.set(i + k, v[k]);
}

/* coef from loss f64[2], the gradients' sum of squares, states f64[1] or NULL, step: ops/update_ops.h. */
__device__ __forceinline__ void coef_of(const DltGradScale &a, const double *loss, double sumsq,
                                        const DltStepState *state, const double *states,
                                        float *coef)
{
    double weight = loss[1] * (double)state->loss_scale;
    double scale = loss[1] == 0 ? 0.0 : state->sample_weight / weight;
    double norm = sqrt(sumsq) * fabs(scale);
    bool finite = isfinite(loss[0]) && isfinite(loss[1]) && isfinite(sumsq) && isfinite(norm) &&
                  (!states || isfinite(*states));
    coef[DLT_COEF_NORM] = (float)norm;
    float mean = loss[1] == 0 ? 0.0f : (float)(loss[0] / loss[1]);
    bool spike = state->loss_limit > 0 && mean > state->loss_limit;
    coef[DLT_COEF_LOSS] = mean;
    coef[DLT_COEF_SKIP] = (float)(!finite ? DLT_SKIP_NONFINITE
                                  : spike ? DLT_SKIP_SPIKE
                                          : DLT_SKIP_NONE);
    if (a.clip > 0 && norm > (double)a.clip) scale *= (double)a.clip / norm;
    coef[DLT_COEF_SCALE] = (float)scale;
}

/* What an update rule sees of one element: w and its states are changed in place. */
struct Element {
    float w, g;
    float s[3];
};
/* Attributes, with what the host can work out of them. */
struct Rates {
    DltUpdate u;
    double log_beta1, log_beta2;
};
/* Attributes and step, as floats of this launch. */
struct Now {
    float lr, wd, momentum, dampening, beta1, beta2, eps, alpha;
    float step, root; /* adam: lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
    bool first, nesterov, decoupled, centered;
};

struct Sgd {
    static constexpr int states = 1;
    static __device__ __forceinline__ void step(const Now &a, Element &e)
    {
        float g = e.g + a.wd * e.w, d = g;
        if (a.momentum != 0) {
            e.s[0] = a.first ? g : a.momentum * e.s[0] + (1.0f - a.dampening) * g;
            d = a.nesterov ? g + a.momentum * e.s[0] : e.s[0];
        }
        e.w -= a.lr * d;
    }
};
struct Adam {
    static constexpr int states = 2;
    static __device__ __forceinline__ void step(const Now &a, Element &e)
    {
        float g = a.decoupled ? e.g : e.g + a.wd * e.w;
        if (a.decoupled) e.w -= a.lr * a.wd * e.w;
        e.s[0] = a.beta1 * e.s[0] + (1.0f - a.beta1) * g;
        e.s[1] = a.beta2 * e.s[1] + (1.0f - a.beta2) * g * g;
        e.w -= a.step * e.s[0] / (sqrtf(e.s[1]) * a.root + a.eps);
    }
};
/* States sq, buf (momentum), ga (centered); each has its place. */
struct RmsProp {
    static constexpr int states = 3;
    static __device__ __forceinline__ void step(const Now &a, Element &e)
    {
        float g = e.g + a.wd * e.w;
        e.s[0] = a.alpha * e.s[0] + (1.0f - a.alpha) * g * g;
        float square = e.s[0];
        if (a.centered) {
            e.s[2] = a.alpha * e.s[2] + (1.0f - a.alpha) * g;
            square -= e.s[2] * e.s[2];
        }
        float d = g / (sqrtf(square) + a.eps);
        if (a.momentum != 0) d = e.s[1] = a.momentum * e.s[1] + d;
        e.w -= a.lr * d;
    }
};
struct Adagrad { /* lr holds lr / (1 + (t - 1) lr_decay) */
    static constexpr int states = 1;
    static __device__ __forceinline__ void step(const Now &a, Element &e)
    {
        float g = e.g + a.wd * e.w;
        e.s[0] += g * g;
        e.w -= a.lr * g / (sqrtf(e.s[0]) + a.eps);
    }
};
struct Lion {
    static constexpr int states = 1;
    static __device__ __forceinline__ void step(const Now &a, Element &e)
    {
        float c = a.beta1 * e.s[0] + (1.0f - a.beta1) * e.g;
        e.w -= a.lr * a.wd * e.w;
        e.w -= a.lr * (c > 0 ? 1.0f : c < 0 ? -1.0f : 0.0f);
        e.s[0] = a.beta2 * e.s[0] + (1.0f - a.beta2) * e.g;
    }
};

__device__ static Now now_of(const Rates &a, const DltStepState *state)
{
    Now n = {};
    double t = (double)state->update, lr = (double)state->lr * a.u.lr_factor;
    n.lr = (float)(lr / (1.0 + (t - 1.0) * a.u.lr_decay)); /* lr_decay: adagrad only, else 0 */
    n.wd = (float)a.u.weight_decay;
    n.momentum = (float)a.u.momentum;
    n.dampening = (float)a.u.dampening;
    n.beta1 = (float)a.u.beta1;
    n.beta2 = (float)a.u.beta2;
    n.eps = (float)a.u.eps;
    n.alpha = (float)a.u.alpha;
    float correct1 = -expm1f((float)(t * a.log_beta1)); /* 1 - beta^t, to rounding and cheaply */
    float correct2 = -expm1f((float)(t * a.log_beta2));
    n.step = n.lr / correct1;
    n.root = 1.0f / sqrtf(correct2);
    n.first = state->update <= 1;
    n.nesterov = a.u.nesterov;
    n.decoupled = a.u.decoupled;
    n.centered = a.u.centered;
    return n;
}

struct Slabs {
    Out w, s[3], low;
    In g;
    int64_t n;
    bool packed;
};

#endif
