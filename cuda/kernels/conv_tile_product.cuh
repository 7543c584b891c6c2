/* The kernel behind convolution forward (conv_tile.cu) and its data gradient (conv_tile_data.cu), alone
 * or with 2x2 max pooling: forward takes the maximum of its sums before they leave the registers, the
 * data gradient reads the pooled gradient and its index. Products in bf16, f16 or tf32, sums in f32 in
 * a fixed order. */
#ifndef DLT_CONV_TILE_PRODUCT_CUH
#define DLT_CONV_TILE_PRODUCT_CUH

#include "cuda/kernels/conv_tile.cuh"

namespace
{

/* A block's shape: patches of ROWS rows, whose four warps share out rows (HALVES of them) and
 * filters; a warp makes 16 filters. TURNED: the data gradient. */
template <typename T, int R, int ROWS, int HALVES> struct Shape {
    static constexpr int rows = ROWS / HALVES; /* of a warp */
    static constexpr int filters = 16 * 4 / HALVES;
    static constexpr int wr = ROWS + R - 1, wc = COLS + R - 1, window = wr * wc * PLACE;
    static constexpr int slot = filters * 64, weights = R * R * slot; /* bytes of a tap, a piece */
};

template <typename T> struct Operands {
    const T *in;
    const uint8_t *at; /* index of a pooled in */
    const T *w;
    In bias;
    const T *saved; /* out is multiplied by relu'(saved), or NULL */
    T *out;
    uint8_t *index; /* of a pooled out */
    bool relu;
};

/* Where the 16-byte chunk j of row i lies in a slot whose rows are WIDE bytes: no bank conflicts for
 * the loads of operands. */
template <int WIDE> __device__ __forceinline__ int chunk_at(int i, int j)
{
    return i * WIDE + ((WIDE == 64 ? j ^ (i >> 1 & 3) : j ^ (i & 7)) << 4);
}
/* tf32's turned operands are read word by word: rows 0 to 3 apart. */
template <int WIDE> __device__ __forceinline__ int word_chunk_at(int i, int j)
{
    return i * WIDE + ((j ^ (i & 3) << 1) << 4);
}

/* A piece of the filters, tap (r, s) in slot s R + r: rows are filters and hold the piece's channels,
 * or (turned) rows are the piece's channels of dy and hold dx's, and the taps go backwards. */
template <typename T, int R, int FILTERS_, bool TURNED>
__device__ __forceinline__ void bring_filters(const Tile &t, const T *w, int piece, int first,
                                              unsigned char *to)
{
    constexpr int rows = TURNED ? piece_of<T> : FILTERS_;
    constexpr int wide = TURNED ? FILTERS_ * (int)sizeof(T) : 64, chunks = wide / 16;
    for (int i = threadIdx.x; i < R * R * rows * chunks; i += blockDim.x) {
        int j = i % chunks, row = i / chunks % rows, slot = i / (chunks * rows);
        int r = slot % R, s = slot / R;
        unsigned char *at = to + slot * rows * wide;
        if constexpr (TURNED) {
            int tap = (R - 1 - r) * R + R - 1 - s;
            at += sizeof(T) == 4 ? word_chunk_at<wide>(row, j) : chunk_at<wide>(row, j);
            async_copy(at,
                       w + ((int64_t)(piece + row) * R * R + tap) * t.co + first + j * Pack<T>::n);
        } else {
            at += chunk_at<wide>(row, j);
            async_copy(at, w + ((int64_t)(first + row) * R * R + r * R + s) * t.ci + piece +
                               j * Pack<T>::n);
        }
    }
}

/* Operands B of 16 filters from `own` on and 32 bytes of the piece's channels. */
template <typename T, int FILTERS_, bool TURNED>
__device__ __forceinline__ void load_filters(uint32_t b[4], const unsigned char *slot, int own,
                                             int half)
{
    constexpr int wide = TURNED ? FILTERS_ * (int)sizeof(T) : 64;
    int lane = threadIdx.x % WARP;
    if constexpr (!TURNED) {
        int row = own + lane / 16 * 8 + lane % 8;
        warp_load(b, slot + chunk_at<wide>(row, half * 2 + lane / 8 % 2));
    } else if constexpr (sizeof(T) == 2) {
        warp_load_turned(b, slot + chunk_at<wide>(half * 16 + lane % 16, own / 8 + lane / 16));
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = half * 8 + i % 2 * 4 + lane % 4, col = own + i / 2 * 8 + lane / 4;
            memcpy(&b[i], slot + word_chunk_at<wide>(row, col / 4) + col % 4 * 4, 4);
        }
    }
    if constexpr (sizeof(T) == 4)
#pragma unroll
        for (int i = 0; i < 4; i++)
            b[i] = tf32_again(b[i]);
}

