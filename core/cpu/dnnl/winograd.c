/* Winograd's convolution, forward and data gradient (a convolution of dy with the turned filters). The filters
 * are transformed first; then a task takes so many tiles that they stay in its core's cache: inputs transformed,
 * 36 products of [tiles, C] [C, panel] a panel of filters, outputs transformed back with bias and relu. Every
 * output has its own sum, so results do not depend on the threads. */
#include "cpu/dnnl/winograd.h"
#include "cpu/dnnl/product.h"

enum {
    PANEL = DLT_WINO_PANEL,
    BROAD = DLT_WINO_BROAD,
    TILES = 36,       /* whole register tiles of 6 and 12 rows, */
    BROAD_TILES = 48, /* and of 8 */
    PAD = 16          /* floats between points: other cache sets */
};

DltWino dlt_wino_describe(const DltNode *n)
{
    const DltConv *a = n->attr;
    bool back = n->kind == DLT_OP_conv_bwd_data;
    const DltTensor *x = n->in[0], *y = n->kind == DLT_OP_conv_bwd_filter ? n->in[1] : n->out[0];
    DltWino k = {.n = x->shape.dim[0],
                 .c = x->shape.dim[1],
                 .h = x->shape.dim[2],
                 .w = x->shape.dim[3],
                 .k = y->shape.dim[1],
                 .p = y->shape.dim[2],
                 .q = y->shape.dim[3],
                 .blk = dlt_fast_block(x),
                 .filter = a->kernel[0],
                 .side = DLT_WINO_SIDE + 1 - a->kernel[0]};
    k.top = back ? k.filter - 1 - a->pad[0] : a->pad[0];
    k.left = back ? k.filter - 1 - a->pad[2] : a->pad[2];
    k.rows = (k.p + k.side - 1) / k.side;
    k.cols = (k.q + k.side - 1) / k.side;
    return k;
}

int64_t dlt_wino_panel(const DltWino *k)
{
    return k->blk == 16 && k->k % BROAD == 0 ? BROAD : PANEL;
}

static bool refuse(DltWhy *why_not, const char *why)
{
    snprintf(why_not->text, sizeof why_not->text, "%s", why);
    return false;
}

bool dlt_wino_accepts(const DltNode *n, const DltDevice *dev, DltWhy *why_not)
{
    const DltConv *a = n->attr;
    const DltTensor *x = n->in[0], *y = n->kind == DLT_OP_conv_bwd_filter ? n->in[1] : n->out[0];
    if (dlt_cpu_is_strict(dev)) return refuse(why_not, "precision f32 wants direct sums");
    if (!dlt_fast_f32(n, why_not)) return false;
    bool unit = a->stride[0] * a->stride[1] * a->dilation[0] * a->dilation[1] * a->groups == 1;
    bool size = a->kernel[0] == a->kernel[1] && (a->kernel[0] == 3 || a->kernel[0] == 5);
    if (!unit || !size) return refuse(why_not, "only for 3x3 and 5x5 of stride 1, undivided");
    if (dlt_fast_block(x) == 0 || x->layout != y->layout)
        return refuse(why_not, "not channel-blocked");
    DltWino k = dlt_wino_describe(n);
    if (k.c % PANEL != 0 || k.k % PANEL != 0)
        return refuse(why_not, "only for channels in sixteens");
    if (2 * k.p * k.q < k.rows * k.cols * k.side * k.side)
        return refuse(why_not, "the image fills less than half of its tiles");
    return true;
}

typedef struct Run {
    DltWino k;
    const float *w;
    float *u, *scratch; /* u [K/panel][36][C][panel] */
    int64_t panel;
    bool back; /* data gradient: w is [C, K, ..] and turned */
} Run;

static int64_t tiles_of(const DltWino *k)
{
    return dlt_wino_panel(k) == BROAD ? BROAD_TILES : TILES;
}

static size_t scratch_floats(const DltWino *k)
{
    return DLT_WINO_POINTS * (size_t)(tiles_of(k) * (k->c + dlt_wino_panel(k)) + 2 * PAD);
}

/* The r x r filters of eight outputs from `to` on at input `from`. */
DLT_INLINE void load_filters(const Run *r, int64_t from, int64_t to, DltV8 *g, int filter)
{
    int64_t taps = filter * filter;
    for (int64_t i = 0; i < taps; i++)
        for (int64_t lane = 0; lane < 8; lane++)
            g[i][lane] = r->back ? r->w[(from * r->k.k + to + lane) * taps + taps - 1 - i]
                                 : r->w[((to + lane) * r->k.c + from) * taps + i];
}

/* u = G g G^T of input channels [begin, end) */
DLT_INLINE void filters(const Run *r, int64_t begin, int64_t end, int filter)
{
    const DltWino *k = &r->k;
    for (int64_t c = begin; c < end; c++)
        for (int64_t to = 0; to < k->k; to += 8) {
            DltV8 g[25], half[6][5], t[6];
            load_filters(r, c, to, g, filter);
            for (int j = 0; j < filter; j++) {
                DltV8 column[5];
                for (int i = 0; i < filter; i++)
                    column[i] = g[i * filter + j];
                dlt_wino_g(column, t, filter);
                for (int i = 0; i < 6; i++)
                    half[i][j] = t[i];
            }
            int64_t panel = r->panel;
            float *u = r->u + to / panel * DLT_WINO_POINTS * k->c * panel + c * panel + to % panel;
            for (int i = 0; i < 6; i++) {
                dlt_wino_g(half[i], t, filter);
                for (int j = 0; j < 6; j++)
                    *(DltV8 *)(u + (i * 6 + j) * k->c * panel) = t[j];
            }
        }
}

