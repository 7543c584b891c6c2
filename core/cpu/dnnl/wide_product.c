/* matmul for AVX-512, whose 32 registers hold 8 rows of 48 columns: 24 sums, and 11 loads for 24 multiplications. One task
 * makes two or three vectors of columns over a band of rows; its strip of b is packed some hundred rows at a time. a is
 * read where it lies, but where it is turned and deep it is packed first, [group of 8 rows][k][8]. Each sum runs over k
 * in order, in blocks that depend on k alone, so neither the strips nor the bands (which do depend on the threads) change
 * a bit. Goto & van de Geijn 2008. */
#include "cpu/dnnl/product.h"

enum {
    LANES = DLT_STRIP_LANES,
    VECTORS = DLT_STRIP_VECTORS,
    COLS = VECTORS * LANES,
    ROWS = DLT_STRIP_ROWS,
    DEPTH = 256,         /* rows of a strip: 48 KiB */
    BAND = 512,          /* rows of a, most */
    LEAST_BAND = 32,     /* packing costs as much as so many rows */
    LEAST_COLS = 96,     /* that a packed a pays for, */
    LEAST_DEPTH = 512,   /* and terms: each lies on a page of its own */
    MOST_A = 1 << 23,    /* elements of a packed a: 32 MiB */
    GROUP_GRAIN = 32768, /* elements of a packing task */
    AHEAD = 8            /* rows of b that packing asks for beforehand */
};

typedef struct Wide {
    DltProductTask p;
    float *a; /* packed, or NULL */
} Wide;

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    if (dlt_dnnl_block() == 16 && !dlt_product_leaves(n) && dlt_matmul_gemm(n).m >= ROWS)
        return dlt_fast_f32(n, why_not);
    snprintf(why_not->text, sizeof why_not->text,
             "for AVX-512, from %d rows on, w turned or few numbers", ROWS);
    return false;
}

/* ---- packing a: out[k][8] for each group of 8 rows ---- */

DLT_CLONES static void pack_group(const DltGemm *g, const float *a, int64_t row, float *out)
{
    int64_t rows = g->m - row < ROWS ? g->m - row : ROWS, k = 0;
    for (; rows == ROWS && k < g->k; k++)
        *(DltV8 *)(out + k * ROWS) = *(const DltV8 *)(a + k * g->m + row);
    for (; k < g->k; k++)
        for (int64_t i = 0; i < ROWS; i++)
            out[k * ROWS + i] = i < rows ? a[k * g->m + row + i] : 0.0F;
}

static int64_t groups(const DltGemm *g)
{
    return (g->m + ROWS - 1) / ROWS;
}

static bool packs_a(const DltMatmul *attr, const DltGemm *g)
{
    return attr->ta && g->k >= LEAST_DEPTH && g->n >= LEAST_COLS &&
           g->batch * groups(g) * ROWS * g->k <= MOST_A;
}

/* Groups [begin, end) of all matrices. */
static void pack_task(void *ctx, int64_t begin, int64_t end)
{
    const Wide *w = ctx;
    const DltGemm *g = &w->p.g;
    for (int64_t i = begin; i < end; i++)
        pack_group(g, w->p.a + i / groups(g) * g->m * g->k, i % groups(g) * ROWS,
                   w->a + i * ROWS * g->k);
}

/* ---- packing: out[kc][width], width whole vectors, zeros behind n ---- */

