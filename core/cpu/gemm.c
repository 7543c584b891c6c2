/* The blocked matrix product of gemm.h. One chunk is one MC x NC piece of one product; each chunk
 * packs for itself on its stack, which costs a few percent and needs no workspace and no barrier.
 */
#include "cpu/gemm.h"

enum { MR = DLT_GEMM_MR, NR = DLT_GEMM_NR, KC = DLT_GEMM_KC, MC = DLT_GEMM_MC, NC = DLT_GEMM_NC };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void dlt_pack_strided(const DltPanel *p, int64_t row, int64_t n_row, int64_t k, int64_t n_k,
                      int64_t width, DltReal *out)
{
    const DltReal *x = p->x + row * p->row_stride + k * p->k_stride;
    if (n_row < width) memset(out, 0, (size_t)(n_k * width) * sizeof *out);
    if (p->k_stride == 1) {
        for (int64_t r = 0; r < n_row; r++) {
            for (int64_t i = 0; i < n_k; i++)
                out[i * width + r] = x[r * p->row_stride + i];
        }
        return;
    }
    for (int64_t i = 0; i < n_k; i++) {
        for (int64_t r = 0; r < n_row; r++)
            out[i * width + r] = x[r * p->row_stride + i * p->k_stride];
    }
}

void dlt_tile_portable(int64_t kc, const DltReal *a, const DltReal *b, DltReal *out)
{
    for (int64_t i = 0; i < MR; i++) {
        DltReal sum[NR] = {0};
        for (int64_t k = 0; k < kc; k++) {
            for (int j = 0; j < NR; j++)
                sum[j] += a[k * MR + i] * b[k * NR + j];
        }
        memcpy(out + i * NR, sum, sizeof sum);
    }
}

/* total[MC][NC] += the product of the packed blocks, for n_row x n_col of it. */
static void add_block(DltTile tile, int64_t n_row, int64_t n_col, int64_t kc, const DltReal *a,
                      const DltReal *b, double *total)
{
    DltReal out[MR * NR];
    for (int64_t j = 0; j < n_col; j += NR) {
        for (int64_t i = 0; i < n_row; i += MR) {
            tile(kc, a + i * kc, b + j * kc, out);
            for (int r = 0; r < MR; r++) {
                double *row = total + (i + r) * NC + j;
                for (int c = 0; c < NR; c++)
                    row[c] += (double)out[r * NR + c];
            }
        }
    }
}

static void pack_block(const DltPanel *p, int64_t row, int64_t n_row, int64_t k, int64_t n_k,
                       int64_t width, DltReal *out)
{
    for (int64_t r = 0; r < n_row; r += width) {
        p->pack(p, row + r, least(width, n_row - r), k, n_k, width, out + r * n_k);
    }
}

static void piece(const DltProduct *g, int64_t batch, int64_t row, int64_t col)
{
    _Alignas(64) DltReal a[MC * KC], b[NC * KC];
    double total[MC * NC] = {0};
    DltPanel pa, pb;
    DltReal *c;
    int64_t n_row = least(MC, g->m - row), n_col = least(NC, g->n - col);
    g->batch(g, batch, &pa, &pb, &c);
    for (int64_t k = 0; k < g->k; k += KC) {
        int64_t kc = least(KC, g->k - k);
        pack_block(&pa, row, n_row, k, kc, MR, a);
        pack_block(&pb, col, n_col, k, kc, NR, b);
        add_block(g->tile, n_row, n_col, kc, a, b, total);
    }
    for (int64_t r = 0; r < n_row; r++) {
        DltReal *to = c + (row + r) * g->n + col;
        for (int64_t i = 0; i < n_col; i++)
            to[i] = (DltReal)total[r * NC + i];
        g->finish(g, batch, row + r, col, to, n_col);
    }
}

static void task(void *ctx, int64_t begin, int64_t end)
{
    const DltProduct *g = ctx;
    int64_t rows = dlt_chunks(g->m, MC), cols = dlt_chunks(g->n, NC);
    for (int64_t i = begin; i < end; i++) {
        piece(g, i / (rows * cols), i / cols % rows * MC, i % cols * NC);
    }
}

void dlt_product_run(const DltProduct *g)
{
    int64_t pieces = g->n_batch * dlt_chunks(g->m, MC) * dlt_chunks(g->n, NC);
    int64_t work = least(g->m, MC) * least(g->n, NC) / 8 * g->k;
    dlt_pool_for(g->call->stream, pieces, dlt_grain(work), task, (void *)g);
}

bool dlt_tile_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    if (dlt_tile_simd() == NULL) return dlt_cpu_refuse(why_not, "this processor has no AVX2");
    return dlt_kernel_accepts_plain(n, why_not);
}
