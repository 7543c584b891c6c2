/* cuBLASLt behind a small door: a problem in row-major terms is prepared once (descriptors built,
 * algorithms measured, the fastest kept) and run many times. */
#ifndef DLT_CUDA_LT_H
#define DLT_CUDA_LT_H

#include "cuda/cuda.h"

/* c[i] = op(a[i]) op(b[i]) (+ bias, relu), i < batch, or c[i] += that (add); all row-major and dense; strides between
 * batches are the matrices' sizes. */
typedef struct DltLtProblem {
    DltDtype ab, c, bias_dtype;
    bool ta, tb, bias, relu, add;
    int64_t batch, m, n, k;
    uint32_t align_a, align_b, align_c, align_bias; /* bytes, powers of two up to 256 */
} DltLtProblem;

typedef struct DltLtPlan DltLtPlan;

/* Opens the library and makes the handle on first use; false with the reason. */
bool dlt_lt_open(DltDevice *dev, DltWhy *why_not);
void dlt_lt_close(DltDevice *dev);
/* "cuBLASLt 13.0.2" once it is open. */
const char *dlt_lt_version(const DltDevice *dev);

/* Whether the library offers an algorithm at all. */
bool dlt_lt_can(DltDevice *dev, const DltLtProblem *p, DltWhy *why_not);
/* The plan lives in the arena and is released with it. work_bytes: scratch of the chosen algorithm.
 */
DltStatus dlt_lt_prepare(DltDevice *dev, DltArena *arena, const DltLtProblem *p, DltLtPlan **plan,
                         size_t *work_bytes, DltErr *err);
/* Enqueues on the call's lane. bias: NULL unless the problem has one. */
DltStatus dlt_lt_run(DltLtPlan *plan, const DltCall *call, const void *a, const void *b, void *c,
                     const void *bias, DltErr *err);

#endif
