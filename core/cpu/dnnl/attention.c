/* Attention by blocks of queries and keys: a block of scores lives on the stack, so memory grows with T
 * and not with T x T. Products run on the register tile of cpu/gemm.h over packed panels. Forward keeps
 * a running maximum and sum (Milakov & Gimelshein 2018); backward makes each block of probabilities again
 * from the saved log sum (Dao et al. 2022, algorithms 1 and 4). A task owns what it writes: one block of
 * queries forward, one key head backward, so results do not depend on the number of threads. */
#include "ops/attention.h"
#include "cpu/dnnl/fast.h"
#include "cpu/gemm.h"
#include "cpu/vmath.h"
#include "ops/step.h"

enum {
    N = 48, /* queries and keys of a block: a multiple of both sides of the tile */
    MR = DLT_GEMM_MR,
    NR = DLT_GEMM_NR,
    D_MAX = 128,
    PANEL = N * D_MAX
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

/* n <= N rows of d values, `stride` apart, as panels [N / side][d][side] of rows; missing rows are 0. */
static void pack_rows(const float *x, int64_t stride, int64_t n, int64_t d, int side, float *out)
{
    const DltPanel p = {.x = x, .row_stride = stride, .k_stride = 1};
    for (int64_t r = 0; r < N; r += side)
        dlt_pack_strided(&p, r, r < n ? least(side, n - r) : 0, 0, d, side, out + r * d);
}

/* The same rows as panels [d / side][N][side] of columns: the sum runs over rows. */
static void pack_columns(const float *x, int64_t stride, int64_t n, int64_t d, int side, float *out)
{
    for (int64_t c = 0; c < d; c += side, out += (int64_t)N * side) {
        int64_t w = least(side, d - c);
        if (w < side || n < N) memset(out, 0, (size_t)(N * side) * sizeof *out);
        for (int64_t r = 0; r < n; r++)
            memcpy(out + r * side, x + r * stride + c, (size_t)w * sizeof *out);
    }
}

/* s[N][N] = a b over d: rows of two blocks against each other. */
static void scores(const Attention *x, const float *a, const float *b, float *s)
{
    float out[MR * NR];
    for (int64_t i = 0; i < N; i += MR)
        for (int64_t j = 0; j < N; j += NR) {
            x->tile(x->d, a + i * x->d, b + j * x->d, out);
            for (int r = 0; r < MR; r++)
                memcpy(s + (i + r) * N + j, out + r * NR, NR * sizeof *out);
        }
}

static void add_tile(const float *out, int64_t rows, int64_t cols, float *y, int64_t stride)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            y[r * stride + c] += out[r * NR + c];
}

/* y[n][d] += a b over N: a of panels [N / MR][N][MR], b of panels [d / NR][N][NR]. */
static void add_product(const Attention *x, const float *a, const float *b, int64_t n, float *y,
                        int64_t stride)
{
    float out[MR * NR];
    for (int64_t i = 0; i < n; i += MR)
        for (int64_t c = 0; c < x->d; c += NR) {
            x->tile(N, a + i * N, b + c * N, out);
            add_tile(out, least(MR, n - i), least(NR, x->d - c), y + i * stride + c, stride);
        }
}

/* ---- one block of scores ------------------------------------------------------------------------- */

/* Queries [q0, q0 + nq) against keys [k0, k0 + nk) of sample b and query head h. */
typedef struct Block {
    int64_t b, h, q0, nq, k0, nk;
} Block;

/* Columns [lo, hi) of the block that query q0 + r sees. */
static DltKeys seen(const Attention *x, const Block *k, int64_t r)
{
    DltKeys s = dlt_attention_keys(x->a, k->q0 + r, x->t);
    s.lo = s.lo < k->k0 ? 0 : least(s.lo - k->k0, k->nk);
    s.hi = s.hi < k->k0 ? 0 : least(s.hi - k->k0, k->nk);
    if (s.lo > s.hi) s.lo = s.hi;
    return s;
}

static int64_t row_number(const Attention *x, const Block *k, int64_t r)
{
    return (k->b * x->a->heads + k->h) * x->t + k->q0 + r;
}

/* keep[N] = 1 / (1 - p) or 0 for the block's columns of row r. Blocks begin at multiples of 4. */
static void draw_row(const Attention *x, const Block *k, int64_t r, float *keep)
{
    uint32_t threshold = dlt_dropout_threshold(x->a->drop.p);
    float scale = 1.0F / (1.0F - x->a->drop.p);
    uint64_t e = dlt_attention_draw(row_number(x, k, r), x->t) + (uint64_t)k->k0;
    for (int64_t j = 0; j < N; j += 4) {
        DltRand4 v =
            dlt_dropout_draw(x->step->seed, x->a->drop.id, x->step->batch, (e + (uint64_t)j) / 4);
        for (int i = 0; i < 4; i++)
            keep[j + i] = v.v[i] >= threshold ? scale : 0;
    }
}

