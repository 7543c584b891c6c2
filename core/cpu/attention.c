/* Attention and rotary positions by their definition: one query (or, for dk and dv, one key) at a
 * time, scores never kept, sums in double. The specification of the blocked kernels. */
#include "ops/attention.h"
#include "cpu/plain.h"
#include "ops/step.h"
#include <math.h>

/* One call with every stride by name. q, k, v point at head 0 of token (0, 0). */
typedef struct Attention {
    const DltAttention *a;
    const DltStepState *step; /* NULL without dropout */
    int64_t t, width, group;  /* tokens, columns of a token in qkv, query heads a key head */
    const DltReal *q, *k, *v, *d_o, *o_in, *stats_in;
    DltReal *o, *stats, *dqkv;
} Attention;

static Attention attention_of(const DltCall *call, const DltTensor *qkv, const DltReal *at)
{
    const DltAttention *a = call->node->attr;
    int64_t keys = a->heads * a->head_dim, values = keys + a->kv_heads * a->head_dim;
    return (Attention){.a = a,
                       .t = qkv->shape.dim[1],
                       .width = qkv->shape.dim[2],
                       .group = a->heads / a->kv_heads,
                       .q = at,
                       .k = at + keys,
                       .v = at + values};
}

/* Row (b, h, i) of the score matrix. */
typedef struct Row {
    int64_t b, h, i, number;
} Row;

static Row row_of(const Attention *x, int64_t number)
{
    int64_t head = number / x->t;
    return (Row){head / x->a->heads, head % x->a->heads, number % x->t, number};
}

static int64_t in_qkv(const Attention *x, int64_t b, int64_t token, int64_t head)
{
    return (b * x->t + token) * x->width + head * x->a->head_dim;
}

static int64_t in_o(const Attention *x, const Row *r)
{
    return ((r->b * x->t + r->i) * x->a->heads + r->h) * x->a->head_dim;
}

static double score(const Attention *x, const Row *r, int64_t j)
{
    const DltReal *q = x->q + in_qkv(x, r->b, r->i, r->h);
    const DltReal *k = x->k + in_qkv(x, r->b, j, r->h / x->group);
    return x->a->scale * dlt_dot(q, k, x->a->head_dim);
}

/* 0 where the element is dropped, else 1 / (1 - p); 1 without dropout. */
static double kept(const Attention *x, const Row *r, int64_t j)
{
    if (x->step == NULL) return 1;
    uint64_t e = dlt_attention_draw(r->number, x->t) + (uint64_t)j;
    DltRand4 draw = dlt_dropout_draw(x->step->seed, x->a->drop.id, x->step->batch, e / 4);
    return draw.v[e % 4] >= dlt_dropout_threshold(x->a->drop.p) ? 1 / (1 - (double)x->a->drop.p)
                                                                : 0;
}

static void forward_row(const Attention *x, const Row *r)
{
    DltKeys keys = dlt_attention_keys(x->a, r->i, x->t);
    double max = -INFINITY, sum = 0, o[DLT_MAX_HEAD_DIM] = {0};
    for (int64_t j = keys.lo; j < keys.hi; j++)
        max = fmax(max, score(x, r, j));
    for (int64_t j = keys.lo; j < keys.hi; j++) {
        double p = exp(score(x, r, j) - max), weight = p * kept(x, r, j);
        const DltReal *v = x->v + in_qkv(x, r->b, j, r->h / x->group);
        sum += p;
        for (int64_t c = 0; c < x->a->head_dim; c++)
            o[c] += weight * (double)v[c];
    }
    for (int64_t c = 0; c < x->a->head_dim; c++)
        x->o[in_o(x, r) + c] = (DltReal)(o[c] / sum);
    x->stats[r->number] = (DltReal)(max + log(sum));
}

static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    for (int64_t n = begin; n < end; n++) {
        Row r = row_of(ctx, n);
        forward_row(ctx, &r);
    }
}

static int64_t rows(const Attention *x, const DltTensor *qkv)
{
    return qkv->shape.dim[0] * x->a->heads * x->t;
}

