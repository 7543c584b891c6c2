/* Attention of bf16 heads on matrix tiles: each task packs the keys and values of a head once and takes its queries 64
 * at a time, with their whole rows of scores in its scratch. Probabilities and score gradients are rounded to bf16
 * before they are multiplied again; sums and softmax are f32. Key blocks of 32 that no query of a block sees are left
 * out. A task owns what it writes: a head forward, a key head backward, so threads change nothing.
 *   qkv, o, do, dqkv bf16, stats f32; formulas of ops/attention.h, without dropout; T <= 2048, D <= 128 */
#include "base/half.h"
#include "cpu/dnnl/amx.h"
#include "cpu/vmath.h"
#include "ops/attention.h"

enum {
    SIDE = DLT_AMX_BLOCK,
    UNIT = 2 * DLT_AMX_TILE, /* two tiles: 32 rows or columns, 32 terms */
    QUERIES = 2 * SIDE,
    T_MAX = 2048,
    D_MAX = 128
};

/* Packed operands and blocks of scores; each is [block of 32][steps of 32][2 tiles] or rows of `keys` numbers. */
typedef struct Scratch {
    uint16_t *k, *v, *k_sum, *q, *d, *q_sum, *d_sum,
        *turned;             /* *_sum: their rows are what is summed over */
    uint16_t *p, *g;         /* [QUERIES][keys] */
    float *s, *ds, *dk, *dv; /* [QUERIES][keys]; [keys][cols] */
} Scratch;

typedef struct Attention {
    const DltAttention *a;
    int64_t batch, t, width, group, d, o_width;
    int64_t keys, cols; /* t and d rounded up to 32 */
    const uint16_t *qkv, *d_o, *o_in;
    const float *stats_in;
    uint16_t *o, *dqkv;
    float *stats;
    char *work;
    size_t bytes; /* of a thread's scratch */
} Attention;

