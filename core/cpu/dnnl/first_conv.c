/* Filter gradient of convolutions on images of 1 to 4 channels, the first layer of most networks, where oneDNN
 * has only reference code without AVX-512.  x [N,C,H,W] plain, dy channel-blocked [N][K/blk][P][Q][blk]:
 *   dw[k,c,r,s] = sum over n,p,q of dy[n,k,p,q] x[n,c,p stride + r - pad, q stride + s - pad]
 * One task sums a fixed band of samples for one block of filters into its own buffer; the bands are added in
 * order. Stride and dilation of any size; S at most 11. */
#include "cpu/dnnl/fast.h"

enum { BANDS = 8, MAX_S = 11, MAX_C = 4 };

typedef struct First {
    const DltConv *a;
    const float *x, *dy;
    float *part, *dw; /* part [bands][K/blk][C][R][S][blk] */
    int64_t n, c, h, w, k, p, q, blk, bands;
} First;

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    const DltConv *a = n->attr;
    bool fits = n->in[0]->shape.dim[1] <= MAX_C && a->kernel[1] <= MAX_S && a->groups == 1 &&
                n->in[0]->layout == DLT_PLAIN && dlt_fast_block(n->in[1]) > 0;
    if (fits) return dlt_fast_f32(n, why_not);
    snprintf(why_not->text, sizeof why_not->text,
             "only for 1 to %d plain input channels and kernels up to %d wide", MAX_C, MAX_S);
    return false;
}

static size_t part_count(const DltNode *n, int64_t bands)
{
    return (size_t)(bands * dlt_count(n->out[0]));
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    p->work_bytes = part_count(n, BANDS) * sizeof(float);
    return DLT_OK;
}

/* Eight filters; a block of 16 is two of them. */
typedef float V8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef V8 Sums[MAX_S][2];

/* Column q of dy against x: sum[s] += dy x[q stride + s dilation - pad], where x has that column. */
static inline __attribute__((always_inline)) void
border(const First *k, const V8 *dy, const float *x, int64_t q, int nv, int width, Sums sum)
{
    for (int s = 0; s < width; s++) {
        int64_t at = q * k->a->stride[1] + s * k->a->dilation[1] - k->a->pad[2];
        if (at < 0 || at >= k->w) continue;
        for (int v = 0; v < nv; v++)
            sum[s][v] += dy[q * nv + v] * x[at];
    }
}

/* One row of dy against one row of x; between the borders all taps of a column are there, and their sums stay in
 * registers. */
static inline __attribute__((always_inline)) void row(const First *k, const V8 *dy, const float *x,
                                                      int nv, int width, Sums sum)
{
    int64_t stride = k->a->stride[1], dilation = k->a->dilation[1], left = k->a->pad[2];
    int64_t q0 = (left + stride - 1) / stride, room = k->w - 1 - (width - 1) * dilation + left;
    int64_t q1 = room < 0 ? 0 : room / stride + 1;
    if (q1 > k->q) q1 = k->q;
    if (q0 > q1) q0 = q1;
    for (int64_t q = 0; q < q0; q++)
        border(k, dy, x, q, nv, width, sum);
    for (int64_t q = q0; q < q1; q++) {
        const float *at = x + q * stride - left;
        for (int v = 0; v < nv; v++) {
            V8 d = dy[q * nv + v];
            for (int s = 0; s < width; s++)
                sum[s][v] += d * at[s * dilation];
        }
    }
    for (int64_t q = q1; q < k->q; q++)
        border(k, dy, x, q, nv, width, sum);
}

