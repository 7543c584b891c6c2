/* What the kernels of cross entropy share: a row's place and weight. Formulas: ops/loss_ops.h. */
#ifndef DLT_CROSS_ENTROPY_CUH
#define DLT_CROSS_ENTROPY_CUH

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
    int64_t rows, n, per_sample; /* n: classes */
    float smoothing;
    int32_t ignore;
};

static inline Rows rows_of(const DltCall *c)
{
    const DltNode *n = c->node;
    const DltCrossEntropy *a = (const DltCrossEntropy *)n->attr;
    Rows d = {count_of(n->in[1]), last_dim(n->in[0]), 1, a->smoothing, a->ignore};
    int64_t samples = n->in[2] ? count_of(n->in[2]) : d.rows;
    d.per_sample = samples ? d.rows / samples : 1;
    return d;
}

/* Scratch of the sum of losses and weights over a grid. */
static inline DltStatus prepare_loss(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)n, (void)err;
    p->work_bytes = sum_bytes(dev->n_sm, 2);
    return DLT_OK;
}

#endif
