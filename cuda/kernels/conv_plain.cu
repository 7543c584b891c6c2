/* The convolutions by definition: any layout, type, stride, dilation, groups and epilogue. What
 * nothing else takes, and the oracle of what does. Also the reordering of images and filters for
 * the library that wants them in one order only. */
#include "cuda/kernels/act.cuh"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/shape.cuh"
#include "ops/conv.h"

namespace
{

/* A rank-4 tensor in any layout: dims and strides of N, C, H, W (filters: K, C/groups, R, S). */
struct Image {
    int64_t dim[4], stride[4];
    __device__ __forceinline__ int64_t at(int64_t a, int64_t b, int64_t c, int64_t d) const
    {
        return a * stride[0] + b * stride[1] + c * stride[2] + d * stride[3];
    }
};
static Image image_of(const DltTensor *t)
{
    Image m = {};
    for (int i = 0; i < 4; i++) {
        m.dim[i] = t->shape.dim[i];
        m.stride[i] = stride_of(t, i);
    }
    return m;
}
struct Conv {
    Image x, w, y;
    int64_t stride[2], dilation[2], pad[2], groups, c_group, k_group;
};
static Conv conv_of(const DltNode *n, const DltTensor *x, const DltTensor *w, const DltTensor *y)
{
    const DltConv *a = (const DltConv *)n->attr;
    Conv d = {};
    d.x = image_of(x), d.w = image_of(w), d.y = image_of(y);
    for (int i = 0; i < 2; i++) {
        d.stride[i] = a->stride[i];
        d.dilation[i] = a->dilation[i];
        d.pad[i] = a->pad[2 * i];
    }
    d.groups = a->groups;
    d.c_group = x->shape.dim[1] / a->groups;
    d.k_group = y->shape.dim[1] / a->groups;
    return d;
}
/* i-th place of an image, counted N, C, H, W. */
__device__ __forceinline__ void place(const Image &m, int64_t i, int64_t p[4])
{
    for (int k = 3; k > 0; k--) {
        p[k] = i % m.dim[k];
        i /= m.dim[k];
    }
    p[0] = i;
}

/* y[n,k,p,q] = act(sum over c,r,s of x[n, c, p stride + r dilation - pad, ..] w[k,c,r,s] +
 * bias[k]), pre = the value before act. */
__global__ void conv_k(Conv d, DltEpilogue ep, In x, In w, In bias, Out y, Out pre, int64_t n)
{
    begin();
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t o[4];
        place(d.y, i, o);
        int64_t c0 = o[1] / d.k_group * d.c_group;
        int64_t y0 = o[2] * d.stride[0] - d.pad[0], x0 = o[3] * d.stride[1] - d.pad[1];
        float sum = 0;
        for (int64_t c = 0; c < d.c_group; c++)
            for (int64_t r = 0; r < d.w.dim[2]; r++)
                for (int64_t s = 0; s < d.w.dim[3]; s++) {
                    int64_t h = y0 + r * d.dilation[0], v = x0 + s * d.dilation[1];
                    if (h >= 0 && h < d.x.dim[2] && v >= 0 && v < d.x.dim[3])
                        sum += x[d.x.at(o[0], c0 + c, h, v)] * w[d.w.at(o[1], c, r, s)];
                }
        if (bias.p) sum += bias[o[1]];
        int64_t at = d.y.at(o[0], o[1], o[2], o[3]);
        if (pre.p) pre.set(at, sum);
        y.set(at, act_any(ep.act, sum));
    }
}

/* dx[n,c,h,w] = act_grad'(saved) sum over k,r,s of dy[n,k,p,q] w[k,c,r,s], (p, q) being the places
 * that read (h, w) through (r, s). */
__global__ void conv_data_k(Conv d, DltEpilogue ep, In dy, In w, In saved, Out dx, int64_t n)
{
    begin();
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        int64_t o[4];
        place(d.x, i, o);
        int64_t g = o[1] / d.c_group, c = o[1] % d.c_group;
        float sum = 0;
        for (int64_t r = 0; r < d.w.dim[2]; r++) {
            int64_t h = o[2] + d.pad[0] - r * d.dilation[0], p = h / d.stride[0];
            if (h < 0 || h % d.stride[0] != 0 || p >= d.y.dim[2]) continue;
            for (int64_t s = 0; s < d.w.dim[3]; s++) {
                int64_t v = o[3] + d.pad[1] - s * d.dilation[1], q = v / d.stride[1];
                if (v < 0 || v % d.stride[1] != 0 || q >= d.y.dim[3]) continue;
                for (int64_t k = g * d.k_group; k < (g + 1) * d.k_group; k++)
                    sum += dy[d.y.at(o[0], k, p, q)] * w[d.w.at(k, c, r, s)];
            }
        }
        int64_t at = d.x.at(o[0], o[1], o[2], o[3]);
        if (saved.p) sum *= act_grad_any(ep.act_grad, saved[at]);
        dx.set(at, sum);
    }
}

