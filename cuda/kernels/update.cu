/* Updates of whole slabs: every parameter of a group in one launch, four elements a thread. Nothing
 * comes from the host: rate, step number and the decision to skip lie in device memory, so that a
 * recorded step stays right. Formulas: ops/update_ops.h. */
#include "cuda/kernels/shape.cuh"
#include "cuda/kernels/sums.cuh"
#include "ops/step.h"
#include "ops/update_ops.h"

namespace
{

/* NORM_BLOCK: few, large blocks leave little to the last one */
enum { GROUP = 4, NORM_BLOCK = 1024 };

/* Four neighbours at i of a tensor of any float type; the last group of a slab may be shorter. */
__device__ __forceinline__ void load4(In t, int64_t i, int64_t n, bool packed, float v[GROUP])
{
    if (packed && t.dtype == DLT_F32 && i + GROUP <= n) {
        float4 q = *reinterpret_cast<const float4 *>((const float *)t.p + i);
        v[0] = q.x, v[1] = q.y, v[2] = q.z, v[3] = q.w;
        return;
    }
    for (int k = 0; k < GROUP; k++)
        v[k] = i + k < n ? t[i + k] : 0.0f;
}
__device__ __forceinline__ void store4(Out t, int64_t i, int64_t n, bool packed,
                                       const float v[GROUP])
{
    if (packed && t.dtype == DLT_F32 && i + GROUP <= n) {
        *reinterpret_cast<float4 *>((float *)t.p + i) = make_float4(v[0], v[1], v[2], v[3]);
        return;
    }
    for (int k = 0; k < GROUP && i + k < n; k++)
        t.set(i + k, v[k]);
}

/* coef from loss f64[2], the gradients' sum of squares, states f64[1] or NULL, step: ops/update_ops.h. */
__device__ __forceinline__ void coef_of(const DltGradScale &a, const double *loss, double sumsq,
                                        const DltStepState *state, const double *states,
                                        float *coef)
{
    double weight = loss[1] * (double)state->loss_scale;
    double scale = loss[1] == 0 ? 0.0 : state->sample_weight / weight;
    double norm = sqrt(sumsq) * fabs(scale);
    bool finite = isfinite(loss[0]) && isfinite(loss[1]) && isfinite(sumsq) && isfinite(norm) &&
                  (!states || isfinite(*states));
    coef[DLT_COEF_NORM] = (float)norm;
    float mean = loss[1] == 0 ? 0.0f : (float)(loss[0] / loss[1]);
    bool spike = state->loss_limit > 0 && mean > state->loss_limit;
    coef[DLT_COEF_LOSS] = mean;
    coef[DLT_COEF_SKIP] = (float)(!finite ? DLT_SKIP_NONFINITE
                                  : spike ? DLT_SKIP_SPIKE
                                          : DLT_SKIP_NONE);
    if (a.clip > 0 && norm > (double)a.clip) scale *= (double)a.clip / norm;
    coef[DLT_COEF_SCALE] = (float)scale;
}

/* What an update rule sees of one element: w and its states are changed in place. */
struct Element {
    float w, g;
    float s[3];
};
/* Attributes, with what the host can work out of them. */
struct Rates {
    DltUpdate u;
    double log_beta1, log_beta2;
};
/* Attributes and step, as floats of this launch. */
struct Now {
    float lr, wd, momentum, dampening, beta1, beta2, eps, alpha;
    float step, root; /* adam: lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
    bool first, nesterov, decoupled, centered;
};

struct Sgd {
    static constexpr int states = 1;
    static __device__ __forceinline__ void step(const Now &a, Element &e)
    {
        float g = e.g + a.wd * e.w, d = g;
        if (a.momentum != 0) {
            e.s[0] = a.first ? g : a.momentum * e.s[0] + (1.0f - a.dampening) * g;
            d = a.nesterov ? g + a.momentum * e.s[0] : e.s[0];
        }
        e.w -= a.lr * d;
    }
};
struct Adam {
    static constexpr int states = 2;
    static __device__ __forceinline__ void step(const Now &a, Element &e)
    {
        float g = a.decoupled ? e.g : e.g + a.wd * e.w;
        if (a.decoupled) e.w -= a.lr * a.wd * e.w;
        e.s[0] = a.beta1 * e.s[0] + (1.0f - a.beta1) * g;
        e.s[1] = a.beta2 * e.s[1] + (1.0f - a.beta2) * g * g;
        e.w -= a.step * e.s[0] / (sqrtf(e.s[1]) * a.root + a.eps);
    }
};
/* States sq, buf (momentum), ga (centered); each has its place. */
struct RmsProp {
    static constexpr int states = 3;
    static __device__ __forceinline__ void step(const Now &a, Element &e)
    {
        float g = e.g + a.wd * e.w;
        e.s[0] = a.alpha * e.s[0] + (1.0f - a.alpha) * g * g;
        float square = e.s[0];
        if (a.centered) {
            e.s[2] = a.alpha * e.s[2] + (1.0f - a.alpha) * g;
            square -= e.s[2] * e.s[2];
        }
        float d = g / (sqrtf(square) + a.eps);
        if (a.momentum != 0) d = e.s[1] = a.momentum * e.s[1] + d;
        e.w -= a.lr * d;
    }
};
struct Adagrad { /* lr holds lr / (1 + (t - 1) lr_decay) */
    static constexpr int states = 1;
    static __device__ __forceinline__ void step(const Now &a, Element &e)
    {
        float g = e.g + a.wd * e.w;
        e.s[0] += g * g;
        e.w -= a.lr * g / (sqrtf(e.s[0]) + a.eps);
    }
};
struct Lion {
    static constexpr int states = 1;
    static __device__ __forceinline__ void step(const Now &a, Element &e)
    {
        float c = a.beta1 * e.s[0] + (1.0f - a.beta1) * e.g;
        e.w -= a.lr * a.wd * e.w;
        e.w -= a.lr * (c > 0 ? 1.0f : c < 0 ? -1.0f : 0.0f);
        e.s[0] = a.beta2 * e.s[0] + (1.0f - a.beta2) * e.g;
    }
};

__device__ Now now_of(const Rates &a, const DltStepState *state)
{
    Now n = {};
    double t = (double)state->update, lr = (double)state->lr * a.u.lr_factor;
    n.lr = (float)(lr / (1.0 + (t - 1.0) * a.u.lr_decay)); /* lr_decay: adagrad only, else 0 */
    n.wd = (float)a.u.weight_decay;
    n.momentum = (float)a.u.momentum;
    n.dampening = (float)a.u.dampening;
    n.beta1 = (float)a.u.beta1;
    n.beta2 = (float)a.u.beta2;
    n.eps = (float)a.u.eps;
    n.alpha = (float)a.u.alpha;
    float correct1 = -expm1f((float)(t * a.log_beta1)); /* 1 - beta^t, to rounding and cheaply */
    float correct2 = -expm1f((float)(t * a.log_beta2));
    n.step = n.lr / correct1;
    n.root = 1.0f / sqrtf(correct2);
    n.first = state->update <= 1;
    n.nesterov = a.u.nesterov;
    n.decoupled = a.u.decoupled;
    n.centered = a.u.centered;
    return n;
}

struct Slabs {
    Out w, s[3], low;
    In g;
    int64_t n;
    bool packed;
};

/* sum = micro == 0 ? g : sum + g.  sum, g [n]. */
__global__ void accumulate_k(Out sum, In old, In g, const DltStepState *state, int64_t n,
                             bool packed)
{
    begin();
    bool first = state->micro == 0;
    int64_t step = (int64_t)gridDim.x * blockDim.x * GROUP;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * GROUP; i < n; i += step) {
        float a[GROUP], b[GROUP];
        load4(g, i, n, packed, b);
        if (!first) {
            load4(old, i, n, packed, a);
            for (int k = 0; k < GROUP; k++)
                b[k] += a[k];
        }
        store4(sum, i, n, packed, b);
    }
}
/* The same for accumulators in doubles (loss sums). */
__global__ void accumulate_double_k(double *sum, const double *g, const DltStepState *state,
                                    int64_t n)
{
    begin();
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        sum[i] = state->micro == 0 ? g[i] : sum[i] + g[i];
}

/* This thread's share of sum x^2 over the grid. */
__device__ __forceinline__ double own_squares(In x, int64_t n, bool packed)
{
    double sum = 0;
    int64_t step = (int64_t)gridDim.x * blockDim.x * GROUP;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * GROUP; i < n; i += step) {
        float v[GROUP];
        load4(x, i, n, packed, v);
        for (int k = 0; k < GROUP; k++)
            sum += (double)v[k] * (double)v[k];
    }
    return sum;
}

