/* Layer norm and RMS norm of rows that are packs of 8 elements. Forward: a warp takes a row and keeps it in
 * registers, so memory is read once. Backward: threads own columns and a block takes rows four at a time;
 * dx, and each block's sums for dw, db and the gradient of a bias in front (the column sum of dx), come from
 * one reading of dy and x; a second small kernel adds the blocks in order. Ba et al. 2016; Zhang & Sennrich
 * 2019; formulas: ops/norm.h. */
#include "cuda/kernels/norm_grad.cuh"

namespace
{

enum { N = 8, MOST_PACKS = 8, MOST_COLUMNS = 3072, AT_ONCE = 4, MOST_THREADS = MOST_COLUMNS / N };
enum { MOST_WARPS = MOST_THREADS / WARP, SM_THREADS = 512 };

/* v = x (+ res, kept in sum); y = (v - mean) rstd w + b [CENTER], else v rstd w.  x, res, sum, y [rows, n]
 * T; w, b [n] f32 or NULL; mean, rstd [rows] f32.  n a multiple of 8, at most 256 P. */
template <typename T, int P, bool CENTER>
__global__ void __launch_bounds__(BLOCK)
    norm_pack_k(const T *x, const T *res, const float *w, const float *b, T *sum, T *y, float *mean,
                float *rstd, int64_t rows, int n, float eps)
{
    begin();
    int lane = (int)threadIdx.x % WARP;
    int64_t step = (int64_t)gridDim.x * (BLOCK / WARP);
    for (int64_t r = Row<WARP>::index(); r < rows; r += step) {
        float v[P][N] = {}, s = 0, q = 0;
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * WARP + lane) * N;
            if (c >= n) continue;
            load_v<T, N>(x + r * n + c, v[p]);
            if (res) {
                float other[N];
                load_v<T, N>(res + r * n + c, other);
                for (int k = 0; k < N; k++)
                    v[p][k] += other[k];
                store_v<T, N>(sum + r * n + c, v[p]);
            }
            for (int k = 0; k < N; k++)
                s += v[p][k];
        }
        float m = CENTER ? warp_sum(s) / (float)n : 0.0f;
#pragma unroll
        for (int p = 0; p < P; p++)
            for (int k = 0; k < N; k++) {
                float d = (p * WARP + lane) * N < n ? v[p][k] - m : 0.0f;
                q += d * d;
            }
        float scale = 1.0f / sqrtf(warp_sum(q) / (float)n + eps);
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * WARP + lane) * N;
            float gain[N], shift[N];
            if (c >= n) continue;
            for (int k = 0; k < N; k++)
                gain[k] = 1, shift[k] = 0;
            if (w) load_v<float, N>(w + c, gain);
            if (CENTER && b) load_v<float, N>(b + c, shift);
            for (int k = 0; k < N; k++)
                v[p][k] = (v[p][k] - m) * scale * gain[k] + shift[k];
            store_v<T, N>(y + r * n + c, v[p]);
        }
        if (lane != 0) continue;
        if (CENTER) mean[r] = m;
        rstd[r] = scale;
    }
}

/* Sums over the block of AT_ONCE rows' pairs; in all threads. part has two sets, used by turns, so that one
 * barrier a call is enough. */
struct Pairs {
    float v[2 * AT_ONCE];
};
struct PairSums {
    float v[MOST_WARPS][2 * AT_ONCE];
};
__device__ __forceinline__ Pairs block_pairs(Pairs a, float (*part)[2 * AT_ONCE])
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int n_warp = (int)blockDim.x / WARP;
#pragma unroll
    for (int i = 0; i < 2 * AT_ONCE; i++)
        a.v[i] = warp_sum(a.v[i]);
    if (lane == 0)
#pragma unroll
        for (int i = 0; i < 2 * AT_ONCE; i++)
            part[warp][i] = a.v[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2 * AT_ONCE; i++) {
        a.v[i] = 0;
        for (int k = 0; k < n_warp; k++)
            a.v[i] += part[k][i];
    }
    return a;
}

/* A block's packs of AT_ONCE rows, copied ahead: [row][dy, x, dsum][thread], so that neighbours' packs are
 * neighbours. */
