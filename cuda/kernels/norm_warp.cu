/* Gradients of layer norm and RMS norm for rows of up to 1280 elements in packs of 8: a warp takes a row by
 * itself, so that no barrier stands between rows; a lane owns its columns and keeps their sums for dw, db and
 * the gradient of a bias in front in registers; the rows to come are copied ahead. A block adds its warps, a
 * second small kernel the blocks, in order. Ba et al. 2016; Zhang & Sennrich 2019; formulas: ops/norm.h. */
#include "cuda/kernels/norm_grad.cuh"

namespace
{

enum { N = 8, WARPS = 6, STAGES = 2, MOST_PACKS = 5, WIDE = 3 };

/* Blocks of a multiprocessor: what its registers hold of P packs' sums. */
static constexpr int blocks_of(int p)
{
    return p == 1 ? 3 : 2;
}

/* The packs of a lane: [stage][dy, x, dsum][p], neighbours' side by side. */
template <typename T, int P> struct Packs {
    Pack<T> *first;
    __device__ __forceinline__ Pack<T> *at(int stage, int operand, int p) const
    {
        return first + ((stage * OPERANDS + operand) * P + p) * WARP;
    }
    __device__ __forceinline__ void copy_ahead(const Gradient<T> &d, int stage, int64_t r, int lane)
    {
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * WARP + lane) * N;
            int64_t at_ = r * d.n + c;
            if (r < 0 || c >= d.n) continue;
            async_copy(at(stage, DY, p), d.dy + at_);
            async_copy(at(stage, X, p), d.x + at_);
            if (d.dsum) async_copy(at(stage, DSUM, p), d.dsum + at_);
        }
        async_commit();
    }
};

/* The gain of a pack: in registers while there is room beside the sums, else from the cache. */
template <int P> struct Gain {
    static constexpr bool KEPT = P < WIDE;
    float kept[KEPT ? P : 1][N];
    const float *w;
    __device__ __forceinline__ void get(int p, int c, float v[N]) const
    {
        if constexpr (KEPT) {
            for (int k = 0; k < N; k++)
                v[k] = kept[p][k];
        } else if (w) {
            for (int k = 0; k < N; k += 4) { /* read-only: stores between do not order it */
                float4 four = __ldg((const float4 *)(w + c + k));
                v[k] = four.x, v[k + 1] = four.y, v[k + 2] = four.z, v[k + 3] = four.w;
            }
        } else {
            for (int k = 0; k < N; k++)
                v[k] = 1.0f;
        }
    }
    __device__ __forceinline__ Gain(const float *gain, int n, int lane) : w(gain)
    {
        if constexpr (KEPT)
#pragma unroll
            for (int p = 0; p < P; p++) {
                int c = (p * WARP + lane) * N;
                for (int k = 0; k < N; k++)
                    kept[p][k] = 1.0f;
                if (w && c < n) load_v<float, N>(w + c, kept[p]);
            }
    }
};

/* A warp's sums [3, 256 P] take the place of its packs. */
template <int P>
__device__ __forceinline__ void keep_sums(float *sums, int lane, const float (*dw)[N],
                                          const float (*db)[N], const float (*dxs)[N])
{
    async_wait<0>();
    __syncwarp();
#pragma unroll
    for (int p = 0; p < P; p++) {
        float *to = sums + (p * WARP + lane) * N;
        store_v<float, N>(to, dw[p]);
        store_v<float, N>(to + P * WARP * N, db[p]);
        store_v<float, N>(to + 2 * P * WARP * N, dxs[p]);
    }
}

/* The block's sums [3, n] of its warps' [3, 256 P], which lie where the packs lay. */
template <typename T, int P>
__device__ __forceinline__ void store_sums(const Gradient<T> &d, const float *sums)
{
    constexpr int AREA = STAGES * OPERANDS * P * WARP * (int)(sizeof(Pack<T>) / sizeof(float));
    static_assert(AREA >= 3 * P * WARP * N, "a warp's sums fit into its packs");
    float *to = d.part + (int64_t)blockIdx.x * 3 * d.n;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < 3 * d.n; i += WARPS * WARP) {
        float sum = 0;
        int k = i / d.n, c = i - k * d.n;
        for (int w = 0; w < WARPS; w++)
            sum += sums[w * AREA + k * P * WARP * N + c];
        to[i] = sum;
    }
}

/* g = dy w, h = (x - mean) rstd: dx = rstd (g - [CENTER] avg(g) - h avg(g h)) (+ dsum); block sums of dy h,
 * dy and dx.  dy, x, dsum, dx [rows, n] T; w [n] f32 or NULL; mean, rstd [rows] f32.  n at most 256 P; dx may
 * be dy's or dsum's memory. The last rows come first: what was just written of dy is still in the cache. Packs
 * are read twice, so that registers are left for the sums of 12 warps. */
