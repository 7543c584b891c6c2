/* matmul through oneDNN's sgemm: rows of C in fixed bands, one single-threaded product a band, its epilogue
 * (bias, activation, activation gradient) while the band is in cache. The bands depend on the shape alone,
 * so the bits do not depend on the number of threads. */
#include "cpu/dnnl/fast.h"

typedef struct Product {
    const DltMatmul *attr;
    DltGemm g;
    const float *a, *b, *bias, *saved;
    float *c, *pre;
    int64_t band, bands; /* rows a band, bands a matrix */
    bool good;
} Product;

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    return dlt_fast_f32(n, why_not);
}

DLT_CLONES static void add_bias(float *c, const float *bias, int64_t rows, int64_t n)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++)
            c[r * n + i] += bias[i];
}

/* Epilogue of rows [row, row + rows) of one matrix, in the order of ops/matmul.h. */
static void epilogue(const Product *p, int64_t offset, int64_t rows)
{
    const DltEpilogue *e = &p->attr->ep;
    int64_t n = rows * p->g.n;
    float *c = p->c + offset;
    if (p->bias) add_bias(c, p->bias, rows, p->g.n);
    if (e->save_pre) memcpy(p->pre + offset, c, (size_t)n * sizeof *c);
    if (e->act.fn) dlt_fast_flat(&(DltFlat){.fn = e->act, .x = c, .y = c}, 0, n);
    if (e->act_grad.fn)
        dlt_fast_flat(&(DltFlat){.fn = e->act_grad, .x = c, .saved = p->saved + offset, .y = c}, 0,
                      n);
}

static void task(void *ctx, int64_t begin, int64_t end)
{
    Product *p = ctx;
    const DltGemm *g = &p->g;
    for (int64_t t = begin; t < end; t++) {
        int64_t matrix = t / p->bands, row = t % p->bands * p->band;
        int64_t rows = row + p->band < g->m ? p->band : g->m - row;
        const float *a = p->a + matrix * g->m * g->k + (p->attr->ta ? row : row * g->k);
        const float *b = p->b + matrix * g->k * g->n;
        int64_t offset = (matrix * g->m + row) * g->n;
        DltSgemm s = {.ta = p->attr->ta,
                      .tb = p->attr->tb,
                      .m = rows,
                      .n = g->n,
                      .k = g->k,
                      .lda = p->attr->ta ? g->m : g->k,
                      .ldb = p->attr->tb ? g->k : g->n,
                      .ldc = g->n};
        if (!dlt_dnnl_sgemm(&s, a, b, p->c + offset)) p->good = false;
        epilogue(p, offset, rows);
    }
}

/* Rows a band: two bands for small products (packing b again costs more than it gives), more for tall ones. */
static int64_t band_rows(const DltGemm *g)
{
    int64_t bands = g->batch >= 8 ? 1 : g->m >= 1024 ? 8 : g->m >= 32 ? 2 : 1;
    int64_t rows = (g->m + bands - 1) / bands;
    return (rows + 15) / 16 * 16;
}

static DltStatus launch(const DltCall *c, DltErr *err)
{
    const DltMatmul *attr = c->node->attr;
    Product p = {.attr = attr,
                 .g = dlt_matmul_gemm(c->node),
                 .a = c->in[0],
                 .b = c->in[1],
                 .bias = c->in[2],
                 .saved = c->in[3],
                 .c = c->out[0],
                 .pre = c->out[1],
                 .good = true};
    p.band = band_rows(&p.g);
    p.bands = (p.g.m + p.band - 1) / p.band;
    dlt_pool_for(c->stream, p.g.batch * p.bands, 1, task, &p);
    return p.good ? DLT_OK : dlt_err(err, DLT_E_DEVICE, "oneDNN could not run a matrix product");
}

static const DltKernel kernel = {"matmul.cpu.sgemm", accepts, NULL, launch};
const DltKernel *const dlt_fast_matmul[] = {
    &dlt_tall_product, &dlt_wide_product,    &dlt_fast_product, &kernel,
    &dlt_band_product, &dlt_low_tile_matmul, &dlt_low_matmul,   NULL};
