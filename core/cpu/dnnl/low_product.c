/* matmul of bf16 operands on matrix tiles: both operands are packed into tiles (A only where its rows don't fit), then
 * each task makes some columns of c, 32 at a time, over a band of rows. Where b's rows are many and fit as they lie, c is
 * made turned, b being A and a being B, so that the smaller operand is packed. Long sums are cut into chunks, so that a chunk
 * of b stays in the first-level cache and the band's chunk of a in the second while the columns go by; the epilogue
 * works on 32 x 32 sums. Chunks depend on k alone, so threads change nothing.
 *   c = epilogue(op(a) op(b)) of ops/matmul.h; a, b bf16, everything else f32 or bf16, sums in f32 */
#include "cpu/dnnl/operand.h"
#include "cpu/dnnl/product.h"
#include "cpu/dnnl/sums.h"

enum {
    SIDE = DLT_AMX_BLOCK,
    UNIT = 2 * DLT_AMX_TILE, /* packed: two tiles, 32 rows or columns of 32 terms */
    PACK_GRAIN = 32,         /* units of a packing task: 64 KiB */
    BAND = 8,                /* blocks of rows in a task */
    CHUNK = 16,              /* steps: 32 KiB of b's 32 columns */
    MAX_GROUP = 4,           /* block columns of a task whose sums are cut, */
    NEAR_GROUP = 8,          /* and of one that makes 512 bytes of a row of c, bf16, together, */
    FAR = 1 << 20            /* where c, of so many elements, leaves the caches */
};

/* A or B of the tile products: its rows (A) or columns (B), and how they lie in memory. */
typedef struct Operand {
    const uint16_t *x;
    int64_t size, blocks; /* rows or columns, and in 32s */
    bool along;           /* terms are neighbours in memory */
    bool packed;
    uint16_t *tiles; /* [block][step][2 tiles], where it is packed */
} Operand;

typedef struct Product {
    const DltMatmul *attr;
    DltGemm g;
    Operand a, b;
    bool turned; /* A is the node's b, and sums are those of c turned */
    DltSums end;
    int64_t steps;
    int64_t chunks, group; /* of steps; block columns of a task */
    float *sums;           /* of each thread [group][BAND][32][32] */
} Product;

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

static Operand operand_of(int64_t size, int64_t k, bool along, bool is_a)
{
    bool fits = along && k % 2 == 0 && k >= DLT_AMX_DEPTH && size % DLT_AMX_ROWS == 0;
    return (Operand){
        .size = size, .blocks = blocks(size, SIDE), .along = along, .packed = !is_a || !fits};
}

static Product product_of(const DltNode *n)
{
    const DltMatmul *m = n->attr;
    Product p = {.attr = m, .g = dlt_matmul_gemm(n)};
    p.steps = blocks(p.g.k, DLT_AMX_DEPTH);
    p.chunks = blocks(p.steps, CHUNK);
    p.a = operand_of(p.g.n, p.g.k, m->tb, true);
    p.b = operand_of(p.g.m, p.g.k, !m->ta, false);
    p.turned = !p.a.packed && p.g.m < p.g.n;
    if (p.turned) return p;
    p.a = operand_of(p.g.m, p.g.k, !m->ta, true);
    p.b = operand_of(p.g.n, p.g.k, m->tb, false);
    return p;
}

static int64_t units(const Product *p, const Operand *o)
{
    return o->packed ? o->blocks * p->steps : 0;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    Product q = product_of(n);
    size_t sums = MAX_GROUP * BAND * DLT_AMX_SUMS * sizeof(float);
    p->work_bytes = (size_t)((units(&q, &q.a) + units(&q, &q.b)) * UNIT) * sizeof(uint16_t) +
                    (size_t)dlt_cpu_threads(dev) * sums;
    return DLT_OK;
}

/* Terms of the last step that were in the one before already: A as it lies ends where its last step ends. */
static int64_t overlap(const Product *p)
{
    return p->a.packed ? 0 : p->steps * DLT_AMX_DEPTH - p->g.k;
}

/* Units [begin, end) of an operand, 32 rows or columns by 32 terms each; they are taken as they lie in memory. */
static void pack_units(const Product *p, const Operand *o, bool is_a, int64_t begin, int64_t end)
{
    DltOperand from = {.x = o->x,
                       .row = o->along ? p->g.k : o->size,
                       .size = o->size,
                       .k = p->g.k,
                       .along = o->along,
                       .is_a = is_a};
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t block = o->along ? unit / p->steps : unit % o->blocks;
        int64_t step = o->along ? unit % p->steps : unit / o->blocks;
        int64_t twice = step + 1 == p->steps ? overlap(p) : 0;
        uint16_t *out = o->tiles + (block * p->steps + step) * UNIT;
        dlt_operand_pack(&from, block * SIDE, step * DLT_AMX_DEPTH - twice, out);
        for (int half = 0; half < 2; half++, out += DLT_AMX_TILE)
            memset(out, 0, (size_t)(twice * DLT_AMX_ROWS) * sizeof *out);
    }
}

