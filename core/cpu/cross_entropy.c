/* Cross entropy with label smoothing, class weights and an ignored label, forward, backward and
 * both at once: one function handles a row, the three kernels differ in what they ask of it.
 * A row's probability mass is spread as a on its label and u[v] on every class v:
 *   loss = a nll(y) + sum_v u[v] nll(v),  dlogits[v] = (a + sum u) p[v] - a [v = y] - u[v]
 * with a = w (1 - s) c[y], u[v] = w s c[v] / V, and c = 1 without class weights. */
#include "cpu/plain.h"
#include "ops/loss_ops.h"
#include "ops/step.h"
#include <math.h>

typedef struct Loss {
    int64_t rows, v, positions; /* positions of one sample */
    int64_t first;              /* row with which logits and dlogits begin */
    DltReal smoothing;
    int32_t ignore;
    const DltReal *logits, *w, *class_w;
    const int32_t *y;
    double class_w_sum; /* V without class weights */
    DltReal *dlogits;   /* NULL: forward only */
    double scale;       /* of dlogits */
    double *partial;    /* [chunks][2], NULL: backward only */
    int64_t grain;
} Loss;

static DltReal class_weight(const Loss *l, int64_t v)
{
    return l->class_w != NULL ? l->class_w[v] : 1;
}

/* sum_v c[v] logit[v] */
static double weighted_logits(const Loss *l, const DltReal *x)
{
    return l->class_w != NULL ? dlt_dot(x, l->class_w, l->v) : dlt_sum(x, l->v);
}

/* Adds the row's loss and weight to sum[2]; writes its gradient when asked. d may be x: what is
 * needed of the logits is read before the exponentials take their place. */
static void row_loss(const Loss *l, int64_t r, double sum[2])
{
    int64_t at = (r - l->first) * l->v;
    const DltReal *x = l->logits + at;
    DltReal *d = l->dlogits != NULL ? l->dlogits + at : NULL;
    int32_t y = l->y[r];
    DltReal w = l->w[r / l->positions];
    if (y == l->ignore || w == 0) {
        if (d != NULL) memset(d, 0, (size_t)l->v * sizeof *d);
        return;
    }
    double a = (double)w * (1 - (double)l->smoothing) * (double)class_weight(l, y);
    double u = (double)w * (double)l->smoothing / (double)l->v;
    double dot = a * (double)x[y] + (u > 0 ? u * weighted_logits(l, x) : 0);
    double mass = a + u * l->class_w_sum;
    DltReal max = dlt_max(x, l->v);
    double total = dlt_exp_run(x, max, d, l->v);
    sum[0] += mass * ((double)max + log(total)) - dot;
    sum[1] += (double)w * (double)class_weight(l, y);
    if (d == NULL) return;
    DltReal factor = (DltReal)(mass * l->scale / total), share = (DltReal)(u * l->scale);
    for (int64_t i = 0; i < l->v; i++)
        d[i] *= factor;
    for (int64_t i = 0; i < l->v && share > 0; i++)
        d[i] -= share * class_weight(l, i);
    d[y] -= (DltReal)(a * l->scale);
}

static void task(void *ctx, int64_t begin, int64_t end)
{
    const Loss *l = ctx;
    double sum[2] = {0, 0};
    for (int64_t r = begin; r < end; r++)
        row_loss(l, r, sum);
    if (l->partial == NULL) return;
    l->partial[begin / l->grain * 2] = sum[0];
    l->partial[begin / l->grain * 2 + 1] = sum[1];
}

static DltStatus check_labels(const Loss *l, const DltTensor *t, DltErr *err)
{
    for (int64_t r = 0; r < l->rows; r++) {
        int32_t y = l->y[r];
        if ((y >= 0 && y < l->v) || y == l->ignore) continue;
        return dlt_err(err, DLT_E_DATA, "%s: label %d in row %lld is outside 0 to %lld", t->name, y,
                       (long long)r, (long long)l->v - 1);
    }
    return DLT_OK;
}

