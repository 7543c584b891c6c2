/* Losses as (sum, weight) pairs in doubles, and their gradients. Cross entropy never writes the
 * probabilities: a row's largest logit and sum are found first, loss and gradient follow from them.
 * Loss and gradient come from one kernel, which leaves out what it is not given room for. */
#include "cuda/kernels/cross_entropy.cuh"
#include "cuda/kernels/sums.cuh"

namespace
{

/* What a row needs to know, in all its threads. */
struct RowTerms {
    float lse, q, smooth_q,
        smooth_class; /* log-sum-exp; weights of nll(y) and of the smooth part */
    double loss, weight;
    int64_t y;
    bool counts;
};

/* sum += w ((1 - s) cw[y] nll(y) + s / V sum_v cw[v] nll(v)), weight += w cw[y]; cw NULL: ones. A
 * label outside [0, V) that is not `ignore` makes the loss NaN. */
template <typename T, int W>
__device__ __forceinline__ RowTerms row_terms(const Rows &d, const T *x, const int32_t *y, In w,
                                              In cw, int64_t r)
{
    using R = Row<W>;
    RowTerms t = {};
    int32_t label = y[r];
    float sample = d.sample_weight(w, r), m = -INFINITY, e = 0, sx = 0, sc = 0;
    t.counts = label != d.ignore;
    bool bad = t.counts && (label < 0 || label >= d.n);
    t.y = bad || !t.counts ? 0 : label;
    float xy = to_float(x[t.y]), cy = cw.p ? cw[t.y] : 1.0f;
    for (int64_t i = R::lane(); i < d.n; i += W)
        m = fmaxf(m, to_float(x[i]));
    m = R::max(m);
    for (int64_t i = R::lane(); i < d.n; i += W) {
        float v = to_float(x[i]), c = cw.p ? cw[i] : 1.0f;
        e += expf(v - m);
        sc += c;
        sx += c * v;
    }
    t.lse = m + logf(R::sum(e));
    t.smooth_class = 1;
    if (d.smoothing > 0) {
        sc = R::sum(sc);
        sx = R::sum(sx);
        t.smooth_class = sc;
    }
    t.q = sample * (1.0f - d.smoothing) * cy;
    t.smooth_q = sample * d.smoothing / (float)d.n;
    if (t.counts) {
        t.loss = (double)(t.q * (t.lse - xy));
        if (d.smoothing > 0) t.loss += (double)(t.smooth_q * (t.lse * sc - sx));
        t.weight = (double)(sample * cy);
    }
    if (sample == 0.0f) t.loss = 0; /* padding rows count nothing, whatever lies in them */
    if (bad) t.loss = (double)NAN;
    return t;
}

/* d_v = scale (q (p_v - [v = y]) + smooth_q (cw_sum p_v - cw_v)); to may be the logits' memory. */
template <typename T, typename G, int W>
__device__ __forceinline__ void row_gradient(const Rows &d, const RowTerms &t, const T *x, In cw,
                                             float scale, G *to)
{
    float q = t.counts ? t.q * scale : 0.0f, sq = t.counts ? t.smooth_q * scale : 0.0f;
    for (int64_t i = Row<W>::lane(); i < d.n; i += W) {
        float p = expf(to_float(x[i]) - t.lse), c = cw.p ? cw[i] : 1.0f;
        float g = q * (p - (i == t.y ? 1.0f : 0.0f));
        if (d.smoothing > 0) g += sq * (t.smooth_class * p - c);
        to[i] = from_float<G>(q == 0.0f && sq == 0.0f ? 0.0f : g);
    }
}

/* logits [rows, V] T, y [rows] i32, w [rows / per_sample], cw [V] or NULL -> loss f64[2] or NULL,
 * dlogits [rows, V] or NULL (may be the logits' memory):
 * d_v = scale (q (p_v - [v = y]) + smooth_q (cw_sum p_v - cw_v)). */
template <typename T, typename G, int W>
__global__ void cross_entropy_k(Rows d, const T *logits, const int32_t *y, In w, In cw,
                                const DltStepState *step, double *loss, G *dlogits, double *part,
                                unsigned *ticket)
{
    begin();
    using R = Row<W>;
    constexpr int PER_BLOCK = BLOCK / W;
    double sum[2] = {};
    float scale = dlogits ? gradient_scale(step) : 0.0f;
    for (int64_t r = R::index(); r < d.rows; r += (int64_t)gridDim.x * PER_BLOCK) {
        const T *x = logits + r * d.n;
        RowTerms t = row_terms<T, W>(d, x, y, w, cw, r);
        if (R::lane() == 0) {
            sum[0] += t.loss;
            sum[1] += t.weight;
        }
        if (dlogits) row_gradient<T, G, W>(d, t, x, cw, scale, dlogits + r * d.n);
    }
    if (loss && grid_sum<2>(sum, part, ticket) && threadIdx.x == 0) store_loss(d, loss, sum);
}

static DltStatus cross_entropy(const DltCall *c, const RowTask &t, DltErr *err)
{
    int width = t.d.n <= SHORT_ROW ? WARP : BLOCK;
    unsigned blocks = sum_blocks(c->stream->dev->n_sm, t.d.rows, BLOCK / width);
    DltDtype type = t.dlogits.ptr ? t.dlogits.dtype : DLT_F32;
    DltStatus s = DLT_OK;
    DLT_FLOAT_TYPE(t.logits.dtype, T, DLT_FLOAT_TYPE(type, G, {
                       auto kernel = width == WARP ? cross_entropy_k<T, G, WARP>
                                                   : cross_entropy_k<T, G, BLOCK>;
                       s = enqueue(c, err, kernel, blocks, BLOCK, 0, t.d, (const T *)t.logits.ptr,
                                   t.y, t.w, t.class_w, t.step, t.loss, (G *)t.dlogits.ptr, t.part,
                                   c->stream->ticket);
                   }));
    return s;
}
static DltStatus cross_entropy_fwd(const DltCall *c, DltErr *err)
{
    return cross_entropy(c, task_of(c, (double *)c->out[0], nullptr), err);
}
static DltStatus cross_entropy_bwd(const DltCall *c, DltErr *err)
{
    return cross_entropy(c, task_of(c, nullptr, c->out[0]), err);
}
static DltStatus cross_entropy_both(const DltCall *c, DltErr *err)
{
    return cross_entropy(c, task_of(c, (double *)c->out[1], c->out[0]), err);
}

/* ---- elementwise losses ---- */

__device__ __forceinline__ float pointwise(DltPointwiseLoss a, float p, float t)
{
    float d = p - t, z = fabsf(d);
    switch (a.kind) {
    case DLT_LOSS_MSE:
        return d * d;
    case DLT_LOSS_MAE:
        return z;
    case DLT_LOSS_HUBER:
        return z <= a.delta ? 0.5f * d * d : a.delta * (z - 0.5f * a.delta);
    default:
        return fmaxf(p, 0.0f) - p * t + log1pf(expf(-fabsf(p))); /* bce on logits */
    }
}
__device__ __forceinline__ float pointwise_slope(DltPointwiseLoss a, float p, float t)
{
    float d = p - t, sign = d > 0 ? 1.0f : d < 0 ? -1.0f : d;
    switch (a.kind) {
    case DLT_LOSS_MSE:
        return 2.0f * d;
    case DLT_LOSS_MAE:
        return sign;
    case DLT_LOSS_HUBER:
        return fabsf(d) <= a.delta ? d : a.delta * sign;
    default:
        return 1.0f / (1.0f + expf(-p)) - t;
    }
}

/* loss[0] = sum w f(p, t), loss[1] = sum w, over elements.  p, t of n elements, w one a sample. */
__global__ void pointwise_k(DltPointwiseLoss a, In p, In t, In w, int64_t n, int64_t per_sample,
                            double *loss, double *part, unsigned *ticket)
{
    begin();
    double sum[2] = {};
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        float q = w.p ? w[i / per_sample] : 1.0f;
        if (q == 0.0f) continue; /* padding rows count nothing, whatever lies in them */
        sum[0] += (double)(q * pointwise(a, p[i], t[i]));
        sum[1] += (double)q;
    }
    if (grid_sum<2>(sum, part, ticket) && threadIdx.x == 0) {
        loss[0] = sum[0];
        loss[1] = sum[1];
    }
}
/* dp = scale w f'(p, t). */
__global__ void pointwise_grad_k(DltPointwiseLoss a, In p, In t, In w, const DltStepState *state,
                                 int64_t n, int64_t per_sample, Out dp)
{
    begin();
    float scale = gradient_scale(state);
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        float q = w.p ? w[i / per_sample] : 1.0f;
        dp.set(i, q == 0.0f ? 0.0f : scale * q * pointwise_slope(a, p[i], t[i]));
    }
}

