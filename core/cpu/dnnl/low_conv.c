/* Convolutions and their data gradients on matrix tiles, channels last, without im2col: an image is copied into scratch
 * with its border of zeros, where a row of taps of any output is a run of S C neighbours. 16 neighbouring outputs make a
 * tile of A that is read where it lies, the filters are packed into B once.
 *   y[n,p,q,k]  = act(sum over r,s,c of x[n, p stride + r - pad, q stride + s - pad, c] w[k,c,r,s] + bias[k])
 *   dx[n,h,w,c] = sum over r,s,k of dy[n,p,q,k] w[k,c,r,s] where h = p stride + r - pad and w likewise
 * Both are made of passes: outputs whose taps are the same. The first has one; the second has one for each remainder of
 * the stride, a convolution of dy with some taps, turned round.  x, dy, w [K,C,R,S], y, dx bf16; sums f32 */
#include "base/half.h"
#include "cpu/dnnl/amx.h"
#include "ops/conv.h"

enum {
    ROWS = DLT_AMX_ROWS,
    SIDE = DLT_AMX_BLOCK,
    MAX_STRIDE = 2,
    MAX_PASS = MAX_STRIDE * MAX_STRIDE,
    UNIT = 2 * DLT_AMX_TILE, /* packed: 32 terms of 32 filters */
    GRAIN = 4,               /* images of a task, where there are many */
    LEAST_TAPS = 16 /* oneDNN's forward ones take 0.6 ms, these 1.0, for 3x3 on 16 x 16 x 32 */
};

/* One direction, rows or columns, of a pass. */
typedef struct Span {
    int64_t taps, first;    /* the first tap of output 0 in the padded image */
    int64_t tap0, tap_step; /* the filter's tap of tap 0, and from one to the next */
    int64_t out, count;     /* the first output, and how many */
} Span;

typedef struct Pass {
    Span h, w;
    int64_t steps; /* of 32 terms in a row of taps */
    int64_t tiles; /* of 16 outputs */
    bool flat;     /* outputs are numbered through the padded rows, else each row begins a tile */
    int64_t at;    /* of its packed filters, in units */
} Pass;

typedef struct Conv {
    const DltConv *a;
    bool data;             /* the data gradient */
    const uint16_t *x, *w; /* what is read: x or dy */
    uint16_t *y;           /* what is made: y or dx */
    int64_t n, c, k, in[2], out[2];
    int64_t lo[2], size[2]; /* of the padded image */
    int64_t in_step[2], out_step[2];
    Pass pass[MAX_PASS];
    int n_pass;
    int64_t units, image;      /* of all passes; elements of a padded image */
    uint16_t *packed, *images; /* units; an image for each thread */
    float *bias;               /* [K up to 32], or NULL */
    bool relu;
} Conv;

static int64_t up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* ---- the problem ---- */

static Span forward_span(const DltConv *a, int d, int64_t out)
{
    return (Span){.taps = a->kernel[d], .tap_step = 1, .count = out};
}

/* Outputs rest, rest + stride, ..: `first` is still counted from dy's first row and may be negative. */
static Span data_span(const DltConv *a, int d, int64_t rest, int64_t out)
{
    int64_t s = a->stride[d], tap = (rest + a->pad[2 * d]) % s;
    int64_t taps = tap < a->kernel[d] ? (a->kernel[d] - tap + s - 1) / s : 0;
    return (Span){.taps = taps,
                  .first = (rest + a->pad[2 * d] - tap) / s - (taps - 1),
                  .tap0 = tap + s * (taps - 1),
                  .tap_step = -s,
                  .out = rest,
                  .count = rest < out ? (out - rest + s - 1) / s : 0};
}

/* Grows the padded image in direction d by what a span reads; `size` counts from where `first` does. */
static void cover(Conv *v, int d, const Span *s)
{
    int64_t end = s->first + (s->count - 1) * v->in_step[d] + s->taps;
    if (s->taps == 0 || s->count == 0) return;
    if (v->lo[d] + s->first < 0) v->lo[d] = -s->first;
    if (v->size[d] < end) v->size[d] = end;
}

static void number(const Conv *v, Pass *p)
{
    int64_t flat = up((p->h.count - 1) * v->size[1] + p->w.count, ROWS) / ROWS;
    int64_t whole = p->h.count * (up(p->w.count, ROWS) / ROWS);
    p->flat = v->in_step[0] == 1 && v->in_step[1] == 1 && flat < whole;
    p->tiles = p->flat ? flat : whole;
    p->steps = up(p->w.taps * v->c, DLT_AMX_DEPTH) / DLT_AMX_DEPTH;
    if (p->h.taps == 0 || p->w.taps == 0) p->h.taps = p->steps = 0;
}

