/* First convolutions of one channel (3x3 or 5x5 taps) with the 2x2 max pooling behind them, and the
 * filters' and bias' gradients from the pooled gradient: the image between never leaves the
 * registers. A block keeps an image in shared memory; a warp makes products of 16 places by 8 filters
 * whose operands it reads from there word by word. A word is one tap in tf32 and two neighbours in 16
 * bits; since two neighbours begin at even places only, the image lies there twice, the second time
 * moved by one. Products in bf16, f16 or tf32, sums in f32 in a fixed order. */
#include "cuda/kernels/async.cuh"
#include "cuda/kernels/conv_pool.cuh"

namespace
{

enum { FILTERS = 32, WARPS = BLOCK / WARP, INDEX_PITCH = FILTERS + 16 };

struct Image {
    int n, h, w, k, ph, pw;    /* x [n, 1, h, w], y [n, k, ph, pw] */
    int top, left, rows, cols; /* of the window in shared memory, padding included */
    bool relu;
    int64_t xs[4]; /* strides of x */
};

/* How the taps of a filter of R x R lie in words. */
template <typename T, int R> struct Taps {
    static constexpr int per_word = 4 / (int)sizeof(T);
    static constexpr int across = (R + per_word - 1) / per_word, words = R * across;
    static constexpr int steps = (words + 7) / 8; /* products of eight words */
    static constexpr int filter_tiles =
        (R * R + 1 + 7) / 8; /* of eight taps; one more is the bias */
};

template <typename T> __device__ __forceinline__ uint32_t word_of(float a, float b)
{
    if constexpr (sizeof(T) == 4) return to_tf32(a);
    T pair[2] = {from_float<T>(a), from_float<T>(b)};
    uint32_t w;
    memcpy(&w, pair, sizeof w);
    return w;
}

/* window[row][col] = x of image n at (row - top, col - left), zero outside; in 16 bits the same again
 * from column 1 on. */
template <typename T>
__device__ __forceinline__ void bring_image(const Image &d, const T *x, int n, T *window)
{
    const T *image = x + n * d.xs[0];
    int count = d.rows * d.cols;
    for (int i = threadIdx.x; i < count; i += BLOCK) {
        int row = i / d.cols, h = row - d.top, v = i - row * d.cols - d.left;
        T value = from_float<T>(0.0f);
        if (h >= 0 && h < d.h && v >= 0 && v < d.w) value = image[h * d.xs[2] + v * d.xs[3]];
        if constexpr (sizeof(T) == 4) {
            uint32_t bits = to_tf32(value);
            memcpy(window + i, &bits, sizeof bits);
        } else {
            window[i] = value;
            if (i > 0) window[count + i - 1] = value;
        }
    }
}

/* ---- forward ---- */

/* A warp's eight pooled columns of one pooled row: the maximum of each 2x2 window. acc[c]: columns c, c +
 * 2 .. of both rows, so that a lane has all four values of a window. */
template <typename T>
__device__ __forceinline__ void put_pooled(const float acc[2][4][4], const float bias[4][2],
                                           bool relu, T *y, uint8_t *index)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float best[2];
        unsigned at[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float v[4] = {acc[0][j][e] + bias[j][e], acc[1][j][e] + bias[j][e],
                          acc[0][j][e + 2] + bias[j][e], acc[1][j][e + 2] + bias[j][e]};
            best[e] = pick(v, relu, &at[e]);
        }
        store_pair(y + j * 8, best[0], best[1]);
        store_indices(index + j * 8, at[0], at[1]);
    }
}

/* y, index = max over 2x2 of sum over r,s of x[n, p + r - top, q + s - left] w[k,r,s] + bias[k].  x
 * [N,1,H,W] in any order, w [K,1,R,R], y NHWC T; index NHWC bytes; bias [K].  Grid: blocks that share
 * out the images x K / 32. Shared: the windows of two images. */
