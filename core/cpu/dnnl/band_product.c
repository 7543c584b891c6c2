/* Weight gradients of bf16 on matrix tiles, large ones: c = a^T b, sums over many rows. The smaller operand is packed whole;
 * each task packs a band of the other, some hundred terms at a time, which stay in the second-level cache while the
 * columns of the smaller one go by, a chunk of which stays in the first-level cache. (matmul.cpu.amx packs both operands
 * whole, through memory.) c is made turned where b is the larger. Sums run over k in order, in stays that depend on k
 * alone, so threads change no bit. Goto & van de Geijn 2008.
 *   c = epilogue(a^T op(b)) of ops/matmul.h; a, b bf16, c f32, everything else f32 or bf16 */
#include "cpu/dnnl/operand.h"
#include "cpu/dnnl/product.h"
#include "cpu/dnnl/sums.h"

enum {
    SIDE = DLT_AMX_BLOCK,
    UNIT = DLT_OPERAND_UNIT,
    CHUNK = 16, /* steps: 32 KiB of B's 32 columns */
    STAY = 48,  /* steps of a band that stay, in whole chunks: 768 KiB of 2 MiB */
    BAND = 8,   /* blocks of rows in a task, most */
    BAND_TILES = BAND * STAY * UNIT,
    PACK_GRAIN = 16,
    AHEAD = 2, /* units that packing asks for beforehand */
    LINE = 32, /* elements of a cache line */
    LEAST_SIDE = 24,
    LEAST_TERMS = 1024,
    LEAST_WORK = 1 << 25 /* multiplications */
};

typedef struct Product {
    DltOperand a, b; /* A and B of the tile products */
    bool turned;     /* A is the node's b, and sums are those of c turned */
    int64_t steps, bands;
    DltSums end;
    uint16_t *b_tiles; /* [block][step] */
    uint16_t *a_tiles; /* of each thread [BAND][STAY] */
    float *sums;       /* of each thread [BAND][32][32] */
} Product;

static int64_t up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit;
}

/* c holds the sums between two stays and must not round them. */
static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_low_tile_matmul.accepts(n, dev, why_not)) return false;
    DltGemm g = dlt_matmul_gemm(n);
    bool large = g.m >= LEAST_SIDE && g.n >= LEAST_SIDE && g.m * g.n * g.k >= LEAST_WORK;
    bool deep = ((const DltMatmul *)n->attr)->ta && g.k >= LEAST_TERMS;
    if (large && deep && n->out[0]->dtype == DLT_F32) return true;
    snprintf(why_not->text, sizeof why_not->text, "for large sums over %d rows or more, c in f32",
             LEAST_TERMS);
    return false;
}

static Product product_of(const DltNode *n)
{
    const DltMatmul *m = n->attr;
    DltGemm g = dlt_matmul_gemm(n);
    DltOperand a = {.row = g.m, .size = g.m, .k = g.k};
    DltOperand b = {.row = m->tb ? g.k : g.n, .size = g.n, .k = g.k, .along = m->tb};
    bool turned = g.n > g.m;
    Product p = {.a = turned ? b : a, .b = turned ? a : b, .turned = turned};
    p.a.is_a = true;
    p.steps = up(g.k, DLT_AMX_DEPTH);
    return p;
}

static int64_t b_units(const Product *p)
{
    return up(p->b.size, SIDE) * p->steps;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    Product q = product_of(n);
    size_t of_thread = BAND_TILES * sizeof(uint16_t) + BAND * DLT_AMX_SUMS * sizeof(float);
    p->work_bytes =
        (size_t)(b_units(&q) * UNIT) * sizeof(uint16_t) + (size_t)dlt_cpu_threads(dev) * of_thread;
    return DLT_OK;
}

/* ---- packing, in the order in which units lie in memory ---- */

typedef struct Place {
    int64_t block, step;
} Place;

/* Unit i of blocks * steps. */
static Place place_of(const DltOperand *o, int64_t i, int64_t blocks, int64_t steps)
{
    return o->along ? (Place){i / steps, i % steps} : (Place){i % blocks, i / blocks};
}

/* Units [begin, end) of B. */
static void pack_b_task(void *ctx, int64_t begin, int64_t end)
{
    const Product *p = ctx;
    int64_t blocks = up(p->b.size, SIDE);
    for (int64_t i = begin; i < end; i++) {
        Place at = place_of(&p->b, i, blocks, p->steps);
        Place next = place_of(&p->b, i + AHEAD, blocks, p->steps);
        dlt_operand_ask(&p->b, next.block * SIDE, next.step * DLT_AMX_DEPTH);
        dlt_operand_pack(&p->b, at.block * SIDE, at.step * DLT_AMX_DEPTH,
                         p->b_tiles + (at.block * p->steps + at.step) * UNIT);
    }
}

/* A thread's share of the scratch, and the band and steps it works at. */
typedef struct Work {
    uint16_t *a;
    float *sums;
    int64_t row, rows, from, to; /* blocks, steps */
} Work;

