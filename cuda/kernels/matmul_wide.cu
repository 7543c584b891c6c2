/* The wide product as kernels of two ops: a matrix product with an activation behind it, and the gradient of
 * an activation with the product in front of it (ops/matmul.h). Hopper only, whose instructions this file is
 * compiled for (Makefile); refused elsewhere. */
#include "cuda/kernels/act.cuh"
#include "cuda/kernels/channels.cuh"
#include "cuda/kernels/kernels.h"
#ifndef DLT_EMULATED
#include "cuda/kernels/tensor_map.cuh"
#include "cuda/kernels/wide_product.cuh"
#endif

namespace
{

/* Functions that there is code for. */
#define WIDE_FUNCTIONS(F) F(GELU_TANH) F(GELU) F(SILU)

static bool has_function(DltUnary f, DltWhy *why_not)
{
    switch (f.fn) {
#define F(id) case DLT_FN_##id:
        WIDE_FUNCTIONS(F)
#undef F
        return true;
    default:
        return dlt_cuda_refuse(why_not, "no wide product with this activation");
    }
}

#ifdef DLT_EMULATED

static bool fits(const DltNode *n, const DltDevice *dev, const DltGemm &g, DltWhy *why_not)
{
    (void)n, (void)dev, (void)g;
    return dlt_cuda_refuse(why_not, "an emulated device");
}
static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)n, (void)dev, (void)p, (void)err;
    return DLT_OK;
}
static DltStatus forward(const DltCall *c, DltErr *err)
{
    return dlt_err_at(err, DLT_E_BUG, c->node->at, "a wide product on an emulated device");
}
static DltStatus backward(const DltCall *c, DltErr *err)
{
    return forward(c, err);
}

#else

static int64_t pairs_m(const DltGemm &g)
{
    return g.m / (2 * wide::ROWS);
}
static int64_t tiles_n(const DltGemm &g)
{
    return (g.n + wide::COLS - 1) / wide::COLS;
}

static bool fits(const DltNode *n, const DltDevice *dev, const DltGemm &g, DltWhy *why_not)
{
    DltDtype type = n->in[0]->dtype;
    if (dev->capability != 90) return dlt_cuda_refuse(why_not, "for compute capability 9.0");
    if (type != DLT_BF16 && type != DLT_F16)
        return dlt_cuda_refuse(why_not, "%s: bf16 or f16 is needed", dlt_dtype_name(type));
    if (n->in[1]->dtype != type || n->out[0]->dtype != type || n->in[1]->shape.rank != 2)
        return dlt_cuda_refuse(why_not, "operands differ in type, or come in batches");
    if (g.m % (2 * wide::ROWS) != 0 || g.n % wide::STRIPE != 0 || g.k % wide::DEPTH != 0)
        return dlt_cuda_refuse(why_not, "%lld x %lld x %lld: not in whole tiles", (long long)g.m,
                               (long long)g.n, (long long)g.k);
    if (g.m > INT32_MAX || g.n > INT32_MAX || g.k > INT32_MAX)
        return dlt_cuda_refuse(why_not, "more than 2^31 rows or columns");
    if (pairs_m(g) * tiles_n(g) * 6 < dev->n_sm)
        return dlt_cuda_refuse(why_not, "tiles for less than a third of the multiprocessors");
    for (int i = 0; i < 2; i++)
        if (dlt_cuda_alignment(n->in[i]) < 16 || (n->out[i] && dlt_cuda_alignment(n->out[i]) < 16))
            return dlt_cuda_refuse(why_not, "an address that is no multiple of 16");
    if (dev->shared_bytes < sizeof(wide::Shared) + wide::ALIGN)
        return dlt_cuda_refuse(why_not, "too little shared memory");
    return tensor_map_encoder() || dlt_cuda_refuse(why_not, "the driver describes no matrices");
}

template <typename T, bool GRADIENT>
static DltStatus enqueue_product(const DltCall *c, const wide::Maps &maps, const wide::Problem &p,
                                 DltUnaryFn fn, DltErr *err)
{
    dim3 grid((unsigned)c->stream->dev->n_sm / 2 * 2);
    size_t shared = sizeof(wide::Shared) + wide::ALIGN;
    switch (fn) {
#define F(id)                                                                                      \
    case DLT_FN_##id:                                                                              \
        return enqueue(c, err, wide::product_k<T, DLT_FN_##id, GRADIENT>, grid,                    \
                       dim3(wide::THREADS), shared, maps, p);
        WIDE_FUNCTIONS(F)
#undef F
    default:
        dlt_bug(__FILE__, __LINE__, "a wide product with another function");
    }
}

