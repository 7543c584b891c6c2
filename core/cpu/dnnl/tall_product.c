/* matmul for AVX-512 where c has many rows: b is packed whole into strips first, then each task takes a band of rows and
 * packs its a, [block of some hundred terms][group of 8 rows][k][8], some blocks at a time, which stay in the
 * second-level cache while all strips of b go by, a block of which stays in the first-level cache. c's columns of a
 * strip meet all these blocks in a row, so that they go to memory seldom. Each sum runs over k in order, in blocks that
 * depend on k alone, so bands (which depend on the threads) change no bit. Goto & van de Geijn 2008. */
#include "cpu/dnnl/product.h"

enum {
    LANES = DLT_STRIP_LANES,
    ROWS = DLT_STRIP_ROWS,
    COLS = DLT_STRIP_VECTORS * LANES,
    DEPTH = 192, /* terms of a block: a strip of 36 KiB */
    BAND = 384,  /* rows of a task, most: a block of 288 KiB */
    STAY = 4,    /* blocks of a that stay: 1.1 MiB of 2 */
    LEAST_ROWS = 256,
    LEAST_COLS = 48,
    STRIP_GRAIN = 4
};

typedef struct Tall {
    DltProductTask p;
    int64_t blocks; /* of k */
    float *b;       /* [block][strip][terms][width] */
    float *a;       /* of each thread [STAY][BAND / 8][DEPTH][8] */
} Tall;

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    DltGemm g = dlt_matmul_gemm(n);
    if (dlt_dnnl_block() == 16 && !dlt_product_leaves(n) && g.batch == 1 && g.m >= LEAST_ROWS &&
        g.n >= LEAST_COLS)
        return dlt_fast_f32(n, why_not);
    snprintf(why_not->text, sizeof why_not->text,
             "for AVX-512, single products from %d rows and %d columns on, w turned or few numbers",
             LEAST_ROWS, LEAST_COLS);
    return false;
}

static int64_t up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static int64_t strip_begin(const Tall *t, int64_t strip)
{
    return up(t->p.g.n, LANES) / LANES * strip / t->p.strips * LANES;
}

static int64_t block_begin(const Tall *t, int64_t block)
{
    return block < t->blocks ? block * t->p.g.k / t->blocks / LANES * LANES : t->p.g.k;
}

/* Where strip `strip` of block `block` lies in the packed b. */
static float *strip_at(const Tall *t, int64_t block, int64_t strip)
{
    int64_t k = block_begin(t, block), kc = block_begin(t, block + 1) - k;
    return t->b + k * up(t->p.g.n, LANES) + kc * strip_begin(t, strip);
}

/* Strips [begin, end) of all blocks. */
static void pack_b_task(void *ctx, int64_t begin, int64_t end)
{
    const Tall *t = ctx;
    const DltGemm *g = &t->p.g;
    bool turned = t->p.attr->tb;
    for (int64_t i = begin; i < end; i++) {
        int64_t block = i / t->p.strips, strip = i % t->p.strips, col = strip_begin(t, strip);
        int64_t to = strip_begin(t, strip + 1), k = block_begin(t, block);
        DltStrip s = {.b = t->p.b,
                      .k = k,
                      .kc = block_begin(t, block + 1) - k,
                      .col = col,
                      .n = (to < g->n ? to : g->n) - col,
                      .width = to - col,
                      .out = strip_at(t, block, strip)};
        dlt_strip_pack(&s, turned ? g->k : g->n, turned);
    }
}

/* 16 rows by 16 terms of a, rows `row` apart, into two groups `group` apart. */
DLT_INLINE void turn_rows(const float *a, int64_t row, float *out, int64_t group)
{
    DltU16 x[16], y[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        x[i] = *(const DltU16 *)(const void *)(a + i * row);
    dlt_u16_turn(x, y);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        *(DltU8 *)(void *)(out + i * ROWS) = DLT_MIX(y[i], y[i], 0, 1, 2, 3, 4, 5, 6, 7);
        *(DltU8 *)(void *)(out + group + i * ROWS) =
            DLT_MIX(y[i], y[i], 8, 9, 10, 11, 12, 13, 14, 15);
    }
}

