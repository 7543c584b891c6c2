/* matmul by the register tile: one task makes 16 columns of c. Its strip of b is packed (some hundred rows at a
 * time, which stay in the first-level cache), a is read where it lies, and the epilogue runs while the columns are
 * in the cache. The strips depend on the shape alone, so the bits do not depend on the threads. Goto & van de
 * Geijn 2008, without packing a: batches are too small to pay for it. */
#include "cpu/dnnl/product.h"

enum {
    COLS = DLT_TILE_COLS,
    DEPTH = 256, /* rows of a strip: 16 KiB */
    LEAST_ROWS = 16,
    LEAVE_ROWS = 128,
    LEAVE_WORK = 1 << 23, /* multiplications */
    SMALL_WORK = 1 << 19,
    LEAVE_NEAR = 1 << 18 /* elements of c that stay in the cache until an epilogue comes */
};

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    DltGemm g = dlt_matmul_gemm(n);
    if (dlt_dnnl_block() == 8 && g.m >= LEAST_ROWS) return dlt_fast_f32(n, why_not);
    snprintf(why_not->text, sizeof why_not->text, "for AVX2, from %d rows on", LEAST_ROWS);
    return false;
}

/* out[kc][16] = b[k..k+kc][col..col+n), zeros behind n. */
DLT_INLINE void pack(const DltProductTask *p, const float *b, int64_t k, int64_t kc, int64_t col,
                     int64_t n, float *out)
{
    if (n < COLS) memset(out, 0, (size_t)(kc * COLS) * sizeof *out);
    if (!p->attr->tb && n == COLS) {
        for (int64_t i = 0; i < kc; i++) {
            const DltV8 *from = (const DltV8 *)(b + (k + i) * p->g.n + col);
            DltV8 *to = (DltV8 *)(out + i * COLS);
            to[0] = from[0];
            to[1] = from[1];
        }
        return;
    }
    if (!p->attr->tb) {
        for (int64_t i = 0; i < kc; i++)
            memcpy(out + i * COLS, b + (k + i) * p->g.n + col, (size_t)n * sizeof *out);
        return;
    }
    const float *at = b + col * p->g.k + k;
    int64_t r = p->g.k;
    if (n < COLS) {
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < kc; i++)
                out[i * COLS + j] = at[j * r + i];
        return;
    }
    for (int64_t i = 0; i < kc; i++, at++) {
        *(DltV8 *)(out + i * COLS) =
            (DltV8){at[0], at[r], at[2 * r], at[3 * r], at[4 * r], at[5 * r], at[6 * r], at[7 * r]};
        const float *right = at + 8 * r;
        *(DltV8 *)(out + i * COLS + 8) =
            (DltV8){right[0],     right[r],     right[2 * r], right[3 * r],
                    right[4 * r], right[5 * r], right[6 * r], right[7 * r]};
    }
}

/* Bias and relu or its gradient of a whole strip. */
DLT_INLINE void simple_epilogue(const DltProductTask *p, int64_t offset, int64_t rows, int64_t col)
{
    DltV8 l = {0}, r = {0};
    bool relu = p->attr->ep.act.fn, masked = p->attr->ep.act_grad.fn;
    if (p->bias) l = *(const DltV8 *)(p->bias + col), r = *(const DltV8 *)(p->bias + col + 8);
    for (int64_t i = 0; i < rows; i++) {
        DltV8 *left = (DltV8 *)(p->c + offset + i * p->g.n), *right = left + 1;
        DltV8 x = *left + l, y = *right + r;
        if (relu) dlt_v8_relu(&x), dlt_v8_relu(&y);
        if (masked) {
            const DltV8 *s = (const DltV8 *)(p->saved + offset + i * p->g.n);
            x = (DltV8)((DltI8)x & (s[0] > 0.0F));
            y = (DltV8)((DltI8)y & (s[1] > 0.0F));
        }
        *left = x;
        *right = y;
    }
}

