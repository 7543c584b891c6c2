/* The faster of two ways to run a node, found once by timing both on random operands. */
#ifndef DLT_CUDA_TRIAL_H
#define DLT_CUDA_TRIAL_H

#include "cuda/branch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One way: what a kernel's row has, without what branch.h puts around it. */
typedef struct DltCudaWay {
    bool (*accepts)(const DltNode *n, const DltDevice *dev, DltWhy *why_not);
    DltStatus (*prepare)(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err); /* or NULL */
    DltCudaLaunch launch;
} DltCudaWay;

/* For the row of both: prepares them and times them, or takes the choice stored under `key`. prep->state
 * is dlt_cuda_two_launch's. */
DltStatus dlt_cuda_two_prepare(const DltNode *n, DltDevice *dev, DltPrep *prep,
                               const DltCudaWay way[2], const char *key, DltErr *err);
DltStatus dlt_cuda_two_launch(const DltCall *c, DltErr *err);

#ifdef __cplusplus
}
#endif

#endif