/* out[j][i] = in[i][j] of 16 x 16. */
DLT_INLINE void turn(const float *in, int64_t row, float *out, int64_t width)
{
    DltU16 x[16], y[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        x[i] = *(const DltU16 *)(const void *)(in + i * row);
    dlt_u16_turn(x, y);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        *(DltU16 *)(void *)(out + i * width) = y[i];
}

DLT_INLINE void pack_rows(const DltStrip *s, int64_t row)
{
    const float *from = s->b + s->k * row + s->col;
    int64_t whole = s->n / LANES * LANES;
    for (int64_t i = 0; i < s->kc; i++, from += row) {
        float *to = s->out + i * s->width;
        for (int64_t j = 0; j < whole; j += LANES) {
            __builtin_prefetch(from + AHEAD * row + j);
            *(DltV16 *)(to + j) = *(const DltV16 *)(from + j);
        }
        for (int64_t j = whole; j < s->width; j++)
            to[j] = j < s->n ? from[j] : 0.0F;
    }
}

DLT_INLINE void pack_turned(const DltStrip *s, int64_t row)
{
    const float *from = s->b + s->col * row + s->k;
    int64_t i = 0, whole = s->n / LANES * LANES;
    for (; i + LANES <= s->kc; i += LANES)
        for (int64_t j = 0; j < whole; j += LANES)
            turn(from + j * row + i, row, s->out + i * s->width + j, s->width);
    for (int64_t at = 0; at < s->kc; at++)
        for (int64_t j = at < i ? whole : 0; j < s->width; j++)
            s->out[at * s->width + j] = j < s->n ? from[j * row + at] : 0.0F;
}

DLT_CLONES void dlt_strip_pack(const DltStrip *s, int64_t row, bool turned)
{
    if (turned)
        pack_turned(s, row);
    else
        pack_rows(s, row);
}

/* ---- tiles ---- */

/* c[rows][16 vectors] (+)= sum over k < kc of a(i,k) b[k][..], rows and vectors known to the compiler. */
DLT_INLINE void tile(int rows, int vectors, DltTileA a, const float *b, int64_t kc, DltTileC to)
{
    DltV16 sum[ROWS * VECTORS];
#pragma GCC unroll 24
    for (int i = 0; i < rows * vectors; i++)
        sum[i] = (DltV16){0};
    for (int64_t k = 0; k < kc; k++, b += vectors * LANES) {
        DltV16 x[VECTORS];
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            x[v] = *(const DltV16 *)(b + v * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            float s = a.a[i * a.row + k * a.step];
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++)
                sum[i * vectors + v] += x[v] * s;
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) {
            DltV16 *at = (DltV16 *)(to.c + i * to.row + v * LANES);
            if (to.add) sum[i * vectors + v] += *at;
            *at = sum[i * vectors + v];
        }
}

DLT_INLINE void some_rows(const DltColumn *k, int64_t row, int rows, int vectors, bool packed)
{
    _Alignas(64) float copy[ROWS * COLS];
    int64_t in_group = row % ROWS * k->a.row, width = vectors * LANES;
    DltTileA at = {k->a.a + row / ROWS * k->group + in_group, k->a.row, k->a.step};
    if (packed) at.row = 1, at.step = ROWS; /* known to the compiler */
    float *c = k->c + row * k->ldc;
    if (k->n == width) {
        tile(rows, vectors, at, k->b, k->kc, (DltTileC){c, k->ldc, k->add});
        return;
    }
    tile(rows, vectors, at, k->b, k->kc, (DltTileC){copy, width, false});
    for (int i = 0; i < rows; i++)
        for (int64_t j = 0; j < k->n; j++)
            c[i * k->ldc + j] = (k->add ? c[i * k->ldc + j] : 0.0F) + copy[i * width + j];
}

DLT_INLINE void column(const DltColumn *k, int vectors, bool packed)
{
    int64_t row = 0;
    for (; row + ROWS <= k->rows; row += ROWS)
        some_rows(k, row, ROWS, vectors, packed);
    for (; row + 4 <= k->rows; row += 4)
        some_rows(k, row, 4, vectors, packed);
    for (; row < k->rows; row++)
        some_rows(k, row, 1, vectors, packed);
}

DLT_CLONES void dlt_strip_columns(const DltColumn *k, int64_t width)
{
    bool packed = k->a.row == 1 && k->a.step == ROWS;
    if (width == COLS && packed)
        column(k, 3, true);
    else if (width == COLS)
        column(k, 3, false);
    else if (width == 2 * LANES && packed)
        column(k, 2, true);
    else if (width == 2 * LANES)
        column(k, 2, false);
    else
        column(k, 1, false);
}

/* The same by the tile of AVX2, 16 columns at a time. */
DLT_CLONES static void narrow_columns(const DltColumn *k, int64_t width)
{
    for (int64_t col = 0; col < width; col += DLT_TILE_COLS)
        dlt_tile_column(k->rows, k->a, k->b + col, width, k->kc,
                        (DltTileC){k->c + col, k->ldc, k->add});
}

void dlt_strip_multiply(const DltColumn *k, int64_t width)
{
    if (dlt_dnnl_block() == 16)
        dlt_strip_columns(k, width);
    else
        narrow_columns(k, width);
}

/* ---- tasks ---- */

/* Task t: strip t % strips of band t / strips % bands of matrix t / (strips bands). */
DLT_CLONES static void one_task(const Wide *w, int64_t t)
{
    _Alignas(64) float packed[(DEPTH + LANES) * COLS];
    const DltProductTask *p = &w->p;
    const DltGemm *g = &p->g;
    int64_t matrix = t / (p->strips * p->bands), band = t / p->strips % p->bands;
    int64_t vectors = (g->n + LANES - 1) / LANES, strip = t % p->strips;
    int64_t row = band * groups(g) / p->bands * ROWS;
    int64_t rows = (band + 1) * groups(g) / p->bands * ROWS;
    rows = (rows < g->m ? rows : g->m) - row;
    int64_t col = strip * vectors / p->strips * LANES;
    int64_t end = (strip + 1) * vectors / p->strips * LANES,
            n = end < g->n ? end - col : g->n - col;
    int64_t offset = (matrix * g->m + row) * g->n + col, blocks = (g->k + DEPTH - 1) / DEPTH;
    const float *a = p->a + matrix * g->m * g->k;
    DltStrip s = {.b = p->b + matrix * g->k * g->n, .col = col, .n = n, .width = end - col};
    s.out = packed;
    for (int64_t i = 0; i < blocks; i++) {
        int64_t k = i * g->k / blocks / LANES * LANES;
        int64_t to = i + 1 < blocks ? (i + 1) * g->k / blocks / LANES * LANES : g->k;
        s.k = k, s.kc = to - k;
        dlt_strip_pack(&s, p->attr->tb ? g->k : g->n, p->attr->tb);
        DltColumn c = {.b = packed, .rows = rows, .kc = s.kc, .n = n, .ldc = g->n, .add = k > 0};
        c.c = p->c + offset;
        c.a = p->attr->ta ? (DltTileA){a + k * g->m + row, 1, g->m}
                          : (DltTileA){a + row * g->k + k, g->k, 1};
        c.group = ROWS * c.a.row;
        if (w->a) {
            c.group = ROWS * g->k;
            c.a =
                (DltTileA){w->a + (matrix * groups(g) + row / ROWS) * c.group + k * ROWS, 1, ROWS};
        }
        dlt_strip_columns(&c, s.width);
    }
    dlt_product_epilogue(p, offset, rows, col, n);
}

static void task(void *ctx, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++)
        one_task(ctx, t);
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    DltGemm g = dlt_matmul_gemm(n);
    if (packs_a(n->attr, &g))
        p->work_bytes = (size_t)(g.batch * groups(&g) * ROWS * g.k) * sizeof(float);
    return DLT_OK;
}