enum {
    PIECE = 512
}; /* numbers that go through an activation at once: what is stored meanwhile waits no longer */

/* n numbers, few: in vectors, because a call for each row takes longer than its copy. */
DLT_INLINE void copy_row(const float *from, const float *bias, int64_t n, float *to)
{
    int64_t j = 0;
    for (; j + 8 <= n; j += 8) {
        DltV8 v = *(const DltV8 *)(from + j);
        if (bias) v += *(const DltV8 *)(bias + j);
        *(DltV8 *)(to + j) = v;
    }
    for (; j < n; j++)
        to[j] = from[j] + (bias ? bias[j] : 0.0F);
}

/* x [rows][n] without gaps from (or to) rows `row` apart; a bias is added where there is one. */
DLT_CLONES static void gather(const float *from, const float *bias, int64_t row, int64_t rows,
                              int64_t n, float *x)
{
    for (int64_t i = 0; i < rows; i++)
        copy_row(from + i * row, bias, n, x + i * n);
}

DLT_CLONES static void scatter(const float *x, int64_t row, int64_t rows, int64_t n, float *to)
{
    for (int64_t i = 0; i < rows; i++)
        copy_row(x + i * n, NULL, n, to + i * row);
}

/* Asks for rows that no reader ahead finds: each lies on a page of its own. */
static void ask(const float *x, int64_t row, int64_t rows, int64_t n)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j += DLT_STRIP_LANES)
            __builtin_prefetch(x + i * row + j, 1);
}

/* The order of ops/matmul.h, some rows at a time, brought together so that the loops of an activation are long. */
static void any_epilogue(const DltProductTask *p, int64_t offset, int64_t rows, int64_t col,
                         int64_t n)
{
    float x[PIECE], saved[PIECE];
    const DltEpilogue *e = &p->attr->ep;
    const float *bias = p->bias ? p->bias + col : NULL, *from = e->act_grad.fn ? p->saved : NULL;
    float *pre = e->save_pre ? p->pre : NULL;
    int64_t step = PIECE / n, row = p->g.n;
    for (int64_t i = 0, m; i < rows; i += m, offset += m * row) {
        m = rows - i < step ? rows - i : step;
        int64_t next = offset + m * row, left = rows - i - m;
        if (from) ask(from + next, row, left < step ? left : step, n);
        if (pre) ask(pre + next, row, left < step ? left : step, n);
        gather(p->c + offset, bias, row, m, n, x);
        if (pre) scatter(x, row, m, n, pre + offset);
        if (e->act.fn) dlt_fast_flat(&(DltFlat){.fn = e->act, .x = x, .y = x}, 0, m * n);
        if (from) {
            gather(from + offset, NULL, row, m, n, saved);
            DltFlat grad = {.fn = e->act_grad, .x = x, .saved = saved, .y = x};
            dlt_fast_flat(&grad, 0, m * n);
        }
        scatter(x, row, m, n, p->c + offset);
    }
}

DLT_CLONES void dlt_product_epilogue(const DltProductTask *p, int64_t offset, int64_t rows,
                                     int64_t col, int64_t n)
{
    const DltEpilogue *e = &p->attr->ep;
    bool act = e->act.fn == DLT_FN_NONE || e->act.fn == DLT_FN_RELU;
    bool grad = e->act_grad.fn == DLT_FN_NONE || e->act_grad.fn == DLT_FN_RELU;
    if (!p->bias && !e->save_pre && !e->act.fn && !e->act_grad.fn) return;
    int64_t j = 0;
    for (; j + COLS <= n && act && grad && !e->save_pre; j += COLS)
        simple_epilogue(p, offset + j, rows, col + j);
    if (j < n) any_epilogue(p, offset + j, rows, col + j, n - j);
}

