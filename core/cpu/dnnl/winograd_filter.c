/* Filter gradient by Winograd's algorithm: dw = G^T [sum over tiles of (B^T x B) * (A dy A^T)] G. The tiles of a
 * batch are cut into fixed bands; each has 36 sums [C, K] of its own, added to in runs of tiles that stay in the
 * cache. The bands are added in order at the end. */
#include "cpu/dnnl/product.h"
#include "cpu/dnnl/winograd.h"

enum { TILES = 48, BANDS = 8, PAD = 16, MAX_BYTES = 16 << 20 /* of all bands' sums */ };

typedef struct Run {
    DltWino k; /* in: x; out: unused */
    const float *dy;
    float *dw, *sum, *scratch; /* sum [bands][36][C][K] */
    int64_t bands, panel;
} Run;

static int64_t sum_floats(const DltWino *k)
{
    return DLT_WINO_POINTS * k->c * k->k;
}

static int64_t scratch_floats(const DltWino *k)
{
    return DLT_WINO_POINTS * (TILES * (k->c + k->k) + 2 * PAD);
}

/* As many bands as fit, at most one a run of tiles; the shape alone decides. */
static int64_t n_bands(const DltWino *k)
{
    int64_t bands = BANDS, runs = k->n * k->rows * k->cols / TILES + 1;
    while (bands > 1 &&
           (bands * sum_floats(k) * (int64_t)sizeof(float) > MAX_BYTES || bands > runs))
        bands /= 2;
    return bands;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    if (!dlt_wino_accepts(n, dev, why_not)) return false;
    DltWino k = dlt_wino_describe(n);
    if (sum_floats(&k) * (int64_t)sizeof(float) <= MAX_BYTES) return true;
    snprintf(why_not->text, sizeof why_not->text, "the sums of all filters do not fit the cache");
    return false;
}

/* sum [C][K] += v [rows][C] turned, times a panel d [rows][panel] of dy, of one point. */
DLT_INLINE void multiply(const Run *r, const float *v, const float *d, int64_t rows, float *sum)
{
    const DltWino *k = &r->k;
    DltTileA a = {v, 1, k->c};
    if (r->panel == DLT_WINO_BROAD)
        dlt_strip_columns(&(DltColumn){.a = a,
                                       .b = d,
                                       .rows = k->c,
                                       .kc = rows,
                                       .n = r->panel,
                                       .ldc = k->k,
                                       .group = DLT_STRIP_ROWS,
                                       .c = sum,
                                       .add = true},
                          DLT_WINO_BROAD);
    else if (k->blk == 16)
        dlt_tile_tall_column(k->c, a, d, DLT_WINO_PANEL, rows, (DltTileC){sum, k->k, true});
    else
        dlt_tile_column(k->c, a, d, DLT_WINO_PANEL, rows, (DltTileC){sum, k->k, true});
}

/* sum += the products of tiles [t0, t1), at most TILES. */
DLT_INLINE void tiles(const Run *r, int64_t t0, int64_t t1, float *v, float *sum, int side)
{
    const DltWino *k = &r->k;
    int64_t vs = TILES * k->c + PAD, ds = TILES * k->k + PAD;
    int64_t panel = r->panel, lanes = k->blk;
    float *d = v + DLT_WINO_POINTS * vs; /* [36][K/panel][TILES][panel] */
    for (int64_t t = t0; t < t1; t++) {
        DltWinoTile at = dlt_wino_tile(k, t);
        for (int64_t c = 0; c < k->c; c += lanes)
            if (lanes == 16)
                dlt_wino_input_16(k, at, c, v + (t - t0) * k->c + c, vs);
            else
                dlt_wino_input_8(k, at, c, v + (t - t0) * k->c + c, vs);
        for (int64_t c = 0; c < k->k; c += lanes) {
            float *to = d + c / panel * TILES * panel + (t - t0) * panel + c % panel;
            if (lanes == 16)
                dlt_wino_gradient_16(k, r->dy, at, c, to, ds, side);
            else
                dlt_wino_gradient_8(k, r->dy, at, c, to, ds, side);
        }
    }
    for (int64_t f = 0; f < DLT_WINO_POINTS; f++)
        for (int64_t col = 0; col < k->k; col += panel)
            multiply(r, v + f * vs, d + f * ds + col * TILES, t1 - t0, sum + f * k->c * k->k + col);
}