static Conv conv_of(const DltNode *n)
{
    const DltConv *a = n->attr;
    const int64_t *x = n->in[0]->shape.dim, *y = n->out[0]->shape.dim;
    Conv v = {.a = a, .data = n->kind == DLT_OP_conv_bwd_data, .n = x[0], .c = x[1], .k = y[1]};
    for (int d = 0; d < 2; d++) {
        v.in[d] = x[2 + d], v.out[d] = y[2 + d];
        v.in_step[d] = v.data ? 1 : a->stride[d];
        v.out_step[d] = v.data ? a->stride[d] : 1;
        if (!v.data) v.lo[d] = a->pad[2 * d];
    }
    int64_t rests[2] = {v.out_step[0], v.out_step[1]};
    for (int64_t i = 0; i < rests[0] * rests[1]; i++) {
        Pass *p = &v.pass[v.n_pass++];
        p->h = v.data ? data_span(a, 0, i / rests[1], y[2]) : forward_span(a, 0, y[2]);
        p->w = v.data ? data_span(a, 1, i % rests[1], y[3]) : forward_span(a, 1, y[3]);
        cover(&v, 0, &p->h);
        cover(&v, 1, &p->w);
    }
    for (int d = 0; d < 2; d++) {
        if (v.data) v.size[d] += v.lo[d];
        if (v.size[d] < v.lo[d] + v.in[d]) v.size[d] = v.lo[d] + v.in[d];
    }
    for (int i = 0; i < v.n_pass; i++) {
        Pass *p = &v.pass[i];
        if (v.data) p->h.first += v.lo[0], p->w.first += v.lo[1];
        number(&v, p);
        p->at = v.units;
        v.units += up(v.k, SIDE) / SIDE * p->h.taps * p->steps;
    }
    /* the last tile reads past the image */
    int64_t past = SIDE * v.in_step[1] + a->kernel[1] + 1;
    v.image = up((v.size[0] * v.size[1] + past) * v.c + DLT_AMX_DEPTH, DLT_AMX_DEPTH);
    return v;
}

/* ---- filters ---- */

/* One unit: terms of step `step` in row `row` of taps, filters [32 block, 32 block + 32). */
static void pack_unit(const Conv *v, const Pass *p, int64_t block, int64_t row, int64_t step,
                      uint16_t *out)
{
    int64_t area = v->a->kernel[0] * v->a->kernel[1], left = v->k - block * SIDE;
    int64_t across = v->data ? area : v->c * area; /* to the next output channel */
    int64_t along = v->data ? v->k * area : area;  /* to the next input channel */
    const uint16_t *w = v->w + block * SIDE * across;
    w += (p->h.tap0 + row * p->h.tap_step) * v->a->kernel[1] + p->w.tap0;
    memset(out, 0, UNIT * sizeof *out);
    for (int64_t i = 0; i < DLT_AMX_DEPTH; i++) {
        int64_t term = step * DLT_AMX_DEPTH + i, tap = term / v->c;
        if (tap >= p->w.taps) break;
        const uint16_t *from = w + tap * p->w.tap_step + term % v->c * along;
        uint16_t *to = out + i / 2 * DLT_AMX_DEPTH + i % 2;
        for (int64_t j = 0; j < SIDE && j < left; j++)
            to[j / ROWS * DLT_AMX_TILE + j % ROWS * 2] = from[j * across];
    }
}

/* Units [begin, end) of all passes: [block][row][step]. */
static void pack_task(void *ctx, int64_t begin, int64_t end)
{
    const Conv *v = ctx;
    for (int64_t i = begin; i < end; i++) {
        const Pass *p = v->pass + v->n_pass - 1;
        while (i < p->at)
            p--;
        int64_t unit = i - p->at, of_block = p->h.taps * p->steps;
        pack_unit(v, p, unit / of_block, unit % of_block / p->steps, unit % p->steps,
                  v->packed + i * UNIT);
    }
}

/* ---- outputs ---- */

/* x[n][width] + bias, relu. width: 16 or 32. */
DLT_CLONES static void finish(float *x, int64_t n, int64_t width, const float *bias, bool relu)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j += 16, x += 16) {
            DltV16 v = *(const DltV16 *)x;
            if (bias) v += *(const DltV16 *)(bias + j);
            if (relu) dlt_v16_relu(&v);
            *(DltV16 *)x = v;
        }
}

