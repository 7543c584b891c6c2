/* Attention through cuDNN (sdpa.c), and the lists of all attention kernels. The library takes 16-bit
 * operands, one key head for each query head and no dropout (its random numbers are not ours: a mask
 * must be the same on every device); the own kernels serve the rest. */
#include "ops/attention.h"
#include "cuda/branch.h"
#include "cuda/sdpa.h"

enum { MAX_LIBRARY_DIM = 128, DIM_STEP = 8 };

static const DltTensor *buffer_of(const DltNode *n)
{
    return n->kind == DLT_OP_attention_bwd ? n->in[1] : n->in[0];
}

static DltSdpaProblem problem_of(const DltNode *n, const DltDevice *dev)
{
    const DltAttention *a = n->attr;
    const DltTensor *qkv = buffer_of(n);
    return (DltSdpaProblem){.backward = n->kind == DLT_OP_attention_bwd,
                            .causal = a->causal,
                            .deterministic = dev->option.deterministic,
                            .dtype = qkv->dtype,
                            .b = qkv->shape.dim[0],
                            .h = a->heads,
                            .t = qkv->shape.dim[1],
                            .d = a->head_dim,
                            .scale = (float)a->scale};
}

/* kernels/attention.cu, and flash.cu, flash_forward.cu, flash_hopper.cu beside it */
extern const DltKernel dlt_cuda_attention_fwd_plain, dlt_cuda_attention_bwd_plain;
extern const DltKernel dlt_cuda_attention_fwd_flash, dlt_cuda_attention_bwd_flash;
extern const DltKernel dlt_cuda_attention_fwd_hopper, dlt_cuda_attention_bwd_hopper;

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltAttention *a = n->attr;
    const DltTensor *qkv = buffer_of(n);
    if (!dlt_cuda_attention_fwd_plain.accepts(n, dev, why_not)) return false;
    if (qkv->dtype != DLT_BF16 && qkv->dtype != DLT_F16)
        return dlt_cuda_refuse(why_not, "cuDNN's attention takes 16-bit types, not %s",
                               dlt_dtype_name(qkv->dtype));
    if (a->drop.p > 0) return dlt_cuda_refuse(why_not, "dropout by our own random numbers");
    if (a->kv_heads != a->heads) return dlt_cuda_refuse(why_not, "grouped queries");
    if (a->window > 0) return dlt_cuda_refuse(why_not, "a window");
    if (a->head_dim % DIM_STEP != 0 || a->head_dim > MAX_LIBRARY_DIM)
        return dlt_cuda_refuse(why_not, "heads of width %lld: a multiple of %d up to %d is needed",
                               (long long)a->head_dim, DIM_STEP, MAX_LIBRARY_DIM);
    DltSdpaProblem p = problem_of(n, dev);
    return dlt_sdpa_can((DltDevice *)(uintptr_t)dev, &p, why_not);
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *prep, DltErr *err)
{
    DltSdpaPlan *plan = NULL;
    DltSdpaProblem p = problem_of(n, dev);
    DLT_TRY(dlt_sdpa_prepare(dev, prep->arena, &p, &plan, &prep->work_bytes, err));
    prep->state = plan;
    return DLT_OK;
}

static DltStatus forward(const DltCall *c, DltErr *err)
{
    DltSdpaArgs a = {.qkv = c->in[0], .o = c->out[0], .stats = c->out[1], .work = c->work};
    return dlt_sdpa_run((DltSdpaPlan *)(uintptr_t)c->state, c, &a, err);
}

static DltStatus backward(const DltCall *c, DltErr *err)
{
    DltSdpaArgs a = {.d_o = c->in[0],
                     .qkv = c->in[1],
                     .o = c->in[2],
                     .stats = c->in[3],
                     .dqkv = c->out[0],
                     .work = c->work};
    return dlt_sdpa_run((DltSdpaPlan *)(uintptr_t)c->state, c, &a, err);
}

DLT_CUDA_KERNEL(fwd, "attention_fwd.cuda.dnn", accepts, prepare, forward);
DLT_CUDA_KERNEL(bwd, "attention_bwd.cuda.dnn", accepts, prepare, backward);

const DltKernel *const dlt_cuda_attention_fwd[] = {&dlt_cuda_attention_fwd_hopper, &fwd,
                                                   &dlt_cuda_attention_fwd_flash,
                                                   &dlt_cuda_attention_fwd_plain, NULL};
const DltKernel *const dlt_cuda_attention_bwd[] = {&dlt_cuda_attention_bwd_hopper, &bwd,
                                                   &dlt_cuda_attention_bwd_flash,
                                                   &dlt_cuda_attention_bwd_plain, NULL};
