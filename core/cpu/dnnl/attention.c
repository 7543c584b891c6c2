/* Attention by blocks of queries and keys: a block of scores lives on the stack, so memory grows with T
 * and not with T x T. Scores are kept transposed, [key][16 queries]: that is how the register tile of
 * cpu/gemm.h writes a product and reads an operand, and softmax runs over 16 queries at once. Forward
 * keeps a running maximum and sum (Milakov & Gimelshein 2018); backward makes each block of
 * probabilities again from the saved log sum (Dao et al. 2022, algorithms 1 and 4). Blocks that no query
 * sees are left out. A task owns what it writes: some queries of a head forward, a key head backward, so
 * results do not depend on the number of threads. */
#include "ops/attention.h"
#include "cpu/dnnl/fast.h"
#include "cpu/gemm.h"
#include "cpu/vmath.h"
#include "ops/step.h"

enum {
    MR = DLT_GEMM_MR,
    NR = DLT_GEMM_NR,
    QUERIES = 4 * NR, /* of a block */
    KEYS = 16 * MR,
    D_MAX = 128,
    D_PADDED = (D_MAX + MR - 1) / MR * MR
};

typedef struct Attention {
    const DltAttention *a;
    const DltStepState *step; /* NULL without dropout */
    int64_t batch, t, width, group, d, o_width;
    const float *q, *k, *v; /* head 0 of token (0, 0) */
    const float *d_o, *o_in, *stats_in;
    float *o, *stats, *dqkv;
    DltTile tile;
} Attention;

static Attention attention_of(const DltCall *call, const DltTensor *qkv, const float *at)
{
    const DltAttention *a = call->node->attr;
    const float *k = at + a->heads * a->head_dim;
    return (Attention){.a = a,
                       .batch = qkv->shape.dim[0],
                       .t = qkv->shape.dim[1],
                       .width = qkv->shape.dim[2],
                       .group = a->heads / a->kv_heads,
                       .d = a->head_dim,
                       .o_width = a->heads * a->head_dim,
                       .q = at,
                       .k = k,
                       .v = k + a->kv_heads * a->head_dim,
                       .tile = dlt_tile_simd()};
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- panels -------------------------------------------------------------------------------------- */

/* n <= room rows of d values, `stride` apart, as panels [room / side][d][side]; missing rows are 0. */
static void pack_rows(const float *x, int64_t stride, int64_t n, int64_t room, int64_t d, int side,
                      float *out)
{
    const DltPanel p = {.x = x, .row_stride = stride, .k_stride = 1};
    for (int64_t r = 0; r < room; r += side)
        dlt_pack_strided(&p, r, r < n ? least(side, n - r) : 0, 0, d, side, out + r * d);
}

/* The same rows as panels [d / side][room][side] of columns: the sum runs over rows. */
static void pack_columns(const float *x, int64_t stride, int64_t n, int64_t room, int64_t d,
                         int side, float *out)
{
    for (int64_t c = 0; c < d; c += side, out += room * side) {
        int64_t w = least(side, d - c);
        if (w < side || n < room) memset(out, 0, (size_t)(room * side) * sizeof *out);
        for (int64_t r = 0; r < n; r++)
            memcpy(out + r * side, x + r * stride + c, (size_t)w * sizeof *out);
    }
}

/* s[n][NR] = keys times one panel of queries; n a multiple of MR. */
static void scores(const Attention *x, const float *keys, const float *queries, int64_t n, float *s)
{
    for (int64_t j = 0; j < n; j += MR)
        x->tile(x->d, keys + j * x->d, queries, s + j * NR);
}

DLT_CLONES static void add_rows(const float *x, int64_t n, float *y, int64_t stride, int64_t w)
{
    if (w == NR) {
        for (int64_t r = 0; r < n; r++)
            for (int c = 0; c < NR; c++)
                y[r * stride + c] += x[r * NR + c];
        return;
    }
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < w; c++)
            y[r * stride + c] += x[r * NR + c];
}

/* ---- one panel of queries against one block of keys ---------------------------------------------- */

/* Queries [q0, q0 + nq), nq <= NR, of sample b and head h against keys [k0, k0 + nk). Query i sees
 * columns [lo[i], hi[i]) of the block; keys from n on (a multiple of MR) are seen by none. */
typedef struct Panel {
    int64_t b, h, q0, nq, k0, n;
    int32_t lo[NR], hi[NR];
} Panel;

