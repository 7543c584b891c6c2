/* Sizes and rows of scores that both attentions use. */
#include "cpu/dnnl/heads.h"
#include "cpu/vmath.h"

enum { LANES = 16 };

const DltTensor *dlt_heads_qkv(const DltNode *n)
{
    return n->kind == DLT_OP_attention_fwd ? n->in[0] : n->in[1];
}

DltHeads dlt_heads_of(const DltNode *n, int64_t unit)
{
    const DltAttention *a = n->attr;
    const DltTensor *qkv = dlt_heads_qkv(n);
    return (DltHeads){.a = a,
                      .batch = qkv->shape.dim[0],
                      .t = qkv->shape.dim[1],
                      .width = qkv->shape.dim[2],
                      .group = a->heads / a->kv_heads,
                      .d = a->head_dim,
                      .o_width = a->heads * a->head_dim,
                      .unit = unit,
                      .keys = (qkv->shape.dim[1] + unit - 1) / unit * unit,
                      .cols = (a->head_dim + unit - 1) / unit * unit};
}

DltHeads dlt_heads_bind(const DltCall *call, int64_t unit)
{
    DltHeads x = dlt_heads_of(call->node, unit);
    bool forward = call->node->kind == DLT_OP_attention_fwd, drop = x.a->drop.p > 0;
    x.work = call->work;
    if (forward) {
        x.qkv = call->in[0], x.step = drop ? call->in[1] : NULL;
        x.o = call->out[0], x.stats = call->out[1];
        return x;
    }
    x.d_o = call->in[0], x.qkv = call->in[1], x.o_in = call->in[2], x.stats_in = call->in[3];
    x.step = drop ? call->in[4] : NULL;
    x.dqkv = call->out[0];
    return x;
}

size_t dlt_scratch_lay_out(const DltScratchPart *part, size_t n, char *base, bool back)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (part[i].back && !back) continue;
        void *p = base ? base + at : NULL;
        memcpy(part[i].pointer, &p, sizeof p);
        at += ((size_t)part[i].count * part[i].size + 63) / 64 * 64;
    }
    return at;
}

DltKeys dlt_heads_seen(const DltHeads *x, int64_t q0, int64_t nq)
{
    int64_t lo = dlt_attention_keys(x->a, q0, x->t).lo;
    int64_t hi = dlt_attention_keys(x->a, q0 + nq - 1, x->t).hi;
    return (DltKeys){lo / x->unit * x->unit, (hi + x->unit - 1) / x->unit * x->unit};
}

/* keep[j]: 1 / (1 - p) or 0, for the keys of the blocks; they begin at multiples of 4. */
static void draw(const DltHeads *x, int64_t number, DltKeys blocks, float *keep)
{
    uint32_t threshold = dlt_dropout_threshold(x->a->drop.p);
    float scale = 1.0F / (1.0F - x->a->drop.p);
    uint64_t first = dlt_attention_draw(number, x->t);
    for (int64_t j = blocks.lo; j < blocks.hi; j += 4) {
        DltRand4 v = dlt_dropout_draw(x->step->seed, x->a->drop.id, x->step->batch,
                                      (first + (uint64_t)j) / 4);
        for (int64_t k = 0; k < 4; k++)
            keep[j + k] = v.v[k] >= threshold ? scale : 0;
    }
}

DltScores dlt_scores_of(const DltHeads *x, int64_t row, int64_t i, DltKeys blocks, float *keep)
{
    if (x->step) draw(x, row * x->t + i, blocks, keep);
    return (DltScores){.seen = dlt_attention_keys(x->a, i, x->t),
                       .blocks = blocks,
                       .scale = (float)x->a->scale,
                       .keep = x->step ? keep : NULL};
}

/* The whole vectors of the row in which it sees something; at least one. */
static DltKeys vectors_of(const DltScores *r)
{
    DltKeys k = {r->seen.lo / LANES * LANES, (r->seen.hi + LANES - 1) / LANES * LANES};
    if (k.hi <= k.lo) k.hi = k.lo + LANES;
    return k;
}

/* What the row doesn't see of the vector at j gets no share. */
DLT_INLINE void hide(const DltScores *r, int64_t j, float *s)
{
    int32_t lo = (int32_t)(r->seen.lo - j), hi = (int32_t)(r->seen.hi - j);
    for (int32_t i = 0; i < LANES; i++)
        s[j + i] = (i >= lo) & (i < hi) ? s[j + i] : -INFINITY;
}

DLT_INLINE void clear(float *s, int64_t from, int64_t to)
{
    for (int64_t j = from; j < to; j += LANES)
        *(DltV16 *)(s + j) = (DltV16){0};
}

/* Two vectors of eight, which any processor with AVX2 holds; halves meet halves at the end. */
DLT_INLINE float largest(const float *s, DltKeys k)
{
    DltV8 top[2], v;
    float lane[LANES];
    for (int i = 0; i < 2; i++)
        top[i] = *(const DltV8 *)(s + k.lo + 8 * i);
    for (int64_t j = k.lo + LANES; j < k.hi; j += LANES)
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            v = *(const DltV8 *)(s + j + 8 * i);
            DltI8 more = v > top[i];
            top[i] = (DltV8)(((DltI8)v & more) | ((DltI8)top[i] & ~more));
        }
    memcpy(lane, top, sizeof lane);
#pragma GCC unroll 4
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] = lane[i + half] > lane[i] ? lane[i + half] : lane[i];
    return lane[0];
}

DLT_INLINE float lanes_total(float lane[LANES])
{
#pragma GCC unroll 4
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

DLT_CLONES float dlt_scores_softmax(const DltScores *r, float *s, float *lse)
{
    float scale = r->scale, sum[LANES] = {0};
    DltKeys k = vectors_of(r);
    clear(s, r->blocks.lo, k.lo);
    clear(s, k.hi, r->blocks.hi);
    hide(r, k.lo, s);
    hide(r, k.hi - LANES, s);
    float max = largest(s, k);
    for (int64_t j = k.lo; j < k.hi; j += LANES)
        for (int i = 0; i < LANES; i++) {
            s[j + i] = dlt_exp_down((s[j + i] - max) * scale);
            sum[i] += s[j + i];
        }
    float total = lanes_total(sum);
    *lse = max * scale + logf(total);
    if (r->keep)
        for (int64_t j = k.lo; j < k.hi; j++)
            s[j] *= r->keep[j];
    return 1 / total;
}

/* What the row doesn't see becomes v. */
DLT_INLINE void fill_unseen(const DltScores *r, float v, float *s)
{
    for (int64_t j = r->blocks.lo; j < r->seen.lo; j++)
        s[j] = v;
    for (int64_t j = r->seen.hi; j < r->blocks.hi; j++)
        s[j] = v;
}

DLT_CLONES void dlt_scores_grad(const DltScores *r, float *s, float *g)
{
    float scale = r->scale, lse = r->lse, delta = r->delta;
    const float *keep = r->keep;
    if (keep) {
#pragma GCC ivdep
        for (int64_t j = r->blocks.lo; j < r->blocks.hi; j++) {
            float p = dlt_exp_down(s[j] * scale - lse);
            s[j] = p * keep[j];
            g[j] = p * (g[j] * keep[j] - delta) * scale;
        }
    } else {
#pragma GCC ivdep
        for (int64_t j = r->blocks.lo; j < r->blocks.hi; j++) {
            float p = dlt_exp_down(s[j] * scale - lse);
            s[j] = p;
            g[j] = p * (g[j] - delta) * scale;
        }
    }
    fill_unseen(r, 0, s);
    fill_unseen(r, 0, g);
}