/* acc[row][..] += a piece of channels: window's rows times R x R taps. own: the warp's first filter.
 * OUT_POOLED: even columns come first, so that a lane has both columns of a pooled one. */
template <typename T, int R, int ROWS, int HALVES, bool TURNED, bool OUT_POOLED>
__device__ __forceinline__ void add_piece(const unsigned char *window, const unsigned char *filters,
                                          int own, float acc[ROWS / HALVES][2][4])
{
    using S = Shape<T, R, ROWS, HALVES>;
    int lane = threadIdx.x % WARP;
    int col = OUT_POOLED ? lane % 8 * 2 + lane / 8 % 2 : lane % 16;
    const unsigned char *from = window + col * PLACE + lane / 16 * 16;
#pragma unroll 1
    for (int s = 0; s < R; s++, from += PLACE, filters += R * S::slot)
#pragma unroll 1
        for (int half = 0; half < 2; half++) {
            uint32_t a[2][4], b[R][4];
#pragma unroll
            for (int r = 0; r < R; r++)
                load_filters<T, S::filters, TURNED>(b[r], filters + r * S::slot, own, half);
            warp_load(a[0], from + half * 32);
#pragma unroll
            for (int h = 0; h < S::rows + R - 1; h++) {
                if (h + 1 < S::rows + R - 1)
                    warp_load(a[(h + 1) % 2], from + half * 32 + (h + 1) * S::wc * PLACE);
                if constexpr (sizeof(T) == 4)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        a[h % 2][i] = tf32_again(a[h % 2][i]);
#pragma unroll
                for (int r = 0; r < R; r++) {
                    if (h - r < 0 || h - r >= S::rows) continue;
                    product<T>(acc[h - r][0], a[h % 2], b[r]);
                    product<T>(acc[h - r][1], a[h % 2], b[r] + 2);
                }
            }
        }
}

/* The warp's sums into out: + bias, relu, or times relu's gradient. first: row and filter. */
template <typename T, int N>
__device__ __forceinline__ void put_rows(const Tile &t, const Operands<T> &o, const Place &at,
                                         int row, int filter, float acc[N][2][4])
{
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < N * 4; i++) {
        int p = at.p + row + i / 4, q = at.q + lane / 4 + i % 2 * 8, j = i / 2 % 2;
        int k = filter + j * 8 + lane % 4 * 2;
        if (!at.there || p >= t.p || q >= t.q) continue;
        int64_t to = (((int64_t)at.n * t.p + p) * t.q + q) * t.co + k;
        float a = acc[i / 4][j][i % 2 * 2], b = acc[i / 4][j][i % 2 * 2 + 1];
        if (o.bias.p) a += o.bias[k], b += o.bias[k + 1];
        if (o.relu) a = act<DLT_FN_RELU>(a, 0), b = act<DLT_FN_RELU>(b, 0);
        if (o.saved) {
            a *= act_grad<DLT_FN_RELU>(to_float(o.saved[to]), 0);
            b *= act_grad<DLT_FN_RELU>(to_float(o.saved[to + 1]), 0);
        }
        store_pair(o.out + to, a, b);
    }
}

/* The maximum of each 2x2 window of them: a lane has all four values. */
template <typename T, int N>
__device__ __forceinline__ void put_maxima(const Tile &t, const Operands<T> &o, const Place &at,
                                           int row, int filter, float acc[N][2][4])
{
    int lane = threadIdx.x % WARP, ph = t.p / 2, pw = t.q / 2, q = at.q / 2 + lane / 4;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        int k = filter + j * 8 + lane % 4 * 2;
        float bias[2] = {o.bias.p ? o.bias[k] : 0.0f, o.bias.p ? o.bias[k + 1] : 0.0f};
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            int p = (at.p + row + i) / 2;
            float best[2];
            unsigned where[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float v[4] = {acc[i][j][e] + bias[e], acc[i][j][e + 2] + bias[e],
                              acc[i + 1][j][e] + bias[e], acc[i + 1][j][e + 2] + bias[e]};
                best[e] = pick(v, o.relu, &where[e]);
            }
            if (!at.there || p >= ph || q >= pw) continue;
            int64_t to = (((int64_t)at.n * ph + p) * pw + q) * t.co + k;
            store_pair(o.out + to, best[0], best[1]);
            store_indices(o.index + to, where[0], where[1]);
        }
    }
}

