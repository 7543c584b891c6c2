/* Elementwise ops: one pass over memory, 16 bytes a thread and access where addresses allow. Flat
 * kernels do not care about the layout as long as all tensors share it; the strided one does the
 * rest. */
#include "cuda/kernels/act.cuh"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/shape.cuh"
#include <type_traits>

namespace
{

enum {
    AT_ONCE = 4
}; /* packs a thread has under way: few threads fit beside the longer functions */

/* y[i] = f(x[i], s[i]), i < n; s may be NULL. y may be x or s. */
template <typename T, typename F>
__device__ __forceinline__ void map(const T *x, const T *s, T *y, int64_t n, bool packed, F f)
{
    constexpr int N = Pack<T>::n;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t step = (int64_t)gridDim.x * blockDim.x, n_pack = packed ? n / N : 0;
    for (int64_t p = first; p < n_pack; p += AT_ONCE * step) {
        Pack<T> a[AT_ONCE], b[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (p + i * step >= n_pack) continue;
            a[i] = load_pack(x + (p + i * step) * N);
            if (s) b[i] = load_pack(s + (p + i * step) * N);
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (p + i * step >= n_pack) continue;
#pragma unroll
            for (int k = 0; k < N; k++)
                a[i].v[k] = from_float<T>(f(to_float(a[i].v[k]), s ? to_float(b[i].v[k]) : 0.0f));
            store_pack(y + (p + i * step) * N, a[i]);
        }
    }
    for (int64_t i = n_pack * N + first; i < n; i += step)
        y[i] = from_float<T>(f(to_float(x[i]), s ? to_float(s[i]) : 0.0f));
}

/* y = f(x).  x, y of n elements, T. */
template <typename T> __global__ void unary_k(DltUnary u, const T *x, T *y, int64_t n, bool packed)
{
    begin();
    float alpha = (float)u.alpha;
    with_fn(u.fn, [=](auto fn) {
        map<T>(x, nullptr, y, n, packed,
               [=](float v, float) { return act<decltype(fn)::value>(v, alpha); });
    });
}
/* dx = dy f'(.), the derivative taken from s (x or y).  dy, s, dx of n elements, T. */
template <typename T>
__global__ void unary_grad_k(DltUnary u, const T *dy, const T *s, T *dx, int64_t n, bool packed)
{
    begin();
    float alpha = (float)u.alpha;
    with_fn(u.fn, [=](auto fn) {
        map<T>(dy, s, dx, n, packed,
               [=](float d, float v) { return d * act_grad<decltype(fn)::value>(v, alpha); });
    });
}

__device__ __forceinline__ float combine(DltBinaryFn fn, float a, float b)
{
    switch (fn) {
    case DLT_ADD:
        return a + b;
    case DLT_SUB:
        return a - b;
    case DLT_MUL:
        return a * b;
    default:
        return a / b;
    }
}
/* c = a (op) b, equal shapes.  n elements, T. */
template <typename T>
__global__ void binary_k(DltBinaryFn fn, const T *a, const T *b, T *c, int64_t n, bool packed)
{
    begin();
    map<T>(a, b, c, n, packed, [=](float x, float y) { return combine(fn, x, y); });
}
/* c = a (op) b, b repeated over the leading dims.  a, c of n packs, b of `period` packs, T. */
template <typename T>
__global__ void binary_repeat_k(DltBinaryFn fn, const T *a, const T *b, T *c, uint32_t n,
                                uint32_t period)
{
    begin();
    constexpr int N = Pack<T>::n;
    for (uint32_t p = blockIdx.x * blockDim.x + threadIdx.x; p < n; p += gridDim.x * blockDim.x) {
        float x[N], y[N];
        load_v<T, N>(a + (int64_t)p * N, x);
        load_v<T, N>(b + (int64_t)(p % period) * N, y);
#pragma unroll
        for (int k = 0; k < N; k++)
            x[k] = combine(fn, x[k], y[k]);
        store_v<T, N>(c + (int64_t)p * N, x);
    }
}
/* c = a (op) broadcast b: the walk goes over c; strides 0 and 1 of it are a's and b's. */
template <typename I> __global__ void binary_walk_k(DltBinaryFn fn, Walk w, In a, In b, Out c, I n)
{
    begin();
    for (I i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        I off[3];
        w.at(i, off, 2);
        c.set((int64_t)i, combine(fn, a[(int64_t)off[0]], b[(int64_t)off[1]]));
    }
}

/* y[o, c, i] = x[o, c, i] + b[c].  x, y [outer, C, inner] T, b [C] of any float type. */
template <typename T, typename I>
__global__ void bias_k(const T *x, In b, T *y, I n, I channels, I inner, bool packed)
{
    begin();
    constexpr int N = Pack<T>::n;
    I first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    I n_pack = packed ? n / N : 0;
    for (I p = first; p < n_pack; p += step) {
        Pack<T> v = load_pack(x + (int64_t)p * N);
        I q = p * N / inner, r = p * N - q * inner, c = q % channels;
#pragma unroll
        for (int k = 0; k < N; k++) {
            v.v[k] = from_float<T>(to_float(v.v[k]) + b[c]);
            if (++r == inner) r = 0, c = c + 1 == channels ? 0 : c + 1;
        }
        store_pack(y + (int64_t)p * N, v);
    }
    for (I i = n_pack * N + first; i < n; i += step)
        y[i] = from_float<T>(to_float(x[i]) + b[i / inner % channels]);
}

/* y = (TO) x, eight elements a thread.  n elements. */
template <typename TI, typename TO>
__global__ void cast_k(const TI *x, TO *y, int64_t n, bool packed)
{
    begin();
    constexpr int N = 8, NI = Pack<TI>::n, NO = Pack<TO>::n;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t step = (int64_t)gridDim.x * blockDim.x, n_pack = packed ? n / N : 0;
    for (int64_t p = first; p < n_pack; p += step) {
        float v[N];
#pragma unroll
        for (int j = 0; j < N / NI; j++) {
            Pack<TI> a = load_pack(x + p * N + j * NI);
#pragma unroll
            for (int k = 0; k < NI; k++)
                v[j * NI + k] = to_float(a.v[k]);
        }
#pragma unroll
        for (int j = 0; j < N / NO; j++) {
            Pack<TO> a;
#pragma unroll
            for (int k = 0; k < NO; k++)
                a.v[k] = from_float<TO>(v[j * NO + k]);
            store_pack(y + p * N + j * NO, a);
        }
    }
    for (int64_t i = n_pack * N + first; i < n; i += step)
        y[i] = from_float<TO>(to_float(x[i]));
}
/* The same for types that are met rarely (integers, f64). f64 -> f64 is a copy, never this. */
__global__ void cast_any_k(In x, Out y, int64_t n)
{
    begin();
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        y.set(i, x[i]);
}

static bool is_float16or32(const DltTensor *t)
{
    return t->dtype == DLT_F32 || t->dtype == DLT_BF16 || t->dtype == DLT_F16;
}
static bool flat(const DltTensor *a, const DltTensor *b)
{
    return a->dtype == b->dtype && dlt_shape_equal(&a->shape, &b->shape) &&
           (a->layout == b->layout || a->shape.rank != 4);
}
/* All tensors of one float type, shape and layout. */
static bool accepts_flat(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_any(n, dev, why_not)) return false;
    const DltTensor *x = n->in[0], *s = n->in[1];
    if (!is_float16or32(x)) return dlt_cuda_refuse(why_not, "%s is no float", x->name);
    if (!flat(x, n->out[0]) || (s && !flat(x, s)))
        return dlt_cuda_refuse(why_not, "tensors differ in type, shape or layout");
    return true;
}

