/* The plain matrix product: tiles in shared memory, any sizes, types, transpositions and epilogue.
 * What no library takes, and the oracle of those that do. And the epilogue by itself, for behind a
 * library's product. */
#include "cuda/kernels/act.cuh"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/shape.cuh"

namespace
{

enum { TILE = 64, DEPTH = 16, PER = 4, SIDE = TILE / PER }; /* a thread makes PER x PER of a tile */

struct Matrices {
    In a, b, bias, saved;
    Out c, pre;
    int64_t batch, m, n, k;
    int64_t a_row, a_col, a_batch, b_row, b_col, b_batch; /* strides of op(a) [M,K], op(b) [K,N] */
    bool add;                                             /* c += */
};

/* v = sum + bias; pre = v; v = act(v) act_grad'(saved). */
__device__ __forceinline__ float finish_one(const DltEpilogue &ep, float v, In bias, int64_t col,
                                            In saved, Out pre, int64_t at)
{
    if (bias.p) v += bias[col];
    if (pre.p) pre.set(at, v);
    if (ep.act.fn != DLT_FN_NONE) v = act_any(ep.act, v);
    if (ep.act_grad.fn != DLT_FN_NONE && saved.p) v *= act_grad_any(ep.act_grad, saved[at]);
    return v;
}

/* c[i] (+)= epilogue(op(a[i]) op(b[i])).  Grid: (tiles of M, tiles of N, batches). */
__global__ void matmul_k(Matrices d, DltEpilogue ep)
{
    begin();
    __shared__ float sa[DEPTH][TILE + 1], sb[DEPTH][TILE + 1];
    int64_t m0 = (int64_t)blockIdx.x * TILE, n0 = (int64_t)blockIdx.y * TILE;
    int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    for (int64_t z = blockIdx.z; z < d.batch; z += gridDim.z) {
        float acc[PER][PER] = {};
        for (int64_t k0 = 0; k0 < d.k; k0 += DEPTH) {
            for (int i = threadIdx.x; i < TILE * DEPTH; i += SIDE * SIDE) {
                /* neighbours in memory go to neighbouring threads */
                int am = d.a_col == 1 ? i / DEPTH : i % TILE,
                    ak = d.a_col == 1 ? i % DEPTH : i / TILE;
                int bn = d.b_col == 1 ? i % TILE : i / DEPTH,
                    bk = d.b_col == 1 ? i / TILE : i % DEPTH;
                int64_t m = m0 + am, n = n0 + bn;
                sa[ak][am] = m < d.m && k0 + ak < d.k
                                 ? d.a[z * d.a_batch + m * d.a_row + (k0 + ak) * d.a_col]
                                 : 0.0f;
                sb[bk][bn] = n < d.n && k0 + bk < d.k
                                 ? d.b[z * d.b_batch + (k0 + bk) * d.b_row + n * d.b_col]
                                 : 0.0f;
            }
            __syncthreads();
            for (int k = 0; k < DEPTH; k++)
                for (int i = 0; i < PER; i++)
                    for (int j = 0; j < PER; j++)
                        acc[i][j] += sa[k][ty + i * SIDE] * sb[k][tx + j * SIDE];
            __syncthreads();
        }
        for (int i = 0; i < PER; i++)
            for (int j = 0; j < PER; j++) {
                int64_t m = m0 + ty + i * SIDE, n = n0 + tx + j * SIDE;
                if (m >= d.m || n >= d.n) continue;
                int64_t at = (z * d.m + m) * d.n + n;
                float old = d.add ? In{d.c.p, d.c.dtype}[at] : 0.0f;
                d.c.set(at, old + finish_one(ep, acc[i][j], d.bias, n, d.saved, d.pre, at));
            }
    }
}

static DltStatus multiply(const DltCall *c, Matrices d, bool ta, bool tb, const DltEpilogue &ep,
                          DltErr *err)
{
    d.a_row = ta ? 1 : d.k, d.a_col = ta ? d.m : 1, d.a_batch = d.m * d.k;
    d.b_row = tb ? 1 : d.n, d.b_col = tb ? d.k : 1, d.b_batch = d.k * d.n;
    dim3 grid((unsigned)ceil_div(d.m, TILE), (unsigned)ceil_div(d.n, TILE),
              (unsigned)(d.batch < 65535 ? d.batch : 65535));
    if (d.m == 0 || d.n == 0 || d.batch == 0) return DLT_OK;
    return enqueue(c, err, matmul_k, grid, SIDE * SIDE, 0, d, ep);
}
static DltStatus launch(const DltCall *c, DltErr *err)
{
    const DltMatmul *a = (const DltMatmul *)c->node->attr;
    DltGemm g = dlt_cuda_gemm(c->node);
    Matrices d = {};
    d.a = input(c, 0), d.b = input(c, 1), d.bias = input(c, 2), d.saved = input(c, 3);
    d.c = output(c, 0), d.pre = output(c, 1);
    d.batch = g.batch, d.m = g.m, d.n = g.n, d.k = g.k;
    return multiply(c, d, a->ta, a->tb, a->ep, err);
}

/* c = act(src + bias) act_grad'(saved), pre = src + bias.  All [rows, cols] but bias [cols]. */
template <typename S, typename T>
__global__ void finish_k(DltUnary a, DltUnary ag, const S *src, T *c, In bias, const T *saved,
                         T *pre, int64_t n, uint32_t cols, bool packed)
{
    begin();
    constexpr int N = 8;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t step = (int64_t)gridDim.x * blockDim.x, n_pack = packed ? n / N : 0;
    for (int64_t p = first; p < n_pack; p += step) {
        float v[N], s[N];
        uint32_t col = (uint32_t)(p * N % cols);
#pragma unroll
        for (int j = 0; j < N; j += Pack<S>::n)
            load_v<S, Pack<S>::n>(src + p * N + j, v + j);
        if (bias.p)
#pragma unroll
            for (int k = 0; k < N; k++)
                v[k] += bias[col + k];
        if (pre)
#pragma unroll
            for (int j = 0; j < N; j += Pack<T>::n)
                store_v<T, Pack<T>::n>(pre + p * N + j, v + j);
        with_fn(a.fn, [&](auto fn) {
#pragma unroll
            for (int k = 0; k < N; k++)
                v[k] = act<decltype(fn)::value>(v[k], (float)a.alpha);
        });
        if (saved) {
#pragma unroll
            for (int j = 0; j < N; j += Pack<T>::n)
                load_v<T, Pack<T>::n>(saved + p * N + j, s + j);
            with_fn(ag.fn, [&](auto fn) {
#pragma unroll
                for (int k = 0; k < N; k++)
                    v[k] *= act_grad<decltype(fn)::value>(s[k], (float)ag.alpha);
            });
        }
#pragma unroll
        for (int j = 0; j < N; j += Pack<T>::n)
            store_v<T, Pack<T>::n>(c + p * N + j, v + j);
    }
    for (int64_t i = n_pack * N + first; i < n; i += step) {
        float v = to_float(src[i]) + (bias.p ? bias[i % cols] : 0.0f);
        if (pre) pre[i] = from_float<T>(v);
        v = act_any(a, v);
        if (saved) v *= act_grad_any(ag, to_float(saved[i]));
        c[i] = from_float<T>(v);
    }
}

} // namespace