/* dw[k,c,r,s] = sum over n,p,q of x[n, c, p stride + r dilation - pad, ..] dy[n,k,p,q].  A block an
 * element of dw. */
__global__ void conv_filter_k(Conv d, In x, In dy, Out dw, int64_t n)
{
    begin();
    int64_t terms = d.y.dim[0] * d.y.dim[2] * d.y.dim[3];
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
        int64_t o[4];
        place(d.w, i, o);
        int64_t c = o[0] / d.k_group * d.c_group + o[1];
        float sum = 0;
        for (int64_t j = threadIdx.x; j < terms; j += blockDim.x) {
            int64_t q = j % d.y.dim[3], p = j / d.y.dim[3] % d.y.dim[2];
            int64_t b = j / (d.y.dim[3] * d.y.dim[2]);
            int64_t h = p * d.stride[0] + o[2] * d.dilation[0] - d.pad[0];
            int64_t v = q * d.stride[1] + o[3] * d.dilation[1] - d.pad[1];
            if (h >= 0 && h < d.x.dim[2] && v >= 0 && v < d.x.dim[3])
                sum += x[d.x.at(b, c, h, v)] * dy[d.y.at(b, o[0], p, q)];
        }
        sum = block_sum(sum);
        if (threadIdx.x == 0) dw.set(d.w.at(o[0], o[1], o[2], o[3]), sum);
    }
}

static DltStatus forward(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    Conv d = conv_of(n, n->in[0], n->in[1], n->out[0]);
    int64_t count = count_of(n->out[0]);
    return enqueue(c, err, conv_k, blocks_for(c, count, BLOCK), BLOCK, 0, d,
                   ((const DltConv *)n->attr)->ep, input(c, 0), input(c, 1), input(c, 2),
                   output(c, 0), output(c, 1), count);
}
static DltStatus backward_data(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    Conv d = conv_of(n, n->out[0], n->in[1], n->in[0]);
    int64_t count = count_of(n->out[0]);
    return enqueue(c, err, conv_data_k, blocks_for(c, count, BLOCK), BLOCK, 0, d,
                   ((const DltConv *)n->attr)->ep, input(c, 0), input(c, 1), input(c, 2),
                   output(c, 0), count);
}
static DltStatus backward_filter(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    Conv d = conv_of(n, n->in[0], n->out[0], n->in[1]);
    int64_t count = count_of(n->out[0]);
    return enqueue(c, err, conv_filter_k, blocks_for(c, count, 1, 64), BLOCK, 0, d, input(c, 0),
                   input(c, 1), output(c, 0), count);
}

/* dst = src in another order and type; zero where src ends first. i counts dst's memory. */
template <typename I> __global__ void order_k(DltCudaOrder o, In src, Out dst, I n)
{
    begin();
    for (I i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        I rest = i;
        int64_t from = 0, to = 0;
        bool inside = true;
#pragma unroll
        for (int k = 3; k >= 0; k--) {
            I q = rest / (I)o.dim[k];
            int64_t r = (int64_t)(rest - q * (I)o.dim[k]);
            rest = q;
            inside = inside && r < o.src_dim[k];
            from += r * o.src_stride[k];
            to += r * o.dst_stride[k];
        }
        dst.set(to, inside ? src[from] : 0.0f);
    }
}

/* dst = src in the same order, n elements, 8 a thread. */
enum { FLAT = 8 };
template <typename S> __global__ void flat_k(const S *src, float *dst, int64_t n)
{
    begin();
    int64_t step = (int64_t)gridDim.x * blockDim.x * FLAT;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * FLAT; i < n; i += step) {
        float v[FLAT];
        load_v<S, FLAT>(src + i, v);
        store_v<float, FLAT>(dst + i, v);
    }
}
/* Filter gradients that come out in 16 bits: widened without another look at where they lie. */
static bool is_flat(const DltCudaOrder &o, int64_t n)
{
    bool same = o.dst.dtype == DLT_F32 && n % FLAT == 0 && aligned16(o.src.ptr, o.dst.ptr);
    for (int i = 0; i < 4; i++)
        same = same && o.dim[i] == o.src_dim[i] &&
               (o.dim[i] == 1 || o.src_stride[i] == o.dst_stride[i]);
    return same; /* the order of dst has no gaps */
}

