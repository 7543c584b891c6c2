/* Rows of the kernel lists, and what stands between the executor and their functions: scratch is
 * noted when a node is prepared, and while a step is recorded each call is put on a branch
 * (branch.c). */
#ifndef DLT_CUDA_BRANCH_H
#define DLT_CUDA_BRANCH_H

#include "cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef DltStatus (*DltCudaLaunch)(const DltCall *c, DltErr *err);
DltStatus dlt_cuda_launch(const DltCall *c, DltCudaLaunch launch, DltErr *err);
DltStatus dlt_cuda_prepare(const DltNode *n, DltDevice *dev, DltPrep *p,
                           DltStatus (*prepare)(const DltNode *n, DltDevice *dev, DltPrep *p,
                                                DltErr *err),
                           DltErr *err);

/* Defines the row `id`, for this file alone or for others too. prepare_fn may be NULL. */
#define DLT_CUDA_KERNEL(id, ...)                                                                   \
    DLT_CUDA_WRAPPED(id, __VA_ARGS__);                                                             \
    static const DltKernel id = DLT_CUDA_ROW(id, __VA_ARGS__)
#define DLT_CUDA_KERNEL_EXPORTED(id, ...)                                                          \
    DLT_CUDA_WRAPPED(id, __VA_ARGS__);                                                             \
    extern const DltKernel id;                                                                     \
    const DltKernel id = DLT_CUDA_ROW(id, __VA_ARGS__)
#define DLT_CUDA_ROW(id, text, accepts_fn, prepare_fn, launch_fn)                                  \
    {                                                                                              \
        text, accepts_fn, id##_prepared, id##_launched                                             \
    }
#define DLT_CUDA_WRAPPED(id, text, accepts_fn, prepare_fn, launch_fn)                              \
    static DltStatus id##_prepared(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)      \
    {                                                                                              \
        return dlt_cuda_prepare(n, dev, p, prepare_fn, err);                                       \
    }                                                                                              \
    static DltStatus id##_launched(const DltCall *c, DltErr *err)                                  \
    {                                                                                              \
        return dlt_cuda_launch(c, launch_fn, err);                                                 \
    }                                                                                              \
    static DltStatus id##_launched(const DltCall *c, DltErr *err)

/* Before the first recording: makes the streams. */
DltStatus dlt_cuda_branches_prepare(DltDevice *dev, DltErr *err);
/* Behind cudaStreamBeginCapture on lane 0. */
DltStatus dlt_cuda_branches_begin(DltDevice *dev, DltErr *err);
/* Lane 0 waits for all branches. */
DltStatus dlt_cuda_branches_join(DltDevice *dev, DltErr *err);
/* Before something else than a kernel call is recorded: the rest of the recording stays on lane 0.
 */
DltStatus dlt_cuda_branches_barrier(DltDevice *dev, DltErr *err);
void dlt_cuda_branches_close(DltDevice *dev);

#ifdef __cplusplus
}
#endif

#endif