template <typename T, int R>
__global__ void __launch_bounds__(BLOCK)
    first_pool_k(Image d, const T *x, const T *w, In bias, T *y, uint8_t *index)
{
    begin();
    using Z = Taps<T, R>;
    DLT_DYNAMIC_SHARED(unsigned char, shared);
    int g = threadIdx.x % WARP / 4, c = threadIdx.x % 4, k0 = blockIdx.y * FILTERS;
    int pitch = d.cols / Z::per_word, across = (d.pw + 7) / 8, words = d.rows * d.cols;
    int other = Z::per_word == 2 ? d.rows * pitch : 1; /* from an even column to the next */
    uint32_t b[4][Z::steps][2];
    int off[Z::steps][2];
    float own_bias[4][2];
#pragma unroll
    for (int i = 0; i < Z::steps * 2; i++) {
        int word = i * 4 + c, r = word / Z::across, s = word % Z::across * Z::per_word;
        bool inside = word < Z::words;
        off[i / 2][i % 2] = inside ? r * pitch + s / Z::per_word : 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const T *from = w + (int64_t)(k0 + j * 8 + g) * R * R + r * R + s;
            float first = inside ? to_float(from[0]) : 0.0f;
            float second = inside && Z::per_word == 2 && s + 1 < R ? to_float(from[1]) : 0.0f;
            b[j][i / 2][i % 2] = word_of<T>(first, second);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        own_bias[i / 2][i % 2] = bias.p ? bias[k0 + i / 2 * 8 + c * 2 + i % 2] : 0.0f;
    uint32_t *windows = reinterpret_cast<uint32_t *>(shared);
    bring_image(d, x, blockIdx.x, reinterpret_cast<T *>(windows));
    for (int n = blockIdx.x, own = 0; n < d.n; n += gridDim.x, own ^= 1) {
        const uint32_t *window = windows + own * words;
        __syncthreads();
        if (n + (int)gridDim.x < d.n)
            bring_image(d, x, n + gridDim.x, reinterpret_cast<T *>(windows + (own ^ 1) * words));
        for (int unit = threadIdx.x / WARP; unit < d.ph * across; unit += WARPS) {
            int p = unit / across, col = (unit - p * across) * 8 + g;
            const uint32_t *at = window + 2 * p * pitch + col * (2 / Z::per_word);
            float acc[2][4][4] = {};
#pragma unroll
            for (int i = 0; i < Z::steps * 2; i++) {
                const uint32_t *from = at + i % 2 * other;
                const int *o = off[i / 2];
                uint32_t a[4] = {from[o[0]], from[o[0] + pitch], from[o[1]], from[o[1] + pitch]};
#pragma unroll
                for (int j = 0; j < 4; j++)
                    product<T>(acc[i % 2][j], a, b[j][i / 2]);
            }
            int64_t to = (((int64_t)n * d.ph + p) * d.pw + col) * d.k + k0 + c * 2;
            if (col < d.pw) put_pooled(acc, own_bias, d.relu, y + to, index + to);
        }
    }
}

/* ---- the gradients of the filters and the bias ---- */

/* The pooled gradient of an image, 32 filters of each place, in shared memory. */
template <typename T> struct Gradient {
    static constexpr int pitch = FILTERS + 16 / (int)sizeof(T); /* elements: no bank conflicts */
    T *dy;
    uint8_t *index;
};

template <typename T>
__device__ __forceinline__ void bring_gradient(const Image &d, const T *dy, const uint8_t *index,
                                               int n, int k0, const Gradient<T> &to)
{
    constexpr int packs = FILTERS / Pack<T>::n;
    int64_t first = (int64_t)n * d.ph * d.pw;
    for (int i = threadIdx.x; i < d.ph * d.pw * packs; i += BLOCK) {
        int place = i / packs, col = i % packs * Pack<T>::n;
        async_copy(to.dy + place * Gradient<T>::pitch + col, dy + (first + place) * d.k + k0 + col);
    }
    for (int i = threadIdx.x; i < d.ph * d.pw * 2; i += BLOCK)
        async_copy(to.index + i / 2 * INDEX_PITCH + i % 2 * 16,
                   index + (first + i / 2) * d.k + k0 + i % 2 * 16);
    async_commit();
}

/* A word of the gradient in front of the pooling: the bits of v where row `row` of its window (and the
 * column that the word stands for) was chosen. */
template <typename T>
__device__ __forceinline__ uint32_t gradient_word(uint32_t v, unsigned at, int row, int col)
{
    if constexpr (sizeof(T) == 4) return at == (unsigned)(2 * row + col) ? v : 0u;
    return at == (unsigned)(2 * row) ? v : at == (unsigned)(2 * row + 1) ? v << 16 : 0u;
}
template <typename T> __device__ __forceinline__ uint32_t bits_of(T v)
{
    if constexpr (sizeof(T) == 4) {
        return to_tf32(v);
    } else {
        uint16_t bits;
        memcpy(&bits, &v, sizeof bits);
        return bits;
    }
}

/* acc[m][t] += gradient of 16 filters m x 16 places, times the places' taps of tile t: pooled row p,
 * pooled columns 8 u ... */
template <typename T, int R>
__device__ __forceinline__ void add_places(const Image &d, const uint32_t *window,
                                           const Gradient<T> &from, const int *off, int p, int u,
                                           float acc[2][Taps<T, R>::filter_tiles][4])
{
    using Z = Taps<T, R>;
    int lane = threadIdx.x % WARP, g = lane / 4, c = lane % 4, pitch = d.cols / Z::per_word;
    int last_tap = (Z::filter_tiles - 1) * 8 + g;
#pragma unroll
    for (int step = 0; step < 2 / Z::per_word; step++) {
        uint32_t v[2][4];
        unsigned at[2][4];
#pragma unroll
        for (int i = 0; i < 4; i++) { /* as operand A: filters g, g + 8, then the other places */
            int half = i / 2,
                col = u * 8 + (Z::per_word == 2 ? c + half * 4 : step * 4 + half * 2 + c / 2);
            int place = p * d.pw + min(col, d.pw - 1);
#pragma unroll
            for (int m = 0; m < 2; m++) {
                int k = m * 16 + i % 2 * 8 + g;
                v[m][i] = bits_of(from.dy[place * Gradient<T>::pitch + k]);
                at[m][i] = col < d.pw ? from.index[place * INDEX_PITCH + k] : (unsigned)CUT;
            }
        }
#pragma unroll
        for (int row = 0; row < 2; row++) {
            uint32_t a[2][4];
#pragma unroll
            for (int i = 0; i < 8; i++)
                a[i / 4][i % 4] = gradient_word<T>(v[i / 4][i % 4], at[i / 4][i % 4], row, c & 1);
            const uint32_t *x =
                window + (2 * p + row) * pitch + u * 16 / Z::per_word + step * 8 + c;
#pragma unroll
            for (int t = 0; t < Z::filter_tiles; t++) {
                uint32_t b[2] = {x[off[t]], x[off[t] + 4]};
                if (t == Z::filter_tiles - 1 && last_tap >= R * R)
                    b[0] = b[1] = last_tap == R * R ? word_of<T>(1.0f, 1.0f) : 0u;
                product<T>(acc[0][t], a[0], b);
                product<T>(acc[1][t], a[1], b);
            }
        }
    }
}

/* What a block has of an image in shared memory; two of them, one being brought. */
template <typename T> struct Loaded {
    uint32_t *window;
    Gradient<T> grad;
};
__host__ __device__ static inline int
window_bytes(const Image &d) /* once in f32, twice in 16 bits */
{
    return (d.rows * d.cols * 4 + 15) / 16 * 16;
}
template <typename T> __host__ __device__ static inline int loaded_bytes(const Image &d)
{
    return window_bytes(d) + d.ph * d.pw * (Gradient<T>::pitch * (int)sizeof(T) + (int)INDEX_PITCH);
}
template <typename T>
__device__ __forceinline__ Loaded<T> loaded_at(const Image &d, unsigned char *shared, int which)
{
    unsigned char *from = shared + which * loaded_bytes<T>(d), *grad = from + window_bytes(d);
    Loaded<T> l;
    l.window = reinterpret_cast<uint32_t *>(from);
    l.grad.dy = reinterpret_cast<T *>(grad);
    l.grad.index = grad + d.ph * d.pw * Gradient<T>::pitch * (int)sizeof(T);
    return l;
}

/* A share of dw and db: part[b] = {[K, R R], [K]}, sums over the images of block b of x[window] times
 * the gradient in front of the pooling.  x as above, dy NHWC T, index NHWC bytes.  Grid as above.
 * Shared: the image's window, its pooled gradient and index; at the end the warps' sums. */
template <typename T, int R>
__global__ void __launch_bounds__(BLOCK)
    first_pool_filter_k(Image d, const T *x, const T *dy, const uint8_t *index, float *part)
{
    begin();
    using Z = Taps<T, R>;
    constexpr int N = Z::filter_tiles;
    DLT_DYNAMIC_SHARED(unsigned char, shared);
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, c = lane % 4;
    int pitch = d.cols / Z::per_word, off[N], k0 = blockIdx.y * FILTERS, across = (d.pw + 7) / 8;
#pragma unroll
    for (int t = 0; t < N; t++) {
        int tap = t * 8 + g < R * R ? t * 8 + g : 0, r = tap / R, s = tap % R;
        off[t] = r * pitch + s;
        if (Z::per_word == 2) off[t] = ((s & 1) * d.rows + r) * pitch + s / 2;
    }
    float acc[2][N][4] = {};
    auto bring = [&](int n, const Loaded<T> &to) {
        bring_gradient(d, dy, index, n, k0, to.grad);
        bring_image(d, x, n, reinterpret_cast<T *>(to.window));
    };
    bring(blockIdx.x, loaded_at<T>(d, shared, 0));
    for (int n = blockIdx.x, own = 0; n < d.n; n += gridDim.x, own ^= 1) {
        Loaded<T> now = loaded_at<T>(d, shared, own);
        async_wait<0>();
        __syncthreads();
        if (n + (int)gridDim.x < d.n) bring(n + gridDim.x, loaded_at<T>(d, shared, own ^ 1));
        for (int unit = warp; unit < d.ph * across; unit += WARPS)
            add_places<T, R>(d, now.window, now.grad, off, unit / across, unit % across, acc);
    }
    __syncthreads();
    float *sums = reinterpret_cast<float *>(shared); /* [warp][filter][tap] */
#pragma unroll
    for (int i = 0; i < 2 * N * 4; i++) {
        int m = i / (N * 4), t = i / 4 % N, e = i % 4, k = m * 16 + e / 2 * 8 + g;
        sums[(warp * FILTERS + k) * (N * 8) + t * 8 + c * 2 + e % 2] = acc[m][t][e];
    }
    __syncthreads();
    float *mine = part + (int64_t)blockIdx.x * d.k * (R * R + 1);
    for (int i = threadIdx.x; i < FILTERS * (R * R + 1); i += BLOCK) {
        int k = i / (R * R + 1), tap = i % (R * R + 1);
        float sum = 0;
        for (int v = 0; v < WARPS; v++)
            sum += sums[(v * FILTERS + k) * (N * 8) + tap];
        mine[tap < R * R ? (k0 + k) * R * R + tap : d.k * R * R + k0 + k] = sum;
    }
}

/* ---- hosts ---- */

static Image image_of(const DltNode *n, const DltTensor *x, const DltTensor *y)
{
    const DltConvPool *a = (const DltConvPool *)n->attr;
    Image d = {};
    d.n = (int)x->shape.dim[0], d.h = (int)x->shape.dim[2], d.w = (int)x->shape.dim[3];
    d.k = (int)y->shape.dim[1], d.ph = (int)y->shape.dim[2], d.pw = (int)y->shape.dim[3];
    d.top = (int)a->conv.pad[0], d.left = (int)a->conv.pad[2];
    d.rows = 2 * d.ph + (int)a->conv.kernel[0] - 1;
    d.cols = (d.pw + 7) / 8 * 16 + 8;
    d.relu = a->pool.ep_relu;
    for (int i = 0; i < 4; i++)
        d.xs[i] = stride_of(x, i);
    return d;
}
template <typename T> static size_t filter_bytes(const Image &d)
{
    size_t used = 2 * (size_t)loaded_bytes<T>(d);
    size_t sums = sizeof(float) * WARPS * FILTERS * 32;
    return used > sums ? used : sums;
}
/* Few images: a block each; many: as many blocks as are resident. */
static int blocks_of(const Image &d, int n_sm)
{
    int most = 4 * n_sm;
    return d.n < most ? d.n : most;
}

static bool accepts(const DltNode *n, const DltDevice *dev, const DltTensor *x, const DltTensor *y,
                    const DltTensor *index, DltWhy *why_not)
{
    const DltConvPool *a = (const DltConvPool *)n->attr;
    if (!dlt_cuda_accepts_any(n, dev, why_not) || !multiplies(dev, x->dtype, why_not) ||
        !is_small_filter(&a->conv, why_not) || !pools_by_two(&a->pool, index, why_not))
        return false;
    if (x->shape.dim[1] != 1 || y->shape.dim[1] % FILTERS != 0 || y->layout != DLT_NHWC)
        return dlt_cuda_refuse(why_not, "not one channel into a multiple of 32 filters in NHWC");
    if (y->dtype != x->dtype) return dlt_cuda_refuse(why_not, "tensors differ in type");
    if (!small_dims(x) || !small_dims(y) || y->shape.dim[1] / FILTERS > 65535)
        return dlt_cuda_refuse(why_not, "a dimension above 65535");
    double places = (double)(y->shape.dim[2] + 4) * (double)(y->shape.dim[3] + 16);
    size_t bytes = 0;
    if (places <= 4096) DLT_FLOAT_TYPE(x->dtype, T, bytes = filter_bytes<T>(image_of(n, x, y)));
    return (bytes > 0 && bytes <= 96 * 1024) ||
           dlt_cuda_refuse(why_not, "an image does not fit into shared memory");
}
static bool accepts_fwd(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!accepts(n, dev, n->in[0], n->out[0], n->out[1], why_not)) return false;
    return n->in[1]->dtype == n->in[0]->dtype || dlt_cuda_refuse(why_not, "tensors differ in type");
}
static bool accepts_filter(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    return accepts(n, dev, n->in[0], n->in[1], n->in[2], why_not);
}