static Panel panel_of(const Attention *x, int64_t row, int64_t q0, int64_t nq, int64_t k0,
                      int64_t nk)
{
    Panel p = {.b = row / x->a->heads, .h = row % x->a->heads, .q0 = q0, .nq = nq, .k0 = k0};
    for (int64_t i = 0; i < nq; i++) {
        DltKeys s = dlt_attention_keys(x->a, q0 + i, x->t);
        int64_t lo = s.lo < k0 ? 0 : least(s.lo - k0, nk),
                hi = s.hi < k0 ? 0 : least(s.hi - k0, nk);
        if (lo >= hi) continue;
        p.lo[i] = (int32_t)lo;
        p.hi[i] = (int32_t)hi;
        if (p.n < hi) p.n = hi;
    }
    p.n = (p.n + MR - 1) / MR * MR;
    return p;
}

static int64_t row_number(const Attention *x, const Panel *p, int64_t i)
{
    return (p->b * x->a->heads + p->h) * x->t + p->q0 + i;
}

/* keep[n][NR]: 1 / (1 - p) or 0. Blocks of keys begin at multiples of 4. */
static void draw(const Attention *x, const Panel *p, float *keep)
{
    uint32_t threshold = dlt_dropout_threshold(x->a->drop.p);
    float scale = 1.0F / (1.0F - x->a->drop.p);
    for (int64_t i = 0; i < p->nq; i++) {
        uint64_t e = dlt_attention_draw(row_number(x, p, i), x->t) + (uint64_t)p->k0;
        for (int64_t j = 0; j < p->n; j += 4) {
            DltRand4 v = dlt_dropout_draw(x->step->seed, x->a->drop.id, x->step->batch,
                                          (e + (uint64_t)j) / 4);
            for (int64_t k = 0; k < 4 && j + k < p->n; k++)
                keep[(j + k) * NR + i] = v.v[k] >= threshold ? scale : 0;
        }
    }
}

/* ---- forward ------------------------------------------------------------------------------------- */

/* What a panel of queries has gathered: o transposed, [d][NR]. */
typedef struct Gathered {
    _Alignas(64) float o[D_PADDED * NR];
    float max[NR], sum[NR];
} Gathered;

/* s becomes exp(s - new maximum), 0 where nothing is seen; what was gathered shrinks to that maximum. */
DLT_CLONES static void online_softmax(const Panel *p, float *s, Gathered *g, int64_t d)
{
    float top[NR], factor[NR];
    for (int i = 0; i < NR; i++)
        top[i] = g->max[i];
    for (int64_t j = 0; j < p->n; j++)
        for (int i = 0; i < NR; i++) {
            float v = (int32_t)j >= p->lo[i] && (int32_t)j < p->hi[i] ? s[j * NR + i] : -INFINITY;
            s[j * NR + i] = v;
            top[i] = v > top[i] ? v : top[i];
        }
    for (int i = 0; i < NR; i++) {
        float shift = top[i] > -INFINITY ? top[i] : 0; /* nothing seen yet */
        factor[i] = dlt_exp(g->max[i] - shift);
        g->max[i] = top[i];
        g->sum[i] *= factor[i];
        top[i] = shift;
    }
    for (int64_t j = 0; j < p->n; j++)
        for (int i = 0; i < NR; i++) {
            float e = dlt_exp(s[j * NR + i] - top[i]);
            s[j * NR + i] = e;
            g->sum[i] += e;
        }
    for (int64_t c = 0; c < d; c++)
        for (int i = 0; i < NR; i++)
            g->o[c * NR + i] *= factor[i];
}

DLT_CLONES static void multiply(float *x, const float *by, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= by[i];
}

static void forward_panel(const Attention *x, const Panel *p, const float *q, const float *k,
                          const float *v, Gathered *g)
{
    _Alignas(64) float s[KEYS * NR], keep[KEYS * NR] = {0}, out[MR * NR];
    scores(x, k, q, p->n, s);
    online_softmax(p, s, g, x->d);
    if (x->step) {
        draw(x, p, keep);
        multiply(s, keep, p->n * NR);
    }
    for (int64_t c = 0; c < x->d; c += MR) {
        x->tile(p->n, v + c * KEYS, s, out);
        add_rows(out, MR, g->o + c * NR, NR, NR);
    }
}

static void scale_all(float *x, float by, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= by;
}

