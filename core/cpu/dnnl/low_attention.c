/* Attention of bf16 heads on matrix tiles: each task packs the keys and values of a head once and takes its queries 64
 * at a time. Probabilities and score gradients are rounded to bf16 before they are multiplied again; sums and softmax
 * are f32. A task owns what it writes: a head forward, a key head backward, so threads change nothing.
 *   qkv, o, do, dqkv bf16, stats f32, step u8 or missing; formulas of ops/attention.h; T <= 2048, D <= 128 */
#include "base/half.h"
#include "cpu/dnnl/amx.h"
#include "cpu/dnnl/heads.h"

enum {
    SIDE = DLT_AMX_BLOCK,
    UNIT = 2 * DLT_AMX_TILE, /* two tiles: 32 rows or columns, 32 terms */
    QUERIES = DLT_HEAD_QUERIES,
    T_MAX = 2048,
    D_MAX = 128
};

/* Packed operands and blocks of scores; each is [block of 32][steps of 32][2 tiles] or rows of `keys` numbers. */
typedef struct Scratch {
    uint16_t *k, *v, *k_sum, *q, *d, *q_sum, *d_sum,
        *turned;             /* *_sum: their rows are what is summed over */
    uint16_t *p, *g;         /* [QUERIES][keys] */
    float *s, *ds, *dk, *dv; /* [QUERIES][keys]; [keys][cols] */
    float *keep;             /* [keys] */
} Scratch;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static size_t lay_out(const DltHeads *x, char *base, bool back, Scratch *s)
{
    int64_t kv = x->keys * x->cols, q = QUERIES * x->cols, scores = QUERIES * x->keys;
    const DltScratchPart part[] = {
        {&s->k, kv, 2, false},           {&s->v, kv, 2, false},     {&s->q, q, 2, false},
        {&s->p, scores, 2, false},       {&s->s, scores, 4, false}, {&s->keep, x->keys, 4, false},
        {&s->k_sum, kv, 2, true},        {&s->d, q, 2, true},       {&s->q_sum, q, 2, true},
        {&s->d_sum, q, 2, true},         {&s->g, scores, 2, true},  {&s->ds, scores, 4, true},
        {&s->turned, 2 * UNIT, 2, true}, {&s->dk, kv, 4, true},     {&s->dv, kv, 4, true},
    };
    return dlt_scratch_lay_out(part, sizeof part / sizeof *part, base, back);
}

/* ---- operands ---- */

/* Rows and columns of x [n_row][n_col], packed in one form as [blocks][steps][2 tiles]. */
typedef struct Operand {
    DltAmxForm form;
    const uint16_t *x;
    int64_t row, n_row, n_col, blocks, steps;
} Operand;

static void pack(const Operand *o, uint16_t *out)
{
    bool along = o->form == DLT_AMX_A || o->form == DLT_AMX_B_TURN; /* terms lie in a row */
    for (int64_t i = 0; i < o->blocks; i++)
        for (int64_t k = 0; k < o->steps; k++)
            for (int64_t half = 0; half < 2; half++, out += DLT_AMX_TILE) {
                int64_t side = i * SIDE + half * DLT_AMX_ROWS, term = k * DLT_AMX_DEPTH;
                int64_t r = along ? side : term, c = along ? term : side;
                int64_t rows = o->n_row - r, cols = o->n_col - c;
                bool there = rows > 0 && cols > 0;
                dlt_amx_pack(o->form, there ? o->x + r * o->row + c : o->x, o->row,
                             there ? rows : 0, there ? cols : 0, out);
            }
}

/* A where it lies, `row` elements from one row to the next. */
static DltAmxBlock in_rows(const uint16_t *a, int64_t row, const uint16_t *b, int64_t steps)
{
    DltAmxBlock k = dlt_amx_packed(a, b, steps);
    k.a_row = row * (int64_t)sizeof *a;
    k.a_step = 64;
    k.a_half = DLT_AMX_ROWS * k.a_row;
    return k;
}

/* s[QUERIES][keys] = q k^T for keys [k0, k1). */
static void scores(const DltHeads *x, const uint16_t *q, const uint16_t *k, DltKeys seen, float *s)
{
    int64_t steps = x->cols / SIDE;
    for (int64_t j = seen.lo / SIDE; j < seen.hi / SIDE; j++)
        for (int64_t i = 0; i < QUERIES / SIDE; i++) {
            DltAmxBlock b = dlt_amx_packed(q + i * steps * UNIT, k + j * steps * UNIT, steps);
            dlt_amx_block(&b, s + i * SIDE * x->keys + j * SIDE, x->keys, false);
        }
}