/* The first image for tensor cores: dst [pixels, 8] = the channels of src (row-major images, hw pixels
 * each), zeros behind them. A thread a pixel. */
template <typename T>
__global__ void pixels_k(const T *src, T *dst, uint32_t pixels, uint32_t hw, int channels)
{
    begin();
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < pixels;
         i += gridDim.x * blockDim.x) {
        const T *from = src + (int64_t)(i / hw) * hw * channels + i % hw;
        Pack<T> v;
#pragma unroll
        for (int c = 0; c < Pack<T>::n; c++)
            v.v[c] = c < channels ? from[(int64_t)c * hw] : from_float<T>(0.0f);
        store_pack(dst + (int64_t)i * Pack<T>::n, v);
    }
}
/* dims N, C, H, W: src row-major, dst NHWC of exactly a pack of channels. */
static bool is_pixels(const DltCudaOrder &o)
{
    int64_t hw = o.dim[2] * o.dim[3], c = o.src_dim[1], pack = 8;
    return o.src.dtype == o.dst.dtype && dlt_dtype_bytes(o.src.dtype) == 2 && o.dim[1] == pack &&
           o.src_stride[3] == 1 && o.src_stride[2] == o.dim[3] && o.src_stride[1] == hw &&
           o.src_stride[0] == c * hw && o.dst_stride[1] == 1 && o.dst_stride[3] == pack &&
           o.dst_stride[2] == pack * o.dim[3] && o.dst_stride[0] == pack * hw &&
           o.dim[0] * hw < (int64_t)1 << 30 && o.src_dim[0] == o.dim[0] &&
           o.src_dim[2] == o.dim[2] && o.src_dim[3] == o.dim[3] && aligned16(o.dst.ptr);
}

static void swap_axes(DltCudaOrder *o, int a, int b)
{
    int64_t *rows[] = {o->dim, o->src_dim, o->src_stride, o->dst_stride};
    for (int64_t *r : rows) {
        int64_t t = r[a];
        r[a] = r[b];
        r[b] = t;
    }
}

} // namespace

/* Axes are sorted by dst's stride, so that neighbouring threads write neighbouring elements. */
extern "C" DltStatus dlt_cuda_order(const DltCall *call, const DltCudaOrder *order, DltErr *err)
{
    DltCudaOrder o = *order;
    if (is_pixels(o)) {
        int64_t hw = o.dim[2] * o.dim[3], pixels = o.dim[0] * hw;
        unsigned blocks = blocks_for(call, pixels, BLOCK);
        if (o.src.dtype == DLT_BF16)
            return enqueue(call, err, pixels_k<bf16>, blocks, BLOCK, 0, (const bf16 *)o.src.ptr,
                           (bf16 *)o.dst.ptr, (uint32_t)pixels, (uint32_t)hw, (int)o.src_dim[1]);
        return enqueue(call, err, pixels_k<f16>, blocks, BLOCK, 0, (const f16 *)o.src.ptr,
                       (f16 *)o.dst.ptr, (uint32_t)pixels, (uint32_t)hw, (int)o.src_dim[1]);
    }
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3 - i; k++)
            if (o.dst_stride[k] < o.dst_stride[k + 1]) swap_axes(&o, k, k + 1);
    int64_t n = o.dim[0] * o.dim[1] * o.dim[2] * o.dim[3];
    In src = {o.src.ptr, (int)o.src.dtype};
    Out dst = {o.dst.ptr, (int)o.dst.dtype};
    DltStatus s = DLT_OK;
    if (n == 0) return s;
    if (is_flat(o, n)) {
        DLT_FLOAT_TYPE(o.src.dtype, S,
                       s = enqueue(call, err, flat_k<S>, blocks_for(call, n, BLOCK * FLAT), BLOCK,
                                   0, (const S *)o.src.ptr, (float *)o.dst.ptr, n));
        return s;
    }
    DLT_INDEX_TYPE(n, I,
                   s = enqueue(call, err, order_k<I>, blocks_for(call, n, BLOCK), BLOCK, 0, o, src,
                               dst, (I)n));
    return s;
}

extern "C" {
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_conv_fwd_plain, "conv_fwd.cuda.plain", dlt_cuda_accepts_any,
                         nullptr, forward);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_conv_data_plain, "conv_bwd_data.cuda.plain", dlt_cuda_accepts_any,
                         nullptr, backward_data);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_conv_filter_plain, "conv_bwd_filter.cuda.plain",
                         dlt_cuda_accepts_any, nullptr, backward_filter);
}