/* o = softmax(scale q k^T over the keys seen) v, stats = log sum exp.  qkv f32 [B,T,(Hq+2Hkv)D], o f32
 * [B,T,Hq D], stats f32 [B,Hq,T]; step u8 or missing.  attention.h; Vaswani et al. 2017, equation 1 */
static DltStatus forward(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltTensor *qkv = call->node->in[0];
    Attention x = attention_of(call, qkv, call->in[0]);
    x.step = x.a->drop.p > 0 ? call->in[1] : NULL;
    x.o = call->out[0];
    x.stats = call->out[1];
    dlt_pool_for(call->stream, rows(&x, qkv), dlt_grain(4 * x.t * x.a->head_dim), forward_task, &x);
    return DLT_OK;
}

/* p[i, j] and ds[i, j] = p (drop(do . v) - delta). */
typedef struct Pair {
    double p, ds, kept;
} Pair;

static Pair pair_of(const Attention *x, const Row *r, int64_t j)
{
    const DltReal *d = x->d_o + in_o(x, r), *v = x->v + in_qkv(x, r->b, j, r->h / x->group);
    double delta = dlt_dot(d, x->o_in + in_o(x, r), x->a->head_dim);
    Pair e = {.p = exp(score(x, r, j) - (double)x->stats_in[r->number]), .kept = kept(x, r, j)};
    e.ds = e.p * (e.kept * dlt_dot(d, v, x->a->head_dim) - delta);
    return e;
}

static void query_task(void *ctx, int64_t begin, int64_t end)
{
    const Attention *x = ctx;
    for (int64_t n = begin; n < end; n++) {
        Row r = row_of(x, n);
        DltKeys keys = dlt_attention_keys(x->a, r.i, x->t);
        double dq[DLT_MAX_HEAD_DIM] = {0};
        for (int64_t j = keys.lo; j < keys.hi; j++) {
            const DltReal *k = x->k + in_qkv(x, r.b, j, r.h / x->group);
            double ds = pair_of(x, &r, j).ds;
            for (int64_t c = 0; c < x->a->head_dim; c++)
                dq[c] += ds * (double)k[c];
        }
        DltReal *to = x->dqkv + in_qkv(x, r.b, r.i, r.h);
        for (int64_t c = 0; c < x->a->head_dim; c++)
            to[c] = (DltReal)(x->a->scale * dq[c]);
    }
}

/* dk and dv of one key of one key head: sums over the queries of its group that see it. */
static void key_row(const Attention *x, int64_t b, int64_t head, int64_t j)
{
    const DltAttention *a = x->a;
    DltKeys queries = dlt_attention_queries(a, j, x->t);
    double dk[DLT_MAX_HEAD_DIM] = {0}, dv[DLT_MAX_HEAD_DIM] = {0};
    for (int64_t g = 0; g < x->group; g++) {
        for (int64_t i = queries.lo; i < queries.hi; i++) {
            int64_t h = head * x->group + g;
            Row r = {b, h, i, (b * a->heads + h) * x->t + i};
            Pair e = pair_of(x, &r, j);
            const DltReal *q = x->q + in_qkv(x, b, i, h), *d = x->d_o + in_o(x, &r);
            for (int64_t c = 0; c < a->head_dim; c++) {
                dk[c] += e.ds * (double)q[c];
                dv[c] += e.p * e.kept * (double)d[c];
            }
        }
    }
    DltReal *to_k = x->dqkv + in_qkv(x, b, j, a->heads + head);
    DltReal *to_v = to_k + a->kv_heads * a->head_dim;
    for (int64_t c = 0; c < a->head_dim; c++) {
        to_k[c] = (DltReal)(a->scale * dk[c]);
        to_v[c] = (DltReal)dv[c];
    }
}

static void key_task(void *ctx, int64_t begin, int64_t end)
{
    const Attention *x = ctx;
    for (int64_t n = begin; n < end; n++) {
        int64_t head = n / x->t;
        key_row(x, head / x->a->kv_heads, head % x->a->kv_heads, n % x->t);
    }
}

/* The column sums of dqkv, which is written. */
static DltStatus add_columns(const DltCall *call, DltErr *err)
{
    const DltTensor *dqkv = call->node->out[0];
    DltBias last = {.axis = 2, .channels = dqkv->shape.dim[2]};
    DltNode sums = {.attr = &last, .in = {call->node->out[0]}, .out = {call->node->out[1]}};
    DltCall own = {.node = &sums, .in = call->out, .out = call->out + 1, .stream = call->stream};
    return dlt_cpu_bias_bwd[0]->launch(&own, err);
}

