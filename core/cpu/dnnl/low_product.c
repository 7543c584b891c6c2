/* matmul of bf16 operands on matrix tiles: both operands are packed into tiles (A only where its rows don't fit), then
 * each task makes columns of c, 32 at a time, over a band of rows, with the whole sum over k in the tiles and the
 * epilogue on 32 x 32 sums in the first-level cache. Tasks depend on the shape alone.
 *   c = epilogue(op(a) op(b)) of ops/matmul.h; a, b bf16, everything else f32 or bf16, sums in f32 */
#include "base/half.h"
#include "cpu/dnnl/amx.h"

enum {
    SIDE = DLT_AMX_BLOCK,
    UNIT = 2 * DLT_AMX_TILE, /* packed: two tiles, 32 rows or columns of 32 terms */
    PACK_GRAIN = 32,         /* units of a packing task: 64 KiB */
    BAND = 8                 /* blocks of rows in a task */
};

/* Values in the graph, f32 or bf16. */
typedef struct Values {
    void *at; /* NULL: none */
    bool low;
} Values;

typedef struct Product {
    const DltMatmul *attr;
    DltGemm g;
    const uint16_t *a, *b;
    uint16_t *a_tiles,
        *b_tiles; /* [block of 32][step][2 tiles]; a_tiles NULL: a is read where it lies */
    Values bias, saved, c, pre;
    int64_t steps, m_blocks, n_blocks;
} Product;

static bool packs_a(const DltNode *n, const DltGemm *g)
{
    const DltMatmul *m = n->attr;
    return m->ta || g->k % DLT_AMX_DEPTH != 0 || g->m % DLT_AMX_ROWS != 0;
}

static int64_t blocks(int64_t n, int64_t side)
{
    return (n + side - 1) / side;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    bool low = n->in[0]->dtype == DLT_BF16 && n->in[1]->dtype == DLT_BF16;
    for (int i = 2; i < DLT_MAX_IN + DLT_MAX_OUT; i++) {
        const DltTensor *t = i < DLT_MAX_IN ? n->in[i] : n->out[i - DLT_MAX_IN];
        low = low && (!t || t->dtype == DLT_BF16 || t->dtype == DLT_F32);
    }
    if (low && dlt_matmul_gemm(n).batch == 1 && dlt_amx_there()) return true;
    snprintf(why_not->text, sizeof why_not->text,
             "only for single products of bf16, on processors with matrix tiles");
    return false;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    DltGemm g = dlt_matmul_gemm(n);
    int64_t units = blocks(g.n, SIDE) + (packs_a(n, &g) ? blocks(g.m, SIDE) : 0);
    p->work_bytes = (size_t)(units * blocks(g.k, DLT_AMX_DEPTH) * UNIT) * sizeof(uint16_t);
    return DLT_OK;
}

/* Unit [block][step] of an operand whose 32 rows (of A) or columns (of B) are `across` a matrix [rest][..]. */
static void pack_unit(const Product *p, bool is_a, int64_t unit)
{
    int64_t side = unit / p->steps * SIDE, k = unit % p->steps * DLT_AMX_DEPTH;
    int64_t size = is_a ? p->g.m : p->g.n, left = p->g.k - k;
    bool turned = is_a ? p->attr->ta : !p->attr->tb; /* k runs over rows of the matrix in memory */
    const uint16_t *x = is_a ? p->a : p->b;
    uint16_t *out = (is_a ? p->a_tiles : p->b_tiles) + unit * UNIT;
    for (int half = 0; half < 2; half++, out += DLT_AMX_TILE) {
        int64_t at = side + half * DLT_AMX_ROWS, there = at < size ? size - at : 0;
        if (at >= size) at = 0; /* a tile of zeros */
        if (turned)
            dlt_amx_pack(is_a ? DLT_AMX_A_TURN : DLT_AMX_B, x + k * size + at, size, left, there,
                         out);
        else
            dlt_amx_pack(is_a ? DLT_AMX_A : DLT_AMX_B_TURN, x + at * p->g.k + k, p->g.k, there,
                         left, out);
    }
}