static DltStatus launch(const DltCall *c, DltErr *err)
{
    (void)err;
    Wide w = {.p = dlt_product_of(c)};
    DltProductTask *p = &w.p;
    int64_t vectors = (p->g.n + LANES - 1) / LANES, wish = 2 * dlt_pool_threads(c->stream);
    p->strips = (vectors + VECTORS - 1) / VECTORS;
    if (p->strips % 2 == 1 && p->strips > 1) p->strips++; /* equal work for two threads */
    p->bands = (p->g.m + BAND - 1) / BAND;
    int64_t more = wish / (p->strips * p->g.batch), most = p->g.m / LEAST_BAND;
    if (more > most) more = most;
    if (more > p->bands) p->bands = more;
    if (packs_a(p->attr, &p->g)) {
        int64_t grain = GROUP_GRAIN / (ROWS * p->g.k);
        w.a = c->work;
        dlt_pool_for(c->stream, p->g.batch * groups(&p->g), grain > 0 ? grain : 1, pack_task, &w);
    }
    int64_t tasks = p->g.batch * p->bands * p->strips;
    dlt_pool_for(c->stream, tasks, dlt_product_is_small(&p->g) ? tasks : 1, task, &w);
    return DLT_OK;
}

const DltKernel dlt_wide_product = {"matmul.cpu.wide", accepts, prepare, launch};