static DltStatus unary(const DltCall *c, DltUnary u, DltCudaArray x, DltCudaArray y, int64_t n,
                       DltErr *err)
{
    bool packed = aligned16(x.ptr, y.ptr);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(x.dtype, T,
                   s = enqueue(c, err, unary_k<T>, blocks_for(c, n, BLOCK * Pack<T>::n), BLOCK, 0,
                               u, (const T *)x.ptr, (T *)y.ptr, n, packed));
    return s;
}
static DltStatus launch_unary(const DltCall *c, DltErr *err)
{
    const DltTensor *x = c->node->in[0];
    return unary(c, *(const DltUnary *)c->node->attr, DltCudaArray{c->in[0], x->dtype},
                 DltCudaArray{c->out[0], x->dtype}, count_of(x), err);
}
static DltStatus launch_unary_grad(const DltCall *c, DltErr *err)
{
    const DltUnary *u = (const DltUnary *)c->node->attr;
    int64_t n = count_of(c->node->out[0]);
    bool packed = aligned16(c->in[0], c->in[1], c->out[0]);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T,
                   s = enqueue(c, err, unary_grad_k<T>, blocks_for(c, n, BLOCK * Pack<T>::n), BLOCK,
                               0, *u, (const T *)c->in[0], (const T *)c->in[1], (T *)c->out[0], n,
                               packed));
    return s;
}
static DltStatus launch_binary(const DltCall *c, DltErr *err)
{
    const DltBinary *b = (const DltBinary *)c->node->attr;
    int64_t n = count_of(c->node->out[0]);
    bool packed = aligned16(c->in[0], c->in[1], c->out[0]);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T,
                   s = enqueue(c, err, binary_k<T>, blocks_for(c, n, BLOCK * Pack<T>::n), BLOCK, 0,
                               b->fn, (const T *)c->in[0], (const T *)c->in[1], (T *)c->out[0], n,
                               packed));
    return s;
}
static DltStatus launch_binary_repeat(const DltCall *c, DltErr *err)
{
    const DltBinary *b = (const DltBinary *)c->node->attr;
    int64_t n = count_of(c->node->out[0]), period = count_of(c->node->in[1]);
    if (!aligned16(c->in[0], c->in[1], c->out[0]))
        return dlt_err_at(err, DLT_E_BUG, c->node->at, "operands lie at odd addresses");
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T, {
        constexpr int N = Pack<T>::n;
        s = enqueue(c, err, binary_repeat_k<T>, blocks_for(c, n / N, BLOCK), BLOCK, 0, b->fn,
                    (const T *)c->in[0], (const T *)c->in[1], (T *)c->out[0], (uint32_t)(n / N),
                    (uint32_t)(period / N));
    });
    return s;
}
static DltStatus launch_binary_walk(const DltCall *c, DltErr *err)
{
    const DltBinary *b = (const DltBinary *)c->node->attr;
    int64_t n = count_of(c->node->out[0]);
    Walk w = walk_like(c->node->out[0], c->node->in, 2);
    DltStatus s = DLT_OK;
    DLT_INDEX_TYPE(n, I,
                   s = enqueue(c, err, binary_walk_k<I>, blocks_for(c, n, BLOCK), BLOCK, 0, b->fn,
                               w, input(c, 0), input(c, 1), output(c, 0), (I)n));
    return s;
}

