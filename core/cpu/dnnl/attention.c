/* Attention of f32 heads by the register tiles of the products: keys and values of a head are packed into strips once,
 * queries come 64 at a time and are read where they lie. A task owns what it writes, queries of a head forward, a key
 * head backward, and sums run in one order, so results do not depend on the number of threads.
 *   qkv, o, stats, do, dqkv f32, step u8 or missing; formulas of ops/attention.h. Backward makes each block of
 *   probabilities again from the saved log sum (Dao et al. 2022, algorithm 4). */
#include "cpu/dnnl/heads.h"
#include "cpu/dnnl/product.h"

enum {
    UNIT = 16,
    QUERIES = DLT_HEAD_QUERIES,
    PAD = 16 /* rows of scores begin in other cache sets */
};

/* *_turned: [d][keys], columns are keys; k, v, q, d: [rows][cols], columns are those of the head. All in strips. */
typedef struct Scratch {
    float *k_turned, *v_turned, *k, *v, *q, *d;
    float *s, *g;   /* [QUERIES][row of scores] */
    float *dk, *dv; /* [keys][cols] */
    float *out;     /* [QUERIES][cols] */
    float *keep;    /* [keys] */
} Scratch;

static int64_t score_row(const DltHeads *x)
{
    return x->keys + PAD;
}

static size_t lay_out(const DltHeads *x, char *base, bool back, Scratch *s)
{
    int64_t q = QUERIES * x->cols, kv = x->keys * x->cols, scores = QUERIES * score_row(x);
    int64_t turned = x->d * x->keys;
    const DltScratchPart part[] = {
        {&s->k_turned, turned, 4, false},
        {&s->v, kv, 4, false},
        {&s->s, scores, 4, false},
        {&s->out, q, 4, false},
        {&s->keep, x->keys, 4, false},
        {&s->v_turned, turned, 4, true},
        {&s->k, kv, 4, true},
        {&s->q, q, 4, true},
        {&s->d, q, 4, true},
        {&s->g, scores, 4, true},
        {&s->dk, kv, 4, true},
        {&s->dv, kv, 4, true},
    };
    return dlt_scratch_lay_out(part, sizeof part / sizeof *part, base, back);
}

/* ---- operands and products ---- */

/* k terms of n columns, n whole vectors, in strips of one to three. */
typedef struct Packed {
    float *at;
    int64_t k, n;
} Packed;

static int64_t strips_of(int64_t n)
{
    return (n / UNIT + DLT_STRIP_VECTORS - 1) / DLT_STRIP_VECTORS;
}

static int64_t strip_begin(int64_t n, int64_t i)
{
    return n / UNIT * i / strips_of(n) * UNIT;
}

/* b = x[k][n'] or (turned) x[n'][k], n' <= n columns there, rows `row` apart. */
static void pack(const Packed *b, const float *x, int64_t row, int64_t there, bool turned)
{
    for (int64_t i = 0; i < strips_of(b->n); i++) {
        int64_t col = strip_begin(b->n, i), width = strip_begin(b->n, i + 1) - col;
        int64_t n = there - col < width ? there - col : width;
        dlt_strip_pack(&(DltStrip){x, 0, b->k, col, n, width, b->at + b->k * col}, row, turned);
    }
}

