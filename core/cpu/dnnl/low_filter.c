/* Filter gradients on matrix tiles, for images of 16, 32, .. channels:
 *   dw[k,c,r,s] = sum over t of dy[t,k] x[t shifted by (r,s),c]
 * A is dy, turned: [k][t]. B is x in pairs of terms. A shift by an odd number of pixels pairs other neighbours, and a
 * stride of 2 takes every second pixel: so x is packed once for each remainder of a tap (class), and any tap is an
 * offset into its class. All classes together hold x twice. */
#include "cpu/dnnl/low_filter.h"

enum { BANDS = 8, LEAST_TERMS = 512, MAX_STRIDE = 2 };

bool dlt_filter_fits(const DltNode *n)
{
    const DltConv *a = n->attr;
    const DltTensor *x = n->in[0], *dy = n->in[1], *dw = n->out[0];
    bool one_channel = x->shape.dim[1] == 1 && x->layout == DLT_PLAIN;
    return dlt_amx_there() && a->groups == 1 && a->dilation[0] == 1 && a->dilation[1] == 1 &&
           a->stride[0] <= MAX_STRIDE && a->stride[1] <= MAX_STRIDE && x->dtype == DLT_BF16 &&
           dy->dtype == DLT_BF16 && (x->layout == DLT_NHWC || one_channel) &&
           dy->layout == DLT_NHWC && dw->dtype == DLT_F32 && dw->layout == DLT_PLAIN;
}

static int64_t up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

size_t dlt_filter_book(DltFilter *f, int64_t count, size_t bytes)
{
    size_t at = f->band_bytes;
    f->band_bytes += ((size_t)count * bytes + 63) / 64 * 64;
    return at;
}

static DltFilter filter_of(const DltNode *n, const DltFilterParts *parts)
{
    const int64_t *x = n->in[0]->shape.dim, *dy = n->in[1]->shape.dim;
    DltFilter f = {.parts = parts, .a = n->attr, .n = x[0], .c = x[1], .h = x[2], .w = x[3]};
    f.k = dy[1], f.p = dy[2], f.q = dy[3];
    f.taps = f.a->kernel[0] * f.a->kernel[1];
    f.k_tiles = up(f.k, DLT_AMX_ROWS) / DLT_AMX_ROWS;
    f.shift_h = (f.a->kernel[0] - 1) / f.a->stride[0];
    f.shift_w = (f.a->kernel[1] - 1) / f.a->stride[1];
    f.rows = f.p + f.shift_h;
    f.pitch = up(f.q + f.shift_w, parts->even ? 2 : 1);
    f.bands = f.n < BANDS ? f.n : BANDS;
    int64_t most = (f.n + f.bands - 1) / f.bands;
    f.group = 1 + (LEAST_TERMS - 1) / (f.rows * f.pitch);
    if (f.p * f.pitch >= LEAST_TERMS) f.group = 1;
    if (f.group > most) f.group = most;
    f.terms = up(((f.group - 1) * f.rows + f.p) * f.pitch, DLT_AMX_DEPTH);
    f.steps = f.terms / DLT_AMX_DEPTH;
    f.dy_at = dlt_filter_book(&f, f.terms * f.k, sizeof(uint16_t));
    f.dy_tiles_at = dlt_filter_book(&f, f.k_tiles * f.steps * DLT_AMX_TILE, sizeof(uint16_t));
    parts->book(&f);
    return f;
}

/* dy of images [n, n + count) of a group into scratch as [terms][K]; gaps and missing images are zero, which the first
 * call of a band sees to. */
static void copy_dy(const DltFilter *f, char *band, int64_t n, int64_t count, bool first)
{
    uint16_t *to = (uint16_t *)(void *)(band + f->dy_at);
    if (first) memset(to, 0, (size_t)(f->terms * f->k) * sizeof *to);
    for (int64_t g = 0; g < f->group; g++)
        for (int64_t p = 0; p < f->p; p++) {
            uint16_t *row = to + (g * f->rows + p) * f->pitch * f->k;
            size_t bytes = (size_t)(f->q * f->k) * sizeof *to;
            if (g < count)
                memcpy(row, f->dy + ((n + g) * f->p + p) * f->q * f->k, bytes);
            else
                memset(row, 0, bytes);
        }
}

static void pack_dy(const DltFilter *f, char *band)
{
    const uint16_t *dy = (const uint16_t *)(const void *)(band + f->dy_at);
    uint16_t *tile = (uint16_t *)(void *)(band + f->dy_tiles_at);
    for (int64_t i = 0; i < f->k_tiles; i++)
        for (int64_t t = 0; t < f->terms; t += DLT_AMX_DEPTH, tile += DLT_AMX_TILE)
            dlt_amx_pack(f->parts->dy_form, dy + t * f->k + i * DLT_AMX_ROWS, f->k, DLT_AMX_DEPTH,
                         f->k - i * DLT_AMX_ROWS, tile);
}