static const uint16_t *head_at(const DltHeads *x, int64_t b, int64_t head)
{
    return (const uint16_t *)x->qkv + dlt_head_at(x, b, head);
}

/* The keys' numbers of a row, rounded. */
static void round_row(const float *s, DltKeys blocks, uint16_t *p)
{
    dlt_amx_round(s + blocks.lo, SIDE, p + blocks.lo, SIDE, (blocks.hi - blocks.lo) / SIDE);
}

/* out [rows][cols <= 32] = sums * factor[row], rounded. */
DLT_CLONES static void write_block(float *sums, const float *factor, int64_t rows, int64_t cols,
                                   uint16_t *out, int64_t row)
{
    for (int64_t r = 0; factor && r < rows; r++)
        for (int c = 0; c < SIDE; c++)
            sums[r * SIDE + c] *= factor[r];
    if (cols == SIDE) {
        dlt_amx_round(sums, SIDE, out, row, rows);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        dlt_narrow_run(sums + r * SIDE, out + r * row, cols);
}

/* ---- forward ---- */

static void forward_queries(const DltHeads *x, const Scratch *w, int64_t row, int64_t q0)
{
    _Alignas(64) float out[DLT_AMX_SUMS], part[QUERIES];
    int64_t b = row / x->a->heads, h = row % x->a->heads, nq = least(QUERIES, x->t - q0);
    int64_t steps = x->keys / SIDE;
    DltKeys blocks = dlt_heads_seen(x, q0, nq);
    pack(&(Operand){DLT_AMX_A, head_at(x, b, h) + q0 * x->width, x->width, nq, x->d, QUERIES / SIDE,
                    x->cols / SIDE},
         w->q);
    scores(x, w->q, w->k, blocks, w->s);
    for (int64_t i = 0; i < nq; i++) {
        float *s = w->s + i * x->keys;
        DltScores r = dlt_scores_of(x, row, q0 + i, blocks, w->keep);
        part[i] = dlt_scores_softmax(&r, s, x->stats + row * x->t + q0 + i);
        round_row(s, blocks, w->p + i * x->keys);
    }
    for (int64_t i = 0; i < nq; i += SIDE)
        for (int64_t c = 0; c < x->d; c += SIDE) {
            const uint16_t *v = w->v + (c / SIDE * steps + blocks.lo / SIDE) * UNIT;
            DltAmxBlock k =
                in_rows(w->p + i * x->keys + blocks.lo, x->keys, v, (blocks.hi - blocks.lo) / SIDE);
            dlt_amx_block(&k, out, SIDE, false);
            write_block(out, part + i, least(SIDE, nq - i), least(SIDE, x->d - c),
                        (uint16_t *)x->o + (b * x->t + q0 + i) * x->o_width + h * x->d + c,
                        x->o_width);
        }
}

static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltHeads *x = ctx;
    Scratch w;
    lay_out(x, x->work + (size_t)dlt_fast_worker() * x->bytes, false, &w);
    dlt_amx_begin();
    for (int64_t row = begin; row < end; row++) {
        int64_t b = row / x->a->heads, kv = x->a->heads + row % x->a->heads / x->group;
        const uint16_t *k = head_at(x, b, kv), *v = k + x->a->kv_heads * x->d;
        int64_t keys = x->keys / SIDE, cols = x->cols / SIDE;
        pack(&(Operand){DLT_AMX_B_TURN, k, x->width, x->t, x->d, keys, cols}, w.k);
        pack(&(Operand){DLT_AMX_B, v, x->width, x->t, x->d, cols, keys}, w.v);
        for (int64_t q0 = 0; q0 < x->t; q0 += QUERIES)
            forward_queries(x, &w, row, q0);
    }
    dlt_amx_end();
}

static DltStatus forward(const DltCall *call, DltErr *err)
{
    (void)err;
    Scratch none;
    DltHeads x = dlt_heads_bind(call, SIDE);
    x.bytes = lay_out(&x, NULL, false, &none);
    dlt_pool_for(call->stream, x.batch * x.a->heads, 1, forward_task, &x);
    return DLT_OK;
}