/* n neighbouring outputs of `cols` channels from x[n][width], the first of which is to lie at y. */
static void store(const Conv *v, const float *x, int64_t width, int64_t cols, uint16_t *y,
                  int64_t n)
{
    _Alignas(64) uint16_t low[ROWS * SIDE];
    int64_t pixel = v->out_step[1] * v->k;
    if (cols == SIDE) {
        dlt_amx_round(x, SIDE, y, pixel, n);
        return;
    }
    dlt_amx_round(x, SIDE, low, SIDE, up(n * width, SIDE) / SIDE);
    if (cols == width && pixel == width) {
        memcpy(y, low, (size_t)(n * width) * sizeof *y);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(y + i * pixel, low + i * width, (size_t)cols * sizeof *y);
}

/* Output (row, col) of a pass. */
static uint16_t *output(const Conv *v, const Pass *p, int64_t image, int64_t row, int64_t col)
{
    int64_t h = p->h.out + row * v->out_step[0], w = p->w.out + col * v->out_step[1];
    return v->y + ((image * v->out[0] + h) * v->out[1] + w) * v->k;
}

/* Tile `tile` of a pass: where it begins, numbered through the padded rows. */
static int64_t place(const Conv *v, const Pass *p, int64_t tile)
{
    if (p->flat) return tile * ROWS;
    int64_t in_row = up(p->w.count, ROWS) / ROWS;
    return tile / in_row * v->size[1] * v->in_step[0] + tile % in_row * ROWS * v->in_step[1];
}

/* The sums x[16][width] of a tile to the outputs that exist. */
static void store_tile(const Conv *v, const Pass *p, int64_t image, int64_t tile, int64_t channel,
                       const float *x, int64_t width)
{
    int64_t cols = v->k - channel < width ? v->k - channel : width;
    int64_t in_row = up(p->w.count, ROWS) / ROWS, pitch = p->flat ? v->size[1] : in_row * ROWS;
    for (int64_t i = 0, n; i < ROWS; i += n) {
        int64_t at = tile * ROWS + i, row = at / pitch, col = at % pitch;
        n = pitch - col < ROWS - i ? pitch - col : ROWS - i;
        if (row >= p->h.count) return;
        int64_t there = p->w.count - col < n ? p->w.count - col : n;
        if (there > 0)
            store(v, x + i * width, width, cols, output(v, p, image, row, col) + channel, there);
    }
}

/* ---- products ---- */

static void make_block(const Conv *v, const Pass *p, const uint16_t *image, int64_t n, int64_t tile,
                       int64_t block)
{
    _Alignas(64) float sums[DLT_AMX_SUMS];
    int64_t unit = UNIT * (int64_t)sizeof(uint16_t), channel = (int64_t)sizeof(uint16_t);
    int64_t here = place(v, p, tile), pixel = v->c * channel;
    const uint16_t *a = image + (p->h.first * v->size[1] + p->w.first + here) * v->c;
    DltAmxBlock k = {.a = a,
                     .b = v->packed + (p->at + block * p->h.taps * p->steps) * UNIT,
                     .a_row = v->in_step[1] * pixel,
                     .a_step = DLT_AMX_DEPTH * channel,
                     .b_row = 64,
                     .b_step = unit,
                     .b_half = unit / 2,
                     .steps = p->steps,
                     .groups = p->h.taps,
                     .a_group = v->size[1] * pixel,
                     .m_tiles = tile + 1 < p->tiles ? 2 : 1,
                     .n_tiles = v->k - block * SIDE > ROWS ? 2 : 1};
    if (k.m_tiles == 2) k.a_half = (place(v, p, tile + 1) - here) * pixel;
    int64_t width = k.n_tiles * ROWS;
    dlt_amx_block(&k, sums, width, false);
    if (width == ROWS) /* rounded in pairs of outputs, the last one with what follows */
        memset(sums + k.m_tiles * ROWS * ROWS, 0, ROWS * sizeof *sums);
    if (v->bias || v->relu)
        finish(sums, k.m_tiles * ROWS, width, v->bias ? v->bias + block * SIDE : NULL, v->relu);
    for (int i = 0; i < k.m_tiles; i++)
        store_tile(v, p, n, tile + i, block * SIDE, sums + i * ROWS * width, width);
}

/* A pass without taps. */
static void make_zeros(const Conv *v, const Pass *p, int64_t image)
{
    for (int64_t row = 0; row < p->h.count; row++)
        for (int64_t col = 0; col < p->w.count; col++)
            memset(output(v, p, image, row, col), 0, (size_t)v->k * sizeof *v->y);
}

static void copy_image(const Conv *v, int64_t n, uint16_t *image)
{
    for (int64_t h = 0; h < v->in[0]; h++)
        memcpy(image + ((v->lo[0] + h) * v->size[1] + v->lo[1]) * v->c,
               v->x + (n * v->in[0] + h) * v->in[1] * v->c,
               (size_t)(v->in[1] * v->c) * sizeof *image);
}

/* Images [begin, end). */
static void task(void *ctx, int64_t begin, int64_t end)
{
    const Conv *v = ctx;
    uint16_t *image = v->images + dlt_fast_worker() * v->image;
    memset(image, 0, (size_t)v->image * sizeof *image);
    dlt_amx_begin();
    for (int64_t n = begin; n < end; n++) {
        copy_image(v, n, image);
        for (const Pass *p = v->pass; p < v->pass + v->n_pass; p++) {
            if (p->steps == 0) make_zeros(v, p, n);
            for (int64_t block = 0; block * SIDE < v->k && p->steps > 0; block++)
                for (int64_t tile = 0; tile < p->tiles; tile += 2)
                    make_block(v, p, image, n, tile, block);
        }
    }
    dlt_amx_end();
}

/* ---- the kernels ---- */

static bool is_image(const DltTensor *t)
{
    bool last = t->layout == DLT_NHWC || (t->shape.dim[1] == 1 && t->layout == DLT_PLAIN);
    return last && t->dtype == DLT_BF16;
}

static bool accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    (void)dev;
    const DltConv *a = n->attr;
    const DltTensor *w = n->in[1];
    bool fits = a->groups == 1 && w->dtype == DLT_BF16 && w->layout == DLT_PLAIN;
    for (int d = 0; d < 2; d++)
        fits = fits && a->dilation[d] == 1 && a->stride[d] <= MAX_STRIDE;
    int64_t taps = a->kernel[0] * a->kernel[1], channels = n->in[0]->shape.dim[1];
    if (n->kind == DLT_OP_conv_fwd) fits = fits && taps >= LEAST_TAPS && channels >= ROWS;
    if (fits && is_image(n->in[0]) && is_image(n->out[0]) && dlt_amx_there()) return true;
    snprintf(why_not->text, sizeof why_not->text,
             "for bf16 images, channels last, one group, strides up to %d, matrix tiles; forward "
             "from %d taps and %d channels on",
             MAX_STRIDE, LEAST_TAPS, ROWS);
    return false;
}