static void band_task(void *ctx, int64_t begin, int64_t end)
{
    const DltFilter *f = ctx;
    dlt_amx_begin();
    for (int64_t b = begin; b < end; b++) {
        char *band = f->work + (size_t)b * f->band_bytes;
        int64_t from = b * f->n / f->bands, to = (b + 1) * f->n / f->bands;
        memset(band + f->x_at, 0, f->sums_at - f->x_at); /* borders, and what no image fills */
        for (int64_t n = from; n < to; n += f->group) {
            int64_t count = to - n < f->group ? to - n : f->group;
            copy_dy(f, band, n, count, n == from);
            f->parts->pack_x(f, band, n, count);
            pack_dy(f, band);
            f->parts->multiply(f, band, n > from);
        }
    }
    dlt_amx_end();
}

const float *dlt_filter_sums(const DltFilter *f, int64_t b)
{
    return (const float *)(const void *)(f->work + (size_t)b * f->band_bytes + f->sums_at);
}

size_t dlt_filter_work(const DltNode *n, const DltFilterParts *parts)
{
    DltFilter f = filter_of(n, parts);
    return (size_t)f.bands * f.band_bytes;
}

void dlt_filter_run(const DltCall *c, const DltFilterParts *parts)
{
    DltFilter f = filter_of(c->node, parts);
    f.x = c->in[0], f.dy = c->in[1], f.dw = c->out[0], f.work = c->work;
    /* the data gradient, just before, read dy from its beginning */
    dlt_pool_back(c->stream, f.bands, 1, band_task, &f);
    dlt_pool_for(c->stream, f.k, 8, parts->gather, &f);
}

/* ---- x in pairs ---- */

/* Pairs of terms that a class holds. */
static int64_t class_pairs(const DltFilter *f)
{
    return (f->terms + f->shift_h * f->pitch + f->shift_w + 1) / 2;
}

static int64_t classes(const DltFilter *f)
{
    return 2 * f->a->stride[0] * f->a->stride[1];
}

/* A row of pairs: x[first + 2 j step] and x[first + (2 j + 1) step], `count` of them, zero outside of the row. */
typedef struct PairRow {
    const uint16_t *x, *zero;
    int64_t c, w, first, step, count;
    uint16_t *out;
} PairRow;

/* Pairs [from, to), of which one or both numbers may be outside of the row. */
static void edge_pairs(const PairRow *r, int64_t from, int64_t to)
{
    for (int64_t j = from; j < to; j++) {
        int64_t w0 = r->first + 2 * j * r->step, w1 = w0 + r->step;
        bool in0 = w0 >= 0 && w0 < r->w, in1 = w1 >= 0 && w1 < r->w;
        dlt_amx_pairs(&(DltAmxPairs){.even = in0 ? r->x + w0 * r->c : r->zero,
                                     .odd = in1 ? r->x + w1 * r->c : r->zero,
                                     .channels = r->c,
                                     .n = 1,
                                     .out = r->out + j * 2 * r->c});
    }
}

static void pair_row(const PairRow *r)
{
    int64_t begin = r->first < 0 ? (-r->first + 2 * r->step - 1) / (2 * r->step) : 0;
    int64_t room = r->w - 1 - r->first - r->step, end = room < 0 ? 0 : room / (2 * r->step) + 1;
    if (end > r->count) end = r->count;
    if (begin > end) begin = end;
    const uint16_t *x = r->x + (r->first + 2 * begin * r->step) * r->c;
    edge_pairs(r, 0, begin);
    dlt_amx_pairs(&(DltAmxPairs){.even = x,
                                 .odd = x + r->step * r->c,
                                 .step = 2 * r->step * r->c,
                                 .channels = r->c,
                                 .n = end - begin,
                                 .out = r->out + begin * 2 * r->c});
    edge_pairs(r, end, r->count);
}

/* Image n as number g of its group into one class: rows of remainder r, columns of remainder s, `odd` pairs begin at
 * column 1. */
static void pack_class(const DltFilter *f, char *band, int64_t n, int64_t g, int64_t class)
{
    int64_t odd = class % 2, s = class / 2 % f->a->stride[1], r = class / 2 / f->a->stride[1];
    uint16_t *to = (uint16_t *)(void *)(band + f->x_at) + class * class_pairs(f) * 2 * f->c;
    PairRow row = {.zero = (const uint16_t *)(const void *)(band + f->x_tiles_at),
                   .c = f->c,
                   .w = f->w,
                   .first = odd * f->a->stride[1] + s - f->a->pad[2],
                   .step = f->a->stride[1],
                   .count = f->pitch / 2};
    for (int64_t i = 0; i < f->rows; i++) {
        int64_t h = i * f->a->stride[0] + r - f->a->pad[0];
        if (h < 0 || h >= f->h) continue;
        row.x = f->x + (n * f->h + h) * f->w * f->c;
        row.out = to + (g * f->rows + i) * f->pitch * f->c;
        pair_row(&row);
    }
}