/* in[1] is in[0] without leading dims, or with leading dims of 1; both in packs. */
static bool accepts_repeat(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltTensor *x = n->in[0], *b = n->in[1];
    const int64_t most = (int64_t)1 << 31, pack = 8;
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    bool same = is_float16or32(x) && flat(x, n->out[0]) && b->dtype == x->dtype;
    int lead = x->shape.rank - b->shape.rank;
    int64_t period = count_of(b), tail = 1;
    int i = x->shape.rank - 1;
    for (; lead >= 0 && i >= lead && b->shape.dim[i - lead] == x->shape.dim[i]; i--)
        tail *= x->shape.dim[i];
    if (!same || lead < 0 || tail != period || period == 0)
        return dlt_cuda_refuse(why_not, "no repetition over leading dims");
    if (period % pack != 0 || count_of(x) >= most)
        return dlt_cuda_refuse(why_not, "not in packs, or more than 2^31 elements");
    for (const DltTensor *t : {x, b, (const DltTensor *)n->out[0]})
        if (dlt_cuda_alignment(t) < 16)
            return dlt_cuda_refuse(why_not, "%s is not aligned", t->name);
    return true;
}
static bool accepts_bias(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_any(n, dev, why_not)) return false;
    if (!is_float16or32(n->in[0]) || !flat(n->in[0], n->out[0]))
        return dlt_cuda_refuse(why_not, "x and y differ in type or layout");
    return true;
}
static DltStatus launch_bias(const DltCall *c, DltErr *err)
{
    const DltBias *b = (const DltBias *)c->node->attr;
    Axis a = axis_of(c->node->in[0], b->axis);
    int64_t n = a.outer * a.c * a.inner;
    bool packed = aligned16(c->in[0], c->out[0]);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(
        c->node->in[0]->dtype, T,
        DLT_INDEX_TYPE(n, I,
                       s = enqueue(c, err, bias_k<T, I>, blocks_for(c, n, BLOCK * Pack<T>::n),
                                   BLOCK, 0, (const T *)c->in[0], input(c, 1), (T *)c->out[0], (I)n,
                                   (I)a.c, (I)a.inner, packed)));
    return s;
}

/* y = x by bytes, 16 at a time where addresses allow. A kernel and not a copy command: those would
 * break the chain of overlapping launches. */
