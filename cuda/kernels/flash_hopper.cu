/* attention_bwd on Hopper (flash_hopper.cuh), whose instructions this file is compiled for (Makefile); refused
 * elsewhere, and where cuDNN is faster: a block takes whole heads, so that a few heads would leave most of the
 * device idle. ops/attention.h */
#include "cuda/kernels/kernels.h"
#include "ops/attention.h"
#ifndef DLT_EMULATED
#include "cuda/kernels/flash_hopper.cuh"
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
static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)n, (void)dev, (void)p, (void)err;
    return DLT_OK;
}
static DltStatus backward(const DltCall *c, DltErr *err)
{
    return dlt_err_at(err, DLT_E_BUG, c->node->at, "Hopper's attention on an emulated device");
}

#else

namespace fh = flash_hopper;
/* stats [B H, T] and delta = sum(d_o o) to [B H, T / 64, 2, 64]; o, d_o [B T, H 64]. A warp takes 32 rows of a
 * head, 8 lanes a row. */
template <typename T>
__global__ void __launch_bounds__(BLOCK) stats_k(const T *o, const T *d_o, const float *stats,
                                                 float *out, int batch, int heads, int tiles)
{
    begin();
    int lane = (int)threadIdx.x % WARP, t = tiles * fh::KEYS;
    int64_t unit = (int64_t)blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP;
    if (unit >= (int64_t)batch * heads * (t / 32)) return;
    int head = (int)(unit % heads);
    int64_t rest = unit / heads;
    int b = (int)(rest / (t / 32)), row = (int)(rest % (t / 32)) * 32;
    int64_t from = (((int64_t)b * t + row + lane / 8) * heads + head) * fh::D + lane % 8 * 8;
    Pack<T> x[8], y[8];
    float mine = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x[i] = load_pack(o + from + (int64_t)i * 4 * heads * fh::D);
        y[i] = load_pack(d_o + from + (int64_t)i * 4 * heads * fh::D);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < 8; k++)
            sum += to_float(x[i].v[k]) * to_float(y[i].v[k]);
        for (int k = 4; k > 0; k /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, k);
        sum = __shfl_sync(0xffffffffu, sum, lane % 4 * 8);
        if (lane / 4 == i) mine = sum;
    }
    int64_t bh = (int64_t)b * heads + head;
    float *to = out + (bh * t + row / 64 * 64) * 2 + row % 64 + lane;
    to[0] = stats[bh * t + row + lane] * -fh::LOG2E;
    to[fh::QUERIES] = mine;
}

enum { MOST_TOKENS = 2048 /* longer ones were not measured */ };

static int64_t heads_of(const DltNode *n)
{
    return n->in[1]->shape.dim[0] * ((const DltAttention *)n->attr)->heads;
}
static int64_t blocks_of(const DltNode *n, const DltDevice *dev)
{
    int64_t heads = heads_of(n);
    return heads < dev->n_sm ? heads : dev->n_sm;
}

/* At least half of the device must have a head to work at: cuDNN, which divides heads, needs about twice the time
 * of a block for each. */
static bool fits(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltAttention *a = (const DltAttention *)n->attr;
    int64_t t = n->in[1]->shape.dim[1];
    if (dev->capability != 90) return dlt_cuda_refuse(why_not, "for compute capability 9.0");
    if (a->head_dim != fh::D)
        return dlt_cuda_refuse(why_not, "heads of width %lld, not %d", (long long)a->head_dim,
                               (int)fh::D);
    if (t % fh::KEYS != 0 || t > MOST_TOKENS)
        return dlt_cuda_refuse(why_not, "%lld tokens: a multiple of %d up to %d is needed",
                               (long long)t, (int)fh::KEYS, (int)MOST_TOKENS);
    if (2 * heads_of(n) < dev->n_sm)
        return dlt_cuda_refuse(why_not, "%lld heads for %d multiprocessors: the library is faster",
                               (long long)heads_of(n), dev->n_sm);
    if (n->in[1]->shape.dim[0] * t > INT32_MAX)
        return dlt_cuda_refuse(why_not, "more than 2^31 rows");
    if (dev->shared_bytes < sizeof(fh::Shared))
        return dlt_cuda_refuse(why_not, "too little shared memory");
    return tensor_map_encoder() ||
           dlt_cuda_refuse(why_not, "the driver describes no matrices to the copy engine");
}