/* c (+)= a b of a strip narrower than the tile, through a copy of six rows. */
DLT_INLINE void edge(int64_t rows, DltTileA a, const float *b, int64_t kc, DltTileC to, int64_t n)
{
    float copy[DLT_TILE_ROWS * COLS] = {0};
    for (int64_t i = 0; i < rows; i += DLT_TILE_ROWS) {
        int64_t m = rows - i < DLT_TILE_ROWS ? rows - i : DLT_TILE_ROWS;
        DltTileA at = {a.a + i * a.row, a.row, a.step};
        dlt_tile_column(m, at, b, COLS, kc, (DltTileC){copy, COLS, false});
        for (int64_t r = 0; r < m; r++)
            for (int64_t j = 0; j < n; j++) {
                float *c = to.c + (i + r) * to.row + j;
                *c = (to.add ? *c : 0.0F) + copy[r * COLS + j];
            }
    }
}

/* Task t: strip t % strips of band t / strips % bands of matrix t / (strips bands). */
DLT_CLONES static void task(void *ctx, int64_t begin, int64_t end)
{
    _Alignas(64) float strip[DEPTH * COLS];
    const DltProductTask *p = ctx;
    const DltGemm *g = &p->g;
    for (int64_t t = begin; t < end; t++) {
        int64_t matrix = t / (p->strips * p->bands), band = t / p->strips % p->bands;
        int64_t row = band * g->m / p->bands, rows = (band + 1) * g->m / p->bands - row;
        int64_t col = t % p->strips * COLS, n = g->n - col < COLS ? g->n - col : COLS;
        int64_t offset = (matrix * g->m + row) * g->n + col;
        const float *a = p->a + matrix * g->m * g->k, *b = p->b + matrix * g->k * g->n;
        for (int64_t k = 0; k < g->k; k += DEPTH) {
            int64_t kc = g->k - k < DEPTH ? g->k - k : DEPTH;
            DltTileA at = p->attr->ta ? (DltTileA){a + k * g->m + row, 1, g->m}
                                      : (DltTileA){a + row * g->k + k, g->k, 1};
            pack(p, b, k, kc, col, n, strip);
            DltTileC to = {p->c + offset, g->n, k > 0};
            if (n == COLS)
                dlt_tile_column(rows, at, strip, COLS, kc, to);
            else
                edge(rows, at, strip, kc, to, n);
        }
        dlt_product_epilogue(p, offset, rows, col, n);
    }
}

bool dlt_product_leaves(const DltNode *n)
{
    const DltMatmul *a = n->attr;
    DltGemm g = dlt_matmul_gemm(n);
    bool plain = !a->ep.act.fn && !a->ep.act_grad.fn && !a->ep.save_pre;
    if (g.batch > 1 || g.m < LEAVE_ROWS || g.m * g.n * g.k < LEAVE_WORK) return false;
    return (a->ta || !a->tb) && (plain || g.m * g.n <= LEAVE_NEAR);
}

bool dlt_product_is_small(const DltGemm *g)
{
    return g->batch * g->m * g->n * g->k < SMALL_WORK;
}

DltProductTask dlt_product_of(const DltCall *c)
{
    return (DltProductTask){.attr = c->node->attr,
                            .g = dlt_matmul_gemm(c->node),
                            .a = c->in[0],
                            .b = c->in[1],
                            .bias = c->in[2],
                            .saved = c->in[3],
                            .c = c->out[0],
                            .pre = c->out[1]};
}

static DltStatus launch(const DltCall *c, DltErr *err)
{
    (void)err;
    DltProductTask p = dlt_product_of(c);
    p.strips = (p.g.n + COLS - 1) / COLS;
    /* few strips: rows in bands too, each of which packs for itself */
    p.bands = p.strips * p.g.batch >= 16 ? 1 : p.g.m >= 8 * LEAST_ROWS ? 8 : 2;
    dlt_pool_for(c->stream, p.g.batch * p.bands * p.strips, 1, task, &p);
    return DLT_OK;
}

const DltKernel dlt_fast_product = {"matmul.cpu.tile", accepts, NULL, launch};
