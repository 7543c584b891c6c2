/* The filters' gradient of a convolution by tiles, from its gradient or from that of the 2x2 max pooling
 * behind it (and then the bias' gradient beside it). A block has one row of the filter, 64 filters and
 * 64 bytes of channels; it goes through rows of 16 places, whose gradient, turned, is operand A, and
 * x moved by each of the row's taps operand B. Products in bf16, f16 or tf32, sums in f32 in a fixed
 * order. */
#include "cuda/kernels/conv_tile.cuh"
#include "cuda/trial.h"

namespace
{

enum {
    WARPS = BLOCK / WARP,
    FILTERS = 64,
    ROWS = 8,  /* of places that a block has at a time: pairs, as pooling makes them */
    STAGES = 4 /* sets of them in shared memory */
};

/* The problem: dw[k, r, s, c] = sum over n, p, q of x[n, p + r - top, q + s - left, c] dy[n, p, q, k]. */
struct Share {
    int n, h, w, c, k, p, q, top, left;
    int ph, pw;        /* of a pooled dy */
    int pairs, across; /* pairs of rows of an image, tiles of 16 columns of a row */
    int units;         /* pairs x tiles of all images */
    int per_block;
    bool sums; /* the bias' gradient too */
};

/* Bytes of one stage: ROWS x 16 places of 64 filters, ROWS x WC places of a piece of x. Places of
 * dy are some bytes longer than their contents: no bank conflicts. */
template <typename T, int R> struct Stage {
    static constexpr int wc = COLS + R - 1,
                         dy_place = FILTERS * (int)sizeof(T) + (sizeof(T) == 4 ? 32 : 16);
    static constexpr int dy_bytes = ROWS * COLS * dy_place, bytes = dy_bytes + ROWS * wc * PLACE;
    /* tiles of 8 channels a warp has, of a piece of two halves; sums of a thread */
    static constexpr int tiles = piece_of<T> / 16, sums = 4 * R * tiles * 4;
    static constexpr int parts = WARPS * sums * (WARP + 4) * (int)sizeof(float);
    static constexpr int shared = STAGES * bytes > parts ? STAGES *bytes : parts;
};

/* A pair of rows of 16 places, and the way from one stage to the next without a division. */
struct Unit {
    int n, rest, number; /* image, pair of rows and tile inside of it, number among all */