static void write_queries(const Attention *x, const Panel *p, const Gathered *g)
{
    for (int64_t i = 0; i < p->nq; i++) {
        float *o = x->o + (p->b * x->t + p->q0 + i) * x->o_width + p->h * x->d;
        for (int64_t c = 0; c < x->d; c++)
            o[c] = g->o[c * NR + i] / g->sum[i];
        x->stats[row_number(x, p, i)] = g->max[i] + logf(g->sum[i]);
    }
}

/* QUERIES queries from q0 on of head h of sample b, row = b Hq + h. */
static void forward_block(const Attention *x, int64_t row, int64_t q0)
{
    _Alignas(64) float q[QUERIES * D_MAX], k[KEYS * D_MAX], v[KEYS * D_PADDED];
    Gathered g[QUERIES / NR];
    int64_t b = row / x->a->heads, h = row % x->a->heads, nq = least(QUERIES, x->t - q0);
    int64_t lo = dlt_attention_keys(x->a, q0, x->t).lo / KEYS * KEYS;
    int64_t hi = dlt_attention_keys(x->a, q0 + nq - 1, x->t).hi;
    pack_rows(x->q + (b * x->t + q0) * x->width + h * x->d, x->width, nq, QUERIES, x->d, NR, q);
    scale_all(q, (float)x->a->scale, QUERIES * x->d);
    for (int i = 0; i < QUERIES / NR; i++) {
        memset(&g[i], 0, sizeof g[i]);
        for (int k0 = 0; k0 < NR; k0++)
            g[i].max[k0] = -INFINITY;
    }
    for (int64_t k0 = lo; k0 < hi; k0 += KEYS) {
        int64_t nk = least(KEYS, x->t - k0), at = (b * x->t + k0) * x->width + h / x->group * x->d;
        pack_rows(x->k + at, x->width, nk, KEYS, x->d, MR, k);
        pack_columns(x->v + at, x->width, nk, KEYS, x->d, MR, v);
        for (int64_t i = 0; i < nq; i += NR) {
            Panel p = panel_of(x, row, q0 + i, least(NR, nq - i), k0, nk);
            if (p.n > 0) forward_panel(x, &p, q + i * x->d, k, v, &g[i / NR]);
        }
    }
    for (int64_t i = 0; i < nq; i += NR) {
        Panel p = panel_of(x, row, q0 + i, least(NR, nq - i), 0, 0);
        write_queries(x, &p, &g[i / NR]);
    }
}

static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    const Attention *x = ctx;
    int64_t blocks = (x->t + QUERIES - 1) / QUERIES;
    for (int64_t n = begin; n < end; n++)
        forward_block(x, n / blocks, n % blocks * QUERIES);
}

/* o and stats of ops/attention.h.  qkv f32 [B,T,(Hq+2Hkv)D], D <= 128; step u8 or missing. */
static DltStatus forward(const DltCall *call, DltErr *err)
{
    (void)err;
    Attention x = attention_of(call, call->node->in[0], call->in[0]);
    x.step = x.a->drop.p > 0 ? call->in[1] : NULL;
    x.o = call->out[0];
    x.stats = call->out[1];
    int64_t blocks = (x.t + QUERIES - 1) / QUERIES;
    dlt_pool_for(call->stream, x.batch * x.a->heads * blocks, 1, forward_task, &x);
    return DLT_OK;
}

/* ---- backward ------------------------------------------------------------------------------------ */

/* A block of keys while blocks of queries go by. *_sum: panels for sums over keys or queries. */
typedef struct Keys {
    _Alignas(64) float k[KEYS * D_MAX], v[KEYS * D_MAX], k_sum[KEYS * D_PADDED];
    _Alignas(64) float dk[KEYS * D_MAX], dv[KEYS * D_MAX];
    _Alignas(64) float q[QUERIES * D_MAX], d[QUERIES * D_MAX];
    _Alignas(64) float q_sum[QUERIES * D_MAX], d_sum[QUERIES * D_MAX];
    _Alignas(64) float p_sum[KEYS * QUERIES], g_sum[KEYS * QUERIES]; /* [key / MR][query][MR] */
    int64_t seen[QUERIES / NR];                                      /* Panel.n of each panel */
} Keys;

