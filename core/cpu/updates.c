/* Parameter updates over whole slabs, PyTorch's formulas. One function per optimizer handles a run
 * of elements; what is common (the factor on the gradient, the skipped step, the rounded copy of w)
 * is done here once. */
#include "cpu/plain.h"
#include "ops/step.h"
#include "ops/update_ops.h"
#include <tgmath.h>

typedef struct Update Update;
typedef void (*Rule)(const Update *u, int64_t begin, int64_t end);
struct Update {
    const DltUpdate *attr;
    Rule rule;
    DltReal *w, *s1, *s2, *s3;
    const DltReal *g;
    void *low; /* NULL: none */
    DltDtype low_dtype;
    DltReal scale, lr, decay; /* of the gradient; of this update; weight decay */
    double t;                 /* 1 for the first update */
};

/* s1 = momentum buffer (with momentum): buf = momentum buf + (1 - dampening) g, at first buf = g;
 * w -= lr (nesterov ? g + momentum buf : buf).  Sutskever et al. 2013 */
static void sgd(const Update *u, int64_t begin, int64_t end)
{
    DltReal momentum = (DltReal)u->attr->momentum, keep = (DltReal)(1 - u->attr->dampening);
    DltReal scale = u->scale, decay = u->decay, lr = u->lr;
    DltReal *restrict w = u->w, *restrict buf = u->s1;
    const DltReal *restrict g = u->g;
    if (momentum == 0) {
        for (int64_t i = begin; i < end; i++)
            w[i] -= lr * (g[i] * scale + decay * w[i]);
        return;
    }
    if (u->t <= 1) { /* buf = g', whatever was in it */
        for (int64_t i = begin; i < end; i++)
            buf[i] = g[i] * scale + decay * w[i];
    } else {
        for (int64_t i = begin; i < end; i++) {
            buf[i] = momentum * buf[i] + keep * (g[i] * scale + decay * w[i]);
        }
    }
    if (u->attr->nesterov) {
        for (int64_t i = begin; i < end; i++) {
            w[i] -= lr * (g[i] * scale + decay * w[i] + momentum * buf[i]);
        }
    } else {
        for (int64_t i = begin; i < end; i++)
            w[i] -= lr * buf[i];
    }
}

/* s1, s2 = first and second moment; w -= lr mhat / (sqrt(vhat) + eps), weight decay on w (AdamW,
 * decoupled) or on g (Adam).  Kingma & Ba 2015; Loshchilov & Hutter 2019 */
static void adam(const Update *u, int64_t begin, int64_t end)
{
    const DltUpdate *a = u->attr;
    DltReal b1 = (DltReal)a->beta1, b2 = (DltReal)a->beta2, eps = (DltReal)a->eps;
    DltReal c1 = (DltReal)(1 - a->beta1), c2 = (DltReal)(1 - a->beta2);
    DltReal step = (DltReal)((double)u->lr / (1 - pow(a->beta1, u->t)));
    DltReal root = (DltReal)(1 / sqrt(1 - pow(a->beta2, u->t)));
    DltReal shrink = (DltReal)(a->decoupled ? 1 - (double)u->lr * a->weight_decay : 1);
    DltReal decay = a->decoupled ? 0 : u->decay;
    for (int64_t i = begin; i < end; i++) {
        DltReal g = u->g[i] * u->scale + decay * u->w[i];
        DltReal m = b1 * u->s1[i] + c1 * g, v = b2 * u->s2[i] + c2 * g * g;
        u->s1[i] = m;
        u->s2[i] = v;
        u->w[i] = u->w[i] * shrink - step * m / (sqrt(v) * root + eps);
    }
}

/* s1 = square average, s2 = momentum buffer, s3 = gradient average (centered).  Hinton 2012,
 * lecture 6; Graves 2013 */
static void rmsprop(const Update *u, int64_t begin, int64_t end)
{
    const DltUpdate *a = u->attr;
    DltReal alpha = (DltReal)a->alpha, rest = (DltReal)(1 - a->alpha), eps = (DltReal)a->eps;
    DltReal momentum = (DltReal)a->momentum;
    for (int64_t i = begin; i < end; i++) {
        DltReal g = u->g[i] * u->scale + u->decay * u->w[i];
        DltReal sq = alpha * u->s1[i] + rest * g * g;
        u->s1[i] = sq;
        if (a->centered) {
            DltReal mean = alpha * u->s3[i] + rest * g;
            u->s3[i] = mean;
            sq -= mean * mean;
        }
        DltReal d = g / (sqrt(sq) + eps);
        if (momentum > 0) {
            d += momentum * u->s2[i];
            u->s2[i] = d;
        }
        u->w[i] -= u->lr * d;
    }
}

/* s1 = sum of squares; the rate falls by lr_decay.  Duchi et al. 2011 */
static void adagrad(const Update *u, int64_t begin, int64_t end)
{
    DltReal eps = (DltReal)u->attr->eps;
    DltReal lr = (DltReal)((double)u->lr / (1 + (u->t - 1) * u->attr->lr_decay));
    for (int64_t i = begin; i < end; i++) {
        DltReal g = u->g[i] * u->scale + u->decay * u->w[i];
        DltReal sum = u->s1[i] + g * g;
        u->s1[i] = sum;
        u->w[i] -= lr * g / (sqrt(sum) + eps);
    }
}