    __device__ __forceinline__ Unit(const Share &d, int i) : number(i)
    {
        n = i / (d.pairs * d.across);
        rest = i - n * (d.pairs * d.across);
    }
    __device__ __forceinline__ void advance(const Share &d, int by)
    {
        number += by;
        for (rest += by; rest >= d.pairs * d.across; n++)
            rest -= d.pairs * d.across;
    }
    __device__ __forceinline__ int row(const Share &d) const
    {
        return d.across == 1 ? 2 * rest : 2 * (rest / d.across);
    }
    __device__ __forceinline__ int col(const Share &d) const
    {
        return d.across == 1 ? 0 : rest % d.across * COLS;
    }
};

/* x's rows for filter row r, and dy's where it is not pooled: a warp brings a row. */
static_assert((int)ROWS == (int)WARPS, "rows of a stage");
template <typename T, int R>
__device__ __forceinline__ void bring_x(const Share &d, const T *x, int r, int piece, const Unit &u,
                                        bool there, unsigned char *to)
{
    constexpr int wc = Stage<T, R>::wc;
    int row = threadIdx.x / WARP;
    int h = u.row(d) + row % 2 + r - d.top, first = u.col(d) - d.left;
    there = there && h >= 0 && h < d.h;
    const T *from = x + (there ? ((int64_t)u.n * d.h + h) * d.w * d.c + piece : 0);
    to += row * wc * PLACE;
#pragma unroll
    for (int i = threadIdx.x % WARP; i < wc * 4; i += WARP) {
        int v = first + i / 4;
        bool inside = there && v >= 0 && v < d.w;
        async_copy_or_zero(to + i / 4 * PLACE + i % 4 * 16,
                           from + (inside ? v * d.c + i % 4 * Pack<T>::n : 0), inside);
    }
}
template <typename T, int R>
__device__ __forceinline__ void bring_dy(const Share &d, const T *dy, int k0, const Unit &u,
                                         bool there, unsigned char *to)
{
    constexpr int packs = FILTERS / Pack<T>::n;
    int row = threadIdx.x / WARP;
    int p = u.row(d) + row % 2, q = u.col(d);
    there = there && p < d.p;
    const T *from = dy + (there ? (((int64_t)u.n * d.p + p) * d.q + q) * d.k + k0 : 0);
    to += row * COLS * Stage<T, R>::dy_place;
#pragma unroll
    for (int i = threadIdx.x % WARP; i < COLS * packs; i += WARP) {
        bool inside = there && q + i / packs < d.q;
        async_copy_or_zero(to + i / packs * Stage<T, R>::dy_place + i % packs * 16,
                           from + (inside ? i / packs * d.k + i % packs * Pack<T>::n : 0), inside);
    }
}

/* A pooled dy: a thread has some packs of a pooled place, loads them early and lays them out later. */
template <typename T, int R> struct Spread {
    static constexpr int packs = FILTERS / Pack<T>::n, count = ROWS / 2 * COLS / 2 * packs / BLOCK;
    Pack<T> v[count];
    Pack<uint8_t> at[count];

    /* Packs of a thread are all of one pair of rows, and of the same filters. */
    __device__ __forceinline__ static int index_of(int j)
    {
        constexpr int share = BLOCK * 2 / ROWS; /* threads of a pair */
        return threadIdx.x / share * (share * count) + threadIdx.x % share + j * share;
    }

    __device__ __forceinline__ void take(const Share &d, const T *dy, const uint8_t *index, int k0,
                                         const Unit &u, bool there)
    {
        int p = u.row(d) / 2, first = u.col(d) / 2;
#pragma unroll
        for (int j = 0; j < count; j++) {
            int i = index_of(j), place = i / packs;
            int q = first + place % (COLS / 2);
            int64_t from =
                (((int64_t)u.n * d.ph + p) * d.pw + q) * d.k + k0 + i % packs * Pack<T>::n;
            v[j] = Pack<T>{};
            at[j] = Pack<uint8_t>{};
            if (!there || p >= d.ph || q >= d.pw) continue;
            v[j] = load_pack(dy + from);
            memcpy(&at[j], __builtin_assume_aligned(index + from, Pack<T>::n), Pack<T>::n);
        }
    }
    __device__ __forceinline__ void put(unsigned char *to) const
    {
#pragma unroll
        for (int j = 0; j < count; j++) {
            int i = index_of(j), place = i / packs;
            int row = place / (COLS / 2) * 2, col = place % (COLS / 2) * 2;
#pragma unroll
            for (int k = 0; k < 4; k++)
                store_pack(reinterpret_cast<T *>(
                               to + ((row + k / 2) * COLS + col + k % 2) * Stage<T, R>::dy_place +
                               i % packs * 16),
                           chosen(v[j], at[j], k));
        }
    }
    /* Adds what passes the pooling to the thread's sums of its pack of filters. */
    __device__ __forceinline__ void add(float sum[Pack<T>::n]) const
    {
#pragma unroll
        for (int j = 0; j < count; j++)
#pragma unroll
            for (int e = 0; e < Pack<T>::n; e++)
                sum[e] += at[j].v[e] == CUT ? 0.0f : to_float(v[j].v[e]);
    }
};

/* Operand A: 16 filters of dy (from `filter` on) x 32 bytes of places, turned. */
template <typename T, int R>
__device__ __forceinline__ void load_turned_dy(uint32_t a[4], const unsigned char *row, int filter,
                                               int step)
{
    constexpr int pitch = Stage<T, R>::dy_place;
    int lane = threadIdx.x % WARP;
    if constexpr (sizeof(T) == 2) {
        int place = lane % 8 + lane / 16 * 8, k = filter + lane / 8 % 2 * 8;
        warp_load_turned(a, row + place * pitch + k * 2);
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int place = step * 8 + i / 2 * 4 + lane % 4, k = filter + i % 2 * 8 + lane / 4;
            memcpy(&a[i], row + place * pitch + k * 4, 4);
            a[i] = tf32_again(a[i]);
        }
    }
}
/* Operand B: the same places of x, 16 (tf32: 8) channels from byte `at` of a place on. */
template <typename T>
__device__ __forceinline__ void load_x(uint32_t b[4], const unsigned char *row, int at, int step)
{
    int lane = threadIdx.x % WARP;
    if constexpr (sizeof(T) == 2) {
        warp_load_turned(b, row + lane % 16 * PLACE + at + lane / 16 * 16);
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            memcpy(&b[i], row + (step * 8 + i * 4 + lane % 4) * PLACE + at + lane / 4 * 4, 4);
            b[i] = tf32_again(b[i]);
        }
    }
}