/* out as in conv_tile.cuh, in and out NHWC T, w [K, R, R, C] T.  Grid: blocks that share out the
 * patches (per_block at a time) x filters / Shape::filters. Shared: two pieces of the filters, twice
 * the windows of the block's patches. */
template <typename T, int R, int ROWS, int HALVES, bool TURNED, bool IN_POOLED, bool OUT_POOLED>
__global__ void __launch_bounds__(2 * PATCH_THREADS, 1) tile_k(Tile t, Operands<T> o)
{
    begin();
    using S = Shape<T, R, ROWS, HALVES>;
    using P = Pooled<T, S::wr, S::wc>;
    DLT_DYNAMIC_SHARED(unsigned char, shared);
    constexpr int piece = piece_of<T>;
    int mine = threadIdx.x / PATCH_THREADS, thread = threadIdx.x % PATCH_THREADS;
    int warp = thread / WARP, row = warp % HALVES * S::rows, own = warp / HALVES * 16;
    int pieces = t.ci / piece, slots = min(pieces, 2), first = blockIdx.y * S::filters;
    int groups = (t.patches + t.per_block - 1) / t.per_block;
    int rounds = (groups - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
    unsigned char *windows = shared + slots * S::weights;
    float acc[S::rows][2][4] = {};
    P pooled;
    auto patch = [&](int stage) {
        int group = blockIdx.x + stage / pieces * gridDim.x;
        return patch_at<ROWS>(t, group * t.per_block + mine);
    };
    auto window = [&](int stage) { return windows + (stage % 2 * t.per_block + mine) * S::window; };
    auto filters = [&](int stage) { return shared + (pieces == 1 ? 0 : stage % 2 * S::weights); };
    auto bring = [&](int stage) {
        int from = stage % pieces * piece;
        if (pieces > 2 || stage < pieces)
            bring_filters<T, R, S::filters, TURNED>(t, o.w, from, first, filters(stage));
        if constexpr (IN_POOLED)
            pooled.take(t, patch(stage), o.in, o.at, from, thread);
        else
            bring_window<T, S::wr, S::wc>(t, patch(stage), o.in, from, thread, window(stage));
        async_commit();
    };
    bring(0);
    if constexpr (IN_POOLED) pooled.put(t, patch(0), thread, window(0));
    for (int stage = 0; stage < rounds * pieces; stage++) {
        bool more = stage + 1 < rounds * pieces;
        async_wait<0>();
        __syncthreads();
        if (more) bring(stage + 1);
        add_piece<T, R, ROWS, HALVES, TURNED, OUT_POOLED>(window(stage) + row * S::wc * PLACE,
                                                          filters(stage), own, acc);
        if (stage % pieces == pieces - 1) {
            if constexpr (OUT_POOLED)
                put_maxima<T, S::rows>(t, o, patch(stage), row, first + own, acc);
            else
                put_rows<T, S::rows>(t, o, patch(stage), row, first + own, acc);
#pragma unroll
            for (int i = 0; i < S::rows * 8; i++)
                acc[i / 8][i / 4 % 2][i % 4] = 0;
        }
        if constexpr (IN_POOLED)
            if (more) pooled.put(t, patch(stage + 1), thread, window(stage + 1));
    }
}

/* ---- hosts ---- */

/* Forward: x [N, C, h, w] into `filters`. */
static inline Tile forward_tile(const DltConv *a, const DltTensor *x, int64_t filters)
{
    Tile t = {};
    t.n = (int)x->shape.dim[0], t.ci = (int)x->shape.dim[1];
    t.h = (int)x->shape.dim[2], t.w = (int)x->shape.dim[3];
    t.p = t.h + (int)(a->pad[0] + a->pad[1] - a->kernel[0] + 1);
    t.q = t.w + (int)(a->pad[2] + a->pad[3] - a->kernel[1] + 1);
    t.co = (int)filters;
    t.top = (int)a->pad[0], t.left = (int)a->pad[2];
    return t;
}

/* Data gradient: in is dy, of the dims of the convolution's result; the filter is turned round, so its border is what padding left
 * of it. */
static inline Tile data_tile(const DltConv *a, const DltTensor *dx, int64_t filters)
{
    Tile t = {};
    t.n = (int)dx->shape.dim[0], t.co = (int)dx->shape.dim[1];
    t.p = (int)dx->shape.dim[2], t.q = (int)dx->shape.dim[3];
    t.h = t.p + (int)(a->pad[0] + a->pad[1] - a->kernel[0] + 1);
    t.w = t.q + (int)(a->pad[2] + a->pad[3] - a->kernel[1] + 1);
    t.ci = (int)filters;
    t.top = (int)(a->kernel[0] - 1 - a->pad[0]), t.left = (int)(a->kernel[1] - 1 - a->pad[2]);
    return t;
}

/* Shared memory of a block. */
template <typename S> static size_t shared_of(const Tile &t, int piece, int per_block)
{
    int slots = t.ci / piece < 2 ? t.ci / piece : 2;
    return (size_t)slots * S::weights + 2 * (size_t)per_block * S::window;
}

template <typename T, int R, int ROWS, int HALVES, bool TURNED, bool IN_POOLED, bool OUT_POOLED>
static DltStatus launch_shape(const DltCall *c, DltErr *err, Tile t, const Operands<T> &o)
{
    using S = Shape<T, R, ROWS, HALVES>;
    const DltDevice *dev = c->stream->dev;
    t.down = (int)ceil_div(t.p, ROWS), t.across = (int)ceil_div(t.q, COLS);
    t.patches = t.n * t.down * t.across;
    t.per_block =
        t.patches > dev->n_sm && shared_of<S>(t, piece_of<T>, 2) <= dev->shared_bytes ? 2 : 1;
    int64_t groups = ceil_div(t.patches, t.per_block),
            most = ceil_div(dev->n_sm, t.co / S::filters);
    dim3 grid((unsigned)(groups < most ? groups : most), (unsigned)(t.co / S::filters));
    return enqueue(c, err, tile_k<T, R, ROWS, HALVES, TURNED, IN_POOLED, OUT_POOLED>, grid,
                   t.per_block * PATCH_THREADS, shared_of<S>(t, piece_of<T>, t.per_block), t, o);
}

/* Rows of a patch: images of 14 and 28 rows are common behind 5x5 filters, powers of two elsewhere. A
 * warp with half of the rows takes maxima only where it has pairs of them. */
template <int R, int HALVES, bool OUT_POOLED> static constexpr int rows_of()
{
    return R == 5 && !(HALVES == 2 && OUT_POOLED) ? 14 : 16;
}

/* Blocks of 64 filters where they divide co and fit, else of 32. */
template <typename T, int R, bool OUT_POOLED>
static int halves_of(const DltDevice *dev, const Tile &t)
{
    using One = Shape<T, R, rows_of<R, 1, OUT_POOLED>(), 1>;
    using Two = Shape<T, R, rows_of<R, 2, OUT_POOLED>(), 2>;
    if (t.co % 64 == 0 && shared_of<One>(t, piece_of<T>, 1) <= dev->shared_bytes) return 1;
    return t.co % 32 == 0 && shared_of<Two>(t, piece_of<T>, 1) <= dev->shared_bytes ? 2 : 0;
}

template <typename T, int R, bool TURNED, bool IN_POOLED, bool OUT_POOLED>
static DltStatus launch_size(const DltCall *c, DltErr *err, const Tile &t, const Operands<T> &o)
{
    if constexpr (sizeof(T) == 2 || R == 3) /* 64 filters of 5x5 in f32 fit nowhere */
        if (halves_of<T, R, OUT_POOLED>(c->stream->dev, t) == 1)
            return launch_shape<T, R, rows_of<R, 1, OUT_POOLED>(), 1, TURNED, IN_POOLED,
                                OUT_POOLED>(c, err, t, o);
    return launch_shape<T, R, rows_of<R, 2, OUT_POOLED>(), 2, TURNED, IN_POOLED, OUT_POOLED>(c, err,
                                                                                             t, o);
}
template <typename T, bool TURNED, bool IN_POOLED, bool OUT_POOLED>
static DltStatus launch_tile(const DltCall *c, DltErr *err, int r, const Tile &t,
                             const Operands<T> &o)
{
    if (r == 5) return launch_size<T, 5, TURNED, IN_POOLED, OUT_POOLED>(c, err, t, o);
    return launch_size<T, 3, TURNED, IN_POOLED, OUT_POOLED>(c, err, t, o);
}

template <typename T, bool OUT_POOLED>
static bool has_room_for(const DltDevice *dev, int r, const Tile &t)
{
    return (r == 5 ? halves_of<T, 5, OUT_POOLED>(dev, t) : halves_of<T, 3, OUT_POOLED>(dev, t)) > 0;
}
template <bool OUT_POOLED>
static bool has_room(const DltDevice *dev, DltDtype dtype, int r, const Tile &t, DltWhy *why_not)
{
    bool room = false;
    DLT_FLOAT_TYPE(dtype, T, room = (has_room_for<T, OUT_POOLED>(dev, r, t)));
    return room || dlt_cuda_refuse(why_not, "filters and patches do not fit into shared memory");
}

} // namespace

#endif
