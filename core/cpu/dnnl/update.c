/* SGD and Adam on whole slabs in one pass: gradient, states, parameter and its rounded copy go by once, a piece of some
 * KiB at a time. The formulas are those of ops/update_ops.h, element by element, so threads change nothing. */
#include "base/half.h"
#include "cpu/dnnl/tile.h"
#include "ops/step.h"
#include "ops/update_ops.h"

#include <math.h>

enum { GRAIN = 8192, PIECE = 1024 };

typedef struct Update Update;
typedef void (*Rule)(const Update *u, int64_t begin, int64_t end);
struct Update {
    Rule rule;
    float *w, *s1, *s2;
    const float *g;
    uint16_t *low; /* NULL: none */
    float scale, lr, decay;
    float momentum, keep;      /* sgd: of the buffer, of the gradient */
    float b1, b2, c1, c2, eps; /* adam */
    float step, root, shrink;  /* adam: lr / (1 - b1^t); 1 / sqrt(1 - b2^t); 1 - lr decay */
};

/* buf = momentum buf + keep g'; w -= lr buf */
DLT_CLONES static void sgd(const Update *u, int64_t begin, int64_t end)
{
    float *w = u->w, *buf = u->s1, momentum = u->momentum, keep = u->keep;
    float scale = u->scale, decay = u->decay, lr = u->lr;
    const float *g = u->g;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) {
        float v = momentum * buf[i] + keep * (g[i] * scale + decay * w[i]);
        buf[i] = v;
        w[i] -= lr * v;
    }
}

/* The same with w -= lr (g' + momentum buf). */
DLT_CLONES static void nesterov(const Update *u, int64_t begin, int64_t end)
{
    float *w = u->w, *buf = u->s1, momentum = u->momentum, keep = u->keep;
    float scale = u->scale, decay = u->decay, lr = u->lr;
    const float *g = u->g;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) {
        float d = g[i] * scale + decay * w[i], v = momentum * buf[i] + keep * d;
        buf[i] = v;
        w[i] -= lr * (d + momentum * v);
    }
}

/* w -= lr g' */
DLT_CLONES static void plain_sgd(const Update *u, int64_t begin, int64_t end)
{
    float *w = u->w, scale = u->scale, decay = u->decay, lr = u->lr;
    const float *g = u->g;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++)
        w[i] -= lr * (g[i] * scale + decay * w[i]);
}

/* m, v moments of g'; w = shrink w - step m / (sqrt(v) root + eps). The decay is rounded by itself, as PyTorch and the
 * plain kernel do: one rounding for both loses another part of a decay of 1e-7, and after 200 updates of LeNet the loss
 * was 1.3e-3 away. */
DLT_CLONES static void adam(const Update *u, int64_t begin, int64_t end)
{
    float *w = u->w, *s1 = u->s1, *s2 = u->s2, b1 = u->b1, b2 = u->b2, c1 = u->c1, c2 = u->c2;
    float scale = u->scale, decay = u->decay, eps = u->eps, step = u->step, root = u->root;
    float shrink = u->shrink;
    const float *grad = u->g;
    for (int64_t i = begin; shrink < 1 && i < end; i++)
        w[i] *= shrink;
#pragma GCC ivdep
    for (int64_t i = begin; i < end; i++) {
        float g = grad[i] * scale + decay * w[i];
        float m = b1 * s1[i] + c1 * g, v = b2 * s2[i] + c2 * g * g;
        s1[i] = m;
        s2[i] = v;
        w[i] -= step * m / (sqrtf(v) * root + eps);
    }
}

static void task(void *ctx, int64_t begin, int64_t end)
{
    const Update *u = ctx;
    for (int64_t i = begin; i < end; i += PIECE) {
        int64_t to = end - i < PIECE ? end : i + PIECE;
        u->rule(u, i, to);
        if (u->low) dlt_narrow_run(u->w + i, u->low + i, to - i);
    }
}

/* What both have in common; false when this update is left out. */
static bool begin_update(const DltCall *c, Update *u)
{
    const DltUpdate *a = c->node->attr;
    const float *coef = c->in[2];
    const DltStepState *step = c->in[3];
    u->w = c->in[0], u->g = c->in[1], u->s1 = c->in[4], u->s2 = c->in[5], u->low = c->in[7];
    u->scale = coef[DLT_COEF_SCALE];
    u->lr = (float)((double)step->lr * a->lr_factor);
    u->decay = (float)a->weight_decay;
    return coef[DLT_COEF_SKIP] == 0;
}

static DltStatus sgd_launch(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltUpdate *a = c->node->attr;
    const DltStepState *step = c->in[3];
    Update u = {.rule = a->momentum == 0 ? plain_sgd : a->nesterov ? nesterov : sgd};
    if (!begin_update(c, &u)) return DLT_OK;
    bool first = step->update <= 1; /* buf = g', whatever was in it */
    u.momentum = (float)a->momentum;
    u.keep = (float)(1 - a->dampening);
    if (first && a->momentum != 0) {
        memset(u.s1, 0, (size_t)dlt_tensor_bytes(c->node->in[4]));
        u.keep = 1;
    }
    dlt_pool_for(c->stream, dlt_count(c->node->in[0]), GRAIN, task, &u);
    return DLT_OK;
}

static DltStatus adam_launch(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltUpdate *a = c->node->attr;
    double t = (double)((const DltStepState *)c->in[3])->update;
    Update u = {.rule = adam,
                .b1 = (float)a->beta1,
                .b2 = (float)a->beta2,
                .c1 = (float)(1 - a->beta1),
                .c2 = (float)(1 - a->beta2),
                .eps = (float)a->eps,
                .shrink = 1};
    if (!begin_update(c, &u)) return DLT_OK;
    u.step = (float)((double)u.lr / (1 - pow(a->beta1, t)));
    u.root = (float)(1 / sqrt(1 - pow(a->beta2, t)));
    if (a->decoupled) u.shrink = (float)(1 - (double)u.lr * a->weight_decay), u.decay = 0;
    dlt_pool_for(c->stream, dlt_count(c->node->in[0]), GRAIN, task, &u);
    return DLT_OK;
}

/* Everything f32 and PLAIN; the copy bf16 or missing. */
static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    DltNode rest = *n;
    rest.in[7] = NULL;
    if (n->in[7] && n->in[7]->dtype != DLT_BF16) {
        snprintf(why_not->text, sizeof why_not->text, "the rounded copy is not bf16");
        return false;
    }
    return dlt_kernel_accepts_plain(&rest, why_not);
}

static const DltKernel sgd_k = {"sgd_update.cpu.vector", accepts, NULL, sgd_launch};
static const DltKernel adam_k = {"adam_update.cpu.vector", accepts, NULL, adam_launch};
const DltKernel *const dlt_fast_sgd_update[] = {&sgd_k, NULL};
const DltKernel *const dlt_fast_adam_update[] = {&adam_k, NULL};
