/* Scaled dot-product attention by cuDNN behind a small door: forward and backward over an
 * interleaved buffer, as ops/attention.h defines them. A shape's plan is made once and shared by
 * all nodes of that shape, because the library compiles its kernel at run time (half a second). */
#ifndef DLT_CUDA_SDPA_H
#define DLT_CUDA_SDPA_H

#include "cuda/cuda.h"

/* qkv [b, t, 3 h d], o [b, t, h d], stats f32 [b, h, t]. */
typedef struct DltSdpaProblem {
    bool backward, causal;
    bool
        deterministic; /* BWD: dq is summed in one order, at the price of b h t t elements scratch */
    DltDtype dtype;    /* BF16 or F16 */
    int64_t b, h, t, d;
    float scale;
} DltSdpaProblem;

/* FWD reads qkv, writes o and stats; BWD reads d_o, qkv, o, stats, writes dqkv. */
typedef struct DltSdpaArgs {
    char *qkv, *o, *stats, *d_o, *dqkv, *work;
} DltSdpaArgs;

typedef struct DltSdpaPlan DltSdpaPlan;

/* Whether the library offers an engine for the problem. The answer is remembered. */
bool dlt_sdpa_can(DltDevice *dev, const DltSdpaProblem *p, DltWhy *why_not);
/* The plan is released with the arena. */
DltStatus dlt_sdpa_prepare(DltDevice *dev, DltArena *arena, const DltSdpaProblem *p,
                           DltSdpaPlan **plan, size_t *work_bytes, DltErr *err);
/* Enqueues on the call's lane. */
DltStatus dlt_sdpa_run(DltSdpaPlan *plan, const DltCall *call, const DltSdpaArgs *args,
                       DltErr *err);

#endif