__global__ void copy_k(const uint8_t *x, uint8_t *y, int64_t n, bool packed)
{
    begin();
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t step = (int64_t)gridDim.x * blockDim.x, n_pack = packed ? n / 16 : 0;
    for (int64_t p = first; p < n_pack; p += step)
        ((uint4 *)y)[p] = ((const uint4 *)x)[p];
    for (int64_t i = n_pack * 16 + first; i < n; i += step)
        y[i] = x[i];
}
static DltStatus launch_copy(const DltCall *c, DltErr *err)
{
    const DltTensor *x = c->node->in[0];
    int64_t n = count_of(x) * (int64_t)dlt_dtype_bytes(x->dtype);
    if (c->in[0] == c->out[0] || n == 0) return DLT_OK;
    return enqueue(c, err, copy_k, blocks_for(c, n, BLOCK * 16), BLOCK, 0,
                   (const uint8_t *)c->in[0], (uint8_t *)c->out[0], n,
                   aligned16(c->in[0], c->out[0]));
}
static bool accepts_copy(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    if (!flat(n->in[0], n->out[0]))
        return dlt_cuda_refuse(why_not, "tensors differ in type, shape or layout");
    return true;
}

static bool accepts_cast(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_same_layout(n, dev, why_not)) return false;
    if (!is_float16or32(n->in[0]) || !is_float16or32(n->out[0]))
        return dlt_cuda_refuse(why_not, "from or to a type other than f32, bf16, f16");
    return true;
}
static DltStatus launch_cast(const DltCall *c, DltErr *err)
{
    int64_t n = count_of(c->node->in[0]);
    bool packed = aligned16(c->in[0], c->out[0]);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(
        c->node->in[0]->dtype, TI,
        DLT_FLOAT_TYPE(c->node->out[0]->dtype, TO,
                       s = enqueue(c, err, cast_k<TI, TO>, blocks_for(c, n, BLOCK * 8), BLOCK, 0,
                                   (const TI *)c->in[0], (TO *)c->out[0], n, packed)));
    return s;
}
static DltStatus launch_cast_any(const DltCall *c, DltErr *err)
{
    int64_t n = count_of(c->node->in[0]);
    return enqueue(c, err, cast_any_k, blocks_for(c, n, BLOCK), BLOCK, 0, input(c, 0), output(c, 0),
                   n);
}

DLT_CUDA_KERNEL(unary_pack, "unary_fwd.cuda.flat", accepts_flat, nullptr, launch_unary);
DLT_CUDA_KERNEL(unary_grad_pack, "unary_bwd.cuda.flat", accepts_flat, nullptr, launch_unary_grad);
DLT_CUDA_KERNEL(binary_pack, "binary.cuda.flat", accepts_flat, nullptr, launch_binary);
DLT_CUDA_KERNEL(binary_repeat, "binary.cuda.repeat", accepts_repeat, nullptr, launch_binary_repeat);
DLT_CUDA_KERNEL(binary_walk, "binary.cuda.broadcast", dlt_cuda_accepts_any, nullptr,
                launch_binary_walk);
DLT_CUDA_KERNEL(bias, "bias_fwd.cuda.axis", accepts_bias, nullptr, launch_bias);
DLT_CUDA_KERNEL(copy, "copy.cuda.flat", accepts_copy, nullptr, launch_copy);
DLT_CUDA_KERNEL(cast, "cast.cuda.flat", accepts_cast, nullptr, launch_cast);
DLT_CUDA_KERNEL(cast_any, "cast.cuda.any", dlt_cuda_accepts_same_layout, nullptr, launch_cast_any);
} // namespace

extern "C" DltStatus dlt_cuda_act(const DltCall *call, DltUnary f, DltCudaArray x, DltCudaArray y,
                                  int64_t n, DltErr *err)
{
    return unary(call, f, x, y, n, err);
}

extern "C" {
const DltKernel *const dlt_cuda_unary_fwd[] = {&unary_pack, nullptr};
const DltKernel *const dlt_cuda_unary_bwd[] = {&unary_grad_pack, nullptr};
const DltKernel *const dlt_cuda_binary[] = {&binary_pack, &binary_repeat, &binary_walk, nullptr};
const DltKernel *const dlt_cuda_bias_fwd[] = {&bias, nullptr};
const DltKernel *const dlt_cuda_copy[] = {&copy, nullptr};
const DltKernel *const dlt_cuda_cast[] = {&cast, &cast_any, nullptr};
}
