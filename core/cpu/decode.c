/* Attention of one new token over its cache: a head at a time, sums in double. */
#include "ops/decode.h"
#include "cpu/plain.h"
#include <math.h>

typedef struct Step {
    const DltAttention *a;
    const DltReal *qkv;
    DltReal *cache, *o;
    int64_t t, place, width; /* rows of the cache, the token's row, columns of a row */
} Step;

/* Query head `number` of all samples: o = sum_j p[j] v[j], p = softmax of scale q . k[j]. */
static void head(const Step *x, int64_t number)
{
    const DltAttention *a = x->a;
    int64_t d = a->head_dim, b = number / a->heads, h = number % a->heads;
    const DltReal *q = x->qkv + b * (a->heads * d + x->width) + h * d;
    const DltReal *k = x->cache + b * x->t * x->width + h / (a->heads / a->kv_heads) * d;
    const DltReal *v = k + a->kv_heads * d;
    DltKeys keys = dlt_attention_keys(a, x->place, x->t);
    double max = -INFINITY, sum = 0, o[DLT_MAX_HEAD_DIM] = {0};
    for (int64_t j = keys.lo; j < keys.hi; j++)
        max = fmax(max, a->scale * dlt_dot(q, k + j * x->width, d));
    for (int64_t j = keys.lo; j < keys.hi; j++) {
        double p = exp(a->scale * dlt_dot(q, k + j * x->width, d) - max);
        sum += p;
        for (int64_t c = 0; c < d; c++)
            o[c] += p * (double)v[j * x->width + c];
    }
    for (int64_t c = 0; c < d; c++)
        x->o[number * d + c] = (DltReal)(o[c] / sum);
}

static void heads_task(void *ctx, int64_t begin, int64_t end)
{
    for (int64_t n = begin; n < end; n++)
        head(ctx, n);
}

/* cache[b, place] = keys and values of qkv[b]; o[b] = attention of its queries over the cache.
 * qkv f32 [B,1,(Hq+2Hkv)D], cache f32 [B,T,2 Hkv D], place i32[1], o f32 [B,1,Hq D]. DATA when place is
 * outside the cache. decode.h */
static DltStatus step(const DltCall *call, DltErr *err)
{
    const DltShape *cache = &call->node->in[1]->shape;
    Step x = {.a = call->node->attr,
              .qkv = call->in[0],
              .cache = call->in[1],
              .o = call->out[0],
              .t = cache->dim[1],
              .place = *(const int32_t *)call->in[2],
              .width = cache->dim[2]};
    int64_t batch = cache->dim[0], queries = x.a->heads * x.a->head_dim;
    if (x.place < 0 || x.place >= x.t)
        return dlt_err(err, DLT_E_DATA, "%s: place %lld is outside the cache of %lld tokens",
                       call->node->in[2]->name, (long long)x.place, (long long)x.t);
    for (int64_t b = 0; b < batch; b++)
        memcpy(x.cache + (b * x.t + x.place) * x.width, x.qkv + b * (queries + x.width) + queries,
               (size_t)x.width * sizeof *x.cache);
    dlt_pool_for(call->stream, batch * x.a->heads, dlt_grain(4 * x.t * x.a->head_dim), heads_task,
                 &x);
    return DLT_OK;
}

static const DltKernel plain = {.name = "attention_step.cpu.plain", .launch = step};
const DltKernel *const dlt_cpu_attention_step[] = {&plain, NULL};
