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

/* stats [B H, T] and delta = sum(d_o o) to [B H, T / 64, 2, 64]; o, d_o [B T, H 64]. A warp takes 32 rows of a head,
 * 8 lanes a row. With `sums` [B T / ROWS, H 64] also column sums of d_o, a row of a block's rows: those of dv, as the
 * weights of a query add up to one. */
enum { WARPS = 4, ROWS = WARPS * WARP };
template <typename T>
__global__ void __launch_bounds__(ROWS) stats_k(const T *o, const T *d_o, const float *stats,
                                                float *out, float *sums, int heads, int tiles)
{
    begin();
    __shared__ float4 part[WARPS][fh::D / 4];
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, t = tiles * fh::KEYS;
    int head = (int)blockIdx.x % heads, chunk = (int)blockIdx.x / heads;
    int b = chunk / tiles, row = chunk % tiles * ROWS + warp * WARP;
    int64_t from = (((int64_t)b * t + row + lane / 8) * heads + head) * fh::D + lane % 8 * 8;
    Pack<T> x[8], y[8];
    float mine = 0, column[8] = {};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x[i] = load_pack(o + from + (int64_t)i * 4 * heads * fh::D);
        y[i] = load_pack(d_o + from + (int64_t)i * 4 * heads * fh::D);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            sum += to_float(x[i].v[k]) * to_float(y[i].v[k]);
            column[k] += to_float(y[i].v[k]);
        }
        for (int k = 4; k > 0; k /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, k);
        sum = __shfl_sync(0xffffffffu, sum, lane % 4 * 8);
        if (lane / 4 == i) mine = sum;
    }
    int64_t bh = (int64_t)b * heads + head;
    float *to = out + (bh * t + row / 64 * 64) * 2 + row % 64 + lane;
    to[0] = stats[bh * t + row + lane] * -fh::LOG2E;
    to[fh::QUERIES] = mine;
    if (!sums) return;
#pragma unroll
    for (int k = 0; k < 8; k++)
        for (int far = 8; far < WARP; far *= 2)
            column[k] += __shfl_xor_sync(0xffffffffu, column[k], far);
    if (lane < 8) part[warp][2 * lane] = make_float4(column[0], column[1], column[2], column[3]);
    if (lane < 8)
        part[warp][2 * lane + 1] = make_float4(column[4], column[5], column[6], column[7]);
    __syncthreads();
    if (threadIdx.x >= fh::D) return;
    float sum = 0;
    for (int w = 0; w < WARPS; w++)
        sum += ((const float *)part[w])[threadIdx.x];
    sums[((int64_t)chunk * heads + head) * fh::D + threadIdx.x] = sum;
}
/* db[3 C] from column sums, in order: part [4 B, C] of dq, then [B T / ROWS, C] of dv. Those of dk are 0: in each
 * row of scores the gradients add up to nothing. 32 columns a block, 32 groups of rows side by side. */
enum { TOTAL = 1024 };
__global__ void __launch_bounds__(TOTAL)
    total_k(const float *part, int of_dq, int of_dv, int width, float *db)
{
    begin();
    __shared__ float group[TOTAL / WARP][WARP];
    int lane = (int)threadIdx.x % WARP, g = (int)threadIdx.x / WARP;
    int c = (int)blockIdx.x * WARP + lane, rows = c < width ? of_dq : of_dv;
    if (c >= width) part += (int64_t)of_dq * width - width;
    float sum = 0;
#pragma unroll 8
    for (int i = g; i < rows; i += TOTAL / WARP)
        sum += part[(int64_t)i * width + c];
    group[g][lane] = sum;
    __syncthreads();
    sum = warp_sum(group[lane][g]);
    c = (int)blockIdx.x * WARP + g;
    if (lane == 0) db[c < width ? c : c + width] = sum;
    if (lane == 1 && c < width) db[c + width] = 0;
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

/* Scratch: statistics of the rows, column sums, a block's sums for the queries of a head. */
static size_t stats_bytes(const DltNode *n)
{
    return (size_t)(heads_of(n) * n->in[1]->shape.dim[1]) * 2 * sizeof(float);
}
static int64_t rows_of_d_o(const DltNode *n)
{
    return n->in[1]->shape.dim[0] * n->in[1]->shape.dim[1] / ROWS;
}
static size_t sums_bytes(const DltNode *n)
{
    const DltAttention *a = (const DltAttention *)n->attr;
    int64_t rows = n->in[1]->shape.dim[0] * fh::WARPS + rows_of_d_o(n);
    return n->out[1] ? (size_t)(rows * a->heads * fh::D) * sizeof(float) : 0;
}
static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    size_t head = (size_t)n->in[1]->shape.dim[1] * fh::D * sizeof(float);
    p->work_bytes = stats_bytes(n) + sums_bytes(n) + (size_t)blocks_of(n, dev) * head;
    return DLT_OK;
}