static void pack_task(void *ctx, int64_t begin, int64_t end)
{
    const Product *p = ctx;
    int64_t of_b = p->n_blocks * p->steps;
    for (int64_t u = begin; u < end; u++)
        pack_unit(p, u >= of_b, u >= of_b ? u - of_b : u);
}

/* ---- epilogue ---- */

/* n <= 32 values from i on, as f32, zeros behind them. */
DLT_INLINE void read_row(const Values *v, int64_t i, int64_t n, float *out)
{
    DltV8 x;
    if (n == SIDE) {
        for (int j = 0; j < SIDE; j += 8) {
            dlt_v8_load(v->at, i + j, v->low, &x);
            *(DltV8 *)(out + j) = x;
        }
        return;
    }
    for (int64_t j = 0; j < SIDE; j++)
        out[j] = j >= n   ? 0.0F
                 : v->low ? dlt_bf16_to(((const uint16_t *)v->at)[i + j])
                          : ((const float *)v->at)[i + j];
}

DLT_INLINE void write_row(const Values *v, int64_t i, int64_t n, const float *x)
{
    if (n == SIDE) {
        for (int j = 0; j < SIDE; j += 8)
            dlt_v8_store(v->at, i + j, v->low, (const DltV8 *)(x + j));
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        if (v->low)
            ((uint16_t *)v->at)[i + j] = dlt_bf16_from(x[j]);
        else
            ((float *)v->at)[i + j] = x[j];
    }
}

/* A block of sums: where it lies in c, and how much of it is there. */
typedef struct Piece {
    int64_t row, col, rows, cols;
} Piece;

static int64_t place(const Product *p, const Piece *at, int64_t row)
{
    return (at->row + row) * p->g.n + at->col;
}

DLT_CLONES static void read_rows(const Product *p, const Values *v, const Piece *at, float *x)
{
    if (v->low)
        for (int64_t r = 0; r < at->rows; r++)
            read_row(&(Values){v->at, true}, place(p, at, r), at->cols, x + r * SIDE);
    else
        for (int64_t r = 0; r < at->rows; r++)
            read_row(&(Values){v->at, false}, place(p, at, r), at->cols, x + r * SIDE);
}

DLT_CLONES static void write_rows(const Product *p, const Values *v, const Piece *at,
                                  const float *x)
{
    if (v->low)
        for (int64_t r = 0; r < at->rows; r++)
            write_row(&(Values){v->at, true}, place(p, at, r), at->cols, x + r * SIDE);
    else
        for (int64_t r = 0; r < at->rows; r++)
            write_row(&(Values){v->at, false}, place(p, at, r), at->cols, x + r * SIDE);
}

DLT_CLONES static void add_bias(const Values *bias, const Piece *at, float *c)
{
    float b[SIDE];
    read_row(bias, at->col, at->cols, b);
    for (int64_t i = 0; i < at->rows; i++)
        for (int j = 0; j < SIDE; j++)
            c[i * SIDE + j] += b[j];
}

static void finish(const Product *p, const Piece *at, float *c)
{
    _Alignas(64) float saved[DLT_AMX_SUMS];
    const DltEpilogue *e = &p->attr->ep;
    int64_t n = at->rows * SIDE;
    if (p->bias.at) add_bias(&p->bias, at, c);
    if (e->save_pre) write_rows(p, &p->pre, at, c);
    if (e->act.fn) dlt_fast_act(&(DltFlat){.fn = e->act, .x = c, .y = c}, 0, n);
    if (e->act_grad.fn) {
        read_rows(p, &p->saved, at, saved);
        dlt_fast_act_grad(&(DltFlat){.fn = e->act_grad, .x = c, .saved = saved, .y = c}, 0, n);
    }
    write_rows(p, &p->c, at, c);
}