static size_t bias_bytes(const Conv *v)
{
    return (size_t)up(v->k, SIDE) * sizeof(float);
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    Conv v = conv_of(n);
    p->work_bytes = (size_t)(v.units * UNIT + dlt_cpu_threads(dev) * v.image) * sizeof(uint16_t) +
                    bias_bytes(&v);
    return DLT_OK;
}

static void read_bias(Conv *v, const DltTensor *t, const void *from, float *to)
{
    v->bias = t ? to : NULL;
    for (int64_t i = 0; t && i < up(v->k, SIDE); i++)
        to[i] = i >= v->k              ? 0.0F
                : t->dtype == DLT_BF16 ? dlt_bf16_to(((const uint16_t *)from)[i])
                                       : ((const float *)from)[i];
}

static DltStatus launch(const DltCall *c, DltErr *err)
{
    (void)err;
    Conv v = conv_of(c->node);
    DltEpilogue rest = v.a->ep;
    v.x = c->in[0], v.w = c->in[1], v.y = rest.save_pre ? c->out[1] : c->out[0];
    v.relu = rest.act.fn == DLT_FN_RELU && !rest.save_pre;
    if (v.relu) rest.act.fn = DLT_FN_NONE;
    char *work = c->work;
    v.packed = (uint16_t *)(void *)(work + bias_bytes(&v));
    v.images = v.packed + v.units * UNIT;
    if (!v.data) read_bias(&v, c->node->in[2], c->in[2], (float *)(void *)work);
    dlt_pool_for(c->stream, v.units, 8, pack_task, &v);
    dlt_pool_for(c->stream, v.n, v.n >= 8 * GRAIN ? GRAIN : 1, task, &v);
    dlt_fast_finish(c, &rest, v.y, v.data ? c->in[2] : NULL);
    return DLT_OK;
}

const DltKernel dlt_low_conv_fwd = {"conv_fwd.cpu.amx", accepts, prepare, launch};
const DltKernel dlt_low_conv_bwd_data = {"conv_bwd_data.cpu.amx", accepts, prepare, launch};