static int64_t row_grain(const DltNode *n)
{
    return dlt_grain(8 * dlt_width(n->in[0]));
}

/* loss[2] or dlogits may be NULL. */
static DltStatus run(const DltCall *call, double *loss, DltReal *dlogits, DltErr *err)
{
    const DltNode *n = call->node;
    const DltCrossEntropy *attr = n->attr;
    const DltStepState *step = call->in[4];
    Loss l = {.rows = dlt_rows(n->in[0]),
              .v = dlt_width(n->in[0]),
              .smoothing = (DltReal)attr->smoothing,
              .ignore = attr->ignore,
              .logits = call->in[0],
              .y = call->in[1],
              .w = call->in[2],
              .class_w = call->in[3],
              .dlogits = dlogits,
              .partial = loss != NULL ? call->work : NULL,
              .grain = row_grain(n)};
    l.positions = l.rows / dlt_count(n->in[2]);
    l.class_w_sum = l.class_w != NULL ? dlt_sum(l.class_w, l.v) : (double)l.v;
    l.scale = (double)step->loss_scale / step->sample_weight;
    DLT_TRY(check_labels(&l, n->in[1], err));
    dlt_pool_for(call->stream, l.rows, l.grain, task, &l);
    if (loss == NULL) return DLT_OK;
    loss[0] = loss[1] = 0;
    for (int64_t i = 0; i < dlt_chunks(l.rows, l.grain); i++) {
        loss[0] += l.partial[2 * i];
        loss[1] += l.partial[2 * i + 1];
    }
    return DLT_OK;
}

/* loss f64[2] = (sum of row losses, sum of row weights).  logits f32 [.., V], y i32 [..], w f32[N],
 * class_w f32[V] or missing, step u8. DATA when a label is outside.  loss_ops.h */
static DltStatus forward(const DltCall *call, DltErr *err)
{
    return run(call, call->out[0], NULL, err);
}

/* dlogits f32 = gradient of the sum, times loss_scale / sample_weight.  loss_ops.h */
static DltStatus backward(const DltCall *call, DltErr *err)
{
    return run(call, NULL, call->out[0], err);
}

/* Both of the above in one pass over the logits.  loss_ops.h */
static DltStatus both(const DltCall *call, DltErr *err)
{
    return run(call, call->out[1], call->out[0], err);
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    p->work_bytes = (size_t)dlt_chunks(dlt_rows(n->in[0]), row_grain(n)) * 2 * sizeof(double);
    return DLT_OK;
}

/* ---- classifier ---- */

/* z[V] = w[V, C] x[C] */
static void row_logits(DltReal *z, const DltReal *x, const DltReal *w, int64_t v, int64_t c)
{
    for (int64_t i = 0; i < v; i++)
        z[i] = (DltReal)dlt_dot(x, w + i * c, c);
}

/* dx[C] = d[V] w[V, C] */
static void row_gradient(DltReal *dx, const DltReal *d, const DltReal *w, int64_t v, int64_t c)
{
    memset(dx, 0, (size_t)c * sizeof *dx);
    for (int64_t i = 0; i < v; i++)
        for (int64_t j = 0; j < c; j++)
            dx[j] += d[i] * w[i * c + j];
}

typedef struct Classes {
    Loss l; /* its logits and gradient are those of the rows [l.first, end) */
    const DltReal *x, *weight;
    DltReal *dx, *dw;
    double *sums; /* [rows][2] */
    int64_t c, end;
} Classes;

/* Rows l.first + [begin, end): logits, loss, their gradient, and dx. */
static void classify_task(void *ctx, int64_t begin, int64_t end)
{
    const Classes *k = ctx;
    for (int64_t i = begin; i < end; i++) {
        int64_t r = k->l.first + i;
        const DltReal *x = k->x + r * k->c;
        DltReal *d = k->l.dlogits + i * k->l.v, *dx = k->dx + r * k->c;
        row_logits(d, x, k->weight, k->l.v, k->c);
        k->sums[2 * r] = k->sums[2 * r + 1] = 0;
        row_loss(&k->l, r, k->sums + 2 * r);
        row_gradient(dx, d, k->weight, k->l.v, k->c);
    }
}

