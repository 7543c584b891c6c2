/* What the kernels of cross entropy share: a row's place and weight. Formulas: ops/loss_ops.h. */
#ifndef DLT_CROSS_ENTROPY_CUH
#define DLT_CROSS_ENTROPY_CUH

#include "cuda/kernels/kernels.h"
#include "cuda/kernels/rows.cuh"
#include "cuda/kernels/sums.cuh"
#include "ops/loss_ops.h"
#include "ops/step.h"

/* What the gradient is multiplied by: ops/loss_ops.h. */
__device__ __forceinline__ float gradient_scale(const DltStepState *step)
{
    return (float)((double)step->loss_scale / step->sample_weight);
}

struct Rows {
    int64_t rows, n, per_sample, first; /* n: classes; first: rows in front of these in the batch */
    float smoothing;
    int32_t ignore;
    bool add; /* to the loss that is there */
    __device__ __forceinline__ float sample_weight(In w, int64_t r) const
    {
        int64_t at = first + r;
        if (!w.p) return 1.0f;
        return w[at >> 31 == 0 && per_sample >> 31 == 0 ? (uint32_t)at / (uint32_t)per_sample
                                                        : at / per_sample];
    }
};

static inline Rows rows_of(const DltCall *c)
{
    const DltNode *n = c->node;
    const DltCrossEntropy *a = (const DltCrossEntropy *)n->attr;
    Rows d = {count_of(n->in[1]), last_dim(n->in[0]), 1, 0, a->smoothing, a->ignore, false};
    int64_t samples = n->in[2] ? count_of(n->in[2]) : d.rows;
    d.per_sample = samples ? d.rows / samples : 1;
    return d;
}
static inline Rows rows_of(const DltCudaRowLoss &l)
{
    return Rows{l.rows, l.classes, l.per_sample, l.first, 0.0f, l.ignore, l.add};
}

/* One thread of the grid leaves the sum and weight of its rows. */
__device__ __forceinline__ void store_loss(const Rows &d, double *loss, const double *sum)
{
    for (int k = 0; k < 2; k++)
        loss[k] = d.add ? loss[k] + sum[k] : sum[k];
}

/* What a kernel works on: logits [rows, V], y, w, step -> loss f64[2], dlogits; loss or dlogits may be missing. */
struct RowTask {
    Rows d;
    DltCudaArray logits, dlogits;
    const int32_t *y;
    In w, class_w;
    const DltStepState *step;
    double *loss, *part;
};
static inline RowTask task_of(const DltCall *c, double *loss, void *dlogits)
{
    DltTensor *const *in = c->node->in;
    return RowTask{rows_of(c),
                   {c->in[0], in[0]->dtype},
                   {dlogits, c->node->out[0]->dtype},
                   (const int32_t *)c->in[1],
                   input(c, 2),
                   input(c, 3),
                   (const DltStepState *)c->in[4],
                   loss,
                   (double *)c->work};
}
static inline RowTask task_of(const DltCudaRowLoss &l)
{
    return RowTask{rows_of(l),
                   l.logits,
                   l.logits,
                   l.y,
                   {l.w.ptr, (int)l.w.dtype},
                   {nullptr, DLT_F32},
                   (const DltStepState *)l.step,
                   l.loss,
                   l.part};
}

/* Scratch of the sum of losses and weights over a grid. */
static inline DltStatus prepare_loss(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)n, (void)err;
    p->work_bytes = sum_bytes(dev->n_sm, 2);
    return DLT_OK;
}

#endif
