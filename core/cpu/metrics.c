/* Metrics: sums over the batch, added to accumulators in doubles in the order of the rows. */
#include "cpu/plain.h"
#include "ops/loss_ops.h"
#include <math.h>

/* acc += v.  v, acc f64[n].  loss_ops.h */
static DltStatus add(const DltCall *call, DltErr *err)
{
    (void)err;
    const double *v = call->in[0];
    double *acc = call->in[1];
    int64_t n = dlt_count(call->node->in[0]);
    for (int64_t i = 0; i < n; i++)
        acc[i] += v[i];
    return DLT_OK;
}

typedef struct Rows {
    int64_t rows, v, positions;
    const DltReal *logits, *w;
    const int32_t *y;
    int32_t *result; /* a number for each row, -1: the row counts nothing */
    const DltMetricTopk *topk;
} Rows;

static Rows rows_of(const DltCall *call)
{
    const DltNode *n = call->node;
    Rows r = {.rows = dlt_rows(n->in[0]),
              .v = dlt_width(n->in[0]),
              .logits = call->in[0],
              .y = call->in[1],
              .w = call->in[2],
              .result = call->work};
    r.positions = r.rows / dlt_count(n->in[2]);
    return r;
}

/* Whether fewer than k classes stand before class y; NaN stands before every number. */
static bool is_hit(const DltReal *x, int64_t v, int32_t y, int32_t k)
{
    int32_t before = 0;
    for (int64_t i = 0; i < v && before < k; i++) {
        bool first = i < y ? !(x[i] < x[y]) : i > y && !(x[i] <= x[y]);
        before += first ? 1 : 0;
    }
    return before < k;
}

static void topk_task(void *ctx, int64_t begin, int64_t end)
{
    const Rows *r = ctx;
    for (int64_t i = begin; i < end; i++) {
        int32_t y = r->y[i];
        bool counts = y != r->topk->ignore && y >= 0 && y < r->v;
        r->result[i] = counts ? is_hit(r->logits + i * r->v, r->v, y, r->topk->k) : -1;
    }
}

/* acc[0] += w of rows whose label is among the k largest logits (ties: lower index first),
 * acc[1] += w of all rows that count.  logits f32 [.., V], y i32, w f32[N], acc f64[2].  loss_ops.h
 */
static DltStatus topk(const DltCall *call, DltErr *err)
{
    (void)err;
    Rows r = rows_of(call);
    double *acc = call->in[3];
    r.topk = call->node->attr;
    dlt_pool_for(call->stream, r.rows, dlt_grain(r.v), topk_task, &r);
    for (int64_t i = 0; i < r.rows; i++) {
        double w = r.result[i] >= 0 ? (double)r.w[i / r.positions] : 0;
        acc[0] += r.result[i] > 0 ? w : 0;
        acc[1] += w;
    }
    return DLT_OK;
}

static void argmax_task(void *ctx, int64_t begin, int64_t end)
{
    const Rows *r = ctx;
    for (int64_t i = begin; i < end; i++) {
        const DltReal *x = r->logits + i * r->v;
        int64_t best = 0;
        for (int64_t c = 1; c < r->v; c++) {
            if (x[c] > x[best] || (isnan(x[c]) && !isnan(x[best]))) best = c;
        }
        bool counts = r->y[i] >= 0 && r->y[i] < r->v;
        r->result[i] = counts ? (int32_t)best : -1;
    }
}

/* acc[y][argmax] += w, the first of equal maxima; labels outside 0..V-1 count nothing.
 * logits f32 [.., V], y i32, w f32[N], acc f64[V V].  loss_ops.h */
static DltStatus confusion(const DltCall *call, DltErr *err)
{
    (void)err;
    Rows r = rows_of(call);
    double *acc = call->in[3];
    dlt_pool_for(call->stream, r.rows, dlt_grain(r.v), argmax_task, &r);
    for (int64_t i = 0; i < r.rows; i++) {
        if (r.result[i] < 0) continue;
        acc[r.y[i] * r.v + r.result[i]] += (double)r.w[i / r.positions];
    }
    return DLT_OK;
}

static DltStatus rows_prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    p->work_bytes = (size_t)dlt_rows(n->in[0]) * sizeof(int32_t);
    return DLT_OK;
}

/* With d = p - t, each element weighed by its sample: acc += (w a sample, w |d|, w d^2, w t, w t^2,
 * w an element).  p f32 [N,..], t f32|i32 of as many elements, w f32[N], acc f64[6].  loss_ops.h */
static DltStatus regression(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltNode *n = call->node;
    const DltReal *p = call->in[0], *w = call->in[2];
    const char *targets = call->in[1];
    size_t bytes = dlt_dtype_bytes(n->in[1]->dtype);
    int64_t samples = dlt_count(n->in[2]), per_sample = dlt_count(n->in[0]) / samples;
    double *acc = call->in[3];
    for (int64_t s = 0; s < samples; s++) {
        double weight = (double)w[s];
        acc[0] += weight;
        for (int64_t i = s * per_sample; i < (s + 1) * per_sample && weight != 0; i++) {
            double t;
            dlt_cast_run(n->in[1]->dtype, targets + (size_t)i * bytes, DLT_F64, &t, 1);
            double d = (double)p[i] - t;
            acc[1] += weight * fabs(d);
            acc[2] += weight * d * d;
            acc[3] += weight * t;
            acc[4] += weight * t * t;
            acc[5] += weight;
        }
    }
    return DLT_OK;
}

static const DltKernel plain_add = {.name = "metric_add.cpu.plain", .launch = add};
const DltKernel *const dlt_cpu_metric_add[] = {&plain_add, NULL};

static const DltKernel plain_topk = {
    .name = "metric_topk.cpu.plain", .prepare = rows_prepare, .launch = topk};
const DltKernel *const dlt_cpu_metric_topk[] = {&plain_topk, NULL};

static const DltKernel plain_confusion = {
    .name = "metric_confusion.cpu.plain", .prepare = rows_prepare, .launch = confusion};
const DltKernel *const dlt_cpu_metric_confusion[] = {&plain_confusion, NULL};

static const DltKernel plain_regression = {.name = "metric_regression.cpu.plain",
                                           .launch = regression};
const DltKernel *const dlt_cpu_metric_regression[] = {&plain_regression, NULL};