/* Classes [begin, end): dw += of the rows. */
static void weights_task(void *ctx, int64_t begin, int64_t end)
{
    const Classes *k = ctx;
    for (int64_t v = begin; v < end; v++) {
        DltReal *dw = k->dw + v * k->c;
        if (k->l.first == 0) memset(dw, 0, (size_t)k->c * sizeof *dw);
        for (int64_t r = k->l.first; r < k->end; r++)
            for (int64_t i = 0; i < k->c; i++)
                dw[i] += k->l.dlogits[(r - k->l.first) * k->l.v + v] * k->x[r * k->c + i];
    }
}

static int64_t chunk_of(const DltNode *n)
{
    int64_t most = ((const DltClassifier *)n->attr)->rows, rows = dlt_rows(n->in[0]);
    return most > 0 && most < rows ? most : rows;
}

/* dx [.., C], dw [V, C], loss f64[2] of x f32 [.., C], w f32 [V, C], y i32 [..], sample weights f32[N], step.
 * DATA when a label is outside.  loss_ops.h */
static DltStatus classify(const DltCall *call, DltErr *err)
{
    const DltNode *n = call->node;
    const DltStepState *step = call->in[4];
    int64_t rows = dlt_rows(n->in[0]), v = dlt_rows(n->in[1]), chunk = chunk_of(n);
    Classes k = {.l = {.rows = rows,
                       .v = v,
                       .positions = rows / dlt_count(n->in[3]),
                       .ignore = ((const DltClassifier *)n->attr)->ignore,
                       .y = call->in[2],
                       .w = call->in[3],
                       .class_w_sum = (double)v,
                       .scale = (double)step->loss_scale / step->sample_weight},
                 .x = call->in[0],
                 .weight = call->in[1],
                 .dx = call->out[0],
                 .dw = call->out[1],
                 .sums = call->work,
                 .c = dlt_width(n->in[0])};
    DltReal *logits = (DltReal *)(void *)(k.sums + 2 * rows);
    double *loss = call->out[2];
    DLT_TRY(check_labels(&k.l, n->in[2], err));
    loss[0] = loss[1] = 0;
    k.l.logits = k.l.dlogits = logits;
    for (; k.l.first < rows; k.l.first = k.end) {
        k.end = rows - k.l.first < chunk ? rows : k.l.first + chunk;
        dlt_pool_for(call->stream, k.end - k.l.first, 1, classify_task, &k);
        dlt_pool_for(call->stream, v, dlt_grain(k.c * chunk), weights_task, &k);
    }
    for (int64_t r = 0; r < rows; r++) {
        loss[0] += k.sums[2 * r];
        loss[1] += k.sums[2 * r + 1];
    }
    return DLT_OK;
}

static DltStatus prepare_classes(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    p->work_bytes = (size_t)dlt_rows(n->in[0]) * 2 * sizeof(double) +
                    (size_t)(chunk_of(n) * dlt_rows(n->in[1])) * sizeof(DltReal);
    return DLT_OK;
}

static const DltKernel plain_classifier = {
    .name = "classifier.cpu.plain", .prepare = prepare_classes, .launch = classify};
const DltKernel *const dlt_cpu_classifier[] = {&plain_classifier, NULL};

/* ---- output layer ---- */

typedef struct Output {
    Loss l;
    const DltReal *x, *weight, *bias, *saved; /* bias, saved: NULL: none */
    DltReal *logits, *dx;
    double *loss; /* [rows][2] */
    DltUnary act_grad;
    int64_t c;
} Output;

