/* Updates that look at a parameter as a whole: LAMB's ratio of norms, Muon's momentum and step. Sums go
 * by chunks that the size alone fixes, added in order. */
#include "cpu/plain.h"
#include "ops/step.h"
#include "ops/update_ops.h"
#include <math.h>

enum { CHUNK = 16384 };

typedef struct Whole {
    const DltUpdate *attr;
    const DltReal *g;
    DltReal *w, *m, *v, *x;
    void *low;
    DltDtype low_dtype;
    double scale, lr, c1, c2, factor; /* c1, c2: bias corrections of adam's moments */
    double *part;                     /* [chunks][2] */
} Whole;

static Whole whole_of(const DltCall *call, const DltReal *coef, const DltStepState *step)
{
    const DltUpdate *a = call->node->attr;
    return (Whole){.attr = a,
                   .scale = (double)coef[DLT_COEF_SCALE],
                   .lr = (double)step->lr * a->lr_factor,
                   .c1 = 1 - pow(a->beta1, (double)step->update),
                   .c2 = 1 - pow(a->beta2, (double)step->update),
                   .part = call->work};
}

static void sum_parts(const Whole *u, int64_t n, double sum[2])
{
    sum[0] = sum[1] = 0;
    for (int64_t i = 0; i < dlt_chunks(n, CHUNK); i++) {
        sum[0] += u->part[2 * i];
        sum[1] += u->part[2 * i + 1];
    }
}

static void store_low(const Whole *u, int64_t begin, int64_t end)
{
    if (u->low == NULL) return;
    dlt_cast_run(DLT_F32, u->w + begin, u->low_dtype,
                 (char *)u->low + (size_t)begin * dlt_dtype_bytes(u->low_dtype), end - begin);
}

/* ---- lamb ---- */

static double lamb_direction(const Whole *u, int64_t i)
{
    double root = sqrt((double)u->v[i] / u->c2) + u->attr->eps;
    return (double)u->m[i] / u->c1 / root + u->attr->weight_decay * (double)u->w[i];
}

static void lamb_moments(void *ctx, int64_t begin, int64_t end)
{
    const Whole *u = ctx;
    double sum[2] = {0, 0};
    for (int64_t i = begin; i < end; i++) {
        double g = (double)u->g[i] * u->scale, b1 = u->attr->beta1, b2 = u->attr->beta2;
        u->m[i] = (DltReal)(b1 * (double)u->m[i] + (1 - b1) * g);
        u->v[i] = (DltReal)(b2 * (double)u->v[i] + (1 - b2) * g * g);
        double r = lamb_direction(u, i);
        sum[0] += (double)u->w[i] * (double)u->w[i];
        sum[1] += r * r;
    }
    u->part[begin / CHUNK * 2] = sum[0];
    u->part[begin / CHUNK * 2 + 1] = sum[1];
}

static void lamb_step(void *ctx, int64_t begin, int64_t end)
{
    const Whole *u = ctx;
    for (int64_t i = begin; i < end; i++)
        u->w[i] = (DltReal)((double)u->w[i] - u->factor * lamb_direction(u, i));
    store_low(u, begin, end);
}

/* w, m, v of one parameter after LAMB's update; nothing when coef[SKIP] is set.  w, g, m, v f32 of one
 * size, coef f32[4], step u8, low bf16|f16 or missing.  update_ops.h; You et al. 2020, algorithm 2 */
static DltStatus lamb(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltReal *coef = call->in[2];
    double sum[2];
    int64_t n = dlt_count(call->node->in[0]);
    if (coef[DLT_COEF_SKIP] != 0) return DLT_OK;
    Whole u = whole_of(call, coef, call->in[3]);
    u.w = call->in[0], u.g = call->in[1], u.m = call->in[4], u.v = call->in[5];
    u.low = call->in[7];
    u.low_dtype = u.low != NULL ? call->node->in[7]->dtype : DLT_F32;
    dlt_pool_for(call->stream, n, CHUNK, lamb_moments, &u);
    sum_parts(&u, n, sum);
    u.factor = u.lr * (sum[0] > 0 && sum[1] > 0 ? sqrt(sum[0] / sum[1]) : 1);
    dlt_pool_for(call->stream, n, CHUNK, lamb_step, &u);
    return DLT_OK;
}