/* c (+)= a b over `terms`, in the strips that have some of `cols`. */
static void multiply(const Packed *b, DltTileA a, int64_t rows, DltKeys terms, DltKeys cols,
                     DltTileC c)
{
    a.a += terms.lo * a.step;
    for (int64_t i = 0; i < strips_of(b->n); i++) {
        int64_t col = strip_begin(b->n, i), end = strip_begin(b->n, i + 1), width = end - col;
        if (end <= cols.lo || col >= cols.hi) continue;
        DltColumn k = {.a = a,
                       .b = b->at + b->k * col + terms.lo * width,
                       .rows = rows,
                       .kc = terms.hi - terms.lo,
                       .n = width,
                       .ldc = c.row,
                       .group = DLT_STRIP_ROWS * a.row,
                       .c = c.c + col,
                       .add = c.add};
        dlt_strip_multiply(&k, width);
    }
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- forward ---- */

static void forward_queries(const DltHeads *x, const Scratch *w, int64_t row, int64_t q0)
{
    float part[QUERIES];
    int64_t b = row / x->a->heads, h = row % x->a->heads, nq = least(QUERIES, x->t - q0);
    DltKeys blocks = dlt_heads_seen(x, q0, nq), all = {0, x->d}, cols = {0, x->cols};
    const float *q = (const float *)x->qkv + dlt_head_at(x, b, h) + q0 * x->width;
    multiply(&(Packed){w->k_turned, x->d, x->keys}, (DltTileA){q, x->width, 1}, nq, all, blocks,
             (DltTileC){w->s, score_row(x), false});
    for (int64_t i = 0; i < nq; i++) {
        DltScores r = dlt_scores_of(x, row, q0 + i, blocks, w->keep);
        part[i] = dlt_scores_softmax(&r, w->s + i * score_row(x), x->stats + row * x->t + q0 + i);
    }
    DltKeys terms = {blocks.lo, least(blocks.hi, x->t)};
    multiply(&(Packed){w->v, x->t, x->cols}, (DltTileA){w->s, score_row(x), 1}, nq, terms, cols,
             (DltTileC){w->out, x->cols, false});
    for (int64_t i = 0; i < nq; i++) {
        float *o = (float *)x->o + (b * x->t + q0 + i) * x->o_width + h * x->d;
        for (int64_t c = 0; c < x->d; c++)
            o[c] = w->out[i * x->cols + c] * part[i];
    }
}

static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltHeads *x = ctx;
    Scratch w;
    lay_out(x, x->work + (size_t)dlt_fast_worker() * x->bytes, false, &w);
    for (int64_t row = begin; row < end; row++) {
        int64_t b = row / x->a->heads, kv = x->a->heads + row % x->a->heads / x->group;
        const float *k = (const float *)x->qkv + dlt_head_at(x, b, kv);
        pack(&(Packed){w.k_turned, x->d, x->keys}, k, x->width, x->t, true);
        pack(&(Packed){w.v, x->t, x->cols}, k + x->a->kv_heads * x->d, x->width, x->d, false);
        for (int64_t q0 = 0; q0 < x->t; q0 += QUERIES)
            forward_queries(x, &w, row, q0);
    }
}

static DltStatus forward(const DltCall *call, DltErr *err)
{
    (void)err;
    Scratch none;
    DltHeads x = dlt_heads_bind(call, UNIT);
    x.bytes = lay_out(&x, NULL, false, &none);
    dlt_pool_for(call->stream, x.batch * x.a->heads, 1, forward_task, &x);
    return DLT_OK;
}

/* ---- backward ---- */

DLT_CLONES static float dot(const float *a, const float *b, int64_t n)
{
    DltV8 left = {0}, right = {0};
    float sum = 0;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        left += *(const DltV8 *)(a + i) * *(const DltV8 *)(b + i);
        right += *(const DltV8 *)(a + i + 8) * *(const DltV8 *)(b + i + 8);
    }
    for (; i < n; i++)
        sum += a[i] * b[i];
    left += right;
    for (int k = 0; k < 8; k++)
        sum += left[k];
    return sum;
}

/* Queries [q0, q0 + 64) of head h: their dq, and what they add to dk and dv. */
static void backward_queries(const DltHeads *x, const Scratch *w, int64_t row, int64_t q0)
{
    int64_t b = row / x->a->heads, h = row % x->a->heads, nq = least(QUERIES, x->t - q0);
    int64_t ld = score_row(x), o = (b * x->t + q0) * x->o_width + h * x->d;
    DltKeys blocks = dlt_heads_seen(x, q0, nq), all = {0, x->d}, cols = {0, x->cols};
    DltKeys keys = {blocks.lo, least(blocks.hi, x->t)}, queries = {0, nq};
    int64_t at = dlt_head_at(x, b, h) + q0 * x->width, n = keys.hi - keys.lo;
    const float *q = (const float *)x->qkv + at, *d_o = (const float *)x->d_o + o;
    pack(&(Packed){w->q, nq, x->cols}, q, x->width, x->d, false);
    pack(&(Packed){w->d, nq, x->cols}, d_o, x->o_width, x->d, false);
    multiply(&(Packed){w->k_turned, x->d, x->keys}, (DltTileA){q, x->width, 1}, nq, all, blocks,
             (DltTileC){w->s, ld, false});
    multiply(&(Packed){w->v_turned, x->d, x->keys}, (DltTileA){d_o, x->o_width, 1}, nq, all, blocks,
             (DltTileC){w->g, ld, false});
    for (int64_t i = 0; i < nq; i++) {
        DltScores r = dlt_scores_of(x, row, q0 + i, blocks, w->keep);
        r.lse = x->stats_in[row * x->t + q0 + i];
        r.delta = dot(d_o + i * x->o_width, (const float *)x->o_in + o + i * x->o_width, x->d);
        dlt_scores_grad(&r, w->s + i * ld, w->g + i * ld);
    }
    multiply(&(Packed){w->k, x->t, x->cols}, (DltTileA){w->g, ld, 1}, nq, keys, cols,
             (DltTileC){w->out, x->cols, false});
    for (int64_t i = 0; i < nq; i++)
        memcpy((float *)x->dqkv + at + i * x->width, w->out + i * x->cols,
               (size_t)x->d * sizeof(float));
    multiply(&(Packed){w->d, nq, x->cols}, (DltTileA){w->s + keys.lo, 1, ld}, n, queries, cols,
             (DltTileC){w->dv + keys.lo * x->cols, x->cols, true});
    multiply(&(Packed){w->q, nq, x->cols}, (DltTileA){w->g + keys.lo, 1, ld}, n, queries, cols,
             (DltTileC){w->dk + keys.lo * x->cols, x->cols, true});
}