DLT_CLONES static float dot(const float *a, const float *b, int64_t n)
{
    float lane[8] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            lane[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sum += a[i] * b[i];
    return sum + ((lane[0] + lane[4]) + (lane[1] + lane[5])) +
           ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

/* p and g hold scores and v do^T; they become drop(p) and ds = p (drop(g) - delta) scale. */
DLT_CLONES static void gradients(const Panel *t, float *p, float *g, const float *keep,
                                 const float *lse, const float *delta, float scale)
{
    for (int64_t j = 0; j < t->n; j++)
        for (int i = 0; i < NR; i++) {
            float e = dlt_exp(p[j * NR + i] - lse[i]), k = keep ? keep[j * NR + i] : 1;
            e = (int32_t)j >= t->lo[i] && (int32_t)j < t->hi[i] ? e : 0;
            g[j * NR + i] = e * (g[j * NR + i] * k - delta[i]) * scale;
            p[j * NR + i] = e * k;
        }
}

/* [n][NR] into panels [n / MR][QUERIES][MR] at query `at`. */
static void transpose(const float *x, int64_t n, int64_t at, float *out)
{
    for (int64_t j = 0; j < n; j += MR)
        for (int i = 0; i < NR; i++)
            for (int r = 0; r < MR; r++)
                out[(j / MR * QUERIES + at + i) * MR + r] = x[(j + r) * NR + i];
}

/* Probabilities and score gradients of a panel of queries, and its dq. */
static void backward_panel(const Attention *x, const Panel *t, int64_t at, Keys *w)
{
    _Alignas(64) float p[KEYS * NR], g[KEYS * NR], keep[KEYS * NR] = {0}, out[MR * NR];
    float lse[NR] = {0}, delta[NR] = {0};
    for (int64_t i = 0; i < t->nq; i++) {
        int64_t o = (t->b * x->t + t->q0 + i) * x->o_width + t->h * x->d;
        lse[i] = x->stats_in[row_number(x, t, i)];
        delta[i] = dot(x->d_o + o, x->o_in + o, x->d);
    }
    if (x->step) draw(x, t, keep);
    scores(x, w->k, w->q + at * x->d, t->n, p);
    scores(x, w->v, w->d + at * x->d, t->n, g);
    gradients(t, p, g, x->step ? keep : NULL, lse, delta, (float)x->a->scale);
    transpose(p, t->n, at, w->p_sum);
    transpose(g, t->n, at, w->g_sum);
    float *dq = x->dqkv + (t->b * x->t + t->q0) * x->width + t->h * x->d;
    for (int64_t c = 0; c < x->d; c += MR) {
        x->tile(t->n, w->k_sum + c * KEYS, g, out);
        for (int64_t r = 0; r < least(MR, x->d - c); r++)
            for (int64_t i = 0; i < t->nq; i++)
                dq[i * x->width + c + r] += out[r * NR + i];
    }
}

/* dk and dv += the sums over the queries of this block that see each tile of keys. */
static void add_keys(const Attention *x, Keys *w)
{
    _Alignas(64) float out[MR * NR];
    for (int64_t j = 0; j < KEYS; j += MR) {
        int64_t first = 0, last = QUERIES / NR;
        while (first < last && w->seen[first] <= j)
            first++;
        while (last > first && w->seen[last - 1] <= j)
            last--;
        if (first == last) continue;
        int64_t i = first * NR, n = (last - first) * NR, at = (j / MR * QUERIES + i) * MR;
        for (int64_t c = 0; c < x->d; c += NR) {
            x->tile(n, w->p_sum + at, w->d_sum + c * QUERIES + i * NR, out);
            add_rows(out, MR, w->dv + j * x->d + c, x->d, least(NR, x->d - c));
            x->tile(n, w->g_sum + at, w->q_sum + c * QUERIES + i * NR, out);
            add_rows(out, MR, w->dk + j * x->d + c, x->d, least(NR, x->d - c));
        }
    }
}

/* One block of queries against the block of keys. */
static void backward_block(const Attention *x, int64_t row, int64_t q0, int64_t k0, int64_t nk,
                           Keys *w)
{
    int64_t b = row / x->a->heads, h = row % x->a->heads, nq = least(QUERIES, x->t - q0);
    const float *q = x->q + (b * x->t + q0) * x->width + h * x->d;
    const float *d = x->d_o + (b * x->t + q0) * x->o_width + h * x->d;
    pack_rows(q, x->width, nq, QUERIES, x->d, NR, w->q);
    scale_all(w->q, (float)x->a->scale, QUERIES * x->d);
    pack_rows(d, x->o_width, nq, QUERIES, x->d, NR, w->d);
    pack_columns(q, x->width, nq, QUERIES, x->d, NR, w->q_sum);
    pack_columns(d, x->o_width, nq, QUERIES, x->d, NR, w->d_sum);
    for (int64_t i = 0; i < QUERIES; i += NR) {
        int64_t n = i < nq ? least(NR, nq - i) : 0;
        Panel p = panel_of(x, row, q0 + i, n, k0, nk);
        w->seen[i / NR] = p.n;
        if (p.n > 0) backward_panel(x, &p, i, w);
    }
    add_keys(x, w);
}

/* All queries of the group that see keys [k0, k0 + KEYS) of key head `head`. */
static void backward_keys(const Attention *x, int64_t b, int64_t head, int64_t k0)
{
    Keys w;
    int64_t nk = least(KEYS, x->t - k0), at = (b * x->t + k0) * x->width + head * x->d;
    int64_t lo = dlt_attention_queries(x->a, k0, x->t).lo / QUERIES * QUERIES;
    int64_t hi = dlt_attention_queries(x->a, k0 + nk - 1, x->t).hi;
    pack_rows(x->k + at, x->width, nk, KEYS, x->d, MR, w.k);
    pack_rows(x->v + at, x->width, nk, KEYS, x->d, MR, w.v);
    pack_columns(x->k + at, x->width, nk, KEYS, x->d, MR, w.k_sum);
    memset(w.dk, 0, (size_t)(KEYS * x->d) * sizeof *w.dk);
    memset(w.dv, 0, (size_t)(KEYS * x->d) * sizeof *w.dv);
    for (int64_t h = head * x->group; h < (head + 1) * x->group; h++)
        for (int64_t q0 = lo; q0 < hi; q0 += QUERIES)
            backward_block(x, b * x->a->heads + h, q0, k0, nk, &w);
    float *dk = x->dqkv + x->a->heads * x->d + at, *dv = dk + x->a->kv_heads * x->d;
    for (int64_t r = 0; r < nk; r++) {
        memcpy(dk + r * x->width, w.dk + r * x->d, (size_t)x->d * sizeof *dk);
        memcpy(dv + r * x->width, w.dv + r * x->d, (size_t)x->d * sizeof *dv);
    }
}

static void backward_task(void *ctx, int64_t begin, int64_t end)
{
    const Attention *x = ctx;
    for (int64_t n = begin; n < end; n++) {
        int64_t b = n / x->a->kv_heads, head = n % x->a->kv_heads;
        float *dq = x->dqkv + b * x->t * x->width + head * x->group * x->d;
        for (int64_t t = 0; t < x->t; t++)
            memset(dq + t * x->width, 0, (size_t)(x->group * x->d) * sizeof *dq);
        for (int64_t k0 = 0; k0 < x->t; k0 += KEYS)
            backward_keys(x, b, head, k0);
    }
}

/* dqkv of ops/attention.h from do, qkv, o, stats; f32, D <= 128; step u8 or missing. */
static DltStatus backward(const DltCall *call, DltErr *err)
{
    (void)err;
    Attention x = attention_of(call, call->node->in[1], call->in[1]);
    x.d_o = call->in[0];
    x.o_in = call->in[2];
    x.stats_in = call->in[3];
    x.step = x.a->drop.p > 0 ? call->in[4] : NULL;
    x.dqkv = call->out[0];
    dlt_pool_for(call->stream, x.batch * x.a->kv_heads, 1, backward_task, &x);
    return DLT_OK;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltAttention *a = n->attr;
    if (!dlt_tile_accepts(n, dev, why_not)) return false;
    if (a->head_dim <= D_MAX) return true;
    return dlt_cpu_refuse(why_not, "heads of %lld columns, wider than %d", (long long)a->head_dim,
                          D_MAX);
}

static const DltKernel fwd_k = {"attention_fwd.cpu.blocked", accepts, NULL, forward};
static const DltKernel bwd_k = {"attention_bwd.cpu.blocked", accepts, NULL, backward};
const DltKernel *const dlt_fast_attention_fwd[] = {&fwd_k, &dlt_low_attention_fwd, NULL};
const DltKernel *const dlt_fast_attention_bwd[] = {&bwd_k, &dlt_low_attention_bwd, NULL};