static void output_task(void *ctx, int64_t begin, int64_t end)
{
    const Output *k = ctx;
    for (int64_t r = begin; r < end; r++) {
        const DltReal *x = k->x + r * k->c, *d = k->l.dlogits + r * k->l.v;
        DltReal *z = k->logits + r * k->l.v, *dx = k->dx + r * k->c;
        row_logits(z, x, k->weight, k->l.v, k->c);
        for (int64_t v = 0; k->bias != NULL && v < k->l.v; v++)
            z[v] += k->bias[v];
        k->loss[2 * r] = k->loss[2 * r + 1] = 0;
        row_loss(&k->l, r, k->loss + 2 * r);
        row_gradient(dx, d, k->weight, k->l.v, k->c);
        if (k->saved != NULL) dlt_unary_grad_run(&k->act_grad, dx, k->saved + r * k->c, dx, k->c);
    }
}

/* dx [.., C], dlogits, logits [.., V], pairs f64[rows, 2] of x f32 [.., C], w f32 [V, C], bias f32[V] or missing, y i32
 * [..], sample weights f32[N], step, saved f32 [.., C] or missing.  DATA when a label is outside.  loss_ops.h */
static DltStatus output_launch(const DltCall *call, DltErr *err)
{
    const DltNode *n = call->node;
    const DltOutputLayer *a = n->attr;
    const DltStepState *step = call->in[5];
    int64_t rows = dlt_rows(n->in[0]), v = dlt_rows(n->in[1]);
    Output k = {.l = {.rows = rows,
                      .v = v,
                      .positions = rows / dlt_count(n->in[4]),
                      .ignore = a->ignore,
                      .logits = call->out[2],
                      .y = call->in[3],
                      .w = call->in[4],
                      .class_w_sum = (double)v,
                      .dlogits = call->out[1],
                      .scale = (double)step->loss_scale / step->sample_weight},
                .x = call->in[0],
                .weight = call->in[1],
                .bias = call->in[2],
                .saved = call->in[6],
                .logits = call->out[2],
                .dx = call->out[0],
                .loss = call->out[3],
                .act_grad = a->act_grad,
                .c = dlt_width(n->in[0])};
    DLT_TRY(check_labels(&k.l, n->in[3], err));
    dlt_pool_for(call->stream, rows, dlt_grain(k.c * v), output_task, &k);
    return DLT_OK;
}

static const DltKernel plain_output = {.name = "output_layer.cpu.plain", .launch = output_launch};
const DltKernel *const dlt_cpu_output_layer[] = {&plain_output, NULL};

/* loss f64[2] = sum of pairs f64[rows, 2].  loss_ops.h */
static DltStatus sum_pairs(const DltCall *call, DltErr *err)
{
    (void)err;
    const double *pair = call->in[0];
    double *loss = call->out[0];
    loss[0] = loss[1] = 0;
    for (int64_t r = 0; r < dlt_rows(call->node->in[0]); r++) {
        loss[0] += pair[2 * r];
        loss[1] += pair[2 * r + 1];
    }
    return DLT_OK;
}

static const DltKernel plain_loss_sum = {.name = "loss_sum.cpu.plain", .launch = sum_pairs};
const DltKernel *const dlt_cpu_loss_sum[] = {&plain_loss_sum, NULL};

static const DltKernel plain_forward = {
    .name = "cross_entropy_fwd.cpu.plain", .prepare = prepare, .launch = forward};
const DltKernel *const dlt_cpu_cross_entropy_fwd[] = {&plain_forward, NULL};

static const DltKernel plain_backward = {.name = "cross_entropy_bwd.cpu.plain", .launch = backward};
const DltKernel *const dlt_cpu_cross_entropy_bwd[] = {&plain_backward, NULL};

static const DltKernel plain_both = {
    .name = "cross_entropy_both.cpu.plain", .prepare = prepare, .launch = both};
const DltKernel *const dlt_cpu_cross_entropy_both[] = {&plain_both, NULL};