/* acc[16 filters][s][8 channels] += one row of places; half: the warp's channels of the piece. */
template <typename T, int R>
__device__ __forceinline__ void add_row(const unsigned char *dy, const unsigned char *x, int half,
                                        float acc[4][R][Stage<T, R>::tiles][4])
{
#pragma unroll
    for (int step = 0; step < (int)sizeof(T) / 2; step++) {
        uint32_t a[4][4];
#pragma unroll
        for (int m = 0; m < 4; m++)
            load_turned_dy<T, R>(a[m], dy, m * 16, step);
        uint32_t b[2][4];
        load_x<T>(b[0], x, half * 32, step);
#pragma unroll
        for (int s = 0; s < R; s++) {
            if (s + 1 < R) load_x<T>(b[(s + 1) % 2], x + (s + 1) * PLACE, half * 32, step);
#pragma unroll
            for (int m = 0; m < 4; m++)
#pragma unroll
                for (int j = 0; j < Stage<T, R>::tiles; j++)
                    product<T>(acc[m][s][j], a[m], b[s % 2] + j * 2);
        }
    }
}

/* The four warps of each half of the channels, added up in order, into the block's share. */
template <typename T, int R>
__device__ __forceinline__ void put_share(const Share &d, float *sums, int r, int k0, int piece,
                                          float acc[4][R][Stage<T, R>::tiles][4], float *part)
{
    using S = Stage<T, R>;
    constexpr int pitch = (WARP + 4) * 2, rows = S::sums / 2; /* pairs of sums, warps apart */
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    __syncthreads(); /* the last stage is used up */
#pragma unroll
    for (int i = 0; i < rows; i++) {
        float2 *to = reinterpret_cast<float2 *>(sums + (warp * rows + i) * pitch) + lane;
        const float *from = acc[i / (R * S::tiles * 2)][i / (S::tiles * 2) % R][i / 2 % S::tiles];
        *to = make_float2(from[i % 2 * 2], from[i % 2 * 2 + 1]);
    }
    __syncthreads();
    constexpr int pairs = S::tiles * 8; /* of channels of a piece */
    for (int i = threadIdx.x; i < FILTERS * R * pairs; i += BLOCK) {
        int pair = i % pairs, s = i / pairs % R, k = i / (pairs * R);
        int half = pair / (S::tiles * 4), tile = pair / 4 % S::tiles;
        int row = ((k / 16 * R + s) * S::tiles + tile) * 2 + k / 8 % 2, own = k % 8 * 4 + pair % 4;
        float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int v = 0; v < WARPS / 2; v++) {
            const float *at = sums + ((v * 2 + half) * rows + row) * pitch + own * 2;
            sum.x += at[0], sum.y += at[1];
        }
        int64_t to = ((int64_t)(k0 + k) * R * R + r * R + s) * d.c + piece + pair * 2;
        part[to] = sum.x, part[to + 1] = sum.y;
    }
}

/* A share of dw and db: part[b] = {[K, R, R, C], [K]}.  x, dy NHWC T.  Grid: blocks that share out the
 * units x (R x filters / 64 x pieces of channels). Shared: Stage::shared. */