template <typename T, int R> static DltStatus forward_of(const DltCall *c, DltErr *err)
{
    Image d = image_of(c->node, c->node->in[0], c->node->out[0]);
    dim3 grid((unsigned)blocks_of(d, c->stream->dev->n_sm), (unsigned)(d.k / FILTERS));
    return enqueue(c, err, first_pool_k<T, R>, grid, BLOCK, 2 * (size_t)d.rows * (size_t)d.cols * 4,
                   d, (const T *)c->in[0], (const T *)c->in[1], input(c, 2), (T *)c->out[0],
                   (uint8_t *)c->out[1]);
}
static DltStatus launch_fwd(const DltCall *c, DltErr *err)
{
    bool wide = ((const DltConvPool *)c->node->attr)->conv.kernel[0] == 5;
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T,
                   s = wide ? forward_of<T, 5>(c, err) : forward_of<T, 3>(c, err));
    return s;
}

static int64_t share_of(const DltNode *n) /* sums of a block */
{
    return count_of(n->out[0]) + n->in[1]->shape.dim[1];
}
static DltStatus prepare_filter(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    int64_t blocks = blocks_of(image_of(n, n->in[0], n->in[1]), dev->n_sm), count = share_of(n);
    p->work_bytes = (size_t)(blocks * count) * sizeof(float) + parts_bytes(dev, blocks, count);
    return DLT_OK;
}
template <typename T, int R> static DltStatus filter_of(const DltCall *c, DltErr *err)
{
    Image d = image_of(c->node, c->node->in[0], c->node->in[1]);
    dim3 grid((unsigned)blocks_of(d, c->stream->dev->n_sm), (unsigned)(d.k / FILTERS));
    return enqueue(c, err, first_pool_filter_k<T, R>, grid, BLOCK, filter_bytes<T>(d), d,
                   (const T *)c->in[0], (const T *)c->in[1], (const uint8_t *)c->in[2],
                   (float *)c->work);
}
static DltStatus launch_filter(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    bool wide = ((const DltConvPool *)n->attr)->conv.kernel[0] == 5;
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(n->in[0]->dtype, T,
                   s = wide ? filter_of<T, 5>(c, err) : filter_of<T, 3>(c, err));
    DLT_TRY(s);
    int64_t blocks = blocks_of(image_of(n, n->in[0], n->in[1]), c->stream->dev->n_sm);
    return add_both(c, err, blocks, share_of(n));
}

} // namespace

extern "C" {
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_conv_pool_fwd_first, "conv_pool_fwd.cuda.first", accepts_fwd,
                         nullptr, launch_fwd);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_conv_pool_filter_first, "conv_pool_bwd_filter.cuda.first",
                         accepts_filter, prepare_filter, launch_filter);
}