/* ---- muon ---- */

static void muon_average(void *ctx, int64_t begin, int64_t end)
{
    const Whole *u = ctx;
    double sum = 0, keep = u->attr->momentum;
    for (int64_t i = begin; i < end; i++) {
        double g = (double)u->g[i] * u->scale, buf = (double)u->m[i];
        buf += (1 - keep) * (g - buf);
        double x = u->attr->nesterov ? g + keep * (buf - g) : buf;
        u->m[i] = (DltReal)buf;
        u->x[i] = (DltReal)x;
        sum += x * x;
    }
    u->part[begin / CHUNK * 2] = sum;
    u->part[begin / CHUNK * 2 + 1] = 0;
}

static void muon_scale(void *ctx, int64_t begin, int64_t end)
{
    const Whole *u = ctx;
    for (int64_t i = begin; i < end; i++)
        u->x[i] = (DltReal)((double)u->x[i] * u->factor);
}

/* x = momentum's step of norm 1; zeros, and buf as it was, when coef[SKIP] is set.  g, x f32 [R,C], buf
 * f32 as long or longer, coef f32[4], step u8.  update_ops.h; Jordan 2024 */
static DltStatus momentum(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltReal *coef = call->in[2];
    double sum[2];
    int64_t n = dlt_count(call->node->in[0]);
    Whole u = whole_of(call, coef, call->in[3]);
    u.g = call->in[0], u.m = call->in[1], u.x = call->out[0];
    if (coef[DLT_COEF_SKIP] != 0) {
        memset(u.x, 0, (size_t)n * sizeof *u.x);
        return DLT_OK;
    }
    dlt_pool_for(call->stream, n, CHUNK, muon_average, &u);
    sum_parts(&u, n, sum);
    u.factor = 1 / (sqrt(sum[0]) + 1e-7);
    dlt_pool_for(call->stream, n, CHUNK, muon_scale, &u);
    return DLT_OK;
}

static void muon_step(void *ctx, int64_t begin, int64_t end)
{
    const Whole *u = ctx;
    double shrink = 1 - u->lr * u->attr->weight_decay;
    for (int64_t i = begin; i < end; i++)
        u->w[i] = (DltReal)((double)u->w[i] * shrink - u->factor * (double)u->g[i]);
    store_low(u, begin, end);
}

/* w -= lr wd w + lr sqrt(max(1, R / C)) x; nothing when coef[SKIP] is set.  w f32 as long as x [R,C] or
 * longer, coef f32[4], step u8, low like w in bf16|f16, or missing.  update_ops.h; Jordan 2024 */
static DltStatus muon(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltReal *coef = call->in[2];
    const DltShape *x = &call->node->in[1]->shape;
    double ratio = (double)x->dim[0] / (double)x->dim[1];
    if (coef[DLT_COEF_SKIP] != 0) return DLT_OK;
    Whole u = whole_of(call, coef, call->in[3]);
    u.w = call->in[0], u.g = call->in[1], u.low = call->in[7];
    u.low_dtype = u.low != NULL ? call->node->in[7]->dtype : DLT_F32;
    u.factor = u.lr * sqrt(ratio > 1 ? ratio : 1);
    dlt_pool_for(call->stream, dlt_shape_count(x), CHUNK, muon_step, &u);
    return DLT_OK;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    p->work_bytes = (size_t)dlt_chunks(dlt_count(n->in[0]), CHUNK) * 2 * sizeof(double);
    return DLT_OK;
}

static const DltKernel plain_lamb = {"lamb_update.cpu.plain", dlt_cpu_accepts_update, prepare,
                                     lamb};
const DltKernel *const dlt_cpu_lamb_update[] = {&plain_lamb, NULL};

static const DltKernel plain_momentum = {"muon_momentum.cpu.plain", NULL, prepare, momentum};
const DltKernel *const dlt_cpu_muon_momentum[] = {&plain_momentum, NULL};

static const DltKernel plain_muon = {"muon_update.cpu.plain", dlt_cpu_accepts_update, NULL, muon};
const DltKernel *const dlt_cpu_muon_update[] = {&plain_muon, NULL};