template <typename T, int R, bool POOLED>
__global__ void __launch_bounds__(BLOCK, 1)
    tile_filter_k(Share d, const T *x, const T *dy, const uint8_t *index, float *part)
{
    begin();
    using S = Stage<T, R>;
    using P = Spread<T, R>;
    DLT_DYNAMIC_SHARED(unsigned char, shared);
    int warp = threadIdx.x / WARP, half = warp % 2, split = warp / 2;
    int r = blockIdx.y % R, k0 = blockIdx.y / R % (d.k / FILTERS) * FILTERS;
    int piece = blockIdx.y / R / (d.k / FILTERS) * piece_of<T>;
    int first = blockIdx.x * d.per_block, end = min(first + d.per_block, d.units);
    int stages = (end - first + ROWS / 2 - 1) / (ROWS / 2);
    float acc[4][R][S::tiles][4] = {}, sum[Pack<T>::n] = {};
    bool sums = POOLED && d.sums && r == 0 && piece == 0;
    P ahead;
    auto buffer = [&](int stage) { return shared + stage % STAGES * S::bytes; };
    Unit next(d, first + warp / 2); /* of the warp's row, and of its packs of a pooled dy */
    auto bring = [&](int stage) {
        bool there = next.number < end;
        if (stage < stages) {
            bring_x<T, R>(d, x, r, piece, next, there, buffer(stage) + S::dy_bytes);
            if constexpr (POOLED)
                ahead.take(d, dy, index, k0, next, there);
            else
                bring_dy<T, R>(d, dy, k0, next, there, buffer(stage));
        }
        next.advance(d, ROWS / 2);
        async_commit();
    };
    auto put = [&](int stage) {
        if (!POOLED || stage >= stages) return;
        ahead.put(buffer(stage));
        if (sums) ahead.add(sum);
    };
    for (int stage = 0; stage < STAGES - 1; stage++) {
        bring(stage);
        put(stage);
    }
    for (int stage = 0; stage < stages; stage++) {
        async_wait<STAGES - 2>();
        __syncthreads();
        bring(stage + STAGES - 1);
#pragma unroll 1
        for (int row = split * 2; row < split * 2 + 2; row++)
            add_row<T, R>(buffer(stage) + row * COLS * S::dy_place,
                          buffer(stage) + S::dy_bytes + row * S::wc * PLACE, half, acc);
        put(stage + STAGES - 1);
    }
    async_wait<0>();
    int64_t count = (int64_t)d.k * R * R * d.c;
    float *mine = part + (int64_t)blockIdx.x * (count + d.k),
          *all = reinterpret_cast<float *>(shared);
    put_share<T, R>(d, all, r, k0, piece, acc, mine);
    if (!sums) return;
    __syncthreads();
    for (int e = 0; e < Pack<T>::n; e++)
        all[threadIdx.x / P::packs * FILTERS + threadIdx.x % P::packs * Pack<T>::n + e] = sum[e];
    __syncthreads();
    if (threadIdx.x >= FILTERS) return;
    float total = 0;
    for (int i = 0; i < BLOCK / P::packs; i++)
        total += all[i * FILTERS + threadIdx.x];
    mine[count + k0 + threadIdx.x] = total;
}

/* dw and db = the sum of n shares of `count` values, four neighbours a thread; the first n_dw are dw's. */
__global__ void add_shares_k(const float *part, int n, int count, int n_dw, Out dw, Out db)
{
    begin();
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i >= count) return;
    float sum[4] = {};
#pragma unroll 8
    for (int j = 0; j < n; j++) {
        float v[4];
        load_v<float, 4>(part + (int64_t)j * count + i, v);
#pragma unroll
        for (int e = 0; e < 4; e++)
            sum[e] += v[e];
    }
    for (int e = 0; e < 4; e++) {
        if (i < n_dw)
            dw.set(i + e, sum[e]);
        else if (db.p)
            db.set(i + e - n_dw, sum[e]);
    }
}

/* ---- hosts ---- */

static Share share_of(const DltConv *a, const DltTensor *x, const DltTensor *dy, int n_sm)
{
    Share d = {};
    d.n = (int)x->shape.dim[0], d.c = (int)x->shape.dim[1], d.k = (int)dy->shape.dim[1];
    d.h = (int)x->shape.dim[2], d.w = (int)x->shape.dim[3];
    d.p = d.h + (int)(a->pad[0] + a->pad[1] - a->kernel[0] + 1);
    d.q = d.w + (int)(a->pad[2] + a->pad[3] - a->kernel[1] + 1);
    d.top = (int)a->pad[0], d.left = (int)a->pad[2];
    d.ph = (int)dy->shape.dim[2], d.pw = (int)dy->shape.dim[3];
    d.pairs = (d.p + 1) / 2, d.across = (d.q + COLS - 1) / COLS;
    d.units = d.n * d.pairs * d.across;
    int piece = 64 / (int)dlt_dtype_bytes(x->dtype);
    int64_t others = a->kernel[0] * (d.k / FILTERS) * (d.c / piece);
    int64_t groups = n_sm / others > 0 ? n_sm / others : 1, most = ceil_div(d.units, ROWS / 2);
    if (groups > most) groups = most;
    /* whole stages, so that no block has a stage with rows of nothing */
    d.per_block = (int)(ceil_div(most, groups) * (ROWS / 2));
    return d;
}
static int64_t groups_of(const Share &d)
{
    return ceil_div(d.units, d.per_block);
}
static int64_t count_of_share(const DltConv *a, const Share &d)
{
    return (int64_t)d.k * d.c * a->kernel[0] * a->kernel[1] + d.k;
}