/* out = sum x^2 in double.  x [n]. */
__global__ void sum_squares_k(In x, int64_t n, bool packed, double *out, double *part,
                              unsigned *ticket)
{
    begin();
    double sum[1] = {own_squares(x, n, packed)};
    if (grid_sum<1>(sum, part, ticket) && threadIdx.x == 0) *out = sum[0];
}

/* step.loss_scale = scaler[SCALE]. */
__global__ void scale_loss_k(DltStepState *state, const float *scaler)
{
    begin();
    state->loss_scale = scaler[DLT_SCALER_SCALE];
}

/* coef[SKIP] with a scaler f32[3], which is moved on. */
__device__ void apply_scaler(const DltGradScale &a, float *scaler, float *coef)
{
    double s[DLT_SCALER];
    for (int i = 0; i < DLT_SCALER; i++)
        s[i] = scaler[i];
    int skip = dlt_scaler_next(&a, coef[DLT_COEF_SKIP] != (float)DLT_SKIP_NONFINITE, s);
    for (int i = 0; i < DLT_SCALER; i++)
        scaler[i] = (float)s[i];
    if (skip == DLT_SKIP_OVERFLOW) coef[DLT_COEF_SKIP] = (float)skip;
}

/* What grad_scale reads and writes beside the gradient. */
struct Verdict {
    const double *loss, *states; /* f64[2]; f64[1] or NULL */
    const DltStepState *state;
    float *scaler, *coef; /* f32[3] or NULL; f32[4] */
};
/* coef from loss, g [n] (n 0: none), states, step: ops/update_ops.h. The last block to finish its share
 * of the norm writes it. */
