/* Matrix products: the definition as three loops, and the blocked product with two register tiles.
 * An operand is a matrix with a row and a column stride, so transposition costs nothing here. */
#include "cpu/gemm.h"

typedef struct Matrix {
    int64_t row, col, batch; /* strides in elements */
} Matrix;

typedef struct Problem {
    const DltMatmul *attr;
    DltGemm size;
    Matrix a, b; /* as op(a) [M,K] and op(b) [K,N] */
} Problem;

/* ta without batches folds all leading dims of a and b into K: then a is [K, M] row-major. */
static Problem problem_of(const DltNode *n)
{
    Problem p = {.attr = n->attr, .size = dlt_matmul_gemm(n)};
    DltGemm s = p.size;
    bool shared_b = n->in[1]->shape.rank == 2;
    p.a = p.attr->ta ? (Matrix){1, s.m, s.m * s.k} : (Matrix){s.k, 1, s.m * s.k};
    p.b = p.attr->tb ? (Matrix){1, s.k, s.k * s.n} : (Matrix){s.n, 1, s.k * s.n};
    if (shared_b) p.b.batch = 0;
    return p;
}

/* Epilogue of the n elements from (row, col) of product i on; c points at the first. */
static void finish_row(const DltCall *call, const DltEpilogue *ep, int64_t offset, int64_t col,
                       DltReal *c, int64_t n)
{
    const DltReal *bias = call->in[2], *saved = call->in[3];
    DltReal *pre = call->out[1];
    DltEpilogueRow row = {bias != NULL ? bias + col : NULL, saved != NULL ? saved + offset : NULL,
                          ep->save_pre ? pre + offset : NULL, 1};
    dlt_epilogue_run(ep, &row, c, n);
}

static void plain_task(void *ctx, int64_t begin, int64_t end)
{
    const DltCall *call = ctx;
    Problem p = problem_of(call->node);
    for (int64_t r = begin; r < end; r++) {
        int64_t batch = r / p.size.m, i = r % p.size.m;
        const DltReal *a = (const DltReal *)call->in[0] + batch * p.a.batch + i * p.a.row;
        const DltReal *b = (const DltReal *)call->in[1] + batch * p.b.batch;
        DltReal *c = (DltReal *)call->out[0] + r * p.size.n;
        for (int64_t j = 0; j < p.size.n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < p.size.k; k++) {
                sum += (double)a[k * p.a.col] * (double)b[k * p.b.row + j * p.b.col];
            }
            c[j] = (DltReal)sum;
        }
        finish_row(call, &p.attr->ep, r * p.size.n, 0, c, p.size.n);
    }
}

/* c[M,N] = epilogue(sum over k of op(a)[M,k] op(b)[k,N]) for each batch, sums in double.
 * a, b, c, saved f32 PLAIN; bias f32[N].  matmul.h */
static DltStatus plain_launch(const DltCall *call, DltErr *err)
{
    (void)err;
    DltGemm s = dlt_matmul_gemm(call->node);
    dlt_pool_for(call->stream, s.batch * s.m, dlt_grain(s.n * s.k), plain_task, (void *)call);
    return DLT_OK;
}

static void blocked_batch(const DltProduct *g, int64_t i, DltPanel *a, DltPanel *b, DltReal **c)
{
    const DltCall *call = g->call;
    Problem p = problem_of(call->node);
    const DltReal *pa = call->in[0], *pb = call->in[1];
    *a = (DltPanel){.pack = dlt_pack_strided,
                    .x = pa + i * p.a.batch,
                    .row_stride = p.a.row,
                    .k_stride = p.a.col};
    *b = (DltPanel){.pack = dlt_pack_strided,
                    .x = pb + i * p.b.batch,
                    .row_stride = p.b.col,
                    .k_stride = p.b.row};
    *c = (DltReal *)call->out[0] + i * g->m * g->n;
}

static void blocked_finish(const DltProduct *g, int64_t i, int64_t row, int64_t col, DltReal *c,
                           int64_t n)
{
    const DltMatmul *attr = g->call->node->attr;
    finish_row(g->call, &attr->ep, (i * g->m + row) * g->n + col, col, c, n);
}

static DltStatus blocked_run(const DltCall *call, DltTile tile)
{
    DltGemm s = dlt_matmul_gemm(call->node);
    DltProduct g = {s.batch, s.m, s.n, s.k, tile, blocked_batch, blocked_finish, call};
    dlt_product_run(&g);
    return DLT_OK;
}

/* The same by blocks: partial sums of KC products in f32, their sum in double.  gemm.h */
static DltStatus blocked_launch(const DltCall *call, DltErr *err)
{
    (void)err;
    return blocked_run(call, dlt_tile_portable);
}

static DltStatus simd_launch(const DltCall *call, DltErr *err)
{
    (void)err;
    return blocked_run(call, dlt_tile_simd());
}

static const DltKernel simd = {
    .name = "matmul.cpu.simd", .accepts = dlt_tile_accepts, .launch = simd_launch};
static const DltKernel blocked = {.name = "matmul.cpu.blocked", .launch = blocked_launch};
static const DltKernel plain = {.name = "matmul.cpu.plain", .launch = plain_launch};
const DltKernel *const dlt_cpu_matmul[] = {&simd, &blocked, &plain, NULL};