/* ---- products ---- */

static void block(const Product *p, int64_t i, int64_t j)
{
    _Alignas(64) float sums[DLT_AMX_SUMS];
    int64_t unit = UNIT * (int64_t)sizeof(uint16_t), row_bytes = p->g.k * (int64_t)sizeof(uint16_t);
    Piece at = {i * SIDE, j * SIDE, p->g.m - i * SIDE, p->g.n - j * SIDE};
    if (at.rows > SIDE) at.rows = SIDE;
    if (at.cols > SIDE) at.cols = SIDE;
    DltAmxBlock k = {.a = p->a_tiles ? p->a_tiles + i * p->steps * UNIT : p->a + at.row * p->g.k,
                     .b = p->b_tiles + j * p->steps * UNIT,
                     .a_row = p->a_tiles ? 64 : row_bytes,
                     .a_step = p->a_tiles ? unit : 64,
                     .a_half = p->a_tiles ? unit / 2 : DLT_AMX_ROWS * row_bytes,
                     .b_row = 64,
                     .b_step = unit,
                     .b_half = unit / 2,
                     .steps = p->steps,
                     .m_tiles = at.rows > DLT_AMX_ROWS ? 2 : 1,
                     .n_tiles = at.cols > DLT_AMX_ROWS ? 2 : 1};
    const DltEpilogue *e = &p->attr->ep;
    bool whole = at.rows % DLT_AMX_ROWS == 0 && at.cols % DLT_AMX_ROWS == 0 && !p->c.low &&
                 !p->bias.at && !e->save_pre && !e->act.fn && !e->act_grad.fn;
    if (whole) {
        dlt_amx_block(&k, (float *)p->c.at + place(p, &at, 0), p->g.n, false);
        return;
    }
    dlt_amx_block(&k, sums, SIDE, false);
    finish(p, &at, sums);
}

/* Task t: columns t % n_blocks of band t / n_blocks of rows. */
static void task(void *ctx, int64_t begin, int64_t end)
{
    const Product *p = ctx;
    dlt_amx_begin();
    for (int64_t t = begin; t < end; t++) {
        int64_t first = t / p->n_blocks * BAND, last = first + BAND;
        for (int64_t i = first; i < last && i < p->m_blocks; i++)
            block(p, i, t % p->n_blocks);
    }
    dlt_amx_end();
}

static DltStatus launch(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltNode *n = c->node;
    Product p = {.attr = n->attr, .g = dlt_matmul_gemm(n), .a = c->in[0], .b = c->in[1]};
    p.bias = (Values){c->in[2], n->in[2] && n->in[2]->dtype == DLT_BF16};
    p.saved = (Values){c->in[3], n->in[3] && n->in[3]->dtype == DLT_BF16};
    p.c = (Values){c->out[0], n->out[0]->dtype == DLT_BF16};
    p.pre = (Values){c->out[1], n->out[1] && n->out[1]->dtype == DLT_BF16};
    p.steps = blocks(p.g.k, DLT_AMX_DEPTH);
    p.m_blocks = blocks(p.g.m, SIDE);
    p.n_blocks = blocks(p.g.n, SIDE);
    p.b_tiles = c->work;
    if (packs_a(n, &p.g)) p.a_tiles = p.b_tiles + p.n_blocks * p.steps * UNIT;
    int64_t units = (p.n_blocks + (p.a_tiles ? p.m_blocks : 0)) * p.steps;
    dlt_pool_for(c->stream, units, PACK_GRAIN, pack_task, &p);
    dlt_pool_for(c->stream, blocks(p.m_blocks, BAND) * p.n_blocks, 1, task, &p);
    return DLT_OK;
}

const DltKernel dlt_low_tile_matmul = {"matmul.cpu.amx", accepts, prepare, launch};