/* Units [begin, end) of B, then those of A. */
static void pack_task(void *ctx, int64_t begin, int64_t end)
{
    const Product *p = ctx;
    int64_t of_b = units(p, &p->b);
    pack_units(p, &p->b, false, begin, end < of_b ? end : of_b);
    pack_units(p, &p->a, true, begin < of_b ? 0 : begin - of_b, end - of_b);
}

/* ---- products ---- */

/* A chunk of block (i, j), whose sums are gathered in `sums` where they don't go to c. */
static void block(const Product *p, int64_t i, int64_t j, int64_t chunk, float *sums)
{
    int64_t unit = UNIT * (int64_t)sizeof(uint16_t), row_bytes = p->g.k * (int64_t)sizeof(uint16_t);
    int64_t step = chunk * p->steps / p->chunks, end = (chunk + 1) * p->steps / p->chunks;
    DltPiece at = dlt_sums_piece(i, j, p->a.size, p->b.size);
    bool packed = p->a.packed;
    DltAmxBlock k = {.a = packed ? p->a.tiles + (i * p->steps + step) * UNIT
                                 : p->a.x + at.row * p->g.k + step * DLT_AMX_DEPTH,
                     .b = p->b.tiles + (j * p->steps + step) * UNIT,
                     .a_row = packed ? 64 : row_bytes,
                     .a_step = packed ? unit : 64,
                     .a_half = packed ? unit / 2 : DLT_AMX_ROWS * row_bytes,
                     .b_row = 64,
                     .b_step = unit,
                     .b_half = unit / 2,
                     .steps = end - step,
                     .a_back = end == p->steps ? overlap(p) * 2 : 0,
                     .m_tiles = at.rows > DLT_AMX_ROWS ? 2 : 1,
                     .n_tiles = at.cols > DLT_AMX_ROWS ? 2 : 1};
    if (dlt_sums_are_direct(&p->end, &at)) {
        dlt_amx_block(&k, (float *)p->end.c.at + dlt_sums_place(&p->end, &at), p->g.n, chunk > 0);
        return;
    }
    dlt_amx_block(&k, sums, SIDE, chunk > 0);
    if (chunk + 1 == p->chunks) dlt_sums_end(&p->end, &at, sums);
}

/* Task t: group t % groups of block columns of band t / groups of rows. */
static void one_task(const Product *p, int64_t t, float *sums)
{
    int64_t groups = blocks(p->b.blocks, p->group), row = t / groups * BAND;
    int64_t col = t % groups * p->group, rows = p->a.blocks - row, cols = p->b.blocks - col;
    if (rows > BAND) rows = BAND;
    if (cols > p->group) cols = p->group;
    for (int64_t i = 0; i < rows && p->chunks == 1; i++)
        for (int64_t j = 0; j < cols; j++)
            block(p, row + i, col + j, 0, sums);
    for (int64_t chunk = 0; chunk < p->chunks && p->chunks > 1; chunk++)
        for (int64_t j = 0; j < cols; j++)
            for (int64_t i = 0; i < rows; i++)
                block(p, row + i, col + j, chunk, sums + (j * BAND + i) * DLT_AMX_SUMS);
}

static void task(void *ctx, int64_t begin, int64_t end)
{
    const Product *p = ctx;
    float *sums = p->sums + dlt_fast_worker() * MAX_GROUP * BAND * DLT_AMX_SUMS;
    dlt_amx_begin();
    for (int64_t t = begin; t < end; t++)
        one_task(p, t, sums);
    dlt_amx_end();
}

/* Columns of one task use the band's chunk of a together, or lie together, as far as there is work for all threads. */
static int64_t group_of(const Product *p, int64_t threads)
{
    bool far = p->end.c.low && p->g.m * p->g.n >= FAR;
    int64_t group = p->chunks > 1 ? MAX_GROUP : far ? NEAR_GROUP : 1;
    int64_t bands = blocks(p->a.blocks, BAND);
    while (group > 1 && bands * blocks(p->b.blocks, group) < 2 * threads)
        group /= 2;
    return group;
}

static DltStatus launch(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltNode *n = c->node;
    Product p = product_of(n);
    p.a.x = c->in[p.turned], p.b.x = c->in[!p.turned];
    p.end = dlt_sums_of(c, p.turned);
    p.group = group_of(&p, dlt_pool_threads(c->stream));
    p.b.tiles = c->work;
    p.a.tiles = p.b.tiles + units(&p, &p.b) * UNIT;
    p.sums = (float *)(void *)(p.a.tiles + units(&p, &p.a) * UNIT);
    int64_t to_pack = units(&p, &p.a) + units(&p, &p.b);
    int64_t tasks = blocks(p.a.blocks, BAND) * blocks(p.b.blocks, p.group);
    bool alone = dlt_product_is_small(&p.g);
    dlt_pool_for(c->stream, to_pack, alone ? to_pack + 1 : PACK_GRAIN, pack_task, &p);
    dlt_pool_for(c->stream, tasks, alone ? tasks : 1, task, &p);
    return DLT_OK;
}

const DltKernel dlt_low_tile_matmul = {"matmul.cpu.amx", accepts, prepare, launch};