/* Scratch: statistics of the rows, then a block's sums for the queries of a head. */
static size_t stats_bytes(const DltNode *n)
{
    return (size_t)(heads_of(n) * n->in[1]->shape.dim[1]) * 2 * sizeof(float);
}
static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    size_t head = (size_t)n->in[1]->shape.dim[1] * fh::D * sizeof(float);
    p->work_bytes = stats_bytes(n) + (size_t)blocks_of(n, dev) * head;
    return DLT_OK;
}

template <typename T> static DltStatus backward_as(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    const DltDevice *dev = c->stream->dev;
    const DltAttention *a = (const DltAttention *)n->attr;
    int64_t batch = n->in[1]->shape.dim[0], t = n->in[1]->shape.dim[1], rows = batch * t;
    int64_t width = a->heads * fh::D, units = rows * a->heads / WARP;
    float *stats = (float *)c->work;
    CUtensorMap d_o, qkv, dqkv;
    fh::Problem p;
    p.batch = (int)batch, p.heads = (int)a->heads, p.tiles = (int)(t / fh::KEYS);
    p.scale = (float)a->scale, p.scale2 = (float)a->scale * fh::LOG2E;
    p.stats = stats, p.scratch = (float *)((char *)c->work + stats_bytes(n)), p.dqkv = c->out[0];
    DltDtype type = n->in[1]->dtype;
    DLT_TRY(tensor_map(c, Matrix{c->in[0], type, rows, width, fh::QUERIES}, &d_o, err));
    DLT_TRY(tensor_map(c, Matrix{c->in[1], type, rows, 3 * width, fh::QUERIES}, &qkv, err));
    DLT_TRY(tensor_map(c, Matrix{c->out[0], type, rows, 3 * width, fh::WARP_ROWS}, &dqkv, err));
    DLT_TRY(enqueue(c, err, stats_k<T>, (unsigned)ceil_div(units, BLOCK / WARP), BLOCK, 0,
                    (const T *)c->in[2], (const T *)c->in[0], (const float *)c->in[3], stats,
                    p.batch, p.heads, p.tiles));
    auto kernel = a->causal ? fh::backward_k<T, true> : fh::backward_k<T, false>;
    return enqueue(c, err, kernel, (unsigned)blocks_of(n, dev), fh::THREADS, sizeof(fh::Shared),
                   qkv, d_o, dqkv, p);
}
static DltStatus backward(const DltCall *c, DltErr *err)
{
    DltStatus s = DLT_OK;
    DLT_HALF_TYPE(c->node->in[1]->dtype, T, s = backward_as<T>(c, err));
    return s;
}

#endif
} // namespace

extern "C" {
extern const DltKernel dlt_cuda_attention_bwd_plain;

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltAttention *a = (const DltAttention *)n->attr;
    DltDtype type = n->in[1]->dtype;
    if (!dlt_cuda_attention_bwd_plain.accepts(n, dev, why_not)) return false;
    if (type != DLT_BF16 && type != DLT_F16)
        return dlt_cuda_refuse(why_not, "%s: a 16-bit type is needed", dlt_dtype_name(type));
    if (a->drop.p > 0 || a->kv_heads != a->heads || a->window > 0)
        return dlt_cuda_refuse(why_not, "dropout, grouped queries or a window");
    return fits(n, dev, why_not);
}
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_attention_bwd_hopper, "attention_bwd.cuda.hopper", accepts,
                         prepare, backward);
}