/* ---- backward ---- */

DLT_CLONES static float dot(const uint16_t *a, const uint16_t *b, int64_t n)
{
    DltV8 sum = {0}, u, v;
    float total = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        dlt_v8_load(a, i, true, &u);
        dlt_v8_load(b, i, true, &v);
        sum += u * v;
    }
    for (int k = 0; k < 8; k++)
        total += sum[k];
    for (; i < n; i++)
        total += dlt_bf16_to(a[i]) * dlt_bf16_to(b[i]);
    return total;
}

/* sums[keys][cols] += left^T right, over the queries of a block: left [QUERIES][keys], right packed. */
static void add_keys(const DltHeads *x, const Scratch *w, DltKeys blocks, const uint16_t *left,
                     const uint16_t *right, float *sums)
{
    const int64_t steps = QUERIES / SIDE;
    for (int64_t j = blocks.lo; j < blocks.hi; j += SIDE) {
        pack(&(Operand){DLT_AMX_A_TURN, left + j, x->keys, QUERIES, SIDE, 1, steps}, w->turned);
        for (int64_t c = 0; c < x->cols; c += SIDE) {
            DltAmxBlock k = dlt_amx_packed(w->turned, right + c / SIDE * steps * UNIT, steps);
            dlt_amx_block(&k, sums + j * x->cols + c, x->cols, true);
        }
    }
}

static void pack_queries(const DltHeads *x, const Scratch *w, const uint16_t *q, const uint16_t *d,
                         int64_t nq)
{
    int64_t rows = QUERIES / SIDE, cols = x->cols / SIDE;
    pack(&(Operand){DLT_AMX_A, q, x->width, nq, x->d, rows, cols}, w->q);
    pack(&(Operand){DLT_AMX_B, q, x->width, nq, x->d, cols, rows}, w->q_sum);
    pack(&(Operand){DLT_AMX_A, d, x->o_width, nq, x->d, rows, cols}, w->d);
    pack(&(Operand){DLT_AMX_B, d, x->o_width, nq, x->d, cols, rows}, w->d_sum);
}

/* Queries [q0, q0 + 64) of head h: their dq, and what they add to dk and dv. */
static void backward_queries(const DltHeads *x, const Scratch *w, int64_t row, int64_t q0)
{
    _Alignas(64) float out[DLT_AMX_SUMS];
    int64_t b = row / x->a->heads, h = row % x->a->heads, nq = least(QUERIES, x->t - q0);
    DltKeys blocks = dlt_heads_seen(x, q0, nq);
    int64_t o = (b * x->t + q0) * x->o_width + h * x->d, n = blocks.hi - blocks.lo;
    const uint16_t *d_o = (const uint16_t *)x->d_o + o;
    pack_queries(x, w, head_at(x, b, h) + q0 * x->width, d_o, nq);
    scores(x, w->q, w->k, blocks, w->s);
    scores(x, w->d, w->v, blocks, w->ds);
    for (int64_t i = 0; i < nq; i++) {
        float *s = w->s + i * x->keys, *g = w->ds + i * x->keys;
        DltScores r = dlt_scores_of(x, row, q0 + i, blocks, w->keep);
        r.lse = x->stats_in[row * x->t + q0 + i];
        r.delta = dot(d_o + i * x->o_width, (const uint16_t *)x->o_in + o + i * x->o_width, x->d);
        dlt_scores_grad(&r, s, g);
        round_row(s, blocks, w->p + i * x->keys);
        round_row(g, blocks, w->g + i * x->keys);
    }
    for (int64_t i = nq; i < QUERIES; i++) { /* they see nothing */
        memset(w->p + i * x->keys + blocks.lo, 0, (size_t)n * sizeof *w->p);
        memset(w->g + i * x->keys + blocks.lo, 0, (size_t)n * sizeof *w->g);
    }
    for (int64_t i = 0; i < nq; i += SIDE)
        for (int64_t c = 0; c < x->d; c += SIDE) {
            const uint16_t *keys = w->k_sum + (c * x->keys / SIDE + blocks.lo) / SIDE * UNIT;
            DltAmxBlock k = in_rows(w->g + i * x->keys + blocks.lo, x->keys, keys, n / SIDE);
            dlt_amx_block(&k, out, SIDE, false);
            write_block(out, NULL, least(SIDE, nq - i), least(SIDE, x->d - c),
                        (uint16_t *)x->dqkv + dlt_head_at(x, b, h) + (q0 + i) * x->width + c,
                        x->width);
        }
    add_keys(x, w, blocks, w->p, w->d_sum, w->dv);
    add_keys(x, w, blocks, w->g, w->q_sum, w->dk);
}