/* Where B begins for the sums of column tile `col`: tap col / (C / 16), channels 16 (col % (C / 16)). */
static const uint16_t *tap_at(const DltFilter *f, const char *band, int64_t col)
{
    int64_t tiles = f->c / DLT_AMX_ROWS, tap = col / tiles;
    int64_t r = tap / f->a->kernel[1], s = tap % f->a->kernel[1];
    int64_t right = s / f->a->stride[1], down = r / f->a->stride[0];
    int64_t rest = r % f->a->stride[0] * f->a->stride[1] + s % f->a->stride[1];
    int64_t pair = (2 * rest + right % 2) * class_pairs(f) + down * f->pitch / 2 + right / 2;
    return (const uint16_t *)(const void *)(band + f->x_at) + pair * 2 * f->c +
           col % tiles * 2 * DLT_AMX_ROWS;
}

/* ---- products ---- */

static void multiply(const DltFilter *f, char *band, bool add)
{
    int64_t tile = DLT_AMX_TILE * (int64_t)sizeof(uint16_t), n = f->cols / DLT_AMX_ROWS;
    float *sums = (float *)(void *)(band + f->sums_at);
    DltAmxBlock k = {.a_row = 64, .a_step = tile, .a_half = f->steps * tile, .steps = f->steps};
    k.b_row = 2 * f->c * (int64_t)sizeof(uint16_t);
    k.b_step = DLT_AMX_ROWS * k.b_row;
    for (int64_t col = 0; col < n; col += 2) {
        k.b = tap_at(f, band, col);
        k.n_tiles = n - col > 1 ? 2 : 1;
        k.b_half = k.n_tiles == 2 ? (const char *)tap_at(f, band, col + 1) - (const char *)k.b : 0;
        for (int64_t i = 0; i < f->k_tiles; i += 2) {
            k.a = band + f->dy_tiles_at + i * k.a_half;
            k.m_tiles = f->k_tiles - i > 1 ? 2 : 1;
            dlt_amx_block(&k, sums + (i * f->cols + col) * DLT_AMX_ROWS, f->cols, add);
        }
    }
}

static void pack_x(const DltFilter *f, char *band, int64_t n, int64_t count)
{
    for (int64_t g = 0; g < count; g++)
        for (int64_t class = 0; class < classes(f); class ++)
            pack_class(f, band, n + g, g, class);
}

/* dw of filters [begin, end) from the sums of the bands, in order. */
DLT_CLONES static void gather_task(void *ctx, int64_t begin, int64_t end)
{
    const DltFilter *f = ctx;
    int64_t tiles = f->c / DLT_AMX_ROWS;
    for (int64_t k = begin; k < end; k++)
        for (int64_t col = 0; col < f->cols / DLT_AMX_ROWS; col++) {
            float total[DLT_AMX_ROWS] = {0};
            for (int64_t b = 0; b < f->bands; b++) {
                const float *sums = dlt_filter_sums(f, b) + k * f->cols + col * DLT_AMX_ROWS;
                for (int i = 0; i < DLT_AMX_ROWS; i++)
                    total[i] += sums[i];
            }
            float *dw = f->dw + (k * f->c + col % tiles * DLT_AMX_ROWS) * f->taps + col / tiles;
            for (int i = 0; i < DLT_AMX_ROWS; i++)
                dw[i * f->taps] = total[i];
        }
}

/* ---- the kernel ---- */

static void book(DltFilter *f)
{
    f->cols = f->taps * f->c;
    f->x_at = dlt_filter_book(f, classes(f) * class_pairs(f) * 2 * f->c, sizeof(uint16_t));
    f->x_tiles_at = dlt_filter_book(f, f->c, sizeof(uint16_t));
    f->sums_at = dlt_filter_book(f, f->k_tiles * DLT_AMX_ROWS * f->cols, sizeof(float));
}

static const DltFilterParts parts = {true, book, pack_x, DLT_AMX_A_TURN, multiply, gather_task};

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    if (dlt_filter_fits(n) && n->in[0]->shape.dim[1] % DLT_AMX_ROWS == 0) return true;
    snprintf(why_not->text, sizeof why_not->text,
             "for bf16 images, channels last, by 16, one group, strides up to %d, matrix tiles",
             MAX_STRIDE);
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

const DltKernel dlt_low_filter = {"conv_bwd_filter.cpu.amx", accepts, prepare, launch};