/* p = exp(s - shift) in [lo, hi), 0 elsewhere; the sum of p. */
DLT_CLONES static float exp_row(const float *s, float shift, int64_t lo, int64_t hi, float *p)
{
    float lane[8] = {0};
    for (int j = 0; j < N; j++) {
        float e = dlt_exp(s[j] - shift);
        p[j] = j >= lo && j < hi ? e : 0;
    }
    for (int j = 0; j < N; j += 8)
        for (int i = 0; i < 8; i++)
            lane[i] += p[j + i];
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) +
           ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

DLT_CLONES static float max_row(const float *s, float m, int64_t lo, int64_t hi)
{
    for (int64_t j = lo; j < hi; j++)
        m = s[j] > m ? s[j] : m;
    return m;
}

DLT_CLONES static void scale_row(float *x, float by, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= by;
}

/* ---- forward ------------------------------------------------------------------------------------- */

/* A block of queries while the keys go by. */
typedef struct Queries {
    _Alignas(64) float q[PANEL], k[PANEL], v[PANEL], p[N * N], s[N * N], o[PANEL];
    float max[N], sum[N];
} Queries;

/* s becomes exp(s - new maximum); o and the sum so far are scaled down to the new maximum. */
static void online_softmax(const Attention *x, const Block *k, Queries *w)
{
    float keep[N];
    for (int64_t r = 0; r < k->nq; r++) {
        float *s = w->s + r * N;
        DltKeys c = seen(x, k, r);
        float top = max_row(s, w->max[r], c.lo, c.hi);
        if (c.lo == c.hi) { /* nothing seen here */
            memset(s, 0, N * sizeof *s);
            continue;
        }
        float factor = dlt_exp(w->max[r] - top);
        w->sum[r] = w->sum[r] * factor + exp_row(s, top, c.lo, c.hi, s);
        w->max[r] = top;
        if (factor != 1.0F) scale_row(w->o + r * x->d, factor, x->d);
        if (!x->step) continue;
        draw_row(x, k, r, keep);
        for (int j = 0; j < N; j++)
            s[j] *= keep[j];
    }
    for (int64_t r = k->nq; r < N; r++)
        memset(w->s + r * N, 0, N * sizeof *w->s);
}

static void forward_block(const Attention *x, const Block *q)
{
    Queries w;
    Block k = *q;
    int64_t kv = k.h / x->group * x->d;
    int64_t lo = dlt_attention_keys(x->a, k.q0, x->t).lo / N * N;
    int64_t hi = dlt_attention_keys(x->a, k.q0 + k.nq - 1, x->t).hi;
    const float *queries = x->q + (k.b * x->t + k.q0) * x->width + k.h * x->d;
    pack_rows(queries, x->width, k.nq, x->d, MR, w.q);
    scale_row(w.q, (float)x->a->scale, N * x->d);
    memset(w.o, 0, (size_t)(N * x->d) * sizeof *w.o);
    for (int r = 0; r < N; r++)
        w.max[r] = -INFINITY, w.sum[r] = 0;
    for (k.k0 = lo; k.k0 < hi; k.k0 += N) {
        int64_t at = (k.b * x->t + k.k0) * x->width + kv;
        k.nk = least(N, hi - k.k0);
        pack_rows(x->k + at, x->width, k.nk, x->d, NR, w.k);
        pack_columns(x->v + at, x->width, k.nk, x->d, NR, w.v);
        scores(x, w.q, w.k, w.s);
        online_softmax(x, &k, &w);
        pack_rows(w.s, N, N, N, MR, w.p);
        add_product(x, w.p, w.v, k.nq, w.o, x->d);
    }
    float *o = x->o + (k.b * x->t + k.q0) * x->o_width + k.h * x->d;
    for (int64_t r = 0; r < k.nq; r++) {
        scale_row(w.o + r * x->d, 1 / w.sum[r], x->d);
        memcpy(o + r * x->o_width, w.o + r * x->d, (size_t)x->d * sizeof *o);
        x->stats[row_number(x, &k, r)] = w.max[r] + logf(w.sum[r]);
    }
}

static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    const Attention *x = ctx;
    int64_t blocks = (x->t + N - 1) / N;
    for (int64_t n = begin; n < end; n++) {
        int64_t head = n / blocks, q0 = n % blocks * N;
        forward_block(x, &(Block){.b = head / x->a->heads,
                                  .h = head % x->a->heads,
                                  .q0 = q0,
                                  .nq = least(N, x->t - q0)});
    }
}

/* o and stats of ops/attention.h.  qkv f32 [B,T,(Hq+2Hkv)D], D <= 128; step u8 or missing. */
static DltStatus forward(const DltCall *call, DltErr *err)
{
    (void)err;
    Attention x = attention_of(call, call->node->in[0], call->in[0]);
    x.step = x.a->drop.p > 0 ? call->in[1] : NULL;
    x.o = call->out[0];
    x.stats = call->out[1];
    dlt_pool_for(call->stream, x.batch * x.a->heads * ((x.t + N - 1) / N), 1, forward_task, &x);
    return DLT_OK;
}