static void pack_band(const Product *p, const Work *w)
{
    int64_t steps = w->to - w->from;
    for (int64_t i = 0; i < w->rows * steps; i++) {
        Place at = place_of(&p->a, i, w->rows, steps);
        Place next = place_of(&p->a, i + AHEAD, w->rows, steps);
        dlt_operand_ask(&p->a, (w->row + next.block) * SIDE, (w->from + next.step) * DLT_AMX_DEPTH);
        dlt_operand_pack(&p->a, (w->row + at.block) * SIDE, (w->from + at.step) * DLT_AMX_DEPTH,
                         w->a + (at.block * STAY + at.step) * UNIT);
    }
}

/* ---- products ---- */

/* Asks the second-level cache for part i of n of the elements [x, end): it takes as long to fetch a chunk of B from the
 * third-level cache as to multiply by it. */
static void ask_part(const uint16_t *x, const uint16_t *end, int64_t i, int64_t n)
{
    int64_t lines = (end - x) / LINE;
    for (int64_t at = lines * i / n; at < lines * (i + 1) / n; at++)
        __builtin_prefetch(x + at * LINE, 0, 2);
}

/* sums (+)= A B over `steps`, both packed. */
static void block(const uint16_t *a, const uint16_t *b, int64_t steps, float *sums, bool add)
{
    DltAmxBlock k = dlt_amx_packed(a, b, steps);
    dlt_amx_block(&k, sums, SIDE, add);
}

/* The band's sums of block column j over the steps that stay, added to what c holds behind the first ones. */
static void column(const Product *p, const Work *w, int64_t j)
{
    const uint16_t *b = p->b_tiles + j * p->steps * UNIT, *all = p->b_tiles + b_units(p) * UNIT;
    for (int64_t k = w->from, to; k < w->to; k = to) {
        to = k + CHUNK < w->to ? k + CHUNK : w->to;
        /* the next chunk of the column, or the first one of the next column */
        const uint16_t *next = b + (to < w->to ? to : p->steps + w->from) * UNIT;
        const uint16_t *end = next + (to < w->to ? w->to - to : CHUNK) * UNIT;
        if (end > next + CHUNK * UNIT) end = next + CHUNK * UNIT;
        for (int64_t i = 0; i < w->rows; i++) {
            if (end <= all) ask_part(next, end, i, w->rows);
            block(w->a + (i * STAY + k - w->from) * UNIT, b + k * UNIT, to - k,
                  w->sums + i * DLT_AMX_SUMS, k > w->from);
        }
    }
    DltSums last = p->end, middle = {.n = last.n, .turned = last.turned, .c = last.c};
    DltSums s = w->to < p->steps ? middle : last;
    s.add = w->from > 0;
    for (int64_t i = 0; i < w->rows; i++) {
        DltPiece at = dlt_sums_piece(w->row + i, j, p->a.size, p->b.size);
        dlt_sums_end(&s, &at, w->sums + i * DLT_AMX_SUMS);
    }
}

static void task(void *ctx, int64_t begin, int64_t end)
{
    const Product *p = ctx;
    int64_t blocks = up(p->a.size, SIDE), columns = up(p->b.size, SIDE);
    Work w = {.a = p->a_tiles + dlt_fast_worker() * BAND_TILES,
              .sums = p->sums + dlt_fast_worker() * BAND * DLT_AMX_SUMS};
    dlt_amx_begin();
    for (int64_t i = begin; i < end; i++) {
        w.row = i * blocks / p->bands;
        w.rows = (i + 1) * blocks / p->bands - w.row;
        for (w.from = 0; w.from < p->steps; w.from = w.to) {
            w.to = w.from + STAY < p->steps ? w.from + STAY : p->steps;
            pack_band(p, &w);
            for (int64_t j = 0; j < columns; j++)
                column(p, &w, j);
        }
    }
    dlt_amx_end();
}

static DltStatus launch(const DltCall *c, DltErr *err)
{
    (void)err;
    Product p = product_of(c->node);
    int64_t threads = dlt_pool_threads(c->stream), blocks = up(p.a.size, SIDE);
    p.a.x = c->in[p.turned], p.b.x = c->in[!p.turned];
    p.end = dlt_sums_of(c, p.turned);
    p.bands = up(up(blocks, BAND), threads) * threads; /* equal work for all */
    if (p.bands > blocks) p.bands = blocks;
    p.b_tiles = c->work;
    p.a_tiles = p.b_tiles + b_units(&p) * UNIT;
    p.sums = (float *)(void *)(p.a_tiles + threads * BAND_TILES);
    dlt_pool_for(c->stream, b_units(&p), PACK_GRAIN, pack_b_task, &p);
    dlt_pool_for(c->stream, p.bands, 1, task, &p);
    return DLT_OK;
}

const DltKernel dlt_band_product = {"matmul.cpu.amx_bands", accepts, prepare, launch};