__global__ void __launch_bounds__(NORM_BLOCK)
    grad_scale_k(DltGradScale a, In g, int64_t n, bool packed, Verdict v, double *part,
                 unsigned *ticket)
{
    begin();
    /* read before the sum: what follows it is waited for */
    double loss[2] = {v.loss[0], v.loss[1]}, states = v.states ? *v.states : 0.0;
    DltStepState state = *v.state;
    double sumsq[1] = {own_squares(g, n, packed)};
    if (!grid_sum<1>(sumsq, part, ticket) || threadIdx.x != 0) return;
    coef_of(a, loss, sumsq[0], &state, v.states ? &states : nullptr, v.coef);
    if (v.scaler) apply_scaler(a, v.scaler, v.coef);
}

/* Four elements of a slab: weights, gradients and the states that Rule has. */
template <typename Rule> struct Four {
    float w[GROUP], g[GROUP], s[3][GROUP];
    __device__ __forceinline__ void load(const Slabs &t, int64_t i)
    {
        load4(In{t.w.p, t.w.dtype}, i, t.n, t.packed, w);
        load4(t.g, i, t.n, t.packed, g);
#pragma unroll
        for (int k = 0; k < Rule::states; k++)
            if (t.s[k].p) load4(In{t.s[k].p, t.s[k].dtype}, i, t.n, t.packed, s[k]);
    }
    __device__ __forceinline__ void store(const Slabs &t, int64_t i) const
    {
        store4(t.w, i, t.n, t.packed, w);
#pragma unroll
        for (int k = 0; k < Rule::states; k++)
            if (t.s[k].p) store4(t.s[k], i, t.n, t.packed, s[k]);
        if (t.low.p) store4(t.low, i, t.n, false, w);
    }
};

/* w, states [n] f32 (changed), g [n], low [n] bf16|f16 or NULL (w rounded). Nothing happens when
 * coef[SKIP] is set. The first elements are on their way while the rates are worked out. */
template <typename Rule>
__global__ void update_k(Rates a, Slabs t, const float *coef, const DltStepState *state)
{
    begin();
    __shared__ Now now;
    int64_t step = (int64_t)gridDim.x * blockDim.x * GROUP;
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * GROUP;
    Four<Rule> f = {};
    if (i < t.n) f.load(t, i);
    if (coef[DLT_COEF_SKIP] != 0.0f) return;
    if (threadIdx.x == 0) now = now_of(a, state);
    float scale = coef[DLT_COEF_SCALE];
    __syncthreads();
    while (i < t.n) {
#pragma unroll
        for (int k = 0; k < GROUP; k++) {
            Element e = {f.w[k], f.g[k] * scale, {f.s[0][k], f.s[1][k], f.s[2][k]}};
            Rule::step(now, e);
            f.w[k] = e.w;
            f.s[0][k] = e.s[0], f.s[1][k] = e.s[1], f.s[2][k] = e.s[2];
        }
        f.store(t, i);
        i += step;
        if (i < t.n) f.load(t, i);
    }
}