template <typename T> struct Stage {
    Pack<T> *first; /* of this thread */
    __device__ __forceinline__ Pack<T> *at(int row, int operand) const
    {
        return first + (row * OPERANDS + operand) * (int)blockDim.x;
    }
};
template <typename T>
__device__ __forceinline__ void copy_ahead(Stage<T> to, const Gradient<T> &d, int64_t r0, int c)
{
    for (int i = 0; i < AT_ONCE && c < d.n; i++) {
        int64_t at = (r0 + i) * d.n + c;
        if (r0 + i >= d.rows) continue;
        async_copy(to.at(i, DY), d.dy + at);
        async_copy(to.at(i, X), d.x + at);
        if (d.dsum) async_copy(to.at(i, DSUM), d.dsum + at);
    }
    async_commit();
}

/* g = dy w, h = (x - mean) rstd: dx = rstd (g - [CENTER] avg(g) - h avg(g h)) (+ dsum); block sums of dy h,
 * dy and dx.  dy, x, dsum, dx [rows, n] T; w [n] f32 or NULL; mean, rstd [rows] f32.  A thread owns 8
 * columns; the next rows are on their way while these are worked on; dx may be dy's or dsum's memory. */
template <typename T, bool CENTER>
__global__ void __launch_bounds__(MOST_THREADS) norm_pack_grad_k(Gradient<T> d)
{
    begin();
    DLT_DYNAMIC_SHARED(uint4, stages);
    int c = (int)threadIdx.x * N, turn = 0;
    int64_t step = (int64_t)gridDim.x * AT_ONCE;
    Pack<T> *packs = (Pack<T> *)stages + threadIdx.x;
    int set = AT_ONCE * OPERANDS * (int)blockDim.x;
    PairSums *part = (PairSums *)((Pack<T> *)stages + 2 * set);
    bool mine = c < d.n;
    float w[N], dw[N] = {}, db[N] = {}, dxs[N] = {};
    for (int k = 0; k < N; k++)
        w[k] = 1.0f;
    if (mine && d.w) load_v<float, N>(d.w + c, w);
    copy_ahead(Stage<T>{packs}, d, (int64_t)blockIdx.x * AT_ONCE, c);
    for (int64_t r0 = (int64_t)blockIdx.x * AT_ONCE; r0 < d.rows; r0 += step, turn ^= 1) {
        float m[AT_ONCE] = {}, scale[AT_ONCE] = {};
        Pairs sum = {};
        copy_ahead(Stage<T>{packs + (turn ^ 1) * set}, d, r0 + step, c);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (r0 + i >= d.rows) continue;
            if (CENTER) m[i] = d.mean[r0 + i];
            scale[i] = d.rstd[r0 + i];
        }
        async_wait<1>();
        Stage<T> own = {packs + turn * set};
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (!mine || r0 + i >= d.rows) continue;
            Pack<T> dy = *own.at(i, DY), x = *own.at(i, X);
            for (int k = 0; k < N; k++) {
                float y = to_float(dy.v[k]);
                float h = (to_float(x.v[k]) - m[i]) * scale[i];
                sum.v[2 * i] += y * w[k];
                sum.v[2 * i + 1] += y * w[k] * h;
                dw[k] += y * h;
                db[k] += y;
            }
        }
        sum = block_pairs(sum, part[turn].v);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            float avg = CENTER ? sum.v[2 * i] / (float)d.n : 0.0f;
            float avg_h = sum.v[2 * i + 1] / (float)d.n, out[N];
            if (!mine || r0 + i >= d.rows) continue;
            Pack<T> dy = *own.at(i, DY), x = *own.at(i, X), more = {};
            if (d.dsum) more = *own.at(i, DSUM);
            for (int k = 0; k < N; k++) {
                float h = (to_float(x.v[k]) - m[i]) * scale[i];
                float g = to_float(dy.v[k]) * w[k];
                out[k] = scale[i] * (g - avg - h * avg_h) + to_float(more.v[k]);
                dxs[k] += to_float(from_float<T>(out[k])); /* the bias sees what was stored */
            }
            store_v<T, N>(d.dx + (r0 + i) * d.n + c, out);
        }
    }
    float *to = d.part + (int64_t)blockIdx.x * 3 * d.n + c;
    if (!mine) return;
    store_v<float, N>(to, dw);
    store_v<float, N>(to + d.n, db);
    store_v<float, N>(to + 2 * d.n, dxs);
}