/* out[group][kc][8] = a's rows [row, row + rows), terms [k, k + kc); rows that are missing in the last group are left. */
DLT_CLONES static void pack_a(const DltProductTask *p, int64_t row, int64_t rows, int64_t k,
                              int64_t kc, float *out)
{
    const DltGemm *g = &p->g;
    int64_t group = ROWS * kc, whole = rows / ROWS * ROWS, r = 0, fast = 0;
    if (p->attr->ta) {
        for (int64_t i = 0; i < kc; i++) {
            const float *from = p->a + (k + i) * g->m + row;
            for (r = 0; r < whole; r += ROWS)
                *(DltV8 *)(out + r * kc + i * ROWS) = *(const DltV8 *)(from + r);
        }
    } else {
        fast = kc / 16 * 16;
        for (; r + 16 <= rows; r += 16) {
            const float *from = p->a + (row + r) * g->k + k;
            for (int64_t i = 0; i < fast; i += 16)
                turn_rows(from + i, g->k, out + r * kc + i * ROWS, group);
            for (int64_t i = fast; i < kc; i++)
                for (int64_t j = 0; j < 16; j++)
                    out[(r + j) / ROWS * group + i * ROWS + j % ROWS] = from[j * g->k + i];
        }
    }
    int64_t across = p->attr->ta ? 1 : g->k, along = p->attr->ta ? g->m : 1;
    for (; r < rows; r++)
        for (int64_t i = 0; i < kc; i++)
            out[r / ROWS * group + i * ROWS + r % ROWS] =
                p->a[(row + r) * across + (k + i) * along];
}

/* Where block `block` of the packed a lies. */
static float *block_at(float *a, int64_t block)
{
    return a + block % STAY * BAND * DEPTH;
}

/* Rows [row, row + rows) and strip s of c: the terms of blocks [from, to). */
static void strip(const Tall *t, int64_t row, int64_t rows, int64_t s, int64_t from, int64_t to,
                  float *a)
{
    const DltGemm *g = &t->p.g;
    int64_t col = strip_begin(t, s), end = strip_begin(t, s + 1);
    int64_t n = (end < g->n ? end : g->n) - col, offset = row * g->n + col;
    for (int64_t i = from; i < to; i++) {
        int64_t kc = block_begin(t, i + 1) - block_begin(t, i);
        DltColumn c = {.a = {block_at(a, i), 1, ROWS},
                       .b = strip_at(t, i, s),
                       .rows = rows,
                       .kc = kc,
                       .n = n,
                       .ldc = g->n,
                       .group = ROWS * kc,
                       .c = t->p.c + offset,
                       .add = i > 0};
        dlt_strip_columns(&c, end - col);
    }
    if (to == t->blocks) dlt_product_epilogue(&t->p, offset, rows, col, n);
}

/* Rows [row, row + rows) of c. */
static void band(const Tall *t, int64_t row, int64_t rows, float *a)
{
    for (int64_t from = 0, to; from < t->blocks; from = to) {
        to = from + STAY < t->blocks ? from + STAY : t->blocks;
        for (int64_t i = from; i < to; i++)
            pack_a(&t->p, row, rows, block_begin(t, i), block_begin(t, i + 1) - block_begin(t, i),
                   block_at(a, i));
        for (int64_t s = 0; s < t->p.strips; s++)
            strip(t, row, rows, s, from, to, a);
    }
}

static void task(void *ctx, int64_t begin, int64_t end)
{
    const Tall *t = ctx;
    int64_t groups = up(t->p.g.m, ROWS) / ROWS;
    float *a = t->a + dlt_fast_worker() * (int64_t)STAY * BAND * DEPTH;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i * groups / t->p.bands * ROWS, to = (i + 1) * groups / t->p.bands * ROWS;
        band(t, row, (to < t->p.g.m ? to : t->p.g.m) - row, a);
    }
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    DltGemm g = dlt_matmul_gemm(n);
    int64_t a = (int64_t)dlt_cpu_threads(dev) * STAY * BAND * DEPTH;
    p->work_bytes = (size_t)(g.k * up(g.n, LANES) + a) * sizeof(float);
    return DLT_OK;
}

static DltStatus launch(const DltCall *c, DltErr *err)
{
    (void)err;
    Tall t = {.p = dlt_product_of(c)};
    const DltGemm *g = &t.p.g;
    int64_t threads = dlt_pool_threads(c->stream), bands = up(g->m, BAND) / BAND;
    t.p.strips = up(g->n, COLS) / COLS;
    t.p.bands = up(bands, threads); /* equal work for all */
    t.blocks = up(g->k, DEPTH) / DEPTH;
    t.b = c->work;
    t.a = t.b + g->k * up(g->n, LANES);
    dlt_pool_for(c->stream, t.blocks * t.p.strips, STRIP_GRAIN, pack_b_task, &t);
    dlt_pool_for(c->stream, t.p.bands, 1, task, &t);
    return DLT_OK;
}

const DltKernel dlt_tall_product = {"matmul.cpu.tall", accepts, prepare, launch};
