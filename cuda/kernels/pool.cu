/* Max and average pooling by gathering: a thread owns an output (forward) or an input (backward)
 * place and looks at every window element that touches it, so nothing is added atomically. In NHWC
 * a thread takes a pack of channels. Formulas: ops/conv.h. */
#include "cuda/kernels/prim.cuh"
#include "cuda/kernels/shape.cuh"
#include "ops/conv.h"

namespace
{

enum { SKIPPED = 255 }; /* index of windows whose gradient is dropped (ep_relu) */

struct Window {
    int n, c, h, w, p, q; /* x [n, c, h, w], y [n, c, p, q] */
    int kh, kw, sh, sw, top, left, bottom, right;
    bool max, count_pad, relu, nhwc, wide; /* wide: index is i32 */
};

static Window window_of(const DltNode *node, const DltTensor *x, const DltTensor *y)
{
    const DltPool *a = (const DltPool *)node->attr;
    Window w = {};
    w.n = (int)x->shape.dim[0], w.c = (int)x->shape.dim[1];
    w.h = (int)x->shape.dim[2], w.w = (int)x->shape.dim[3];
    w.p = (int)y->shape.dim[2], w.q = (int)y->shape.dim[3];
    w.kh = (int)a->kernel[0], w.kw = (int)a->kernel[1];
    w.sh = (int)a->stride[0], w.sw = (int)a->stride[1];
    w.top = (int)a->pad[0], w.bottom = (int)a->pad[1];
    w.left = (int)a->pad[2], w.right = (int)a->pad[3];
    w.max = a->max, w.count_pad = a->count_pad, w.relu = a->ep_relu;
    w.nhwc = x->layout == DLT_NHWC;
    return w;
}

/* Place number i (in packs of V channels) of a [n, c, h, w] tensor in memory order. */
template <int V, typename I>
__device__ __forceinline__ void place(const Window &a, I i, int h, int w, int *n, int *c, int *y,
                                      int *x)
{
    if (a.nhwc) {
        I packs = (I)(a.c / V), r = i / packs;
        *c = (int)(i - r * packs) * V;
        I s = r / (I)w;
        *x = (int)(r - s * (I)w);
        *n = (int)(s / (I)h);
        *y = (int)(s - (I)*n * (I)h);
    } else {
        I s = i / (I)w;
        *x = (int)(i - s * (I)w);
        I t = s / (I)h;
        *y = (int)(s - t * (I)h);
        *n = (int)(t / (I)a.c);
        *c = (int)(t - (I)*n * (I)a.c);
    }
}
__device__ __forceinline__ int64_t offset(const Window &a, int n, int c, int y, int x, int h, int w)
{
    if (a.nhwc) return (((int64_t)n * h + y) * w + x) * a.c + c;
    return (((int64_t)n * a.c + c) * h + y) * w + x;
}
/* What an average over window (p, q) divides by. */
__device__ __forceinline__ float area(const Window &a, int p, int q)
{
    int y0 = p * a.sh - a.top, x0 = q * a.sw - a.left;
    int y1 = min(y0 + a.kh, a.h + a.bottom), x1 = min(x0 + a.kw, a.w + a.right);
    if (!a.count_pad) {
        y0 = max(y0, 0), x0 = max(x0, 0);
        y1 = min(y1, a.h), x1 = min(x1, a.w);
    }
    int n = (y1 - y0) * (x1 - x0);
    return n > 0 ? (float)n : 1.0f;
}

/* y = max or average of the window; index: place of the first maximum (max only).  x, y T. */
template <typename T, int V, typename I>
__global__ void pool_k(Window a, const T *x, T *y, void *index, I n_place)
{
    begin();
    for (I i = blockIdx.x * blockDim.x + threadIdx.x; i < n_place; i += gridDim.x * blockDim.x) {
        int n, c, p, q, at[V] = {};
        place<V>(a, i, a.p, a.q, &n, &c, &p, &q);
        float best[V], v[V];
        bool first = true;
        for (int k = 0; k < V; k++)
            best[k] = 0;
        int y0 = p * a.sh - a.top, x0 = q * a.sw - a.left;
        for (int r = max(0, -y0); r < min(a.kh, a.h - y0); r++)
            for (int s = max(0, -x0); s < min(a.kw, a.w - x0); s++) {
                load_v<T, V>(x + offset(a, n, c, y0 + r, x0 + s, a.h, a.w), v);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    if (!a.max)
                        best[k] += v[k];
                    else if (first || v[k] > best[k] || (v[k] != v[k] && best[k] == best[k]))
                        best[k] = v[k], at[k] = r * a.kw + s;
                }
                first = false;
            }
        int64_t o = offset(a, n, c, p, q, a.p, a.q);
        float scale = a.max ? 1.0f : 1.0f / area(a, p, q);
#pragma unroll
        for (int k = 0; k < V; k++) {
            best[k] *= scale;
            if (a.relu && best[k] <= 0) best[k] = 0, at[k] = SKIPPED;
            if (!index) continue;
            if (a.wide)
                ((int32_t *)index)[o + k] = at[k];
            else
                ((uint8_t *)index)[o + k] = (uint8_t)at[k];
        }
        store_v<T, V>(y + o, best);
    }
}