/* e = d e + (1 - d) w, d = decay, or min(decay, (1 + t) / (10 + t)) when warm.  e, w [n]. */
__global__ void ema_k(DltUpdate a, Slabs t, const float *coef, const DltStepState *state)
{
    begin();
    if (coef[DLT_COEF_SKIP] != 0.0f) return;
    double u = (double)state->update, d = a.decay;
    if (a.warm && (1.0 + u) / (10.0 + u) < d) d = (1.0 + u) / (10.0 + u);
    float keep = (float)d, take = (float)(1.0 - d);
    int64_t step = (int64_t)gridDim.x * blockDim.x * GROUP;
    for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * GROUP; i < t.n; i += step) {
        float e[GROUP], w[GROUP];
        load4(In{t.w.p, t.w.dtype}, i, t.n, t.packed, e);
        load4(t.g, i, t.n, t.packed, w);
        for (int k = 0; k < GROUP; k++)
            e[k] = keep * e[k] + take * w[k];
        store4(t.w, i, t.n, t.packed, e);
    }
}

/* state = kept when coef[SKIP] is set, else kept = state.  state, kept: n words of 4 bytes. */
__global__ void settle_k(unsigned *state, unsigned *kept, const float *coef, int64_t n)
{
    begin();
    bool back = coef[DLT_COEF_SKIP] != 0.0f;
    unsigned *to = back ? state : kept;
    const unsigned *from = back ? kept : state;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        to[i] = from[i];
}

/* ---- launches ---- */

static Out changed(const DltCall *c, int i)
{
    return Out{c->in[i], c->node->in[i] ? (int)c->node->in[i]->dtype : (int)DLT_F32};
}
template <typename Rule> static DltStatus update(const DltCall *c, DltErr *err)
{
    Slabs t = {};
    t.w = changed(c, 0);
    t.g = input(c, 1);
    for (int k = 0; k < 3; k++)
        t.s[k] = changed(c, 4 + k);
    t.low = changed(c, 7);
    t.n = count_of(c->node->in[0]);
    t.packed = aligned16(c->in[0], c->in[1], c->in[4], c->in[5], c->in[6]);
    Rates a = {*(const DltUpdate *)c->node->attr, 0, 0};
    a.log_beta1 = a.u.beta1 > 0 ? log(a.u.beta1) : -INFINITY;
    a.log_beta2 = a.u.beta2 > 0 ? log(a.u.beta2) : -INFINITY;
    return enqueue(c, err, update_k<Rule>, blocks_for(c, t.n, BLOCK * GROUP, 8), BLOCK, 0, a, t,
                   (const float *)c->in[2], (const DltStepState *)c->in[3]);
}
static DltStatus launch_ema(const DltCall *c, DltErr *err)
{
    Slabs t = {};
    t.w = changed(c, 0);
    t.g = input(c, 1);
    t.n = count_of(c->node->in[0]);
    t.packed = aligned16(c->in[0], c->in[1]);
    return enqueue(c, err, ema_k, blocks_for(c, t.n, BLOCK * GROUP, 8), BLOCK, 0,
                   *(const DltUpdate *)c->node->attr, t, (const float *)c->in[2],
                   (const DltStepState *)c->in[3]);
}
static DltStatus launch_settle(const DltCall *c, DltErr *err)
{
    const DltTensor *state = c->node->in[0];
    int64_t n = count_of(state) * (state->dtype == DLT_F64 ? 2 : 1);
    return enqueue(c, err, settle_k, blocks_for(c, n, BLOCK, 8), BLOCK, 0, (unsigned *)c->in[0],
                   (unsigned *)c->in[1], (const float *)c->in[2], n);
}
static DltStatus launch_accumulate(const DltCall *c, DltErr *err)
{
    int64_t n = count_of(c->node->in[0]);
    const DltStepState *state = (const DltStepState *)c->in[2];
    if (c->node->in[0]->dtype == DLT_F64)
        return enqueue(c, err, accumulate_double_k, 1, BLOCK, 0, (double *)c->in[0],
                       (const double *)c->in[1], state, n);
    return enqueue(c, err, accumulate_k, blocks_for(c, n, BLOCK * GROUP, 8), BLOCK, 0,
                   changed(c, 0), input(c, 0), input(c, 1), state, n,
                   aligned16(c->in[0], c->in[1]));
}
static DltStatus prepare_sum(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)n, (void)err;
    p->work_bytes = sum_bytes(dev->n_sm, 1);
    return DLT_OK;
}
static DltStatus launch_sum_squares(const DltCall *c, DltErr *err)
{
    int64_t n = count_of(c->node->in[0]);
    return enqueue(c, err, sum_squares_k, sum_blocks(c->stream->dev->n_sm, n, BLOCK * GROUP), BLOCK,
                   0, input(c, 0), n, aligned16(c->in[0]), (double *)c->out[0], (double *)c->work,
                   c->stream->ticket);
}
static DltStatus launch_grad_scale(const DltCall *c, DltErr *err)
{
    int64_t n = c->node->in[1] ? count_of(c->node->in[1]) : 0;
    Verdict v = {(const double *)c->in[0], (const double *)c->in[3], (const DltStepState *)c->in[2],
                 (float *)c->in[4], (float *)c->out[0]};
    int64_t blocks = ceil_div(n, NORM_BLOCK * GROUP), most = c->stream->dev->n_sm;
    return enqueue(c, err, grad_scale_k,
                   (unsigned)(blocks < 1      ? 1
                              : blocks < most ? blocks
                                              : most),
                   NORM_BLOCK, 0, *(const DltGradScale *)c->node->attr, input(c, 1), n,
                   aligned16(c->in[1]), v, (double *)c->work, c->stream->ticket);
}
static DltStatus launch_scale_loss(const DltCall *c, DltErr *err)
{
    return enqueue(c, err, scale_loss_k, 1, 1, 0, (DltStepState *)c->in[0],
                   (const float *)c->in[1]);
}

