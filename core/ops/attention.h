/* Scaled dot-product attention over an interleaved buffer, and rotary positions.
 *   attention_fwd: qkv [B, T, (Hq + 2 Hkv) D], step (dropout only, else NULL) -> o [B, T, Hq D],
 *     stats f32 [B, Hq, T].  Head h of the buffer lies at columns h D: queries first, then keys, then
 *     values, so no operand is transposed. Query head h reads key and value head h / (Hq / Hkv)
 *     (grouped queries, Ainslie et al. 2023).
 *     s[i, j] = scale q[i] . k[j] for the keys j that i sees, p = softmax(s) over them,
 *     o[i] = sum_j drop(p[i, j]) v[j];  stats[i] = log sum_j exp s[i, j].  Vaswani et al. 2017, eq. 1.
 *     i sees j when j <= i (causal) and |i - j| < window (window > 0).
 *   attention_bwd: do, qkv, o, stats, step -> dqkv, column sums of dqkv f32 [(Hq + 2 Hkv) D] (when attr.bias: the
 *     gradient of a bias in front, put there by the fuse pass; as o and stats are those of qkv, rows of p add up to
 *     one and rows of ds to nothing, so without dropout the sums of dv are those of do, and those of dk are 0). With delta[i] = do[i] . o[i],
 *     g[i, j] = drop(do[i] . v[j]): dv[j] = sum_i drop(p) do[i], ds = p (g - delta),
 *     dq[i] = scale sum_j ds k[j], dk[j] = scale sum_i ds q[i].  Dao et al. 2022, appendix B.
 *   drop: element (b, h, i, j) is kept when the draw of number ((b Hq + h) T + i) T4 + j says so, T4
 *     being T rounded up to a multiple of 4; kept ones are divided by 1 - p (ops/dropout.h).
 *   rope: x [B, T, W] -> y: in each of the first `heads` heads of D columns, the pair (x[c], x[c + D/2])
 *     of position t is turned by the angle t base^(-2c/D); what follows is copied. `inverse` turns
 *     back, which is the gradient. With place i32[1] (decoding) token t stands at position place + t.  Su et al. 2021, with the halves paired as in GPT-NeoX and Llama. */
#ifndef DLT_ATTENTION_H
#define DLT_ATTENTION_H

#include "graph/build.h"
#include "ops/dropout.h"

enum { DLT_MAX_HEAD_DIM = 256 };

typedef struct DltAttention {
    int64_t heads, kv_heads, head_dim;
    int64_t window; /* 0: no limit */
    double scale;
    DltDropout drop; /* p 0: none */
    bool causal;
    bool bias; /* attention_bwd: also write the column sums of dqkv */
} DltAttention;

typedef struct DltRope {
    int64_t heads, head_dim;
    double base;
    bool inverse;
} DltRope;

/* Keys [lo, hi) that query i of T sees. */
typedef struct DltKeys {
    int64_t lo, hi;
} DltKeys;
DLT_HD DltKeys dlt_attention_keys(const DltAttention *a, int64_t i, int64_t t)
{
    DltKeys k;
    k.lo = a->window > 0 && i >= a->window ? i - a->window + 1 : 0;
    k.hi = a->causal ? i + 1 : a->window > 0 && i + a->window < t ? i + a->window : t;
    return k;
}
/* Queries [lo, hi) that see key j. */
DLT_HD DltKeys dlt_attention_queries(const DltAttention *a, int64_t j, int64_t t)
{
    DltKeys k;
    k.lo = a->causal ? j : a->window > 0 && j >= a->window ? j - a->window + 1 : 0;
    k.hi = a->window > 0 && j + a->window < t ? j + a->window : t;
    return k;
}
/* Number of element (row, 0) among the dropout draws, row = (b Hq + h) T + i. */
DLT_HD uint64_t dlt_attention_draw(int64_t row, int64_t t)
{
    return (uint64_t)row * (uint64_t)((t + 3) / 4 * 4);
}

/* attr->drop.id is filled in where p > 0; outside of training p becomes 0. */
DltTensor *dlt_attention(DltBuild *b, DltTensor *qkv, const DltAttention *attr);
DltTensor *dlt_rope(DltBuild *b, DltTensor *x, const DltRope *attr);

#endif
