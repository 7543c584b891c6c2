/* Bias gradients: sums over the rows or pixels of f32 or bf16, in f32 for a chunk of rows and in f64 beyond it, in bands
 * that depend on the shape alone. */
#include "base/half.h"
#include "cpu/dnnl/tile.h"
#include "ops/elementwise.h"

/* db[C] = sums of dy over the rows of [rows][C] (PLAIN's last axis, NHWC), or over planes [rows][block] of channel
 * blocks. */
typedef struct Columns {
    const void *dy;
    bool low; /* dy is bf16 */
    float *db;
    double *part; /* [bands][c] */
    int64_t c, rows, bands;
    int64_t planes, hw, block; /* channel blocks: samples, pixels, channels of one */
} Columns;

enum {
    BANDS = 16,
    CHUNK = 64,
    STRANDS = 4,
    SMALL = 8192, /* elements */
    WIDTH = 512   /* channels at a time: rows go by in runs that are read ahead */
};

/* total[n] += sums of `rows` rows of n neighbours, n <= WIDTH in eights, from element `at` on. */
DLT_INLINE void chunk_sums(const Columns *k, int64_t at, int64_t row, int64_t rows, int64_t n,
                           bool low, double *total)
{
    float sum[WIDTH];
    DltV8 v;
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j += 8) {
            dlt_v8_load(k->dy, at + i * row + j, low, &v);
            *(DltV8 *)(sum + j) += v;
        }
    for (int64_t j = 0; j < n; j++)
        total[j] += (double)sum[j];
}

/* The same for a channel block, `halves` eights, in strands that do not wait for each other. */
DLT_INLINE void block_sums(const Columns *k, int64_t at, int64_t rows, int halves, bool low,
                           double *total)
{
    DltV8 sum[STRANDS * 2] = {{0}}, v;
    int64_t i = 0, row = k->block;
    for (; i + STRANDS <= rows; i += STRANDS)
#pragma GCC unroll 4
        for (int s = 0; s < STRANDS; s++)
#pragma GCC unroll 2
            for (int h = 0; h < halves; h++) {
                dlt_v8_load(k->dy, at + (i + s) * row + 8 * h, low, &v);
                sum[s * 2 + h] += v;
            }
    for (; i < rows; i++)
        for (int h = 0; h < halves; h++) {
            dlt_v8_load(k->dy, at + i * row + 8 * h, low, &v);
            sum[h] += v;
        }
    for (int h = 0; h < halves; h++) {
        v = (sum[h] + sum[2 + h]) + (sum[4 + h] + sum[6 + h]);
        for (int j = 0; j < 8; j++)
            total[8 * h + j] += (double)v[j];
    }
}

/* The same for one channel. */
static void one_sum(const Columns *k, int64_t at, int64_t rows, double *total)
{
    float sum = 0;
    for (int64_t i = 0; i < rows; i++, at += k->c)
        sum += k->low ? dlt_bf16_to(((const uint16_t *)k->dy)[at]) : ((const float *)k->dy)[at];
    *total += (double)sum;
}

DLT_INLINE void band_sums(const Columns *k, int64_t band, bool low)
{
    double *total = k->part + band * k->c;
    memset(total, 0, (size_t)k->c * sizeof *total);
    int64_t last = (band + 1) * k->rows / k->bands;
    for (int64_t r = band * k->rows / k->bands; r < last; r += CHUNK) {
        int64_t n = last - r < CHUNK ? last - r : CHUNK, ch = 0, whole = k->c / 8 * 8;
        for (int64_t wide; ch < whole; ch += wide) {
            wide = whole - ch < WIDTH ? whole - ch : WIDTH;
            chunk_sums(k, r * k->c + ch, k->c, n, wide, low, total + ch);
        }
        for (; ch < k->c; ch++)
            one_sum(k, r * k->c + ch, n, total + ch);
    }
}

DLT_CLONES static void rows_task(void *ctx, int64_t begin, int64_t end)
{
    const Columns *k = ctx;
    for (int64_t band = begin; band < end; band++)
        if (k->low)
            band_sums(k, band, true);
        else
            band_sums(k, band, false);
}

/* The samples of a band. */
DLT_INLINE void plane_sums(const Columns *k, int64_t band, int halves, bool low)
{
    double *total = k->part + band * k->c;
    int64_t block = 8 * halves, n = band * k->planes / k->bands,
            last = (band + 1) * k->planes / k->bands;
    memset(total, 0, (size_t)k->c * sizeof *total);
    for (; n < last; n++)
        for (int64_t ch = 0; ch < k->c; ch += block)
            for (int64_t i = 0; i < k->hw; i += CHUNK)
                block_sums(k, (n * k->c + ch) * k->hw + i * block,
                           k->hw - i < CHUNK ? k->hw - i : CHUNK, halves, low, total + ch);
}

DLT_CLONES static void planes_task(void *ctx, int64_t begin, int64_t end)
{
    const Columns *k = ctx;
    for (int64_t band = begin; band < end; band++)
        if (k->block == 16 && k->low)
            plane_sums(k, band, 2, true);
        else if (k->block == 16)
            plane_sums(k, band, 2, false);
        else if (k->low)
            plane_sums(k, band, 1, true);
        else
            plane_sums(k, band, 1, false);
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    const DltBias *a = n->attr;
    const DltTensor *dy = n->in[0];
    bool blocked = a->axis == 1 && dlt_fast_lanes(dy) > 0;
    bool last = dy->layout == DLT_PLAIN && a->axis == dy->shape.rank - 1;
    bool known = dy->dtype == DLT_BF16 || dy->dtype == DLT_F32;
    if (known && n->out[0]->dtype == DLT_F32 && (blocked || last)) return true;
    snprintf(why_not->text, sizeof why_not->text,
             "neither f32 nor bf16, or neither the last axis nor channels that lie together");
    return false;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    p->work_bytes = BANDS * (size_t)((const DltBias *)n->attr)->channels * sizeof(double);
    return DLT_OK;
}

static DltStatus launch(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltTensor *dy = c->node->in[0];
    int64_t channels = ((const DltBias *)c->node->attr)->channels, block = dlt_fast_block(dy);
    Columns k = {.dy = c->in[0], .db = c->out[0], .part = c->work, .c = channels};
    k.low = dy->dtype == DLT_BF16;
    if (block > 0) {
        k.planes = dy->shape.dim[0], k.hw = dy->shape.dim[2] * dy->shape.dim[3], k.block = block;
        k.bands = k.planes < BANDS ? k.planes : BANDS;
    } else {
        k.rows = dlt_count(dy) / channels;
        k.bands = k.rows < BANDS * CHUNK ? (k.rows + CHUNK - 1) / CHUNK : BANDS;
    }
    /* small ones by one thread: another would come too late */
    dlt_pool_for(c->stream, k.bands, dlt_count(dy) < SMALL ? k.bands : 1,
                 block > 0 ? planes_task : rows_task, &k);
    for (int64_t ch = 0; ch < channels; ch++) {
        double total = 0;
        for (int64_t b = 0; b < k.bands; b++)
            total += k.part[b * channels + ch];
        k.db[ch] = (float)total;
    }
    return DLT_OK;
}

static const DltKernel kernel = {"bias_bwd.cpu.vector", accepts, prepare, launch};
const DltKernel *const dlt_fast_bias_bwd[] = {&kernel, NULL};
