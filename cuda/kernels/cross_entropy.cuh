/* One row of cross entropy: what its loss and gradient follow from. Formulas: ops/loss_ops.h. */
#ifndef DLT_CROSS_ENTROPY_CUH
#define DLT_CROSS_ENTROPY_CUH

#include "cuda/kernels/rows.cuh"
#include "ops/loss_ops.h"
#include "ops/step.h"

/* What the gradient is multiplied by: ops/loss_ops.h. */
__device__ __forceinline__ float gradient_scale(const DltStepState *step)
{
    return (float)((double)step->loss_scale / step->sample_weight);
}

struct Rows {
    int64_t rows, n, per_sample; /* n: classes */
    float smoothing;
    int32_t ignore;
};

/* What a row needs to know, in all its threads. */
struct RowTerms {
    float lse, q, smooth_q,
        smooth_class; /* log-sum-exp; weights of nll(y) and of the smooth part */
    double loss, weight;
    int64_t y;
    bool counts;
};

/* sum += w ((1 - s) cw[y] nll(y) + s / V sum_v cw[v] nll(v)), weight += w cw[y]; cw NULL: ones. A
 * label outside [0, V) that is not `ignore` makes the loss NaN. */
template <typename T, int W>
__device__ __forceinline__ RowTerms row_terms(const Rows &d, const T *x, const int32_t *y, In w,
                                              In cw, int64_t r)
{
    using R = Row<W>;
    RowTerms t = {};
    int32_t label = y[r];
    float sample = w.p ? w[r / d.per_sample] : 1.0f, m = -INFINITY, e = 0, sx = 0, sc = 0;
    t.counts = label != d.ignore;
    bool bad = t.counts && (label < 0 || label >= d.n);
    t.y = bad || !t.counts ? 0 : label;
    float xy = to_float(x[t.y]), cy = cw.p ? cw[t.y] : 1.0f;
    for (int64_t i = R::lane(); i < d.n; i += W)
        m = fmaxf(m, to_float(x[i]));
    m = R::max(m);
    for (int64_t i = R::lane(); i < d.n; i += W) {
        float v = to_float(x[i]), c = cw.p ? cw[i] : 1.0f;
        e += expf(v - m);
        sc += c;
        sx += c * v;
    }
    t.lse = m + logf(R::sum(e));
    t.smooth_class = 1;
    if (d.smoothing > 0) {
        sc = R::sum(sc);
        sx = R::sum(sx);
        t.smooth_class = sc;
    }
    t.q = sample * (1.0f - d.smoothing) * cy;
    t.smooth_q = sample * d.smoothing / (float)d.n;
    if (t.counts) {
        t.loss = (double)(t.q * (t.lse - xy));
        if (d.smoothing > 0) t.loss += (double)(t.smooth_q * (t.lse * sc - sx));
        t.weight = (double)(sample * cy);
    }
    if (sample == 0.0f) t.loss = 0; /* padding rows count nothing, whatever lies in them */
    if (bad) t.loss = (double)NAN;
    return t;
}

/* d_v = scale (q (p_v - [v = y]) + smooth_q (cw_sum p_v - cw_v)); to may be the logits' memory. */
template <typename T, typename G, int W>
__device__ __forceinline__ void row_gradient(const Rows &d, const RowTerms &t, const T *x, In cw,
                                             float scale, G *to)
{
    float q = t.counts ? t.q * scale : 0.0f, sq = t.counts ? t.smooth_q * scale : 0.0f;
    for (int64_t i = Row<W>::lane(); i < d.n; i += W) {
        float p = expf(to_float(x[i]) - t.lse), c = cw.p ? cw[i] : 1.0f;
        float g = q * (p - (i == t.y ? 1.0f : 0.0f));
        if (d.smoothing > 0) g += sq * (t.smooth_class * p - c);
        to[i] = from_float<G>(q == 0.0f && sq == 0.0f ? 0.0f : g);
    }
}

#endif
