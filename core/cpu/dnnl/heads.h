/* What the attentions of f32 and of bf16 share: the heads of an interleaved buffer, and what happens to a row of
 * scores. A block of queries has its whole rows of scores in the scratch of a thread, so memory grows with T and not
 * with T x T; blocks of keys that no query of a block sees are left out. Formulas of ops/attention.h. */
#ifndef DLT_HEADS_H
#define DLT_HEADS_H

#include "cpu/dnnl/tile.h"
#include "ops/attention.h"
#include "ops/step.h"

enum { DLT_HEAD_QUERIES = 64 /* of a block */ };

typedef struct DltHeads {
    const DltAttention *a;
    const DltStepState *step; /* NULL without dropout */
    int64_t batch, t, width, group, d, o_width;
    int64_t unit, keys, cols; /* t and d rounded up to a unit */
    const void *qkv, *d_o, *o_in;
    void *o, *dqkv;
    const float *stats_in;
    float *stats;
    char *work;
    size_t bytes; /* of a thread's scratch */
} DltHeads;

/* Sizes of an attention_fwd or attention_bwd node. */
DltHeads dlt_heads_of(const DltNode *n, int64_t unit);
/* The same with the call's pointers. */
DltHeads dlt_heads_bind(const DltCall *call, int64_t unit);
const DltTensor *dlt_heads_qkv(const DltNode *n);

/* A part of a thread's scratch: where its pointer goes, elements, bytes of one; used by the gradient alone. */
typedef struct DltScratchPart {
    void *pointer;
    int64_t count;
    size_t size;
    bool back;
} DltScratchPart;
/* Lays out n parts from `base` on (NULL: only counts); returns their bytes. */
size_t dlt_scratch_lay_out(const DltScratchPart *part, size_t n, char *base, bool back);

/* First element of head `head` (queries, keys, values in order) of sample b in units of elements. */
static inline int64_t dlt_head_at(const DltHeads *x, int64_t b, int64_t head)
{
    return b * x->t * x->width + head * x->d;
}
/* Keys in whole units that queries [q0, q0 + nq) see. */
DltKeys dlt_heads_seen(const DltHeads *x, int64_t q0, int64_t nq);

/* A row of scores over the keys `blocks`, whole units, of which it sees `seen`. */
typedef struct DltScores {
    DltKeys seen, blocks;
    float scale, lse, delta;
    const float *keep; /* dropout's factors from key 0 on, or NULL */
} DltScores;
/* The row of query i of head `row` = b Hq + h; keep[keys] is drawn where there is dropout. */
DltScores dlt_scores_of(const DltHeads *x, int64_t row, int64_t i, DltKeys blocks, float *keep);
/* s = keep exp(scale (s - max)), 0 where nothing is seen; lse = log sum exp(scale s); returns 1 / sum before dropout. */
float dlt_scores_softmax(const DltScores *r, float *s, float *lse);
/* s and g hold scores and do v^T; they become keep p and ds = p (keep g - delta) scale. */
void dlt_scores_grad(const DltScores *r, float *s, float *g);

#endif