template <typename T> static DltStatus backward_as(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    const DltDevice *dev = c->stream->dev;
    const DltAttention *a = (const DltAttention *)n->attr;
    int64_t batch = n->in[1]->shape.dim[0], t = n->in[1]->shape.dim[1], rows = batch * t;
    int64_t width = a->heads * fh::D;
    float *stats = (float *)c->work;
    CUtensorMap d_o, qkv, dqkv;
    fh::Problem p;
    p.batch = (int)batch, p.heads = (int)a->heads, p.tiles = (int)(t / fh::KEYS);
    p.scale = (float)a->scale, p.scale2 = (float)a->scale * fh::LOG2E;
    p.stats = stats, p.dqkv = c->out[0];
    p.sums = n->out[1] ? stats + stats_bytes(n) / sizeof(float) : nullptr;
    p.scratch = stats + (stats_bytes(n) + sums_bytes(n)) / sizeof(float);
    float *of_d_o = p.sums ? p.sums + fh::WARPS * batch * width : nullptr;
    DltDtype type = n->in[1]->dtype;
    DLT_TRY(tensor_map(c, Matrix{c->in[0], type, rows, width, fh::QUERIES}, &d_o, err));
    DLT_TRY(tensor_map(c, Matrix{c->in[1], type, rows, 3 * width, fh::QUERIES}, &qkv, err));
    DLT_TRY(tensor_map(c, Matrix{c->out[0], type, rows, 3 * width, fh::WARP_ROWS}, &dqkv, err));
    DLT_TRY(enqueue(c, err, stats_k<T>, (unsigned)(rows / ROWS * a->heads), ROWS, 0,
                    (const T *)c->in[2], (const T *)c->in[0], (const float *)c->in[3], stats,
                    of_d_o, p.heads, p.tiles));
    auto kernel = a->causal ? fh::backward_k<T, true> : fh::backward_k<T, false>;
    DLT_TRY(enqueue(c, err, kernel, (unsigned)blocks_of(n, dev), fh::THREADS, sizeof(fh::Shared),
                    qkv, d_o, dqkv, p));
    if (!p.sums) return DLT_OK;
    return enqueue(c, err, total_k, (unsigned)(2 * width / WARP), TOTAL, 0, (const float *)p.sums,
                   (int)(fh::WARPS * batch), (int)rows_of_d_o(n), (int)width, (float *)c->out[1]);
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
static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltAttention *a = (const DltAttention *)n->attr;
    DltDtype type = n->in[1]->dtype;
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (n->in[0]->dtype != type || n->in[2]->dtype != type || n->out[0]->dtype != type ||
        n->in[3]->dtype != DLT_F32)
        return dlt_cuda_refuse(why_not, "tensors differ in type");
    if (type != DLT_BF16 && type != DLT_F16)
        return dlt_cuda_refuse(why_not, "%s: a 16-bit type is needed", dlt_dtype_name(type));
    if (a->drop.p > 0 || a->kv_heads != a->heads || a->window > 0)
        return dlt_cuda_refuse(why_not, "dropout, grouped queries or a window");
    return fits(n, dev, why_not);
}
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_attention_bwd_hopper, "attention_bwd.cuda.hopper", accepts,
                         prepare, backward);
}
