/* First convolutions: images of 1 to 4 channels into a multiple of 8 filters. Libraries fill the
 * channels up for their tensor cores and reach a few per cent of them; plain f32 arithmetic from
 * shared memory is faster and exact. Forward with bias and activation inside, and the filters'
 * gradient. (A data gradient is not wanted: the image is an input.) */
#include "cuda/kernels/conv_first.cuh"

namespace
{

/* With many taps the tensor cores win even with channels filled up; strict f32 has none of them. */
static bool few_taps(const DltNode *n, const DltDevice *dev, const DltTensor *x, DltWhy *why_not)
{
    const DltConv *a = (const DltConv *)n->attr;
    int64_t taps = x->shape.dim[1] * a->kernel[0] * a->kernel[1];
    bool strict = x->dtype == DLT_F32 && !dev->option.tf32;
    if (strict || taps <= 80) return true;
    return dlt_cuda_refuse(why_not, "%lld taps: the tensor cores are faster", (long long)taps);
}

/* ---- forward ---- */

enum { PER_K = 8, PER_Q = 4, TILE_Q = 32 }; /* a thread makes 4 neighbouring places of 8 filters */

/* Filters of one block: all, or as many as divide them evenly. */
static int filters_of(int k)
{
    int kc = 64;
    while (k % kc != 0)
        kc /= 2;
    return kc;
}
static int tile_rows(int kc)
{
    return BLOCK / (kc / PER_K) / (TILE_Q / PER_Q);
}
static int window_rows(const First &d, int kc)
{
    return (tile_rows(kc) - 1) * d.sh + (d.r - 1) * d.dh + 1;
}
static int window_cols(const First &d)
{
    return (TILE_Q - 1) * d.sw + (d.s - 1) * d.dw + 1;
}
static size_t shared_bytes(const First &d, int kc)
{
    return sizeof(float) *
           ((size_t)d.c * d.r * d.s * kc + (size_t)d.c * window_rows(d, kc) * window_cols(d));
}

/* y[n,p,q,k] = act(sum over c,r,s of x[n,c, p sh + r dh - top, ..] w[k,c,r,s] + bias[k]).  x [N,C,H,W]
 * in any order, w [K,C,R,S], y NHWC, all T; bias [K]; pre like y or NULL: the value before act.
 * Grid: (tiles of Q) (tiles of P) x N x (K / kc). Shared: the filters [C R S, kc], the window of x. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    first_k(First d, int kc, DltUnary a, const T *x, const T *w, In bias, T *y, T *pre)
{
    begin();
    DLT_DYNAMIC_SHARED(float, filters);
    int taps = d.c * d.r * d.s, groups = kc / PER_K, rows = BLOCK / groups / (TILE_Q / PER_Q);
    int wr = (rows - 1) * d.sh + (d.r - 1) * d.dh + 1,
        wc = (TILE_Q - 1) * d.sw + (d.s - 1) * d.dw + 1;
    float *window = filters + taps * kc;
    int tiles_q = (d.q + TILE_Q - 1) / TILE_Q, n = blockIdx.y, k0 = blockIdx.z * kc;
    int p0 = blockIdx.x / tiles_q * rows, q0 = blockIdx.x % tiles_q * TILE_Q;
    for (int i = threadIdx.x; i < taps * kc; i += BLOCK)
        filters[i] = to_float(w[(int64_t)(k0 + i % kc) * taps + i / kc]);
    for (int i = threadIdx.x; i < d.c * wr * wc; i += BLOCK) {
        int col = i % wc, row = i / wc % wr, c = i / wc / wr;
        int h = p0 * d.sh - d.top + row, v = q0 * d.sw - d.left + col;
        bool inside = h >= 0 && h < d.h && v >= 0 && v < d.w;
        window[i] =
            inside ? to_float(x[n * d.xs[0] + c * d.xs[1] + h * d.xs[2] + v * d.xs[3]]) : 0.0f;
    }
    __syncthreads();
    int g = threadIdx.x % groups, place = threadIdx.x / groups;
    int tp = place / (TILE_Q / PER_Q), tq = place % (TILE_Q / PER_Q) * PER_Q;
    float acc[PER_Q][PER_K] = {};
    for (int t = 0; t < taps; t++) {
        int s = t % d.s, r = t / d.s % d.r, c = t / d.s / d.r;
        const float4 *f = reinterpret_cast<const float4 *>(filters + t * kc + g * PER_K);
        const float *in = window + (c * wr + tp * d.sh + r * d.dh) * wc + tq * d.sw + s * d.dw;
        float4 f0 = f[0], f1 = f[1];
#pragma unroll
        for (int j = 0; j < PER_Q; j++) {
            float v = in[j * d.sw];
            acc[j][0] += v * f0.x, acc[j][1] += v * f0.y, acc[j][2] += v * f0.z;
            acc[j][3] += v * f0.w, acc[j][4] += v * f1.x, acc[j][5] += v * f1.y;
            acc[j][6] += v * f1.z, acc[j][7] += v * f1.w;
        }
    }
    int p = p0 + tp, k = k0 + g * PER_K;
#pragma unroll
    for (int j = 0; j < PER_Q; j++) {
        int q = q0 + tq + j;
        if (p >= d.p || q >= d.q) continue;
        int64_t at = (((int64_t)n * d.p + p) * d.q + q) * d.k + k;
        if (bias.p)
#pragma unroll
            for (int i = 0; i < PER_K; i++)
                acc[j][i] += bias[k + i];
        if (pre)
#pragma unroll
            for (int i = 0; i < PER_K; i += Pack<T>::n)
                store_v<T, Pack<T>::n>(pre + at + i, acc[j] + i);
        with_fn(a.fn, [&](auto fn) {
#pragma unroll
            for (int i = 0; i < PER_K; i++)
                acc[j][i] = act<decltype(fn)::value>(acc[j][i], (float)a.alpha);
        });
#pragma unroll
        for (int i = 0; i < PER_K; i += Pack<T>::n)
            store_v<T, Pack<T>::n>(y + at + i, acc[j] + i);
    }
}

static bool accepts_fwd(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltTensor *x = n->in[0], *w = n->in[1], *y = n->out[0], *pre = n->out[1];
    if (!dlt_cuda_accepts_any(n, dev, why_not)) return false;
    if (((const DltConv *)n->attr)->groups != 1 || x->shape.dim[1] > 4)
        return dlt_cuda_refuse(why_not, "groups, or more than 4 channels");
    if (y->layout != DLT_NHWC || y->shape.dim[1] % PER_K != 0 || w->layout != DLT_PLAIN)
        return dlt_cuda_refuse(why_not, "filters in no multiple of 8, or not into NHWC");
    if (w->dtype != x->dtype || y->dtype != x->dtype ||
        (pre && (pre->dtype != x->dtype || pre->layout != DLT_NHWC)))
        return dlt_cuda_refuse(why_not, "tensors differ in type");
    if (!small_dims(x) || !small_dims(y))
        return dlt_cuda_refuse(why_not, "a dimension above 65535");
    if (!few_taps(n, dev, x, why_not)) return false;
    First d = first_of(n, x, y);
    size_t bytes = shared_bytes(d, filters_of(d.k));
    if (bytes > 48 * 1024)
        return dlt_cuda_refuse(why_not, "filters and window of %zu bytes", bytes);
    return true;
}
static DltStatus launch_fwd(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    First d = first_of(n, n->in[0], n->out[0]);
    int kc = filters_of(d.k);
    dim3 grid((unsigned)(ceil_div(d.q, TILE_Q) * ceil_div(d.p, tile_rows(kc))), (unsigned)d.n,
              (unsigned)(d.k / kc));
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(n->in[0]->dtype, T,
                   s = enqueue(c, err, first_k<T>, grid, BLOCK, shared_bytes(d, kc), d, kc,
                               ((const DltConv *)n->attr)->ep.act, (const T *)c->in[0],
                               (const T *)c->in[1], input(c, 2), (T *)c->out[0], (T *)c->out[1]));
    return s;
}

/* ---- the filters' gradient ---- */

enum { WARPS = BLOCK / WARP };

/* A share of dw: part[b][k][c][r][s] = sum over the rows (n, p) of block b and over q of
 * x[n,c, p sh + r - top, q SW + s - left] dy[n,p,q,k].  A lane is a filter; a warp takes every eighth
 * row of the block and keeps the R x S window of x in registers while it moves along the row.
 * Grid: blocks x (K / 32, rounded up) x C. */
template <typename T, int R, int S, int SW>
__global__ void __launch_bounds__(BLOCK)
    first_filter_k(First d, const T *x, const T *dy, float *part, int rows_per_block)
{
    begin();
    __shared__ float share[WARPS][S][WARP]; /* one filter row at a time */
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, c = blockIdx.z;
    int k = blockIdx.y * WARP + lane;
    bool inside = k < d.k;
    float acc[R * S] = {}, win[R][S];
    int first = blockIdx.x * rows_per_block, end = min(first + rows_per_block, d.n * d.p);
    for (int row = first + warp; row < end; row += WARPS) {
        int n = row / d.p, p = row - n * d.p, h0 = p * d.sh - d.top;
        const T *xn = x + n * d.xs[0] + c * d.xs[1];
        const T *g = dy + (int64_t)row * d.q * d.k + k;
        auto at = [&](int r, int col) {
            int h = h0 + r;
            bool there = h >= 0 && h < d.h && col >= 0 && col < d.w;
            return there ? to_float(xn[h * d.xs[2] + col * d.xs[3]]) : 0.0f;
        };
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int s = 0; s < S - SW; s++)
                win[r][s + SW] = at(r, s - d.left);
#pragma unroll 2
        for (int q = 0; q < d.q; q++) {
            float v = inside ? to_float(g[(int64_t)q * d.k]) : 0.0f;
#pragma unroll
            for (int r = 0; r < R; r++) {
#pragma unroll
                for (int s = 0; s < S - SW; s++)
                    win[r][s] = win[r][s + SW];
#pragma unroll
                for (int s = S - SW; s < S; s++)
                    win[r][s] = at(r, q * SW + s - d.left);
#pragma unroll
                for (int s = 0; s < S; s++)
                    acc[r * S + s] += v * win[r][s];
            }
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        __syncthreads();
#pragma unroll
        for (int s = 0; s < S; s++)
            share[warp][s][lane] = acc[r * S + s];
        __syncthreads();
        for (int i = threadIdx.x; i < S * WARP; i += BLOCK) {
            int s = i / WARP, l = i % WARP, f = blockIdx.y * WARP + l;
            float sum = 0;
            for (int j = 0; j < WARPS; j++)
                sum += share[j][s][l];
            int64_t filter = (int64_t)blockIdx.x * d.k + f;
            if (f < d.k) part[((filter * d.c + c) * R + r) * S + s] = sum;
        }
    }
}

struct FilterPlan {
    int rows_per_block;
    unsigned blocks;
    int64_t count;
};
static FilterPlan filter_plan(const First &d, int n_sm)
{
    int64_t rows = (int64_t)d.n * d.p, others = ceil_div(d.k, WARP) * d.c;
    int64_t want = ceil_div(4 * (int64_t)n_sm, others), most = ceil_div(rows, WARPS);
    int64_t blocks = want < most ? want : most;
    FilterPlan p = {};
    p.rows_per_block = (int)ceil_div(rows, blocks);
    p.blocks = (unsigned)ceil_div(rows, p.rows_per_block);
    p.count = (int64_t)d.k * d.c * d.r * d.s;
    return p;
}

template <typename T, int R, int SW>
static DltStatus filter_of_size(const DltCall *c, DltErr *err, const First &d, const FilterPlan &p)
{
    dim3 grid(p.blocks, (unsigned)ceil_div(d.k, WARP), (unsigned)d.c);
    return enqueue(c, err, first_filter_k<T, R, R, SW>, grid, BLOCK, 0, d, (const T *)c->in[0],
                   (const T *)c->in[1], (float *)c->work, p.rows_per_block);
}
template <typename T>
static DltStatus filter_of_type(const DltCall *c, DltErr *err, const First &d, const FilterPlan &p)
{
    if (d.r == 3)
        return d.sw == 1 ? filter_of_size<T, 3, 1>(c, err, d, p)
                         : filter_of_size<T, 3, 2>(c, err, d, p);
    if (d.r == 5)
        return d.sw == 1 ? filter_of_size<T, 5, 1>(c, err, d, p)
                         : filter_of_size<T, 5, 2>(c, err, d, p);
    return d.sw == 1 ? filter_of_size<T, 7, 1>(c, err, d, p)
                     : filter_of_size<T, 7, 2>(c, err, d, p);
}

static bool accepts_filter(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltTensor *x = n->in[0], *dy = n->in[1], *dw = n->out[0];
    const DltConv *a = (const DltConv *)n->attr;
    if (!dlt_cuda_accepts_any(n, dev, why_not)) return false;
    if (a->groups != 1 || x->shape.dim[1] > 4 || a->dilation[0] != 1 || a->dilation[1] != 1)
        return dlt_cuda_refuse(why_not, "groups, dilation, or more than 4 channels");
    if (a->kernel[0] != a->kernel[1] || a->kernel[0] < 3 || a->kernel[0] > 7 ||
        a->kernel[0] % 2 == 0 || a->stride[1] > 2)
        return dlt_cuda_refuse(why_not, "not a 3x3, 5x5 or 7x7 kernel with stride 1 or 2");
    if (dy->layout != DLT_NHWC || dw->layout != DLT_PLAIN || dy->dtype != x->dtype)
        return dlt_cuda_refuse(why_not, "dy is not NHWC, or of another type than x");
    if (!small_dims(x) || !small_dims(dy) ||
        (int64_t)x->shape.dim[0] * dy->shape.dim[2] > INT32_MAX / 2)
        return dlt_cuda_refuse(why_not, "a dimension above 65535");
    return few_taps(n, dev, x, why_not);
}
static DltStatus prepare_filter(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    First d = first_of(n, n->in[0], n->in[1]);
    FilterPlan f = filter_plan(d, dev->n_sm);
    p->work_bytes =
        (size_t)(f.blocks * f.count) * sizeof(float) + parts_bytes(dev, f.blocks, f.count);
    return DLT_OK;
}
static DltStatus launch_filter(const DltCall *c, DltErr *err)
{
    const DltNode *n = c->node;
    First d = first_of(n, n->in[0], n->in[1]);
    FilterPlan f = filter_plan(d, c->stream->dev->n_sm);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(n->in[0]->dtype, T, s = filter_of_type<T>(c, err, d, f));
    DLT_TRY(s);
    return add_parts(c, err, f.blocks, f.count);
}

} // namespace

extern "C" {
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_conv_fwd_first, "conv_fwd.cuda.first", accepts_fwd, nullptr,
                         launch_fwd);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_conv_filter_first, "conv_bwd_filter.cuda.first", accepts_filter,
                         prepare_filter, launch_filter);
}
