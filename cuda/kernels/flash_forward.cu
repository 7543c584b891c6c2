/* attention_fwd on Hopper (flash_forward.cuh), whose instructions this file is compiled for (Makefile); refused
 * elsewhere, and where it was not measured. ops/attention.h */
#include "cuda/kernels/kernels.h"
#include "ops/attention.h"
#ifndef DLT_EMULATED
#include "cuda/kernels/flash_forward.cuh"
#include "cuda/kernels/tensor_map.cuh"
#else
#include "cuda/kernels/prim.cuh"
#endif

namespace
{

#ifdef DLT_EMULATED

static bool fits(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)n, (void)dev;
    return dlt_cuda_refuse(why_not, "an emulated device");
}
static DltStatus forward(const DltCall *c, DltErr *err)
{
    return dlt_err_at(err, DLT_E_BUG, c->node->at, "Hopper's attention on an emulated device");
}

#else

namespace ff = flash_forward;

static bool fits(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltAttention *a = (const DltAttention *)n->attr;
    int64_t batch = n->in[0]->shape.dim[0], t = n->in[0]->shape.dim[1];
    if (dev->capability != 90) return dlt_cuda_refuse(why_not, "for compute capability 9.0");
    if (a->head_dim != ff::D)
        return dlt_cuda_refuse(why_not, "heads of width %lld, not %d", (long long)a->head_dim,
                               (int)ff::D);
    if (t % ff::KEYS != 0 || batch * t * a->heads > INT32_MAX)
        return dlt_cuda_refuse(why_not, "%lld tokens: a multiple of %d is needed", (long long)t,
                               (int)ff::KEYS);
    if (dev->shared_bytes < sizeof(ff::Tiles))
        return dlt_cuda_refuse(why_not, "too little shared memory");
    return tensor_map_encoder() ||
           dlt_cuda_refuse(why_not, "the driver describes no matrices to the copy engine");
}

static DltStatus forward(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    const DltAttention *a = (const DltAttention *)n->attr;
    int64_t batch = n->in[0]->shape.dim[0], t = n->in[0]->shape.dim[1];
    int64_t width = a->heads * ff::D;
    DltDtype type = n->in[0]->dtype;
    CUtensorMap qkv, o;
    ff::Forward p;
    p.batch = (int)batch, p.heads = (int)a->heads, p.tiles = (int)(t / ff::KEYS);
    p.scale2 = (float)a->scale * ff::LOG2E, p.lse = (float *)c->out[1];
    DLT_TRY(tensor_map(c, Matrix{c->in[0], type, batch * t, 3 * width, ff::QUERIES}, &qkv, err));
    DLT_TRY(tensor_map(c, Matrix{c->out[0], type, batch * t, width, ff::WARP_ROWS}, &o, err));
    return enqueue(c, err, ff::forward_k<bf16>, (unsigned)c->stream->dev->n_sm, ff::THREADS,
                   sizeof(ff::Tiles), qkv, o, p);
}
#endif
} // namespace

extern "C" {
static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltAttention *a = (const DltAttention *)n->attr;
    DltDtype type = n->in[0]->dtype;
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (type != DLT_BF16)
        return dlt_cuda_refuse(why_not, "%s: bf16 is what was measured", dlt_dtype_name(type));
    if (n->out[0]->dtype != type || n->out[1]->dtype != DLT_F32)
        return dlt_cuda_refuse(why_not, "tensors differ in type");
    if (a->drop.p > 0 || a->kv_heads != a->heads || a->window > 0 || !a->causal)
        return dlt_cuda_refuse(why_not, "dropout, grouped queries, a window or no mask");
    return fits(n, dev, why_not);
}
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_attention_fwd_hopper, "attention_fwd.cuda.hopper", accepts,
                         nullptr, forward);
}