/* pre: NULL forward. */
static DltStatus run(const DltCall *c, const DltGemm &g, wide::Problem p, DltUnary f,
                     const void *pre, DltErr *err)
{
    wide::Maps maps = {};
    DltDtype type = c->node->in[0]->dtype;
    Matrix right = {c->in[1], type, g.n, g.k, wide::COLS / 2};
    if (pre) right = {c->in[1], type, g.k, g.n, wide::DEPTH / 2};
    p.tiles_m = (int)pairs_m(g), p.tiles_n = (int)tiles_n(g);
    p.steps = (int)(g.k / wide::DEPTH), p.n = (int)g.n, p.alpha = (float)f.alpha;
    p.more = c->out[1] != nullptr;
    DLT_TRY(tensor_map(c, {c->in[0], type, g.m, g.k, wide::ROWS}, &maps.a, err));
    DLT_TRY(tensor_map(c, right, &maps.b, err));
    DLT_TRY(tensor_map(c, {c->out[0], type, g.m, g.n, wide::HALF}, &maps.out, err));
    if (p.more) DLT_TRY(tensor_map(c, {c->out[1], type, g.m, g.n, wide::HALF}, &maps.more, err));
    if (pre) DLT_TRY(tensor_map(c, {pre, type, g.m, g.n, wide::HALF}, &maps.pre, err));
    DltStatus s = DLT_OK;
    DLT_HALF_TYPE(type, T,
                  s = pre ? enqueue_product<T, true>(c, maps, p, f.fn, err)
                          : enqueue_product<T, false>(c, maps, p, f.fn, err));
    return s;
}

/* c = f(a b^T + bias), and what f took where that is kept. */
static DltStatus forward(const DltCall *c, DltErr *err)
{
    const DltEpilogue *ep = &((const DltMatmul *)c->node->attr)->ep;
    wide::Problem p = {};
    p.bias = input(c, 2);
    return run(c, dlt_cuda_gemm(c->node), p, ep->act, nullptr, err);
}

/* Rows of partial sums [rows, n] added up, in pieces of columns. */
template <int V> struct PartSums {
    const float *part;
    __device__ __forceinline__ Nothing look(int64_t) const
    {
        return Nothing();
    }
    __device__ __forceinline__ void operator()(int64_t at, int64_t, Nothing, float *acc) const
    {
        float v[V];
        load_v<float, V>(part + at, v);
#pragma unroll
        for (int k = 0; k < V; k++)
            acc[k] += v[k];
    }
};
struct Store {
    float *db;
    __device__ __forceinline__ void operator()(int64_t c, const float *sum) const
    {
        db[c] = sum[0];
    }
};
static Axis parts_of(const DltGemm &g)
{
    return Axis{g.m / wide::ROWS, g.n, 1};
}
static size_t parts_bytes(const DltGemm &g)
{
    return (size_t)(g.m / wide::ROWS * g.n) * sizeof(float);
}

/* dx = (dz w) f'(x), y = f(x), db = column sums of dx. */
static DltStatus backward(const DltCall *c, DltErr *err)
{
    const DltActBwd *a = (const DltActBwd *)c->node->attr;
    DltGemm g = dlt_cuda_linear_gemm(c->node);
    wide::Problem p = {};
    p.part = a->sums ? (float *)c->work : nullptr;
    DLT_TRY(run(c, g, p, a->unary, c->in[2], err));
    if (!a->sums) return DLT_OK;
    ChannelPlan plan = channel_plan(parts_of(g), 4, c->stream->dev->n_sm);
    return channel_reduce<1, 4, PartSums>(c, err, plan, (float *)((char *)c->work + parts_bytes(g)),
                                          Store{(float *)c->out[2]}, (const float *)p.part);
}
static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    DltGemm g = dlt_cuda_linear_gemm(n);
    if (((const DltActBwd *)n->attr)->sums)
        p->work_bytes = parts_bytes(g) + channel_bytes(parts_of(g), dev->n_sm, 1);
    return DLT_OK;
}

#endif

static bool accepts_forward(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltMatmul *a = (const DltMatmul *)n->attr;
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (a->ta || !a->tb || a->ep.act_grad.fn != DLT_FN_NONE)
        return dlt_cuda_refuse(why_not, "not a b^T with an activation behind it");
    if (n->in[2] && n->in[2]->dtype != DLT_F32 && n->in[2]->dtype != n->in[0]->dtype)
        return dlt_cuda_refuse(why_not, "a bias of another type");
    return has_function(a->ep.act, why_not) && fits(n, dev, dlt_cuda_gemm(n), why_not);
}
static bool accepts_backward(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (n->in[2]->dtype != n->in[0]->dtype) return dlt_cuda_refuse(why_not, "types differ");
    if (dlt_cuda_alignment(n->in[2]) < 16)
        return dlt_cuda_refuse(why_not, "an address that is no multiple of 16");
    return has_function(((const DltActBwd *)n->attr)->unary, why_not) &&
           fits(n, dev, dlt_cuda_linear_gemm(n), why_not);
}
} // namespace

extern "C" {
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_matmul_wide, "matmul.cuda.wide", accepts_forward, nullptr,
                         forward);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_linear_act_bwd_wide, "linear_act_bwd.cuda.wide", accepts_backward,
                         prepare, backward);
}