/* dqkv from do [B,T,Hq D], qkv, o and stats, each probability made again from stats; the column sums of dqkv
 * where they are asked for.  f32; step u8 or missing.  attention.h; Dao et al. 2022, appendix B.4 */
static DltStatus backward(const DltCall *call, DltErr *err)
{
    const DltTensor *qkv = call->node->in[1];
    Attention x = attention_of(call, qkv, call->in[1]);
    x.d_o = call->in[0];
    x.o_in = call->in[2];
    x.stats_in = call->in[3];
    x.step = x.a->drop.p > 0 ? call->in[4] : NULL;
    x.dqkv = call->out[0];
    int64_t grain = dlt_grain(8 * x.t * x.a->head_dim);
    dlt_pool_for(call->stream, rows(&x, qkv), grain, query_task, &x);
    dlt_pool_for(call->stream, rows(&x, qkv) / x.group, grain, key_task, &x);
    return call->node->out[1] ? add_columns(call, err) : DLT_OK;
}

/* ---- rope ---- */

/* Turns the pairs of one token; x and y may be one. */
static void turn(const DltRope *a, int64_t width, const double *sine, const double *cosine,
                 const DltReal *x, DltReal *y)
{
    int64_t half = a->head_dim / 2, turned = a->heads * a->head_dim;
    for (int64_t h = 0; h < turned; h += a->head_dim) {
        for (int64_t c = h; c < h + half; c++) {
            double s = sine[c - h], k = cosine[c - h], u = (double)x[c], v = (double)x[c + half];
            y[c] = (DltReal)(u * k - v * s);
            y[c + half] = (DltReal)(v * k + u * s);
        }
    }
    if (x != y) memcpy(y + turned, x + turned, (size_t)(width - turned) * sizeof *y);
}

/* Positions [begin, end) of all samples. */
static void rope_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    const DltRope *a = call->node->attr;
    const DltShape *s = &call->node->in[0]->shape;
    const int32_t *place = call->in[1];
    int64_t before = place != NULL ? *place : 0;
    double sine[DLT_MAX_HEAD_DIM], cosine[DLT_MAX_HEAD_DIM];
    for (int64_t t = begin; t < end; t++) {
        for (int64_t c = 0; c < a->head_dim / 2; c++) {
            double angle =
                (double)(before + t) * pow(a->base, -2.0 * (double)c / (double)a->head_dim);
            sine[c] = a->inverse ? -sin(angle) : sin(angle);
            cosine[c] = cos(angle);
        }
        for (int64_t b = 0; b < s->dim[0]; b++) {
            int64_t at = (b * s->dim[1] + t) * s->dim[2];
            turn(a, s->dim[2], sine, cosine, (const DltReal *)call->in[0] + at,
                 (DltReal *)call->out[0] + at);
        }
    }
}

/* y[c] = x[c] cos - x[c+D/2] sin, y[c+D/2] = x[c+D/2] cos + x[c] sin of the angle t base^(-2c/D).
 * x, y f32 [B,T,W]; place i32[1] or missing: t counts from it.  attention.h; Su et al. 2021, equation 34 */
static DltStatus rope(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltShape *s = &call->node->in[0]->shape;
    dlt_pool_for(call->stream, s->dim[1], dlt_grain(4 * s->dim[0] * s->dim[2]), rope_task,
                 (void *)call);
    return DLT_OK;
}

static const DltKernel plain_forward = {.name = "attention_fwd.cpu.plain", .launch = forward};
const DltKernel *const dlt_cpu_attention_fwd[] = {&plain_forward, NULL};

static const DltKernel plain_backward = {.name = "attention_bwd.cpu.plain", .launch = backward};
const DltKernel *const dlt_cpu_attention_bwd[] = {&plain_backward, NULL};

static const DltKernel plain_rope = {.name = "rope.cpu.plain", .launch = rope};
const DltKernel *const dlt_cpu_rope[] = {&plain_rope, NULL};
