/* What the kernels of convolution and 2x2 max pooling as one node share: which nodes they take, the
 * choice of a window's maximum, and its way back. Formulas: ops/conv.h. */
#ifndef DLT_CONV_POOL_CUH
#define DLT_CONV_POOL_CUH

#include "cuda/kernels/conv_first.cuh"
#include "cuda/kernels/warp_mma.cuh"

namespace
{

enum { CUT = 255 }; /* index of windows whose gradient is dropped */

/* sum += a b in T's arithmetic on the tensor cores: tf32 for float. */
template <typename T>
__device__ __forceinline__ void product(float sum[4], const uint32_t a[4], const uint32_t b[2])
{
    if constexpr (sizeof(T) == 4)
        warp_mma_tf32(sum, a, b);
    else
        warp_mma<T>(sum, a, b);
}

/* The largest of a window's four values in row order, the first of equal ones; NaN wins. */
__device__ __forceinline__ float pick(const float v[4], bool relu, unsigned *at)
{
    float best = v[0];
    *at = 0;
#pragma unroll
    for (unsigned i = 1; i < 4; i++)
        if (!(v[i] <= best) && best == best) best = v[i], *at = i;
    if (relu && best <= 0) best = 0, *at = CUT;
    return best;
}

/* Two neighbours as T, and their indices. */
template <typename T> __device__ __forceinline__ void store_pair(T *p, float a, float b)
{
    struct alignas(2 * sizeof(T)) Pair {
        T v[2];
    } pair = {{from_float<T>(a), from_float<T>(b)}};
    *reinterpret_cast<Pair *>(p) = pair;
}
__device__ __forceinline__ void store_indices(uint8_t *p, unsigned a, unsigned b)
{
    *reinterpret_cast<uint16_t *>(p) = (uint16_t)(a | b << 8);
}

/* Windows of 2x2 side by side, the index in bytes. */
static inline bool pools_by_two(const DltPool *a, const DltTensor *index, DltWhy *why_not)
{
    bool none = !a->pad[0] && !a->pad[1] && !a->pad[2] && !a->pad[3] && !a->ceil;
    if (a->max && none && a->kernel[0] == 2 && a->kernel[1] == 2 && a->stride[0] == 2 &&
        a->stride[1] == 2 && index && index->dtype == DLT_U8 && index->layout == DLT_NHWC)
        return true;
    return dlt_cuda_refuse(why_not, "not 2x2 max pooling of NHWC images");
}
/* Filters of 3x3 or 5x5 that move by one. */
static inline bool is_small_filter(const DltConv *a, DltWhy *why_not)
{
    if (a->groups == 1 && a->kernel[0] == a->kernel[1] &&
        (a->kernel[0] == 3 || a->kernel[0] == 5) && a->stride[0] == 1 && a->stride[1] == 1 &&
        a->dilation[0] == 1 && a->dilation[1] == 1)
        return true;
    return dlt_cuda_refuse(why_not, "not a 3x3 or 5x5 filter with stride 1");
}
static inline bool multiplies(const DltDevice *dev, DltDtype dtype, DltWhy *why_not)
{
    if (dtype == DLT_BF16 || dtype == DLT_F16 || (dtype == DLT_F32 && dev->option.tf32))
        return true;
    return dlt_cuda_refuse(why_not, "tf32 is switched off");
}

/* The total of shares f32[blocks, count] at the beginning of the scratch: the first n_filter sums of a
 * row are dw's, the others db's. */
struct PutBoth {
    Out dw, db;
    int64_t n_filter;
    __device__ __forceinline__ void operator()(int64_t i, const float *sum) const
    {
        if (i < n_filter)
            dw.set(i, sum[0]);
        else if (db.p)
            db.set(i - n_filter, sum[0]);
    }
};
static inline DltStatus add_both(const DltCall *c, DltErr *err, int64_t blocks, int64_t count)
{
    float *part = (float *)c->work;
    ChannelPlan p = channel_plan(Axis{blocks, count, 1}, 1, c->stream->dev->n_sm);
    PutBoth put = {output(c, 0), output(c, 1), count_of(c->node->out[0])};
    return channel_reduce<1, 1, Parts>(c, err, p, part + blocks * count, put, (const float *)part);
}

} // namespace

#endif
