/* Convolutions of small filters (3x3, 5x5, stride 1) over images of some tens of channels, for the
 * tensor cores: what forward, data gradient and filter gradient share. The image is seen in patches of
 * 16 columns; a patch and its border lie in shared memory a piece of channels (64 bytes a place) at a
 * time, and every row that a warp loads as operand serves all R rows of the filter that read it. */
#ifndef DLT_CONV_TILE_CUH
#define DLT_CONV_TILE_CUH

#include "cuda/kernels/async.cuh"
#include "cuda/kernels/conv_pool.cuh"

namespace
{

enum {
    COLS = 16,           /* of a patch: rows of an operand A */
    PLACE = 80,          /* bytes of a place in shared memory: 64, and 16 against bank conflicts */
    PATCH_THREADS = 128, /* that work on a patch */
    AHEAD = 4            /* packs of a pooled gradient that a thread has under way */
};

/* A loaded f32 as operand. */
__device__ __forceinline__ uint32_t tf32_again(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return to_tf32(v);
}

/* Channels of a piece. */
template <typename T> static constexpr int piece_of = 64 / (int)sizeof(T);

/* out[n, p, q] = sum over r, s of in[n, p + r - top, q + s - left] w[r, s]; in is h x w of ci channels,
 * out p x q of co. For the data gradient in is dy, and the filter is turned round. */
struct Tile {
    int n, h, w, p, q, ci, co, top, left;
    int ph, pw;       /* of the pooled gradient where in is given as one */
    int down, across; /* patches of an image */
    int patches, per_block;
};

struct Place {
    int n, p, q; /* of a patch's first place */
    bool there;
};
template <int ROWS> __device__ __forceinline__ Place patch_at(const Tile &t, int patch)
{
    int each = t.down * t.across, n = patch / each, rest = patch - n * each;
    int row = rest / t.across;
    return Place{n, row * ROWS, (rest - row * t.across) * COLS, patch < t.patches};
}

/* A patch with its border: channels [piece, ..) of in, zero outside of the image. thread: of 128. */
template <typename T, int WR, int WC>
__device__ __forceinline__ void bring_window(const Tile &t, const Place &at, const T *in, int piece,
                                             int thread, unsigned char *window)
{
    for (int i = thread; i < WR * WC * 4; i += PATCH_THREADS) {
        int place = i / 4, row = place / WC, col = place - row * WC;
        int h = at.p + row - t.top, v = at.q + col - t.left;
        bool inside = at.there && h >= 0 && h < t.h && v >= 0 && v < t.w;
        int64_t from = inside ? (((int64_t)at.n * t.h + h) * t.w + v) * t.ci : 0;
        async_copy_or_zero(window + place * PLACE + i % 4 * 16,
                           in + from + piece + i % 4 * Pack<T>::n, inside);
    }
}

/* Those of a pack whose window chose its place k. */
template <typename T>
__device__ __forceinline__ Pack<T> chosen(const Pack<T> &v, const Pack<uint8_t> &at, int k)
{
    Pack<T> own;
#pragma unroll
    for (int e = 0; e < Pack<T>::n; e++)
        own.v[e] = at.v[e] == k ? v.v[e] : from_float<T>(0.0f);
    return own;
}

/* The same of a gradient that is still pooled by 2x2: a thread takes some places of the pooled image,
 * loads them (take) while products run, and lays them out later (put). */
template <typename T, int WR, int WC> struct Pooled {
    static constexpr int rows = WR / 2 + 1, cols = WC / 2 + 1, count = rows * cols * 4;
    static_assert(count <= AHEAD * PATCH_THREADS, "packs of a thread");
    Pack<T> v[AHEAD];
    Pack<uint8_t> at[AHEAD]; /* the first Pack<T>::n of them */

    __device__ __forceinline__ static int half(int i) /* rounded down */
    {
        return i >> 1;
    }
    __device__ __forceinline__ void take(const Tile &t, const Place &p, const T *dy,
                                         const uint8_t *index, int piece, int thread)
    {
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            int i = thread + j * PATCH_THREADS, place = i / 4;
            int row = half(p.p - t.top) + place / cols, col = half(p.q - t.left) + place % cols;
            bool inside = p.there && i < count && row >= 0 && row < t.ph && col >= 0 && col < t.pw;
            int64_t from =
                (((int64_t)p.n * t.ph + row) * t.pw + col) * t.ci + piece + i % 4 * Pack<T>::n;
            v[j] = Pack<T>{};
            at[j] = Pack<uint8_t>{};
            if (!inside) continue;
            v[j] = load_pack(dy + from);
            memcpy(&at[j], __builtin_assume_aligned(index + from, Pack<T>::n), Pack<T>::n);
        }
    }
    __device__ __forceinline__ void put(const Tile &t, const Place &p, int thread,
                                        unsigned char *window) const
    {
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            int i = thread + j * PATCH_THREADS, place = i / 4;
            int row = 2 * (half(p.p - t.top) + place / cols) - (p.p - t.top);
            int col = 2 * (half(p.q - t.left) + place % cols) - (p.q - t.left);
            if (i >= count) break;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                int r = row + k / 2, c = col + k % 2;
                if (r < 0 || r >= WR || c < 0 || c >= WC) continue;
                store_pack(reinterpret_cast<T *>(window + (r * WC + c) * PLACE + i % 4 * 16),
                           chosen(v[j], at[j], k));
            }
        }
    }
};

/* What all tile kernels ask of their tensors: NHWC of one type, channels in whole pieces. */
static inline bool fits_tile(const DltNode *n, const DltDevice *dev, const DltConv *a,
                             const DltTensor *x, const DltTensor *w, const DltTensor *y,
                             DltWhy *why_not)
{
    if (!dlt_cuda_accepts_any(n, dev, why_not) || !multiplies(dev, x->dtype, why_not) ||
        !is_small_filter(a, why_not))
        return false;
    if (x->layout != DLT_NHWC || y->layout != DLT_NHWC || w->layout != DLT_NHWC)
        return dlt_cuda_refuse(why_not, "not NHWC");
    if (y->dtype != x->dtype) return dlt_cuda_refuse(why_not, "tensors differ in type");
    if (!small_dims(x) || !small_dims(y) || count_of(y) / y->shape.dim[1] >= INT32_MAX / 2)
        return dlt_cuda_refuse(why_not, "a dimension above 65535");
    if (x->shape.dim[1] % 32 == 0 && y->shape.dim[1] % 32 == 0) return true;
    return dlt_cuda_refuse(why_not, "channels are no multiple of 32");
}

} // namespace

#endif
