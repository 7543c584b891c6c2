/* What the files of the CUDA backend share: the device, its lanes and the checks around every
 * call. Valid C17 and C++17, because the kernels' .cu files read it too. Nothing outside cuda/
 * includes it. */
#ifndef DLT_CUDA_H
#define DLT_CUDA_H

#include "api/backend.h"
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct DltLt DltLt;       /* lt.h: cuBLASLt */
typedef struct DltDnn DltDnn;     /* dnn.h: cuDNN */
typedef struct DltTune DltTune;   /* choices.c: measured choices, kept on disk */
typedef struct DltWatch DltWatch; /* tune.c: the stop watch */

/* Counters of the "last block finishes" reductions: zero between kernels, one set per lane, so two
 * kernels that run at the same time never share one. */
enum { DLT_CUDA_TICKETS = 4096 };

struct DltStream {
    cudaStream_t handle;
    cudaEvent_t event; /* recorded when another lane has to wait for this one */
    unsigned *ticket;  /* device memory, [DLT_CUDA_TICKETS], zero */
    DltDevice *dev;
    int lane;
    bool joined; /* the next kernel waits for other streams too: no overlap with the one before */
};

typedef struct DltCudaRegion {
    void *ptr;
    struct DltCudaRegion *next;
} DltCudaRegion;
typedef struct DltCudaProgram DltCudaProgram; /* record.c */
typedef struct DltBranches DltBranches;       /* branch.c */

struct DltDevice {
    DltArena *arena;
    DltDeviceOptions option;
    int index, n_sm, capability; /* capability: 90 for 9.0 */
    int driver, runtime;         /* 13000 for 13.0 */
    size_t memory_bytes, l2_bytes;
    size_t shared_bytes; /* a block may have, after asking */
    char name[128];
    bool overlap; /* programmatic dependent launch: the next kernel's start hides behind this one */
    bool recording, closed;
    DltStream lane[DLT_LANES];
    DltCudaRegion *region;
    DltCudaProgram *program;
    DltBranches *branches;
    DltLt *lt;
    DltDnn *dnn;
    DltTune *tune;
    DltWatch *watch;
};

/* DLT_OK, or a DEVICE report (RESOURCE for missing memory) that names `what` and CUDA's reason. The
 * runtime's stored error is cleared. */
DltStatus dlt_cuda_check(cudaError_t e, DltMark at, const char *what, DltErr *err);
/* After a kernel launch of `call`: names node, op and reason. */
DltStatus dlt_cuda_launched(const DltCall *call, cudaError_t e, DltErr *err);

/* Device memory of the device: zeroed, freed by dlt_cuda_release or with the device. */
DltStatus dlt_cuda_alloc(DltDevice *dev, size_t bytes, void **ptr, DltErr *err);
void dlt_cuda_release(DltDevice *dev, void *ptr);

/* lanes.c */
/* Blocks of an urgent stream's kernels are placed before those of others. */
cudaError_t dlt_cuda_new_stream(cudaStream_t *stream, bool urgent);
DltStatus dlt_cuda_lanes_open(DltDevice *dev, DltErr *err);
void dlt_cuda_lanes_close(DltDevice *dev);
DltStream *dlt_cuda_stream(DltDevice *dev, int lane);
DltStatus dlt_cuda_upload(DltStream *s, void *dst, const void *src, size_t bytes, DltErr *err);
DltStatus dlt_cuda_download(DltStream *s, void *dst, const void *src, size_t bytes, DltErr *err);
DltStatus dlt_cuda_zero(DltStream *s, void *dst, size_t bytes, DltErr *err);
DltStatus dlt_cuda_wait(DltDevice *dev, int lane, int other, DltErr *err);
DltStatus dlt_cuda_sync(DltDevice *dev, DltErr *err);

/* record.c */
DltStatus dlt_cuda_record_begin(DltDevice *dev, DltErr *err);
DltStatus dlt_cuda_record_end(DltDevice *dev, void **program, DltErr *err);
DltStatus dlt_cuda_replay(DltDevice *dev, void *program, DltErr *err);
void dlt_cuda_programs_close(DltDevice *dev);

/* kernels/probe.cu: cudaSuccess when this build holds code for the current device. */
cudaError_t dlt_cuda_probe(void);
/* kernels/fill.cu: dst[i] = pseudo-random values in [-1, 1) of a dtype (what timing runs on). */
cudaError_t dlt_cuda_fill(cudaStream_t stream, void *dst, int64_t n, DltDtype dtype, uint32_t seed);

/* Acceptance rules of the kernel lists. Each refusal says why. */
/* Float tensors f32, bf16 or f16 (f64 where the op defines it so), any mix; layouts PLAIN or NHWC.
 */
bool dlt_cuda_accepts_any(const DltNode *n, const DltDevice *dev, DltWhy *why_not);
/* The same, and every rank-4 tensor has the layout of in[0]. */
bool dlt_cuda_accepts_same_layout(const DltNode *n, const DltDevice *dev, DltWhy *why_not);
/* The same, and all tensors are PLAIN. */
bool dlt_cuda_accepts_plain(const DltNode *n, const DltDevice *dev, DltWhy *why_not);
/* The largest power of two up to 256 that divides a tensor's address, and that of a place in it. */
uint32_t dlt_cuda_alignment(const DltTensor *t);
uint32_t dlt_cuda_alignment_at(const DltTensor *t, int64_t element);
bool dlt_cuda_refuse(DltWhy *why_not, const char *fmt, ...) DLT_PRINTF(2, 3);

#define OP(name) extern const DltKernel *const dlt_cuda_##name[];
#include "ops/ops.def"
#undef OP

#ifdef __cplusplus
}
#endif

#endif