/* ---- backward ------------------------------------------------------------------------------------ */

/* A block of keys while the queries go by. k_sum and q_sum: panels for sums over keys and queries. */
typedef struct Keys {
    _Alignas(64) float k[PANEL], k_sum[PANEL], v[PANEL], dk[PANEL], dv[PANEL];
    _Alignas(64) float q[PANEL], q_sum[PANEL], d[PANEL], d_sum[PANEL];
    _Alignas(64) float p[N * N], dp[N * N], panel[N * N];
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

/* dp = p (dp keep - delta) scale, then p *= keep. */
DLT_CLONES static void score_grad(float *p, float *dp, const float *keep, float delta, float scale)
{
    for (int j = 0; j < N; j++) {
        dp[j] = p[j] * (dp[j] * keep[j] - delta) * scale;
        p[j] *= keep[j];
    }
}

/* p and dp hold scores and do v^T; they become the probabilities and the gradients of the scores. */
static void gradient_rows(const Attention *x, const Block *k, Keys *w)
{
    float keep[N];
    for (int j = 0; j < N; j++)
        keep[j] = 1;
    for (int64_t r = 0; r < N; r++) {
        float *p = w->p + r * N, *dp = w->dp + r * N;
        DltKeys c = r < k->nq ? seen(x, k, r) : (DltKeys){0, 0};
        if (c.lo == c.hi) {
            memset(p, 0, N * sizeof *p);
            memset(dp, 0, N * sizeof *dp);
            continue;
        }
        int64_t at = (k->b * x->t + k->q0 + r) * x->o_width + k->h * x->d;
        exp_row(p, x->stats_in[row_number(x, k, r)], c.lo, c.hi, p);
        if (x->step) draw_row(x, k, r, keep);
        score_grad(p, dp, keep, dot(x->d_o + at, x->o_in + at, x->d), (float)x->a->scale);
    }
}

/* One block of queries against the block of keys: adds to dk, dv and dq. */
static void backward_block(const Attention *x, const Block *k, Keys *w)
{
    int64_t at = (k->b * x->t + k->q0) * x->width + k->h * x->d;
    const float *d = x->d_o + (k->b * x->t + k->q0) * x->o_width + k->h * x->d;
    pack_rows(x->q + at, x->width, k->nq, x->d, MR, w->q);
    scale_row(w->q, (float)x->a->scale, N * x->d);
    pack_columns(x->q + at, x->width, k->nq, x->d, NR, w->q_sum);
    pack_rows(d, x->o_width, k->nq, x->d, MR, w->d);
    pack_columns(d, x->o_width, k->nq, x->d, NR, w->d_sum);
    scores(x, w->q, w->k, w->p);
    scores(x, w->d, w->v, w->dp);
    gradient_rows(x, k, w);
    pack_columns(w->p, N, N, N, MR, w->panel);
    add_product(x, w->panel, w->d_sum, k->nk, w->dv, x->d);
    pack_columns(w->dp, N, N, N, MR, w->panel);
    add_product(x, w->panel, w->q_sum, k->nk, w->dk, x->d);
    pack_rows(w->dp, N, N, N, MR, w->panel);
    add_product(x, w->panel, w->k_sum, k->nq, x->dqkv + at, x->width);
}

/* All queries of the group that see keys [k0, k0 + nk) of key head `head`. */
static void backward_keys(const Attention *x, int64_t b, int64_t head, int64_t k0)
{
    Keys w;
    Block k = {.b = b, .k0 = k0, .nk = least(N, x->t - k0)};
    int64_t at = (b * x->t + k0) * x->width + head * x->d;
    int64_t lo = dlt_attention_queries(x->a, k0, x->t).lo / N * N;
    int64_t hi = dlt_attention_queries(x->a, k0 + k.nk - 1, x->t).hi;
    pack_rows(x->k + at, x->width, k.nk, x->d, NR, w.k);
    pack_columns(x->k + at, x->width, k.nk, x->d, NR, w.k_sum);
    pack_rows(x->v + at, x->width, k.nk, x->d, NR, w.v);
    memset(w.dk, 0, (size_t)(N * x->d) * sizeof *w.dk);
    memset(w.dv, 0, (size_t)(N * x->d) * sizeof *w.dv);
    for (k.h = head * x->group; k.h < (head + 1) * x->group; k.h++)
        for (k.q0 = lo; k.q0 < hi; k.q0 += N) {
            k.nq = least(N, x->t - k.q0);
            backward_block(x, &k, &w);
        }
    float *dk = x->dqkv + x->a->heads * x->d + at, *dv = dk + x->a->kv_heads * x->d;
    for (int64_t r = 0; r < k.nk; r++) {
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
        for (int64_t k0 = 0; k0 < x->t; k0 += N)
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
const DltKernel *const dlt_fast_attention_fwd[] = {&fwd_k, NULL};
const DltKernel *const dlt_fast_attention_bwd[] = {&bwd_k, NULL};