/* dx = sum of dy over the windows that chose this place (max), or of dy / area (average). */
template <typename T, int V, typename I>
__global__ void pool_grad_k(Window a, const T *dy, const void *index, T *dx, I n_place)
{
    begin();
    for (I i = blockIdx.x * blockDim.x + threadIdx.x; i < n_place; i += gridDim.x * blockDim.x) {
        int n, c, y, x;
        place<V>(a, i, a.h, a.w, &n, &c, &y, &x);
        float sum[V] = {}, v[V];
        int gy = y + a.top, gx = x + a.left;
        int p0 = gy < a.kh ? 0 : (gy - a.kh) / a.sh + 1, p1 = min(gy / a.sh, a.p - 1);
        int q0 = gx < a.kw ? 0 : (gx - a.kw) / a.sw + 1, q1 = min(gx / a.sw, a.q - 1);
        for (int p = p0; p <= p1; p++)
            for (int q = q0; q <= q1; q++) {
                int64_t o = offset(a, n, c, p, q, a.p, a.q);
                int here = (gy - p * a.sh) * a.kw + (gx - q * a.sw);
                load_v<T, V>(dy + o, v);
                float scale = a.max ? 1.0f : 1.0f / area(a, p, q);
#pragma unroll
                for (int k = 0; k < V; k++) {
                    int at = !a.max   ? here
                             : a.wide ? ((const int32_t *)index)[o + k]
                                      : (int)((const uint8_t *)index)[o + k];
                    if (at == here) sum[k] += v[k] * scale;
                }
            }
        store_v<T, V>(dx + offset(a, n, c, y, x, a.h, a.w), sum);
    }
}

static DltStatus forward(const DltCall *c, DltErr *err)
{
    const DltTensor *x = c->node->in[0], *y = c->node->out[0];
    Window w = window_of(c->node, x, y);
    w.wide = c->node->out[1] && c->node->out[1]->dtype == DLT_I32;
    int64_t n = count_of(y);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(x->dtype, T, DLT_INDEX_TYPE(n, I, {
                       constexpr int N = Pack<T>::n;
                       bool packed = w.nhwc && w.c % N == 0 && aligned16(c->in[0], c->out[0]);
                       int64_t places = packed ? n / N : n;
                       auto kernel = packed ? pool_k<T, N, I> : pool_k<T, 1, I>;
                       s = enqueue(c, err, kernel, blocks_for(c, places, BLOCK), BLOCK, 0, w,
                                   (const T *)c->in[0], (T *)c->out[0], (void *)c->out[1],
                                   (I)places);
                   }));
    return s;
}
static DltStatus backward(const DltCall *c, DltErr *err)
{
    const DltTensor *dy = c->node->in[0], *dx = c->node->out[0];
    Window w = window_of(c->node, dx, dy);
    w.wide = c->node->in[1] && c->node->in[1]->dtype == DLT_I32;
    int64_t n = count_of(dx);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(dx->dtype, T, DLT_INDEX_TYPE(n, I, {
                       constexpr int N = Pack<T>::n;
                       bool packed = w.nhwc && w.c % N == 0 && aligned16(c->in[0], c->out[0]);
                       int64_t places = packed ? n / N : n;
                       auto kernel = packed ? pool_grad_k<T, N, I> : pool_grad_k<T, 1, I>;
                       s = enqueue(c, err, kernel, blocks_for(c, places, BLOCK), BLOCK, 0, w,
                                   (const T *)c->in[0], (const void *)c->in[1], (T *)c->out[0],
                                   (I)places);
                   }));
    return s;
}
static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_cuda_accepts_same_layout(n, dev, why_not)) return false;
    if (n->in[0]->dtype != n->out[0]->dtype)
        return dlt_cuda_refuse(why_not, "x and y differ in type");
    for (int i = 0; i < 4; i++)
        if (n->in[0]->shape.dim[i] > INT32_MAX || n->out[0]->shape.dim[i] > INT32_MAX)
            return dlt_cuda_refuse(why_not, "a dimension is above 2^31");
    return true;
}

DLT_CUDA_KERNEL(fwd, "pool_fwd.cuda.gather", accepts, nullptr, forward);
DLT_CUDA_KERNEL(bwd, "pool_bwd.cuda.gather", accepts, nullptr, backward);

} // namespace

extern "C" {
const DltKernel *const dlt_cuda_pool_fwd[] = {&fwd, nullptr};
const DltKernel *const dlt_cuda_pool_bwd[] = {&bwd, nullptr};
}