template <typename T, int P, bool CENTER>
__global__ void __launch_bounds__(WARPS *WARP, blocks_of(P)) norm_warp_grad_k(Gradient<T> d)
{
    begin();
    DLT_DYNAMIC_SHARED(uint4, shared);
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, stage = 0;
    Pack<T> *area = (Pack<T> *)shared + warp * STAGES * OPERANDS * P * WARP;
    Packs<T, P> packs = {area + lane};
    Gain<P> gain(d.w, d.n, lane);
    float dw[P][N] = {}, db[P][N] = {}, dxs[P][N] = {}, inv = 1.0f / (float)d.n;
    int64_t r = d.rows - 1 - ((int64_t)blockIdx.x * WARPS + warp);
    int64_t step = (int64_t)gridDim.x * WARPS;
    float m = CENTER && r >= 0 ? d.mean[r] : 0.0f, scale = r >= 0 ? d.rstd[r] : 0.0f;
    for (int i = 0; i < STAGES - 1; i++)
        packs.copy_ahead(d, i, r - i * step, lane);
    for (; r >= 0; r -= step) {
        bool more = r >= step;
        float next_m = CENTER && more ? d.mean[r - step] : 0.0f;
        float next_scale = more ? d.rstd[r - step] : 0.0f;
        float sum = 0, sum_h = 0;
        packs.copy_ahead(d, stage == 0 ? STAGES - 1 : stage - 1, r - (STAGES - 1) * step, lane);
        async_wait<STAGES - 1>();
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * WARP + lane) * N;
            float w[N];
            if (c >= d.n) continue;
            Pack<T> dy = *packs.at(stage, DY, p), x = *packs.at(stage, X, p);
            gain.get(p, c, w);
            for (int k = 0; k < N; k++) {
                float y = to_float(dy.v[k]), h = (to_float(x.v[k]) - m) * scale;
                float g = y * w[k];
                sum += g;
                sum_h += g * h;
                dw[p][k] += y * h;
                db[p][k] += y;
            }
        }
        float avg = CENTER ? warp_sum(sum) * inv : 0.0f, avg_h = warp_sum(sum_h) * inv;
        __syncwarp(); /* or the compiler keeps the packs */
#pragma unroll
        for (int p = 0; p < P; p++) {
            int c = (p * WARP + lane) * N;
            float w[N], out[N];
            Pack<T> dy, x, other = {};
            if (c >= d.n) continue;
            dy = *packs.at(stage, DY, p);
            x = *packs.at(stage, X, p);
            if (d.dsum) other = *packs.at(stage, DSUM, p);
            gain.get(p, c, w);
            for (int k = 0; k < N; k++) {
                float h = (to_float(x.v[k]) - m) * scale;
                float g = to_float(dy.v[k]) * w[k];
                out[k] = scale * (g - avg - h * avg_h) + to_float(other.v[k]);
            }
            Pack<T> rounded;
            for (int k = 0; k < N; k++) {
                rounded.v[k] = from_float<T>(out[k]);
                dxs[p][k] += to_float(rounded.v[k]); /* the bias sees what was stored */
            }
            store_pack(d.dx + r * d.n + c, rounded);
        }
        m = next_m;
        scale = next_scale;
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
    keep_sums<P>((float *)area, lane, dw, db, dxs);
    store_sums<T, P>(d, (const float *)shared);
}

static int packs_of(int64_t n)
{
    return (int)ceil_div(n, N * WARP);
}
static unsigned blocks_of_rows(int64_t rows, int64_t n, int n_sm)
{
    int64_t all = ceil_div(rows, WARPS), most = blocks_of(packs_of(n)) * (int64_t)n_sm;
    return (unsigned)(all < 1 ? 1 : all < most ? all : most);
}

template <typename T, bool CENTER, int P>
static DltStatus backward_as(const DltCall *c, unsigned blocks, DltErr *err)
{
    size_t shared = (size_t)WARPS * STAGES * OPERANDS * P * WARP * sizeof(Pack<T>);
    return enqueue(c, err, norm_warp_grad_k<T, P, CENTER>, blocks, WARPS * WARP, shared,
                   gradient_of<T, CENTER>(c));
}
template <typename T, bool CENTER> static DltStatus backward(const DltCall *c, DltErr *err)
{
    using Launch = DltStatus (*)(const DltCall *, unsigned, DltErr *);
    static const Launch launch[MOST_PACKS] = {backward_as<T, CENTER, 1>, backward_as<T, CENTER, 2>,
                                              backward_as<T, CENTER, 3>, backward_as<T, CENTER, 4>,
                                              backward_as<T, CENTER, 5>};
    const DltTensor *t = c->node->in[0];
    int64_t n = last_dim(t);
    unsigned blocks = blocks_of_rows(count_of(t) / n, n, c->stream->dev->n_sm);
    DLT_TRY(launch[packs_of(n) - 1](c, blocks, err));
    return norm_total<CENTER>(c, blocks, err);
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    int64_t c = last_dim(n->in[0]), rows = count_of(n->in[0]) / c;
    p->work_bytes = (size_t)blocks_of_rows(rows, c, dev->n_sm) * 3 * (size_t)c * sizeof(float);
    return DLT_OK;
}
static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (n->in[0]->dtype == DLT_F32)
        return dlt_cuda_refuse(why_not, "packs of 8 f32 are no 16 bytes");
    return accepts_packs(n, dev, N * WARP * MOST_PACKS, why_not);
}
template <bool CENTER> static DltStatus launch(const DltCall *c, DltErr *err)
{
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T,
                   if constexpr (Pack<T>::n == N) s = (backward<T, CENTER>(c, err)));
    return s;
}

} // namespace

extern "C" {
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_layer_bwd_warp, "layer_norm_bwd.cuda.warp", accepts, prepare,
                         launch<true>);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_rms_bwd_warp, "rms_norm_bwd.cuda.warp", accepts, prepare,
                         launch<false>);
}
