/* Cross entropy over long rows, vocabularies: a block takes a row, reads it once from memory, keeps it
 * in shared memory, and writes its gradient. Each thread keeps a running maximum and sum of its own
 * elements, so that one pass finds log-sum-exp (Milakov & Gimelshein 2018). Two blocks share a
 * multiprocessor: one loads while the other computes. Formulas: ops/loss_ops.h. */
#include "cuda/kernels/cross_entropy.cuh"
#include "cuda/kernels/fast.cuh"

namespace
{

enum { THREADS = 512, LEAST = 2048, PER_SM = 2, RESERVED = 2048 };
constexpr float LOG2E = 1.4426950408889634f;

/* One row: loss_r = w (lse - x_y), d_v = scale w (p_v - [v = y]).  logits [rows, V] T, y [rows] i32, w
 * [rows / per_sample] -> loss f64[2] or NULL, dlogits [rows, V] G or NULL (may be the logits' memory).
 * V a multiple of 8. */
template <typename T, typename G>
__global__ void __launch_bounds__(THREADS)
    vocab_k(Rows d, const T *logits, const int32_t *y, In w, const DltStepState *step, double *loss,
            G *dlogits, double *part, unsigned *ticket)
{
    begin();
    constexpr int N = 8;
    DLT_DYNAMIC_SHARED(uint4, kept_packs);
    T *kept = (T *)kept_packs;
    double sum[2] = {};
    float scale = dlogits ? gradient_scale(step) : 0.0f;
    int packs = (int)(d.n / N);
    for (int64_t r = blockIdx.x; r < d.rows; r += gridDim.x) {
        const T *x = logits + r * d.n;
        int32_t label = y[r];
        float sample = d.sample_weight(w, r), m = -INFINITY, e = 0;
        bool counts = label != d.ignore, bad = counts && (label < 0 || label >= d.n);
        float xy = threadIdx.x == 0 && counts && !bad ? to_float(x[label]) : 0.0f;
#pragma unroll 4
        for (int i = (int)threadIdx.x; i < packs; i += THREADS) {
            float v[N], top = m;
            for (int k = 0; k < N; k += Pack<T>::n) {
                Pack<T> raw = load_pack(x + i * N + k);
                if (dlogits) store_pack(kept + i * N + k, raw);
                for (int j = 0; j < Pack<T>::n; j++)
                    v[k + j] = to_float(raw.v[j]) * LOG2E;
            }
            for (int k = 0; k < N; k++)
                top = fmaxf(top, v[k]);
            e *= fast_exp2(m - (top == -INFINITY ? 0.0f : top));
            for (int k = 0; k < N; k++)
                e += fast_exp2(v[k] - top);
            m = top;
        }
        float top = block_max(m);
        float lse2 = top + log2f(block_sum(e * exp2f(m - top)));
        if (threadIdx.x == 0 && counts) {
            if (sample != 0.0f) sum[0] += (double)(sample * (lse2 / LOG2E - xy));
            if (bad) sum[0] = (double)NAN;
            sum[1] += (double)sample;
        }
        float q = counts ? sample * scale : 0.0f;
        for (int i = (int)threadIdx.x; dlogits && i < packs; i += THREADS) {
            float g[N];
            load_v<T, N>(kept + i * N, g);
            for (int k = 0; k < N; k++) {
                float p = fast_exp2(g[k] * LOG2E - lse2) - (i * N + k == label ? 1.0f : 0.0f);
                g[k] = q == 0.0f ? 0.0f : q * p;
            }
            store_v<G, N>(dlogits + r * d.n + i * N, g);
        }
    }
    if (loss && grid_sum<2>(sum, part, ticket) && threadIdx.x == 0) store_loss(d, loss, sum);
}

/* Bytes of shared memory for a row, and whether a block may have them. */
static size_t kept_bytes(const RowTask &t)
{
    return (size_t)t.d.n * dlt_dtype_bytes(t.logits.dtype);
}
static bool fits(const DltCall *c, size_t bytes)
{
    return bytes + RESERVED <= c->stream->dev->shared_bytes;
}

static DltStatus vocab(const DltCall *c, const RowTask &t, DltErr *err)
{
    int64_t most = PER_SM * (int64_t)c->stream->dev->n_sm;
    unsigned blocks = (unsigned)(t.d.rows < 1 ? 1 : t.d.rows < most ? t.d.rows : most);
    bool gradient = t.dlogits.ptr != nullptr;
    DltDtype type = gradient ? t.dlogits.dtype : DLT_F32;
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(t.logits.dtype, T, DLT_FLOAT_TYPE(type, G, {
                       s = enqueue(c, err, vocab_k<T, G>, blocks, THREADS,
                                   gradient ? kept_bytes(t) : 0, t.d, (const T *)t.logits.ptr, t.y,
                                   t.w, t.step, t.loss, (G *)t.dlogits.ptr, t.part,
                                   c->stream->ticket);
                   }));
    return s;
}
static DltStatus forward(const DltCall *c, DltErr *err)
{
    return vocab(c, task_of(c, (double *)c->out[0], nullptr), err);
}
static DltStatus backward(const DltCall *c, DltErr *err)
{
    return vocab(c, task_of(c, nullptr, c->out[0]), err);
}
static DltStatus both(const DltCall *c, DltErr *err)
{
    return vocab(c, task_of(c, (double *)c->out[1], c->out[0]), err);
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltCrossEntropy *a = (const DltCrossEntropy *)n->attr;
    int64_t v = last_dim(n->in[0]);
    if (!accepts_labels(n, dev, why_not)) return false;
    if (n->in[3] || a->smoothing > 0) return dlt_cuda_refuse(why_not, "class weights or smoothing");
    if (v < LEAST || v % 8 != 0)
        return dlt_cuda_refuse(why_not, "rows of %lld: a multiple of 8 from %d on is needed",
                               (long long)v, (int)LEAST);
    if ((size_t)v * dlt_dtype_bytes(n->in[0]->dtype) + RESERVED <= dev->shared_bytes) return true;
    return dlt_cuda_refuse(why_not, "a row does not fit in shared memory");
}

} // namespace

extern "C" DltStatus dlt_cuda_row_loss(const DltCall *call, const DltCudaRowLoss *l, DltErr *err)
{
    RowTask t = task_of(*l);
    bool long_rows = l->classes >= LEAST && l->classes % 8 == 0 && aligned16(l->logits.ptr);
    if (long_rows && fits(call, kept_bytes(t))) return vocab(call, t, err);
    return dlt_cuda_row_loss_any(call, l, err);
}
extern "C" size_t dlt_cuda_row_loss_bytes(const DltDevice *dev)
{
    return sum_bytes(dev->n_sm, 2);
}

extern "C" {
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_cross_entropy_fwd_vocab, "cross_entropy_fwd.cuda.vocab", accepts,
                         prepare_loss, forward);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_cross_entropy_bwd_vocab, "cross_entropy_bwd.cuda.vocab", accepts,
                         nullptr, backward);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_cross_entropy_both_vocab, "cross_entropy_both.cuda.vocab",
                         accepts, prepare_loss, both);
}