static int64_t elements_per_sample(const DltNode *n)
{
    int64_t samples = n->in[2] ? count_of(n->in[2]) : 1;
    return samples ? count_of(n->in[0]) / samples : 1;
}
static DltStatus pointwise_fwd(const DltCall *c, DltErr *err)
{
    int64_t n = count_of(c->node->in[0]);
    unsigned blocks = sum_blocks(c->stream->dev->n_sm, n, BLOCK);
    return enqueue(c, err, pointwise_k, blocks, BLOCK, 0, *(const DltPointwiseLoss *)c->node->attr,
                   input(c, 0), input(c, 1), input(c, 2), n, elements_per_sample(c->node),
                   (double *)c->out[0], (double *)c->work, c->stream->ticket);
}
static DltStatus pointwise_bwd(const DltCall *c, DltErr *err)
{
    int64_t n = count_of(c->node->in[0]);
    return enqueue(c, err, pointwise_grad_k, blocks_for(c, n, BLOCK), BLOCK, 0,
                   *(const DltPointwiseLoss *)c->node->attr, input(c, 0), input(c, 1), input(c, 2),
                   (const DltStepState *)c->in[3], n, elements_per_sample(c->node), output(c, 0));
}

DLT_CUDA_KERNEL(ce_fwd, "cross_entropy_fwd.cuda.row", accepts_labels, prepare_loss,
                cross_entropy_fwd);