DLT_CLONES static void filters_task(void *ctx, int64_t begin, int64_t end)
{
    const Run *r = ctx;
    if (r->k.filter == 3)
        filters(r, begin, end, 3);
    else
        filters(r, begin, end, 5);
}

/* m [rows][panel] = v u of one point. */
DLT_INLINE void multiply(const Run *r, const float *v, const float *u, int64_t rows, float *m)
{
    int64_t c = r->k.c;
    DltTileA a = {v, c, 1};
    if (r->panel == BROAD)
        dlt_strip_columns(&(DltColumn){.a = a,
                                       .b = u,
                                       .rows = rows,
                                       .kc = c,
                                       .n = BROAD,
                                       .ldc = BROAD,
                                       .group = DLT_STRIP_ROWS * c,
                                       .c = m},
                          BROAD);
    else if (r->k.blk == 16)
        dlt_tile_tall_column(rows, a, u, PANEL, c, (DltTileC){m, PANEL, false});
    else
        dlt_tile_column(rows, a, u, PANEL, c, (DltTileC){m, PANEL, false});
}

/* Tiles [t0, t1), at most tiles_of. */
DLT_INLINE void tiles(const Run *r, int64_t t0, int64_t t1, float *v, int side)
{
    const DltWino *k = &r->k;
    int64_t width = r->panel, most = tiles_of(k), lanes = k->blk;
    int64_t vs = most * k->c + PAD, ms = most * width + PAD;
    float *m = v + DLT_WINO_POINTS * vs;
    for (int64_t t = t0; t < t1; t++)
        for (int64_t c = 0; c < k->c; c += lanes)
            if (lanes == 16)
                dlt_wino_input_16(k, dlt_wino_tile(k, t), c, v + (t - t0) * k->c + c, vs);
            else
                dlt_wino_input_8(k, dlt_wino_tile(k, t), c, v + (t - t0) * k->c + c, vs);
    for (int64_t panel = 0; panel < k->k / width; panel++) {
        const float *u = r->u + panel * DLT_WINO_POINTS * k->c * width;
        for (int64_t f = 0; f < DLT_WINO_POINTS; f++)
            multiply(r, v + f * vs, u + f * k->c * width, t1 - t0, m + f * ms);
        for (int64_t t = t0; t < t1; t++)
            for (int64_t c = 0; c < width; c += lanes) {
                const float *from = m + (t - t0) * width + c;
                if (lanes == 16)
                    dlt_wino_output_16(k, dlt_wino_tile(k, t), panel * width + c, from, ms, side);
                else
                    dlt_wino_output_8(k, dlt_wino_tile(k, t), panel * width + c, from, ms, side);
            }
    }
}

DLT_CLONES static void tiles_task(void *ctx, int64_t begin, int64_t end)
{
    const Run *r = ctx;
    float *v = r->scratch + dlt_fast_worker() * (int64_t)scratch_floats(&r->k);
    if (r->k.side == 4)
        tiles(r, begin, end, v, 4);
    else
        tiles(r, begin, end, v, 2);
}

static DltStatus prepare(const DltNode *n, DltDevice *dev, DltPrep *p, DltErr *err)
{
    (void)err;
    DltWino k = dlt_wino_describe(n);
    size_t u = (size_t)(DLT_WINO_POINTS * k.c * k.k);
    p->work_bytes = (u + (size_t)dlt_cpu_threads(dev) * scratch_floats(&k)) * sizeof(float);
    return DLT_OK;
}

static void run(const DltCall *c, Run *r)
{
    r->k.in = c->in[0];
    r->w = c->in[1];
    r->panel = dlt_wino_panel(&r->k);
    r->u = c->work;
    r->scratch = r->u + DLT_WINO_POINTS * r->k.c * r->k.k;
    dlt_pool_for(c->stream, r->k.c, 4, filters_task, r);
    dlt_pool_for(c->stream, r->k.n * r->k.rows * r->k.cols, tiles_of(&r->k), tiles_task, r);
}

static DltStatus fwd(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltConv *a = c->node->attr;
    bool fused = a->ep.act.fn == DLT_FN_RELU && !a->ep.save_pre;
    Run r = {.k = dlt_wino_describe(c->node)};
    r.k.bias = c->in[2];
    r.k.out = a->ep.save_pre ? c->out[1] : c->out[0];
    r.k.relu = fused;
    run(c, &r);
    DltEpilogue rest = a->ep;
    if (fused) rest.act.fn = DLT_FN_NONE;
    dlt_fast_finish(c, &rest, r.k.out, NULL);
    return DLT_OK;
}

static DltStatus bwd_data(const DltCall *c, DltErr *err)
{
    (void)err;
    const DltConv *a = c->node->attr;
    Run r = {.k = dlt_wino_describe(c->node), .back = true};
    r.k.out = c->out[0];
    run(c, &r);
    dlt_fast_finish(c, &a->ep, r.k.out, c->in[2]);
    return DLT_OK;
}

const DltKernel dlt_fast_wino_fwd = {"conv_fwd.cpu.winograd", dlt_wino_accepts, prepare, fwd};
const DltKernel dlt_fast_wino_bwd_data = {"conv_bwd_data.cpu.winograd", dlt_wino_accepts, prepare,
                                          bwd_data};