/* A key head of a sample: all its queries, then dk and dv. */
static void backward_head(const DltHeads *x, const Scratch *w, int64_t b, int64_t head)
{
    int64_t at = dlt_head_at(x, b, x->a->heads + head), values = x->a->kv_heads * x->d;
    const float *k = (const float *)x->qkv + at;
    pack(&(Packed){w->k_turned, x->d, x->keys}, k, x->width, x->t, true);
    pack(&(Packed){w->v_turned, x->d, x->keys}, k + values, x->width, x->t, true);
    pack(&(Packed){w->k, x->t, x->cols}, k, x->width, x->d, false);
    memset(w->dk, 0, (size_t)(x->keys * x->cols) * sizeof *w->dk);
    memset(w->dv, 0, (size_t)(x->keys * x->cols) * sizeof *w->dv);
    for (int64_t h = head * x->group; h < (head + 1) * x->group; h++)
        for (int64_t q0 = 0; q0 < x->t; q0 += QUERIES)
            backward_queries(x, w, b * x->a->heads + h, q0);
    for (int64_t r = 0; r < x->t; r++) {
        float *dk = (float *)x->dqkv + at + r * x->width;
        memcpy(dk, w->dk + r * x->cols, (size_t)x->d * sizeof *dk);
        memcpy(dk + values, w->dv + r * x->cols, (size_t)x->d * sizeof *dk);
    }
}

static void backward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltHeads *x = ctx;
    Scratch w;
    lay_out(x, x->work + (size_t)dlt_fast_worker() * x->bytes, true, &w);
    for (int64_t n = begin; n < end; n++)
        backward_head(x, &w, n / x->a->kv_heads, n % x->a->kv_heads);
}

static DltStatus backward(const DltCall *call, DltErr *err)
{
    (void)err;
    Scratch none;
    DltHeads x = dlt_heads_bind(call, UNIT);
    x.bytes = lay_out(&x, NULL, true, &none);
    dlt_pool_for(call->stream, x.batch * x.a->kv_heads, 1, backward_task, &x);
    return DLT_OK;
}

/* ---- the kernels ---- */

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    bool sums = n->kind == DLT_OP_attention_bwd && n->out[1];
    if (dlt_dnnl_block() > 0 && !sums) return dlt_kernel_accepts_plain(n, why_not);
    snprintf(why_not->text, sizeof why_not->text, "for AVX2 and AVX-512, without column sums");
    return false;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    Scratch none;
    DltHeads x = dlt_heads_of(n, UNIT);
    size_t bytes = lay_out(&x, NULL, n->kind == DLT_OP_attention_bwd, &none);
    p->work_bytes = bytes * (size_t)dlt_cpu_threads(dev);
    return DLT_OK;
}

static const DltKernel fwd_k = {"attention_fwd.cpu.blocked", accepts, prepare, forward};
static const DltKernel bwd_k = {"attention_bwd.cpu.blocked", accepts, prepare, backward};
const DltKernel *const dlt_fast_attention_fwd[] = {&fwd_k, &dlt_low_attention_fwd, NULL};
const DltKernel *const dlt_fast_attention_bwd[] = {&bwd_k, &dlt_low_attention_bwd, NULL};
