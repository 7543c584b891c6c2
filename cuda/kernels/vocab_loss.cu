/* Cross entropy over long rows, vocabularies: a block takes a row, reads it once from memory, keeps it
 * in shared memory, and writes its gradient. Each thread keeps a running maximum and sum of its own
 * elements, so that one pass finds log-sum-exp (Milakov & Gimelshein 2018). Where two rows fit, the next
 * one is copied while this one is worked on. Formulas: ops/loss_ops.h. */
#include "cuda/kernels/async.cuh"
#include "cuda/kernels/cross_entropy.cuh"
#include "cuda/kernels/sums.cuh"

namespace
{

enum { THREADS = 1024, LEAST = 2048, RESERVED = 2048 };
constexpr float LOG2E = 1.4426950408889634f;

/* N neighbours from their floats; N may be less than a pack of G. */
template <typename G, int N> __device__ __forceinline__ void store_piece(G *to, const float v[N])
{
    if constexpr (N % Pack<G>::n == 0)
        store_v<G, N>(to, v);
    else
        for (int k = 0; k < N; k++)
            to[k] = from_float<G>(v[k]);
}

/* Packs of a row that a thread keeps: every THREADS-th from its own on. */
template <typename T> __device__ __forceinline__ void copy_row(T *to, const T *from, int packs)
{
    for (int i = (int)threadIdx.x; i < packs; i += THREADS)
        async_copy(to + i * Pack<T>::n, from + i * Pack<T>::n);
}

/* One row: loss_r = w (lse - x_y), d_v = scale w (p_v - [v = y]).  logits [rows, V] T, y [rows] i32, w
 * [rows / per_sample] -> loss f64[2] or NULL, dlogits [rows, V] G or NULL (may be the logits' memory).
 * V a multiple of 8.  sets: rows kept, 2 where they fit: the next row comes while this one is worked on. */
template <typename T, typename G>
__global__ void __launch_bounds__(THREADS)
    vocab_k(Rows d, const T *logits, const int32_t *y, In w, const DltStepState *step, int sets,
            double *loss, G *dlogits, double *part, unsigned *ticket)
{
    begin();
    constexpr int N = Pack<T>::n;
    DLT_DYNAMIC_SHARED(uint4, kept_packs);
    double sum[2] = {};
    float scale = dlogits ? gradient_scale(step) : 0.0f;
    int packs = (int)(d.n / N), turn = 0;
    if (sets == 2) copy_row((T *)kept_packs, logits + blockIdx.x * d.n, packs);
    async_commit();
    for (int64_t r = blockIdx.x; r < d.rows; r += gridDim.x, turn ^= sets - 1) {
        T *kept = (T *)kept_packs + turn * d.n;
        int64_t next = sets == 2 ? r + gridDim.x : r;
        int32_t label = y[r];
        float sample = w.p ? w[r / d.per_sample] : 1.0f, m = -INFINITY, e = 0;
        bool counts = label != d.ignore, bad = counts && (label < 0 || label >= d.n);
        if (next < d.rows)
            copy_row((T *)kept_packs + (turn ^ (sets - 1)) * d.n, logits + next * d.n, packs);
        async_commit();
        if (sets == 2)
            async_wait<1>();
        else
            async_wait<0>();
        for (int i = (int)threadIdx.x; i < packs; i += THREADS) {
            float v[N], top = m;
            load_v<T, N>(kept + i * N, v);
            for (int k = 0; k < N; k++)
                top = fmaxf(top, v[k] *= LOG2E);
            e *= exp2f(m - (top == -INFINITY ? 0.0f : top));
            for (int k = 0; k < N; k++)
                e += exp2f(v[k] - top);
            m = top;
        }
        float top = block_max(m); /* behind its barriers all see the row */
        float lse2 = top + log2f(block_sum(e * exp2f(m - top)));
        if (threadIdx.x == 0 && counts) {
            float xy = bad ? 0.0f : to_float(kept[label]);
            if (sample != 0.0f) sum[0] += (double)(sample * (lse2 / LOG2E - xy));
            if (bad) sum[0] = (double)NAN;
            sum[1] += (double)sample;
        }
        float q = counts ? sample * scale : 0.0f;
        for (int i = (int)threadIdx.x; dlogits && i < packs; i += THREADS) {
            float g[N];
            load_v<T, N>(kept + i * N, g);
            for (int k = 0; k < N; k++) {
                float p = exp2f(g[k] * LOG2E - lse2) - (i * N + k == label ? 1.0f : 0.0f);
                g[k] = q == 0.0f ? 0.0f : q * p;
            }
            store_piece<G, N>(dlogits + r * d.n + i * N, g);
        }
        __syncthreads(); /* thread 0 has read the label's logit before its place is taken */
    }
    if (loss && grid_sum<2>(sum, part, ticket) && threadIdx.x == 0) {
        loss[0] = sum[0];
        loss[1] = sum[1];
    }
}

static int kept_rows(const DltTensor *logits, const DltDevice *dev)
{
    size_t bytes = (size_t)last_dim(logits) * dlt_dtype_bytes(logits->dtype);
    return (int)((dev->shared_bytes - RESERVED) / bytes);
}

static DltStatus vocab(const DltCall *c, DltErr *err, double *loss, void *dlogits, DltDtype dtype)
{
    const DltCrossEntropy *a = (const DltCrossEntropy *)c->node->attr;
    const DltDevice *dev = c->stream->dev;
    Rows d = {};
    d.n = last_dim(c->node->in[0]);
    d.rows = count_of(c->node->in[1]);
    int64_t samples = c->node->in[2] ? count_of(c->node->in[2]) : d.rows;
    d.per_sample = samples ? d.rows / samples : 1;
    d.ignore = a->ignore;
    int sets = kept_rows(c->node->in[0], dev) >= 2 ? 2 : 1;
    unsigned blocks = (unsigned)(d.rows < 1 ? 1 : d.rows < dev->n_sm ? d.rows : dev->n_sm);
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(c->node->in[0]->dtype, T, DLT_FLOAT_TYPE(dtype, G, {
                       size_t shared = (size_t)sets * (size_t)d.n * sizeof(T);
                       s = enqueue(c, err, vocab_k<T, G>, blocks, THREADS, shared, d,
                                   (const T *)c->in[0], (const int32_t *)c->in[1], input(c, 2),
                                   (const DltStepState *)c->in[4], sets, loss, (G *)dlogits,
                                   (double *)c->work, c->stream->ticket);
                   }));
    return s;
}
static DltStatus forward(const DltCall *c, DltErr *err)
{
    return vocab(c, err, (double *)c->out[0], nullptr, DLT_F32);
}
static DltStatus backward(const DltCall *c, DltErr *err)
{
    return vocab(c, err, nullptr, c->out[0], c->node->out[0]->dtype);
}
static DltStatus both(const DltCall *c, DltErr *err)
{
    return vocab(c, err, (double *)c->out[1], c->out[0], c->node->out[0]->dtype);
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltCrossEntropy *a = (const DltCrossEntropy *)n->attr;
    int64_t v = last_dim(n->in[0]);
    if (!dlt_cuda_accepts_plain(n, dev, why_not)) return false;
    if (n->in[1]->dtype != DLT_I32)
        return dlt_cuda_refuse(why_not, "labels are %s, not i32", dlt_dtype_name(n->in[1]->dtype));
    if (n->in[3] || a->smoothing > 0) return dlt_cuda_refuse(why_not, "class weights or smoothing");
    if (v < LEAST || v % 8 != 0)
        return dlt_cuda_refuse(why_not, "rows of %lld: a multiple of 8 from %d on is needed",
                               (long long)v, (int)LEAST);
    if (kept_rows(n->in[0], dev) >= 1) return true;
    return dlt_cuda_refuse(why_not, "a row does not fit in shared memory");
}
static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)n, (void)err;
    p->work_bytes = sum_bytes(dev->n_sm, 2);
    return DLT_OK;
}

} // namespace

extern "C" {
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_cross_entropy_fwd_vocab, "cross_entropy_fwd.cuda.vocab", accepts,
                         prepare, forward);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_cross_entropy_bwd_vocab, "cross_entropy_bwd.cuda.vocab", accepts,
                         nullptr, backward);
DLT_CUDA_KERNEL_EXPORTED(dlt_cuda_cross_entropy_both_vocab, "cross_entropy_both.cuda.vocab",
                         accepts, prepare, both);
}
