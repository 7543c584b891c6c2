/* Filter gradients on matrix tiles, for images of a few channels, the first layer of most networks:
 *   dw[k,c,r,s] = sum over t of x[c][t shifted by (r,s)] dy[t,k]
 * A's rows are the taps (c,r,s): 32 terms of a row are 32 neighbours of a plane of x, copied from where the tap's
 * shift says; a stride of 2 has one plane for each remainder. B is dy in pairs of terms. */
#include "cpu/dnnl/low_filter.h"

enum { MAX_CHANNELS = 4 };

static int64_t planes(const DltFilter *f)
{
    return f->c * f->a->stride[0] * f->a->stride[1];
}

static int64_t plane_size(const DltFilter *f)
{
    return f->terms + f->shift_h * f->pitch + f->shift_w;
}

static int64_t all_taps(const DltFilter *f)
{
    return f->c * f->taps;
}

static int64_t tap_tiles(const DltFilter *f)
{
    return (all_taps(f) + DLT_AMX_ROWS - 1) / DLT_AMX_ROWS;
}

/* Image n as number g of its group into the planes [c][row remainder][column remainder]. */
static void copy_planes(const DltFilter *f, char *band, int64_t n, int64_t g)
{
    uint16_t *to = (uint16_t *)(void *)(band + f->x_at);
    const DltConv *a = f->a;
    for (int64_t plane = 0; plane < planes(f); plane++) {
        int64_t s = plane % a->stride[1], r = plane / a->stride[1] % a->stride[0];
        int64_t c = plane / (a->stride[0] * a->stride[1]);
        for (int64_t i = 0; i < f->rows; i++) {
            int64_t h = i * a->stride[0] + r - a->pad[0], left = s - a->pad[2];
            uint16_t *row = to + plane * plane_size(f) + (g * f->rows + i) * f->pitch;
            if (h < 0 || h >= f->h) continue;
            const uint16_t *x = f->x + (n * f->h + h) * f->w * f->c + c;
            for (int64_t j = 0; j < f->pitch; j++) {
                int64_t w = j * a->stride[1] + left;
                row[j] = w >= 0 && w < f->w ? x[w * f->c] : 0;
            }
        }
    }
}

/* A: [tile of taps][step]; rows behind the last tap stay as they are, their sums are not read. */
DLT_CLONES static void pack_taps(const DltFilter *f, const uint16_t *planes_at, uint16_t *tiles)
{
    const DltConv *a = f->a;
    for (int64_t tap = 0; tap < all_taps(f); tap++) {
        int64_t c = tap / f->taps, r = tap % f->taps / a->kernel[1], s = tap % a->kernel[1];
        int64_t plane = (c * a->stride[0] + r % a->stride[0]) * a->stride[1] + s % a->stride[1];
        const uint16_t *x =
            planes_at + plane * plane_size(f) + r / a->stride[0] * f->pitch + s / a->stride[1];
        uint16_t *to = tiles + tap / DLT_AMX_ROWS * f->steps * DLT_AMX_TILE +
                       tap % DLT_AMX_ROWS * DLT_AMX_DEPTH;
        for (int64_t i = 0; i < f->steps; i++)
            *(DltU16 *)(to + i * DLT_AMX_TILE) = *(const DltU16 *)(x + i * DLT_AMX_DEPTH);
    }
}

/* sums [taps][K] (+)= A B */
static void multiply(const DltFilter *f, char *band, bool add)
{
    int64_t tile = DLT_AMX_TILE * (int64_t)sizeof(uint16_t);
    float *sums = (float *)(void *)(band + f->sums_at);
    DltAmxBlock k = {.a_row = 64, .a_step = tile, .a_half = f->steps * tile, .steps = f->steps};
    k.b_row = 64, k.b_step = tile, k.b_half = k.a_half;
    for (int64_t i = 0; i < tap_tiles(f); i += 2)
        for (int64_t j = 0; j < f->k_tiles; j += 2) {
            k.a = band + f->x_tiles_at + i * k.a_half;
            k.b = band + f->dy_tiles_at + j * k.b_half;
            k.m_tiles = tap_tiles(f) - i > 1 ? 2 : 1;
            k.n_tiles = f->k_tiles - j > 1 ? 2 : 1;
            dlt_amx_block(&k, sums + (i * f->cols + j) * DLT_AMX_ROWS, f->cols, add);
        }
}

static void pack_x(const DltFilter *f, char *band, int64_t n, int64_t count)
{
    for (int64_t g = 0; g < count; g++)
        copy_planes(f, band, n + g, g);
    pack_taps(f, (const uint16_t *)(const void *)(band + f->x_at),
              (uint16_t *)(void *)(band + f->x_tiles_at));
}

static void gather_task(void *ctx, int64_t begin, int64_t end)
{
    const DltFilter *f = ctx;
    for (int64_t k = begin; k < end; k++)
        for (int64_t tap = 0; tap < all_taps(f); tap++) {
            float total = 0;
            for (int64_t b = 0; b < f->bands; b++)
                total += dlt_filter_sums(f, b)[tap * f->cols + k];
            f->dw[k * all_taps(f) + tap] = total;
        }
}

/* ---- the kernel ---- */

static void book(DltFilter *f)
{
    f->cols = f->k_tiles * DLT_AMX_ROWS;
    f->x_at = dlt_filter_book(f, planes(f) * plane_size(f), sizeof(uint16_t));
    f->x_tiles_at = dlt_filter_book(f, tap_tiles(f) * f->steps * DLT_AMX_TILE, sizeof(uint16_t));
    f->sums_at = dlt_filter_book(f, tap_tiles(f) * DLT_AMX_ROWS * f->cols, sizeof(float));
}

static const DltFilterParts parts = {false, book, pack_x, DLT_AMX_B, multiply, gather_task};

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    if (dlt_filter_fits(n) && n->in[0]->shape.dim[1] <= MAX_CHANNELS) return true;
    snprintf(why_not->text, sizeof why_not->text,
             "for bf16 images of up to %d channels, channels last, one group, matrix tiles",
             MAX_CHANNELS);
    return false;
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)dev;
    (void)err;
    p->work_bytes = dlt_filter_work(n, &parts);
    return DLT_OK;
}

static DltStatus launch(const DltCall *c, DltErr *err)
{
    (void)err;
    dlt_filter_run(c, &parts);
    return DLT_OK;
}

const DltKernel dlt_low_first_filter = {"conv_bwd_filter.cpu.amx_first", accepts, prepare, launch};