/* s1 = momentum; the step is the sign of an interpolation.  Chen et al. 2023, algorithm 2 */
static void lion(const Update *u, int64_t begin, int64_t end)
{
    DltReal b1 = (DltReal)u->attr->beta1, b2 = (DltReal)u->attr->beta2;
    DltReal c1 = (DltReal)(1 - u->attr->beta1), c2 = (DltReal)(1 - u->attr->beta2);
    DltReal shrink = (DltReal)(1 - (double)u->lr * u->attr->weight_decay);
    for (int64_t i = begin; i < end; i++) {
        DltReal g = u->g[i] * u->scale, m = u->s1[i];
        DltReal d = b1 * m + c1 * g;
        DltReal sign = d > 0 ? 1 : d < 0 ? -1 : 0;
        u->w[i] = u->w[i] * shrink - u->lr * sign;
        u->s1[i] = b2 * m + c2 * g;
    }
}

static void task(void *ctx, int64_t begin, int64_t end)
{
    const Update *u = ctx;
    u->rule(u, begin, end);
    if (u->low == NULL) return;
    dlt_cast_run(DLT_F32, u->w + begin, u->low_dtype,
                 (char *)u->low + (size_t)begin * dlt_dtype_bytes(u->low_dtype), end - begin);
}

/* w, states (and low) after one update by `rule`; nothing when coef[SKIP] is set.  w, g, states f32
 * of one size, coef f32[4], step u8, low bf16|f16 or missing.  update_ops.h */
static DltStatus run(const DltCall *call, Rule rule)
{
    const DltNode *n = call->node;
    const DltUpdate *attr = n->attr;
    const DltReal *coef = call->in[2];
    const DltStepState *step = call->in[3];
    if (coef[DLT_COEF_SKIP] != 0) return DLT_OK;
    Update u = {.attr = attr,
                .rule = rule,
                .w = call->in[0],
                .g = call->in[1],
                .s1 = call->in[4],
                .s2 = call->in[5],
                .s3 = call->in[6],
                .low = call->in[7],
                .low_dtype = n->in[7] != NULL ? n->in[7]->dtype : DLT_F32,
                .scale = coef[DLT_COEF_SCALE],
                .lr = (DltReal)((double)step->lr * attr->lr_factor),
                .decay = (DltReal)attr->weight_decay,
                .t = (double)step->update};
    dlt_pool_for(call->stream, dlt_count(n->in[0]), dlt_grain(4), task, &u);
    return DLT_OK;
}

static void ema_task(void *ctx, int64_t begin, int64_t end)
{
    const Update *u = ctx;
    for (int64_t i = begin; i < end; i++) {
        u->w[i] = u->scale * u->w[i] + u->decay * u->g[i];
    }
}

/* e = d e + (1 - d) w with d = decay, or min(decay, (1 + t) / (10 + t)) while it warms up; nothing
 * when coef[SKIP] is set.  e, w f32, coef f32[4], step u8.  update_ops.h */
static DltStatus ema(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltUpdate *attr = call->node->attr;
    const DltReal *coef = call->in[2];
    const DltStepState *step = call->in[3];
    double t = (double)step->update, warm = (1 + t) / (10 + t);
    if (coef[DLT_COEF_SKIP] != 0) return DLT_OK;
    Update u = {.w = call->in[0], .g = call->in[1]};
    double d = attr->warm && warm < attr->decay ? warm : attr->decay;
    u.scale = (DltReal)d;
    u.decay = (DltReal)(1 - d);
    dlt_pool_for(call->stream, dlt_count(call->node->in[0]), dlt_grain(1), ema_task, &u);
    return DLT_OK;
}

/* state = kept after an update that was left out, else kept = state.  state, kept f32 or f64 of one
 * size, coef f32[4].  update_ops.h */
static DltStatus settle_launch(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltTensor *state = call->node->in[0];
    const DltReal *coef = call->in[2];
    int from = coef[DLT_COEF_SKIP] != 0 ? 1 : 0;
    memcpy(call->in[1 - from], call->in[from],
           (size_t)dlt_count(state) * dlt_dtype_bytes(state->dtype));
    return DLT_OK;
}

#define UPDATE(id)                                                                                 \
    static DltStatus id##_launch(const DltCall *call, DltErr *err)                                 \
    {                                                                                              \
        (void)err;                                                                                 \
        return run(call, id);                                                                      \
    }                                                                                              \
    static const DltKernel plain_##id = {.name = #id "_update.cpu.plain",                          \
                                         .accepts = dlt_cpu_accepts_update,                        \
                                         .launch = id##_launch};                                   \
    const DltKernel *const dlt_cpu_##id##_update[] = {&plain_##id, NULL};
UPDATE(sgd)
UPDATE(adam)
UPDATE(rmsprop)
UPDATE(adagrad)
UPDATE(lion)
#undef UPDATE

static const DltKernel plain_ema = {.name = "ema_update.cpu.plain", .launch = ema};
const DltKernel *const dlt_cpu_ema_update[] = {&plain_ema, NULL};

static const DltKernel plain_settle = {.name = "settle.cpu.plain", .launch = settle_launch};
const DltKernel *const dlt_cpu_settle[] = {&plain_settle, NULL};