/* One sample and one (c, r): all rows p; adds to out [width][nv]. */
static inline __attribute__((always_inline)) void sample(const First *k, int64_t n, int64_t kb,
                                                         int64_t cr, int nv, int width, V8 *out)
{
    int64_t c = cr / k->a->kernel[0], r = cr % k->a->kernel[0];
    Sums sum;
    for (int s = 0; s < width; s++)
        for (int v = 0; v < nv; v++)
            sum[s][v] = out[s * nv + v];
    for (int64_t p = 0; p < k->p; p++) {
        int64_t y = p * k->a->stride[0] + r * k->a->dilation[0] - k->a->pad[0];
        if (y < 0 || y >= k->h) continue;
        const V8 *dy =
            (const V8 *)(k->dy + ((n * (k->k / k->blk) + kb) * k->p + p) * k->q * k->blk);
        row(k, dy, k->x + ((n * k->c + c) * k->h + y) * k->w, nv, width, sum);
    }
    for (int s = 0; s < width; s++)
        for (int v = 0; v < nv; v++)
            out[s * nv + v] = sum[s][v];
}

/* The usual widths get loops of their own, which keep their sums in registers. */
static inline __attribute__((always_inline)) void
sample_width(const First *k, int64_t n, int64_t kb, int64_t cr, int nv, V8 *out)
{
    int width = (int)k->a->kernel[1];
    if (width == 3)
        sample(k, n, kb, cr, nv, 3, out);
    else if (width == 5)
        sample(k, n, kb, cr, nv, 5, out);
    else if (width == 7)
        sample(k, n, kb, cr, nv, 7, out);
    else
        sample(k, n, kb, cr, nv, width, out);
}

/* Task t: filter block t / bands, band t % bands of the samples. */
DLT_CLONES static void band_task(void *ctx, int64_t begin, int64_t end)
{
    const First *k = ctx;
    int64_t rows = k->c * k->a->kernel[0], size = rows * k->a->kernel[1] * k->blk;
    for (int64_t t = begin; t < end; t++) {
        int64_t kb = t / k->bands, band = t % k->bands;
        float *part = k->part + (band * (k->k / k->blk) + kb) * size;
        memset(part, 0, (size_t)size * sizeof *part);
        for (int64_t n = band * k->n / k->bands; n < (band + 1) * k->n / k->bands; n++)
            for (int64_t i = 0; i < rows; i++) {
                V8 *out = (V8 *)(part + i * k->a->kernel[1] * k->blk);
                if (k->blk == 8)
                    sample_width(k, n, kb, i, 1, out);
                else
                    sample_width(k, n, kb, i, 2, out);
            }
    }
}

/* dw[k][c][r][s] = sum of the bands in order. */
static void add_bands(const First *k)
{
    int64_t taps = k->c * k->a->kernel[0] * k->a->kernel[1], blocks = k->k / k->blk;
    for (int64_t f = 0; f < k->k; f++)
        for (int64_t i = 0; i < taps; i++) {
            float sum = 0;
            for (int64_t b = 0; b < k->bands; b++)
                sum += k->part[((b * blocks + f / k->blk) * taps + i) * k->blk + f % k->blk];
            k->dw[f * taps + i] = sum;
        }
}

static DltStatus launch(const DltCall *call, DltErr *err)
{
    (void)err;
    const DltShape *x = &call->node->in[0]->shape, *dy = &call->node->in[1]->shape;
    First k = {.a = call->node->attr,
               .x = call->in[0],
               .dy = call->in[1],
               .part = call->work,
               .dw = call->out[0],
               .n = x->dim[0],
               .c = x->dim[1],
               .h = x->dim[2],
               .w = x->dim[3],
               .k = dy->dim[1],
               .p = dy->dim[2],
               .q = dy->dim[3],
               .blk = dlt_fast_block(call->node->in[1])};
    k.bands = k.n < BANDS ? k.n : BANDS;
    dlt_pool_for(call->stream, k.k / k.blk * k.bands, 1, band_task, &k);
    add_bands(&k);
    return DLT_OK;
}

const DltKernel dlt_fast_first_conv_filter = {"conv_bwd_filter.cpu.first", accepts, prepare,
                                              launch};
