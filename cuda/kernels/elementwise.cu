/* Elementwise ops: one pass over memory, 16 bytes a thread and access where addresses allow. Flat
 * kernels do not care about the layout as long as all tensors share it; the strided one does the
 * rest. */
#include "cuda/kernels/act.cuh"
#include "cuda/kernels/shape.cuh"
#include <type_traits>

namespace
{

/* y[i] = f(x[i], s[i]), i < n; s may be NULL. y may be x or s. */
template <typename T, typename F>
__device__ __forceinline__ void map(const T *x, const T *s, T *y, int64_t n, bool packed, F f)
{
    constexpr int N = Pack<T>::n;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int64_t step = (int64_t)gridDim.x * blockDim.x, n_pack = packed ? n / N : 0;
    for (int64_t p = first; p < n_pack; p += step) {
        Pack<T> a = load_pack(x + p * N), b = s ? load_pack(s + p * N) : a;
#pragma unroll
        for (int k = 0; k < N; k++)
            a.v[k] = from_float<T>(f(to_float(a.v[k]), to_float(b.v[k])));
        store_pack(y + p * N, a);
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

static DltStatus launch_unary(const DltCall *c, DltErr *err)
{
    const DltUnary *u = (const DltUnary *)c->node->attr;
    int64_t n = count_of(c->node->out[0]);
    bool packed = aligned16(c->in[0], c->out[0]);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T,
                   s = enqueue(c, err, unary_k<T>, blocks_for(c, n, BLOCK * Pack<T>::n), BLOCK, 0,
                               *u, (const T *)c->in[0], (T *)c->out[0], n, packed));
    return s;
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
DLT_CUDA_KERNEL(binary_walk, "binary.cuda.broadcast", dlt_cuda_accepts_any, nullptr,
                launch_binary_walk);
DLT_CUDA_KERNEL(bias, "bias_fwd.cuda.axis", accepts_bias, nullptr, launch_bias);
DLT_CUDA_KERNEL(copy, "copy.cuda.flat", accepts_copy, nullptr, launch_copy);
DLT_CUDA_KERNEL(cast, "cast.cuda.flat", accepts_cast, nullptr, launch_cast);
DLT_CUDA_KERNEL(cast_any, "cast.cuda.any", dlt_cuda_accepts_same_layout, nullptr, launch_cast_any);
} // namespace

extern "C" {
const DltKernel *const dlt_cuda_unary_fwd[] = {&unary_pack, nullptr};
const DltKernel *const dlt_cuda_unary_bwd[] = {&unary_grad_pack, nullptr};
const DltKernel *const dlt_cuda_binary[] = {&binary_pack, &binary_walk, nullptr};
const DltKernel *const dlt_cuda_bias_fwd[] = {&bias, nullptr};
const DltKernel *const dlt_cuda_copy[] = {&copy, nullptr};
const DltKernel *const dlt_cuda_cast[] = {&cast, &cast_any, nullptr};
}
