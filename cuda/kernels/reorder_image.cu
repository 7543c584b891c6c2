/* Images between PLAIN and NHWC where one of them fits into shared memory: a block turns whole images
 * over, so that both sides are read and written in order. (kernels/move.cu has what takes any size.) */
#include "cuda/kernels/prim.cuh"
#include "cuda/kernels/shape.cuh"

namespace
{

enum { MOST_BYTES = 40 * 1024 };

/* x [n, rows, cols] -> y [n, cols, rows]; rows of y are `pitch` elements apart in shared memory. */
struct Turn {
    int64_t n;
    int rows, cols, pitch;
};
static Turn turn_of(const DltNode *n)
{
    const int64_t *d = n->in[0]->shape.dim;
    bool channels_last = n->in[0]->layout == DLT_NHWC;
    Turn t = {d[0], (int)(channels_last ? d[2] * d[3] : d[1]),
              (int)(channels_last ? d[1] : d[2] * d[3]), 0};
    int pack = 16 / (int)dlt_dtype_bytes(n->in[0]->dtype);
    /* whole packs: apart by one more, against bank conflicts; else one behind the other */
    t.pitch = t.rows % pack == 0 ? t.rows + pack : t.rows;
    return t;
}

template <typename T> __global__ void __launch_bounds__(BLOCK) turn_k(Turn t, const T *x, T *y)
{
    begin();
    DLT_DYNAMIC_SHARED(unsigned char, shared);
    T *image = reinterpret_cast<T *>(shared);
    constexpr int V = Pack<T>::n;
    int count = t.rows * t.cols, wide = t.pitch == t.rows ? count : t.rows;
    for (int64_t n = blockIdx.x; n < t.n; n += gridDim.x) {
        const T *from = x + n * count;
        T *to = y + n * count;
#pragma unroll 4
        for (int i = threadIdx.x; i < count; i += BLOCK) {
            int row = i / t.cols;
            image[(i - row * t.cols) * t.pitch + row] = from[i];
        }
        __syncthreads();
        for (int i = threadIdx.x * V; i < count; i += BLOCK * V) {
            int row = i / wide;
            store_pack(to + i, load_pack(image + row * t.pitch + i - row * wide));
        }
        __syncthreads();
    }
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltTensor *x = n->in[0], *y = n->out[0];
    if (!dlt_cuda_accepts_any(n, dev, why_not)) return false;
    if (x->dtype != y->dtype || x->layout == y->layout)
        return dlt_cuda_refuse(why_not, "not the same elements in another layout");
    int64_t count = x->shape.dim[1] * x->shape.dim[2] * x->shape.dim[3];
    int64_t bytes = (int64_t)dlt_dtype_bytes(x->dtype);
    if (count * bytes > MOST_BYTES || count * bytes % 16 != 0 || bytes > 4 || count == 0)
        return dlt_cuda_refuse(why_not, "images too large, or not of whole packs");
    Turn t = turn_of(n);
    return (int64_t)t.cols * t.pitch * bytes <= MOST_BYTES ||
           dlt_cuda_refuse(why_not, "images too large");
}

static DltStatus launch(const DltCall *c, DltErr *err)
{
    Turn t = turn_of(c->node);
    size_t bytes = dlt_dtype_bytes(c->node->in[0]->dtype);
    DltStatus s = DLT_OK;
    if (t.n == 0) return s;
    DLT_SIZED_TYPE(bytes, T,
                   s = enqueue(c, err, turn_k<T>, blocks_for(c, t.n, 1, 8), BLOCK,
                               (size_t)t.cols * (size_t)t.pitch * bytes, t, (const T *)c->in[0],
                               (T *)c->out[0]));
    return s;
}

} // namespace

extern "C" {
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_reorder_image, "reorder.cuda.image", accepts, nullptr, launch);
}