template <typename T, bool CENTER, int P>
static DltStatus forward_as(const DltCall *c, const DltTensor *t, DltErr *err)
{
    int64_t n = last_dim(t), rows = count_of(t) / n;
    int res = CENTER ? 3 : 2, stats = CENTER ? 2 : 1;
    return enqueue(c, err, norm_pack_k<T, P, CENTER>, blocks_for(c, rows, BLOCK / WARP), BLOCK, 0,
                   (const T *)c->in[0], (const T *)c->in[res], (const float *)c->in[1],
                   CENTER ? (const float *)c->in[2] : nullptr, (T *)c->out[stats + 1],
                   (T *)c->out[0], CENTER ? (float *)c->out[1] : nullptr, (float *)c->out[stats],
                   rows, (int)n, ((const DltNorm *)c->node->attr)->eps);
}
/* P: packs a lane holds. */
template <typename T, bool CENTER> static DltStatus forward(const DltCall *c, DltErr *err)
{
    using Launch = DltStatus (*)(const DltCall *, const DltTensor *, DltErr *);
    static const Launch launch[MOST_PACKS] = {forward_as<T, CENTER, 1>, forward_as<T, CENTER, 2>,
                                              forward_as<T, CENTER, 3>, forward_as<T, CENTER, 4>,
                                              forward_as<T, CENTER, 5>, forward_as<T, CENTER, 6>,
                                              forward_as<T, CENTER, 7>, forward_as<T, CENTER, 8>};
    const DltTensor *t = c->node->in[0];
    return launch[ceil_div(last_dim(t), N * WARP) - 1](c, t, err);
}

/* Threads of a block, and blocks: as many as registers hold at a time. */
static unsigned grad_threads(int64_t n)
{
    return (unsigned)(ceil_div(n / N, WARP) * WARP);
}
static unsigned grad_blocks(int64_t rows, int64_t n, int n_sm)
{
    int64_t all = ceil_div(rows, AT_ONCE), most = SM_THREADS / grad_threads(n) * (int64_t)n_sm;
    return (unsigned)(all < 1 ? 1 : all < most ? all : most);
}
template <typename T, bool CENTER> static DltStatus backward(const DltCall *c, DltErr *err)
{
    const DltTensor *t = c->node->in[0];
    int64_t n = last_dim(t), rows = count_of(t) / n;
    unsigned blocks = grad_blocks(rows, n, c->stream->dev->n_sm);
    DLT_TRY(enqueue(c, err, norm_pack_grad_k<T, CENTER>, blocks, grad_threads(n),
                    2 * (AT_ONCE * OPERANDS * grad_threads(n) * sizeof(Pack<T>) + sizeof(PairSums)),
                    gradient_of<T, CENTER>(c)));
    return norm_total<CENTER>(c, blocks, err);
}

static DltStatus prepare_grad(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    int64_t c = last_dim(n->in[0]), rows = count_of(n->in[0]) / c;
    p->work_bytes = (size_t)grad_blocks(rows, c, dev->n_sm) * 3 * (size_t)c * sizeof(float);
    return DLT_OK;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    bool grad = n->kind == DLT_OP_layer_norm_bwd || n->kind == DLT_OP_rms_norm_bwd;
    int64_t most = grad ? MOST_COLUMNS : N * WARP * MOST_PACKS;
    if (grad && n->in[0]->dtype == DLT_F32)
        return dlt_cuda_refuse(why_not, "packs of 8 f32 are no 16 bytes");
    return accepts_packs(n, dev, most, why_not);
}

template <bool CENTER> static DltStatus launch_fwd(const DltCall *c, DltErr *err)
{
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T, s = (forward<T, CENTER>(c, err)));
    return s;
}
template <bool CENTER> static DltStatus launch_bwd(const DltCall *c, DltErr *err)
{
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T,
                   if constexpr (Pack<T>::n == N) s = (backward<T, CENTER>(c, err)));
    return s;
}

} // namespace

extern "C" {
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_layer_fwd_pack, "layer_norm_fwd.cuda.pack", accepts, nullptr,
                         launch_fwd<true>);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_layer_bwd_pack, "layer_norm_bwd.cuda.pack", accepts, prepare_grad,
                         launch_bwd<true>);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_rms_fwd_pack, "rms_norm_fwd.cuda.pack", accepts, nullptr,
                         launch_fwd<false>);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_rms_bwd_pack, "rms_norm_bwd.cuda.pack", accepts, prepare_grad,
                         launch_bwd<false>);
}