static int64_t up(int64_t n)
{
    return (n + SIDE - 1) / SIDE * SIDE;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static Attention attention_of(const DltNode *n, const DltTensor *qkv)
{
    const DltAttention *a = n->attr;
    return (Attention){.a = a,
                       .batch = qkv->shape.dim[0],
                       .t = qkv->shape.dim[1],
                       .width = qkv->shape.dim[2],
                       .group = a->heads / a->kv_heads,
                       .d = a->head_dim,
                       .o_width = a->heads * a->head_dim,
                       .keys = up(qkv->shape.dim[1]),
                       .cols = up(a->head_dim)};
}

/* The parts of a thread's scratch from `base` on; returns its size. */
static size_t lay_out(const Attention *x, char *base, bool back, Scratch *s)
{
    int64_t kv = x->keys * x->cols, q = QUERIES * x->cols, scores = QUERIES * x->keys;
    size_t at = 0;
    struct {
        void *part;
        int64_t count;
        size_t size;
        bool both; /* forward too */
    } part[] = {
        {&s->k, kv, 2, true},      {&s->v, kv, 2, true},       {&s->q, q, 2, true},
        {&s->p, scores, 2, true},  {&s->s, scores, 4, true},   {&s->k_sum, kv, 2, false},
        {&s->d, q, 2, false},      {&s->q_sum, q, 2, false},   {&s->d_sum, q, 2, false},
        {&s->g, scores, 2, false}, {&s->ds, scores, 4, false}, {&s->turned, 2 * UNIT, 2, false},
        {&s->dk, kv, 4, false},    {&s->dv, kv, 4, false},
    };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        if (!back && !part[i].both) continue;
        void *p = base ? base + at : NULL;
        memcpy(part[i].part, &p, sizeof p);
        at += ((size_t)part[i].count * part[i].size + 63) / 64 * 64;
    }
    return at;
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

/* A and B packed. */
static DltAmxBlock packed(const uint16_t *a, const uint16_t *b, int64_t steps)
{
    const int64_t tile = DLT_AMX_TILE * (int64_t)sizeof *a;
    return (DltAmxBlock){.a = a,
                         .b = b,
                         .a_row = 64,
                         .a_step = 2 * tile,
                         .a_half = tile,
                         .b_row = 64,
                         .b_step = 2 * tile,
                         .b_half = tile,
                         .steps = steps,
                         .m_tiles = 2,
                         .n_tiles = 2};
}

/* A where it lies, `row` elements from one row to the next. */
static DltAmxBlock in_rows(const uint16_t *a, int64_t row, const uint16_t *b, int64_t steps)
{
    DltAmxBlock k = packed(a, b, steps);
    k.a_row = row * (int64_t)sizeof *a;
    k.a_step = 64;
    k.a_half = DLT_AMX_ROWS * k.a_row;
    return k;
}

/* s[QUERIES][keys] = q k^T for keys [k0, k1). */
static void scores(const Attention *x, const uint16_t *q, const uint16_t *k, DltKeys seen, float *s)
{
    int64_t steps = x->cols / SIDE;
    for (int64_t j = seen.lo / SIDE; j < seen.hi / SIDE; j++)
        for (int64_t i = 0; i < QUERIES / SIDE; i++) {
            DltAmxBlock b = packed(q + i * steps * UNIT, k + j * steps * UNIT, steps);
            dlt_amx_block(&b, s + i * SIDE * x->keys + j * SIDE, x->keys, false);
        }
}

/* Whole blocks of keys that queries [q0, q0 + nq) see. */
static DltKeys seen_blocks(const Attention *x, int64_t q0, int64_t nq)
{
    return (DltKeys){dlt_attention_keys(x->a, q0, x->t).lo / SIDE * SIDE,
                     up(dlt_attention_keys(x->a, q0 + nq - 1, x->t).hi)};
}

static const uint16_t *head_at(const Attention *x, int64_t b, int64_t head)
{
    return x->qkv + b * x->t * x->width + head * x->d;
}

/* out [rows][cols <= 32] = sums * factor[row], rounded. */
static void write_block(const float *sums, const float *factor, int64_t rows, int64_t cols,
                        uint16_t *out, int64_t row)
{
    for (int64_t r = 0; r < rows; r++) {
        float v[SIDE];
        for (int64_t c = 0; c < cols; c++)
            v[c] = sums[r * SIDE + c] * (factor ? factor[r] : 1);
        dlt_fast_narrow(v, out + r * row, cols);
    }
}

/* ---- forward ---- */

/* A row of scores over keys [k0, k1), of which `seen` count: s = exp(scale (s - max)), 0 elsewhere. */
DLT_CLONES static float softmax_row(float *s, DltKeys blocks, DltKeys seen, float scale, float *lse)
{
    float top = -INFINITY, lane[16], total = 0;
    for (int i = 0; i < 16; i++)
        lane[i] = -INFINITY;
    int64_t j = seen.lo;
    for (; j + 16 <= seen.hi; j += 16)
        for (int i = 0; i < 16; i++)
            lane[i] = s[j + i] > lane[i] ? s[j + i] : lane[i];
    for (; j < seen.hi; j++)
        top = s[j] > top ? s[j] : top;
    for (int i = 0; i < 16; i++)
        top = lane[i] > top ? lane[i] : top;
    for (int i = 0; i < 16; i++)
        lane[i] = 0;
    for (j = blocks.lo; j < blocks.hi; j += 16)
        for (int i = 0; i < 16; i++) {
            float e = dlt_exp((s[j + i] - top) * scale);
            e = j + i >= seen.lo && j + i < seen.hi ? e : 0;
            s[j + i] = e;
            lane[i] += e;
        }
    for (int i = 0; i < 16; i++)
        total += lane[i];
    *lse = top * scale + logf(total);
    return total;
}

static void forward_queries(const Attention *x, const Scratch *w, int64_t row, int64_t q0)
{
    _Alignas(64) float out[DLT_AMX_SUMS], part[QUERIES];
    int64_t b = row / x->a->heads, h = row % x->a->heads, nq = least(QUERIES, x->t - q0);
    int64_t steps = x->keys / SIDE;
    DltKeys blocks = seen_blocks(x, q0, nq);
    pack(&(Operand){DLT_AMX_A, head_at(x, b, h) + q0 * x->width, x->width, nq, x->d, QUERIES / SIDE,
                    x->cols / SIDE},
         w->q);
    scores(x, w->q, w->k, blocks, w->s);
    for (int64_t i = 0; i < nq; i++) {
        float *s = w->s + i * x->keys;
        DltKeys seen = dlt_attention_keys(x->a, q0 + i, x->t);
        part[i] =
            1 / softmax_row(s, blocks, seen, (float)x->a->scale, x->stats + row * x->t + q0 + i);
        dlt_fast_narrow(s + blocks.lo, w->p + i * x->keys + blocks.lo, blocks.hi - blocks.lo);
    }
    for (int64_t i = 0; i < nq; i += SIDE)
        for (int64_t c = 0; c < x->d; c += SIDE) {
            const uint16_t *v = w->v + (c / SIDE * steps + blocks.lo / SIDE) * UNIT;
            DltAmxBlock k =
                in_rows(w->p + i * x->keys + blocks.lo, x->keys, v, (blocks.hi - blocks.lo) / SIDE);
            dlt_amx_block(&k, out, SIDE, false);
            write_block(out, part + i, least(SIDE, nq - i), least(SIDE, x->d - c),
                        x->o + (b * x->t + q0 + i) * x->o_width + h * x->d + c, x->o_width);
        }
}

static void forward_task(void *ctx, int64_t begin, int64_t end)
{
    const Attention *x = ctx;
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
    Attention x = attention_of(call->node, call->node->in[0]);
    x.qkv = call->in[0], x.o = call->out[0], x.stats = call->out[1], x.work = call->work;
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

/* One query: the products behind its probabilities. */
typedef struct Row {
    DltKeys seen;
    float scale, lse, delta;
} Row;

/* s and g hold scores and do v^T; they become p and ds = p (g - delta) scale. */
DLT_CLONES static void gradient_row(const Row *r, DltKeys blocks, float *s, float *g)
{
    for (int64_t j = blocks.lo; j < blocks.hi; j += 16)
        for (int i = 0; i < 16; i++) {
            float e = dlt_exp(s[j + i] * r->scale - r->lse);
            e = j + i >= r->seen.lo && j + i < r->seen.hi ? e : 0;
            s[j + i] = e;
            g[j + i] = e * (g[j + i] - r->delta) * r->scale;
        }
}

/* sums[keys][cols] += left^T right, over the queries of a block: left [QUERIES][keys], right packed. */
static void add_keys(const Attention *x, const Scratch *w, DltKeys blocks, const uint16_t *left,
                     const uint16_t *right, float *sums)
{
    const int64_t steps = QUERIES / SIDE;
    for (int64_t j = blocks.lo; j < blocks.hi; j += SIDE) {
        pack(&(Operand){DLT_AMX_A_TURN, left + j, x->keys, QUERIES, SIDE, 1, steps}, w->turned);
        for (int64_t c = 0; c < x->cols; c += SIDE) {
            DltAmxBlock k = packed(w->turned, right + c / SIDE * steps * UNIT, steps);
            dlt_amx_block(&k, sums + j * x->cols + c, x->cols, true);
        }
    }
}

static void pack_queries(const Attention *x, const Scratch *w, const uint16_t *q, const uint16_t *d,
                         int64_t nq)
{
    int64_t rows = QUERIES / SIDE, cols = x->cols / SIDE;
    pack(&(Operand){DLT_AMX_A, q, x->width, nq, x->d, rows, cols}, w->q);
    pack(&(Operand){DLT_AMX_B, q, x->width, nq, x->d, cols, rows}, w->q_sum);
    pack(&(Operand){DLT_AMX_A, d, x->o_width, nq, x->d, rows, cols}, w->d);
    pack(&(Operand){DLT_AMX_B, d, x->o_width, nq, x->d, cols, rows}, w->d_sum);
}

/* Queries [q0, q0 + 64) of head h: their dq, and what they add to dk and dv. */
static void backward_queries(const Attention *x, const Scratch *w, int64_t row, int64_t q0)
{
    _Alignas(64) float out[DLT_AMX_SUMS];
    int64_t b = row / x->a->heads, h = row % x->a->heads, nq = least(QUERIES, x->t - q0);
    DltKeys blocks = seen_blocks(x, q0, nq);
    int64_t o = (b * x->t + q0) * x->o_width + h * x->d, n = blocks.hi - blocks.lo;
    pack_queries(x, w, head_at(x, b, h) + q0 * x->width, x->d_o + o, nq);
    scores(x, w->q, w->k, blocks, w->s);
    scores(x, w->d, w->v, blocks, w->ds);
    for (int64_t i = 0; i < QUERIES; i++) {
        float *s = w->s + i * x->keys, *g = w->ds + i * x->keys;
        Row r = {.scale = (float)x->a->scale}; /* sees nothing behind the last query */
        if (i < nq) {
            r.seen = dlt_attention_keys(x->a, q0 + i, x->t);
            r.lse = x->stats_in[row * x->t + q0 + i];
            r.delta = dot(x->d_o + o + i * x->o_width, x->o_in + o + i * x->o_width, x->d);
        }
        gradient_row(&r, blocks, s, g);
        dlt_fast_narrow(s + blocks.lo, w->p + i * x->keys + blocks.lo, n);
        dlt_fast_narrow(g + blocks.lo, w->g + i * x->keys + blocks.lo, n);
    }
    for (int64_t i = 0; i < nq; i += SIDE)
        for (int64_t c = 0; c < x->d; c += SIDE) {
            const uint16_t *keys = w->k_sum + (c * x->keys / SIDE + blocks.lo) / SIDE * UNIT;
            DltAmxBlock k = in_rows(w->g + i * x->keys + blocks.lo, x->keys, keys, n / SIDE);
            dlt_amx_block(&k, out, SIDE, false);
            write_block(out, NULL, least(SIDE, nq - i), least(SIDE, x->d - c),
                        x->dqkv + (b * x->t + q0 + i) * x->width + h * x->d + c, x->width);
        }
    add_keys(x, w, blocks, w->p, w->d_sum, w->dv);
    add_keys(x, w, blocks, w->g, w->q_sum, w->dk);
}

/* A key head of a sample: all its queries, then dk and dv. */
static void backward_head(const Attention *x, const Scratch *w, int64_t b, int64_t head)
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
    uint16_t *dk = x->dqkv + b * x->t * x->width + kv * x->d, *dv = dk + x->a->kv_heads * x->d;
    for (int64_t r = 0; r < x->t; r++) {
        dlt_fast_narrow(w->dk + r * x->cols, dk + r * x->width, x->d);
        dlt_fast_narrow(w->dv + r * x->cols, dv + r * x->width, x->d);
    }
}

static void backward_task(void *ctx, int64_t begin, int64_t end)
{
    const Attention *x = ctx;
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
    Attention x = attention_of(call->node, call->node->in[1]);
    x.d_o = call->in[0], x.qkv = call->in[1], x.o_in = call->in[2], x.stats_in = call->in[3];
    x.dqkv = call->out[0], x.work = call->work;
    x.bytes = lay_out(&x, NULL, true, &none);
    dlt_pool_for(call->stream, x.batch * x.a->kv_heads, 1, backward_task, &x);
    return DLT_OK;
}

/* ---- the kernels ---- */

static const DltTensor *qkv_of(const DltNode *n)
{
    return n->kind == DLT_OP_attention_fwd ? n->in[0] : n->in[1];
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    const DltAttention *a = n->attr;
    const DltTensor *stats = n->kind == DLT_OP_attention_fwd ? n->out[1] : n->in[3];
    bool low = n->out[0]->dtype == DLT_BF16 && qkv_of(n)->dtype == DLT_BF16 &&
               n->in[0]->dtype == DLT_BF16 && stats->dtype == DLT_F32;
    if (n->kind == DLT_OP_attention_bwd) low = low && n->in[2]->dtype == DLT_BF16;
    if (low && dlt_amx_there() && a->drop.p <= 0 && a->head_dim <= D_MAX &&
        qkv_of(n)->shape.dim[1] <= T_MAX)
        return true;
    snprintf(why_not->text, sizeof why_not->text,
             "for bf16 without dropout, up to %d tokens, heads up to %d, with matrix tiles", T_MAX,
             D_MAX);
    return false;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    Scratch none;
    Attention x = attention_of(n, qkv_of(n));
    size_t bytes = lay_out(&x, NULL, n->kind == DLT_OP_attention_bwd, &none);
    p->work_bytes = bytes * (size_t)dlt_cpu_threads(dev);
    return DLT_OK;
}

const DltKernel dlt_low_attention_fwd = {"attention_fwd.cpu.amx", accepts, prepare, forward};
const DltKernel dlt_low_attention_bwd = {"attention_bwd.cpu.amx", accepts, prepare, backward};
