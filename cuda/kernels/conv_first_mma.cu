/* First convolutions on the tensor cores: images of 1 to 4 channels into a multiple of 16 filters. A
 * product over so few taps is too thin for a library, so a block lays the windows of 128 places out in
 * shared memory (one row a place, one column a tap) and multiplies them there: by the filters, or by
 * the gradient of the places for the gradient of the filters. Products in bf16, f16 or tf32, sums in
 * f32 in a fixed order; strict f32 has conv_first.cu. */
#include "cuda/kernels/conv_first.cuh"
#include "cuda/kernels/tensor_core.cuh"

namespace
{

enum { PLACES = 128, EDGE = 16, WARPS = BLOCK / WARP, MAX_TAPS = 80, MAX_FILTERS = 64 };

/* A block's part of the problem. */
struct Tiles {
    First d;
    int taps, tk, kc, K;  /* taps, and filled up to a multiple of 16; filters of a block, of all */
    int64_t places;       /* N P Q */
    int places_per_block; /* gradient only, a multiple of PLACES */
};

/* Rows of shared memory are 16 bytes longer than their contents: no bank conflicts. */
template <typename T> __host__ __device__ static constexpr int row_of(int n)
{
    return n + 16 / (int)sizeof(T);
}

/* tap -> its channel and its distance in rows and columns, for all of a block's threads. */
__device__ __forceinline__ void list_taps(const Tiles &t, int *tap)
{
    for (int i = threadIdx.x; i < t.taps; i += BLOCK) {
        int s = i % t.d.s, r = i / t.d.s % t.d.r, c = i / t.d.s / t.d.r;
        tap[i] = c << 24 | r * t.d.dh << 12 | s * t.d.dw;
    }
}

/* cols[place][tap] of 128 places from `first` on; zero outside of the image, behind the last tap and
 * behind `end`. */
template <typename T>
__device__ __forceinline__ void lay_out(const Tiles &t, const T *x, const int *tap, int64_t first,
                                        int64_t end, T *cols)
{
    const First &d = t.d;
    int place = threadIdx.x % PLACES, ld = row_of<T>(t.tk);
    int64_t at = first + place;
    bool there = at < end;
    int q = (int)(at % d.q), p = (int)(at / d.q % d.p), n = (int)(at / d.q / d.p);
    int h0 = p * d.sh - d.top, v0 = q * d.sw - d.left;
    const T *image = x + (there ? n * d.xs[0] : 0);
#pragma unroll 8
    for (int i = threadIdx.x / PLACES; i < t.tk; i += BLOCK / PLACES) {
        T value = from_float<T>(0.0f);
        if (there && i < t.taps) {
            int c = tap[i] >> 24, h = h0 + (tap[i] >> 12 & 4095), v = v0 + (tap[i] & 4095);
            if (h >= 0 && h < d.h && v >= 0 && v < d.w)
                value = image[c * d.xs[1] + h * d.xs[2] + v * d.xs[3]];
        }
        cols[place * ld + i] = value;
    }
}

/* ---- forward ---- */

template <typename T> static size_t fwd_bytes(const Tiles &t)
{
    return sizeof(T) * (size_t)(PLACES * row_of<T>(t.tk) + t.tk * row_of<T>(t.kc)) +
           sizeof(float) * (size_t)(PLACES * (t.kc + 4));
}

/* The warp's 16 places from its sums into memory, a pack of filters at a time. */
template <typename T>
__device__ __forceinline__ void put_places(const Tiles &t, const DltUnary &a, const float *sums,
                                           int64_t first, int k0, In bias, T *y, T *pre)
{
    constexpr int V = Pack<T>::n;
    int packs = t.kc / V;
    for (int i = threadIdx.x % WARP; i < EDGE * packs; i += WARP) {
        int row = i / packs, col = i % packs * V;
        int64_t place = first + row, at = place * t.K + k0 + col;
        if (place >= t.places) continue;
        float v[V];
#pragma unroll
        for (int j = 0; j < V; j++) {
            v[j] = sums[row * (t.kc + 4) + col + j];
            if (bias.p) v[j] += bias[k0 + col + j];
        }
        if (pre) store_v<T, V>(pre + at, v);
        with_fn(a.fn, [&](auto fn) {
#pragma unroll
            for (int j = 0; j < V; j++)
                v[j] = act<decltype(fn)::value>(v[j], (float)a.alpha);
        });
        store_v<T, V>(y + at, v);
    }
}

/* y[n,p,q,k] = act(sum over c,r,s of x[n,c, p sh + r dh - top, ..] w[k,c,r,s] + bias[k]).  x
 * [N,C,H,W] in any order, w [K,C,R,S], y NHWC, all T; bias [K]; pre like y or NULL: the value before
 * act.  Grid: places / 128 x K / kc. A warp makes 16 places of all the block's filters. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    first_places_k(Tiles t, DltUnary a, const T *x, const T *w, In bias, T *y, T *pre)
{
    begin();
    using U = Unit<T>;
    __shared__ int tap[MAX_TAPS];
    DLT_DYNAMIC_SHARED(unsigned char, bytes);
    int ldc = row_of<T>(t.tk), ldf = row_of<T>(t.kc), k0 = blockIdx.y * t.kc;
    T *cols = reinterpret_cast<T *>(bytes), *filters = cols + PLACES * ldc;
    float *sums = reinterpret_cast<float *>(filters + t.tk * ldf);
    int64_t first = (int64_t)blockIdx.x * PLACES;
    list_taps(t, tap);
    for (int i = threadIdx.x; i < t.tk * t.kc; i += BLOCK) {
        int k = i % t.kc, at = i / t.kc;
        filters[at * ldf + k] =
            at < t.taps ? w[(int64_t)(k0 + k) * t.taps + at] : from_float<T>(0.0f);
    }
    __syncthreads();
    lay_out(t, x, tap, first, t.places, cols);
    __syncthreads();
    constexpr int MOST = MAX_FILTERS / EDGE;
    int warp = threadIdx.x / WARP;
    typename U::Sum sum[MOST];
#pragma unroll
    for (int j = 0; j < MOST; j++)
        wmma::fill_fragment(sum[j], 0.0f);
    for (int k = 0; k < t.tk; k += U::depth) {
        typename U::template A<wmma::row_major> fa;
        load_operand<T>(fa, cols + warp * EDGE * ldc + k, ldc);
#pragma unroll
        for (int j = 0; j < MOST; j++) {
            if (j * EDGE >= t.kc) continue;
            typename U::template B<wmma::row_major> fb;
            load_operand<T>(fb, filters + k * ldf + j * EDGE, ldf);
            wmma::mma_sync(sum[j], fa, fb, sum[j]);
        }
    }
    float *own = sums + warp * EDGE * (t.kc + 4);
#pragma unroll
    for (int j = 0; j < MOST; j++)
        if (j * EDGE < t.kc)
            wmma::store_matrix_sync(own + j * EDGE, sum[j], t.kc + 4, wmma::mem_row_major);
    __syncwarp();
    put_places<T>(t, a, own, first + warp * EDGE, k0, bias, y, pre);
}

/* ---- the filters' gradient ---- */

/* Products of 16 filters x 16 taps are dealt to the warps; with few of them the places are shared out
 * too. */
__host__ __device__ static inline int products_of(const Tiles &t)
{
    return t.kc / EDGE * (t.tk / EDGE);
}
__host__ __device__ static inline int slices_of(int products)
{
    return products == 1 || products == 2 || products == 4 ? WARPS / products : 1;
}
enum {
    MAX_PRODUCTS = MAX_FILTERS / EDGE * (MAX_TAPS / EDGE),
    PER_WARP = (MAX_PRODUCTS + WARPS - 1) / WARPS
};

template <typename T> static size_t filter_bytes(const Tiles &t)
{
    size_t ring = sizeof(T) * (size_t)(PLACES * (row_of<T>(t.tk) + row_of<T>(t.kc)));
    int products = products_of(t);
    size_t sums = sizeof(float) * (size_t)(products * slices_of(products) * EDGE * EDGE);
    return ring > sums ? ring : sums;
}

/* Rows of dy for 128 places; zero behind `end`. */
template <typename T>
__device__ __forceinline__ void bring_places(const Tiles &t, const T *dy, int k0, int64_t first,
                                             int64_t end, T *g)
{
    constexpr int V = Pack<T>::n;
    int packs = t.kc / V, ld = row_of<T>(t.kc);
    for (int i = threadIdx.x; i < PLACES * packs; i += BLOCK) {
        int row = i / packs, col = i % packs * V;
        Pack<T> v = {};
        if (first + row < end) v = load_pack(dy + (first + row) * t.K + k0 + col);
        store_pack(g + row * ld + col, v);
    }
}

/* A share of dw: part[b][k][c][r][s] = sum over the places of block b of x[window] dy[place,k].  x
 * [N,C,H,W] in any order, dy NHWC, T.  Grid: blocks x K / kc. */
template <typename T>
__global__ void __launch_bounds__(BLOCK) first_taps_k(Tiles t, const T *x, const T *dy, float *part)
{
    begin();
    using U = Unit<T>;
    __shared__ int tap[MAX_TAPS];
    DLT_DYNAMIC_SHARED(unsigned char, bytes);
    int ldc = row_of<T>(t.tk), ldg = row_of<T>(t.kc), k0 = blockIdx.y * t.kc;
    T *cols = reinterpret_cast<T *>(bytes), *g = cols + PLACES * ldc;
    int64_t first = (int64_t)blockIdx.x * t.places_per_block;
    int64_t end = min(first + t.places_per_block, t.places);
    int products = products_of(t), slices = slices_of(products), warp = threadIdx.x / WARP;
    int slice = slices > 1 ? warp / products : 0, own = slices > 1 ? warp % products : warp;
    int across = t.tk / EDGE, span = PLACES / slices;
    typename U::Sum sum[PER_WARP];
#pragma unroll
    for (int j = 0; j < PER_WARP; j++)
        wmma::fill_fragment(sum[j], 0.0f);
    list_taps(t, tap);
    for (; first < end; first += PLACES) {
        __syncthreads(); /* the places before are used up */
        lay_out(t, x, tap, first, end, cols);
        bring_places(t, dy, k0, first, end, g);
        __syncthreads();
#pragma unroll
        for (int j = 0; j < PER_WARP; j++) {
            int product = own + j * WARPS, pk = product / across * EDGE,
                pt = product % across * EDGE;
            if (product >= products) continue;
            for (int at = slice * span; at < (slice + 1) * span; at += U::depth) {
                typename U::template A<wmma::col_major> fa;
                typename U::template B<wmma::row_major> fb;
                load_operand<T>(fa, g + at * ldg + pk, ldg);
                load_operand<T>(fb, cols + at * ldc + pt, ldc);
                wmma::mma_sync(sum[j], fa, fb, sum[j]);
            }
        }
    }
    __syncthreads();
    float *sums = reinterpret_cast<float *>(bytes);
#pragma unroll
    for (int j = 0; j < PER_WARP; j++) {
        int product = own + j * WARPS;
        if (product < products)
            wmma::store_matrix_sync(sums + (slice * products + product) * EDGE * EDGE, sum[j], EDGE,
                                    wmma::mem_row_major);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < t.kc * t.taps; i += BLOCK) {
        int k = i / t.taps, at = i % t.taps;
        int place = (k / EDGE * across + at / EDGE) * EDGE * EDGE + k % EDGE * EDGE + at % EDGE;
        float v = sums[place];
        for (int s = 1; s < slices; s++)
            v += sums[s * products * EDGE * EDGE + place];
        part[((int64_t)blockIdx.x * t.K + k0 + k) * t.taps + at] = v;
    }
}

/* ---- hosts ---- */

static Tiles tiles_of(const DltNode *n, const DltTensor *x, const DltTensor *y)
{
    Tiles t = {};
    t.d = first_of(n, x, y);
    t.taps = t.d.c * t.d.r * t.d.s;
    t.tk = (t.taps + EDGE - 1) / EDGE * EDGE;
    t.K = t.d.k;
    for (t.kc = MAX_FILTERS; t.K % t.kc != 0;)
        t.kc /= 2;
    t.places = (int64_t)t.d.n * t.d.p * t.d.q;
    return t;
}

/* Of x and of y (its gradient for the filters'). */
static bool accepts(const DltNode *n, const DltDevice *dev, const DltTensor *x, const DltTensor *w,
                    const DltTensor *y, DltWhy *why_not)
{
    const DltConv *a = (const DltConv *)n->attr;
    if (!dlt_cuda_accepts_any(n, dev, why_not)) return false;
    if (x->dtype == DLT_F32 && !dev->option.tf32)
        return dlt_cuda_refuse(why_not, "tf32 is switched off");
    if (a->groups != 1 || x->shape.dim[1] > 4)
        return dlt_cuda_refuse(why_not, "groups, or more than 4 channels");
    if (y->layout != DLT_NHWC || y->shape.dim[1] % EDGE != 0 || w->layout != DLT_PLAIN)
        return dlt_cuda_refuse(why_not, "filters in no multiple of 16, or not into NHWC");
    if (y->dtype != x->dtype) return dlt_cuda_refuse(why_not, "tensors differ in type");
    if (!small_dims(x) || !small_dims(y) || y->shape.dim[1] / EDGE > 65535)
        return dlt_cuda_refuse(why_not, "a dimension above 65535");
    Tiles t = tiles_of(n, x, y);
    bool far = (t.d.r - 1) * t.d.dh > 4095 || (t.d.s - 1) * t.d.dw > 4095;
    if (t.taps <= MAX_TAPS && !far) return true;
    return dlt_cuda_refuse(why_not, "%d taps, or a dilation, beyond this kernel's", t.taps);
}

static bool accepts_fwd(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltTensor *x = n->in[0], *w = n->in[1], *y = n->out[0], *pre = n->out[1];
    if (!accepts(n, dev, x, w, y, why_not)) return false;
    if (w->dtype == x->dtype && (!pre || (pre->dtype == x->dtype && pre->layout == DLT_NHWC)))
        return true;
    return dlt_cuda_refuse(why_not, "tensors differ in type");
}
static DltStatus launch_fwd(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    Tiles t = tiles_of(n, n->in[0], n->out[0]);
    dim3 grid((unsigned)ceil_div(t.places, PLACES), (unsigned)(t.K / t.kc));
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(n->in[0]->dtype, T,
                   s = enqueue(c, err, first_places_k<T>, grid, BLOCK, fwd_bytes<T>(t), t,
                               ((const DltConv *)n->attr)->ep.act, (const T *)c->in[0],
                               (const T *)c->in[1], input(c, 2), (T *)c->out[0], (T *)c->out[1]));
    return s;
}

/* Two blocks a multiprocessor. */
static int64_t share_places(Tiles *t, int n_sm)
{
    int64_t chunks = ceil_div(t->places, PLACES), want = 2 * (int64_t)n_sm;
    int64_t each = ceil_div(chunks, want < chunks ? want : chunks);
    t->places_per_block = (int)(each * PLACES);
    return ceil_div(chunks, each);
}

static bool accepts_filter(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    return accepts(n, dev, n->in[0], n->out[0], n->in[1], why_not);
}
static DltStatus prepare_filter(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    Tiles t = tiles_of(n, n->in[0], n->in[1]);
    int64_t blocks = share_places(&t, dev->n_sm), count = (int64_t)t.K * t.taps;
    p->work_bytes = (size_t)(blocks * count) * sizeof(float) + parts_bytes(dev, blocks, count);
    return DLT_OK;
}
static DltStatus launch_filter(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    Tiles t = tiles_of(n, n->in[0], n->in[1]);
    int64_t blocks = share_places(&t, c->stream->dev->n_sm);
    dim3 grid((unsigned)blocks, (unsigned)(t.K / t.kc));
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(n->in[0]->dtype, T,
                   s = enqueue(c, err, first_taps_k<T>, grid, BLOCK, filter_bytes<T>(t), t,
                               (const T *)c->in[0], (const T *)c->in[1], (float *)c->work));
    DLT_TRY(s);
    return add_parts(c, err, blocks, (int64_t)t.K * t.taps);
}

} // namespace

extern "C" {
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_conv_fwd_first_mma, "conv_fwd.cuda.first_mma", accepts_fwd,
                         nullptr, launch_fwd);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_conv_filter_first_mma, "conv_bwd_filter.cuda.first_mma",
                         accepts_filter, prepare_filter, launch_filter);
}