extern "C" DltStatus dlt_cuda_product(const DltCall *call, const DltCudaProduct *p, DltErr *err)
{
    Matrices d = {};
    DltEpilogue none = {};
    d.a = In{p->a.ptr, (int)p->a.dtype}, d.b = In{p->b.ptr, (int)p->b.dtype};
    d.c = Out{p->c.ptr, (int)p->c.dtype};
    d.batch = 1, d.m = p->m, d.n = p->n, d.k = p->k, d.add = p->add;
    return multiply(call, d, p->ta, p->tb, none, err);
}

extern "C" DltStatus dlt_cuda_finish(const DltCall *call, const DltCudaFinish *f, DltErr *err)
{
    int64_t n = f->rows * f->cols;
    bool packed = f->cols % 8 == 0 && aligned16(f->src.ptr, f->c.ptr, f->saved.ptr, f->pre.ptr);
    In bias = {f->bias.ptr, (int)f->bias.dtype};
    bool same = (!f->saved.ptr || f->saved.dtype == f->c.dtype) &&
                (!f->pre.ptr || f->pre.dtype == f->c.dtype);
    if (!same)
        return dlt_err_at(err, DLT_E_BUG, call->node->at, "an epilogue's tensors differ in type");
    if (!f->bias.ptr && !f->pre.ptr && !f->saved.ptr && f->src.dtype == f->c.dtype)
        return dlt_cuda_act(call, f->act, f->src, f->c, n, err);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(
        f->src.dtype, S,
        DLT_FLOAT_TYPE(f->c.dtype, T,
                       s = enqueue(call, err, finish_k<S, T>, blocks_for(call, n, BLOCK * 8), BLOCK,
                                   0, f->act, f->act_grad, (const S *)f->src.ptr, (T *)f->c.ptr,
                                   bias, (const T *)f->saved.ptr, (T *)f->pre.ptr, n,
                                   (uint32_t)f->cols, packed)));
    return s;
}

extern "C" {
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_matmul_plain, "matmul.cuda.plain", dlt_cuda_accepts_plain,
                         nullptr, launch);
}
