/* cuDNN's backend interface behind a small door: a convolution is described once, its engines are
 * measured, the fastest becomes a plan that is run many times. Images are NHWC, filters [K, R, S,
 * C/groups] in memory, everything of one type. */
#ifndef DLT_CUDA_DNN_H
#define DLT_CUDA_DNN_H

#include "cuda/cuda.h"

typedef enum DltDnnKind { DLT_DNN_FWD, DLT_DNN_DATA, DLT_DNN_FILTER } DltDnnKind;

/* x [n, c, h, w], w [k, c / groups, r, s], y [n, k, p, q]: the forward operands whatever the kind
 * computes. */
typedef struct DltDnnProblem {
    DltDnnKind kind;
    DltDtype dtype; /* F32 (tf32 when the device allows it), BF16 or F16 */
    int64_t n, c, h, w, k, p, q, r, s, groups;
    int64_t stride[2], dilation[2], pad[4]; /* top, bottom, left, right */
    bool bias_relu;                         /* FWD: y = relu(conv + bias), bias [k] of dtype */
} DltDnnProblem;

typedef struct DltDnnPlan DltDnnPlan;

/* Opens the library and makes the handle on first use; false with the reason. */
bool dlt_dnn_open(DltDevice *dev, DltWhy *why_not);
void dlt_dnn_close(DltDevice *dev);
/* "cuDNN 9.19.0" once it is open. */
const char *dlt_dnn_version(const DltDevice *dev);

/* Whether the library offers an engine that is allowed here (precompiled; deterministic and precise
 * as the device's options say). */
bool dlt_dnn_can(DltDevice *dev, const DltDnnProblem *p, DltWhy *why_not);
/* The plan lives in the arena and is released with it. */
DltStatus dlt_dnn_prepare(DltDevice *dev, DltArena *arena, const DltDnnProblem *p,
                          DltDnnPlan **plan, size_t *work_bytes, DltErr *err);
typedef struct DltDnnArgs {
    void *x, *w, *y, *bias, *work;
} DltDnnArgs;
/* Enqueues on the call's lane. */
DltStatus dlt_dnn_run(DltDnnPlan *plan, const DltCall *call, const DltDnnArgs *args, DltErr *err);

#endif