/* A key head of a sample: all its queries, then dk and dv. */
static void backward_head(const DltHeads *x, const Scratch *w, int64_t b, int64_t head)
{
    int64_t keys = x->keys / SIDE, cols = x->cols / SIDE, kv = x->a->heads + head;
    const uint16_t *k = head_at(x, b, kv), *v = k + x->a->kv_heads * x->d;
    pack(&(Operand){DLT_AMX_B_TURN, k, x->width, x->t, x->d, keys, cols}, w->k);
    pack(&(Operand){DLT_AMX_B_TURN, v, x->width, x->t, x->d, keys, cols}, w->v);
    pack(&(Operand){DLT_AMX_B, k, x->width, x->t, x->d, cols, keys}, w->k_sum);
    memset(w->dk, 0, (size_t)(x->keys * x->cols) * sizeof *w->dk);
    memset(w->dv, 0, (size_t)(x->keys * x->cols) * sizeof *w->dv);
    for (int64_t h = head * x->group; h < (head + 1) * x->group; h++)
        for (int64_t q0 = 0; q0 < x->t; q0 += QUERIES)
            backward_queries(x, w, b * x->a->heads + h, q0);
    uint16_t *dk = (uint16_t *)x->dqkv + dlt_head_at(x, b, kv), *dv = dk + x->a->kv_heads * x->d;
    for (int64_t r = 0; r < x->t; r++) {
        dlt_narrow_run(w->dk + r * x->cols, dk + r * x->width, x->d);
        dlt_narrow_run(w->dv + r * x->cols, dv + r * x->width, x->d);
    }
}

static void backward_task(void *ctx, int64_t begin, int64_t end)
{
    const DltHeads *x = ctx;
    Scratch w;
    lay_out(x, x->work + (size_t)dlt_fast_worker() * x->bytes, true, &w);
    dlt_amx_begin();
    for (int64_t n = begin; n < end; n++)
        backward_head(x, &w, n / x->a->kv_heads, n % x->a->kv_heads);
    dlt_amx_end();
}

static DltStatus backward(const DltCall *call, DltErr *err)
{
    (void)err;
    Scratch none;
    DltHeads x = dlt_heads_bind(call, SIDE);
    x.bytes = lay_out(&x, NULL, true, &none);
    dlt_pool_for(call->stream, x.batch * x.a->kv_heads, 1, backward_task, &x);
    return DLT_OK;
}

/* ---- the kernels ---- */

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    const DltAttention *a = n->attr;
    const DltTensor *stats = n->kind == DLT_OP_attention_fwd ? n->out[1] : n->in[3];
    bool low = n->out[0]->dtype == DLT_BF16 && dlt_heads_qkv(n)->dtype == DLT_BF16 &&
               n->in[0]->dtype == DLT_BF16 && stats->dtype == DLT_F32;
    if (n->kind == DLT_OP_attention_bwd) low = low && n->in[2]->dtype == DLT_BF16 && !n->out[1];
    if (low && dlt_amx_there() && a->head_dim <= D_MAX && dlt_heads_qkv(n)->shape.dim[1] <= T_MAX)
        return true;
    snprintf(why_not->text, sizeof why_not->text,
             "for bf16, up to %d tokens, heads up to %d, with matrix tiles, without column sums",
             T_MAX, D_MAX);
    return false;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    Scratch none;
    DltHeads x = dlt_heads_of(n, SIDE);
    size_t bytes = lay_out(&x, NULL, n->kind == DLT_OP_attention_bwd, &none);
    p->work_bytes = bytes * (size_t)dlt_cpu_threads(dev);
    return DLT_OK;
}

const DltKernel dlt_low_attention_fwd = {"attention_fwd.cpu.amx", accepts, prepare, forward};
const DltKernel dlt_low_attention_bwd = {"attention_bwd.cpu.amx", accepts, prepare, backward};