DLT_INLINE void band(const Run *r, int64_t b, float *v)
{
    int64_t all = r->k.n * r->k.rows * r->k.cols, to = (b + 1) * all / r->bands;
    float *sum = r->sum + b * sum_floats(&r->k);
    memset(sum, 0, (size_t)sum_floats(&r->k) * sizeof *sum);
    for (int64_t t = b * all / r->bands; t < to; t += TILES) {
        int64_t stop = t + TILES < to ? t + TILES : to;
        if (r->k.side == 4)
            tiles(r, t, stop, v, sum, 4);
        else
            tiles(r, t, stop, v, sum, 2);
    }
}

DLT_CLONES static void band_task(void *ctx, int64_t begin, int64_t end)
{
    const Run *r = ctx;
    for (int64_t b = begin; b < end; b++)
        band(r, b, r->scratch + dlt_fast_worker() * scratch_floats(&r->k));
}

/* dw[k..k+7][c] = G^T (sum of the bands) G */
DLT_INLINE void finish(const Run *r, int64_t c, int64_t to, int filter)
{
    const DltWino *k = &r->k;
    DltV8 half[5][6], g[5];
    for (int j = 0; j < 6; j++) {
        DltV8 u[6];
        for (int i = 0; i < 6; i++) {
            const float *at = r->sum + ((i * 6 + j) * k->c + c) * k->k + to;
            u[i] = *(const DltV8 *)at;
            for (int64_t b = 1; b < r->bands; b++)
                u[i] += *(const DltV8 *)(at + b * sum_floats(k));
        }
        dlt_wino_gt(u, g, filter);
        for (int i = 0; i < filter; i++)
            half[i][j] = g[i];
    }
    for (int i = 0; i < filter; i++) {
        dlt_wino_gt(half[i], g, filter);
        for (int j = 0; j < filter; j++)
            for (int64_t lane = 0; lane < 8; lane++)
                r->dw[(((to + lane) * k->c + c) * filter + i) * filter + j] = g[j][lane];
    }
}

DLT_CLONES static void finish_task(void *ctx, int64_t begin, int64_t end)
{
    const Run *r = ctx;
    for (int64_t c = begin; c < end; c++)
        for (int64_t to = 0; to < r->k.k; to += 8)
            if (r->k.filter == 3)
                finish(r, c, to, 3);
            else
                finish(r, c, to, 5);
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    DltWino k = dlt_wino_describe(n);
    int64_t floats = n_bands(&k) * sum_floats(&k) + dlt_cpu_threads(dev) * scratch_floats(&k);
    p->work_bytes = (size_t)floats * sizeof(float);
    return DLT_OK;
}

static DltStatus launch(const DltCall *c, DltErr *err)
{
    (void)err;
    Run r = {.k = dlt_wino_describe(c->node), .dy = c->in[1], .dw = c->out[0], .sum = c->work};
    r.k.in = c->in[0];
    r.panel = dlt_wino_panel(&r.k);
    r.bands = n_bands(&r.k);
    r.scratch = r.sum + r.bands * sum_floats(&r.k);
    dlt_pool_for(c->stream, r.bands, 1, band_task, &r);
    dlt_pool_for(c->stream, r.k.c, 4, finish_task, &r);
    return DLT_OK;
}

const DltKernel dlt_fast_wino_bwd_filter = {"conv_bwd_filter.cpu.winograd", accepts, prepare,
                                            launch};