/* Tensors of the node by their roles, with pooling or without. */
struct Roles {
    const DltConv *conv;
    const DltTensor *x, *dy, *dw;
};
static Roles roles_of(const DltNode *n)
{
    return Roles{(const DltConv *)n->attr, n->in[0], n->in[1], n->out[0]};
}

template <typename T, int R>
static DltStatus filter_of(const DltCall *c, DltErr *err, const Share &d, bool pooled)
{
    const int64_t others = R * (d.k / FILTERS) * (d.c / piece_of<T>);
    dim3 grid((unsigned)groups_of(d), (unsigned)others);
    auto kernel = pooled ? tile_filter_k<T, R, true> : tile_filter_k<T, R, false>;
    return enqueue(c, err, kernel, grid, BLOCK, (size_t)Stage<T, R>::shared, d, (const T *)c->in[0],
                   (const T *)c->in[1], (const uint8_t *)c->in[2], (float *)c->work);
}
static DltStatus launch(const DltCall *c, DltErr *err)
{
    Roles o = roles_of(c->node);
    bool pooled = c->node->kind == DLT_OP_conv_pool_bwd_filter;
    Share d = share_of(o.conv, o.x, o.dy, c->stream->dev->n_sm);
    d.sums = pooled && c->out[1];
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(o.x->dtype, T,
                   s = o.conv->kernel[0] == 5 ? filter_of<T, 5>(c, err, d, pooled)
                                              : filter_of<T, 3>(c, err, d, pooled));
    DLT_TRY(s);
    int64_t count = count_of_share(o.conv, d);
    return enqueue(c, err, add_shares_k, (unsigned)ceil_div(count, 4 * WARP * 4), WARP * 4, 0,
                   (const float *)c->work, (int)groups_of(d), (int)count, (int)(count - d.k),
                   output(c, 0), output(c, 1));
}
static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    Roles o = roles_of(n);
    Share d = share_of(o.conv, o.x, o.dy, dev->n_sm);
    p->work_bytes = (size_t)(groups_of(d) * count_of_share(o.conv, d)) * sizeof(float);
    return DLT_OK;
}

template <typename T> static size_t shared_of(int r)
{
    return r == 5 ? (size_t)Stage<T, 5>::shared : (size_t)Stage<T, 3>::shared;
}
static bool accepts_filter(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    Roles o = roles_of(n);
    if (!fits_tile(n, dev, o.conv, o.x, o.dw, o.dy, why_not)) return false;
    const int64_t *w = o.dw->shape.dim;
    if (o.dy->shape.dim[1] % FILTERS != 0 || w[0] * w[1] * w[2] * w[3] > 1 << 24)
        return dlt_cuda_refuse(why_not, "filters are no multiple of 64, or too many");
    size_t shared = 0;
    DLT_FLOAT_TYPE(o.x->dtype, T, shared = shared_of<T>((int)w[2]));
    return shared <= dev->shared_bytes ||
           dlt_cuda_refuse(why_not, "%zu bytes of shared memory are needed", shared);
}
static bool accepts_pool(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    return accepts_filter(n, dev, why_not) &&
           pools_by_two(&((const DltConvPool *)n->attr)->pool, n->in[2], why_not);
}

} // namespace

extern "C" {
extern const DltCudaWay dlt_cuda_conv_filter_way;
const DltCudaWay dlt_cuda_conv_filter_way = {accepts_filter, prepare, launch};
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_conv_filter_tile, "conv_bwd_filter.cuda.tile", accepts_filter,
                         prepare, launch);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_conv_pool_filter_tile, "conv_pool_bwd_filter.cuda.tile",
                         accepts_pool, prepare, launch);
}