DLT_CUDA_KERNEL(ce_bwd, "cross_entropy_bwd.cuda.row", accepts_labels, nullptr, cross_entropy_bwd);
DLT_CUDA_KERNEL(ce_both, "cross_entropy_both.cuda.row", accepts_labels, prepare_loss,
                cross_entropy_both);
DLT_CUDA_KERNEL(pw_fwd, "pointwise_loss_fwd.cuda.flat", dlt_cuda_accepts_plain, prepare_loss,
                pointwise_fwd);
DLT_CUDA_KERNEL(pw_bwd, "pointwise_loss_bwd.cuda.flat", dlt_cuda_accepts_plain, nullptr,
                pointwise_bwd);

} // namespace

extern "C" DltStatus dlt_cuda_row_loss_any(const DltCall *call, const DltCudaRowLoss *l,
                                           DltErr *err)
{
    return cross_entropy(call, task_of(*l), err);
}

extern "C" {
/* vocab_loss.cu */
extern const DltKernel dlt_cuda_cross_entropy_fwd_vocab, dlt_cuda_cross_entropy_bwd_vocab,
    dlt_cuda_cross_entropy_both_vocab;
const DltKernel *const dlt_cuda_cross_entropy_fwd[] = {&dlt_cuda_cross_entropy_fwd_vocab, &ce_fwd,
                                                       nullptr};
const DltKernel *const dlt_cuda_cross_entropy_bwd[] = {&dlt_cuda_cross_entropy_bwd_vocab, &ce_bwd,
                                                       nullptr};
const DltKernel *const dlt_cuda_cross_entropy_both[] = {&dlt_cuda_cross_entropy_both_vocab,
                                                        &ce_both, nullptr};
const DltKernel *const dlt_cuda_pointwise_loss_fwd[] = {&pw_fwd, nullptr};
const DltKernel *const dlt_cuda_pointwise_loss_bwd[] = {&pw_bwd, nullptr};
}