DLT_CUDA_KERNEL(accumulate, "accumulate.cuda.flat", dlt_cuda_accepts_any, nullptr,
                launch_accumulate);
DLT_CUDA_KERNEL(squares, "sum_squares.cuda.flat", dlt_cuda_accepts_any, prepare_sum,
                launch_sum_squares);
DLT_CUDA_KERNEL(scale, "grad_scale.cuda.flat", dlt_cuda_accepts_any, prepare_sum,
                launch_grad_scale);
DLT_CUDA_KERNEL(scale_loss, "scale_loss.cuda.flat", dlt_cuda_accepts_any, nullptr,
                launch_scale_loss);
DLT_CUDA_KERNEL(sgd, "sgd_update.cuda.slab", dlt_cuda_accepts_any, nullptr, update<Sgd>);
DLT_CUDA_KERNEL(adam, "adam_update.cuda.slab", dlt_cuda_accepts_any, nullptr, update<Adam>);
DLT_CUDA_KERNEL(rmsprop, "rmsprop_update.cuda.slab", dlt_cuda_accepts_any, nullptr,
                update<RmsProp>);
DLT_CUDA_KERNEL(adagrad, "adagrad_update.cuda.slab", dlt_cuda_accepts_any, nullptr,
                update<Adagrad>);
DLT_CUDA_KERNEL(lion, "lion_update.cuda.slab", dlt_cuda_accepts_any, nullptr, update<Lion>);
DLT_CUDA_KERNEL(ema, "ema_update.cuda.slab", dlt_cuda_accepts_any, nullptr, launch_ema);
DLT_CUDA_KERNEL(settle, "settle.cuda.flat", dlt_cuda_accepts_any, nullptr, launch_settle);

} // namespace

extern "C" {
const DltKernel *const dlt_cuda_accumulate[] = {&accumulate, nullptr};
const DltKernel *const dlt_cuda_sum_squares[] = {&squares, nullptr};
const DltKernel *const dlt_cuda_grad_scale[] = {&scale, nullptr};
const DltKernel *const dlt_cuda_scale_loss[] = {&scale_loss, nullptr};
const DltKernel *const dlt_cuda_sgd_update[] = {&sgd, nullptr};
const DltKernel *const dlt_cuda_adam_update[] = {&adam, nullptr};
const DltKernel *const dlt_cuda_rmsprop_update[] = {&rmsprop, nullptr};
const DltKernel *const dlt_cuda_adagrad_update[] = {&adagrad, nullptr};
const DltKernel *const dlt_cuda_lion_update[] = {&lion, nullptr};
const DltKernel *const dlt_cuda_ema_update[] = {&ema, nullptr};
const DltKernel *const dlt_cuda_settle[] = {&settle, nullptr};
}
